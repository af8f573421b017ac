//! Who decides for one direction of a host that has several engines: one agent, asked by all.
//!
//! Each engine has a seat. It lays its sessions' reports down there when it looks in, and takes
//! away what the agent has granted them; whoever looks in when the agent is due has it decide over
//! all reports that lie there, and wakes the others. So a report may be an interval old, as a
//! daemon's may be. An engine that cannot keep up has a limit: its sessions share it as a host's
//! sessions share a capacity, and the agent hears no more of what they want than that.
//!
//! A host of one engine has its agent to itself and none of this.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::grant::{Claim, shares};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::agent::{Agent, Side};
use gtp_proto::limits::RECOMPUTE_MIN;
use gtp_proto::{FlowId, Grant, Phase, Report};
use gtp_sys::wake::Waker;

/// Who decides for an engine.
pub(super) enum Decider {
    /// An agent of its own, with the capacity and the limit of which it is told.
    Own { agent: Box<Agent>, capacity: Rate, limit: Rate },
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
    /// Reports of it lie there.
    laid: bool,
}

/// The common agent of one direction.
pub(super) struct Council {
    side: Side,
    table: Mutex<Table>,
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

struct Table {
    agent: Agent,
    places: Vec<Place>,
    /// All reports, place by place, what each may be offered within its engine's limit, and what it
    /// is granted.
    reports: Vec<(FlowId, Report)>,
    offers: Vec<Rate>,
    grants: Vec<(FlowId, Grant)>,
}

/// What lies at a seat.
#[derive(Default)]
struct Place {
    reports: Vec<(FlowId, Report)>,
    grants: Vec<(FlowId, Grant)>,
    /// What its engine keeps up with, if it has found a limit.
    limit: Option<Rate>,
}

impl Council {
    /// The seats of as many engines as there are wakers.
    pub fn seats(agent: Agent, wakers: impl IntoIterator<Item = Waker>) -> Vec<Seat> {
        let bell = |waker| Bell { waker, news: AtomicBool::new(false) };
        let seats: Vec<Bell> = wakers.into_iter().map(bell).collect();
        let places = seats.iter().map(|_| Place::default()).collect();
        let council = Arc::new(Council {
            side: agent.side(),
            due: AtomicU64::new(agent.poll_timeout().as_nanos()),
            interval: AtomicU64::new(agent.interval().as_nanos()),
            table: Mutex::new(Table::new(agent, places)),
            seats,
        });
        let at = |place| Seat {
            council: council.clone(),
            place,
            due: Time::ZERO,
            last: Time::ZERO,
            woken: false,
            laid: false,
        };
        (0..council.seats.len()).map(at).collect()
    }

    /// The table; what holds for it is shown to all when it is let go.
    fn table(&self) -> Open<'_> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        Open { council: self, table }
    }
}

/// The table while one engine is at it.
struct Open<'a> {
    council: &'a Council,
    table: MutexGuard<'a, Table>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let agent = &self.table.agent;
        self.council.due.store(agent.poll_timeout().as_nanos(), Ordering::Relaxed);
        self.council.interval.store(agent.interval().as_nanos(), Ordering::Relaxed);
    }
}

