//! Who shares the host's capacity out in one direction: an agent here, or the machine's daemon.
//!
//! It is asked as an agent is asked. A process under a daemon posts its reports and passes on what
//! it finds granted; in every other standing its own agent decides, within the bound that the
//! standing sets. What is outstanding goes along in both directions: the agent takes over what the
//! daemon has granted, and the next daemon is told of it before it grants anything.
//!
//! Where one end decides alone, its law is asked as well as the daemon, and the least counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use gtp_alloc::grant::{Claim, shares};
use gtp_alloc::{Rate, Span, Time};
use gtp_proto::agent::Side as AgentSide;
use gtp_proto::direction::Allot;
use gtp_proto::limits::{GRANTS_OUTSTANDING, INTERVAL_MAX, INTERVAL_MIN, RECOMPUTE_MIN};
use gtp_proto::{FlowId, Grant, Law, Owner, Phase, Report};
use gtp_share::client::Attachment;
use gtp_share::{Found, Outstanding, Posted, PostedPath, Side, Terms};

use super::api::{Allowances, Named, Way};
use super::council::Decider;
use super::details::Details;
use super::keeper::{DaemonNews, Why};
use super::standing::{Bond, Event, Standing, Stands};

/// One direction's allotter.
pub(super) struct Allotter {
    agent: Decider,
    standing: Standing,
    /// The bound that the agent was told last.
    bound: Option<Rate>,
    /// When time alone changes it.
    due: Time,
    /// While there is a daemon.
    daemon: Option<Box<Daemon>>,
    /// What this agent granted last, for a daemon to begin with.
    last: Vec<(FlowId, Grant)>,
    /// Sessions over which one end decides alone, as this agent sees them under a daemon.
    alone: Vec<(FlowId, Report)>,
    /// What it says of them.
    granted: Vec<(FlowId, Grant)>,
    /// All sessions as the daemon is to see them.
    told: Vec<(FlowId, Report)>,
    /// What clients have, and groups of them.
    allowances: Arc<Allowances>,
}

/// What is known while there is a daemon.
struct Daemon {
    attachment: Arc<Attachment>,
    side: Side,
    flows: BTreeMap<FlowId, Flow>,
    /// What sessions had when the daemon came that have not been seen since.
    before: BTreeMap<FlowId, Grant>,
    details: Vec<Details>,
    /// Slots of this direction that are free, on the page there is.
    free: Vec<u32>,
    interval: Span,
    next: Time,
    last: Time,
    came: Time,
    /// Something happened here that the daemon should not hear of late.
    ring: bool,
}

/// One session.
struct Flow {
    slot: Option<u32>,
    grant: Grant,
    /// This daemon has granted it something.
    answered: bool,
    /// The number that its source had been told when the daemon came.
    base: u32,
    /// The least of what both who decide have said, where one end decides alone.
    least: Rate,
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

/// A session that the daemon has not granted anything for so long lets go of what it had: the
/// daemon has no room for it. A daemon that waits for others grants after 750 ms.
const ANSWER_MOST: Span = Span::from_secs(2);

impl Allot for Allotter {
    fn poll_timeout(&self) -> Time {
        match &self.daemon {
            None => self.agent.poll_timeout().min(self.due),
            Some(daemon) if self.alone.is_empty() => daemon.next,
            Some(daemon) => daemon.next.min(self.agent.poll_timeout()),
        }
    }

    fn tick(&mut self, now: Time, reports: &[(FlowId, Report)], grants: &mut Vec<(FlowId, Grant)>) {
        self.share_out(now, reports, grants);
    }

    fn rest(&mut self, until: Time) {
        match &mut self.daemon {
            None => self.agent.rest(until),
            Some(daemon) => daemon.next = daemon.next.max(until),
        }
    }

    fn hurry(&mut self, until: Time) {
        match &mut self.daemon {
            None => self.agent.hurry(until),
            Some(daemon) => daemon.next = daemon.next.min(until),
        }
    }
}

impl Allotter {
    /// This agent decides until there is a daemon.
    pub fn new(agent: Decider) -> Allotter {
        Allotter {
            agent,
            standing: Standing::NEW,
            bound: None,
            due: Time::MAX,
            daemon: None,
            last: Vec::new(),
            alone: Vec::new(),
            granted: Vec::new(),
            told: Vec::new(),
            allowances: Arc::default(),
        }
    }

