//! Where all processes' reports meet the host's agents: everything that the daemon decides.
//!
//! Like the core, a plain value: `attach`, `wake`, `tick`, and a timeout. A tick reads every page,
//! gives each direction's agent its reports with weights from the tree of users, transfers and
//! sessions, and writes grants where they have changed. It knows pages, but no sockets and no
//! clock.

mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use gtp_alloc::strain::{LOSING, PACKETS_LEAST, Toll};
use gtp_alloc::tree::{self, Node, Policy};
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_proto::{Agent, AgentConfig, FlowId, Grant};
use gtp_share::client::Past;
use gtp_share::{Change, GrantsWriter, Of, ReportsReader, SLOTS_MOST, Side, Terms};

use crate::by_key::ByKey;
use crate::desk::{Desk, Granting};
use crate::fallback::{self, Joined};
use crate::history::History;
use crate::ledger::{End, Ledger};
use crate::limits::{Bounds, Given, Member, RowLimits, ServerId, TransferId};
use crate::names::Names;
use crate::pace::Paces;
pub use crate::right::Right;
use crate::seats::{Allowance, Pulse, Seat, Seats, Tolled};

/// Names an attached process.
pub type ClientId = u64;

/// What a daemon is told at its start.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Capacity for what the host sends; unlimited if nobody knows it.
    pub capacity_out: Rate,
    /// Capacity for what it receives.
    pub capacity_in: Rate,
    /// A fixed control interval, or half the median round-trip time.
    pub interval: Option<Span>,
    /// Nobody is granted more than it has for so long after the start: until then the processes of
    /// a daemon that died hand over what it had granted. As long as they come, and until all are
    /// there whose number is known ([`Hub::wait_for`]), it lasts longer, up to [`GRACE_MOST`].
    /// Those that hold more together than there is, because they were alone, are granted less.
    pub grace: Span,
    /// Weights of users, where not one.
    pub users: BTreeMap<u32, f64>,
    /// The most that users may have in each direction, where there is such a limit.
    pub most: BTreeMap<u32, Rate>,
    /// What users are served first in each direction, as far as they want it.
    pub least: BTreeMap<u32, Rate>,
    /// How sessions under the end-node law are shared out.
    pub end_node: EndNodeSessions,
}

/// How a daemon shares out sessions under the thesis's end-node law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndNodeSessions {
    /// By the grant law, like all others: each counts as one that wants a tenth more than it moves.
    #[default]
    ByGrants,
    /// By their own law (thesis, Algorithms 2 and 3), from the measured rates of all sessions and
    /// the capacity. They have no weights, and may overload a sink while their rates settle.
    ByTheirLaw,
}

/// A process, as the kernel and it itself name it.
#[derive(Clone, Debug)]
pub struct Who {
    /// Its user.
    pub uid: u32,
    /// Its number, for people.
    pub pid: i32,
    /// What it says it is.
    pub program: String,
}

/// Why a session was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetError {
    /// There is none of that name.
    NoSuchSession,
    /// It is another user's.
    NotYours,
    /// A weight lies between 0.001 and 1000.
    BadWeight,
    /// A transfer has neither a weight nor a policy of its own, and a session no guarantee.
    NotOfThese,
    /// What is guaranteed to one user is taken from others: that is not for users to say.
    NotForUsers,
}

/// All processes, all sessions and both agents.
#[derive(Debug)]
pub struct Hub {
    pub(crate) clients: BTreeMap<ClientId, Client>,
    out: Desk,
    in_: Desk,
    users: BTreeMap<u32, f64>,
    pub(crate) bounds: Bounds,
    names: Names,
    /// Bytes that sessions moved, out and in, as far as it is believed; they wrap.
    moved: [u64; 2],
    /// That when it was last asked what they said.
    moved_before: [u64; 2],
    /// What the host can have moved beyond that, out and in.
    movable: [Bytes; 2],
    /// What it moves at most.
    full: [Rate; 2],
    looked: Time,
    /// Someone has news that was not looked at yet.
    woken: bool,
    /// What processes may use without a daemon has to be promised anew.
    unpromised: bool,
    begin: Time,
    /// Nobody is granted more than it has before, whoever is back.
    begin_at_first: Time,
    /// Nobody is waited for after this.
    begin_at_last: Time,
    /// Processes of a daemon before this one that are to come back, if their number is known.
    expected: Option<usize>,
    believe_until: Time,
    /// When the rates that are shown change.
    paces: Paces,
    /// What sessions have done.
    pub(crate) ledger: Ledger,
    /// What users moved in the last hour.
    pub(crate) history: History,
    /// The same of clients of servers, by their keys.
    pub(crate) by_key: ByKey,
}

