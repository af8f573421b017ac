//! A session that sends: the core's source, with the blocks that it sends from.
//!
//! What the peer has asked for is read ahead of the sending, as far as the rate needs and memory
//! allows. A session that cannot go on says farewell first and is forgotten after that.

use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::ecn::EcnState;
use gtp_proto::limits::{INTERVAL_MIN, UNIT_MINIMUM};
use gtp_proto::wire::{Header, Kind};
use gtp_proto::{Arrival, Discard, Event, Kept, SourceConfig, SourceSession, Supplied, Transmit};
use gtp_store::{BLOCK, Manifest, Row, TRAILER};
use tokio::sync::mpsc::UnboundedSender;

use super::ahead::Ahead;
use super::api::{SourceEvent, SourceProgress, Way};
use super::batch::{Batch, Joins};
use super::bits;
use super::cache::{Cache, Wanted, framed_len};
use super::command::NewSource;
use super::envelope::Envelope;
use super::loads::Loads;
use super::reader::{Loaded, ReadJob, ReadJobs};
use super::rows;

/// One session that sends.
pub(super) struct SourceSide {
    pub core: SourceSession,
    manifest: Arc<Manifest>,
    row: Option<Arc<Row>>,
    cache: Cache,
    /// Memory for its blocks.
    memory: Bytes,
    ahead: Ahead,
    loads: Loads,
    /// When it was last told the time.
    now: Time,
    jobs: ReadJobs,
    events: UnboundedSender<SourceEvent>,
    /// Said when everything that is due has been sent.
    last_words: Option<SourceEvent>,
    progress: Arc<Mutex<SourceProgress>>,
    label: String,
    /// What the log last said of ECN.
    ecn: EcnState,
    pub phase: Phase,
    /// By which way its datagrams leave.
    pub way: Way,
    head: Vec<u8>,
}

/// Where a session that sends is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It serves its peer.
    Serving,
    /// It has something left to say.
    Parting,
    /// It can be forgotten.
    Over,
}

/// Why a session ends whose peer asks for units so short that they cost more than they carry.
pub(super) const CRUMBS: &str = "the peer broke a rule: it asks for units that are too short";

/// What was sent is kept until a loss of it is asked for again: a round trip, two control intervals
/// of the sink (half a round trip each, and not below the least), and this.
const KEPT: Span = Span::from_millis(5);
/// Lent blocks that are kept at hand: the one that is being sent and one for repairs.
const LENT_MOST: usize = 2;
/// Pieces of requests that one read-ahead looks at: bounds its work when a peer asks for crumbs.
const PIECES_SEEN: usize = 1_024;

impl SourceSide {
    /// A session that begins at `now`, at an interface of this rate.
    pub fn new(now: Time, new: NewSource, interface: Rate, envelope: &Envelope) -> SourceSide {
        let mut proof_key = [0; 16];
        gtp_sys::entropy::fill(&mut proof_key);
        let config = SourceConfig {
            max_rate: new.session.bound(),
            role: new.session.role,
            link: envelope.link(),
            law: new.session.law.core(),
            weights: new.session.weights,
            proof_key,
        };
        let mut core = SourceSession::new(now, config).using_path(new.session.path);
        if let Some(law) = new.session.law.at_source(interface) {
            core = core.deciding_by(law);
        }
        SourceSide {
            core,
            manifest: new.manifest,
            row: None,
            cache: Cache::new(new.lender),
            memory: Bytes::ZERO,
            ahead: Ahead::new(),
            loads: Loads::default(),
            now,
            jobs: new.jobs,
            events: new.events,
            last_words: None,
            progress: new.progress,
            label: new.session.label,
            ecn: EcnState::Off,
            phase: Phase::Serving,
            way: Way::Udp,
            head: Vec::new(),
        }
    }

    /// Limits what this session may hold in memory.
    pub fn set_memory(&mut self, memory: Bytes) {
        self.memory = memory;
        self.cache.set_most(if self.cache.lends() { LENT_MOST } else { self.blocks_most() });
        self.cache.give_back();
    }

    /// Blocks that its memory holds.
    fn blocks_most(&self) -> usize {
        (self.memory.0 / (BLOCK + TRAILER as u64)).max(2) as usize
    }

    pub fn handle_datagram(
        &mut self,
        came: Arrival,
        header: Header,
        body: &[u8],
    ) -> Result<(), Discard> {
        self.now = came.read;
        let handled = self.core.handle_datagram(came, header, body);
        self.relay_events();
        match header.kind {
            Kind::Request if handled.is_ok() => self.read_ahead(),
            Kind::Feedback => bits::tell(&self.label, &mut self.ecn, self.core.ecn_state()),
            Kind::Data | Kind::Hello | Kind::HelloAck | Kind::Request => {}
            Kind::Status | Kind::Close => {}
        }
        handled
    }

