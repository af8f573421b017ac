//! The two ends of a session as their host sees them: the core's types with an application each.
//!
//! The same steps as at a host with sockets: what a datagram and an event lead to, when a session
//! has ended, what is asked for next. How packets travel, and when a host turns to its sessions, is
//! not known here.

use gtp_alloc::{Bytes, Span, Time};
use gtp_proto::sink::Received;
use gtp_proto::wire::{Header, Kind};
use gtp_proto::{
    Arrival, Discard, Event, Link, PathName, Revision, Role, SinkConfig, SinkSession, SourceConfig,
    SourceSession, Supplied, Transmit, Weights,
};

use super::app::{Reader, Supplier};
use super::spec::{SessionSpec, Volume};

/// Bytes of UDP and IPv4 around a datagram.
const IP_OVERHEAD: u16 = 28;
/// More units than any run moves, and few enough for every sum.
const ENDLESS: u64 = 1 << 40;

/// How a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its time to start has not come.
    Waiting,
    /// Its path is not open yet.
    Opening,
    /// It moves data, or could.
    Live,
    /// All its volume is there.
    Done,
    /// It was closed before that.
    Stopped,
    /// It could not go on; why is the core's word for it.
    Lost(&'static str),
}

/// The units of a session's volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    unit: u16,
    units: u64,
    last: u16,
}

impl Row {
    pub fn new(spec: &SessionSpec) -> Row {
        let unit = spec.unit;
        match spec.volume {
            Volume::Endless => Row { unit, units: ENDLESS, last: unit },
            Volume::Bytes(Bytes(bytes)) => {
                let whole = bytes / u64::from(unit);
                let rest = (bytes % u64::from(unit)) as u16;
                match rest {
                    0 => Row { unit, units: whole, last: unit },
                    rest => Row { unit, units: whole + 1, last: rest },
                }
            }
        }
    }

    pub fn units(&self) -> u64 {
        self.units
    }

    pub fn unit(&self) -> u16 {
        self.unit
    }

    #[inline]
    fn len(&self, unit: u64) -> Option<u16> {
        if unit + 1 < self.units {
            Some(self.unit)
        } else if unit + 1 == self.units {
            Some(self.last)
        } else {
            None
        }
    }
}

/// The source's end.
#[derive(Debug)]
pub(crate) struct SourceEnd {
    pub core: SourceSession,
    pub path: PathName,
    row: Row,
    supplier: Supplier,
    pub phase: Phase,
    pub discards: u64,
}

/// The sink's end.
#[derive(Debug)]
pub(crate) struct SinkEnd {
    pub core: SinkSession,
    row: Row,
    reader: Reader,
    assigned: u64,
    pub phase: Phase,
    pub units: u64,
    pub payload: Bytes,
    pub first_data: Option<Time>,
    pub ended: Option<Time>,
    pub standing: Standing,
    pub discards: u64,
    /// The group that says what it is asked for.
    pub group: Option<u32>,
}

/// Where an end is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It serves its peer.
    Serving,
    /// It is ending, and may have something left to say.
    Parting,
    /// It can be forgotten.
    Over,
}

/// A time of the world and the same on the host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub world: Time,
    pub local: Time,
}

fn link(session: u32) -> Link {
    Link { peer_session: session, ip_overhead: IP_OVERHEAD, revision: Revision::NEWEST }
}

/// The bytes on links of a datagram with a head of `head` bytes and a unit of `payload`.
pub(crate) fn wire_size(head: usize, payload: u16) -> Bytes {
    link(0).wire_bytes(head + usize::from(payload))
}

impl SourceEnd {
    pub fn new(
        now: Moment,
        spec: &SessionSpec,
        session: u32,
        proof_key: [u8; 16],
        path: PathName,
    ) -> SourceEnd {
        let config = SourceConfig {
            role: Role::Responder,
            link: link(session),
            law: spec.law,
            weights: Weights { own: 1.0, peer: spec.weight },
            max_rate: gtp_alloc::Rate::UNLIMITED,
            proof_key,
        };
        let mut core = SourceSession::new(now.local, config);
        core.set_kept(spec.kept);
        SourceEnd {
            core,
            path,
            row: Row::new(spec),
            supplier: Supplier::new(now.world, &spec.supply, spec.unit, spec.ready),
            phase: Phase::Serving,
            discards: 0,
        }
    }

    pub fn handle_datagram(&mut self, came: Arrival, header: Header, body: &[u8]) {
        let handled = self.core.handle_datagram(came, header, body);
        self.discards += u64::from(handled.is_err());
        self.relay_events();
    }

    /// The next datagram, its head in `head`.
    #[inline]
    pub fn poll_transmit(&mut self, now: Moment, head: &mut Vec<u8>) -> Option<Transmit> {
        let (row, supplier) = (&self.row, &mut self.supplier);
        let mut supply = |unit: u64| match row.len(unit) {
            None => Supplied::NoSuchUnit,
            Some(len) if supplier.has(now.world, unit, len) => Supplied::Ready(len),
            Some(_) => Supplied::NotYet,
        };
        self.core.poll_transmit(now.local, &mut supply, head)
    }

