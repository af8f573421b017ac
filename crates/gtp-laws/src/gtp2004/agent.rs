//! The host's agent: capacity estimation and scheduling over all flows that end at one sink.
//!
//! Sink ends of one host hold the same agent ([`Shared`]), or one [`Host`](super::Host) has it.
//! Each tells it what its flow received, and whichever end is served first when an interval is over
//! runs it for all; the others find their new targets. So a host of several flows needs nothing
//! that a host of one does not, and nobody but the ends knows that there is an agent.
//!
//! Rules (G, 4.2 to 4.4), with the laws in [`law`](super::law):
//! - A1 each interval, three times the longest round trip: estimate every flow, then schedule.
//! - A2 a flow that joins has its bound as its estimate, and all are scheduled at once.
//! - A3 what flows that left had goes to the estimates of those that remain, at the next interval.
//! - A4 a changed target holds after the longest round trip less the flow's own, so that all
//!   changes reach the receiver together ([`Skew::Compensated`]).
//!
//! Departures where G is silent:
//! - D1 A flow's rate is measured from one longest round trip after the last schedule on, when its
//!   changes have arrived; its loss over the whole interval. Measured over all of it, a flow that
//!   has just joined would count as one that cannot use its share.
//! - D2 A join changes targets and begins no interval: who joins is measured from the next one on,
//!   the others go on being measured, however often somebody joins.
//! - D3 A flow of which nothing came in an interval keeps its estimate.
//! - D4 No flow's bound is above the capacity, and a round trip below 100 microseconds counts as so
//!   much in A1 and D1; at a host that looks less often, one below what it says.
//! - D5 A change that waits (A4) holds when it was to, whatever is decided meanwhile, at the lower
//!   of the two targets; the newest one follows in its own time. Else joins of long round trips,
//!   one after another, would put off a flow's first target for ever.
//! - D6 A flow that had about all of its bound, which then rises by a quarter, or by a twentieth
//!   and to the capacity, joins anew (A2): its sender found out what it may declare only by
//!   sending. A bound that stays where it was changes nothing, so that an estimate can leave it.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::law::{self, Estimator};
use crate::Counts;

/// An agent in the hands of its host's ends.
pub type Shared = Rc<RefCell<Agent>>;

/// A4, D5: targets that will hold, and when: the soonest, and after it the newest.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    soonest: Option<(Time, f64)>,
    newest: Option<(Time, f64)>,
}

impl Coming {
    fn add(&mut self, at: Time, target: f64) {
        if let Some((due, waiting)) = &mut self.soonest
            && *due < at
        {
            *waiting = waiting.min(target);
            self.newest = Some((at, target));
        } else {
            *self = Coming { soonest: Some((at, target)), newest: None };
        }
    }

    /// The target that holds at `now`, if one has come.
    fn take(&mut self, now: Time) -> Option<f64> {
        let mut came = None;
        while let Some((at, target)) = self.soonest
            && at <= now
        {
            came = Some(target);
            *self = Coming { soonest: self.newest, newest: None };
        }
        came
    }
}

/// Whether rate changes are timed to reach the receiver together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Skew {
    /// A4.
    #[default]
    Compensated,
    /// Every change holds at once.
    Ignored,
}

/// A flow's number at its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowId(usize);

/// The host-wide part of a sink.
#[derive(Clone, Debug)]
pub struct Agent {
    /// `C_r`.
    capacity: f64,
    skew: Skew,
    /// D4.
    least_rtt: Span,
    flows: Vec<Flow>,
    /// A3: bit/s.
    left: f64,
    next: Option<Time>,
}

#[derive(Clone, Debug)]
struct Flow {
    state: State,
    /// `min(C_i, R_app, R_send)`.
    cap: f64,
    rtt: Span,
    packet: Bytes,
    estimator: Estimator,
    estimate: f64,
    /// D6: the bound when the estimate was made, if that was about as much.
    bound: Option<f64>,
    /// A4: the target in force, and those that will be.
    target: f64,
    coming: Coming,
    counts: Counts,
    at_schedule: Counts,
    /// D1: when its rate is measured from.
    settled: Time,
    /// The counts and the time at which the measurement began.
    at_settled: Option<(Time, Counts)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Left,
}

impl Agent {
    /// An agent for flows that may use `capacity` together (`C_r`).
    pub fn new(capacity: Rate, skew: Skew) -> Agent {
        let capacity = capacity.as_f64();
        Agent { capacity, skew, least_rtt: LEAST_RTT, flows: Vec::new(), left: 0.0, next: None }
    }

