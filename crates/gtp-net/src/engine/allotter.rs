//! Who shares the host's capacity out in one direction: an agent here, or the machine's daemon.
//!
//! It is asked as an agent is asked. A process that never had a daemon has its own agent, and
//! nothing else happens. One that has a daemon posts its reports, and passes on what it finds
//! granted. One that has lost its daemon raises nothing: each session goes on at what it had,
//! falling slowly; the next daemon is told what is outstanding before it grants anything.
//!
//! Where one end decides alone, its law is asked as well as the daemon, and the least counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gtp_alloc::{Rate, Span, Time};
use gtp_proto::agent::Side as AgentSide;
use gtp_proto::limits::{GRANTS_OUTSTANDING, INTERVAL_MAX, INTERVAL_MIN, RECOMPUTE_MIN};
use gtp_proto::{FlowId, Grant, Law, Phase, Report};
use gtp_share::client::Attachment;
use gtp_share::{Found, Outstanding, Posted, Side};

use super::council::Decider;
use super::details::Details;
use super::keeper::DaemonNews;

/// One direction's allotter.
pub(super) struct Allotter {
    agent: Decider,
    /// Once there was a daemon.
    daemon: Option<Box<Daemon>>,
    /// Under a daemon: sessions over which one end decides alone, as this agent sees them...
    alone: Vec<(FlowId, Report)>,
    /// ... what it says of them...
    granted: Vec<(FlowId, Grant)>,
    /// ... and all sessions as the daemon is to see them.
    told: Vec<(FlowId, Report)>,
}

/// What is known once there was a daemon.
struct Daemon {
    attachment: Option<Arc<Attachment>>,
    side: Side,
    flows: BTreeMap<FlowId, Flow>,
    details: Vec<Details>,
    /// Slots of this direction that are free, on the page there is.
    free: Vec<u32>,
    interval: Span,
    next: Time,
    last: Time,
    /// Something happened here that the daemon should not hear of late.
    ring: bool,
    fall_due: Time,
}

/// One session.
struct Flow {
    slot: Option<u32>,
    grant: Grant,
    /// What its daemon granted last, of which what is left falls.
    held: Rate,
    /// Grants that may still be arriving, oldest first; at a sink.
    issued: VecDeque<(u32, Rate)>,
    /// What both who decide had said when the source was told a number, oldest first; where one end
    /// decides alone.
    said: VecDeque<Said>,
}

/// The numbers of both who decide over a session, under that which its source is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    number: u32,
    /// Its law's.
    own: u32,
    /// The daemon's.
    word: u32,
}

/// Without a daemon rates fall by this part...
const FALL: f64 = 0.1;
/// ... this often, which halves them in 1.3 s...
const FALL_EVERY: Span = Span::from_millis(200);
/// ... to this part of what they were: enough for no session to be given up.
const FALL_MOST: f64 = 0.125;

impl Allotter {
    /// This agent decides until there is a daemon.
    pub fn new(agent: Decider) -> Allotter {
        Allotter { agent, daemon: None, alone: Vec::new(), granted: Vec::new(), told: Vec::new() }
    }

    /// The control interval in force.
    pub fn interval(&self) -> Span {
        self.daemon.as_ref().map_or_else(|| self.agent.interval(), |daemon| daemon.interval)
    }

    /// Changes the capacity that this process's own agent shares out.
    pub fn set_capacity(&mut self, capacity: Rate) {
        self.agent.set_capacity(capacity);
    }

    /// Changes what this engine keeps up with. Its process's own agent shares out no more; a daemon
    /// does not hear of it.
    pub fn set_limit(&mut self, limit: Rate) {
        self.agent.set_limit(limit);
    }

    /// Whether this process's own agent decides: it has never had a daemon.
    pub fn decides(&self) -> bool {
        self.daemon.is_none()
    }

    /// Something changed at `now` that should not wait for the interval's end.
    pub fn wake(&mut self, now: Time) {
        match &mut self.daemon {
            None => self.agent.wake(now),
            Some(daemon) => {
                daemon.ring = true;
                daemon.hurry(now);
            }
        }
    }

    /// Nothing happens for now: the next tick may wait until then, unless it is woken.
    pub fn rest(&mut self, until: Time) {
        match &mut self.daemon {
            None => self.agent.rest(until),
            Some(daemon) => daemon.next = daemon.next.max(until),
        }
    }