    /// The reader answered.
    pub fn handle_loaded(&mut self, now: Time, loaded: Loaded) {
        self.now = now;
        match loaded {
            Loaded::Block { cut, content_and_trailer, .. } if Some(cut) != self.unit_payload() => {
                self.cache.take_back(content_and_trailer);
            }
            Loaded::Block { first_unit, content_and_trailer, took, .. } => {
                self.ahead.handle_loaded(took, Bytes(content_and_trailer.len() as u64));
                if !self.is_whole(first_unit, &content_and_trailer) {
                    return self.lose("a block was read that is not as long as it must be");
                }
                self.cache.loaded(first_unit, content_and_trailer);
                if self.cache.hungry {
                    self.read_ahead();
                }
                self.core.handle_supply(now);
            }
            Loaded::FileFault { path, error } => self.say(SourceEvent::FileFault { path, error }),
            Loaded::Failed { error } => self.end(SourceEvent::Fault(error)),
        }
    }

    /// What carries its datagrams has room again.
    pub fn handle_room(&mut self, now: Time) {
        self.core.handle_supply(now);
    }

    /// How long units are, once that is known.
    fn unit_payload(&self) -> Option<u16> {
        self.row.as_ref().map(|row| row.unit_payload())
    }

    /// Whether what was read is all of the block that begins with a unit.
    fn is_whole(&self, first_unit: u64, content_and_trailer: &[u8]) -> bool {
        let length = self.row.as_ref().and_then(|row| {
            let place = row.locate(first_unit)?;
            framed_len(row, place.file, place.block)
        });
        length == Some(content_and_trailer.len())
    }

    /// How people name it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// This end has had enough.
    pub fn close(&mut self) {
        self.end(SourceEvent::Closed);
    }

    /// It cannot go on.
    pub fn lose(&mut self, why: &str) {
        self.end(SourceEvent::Lost(why.to_owned()));
    }