/// One attached process.
#[derive(Debug)]
pub(crate) struct Client {
    pub who: Who,
    /// Whether it had a daemon before this one.
    pub past: Past,
    pub seats: Seats,
    reports: ReportsReader,
    pub grants: GrantsWriter,
    pulse: Pulse,
    /// What it may use without a daemon, out and in; zero while nothing was promised.
    promised: [Rate; 2],
}

/// Sessions of all processes at most: 32 MiB of seats.
pub const SESSIONS_MOST: usize = 65_536;
/// Of them, one user's at most, so that nobody takes all the room.
pub const SESSIONS_OF_ONE: usize = SESSIONS_MOST / 4;
/// Slots of one user's pages that are looked at in a tick: what he says to use beyond is not seen.
const SLOTS_OF_ONE: u32 = 2 * SESSIONS_OF_ONE as u32;
/// Processes of a daemon that died are waited for so long at most: one that ended with it never
/// comes.
pub const GRACE_MOST: Span = Span::from_millis(750);
/// A process has looked at all its sessions when it has beaten for each direction.
const BEATS_OF_A_LOOK: u64 = 2;
/// While they come, the next may be so far behind.
const FOLLOWING: Span = Span::from_millis(100);
/// What processes say of grants that they had before is believed for so long: later, only a
/// liar still says so.
const BELIEF: Span = Span::from_secs(5);
/// Reports may be late by this: of what a host can have moved, so much is believed at once.
const LATE_MOST: Span = Span::from_secs(1);
/// No honest session had so many grants, one a millisecond for 24 days; and one that had all that
/// there are could never be told to let go of the last.
const NUMBER_MOST: u32 = u32::MAX / 2;

/// Interface bytes of a feedback that tells of no losses, over IPv4 and Ethernet: 69 of its format,
/// 29 of header and tag, 42 of heads. A status has 110, or 120 with all that it may say.
const SAID: Bytes = Bytes(140);

impl Hub {
    /// A hub that begins at `now`.
    pub fn new(now: Time, config: &HubConfig) -> Hub {
        let end_node = config.end_node;
        let desk = |side, capacity| {
            let config = AgentConfig { side, capacity, interval: config.interval };
            Desk::new(Agent::new(now, config), end_node)
        };
        Hub {
            clients: BTreeMap::new(),
            out: desk(gtp_proto::Side::Source, config.capacity_out),
            in_: desk(gtp_proto::Side::Sink, config.capacity_in),
            users: config.users.clone(),
            bounds: Bounds::new(&config.least, &config.most),
            names: Names::default(),
            moved: [0; 2],
            moved_before: [0; 2],
            movable: [Bytes(0); 2],
            full: [config.capacity_out, config.capacity_in],
            looked: now,
            woken: false,
            unpromised: false,
            begin: now + config.grace,
            begin_at_first: now + config.grace,
            begin_at_last: at_last(now, config.grace),
            expected: None,
            believe_until: now + config.grace + BELIEF,
            paces: Paces::new(now),
            ledger: Ledger::new(),
            history: History::new(now),
            by_key: ByKey::new(now),
        }
    }

    /// So many processes of a daemon before this one are to come back: nobody is granted more than
    /// it has until all have, or [`GRACE_MOST`] is over.
    pub fn wait_for(&mut self, processes: usize) {
        self.expected = Some(processes);
        self.begin = self.begin_at_last;
    }

