//! What clients have together changes while their sessions run.
//!
//! The engine keeps what it was told last, so that a session which was agreed on before a change
//! and opens after it has what the others of its client have. What anybody is to have is decided
//! elsewhere.

use std::sync::Arc;

use gtp_alloc::Time;

use super::Driver;
use crate::engine::api::{Allowance, Allowances, SessionOpen};
use crate::engine::table::{Session, Side};

impl Driver {
    /// Takes what clients have from now on.
    pub(super) fn allow(&mut self, now: Time, allowances: Arc<Allowances>) {
        self.out.agent.set_allowances(&allowances);
        self.in_.agent.set_allowances(&allowances);
        self.allowed = allowances;
        let mut changed = Vec::new();
        for (index, session) in self.table.iter_mut() {
            let allowance = self.allowed.of.get(&session.envelope.principal());
            if allowance.is_some_and(|&allowance| session.allow(allowance)) {
                changed.push(index);
            }
        }
        // Each is paced by its new limit at once.
        changed.into_iter().for_each(|index| self.table.touch(now, index));
        self.out.agent.wake(now);
        self.in_.agent.wake(now);
    }

    /// Whether whoever shares out the capacity knows the groups of clients.
    pub fn counts_groups(&self) -> bool {
        self.out.agent.counts_groups()
    }

    /// Gives a session that opens what its client has by now.
    pub(super) fn settle(&self, open: &mut SessionOpen) {
        if let Some(&allowance) = self.allowed.of.get(&open.principal) {
            open.allowance = allowance;
        }
    }
}

impl Session {
    /// Changes what its client has. Returns whether that is news.
    fn allow(&mut self, allowance: Allowance) -> bool {
        let Some(bound) = self.envelope.allow(allowance) else { return false };
        match &mut self.side {
            Side::Source(source) => source.core.set_max_rate(bound),
            Side::Sink(sink) => sink.core.set_max_rate(bound),
            Side::StreamSource(source) => source.core.set_max_rate(bound),
            Side::StreamSink(sink) => sink.core.set_max_rate(bound),
        }
        true
    }
}
