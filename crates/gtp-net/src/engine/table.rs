//! All sessions of a host, and when each wants to be looked at.
//!
//! Sessions lie in slots; their next times lie side by side, so that looking for what is due costs
//! little even with thousands of idle sessions. Those that are due are served in turn.

use std::collections::HashMap;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::{Activity, FlowId, Grant, PathName, Report, Side as AgentSide, SourceSession};

use super::batch::Batch;
use super::envelope::Envelope;
use super::sink_side::{SinkSide, State};
use super::source_side::{self, SourceSide};
use super::stream::{StreamSink, StreamSource};

/// One session.
pub(super) struct Session {
    pub flow: FlowId,
    pub envelope: Envelope,
    pub side: Side,
}

/// What a session does here.
pub(super) enum Side {
    Source(Box<SourceSide>),
    Sink(Box<SinkSide>),
    StreamSource(Box<StreamSource>),
    StreamSink(Box<StreamSink>),
}

/// All sessions.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Box<Session>>>,
    /// When each slot wants to be polled; never, for an empty one.
    dues: Vec<Time>,
    by_wire: HashMap<u32, usize>,
    by_flow: HashMap<FlowId, usize>,
    /// The slot that was found last: datagrams come many of a session at a time.
    recent: usize,
    turn: usize,
}

/// No session is polled oftener than this without a reason from outside: at 10 Gbit/s four batches
/// leave then, and a sleep costs as much as sealing one.
const LEAST_SLEEP: Span = Span::from_micros(200);

