//! Who decides for one direction of a host that has several engines: one agent, asked by all.
//!
//! Each engine has a seat. It lays its sessions' reports down there when it looks in, and takes
//! away what the agent has granted them; whoever looks in when the agent is due has it decide over
//! all reports that lie there, and wakes those whose grants change. So a report may be an interval
//! old, as a daemon's may be. An engine that cannot keep up has a limit: its sessions share it as a
//! host's sessions share a capacity, and the agent hears no more of what they want than that.
//! Sessions under the end-node law, which goes by what is measured, heed the sum of limits only.
//!
//! A host of one engine has its agent to itself and none of this.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::grant::{Claim, shares};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::agent::{Agent, Side};
use gtp_proto::limits::RECOMPUTE_MIN;
use gtp_proto::{Classes, FlowId, Grant, Report, room};
use gtp_share::Outstanding;
use gtp_sys::wake::Waker;

/// Who decides for an engine.
pub(super) enum Decider {
    /// An agent of its own, with the capacity, the part in its place and the limit of which it is
    /// told.
    Own { agent: Box<Agent>, capacity: Rate, part: Option<Rate>, limit: Rate },
    /// All engines' together.
    Common(Seat),
}

/// An engine's place at the common agent.
pub(super) struct Seat {
    council: Arc<Council>,
    place: usize,
    /// When this engine looks in, whatever the others do.
    due: Time,
    last: Time,
    /// It has something to say that should not wait for the interval's end.
    woken: bool,
    /// Reports of it lie there, or count still.
    laid: bool,
    /// Sessions that the agent takes over with the next reports.
    adopted: Vec<(FlowId, Outstanding)>,
}

/// The common agent of one direction.
pub(super) struct Council {
    side: Side,
    board: Mutex<Board>,
    /// When the agent is due, and its interval, in nanoseconds.
    due: AtomicU64,
    interval: AtomicU64,
    seats: Vec<Bell>,
}

/// How an engine hears that something lies at its seat.
struct Bell {
    waker: Waker,
    news: AtomicBool,
}

struct Board {
    agent: Agent,
    /// What the host was told to share out. The agent shares out no more than all engines together
    /// keep up with.
    capacity: Rate,
    slots: Vec<Slot>,
    /// All reports, place by place, what each may be offered within its engine's limit, and what it
    /// is granted.
    reports: Vec<(FlowId, Report)>,
    offers: Vec<Rate>,
    grants: Vec<(FlowId, Grant)>,
}

/// What lies at a seat.
#[derive(Default)]
struct Slot {
    reports: Vec<(FlowId, Report)>,
    grants: Vec<(FlowId, Grant)>,
    /// They are others than before the last decision.
    changed: bool,
    /// There was no decision since the last report was taken away.
    unheard: bool,
    /// What its engine keeps up with, if it has found a limit.
    limit: Option<Rate>,
    /// What its engine may use in place of the host's capacity, if it has lost a daemon or waits
    /// for one.
    part: Option<Rate>,
}

impl Council {
    /// The seats of as many engines as there are wakers.
    pub fn seats(agent: Agent, wakers: impl IntoIterator<Item = Waker>) -> Vec<Seat> {
        let bell = |waker| Bell { waker, news: AtomicBool::new(false) };
        let seats: Vec<Bell> = wakers.into_iter().map(bell).collect();
        let slots = seats.iter().map(|_| Slot::default()).collect();
        let council = Arc::new(Council {
            side: agent.side(),
            due: AtomicU64::new(agent.poll_timeout().as_nanos()),
            interval: AtomicU64::new(agent.interval().as_nanos()),
            board: Mutex::new(Board::new(agent, slots)),
            seats,
        });
        let at = |place| Seat {
            council: council.clone(),
            place,
            due: Time::ZERO,
            last: Time::ZERO,
            woken: false,
            laid: false,
            adopted: Vec::new(),
        };
        (0..council.seats.len()).map(at).collect()
    }