    /// When to tick next.
    pub fn poll_timeout(&self) -> Time {
        match &self.daemon {
            None => self.agent.poll_timeout(),
            Some(daemon) if self.alone.is_empty() => daemon.next,
            Some(daemon) => daemon.next.min(self.agent.poll_timeout()),
        }
    }

    /// Whether the daemon, or the other engines, have to hear yet that a session has gone.
    pub fn is_posting(&self) -> bool {
        match &self.daemon {
            None => self.agent.is_posting(),
            Some(daemon) => !daemon.flows.is_empty() || self.agent.is_posting(),
        }
    }

    /// Where to put each session's details, in the order of reports, if they are of use.
    pub fn wants_details(&mut self) -> Option<&mut Vec<Details>> {
        let daemon = self.daemon.as_mut()?;
        daemon.attachment.as_ref()?;
        Some(&mut daemon.details)
    }

    /// The daemon has come, gone or granted.
    pub fn handle_news(&mut self, now: Time, news: &DaemonNews) {
        match (news, &mut self.daemon) {
            (DaemonNews::Found(found), daemon) => {
                let side = self.agent.side();
                let daemon = daemon.get_or_insert_with(|| Box::new(Daemon::new(now, side)));
                daemon.attach(now, found);
            }
            // What this host has is the daemon's to share out from now on.
            (DaemonNews::Elsewhere, none @ None) => {
                let daemon = none.insert(Box::new(Daemon::new(now, self.agent.side())));
                daemon.detach(now);
            }
            (DaemonNews::Elsewhere, Some(_)) => {}
            (DaemonNews::Rang, Some(daemon)) => daemon.hurry(now),
            (DaemonNews::Lost, Some(daemon)) => daemon.detach(now),
            (DaemonNews::Rang | DaemonNews::Lost, None) => {}
        }
    }

    /// As [`gtp_proto::Agent::tick`].
    pub fn tick(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        match &mut self.daemon {
            None => self.agent.tick(now, reports, grants),
            Some(daemon) => {
                daemon.seat(&self.agent, reports);
                self.told.clear();
                self.told.extend_from_slice(reports);
                self.decide_alone(now);
                let Some(daemon) = &mut self.daemon else { return };
                daemon.tick(now, &self.told, grants);
                daemon.lessen(&self.granted, grants);
            }
        }
    }

    /// What the laws say of sessions over which one end decides alone. From here on the echoes of
    /// what the daemon is told are of its own grants.
    fn decide_alone(&mut self, now: Time) {
        self.alone.clear();
        self.granted.clear();
        let Some(daemon) = &mut self.daemon else { return };
        for (id, report) in self.told.iter_mut().filter(|(_, report)| report.law.is_alone()) {
            let Some(flow) = daemon.flows.get_mut(id) else { continue };
            let heard = flow.said_until(report.echoed);
            self.alone.push((*id, Report { echoed: heard.own, ..*report }));
            report.echoed = heard.word;
        }
        if self.alone.is_empty() && !self.agent.is_posting() {
            return;
        }
        self.agent.wake(now);
        self.agent.tick(now, &self.alone, &mut self.granted);
        // A law of the sink's host says what its sessions want there.
        let wants = |report: &Report| match report.law {
            Law::SinkAlone => self.agent.side() == AgentSide::Sink,
            Law::Grant | Law::EndNode { .. } | Law::SourceAlone | Law::SessionAlone => false,
        };
        let alone = self.told.iter_mut().filter(|(_, report)| report.law.is_alone());
        for ((_, report), (_, own)) in alone.zip(&self.granted) {
            if wants(report) {
                report.demand = report.demand.min(own.rate);
            }
        }
    }
}

impl Daemon {
    fn new(now: Time, side: AgentSide) -> Daemon {
        Daemon {
            attachment: None,
            side: match side {
                AgentSide::Source => Side::Source,
                AgentSide::Sink => Side::Sink,
            },
            flows: BTreeMap::new(),
            details: Vec::new(),
            free: Vec::new(),
            interval: INTERVAL_MIN,
            next: now,
            last: now,
            ring: true,
            fall_due: Time::MAX,
        }
    }

    /// New pages: every session takes a slot anew. One direction has the even ones, the other the
    /// odd ones, so that what is used lies together.
    fn attach(&mut self, now: Time, found: &Arc<Attachment>) {
        let first = match self.side {
            Side::Source => 0,
            Side::Sink => 1,
        };
        self.free = (first..found.reports.slots()).step_by(2).collect();
        self.free.reverse();
        self.flows.values_mut().for_each(|flow| flow.slot = None);
        self.attachment = Some(found.clone());
        self.ring = true;
        self.next = now;
    }