    /// Nothing more is due: time for what follows from events.
    pub fn poll_done(&mut self) {
        let phase = self.phase;
        self.relay_events(); // It may begin to part only now, and has not said so to its peer.
        if phase == Phase::Parting {
            self.phase = Phase::Over;
        }
    }

    /// What was not ready may be now.
    pub fn handle_supply(&mut self, now: Moment) {
        if self.supplier.poll_timeout() <= now.world {
            self.supplier.forget_wanted();
            self.core.handle_supply(now.local);
        }
    }

    /// When the application has more, in the world's time.
    pub fn supply_timeout(&self) -> Time {
        self.supplier.poll_timeout()
    }

    fn relay_events(&mut self) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::PathPresumed { .. }
                | Event::PathOpen { .. }
                | Event::UnitPayload(_)
                | Event::Spent => {}
                Event::NoPath | Event::PeerClosed | Event::TimedOut | Event::Violated(_) => {
                    if self.phase == Phase::Serving {
                        self.phase = Phase::Parting;
                        self.core.close();
                    }
                }
            }
        }
    }
}

impl SinkEnd {
    pub fn new(now: Moment, spec: &SessionSpec, session: u32) -> SinkEnd {
        let config = SinkConfig {
            role: Role::Initiator { unit_payloads: vec![spec.unit] },
            link: link(session),
            law: spec.law,
            weights: Weights { own: spec.weight, peer: 1.0 },
            max_rate: spec.max_rate,
        };
        SinkEnd {
            core: SinkSession::new(now.local, config),
            row: Row::new(spec),
            reader: Reader::new(now.world, &spec.reader, spec.memory),
            assigned: 0,
            phase: Phase::Serving,
            units: 0,
            payload: Bytes::ZERO,
            first_data: None,
            ended: None,
            standing: Standing::Opening,
            discards: 0,
            group: None,
        }
    }

    /// What it is asked for is this group's to say, if there is one.
    pub fn of_group(mut self, group: Option<u32>) -> SinkEnd {
        self.group = group;
        self
    }

    /// Takes a datagram in. Returns the group's unit that came, if it has a group.
    pub fn handle_datagram(
        &mut self,
        now: Moment,
        came: Arrival,
        header: Header,
        body: &[u8],
    ) -> Option<(u32, u64)> {
        let mut gathered = None;
        match self.core.handle_datagram(came, header, body) {
            Ok(Received::Unit { payload, number }) => {
                gathered = self.group.map(|group| (group, number));
                self.units += 1;
                self.payload += Bytes(payload.len() as u64);
                if self.units == 1 {
                    self.first_data = Some(now.world);
                }
                if self.units == self.row.units {
                    self.end(now, Standing::Done);
                }
            }
            Ok(Received::Control) => {}
            Err(Discard::NotWanted) => {}
            Err(_) => self.discards += 1,
        }
        if header.kind != Kind::Data {
            self.relay_events(now);
        }
        gathered
    }

    pub fn relay_events(&mut self, now: Moment) {
        while let Some(event) = self.core.poll_event() {
            match event {
                // One that has ended before that wants nothing.
                Event::PathOpen { .. } if self.phase != Phase::Serving => {}
                Event::PathOpen { unit_payload } => {
                    self.core.begin(unit_payload);
                    self.standing = Standing::Live;
                    if self.row.units == 0 {
                        self.end(now, Standing::Done);
                    }
                    self.top_up(now);
                }
                Event::PathPresumed { .. } | Event::UnitPayload(_) => {}
                Event::NoPath => self.end(now, Standing::Lost("no answer")),
                Event::PeerClosed => self.end(now, Standing::Lost("closed by the source")),
                Event::TimedOut => self.end(now, Standing::Lost("nothing was heard for 30 s")),
                Event::Spent => self.end(now, Standing::Lost("its request numbers are used up")),
                Event::Violated(why) => self.end(now, Standing::Lost(why)),
            }
        }
    }

    /// Asks for what there is room for.
    pub fn top_up(&mut self, now: Moment) {
        let is_full = self.assigned == self.row.units;
        if self.standing != Standing::Live || is_full || self.group.is_some() {
            return;
        }
        let unit = u64::from(self.row.unit);
        let asked = self.assigned.saturating_mul(unit);
        let room = self.reader.room(now.world, asked, self.payload.0) / unit;
        let until = self.row.units.min(self.assigned.saturating_add(room));
        if until > self.assigned {
            self.core.assign(self.assigned..until);
            self.assigned = until;
        }
    }

    /// Whether it must be topped up now and then.
    pub fn needs_upkeep(&self) -> bool {
        !self.reader.is_unlimited() || self.phase == Phase::Parting
    }

    /// Whether it can be forgotten: nothing that it was granted can still be under way.
    pub fn is_finished(&self, now: Moment) -> bool {
        self.phase == Phase::Parting && self.core.is_finished(now.local)
    }

    /// Ends it; a second end changes nothing.
    pub fn end(&mut self, now: Moment, standing: Standing) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Parting;
            self.standing = standing;
            self.ended = Some(now.world);
            self.core.close(now.local);
        }
    }
}

/// No session is polled oftener than this without a reason from outside, as at a real host.
pub(crate) const LEAST_SLEEP: Span = Span::from_micros(20);
