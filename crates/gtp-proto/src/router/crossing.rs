//! A host's side: the sessions that cross routers, and what routers let them have.
//!
//! Each of a session's links is one more node beside the two hosts. Before the host's agent
//! decides, the session's report is bounded by what the routers offer and grant; afterwards the
//! grant is. What a link is asked for is what everybody else lets the session have: the other end,
//! this host, the other links, and the session itself. So all nodes follow the same rule, and the
//! rates end at the max-min allocation over all of them. This file knows no sockets and no keys.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use gtp_alloc::{Rate, Time};

use super::passage::{Bounds, Crossed, Wish};
use super::speaker::{Heard, Speaker, Standing};
use super::wire::{self, Answer, Dropped, HostId, Stage, Tags, Use};
use crate::agent::Side;
use crate::limits::{GRANTS_OUTSTANDING, ROUTER_ENTRIES};
use crate::report::{FlowId, Grant, Phase, Report};

/// A one-way link of a router that a session crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The router, by the number that [`Crossings::add_router`] gave.
    pub router: usize,
    /// The link there.
    pub link: u8,
}

/// Which of the host's agents should decide anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// That of the sessions that it sends.
    pub out: bool,
    /// That of the sessions that it receives.
    pub in_: bool,
}

/// What has changed between this host and a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterChange {
    /// It has not answered for too long: it is ignored.
    Silent,
    /// It is ignored and about to be asked again, and nothing has come from it since the last time:
    /// the host's own address may be another one now.
    InVain,
    /// It answers again and is heeded.
    Back,
}

/// The sessions of one host that cross routers; see the module's head.
#[derive(Debug, Default)]
pub struct Crossings {
    routers: Vec<Router>,
    sessions: BTreeMap<Key, Crossing>,
}

/// A session at this host: by its direction and its number there.
type Key = (bool, FlowId);

fn key(side: Side, flow: FlowId) -> Key {
    (side == Side::Sink, flow)
}

/// A router as this host sees it.
#[derive(Debug)]
struct Router {
    speaker: Speaker,
    /// The sessions that cross it, by the names under which it knows them.
    names: BTreeMap<(u8, u64), Key>,
    /// What is to be said next.
    due: BTreeSet<(u8, u64)>,
    /// What was said last of that: what is due is said in turn.
    last: (u8, u64),
    /// Sessions that are gone, each to be said twice.
    gone: VecDeque<(wire::Ask, u8)>,
}

/// One session.
#[derive(Debug)]
struct Crossing {
    session: u64,
    crossed: Vec<Crossed>,
    report: Option<Report>,
    /// At a sink: the grants that its source may be keeping to, the oldest first.
    issued: VecDeque<(u32, Rate)>,
}

/// Farewells that wait; a router forgets the others by itself.
const GONE_WAITING: usize = 1_024;

impl Crossings {
    /// Adds a router, under a name for this host that is drawn for it alone; returns its number.
    pub fn add_router(&mut self, now: Time, host: HostId) -> usize {
        let (names, due, gone) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        let (speaker, last) = (Speaker::new(now, host), (0, 0));
        self.routers.push(Router { speaker, names, due, last, gone });
        self.routers.len() - 1
    }

    /// Whether no session crosses a router.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// A session begins that crosses these links. Both its ends call it `session`.
    pub fn open(&mut self, side: Side, flow: FlowId, session: u64, passages: &[Passage]) {
        let key = key(side, flow);
        let mut crossed = Vec::new();
        for passage in passages {
            let Some(router) = self.routers.get_mut(passage.router) else { continue };
            router.names.insert((passage.link, session), key);
            crossed.push(Crossed::new(passage.router, passage.link));
        }
        if !crossed.is_empty() {
            let (report, issued) = (None, VecDeque::new());
            self.sessions.insert(key, Crossing { session, crossed, report, issued });
        }
    }

    /// A session is over.
    pub fn close(&mut self, side: Side, flow: FlowId) {
        let Some(mut crossing) = self.sessions.remove(&key(side, flow)) else { return };
        for crossed in &mut crossing.crossed {
            let Some(router) = self.routers.get_mut(crossed.router) else { continue };
            let name = (crossed.link, crossing.session);
            router.names.remove(&name);
            router.due.remove(&name);
            // One that is ignored forgets the session by itself, if it ever knew it.
            if let Some(ask) = crossed.ask()
                && router.speaker.standing() == Standing::Heeded
                && router.gone.len() < GONE_WAITING
            {
                router.gone.push_back((wire::Ask { stage: Stage::Gone, ..ask }, FAREWELLS));
            }
            if router.names.is_empty() {
                router.speaker.rests();
            }
        }
    }

