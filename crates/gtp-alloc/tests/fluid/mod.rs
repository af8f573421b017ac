//! The rate-level model: nodes, sessions, exact propagation delays, no packets.
//!
//! Every node runs its law at the end of its own control intervals, unsynchronised. A sending
//! rate changes at once at the source and half a round trip later at the sink; so do messages,
//! each of which may be lost. All randomness comes from the scenario's seed. Knows both laws, so
//! that they are compared on equal terms; knows nothing of bytes, queues or encodings.
#![allow(dead_code)]

pub mod agents;
pub mod scenario;

use agents::{SinkView, SourceView};
use gtp_alloc::maxmin::{Network, Session, solve};
use scenario::{Change, Draw, Law, Scenario};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds.
pub type Nanos = u64;
pub const MS: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000 * MS;

/// What one end tells the other.
#[derive(Clone, Copy, Debug)]
pub enum Message {
    /// Source to sink: message number, offer cut to demand, newest grant obeyed, whether closed.
    Status { number: u64, offer: f64, obeyed: u64, closed: bool },
    /// Sink to source: message number, offer, grant number, grant.
    Grant { number: u64, offer: f64, grant: u64, rate: f64 },
    /// Sink to source, thesis: the expected rate.
    Expected(f64),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick(usize),
    Join(usize),
    Leave(usize),
    /// The rate of a session, as it arrives at its sink from now on.
    Arrive(usize, f64),
    AtSink(usize, Message),
    AtSource(usize, Message),
    Change(Change),
}

/// A rate and what it has carried since the last reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    rate: f64,
    carried: f64,
    since: Nanos,
}

impl Meter {
    fn set(&mut self, now: Nanos, rate: f64) {
        self.carried += self.rate * (now - self.since) as f64;
        (self.rate, self.since) = (rate, now);
    }

    /// The mean over the last `interval`, which ends now.
    fn read(&mut self, now: Nanos, interval: Nanos) -> f64 {
        self.set(now, self.rate);
        std::mem::take(&mut self.carried) / interval as f64
    }
}

pub struct Fluid {
    pub scenario: Scenario,
    pub now: Nanos,
    draw: Draw,
    queue: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    events: Vec<Event>,
    pub active: Vec<bool>,
    pub sources: Vec<SourceView>,
    pub sinks: Vec<SinkView>,
    sent: Vec<Meter>,
    arriving: Vec<Meter>,
    of_node: Vec<Vec<usize>>,
    touched: Vec<usize>,
    /// The largest load of each node so far, over its capacity at that moment.
    pub peak: Vec<f64>,
}

impl Fluid {
    pub fn new(scenario: Scenario) -> Fluid {
        let (nodes, n) = (scenario.nodes.len(), scenario.sessions.len());
        let mut fluid = Fluid {
            now: 0,
            draw: Draw::new(scenario.seed),
            queue: BinaryHeap::new(),
            events: Vec::new(),
            active: vec![false; n],
            sources: vec![SourceView::default(); n],
            sinks: vec![SinkView::default(); n],
            sent: vec![Meter::default(); n],
            arriving: vec![Meter::default(); n],
            of_node: vec![Vec::new(); nodes],
            touched: Vec::new(),
            peak: vec![0.0; nodes],
            scenario,
        };
        for k in 0..n {
            let s = fluid.scenario.sessions[k];
            fluid.of_node[s.source].push(k);
            fluid.of_node[s.sink].push(k);
            if s.joins == 0 && s.initial > 0.0 {
                fluid.start_from_history(k, s.initial);
            } else {
                fluid.schedule(s.joins, Event::Join(k));
            }
            if let Some(leaves) = s.leaves {
                fluid.schedule(leaves, Event::Leave(k));
            }
        }
        for v in 0..nodes {
            fluid.schedule(fluid.scenario.nodes[v].phase, Event::Tick(v));
        }
        for (at, change) in fluid.scenario.changes.clone() {
            fluid.schedule(at, Event::Change(change));
        }
        fluid
    }

