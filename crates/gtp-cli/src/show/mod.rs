//! What a transfer shows: to programs, to people, and into a trace.
//!
//! Standard output belongs to programs (and to the data, for `get URL -`), standard error to
//! people. Three showers hear the same events; each takes what it wants.

mod bars;
mod eta;
mod fit;
pub mod json;
mod limits;
mod lines;
pub mod plan;
pub mod several;
mod skips;
mod trace;

use std::collections::HashMap;
use std::io::IsTerminal;

use gtp::{Event, Failure, FailureKind, Outcome, Progress, RootKind, Stands};

use crate::args::{TransferArgs, When};
use crate::limit::Ends;
use crate::{output, words};
use bars::Bars;
use lines::Lines;
pub use skips::Skips;
use trace::Trace;

/// Everything that hears of a transfer.
pub struct Shower {
    json: Option<json::Json>,
    people: People,
    trace: Option<Trace>,
    /// What is in the way of each source, as people have read it.
    obstacles: HashMap<String, String>,
    /// Which of the things that are left out concern the user; all if `None`.
    concerns: Option<Concerns>,
    /// What the hosts are called, where neither is this one.
    ends: Option<Ends>,
    /// What all transfers have skipped, and how many of them have skipped something.
    skipped: (Skips, usize),
    /// What the present one has skipped so far.
    skips: Skips,
}

/// Whether something that is left out concerns the user.
pub type Concerns = Box<dyn Fn(&Failure) -> bool + Send>;

/// How people see it.
enum People {
    Bars(Box<Bars>),
    Lines(Lines),
    Quiet,
}

impl People {
    /// As the options want it.
    fn of(args: &TransferArgs) -> People {
        People::when(args.progress, args.json)
    }

    /// When progress is to be shown; with JSON lines only if that is asked for.
    fn when(progress: When, json: bool) -> People {
        let terminal = std::io::stderr().is_terminal();
        match progress {
            When::Auto if terminal && !json => People::Bars(Box::new(Bars::new())),
            When::Always if terminal => People::Bars(Box::new(Bars::new())),
            When::Always => People::Lines(Lines::default()),
            When::Auto | When::Never => People::Quiet,
        }
    }

    fn say(&self, text: &str) {
        match self {
            People::Bars(bars) => bars.say(&gtp_text::of_lines(text)),
            People::Lines(_) | People::Quiet => output::aside(text),
        }
    }
}

impl Shower {
    /// As the options want it; `data_on_stdout` says that standard output is taken.
    ///
    /// # Errors
    /// When the trace cannot be written, or two things want standard output.
    pub fn new(args: &TransferArgs, data_on_stdout: bool) -> Result<Shower, Failure> {
        if args.json && data_on_stdout {
            let text = "--json and the data cannot both go to standard output";
            return Err(Failure::new(FailureKind::Usage, text));
        }
        let people = People::of(args);
        let trace = args.trace.as_deref().map(Trace::create).transpose()?;
        Ok(Shower {
            json: args.json.then(json::Json::default),
            people,
            trace,
            obstacles: HashMap::new(),
            concerns: None,
            ends: None,
            skipped: Default::default(),
            skips: Skips::default(),
        })
    }

    /// Keeps to itself what is left out and does not concern the user. Whoever knows that sums up
    /// what is left out.
    pub fn tell_only(&mut self, concerns: Concerns) {
        self.concerns = Some(concerns);
    }

    /// Transfers from now on are between other hosts.
    pub fn tell_of_others(&mut self) {
        self.ends = Some(Ends::ELSEWHERE);
    }

    /// Transfers from now on are of this part of the way.
    pub fn set_leg(&mut self, leg: Leg) {
        if let Some(json) = &mut self.json {
            json.leg = leg;
        }
    }

    /// A transfer begins.
    pub fn begin(&mut self) {
        self.skips = Skips::default();
        if let Some(json) = &mut self.json {
            json.begin();
        }
        if let People::Lines(lines) = &mut self.people {
            lines.begin();
        }
    }

    /// Something happened.
    pub fn event(&mut self, event: &Event) {
        if let (Event::Skipped(failure), Some(concerns)) = (event, &self.concerns)
            && !concerns(failure)
        {
            return;
        }
        if let Event::Skipped(failure) = event {
            self.skips.note(&failure.text);
        }
        if let Some(json) = &self.json {
            json.event(event);
        }
        if self.was_just_said(event) {
            return;
        }
        if let Some(text) = for_people(event) {
            self.people.say(&text);
        }
    }

    /// Whether people have read of the same source that the same thing is in the way: a server that
    /// is tried every few seconds is told of once.
    fn was_just_said(&mut self, event: &Event) -> bool {
        let Event::Retry { url, failure, .. } = event else { return false };
        let said = self.obstacles.insert(url.clone(), failure.text.clone());
        said.is_some_and(|said| said == failure.text)
    }

    /// What this process is to the machine's daemon. People read of changes in the log.
    pub fn stands(&mut self, stands: Stands) {
        if let Some(json) = &mut self.json {
            json.standing.look(stands);
        }
    }

