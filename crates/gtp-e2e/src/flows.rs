//! Flows over one link that come and go: LambdaStreams and kernel TCPs, a host to each.
//!
//! A LambdaStream is `gtp stream` at both ends, with an endless input; TCP is iperf3. Both are
//! processes that begin and end at their times, and what each has is read off the emulated links.
//! This module knows no figure of a paper: who wants one says who flows when, and what to judge.

use std::fs::File;
use std::io::Read;
use std::process::{ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gtp_alloc::fairness::jain_index;
use serde_json::{Value, json};

use crate::cases::{Tools, in_mbit};
use crate::frames::wait_for_listener;
use crate::lab::{Lab, Shape, sink_address};
use crate::product::pass;
use crate::record::{Record, route};
use crate::running::Running;
use crate::tcp;

/// The first port of streams at the sink; each has its own.
const PORT: u16 = 4810;
/// Seconds of a bin of the trajectories.
const BIN: f64 = 0.5;
/// Seconds of a step in which a rate is said to vary.
const STEP: f64 = 0.1;
/// A flow that has settled is within this part of the link's rate.
const BAND: f64 = 0.05;
/// IP bytes after which data flow: beyond any handshake.
const FIRST_BYTES: f64 = 12_000.0;

/// What sends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// `gtp stream` under LambdaStream's law, told that the link carries `told` bit/s.
    Lambda {
        /// What it is told of the link.
        told: f64,
        /// Its first rate in bit/s.
        first: f64,
        /// What it has to send at most, in bit/s; none: no limit.
        most: Option<f64>,
        /// What its receiving program reads, in bit/s; none: all.
        reads: Option<f64>,
    },
    /// Kernel TCP under a law with this name.
    Tcp(&'static str),
}

/// One sender's life, in seconds from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Sender,
    pub(crate) start: f64,
    pub(crate) stop: f64,
}

/// Flows over a network, source `i`'s being the `i`-th.
pub(crate) struct Setting {
    /// What it is called in its row.
    pub(crate) label: String,
    pub(crate) shape: Shape,
    /// What the shared link carries, in bit/s.
    pub(crate) link: f64,
    /// The most that TCP's buffers grow to, in bytes.
    pub(crate) window: u64,
    pub(crate) flows: Vec<Flow>,
    /// Seconds between which rates are judged.
    pub(crate) judged: (f64, f64),
}

/// What was sampled while flows ran, and when they began.
pub(crate) struct Trace {
    pub(crate) record: Record,
    pub(crate) zero: f64,
}

/// A process that sends, and who reads what it sends.
struct Live {
    stop: f64,
    _sender: Running,
    _receiver: Option<Running>,
}

impl Setting {
    fn end(&self) -> f64 {
        self.flows.iter().map(|flow| flow.stop).fold(0.0, f64::max)
    }

    /// Runs all flows, each from its start to its stop.
    ///
    /// # Errors
    /// If the network or a process cannot be started, or one of the streams ended by itself.
    pub(crate) fn run(&self, tools: &Tools) -> Result<Trace> {
        let mut lab = Lab::open(&self.shape, &tools.gtp)?;
        let by_tcp = |flow: &Flow| matches!(flow.sender, Sender::Tcp(_));
        if self.flows.iter().any(by_tcp) {
            let hosts = (0..self.flows.len()).map(|i| format!("src{i}")).chain(["sink".into()]);
            hosts.into_iter().try_for_each(|host| lab.room_for_tcp(&host, self.window))?;
            tcp::listen(&mut lab, self.flows.len())?;
        }
        let receivers = self.flows.iter().enumerate().map(|(i, f)| receiver(&lab, tools, i, f));
        let mut receivers: Vec<_> = receivers.collect::<Result<_>>()?;
        let (zero, mut live) = (lab.now(), Vec::new());
        for (at, i) in self.starts() {
            end_until(&lab, zero, at, &mut live);
            let flow = &self.flows[i];
            let sender = send(&lab, tools, i, flow)?;
            live.push(Live { stop: flow.stop, _sender: sender, _receiver: receivers[i].take() });
        }
        end_until(&lab, zero, self.end(), &mut live);
        Ok(Trace { record: Record(lab.close()?), zero })
    }

    /// When flows start, in order.
    fn starts(&self) -> Vec<(f64, usize)> {
        let mut starts: Vec<_> = self.flows.iter().map(|f| f.start).zip(0..).collect();
        starts.sort_by(|a, b| a.0.total_cmp(&b.0));
        starts
    }

