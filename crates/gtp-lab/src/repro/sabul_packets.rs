//! Tables I and II of the SABUL paper packet by packet: senders that share a receiver's port.
//!
//! Each sender has a gigabit Ethernet interface and its own way to the port, as long as its
//! round-trip time; the port is one, too, and its queue holds what it carries in the longest of
//! them, at least 100 packets. Hosts keep their pace to 20 microseconds. Rates are the senders', as
//! in the paper. The model of the same is beside it, so that what a packet adds can be seen.

use super::aecp::{Found, put};
use super::formula::Quantities;
use super::sabul::Set;
use crate::series::{Axis, Figure, Series};
use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Burst, Chance, Jitter, LinkSpec, Order};
use gtp_path::{World, bdp, bottleneck, wire};
use gtp_peers::rate::sabul::law::Excess;
use gtp_peers::rate::sabul::{Law, Receiver, Sender};
use gtp_peers::rate::{Transfer, rbudp};
use gtp_peers::red;
use serde::Deserialize;

/// A row of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Stands before its quantities: mean sending rates in Mbit/s (`_rates`), their `_sum`, what
    /// arrives of each (`_received`) and what of it all the port loses (`_loss`), between `from`
    /// and `until`; the least correlation of two senders' rates (`_correlation`).
    name: String,
    rtt_ms: Vec<f64>,
    initial_mbps: Vec<u64>,
    interval_ms: Vec<u64>,
    /// Pr0 for all without it.
    parameters: Option<Vec<Set>>,
    /// Constant traffic beside them.
    #[serde(default)]
    background_mbps: u64,
    /// Each packet's chance to be lost on its way to the port: a network that others use, too.
    #[serde(default)]
    loss: f64,
    /// Losses that come together, on a stretch that all cross before the port.
    bursts: Option<Bursts>,
    #[serde(default)]
    queue: Discipline,
    /// What the port's queue holds, as parts of what it carries in the longest round trip.
    #[serde(default = "whole")]
    queue_parts: f64,
    #[serde(default)]
    excess: Rule,
    from: f64,
    until: f64,
    /// Means of the sending rates over other spans of the same run.
    #[serde(default)]
    means: Vec<Means>,
}

/// The mean sending rates between `from` and `until`, `name` after the row's.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Means {
    name: String,
    from: f64,
    until: f64,
}

/// Losses that come together: Gilbert's two states, of which the bad one loses all.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bursts {
    /// Packets between two bursts, in the mean.
    every: f64,
    /// Packets lost in one, in the mean.
    of: f64,
}

/// What the port's queue does.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Discipline {
    /// It takes what it has room for.
    #[default]
    DropTail,
    /// RED, from a tenth of the queue to nine tenths.
    Red,
}

/// Whether eq. 4 is used; the paper leaves open when losses are excessive.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    /// As in the paper's analysis.
    #[default]
    Never,
    /// At the tenth loss report, then not for 500.
    TenthReport,
}

/// What a gigabit Ethernet carries of packets of 1,500 bytes: each takes 38 bytes beside them,
/// preamble, header, checksum and gap.
const ETHERNET: Rate = Rate::from_bps(1_000_000_000 * 1_500 / 1_538);
/// A hundred packets: a port's queue is never shorter.
const LEAST_QUEUE: Bytes = Bytes(150_000);
/// How often the senders' rates are looked at.
const LOOK: Span = Span::from_millis(100);
/// Of the stretch's own losses; any other gives other moments.
const BURSTS_SEED: u64 = 1;
const SECONDS_MAX: f64 = 1_000.0;

/// Runs a row; a figure of the senders' rates is added to `figures`.
///
/// # Errors
/// A sentence, if the row is senseless.
pub fn run(
    id: &str,
    row: &Row,
    quantities: &mut Quantities,
    figures: &mut Vec<Figure>,
) -> Result<(), String> {
    let n = row.rtt_ms.len();
    let equal = row.initial_mbps.len() == n && row.interval_ms.len() == n;
    if n == 0 || !equal || row.parameters.as_ref().is_some_and(|p| p.len() != n) {
        return Err("a row has as many round trips as rates, intervals and parameters".to_owned());
    }
    if !(0.0 <= row.from && row.from < row.until && row.until <= SECONDS_MAX) {
        return Err(format!("a span of at most {SECONDS_MAX} s"));
    }
    let inside =
        |span: &Means| 0.0 <= span.from && span.from < span.until && span.until <= row.until;
    // Beyond, a chance in billionths would be none.
    let counts = |packets: f64| (1.0..=1e9).contains(&packets);
    if row.bursts.is_some_and(|bursts| !(counts(bursts.every) && counts(bursts.of))) {
        return Err("bursts are of 1 to 1e9 packets, and as far apart".to_owned());
    }
    if !(0.0..=10.0).contains(&row.queue_parts) {
        return Err("a queue holds at most ten times what the port carries".to_owned());
    }
    if !row.means.iter().all(inside) || !(0.0..1.0).contains(&row.loss) {
        return Err("means are over spans of the run, a loss is below one".to_owned());
    }
    let (found, series) = course(row);
    let mut found: Vec<(&str, Vec<f64>)> = found;
    for Means { name, from, until } in &row.means {
        let place = |seconds: f64| (seconds / LOOK.as_secs_f64()) as usize;
        let of = |rates: &Vec<f64>| mean(&rates[place(*from)..place(*until)]);
        found.push((name, series.iter().map(of).collect()));
    }
    put(&row.name, found, quantities)?;
    let axes = (Axis::linear("Time, s"), Axis::linear("Sending rate, Mbit/s"));
    let title = format!("{id}: {}", row.name);
    let mut figure = Figure::new(&format!("{id}-{}", row.name), title, axes.0, axes.1);
    for (k, rates) in series.iter().enumerate() {
        let at = |n: usize| (n as f64 + 1.0) * LOOK.as_secs_f64();
        let points = rates.iter().enumerate().map(|(n, rate)| (at(n), *rate)).collect();
        figure.series.push(Series::line(format!("connection {}", k + 1), "Mbit/s", points));
    }
    figures.push(figure);
    Ok(())
}

