//! A sink of a drawn world: the real decisions, and a modelled engine.
//!
//! The engine asks each session for the lowest blocks that it offers and nobody else is asked for,
//! one at a time, checks what comes, and takes back what does not come, as the real one does. This
//! module must not know rates, nor what other sinks are.

use std::collections::BTreeMap;
use std::ops::Range;

use gtp_alloc::{Span, Time};
use gtp_proto::FlowId;
use gtp_store::RangeSet;

use super::plan::BLOCK_BITS;
use crate::relaying::{Deed, Noted, Others, Stock};

/// A session falls silent: others get its work; and it is lost. As in the engine.
const PATIENCE: Span = Span::from_secs(2);
const IDLE_MOST: Span = Span::from_secs(10);

/// Where a session leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Source,
    Sink(usize),
}

/// A session that brings blocks.
#[derive(Debug)]
pub struct Session {
    pub from: From,
    offered: RangeSet,
    /// What came of these was bad.
    barred: RangeSet,
    /// The block that it is asked for, and the bits of it that are here.
    asked: Option<(u64, f64)>,
    /// Since when it owes something and brings nothing.
    owes_since: Option<Time>,
    /// Until then it is not asked again.
    pauses_until: Time,
}

pub struct Sink {
    pub others: Others,
    pub stock: Stock,
    pub here: RangeSet,
    pub sessions: BTreeMap<FlowId, Session>,
    /// Blocks that sessions are asked for.
    asked: RangeSet,
    /// Bad blocks that came from each other sink, and whether it was put out.
    pub bad: BTreeMap<usize, (u32, bool)>,
    pub done_at: Option<Time>,
    blocks: u64,
}

/// The session with the source.
pub const OWN: FlowId = 0;

impl Sink {
    pub fn new(place: usize, blocks: u64) -> Sink {
        let number = u32::try_from(place).expect("few sinks");
        let mut sink = Sink {
            others: Others::new(number, blocks, RangeSet::new(), RangeSet::new()),
            stock: Stock::new(blocks, RangeSet::new()),
            here: RangeSet::new(),
            sessions: BTreeMap::new(),
            asked: RangeSet::new(),
            bad: BTreeMap::new(),
            done_at: None,
            blocks,
        };
        sink.open(Time::ZERO, OWN, From::Source);
        sink
    }

    pub fn open(&mut self, now: Time, flow: FlowId, from: From) {
        let session = Session {
            from,
            offered: RangeSet::new(),
            barred: RangeSet::new(),
            asked: None,
            owes_since: None,
            pauses_until: now,
        };
        self.sessions.insert(flow, session);
    }

    pub fn offer(&mut self, flow: FlowId, ranges: Vec<Range<u64>>) {
        if let Some(session) = self.sessions.get_mut(&flow) {
            for range in ranges {
                session.offered.insert(range);
            }
        }
    }

    pub fn remove(&mut self, flow: FlowId) {
        if let Some((block, _)) = self.sessions.remove(&flow).and_then(|session| session.asked) {
            self.asked.remove_one(block);
        }
    }

    /// The block that a session is asked for now, if there is one for it.
    pub fn ask(&mut self, now: Time, flow: FlowId) -> Option<u64> {
        let session = self.sessions.get_mut(&flow)?;
        if let Some((block, _)) = session.asked {
            return Some(block);
        }
        if now < session.pauses_until {
            return None;
        }
        let block = session.offered.iter().flatten().find(|&block| {
            !self.here.contains(block)
                && !self.asked.contains(block)
                && !session.barred.contains(block)
        })?;
        session.asked = Some((block, 0.0));
        session.owes_since.get_or_insert(now);
        self.asked.insert_one(block);
        Some(block)
    }

    /// Bits of the block that a session is asked for have come; returns the block if that is all of
    /// it, and how many bits are left over.
    pub fn bring(&mut self, now: Time, flow: FlowId, bits: f64) -> (Option<u64>, f64) {
        let Some(session) = self.sessions.get_mut(&flow) else { return (None, 0.0) };
        let Some((block, had)) = session.asked else { return (None, 0.0) };
        if bits > 0.0 {
            session.owes_since = Some(now);
        }
        if had + bits < BLOCK_BITS {
            session.asked = Some((block, had + bits));
            return (None, 0.0);
        }
        session.asked = None;
        session.owes_since = None;
        self.asked.remove_one(block);
        (Some(block), had + bits - BLOCK_BITS)
    }

    /// A whole block has come.
    pub fn take(&mut self, flow: FlowId, block: u64, is_good: bool) {
        let Some(session) = self.sessions.get_mut(&flow) else { return };
        session.offered.remove_one(block);
        if is_good {
            assert!(self.here.insert_one(block), "block {block} is asked for twice");
            match self.stock.note_here(block) {
                Noted::Shown | Noted::Waits => self.others.handle_here(block),
                Noted::Off => panic!("nothing goes off here"),
            }
            return;
        }
        session.barred.insert_one(block);
        if let From::Sink(other) = session.from {
            self.bad.entry(other).or_default().0 += 1;
        }
        self.others.handle_bad(flow);
    }

    /// Takes back what sessions owe for long; returns those that are lost.
    pub fn look(&mut self, now: Time) -> Vec<FlowId> {
        let anyone = self.sessions.values().any(|session| {
            session.asked.is_some() && session.owes_since.is_some_and(|at| now.since(at) < PATIENCE)
        });
        let mut lost = Vec::new();
        for (&flow, session) in &mut self.sessions {
            let Some(since) = session.owes_since else { continue };
            let owes_for = now.since(since);
            if owes_for >= IDLE_MOST && anyone && flow != OWN && session.asked.is_some() {
                lost.push(flow);
            } else if owes_for >= PATIENCE
                && let Some((block, _)) = session.asked.take()
            {
                self.asked.remove_one(block);
                session.pauses_until = now + PATIENCE;
            }
        }
        lost
    }

    pub fn is_done(&self) -> bool {
        self.here.len() == self.blocks
    }

    /// What the decisions want done.
    pub fn deeds(&mut self) -> Vec<Deed> {
        std::iter::from_fn(|| self.others.poll_deed()).collect()
    }
}
