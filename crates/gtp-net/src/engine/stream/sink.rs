//! A stream's session that receives.
//!
//! The core's sink, which is asked to get what the ring has room for, and gives the ring what
//! comes. It knows nothing of whoever reads, and of the peer's words on the control channel.

use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::Time;
use gtp_proto::sink::Received;
use gtp_proto::wire::Header;
use gtp_proto::{Arrival, Discard, Event, FlowId, Role, SinkConfig, SinkSession};
use tokio::sync::mpsc::UnboundedSender;

use super::pipe::Taken;
use super::{Ended, InPipe, NewStreamSink, StreamEvent};
use crate::engine::api::{FlowProgress, Way};
use crate::engine::batch::{Batch, Joins};
use crate::engine::envelope::Envelope;
use crate::engine::source_side::loss_ratio;

/// One direction of a stream, at its sink.
pub(in crate::engine) struct StreamSink {
    pub core: SinkSession,
    flow: FlowId,
    pipe: Arc<InPipe>,
    events: UnboundedSender<StreamEvent>,
    progress: Arc<Mutex<Option<FlowProgress>>>,
    label: String,
    /// What the peer said of it before the path was open.
    ended: Option<Ended>,
    life: Life,
    /// By which way its datagrams go.
    pub way: Way,
    /// Something happened that the host's agent should look at.
    news: bool,
    head: Vec<u8>,
}

/// Where a session that receives is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Its path is not open yet.
    Opening,
    /// It asks and is brought.
    Live,
    /// All of the stream is here.
    Whole,
    /// It is ending: what was granted may still be under way.
    Parting,
}

impl StreamSink {
    pub fn new(now: Time, new: NewStreamSink, envelope: &Envelope) -> StreamSink {
        let open = new.session;
        let config = SinkConfig {
            max_rate: open.bound(),
            role: match open.role {
                Role::Initiator { unit_payloads } | Role::Eager { unit_payloads } => {
                    // The other end learns what a stream's units are only once.
                    Role::Initiator { unit_payloads }
                }
                Role::Responder => Role::Responder,
            },
            link: envelope.link(),
            law: open.law.core(),
            weights: open.weights,
        };
        let mut core = SinkSession::new(now, config).of_stream(new.repairs).waiting(new.patience);
        if let Some(law) = open.law.at_sink() {
            core = core.deciding_by(law);
        }
        StreamSink {
            core,
            flow: new.flow,
            pipe: new.pipe,
            events: new.events,
            progress: new.progress,
            label: open.label,
            ended: None,
            life: Life::Opening,
            way: Way::Udp,
            news: true,
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
        let now = came.read;
        let unit = match self.core.handle_datagram(came, header, body) {
            Ok(Received::Control) => None,
            Ok(Received::Unit { number, payload }) => Some((number, payload)),
            Err(why) => {
                self.relay_events(now);
                return Err(why);
            }
        };
        if let Some((number, payload)) = unit {
            self.take(came, number, payload);
        }
        self.relay_events(now);
        Ok(())
    }

    /// Asks for what there is room for.
    pub fn ask(&mut self) {
        if self.life == Life::Live
            && let Some(units) = self.pipe.ask()
        {
            self.core.assign(units);
        }
    }

    /// This end wants nothing more.
    pub fn close(&mut self, now: Time) {
        self.end(now, StreamEvent::Closed);
    }

    /// It cannot go on.
    pub fn lose(&mut self, now: Time, why: &str) {
        self.end(now, StreamEvent::Lost(why.to_owned()));
    }

    /// Whether something happened that the host's agent should look at.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether it can be forgotten.
    pub fn is_over(&self, now: Time) -> bool {
        self.life == Life::Parting && self.core.is_finished(now)
    }

    /// Adds what is due to `batch`. `false`: that was all.
    pub fn poll_batch(&mut self, now: Time, envelope: &mut Envelope, batch: &mut Batch) -> bool {
        while batch.has_room() {
            let Some(transmit) = self.core.poll_transmit(now, &mut self.head) else {
                self.relay_events(now);
                self.relay_given_up(now);
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

    /// Nothing has come from the peer for some time.
    pub fn tell_silence(&self) {
        match self.life {
            Life::Opening | Life::Live => self.say(StreamEvent::Silent),
            Life::Whole | Life::Parting => {}
        }
    }

    /// The peer has said how much there is.
    pub fn handle_ended(&mut self, now: Time, ended: Ended) {
        match self.life {
            Life::Opening => self.ended = Some(ended),
            Life::Live => {
                let taken = self.pipe.end(ended);
                self.follow(now, taken);
            }
            Life::Whole | Life::Parting => {}
        }
    }

    fn relay_given_up(&mut self, now: Time) {
        while let Some(units) = self.core.poll_given_up() {
            if self.life == Life::Live {
                let taken = self.pipe.give_up(units);
                self.follow(now, taken);
            }
        }
    }

    fn take(&mut self, came: Arrival, unit: u64, payload: &[u8]) {
        let taken = self.pipe.take(unit, payload, came.at);
        self.follow(came.read, taken);
    }

    fn follow(&mut self, now: Time, taken: Result<Taken, &'static str>) {
        match taken {
            Ok(Taken { whole: Some(total), .. }) => {
                self.life = Life::Whole;
                self.core.abandon();
                self.say(StreamEvent::Whole(total));
            }
            Ok(Taken { asked, whole: None }) => {
                asked.into_iter().for_each(|units| self.core.assign(units));
            }
            Err(why) => self.lose(now, &format!("the source broke a rule: {why}")),
        }
    }

    fn relay_events(&mut self, now: Time) {
        while let Some(event) = self.core.poll_event() {
            self.news = true;
            match event {
                Event::PathOpen { unit_payload } => self.open_path(now, unit_payload),
                Event::NoPath => self.end(now, StreamEvent::NoPath),
                Event::PeerClosed => self.end(now, StreamEvent::Closed),
                Event::TimedOut => self.lose(now, "nothing was heard from the peer for 30 s"),
                Event::Spent => self.lose(now, "its request numbers are used up"),
                Event::Violated(why) => self.lose(now, &format!("the peer broke a rule: {why}")),
                // Sources hear the one and say the other, and no stream is eager.
                Event::UnitPayload(_) | Event::PathPresumed { .. } => {}
            }
        }
    }

    fn open_path(&mut self, now: Time, payload: u16) {
        if self.life == Life::Opening {
            self.life = Life::Live;
            self.core.begin(payload);
            self.pipe.begin(payload);
            self.say(StreamEvent::PathOpen);
            self.ask();
            if let Some(ended) = self.ended.take() {
                self.handle_ended(now, ended);
            }
        }
    }

    fn end(&mut self, now: Time, event: StreamEvent) {
        if self.life != Life::Parting {
            self.life = Life::Parting;
            self.news = true;
            self.core.close(now);
            self.say(event);
        }
    }

    fn say(&self, event: StreamEvent) {
        // A handle that is gone does not listen.
        let _ = self.events.send(event);
    }

    /// Shows how the session is doing.
    pub fn publish(&self) {
        let counters = self.core.counters();
        let progress = FlowProgress {
            flow: self.flow,
            label: self.label.clone(),
            bytes: self.pipe.total(),
            rate: self.core.measured_rate(),
            granted: self.core.granted(),
            limited_by: self.core.limited_by(),
            loss_ratio: loss_ratio(counters.lost, counters.packets),
            rtt: self.core.rtt(),
            wire_bytes: counters.bytes,
            duplicate_bytes: counters.duplicate_bytes,
            way: self.way,
            alive: self.life != Life::Parting,
        };
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
    }
}
