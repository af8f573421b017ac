//! What became of a group's frames: words at the end, and a file for machines.
//!
//! Times are kept for a bounded number of frames; counts are of all. Nothing here decides what is
//! released.

use std::path::Path;
use std::time::Duration;

use gtp::in_step::{Gathering, Released, Sending, SinkEnd, SinkTerms};
use gtp::{Failure, FailureKind, Span, Time};
use serde_json::{Value, json};

use crate::output::aside;
use crate::words::{count, say_bytes};

/// Frames whose times are kept: 32 MB.
const NOTED_MOST: usize = 1 << 20;

/// A frame that was released.
struct Noted {
    number: u64,
    at: Time,
    /// Between its first part's coming and its last one's.
    skew: Span,
    /// How long its first part waited.
    waited: Span,
    /// How long before its release its last part came.
    spare: Span,
    is_whole: bool,
}

/// What a receiver notes.
pub struct Received {
    terms: SinkTerms,
    noted: Vec<Noted>,
    /// The wall clock at the first frame's release.
    began: Option<Duration>,
}

impl Received {
    /// Nothing came yet.
    pub fn of(terms: SinkTerms) -> Received {
        Received { terms, noted: Vec::new(), began: None }
    }

    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        self.terms.part_bytes
    }

    /// A frame is released at this time.
    pub fn note<B>(&mut self, frame: &Released<B>, at: Time) {
        if self.noted.len() >= NOTED_MOST {
            return;
        }
        self.began.get_or_insert_with(gtp_sys::clock::unix_time);
        let (first, last) = frame.came;
        self.noted.push(Noted {
            number: frame.number,
            at,
            skew: last.since(first),
            waited: at.since(first),
            spare: at.since(last),
            is_whole: frame.is_whole(),
        });
    }

    /// Says how it went, to people and, if there is one, into a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn tell(&self, gathering: &Gathering, report: Option<&Path>) -> Result<(), Failure> {
        let totals = gathering.totals();
        let released = totals.whole + totals.incomplete;
        aside(format_args!(
            "{} of {} of {}: {} whole, {} incomplete, {} absent",
            count(released, "frame"),
            count(u64::from(self.terms.parts), "part"),
            say_bytes(self.terms.part_bytes),
            totals.whole,
            totals.incomplete,
            totals.absent
        ));
        let skews = Spread::of(self.noted.iter().map(|noted| noted.skew));
        let waits = Spread::of(self.noted.iter().map(|noted| noted.waited));
        let spare = Spread::of(self.noted.iter().map(|noted| noted.spare));
        if let (Some(skews), Some(waits), Some(spare)) = (&skews, &waits, &spare) {
            if self.terms.parts > 1 {
                aside(format_args!("parts came apart by {}", skews.words()));
            }
            aside(format_args!("a frame waited for {}", waits.words()));
            aside(format_args!("its last part came {} before it was released", spare.words()));
        }
        for place in 0..self.terms.parts {
            aside(format_args!("part {}: {}", place + 1, part_words(gathering, place)));
        }
        let spreads = [("skew", skews), ("waited", waits), ("spare", spare)];
        write(report, || self.to_json(gathering, &spreads))
    }

    fn to_json(&self, gathering: &Gathering, spreads: &[(&str, Option<Spread>)]) -> Value {
        let totals = gathering.totals();
        let first = self.noted.first().map(|noted| noted.at).unwrap_or_default();
        let parts: Vec<Value> =
            (0..self.terms.parts).map(|place| part_json(gathering, place)).collect();
        let frames: Vec<Value> = self.noted.iter().map(|noted| noted.to_json(first)).collect();
        let mut report = json!({
            "part_bytes": self.terms.part_bytes,
            "frames_whole": totals.whole,
            "frames_incomplete": totals.incomplete,
            "frames_absent": totals.absent,
            "first_unix_s": self.began.map(|began| began.as_secs_f64()),
            "parts": parts,
            "frames": frames,
        });
        for (name, spread) in spreads {
            for (which, value) in Spread::NAMES.iter().zip(Spread::values(spread.as_ref())) {
                report[format!("{name}_{which}_s")] = value.into();
            }
        }
        report
    }
}

impl Noted {
    fn to_json(&self, first: Time) -> Value {
        json!([
            self.number,
            self.at.since(first).as_secs_f64(),
            self.skew.as_secs_f64(),
            self.is_whole
        ])
    }
}

