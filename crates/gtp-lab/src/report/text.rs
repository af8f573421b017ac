//! A run as a table of text, and quantities in words.
//!
//! The words for rates, times and parts are the same on the terminal and on pages: three or four
//! digits and a unit.

use std::fmt::Write as _;

use crate::course::{Course, Judged, Outcome, Phase};
use crate::scenario::model::Scenario;

/// Beyond every rate that a scenario can state, in bit/s.
const NO_LIMIT: f64 = u64::MAX as f64;

/// A rate in words: `629.98 Mbit/s`.
pub fn rate(bps: f64) -> String {
    if bps >= NO_LIMIT {
        return "unlimited".to_owned();
    }
    let (scale, unit) = match bps.abs() {
        v if v >= 9.9995e8 => (1e9, "Gbit/s"),
        v if v >= 9.9995e5 => (1e6, "Mbit/s"),
        v if v >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    };
    let v = bps / scale;
    let places = if v.abs() >= 100.0 { 1 } else { 2 };
    format!("{v:.places$} {unit}")
}

/// A time in words: `140 ms`.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "–".to_owned(),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        0.0 => "0 s".to_owned(),
        s => format!("{:.1} us", s * 1e6),
    }
}

/// A part of a hundred in words.
pub fn percent(part: f64) -> String {
    match part {
        0.0 => "0 %".to_owned(),
        p if p < 0.001 => format!("{:.4} %", p * 100.0),
        p => format!("{:.2} %", p * 100.0),
    }
}

/// How a phase went, in words, and who was to blame.
pub fn judged(scenario: &Scenario, phase: &Phase) -> String {
    match phase.judged {
        Judged::Settled(after) => span(after),
        Judged::Unsettled => match phase.last_off {
            Some(k) => format!("never: {}", scenario.sessions[k].name),
            None => "never".to_owned(),
        },
        Judged::Unjudged => "–".to_owned(),
    }
}

/// Rows of one table on a terminal.
const ROWS_MAX: usize = 40;

/// The summary that `run` prints.
pub fn summary(scenario: &Scenario, outcome: &Outcome) -> String {
    let mut said = format!(
        "{}: {} of simulated time, {} level, law {}, seed {}\n\n",
        scenario.title,
        span(outcome.times.last().copied().unwrap_or(0.0)),
        scenario.level.as_str(),
        scenario.law.as_str(),
        scenario.seed,
    );
    said += &phases(scenario, outcome);
    said.push('\n');
    said += &sessions(scenario, outcome);
    for note in &outcome.notes {
        let _ = writeln!(said, "Note: {note}");
    }
    let _ = writeln!(said, "\nhash {:016x}, {} events", outcome.hash, outcome.events);
    said
}

fn phases(scenario: &Scenario, outcome: &Outcome) -> String {
    let head = ["from", "what", "sessions", "wanted", "got", "Jain", "worst", "settled after"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for phase in outcome.phases.iter().take(ROWS_MAX) {
        rows.push(vec![
            format!("{:.3} s", phase.time.0),
            phase.event.clone(),
            phase.sessions.to_string(),
            rate(phase.sums.0),
            rate(phase.sums.1),
            format!("{:.4}", phase.jain),
            percent(phase.worst),
            judged(scenario, phase),
        ]);
    }
    let left = outcome.phases.len().saturating_sub(ROWS_MAX);
    columns(&rows) + &more(left, "phases")
}

fn sessions(scenario: &Scenario, outcome: &Outcome) -> String {
    let head = ["session", "from", "to", "last share", "got", "lost", "RTT", "payload", "ending"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for course in outcome.sessions.iter().take(ROWS_MAX) {
        let [wanted, got] = last_share(outcome, course);
        let all = course.arrived + course.lost;
        rows.push(vec![
            scenario.sessions[course.number].name.clone(),
            format!("{:.3} s", course.life.0),
            format!("{:.3} s", course.life.1),
            wanted,
            got,
            if all == 0 { "–".into() } else { percent(course.lost as f64 / all as f64) },
            if course.rtt > 0.0 { span(course.rtt) } else { "–".into() },
            if course.payload > 0 { bytes(course.payload) } else { "–".into() },
            course.ending.clone(),
        ]);
    }
    let left = scenario.sessions.len().saturating_sub(rows.len() - 1);
    columns(&rows) + &more(left, "sessions")
}

/// What a session should have had last and what it got then, in words.
pub fn last_share(outcome: &Outcome, course: &Course) -> [String; 2] {
    let mut shares = outcome.phases.iter().rev().flat_map(|phase| &phase.shares);
    match shares.find(|(k, wanted, _)| *k == course.number && *wanted > 0.0) {
        Some((_, wanted, got)) if wanted.is_finite() => [rate(*wanted), rate(*got)],
        Some((_, _, got)) => ["–".to_owned(), rate(*got)],
        None => ["–", "–"].map(str::to_owned),
    }
}

fn more(left: usize, what: &str) -> String {
    if left == 0 { String::new() } else { format!("and {left} more {what}\n") }
}

/// A size in words.
pub fn bytes(n: u64) -> String {
    match n {
        n if n >= 1_000_000_000 => format!("{:.2} GB", n as f64 / 1e9),
        n if n >= 1_000_000 => format!("{:.2} MB", n as f64 / 1e6),
        n if n >= 1_000 => format!("{:.1} kB", n as f64 / 1e3),
        n => format!("{n} B"),
    }
}

/// Rows of text as columns, the first two to the left and the others to the right.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |n: usize| {
        let cells = rows.iter().filter_map(|row| row.get(n));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (n, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[n] - cell.chars().count());
            let left = n < 2;
            line += &if left { format!("{cell}{gap}  ") } else { format!("{gap}{cell}  ") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_and_one_that_nothing_limits_is_called_so() {
        let cases = [(0.0, "0.00 bit/s"), (629.98e6, "630.0 Mbit/s"), (1e15, "1000000.0 Gbit/s")];
        for (bps, words) in cases {
            assert_eq!(rate(bps), words);
        }
        assert_eq!([rate(1e30), rate(f64::INFINITY)], ["unlimited", "unlimited"]);
    }
}
