//! A source in memory that keeps every rule until a moment, and then breaks one.
//!
//! An honest session of the core makes the datagrams; what leaves is twisted before it is sealed,
//! so that the lies are authentic. It knows its own row and content, and nothing of the sink.

use std::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::agent::{Agent, AgentConfig, Side};
use gtp_proto::wire::{Control, DATA_HEAD_LEN, DataHead, HEADER_LEN, Header, Kind, Status};
use gtp_proto::{Arrival, Event, SourceConfig, SourceSession, Supplied};
use gtp_store::{BlockSource, Framed, RelPath, Row, SyntheticSource};
use gtp_sys::udp::Origin;

use super::super::api::{SessionOpen, SocketId};
use super::super::envelope::Envelope;
use super::Dice;

/// What a source does from some moment on. The essay of each is its name in docs/PROTOCOL.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// It keeps all rules.
    None,
    /// Data echo a grant that was never made.
    EchoInData,
    /// The status does.
    EchoInStatus,
    /// Eight times its grant.
    Flood,
    /// A unit under its neighbour's number.
    WrongUnit,
    /// Units that nobody asked for.
    Unasked,
    /// A damaged byte in each unit.
    WrongHash,
    /// Units a byte too short.
    Short,
    /// Units a byte too long.
    Long,
    /// The datagram that left last leaves again and again.
    Replay,
    /// Packet numbers further ahead than any sender can be.
    FarAhead,
    /// Nothing opens under the session's key.
    Forged,
    /// Nothing leaves any more.
    Silence,
    /// Nothing leaves for some seconds.
    Absence,
    /// It talks and sends no data.
    NoData,
    /// It talks, sends no data, and accepts no request.
    NoDrop,
    /// It says that it has sent everything.
    ClaimsAll,
    /// A fortieth of the data, and an offer without limit.
    Trickle,
    /// Everything comes seconds late.
    Late,
    /// Its clock and its echoes are noise.
    WrongTimes,
    /// It says farewell early.
    Close,
    /// It never opens the path.
    Deaf,
}

impl Breach {
    pub const ALL: [Breach; 21] = [
        Breach::EchoInData,
        Breach::EchoInStatus,
        Breach::Flood,
        Breach::WrongUnit,
        Breach::Unasked,
        Breach::WrongHash,
        Breach::Short,
        Breach::Long,
        Breach::Replay,
        Breach::FarAhead,
        Breach::Forged,
        Breach::Silence,
        Breach::Absence,
        Breach::NoData,
        Breach::NoDrop,
        Breach::ClaimsAll,
        Breach::Trickle,
        Breach::Late,
        Breach::WrongTimes,
        Breach::Close,
        Breach::Deaf,
    ];
}

/// How a source behaves, and the path to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nature {
    pub breach: Breach,
    /// When it begins to break its rule, after the world's start.
    pub after: Span,
    pub rate: Rate,
    /// One way.
    pub delay: Span,
    /// Chance of loss, each way.
    pub loss: f64,
}

/// A datagram on its way to the sink, and when it arrives there.
pub(super) type Flying = (Time, Vec<u8>);

/// One source.
pub(super) struct Mirror {
    pub nature: Nature,
    begins: Time,
    core: SourceSession,
    agent: Agent,
    envelope: Envelope,
    object: SyntheticSource,
    row: Option<Row>,
    /// Blocks at hand, newest last.
    blocks: VecDeque<(u32, u64, Framed)>,
    dice: Dice,
    number: u64,
    /// The datagram that left last.
    newest: Vec<u8>,
    flood_due: Time,
    said_close: bool,
}

const BLOCKS_AT_HAND: usize = 6;
const FLOOD_STEP: Span = Span::from_millis(2);
const ABSENCE: Span = Span::from_secs(4);
const LATENESS: Span = Span::from_millis(2_500);

impl Mirror {
    pub fn new(
        now: Time,
        begins: Time,
        nature: Nature,
        open: SessionOpen,
        object: SyntheticSource,
        seed: u64,
    ) -> Mirror {
        let envelope = Envelope::new(&open);
        let config = SourceConfig {
            role: open.role,
            link: envelope.link(),
            law: open.law.core(),
            weights: open.weights,
            max_rate: open.max_rate,
            proof_key: [3; 16],
        };
        let agent = AgentConfig { side: Side::Source, capacity: nature.rate, interval: None };
        Mirror {
            nature,
            begins: begins + nature.after,
            core: SourceSession::new(now, config).using_path(open.path),
            agent: Agent::new(now, agent),
            envelope,
            object,
            row: None,
            blocks: VecDeque::new(),
            dice: Dice(seed),
            number: 0,
            newest: Vec::new(),
            flood_due: Time::ZERO,
            said_close: false,
        }
    }