impl Table {
    /// Adds a session.
    ///
    /// # Errors
    /// When its id is in use; it is given back.
    pub fn insert(&mut self, now: Time, session: Box<Session>) -> Result<(), Box<Session>> {
        let wire = session.envelope.local_session;
        if self.by_wire.contains_key(&wire) {
            return Err(session);
        }
        let index = match self.slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.slots.push(None);
                self.dues.push(Time::MAX);
                self.slots.len() - 1
            }
        };
        self.by_wire.insert(wire, index);
        self.by_flow.insert(session.flow, index);
        self.slots[index] = Some(session);
        self.dues[index] = now;
        Ok(())
    }

    /// Forgets a session.
    pub fn remove(&mut self, index: usize) -> Option<Box<Session>> {
        let session = self.slots.get_mut(index)?.take()?;
        self.dues[index] = Time::MAX;
        self.by_wire.remove(&session.envelope.local_session);
        self.by_flow.remove(&session.flow);
        Some(session)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_flow.is_empty()
    }

    /// The slot of the session that datagrams name so.
    pub fn find_wire(&mut self, local_session: u32) -> Option<usize> {
        let recent = self.slots.get(self.recent).and_then(Option::as_deref);
        if recent.is_none_or(|session| session.envelope.local_session != local_session) {
            self.recent = *self.by_wire.get(&local_session)?;
        }
        Some(self.recent)
    }

    /// The session in a slot.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Session> {
        self.slots.get_mut(index)?.as_deref_mut()
    }

    /// The session of this name.
    pub fn find(&self, flow: FlowId) -> Option<&Session> {
        self.slots[*self.by_flow.get(&flow)?].as_deref()
    }

    /// The same, with its slot.
    pub fn find_mut(&mut self, flow: FlowId) -> Option<(usize, &mut Session)> {
        let index = *self.by_flow.get(&flow)?;
        Some((index, self.slots[index].as_deref_mut()?))
    }

    /// The receiving session of this name. It will be polled at `now`.
    pub fn sink_mut(&mut self, now: Time, flow: FlowId) -> Option<&mut SinkSide> {
        let index = *self.by_flow.get(&flow)?;
        self.touch(now, index);
        match &mut self.slots[index].as_mut()?.side {
            Side::Sink(sink) => Some(sink),
            Side::Source(_) | Side::StreamSource(_) | Side::StreamSink(_) => None,
        }
    }

    /// The receiving session of this name, which need not be polled for what is done to it.
    pub fn sink_to_look_at(&mut self, flow: FlowId) -> Option<&mut SinkSide> {
        match &mut self.slots[*self.by_flow.get(&flow)?].as_mut()?.side {
            Side::Sink(sink) => Some(sink),
            Side::Source(_) | Side::StreamSource(_) | Side::StreamSink(_) => None,
        }
    }

    /// The receiving session of this name, to be looked at only.
    pub fn sink(&self, flow: FlowId) -> Option<&SinkSide> {
        match &self.slots[*self.by_flow.get(&flow)?].as_ref()?.side {
            Side::Sink(sink) => Some(sink),
            Side::Source(_) | Side::StreamSource(_) | Side::StreamSink(_) => None,
        }
    }

    /// The sending session of this name. It will be polled at `now`.
    pub fn source_mut(&mut self, now: Time, flow: FlowId) -> Option<&mut SourceSide> {
        let index = *self.by_flow.get(&flow)?;
        self.touch(now, index);
        match &mut self.slots[index].as_mut()?.side {
            Side::Source(source) => Some(source),
            Side::Sink(_) | Side::StreamSource(_) | Side::StreamSink(_) => None,
        }
    }

    /// A session of a stream. It will be polled at `now`.
    pub fn stream_mut(&mut self, now: Time, flow: FlowId) -> Option<&mut Side> {
        let index = *self.by_flow.get(&flow)?;
        self.touch(now, index);
        Some(&mut self.slots[index].as_mut()?.side)
    }

    /// All sessions with their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Session)> {
        self.slots.iter_mut().enumerate().filter_map(|(i, slot)| Some((i, slot.as_deref_mut()?)))
    }

    /// All sessions that send.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut SourceSide> {
        self.iter_mut().filter_map(|(_, session)| match &mut session.side {
            Side::Source(source) => Some(&mut **source),
            Side::Sink(_) | Side::StreamSource(_) | Side::StreamSink(_) => None,
        })
    }

    /// Something happened to a session at `now`.
    pub fn touch(&mut self, now: Time, index: usize) {
        if let Some(due) = self.dues.get_mut(index) {
            *due = (*due).min(now);
        }
    }

    /// A session was polled: when it wants that again.
    pub fn polled(&mut self, index: usize, due: Time) {
        if let Some(Some(_)) = self.slots.get(index) {
            self.dues[index] = due;
        }
    }

    /// The next slot that is due at `now`, in turn.
    pub fn next_due(&mut self, now: Time) -> Option<usize> {
        let count = self.dues.len();
        let index = (self.turn..count).chain(0..self.turn).find(|&i| self.dues[i] <= now)?;
        self.turn = (index + 1) % count;
        Some(index)
    }

    /// When the next session is due.
    pub fn poll_timeout(&self) -> Time {
        self.dues.iter().copied().min().unwrap_or(Time::MAX)
    }
}

