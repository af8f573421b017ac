//! For programs: one JSON object a line on standard output. Sizes are bytes, rates bit/s, times
//! seconds.
//! The fields are a contract with scripts: they may grow, and never change.

use std::time::Duration;

use gtp::{
    Event, Failure, LimitedBy, Outcome, Progress, Rate, ReadBytes, RelayReport, SourceShare, Stands,
};
use gtp_share::PathView;
use serde_json::{Value, json};

use super::limits::Limits;
use super::{Leg, Skips, kind_word};
use crate::{output, words};

/// Writes the lines of one command.
#[derive(Default)]
pub struct Json {
    looks: u32,
    bytes: u64,
    files_done: u64,
    pub standing: Standing,
    pub leg: Leg,
    limits: Limits,
    /// Where the object goes, if it goes to several places.
    sink: Option<String>,
}

/// What a process was to the machine's daemon when it was looked at last: alone, at first.
#[derive(Default)]
pub struct Standing(Stands);

impl Standing {
    /// Prints a line if that has changed.
    pub fn look(&mut self, now: Stands) {
        if std::mem::replace(&mut self.0, now) != now {
            line(&json!({ "event": "daemon", "standing": now.as_str() }));
        }
    }
}

/// Every fifth look, twice a second.
const LOOKS_PER_LINE: u32 = 5;

impl Json {
    /// Writes the lines of one of several transfers, which all name their destination.
    pub fn of_sink(sink: String) -> Json {
        Json { sink: Some(sink), ..Json::default() }
    }

    pub fn begin(&mut self) {
        let (standing, leg) = (std::mem::take(&mut self.standing), self.leg);
        *self = Json { standing, leg, ..Json::default() };
    }

    fn line(&self, mut value: Value) {
        if let Some(sink) = &self.sink {
            value["sink"] = json!(sink);
        }
        line(&value);
    }

    /// One of several transfers failed, after so much.
    pub fn failed(&self, failure: &Failure, progress: &Progress) {
        let mut value = failure_of(failure);
        value["bytes"] = json!(progress.bytes);
        value["seconds"] = json!(progress.elapsed.as_secs_f64());
        value["limited_by"] = json!(self.limits.most().map(LimitedBy::as_str));
        self.line(value);
    }

    pub fn event(&self, event: &Event) {
        self.line(match event {
            Event::Started { destination, kind, files, bytes } => json!({
                "event": "started",
                "destination": destination,
                "kind": kind_word(*kind),
                "files": files,
                "bytes": bytes,
            }),
            Event::Retry { url, failure, after } => json!({
                "event": "retry",
                "url": url,
                "kind": failure.kind.as_str(),
                "message": failure.text,
                "after": after.as_secs_f64(),
            }),
            Event::Way { url, way, text } => json!({
                "event": "carrier",
                "url": url,
                "carrier": way.as_str(),
                "message": text,
            }),
            Event::Dropped { url, failure } => json!({
                "event": "dropped",
                "url": url,
                "kind": failure.kind.as_str(),
                "message": failure.text,
            }),
            Event::Skipped(failure) => json!({
                "event": "skipped",
                "kind": failure.kind.as_str(),
                "message": failure.text,
            }),
            Event::Warning(text) => json!({ "event": "warning", "message": text }),
            Event::BadBlock { url, path, block } => json!({
                "event": "bad_block",
                "url": url,
                "path": path,
                "block": block,
            }),
            Event::Renewed { path } => json!({
                "event": "renewed",
                "path": path,
            }),
            Event::FileDone { path, bytes, blake3 } => json!({
                "event": "file_done",
                "path": path,
                "bytes": bytes,
                "blake3": blake3.as_ref().map(words::hex),
            }),
        });
    }

    /// Numbers, twice a second and when all bytes are there.
    pub fn progress(&mut self, progress: &Progress) {
        self.looks += 1;
        self.limits.note(progress);
        let is_news = (progress.bytes, progress.files_done) != (self.bytes, self.files_done);
        let complete = progress.bytes == progress.total && is_news;
        let is_unknown = progress.total == 0 && progress.bytes == 0;
        if is_unknown || (!self.looks.is_multiple_of(LOOKS_PER_LINE) && !complete) {
            return;
        }
        (self.bytes, self.files_done) = (progress.bytes, progress.files_done);
        let mut value = numbers(progress);
        value["event"] = json!("progress");
        value["files_done"] = json!(progress.files_done);
        value["files"] = json!(progress.files);
        value["granted"] = json!(rate(progress.granted()));
        value["limited_by"] = json!(progress.limited_by().as_str());
        value["loss_ratio"] = json!(progress.loss_ratio());
        value["sources"] = progress.sources.iter().map(source).collect();
        self.line(value);
    }

