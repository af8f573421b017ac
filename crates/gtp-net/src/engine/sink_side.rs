//! A session that receives: the core's sink, and how far it can be relied on.
//!
//! It asks and is brought; what it brings belongs to a transfer, which alone knows the other
//! sessions and the object.

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::group::Member;
use gtp_proto::wire::{DATA_OVERHEAD, TAG_LEN};
use gtp_proto::{FlowId, LimitedBy, Link, RangeSet, SinkConfig, SinkSession};

use super::api::{FlowProgress, SessionOpen};
use super::batch::{Batch, Joins};
use super::command::TransferId;
use super::envelope::Envelope;
use super::law::Law;
use super::source_side::loss_ratio;

/// One session that receives.
pub(super) struct SinkSide {
    pub core: SinkSession,
    pub flow: FlowId,
    pub transfer: TransferId,
    pub state: State,
    idle: Idle,
    law: Law,
    label: String,
    link: Link,
    head: Vec<u8>,
}

/// What a session that receives can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its path is not open yet.
    Opening,
    /// It brings what it is asked for.
    Live,
    /// It was asked to let go of its work, and is asked for nothing until it has.
    Dropping,
    /// Nothing was heard of it for a while; its work is given to others.
    Silent,
    /// It is ending: it wants nothing, but what was granted may still be under way.
    Parting,
}

/// Silent for this long while others are not: others get its work.
pub(super) const PATIENCE: Span = Span::from_secs(2);
/// Silent for this long: lost.
pub(super) const SILENCE_MOST: Span = Span::from_secs(10);

/// Talking, and bringing nothing that was asked for, for this long: lost, if others are better.
pub(super) const IDLE_MOST: Span = Span::from_secs(10);

/// What a source must be allowed to send in that time before it is blamed.
const IDLE_LEAST: Bytes = Bytes(65_536);

/// Since when a session owes something and has brought nothing that is wanted.
struct Idle {
    useful: u64,
    since: Time,
}

impl Idle {
    /// How long it has owed without bringing, when it has brought `useful` units in all.
    fn look(&mut self, now: Time, useful: u64, owes: bool) -> Span {
        if !owes || useful != self.useful {
            *self = Idle { useful, since: now };
        }
        now.since(self.since)
    }
}

impl SinkSide {
    pub fn new(
        now: Time,
        transfer: TransferId,
        flow: FlowId,
        open: SessionOpen,
        envelope: &Envelope,
    ) -> SinkSide {
        let config = SinkConfig {
            role: open.role,
            link: envelope.link(),
            law: open.law.core(),
            weights: open.weights,
            max_rate: open.max_rate,
        };
        SinkSide {
            core: SinkSession::new(now, config),
            flow,
            transfer,
            state: State::Opening,
            idle: Idle { useful: 0, since: now },
            law: open.law,
            label: open.label,
            link: envelope.link(),
            head: Vec::new(),
        }
    }

    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, envelope: &mut Envelope, batch: &mut Batch) -> bool {
        while batch.has_room() {
            let Some(transmit) = self.core.poll_transmit(now, &mut self.head) else {
                return false;
            };
            let bytes = batch.begin();
            let start = bytes.len();
            bytes.extend_from_slice(&self.head);
            envelope.seal(transmit.pn, bytes, start);
            batch.end(start, Joins::Nobody);
        }
        true
    }

    /// How people name it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How the group sees it.
    pub fn member(&self, interval: Span) -> Member {
        Member {
            id: self.flow,
            outstanding: self.core.outstanding(),
            granted: self.core.granted(),
            received: self.core.received_rate(),
            rtt: self.core.rtt(),
            interval,
        }
    }

    /// The same for who gives it work: a source that begins at a known rate is asked for as much,
    /// and one that is asked before a round trip is known, for what it may send in the first.
    pub fn worker(&self, interval: Span) -> Member {
        let member = self.member(interval);
        let first = match (self.law, member.rtt) {
            (Law::Grant | Law::EndNode { .. }, Span::ZERO) => member.granted,
            (law, _) => law.first_rate(member.granted),
        };
        Member { received: member.received.max(first), ..member }
    }

    /// Bytes on the wire of a packet with a unit of `payload` bytes.
    pub fn packet(&self, payload: u16) -> Bytes {
        let clear = DATA_OVERHEAD - TAG_LEN + usize::from(payload);
        self.link.wire_bytes(clear)
    }

    /// Ends it, and returns what it will not bring.
    pub fn part(&mut self, now: Time) -> RangeSet {
        let missing = self.core.abandon();
        self.core.close(now);
        self.state = State::Parting;
        missing
    }

    /// It is not relied on until it is heard again: returns what it has not brought.
    pub fn fall_silent(&mut self) -> RangeSet {
        self.core.ask_drop();
        self.state = State::Silent;
        self.core.abandon()
    }

    /// How long it has owed something, and could have sent it, without bringing any of it.
    pub fn idle(&mut self, now: Time) -> Span {
        let owes = match self.state {
            State::Live => self.core.outstanding() > 0,
            State::Dropping => true,
            State::Opening | State::Silent | State::Parting => false,
        };
        // A few units must be possible at the rate that this host grants.
        let possible = self.core.granted().bytes_in(IDLE_MOST) >= IDLE_LEAST;
        let counters = self.core.counters();
        let useful = counters.packets.saturating_sub(counters.duplicates);
        self.idle.look(now, useful, owes && possible)
    }

    /// How it is doing: `bytes` of what it brought verified, and `limit` limits it, if that is
    /// not for the core to say.
    pub fn progress(&self, bytes: u64, limit: Option<LimitedBy>) -> FlowProgress {
        let counters = self.core.counters();
        FlowProgress {
            flow: self.flow,
            label: self.label.clone(),
            bytes,
            rate: self.core.received_rate(),
            granted: self.core.granted(),
            limited_by: limit.unwrap_or_else(|| self.core.limited_by()),
            loss_ratio: loss_ratio(counters.lost, counters.packets),
            rtt: self.core.rtt(),
            wire_bytes: counters.bytes,
            duplicate_bytes: counters.duplicate_bytes,
            alive: self.state != State::Parting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_wanted_units_or_owing_nothing_end_idleness() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut idle = Idle { useful: 0, since: at(0) };
        assert_eq!(idle.look(at(4), 0, true), Span::from_secs(4));
        assert_eq!(idle.look(at(10), 0, true), IDLE_MOST);
        assert_eq!(idle.look(at(11), 1, true), Span::ZERO);
        assert_eq!(idle.look(at(15), 1, true), Span::from_secs(4));
        assert_eq!(idle.look(at(16), 1, false), Span::ZERO);
        assert_eq!(idle.look(at(18), 1, true), Span::from_secs(2));
    }
}