    /// Takes a process in; returns the descriptors of its pages and the slots that they have.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub fn attach(
        &mut self,
        now: Time,
        id: ClientId,
        who: Who,
        slots: u32,
    ) -> io::Result<([OwnedFd; 2], u32)> {
        let slots = slots.clamp(1, SLOTS_MOST);
        let (reports, reports_fd) = ReportsReader::create(slots)?;
        let (grants, grants_fd) = GrantsWriter::create(slots)?;
        grants.set_capacity(self.out.agent.capacity(), self.in_.agent.capacity());
        let (seats, past, pulse) = (Seats::default(), Past::None, Pulse::new(now));
        let promised = [Rate::ZERO; 2];
        self.clients.insert(id, Client { who, past, seats, reports, grants, pulse, promised });
        self.unpromised = true;
        Ok(([reports_fd, grants_fd], slots))
    }

    /// A process that was taken in had a daemon before this one.
    pub fn came_back(&mut self, now: Time, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.past = Past::Orphaned;
        }
        if now < self.begin && self.expected.is_none() {
            self.begin = self.begin.max((now + FOLLOWING).min(self.begin_at_last));
        }
    }

    /// Whether it waits for processes of a daemon before this one.
    pub fn is_waiting(&self, now: Time) -> bool {
        now < self.begin
    }

    /// Processes that a next daemon has to expect.
    pub fn roster(&self, now: Time) -> usize {
        let expected = if self.is_waiting(now) { self.expected.unwrap_or(0) } else { 0 };
        self.clients.len().max(expected)
    }

    /// Waits no longer once all have come back that are expected, and have said what they hold.
    fn look_who_is_back(&mut self, now: Time) {
        let Some(expected) = self.expected.filter(|_| now < self.begin) else { return };
        let back = |c: &&Client| c.past == Past::Orphaned && c.reports.beats() >= BEATS_OF_A_LOOK;
        if self.clients.values().filter(back).count() >= expected {
            // Who they are nobody can tell; the usual grace is for those who are none of them.
            self.begin = now.max(self.begin_at_first);
        }
    }

    /// A process is gone: its shares are the others' from the next tick on.
    pub fn detach(&mut self, now: Time, id: ClientId) {
        let Some(mut client) = self.clients.remove(&id) else { return };
        self.unpromised = true;
        for (_, seat) in client.seats.iter_mut() {
            self.names.take_back(seat.flow);
            let most = full(self.full, seat.posted.side);
            let rest = self.ledger.end(now, client.who.uid, seat, (End::ProcessGone, most));
            self.by_key.count(client.who.uid, &seat.posted, rest);
        }
        if client.seats.iter().next().is_some() {
            self.out.stale = true;
            self.in_.stale = true;
            self.wake(now);
        }
    }

    /// A process has news.
    pub fn wake(&mut self, now: Time) {
        self.woken = true;
        self.out.agent.wake(now);
        self.in_.agent.wake(now);
    }

    /// Tells every process that the daemon is at work.
    pub fn beat(&self) {
        self.clients.values().for_each(|client| client.grants.beat());
    }

    /// The daemon stood still for so long that its processes may have left it: for `grace` nobody
    /// is granted more than it has, and what they say that they hold is believed as at the start.
    pub fn begin_again(&mut self, now: Time, grace: Span) {
        self.begin = now + grace;
        self.begin_at_first = self.begin;
        self.begin_at_last = at_last(now, grace);
        self.expected = None;
        self.believe_until = now + grace + BELIEF;
    }

    /// Changes the capacities.
    pub fn set_capacity(&mut self, out: Rate, in_: Rate) {
        if self.capacity() == (out, in_) {
            return;
        }
        self.out.set_capacity(out);
        self.in_.set_capacity(in_);
        self.clients.values().for_each(|client| client.grants.set_capacity(out, in_));
        self.unpromised = true;
    }

    /// The host has these capacities from now on, out and in.
    pub fn set_full(&mut self, full: [Rate; 2]) {
        self.full = full;
        self.set_capacity(full[0], full[1]);
    }

    /// Tells every process that the daemon ends in order.
    pub fn end(&self) {
        self.clients.values().for_each(|client| client.grants.end());
    }

    /// Promises each process its part of the capacity, for when the daemon goes. While processes
    /// of a daemon before this one may still come, what that one promised stands.
    fn promise(&mut self, now: Time) {
        if !self.unpromised || self.is_waiting(now) {
            return;
        }
        self.unpromised = false;
        let joined = self.clients.values().map(|c| Joined { uid: c.who.uid, pid: c.who.pid });
        let joined: Vec<Joined> = joined.collect();
        let (out, in_) = self.capacity();
        let parts = [out, in_].map(|capacity| fallback::parts(capacity, &joined, &self.users));
        // A kill between two writes finds the sum within the capacity.
        for lowering in [true, false] {
            for (at, side) in [Side::Source, Side::Sink].into_iter().enumerate() {
                for (client, &part) in self.clients.values_mut().zip(&parts[at]) {
                    let before = client.promised[at];
                    if part != before && (part < before) == lowering {
                        client.grants.set_fallback(side, part);
                        client.promised[at] = part;
                    }
                }
            }
        }
    }

    /// Bytes that all sessions have ever sent, and received, by what they say and no more than the
    /// capacities allow. The sums wrap: differences count.
    pub fn moved(&self) -> (Bytes, Bytes) {
        (Bytes(self.moved[0]), Bytes(self.moved[1]))
    }

    /// What the sessions of a direction went through in the last `span`, since this was asked last.
    pub fn toll(&mut self, side: Side, span: Span) -> Toll {
        let mut toll = Toll::default();
        let mut through = 0_u64;
        let Hub { clients, out, in_, .. } = self;
        let desk = match side {
            Side::Source => out,
            Side::Sink => in_,
        };
        let seats = clients.values_mut().flat_map(|client| client.seats.iter_mut());
        for (_, seat) in seats.filter(|(_, seat)| seat.posted.side == side) {
            let Tolled { packets, lost, bytes } = seat.toll();
            let all = packets.saturating_add(lost);
            let ratio = lost as f64 / all.max(1) as f64;
            let arrived = match side {
                Side::Source => (bytes as f64 * (1.0 - ratio)) as u64,
                Side::Sink => bytes,
            };
            // Nobody is believed to have had more than he was granted.
            let granted = desk.granted(seat).map_or(Rate::ZERO, |grant| grant.rate);
            through = through.saturating_add(arrived.min(granted.bytes_in(span).0));
            toll.moving += usize::from(all >= PACKETS_LEAST);
            toll.losing += usize::from(all >= PACKETS_LEAST && ratio > LOSING);
        }
        toll.through = Bytes(through);
        toll
    }

    /// Bytes that sessions may have said in the last `span` beside what they moved, in either
    /// direction, since this was asked last: each end says where it is once an interval. Nobody is
    /// believed to say more than he moved, so that who is idle hides nothing of others.
    pub fn said(&mut self, span: Span) -> Bytes {
        let most = |desk: &Desk| {
            let intervals = span.as_secs_f64() / desk.agent.interval().as_secs_f64();
            (SAID.0 as f64 * intervals) as u64
        };
        let (out, in_) = (most(&self.out), most(&self.in_));
        let mut said = 0_u64;
        let seats = self.clients.values_mut().flat_map(|client| client.seats.iter_mut());
        for (_, seat) in seats {
            let most = match seat.posted.side {
                Side::Source => out,
                Side::Sink => in_,
            };
            said = said.saturating_add(seat.moved().min(most));
        }
        // Nor is more believed of all together than that they moved.
        let before = std::mem::replace(&mut self.moved_before, self.moved);
        let moved = self.moved.iter().zip(before).map(|(now, before)| now.wrapping_sub(before));
        Bytes(said.min(moved.fold(0, u64::saturating_add)))
    }

    /// The capacities, out and in.
    pub fn capacity(&self) -> (Rate, Rate) {
        (self.out.agent.capacity(), self.in_.agent.capacity())
    }

    /// Changes a session on behalf of somebody who may change those that `right` says.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn set(
        &mut self,
        now: Time,
        right: Right,
        session: FlowId,
        change: Change,
    ) -> Result<(), SetError> {
        self.may_set(right, session, change)?;
        for (&id, client) in &mut self.clients {
            let found = client.seats.iter_mut().find(|(_, seat)| seat.flow == session);
            let Some((_, seat)) = found else { continue };
            match change.of {
                Of::Session => seat.change(change),
                Of::Transfer => {
                    let id = seat.transfer(id);
                    let given = changed(self.bounds.of(id), change);
                    self.bounds.give(client.who.uid, id, given);
                }
            }
            self.out.stale = true;
            self.in_.stale = true;
            self.wake(now);
            return Ok(());
        }
        Err(SetError::NoSuchSession)
    }

    /// Whether this right allows this change of this session.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn may_set(
        &self,
        right: Right,
        session: FlowId,
        change: Change,
    ) -> Result<(), SetError> {
        let range = 1.0 / tree::WEIGHT_MOST..=tree::WEIGHT_MOST;
        if change.weight.is_some_and(|w| !range.contains(&w)) {
            return Err(SetError::BadWeight);
        }
        let has = |client: &&Client| client.seats.iter().any(|(_, seat)| seat.flow == session);
        let client = self.clients.values().find(has).ok_or(SetError::NoSuchSession)?;
        if right != Right::Anybodys && right != Right::Of(client.who.uid) {
            return Err(SetError::NotYours);
        }
        match change.of {
            Of::Session if change.guarantee.is_some() => Err(SetError::NotOfThese),
            Of::Transfer if change.weight.is_some() || change.policy.is_some() => {
                Err(SetError::NotOfThese)
            }
            Of::Transfer if change.guarantee.is_some() && right != Right::Anybodys => {
                Err(SetError::NotForUsers)
            }
            Of::Session | Of::Transfer => Ok(()),
        }
    }

    /// Brings all weights up to date, where anything has changed since they were.
    pub(crate) fn weigh_all(&mut self) {
        for side in [Side::Source, Side::Sink] {
            if self.desk(side).stale {
                self.weigh(side);
            }
        }
    }

    /// What a session has been granted.
    pub(crate) fn granted(&self, seat: &Seat) -> Option<Grant> {
        match seat.posted.side {
            Side::Source => self.out.granted(seat),
            Side::Sink => self.in_.granted(seat),
        }
    }

    /// When to tick next; never while there are no sessions, nor news of any.
    pub fn poll_timeout(&self) -> Time {
        if !self.woken && self.out.is_empty() && self.in_.is_empty() {
            return if self.unpromised { self.begin } else { Time::MAX };
        }
        self.out.agent.poll_timeout().min(self.in_.agent.poll_timeout())
    }

    /// Reads all pages and writes grants, as far as it is time; names in `news` the processes
    /// whose grants have changed.
    pub fn tick(&mut self, now: Time, news: &mut Vec<ClientId>) {
        news.clear();
        if self.history.is_due(now) {
            self.history.turn(now, self.ledger.totals());
            self.by_key.turn(now);
        }
        self.look_who_is_back(now);
        self.promise(now);
        if self.poll_timeout() > now {
            return;
        }
        self.woken = false;
        self.read(now);
        let granting = if self.is_waiting(now) { Granting::Less } else { Granting::All };
        for side in [Side::Source, Side::Sink] {
            if self.desk(side).agent.poll_timeout() > now {
                continue;
            }
            if self.desk(side).stale {
                self.weigh(side);
                self.gather(side);
            }
            let Hub { clients, out, in_, .. } = self;
            let desk = match side {
                Side::Source => out,
                Side::Sink => in_,
            };
            desk.decide(now, granting);
            desk.write(granting, clients, news);
        }
    }

    fn desk(&mut self, side: Side) -> &mut Desk {
        match side {
            Side::Source => &mut self.out,
            Side::Sink => &mut self.in_,
        }
    }

    /// Brings all seats up to date.
    fn read(&mut self, now: Time) {
        let mut said = [0_u64; 2];
        let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
        let mut here = Census::default();
        self.clients.values().for_each(|c| here.add(c.who.uid, c.seats.count()));
        let believed = now <= self.believe_until;
        let Hub { clients, out, in_, names, ledger, by_key, .. } = self;
        for client in clients.values_mut() {
            let slots = slots.entry(client.who.uid).or_insert(SLOTS_OF_ONE);
            let allowance = Allowance { sessions: here.room(client.who.uid), slots: *slots };
            let Client { who, seats, reports, grants, pulse, .. } = client;
            let before = pulse.awake;
            pulse.feel(now, reports);
            let awake = pulse.awake;
            let pages = (&*reports, &*grants);
            let mut changes =
                seats.read(now, pages, allowance, names, |seat| match seat.posted.side {
                    Side::Source => out.hear(seat, awake),
                    Side::Sink => in_.hear(seat, awake),
                });
            for seat in &mut changes.gone {
                let most = full(self.full, seat.posted.side);
                let rest = ledger.end(now, who.uid, seat, (End::Closed, most));
                by_key.count(who.uid, &seat.posted, rest);
            }
            *slots -= changes.looked;
            here.add(who.uid, changes.came.len());
            for (sum, moved) in said.iter_mut().zip(changes.moved) {
                *sum = sum.saturating_add(moved);
            }
            if !changes.gone.is_empty() || !changes.came.is_empty() || changes.terms {
                for desk in [&mut *out, &mut *in_] {
                    desk.stale = true;
                    desk.agent.wake(now);
                }
            }
            if before != awake {
                (out.stale, in_.stale) = (true, true);
            }
            for slot in changes.came {
                let Some(seat) = seats.get_mut(slot) else { continue };
                if seat.posted.side == Side::Source {
                    continue; // Targets change together: a source has no commitments.
                }
                let held = seat.posted.held;
                if held.number > NUMBER_MOST {
                    continue;
                }
                // However much it is: who holds more than there is gets a grant of his own.
                let zero = (Rate::ZERO, Rate::ZERO);
                let (rate, committed) = if believed { (held.rate, held.committed) } else { zero };
                in_.agent.adopt(now, seat.flow, held.number, rate, committed);
            }
        }
        self.believe(now, said);
        if self.paces.end(now) {
            self.close_paces(now);
        }
    }

    /// Ends a span of the rates that are shown, and counts what was done in it.
    fn close_paces(&mut self, now: Time) {
        let Hub { clients, out, in_, ledger, by_key, .. } = self;
        for client in clients.values_mut() {
            for (_, seat) in client.seats.iter_mut() {
                let desk = match seat.posted.side {
                    Side::Source => &*out,
                    Side::Sink => &*in_,
                };
                let grant = desk.granted(seat).map_or(Rate::ZERO, |grant| grant.rate);
                seat.pace.close(grant);
                let (uid, most) = (client.who.uid, full(self.full, seat.posted.side));
                let moved = ledger.count(now, uid, seat, most);
                by_key.count(uid, &seat.posted, moved);
            }
        }
    }

    /// Puts the reports of a direction in one row anew.
    fn gather(&mut self, side: Side) {
        let Hub { clients, out, in_, bounds, .. } = self;
        let desk = match side {
            Side::Source => out,
            Side::Sink => in_,
        };
        desk.begin();
        let (mut row, mut has_limits) = (Vec::new(), !bounds.is_empty());
        for (&id, client) in clients.iter_mut() {
            let (uid, awake) = (client.who.uid, client.pulse.awake);
            let server = ServerId::new(uid, client.who.pid, id);
            for (slot, seat) in client.seats.iter_mut().filter(|(_, s)| s.posted.side == side) {
                desk.seat((id, slot), uid, seat, awake);
                let terms = seat.posted.terms;
                has_limits |= terms != Terms::NONE;
                row.push(Member { uid, server, transfer: seat.transfer(id), terms });
            }
        }
        desk.limits = if has_limits { bounds.of_row(&row) } else { RowLimits::default() };
    }

    /// Believes what sessions say that they moved since the last look, within what is possible.
    fn believe(&mut self, now: Time, said: [u64; 2]) {
        let span = now.since(std::mem::replace(&mut self.looked, now));
        for (i, said) in said.into_iter().enumerate() {
            let most = self.full[i].bytes_in(LATE_MOST);
            let movable = self.movable[i].0.saturating_add(self.full[i].bytes_in(span).0);
            let movable = movable.min(most.0);
            let moved = said.min(movable);
            self.movable[i] = Bytes(movable - moved);
            self.moved[i] = self.moved[i].wrapping_add(moved);
        }
    }

    /// Limits of transfers end with their last sessions.
    fn forget_transfers(&mut self) {
        if self.bounds.has_transfers() {
            let all = self.clients.iter().flat_map(|(&id, client)| {
                client.seats.iter().map(move |(_, seat)| seat.transfer(id))
            });
            let present: BTreeSet<TransferId> = all.collect();
            self.bounds.keep(&present);
        }
    }

    /// What is guaranteed to users and transfers together, in each direction.
    pub fn guaranteed(&self) -> Rate {
        self.bounds.guaranteed()
    }

    /// Gives every session of a direction its weight among all of them. A transfer has the mean
    /// weight of its sessions, so that their number gains it nothing. A client that is served has
    /// the mean of the weights that were set here for its sessions, one where none was, times what
    /// its server gives it: what it asks for itself does not count against other clients.
    fn weigh(&mut self, side: Side) {
        let mut nodes: Vec<Node> = Vec::new();
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        let mut principals: BTreeMap<(usize, u64), usize> = BTreeMap::new();
        let mut transfers: BTreeMap<(usize, ClientId, u64), (usize, f64, f64)> = BTreeMap::new();
        let mut served: BTreeMap<usize, (f64, f64, f64)> = BTreeMap::new();
        let mut leaves = Vec::new();
        self.forget_transfers();
        for (&id, client) in &self.clients {
            for (_, seat) in client.seats.iter().filter(|(_, seat)| seat.posted.side == side) {
                let mut below = |parent, weight, policy| {
                    nodes.push(Node { weight, policy, ..Node::below(parent) });
                    nodes.len() - 1
                };
                let uid = client.who.uid;
                let weight = self.users.get(&uid).copied().unwrap_or(1.0);
                let normal = Policy::Normal;
                let user = *users.entry(uid).or_insert_with(|| below(None, weight, normal));
                let principal = *principals
                    .entry((user, seat.posted.principal))
                    .or_insert_with(|| below(Some(user), 1.0, normal));
                let (transfer, sum, count) = transfers
                    .entry((principal, id, seat.posted.transfer))
                    .or_insert_with(|| (below(Some(principal), 1.0, normal), 0.0, 0.0));
                (*sum, *count) = (*sum + seat.weight, *count + 1.0);
                if seat.posted.principal != 0 {
                    let (sum, count, most) = served.entry(principal).or_default();
                    (*sum, *count) = (*sum + seat.set_weight.unwrap_or(1.0), *count + 1.0);
                    *most = most.max(f64::from(seat.posted.terms.weight));
                }
                leaves.push(below(Some(*transfer), seat.weight, seat.policy));
            }
        }
        for (principal, (sum, count, given)) in served {
            nodes[principal].weight = sum / count * given;
        }
        for (transfer, sum, count) in transfers.into_values() {
            nodes[transfer].weight = sum / count;
        }
        let mut flat = Vec::new();
        tree::weights(&nodes, &mut flat);
        let seats = self.clients.values_mut().flat_map(|client| client.seats.iter_mut());
        let here = seats.filter(|(_, seat)| seat.posted.side == side);
        // No factor above one leaves the host.
        let most = self.users.values().fold(1.0, |most: f64, &weight| most.max(weight));
        for ((_, seat), leaf) in here.zip(leaves) {
            seat.flat = flat[leaf] / most;
        }
    }
}