    pub fn done(&self, outcome: &Outcome, skips: &Skips) {
        let seconds = outcome.elapsed.as_secs_f64();
        let mean = |bytes: u64| (bytes as f64 * 8.0 / seconds.max(1e-9)).round() as u64;
        let fetched = outcome.bytes.saturating_sub(outcome.resumed_bytes);
        let progress = &outcome.progress;
        let sources: Vec<Value> = progress
            .sources
            .iter()
            .map(|s| json!({ "url": s.url, "bytes": s.bytes, "mean_rate": mean(s.wire_bytes) }))
            .collect();
        let mut value = json!({
            "event": match self.leg {
                Leg::First => "fetched",
                Leg::Last => "done",
            },
            "bytes": outcome.bytes,
            "resumed_bytes": outcome.resumed_bytes,
            "received_bytes": progress.sources.iter().map(|s| s.wire_bytes).sum::<u64>(),
            "files_written": outcome.files_written,
            "files_unchanged": outcome.files_unchanged,
            "seconds": seconds,
            "goodput": mean(fetched),
            "limited_by": self.limits.most().map(LimitedBy::as_str),
            "loss_ratio": progress.loss_ratio(),
            "retransmitted_bytes": retransmitted(progress),
            "blake3": outcome.blake3.as_ref().map(words::hex),
            "sources": sources,
        });
        skips.add_to(&mut value);
        self.line(value);
    }
}

/// A failure: the last line, if nothing else was to be done.
pub fn failed(failure: &Failure) {
    line(&failure_of(failure));
}

fn failure_of(failure: &Failure) -> Value {
    json!({
        "event": "error",
        "kind": failure.kind.as_str(),
        "exit_code": failure.exit_code(),
        "message": failure.text,
    })
}

/// The end of a command that was to move several objects, as the last line.
pub fn ended(exit_code: u8, (objects, done): (usize, usize), skips: &Skips) {
    let mut value = json!({
        "event": "ended",
        "exit_code": exit_code,
        "objects": objects,
        "done": done,
    });
    skips.add_to(&mut value);
    line(&value);
}

/// The end of a command that was to send the same to several places, as the last line.
pub fn ended_at_sinks(
    exit_code: u8,
    (sinks, done): (usize, usize),
    read: ReadBytes,
    relay: Option<&RelayReport>,
    skips: &Skips,
) {
    let mut ended = json!({
        "event": "ended",
        "exit_code": exit_code,
        "objects": sinks,
        "done": done,
        "read_bytes": read.all,
        "read_again_bytes": read.again,
    });
    skips.add_to(&mut ended);
    if let Some(relay) = relay {
        ended["relay"] = json!({
            "sent_wire_bytes": relay.sent_wire_bytes,
            "object_wire_bytes": relay.object_wire_bytes,
            "relaying": relay.relaying,
            "best_seconds": relay.best.map(|best| best.as_secs_f64()),
        });
    }
    line(&ended);
}

/// Writes one line at once, so that a reader of a pipe sees it now.
pub fn line(value: &Value) {
    output::line_beside(value);
}

/// How far a transfer is, of whatever kind.
pub fn numbers(progress: &Progress) -> Value {
    json!({
        "seconds": progress.elapsed.as_secs_f64(),
        "bytes": progress.bytes,
        "total": progress.total,
        "resumed_bytes": progress.resumed_bytes,
        "rechecked_bytes": progress.rechecked,
        "rate": progress.rate().as_bps(),
    })
}

/// A source's numbers; the trace writes the same.
pub fn source(share: &SourceShare) -> Value {
    json!({
        "url": share.url,
        "bytes": share.bytes,
        "wire_bytes": share.wire_bytes,
        "rate": share.rate.as_bps(),
        "granted": rate(share.granted),
        "limited_by": share.limited_by.as_str(),
        "path": share.path.map(PathView::from),
        "loss_ratio": share.loss_ratio,
        "rtt": Duration::from_nanos(share.rtt.as_nanos()).as_secs_f64(),
        "carrier": share.way.as_str(),
        "alive": share.alive,
    })
}

/// A rate, or null where there is no limit.
fn rate(rate: Rate) -> Option<u64> {
    (!rate.is_unlimited()).then(|| rate.as_bps())
}

/// What was sent again: what was lost, and what came twice.
fn retransmitted(progress: &Progress) -> u64 {
    let lost = |s: &SourceShare| {
        let loss = s.loss_ratio.clamp(0.0, 0.99);
        (s.wire_bytes as f64 * loss / (1.0 - loss)).round() as u64
    };
    progress.sources.iter().map(lost).sum::<u64>() + progress.duplicate_bytes()
}