    /// What a session reports to its host's agent, bounded by the routers. The report itself is
    /// kept for [`Crossings::settle`].
    pub fn bound(&mut self, side: Side, flow: FlowId, report: Report) -> Report {
        let Some(crossing) = self.sessions.get_mut(&key(side, flow)) else { return report };
        crossing.hear_echo(report.echoed);
        crossing.report = Some(report);
        let bounds = crossing.bounds(&self.routers, None);
        Report {
            peer_offer: report.peer_offer.min(bounds.offer),
            demand: report.demand.min(bounds.rate),
            ..report
        }
    }

    /// What a session hears of what its host's agent has granted: no more than the routers let it
    /// have. What they are asked for follows from both.
    pub fn settle(&mut self, side: Side, flow: FlowId, grant: Grant) -> Grant {
        let Some(crossing) = self.sessions.get_mut(&key(side, flow)) else { return grant };
        let bounds = crossing.bounds(&self.routers, None);
        let (rate, offer) = (grant.rate.min(bounds.rate), grant.offer.min(bounds.offer));
        let held = match side {
            Side::Source => rate,
            Side::Sink => crossing.issue(grant.number, rate),
        };
        crossing.wish(&mut self.routers, grant.offer, held);
        Grant { rate, offer, ..grant }
    }

    /// What routers let a session have if nothing else limited it; unlimited where none does.
    pub fn offer(&self, side: Side, flow: FlowId) -> Rate {
        let crossing = self.sessions.get(&key(side, flow));
        crossing.map_or(Rate::UNLIMITED, |crossing| crossing.bounds(&self.routers, None).offer)
    }

    /// Takes in a datagram that came from the address of this router.
    ///
    /// # Errors
    /// Why it was dropped.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        router: usize,
        datagram: &[u8],
        tags: &dyn Tags,
    ) -> Result<News, Dropped> {
        let (head, entries) = wire::open(tags, Use::ToHost, datagram)?;
        let at = self.routers.get_mut(router).ok_or(Dropped::Misdirected)?;
        let answers = match head.kind {
            wire::Kind::Answer => Answer::decode_all(entries)?,
            wire::Kind::Ask | wire::Kind::Pass => Vec::new(),
        };
        if at.speaker.hear(now, &head)? == Heard::NewRun {
            let crossed = self.sessions.values_mut().flat_map(|crossing| &mut crossing.crossed);
            crossed.filter(|crossed| crossed.router == router).for_each(Crossed::begin_anew);
            return Ok(News::default());
        }
        let mut news = News::default();
        for answer in &answers {
            let Some(&key) = at.names.get(&(answer.link, answer.session)) else { continue };
            let Some(crossing) = self.sessions.get_mut(&key) else { continue };
            let mut all = crossing.crossed.iter_mut();
            if let Some(c) = all.find(|c| (c.router, c.link) == (router, answer.link)) {
                c.hear(answer);
            }
            (news.out, news.in_) = (news.out | !key.0, news.in_ | key.0);
        }
        Ok(news)
    }

    /// Does what is due at `now`. Returns which agents should decide anew, because a router is
    /// silent.
    pub fn handle_timeout(&mut self, now: Time) -> News {
        let mut news = News::default();
        for (index, router) in self.routers.iter_mut().enumerate() {
            if router.speaker.look(now) {
                news = News { out: true, in_: true };
                router.due.clear();
                router.gone.clear();
                let crossed = self.sessions.values_mut().flat_map(|crossing| &mut crossing.crossed);
                crossed.filter(|crossed| crossed.router == index).for_each(Crossed::forget);
            }
            if router.speaker.repeat_due() <= now && !router.names.is_empty() {
                router.speaker.repeats(now);
                // Of one that is ignored it is only to be seen whether it is there.
                let most = match router.speaker.standing() {
                    Standing::Heeded => usize::MAX,
                    Standing::Ignored => ROUTER_ENTRIES,
                };
                router.due.extend(router.names.keys().take(most));
            }
        }
        news
    }

    /// What has changed between this host and a router, by its number, since the last call.
    pub fn poll_change(&mut self) -> Option<(usize, RouterChange)> {
        self.routers.iter_mut().enumerate().find_map(|(index, router)| {
            let change = match router.speaker.take_change() {
                Some(Standing::Ignored) => Some(RouterChange::Silent),
                Some(Standing::Heeded) => Some(RouterChange::Back),
                None => router.speaker.take_in_vain().then_some(RouterChange::InVain),
            };
            change.map(|change| (index, change))
        })
    }

    /// Writes the next datagram for this router to `out`; `false` if there is none at `now`.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        router: usize,
        tags: &dyn Tags,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(at) = self.routers.get_mut(router) else { return false };
        if at.is_idle() || at.gone.is_empty() && at.speaker.news_due() > now {
            return false;
        }
        let head = at.speaker.ask(now);
        wire::begin(&head, out);
        let farewells = at.gone.len().min(ROUTER_ENTRIES);
        for (ask, times) in at.gone.drain(..farewells).collect::<Vec<_>>() {
            ask.encode(out);
            if times > 1 {
                at.gone.push_back((ask, times - 1));
            }
        }
        for _ in farewells..ROUTER_ENTRIES {
            let Some((link, session)) = at.pop_due() else { break };
            let crossing = at.names.get(&(link, session)).and_then(|k| self.sessions.get_mut(k));
            let mut all = crossing.into_iter().flat_map(|crossing| &mut crossing.crossed);
            let crossed = all.find(|c| (c.router, c.link) == (router, link));
            if let Some(ask) = crossed.and_then(Crossed::ask) {
                ask.encode(out);
            }
        }
        wire::end(tags, Use::ToRouter, out);
        if at.names.is_empty() {
            at.speaker.rests(); // It need not answer to farewells.
        }
        true
    }

    /// When to call [`Crossings::handle_timeout`] and [`Crossings::poll_transmit`] next.
    pub fn poll_timeout(&self) -> Time {
        self.routers.iter().map(Router::poll_timeout).min().unwrap_or(Time::MAX)
    }
}

