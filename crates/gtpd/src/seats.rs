//! One process's sessions as the daemon knows them, brought up to date from its page.
//!
//! A session takes a seat when its record is first seen and keeps it until the record is gone.
//! What decides its weight is what it said then: nobody can move shares by rewriting a page.
//! Nothing here trusts a word, and nothing here shares anything out.

use gtp_alloc::tree::Policy;
use gtp_alloc::{Rate, Time};
use gtp_proto::limits::{ALONE_GROWS, ALONE_LEAST, DEMAND_ALPHA, DEMAND_FLOOR};
use gtp_proto::room::STRANGERS;
use gtp_proto::{FlowId, Law, Report};
use gtp_share::{Change, Found, GrantsWriter, KEYS, Posted, ReportsReader, Side, Update};

use crate::hub::{ClientId, EndNodeSessions};
use crate::ledger::Counted;
use crate::limits::TransferId;
use crate::names::Names;
use crate::pace::Pace;

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Its name in this daemon.
    pub flow: FlowId,
    /// The page's sequence word before its last look.
    seen: u64,
    /// Where it is in the row of its direction; nowhere until that is gathered.
    pub place: usize,
    /// Its last whole record.
    pub posted: Posted,
    /// Weight within its transfer.
    pub weight: f64,
    /// Weight that was set here.
    pub set_weight: Option<f64>,
    /// Weight among all sessions of its direction.
    pub flat: f64,
    /// A limit that was set here.
    pub max_rate: Rate,
    /// When it gets something.
    pub policy: Policy,
    /// Its rate as it is shown.
    pub pace: Pace,
    /// Packets and bytes when tolls were taken last.
    tolled: Tolled,
    /// Bytes when it was asked last what it moved.
    told: u64,
    /// What was counted of it.
    pub counted: Counted,
}

/// What became of a process's sessions since the last look.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Slots in which a session has come.
    pub came: Vec<u32>,
    /// Sessions that have gone.
    pub gone: Vec<Seat>,
    /// Bytes that sessions have moved: sent, received.
    pub moved: [u64; 2],
    /// Slots that were looked at.
    pub looked: u32,
    /// What a client has, or its group, has changed.
    pub terms: bool,
}

impl Changes {
    /// A session of this side has moved so many bytes in its life `now`, and had so `before`.
    fn count(&mut self, side: Side, before: u64, now: u64) {
        let moved = match side {
            Side::Source => &mut self.moved[0],
            Side::Sink => &mut self.moved[1],
        };
        *moved = moved.saturating_add(now.saturating_sub(before));
    }
}

/// What a process may take of its user's part at one look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Sessions that may come.
    pub sessions: usize,
    /// Slots that are looked at; all beyond count as empty.
    pub slots: u32,
}

/// All sessions of one process.
#[derive(Debug, Default)]
pub(crate) struct Seats(Vec<Option<Box<Seat>>>);

