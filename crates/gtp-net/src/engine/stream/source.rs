//! A stream's session that sends.
//!
//! The core's source, fed from what the application says: the ring cuts a unit when the core is
//! about to send it. It knows nothing of whoever writes.

use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::{Bytes, Rate, Time};
use gtp_proto::ecn::EcnState;
use gtp_proto::limits::UNIT_MINIMUM;
use gtp_proto::wire::{Header, Kind};
use gtp_proto::{Arrival, Discard, Event, Kept, SourceConfig, SourceSession, Supplied};
use tokio::sync::mpsc::UnboundedSender;

use super::{Ended, NewStreamSource, OutPipe, StreamEvent};
use crate::engine::api::{SourceProgress, Way};
use crate::engine::batch::{Batch, Joins};
use crate::engine::bits;
use crate::engine::envelope::Envelope;
use crate::engine::source_side::{CRUMBS, Phase, loss_ratio};

/// One direction of a stream, at its source.
pub(in crate::engine) struct StreamSource {
    pub core: SourceSession,
    pipe: Arc<OutPipe>,
    /// Longest unit; zero before the sink has said.
    payload: u16,
    events: UnboundedSender<StreamEvent>,
    /// Whether the end was told.
    told_end: bool,
    /// Said when everything that is due has been sent.
    last_words: Option<StreamEvent>,
    progress: Arc<Mutex<SourceProgress>>,
    label: String,
    /// What the log last said of ECN.
    ecn: EcnState,
    pub phase: Phase,
    /// By which way its datagrams go.
    pub way: Way,
    head: Vec<u8>,
}

impl StreamSource {
    pub fn new(now: Time, new: NewStreamSource, envelope: &Envelope) -> StreamSource {
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
        let core = SourceSession::new(now, config).of_stream();
        let mut core = core.using_path(new.session.path);
        if let Some(law) = new.session.law.at_source(Rate::UNLIMITED) {
            core = core.deciding_by(law);
        }
        StreamSource {
            core,
            pipe: new.pipe,
            payload: 0,
            events: new.events,
            told_end: false,
            last_words: None,
            progress: new.progress,
            label: new.session.label,
            ecn: EcnState::Off,
            phase: Phase::Serving,
            way: Way::Udp,
            head: Vec::new(),
        }
    }

    /// How people name it.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn handle_datagram(
        &mut self,
        came: Arrival,
        header: Header,
        body: &[u8],
    ) -> Result<(), Discard> {
        let handled = self.core.handle_datagram(came, header, body);
        self.relay_events();
        match header.kind {
            Kind::Request if handled.is_ok() => self.pipe.asked(self.core.asked_end()),
            Kind::Feedback => bits::tell(&self.label, &mut self.ecn, self.core.ecn_state()),
            Kind::Data | Kind::Hello | Kind::HelloAck | Kind::Request => {}
            Kind::Status | Kind::Close => {}
        }
        handled
    }

    /// The application has said something after it had been silent.
    pub fn handle_supplied(&mut self, now: Time) {
        self.core.handle_supply(now);
    }

    /// What carries its datagrams has room again.
    pub fn handle_room(&mut self, now: Time) {
        self.core.handle_supply(now);
    }

    /// Nothing has come from the peer for some time.
    pub fn tell_silence(&self) {
        if self.phase == Phase::Serving {
            self.say(StreamEvent::Silent);
        }
    }

    /// This end has had enough.
    pub fn close(&mut self) {
        self.end(StreamEvent::Closed);
    }

    /// It cannot go on.
    pub fn lose(&mut self, why: &str) {
        self.end(StreamEvent::Lost(why.to_owned()));
    }

    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, envelope: &mut Envelope, batch: &mut Batch) -> bool {
        let pipe = Arc::clone(&self.pipe);
        let mut sending = pipe.sending();
        self.core.handle_backlog(now, Bytes(sending.unsent()), sending.next());
        let has_room = envelope.has_room(now);
        self.core.set_kept(match envelope.way() {
            Way::Udp => self.core.path_use().kept(),
            Way::Control => Kept::ByCarrier,
        });
        while batch.has_room() {
            let payload = self.payload;
            let mut supply = |unit| match payload {
                0 => Supplied::NotYet,
                _ if !has_room => Supplied::NoRoom,
                _ => sending.supply(unit, payload),
            };
            let Some(transmit) = self.core.poll_transmit(now, &mut supply, &mut self.head) else {
                let ended = sending.ended();
                drop(sending);
                self.tell_ended(ended);
                self.poll_done();
                return false;
            };
            batch.set_ecn(transmit.ecn);
            let bytes = batch.begin();
            let start = bytes.len();
            bytes.extend_from_slice(&self.head);
            let mut joins = Joins::Nobody;
            if let Some(unit) = transmit.unit {
                sending.write(unit.number, bytes);
                joins = Joins::InOrder;
            }
            envelope.seal(transmit.pn, bytes, start);
            batch.end(start, joins);
        }
        true
    }

    /// Frames do not say which is the last one.
    fn tell_ended(&mut self, ended: Option<Ended>) {
        if let Some(ended) = ended
            && !std::mem::replace(&mut self.told_end, true)
        {
            self.say(StreamEvent::Ended(ended));
        }
    }

    /// Nothing more is due: time for last words.
    pub fn poll_done(&mut self) {
        let phase = self.phase;
        self.relay_events(); // It may begin to part only now, and has not said so to its peer.
        if phase == Phase::Parting {
            if let Some(event) = self.last_words.take() {
                self.say(event);
            }
            self.phase = Phase::Over;
        }
    }

    fn relay_events(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::PathOpen { .. } => self.say(StreamEvent::PathOpen),
                Event::NoPath => self.end(StreamEvent::NoPath),
                Event::UnitPayload(..UNIT_MINIMUM) => self.lose(CRUMBS),
                Event::UnitPayload(payload) => self.payload = payload,
                Event::PeerClosed => self.end(StreamEvent::Closed),
                Event::TimedOut => self.lose("nothing was heard from the peer for 30 s"),
                Event::PathPresumed { .. } | Event::Spent => {} // Sinks hear that.
                Event::Violated(why) => self.lose(&format!("the peer broke a rule: {why}")),
            }
        }
    }

    fn end(&mut self, event: StreamEvent) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Parting;
            self.last_words = Some(event);
            self.core.close();
        }
    }

    fn say(&self, event: StreamEvent) {
        // A handle that is gone does not listen.
        let _ = self.events.send(event);
    }

    /// Shows how the session is doing.
    pub fn publish(&self) {
        let counters = self.core.counters();
        let progress = SourceProgress {
            label: self.label.clone(),
            wire_bytes: counters.bytes,
            proved_bytes: counters.delivered_bytes,
            unit_payload: 0,
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