impl Session {
    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, batch: &mut Batch) -> bool {
        match &mut self.side {
            Side::Source(source) => source.poll_batch(now, &mut self.envelope, batch),
            Side::Sink(sink) => sink.poll_batch(now, &mut self.envelope, batch),
            Side::StreamSource(source) => source.poll_batch(now, &mut self.envelope, batch),
            Side::StreamSink(sink) => sink.poll_batch(now, &mut self.envelope, batch),
        }
    }

    /// When to poll it again, after it had nothing more at `now`.
    pub fn poll_timeout(&self, now: Time) -> Time {
        let next = match &self.side {
            Side::Source(source) => source.core.poll_timeout(),
            Side::Sink(sink) => sink.core.poll_timeout(),
            Side::StreamSource(source) => source.core.poll_timeout(),
            Side::StreamSink(sink) => sink.core.poll_timeout(),
        };
        next.map_or(Time::MAX, |(at, _)| at.max(now + LEAST_SLEEP))
    }

    /// The session that sends, with the name of its path; nothing if it receives, or shares its
    /// path with nobody.
    pub fn over_path(&mut self) -> Option<(PathName, &mut SourceSession)> {
        let name = self.envelope.path_name()?;
        match &mut self.side {
            Side::Source(source) => Some((name, &mut source.core)),
            Side::StreamSource(source) => Some((name, &mut source.core)),
            Side::Sink(_) | Side::StreamSink(_) => None,
        }
    }

    /// Whether anything has moved over it lately.
    pub fn activity(&self, now: Time) -> Activity {
        if self.is_resting(now) { Activity::Resting } else { Activity::Busy }
    }

    /// Whether nothing has moved over it for some time.
    pub fn is_resting(&self, now: Time) -> bool {
        match &self.side {
            Side::Source(source) => source.core.is_resting(now),
            Side::Sink(sink) => sink.core.is_resting(now),
            Side::StreamSource(source) => source.core.is_resting(now),
            Side::StreamSink(sink) => sink.core.is_resting(now),
        }
    }

    /// Takes note of the way that its datagrams go, for whoever looks at its progress.
    pub fn note_way(&mut self) {
        let way = self.envelope.way();
        match &mut self.side {
            Side::Source(source) => source.way = way,
            Side::Sink(sink) => sink.way = way,
            Side::StreamSource(source) => source.way = way,
            Side::StreamSink(sink) => sink.way = way,
        }
    }

    /// What carries its datagrams has room again.
    pub fn handle_room(&mut self, now: Time) {
        match &mut self.side {
            Side::Source(source) => source.handle_room(now),
            Side::StreamSource(source) => source.handle_room(now),
            // Their requests and receipts wait for no room.
            Side::Sink(_) | Side::StreamSink(_) => {}
        }
    }

    /// What its agent should know.
    pub fn report(&mut self, now: Time) -> Report {
        let report = match &mut self.side {
            Side::Source(source) => source.core.report(now),
            Side::Sink(sink) => sink.core.report(now),
            Side::StreamSource(source) => source.core.report(now),
            Side::StreamSink(sink) => sink.core.report(now),
        };
        let (party, owner) = (self.envelope.party(), self.envelope.owner());
        Report { party, owner, ..report }
    }

    /// Its agent has decided.
    pub fn handle_grant(&mut self, now: Time, grant: Grant) {
        match &mut self.side {
            Side::Source(source) => source.core.handle_grant(now, grant),
            Side::Sink(sink) => sink.core.handle_grant(grant),
            Side::StreamSource(source) => source.core.handle_grant(now, grant),
            Side::StreamSink(sink) => sink.core.handle_grant(grant),
        }
    }

    /// What the routers that it crosses could let it have.
    pub fn handle_routers(&mut self, offer: Rate) {
        match &mut self.side {
            Side::Source(source) => source.core.handle_routers(offer),
            Side::Sink(sink) => sink.core.handle_routers(offer),
            Side::StreamSource(source) => source.core.handle_routers(offer),
            Side::StreamSink(sink) => sink.core.handle_routers(offer),
        }
    }

    /// Whether nothing is left to be said or to arrive.
    pub fn is_over(&self, now: Time) -> bool {
        match &self.side {
            Side::Source(source) => source.phase == source_side::Phase::Over,
            Side::Sink(sink) => sink.state == State::Parting && sink.core.is_finished(now),
            Side::StreamSource(source) => source.phase == source_side::Phase::Over,
            Side::StreamSink(sink) => sink.is_over(now),
        }
    }

    /// Which of the host's agents looks after it.
    pub fn direction(&self) -> AgentSide {
        match &self.side {
            Side::Source(_) | Side::StreamSource(_) => AgentSide::Source,
            Side::Sink(_) | Side::StreamSink(_) => AgentSide::Sink,
        }
    }
}