/// How often a host says that a session is over: one datagram may be lost.
const FAREWELLS: u8 = 2;

impl Router {
    /// The next session that is due, in turn.
    fn pop_due(&mut self) -> Option<(u8, u64)> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.due.range(after).next().or_else(|| self.due.first()).copied()?;
        self.due.remove(&next);
        self.last = next;
        Some(next)
    }

    fn is_idle(&self) -> bool {
        self.due.is_empty() && self.gone.is_empty()
    }

    fn poll_timeout(&self) -> Time {
        let news = if self.is_idle() { Time::MAX } else { self.speaker.news_due() };
        if self.names.is_empty() {
            return news;
        }
        news.min(self.speaker.repeat_due()).min(self.speaker.silence_due())
    }
}

impl Crossing {
    /// What the routers let it have together, but for the link at this place.
    fn bounds(&self, routers: &[Router], but: Option<usize>) -> Bounds {
        let mut all = Bounds::NONE;
        for (place, crossed) in self.crossed.iter().enumerate() {
            let standing = routers.get(crossed.router).map(|router| router.speaker.standing());
            if Some(place) != but && standing == Some(Standing::Heeded) {
                let bounds = crossed.bounds();
                all.rate = all.rate.min(bounds.rate);
                all.offer = all.offer.min(bounds.offer);
            }
        }
        all
    }

    /// At a sink: its source keeps to this grant, or a newer one.
    fn hear_echo(&mut self, echoed: u32) {
        while self.issued.get(1).is_some_and(|&(number, _)| number <= echoed) {
            self.issued.pop_front();
        }
    }

    /// At a sink: this is granted now. Returns the most that its source may be sending.
    fn issue(&mut self, number: u32, rate: Rate) -> Rate {
        match self.issued.back_mut() {
            Some(last) if last.0 == number => last.1 = last.1.max(rate),
            Some(_) | None => {
                if self.issued.len() >= GRANTS_OUTSTANDING {
                    let oldest = self.issued.pop_front();
                    let next = self.issued.front_mut();
                    if let (Some(oldest), Some(next)) = (oldest, next) {
                        next.1 = next.1.max(oldest.1);
                    }
                }
                self.issued.push_back((number, rate));
            }
        }
        self.issued.iter().map(|&(_, rate)| rate).max().unwrap_or(rate)
    }

    /// Works out what each link is asked for.
    fn wish(&mut self, routers: &mut [Router], own_offer: Rate, held: Rate) {
        let Some(report) = self.report else { return };
        let own = report.peer_offer.min(report.demand).min(own_offer);
        let (stage, own) = match report.phase {
            Phase::Open => (Stage::Open, own),
            Phase::Closing => (Stage::Closing, Rate::ZERO),
        };
        for place in 0..self.crossed.len() {
            let bound = own.min(self.bounds(routers, Some(place)).offer);
            let (session, rtt) = (self.session, report.rtt);
            let weight = report.weight * report.peer_weight;
            let crossed = &mut self.crossed[place];
            let news = crossed.wish(&Wish { session, stage, weight, bound, held, rtt });
            if news
                && let Some(router) = routers.get_mut(crossed.router)
                && router.speaker.standing() == Standing::Heeded
            {
                router.due.insert((crossed.link, session));
            }
        }
    }
}