fn course(row: &Row) -> (Found, Vec<Vec<f64>>) {
    let mut world = World::new();
    let longest = row.rtt_ms.iter().copied().fold(0.0, f64::max) / 1e3;
    let queue = bdp(ETHERNET, Span::from_secs_f64(longest * row.queue_parts)).max(LEAST_QUEUE);
    let spec = bottleneck(ETHERNET, Span::ZERO, queue);
    let port = match row.queue {
        Discipline::DropTail => world.link(spec),
        Discipline::Red => {
            let config = red::Config::new(Bytes(queue.0 / 10), Bytes(queue.0 / 10 * 9));
            world.controlled_link(spec, Box::new(red::Queue::new(config, 1)))
        }
    };
    let stretch = row.bursts.map(|bursts| world.seeded_link(bursting(bursts), BURSTS_SEED));
    let shared: Vec<usize> = stretch.into_iter().chain([port]).collect();
    let flows: Vec<usize> =
        (0..row.rtt_ms.len()).map(|k| connect(&mut world, row, k, &shared)).collect();
    if row.background_mbps > 0 {
        let sender = rbudp::Sender::new(Transfer::ENDLESS, Rate::from_mbps(row.background_mbps));
        let receiver = rbudp::Receiver::new(Transfer::ENDLESS);
        world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &[port], &[]);
    }
    let mut series = vec![Vec::new(); flows.len()];
    let mut before = (0, 0);
    world.watch(Span::from_secs_f64(row.until), LOOK, |world| {
        for (rates, flow) in series.iter_mut().zip(&flows) {
            rates.push(world.sent(*flow).rate.as_f64() / 1e6);
        }
        if world.elapsed() <= row.from {
            before = (world.lost(port), world.seen(port));
        }
    });
    let skip = (row.from / LOOK.as_secs_f64()) as usize;
    let late: Vec<&[f64]> = series.iter().map(|rates| &rates[skip..]).collect();
    let rates: Vec<f64> = late.iter().map(|rates| mean(rates)).collect();
    let of = |flow: &usize| world.wire_rate(*flow, row.from, row.until) / 1e6;
    let lost = (world.lost(port) - before.0) as f64 / (world.seen(port) - before.1) as f64;
    let found = vec![
        ("sum", vec![rates.iter().sum()]),
        ("rates", rates),
        ("received", flows.iter().map(of).collect()),
        ("loss", vec![lost]),
        ("correlation", vec![least_correlation(&late)]),
    ];
    (found, series)
}

fn bursting(bursts: Bursts) -> LinkSpec {
    let one_in = |packets: f64| Chance::from_billionths((1e9 / packets).round() as u32);
    let (enter, leave) = (one_in(bursts.every), one_in(bursts.of));
    LinkSpec { burst: Some(Burst { enter, leave, loss: Chance::ALWAYS }), ..wire(Span::ZERO) }
}

fn connect(world: &mut World, row: &Row, k: usize, shared: &[usize]) -> usize {
    let way = Span::from_secs_f64(row.rtt_ms[k] / 2e3);
    // Hosts do not keep their pace to the nanosecond.
    let jitter = Jitter { span: Span::from_micros(20), order: Order::Kept };
    let loss = Chance::from_billionths((row.loss * 1e9) as u32);
    let there = world.link(LinkSpec { jitter, loss, ..wire(way) });
    let back = world.link(wire(way));
    let set = row.parameters.as_ref().map_or(Set::Pr0, |all| all[k]);
    let excess = match row.excess {
        Rule::Never => Excess::Never,
        Rule::TenthReport => Excess::TenthReport,
    };
    let law = Law::Paper { parameters: set.parameters(), interface: ETHERNET, excess };
    let sender = Sender::new(Transfer::ENDLESS, law, Rate::from_mbps(row.initial_mbps[k]));
    let receiver = Receiver::new(Transfer::ENDLESS, Span::from_millis(row.interval_ms[k]));
    let way_there = [&[there], shared].concat();
    world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &way_there, &[back])
}

fn whole() -> f64 {
    1.0
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// The least of the correlations of any two.
fn least_correlation(all: &[&[f64]]) -> f64 {
    let pairs = (0..all.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.map(|(a, b)| correlation(all[a], all[b])).fold(1.0, f64::min)
}

/// Pearson's coefficient.
fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let (a, b) = (mean(x), mean(y));
    let along = |x: &[f64], a: f64, y: &[f64], b: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - a) * (y - b)).sum()
    };
    along(x, a, y, b) / libm::sqrt(along(x, a, x, a) * along(y, b, y, b))
}