    /// What it does now.
    fn breach(&self, now: Time) -> Breach {
        if now < self.begins { Breach::None } else { self.nature.breach }
    }

    fn is_away(&self, now: Time) -> bool {
        match self.breach(now) {
            Breach::Silence | Breach::Deaf => true,
            Breach::Absence => now < self.begins + ABSENCE,
            _ => false,
        }
    }

    pub fn handle_datagram(&mut self, now: Time, from: &Origin, datagram: &mut [u8]) {
        if self.is_away(now) {
            return;
        }
        let header = Header::decode(datagram).expect("the sink is honest");
        let body = self.envelope.open(now, (SocketId(1), from), header, datagram).expect("sealed");
        let _ = self.core.handle_datagram(Arrival::from(now), header, body);
        self.agent.wake(now);
        while let Some(event) = self.core.poll_event() {
            if let Event::UnitPayload(payload) = event {
                self.row = Row::of(self.object.manifest(), payload).ok();
            }
        }
    }

    pub fn poll_timeout(&self, now: Time) -> Time {
        if self.is_away(now) {
            return if self.breach(now) == Breach::Absence {
                self.begins + ABSENCE
            } else {
                Time::MAX
            };
        }
        let core = self.core.poll_timeout().map_or(Time::MAX, |(at, _)| at);
        let flood = if self.breach(now) == Breach::Flood { self.flood_due } else { Time::MAX };
        core.min(self.agent.poll_timeout()).min(flood)
    }

    /// All that leaves now, sealed, with the time at which it arrives.
    pub fn transmit(&mut self, now: Time) -> Vec<Flying> {
        if self.agent.poll_timeout() <= now {
            let mut grants = Vec::new();
            self.agent.tick(now, &[(1, self.core.report(now))], &mut grants);
            grants.into_iter().for_each(|(_, grant)| self.core.handle_grant(now, grant));
        }
        let mut flying = Vec::new();
        let mut head = Vec::new();
        loop {
            let payload = self.row.as_ref().map_or(0, Row::unit_payload);
            let mut supply = |unit| match &self.row {
                Some(row) if unit < row.units() => Supplied::Ready(length(row, unit)),
                Some(_) => Supplied::NoSuchUnit,
                None => Supplied::NotYet,
            };
            let Some(transmit) = self.core.poll_transmit(now, &mut supply, &mut head) else {
                break;
            };
            let mut clear = head.clone();
            if let Some(unit) = transmit.unit {
                self.append(unit.number, payload, &mut clear);
            }
            self.send(now, clear, &mut flying);
        }
        if self.breach(now) == Breach::Flood && self.flood_due <= now {
            self.flood(now, &mut flying);
        }
        flying
    }

    fn append(&mut self, unit: u64, payload: u16, clear: &mut Vec<u8>) {
        let row = self.row.as_ref().expect("units were asked for");
        let place = row.locate(unit).expect("a unit of the object");
        let first = row.block_units(place.file, place.block).expect("a block").start;
        let at_hand = |(f, b, _): &&(u32, u64, Framed)| (*f, *b) == (place.file, place.block);
        if self.blocks.iter().find(at_hand).is_none() {
            let mut framed = gtp_store::new_framed();
            self.object.load_block(place.file, place.block, &mut framed).expect("a block");
            self.blocks.push_back((place.file, place.block, framed));
            if self.blocks.len() > BLOCKS_AT_HAND {
                self.blocks.pop_front();
            }
        }
        let (_, _, framed) = self.blocks.iter().find(at_hand).expect("just loaded");
        let start = ((unit - first) * u64::from(payload)) as usize;
        let end = framed.len().min(start + usize::from(payload));
        clear.extend_from_slice(&framed[start..end]);
    }

    /// Twists what the honest session says, and lets it go.
    fn send(&mut self, now: Time, mut clear: Vec<u8>, flying: &mut Vec<Flying>) {
        let breach = self.breach(now);
        if self.is_away(now) {
            return;
        }
        let mut header = Header::decode(&clear).expect("our own");
        let passes = match header.kind {
            Kind::Data => self.twist_data(breach, &mut clear),
            Kind::Status => self.twist_status(breach, &mut clear),
            Kind::Hello | Kind::HelloAck | Kind::Close => true,
            Kind::Feedback | Kind::Request => unreachable!("a source says no such thing"),
        };
        match breach {
            Breach::Flood => return, // It speaks for itself.
            Breach::Close if self.said_close => return,
            Breach::Close => {
                self.said_close = true;
                clear.clear();
                header.kind = Control::Close.kind();
                header.encode(&mut clear);
                Control::Close.encode(&mut clear);
            }
            Breach::Replay if !self.newest.is_empty() => {
                flying.push((now + self.nature.delay, self.newest.clone()));
                return;
            }
            Breach::FarAhead => header.pn += 1 << 40,
            _ if !passes => return,
            _ => {}
        }
        self.number = header.pn;
        let mut head = Vec::new();
        header.encode(&mut head);
        clear[..HEADER_LEN].copy_from_slice(&head);
        self.envelope.seal(header.pn, &mut clear, 0);
        if breach == Breach::Forged {
            let last = clear.len() - 1;
            clear[last] ^= 1;
        }
        self.newest.clone_from(&clear);
        if !self.dice.hits(self.nature.loss) {
            let late = if breach == Breach::Late { LATENESS } else { Span::ZERO };
            flying.push((now + self.nature.delay + late, clear));
        }
    }

