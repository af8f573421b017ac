//! What transfers of the same object to several sinks show.
//!
//! Programs get the lines of each transfer, with its address as `sink`. People get one line while
//! data move, and a report with a line for each sink at the end: also where nobody watches, if one
//! has failed.

use std::collections::{HashMap, HashSet};

use gtp::{Event, Failure, FailureKind, Outcome, Progress, Rate, ReadBytes, RelayReport, Stands};

use super::fit::{Sinks, sinks_line};
use super::json::{self, Json, Standing};
use super::limits::Limits;
use super::trace::Trace;
use super::{People, Skips, for_people};
use crate::args::TransferArgs;
use crate::limit::Ends;
use crate::{output, words};

/// Everything that hears of the transfers.
pub struct Several {
    sinks: Vec<Sink>,
    is_json: bool,
    standing: Standing,
    people: People,
    trace: Option<Trace>,
    /// What people have read of names that are left out, of all sinks alike.
    said: HashSet<String>,
    /// What is in the way of each sink, as people have read it.
    obstacles: HashMap<usize, String>,
}

/// One of the transfers.
struct Sink {
    url: String,
    json: Json,
    limits: Limits,
    progress: Progress,
    end: Option<Result<Outcome, Failure>>,
}

/// Names left out that are remembered, so that each is said once.
const SAID_MOST: usize = 4_096;

impl Several {
    /// As the options want it, of sinks with these addresses.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub fn new(args: &TransferArgs, urls: Vec<String>) -> Result<Several, Failure> {
        let sinks = urls.into_iter().map(|url| Sink {
            json: Json::of_sink(url.clone()),
            url,
            limits: Limits::default(),
            progress: Progress::default(),
            end: None,
        });
        Ok(Several {
            sinks: sinks.collect(),
            is_json: args.json,
            standing: Standing::default(),
            people: People::of(args),
            trace: args.trace.as_deref().map(Trace::create).transpose()?,
            said: HashSet::new(),
            obstacles: HashMap::new(),
        })
    }

    /// Something happened to the transfer of this number.
    pub fn event(&mut self, number: usize, event: &Event) {
        if self.is_json {
            self.sinks[number].json.event(event);
        }
        let text = match event {
            Event::Skipped(failure) => self.skipped(number, failure),
            Event::Retry { failure, .. } => {
                let said = self.obstacles.insert(number, failure.text.clone());
                for_people(event).filter(|_| said.as_ref() != Some(&failure.text))
            }
            Event::Started { .. }
            | Event::Way { .. }
            | Event::Dropped { .. }
            | Event::Warning(_)
            | Event::BadBlock { .. }
            | Event::Renewed { .. }
            | Event::FileDone { .. } => for_people(event),
        };
        if let Some(text) = text {
            self.people.say(&text);
        }
    }

    /// What to say of a name that is left out: what is left out of the source alike for all sinks
    /// is said for the first one.
    fn skipped(&mut self, number: usize, failure: &Failure) -> Option<String> {
        if self.said.len() < SAID_MOST && !self.said.insert(failure.to_string()) {
            return None;
        }
        Some(format!("gtp: {}: skipped {failure}", self.sinks[number].url))
    }

    /// What this process is to the machine's daemon.
    pub fn stands(&mut self, stands: Stands) {
        if self.is_json {
            self.standing.look(stands);
        }
    }

    /// New numbers of the transfer of this number.
    pub fn progress(&mut self, number: usize, progress: Progress) {
        let sink = &mut self.sinks[number];
        sink.limits.note(&progress);
        if self.is_json {
            sink.json.progress(&progress);
        }
        if let Some(trace) = &mut self.trace {
            trace.sample(&progress);
        }
        sink.progress = progress;
    }

    /// A tenth of a second is over.
    pub fn look(&mut self) {
        let sinks = self.stand();
        match &mut self.people {
            People::Bars(bars) => bars.show(|columns| sinks_line(&sinks, columns)),
            People::Lines(lines) => {
                if lines.is_due() && self.sinks.iter().any(|sink| sink.progress.total > 0) {
                    output::aside(sinks_line(&sinks, usize::MAX));
                }
            }
            People::Quiet => {}
        }
    }

    /// The transfer of this number is over.
    pub fn end(&mut self, number: usize, ended: Result<Outcome, Failure>) {
        if let Ok(outcome) = &ended {
            self.progress(number, outcome.progress.clone());
        }
        let sink = &mut self.sinks[number];
        if self.is_json {
            match &ended {
                Ok(outcome) => sink.json.done(outcome, &Skips::of(&outcome.skipped)),
                Err(failure) => sink.json.failed(failure, &sink.progress),
            }
        }
        if let Err(failure) = &ended {
            self.people.say(&format!("gtp: {}: {failure}", self.sinks[number].url));
        }
        self.sinks[number].end = Some(ended);
    }

    /// How each transfer ended, in the order of the sinks. One that has not ended has failed.
    pub fn ends(&self) -> Vec<Result<Outcome, Failure>> {
        let broken = || Err(Failure::new(FailureKind::Other, "the transfer broke off"));
        let end = |sink: &Sink| sink.end.clone().unwrap_or_else(broken);
        self.sinks.iter().map(end).collect()
    }

    /// All are over, with this exit code; so much was read from the source's files, and so it was
    /// relayed.
    pub fn ended(&mut self, exit_code: u8, read: ReadBytes, relay: Option<&RelayReport>) {
        let Sinks { all, done, failed, .. } = self.stand();
        let is_watched = match &mut self.people {
            People::Bars(bars) => {
                bars.clear();
                true
            }
            People::Lines(_) => true,
            People::Quiet => false,
        };
        if is_watched || failed > 0 {
            self.sinks.iter().for_each(|sink| output::aside(sink.report()));
            let mut text = format!("{done} of {all} done; {} read", words::say_bytes(read.all));
            if read.again > 0 {
                text += &format!(", {} of it again", words::say_bytes(read.again));
            }
            output::aside(text);
            relay.map(relay_words).into_iter().for_each(output::aside);
        }
        if let Some(Err(failure)) = self.trace.as_mut().map(Trace::flush) {
            output::lose(failure);
        }
        if self.is_json {
            json::ended_at_sinks(exit_code, (all, done), read, relay, &self.skips());
        }
    }

    /// What the sinks that are done have not got, each for itself.
    fn skips(&self) -> Skips {
        let done = self.sinks.iter().filter_map(|sink| sink.end.as_ref()?.as_ref().ok());
        Skips::of(done.flat_map(|outcome| &outcome.skipped))
    }

    fn stand(&self) -> Sinks {
        let ended = |is: fn(&Result<Outcome, Failure>) -> bool| {
            self.sinks.iter().filter(|sink| sink.end.as_ref().is_some_and(is)).count()
        };
        let running = self.sinks.iter().filter(|sink| sink.end.is_none());
        let slowest = running.map(Sink::stand).min_by(|a, b| a.1.total_cmp(&b.1));
        let (done, failed) = (ended(Result::is_ok), ended(Result::is_err));
        Sinks { all: self.sinks.len(), done, failed, slowest }
    }
}

