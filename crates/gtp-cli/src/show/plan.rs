//! What a plan shows: what is foreseen, how its transfers stand, and how each of them ended.
//!
//! Tables are results and go to standard output, or one JSON object a line for programs. While data
//! move, people read one line for the whole plan. Nothing here decides anything.

use std::process::ExitCode;

use gtp::{Event, Failure, Outcome, Progress, Rate, Span, Time};
use gtp_sys::Clock;
use serde_json::{Value, json};

use super::fit::{Sinks, sinks_line};
use super::{People, for_people, json};
use crate::plan::{Forecast, Plan, PlanArgs, Source};
use crate::{output, words};

/// A plan with what is foreseen for it.
#[derive(Clone, Copy)]
pub struct Forecasts<'a> {
    pub plan: &'a Plan,
    /// Bytes by object.
    pub sizes: &'a [u64],
    pub foreseen: &'a Forecast,
}

/// A transfer: an object, and which of those who want it.
type Number = (usize, usize);

impl Forecasts<'_> {
    /// Prints the forecast as the result of a command.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn show(&self, as_json: bool) -> Result<ExitCode, Failure> {
        if as_json {
            self.lines().try_for_each(output::json)?;
            return Ok(ExitCode::SUCCESS);
        }
        let head = ["object", "to", "from", "size", "begin", "end"].map(str::to_owned).to_vec();
        let rows = self.numbers().map(|number| {
            let run = self.foreseen.run(number);
            let mut row = self.names(number);
            row.extend([run.begin_s, run.end_s].map(say_s));
            row
        });
        table([head].into_iter().chain(rows)).into_iter().try_for_each(output::line)?;
        output::line("")?;
        for step in &self.foreseen.course.steps {
            let span = format!("{} to {}", say_s(Some(step.begin_s)), say_s(Some(step.end_s)));
            let shares = step.shares.iter().map(|share| {
                let number = self.foreseen.of[share.transfer as usize];
                let [object, from, to] = self.way(number, share.way as usize);
                format!("  {object} from {from} to {to}: {}", words::say_rate(rate(share.rate)))
            });
            [span].into_iter().chain(shares).try_for_each(output::line)?;
        }
        let end = say_s(self.foreseen.course.end_s());
        output::line(format_args!("all done after {end}; nothing was moved"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The forecast for programs: a line for each transfer, one for each time in which no rate
    /// changes, and one for the whole. A large plan has millions of shares, so each line is made
    /// when it is written.
    fn lines(&self) -> impl Iterator<Item = Value> {
        let planned = self.numbers().map(|number| {
            let (run, bytes) = (self.foreseen.run(number), self.sizes[number.0]);
            let from = self.sources(number).map(|source| source.at.url.to_string());
            self.line(
                "planned",
                number,
                json!({
                    "bytes": bytes,
                    "begin": run.begin_s,
                    "end": run.end_s,
                    "sources": from.collect::<Vec<_>>(),
                }),
            )
        });
        let steps = self.foreseen.course.steps.iter().map(|step| {
            let shares = step.shares.iter().map(|share| {
                let number = self.foreseen.of[share.transfer as usize];
                let [object, from, to] = self.way(number, share.way as usize);
                json!({ "object": object, "from": from, "to": to, "rate": share.rate })
            });
            let shares: Vec<Value> = shares.collect();
            json!({ "event": "step", "begin": step.begin_s, "end": step.end_s, "shares": shares })
        });
        let end = json!({ "event": "forecast", "end": self.foreseen.course.end_s() });
        planned.chain(steps).chain([end])
    }

    fn numbers(&self) -> impl Iterator<Item = Number> {
        let wants = self.plan.objects.iter().map(|object| object.wants.len()).enumerate();
        wants.flat_map(|(object, wants)| (0..wants).map(move |sink| (object, sink)))
    }

    fn sources(&self, number: Number) -> impl Iterator<Item = &Source> {
        self.plan.objects[number.0].has.iter()
    }

    /// The names of an object, of one of its sources and of a sink.
    fn way(&self, (object, sink): Number, way: usize) -> [&str; 3] {
        let object = &self.plan.objects[object];
        let name = |host: usize| self.plan.hosts[host].name.as_str();
        let from = object.has.get(way).map_or("", |source| name(source.at.host));
        [&object.name, from, name(object.wants[sink].host)]
    }

    /// A row's first columns: object, sink, sources and size.
    fn names(&self, number: Number) -> Vec<String> {
        let [object, _, to] = self.way(number, 0);
        let from = self.sources(number).map(|source| self.plan.hosts[source.at.host].name.as_str());
        let from: Vec<&str> = from.collect();
        let size = words::say_bytes(self.sizes[number.0]);
        vec![object.to_owned(), to.to_owned(), from.join(" "), size]
    }

    /// A line about a transfer, for programs.
    fn line(&self, event: &str, number: Number, more: Value) -> Value {
        let [object, _, to] = self.way(number, 0);
        let url = self.plan.objects[number.0].wants[number.1].url.to_string();
        let mut line = json!({ "event": event, "object": object, "to": to, "sink": url });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        line
    }
}

/// Everything that hears of a plan that is carried out.
pub struct Watched<'a> {
    about: Forecasts<'a>,
    is_json: bool,
    people: People,
    clock: Clock,
    began: Time,
    looks: u32,
    /// By object and place that wants it.
    rows: Vec<Vec<Row>>,
}

