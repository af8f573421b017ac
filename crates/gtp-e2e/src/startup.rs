//! How long a transfer takes to begin: to the first byte of its file, and from there to its rate.
//!
//! Both are read off the emulated links, in the order in which a user waits for them. The clock
//! of the first starts with the first packet that the sink's process sends, a connection's SYN;
//! that of the second with the file's first byte. What is asked for stands beside what is measured:
//! the first byte after four round trips and 5 ms, 95 % of the rate after six and two control
//! intervals more.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cases::{Sink, Tools, plan, serving, transfer};
use crate::lab::{Branch, Lab, Shape};
use crate::plan::Plan;
use crate::record::{Record, route};

/// What the sink states, in bit/s; its access link carries a little more.
const RATE: f64 = 500e6;
/// The part of it that counts as its rate.
const REACHED: f64 = 0.95;
/// Seconds of the transfer.
const LASTS: f64 = 8.0;
/// The rate is looked for in steps of this many seconds, as often as links are looked at.
const STEP: f64 = 0.001;

/// One row for this round trip.
///
/// # Errors
/// If the network or a process cannot be started, or nothing was moved.
pub fn run(tools: &Tools, rtt_ms: f64) -> Result<Value> {
    let shape = Shape {
        access: ("560Mbit".into(), "100ms".into()),
        middle: None,
        branches: vec![Branch::rtt(rtt_ms)],
    };
    let lab = Lab::open_sampled(&shape, &tools.gtp, Duration::from_secs_f64(STEP))?;
    let (lab, prints) = serving(lab, 1, &[])?;
    let transfers = vec![transfer(0, &prints, 0.0, LASTS)];
    let plan = Plan { capacity_in: Some(RATE as u64), ..plan(transfers) };
    let sink = Sink::start(&lab, tools, &plan)?;
    let began = sink.began;
    sink.finish()?;
    let record = Record(lab.close()?);
    let rtt = rtt_ms / 1e3;
    // It is counted where the way ends, half a round trip after it was sent.
    let called = record.first_data("sink-src0", began, 0.0).context("no call")? - rtt / 2.0;
    let before = before_data(|route, at| record.bytes_at(route, called + at * rtt))
        .context("no hello crossed when it should have: the start was late")?;
    let first = record.first_data(&route(0), began, before).context("no data")?;
    let interval = interval(rtt);
    let rate = |from, to| record.rate(&route(0), from, to);
    let reached = reached_at(rate, (first, first + LASTS / 2.0), interval);
    let (to_first, to_rate) = (first - called, reached.map(|at| at - first));
    let (asked_first, asked_rate) = (4.0 * rtt + 0.005, 6.0 * rtt + 2.0 * interval);
    Ok(json!({"case": "first-byte", "rtt_ms": rtt_ms, "interval_ms": interval * 1e3,
        "first_byte_ms": to_first * 1e3, "first_byte_asked_ms": asked_first * 1e3,
        "first_byte_in_time": to_first <= asked_first,
        "to_95_percent_ms": to_rate.map(|s| s * 1e3), "to_95_percent_asked_ms": asked_rate * 1e3,
        "to_95_percent_in_time": to_rate.is_some_and(|s| s <= asked_rate),
        "emulator_late_ms": record.lateness(reached.unwrap_or(first)) * 1e3}))
}

/// The shortest hello has more: it probes a packet with so many bytes of payload.
const HELLO_LEAST: f64 = 1_180.0;

/// Bytes from the source since the call that are none of the file's: what opens the control channel
/// and is said there, and answers to hellos, which are as long as their questions. `bytes_at` knows
/// what had left a route by so many round trips after the call. The sink's hellos and first
/// requests get to the source after three and a half, what the source says to them to the sink
/// after four; the requests count with the hellos, and are shorter than one packet of the file.
/// `None` if no hello crossed then: what came later would be taken for the file's.
fn before_data(bytes_at: impl Fn(&str, f64) -> f64) -> Option<f64> {
    let between = |name: &str, from, to| bytes_at(name, to) - bytes_at(name, from);
    let control = between(&route(0), 0.0, 3.75);
    let answers_most = between("sink-src0", 3.25, 4.0);
    (answers_most >= HELLO_LEAST).then_some(control + answers_most)
}

/// The control interval of a session that stated none, in seconds: half a round trip, from 10 to
/// 100 ms (docs/PROTOCOL.md, 10).
fn interval(rtt: f64) -> f64 {
    (rtt / 2.0).clamp(0.010, 0.100)
}

/// The end of the first control interval in which the rate is there, if it is over four
/// intervals from there as well: a burst is no rate.
fn reached_at(
    rate: impl Fn(f64, f64) -> f64,
    (from, to): (f64, f64),
    interval: f64,
) -> Option<f64> {
    let there = |from: f64, intervals: f64| rate(from, from + intervals * interval);
    (0..)
        .map(|step| from + STEP * f64::from(step))
        .take_while(|at| at + 4.0 * interval <= to)
        .find(|&at| there(at, 1.0) >= REACHED * RATE && there(at, 4.0) >= REACHED * RATE)
        .map(|at| at + interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of a rate over time, by small steps.
    fn mean(rate: impl Fn(f64) -> f64) -> impl Fn(f64, f64) -> f64 {
        move |from, to| {
            let at = |i: i32| rate(from + (to - from) * (f64::from(i) + 0.5) / 1e3);
            (0..1_000).map(at).sum::<f64>() / 1e3
        }
    }

    #[test]
    fn the_rate_is_reached_an_interval_after_it_is_there() {
        let stepped = mean(|t| if t < 0.2 { 0.5 * RATE } else { RATE });
        let at = reached_at(stepped, (0.0, 1.0), 0.1).unwrap();
        assert!((at - 0.29).abs() < 2e-3, "at {at}: nine tenths of an interval at the rate");
    }

    #[test]
    fn a_burst_is_no_rate_and_what_never_comes_is_none() {
        let burst = |t: f64| if (0.1..0.12).contains(&t) { 2.0 * RATE } else { 0.5 * RATE };
        let burst_then_rate = mean(move |t| if t < 0.5 { burst(t) } else { RATE });
        assert!(reached_at(burst_then_rate, (0.0, 1.0), 0.02).unwrap() > 0.49);
        assert_eq!(reached_at(mean(burst), (0.0, 1.0), 0.02), None);
    }

    #[test]
    fn answers_to_hellos_are_none_of_the_files_bytes() {
        let sent = |steps: &[(f64, f64)], at: f64| {
            steps.iter().filter(|(when, _)| *when <= at).map(|(_, bytes)| bytes).sum::<f64>()
        };
        let source =
            [(-1.0, 700.0), (1.0, 60.0), (2.1, 500.0), (3.2, 400.0), (4.1, 5_500.0 + 1_448.0)];
        let sink = [(0.5, 60.0), (1.5, 300.0), (2.6, 400.0), (3.6, 5_500.0), (4.6, 90.0)];
        let bytes_at = |name: &str, at| sent(if name == route(0) { &source } else { &sink }, at);
        assert_eq!(before_data(bytes_at), Some(960.0 + 5_500.0));
        let came = sent(&source, 4.2) - sent(&source, 0.0);
        assert!(came > 960.0 + 5_500.0, "the first packet of the file");
        // Half a round trip later the hellos would not be known for what they are.
        assert_eq!(before_data(|name, at| bytes_at(name, at - 0.5)), None);
    }

    #[test]
    fn intervals_are_the_protocols() {
        assert_eq!([0.001, 0.02, 0.06, 0.3].map(interval), [0.01, 0.01, 0.03, 0.1]);
    }
}