fn part_words(gathering: &Gathering, place: u16) -> String {
    let (tally, seen) = (gathering.tally(place), gathering.seen(place));
    let mut words = format!("{} released, {} missing", tally.released, tally.missing);
    let others = [
        (tally.late, "late"),
        (tally.crowded, "without room"),
        (tally.ahead, "too early"),
        (tally.repeated, "repeated"),
        (seen.lost, "lost on the way"),
    ];
    for (number, what) in others.iter().filter(|(number, _)| *number > 0) {
        words.push_str(&format!(", {number} {what}"));
    }
    if let Some(round_trip) = seen.round_trip {
        words.push_str(&format!("; round trip {}", millis(round_trip)));
    }
    if seen.calls > 1 {
        words.push_str(&format!("; called {} times", seen.calls));
    }
    words
}

fn part_json(gathering: &Gathering, place: u16) -> Value {
    let (tally, seen) = (gathering.tally(place), gathering.seen(place));
    json!({
        "part": place + 1,
        "released": tally.released,
        "missing": tally.missing,
        "late": tally.late,
        "repeated": tally.repeated,
        "ahead": tally.ahead,
        "crowded": tally.crowded,
        "lost": seen.lost,
        "calls": seen.calls,
        "round_trip_s": seen.round_trip.map(|span| span.as_secs_f64()),
        "broke": gathering.broke(place),
    })
}

/// What a sender has done so far.
pub struct Said {
    /// Frames that were read.
    pub frames: u64,
    /// Numbers that were passed over: frames were read too slowly for their time.
    pub skipped: u64,
}

impl Said {
    /// Says how it went, to people and, if there is one, into a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn tell(
        &self,
        ends: &[(String, SinkEnd)],
        after: Option<Span>,
        report: Option<&Path>,
    ) -> Result<(), Failure> {
        if self.skipped > 0 {
            let skipped = count(self.skipped, "frame");
            aside(format_args!("{skipped} passed over: standard input was too slow for them"));
        }
        for (shown, end) in ends {
            let mut words = format!("{shown}: {} sent", count(end.sent, "frame"));
            if end.dropped > 0 {
                words.push_str(&format!(", {} dropped: the way had no room", end.dropped));
            }
            if let Some(why) = &end.gone {
                words.push_str(&format!("; gone: {why}"));
            }
            aside(format_args!("{words}"));
        }
        let sink = |(shown, end): &(String, SinkEnd)| {
            json!({
                "url": shown,
                "sent": end.sent,
                "dropped": end.dropped,
                "round_trip_s": end.round_trip.map(|span| span.as_secs_f64()),
                "gone": end.gone,
            })
        };
        write(report, || {
            json!({
                "frames": self.frames,
                "frames_skipped": self.skipped,
                "release_after_s": after.map(|span| span.as_secs_f64()),
                "sinks": ends.iter().map(sink).collect::<Vec<Value>>(),
            })
        })
    }
}

/// What becomes of each sink, with how it was named.
pub fn named(shown: &[String], sending: &[SinkEnd]) -> Vec<(String, SinkEnd)> {
    shown.iter().cloned().zip(sending.iter().cloned()).collect()
}

/// Says when receivers release frames.
pub fn say_after(sending: &Sending) {
    if let Some(after) = sending.after() {
        aside(format_args!("receivers release each frame {} after it was read", millis(after)));
    }
}

fn write(report: Option<&Path>, value: impl FnOnce() -> Value) -> Result<(), Failure> {
    let Some(path) = report else { return Ok(()) };
    std::fs::write(path, format!("{}\n", value())).map_err(|error| {
        Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
    })
}

/// How spans are spread.
struct Spread {
    median: Span,
    p99: Span,
    most: Span,
    least: Span,
}

impl Spread {
    const NAMES: [&'static str; 4] = ["least", "median", "p99", "most"];

    fn of(spans: impl Iterator<Item = Span>) -> Option<Spread> {
        let mut sorted: Vec<Span> = spans.collect();
        sorted.sort_unstable();
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        // The least value that so many percent do not exceed.
        let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        Some(Spread { median: rank(50), p99: rank(99), most, least })
    }

    fn values(spread: Option<&Spread>) -> [Option<f64>; 4] {
        let Some(Spread { median, p99, most, least }) = spread else { return [None; 4] };
        [least, median, p99, most].map(|span| Some(span.as_secs_f64()))
    }

    fn words(&self) -> String {
        let Spread { median, p99, most, least } = self;
        format!(
            "{} (median), {} (least), {} (99th percentile), {} (most)",
            millis(*median),
            millis(*least),
            millis(*p99),
            millis(*most)
        )
    }
}

fn millis(span: Span) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_read_off_the_sorted_spans() {
        let spread = Spread::of((1..=200).rev().map(Span::from_millis)).expect("spans");
        let Spread { median, p99, most, least } = spread;
        assert_eq!([least, median, p99, most], [1, 100, 198, 200].map(Span::from_millis));
        assert!(Spread::of(std::iter::empty()).is_none());
    }
}
