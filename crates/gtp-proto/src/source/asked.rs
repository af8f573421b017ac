//! What a sink asks of a source.
//!
//! Requests are accepted in their order, for units of one length. That length may change once, by
//! the word of a sink that had presumed too much, and to one that has said too little not all is
//! sent at once. Nothing here sends.

use gtp_alloc::{Bytes, Span, Time};

use super::{Moves, SourceSession};
use crate::limits::REQUEST_WINDOW;
use crate::path::{INITIAL, Path};
use crate::session::{Discard, Event};
use crate::wire::{Request, Wanted};

impl SourceSession {
    pub(super) fn handle_request(&mut self, now: Time, request: Request) -> Result<(), Discard> {
        if request.number < self.answerer.requests_next() {
            return Ok(());
        }
        if request.unit_payload > self.handshake.longest() {
            // Nothing so long is known to pass; the hello that says so may be on its way.
            return Err(Discard::Early);
        }
        if request.wanted == Wanted::Begin {
            return self.begin_anew(now, &request);
        }
        match self.unit_payload {
            None => self.set_unit(request.unit_payload),
            Some(known) if known == request.unit_payload => {}
            // One from before the sink began anew, or one that has overtaken its word of that.
            Some(_) => return Err(Discard::Early),
        }
        let idle = self.answerer.peek().is_none();
        if self.answerer.handle_request(request) {
            self.status_urgent = true;
            self.starved = false;
            if idle && self.moves == Moves::Object {
                self.note_demand(now);
            }
            self.asked_at = now;
        }
        Ok(())
    }

    /// What the sink has asked for was asked for just now: nothing was left before.
    fn note_demand(&mut self, now: Time) {
        let units: u64 = self.answerer.upcoming().map(|range| range.end - range.start).sum();
        let bytes = self.packet_bytes().0.saturating_mul(units);
        self.demand.asked(now, Bytes(bytes));
    }

    fn set_unit(&mut self, payload: u16) {
        self.unit_payload = Some(payload);
        self.events.push(Event::UnitPayload(payload));
    }

    /// The sink had presumed that longer units pass, which can happen once.
    fn begin_anew(&mut self, now: Time, request: &Request) -> Result<(), Discard> {
        // As many requests before it may have been lost.
        if request.number - self.answerer.requests_next() > REQUEST_WINDOW {
            return Err(Discard::Early);
        }
        if self.moves == Moves::Stream || core::mem::replace(&mut self.begun_anew, true) {
            return Err(self.violation("the unit length changed, or changed again"));
        }
        self.answerer.begin_anew(request.number);
        self.begun_at = self.numbering.upcoming();
        self.ecn.handle_new_path(self.begun_at);
        if let Path::Own(_) = self.path {
            self.path = Path::new(now);
        }
        self.status_urgent = true;
        self.set_unit(request.unit_payload);
        Ok(())
    }

    /// Whether it has sent what a first round trip may bring and waits for a word of how long that
    /// is: to an eager sink it sends before it knows.
    pub(super) fn is_blind(&self) -> bool {
        let unknown = self.rtt.smoothed() == Span::ZERO && !self.config.law.is_alone();
        unknown && self.counters.bytes >= INITIAL.0
    }
}