#[derive(Clone, Default)]
struct Row {
    progress: Progress,
    began: Option<Span>,
    ended: Option<Span>,
    end: Option<Result<Outcome, Failure>>,
    /// What people have read of what is in its way.
    obstacle: String,
}

/// A line for each transfer, once a second.
const LOOKS_PER_LINE: u32 = 10;

impl<'a> Watched<'a> {
    /// As the options want it.
    pub fn new(args: &PlanArgs, about: Forecasts<'a>) -> Watched<'a> {
        let people = People::when(args.progress, args.json);
        let clock = Clock::start();
        let rows = about.plan.objects.iter();
        let rows = rows.map(|object| vec![Row::default(); object.wants.len()]).collect();
        if args.json {
            about.lines().for_each(|line| json::line(&line));
        }
        let began = clock.now();
        Watched { about, is_json: args.json, people, clock, began, looks: 0, rows }
    }

    fn row(&mut self, (object, sink): Number) -> &mut Row {
        &mut self.rows[object][sink]
    }

    fn now(&self) -> Span {
        self.clock.now().since(self.began)
    }

    /// A transfer begins.
    pub fn begin(&mut self, number: Number) {
        let now = self.now();
        self.row(number).began = Some(now);
        if self.is_json {
            let more = json!({ "begin": now.as_secs_f64() });
            json::line(&self.about.line("started", number, more));
        }
    }

    /// Something happened to a transfer.
    pub fn event(&mut self, number: Number, event: &Event) {
        let [object, _, to] = self.about.way(number, 0);
        let about = format!("{object} to {to}");
        let (text, line) = match event {
            Event::Retry { failure, after, .. } => (
                failure.text.clone(),
                self.about.line(
                    "retry",
                    number,
                    json!({
                        "kind": failure.kind.as_str(),
                        "message": failure.text,
                        "after": after.as_secs_f64(),
                    }),
                ),
            ),
            Event::Warning(text) => {
                (text.clone(), self.about.line("warning", number, json!({ "message": text })))
            }
            Event::Started { .. }
            | Event::Way { .. }
            | Event::Dropped { .. }
            | Event::Skipped(_)
            | Event::BadBlock { .. }
            | Event::Renewed { .. }
            | Event::FileDone { .. } => {
                if let Some(text) = for_people(event) {
                    self.people.say(&text);
                }
                return;
            }
        };
        if self.is_json {
            json::line(&line);
        }
        // One that is tried again and again is told of once.
        if std::mem::replace(&mut self.row(number).obstacle, text.clone()) != text {
            self.people.say(&format!("gtp: {about}: {text}"));
        }
    }

    /// New numbers of a transfer.
    pub fn progress(&mut self, number: Number, progress: Progress) {
        self.row(number).progress = progress;
    }

    /// A tenth of a second is over.
    pub fn look(&mut self) {
        self.looks += 1;
        if self.is_json && self.looks.is_multiple_of(LOOKS_PER_LINE) {
            for number in self.about.numbers() {
                let row = &self.rows[number.0][number.1];
                if row.began.is_some() && row.end.is_none() && row.progress.total > 0 {
                    json::line(&self.about.line("progress", number, json::numbers(&row.progress)));
                }
            }
        }
        let stand = self.stand();
        match &mut self.people {
            People::Bars(bars) => bars.show(|columns| sinks_line(&stand, columns)),
            People::Lines(lines) => {
                if lines.is_due() && stand.slowest.is_some() {
                    output::aside(sinks_line(&stand, usize::MAX));
                }
            }
            People::Quiet => {}
        }
    }

    /// A transfer is over, or will never begin.
    pub fn end(&mut self, number: Number, ended: &Result<Outcome, Failure>) {
        let now = self.now();
        let row = self.row(number);
        row.ended = Some(now);
        row.end = Some(ended.clone());
        if let Ok(outcome) = ended {
            row.progress = outcome.progress.clone();
        }
        let (row, planned) = (row.clone(), self.about.foreseen.run(number));
        if self.is_json {
            let (event, mut more) = match ended {
                Ok(outcome) => (
                    "done",
                    json!({
                        "bytes": outcome.bytes,
                        "resumed_bytes": outcome.resumed_bytes,
                        "files_written": outcome.files_written,
                        "files_unchanged": outcome.files_unchanged,
                        "left_out": outcome.skipped.len(),
                    }),
                ),
                Err(failure) => (
                    "error",
                    json!({
                        "bytes": row.progress.bytes,
                        "kind": failure.kind.as_str(),
                        "exit_code": failure.exit_code(),
                        "message": failure.text,
                    }),
                ),
            };
            more["begin"] = json!(row.began.map(Span::as_secs_f64));
            more["end"] = json!(now.as_secs_f64());
            more["planned_end"] = json!(planned.end_s);
            json::line(&self.about.line(event, number, more));
        }
        let [object, _, to] = self.about.way(number, 0);
        match ended {
            Ok(outcome) => {
                for failure in &outcome.skipped {
                    self.people.say(&format!("gtp: {object} to {to}: skipped {failure}"));
                }
            }
            Err(failure) => self.people.say(&format!("gtp: {object} to {to}: {failure}")),
        }
    }

    /// All are over, with this exit code: the table, with what was foreseen beside what was.
    pub fn ended(&mut self, exit_code: u8) {
        if let People::Bars(bars) = &mut self.people {
            bars.clear();
        }
        let all: Vec<&Row> = self.rows.iter().flatten().collect();
        let done = all.iter().filter(|row| matches!(row.end, Some(Ok(_)))).count();
        let seconds = self.now().as_secs_f64();
        if self.is_json {
            json::line(&json!({
                "event": "ended",
                "exit_code": exit_code,
                "objects": all.len(),
                "done": done,
                "seconds": seconds,
                "planned_end": self.about.foreseen.course.end_s(),
            }));
            return;
        }
        let head = ["object", "to", "from", "size", "planned end", "end", ""].map(str::to_owned);
        let rows = self.about.numbers().map(|number| {
            let (row, run) = (&self.rows[number.0][number.1], self.about.foreseen.run(number));
            let mut cells = self.about.names(number);
            cells.extend([say_s(run.end_s), say_s(row.ended.map(Span::as_secs_f64)), row.words()]);
            cells
        });
        for line in table([head.to_vec()].into_iter().chain(rows)) {
            if let Err(failure) = output::line(line) {
                output::lose(failure);
            }
        }
        let (planned, took) = (say_s(self.about.foreseen.course.end_s()), say_s(Some(seconds)));
        let text = format!("{done} of {} done after {took}, planned {planned}", all.len());
        if let Err(failure) = output::line(text) {
            output::lose(failure);
        }
    }

    fn stand(&self) -> Sinks {
        let ended = |is: fn(&Result<Outcome, Failure>) -> bool| {
            self.rows.iter().flatten().filter(|row| row.end.as_ref().is_some_and(is)).count()
        };
        let running = self.about.numbers().filter_map(|number| {
            let row = &self.rows[number.0][number.1];
            let runs = row.began.is_some() && row.end.is_none() && row.progress.total > 0;
            let part = row.progress.bytes as f64 / row.progress.total.max(1) as f64;
            let [object, _, to] = self.about.way(number, 0);
            let name = format!("{object} to {to}");
            runs.then(|| (name, part, row.progress.rate(), String::new()))
        });
        let slowest = running.min_by(|a, b| a.1.total_cmp(&b.1));
        let (done, failed) = (ended(Result::is_ok), ended(Result::is_err));
        Sinks { all: self.about.plan.transfers(), done, failed, slowest }
    }
}

impl Row {
    /// How it ended, in words.
    fn words(&self) -> String {
        match &self.end {
            Some(Ok(outcome)) if outcome.files_written == 0 && outcome.files_unchanged > 0 => {
                "done: it was there".into()
            }
            Some(Ok(outcome)) if outcome.resumed_bytes > 0 => {
                format!("done: {} were there", words::say_bytes(outcome.resumed_bytes))
            }
            Some(Ok(_)) => "done".into(),
            Some(Err(failure)) => {
                let there = match self.progress.bytes {
                    0 => String::new(),
                    bytes => format!("; {} arrived", words::say_bytes(bytes)),
                };
                format!("failed: {}{there}", failure.text.lines().next().unwrap_or_default())
            }
            None => "not begun".into(),
        }
    }
}

fn rate(bps: f64) -> Rate {
    if bps.is_finite() { Rate::from_f64(bps) } else { Rate::UNLIMITED }
}

fn say_s(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "never".into(), words::say_seconds)
}

/// Lines of rows whose columns stand below each other; the last one is as long as it is.
fn table(rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows.collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| console::measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| {
            let gap = width.saturating_sub(console::measure_text_width(cell));
            format!("{cell}{}", " ".repeat(gap))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