impl Seats {
    /// Reads the page at `now`, as far as it is used and allowed. Each session that comes gets a
    /// name from `names`; `heard` is told of each that is known and has said something new.
    pub fn read(
        &mut self,
        now: Time,
        (reports, grants): (&ReportsReader, &GrantsWriter),
        allowance: Allowance,
        names: &mut Names,
        mut heard: impl FnMut(&Seat),
    ) -> Changes {
        let mut changes = Changes::default();
        let mut room = allowance.sessions;
        let used = reports.used().min(allowance.slots);
        changes.looked = used;
        self.0.resize(self.0.len().max(used as usize), None);
        for (slot, place) in (0..).zip(&mut self.0) {
            let sequence = if slot < used { reports.sequence(slot) } else { 0 };
            if let Some(seat) = place.as_mut() {
                if sequence != 0 && seat.seen == sequence {
                    continue;
                }
                let (before, terms) = (seat.posted.wire_bytes, seat.posted.terms);
                let found = if slot < used {
                    reports.update(slot, &mut seat.posted)
                } else {
                    Found::Nothing
                };
                match found {
                    Found::Torn => continue,
                    Found::Record(Update::Done) => {
                        seat.seen = sequence;
                        changes.terms |= seat.posted.terms != terms;
                        seat.pace.add(seat.posted.report.measured);
                        changes.count(seat.posted.side, before, seat.posted.wire_bytes);
                        heard(seat);
                        continue;
                    }
                    Found::Nothing | Found::Record(Update::Gone) => {
                        names.take_back(seat.flow);
                        changes.gone.extend(place.take().map(|seat| *seat));
                        grants.clear(slot);
                        continue;
                    }
                    Found::Record(Update::Another) => {}
                }
            }
            if sequence == 0 || (place.is_none() && room == 0) {
                continue;
            }
            let Found::Record(posted) = reports.read(slot) else { continue };
            room -= usize::from(place.is_none());
            changes.came.push(slot);
            let seat = Seat::new(now, names.give(), sequence, posted);
            if let Some(before) = place.replace(Box::new(seat)) {
                names.take_back(before.flow);
                changes.gone.push(*before);
            }
            grants.clear(slot);
        }
        while matches!(self.0.last(), Some(None)) {
            self.0.pop();
        }
        changes
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// All sessions with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Seat)> {
        (0..).zip(&self.0).filter_map(|(slot, seat)| Some((slot, seat.as_deref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Seat)> {
        (0..).zip(&mut self.0).filter_map(|(slot, seat)| Some((slot, seat.as_deref_mut()?)))
    }

    /// The session in a slot.
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Seat> {
        self.0.get_mut(slot as usize)?.as_deref_mut()
    }
}

impl Seat {
    pub fn new(now: Time, flow: FlowId, seen: u64, posted: Posted) -> Seat {
        Seat {
            flow,
            seen,
            place: usize::MAX,
            posted,
            weight: posted.report.weight,
            set_weight: None,
            flat: posted.report.weight,
            max_rate: Rate::UNLIMITED,
            policy: Policy::Normal,
            pace: Pace::default(),
            tolled: Tolled::of(&posted),
            told: posted.wire_bytes,
            counted: Counted::from(now, &posted),
        }
    }

    /// What it says that it had been granted before there was this daemon; at a source, what it
    /// sends.
    pub fn had(&self) -> Rate {
        match self.posted.side {
            Side::Source => self.posted.report.measured,
            Side::Sink => self.posted.held.rate,
        }
    }

    /// The transfer that it is part of, in the process of that name.
    pub fn transfer(&self, client: ClientId) -> TransferId {
        let Posted { principal, transfer, .. } = self.posted;
        TransferId { client, principal, transfer }
    }

    /// Its rate for people under this grant: the mean of half a second; at first, and when the
    /// grant has just come down, what it reported last.
    pub fn rate(&self, grant: Rate) -> Rate {
        self.pace.mean(grant).unwrap_or(self.posted.report.measured)
    }

    /// What became of its packets since this was asked last.
    pub fn toll(&mut self) -> Tolled {
        let now = Tolled::of(&self.posted);
        let before = std::mem::replace(&mut self.tolled, now);
        Tolled {
            packets: now.packets.saturating_sub(before.packets),
            lost: now.lost.saturating_sub(before.lost),
            bytes: now.bytes.saturating_sub(before.bytes),
        }
    }

    /// Bytes that it has moved since this was asked last.
    pub fn moved(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.told, self.posted.wire_bytes);
        self.posted.wire_bytes.saturating_sub(before)
    }

    /// Does what was set.
    pub fn change(&mut self, change: Change) {
        self.weight = change.weight.unwrap_or(self.weight);
        self.set_weight = change.weight.or(self.set_weight);
        self.max_rate = match change.max_rate {
            None => self.max_rate,
            Some(0) => Rate::UNLIMITED,
            Some(bps) => Rate::from_bps(bps),
        };
        self.policy = match change.policy {
            None => self.policy,
            Some(gtp_share::Policy::Normal) => Policy::Normal,
            Some(gtp_share::Policy::Low) => Policy::Low,
        };
    }

    /// The law by which it is shared out here.
    pub fn law(&self, end_node: EndNodeSessions) -> Law {
        match (self.posted.report.law, end_node) {
            (law @ Law::EndNode { .. }, EndNodeSessions::ByTheirLaw) => law.believed(),
            (Law::EndNode { .. }, EndNodeSessions::ByGrants)
            | (Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone, _) => Law::Grant,
        }
    }

    /// What the agent of `capacity` is told, which shares it out by `law` and whose newest grant
    /// has the number `newest`. `Awake::No`: its process does not run, so it can use nothing.
    pub fn report(&self, law: Law, uid: u32, awake: Awake, capacity: Rate, newest: u32) -> Report {
        let party = self.party(uid);
        let mut report = Report { law, party, ..self.posted.report };
        report.weight = self.own_weight();
        self.refresh(&mut report, awake, capacity, newest);
        report
    }

    /// Brings up to date what the agent was told, where nothing but what the session says has
    /// changed since.
    #[inline]
    pub fn refresh(&self, report: &mut Report, awake: Awake, capacity: Rate, newest: u32) {
        let said = &self.posted.report;
        let most = match awake {
            Awake::Yes => self.max_rate,
            Awake::No => Rate::ZERO,
        };
        if report.peer_weight != said.peer_weight {
            (report.weight, report.peer_weight) = (self.own_weight(), said.peer_weight);
        }
        report.phase = said.phase;
        report.peer_offer = said.peer_offer;
        report.demand = self.demand(report.law, capacity).min(most);
        report.firm = said.firm;
        report.measured = match (awake, report.law) {
            // That law believes what a session was last seen to send.
            (Awake::No, Law::EndNode { .. }) => Rate::ZERO,
            _ => said.measured,
        };
        // Nobody has obeyed what was not granted yet.
        report.echoed = said.echoed.min(newest);
        report.rtt = said.rtt;
    }

    /// With whom it shares room to grow: its client, or all strangers of its user. Another user's
    /// process cannot name the same number, but by a chance of one in 2^64.
    fn party(&self, uid: u32) -> u64 {
        let party = match self.posted.principal {
            0 => return 0,
            key if key & KEYS != 0 => key,
            _ => STRANGERS,
        };
        (u64::from(uid) << 32 | u64::from(uid)).wrapping_mul(GOLDEN).wrapping_add(party)
    }

    /// This end's factor of the session's weight.
    ///
    /// The other end may lessen a session's weight and never raise it above its part here: what it
    /// brings beyond one is taken off on this side, and so it is at both ends. In the precision of
    /// the wire, for both ends to multiply the same numbers.
    fn own_weight(&self) -> f64 {
        f64::from((self.flat / self.posted.report.peer_weight.max(1.0)) as f32)
    }

    /// What a session wants that is shared out by `law`. Where its own law says it or shares it
    /// out, that counts; of others it is told from what they move.
    fn demand(&self, law: Law, capacity: Rate) -> Rate {
        let report = &self.posted.report;
        let moved = report.measured;
        match (report.law, self.posted.side) {
            // That law goes by what sessions move, and says itself how much more they are to have.
            (Law::EndNode { .. }, _) if law != Law::Grant => report.demand,
            // The law at this end says what it wants: the sink's own, or that of its host.
            (Law::Grant, _) | (Law::SinkAlone | Law::SessionAlone, Side::Sink) => report.demand,
            // So does a source whose law or whose grant says what it will send.
            (Law::SourceAlone | Law::SinkAlone, Side::Source) => report.demand,
            // The thesis's law follows slowly, wherever it has room.
            (Law::EndNode { .. }, _) => report.demand.min(a_little_more(moved)),
            // A law elsewhere may want more at once, as in a process that allocates for itself.
            (Law::SourceAlone, Side::Sink) | (Law::SessionAlone, Side::Source) => {
                report.demand.min(moved.scale(ALONE_GROWS).max(capacity.scale(ALONE_LEAST)))
            }
        }
    }
}

/// What a session under the end-node law counts as that moves so much, where others are shared out
/// by what they want.
pub fn a_little_more(moved: Rate) -> Rate {
    moved.scale(1.0 + DEMAND_ALPHA).saturating_add(DEMAND_FLOOR)
}

/// Spreads users' numbers over all numbers: 2^64 over the golden ratio, odd.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Packets of a session that arrived, those that did not, and IP bytes that moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolled {
    pub packets: u64,
    pub lost: u64,
    pub bytes: u64,
}

impl Tolled {
    fn of(posted: &Posted) -> Tolled {
        Tolled { packets: posted.packets, lost: posted.lost, bytes: posted.wire_bytes }
    }
}

/// Whether a process was seen at work lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awake {
    /// It was.
    Yes,
    /// It was stopped, or hangs.
    No,
}

/// When a process was last seen at work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pulse {
    beats: u64,
    at: Time,
    /// What was found at the last look.
    pub awake: Awake,
}

impl Pulse {
    pub fn new(now: Time) -> Pulse {
        Pulse { beats: 0, at: now, awake: Awake::Yes }
    }

    /// Looks at the page's head.
    pub fn feel(&mut self, now: Time, page: &ReportsReader) {
        let beats = page.beats();
        if beats != self.beats {
            (self.beats, self.at) = (beats, now);
        }
        let silent = now.since(self.at) > gtp_proto::limits::SILENCE_STOP;
        self.awake = if silent { Awake::No } else { Awake::Yes };
    }
}

/// The direction of a session in words.
pub(crate) fn direction(side: Side) -> &'static str {
    match side {
        Side::Source => "out",
        Side::Sink => "in",
    }
}