    /// Nothing has come from the peer for some time.
    pub fn tell_silence(&self) {
        if self.phase == Phase::Serving {
            self.say(SourceEvent::Silent);
        }
    }

    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, envelope: &mut Envelope, batch: &mut Batch) -> bool {
        self.now = now;
        let has_room = envelope.has_room(now);
        // A connection keeps the order of what it takes, so one that leaves late comes late.
        let (joined, kept) = match envelope.way() {
            Way::Udp => (Joins::InAnyOrder, self.core.path_use().kept()),
            Way::Control => (Joins::InOrder, Kept::ByCarrier),
        };
        self.core.set_kept(kept);
        while batch.has_room() {
            let Some(transmit) = self.poll_core(now, has_room) else {
                self.poll_done();
                return false;
            };
            batch.set_ecn(transmit.ecn);
            let bytes = batch.begin();
            let start = bytes.len();
            bytes.extend_from_slice(&self.head);
            let mut joins = Joins::Nobody;
            if transmit.unit.is_some() {
                bytes.extend_from_slice(self.cache.supplied());
                joins = joined;
            }
            envelope.seal(transmit.pn, bytes, start);
            batch.end(start, joins);
        }
        true
    }

    fn poll_core(&mut self, now: Time, has_room: bool) -> Option<Transmit> {
        let (row, cache) = (&self.row, &mut self.cache);
        let mut supply = |unit| match row {
            Some(_) if !has_room => Supplied::NoRoom,
            Some(row) => cache.supply(row, unit),
            None => Supplied::NotYet,
        };
        self.core.poll_transmit(now, &mut supply, &mut self.head)
    }

    /// Nothing more is due: time to read ahead, or to say the last words.
    pub fn poll_done(&mut self) {
        let phase = self.phase;
        self.relay_events(); // It may begin to part only now, and has not said so to its peer.
        match phase {
            Phase::Serving if self.cache.hungry || self.ahead.is_due(self.cache.moved_on) => {
                self.read_ahead();
            }
            Phase::Serving | Phase::Over => {}
            Phase::Parting => {
                if let Some(event) = self.last_words.take() {
                    self.say(event);
                }
                self.phase = Phase::Over;
            }
        }
    }

    /// Asks the reader for what will be sent soon.
    fn read_ahead(&mut self) {
        self.cache.moved_on = 0;
        let hungry = std::mem::take(&mut self.cache.hungry);
        if self.cache.lends() && !hungry {
            return;
        }
        let mut blocks = self.look_ahead(hungry);
        let rate = self.core.sending_rate();
        let Some(row) = &self.row else { return };
        for range in self.core.upcoming().take(PIECES_SEEN) {
            let mut unit = range.start;
            while unit < range.end {
                if blocks == 0 {
                    return;
                }
                if !self.loads.have_room(self.now) {
                    // The peer speaks ten times a second at least; then it is looked at again.
                    self.cache.hungry = hungry;
                    return;
                }
                blocks -= 1;
                match self.cache.want(row, unit) {
                    Wanted::Known(end) => unit = end,
                    Wanted::Missing(missing, end) => {
                        let (file, block, first_unit) =
                            (missing.file, missing.block, missing.first_unit);
                        let (cut, buffer) = (row.unit_payload(), missing.buffer);
                        let length = framed_len(row, file, block).unwrap_or(0) as u64;
                        self.loads.take(self.now, Bytes(length), rate);
                        self.jobs.send(ReadJob::Load { file, block, first_unit, cut, buffer });
                        unit = end;
                    }
                    Wanted::Nowhere | Wanted::NoRoom => return,
                }
            }
        }
    }

    /// How many blocks to read ahead now; makes room for them and for what may be asked for again.
    fn look_ahead(&mut self, hungry: bool) -> usize {
        let rate = self.core.sending_rate().min(Rate::from_mbps(100_000));
        let most = self.blocks_most();
        let ahead = self.ahead.look(rate, most, hungry);
        let rtt = self.core.rtt();
        let until_asked = rtt + rtt.max(INTERVAL_MIN * 2) + KEPT;
        let kept = self.ahead.blocks_in(rate, until_asked);
        self.cache.set_most(most.min(ahead + kept + 2));
        ahead
    }

    fn relay_events(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::PathOpen { .. } => self.say(SourceEvent::PathOpen),
                Event::NoPath => self.end(SourceEvent::NoPath),
                Event::UnitPayload(payload) => self.cut(payload),
                Event::PeerClosed => self.end(SourceEvent::Closed),
                Event::TimedOut => self.lose("nothing was heard from the peer for 30 s"),
                Event::PathPresumed { .. } | Event::Spent => {} // Sinks hear that.
                Event::Violated(why) => self.lose(&format!("the peer broke a rule: {why}")),
            }
        }
    }

    /// Units are so long from now on; what is held by other units is of no use.
    fn cut(&mut self, payload: u16) {
        if self.unit_payload() == Some(payload) {
            return;
        }
        if payload < UNIT_MINIMUM {
            return self.lose(CRUMBS);
        }
        match rows::of(&self.manifest, payload) {
            Ok(row) => {
                self.row = Some(row);
                self.cache.forget();
            }
            Err(error) => self.lose(&error.to_string()),
        }
    }

    fn end(&mut self, event: SourceEvent) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Parting;
            self.last_words = Some(event);
            self.jobs.stop_loading();
            self.core.close();
        }
    }

    fn say(&self, event: SourceEvent) {
        // A handle that is gone does not listen.
        let _ = self.events.send(event);
    }

    /// Shows how the session is doing.
    pub fn publish(&self) {
        let counters = self.core.counters();
        // Of each packet this part is payload; the last of a block is shorter.
        let payload = self.unit_payload().unwrap_or(0);
        let packet = self.core.packet_bytes().0.max(1);
        let proved =
            u128::from(counters.delivered_bytes) * u128::from(payload) / u128::from(packet);
        let progress = SourceProgress {
            label: self.label.clone(),
            wire_bytes: counters.bytes,
            proved_bytes: proved as u64,
            unit_payload: payload,
            rate: self.core.measured_rate(),
            granted: self.core.granted(),
            limited_by: self.core.limited_by(),
            path: Some(self.core.path_standing()),
            rtt: self.core.rtt(),
            loss_ratio: loss_ratio(counters.lost, counters.delivered),
            way: self.way,
        };
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// The part that is lost of the packets whose fate is known: from 0 to 1, and 0 of none.
pub(super) fn loss_ratio(lost: u64, arrived: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (lost as f64 + arrived as f64) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_loss_of_a_session_lies_between_none_and_all(
            lost in any::<u64>(), arrived in any::<u64>(),
        ) {
            let loss = loss_ratio(lost, arrived);
            prop_assert!((0.0..=1.0).contains(&loss), "{}", loss);
            prop_assert_eq!(loss_ratio(0, arrived), 0.0);
        }
    }
}