    /// What was found, in a row.
    ///
    /// # Errors
    /// If a flow brought nothing while it was judged.
    pub(crate) fn row(&self, case: &str, trace: &Trace) -> Result<Value> {
        let Trace { record, zero } = trace;
        let rate = |i: usize, from: f64, to: f64| record.rate(&route(i), zero + from, zero + to);
        let (from, to) = self.judged;
        let flows = 0..self.flows.len();
        let rates: Vec<f64> = flows.clone().map(|i| rate(i, from, to)).collect();
        let bins = |i, step: f64, from: f64, to: f64| -> Vec<f64> {
            let count = ((to - from) / step).round() as u32;
            let at = |k: u32| from + step * f64::from(k);
            (0..count).map(|k| rate(i, at(k), at(k + 1))).collect()
        };
        let first = record.first_data(&route(0), *zero, FIRST_BYTES).context("no data")?;
        let full = [(route(0), self.link)];
        let settled = record.settled(&full, first, zero + self.end(), BAND, STEP);
        let sum: f64 = rates.iter().sum();
        let trajectories: Vec<_> = flows.map(|i| in_mbit(&bins(i, BIN, 0.0, self.end()))).collect();
        Ok(json!({"case": case, "setting": self.label, "rates_Mbit": in_mbit(&rates),
            "offered_Mbit": record.offered("access", zero + from, zero + to) / 1e6,
            "sum_Mbit": sum / 1e6, "of_link": sum / self.link, "jain": jain_index(&rates),
            "first_varies": varies(&bins(0, STEP, from, to)),
            "first_settled_s": settled, "bin_s": BIN, "trajectories_Mbit": trajectories}))
    }

    /// Runs it and says what was found.
    ///
    /// # Errors
    /// As [`Setting::run`].
    pub(crate) fn found(&self, case: &str, tools: &Tools) -> Result<Value> {
        let trace = self.run(tools).with_context(|| self.label.clone())?;
        self.row(case, &trace)
    }
}

/// Standard deviation as a part of the mean.
fn varies(rates: &[f64]) -> f64 {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let square = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    square.sqrt() / mean
}

/// Lets time pass until `at`, and meanwhile ends those whose time is over.
fn end_until(lab: &Lab, zero: f64, at: f64, live: &mut Vec<Live>) {
    loop {
        let next = live.iter().map(|one| one.stop).fold(at, f64::min);
        pass(Duration::from_secs_f64((zero + next - lab.now()).max(0.0)));
        live.retain(|one| one.stop > next);
        if next >= at {
            return;
        }
    }
}

/// Starts what receives a stream; TCP's receivers are there.
fn receiver(lab: &Lab, tools: &Tools, i: usize, flow: &Flow) -> Result<Option<Running>> {
    let Sender::Lambda { reads, .. } = flow.sender else { return Ok(None) };
    let mut command = lab.command("sink", &tools.gtp);
    command.args(["stream", "receive", "--public", "--control", "lambdastream"]);
    command.args(["--listen", &format!("0.0.0.0:{}", PORT + i as u16)]).env("GTP_DAEMON", "off");
    let out = if reads.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdout(out).stderr(Stdio::piped());
    let mut process = Running::start("a receiver", &mut command)?;
    let said = process.child.stderr.take().context("no words")?;
    wait_for_listener(said)?;
    if let (Some(rate), Some(out)) = (reads, process.child.stdout.take()) {
        thread::spawn(move || read_slowly(out, rate));
    }
    Ok(Some(process))
}

/// Reads at most so many bit/s until there is nothing more.
fn read_slowly(mut out: ChildStdout, rate: f64) {
    let (mut chunk, began, mut read) = (vec![0; 16 << 10], Instant::now(), 0.0);
    while let Ok(count) = out.read(&mut chunk) {
        if count == 0 {
            return;
        }
        // What was not read in time stays unread: the rate is a limit, not a mean.
        let now = began.elapsed().as_secs_f64();
        read = f64::max(read, now * rate) + count as f64 * 8.0;
        pass(Duration::from_secs_f64((read / rate - now).max(0.0)));
    }
}

fn send(lab: &Lab, tools: &Tools, i: usize, flow: &Flow) -> Result<Running> {
    let (told, first, most) = match flow.sender {
        Sender::Tcp(law) => return tcp::send(lab, i, law, flow.stop - flow.start),
        Sender::Lambda { told, first, most, .. } => (told, first, most),
    };
    let bits = |rate: f64| format!("{rate:.0}bit");
    let mut command = lab.command(&format!("src{i}"), &tools.gtp);
    let url = format!("gtp://{}:{}/", sink_address(), PORT + i as u16);
    command.args(["stream", "send", &url, "--accept-new", "--control", "lambdastream"]);
    command.args(["--link", &bits(told), "--rate", &bits(first)]).env("GTP_DAEMON", "off");
    command.args(most.iter().flat_map(|most| ["--max-rate".to_owned(), bits(*most)]));
    let log = File::create(lab.dir.path().join(format!("send{i}.log")))?;
    command.stdin(File::open("/dev/zero")?).stdout(Stdio::null()).stderr(log);
    Running::start("a sender", &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_change_does_not_vary_and_half_and_half_varies_by_half_of_the_difference() {
        assert_eq!(varies(&[3.0; 4]), 0.0);
        assert_eq!(varies(&[2.0, 6.0]), 0.5);
    }
}
