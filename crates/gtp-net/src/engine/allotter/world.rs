//! Processes and their daemon in virtual time: the real allotters, the real hub, real pages.
//!
//! Sources are a round trip away and obey what they are told; what they send arrives here. Daemons
//! die, others come, processes find them late. Nothing here waits: a step is a millisecond.

use std::collections::VecDeque;
use std::sync::Arc;

use gtp_alloc::led::Counts;
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_laws::gtp2004;
use gtp_proto::agent::{AgentConfig, Side as AgentSide};
use gtp_proto::direction::Allot as _;
use gtp_proto::limits::RECOMPUTE_MIN;
use gtp_proto::{Agent, Grant, Law, LimitedBy, Owner, Phase, Report};
use gtp_share::client::{Attachment, Past};
use gtp_share::{Connection, Incoming, Label, Listener};
use gtpd::{Hub, HubConfig, Who};

use super::super::council::Decider;
use super::super::details::Details;
use super::super::keeper::DaemonNews;
use super::super::standing::Bond;
use super::Allotter;

pub(super) const RTT: Span = Span::from_millis(20);
const STEP: Span = Span::from_millis(1);
const PACKET: Bytes = Bytes(1_500);

/// One session and its source.
pub(super) struct Session {
    id: u32,
    /// For whom it runs.
    pub owner: Owner,
    law: Law,
    /// What its law says where its source decides, or what it has to send.
    most: Rate,
    /// What the sink has told and the source does not yet send by, with the time from which on it
    /// arrives.
    told: VecDeque<(Time, u32, Rate)>,
    /// By what it sends that arrives now.
    obeyed: (u32, Rate),
    newest: Option<Grant>,
    received: f64,
}

/// One process.
pub(super) struct Process {
    pub allotter: Allotter,
    pub sessions: Vec<Session>,
    side: AgentSide,
    uid: u32,
    far: Option<Connection>,
    past: Past,
    rung: bool,
    /// When it looks for a daemon again.
    pub look: Time,
}

/// A host.
pub(super) struct World {
    pub now: Time,
    pub hub: Option<Hub>,
    pub processes: Vec<Process>,
    /// What arrived, or was sent, in each step, in bits.
    pub moved: Vec<f64>,
    /// How its processes came to their daemon.
    pub bond: Bond,
    /// The daemon does nothing.
    pub hub_stands_still: bool,
    listener: Listener,
    dir: tempfile::TempDir,
}

impl Session {
    pub fn new(id: u32, law: Law, most: Rate) -> Session {
        let (told, obeyed) = (VecDeque::new(), (0, Rate::ZERO));
        let owner = Owner::NOBODY;
        Session { id, owner, law, most, told, obeyed, newest: None, received: 0.0 }
    }

    /// What moves now.
    pub fn rate(&self) -> Rate {
        self.most.min(self.obeyed.1)
    }

    fn step(&mut self, now: Time) {
        while let Some(&(at, number, rate)) = self.told.front()
            && at <= now
        {
            self.obeyed = (number, rate);
            self.told.pop_front();
        }
        self.received += self.rate().as_f64() * STEP.as_secs_f64() / (PACKET.0 * 8) as f64;
    }

    fn tell(&mut self, now: Time, side: AgentSide, grant: Grant) {
        if let Some(before) = self.newest.replace(grant)
            && side == AgentSide::Sink
        {
            assert!(grant.number >= before.number, "numbers never go back: {before:?} {grant:?}");
            let same = grant.number == before.number;
            assert!(!same || grant.rate == before.rate, "one number, one rate: {grant:?}");
            if same {
                return;
            }
        }
        let at = match side {
            AgentSide::Source => now,
            AgentSide::Sink => now + RTT,
        };
        self.told.push_back((at, grant.number, grant.rate));
    }

    fn report(&self) -> Report {
        Report {
            weight: 1.0,
            peer_weight: 1.0,
            law: self.law,
            phase: Phase::Open,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::UNLIMITED,
            firm: Rate::UNLIMITED,
            party: 0,
            owner: self.owner,
            measured: self.rate(),
            echoed: self.obeyed.0,
            rtt: RTT,
            counts: Counts { received: self.received as u64, lost: 0 },
            packet: PACKET,
        }
    }
}

