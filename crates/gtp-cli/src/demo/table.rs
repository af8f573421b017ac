//! The run as a table for people.
//!
//! Every line is a phase: who came or went, the share that each active session should have, what
//! each had, and how soon and how well it was kept. What is not as it should be is marked.

use std::fmt::Write as _;

use super::analysis::{Change, Phase, Report, TOLERANCE};
use super::plan::{ACCESS, NAMES, QUEUE, RTT_MS, SESSIONS, SINK};
use super::record::{Arrival, Record};
use super::summary::{Summary, percent};

/// The table, with its head and what it amounts to.
pub fn render(record: &Record, report: &Report) -> String {
    let mut text = format!(
        "Five sessions to one sink: access link {:.0} Mbit/s with a queue of {} ms, capacity of \
         the sink {:.0} Mbit/s.\nRates in Mbit/s on the wire, counted by the emulator; `share` is \
         the exact max-min share of each.\n\n",
        ACCESS.as_f64() / 1e6,
        QUEUE.as_millis(),
        SINK.as_f64() / 1e6,
    );
    text += &head();
    for phase in &report.phases {
        let sign = match phase.change {
            Change::Join => '+',
            Change::Leave => '-',
        };
        text += &row(&format!("{sign}{}", NAMES[phase.whose]), phase);
    }
    match &report.gather {
        Some(phase) => text += &row("one file", phase),
        None => text += "one file    the five sources were never all active at once\n",
    }
    text += &files(record);
    text += &totals(&Summary::of(record, report));
    if let Some(warning) = record.conditions.warning() {
        text += &warning;
        text.push('\n');
    }
    text
}

fn head() -> String {
    let mut line = format!("{:<9}{:>6}{:>7} ", "", "lasts", "share");
    for k in 0..SESSIONS {
        let _ = write!(line, "{:>8}", format!("{} {}ms", NAMES[k], RTT_MS[k]));
    }
    line += "      sum  of cap    Jain   worst   settled  held  queue loss\n";
    line
}

fn row(event: &str, phase: &Phase) -> String {
    let share = phase.wanted.iter().copied().fold(0.0, f64::max) / 1e6;
    let mut line = format!("{event:<9}{:>4.1} s{share:>7.1} ", phase.end - phase.begin);
    for k in 0..SESSIONS {
        if phase.active[k] {
            let off = (phase.got[k] / phase.wanted[k] - 1.0).abs() > TOLERANCE;
            let mark = if off { "!" } else { "" };
            let _ = write!(line, "{:>8}", format!("{mark}{:.1}", phase.got[k] / 1e6));
        } else {
            let _ = write!(line, "{:>8}", "·");
        }
    }
    let settled = phase.settled.map_or("never".into(), |s| format!("{s:.2} s"));
    let _ = writeln!(
        line,
        " {:>8.1}{:>7.1}%{:>8.4}{:>8.4}{settled:>10}{:>5.0}%{:>12}",
        phase.sum() / 1e6,
        phase.sum() / phase.sum_wanted().max(1.0) * 100.0,
        phase.jain,
        phase.jain_worst,
        phase.held * 100.0,
        percent(phase.loss),
    );
    line
}

fn files(record: &Record) -> String {
    let mut text = format!(
        "\n{:<9}{:>13}{:>10}{:>11}{:>10}{:>12}   verified\n",
        "file", "bytes", "took", "goodput", "lost", "sent twice"
    );
    for (name, arrival) in NAMES.iter().zip(&record.arrivals) {
        text += &file(name, arrival);
    }
    text += &file("from all", &record.gather_arrival);
    text
}

fn file(name: &str, arrival: &Arrival) -> String {
    let twice = arrival.duplicate_bytes as f64 / (arrival.bytes as f64).max(1.0);
    format!(
        "{name:<9}{:>13}{:>8.2} s{:>11.1}{:>10}{:>12}   {}\n",
        arrival.bytes,
        arrival.seconds,
        arrival.goodput() / 1e6,
        percent(arrival.loss_ratio),
        percent(twice),
        if arrival.verified { "yes" } else { "NO" },
    )
}

fn totals(summary: &Summary) -> String {
    let seconds = |s: Option<f64>| s.map_or("–".into(), |s| format!("{s:.2} s"));
    format!(
        "\n{} of {} joins and leaves settled (all within 5 % of max-min for half a second): median \
         {}, longest {}.\nJain's index of the worst steady second {}. Lost in the shared queue \
         {}. {} of {} files verified.\n",
        summary.settled,
        summary.phases,
        seconds(summary.settling_median),
        seconds(summary.settling_longest),
        summary.jain_worst.map_or("–".into(), |jain| format!("{jain:.4}")),
        percent(summary.loss),
        summary.verified,
        SESSIONS + 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::analysis::analyse;
    use crate::demo::synthetic;

    #[test]
    fn every_phase_has_a_line_with_shares_and_rates() {
        let record = synthetic::record(0.0);
        let text = render(&record, &analyse(&record));
        assert!(text.contains("+E") && text.contains("-A") && text.contains("one file"), "{text}");
        let all_five = text.lines().find(|line| line.starts_with("+E")).expect("a line");
        assert_eq!(all_five.matches("126.0").count(), 1 + SESSIONS, "{all_five}");
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    }

    #[test]
    fn what_is_not_as_it_should_be_is_marked() {
        let mut record = synthetic::record(0.0);
        record.samples.iter_mut().for_each(|s| s.carried[1] /= 2);
        record.arrivals[1].verified = false;
        let text = render(&record, &analyse(&record));
        assert!(text.contains("never") && text.contains('!') && text.contains("NO"), "{text}");
        record.conditions.idle = Some(0.01);
        assert!(render(&record, &analyse(&record)).contains("idle for only 1 %"));
        let nothing = Record::default();
        assert!(render(&nothing, &analyse(&nothing)).contains("0 of 6 files verified"));
    }
}
