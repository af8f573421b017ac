//! One process's sessions as the daemon knows them, brought up to date from its page.
//!
//! A session takes a seat when its record is first seen and keeps it until the record is gone.
//! What decides its weight is what it said then: nobody can move shares by rewriting a page.
//! Nothing here trusts a word, and nothing here shares anything out.

use gtp_alloc::tree::Policy;
use gtp_alloc::{Rate, Time};
use gtp_proto::limits::{DEMAND_ALPHA, DEMAND_FLOOR};
use gtp_proto::{FlowId, Law, Report};
use gtp_share::{Change, Found, Granted, GrantsWriter, Posted, ReportsReader, Side};

use crate::names::Names;

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// Its name in this daemon.
    pub flow: FlowId,
    /// Its last whole record.
    pub posted: Posted,
    /// Weight within its transfer.
    pub weight: f64,
    /// Weight among all sessions of its direction.
    pub flat: f64,
    /// A limit that was set here.
    pub max_rate: Rate,
    /// When it gets something.
    pub policy: Policy,
    /// What stands on the grants page.
    pub granted: Option<Granted>,
    /// Packets and bytes when tolls were taken last.
    tolled: Tolled,
}

/// What became of a process's sessions since the last look.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Slots in which a session has come.
    pub came: Vec<u32>,
    /// Whether one has gone.
    pub gone: bool,
    /// Bytes that sessions have moved: sent, received.
    pub moved: [u64; 2],
    /// Slots that were looked at.
    pub looked: u32,
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
    /// Reads the page as far as it is used and allowed. Each session that comes gets a name from
    /// `names`.
    pub fn read(
        &mut self,
        reports: &ReportsReader,
        grants: &GrantsWriter,
        allowance: Allowance,
        names: &mut Names,
    ) -> Changes {
        let mut changes = Changes::default();
        let mut room = allowance.sessions;
        let used = reports.used().min(allowance.slots);
        changes.looked = used;
        self.0.resize(self.0.len().max(used as usize), None);
        for (slot, seat) in (0..).zip(&mut self.0) {
            let found = if slot < used { reports.read(slot) } else { Found::Nothing };
            match (found, seat.as_mut()) {
                (Found::Torn, _) | (Found::Nothing, None) => {}
                (Found::Nothing, Some(known)) => {
                    names.take_back(known.flow);
                    *seat = None;
                    grants.clear(slot);
                    changes.gone = true;
                }
                (Found::Record(posted), Some(known)) if known.is_same(&posted) => {
                    let moved = match posted.side {
                        Side::Source => &mut changes.moved[0],
                        Side::Sink => &mut changes.moved[1],
                    };
                    let before = known.posted.wire_bytes;
                    *moved = moved.saturating_add(posted.wire_bytes.saturating_sub(before));
                    known.update(posted);
                }
                (Found::Record(_), None) if room == 0 => {}
                (Found::Record(posted), known) => {
                    room -= usize::from(known.is_none());
                    changes.gone |= known.is_some();
                    changes.came.push(slot);
                    let name = names.give();
                    if let Some(before) = seat.replace(Box::new(Seat::new(name, posted))) {
                        names.take_back(before.flow);
                    }
                    grants.clear(slot);
                }
            }
        }
        while matches!(self.0.last(), Some(None)) {
            self.0.pop();
        }
        changes
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
    fn new(flow: FlowId, posted: Posted) -> Seat {
        Seat {
            flow,
            posted,
            weight: posted.report.weight,
            flat: posted.report.weight,
            max_rate: Rate::UNLIMITED,
            policy: Policy::Normal,
            granted: None,
            tolled: Tolled::of(&posted),
        }
    }

    /// Whether a record is of this session.
    fn is_same(&self, posted: &Posted) -> bool {
        self.posted.id == posted.id && self.posted.side == posted.side
    }

    /// What may change in a session's life does.
    fn update(&mut self, posted: Posted) {
        let first = self.posted;
        self.posted = Posted {
            report: Report { law: first.report.law, ..posted.report },
            principal: first.principal,
            transfer: first.transfer,
            held: first.held,
            label: first.label,
            ..posted
        };
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

    /// Does what was set.
    pub fn change(&mut self, change: Change) {
        self.weight = change.weight.unwrap_or(self.weight);
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

    /// What its agent is told. `Awake::No`: its process does not run, so it can use nothing.
    pub fn report(&self, awake: Awake) -> Report {
        let report = self.posted.report;
        let newest = self.granted.map_or(self.posted.held.number, |g| g.grant.number);
        let demand = match report.law {
            Law::Grant => report.demand,
            // The thesis's law knows neither weights nor offers: here such a session counts as one
            // that wants a little more than it moves.
            // So does one over which one of its ends decides alone.
            Law::EndNode { .. } | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => {
                let moved = report.measured.scale(1.0 + DEMAND_ALPHA);
                report.demand.min(moved.saturating_add(DEMAND_FLOOR))
            }
        };
        let most = match awake {
            Awake::Yes => self.max_rate,
            Awake::No => Rate::ZERO,
        };
        Report {
            // The other end may lessen a session's weight and never raise it above its part here:
            // what it brings beyond one is taken off on this side, and so it is at both ends. In
            // the precision of the wire, for both ends to multiply the same numbers.
            weight: f64::from((self.flat / report.peer_weight.max(1.0)) as f32),
            law: Law::Grant,
            demand: demand.min(most),
            // Nobody has obeyed what was not granted yet.
            echoed: report.echoed.min(newest),
            ..report
        }
    }
}

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
}

impl Pulse {
    pub fn new(now: Time) -> Pulse {
        Pulse { beats: 0, at: now }
    }

    /// Looks at the page's head.
    pub fn feel(&mut self, now: Time, page: &ReportsReader) -> Awake {
        let beats = page.beats();
        if beats != self.beats {
            *self = Pulse { beats, at: now };
        }
        if now.since(self.at) > gtp_proto::limits::SILENCE_STOP { Awake::No } else { Awake::Yes }
    }
}

/// The direction of a session in words.
pub(crate) fn direction(side: Side) -> &'static str {
    match side {
        Side::Source => "out",
        Side::Sink => "in",
    }
}