impl Decider {
    /// An agent of one's own.
    pub fn own(agent: Agent) -> Decider {
        let (capacity, limit) = (agent.capacity(), Rate::UNLIMITED);
        Decider::Own { agent: Box::new(agent), capacity, limit }
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
            Decider::Own { agent, capacity, limit } => {
                *capacity = rate;
                agent.set_capacity(rate.min(*limit));
            }
            Decider::Common(seat) => {
                let mut open = seat.council.table();
                // Every engine passes it on.
                if open.table.agent.capacity() != rate {
                    open.table.agent.set_capacity(rate);
                }
            }
        }
    }

    /// Changes what this engine keeps up with.
    pub fn set_limit(&mut self, rate: Rate) {
        match self {
            Decider::Own { agent, capacity, limit } => {
                *limit = rate;
                agent.set_capacity(rate.min(*capacity));
            }
            Decider::Common(seat) => {
                let mut open = seat.council.table();
                open.table.places[seat.place].limit = (!rate.is_unlimited()).then_some(rate);
                open.table.agent.wake(Time::ZERO);
                drop(open);
                seat.wake(Time::ZERO);
            }
        }
    }

    /// As [`Agent::wake`].
    pub fn wake(&mut self, now: Time) {
        match self {
            Decider::Own { agent, .. } => agent.wake(now),
            Decider::Common(seat) => seat.wake(now),
        }
    }

    /// As [`Agent::outstanding`].
    pub fn outstanding(&self, id: FlowId) -> (u32, Rate, Rate) {
        match self {
            Decider::Own { agent, .. } => agent.outstanding(id),
            Decider::Common(seat) => seat.council.table().table.agent.outstanding(id),
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
        let mut open = self.council.table();
        let table = &mut *open.table;
        let place = &mut table.places[self.place];
        place.reports.clear();
        place.reports.extend_from_slice(reports);
        if std::mem::take(&mut self.woken) {
            table.agent.wake(now);
        }
        if table.agent.poll_timeout() <= now {
            table.decide(now);
            self.council.ring_others(table, self.place);
        }
        table.take(self.place, reports, grants);
        (self.last, self.due) = (now, now + table.agent.interval());
        drop(open);
        self.laid = !reports.is_empty();
    }
}

impl Council {
    /// Whoever has sessions has new grants.
    fn ring_others(&self, table: &Table, own: usize) {
        for (i, (bell, place)) in self.seats.iter().zip(&table.places).enumerate() {
            if i != own && !place.reports.is_empty() {
                bell.news.store(true, Ordering::Release);
                bell.waker.wake();
            }
        }
    }
}

impl Drop for Seat {
    /// An engine that has ended has no sessions.
    fn drop(&mut self) {
        let mut open = self.council.table();
        open.table.places[self.place] = Place::default();
        open.table.agent.wake(Time::ZERO);
        self.council.ring_others(&open.table, self.place);
    }
}

impl Table {
    fn new(agent: Agent, places: Vec<Place>) -> Table {
        let (reports, offers, grants) = (Vec::new(), Vec::new(), Vec::new());
        Table { agent, places, reports, offers, grants }
    }

    /// Has the agent decide over all that lies here.
    fn decide(&mut self, now: Time) {
        self.reports.clear();
        self.offers.clear();
        for place in &self.places {
            let first = self.reports.len();
            self.reports.extend_from_slice(&place.reports);
            self.offers.resize(self.reports.len(), Rate::UNLIMITED);
            if let Some(limit) = place.limit {
                bound(limit, &mut self.reports[first..], &mut self.offers[first..]);
            }
        }
        self.agent.tick(now, &self.reports, &mut self.grants);
        for ((_, grant), most) in self.grants.iter_mut().zip(&self.offers) {
            grant.offer = grant.offer.min(*most);
        }
        let mut granted = self.grants.iter();
        for place in &mut self.places {
            place.grants.clear();
            place.grants.extend(granted.by_ref().take(place.reports.len()).copied());
        }
    }

    /// What was last granted to sessions with these reports, in their order.
    fn take(&self, place: usize, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        let last = &self.places[place].grants;
        let known = last.len() == reports.len()
            && last.iter().zip(reports).all(|((granted, _), (id, _))| granted == id);
        grants.clear();
        if known {
            return grants.extend_from_slice(last);
        }
        grants.extend(reports.iter().map(|(id, report)| {
            let found = last.iter().find(|(granted, _)| granted == id);
            found.copied().unwrap_or_else(|| (*id, self.standing(*id, report)))
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
    let claims: Vec<Claim> = reports
        .iter()
        .map(|(_, report)| {
            let bound = match report.phase {
                Phase::Open => report.peer_offer.min(report.demand),
                Phase::Closing => Rate::ZERO,
            };
            Claim { weight: report.weight * report.peer_weight, bound: bound.as_f64() }
        })
        .collect();
    let mut parts = Vec::new();
    shares(limit.as_f64(), &claims, &mut parts);
    for (((_, report), offer), part) in reports.iter_mut().zip(offers).zip(parts) {
        report.demand = report.demand.min(Rate::from_f64(part.target));
        *offer = Rate::from_f64(part.offer);
    }
}

#[cfg(test)]
mod tests;