impl Sink {
    /// Its address, the part that it has, its rate and what limits that.
    fn stand(&self) -> (String, f64, Rate, String) {
        let progress = &self.progress;
        let part = progress.bytes as f64 / progress.total.max(1) as f64;
        (self.url.clone(), part, progress.rate(), Ends::PUT.limit(progress.limited_by()))
    }

    /// Its line in the report.
    fn report(&self) -> String {
        let by = self.limits.most().map(|by| Ends::PUT.limit(by));
        let by = by.map_or(String::new(), |by| format!(", limited by {by}"));
        let (words, progress) = match &self.end {
            Some(Ok(outcome)) => (done_words(outcome), &outcome.progress),
            Some(Err(failure)) => (format!("failed: {failure}"), &self.progress),
            None => ("not over".to_owned(), &self.progress),
        };
        let there = match &self.end {
            Some(Ok(_)) => String::new(),
            Some(Err(_)) | None => format!("; {} arrived", words::say_bytes(progress.bytes)),
        };
        format!("{}  {words}{by}{there}", self.url)
    }
}

/// How much of the object left the source, and the least time that it could have taken.
fn relay_words(relay: &RelayReport) -> String {
    let times = relay.sent_wire_bytes as f64 / relay.object_wire_bytes.max(1) as f64;
    let sent = words::say_bytes(relay.sent_wire_bytes);
    let mut text =
        format!("relayed: {sent} of packets sent from here, {times:.2} times the object");
    text += &match relay.best {
        Some(best) => format!(
            "; no less than {} is possible with what the hosts say they can send and receive",
            words::say_seconds(best.as_secs_f64())
        ),
        None => "; the hosts do not say what they can send and receive".to_owned(),
    };
    text
}

fn done_words(outcome: &Outcome) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    let sent = outcome.bytes.saturating_sub(outcome.resumed_bytes);
    let goodput = Rate::from_f64(sent as f64 * 8.0 / seconds.max(1e-9));
    let (bytes, time) = (words::say_bytes(outcome.bytes), words::say_seconds(seconds));
    let mut text = format!("done: {bytes} in {time}, {}", words::say_rate(goodput));
    if outcome.resumed_bytes > 0 {
        text += &format!(", {} were there already", words::say_bytes(outcome.resumed_bytes));
    }
    if let Some(words) = Skips::of(&outcome.skipped).words() {
        text += &format!(", {words}");
    }
    text
}