    /// As if session `k` had always run at `rate`, and both ends knew.
    fn start_from_history(&mut self, k: usize, rate: f64) {
        self.active[k] = true;
        self.sources[k].start(rate);
        self.sinks[k].start(rate);
        let phase = |v: usize| self.scenario.nodes[v].interval - self.scenario.nodes[v].phase;
        let s = self.scenario.sessions[k];
        // What the first, shorter interval lacks of history.
        let before = |v: usize| Meter { rate, carried: rate * phase(v) as f64, since: 0 };
        (self.sent[k], self.arriving[k]) = (before(s.source), before(s.sink));
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.queue.push(Reverse((at, self.events.len() as u64, self.events.len())));
        self.events.push(event);
    }

    /// The sending rates now.
    pub fn rates(&self) -> Vec<f64> {
        self.sent.iter().map(|m| m.rate).collect()
    }

    /// The max-min rates of the sessions active now, under the capacities and demands of now.
    pub fn optimum(&self) -> Vec<f64> {
        let capacity = self.scenario.nodes.iter().map(|n| n.capacity).collect();
        let mut network = Network::new(capacity).expect("a proper scenario");
        for (s, active) in self.scenario.sessions.iter().zip(&self.active) {
            let uses = [s.source as u32, s.sink as u32];
            let demand = if *active { s.demand } else { 0.0 };
            network.add(Session { uses: &uses, weight: s.weight, demand }).expect("a session");
        }
        solve(&network)
    }

    /// Runs until `end`, showing `watch` the rates whenever a moment with a change has passed.
    pub fn run(&mut self, end: Nanos, mut watch: impl FnMut(&Fluid)) {
        while let Some(&Reverse((at, _, index))) = self.queue.peek() {
            if at > end {
                break;
            }
            if at > self.now {
                self.settle_moment(&mut watch);
                self.now = at;
            }
            self.queue.pop();
            self.handle(self.events[index]);
        }
        self.settle_moment(&mut watch);
        self.now = end;
    }