    /// New numbers.
    pub fn progress(&mut self, progress: &Progress) {
        self.record(progress);
        let ends = self.ends.unwrap_or_else(|| crate::limit::ends_of(progress));
        match &mut self.people {
            People::Bars(bars) => bars.progress(progress, ends),
            People::Lines(lines) => lines.progress(progress, ends),
            People::Quiet => {}
        }
    }

    /// New numbers, for programs and the trace.
    fn record(&mut self, progress: &Progress) {
        if let Some(json) = &mut self.json {
            json.progress(progress);
        }
        if let Some(trace) = &mut self.trace {
            trace.sample(progress);
        }
    }

    /// The transfer is over.
    pub fn end(&mut self, ended: &Result<Outcome, Failure>) {
        if let People::Bars(bars) = &mut self.people {
            bars.clear();
        }
        if let Ok(outcome) = ended {
            self.record(&outcome.progress);
            let skips = self.skips_of(outcome);
            if let Some(json) = &self.json {
                json.done(outcome, &skips);
            }
            match self.people {
                People::Bars(_) | People::Lines(_) => output::aside(summary(outcome)),
                People::Quiet => {}
            }
            self.sum_up(&skips);
        }
        if let Some(Err(failure)) = self.trace.as_mut().map(Trace::flush) {
            output::lose(failure);
        }
    }

    /// What a transfer has skipped that concerns the user. Its outcome knows what was skipped at
    /// the end, but perhaps not why.
    fn skips_of(&mut self, outcome: &Outcome) -> Skips {
        let concerns = |failure: &&Failure| self.concerns.as_ref().is_none_or(|of| of(failure));
        let at_end = Skips::of(outcome.skipped.iter().filter(concerns));
        let said = std::mem::take(&mut self.skips);
        if said.total() == at_end.total() { said } else { at_end }
    }

    /// Says at the end of a transfer what it has skipped, unless somebody else does.
    fn sum_up(&mut self, skips: &Skips) {
        let Some(words) = skips.words() else { return };
        self.skipped.0.add(skips);
        self.skipped.1 += 1;
        if self.concerns.is_none() {
            output::aside(format_args!("gtp: {words}"));
        }
    }

    /// A transfer failed.
    pub fn failed(&mut self, failure: &Failure) {
        if self.json.is_some() {
            json::failed(failure);
        }
        crate::verbs::say_failure(failure);
    }

    /// A command that was to move several objects ends with this exit code; so many of them are
    /// there.
    pub fn ended(&self, exit_code: u8, objects: usize, done: usize) {
        if self.json.is_some() {
            json::ended(exit_code, (objects, done), &self.skipped.0);
        }
        if let (Some(words), 2..) = (self.skipped.0.words(), self.skipped.1) {
            output::aside(format_args!("gtp: in all, {words}"));
        }
    }
}

/// Which part of the way of a copy a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leg {
    /// To this machine, from where it goes on.
    First,
    /// To where it is to be.
    #[default]
    Last,
}

/// What people want to read, whether they watch or not.
fn for_people(event: &Event) -> Option<String> {
    match event {
        Event::Started { .. } | Event::FileDone { .. } => None,
        Event::Retry { url, failure, after } => {
            let pause = after.as_secs_f64();
            Some(format!("gtp: {url}: {failure}; trying again in {pause:.1} s"))
        }
        Event::Way { text, .. } => Some(format!("gtp: {text}")),
        Event::Dropped { url, failure } => Some(format!("gtp: goes on without {url}: {failure}")),
        Event::Warning(text) => Some(format!("gtp: {text}")),
        Event::Skipped(failure) => Some(format!("gtp: skipped {failure}")),
        Event::Renewed { path } => Some(format!(
            "gtp: {path}: the parts from before belong to another file; all of it is fetched again"
        )),
        Event::BadBlock { url, path, block } => {
            Some(format!("gtp: {url} sent block {block} of {path} damaged; it is fetched anew"))
        }
    }
}

fn summary(outcome: &Outcome) -> String {
    let seconds = outcome.elapsed.as_secs_f64();
    let fetched = outcome.bytes.saturating_sub(outcome.resumed_bytes);
    let goodput = gtp::Rate::from_f64(fetched as f64 * 8.0 / seconds.max(1e-9));
    let mut text = format!(
        "{} in {}, {} of file data; loss {:.2} %",
        words::say_bytes(outcome.bytes),
        words::say_seconds(seconds),
        words::say_rate(goodput),
        outcome.progress.loss_ratio() * 100.0
    );
    if outcome.resumed_bytes > 0 {
        text += &format!("; {} were there already", words::say_bytes(outcome.resumed_bytes));
    }
    if let Some(hash) = &outcome.blake3 {
        text += &format!("\nBLAKE3 {}", words::hex(hash));
    }
    text
}

/// The word for a kind of object.
fn kind_word(kind: RootKind) -> &'static str {
    match kind {
        RootKind::File => "file",
        RootKind::Dir => "directory",
    }
}
/// Whether what an earlier transfer left is being read, and nothing has moved yet.
fn is_rechecking(progress: &Progress) -> bool {
    progress.rechecked > 0 && progress.bytes == 0
}