    /// Wakes engines for which something lies at their seats.
    fn ring(&self, board: &Board, who: impl Fn(usize, &Slot) -> bool) {
        let seats = self.seats.iter().zip(&board.slots).enumerate();
        for (_, (bell, _)) in seats.filter(|(i, (_, slot))| who(*i, slot)) {
            bell.news.store(true, Ordering::Release);
            bell.waker.wake();
        }
    }

    /// The board; what holds for it is shown to all when it is let go.
    fn board(&self) -> AtBoard<'_> {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        AtBoard { council: self, board }
    }
}

/// The board while one engine is at it.
struct AtBoard<'a> {
    council: &'a Council,
    board: MutexGuard<'a, Board>,
}

impl Drop for AtBoard<'_> {
    fn drop(&mut self) {
        let agent = &self.board.agent;
        self.council.due.store(agent.poll_timeout().as_nanos(), Ordering::Relaxed);
        self.council.interval.store(agent.interval().as_nanos(), Ordering::Relaxed);
    }
}

impl Decider {
    /// An agent of one's own.
    pub fn own(agent: Agent) -> Decider {
        let (capacity, part, limit) = (agent.capacity(), None, Rate::UNLIMITED);
        Decider::Own { agent: Box::new(agent), capacity, part, limit }
    }

    /// Which end its sessions are at.
    pub fn side(&self) -> Side {
        match self {
            Decider::Own { agent, .. } => agent.side(),
            Decider::Common(seat) => seat.council.side,
        }
    }

    /// The control interval in force.
    pub fn interval(&self) -> Span {
        match self {
            Decider::Own { agent, .. } => agent.interval(),
            Decider::Common(seat) => {
                Span::from_nanos(seat.council.interval.load(Ordering::Relaxed))
            }
        }
    }

    /// Changes the capacity that is shared out.
    pub fn set_capacity(&mut self, rate: Rate) {
        match self {
            Decider::Own { agent, capacity, part, limit } => {
                *capacity = rate;
                agent.set_capacity(part.unwrap_or(rate).min(*limit));
            }
            Decider::Common(seat) => {
                // Every engine passes it on.
                let mut at = seat.council.board();
                at.board.capacity = rate;
                at.board.agent.wake(Time::ZERO);
                drop(at);
                seat.wake(Time::ZERO);
            }
        }
    }

    /// Changes what this engine keeps up with.
    pub fn set_limit(&mut self, rate: Rate) {
        match self {
            Decider::Own { agent, capacity, part, limit } => {
                *limit = rate;
                agent.set_capacity(rate.min(part.unwrap_or(*capacity)));
            }
            Decider::Common(seat) => {
                let mut at = seat.council.board();
                at.board.slots[seat.place].limit = (!rate.is_unlimited()).then_some(rate);
                at.board.agent.wake(Time::ZERO);
                drop(at);
                seat.wake(Time::ZERO);
            }
        }
    }

    /// Puts a part in place of the capacity, or lifts it. Of a host with several engines the parts
    /// of all that have one are shared out together.
    pub fn set_part(&mut self, rate: Option<Rate>) {
        match self {
            Decider::Own { agent, capacity, part, limit } => {
                *part = rate;
                agent.set_capacity(rate.unwrap_or(*capacity).min(*limit));
            }
            Decider::Common(seat) => {
                let mut at = seat.council.board();
                at.board.slots[seat.place].part = rate;
                at.board.agent.wake(Time::ZERO);
                drop(at);
                seat.wake(Time::ZERO);
            }
        }
    }

    /// Changes the classes that owners may name. Every engine passes them on.
    pub fn set_classes(&mut self, classes: &Classes) {
        match self {
            Decider::Own { agent, .. } => agent.set_classes(classes.clone()),
            Decider::Common(seat) => {
                seat.council.board().board.agent.set_classes(classes.clone());
                seat.wake(Time::ZERO);
            }
        }
    }