    /// Everything at one moment has happened: note the loads that follow from it.
    fn settle_moment(&mut self, watch: &mut impl FnMut(&Fluid)) {
        if self.touched.is_empty() {
            return;
        }
        for v in std::mem::take(&mut self.touched) {
            let source = |k: &usize| self.scenario.sessions[*k].source == v;
            let meter =
                |k: &usize| if source(k) { self.sent[*k].rate } else { self.arriving[*k].rate };
            let load: f64 = self.of_node[v].iter().map(meter).sum();
            self.peak[v] = self.peak[v].max(load / self.scenario.nodes[v].capacity);
        }
        watch(self);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick(v) => {
                self.tick(v);
                self.schedule(self.now + self.scenario.nodes[v].interval, event);
            }
            Event::Join(k) => {
                self.active[k] = true;
                self.sources[k].start(self.scenario.sessions[k].initial);
                match self.scenario.law {
                    Law::EndNode => self.obey(k),
                    // A source that learns of a session makes room for it at once.
                    Law::Grant => self.tick(self.scenario.sessions[k].source),
                }
                self.tell_sink(k);
            }
            Event::Leave(k) => {
                self.active[k] = false;
                self.sources[k].close();
                self.set_rate(k, 0.0);
                self.tell_sink(k);
            }
            Event::Arrive(k, rate) => {
                self.arriving[k].set(self.now, rate);
                self.touched.push(self.scenario.sessions[k].sink);
            }
            Event::AtSink(k, message) => {
                let initial = self.scenario.sessions[k].initial;
                self.sinks[k].handle(message, initial);
            }
            Event::AtSource(k, message) => {
                if self.sources[k].handle(message) && self.active[k] {
                    self.obey(k);
                    self.tell_sink(k);
                }
            }
            Event::Change(change) => self.change(change),
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Demand(k, demand) => {
                self.scenario.sessions[k].demand = demand;
                self.obey(k);
            }
            Change::Capacity(v, capacity) => self.scenario.nodes[v].capacity = capacity,
        }
    }

    fn set_rate(&mut self, k: usize, rate: f64) {
        let s = self.scenario.sessions[k];
        if rate != self.sent[k].rate {
            self.sent[k].set(self.now, rate);
            self.touched.push(s.source);
            self.schedule(self.now + s.rtt / 2, Event::Arrive(k, rate));
        }
    }

    /// Thesis, eq. VI.2: the least of what the source, the sink and the demand allow.
    fn obey(&mut self, k: usize) {
        if self.active[k] {
            let rate = self.sources[k].allowed().min(self.scenario.sessions[k].demand);
            self.set_rate(k, rate);
        }
    }

    fn is_lost(&mut self) -> bool {
        self.draw.unit() < self.scenario.loss
    }

    fn tell_sink(&mut self, k: usize) {
        let s = self.scenario.sessions[k];
        let message = self.sources[k].status(s.demand);
        if !self.is_lost() {
            self.schedule(self.now + s.rtt / 2, Event::AtSink(k, message));
        }
    }

    fn tell_source(&mut self, k: usize, message: Message) {
        let rtt = self.scenario.sessions[k].rtt;
        if !self.is_lost() {
            self.schedule(self.now + rtt / 2, Event::AtSource(k, message));
        }
    }

    fn tick(&mut self, v: usize) {
        let node = self.scenario.nodes[v];
        let sessions = std::mem::take(&mut self.of_node[v]);
        let is_source = sessions.first().is_some_and(|k| self.scenario.sessions[*k].source == v);
        match (self.scenario.law, is_source) {
            (Law::EndNode, true) => {
                let mine: Vec<usize> = filtered(&sessions, |k| self.active[k]);
                let measured = self.read(&mine, node.interval, true);
                agents::expect(&node, &measured, |at, rate| self.sources[mine[at]].expected = rate);
                mine.iter().for_each(|&k| self.obey(k));
            }
            (Law::EndNode, false) => {
                let mine = filtered(&sessions, |k| self.sinks[k].known);
                let measured = self.read(&mine, node.interval, false);
                let mut messages = Vec::new();
                agents::expect(&node, &measured, |at, rate| messages.push((mine[at], rate)));
                messages.iter().for_each(|&(k, rate)| self.tell_source(k, Message::Expected(rate)));
            }
            (Law::Grant, true) => {
                let mine = filtered(&sessions, |k| self.active[k]);
                let specs = &self.scenario.sessions;
                agents::source_tick(node.capacity, &mine, specs, &mut self.sources);
                mine.iter().for_each(|&k| self.obey(k));
            }
            (Law::Grant, false) => {
                let mine = filtered(&sessions, |k| self.sinks[k].known);
                let specs = &self.scenario.sessions;
                for (k, m) in agents::sink_tick(node.capacity, &mine, specs, &mut self.sinks) {
                    self.tell_source(k, m);
                }
            }
        }
        if is_source {
            let speaking = filtered(&sessions, |k| self.sources[k].speaks());
            speaking.iter().for_each(|&k| self.tell_sink(k));
        }
        self.of_node[v] = sessions;
    }

    fn read(&mut self, sessions: &[usize], interval: Nanos, at_source: bool) -> Vec<f64> {
        let meters = if at_source { &mut self.sent } else { &mut self.arriving };
        sessions.iter().map(|&k| meters[k].read(self.now, interval)).collect()
    }
}

fn filtered(sessions: &[usize], keep: impl Fn(usize) -> bool) -> Vec<usize> {
    sessions.iter().copied().filter(|&k| keep(k)).collect()
}

/// The first moment from which on the rates stay within `band` (relative, 2-norm) of `goal`
/// until `end`, in seconds; infinite if they do not.
pub fn settling_times(fluid: &mut Fluid, goal: &[f64], bands: &[f64], end: Nanos) -> Vec<f64> {
    let zero = vec![0.0; goal.len()];
    let size = gtp_alloc::fairness::distance(goal, &zero);
    let mut entered: Vec<Option<Nanos>> = vec![None; bands.len()];
    fluid.run(end, |f| {
        let off = gtp_alloc::fairness::distance(&f.rates(), goal) / size;
        for (entered, band) in entered.iter_mut().zip(bands) {
            *entered = if off > *band { None } else { entered.or(Some(f.now)) };
        }
    });
    entered.iter().map(|e| e.map_or(f64::INFINITY, |at| at as f64 / SECOND as f64)).collect()
}