    /// D4: the same, for a host that counts so seldom that shorter round trips show nothing.
    #[must_use]
    pub fn counting_each(mut self, least_rtt: Span) -> Agent {
        self.least_rtt = least_rtt;
        self
    }

    /// The same, to be held by several ends.
    pub fn shared(capacity: Rate, skew: Skew) -> Shared {
        Rc::new(RefCell::new(Agent::new(capacity, skew)))
    }

    /// The capacity is this from the next schedule on.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.capacity = capacity.as_f64();
    }

    /// A2: a flow joins, whose packets have `packet` bytes on links.
    pub fn join(&mut self, now: Time, rtt: Span, cap: Rate, packet: Bytes) -> FlowId {
        let cap = cap.as_f64().min(self.capacity);
        let flow = Flow {
            state: State::Active,
            cap,
            rtt,
            packet,
            estimator: Estimator::default(),
            estimate: cap,
            bound: Some(cap),
            target: 0.0,
            coming: Coming::default(),
            counts: Counts::default(),
            at_schedule: Counts::default(),
            settled: now,
            at_settled: None,
        };
        // Who has left is not asked for any more.
        let place = self.flows.iter().position(|flow| flow.state == State::Left);
        let place = place.unwrap_or(self.flows.len());
        match self.flows.get_mut(place) {
            Some(left) => *left = flow,
            None => self.flows.push(flow),
        }
        self.take_in(now, FlowId(place));
        FlowId(place)
    }

    /// A2, D2: a flow whose estimate is its bound is scheduled among the others.
    fn take_in(&mut self, now: Time, id: FlowId) {
        let longest = self.longest_counted();
        let flow = &mut self.flows[id.0];
        flow.settled = now + longest;
        flow.at_settled = None;
        self.next.get_or_insert(now + longest * INTERVAL);
        self.schedule(now);
    }

    /// A3: a flow ends.
    pub fn leave(&mut self, id: FlowId) {
        let flow = &mut self.flows[id.0];
        if flow.state == State::Active {
            flow.state = State::Left;
            self.left += flow.target;
        }
    }

    /// Packets of a flow have come: 3.5, loss from the numbers on the wire. `before` is what was
    /// counted up to `now`, and `counts` what is with what came just now.
    pub fn note_counts(&mut self, now: Time, id: FlowId, before: &Counts, counts: Counts) {
        let flow = &mut self.flows[id.0];
        if now >= flow.settled && flow.at_settled.is_none() {
            flow.at_settled = Some((now, *before));
        }
        flow.counts = counts;
    }

    /// A flow's round trip, measured anew, and how long its packets are by now.
    pub fn set_path(&mut self, id: FlowId, rtt: Span, packet: Bytes) {
        let flow = &mut self.flows[id.0];
        (flow.rtt, flow.packet) = (rtt, packet);
    }

    /// `min(C_i, R_app, R_send)`, changed. Whether the flow joins anew by that: the next target
    /// above its own is then its first one ([`Single::join_anew`](law::Single::join_anew)).
    pub fn set_cap(&mut self, now: Time, id: FlowId, cap: Rate) -> bool {
        let cap = cap.as_f64().min(self.capacity);
        let all = self.capacity;
        let flow = &mut self.flows[id.0];
        let before = core::mem::replace(&mut flow.cap, cap);
        let risen = |bound: f64| cap >= bound * RISEN || cap >= all && cap >= bound * RISEN_TO_ALL;
        // Without a bound it was silent, or had said nothing yet.
        let held = before == 0.0 || flow.bound.is_some_and(risen);
        if let Some(bound) = &mut flow.bound {
            *bound = bound.min(cap);
            flow.estimate = flow.estimate.min(cap);
        }
        let joins = held && cap > 0.0;
        if joins {
            (flow.estimate, flow.bound) = (cap, Some(cap));
            self.take_in(now, id);
        }
        joins
    }

    /// The target in force for a flow, in bit/s.
    pub fn target(&mut self, now: Time, id: FlowId) -> f64 {
        let flow = &mut self.flows[id.0];
        flow.target = flow.coming.take(now).unwrap_or(flow.target);
        flow.target
    }

    /// Runs the interval that is over, if one is.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next.is_some_and(|at| at <= now) {
            self.estimate(now);
            self.schedule(now);
            self.begin_interval(now);
        }
    }

    /// When the agent has something to do, or a flow's target changes.
    pub fn poll_timeout(&self, id: FlowId) -> Option<Time> {
        let change = self.flows[id.0].coming.soonest.map(|(at, _)| at);
        [self.next, change].into_iter().flatten().min()
    }

    fn active(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.iter_mut().filter(|flow| flow.state == State::Active)
    }

    fn longest_rtt(&mut self) -> Span {
        self.active().map(|flow| flow.rtt).max().unwrap_or(Span::ZERO)
    }

    /// The longest round trip as A1 and D1 count it.
    fn longest_counted(&mut self) -> Span {
        self.longest_rtt().max(self.least_rtt)
    }

    /// A1's first half, A3.
    fn estimate(&mut self, now: Time) {
        let longest = self.longest_counted();
        for flow in self.active() {
            let Some((from, at)) = flow.at_settled else { continue };
            let settled = flow.counts.since(&at);
            let measured = now.since(from);
            // Less than half of what is left of an interval is too little to go by (D2).
            if settled.received == 0 || measured < longest {
                continue;
            }
            let seconds = measured.as_secs_f64();
            let packets = settled.sent() as f64;
            let total = packets * flow.packet.0 as f64 * 8.0 / seconds;
            let loss = flow.counts.since(&flow.at_schedule).loss();
            flow.estimate = flow.estimator.estimate(total, loss, flow.target, flow.cap);
            flow.bound = (flow.estimate * RISEN >= flow.cap).then_some(flow.cap);
        }
        let left = core::mem::take(&mut self.left);
        let mut estimates: Vec<f64> = self.active().map(|flow| flow.estimate).collect();
        law::absorb(&mut estimates, left);
        for (flow, estimate) in self.active().zip(estimates) {
            flow.estimate = estimate.min(flow.cap);
        }
    }

    /// A1's second half, A4.
    fn schedule(&mut self, now: Time) {
        let (capacity, skew, longest) = (self.capacity, self.skew, self.longest_rtt());
        let estimates: Vec<f64> = self.active().map(|flow| flow.estimate).collect();
        let targets = law::schedule(capacity, &estimates);
        for (flow, target) in self.active().zip(targets) {
            let delay = match skew {
                Skew::Compensated => longest.saturating_sub(flow.rtt),
                Skew::Ignored => Span::ZERO,
            };
            flow.coming.add(now + delay, target);
        }
    }

    /// D1: what was decided has to arrive before it is measured.
    fn begin_interval(&mut self, now: Time) {
        let longest = self.longest_counted();
        for flow in self.active() {
            flow.at_schedule = flow.counts;
            flow.settled = now + longest;
            flow.at_settled = None;
        }
        self.next = Some(now + longest * INTERVAL);
    }
}

