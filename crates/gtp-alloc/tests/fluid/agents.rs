//! The two ends of a session and the nodes' computations: what would be sessions and agents.

use super::Message;
use super::scenario::{NodeSpec, SessionSpec};
use gtp_alloc::Rate;
use gtp_alloc::endnode::expected_rates;
use gtp_alloc::grant::{Claim, Held, grants, shares};
use std::collections::VecDeque;

/// Repetitions of a closing status: enough at 30 % loss for one to arrive.
const CLOSINGS: u32 = 40;

/// A session as its source sees it.
#[derive(Clone, Debug, Default)]
pub struct SourceView {
    /// What this node allows: the thesis's expected rate or the grant law's target.
    pub expected: f64,
    /// What the sink allows: its expected rate or its newest grant.
    granted: f64,
    grant: u64,
    /// The sink's offer, once heard.
    bound: Option<f64>,
    offer: f64,
    spoken: u64,
    heard: u64,
    closings: u32,
    started: bool,
}

impl SourceView {
    pub fn start(&mut self, rate: f64) {
        (self.expected, self.granted, self.started) = (rate, rate, true);
    }

    pub fn close(&mut self) {
        (self.started, self.closings) = (false, CLOSINGS);
    }

    pub fn allowed(&self) -> f64 {
        self.expected.min(self.granted)
    }

    /// Whether there is anything to say at a tick.
    pub fn speaks(&self) -> bool {
        self.started || self.closings > 0
    }

    pub fn status(&mut self, demand: f64) -> Message {
        self.spoken += 1;
        self.closings = self.closings.saturating_sub(1);
        let closed = !self.started;
        Message::Status {
            number: self.spoken,
            offer: self.offer.min(demand),
            obeyed: self.grant,
            closed,
        }
    }

    /// Returns whether the sink allows something else than before.
    pub fn handle(&mut self, message: Message) -> bool {
        match message {
            Message::Expected(rate) => std::mem::replace(&mut self.granted, rate) != rate,
            Message::Grant { number, offer, grant, rate } if number > self.heard => {
                (self.heard, self.bound, self.granted) = (number, Some(offer), rate);
                std::mem::replace(&mut self.grant, grant) != grant
            }
            Message::Grant { .. } | Message::Status { .. } => false,
        }
    }
}

/// A session as its sink sees it.
#[derive(Clone, Debug, Default)]
pub struct SinkView {
    pub known: bool,
    closed: bool,
    bound: f64,
    heard: u64,
    spoken: u64,
    /// Grants from the one echoed to the newest: numbers rise by one.
    outstanding: VecDeque<f64>,
    echoed: u64,
}

impl SinkView {
    pub fn start(&mut self, rate: f64) {
        self.known = true;
        self.bound = f64::INFINITY;
        self.outstanding = VecDeque::from([rate]);
    }

    pub fn handle(&mut self, message: Message, initial: f64) {
        let Message::Status { number, offer, obeyed, closed } = message else { return };
        if self.closed || number <= self.heard {
            return;
        }
        if !self.known {
            self.start(initial);
        }
        (self.heard, self.bound) = (number, offer);
        assert!(obeyed >= self.echoed, "sources never go back to an older grant");
        self.outstanding.drain(..(obeyed - self.echoed) as usize);
        self.echoed = obeyed;
        // Its last packet came before this word of its end.
        (self.known, self.closed) = (!closed, closed);
    }

    fn newest(&self) -> f64 {
        *self.outstanding.back().expect("the echoed grant is kept")
    }

    fn committed(&self) -> f64 {
        self.outstanding.iter().copied().fold(0.0, f64::max)
    }
}

/// One run of the thesis's law at a node.
pub fn expect(node: &NodeSpec, measured: &[f64], mut set: impl FnMut(usize, f64)) {
    let measured: Vec<Rate> = measured.iter().map(|x| Rate::from_f64(x.round())).collect();
    let mut expected = vec![Rate::ZERO; measured.len()];
    expected_rates(&node.params, Rate::from_f64(node.capacity), &measured, &mut expected);
    expected.iter().enumerate().for_each(|(at, rate)| set(at, rate.as_f64()));
}

pub fn source_tick(
    capacity: f64,
    mine: &[usize],
    specs: &[SessionSpec],
    sources: &mut [SourceView],
) {
    let bound = |k: usize| sources[k].bound.unwrap_or(f64::INFINITY).min(specs[k].demand);
    let claims: Vec<Claim> =
        mine.iter().map(|&k| Claim { weight: specs[k].weight, bound: bound(k) }).collect();
    let mut out = Vec::new();
    shares(capacity, &claims, &mut out);
    for (&k, share) in mine.iter().zip(&out) {
        (sources[k].expected, sources[k].offer) = (share.target, share.offer);
    }
}

pub fn sink_tick(
    capacity: f64,
    mine: &[usize],
    specs: &[SessionSpec],
    sinks: &mut [SinkView],
) -> Vec<(usize, Message)> {
    let claim = |&k: &usize| Claim { weight: specs[k].weight, bound: sinks[k].bound };
    let claims: Vec<Claim> = mine.iter().map(claim).collect();
    let mut out = Vec::new();
    shares(capacity, &claims, &mut out);
    let held: Vec<Held> = mine
        .iter()
        .zip(&out)
        .map(|(&k, share)| Held {
            target: share.target,
            committed: sinks[k].committed(),
            newest: sinks[k].newest(),
        })
        .collect();
    let mut next = Vec::new();
    grants(capacity, &held, &mut next);
    let mut messages = Vec::new();
    for ((&k, share), rate) in mine.iter().zip(&out).zip(next) {
        let sink = &mut sinks[k];
        if rate != sink.newest() {
            sink.outstanding.push_back(rate);
        }
        sink.spoken += 1;
        let grant = sink.echoed + sink.outstanding.len() as u64 - 1;
        let offer = share.offer;
        messages.push((k, Message::Grant { number: sink.spoken, offer, grant, rate }));
    }
    messages
}
