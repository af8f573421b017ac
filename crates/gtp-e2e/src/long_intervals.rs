//! Session-level control: the end-node law with control intervals of half a minute (thesis, X.3.C).
//!
//! Five sources to one sink, whose clocks tick twice a minute. The figure is how many intervals
//! pass until all have equal shares, and keep them. It must not know how a session lives through
//! an interval in which nobody decides.

use anyhow::Result;
use gtp_alloc::fairness::jain_index;
use serde_json::{Value, json};

use crate::cases::{FIVE, Sink, Tools, in_mbit, plan, transfer, with_sources};
use crate::lab::{Branch, Shape};
use crate::record::{Record, route};

/// In seconds.
const INTERVAL: u64 = 30;
/// Intervals that the run lasts: fourteen and a half minutes.
const INTERVALS: u64 = 29;
/// What the sink's host takes, in bit/s, behind a link of a ninth more.
const CAPACITY: f64 = 18e6;

/// Runs it once.
///
/// # Errors
/// If the network or a process cannot be started.
pub fn run(tools: &Tools) -> Result<Value> {
    let branches = FIVE.iter().map(|&rtt| Branch::rtt(rtt)).collect();
    let access = ("20Mbit".into(), "100ms".into());
    let shape = Shape { access, middle: None, branches };
    let options = vec![vec!["--interval".to_owned(), format!("{INTERVAL}s")]; FIVE.len()];
    let (lab, prints) = with_sources(&shape, tools, &options)?;
    let lasts = (INTERVAL * INTERVALS) as f64;
    let transfers = (0..FIVE.len()).map(|i| transfer(i, &prints, 0.0, lasts)).collect();
    let mut plan = plan(transfers);
    plan.capacity_in = Some(CAPACITY as u64);
    (plan.end_node, plan.interval_ms) = (Some((0.1, 0.2)), Some(INTERVAL * 1_000));
    let sink = Sink::start(&lab, tools, &plan)?;
    let zero = sink.began;
    sink.finish()?;
    let record = Record(lab.close()?);
    let share = CAPACITY / FIVE.len() as f64;
    let interval = INTERVAL as f64;
    let means = |at: u64| -> Vec<f64> {
        let from = zero + at as f64 * interval;
        (0..FIVE.len()).map(|i| record.rate(&route(i), from, from + interval)).collect()
    };
    // The last interval ends with the sessions.
    let off = |at: &u64| means(*at).iter().any(|rate| (rate - share).abs() > 0.05 * share);
    let settled = (0..INTERVALS - 1).rfind(off).map_or(0, |last| last + 1);
    let last = means(INTERVALS - 2);
    let (offered, dropped) = record.drops("access", zero, zero + lasts);
    Ok(json!({"case": "long-intervals", "interval_s": INTERVAL,
        "settled_after_intervals": (settled < INTERVALS - 1).then_some(settled),
        "last_Mbit": in_mbit(&last), "jain_last": jain_index(&last),
        "sum_last_Mbit": last.iter().sum::<f64>() / 1e6,
        "shared_queue_loss": dropped as f64 / offered.max(1) as f64}))
}
