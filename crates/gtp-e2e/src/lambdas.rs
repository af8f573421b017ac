//! LambdaStream's figures 8 and 10 to 12 and its reaction to congestion, through real sockets.
//!
//! The link is told to be 200 Mbit/s and carries 190, over 110 ms: a fifth of the paper's rates,
//! which a small machine emulates without being the limit itself. TCP is the kernel's Reno with
//! selective acknowledgments, whose windows grow to a fifth of the paper's 35 MB. The queue, which
//! the paper does not give, holds a tenth of the bandwidth-delay product (11 ms), and where the
//! simulated entries look at it too a whole one (deep). Starts and spans are those entries'.
//!
//! What flows and how it is sampled is `flows`' matter; here stands who flows when.

use anyhow::Result;
use serde_json::Value;

use crate::cases::Tools;
use crate::flows::{Flow, Sender, Setting};
use crate::lab::{Branch, Shape};
use crate::record::route;

/// What the link is told to be, in bit/s.
const TOLD: f64 = 200e6;
/// What it carries.
const LINK: f64 = 190e6;
/// A tenth of the bandwidth-delay product, and a whole one, in milliseconds.
const SHALLOW: f64 = 11.0;
const DEEP: f64 = 110.0;
/// A fifth of the paper's window of TCP.
const WINDOW: u64 = 7_000_000;
const TCP: Sender = Sender::Tcp("reno");

/// The rows of one figure: one for each setting.
///
/// # Errors
/// If there is no such figure, or a network or a process cannot be started.
pub(crate) fn run(name: &str, tools: &Tools) -> Result<Vec<Value>> {
    let settings = settings(name);
    anyhow::ensure!(!settings.is_empty(), "no figure {name}");
    settings.iter().map(|setting| one(name, setting, tools)).collect()
}

fn one(name: &str, setting: &Setting, tools: &Tools) -> Result<Value> {
    if name != "lambda-11b" {
        return setting.found(name, tools);
    }
    let trace = setting.run(tools)?;
    let mut row = setting.row(name, &trace)?;
    // What the first has at the end, as a part of the most that it had alone.
    let rate = |at: f64| trace.record.rate(&route(0), trace.zero + at, trace.zero + at + 0.5);
    let before = (2..20).map(|k| rate(0.5 * f64::from(k))).fold(0.0, f64::max);
    row["recovered"] = (rate(39.5) / before).into();
    Ok(row)
}

fn settings(name: &str) -> Vec<Setting> {
    let both = |flows: Vec<Flow>, judged| {
        let deep = setting("deep", DEEP, flows.clone(), judged);
        vec![setting("shallow", SHALLOW, flows, judged), deep]
    };
    let shallow = |flows, judged| vec![setting("shallow", SHALLOW, flows, judged)];
    let half = |start, stop| flow(lambda(TOLD / 2.0), start, stop);
    match name {
        "lambda-8" => alone(),
        "lambda-10a" => shallow(vec![half(0.0, 45.0), half(10.0, 45.0)], (30.0, 45.0)),
        "lambda-10b" => {
            let flows = [0.0, 10.0, 20.0].map(|start| half(start, 60.0)).to_vec();
            shallow(flows, (45.0, 60.0))
        }
        "lambda-10c" => {
            let held = flow(reading(TOLD / 2.0, 40e6), 4.0, 30.0);
            shallow(vec![half(0.0, 30.0), held], (15.0, 30.0))
        }
        "lambda-10d" => {
            let third = |start| flow(lambda(TOLD / 3.0), start, 30.0);
            let held = flow(reading(TOLD / 3.0, 20e6), 8.0, 30.0);
            shallow(vec![third(0.0), third(4.0), held], (15.0, 30.0))
        }
        "lambda-11a" => both(vec![flow(TCP, 0.0, 40.0), flow(TCP, 0.5, 40.0)], (2.0, 40.0)),
        "lambda-11b" => both(vec![flow(TCP, 0.0, 40.0), flow(TCP, 10.0, 25.0)], (11.0, 25.0)),
        "lambda-11c" => {
            both([0.0, 10.0, 20.0].map(|start| flow(TCP, start, 40.0)).to_vec(), (5.0, 40.0))
        }
        "lambda-12" => {
            let beside = |other| vec![flow(TCP, 0.0, 25.0), flow(other, 10.0, 20.0)];
            let mut all = both(beside(lambda(TOLD / 2.0)), (11.0, 20.0));
            all.extend(both(beside(TCP), (11.0, 20.0)));
            all
        }
        "lambda-full" => vec![congested()],
        _ => Vec::new(),
    }
}

/// Figure 8: alone from several first rates, and a TCP alone.
fn alone() -> Vec<Setting> {
    let from = |first: f64, judged: (f64, f64)| {
        let label = format!("from {:.1} Mbit/s", first / 1e6);
        setting(&label, SHALLOW, vec![flow(lambda(first), 0.0, judged.1)], judged)
    };
    let tcp = |label, queue_ms| setting(label, queue_ms, vec![flow(TCP, 0.0, 20.0)], (4.0, 20.0));
    let lambdas = [
        // Trains come each 8,000 packets: at a fifth of the rate after five times as long.
        from(34.4e6, (10.0, 14.0)),
        // Whose variation is held against TCP's is looked at for as long as TCP is.
        from(100e6, (4.0, 20.0)),
        from(190e6, (4.0, 8.0)),
        from(344e6, (4.0, 8.0)),
    ];
    lambdas.into_iter().chain([tcp("TCP", SHALLOW), tcp("TCP, deep", DEEP)]).collect()
}

/// A stream of 100 Mbit/s through a link of 80.
fn congested() -> Setting {
    let sender = Sender::Lambda { told: TOLD, first: 100e6, most: Some(100e6), reads: None };
    let mut setting = setting("full", SHALLOW, vec![flow(sender, 0.0, 8.0)], (6.0, 8.0));
    (setting.shape.access.0, setting.link) = (bits(80e6), 80e6);
    setting
}

fn lambda(first: f64) -> Sender {
    Sender::Lambda { told: TOLD, first, most: None, reads: None }
}

fn reading(first: f64, reads: f64) -> Sender {
    Sender::Lambda { told: TOLD, first, most: None, reads: Some(reads) }
}

fn flow(sender: Sender, start: f64, stop: f64) -> Flow {
    Flow { sender, start, stop }
}

fn bits(rate: f64) -> String {
    format!("{rate:.0}bit")
}

fn setting(label: &str, queue_ms: f64, flows: Vec<Flow>, judged: (f64, f64)) -> Setting {
    let shape = Shape {
        access: (bits(LINK), format!("{queue_ms}ms")),
        middle: None,
        branches: vec![Branch::rtt(110.0); flows.len()],
    };
    let (label, link, window) = (label.to_owned(), LINK, WINDOW);
    Setting { label, shape, link, window, flows, judged }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_settings_and_judges_while_somebody_flows() {
        // The gaps of datagrams are a case of another kind.
        let of_figures = |name: &&&str| name.starts_with("lambda-") && **name != "lambda-3";
        for name in crate::cases::NAMES.iter().filter(of_figures) {
            let all = settings(name);
            assert!(!all.is_empty(), "{name}");
            for Setting { flows, judged, .. } in all {
                assert!(flows.iter().all(|flow| flow.start < flow.stop), "{name}");
                let during = |flow: &Flow| flow.start <= judged.0 && judged.1 <= flow.stop;
                assert!(flows.iter().any(during), "{name} {judged:?}");
            }
        }
        assert!(settings("lambda-9").is_empty(), "frames have a case of their own");
    }
}