    /// `false`: it does not leave.
    fn twist_data(&mut self, breach: Breach, clear: &mut Vec<u8>) -> bool {
        let (mut head, _) = DataHead::decode(&clear[HEADER_LEN..]).expect("our own");
        let units = self.row.as_ref().map_or(1, Row::units);
        match breach {
            Breach::EchoInData => head.grant += 1_000,
            Breach::WrongUnit => head.unit ^= 1,
            Breach::Unasked => head.unit = self.dice.below(units),
            Breach::WrongHash => {
                let last = clear.len() - 1;
                clear[last] ^= 1;
            }
            Breach::Short => drop(clear.pop()),
            Breach::Long => clear.push(0),
            Breach::WrongTimes => head.sent_at = self.dice.below(u64::from(u32::MAX)) as u32,
            Breach::NoData | Breach::NoDrop | Breach::ClaimsAll => return false,
            Breach::Trickle => return self.dice.below(40) == 0,
            _ => {}
        }
        let mut bytes = Vec::new();
        head.encode(&mut bytes);
        clear[HEADER_LEN..HEADER_LEN + DATA_HEAD_LEN].copy_from_slice(&bytes);
        true
    }

    fn twist_status(&mut self, breach: Breach, clear: &mut Vec<u8>) -> bool {
        let body = &clear[HEADER_LEN..];
        let Ok(Some(Control::Status(status))) = Control::decode(Kind::Status, body) else {
            unreachable!("our own status");
        };
        let next = status.requests_next;
        let twisted = match breach {
            Breach::EchoInStatus => Status { grant: status.grant + 1_000, ..status },
            Breach::NoDrop => Status { requests_next: 1, ..status },
            Breach::ClaimsAll => Status { work_front: next, repair_front: next, ..status },
            Breach::Trickle | Breach::NoData => Status { offer: Rate::UNLIMITED, ..status },
            Breach::WrongTimes => {
                let noise = self.dice.below(u64::from(u32::MAX)) as u32;
                Status { sent_at: noise, echo_at: noise / 2, ..status }
            }
            _ => status,
        };
        clear.truncate(HEADER_LEN);
        Control::Status(twisted).encode(clear);
        true
    }

    /// Eight times the grant, of units chosen by chance.
    fn flood(&mut self, now: Time, flying: &mut Vec<Flying>) {
        self.flood_due = now + FLOOD_STEP;
        let Some(row) = &self.row else { return };
        let (units, payload) = (row.units(), row.unit_payload());
        let rate = self.core.granted().min(self.nature.rate).scale(8.0);
        let mut left = rate.bytes_in(FLOOD_STEP);
        let packet = Bytes(1_500);
        while left > packet {
            left -= packet;
            self.number += 1;
            let unit = self.dice.below(units);
            let header = Header {
                kind: Kind::Data,
                session: self.envelope.link().peer_session,
                pn: self.number,
            };
            let mut clear = Vec::new();
            header.encode(&mut clear);
            DataHead { proof: 0, sent_at: now.as_wire_micros(), grant: 0, request: 1, unit }
                .encode(&mut clear);
            self.append(unit, payload, &mut clear);
            self.envelope.seal(header.pn, &mut clear, 0);
            flying.push((now + self.nature.delay, clear));
        }
    }
}

/// How long a unit is.
fn length(row: &Row, unit: u64) -> u16 {
    let place = row.locate(unit).expect("a unit of the object");
    let units = row.block_units(place.file, place.block).expect("a block");
    let content = row.block_content(place.file, place.block).expect("a block");
    let framed = u64::from(content) + gtp_store::TRAILER as u64;
    let start = (unit - units.start) * u64::from(row.unit_payload());
    (framed - start).min(u64::from(row.unit_payload())) as u16
}

/// The object that all honest mirrors hold.
pub(super) fn object(size: u64) -> SyntheticSource {
    let pattern = gtp_store::Pattern::Random { seed: 5 };
    SyntheticSource::file(RelPath::new("x").expect("a name"), size, pattern)
}
