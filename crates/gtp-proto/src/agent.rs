//! The host agent: shares one host's capacity in one direction among its sessions.
//!
//! The same type runs in the daemon, inside a single process and in the simulator. Each control
//! interval, and soon after any change, it takes every session's report and answers with a grant:
//! a target for a session that this host sends, a numbered and committed grant for one that it
//! receives. It knows rates and numbers; it knows no sockets, packets or peers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::endnode::{CapAtTarget, Params, expected_rates};
use gtp_alloc::grant::{Claim, Held, Share, grants, shares};
use gtp_alloc::led::{Arriving, SinkLaw};
use gtp_alloc::{Rate, Span, Time, within};

use crate::classes::Classes;
use crate::limits::{
    ALONE_GROWS, ALONE_LEAST, GRANTS_OUTSTANDING, INTERVAL_MAX, INTERVAL_MIN, LEASE_MIN,
    RECOMPUTE_MIN, SILENCE_STOP,
};
use crate::owners::{self, is_owned};
use crate::report::{FlowId, Grant, Law, Phase, Report};
use crate::room::{self, is_shared};

/// Which end of its sessions an agent is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Its sessions send.
    Source,
    /// Its sessions receive.
    Sink,
}

/// What an agent needs to know.
#[derive(Clone, Copy, Debug)]
pub struct AgentConfig {
    /// Which end it is at.
    pub side: Side,
    /// The host's capacity in this direction; unlimited if nobody knows it.
    pub capacity: Rate,
    /// A fixed control interval, or `None` for half the median round-trip time.
    pub interval: Option<Span>,
}

/// A grant that some packet may still be under way for, though there is a newer one.
#[derive(Clone, Copy, Debug)]
struct Issued {
    number: u32,
    rate: f64,
    /// When the newer grant took its place.
    superseded: Time,
}

/// What the agent remembers of one session.
#[derive(Debug, Default)]
struct Flow {
    /// Number of the newest grant, zero if there is none, and its rate.
    number: u32,
    newest: f64,
    /// The grants before it, oldest first.
    before: Vec<Issued>,
}

/// The agent of one host and direction.
#[derive(Debug)]
pub struct Agent {
    config: AgentConfig,
    /// What owners have together.
    classes: Classes,
    /// Who decides over sessions under [`Law::SinkAlone`].
    alone: Option<Box<dyn SinkLaw>>,
    interval: Span,
    /// The sessions of the last tick, in the order of its reports.
    ids: Vec<FlowId>,
    /// What is remembered of each.
    flows: Vec<Flow>,
    /// What was taken over since.
    adopted: BTreeMap<FlowId, Flow>,
    next_tick: Time,
    last_tick: Time,
}

/// A grant is issued anew when it would change by more than this part.
const NEWS: f64 = 1e-4;
/// Smallest change worth a message, in bit/s.
const NEWS_LEAST: f64 = 1_000.0;

impl Agent {
    /// An agent that first ticks at `now`.
    pub fn new(now: Time, config: AgentConfig) -> Agent {
        let interval = config.interval.unwrap_or(INTERVAL_MIN);
        Agent {
            config,
            classes: Classes::default(),
            alone: None,
            interval,
            ids: Vec::new(),
            flows: Vec::new(),
            adopted: BTreeMap::new(),
            next_tick: now,
            last_tick: now,
        }
    }

    /// The same, at a sink, with a law for sessions under [`Law::SinkAlone`], which get nothing
    /// without one. The law should know the capacity in force.
    #[must_use]
    pub fn deciding_by(mut self, law: Box<dyn SinkLaw>) -> Agent {
        self.alone = Some(law);
        self
    }

    /// Which end it is at.
    pub fn side(&self) -> Side {
        self.config.side
    }

    /// The control interval in force.
    pub fn interval(&self) -> Span {
        self.interval
    }

    /// The capacity in force.
    pub fn capacity(&self) -> Rate {
        self.config.capacity
    }