    fn detach(&mut self, now: Time) {
        self.attachment = None;
        for flow in self.flows.values_mut() {
            flow.slot = None;
            flow.held = flow.grant.rate;
        }
        self.fall_due = now + FALL_EVERY;
        self.hurry(now);
    }

    fn hurry(&mut self, now: Time) {
        self.next = self.next.min((self.last + RECOMPUTE_MIN).max(now));
    }

    /// Knows each session that there is; one that is new as its own agent left it.
    fn seat(&mut self, agent: &Decider, reports: &[(FlowId, Report)]) {
        self.forget(reports);
        for (id, report) in reports {
            self.flows.entry(*id).or_insert_with(|| Flow::new(agent, *id, report));
        }
    }

    fn tick(&mut self, now: Time, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        grants.clear();
        self.last = now;
        match self.attachment.clone() {
            Some(pages) => self.pass_on(&pages, reports),
            None => self.fall(now, reports),
        }
        self.details.clear();
        self.next = now + self.interval;
        let known = |(id, _): &(FlowId, Report)| Some((*id, self.flows.get(id)?.grant));
        grants.extend(reports.iter().filter_map(known));
    }

    /// Of sessions over which one end decides alone, the least of what its law and the daemon say.
    fn lessen(&mut self, own: &[(FlowId, Grant)], grants: &mut [(FlowId, Grant)]) {
        let mut grants = grants.iter_mut();
        for (id, own) in own {
            let Some((_, grant)) = grants.find(|(granted, _)| granted == id) else { return };
            let Some(flow) = self.flows.get_mut(id) else { continue };
            *grant = flow.least(own, grant);
        }
    }

    /// Sessions that are gone give up their slots.
    fn forget(&mut self, reports: &[(FlowId, Report)]) {
        let present: BTreeSet<FlowId> = reports.iter().map(|(id, _)| *id).collect();
        let (pages, free) = (&self.attachment, &mut self.free);
        self.flows.retain(|id, flow| {
            let stays = present.contains(id);
            if let (false, Some(slot), Some(pages)) = (stays, flow.slot, pages) {
                pages.reports.clear(slot);
                free.push(slot);
            }
            stays
        });
    }

    /// Posts reports and reads grants.
    fn pass_on(&mut self, pages: &Attachment, reports: &[(FlowId, Report)]) {
        for ((id, report), details) in reports.iter().zip(&self.details) {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.heard(report.echoed);
            if flow.slot.is_none() {
                flow.slot = self.free.pop();
            }
            let Some(slot) = flow.slot else { continue }; // It waits for one.
            pages.reports.post(slot, &posted(*id, self.side, report, details, flow.outstanding()));
            if let Found::Record(granted) = pages.grants.read(slot)
                && granted.id == *id
            {
                flow.take(granted.grant);
                self.interval = granted.grant.interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
            }
        }
        pages.reports.beat();
        if std::mem::take(&mut self.ring) {
            pages.ring();
        }
    }

    /// Nobody grants: what there was falls.
    fn fall(&mut self, now: Time, reports: &[(FlowId, Report)]) {
        let due = self.fall_due <= now;
        if due {
            self.fall_due = now + FALL_EVERY;
        }
        for (id, report) in reports {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.heard(report.echoed);
            flow.fall(self.side, report.phase, due);
        }
    }
}

impl Flow {
    /// A session as its own agent left it; of a new one there is nothing.
    fn new(agent: &Decider, id: FlowId, report: &Report) -> Flow {
        let (number, rate, committed) = agent.outstanding(id);
        let mut issued = VecDeque::new();
        if committed > rate {
            issued.push_back((number.saturating_sub(1), committed));
        }
        if number > 0 {
            issued.push_back((number, rate));
        }
        let (weight, interval) = (report.weight, INTERVAL_MIN);
        let grant = Grant { number, rate, offer: rate, weight, interval };
        let begin = Said { number, own: number, word: number };
        let said = report.law.is_alone().then_some(begin).into_iter().collect();
        Flow { slot: None, grant, held: rate, issued, said }
    }