/// Of what a host moves at most, out and in, that of a side.
fn full(full: [Rate; 2], side: Side) -> Rate {
    match side {
        Side::Source => full[0],
        Side::Sink => full[1],
    }
}

/// What a transfer has after a change.
fn changed(before: Given, change: Change) -> Given {
    let most = match change.max_rate {
        None => before.most,
        Some(0) => Rate::UNLIMITED,
        Some(bps) => Rate::from_bps(bps),
    };
    Given { least: change.guarantee.map_or(before.least, Rate::from_bps), most }
}

/// When nobody is waited for any more by a hub whose grace begins now.
fn at_last(now: Time, grace: Span) -> Time {
    now + if grace == Span::ZERO { grace } else { grace.max(GRACE_MOST) }
}

/// How many sessions there are, and of whom.
#[derive(Debug, Default)]
struct Census {
    all: usize,
    users: BTreeMap<u32, usize>,
}

impl Census {
    fn add(&mut self, uid: u32, sessions: usize) {
        self.all += sessions;
        *self.users.entry(uid).or_default() += sessions;
    }

    /// How many more a user may have.
    fn room(&self, uid: u32) -> usize {
        let own = self.users.get(&uid).copied().unwrap_or(0);
        SESSIONS_MOST.saturating_sub(self.all).min(SESSIONS_OF_ONE.saturating_sub(own))
    }
}