    /// Changes the capacity from the next tick on.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.config.capacity = capacity;
        if let Some(law) = &mut self.alone {
            law.set_capacity(capacity);
        }
        self.next_tick = Time::ZERO;
    }

    /// Changes the classes that owners may name, from the next tick on.
    pub fn set_classes(&mut self, classes: Classes) {
        self.classes = classes;
        self.next_tick = Time::ZERO;
    }

    /// Something changed at `now` that should not wait for the interval's end: a session came or
    /// went, or a peer's offer moved.
    pub fn wake(&mut self, now: Time) {
        self.next_tick = self.next_tick.min((self.last_tick + RECOMPUTE_MIN).max(now));
    }

    /// Nothing happens for now: the next tick may wait until then, unless it is woken.
    pub fn rest(&mut self, until: Time) {
        self.next_tick = self.next_tick.max(until);
    }

    /// The next tick should not be later than `until`.
    pub fn hurry(&mut self, until: Time) {
        self.next_tick = self.next_tick.min(until);
    }

    /// Takes over a session from another agent of this host: `number` and `rate` are those of the
    /// newest grant that it had, and up to `committed` may still be arriving. What is outstanding
    /// counts as this agent's own grants do, and their numbers go on.
    pub fn adopt(&mut self, now: Time, id: FlowId, number: u32, rate: Rate, committed: Rate) {
        if number == 0 {
            return;
        }
        let mut flow = Flow { number, newest: rate.as_f64(), ..Flow::default() };
        if committed > rate {
            let rate = committed.as_f64();
            flow.before.push(Issued { number: number - 1, rate, superseded: now });
        }
        self.adopted.insert(id, flow);
    }

    /// What an agent that takes over a session must know, for [`Agent::adopt`]: the number and rate
    /// of its newest grant, and the largest rate that may still be arriving.
    pub fn outstanding(&self, id: FlowId) -> (u32, Rate, Rate) {
        let seated = || self.ids.iter().position(|&seated| seated == id).map(|i| &self.flows[i]);
        let Some(flow) = self.adopted.get(&id).or_else(seated) else {
            return (0, Rate::ZERO, Rate::ZERO);
        };
        (flow.number, Rate::from_f64(flow.newest), Rate::from_f64(flow.committed()))
    }

    /// When to tick next.
    pub fn poll_timeout(&self) -> Time {
        self.next_tick
    }

    /// Takes all sessions' reports and writes a grant for each to `grants`, in the same order.
    /// A session that is not in `reports` is forgotten.
    pub fn tick(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        let (shares, expected) = self.laws(reports);
        self.answer(now, reports, &shares, &expected, grants);
    }

    /// As [`Agent::tick`], where whoever knows more than an agent has worked out what each session
    /// may have, in the order of the reports. Sessions under [`Law::EndNode`] get what that law
    /// says of them, but no more than their share.
    pub fn tick_shared(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        shares: &[Share],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        let mut expected = self.expected(reports);
        for (expected, share) in expected.iter_mut().zip(shares) {
            *expected = expected.min(share.target);
        }
        self.answer(now, reports, shares, &expected, grants);
    }

    /// Answers what the laws say.
    fn answer(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        shares: &[Share],
        expected: &[f64],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        grants.clear();
        self.choose_interval(reports);
        self.last_tick = now;
        self.next_tick = now + self.interval;
        self.seat(reports);
        if self.config.side == Side::Sink {
            self.commit(now, reports, shares, expected);
        }
        let Agent { config: AgentConfig { side, .. }, interval, ref flows, .. } = *self;
        let seated = reports.iter().zip(flows).zip(shares).enumerate();
        grants.extend(seated.map(|(i, (((id, report), flow), share))| {
            let rate = match (side, report.law) {
                (Side::Sink, _) => flow.newest,
                (Side::Source, Law::EndNode { .. }) => expected.get(i).copied().unwrap_or(0.0),
                // Targets change together and sum to at most the capacity. Where a session's own
                // law decides, it does so within its part of the host.
                (
                    Side::Source,
                    Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone,
                ) => share.target,
            };
            let offer = if report.phase == Phase::Closing { 0.0 } else { share.offer };
            let (number, rate, offer) = (flow.number, Rate::from_f64(rate), Rate::from_f64(offer));
            (*id, Grant { number, rate, offer, weight: report.weight, interval })
        }));
        if let Some(at) = self.alone.as_ref().and_then(|law| law.poll_timeout()) {
            self.next_tick = self.next_tick.min(at.max(now + RECOMPUTE_MIN));
        }
    }

    /// Brings what is remembered into the order of the reports; all but who comes and goes stay
    /// where they are.
    fn seat(&mut self, reports: &[(FlowId, Report)]) {
        let ids = || reports.iter().map(|(id, _)| *id);
        if self.adopted.is_empty() && self.ids.iter().copied().eq(ids()) {
            return;
        }
        let mut known: BTreeMap<_, _> = self.ids.drain(..).zip(self.flows.drain(..)).collect();
        known.append(&mut self.adopted);
        self.ids.extend(ids());
        self.flows.extend(self.ids.iter().map(|id| known.remove(id).unwrap_or_default()));
    }

    /// Half the median round-trip time, within limits.
    fn choose_interval(&mut self, reports: &[(FlowId, Report)]) {
        if let Some(fixed) = self.config.interval {
            self.interval = fixed;
            return;
        }
        let mut rtts: Vec<Span> =
            reports.iter().map(|(_, r)| r.rtt).filter(|&r| r > Span::ZERO).collect();
        let middle = rtts.len() / 2;
        if middle < rtts.len() {
            let (_, &mut median, _) = rtts.select_nth_unstable(middle);
            self.interval = (median / 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
    }

    /// At a sink: grants are commitments until the source is heard to have let go of them.
    fn commit(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        shares: &[Share],
        expected: &[f64],
    ) {
        let seated = self.flows.iter_mut().zip(reports).zip(shares);
        let held = seated.map(|((flow, (_, report)), share)| {
            flow.release(now, report.echoed, report.rtt);
            let newest = flow.newest;
            let committed = flow.arriving(now, report.rtt);
            match report.law.is_alone() {
                false => Held { target: share.target, committed, newest },
                // Nobody holds it to its share; it takes what it is seen to take.
                true => {
                    let taken = report.measured.as_f64();
                    Held { target: share.target, committed: taken, newest: taken }
                }
            }
        });
        let held: Vec<Held> = held.collect();
        let decided = self.decided(now, reports);
        let mut granted = Vec::new();
        grants(self.config.capacity.as_f64(), &held, &mut granted);
        let seated = self.flows.iter_mut().zip(reports).zip(granted);
        for (i, ((flow, (_, report)), granted)) in seated.enumerate() {
            let rate = match report.law {
                Law::Grant => granted,
                Law::EndNode { .. } => expected.get(i).copied().unwrap_or(0.0),
                Law::SourceAlone | Law::SinkAlone | Law::SessionAlone
                    if report.phase == Phase::Closing =>
                {
                    0.0
                }
                Law::SourceAlone => report.demand.as_f64(),
                Law::SessionAlone => report.demand.min(self.config.capacity).as_f64(),
                Law::SinkAlone => decided.get(i).copied().unwrap_or(0.0),
            };
            flow.issue(now, whole(rate.max(0.0)));
        }
    }

    /// What the host's own law says of the sessions that it decides over, zeros elsewhere; nothing
    /// without one.
    fn decided(&mut self, now: Time, reports: &[(FlowId, Report)]) -> Vec<f64> {
        let Some(law) = &mut self.alone else { return Vec::new() };
        let mut all = alloc::vec![0.0; reports.len()];
        let runs = |r: &Report| r.law == Law::SinkAlone && r.phase == Phase::Open;
        let places: Vec<usize> = (0..reports.len()).filter(|&i| runs(&reports[i].1)).collect();
        let arriving = |&i: &usize| {
            let (id, r) = &reports[i];
            let most = r.peer_offer.min(r.demand);
            Arriving { id: *id, counts: r.counts, packet: r.packet, rtt: r.rtt, most }
        };
        let sessions: Vec<Arriving> = places.iter().map(arriving).collect();
        let mut rates = Vec::with_capacity(sessions.len());
        law.decide(now, &sessions, &mut rates);
        for (place, rate) in places.into_iter().zip(rates) {
            all[place] = rate.as_f64();
        }
        all
    }

    /// What each law says: shares by the grant law, expected rates by the end-node law. Each law
    /// sees the sessions of the other: the first as claims of what they use, the second by their
    /// measured rates, as the thesis's law sees everything.
    fn laws(&self, reports: &[(FlowId, Report)]) -> (Vec<Share>, Vec<f64>) {
        let least = self.config.capacity.scale(ALONE_LEAST);
        let alone = |r: &Report| match (self.config.side, r.law) {
            (Side::Sink, _) => r.measured,
            // Its trains leave faster than it is granted, so a source leaves it room.
            (Side::Source, Law::SessionAlone) => {
                r.demand.min(r.measured.scale(ALONE_GROWS).max(least))
            }
            (Side::Source, _) => r.demand,
        };
        let (mut room, mut owned) = (false, false);
        let mut claims: Vec<Claim> = reports
            .iter()
            .map(|(_, r)| {
                room |= is_shared(r);
                owned |= is_owned(r);
                let bound = match (r.phase, r.law) {
                    (Phase::Closing, _) => Rate::ZERO,
                    (Phase::Open, Law::Grant) => r.peer_offer.min(r.demand),
                    (Phase::Open, Law::EndNode { .. }) => r.measured,
                    (Phase::Open, Law::SourceAlone | Law::SinkAlone | Law::SessionAlone) => {
                        alone(r)
                    }
                };
                Claim { weight: r.weight * r.peer_weight, bound: bound.as_f64() }
            })
            .collect();
        if owned {
            owners::limit(reports, &self.classes, &mut claims);
        }
        if room {
            room::share(self.config.capacity, reports, &mut claims);
        }
        if owned {
            owners::divide(self.config.capacity, reports, &self.classes, &mut claims);
        }
        let (capacity, mut out) = (self.config.capacity.as_f64(), Vec::new());
        match owners::classed(reports, &self.classes) {
            none if none.is_empty() => shares(capacity, &claims, &mut out),
            classes => within::divide(capacity, &claims, &classes, &mut out),
        }
        (out, self.expected(reports))
    }

    /// Expected rates by the end-node law with the steps of the first session that runs it; nothing
    /// where none does.
    fn expected(&self, reports: &[(FlowId, Report)]) -> Vec<f64> {
        let steps = reports.iter().find_map(|(_, report)| match report.law {
            Law::EndNode { alpha, beta } => Some((alpha, beta)),
            Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => None,
        });
        let Some((alpha, beta)) = steps else { return Vec::new() };
        if self.config.capacity.is_unlimited() {
            return alloc::vec![f64::INFINITY; reports.len()];
        }
        let open: Vec<usize> =
            (0..reports.len()).filter(|&i| reports[i].1.phase == Phase::Open).collect();
        let measured: Vec<Rate> = open.iter().map(|&i| reports[i].1.measured).collect();
        let mut rates = alloc::vec![Rate::ZERO; open.len()];
        let params = Params { alpha, beta, cap_at_target: CapAtTarget::Yes };
        expected_rates(&params, self.config.capacity, &measured, &mut rates);
        let mut all = alloc::vec![0.0; reports.len()];
        for (i, rate) in open.into_iter().zip(rates) {
            all[i] = rate.as_f64();
        }
        all
    }
}

impl Issued {
    /// What of it may still be arriving over a path with this round trip: what a source may send
    /// that has not heard of a newer one, at the latest, with the longest interval that it may
    /// have been told (see `lease` of a source). Its packets travel meanwhile.
    fn arriving(&self, now: Time, rtt: Span) -> f64 {
        let unheard = now.since(self.superseded).saturating_sub(rtt);
        let whole = LEASE_MIN.max(INTERVAL_MAX * 4);
        if unheard <= whole {
            return self.rate;
        }
        let over = unheard.saturating_sub(whole).as_nanos() / INTERVAL_MAX.as_nanos();
        // A source stops long before so many halvings.
        self.rate / (2_u64 << over.min(61)) as f64
    }
}

impl Flow {
    /// Forgets grants that the source has let go of, and those whose lease is over.
    fn release(&mut self, now: Time, echoed: u32, rtt: Span) {
        let lease = SILENCE_STOP + rtt;
        let gone = |old: &&Issued| old.number < echoed || now.since(old.superseded) > lease;
        match self.before.iter().take_while(gone).count() {
            0 => {}
            all if all == self.before.len() => self.before.clear(),
            some => drop(self.before.drain(..some)),
        }
    }

    /// The largest rate granted that the source has not let go of.
    fn committed(&self) -> f64 {
        self.before.iter().fold(self.newest, |most, grant| grant.rate.max(most))
    }

    /// The largest rate that may still be arriving over a path with this round trip.
    fn arriving(&self, now: Time, rtt: Span) -> f64 {
        self.before.iter().fold(self.newest, |most, grant| grant.arriving(now, rtt).max(most))
    }

    fn issue(&mut self, now: Time, rate: f64) {
        let change = (rate - self.newest).abs();
        let settled = change <= NEWS_LEAST.max(NEWS * self.newest) && rate > 0.0;
        let same = rate == self.newest || settled && rate >= self.newest;
        if same || self.before.len() + 1 >= GRANTS_OUTSTANDING && rate > self.newest {
            return;
        }
        // 2^32 grants, one a millisecond at most, last 49 days; the session ends with the last.
        let Some(number) = self.number.checked_add(1) else { return };
        if self.number > 0 {
            let (number, rate) = (self.number, self.newest);
            self.before.push(Issued { number, rate, superseded: now });
        }
        (self.number, self.newest) = (number, rate);
    }
}

/// A rate that is not negative in whole bits per second, rounded down.
fn whole(rate: f64) -> f64 {
    // Below, every whole number is a float and fits; above, every float is whole.
    const EXACT: f64 = (1_u64 << 53) as f64;
    if rate < EXACT { (rate as i64) as f64 } else { rate }
}