    /// What its law and the daemon had said of the session under the number that its source has
    /// echoed.
    fn said_until(&mut self, echoed: u32) -> Said {
        while self.said.get(1).is_some_and(|next| next.number <= echoed) {
            self.said.pop_front();
        }
        // What is older than the first was told before there was a daemon.
        let before = Said { number: echoed, own: echoed, word: echoed };
        self.said.front().copied().filter(|said| said.number <= echoed).unwrap_or(before)
    }

    /// The least of both, under a number that counts up with either's.
    fn least(&mut self, own: &Grant, word: &Grant) -> Grant {
        let number = own.number.saturating_add(word.number);
        if self.said.back().is_none_or(|last| last.number < number) {
            if self.said.len() >= GRANTS_OUTSTANDING {
                // An echo of it then counts as one of what was before it.
                self.said.remove(1);
            }
            self.said.push_back(Said { number, own: own.number, word: word.number });
        }
        let (rate, offer) = (own.rate.min(word.rate), own.offer.min(word.offer));
        Grant { number, rate, offer, weight: word.weight, interval: own.interval }
    }

    /// Its source obeys this grant: older ones are not arriving any more.
    fn heard(&mut self, echoed: u32) {
        while self.issued.len() > 1 && self.issued.front().is_some_and(|&(n, _)| n < echoed) {
            self.issued.pop_front();
        }
    }

    fn outstanding(&self) -> Outstanding {
        let committed = self.issued.iter().map(|&(_, rate)| rate).max().unwrap_or(Rate::ZERO);
        let (number, rate) = self.issued.back().copied().unwrap_or((0, Rate::ZERO));
        Outstanding { number, rate, committed }
    }

    /// The daemon grants. Numbers never go back.
    fn take(&mut self, grant: Grant) {
        if grant.number >= self.grant.number {
            self.set(grant);
        }
    }

    fn set(&mut self, grant: Grant) {
        if grant.number != self.grant.number {
            if self.issued.len() >= GRANTS_OUTSTANDING
                && let Some((_, oldest)) = self.issued.pop_front()
                && let Some((_, next)) = self.issued.front_mut()
            {
                *next = oldest.max(*next);
            }
            self.issued.push_back((grant.number, grant.rate));
        }
        self.grant = grant;
    }

    /// One step down, if it is `due`; a session that is closing lets go at once.
    fn fall(&mut self, side: Side, phase: Phase, due: bool) {
        let least = self.held.scale(FALL_MOST);
        let rate = match phase {
            Phase::Closing => Rate::ZERO,
            Phase::Open if due => self.grant.rate.scale(1.0 - FALL).max(least),
            Phase::Open => self.grant.rate,
        };
        if rate == self.grant.rate {
            return;
        }
        let number = match side {
            Side::Source => self.grant.number,
            Side::Sink => self.grant.number.saturating_add(1),
        };
        let offer = self.grant.offer.min(rate);
        self.set(Grant { number, rate, offer, ..self.grant });
    }
}

fn posted(id: FlowId, side: Side, report: &Report, details: &Details, held: Outstanding) -> Posted {
    Posted {
        id,
        side,
        report: *report,
        principal: details.principal,
        transfer: details.transfer,
        held,
        limited_by: details.limited_by,
        packets: details.packets,
        lost: details.lost,
        wire_bytes: details.wire_bytes,
        label: details.label,
    }
}