impl Process {
    /// Lets its allotter decide, if it is time.
    fn step(&mut self, now: Time) {
        self.sessions.iter_mut().for_each(|session| session.step(now));
        if std::mem::take(&mut self.rung) {
            self.allotter.handle_news(now, &DaemonNews::Rang);
        }
        if self.allotter.poll_timeout() > now {
            return;
        }
        let reports: Vec<_> = self.sessions.iter().map(|s| (s.id, s.report())).collect();
        if let Some(details) = self.allotter.wants_details() {
            details.extend(self.sessions.iter().map(details_of));
        }
        let mut grants = Vec::new();
        self.allotter.tick(now, &reports, &mut grants);
        assert_eq!(grants.len(), reports.len());
        for (session, (id, grant)) in self.sessions.iter_mut().zip(grants) {
            assert_eq!(session.id, id);
            session.tell(now, self.side, grant);
        }
    }

    /// What all its sessions move.
    pub fn rate(&self) -> f64 {
        self.sessions.iter().map(|session| session.rate().as_f64()).sum()
    }
}

fn details_of(session: &Session) -> Details {
    Details {
        principal: session.owner.number,
        transfer: if session.owner == Owner::NOBODY { 1 } else { session.id.into() },
        limited_by: LimitedBy::Sink,
        way: crate::engine::Way::Udp,
        path: None,
        packets: session.received as u64,
        lost: 0,
        wire_bytes: session.received as u64 * PACKET.0,
        label: Label::new("session"),
    }
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::bind(&dir.path().join("s")).unwrap();
        let (now, processes, moved) = (Time::from_nanos(1_000_000_000), Vec::new(), Vec::new());
        let (bond, hub_stands_still) = (Bond::Found, false);
        World { now, hub: None, processes, moved, bond, hub_stands_still, listener, dir }
    }

    /// A process of this user, with a capacity of its own that counts until it finds a daemon.
    pub fn process(&mut self, side: AgentSide, uid: u32, own: Rate) -> usize {
        let config = AgentConfig { side, capacity: own, interval: Some(RTT / 2) };
        let agent = Agent::new(self.now, config).deciding_by(Box::new(gtp2004::Host::new(own)));
        self.processes.push(Process {
            allotter: Allotter::new(Decider::own(agent)),
            sessions: Vec::new(),
            side,
            uid,
            far: None,
            past: Past::None,
            rung: false,
            look: Time::ZERO,
        });
        self.processes.len() - 1
    }

    /// A daemon begins now.
    pub fn daemon(&mut self, config: &HubConfig) -> &mut Hub {
        self.hub.insert(Hub::new(self.now, config))
    }

    /// The daemon is killed: all its processes see their connections end.
    pub fn kill(&mut self) {
        self.hub = None;
        for process in self.processes.iter_mut().filter(|process| process.far.is_some()) {
            process.far = None;
            process.allotter.handle_news(self.now, &DaemonNews::Lost(self.bond));
        }
    }

    /// This process finds the daemon.
    pub fn attach(&mut self, at: usize) {
        let hub = self.hub.as_mut().expect("a daemon");
        let process = &mut self.processes[at];
        let who = Who { uid: process.uid, pid: 1, program: "test".into() };
        let (fds, slots) = hub.attach(self.now, at as u64, who, 16).unwrap();
        let near = Connection::open(&self.dir.path().join("s")).unwrap();
        process.far = Some(self.listener.accept().unwrap().unwrap());
        let attachment = Attachment::open([&fds[0], &fds[1]], slots, near).unwrap();
        let again = std::mem::replace(&mut process.past, Past::Orphaned);
        if again == Past::Orphaned {
            hub.came_back(self.now, at as u64);
        }
        process.allotter.handle_news(self.now, &DaemonNews::Found(Arc::new(attachment)));
    }

    /// What all move together.
    pub fn rate(&self) -> f64 {
        self.processes.iter().map(Process::rate).sum()
    }

    fn step(&mut self) {
        self.now += STEP;
        self.processes.iter_mut().for_each(|process| process.step(self.now));
        self.moved.push(self.rate() * STEP.as_secs_f64());
        let Some(hub) = self.hub.as_mut().filter(|_| !self.hub_stands_still) else { return };
        let mut buffer = [0; 8];
        for far in self.processes.iter().filter_map(|process| process.far.as_ref()) {
            while let Ok(Incoming::Message(..)) = far.receive(&mut buffer) {
                hub.wake(self.now);
            }
        }
        let mut news = Vec::new();
        hub.tick(self.now, &mut news);
        for id in news {
            self.processes[id as usize].rung = true;
        }
    }

    pub fn run(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.step();
        }
    }
}

const _: () = assert!(RECOMPUTE_MIN.as_nanos() <= STEP.as_nanos());