    /// What this process is to the daemon at `now`.
    pub fn stands(&self, now: Time) -> Stands {
        self.standing.at(now).stands()
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

    /// Changes what clients have, and groups of them, for this process's own agent and for a daemon
    /// that knows groups.
    pub fn set_allowances(&mut self, allowances: &Arc<Allowances>) {
        self.agent.set_classes(&allowances.classes);
        self.allowances = Arc::clone(allowances);
    }

    /// Whether whoever decides knows the groups of clients: not a daemon of an earlier release.
    pub fn counts_groups(&self) -> bool {
        self.daemon.as_ref().is_none_or(|daemon| daemon.attachment.reports.posts_terms())
    }

    /// Whether this process's own agent decides.
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

    /// Whether the daemon, or the other engines, have to hear yet that a session has gone.
    pub fn is_posting(&self) -> bool {
        match &self.daemon {
            None => self.agent.is_posting(),
            Some(daemon) => !daemon.flows.is_empty() || self.agent.is_posting(),
        }
    }

    /// Where to put each session's details, in the order of reports, if they are of use.
    pub fn wants_details(&mut self) -> Option<&mut Vec<Details>> {
        Some(&mut self.daemon.as_mut()?.details)
    }

    /// The daemon has come, gone or granted, or was looked for in vain.
    pub fn handle_news(&mut self, now: Time, news: &DaemonNews) {
        match news {
            DaemonNews::Found(found) => self.join(now, found),
            DaemonNews::Rang => self.daemon.iter_mut().for_each(|daemon| daemon.hurry(now)),
            DaemonNews::Lost(bond) => self.lose(now, *bond),
            // What this host has is the daemon's to share out from now on.
            DaemonNews::Elsewhere => {
                let granted = sum(self.last.iter().map(|(_, grant)| grant.rate));
                self.stand(now, Bond::Named, Event::Elsewhere { granted });
            }
            DaemonNews::Missed(bond, why) => {
                let event = match why {
                    Why::Absent => Event::Absent,
                    Why::Silent => Event::Silent,
                    Why::Full => Event::Full,
                    Why::OtherVersion => Event::OtherVersion,
                };
                self.stand(now, *bond, event);
            }
        }
    }

    fn join(&mut self, now: Time, found: &Arc<Attachment>) {
        let side = self.agent.side();
        match &mut self.daemon {
            // One that is there anew, though its end was not seen.
            Some(daemon) => daemon.attach(now, found),
            none @ None => {
                let mut daemon = Box::new(Daemon::new(now, side, found));
                daemon.before = self.last.drain(..).collect();
                *none = Some(daemon);
            }
        }
        self.stand(now, Bond::Named, Event::Joined);
    }

    /// What the daemon had granted is this agent's from now on.
    fn lose(&mut self, now: Time, bond: Bond) {
        let Some(daemon) = self.daemon.take() else { return };
        self.last.clear();
        for (&id, flow) in &daemon.flows {
            let told = flow.told();
            self.last.push((id, told));
            if daemon.side == Side::Sink {
                let committed = flow.outstanding().committed;
                let held = Outstanding { number: told.number, rate: told.rate, committed };
                self.agent.adopt(now, id, held);
            }
        }
        let granted = sum(daemon.flows.values().map(|flow| flow.grant.rate));
        let promised = daemon.attachment.grants.fallback(daemon.side);
        self.stand(now, bond, Event::Lost { promised, granted });
    }

    fn stand(&mut self, now: Time, bond: Bond, event: Event) {
        self.standing = self.standing.handle(now, bond, event);
        self.heed(now);
        self.wake(now);
    }

    /// Tells the agent the bound that holds now.
    fn heed(&mut self, now: Time) {
        self.standing = self.standing.at(now);
        self.due = self.standing.poll_timeout(now);
        let bound = self.standing.bound(now);
        if self.bound != bound {
            self.bound = bound;
            self.agent.set_part(bound);
        }
    }

    /// As [`gtp_proto::Agent::tick`].
    fn share_out(
        &mut self,
        now: Time,
        reports: &[(FlowId, Report)],
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        if self.due <= now {
            self.heed(now);
        }
        match &mut self.daemon {
            None => {
                let reports = match self.bound {
                    Some(bound) if reports.iter().any(|(_, report)| report.law.is_alone()) => {
                        within(bound, reports, &mut self.told);
                        &self.told
                    }
                    Some(_) | None => reports,
                };
                self.agent.tick(now, reports, grants);
                self.last.clone_from(grants);
            }
            Some(daemon) => {
                daemon.seat(&self.agent, reports);
                self.told.clear();
                self.told.extend_from_slice(reports);
                self.decide_alone(now);
                let Some(daemon) = &mut self.daemon else { return };
                daemon.tick(now, (&self.told, &self.allowances), grants);
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
    fn new(now: Time, side: AgentSide, found: &Arc<Attachment>) -> Daemon {
        let mut daemon = Daemon {
            attachment: found.clone(),
            side: match side {
                AgentSide::Source => Side::Source,
                AgentSide::Sink => Side::Sink,
            },
            flows: BTreeMap::new(),
            before: BTreeMap::new(),
            details: Vec::new(),
            free: Vec::new(),
            interval: INTERVAL_MIN,
            next: now,
            last: now,
            came: now,
            ring: true,
        };
        daemon.attach(now, found);
        daemon
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
        for flow in self.flows.values_mut() {
            (flow.slot, flow.answered) = (None, false);
        }
        self.attachment = found.clone();
        (self.ring, self.next, self.came) = (true, now, now);
    }

    fn hurry(&mut self, now: Time) {
        self.next = self.next.min((self.last + RECOMPUTE_MIN).max(now));
    }

    /// Knows each session that there is; one that is new as its own agent left it.
    fn seat(&mut self, agent: &Decider, reports: &[(FlowId, Report)]) {
        self.forget(reports);
        for (id, report) in reports {
            let had = self.before.get(id).copied();
            self.flows.entry(*id).or_insert_with(|| Flow::new(agent, *id, report, had));
        }
        self.before.clear();
    }

    fn tick(
        &mut self,
        now: Time,
        (reports, allowances): (&[(FlowId, Report)], &Allowances),
        grants: &mut Vec<(FlowId, Grant)>,
    ) {
        grants.clear();
        self.last = now;
        let pages = self.attachment.clone();
        self.pass_on(now, &pages, (reports, allowances));
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
            if let (false, Some(slot)) = (stays, flow.slot) {
                pages.reports.clear(slot);
                free.push(slot);
            }
            stays
        });
    }

    /// Posts reports and reads grants.
    fn pass_on(
        &mut self,
        now: Time,
        pages: &Attachment,
        (reports, allowances): (&[(FlowId, Report)], &Allowances),
    ) {
        let late = now.since(self.came) > ANSWER_MOST;
        for ((id, report), details) in reports.iter().zip(&self.details) {
            let Some(flow) = self.flows.get_mut(id) else { continue };
            flow.heard(report.echoed);
            if flow.slot.is_none() {
                flow.slot = self.free.pop();
            }
            if late && !flow.answered {
                flow.let_go(self.side);
            }
            let Some(slot) = flow.slot else { continue }; // It waits for one.
            let posted = posted((*id, self.side), report, details, flow.outstanding());
            let posted = match pages.reports.posts_terms() {
                true => with_terms(posted, report, allowances),
                false => posted,
            };
            pages.reports.post(slot, &posted);
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
}

impl Flow {
    /// A session as its own agent left it, with what that granted it last; of a new one there is
    /// nothing.
    fn new(agent: &Decider, id: FlowId, report: &Report, had: Option<Grant>) -> Flow {
        let (number, rate, committed) = agent.outstanding(id);
        let mut issued = VecDeque::new();
        if committed > rate {
            issued.push_back((number.saturating_sub(1), committed));
        }
        if number > 0 {
            issued.push_back((number, rate));
        }
        // At a source nothing is outstanding, and it goes on at its target.
        let rate = if number > 0 { rate } else { had.map_or(Rate::ZERO, |grant| grant.rate) };
        let (weight, interval) = (report.weight, INTERVAL_MIN);
        let grant = Grant { number, rate, offer: rate, weight, interval };
        let begin = Said { number, own: number, word: number };
        let said = report.law.is_alone().then_some(begin).into_iter().collect();
        Flow { slot: None, grant, answered: false, base: number, least: rate, issued, said }
    }

    /// What its source was told last.
    fn told(&self) -> Grant {
        match self.said.back() {
            None => self.grant,
            Some(said) => Grant { number: said.number, rate: self.least, ..self.grant },
        }
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
        let number = own.number.saturating_add(word.number.saturating_sub(self.base));
        if self.said.back().is_none_or(|last| last.number < number) {
            if self.said.len() >= GRANTS_OUTSTANDING {
                // An echo of it then counts as one of what was before it.
                self.said.remove(1);
            }
            self.said.push_back(Said { number, own: own.number, word: word.number });
        }
        let (rate, offer) = (own.rate.min(word.rate), own.offer.min(word.offer));
        self.least = rate;
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
            self.answered = true;
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

    /// Lets go of what it had.
    fn let_go(&mut self, side: Side) {
        if self.grant.rate == Rate::ZERO {
            return;
        }
        let number = match side {
            Side::Source => self.grant.number,
            Side::Sink => self.grant.number.saturating_add(1),
        };
        self.set(Grant { number, rate: Rate::ZERO, offer: Rate::ZERO, ..self.grant });
    }
}

/// The reports, where sessions over which one end decides alone want no more than their shares of
/// `bound`: an agent holds them to nothing else.
fn within(bound: Rate, reports: &[(FlowId, Report)], told: &mut Vec<(FlowId, Report)>) {
    let claim = |(_, report): &(FlowId, Report)| {
        let wanted = match report.phase {
            Phase::Open => report.peer_offer.min(report.demand),
            Phase::Closing => Rate::ZERO,
        };
        Claim { weight: report.weight * report.peer_weight, bound: wanted.as_f64() }
    };
    let claims: Vec<Claim> = reports.iter().map(claim).collect();
    let mut parts = Vec::new();
    shares(bound.as_f64(), &claims, &mut parts);
    told.clear();
    told.extend_from_slice(reports);
    for ((_, report), part) in told.iter_mut().zip(parts) {
        if report.law.is_alone() {
            report.demand = report.demand.min(Rate::from_f64(part.target));
        }
    }
}

fn sum(rates: impl Iterator<Item = Rate>) -> Rate {
    rates.fold(Rate::ZERO, Rate::saturating_add)
}

/// The same with what its client has, and who that is.
fn with_terms(posted: Posted, report: &Report, allowances: &Allowances) -> Posted {
    let Owner { number: _, most: each, weight, class } = report.owner;
    let class = allowances.classes.get(class);
    let (least, most) =
        class.map_or((Rate::ZERO, Rate::UNLIMITED), |class| (class.least, class.most));
    let each = class.map_or(each, |class| each.min(class.each));
    let group = class.map_or(0, |class| class.number);
    let label = match allowances.names.get(&posted.principal) {
        Some(Named { name, groups }) => posted.label.of_client(name, groups),
        None if posted.principal != 0 => posted.label.beside_terms(),
        None => posted.label,
    };
    Posted { terms: Terms { weight, each, group, least, most }, label, ..posted }
}

fn posted(
    (id, side): (FlowId, Side),
    report: &Report,
    details: &Details,
    held: Outstanding,
) -> Posted {
    Posted {
        id,
        side,
        report: *report,
        principal: details.principal,
        transfer: details.transfer,
        held,
        limited_by: details.limited_by,
        path: match details.way {
            Way::Udp => PostedPath::new(details.path),
            Way::Control => PostedPath::new(details.path).over_tcp(),
        },
        packets: details.packets,
        lost: details.lost,
        wire_bytes: details.wire_bytes,
        label: details.label,
        terms: Terms::NONE,
    }
}

#[cfg(test)]
mod caps;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod succession;
#[cfg(test)]
mod world;

#[cfg(test)]
mod tests;