#[cfg(test)]
mod caps;
#[cfg(test)]
mod succession;
#[cfg(test)]
mod world;

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_proto::agent::{Agent, AgentConfig};

    const START: Time = Time::from_nanos(1_000_000_000);

    fn report(phase: Phase, echoed: u32) -> Report {
        Report {
            weight: 1.0,
            peer_weight: 1.0,
            law: Law::Grant,
            phase,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::UNLIMITED,
            measured: Rate::ZERO,
            echoed,
            rtt: Span::from_millis(20),
            counts: Default::default(),
            packet: Default::default(),
        }
    }

    /// An allotter whose own agent has granted 80 Mbit/s to session 1, and that then had a daemon
    /// for a moment.
    fn orphaned(side: AgentSide) -> Allotter {
        let capacity = Rate::from_mbps(80);
        let config = AgentConfig { side, capacity, interval: Some(Span::from_millis(20)) };
        let mut allotter = Allotter::new(Decider::own(Agent::new(START, config)));
        allotter.tick(START, &[(1, report(Phase::Open, 0))], &mut Vec::new());
        let mut daemon = Daemon::new(START, side);
        daemon.flows.insert(1, Flow::new(&allotter.agent, 1, &report(Phase::Open, 0)));
        if side == AgentSide::Source {
            let (rate, interval) = (capacity, FALL_EVERY);
            let granted = Grant { number: 0, rate, offer: rate, weight: 1.0, interval };
            daemon.flows.get_mut(&1).unwrap().take(granted);
        }
        daemon.detach(START);
        allotter.daemon = Some(Box::new(daemon));
        allotter
    }

    #[test]
    fn without_its_daemon_a_session_falls_to_an_eighth_and_a_new_one_waits() {
        for side in [AgentSide::Source, AgentSide::Sink] {
            let mut allotter = orphaned(side);
            let (mut now, mut last) = (START, (0, Rate::from_mbps(80)));
            let mut grants = Vec::new();
            for _ in 0..500 {
                let reports = [(1, report(Phase::Open, 0)), (2, report(Phase::Open, 0))];
                allotter.wake(now);
                allotter.tick(now, &reports, &mut grants);
                let (old, new) = (grants[0].1, grants[1].1);
                assert!(old.rate <= last.1 && old.offer <= Rate::from_mbps(80));
                let renumbered = side == AgentSide::Sink && old.rate < last.1;
                assert!(last.0 == 0 || old.number == last.0 + u32::from(renumbered));
                assert_eq!((new.rate, new.number), (Rate::ZERO, 0));
                last = (old.number, old.rate);
                now += Span::from_millis(20);
            }
            assert_eq!(last.1, Rate::from_mbps(10), "{side:?}");
        }
    }

    #[test]
    fn an_engine_that_has_not_yet_found_the_daemon_of_its_mates_raises_nothing() {
        let capacity = Rate::from_mbps(80);
        let (side, interval) = (AgentSide::Sink, Some(Span::from_millis(20)));
        let agent = Agent::new(START, AgentConfig { side, capacity, interval });
        let mut allotter = Allotter::new(Decider::own(agent));
        let mut grants = Vec::new();
        allotter.tick(START, &[(1, report(Phase::Open, 0))], &mut grants);
        assert_eq!(grants[0].1.rate, capacity);
        allotter.handle_news(START, &DaemonNews::Elsewhere);
        assert!(!allotter.decides());
        let reports = [(1, report(Phase::Open, 1)), (2, report(Phase::Open, 0))];
        allotter.tick(START + FALL_EVERY, &reports, &mut grants);
        assert_eq!(grants[0].1.rate, Rate::from_mbps(72));
        assert_eq!(grants[1].1.rate, Rate::ZERO);
    }

    #[test]
    fn without_its_daemon_a_session_that_closes_lets_go_at_once() {
        let mut allotter = orphaned(AgentSide::Sink);
        let mut grants = Vec::new();
        allotter.tick(START, &[(1, report(Phase::Closing, 1))], &mut grants);
        assert_eq!((grants[0].1.rate, grants[0].1.number), (Rate::ZERO, 2));
    }

    #[test]
    fn the_next_daemon_hears_the_largest_rate_that_may_be_arriving_until_it_is_echoed() {
        let mut allotter = orphaned(AgentSide::Sink);
        let now = START + FALL_EVERY;
        let grants = &mut Vec::new();
        allotter.tick(now, &[(1, report(Phase::Open, 1))], grants);
        let flow = |allotter: &Allotter| allotter.daemon.as_ref().unwrap().flows[&1].outstanding();
        let (rate, committed) = (Rate::from_mbps(72), Rate::from_mbps(80));
        assert_eq!(flow(&allotter), Outstanding { number: 2, rate, committed });
        allotter.tick(now, &[(1, report(Phase::Open, 2))], grants);
        assert_eq!(flow(&allotter), Outstanding { number: 2, rate, committed: rate });
    }

    #[test]
    fn an_older_grant_is_not_taken() {
        let mut allotter = orphaned(AgentSide::Sink);
        let flow = allotter.daemon.as_mut().unwrap().flows.get_mut(&1).unwrap();
        let grant = Grant { number: 0, rate: Rate::UNLIMITED, ..flow.grant };
        flow.take(grant);
        assert_eq!(flow.grant.rate, Rate::from_mbps(80));
    }

    #[test]
    fn it_ticks_once_more_after_the_last_session_and_then_rests() {
        let mut allotter = orphaned(AgentSide::Sink);
        assert!(allotter.is_posting());
        allotter.tick(START, &[], &mut Vec::new());
        assert!(!allotter.is_posting());
    }
}
