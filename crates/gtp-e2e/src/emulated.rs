//! GTP 2004's figures of machines behind an emulator: 1, 11 and 12, through real sockets.
//!
//! Figures 11 and 12 run at a fifth of the paper's rates over what the simulated entries take for
//! its emulator: each host's link carries 195.06 Mbit/s, the port behind them 194.42, and GTP is
//! told 200. Figure 1 is of TCP's window alone and has 700 Mbit/s, since at a fifth the link would
//! be the limit over the shortest two round trips. What the paper is silent on (windows, queues) is
//! filled as in those entries.
//!
//! Sources and sink are the product's; this module knows their rates only from outside.

use anyhow::{Context, Result};
use gtp_alloc::fairness::jain_index;
use serde_json::{Value, json};

use crate::cases::{Tools, in_mbit, with_sources};
use crate::flows::{Flow, Sender, Setting};
use crate::lab::{Branch, Lab, Shape, source_address};
use crate::plan::{Plan, Transfer};
use crate::record::{Record, route};
use crate::rivals::Had;
use crate::tcp;

/// What the hosts' links and the port behind them carry, and what GTP is told, in bit/s.
pub(crate) const HOSTS: f64 = 195.06e6;
pub(crate) const PORT: f64 = 194.42e6;
const TOLD: f64 = 200e6;
/// Figure 1's round trips in milliseconds, and seconds of each run.
const ROUND_TRIPS: [f64; 7] = [0.5, 1.0, 5.0, 10.0, 20.0, 40.0, 60.0];
const LASTS: f64 = 6.0;
/// Figure 11: when the second flow comes, and the end.
const JOINS: f64 = 10.0;
const ENDS: f64 = 33.0;
/// Figure 12: the most flows, their senders, seconds of a run, and of its part that is judged.
const FLOWS: usize = 8;
const SENDERS: usize = 4;
const RUN: f64 = 8.0;
const JUDGED: (f64, f64) = (2.0, 7.5);

/// Figure 1: one TCP with small windows over growing round trips.
///
/// # Errors
/// If the network or iperf3 cannot be started.
pub(crate) fn figure_1(tools: &Tools) -> Result<Vec<Value>> {
    ROUND_TRIPS.iter().map(|&rtt_ms| narrow(tools, rtt_ms)).collect()
}

fn narrow(tools: &Tools, rtt_ms: f64) -> Result<Value> {
    let access = ("700Mbit".into(), "10ms".into());
    let shape = Shape { access, middle: None, branches: vec![Branch::rtt(rtt_ms)] };
    let mut lab = Lab::open(&shape, &tools.gtp)?;
    tcp::listen(&mut lab, 1)?;
    let zero = lab.now();
    tcp::send_within(&lab, 0, "32K", 1, LASTS)?.finish()?;
    let record = Record(lab.close()?);
    let first = record.first_data(&route(0), zero, 0.0).context("no data")?;
    let rate = record.rate(&route(0), first + 1.0, zero + LASTS - 0.5);
    Ok(json!({"case": "gtp2004-fig-1", "rtt_ms": rtt_ms, "rate_Mbit": rate / 1e6,
        "in_a_round_trip_kB": rate * rtt_ms / 8e6}))
}

/// The emulator's network with these round trips and queue.
pub(crate) fn shape(rtts_ms: &[f64], queue_ms: f64) -> Shape {
    let own = || Some((bits(HOSTS), "20ms".to_owned()));
    let branch = |&rtt: &f64| Branch { own: own(), ..Branch::rtt(rtt) };
    let access = (bits(PORT), format!("{queue_ms}ms"));
    Shape { access, middle: None, branches: rtts_ms.iter().map(branch).collect() }
}

fn bits(rate: f64) -> String {
    format!("{rate:.0}bit")
}

/// Figure 11: two flows of 25 and 50 ms, the second later, by GTP and by TCP.
///
/// # Errors
/// If the network or a process cannot be started.
pub(crate) fn figure_11(tools: &Tools) -> Result<Vec<Value>> {
    let network = shape(&[25.0, 50.0], 50.0);
    let lives = [(0, 0.0, ENDS), (1, JOINS, ENDS)];
    let gtp = by_gtp(tools, &network, &lives, (JOINS, ENDS))?;
    let flow = |start| Flow { sender: Sender::Tcp("reno"), start, stop: ENDS };
    let tcp = Setting {
        label: "TCP".into(),
        shape: network,
        link: PORT,
        window: 64 << 20,
        flows: vec![flow(0.0), flow(JOINS)],
        judged: (JOINS, ENDS),
    };
    Ok(vec![row(&gtp, "gtp2004-fig-11"), tcp.found("gtp2004-fig-11", tools)?])
}

/// Figure 12: one to eight flows from four senders.
///
/// # Errors
/// As [`figure_11`].
pub(crate) fn figure_12(tools: &Tools) -> Result<Vec<Value>> {
    let network = shape(&[25.0; SENDERS], 25.0);
    (1..=FLOWS)
        .map(|count| {
            let lives: Vec<_> = (0..count).map(|i| (i % SENDERS, 0.0, RUN)).collect();
            Ok(row(&by_gtp(tools, &network, &lives, JUDGED)?, "gtp2004-fig-12"))
        })
        .collect()
}

fn row(had: &Had, case: &str) -> Value {
    let sum: f64 = had.rates.iter().sum();
    json!({"case": case, "setting": "GTP", "flows": had.rates.len(),
        "rates_Mbit": in_mbit(&had.rates), "sum_Mbit": sum / 1e6, "of_link": sum / PORT,
        "loss": had.mean_loss(), "jain": jain_index(&had.rates)})
}

/// Flows to one sink by GTP 2004's law, each with its source, start and stop.
fn by_gtp(
    tools: &Tools,
    network: &Shape,
    lives: &[(usize, f64, f64)],
    judged: (f64, f64),
) -> Result<Had> {
    let options = ["--allow-control", "gtp2004", "--capacity-out", &bits(TOLD)];
    let options = options.map(str::to_owned).to_vec();
    let (lab, prints) = with_sources(network, tools, &vec![options; network.branches.len()])?;
    let transfers = lives.iter().map(|&(from, start, stop)| Transfer {
        sources: vec![(format!("gtp://{}/big", source_address(from)), prints[from].clone())],
        start,
        stop,
        dest: None,
        slow: None,
    });
    let plan = Plan {
        capacity_in: Some(TOLD as u64),
        interval_ms: None,
        end_node: None,
        alone: Some(("gtp2004".into(), 0)),
        unbounded: false,
        transfers: transfers.collect(),
    };
    Had::by_plan(lab, tools, &plan, judged)
}