    /// Takes over a session from a daemon, as [`Agent::adopt`]; its report comes with the next
    /// tick.
    pub fn adopt(&mut self, now: Time, id: FlowId, held: Outstanding) {
        match self {
            Decider::Own { agent, .. } => {
                agent.adopt(now, id, held.number, held.rate, held.committed);
            }
            Decider::Common(seat) => seat.adopted.push((id, held)),
        }
    }

    /// As [`Agent::wake`].
    pub fn wake(&mut self, now: Time) {
        match self {
            Decider::Own { agent, .. } => agent.wake(now),
            Decider::Common(seat) => seat.wake(now),
        }
    }

    /// As [`Agent::rest`], where no other engine has a say.
    pub fn rest(&mut self, until: Time) {
        match self {
            Decider::Own { agent, .. } => agent.rest(until),
            Decider::Common(_) => {}
        }
    }

    /// As [`Agent::hurry`], for this engine's own round.
    pub fn hurry(&mut self, until: Time) {
        match self {
            Decider::Own { agent, .. } => agent.hurry(until),
            Decider::Common(seat) => seat.due = seat.due.min(until),
        }
    }

    /// As [`Agent::outstanding`].
    pub fn outstanding(&self, id: FlowId) -> (u32, Rate, Rate) {
        match self {
            Decider::Own { agent, .. } => agent.outstanding(id),
            Decider::Common(seat) => seat.council.board().board.agent.outstanding(id),
        }
    }

    /// When to look in next.
    pub fn poll_timeout(&self) -> Time {
        match self {
            Decider::Own { agent, .. } => agent.poll_timeout(),
            Decider::Common(seat) => seat.poll_timeout(),
        }
    }

    /// Whether sessions that may be gone are still reported to the others.
    pub fn is_posting(&self) -> bool {
        match self {
            Decider::Own { .. } => false,
            Decider::Common(seat) => seat.laid,
        }
    }

    /// As [`Agent::tick`]; for a session of which the others have not heard yet there is nothing.
    pub fn tick(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        match self {
            Decider::Own { agent, .. } => agent.tick(now, reports, grants),
            Decider::Common(seat) => seat.tick(now, reports, grants),
        }
    }
}

impl Seat {
    fn bell(&self) -> &Bell {
        &self.council.seats[self.place]
    }

    /// It has something to say: to be looked at at `now`, and soon after it looked in last.
    fn wake(&mut self, now: Time) {
        self.woken = true;
        self.due = self.due.min((self.last + RECOMPUTE_MIN).max(now));
    }

    fn poll_timeout(&self) -> Time {
        match (self.bell().news.load(Ordering::Acquire), self.laid) {
            (true, _) => Time::ZERO,
            (false, true) => {
                self.due.min(Time::from_nanos(self.council.due.load(Ordering::Relaxed)))
            }
            (false, false) => self.due,
        }
    }

    fn tick(&mut self, now: Time, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        self.bell().news.store(false, Ordering::Release);
        let mut at = self.council.board();
        let board = &mut *at.board;
        let slot = &mut board.slots[self.place];
        slot.unheard |= reports.is_empty() && !slot.reports.is_empty();
        slot.reports.clear();
        slot.reports.extend_from_slice(reports);
        for (id, held) in self.adopted.drain(..) {
            board.agent.adopt(now, id, held.number, held.rate, held.committed);
        }
        if std::mem::take(&mut self.woken) {
            board.agent.wake(now);
        }
        if board.agent.poll_timeout() <= now {
            board.decide(now);
            self.council.ring(board, |i, slot| i != self.place && slot.changed);
        }
        board.take(self.place, reports, grants);
        (self.last, self.due) = (now, now + board.agent.interval());
        self.laid = !reports.is_empty() || board.slots[self.place].unheard;
    }
}