/// A1: G's default.
const INTERVAL: u64 = 3;
/// D4: keeps intervals apart where round trips are next to nothing.
const LEAST_RTT: Span = Span::from_micros(100);
/// D6.
const RISEN: f64 = 1.25;
const RISEN_TO_ALL: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: f64 = 1e6;

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn a_flow_that_could_send_nothing_for_a_while_is_scheduled_again() {
        let mut agent = Agent::new(Rate::from_mbps(1_000), Skew::Compensated);
        let cap = Rate::from_mbps(800);
        let flow = agent.join(ms(0), Span::from_millis(10), cap, Bytes(1_500));
        agent.set_cap(ms(0), flow, Rate::ZERO);
        agent.handle_timeout(ms(30));
        assert_eq!(agent.target(ms(30), flow), 0.0);
        agent.set_cap(ms(60), flow, cap);
        assert_eq!(agent.target(ms(60), flow), 800.0 * MBIT);
    }

    #[test]
    fn a_join_gives_shares_at_once_and_the_shorter_way_waits() {
        let mut agent = Agent::new(Rate::from_mbps(1_000), Skew::Compensated);
        let cap = Rate::from_mbps(1_000);
        let a = agent.join(ms(0), Span::from_millis(50), cap, Bytes(1_500));
        assert_eq!(agent.target(ms(0), a), 1_000.0 * MBIT);
        let b = agent.join(ms(100), Span::from_millis(5), cap, Bytes(1_500));
        assert_eq!((agent.target(ms(100), a), agent.target(ms(100), b)), (500.0 * MBIT, 0.0));
        assert_eq!(agent.poll_timeout(b), Some(ms(145)));
        assert_eq!(agent.target(ms(145), b), 500.0 * MBIT);
        assert_eq!(agent.poll_timeout(b), Some(ms(150)), "a join begins no interval");
    }

    #[test]
    fn joins_of_long_round_trips_do_not_put_off_a_first_target() {
        let capacity = Rate::from_mbps(1_000);
        let mut agent = Agent::new(capacity, Skew::Compensated);
        let far = Span::from_millis(80);
        agent.join(ms(0), far, capacity, Bytes(1_500));
        let near = agent.join(ms(1), Span::from_millis(5), capacity, Bytes(1_500));
        for n in 1..=7 {
            agent.join(ms(10 * n), far, capacity, Bytes(1_500));
            assert_eq!(agent.target(ms(10 * n), near), 0.0);
        }
        // What it was to have at 76 ms, but no more than its part since.
        assert_eq!(agent.target(ms(76), near), 1_000.0 * MBIT / 9.0);
        agent.join(ms(80), far, capacity, Bytes(1_500));
        assert_eq!(agent.target(ms(145), near), 1_000.0 * MBIT / 10.0);
    }

    #[test]
    fn a_flow_is_measured_however_often_others_join() {
        let capacity = Rate::from_mbps(1_000);
        let mut agent = Agent::new(capacity, Skew::Ignored);
        let rtt = Span::from_millis(10);
        let flow = agent.join(ms(0), rtt, capacity, Bytes(1_500));
        assert_eq!(agent.target(ms(0), flow), 1_000.0 * MBIT);
        // 500 Mbit/s come and as much is lost.
        for n in 0..2_000 {
            let of = |n| Counts { received: n, lost: n };
            let at = Time::from_nanos(10_000_000 + n * 24_000);
            agent.note_counts(at, flow, &of(n), of(n + 1));
            if n % 200 == 0 {
                agent.join(at, rtt, Rate::from_mbps(1), Bytes(1_500));
            }
            agent.handle_timeout(at);
        }
        let target = agent.target(ms(58), flow) / MBIT;
        assert!((target - 800.0).abs() < 2.0, "{target}");
    }

    #[test]
    fn a_flow_whose_sender_finds_out_that_it_can_give_more_has_it_at_once() {
        let mut agent = Agent::new(Rate::from_mbps(1_000), Skew::Compensated);
        let rtt = Span::from_millis(50);
        let flow = agent.join(ms(0), rtt, Rate::from_mbps(40), Bytes(1_500));
        assert_eq!(agent.target(ms(0), flow), 40.0 * MBIT);
        // By a quarter at a time, however small the steps in which it is said.
        for (at, mbps, target) in [(20, 45, 40), (25, 50, 50), (100, 640, 640), (110, 2_560, 1_000)]
        {
            agent.set_cap(ms(at), flow, Rate::from_mbps(mbps));
            assert_eq!(agent.target(ms(at), flow), f64::from(target) * MBIT);
        }
    }

    #[test]
    fn an_estimate_leaves_a_bound_that_is_said_again_and_again() {
        let capacity = Rate::from_mbps(1_000);
        let mut agent = Agent::new(capacity, Skew::Compensated);
        let flow = agent.join(ms(0), Span::from_millis(10), capacity, Bytes(1_500));
        let of = |n: u64| Counts { received: 19 * n / 20, lost: n / 20 };
        // It sends what it is asked for, and of that a twentieth is lost behind a narrower link.
        let (mut sent, mut targets) = (0, Vec::new());
        for at in 0..100 {
            let now = ms(at);
            agent.handle_timeout(now);
            let before = of(sent);
            sent += (agent.target(now, flow) / 12e6) as u64;
            agent.note_counts(now, flow, &before, of(sent));
            // Bounds wander, too.
            let said = if at % 2 == 0 { capacity } else { Rate::from_mbps(980) };
            assert!(at == 0 || !agent.set_cap(now, flow, said));
            targets.push(agent.target(now, flow) / MBIT);
        }
        assert!(targets.is_sorted_by(|a, b| a >= b), "{targets:?}");
        assert!(*targets.last().expect("a target") < 950.0, "{targets:?}");
    }

    #[test]
    fn a_leaver_s_rate_goes_to_those_that_remain() {
        let mut agent = Agent::new(Rate::from_mbps(1_000), Skew::Ignored);
        let cap = Rate::from_mbps(1_000);
        let [a, b] = [0, 0].map(|at| agent.join(ms(at), Span::from_millis(10), cap, Bytes(1_500)));
        let _ = (agent.target(ms(0), a), agent.target(ms(0), b));
        // 500 Mbit/s of a: a packet each 24 us, from when changes have arrived.
        for n in 0..833 {
            let came = |received| Counts { received, lost: 0 };
            let at = Time::from_nanos(10_000_000 + n * 24_000);
            agent.note_counts(at, a, &came(n), came(n + 1));
        }
        agent.leave(b);
        agent.handle_timeout(ms(30));
        // (500 + 2 %), and b's 500 on top of it, within the bound.
        assert_eq!(agent.target(ms(30), a), 1_000.0 * MBIT);
    }
}