impl Drop for Seat {
    /// An engine that has ended has no sessions.
    fn drop(&mut self) {
        let mut at = self.council.board();
        at.board.slots[self.place] = Slot::default();
        at.board.agent.wake(Time::ZERO);
        self.council.ring(&at.board, |_, slot| !slot.reports.is_empty());
    }
}

impl Board {
    fn new(agent: Agent, slots: Vec<Slot>) -> Board {
        let (reports, offers, grants) = (Vec::new(), Vec::new(), Vec::new());
        Board { capacity: agent.capacity(), agent, slots, reports, offers, grants }
    }

    /// Has the agent decide over all that lies here.
    fn decide(&mut self, now: Time) {
        let capacity = self.part().unwrap_or(self.capacity).min(self.limit());
        if self.agent.capacity() != capacity {
            self.agent.set_capacity(capacity);
        }
        self.reports.clear();
        self.offers.clear();
        for slot in &self.slots {
            let first = self.reports.len();
            self.reports.extend_from_slice(&slot.reports);
            self.offers.resize(self.reports.len(), Rate::UNLIMITED);
            if let Some(limit) = slot.limit {
                bound(limit, &mut self.reports[first..], &mut self.offers[first..]);
            }
        }
        self.agent.tick(now, &self.reports, &mut self.grants);
        for ((_, grant), most) in self.grants.iter_mut().zip(&self.offers) {
            grant.offer = grant.offer.min(*most);
        }
        let mut granted = &self.grants[..];
        for slot in &mut self.slots {
            let (own, others) = granted.split_at(slot.reports.len().min(granted.len()));
            granted = others;
            (slot.changed, slot.unheard) = (slot.grants != own, false);
            slot.grants.clear();
            slot.grants.extend_from_slice(own);
        }
    }

    /// What all engines that have sessions keep up with together.
    fn limit(&self) -> Rate {
        let busy = self.slots.iter().filter(|slot| !slot.reports.is_empty());
        let limits = busy.map(|slot| slot.limit.unwrap_or(Rate::UNLIMITED));
        limits.reduce(Rate::saturating_add).unwrap_or(Rate::UNLIMITED)
    }

    /// What all engines that have a part may use together.
    fn part(&self) -> Option<Rate> {
        self.slots.iter().filter_map(|slot| slot.part).reduce(Rate::saturating_add)
    }

    /// What was last granted to sessions with these reports, in their order.
    fn take(&self, place: usize, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        let last = &self.slots[place].grants;
        let mut next = 0;
        grants.clear();
        grants.extend(reports.iter().map(|(id, report)| {
            // Both are mostly in the same order.
            let (before, after) = last.split_at(next.min(last.len()));
            let found = after.iter().chain(before).position(|(granted, _)| granted == id);
            let Some(found) = found else { return (*id, self.standing(*id, report)) };
            let found = (next + found) % last.len();
            next = found + 1;
            last[found]
        }));
    }

    /// What a session has of which nothing was decided yet.
    fn standing(&self, id: FlowId, report: &Report) -> Grant {
        let (number, rate, _) = self.agent.outstanding(id);
        let interval = self.agent.interval();
        Grant { number, rate, offer: rate, weight: report.weight, interval }
    }
}

/// Sessions of an engine that keeps up with `limit` want no more than their shares of it, and are
/// offered no more than it could give.
fn bound(limit: Rate, reports: &mut [(FlowId, Report)], offers: &mut [Rate]) {
    let mut claims: Vec<Claim> = reports.iter().map(|(_, report)| room::claim(report)).collect();
    if reports.iter().any(|(_, report)| room::is_shared(report)) {
        room::share(limit, reports, &mut claims);
    }
    let mut parts = Vec::new();
    shares(limit.as_f64(), &claims, &mut parts);
    for (((_, report), offer), part) in reports.iter_mut().zip(offers).zip(parts) {
        report.demand = report.demand.min(Rate::from_f64(part.target));
        *offer = Rate::from_f64(part.offer);
    }
}

#[cfg(test)]
mod tests;
