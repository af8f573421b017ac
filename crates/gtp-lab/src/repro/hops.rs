//! The end-node law at every link: a session has the least expected rate of its whole way.
//!
//! Thesis X.3.B proposes that routers and switches run the allocator of end nodes, too, and tell
//! each source what they expect of its session. Here each link is such a node, with a capacity,
//! an interval and parameters of its own; what it measures left the source so much earlier, and
//! what it says travels back as long. Time goes in milliseconds and rates are constant in each.
//! A link may be said to carry more than it does and have its capacity follow what all lose, as a
//! host's does under the daemon (X.3.D). It knows no packets, no queues and no entry.

use super::formula::Quantities;
use super::law::unit;
use gtp_alloc::endnode::{CapAtTarget, Params, expected_rates};
use gtp_alloc::maxmin::{self, solve};
use gtp_alloc::strain::{LOOK, LOSING, PACKETS_LEAST, Strain, Toll};
use gtp_alloc::{Bytes, Rate};
use gtp_link::Rng;
use serde::Deserialize;
use std::collections::VecDeque;

/// A network of links and what is read off it; `name` and `_` stand before its quantities.
///
/// Of each case: `off`, the largest difference of a session's mean rate over the last five seconds
/// from its max-min rate, as a part of that; `swing`, the same of its rate at any moment then;
/// `settled`, the second from which on all stay within 5 % to the end; `overload`, the largest load
/// of a link as a part of what it was said to carry. Of all of them: `ways`, the links of the
/// shortest and the longest way. Of a network that is given: `rates`, those means, and `goal`, in
/// Mbit/s; `loss`, the part of all that was sent that was lost, by whole seconds; `shared`, what
/// the links that follow share out, as a part of what they are said to carry, by looks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hops {
    name: String,
    seconds: f64,
    /// Networks that are drawn; then none is given.
    drawn: Option<Drawn>,
    /// A network that is given; then none is drawn.
    #[serde(default)]
    links: Vec<LinkSpec>,
    #[serde(default)]
    sessions: Vec<SessionSpec>,
    #[serde(default = "one")]
    seed: u64,
}

/// Hosts at routers that form a ring with chords; ways are shortest ones.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drawn {
    cases: usize,
    routers: usize,
    chords: usize,
    hosts: usize,
    sessions: usize,
}

/// A link: its interval's phase is drawn.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkSpec {
    /// What it is said to carry.
    mbps: f64,
    /// What it carries, if less.
    carries_mbps: Option<f64>,
    /// Whether its capacity follows what all its sessions lose.
    #[serde(default)]
    follows: Follows,
    #[serde(default = "table_vii_1_interval")]
    interval_ms: usize,
    #[serde(default = "table_vii_1_alpha")]
    alpha: f64,
    #[serde(default = "table_vii_1_beta")]
    beta: f64,
}

/// What a link's capacity follows.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Follows {
    /// Nothing.
    #[default]
    Nothing,
    /// What all its sessions lose, and back when they do not.
    Loss,
    /// The same, but it never comes back.
    LossDown,
}

/// A session: its links from one, in order.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionSpec {
    way: Vec<usize>,
    rtt_ms: usize,
    /// Part of its packets that is lost before its last link.
    #[serde(default)]
    loss: f64,
}

fn one() -> u64 {
    1
}

/// The law as the thesis prints it.
fn printed(alpha: f64, beta: f64) -> Params {
    Params { alpha, beta, cap_at_target: CapAtTarget::No }
}

fn table_vii_1_interval() -> usize {
    50
}

fn table_vii_1_alpha() -> f64 {
    Params::TABLE_VII_1.alpha
}

fn table_vii_1_beta() -> f64 {
    Params::TABLE_VII_1.beta
}

/// An hour, in seconds.
const SECONDS_MAX: f64 = 3_600.0;
/// More than any entry draws, and what a laptop runs in a minute.
const MANY: usize = 1_000;
/// Means are over so many of the last milliseconds.
const LAST_MS: usize = 5_000;
/// A session has settled within this part of its rate.
const BAND: f64 = 0.05;
/// Bytes of a packet, for the least that a session must move for its losses to count.
const PACKET: f64 = 1_500.0;

/// A link as it is run.
struct Link {
    said: Rate,
    carries: f64,
    follows: Follows,
    interval: usize,
    phase: usize,
    params: Params,
}

/// A session as it is run.
struct Session {
    way: Vec<usize>,
    rtt: usize,
    loss: f64,
}

/// A network as it is run.
struct Network {
    links: Vec<Link>,
    sessions: Vec<Session>,
}

/// Runs it.
///
/// # Errors
/// A sentence, if a network makes no sense.
pub fn run(hops: &Hops, quantities: &mut Quantities) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{}: {why}", hops.name));
    if !(hops.seconds >= 6.0 && hops.seconds <= SECONDS_MAX) {
        return wrong("a run takes 6 seconds to an hour: the last five are read");
    }
    let networks = match (hops.drawn, hops.links.is_empty()) {
        (Some(drawn), true) if drawn.is_sensible() => drawn.networks(hops.seed),
        (Some(_), true) => return wrong("it draws too much or nothing"),
        (None, false) => vec![hops.given()?],
        (Some(_), false) | (None, true) => return wrong("networks are drawn, or one is given"),
    };
    let courses: Vec<Course> =
        networks.iter().map(|network| Course::run(network, hops.seconds)).collect();
    let mut put = |what: &str, numbers: Vec<f64>| {
        let name = format!("{}_{what}", hops.name);
        quantities.insert(name.clone(), numbers).map_or(Ok(()), |_| Err(format!("{name} twice")))
    };
    put("off", courses.iter().map(Course::off).collect())?;
    put("swing", courses.iter().map(Course::swing).collect())?;
    put("settled", courses.iter().map(Course::settled).collect())?;
    put("overload", courses.iter().map(|course| course.overload).collect())?;
    let ways = || networks.iter().flat_map(|net| net.sessions.iter().map(|s| s.way.len()));
    let ends = [ways().min(), ways().max()];
    put("ways", ends.into_iter().flatten().map(|links| links as f64).collect())?;
    if let ([course], None) = (&courses[..], hops.drawn) {
        put("rates", course.means().map(|rate| rate / 1e6).collect())?;
        put("goal", course.goal.iter().map(|rate| rate / 1e6).collect())?;
        put("loss", course.loss.clone())?;
        put("shared", course.shared.clone())?;
    }
    Ok(())
}

impl Hops {
    fn given(&self) -> Result<Network, String> {
        let mut rng = Rng::new(self.seed);
        let link = |spec: &LinkSpec| Link {
            said: Rate::from_f64(spec.mbps * 1e6),
            carries: spec.carries_mbps.map_or(f64::INFINITY, |mbps| mbps * 1e6),
            follows: spec.follows,
            interval: spec.interval_ms,
            phase: rng.below(spec.interval_ms.max(1) as u64) as usize,
            params: printed(spec.alpha, spec.beta),
        };
        let links: Vec<Link> = self.links.iter().map(link).collect();
        let fine = |link: &Link| {
            link.said > Rate::ZERO
                && link.carries > 0.0
                && link.interval > 0
                && link.params.is_valid()
        };
        if !links.iter().all(fine) {
            return Err(format!("{}: a link's numbers are above zero", self.name));
        }
        let session = |spec: &SessionSpec| Session {
            way: spec.way.iter().map(|link| link.wrapping_sub(1)).collect(),
            rtt: spec.rtt_ms,
            loss: spec.loss,
        };
        let sessions: Vec<Session> = self.sessions.iter().map(session).collect();
        let fine = |session: &Session| {
            let there = session.way.iter().all(|link| *link < links.len());
            let mut once = session.way.clone();
            once.sort_unstable();
            once.dedup();
            there
                && once.len() == session.way.len()
                && !once.is_empty()
                && (0.0..1.0).contains(&session.loss)
        };
        if sessions.is_empty() || !sessions.iter().all(fine) {
            return Err(format!("{}: a way has links, from one, each once", self.name));
        }
        Ok(Network { links, sessions })
    }
}

impl Drawn {
    fn is_sensible(&self) -> bool {
        let all = [self.cases, self.routers, self.hosts, self.sessions];
        self.hosts >= 2 && all.iter().all(|n| (1..=MANY).contains(n)) && self.chords <= MANY
    }

    fn networks(&self, seed: u64) -> Vec<Network> {
        (0..self.cases as u64).map(|case| self.network(seed + case)).collect()
    }

    /// Links are of a tenth of a gigabit to a whole one, parameters and times those of Table VII.2.
    fn network(&self, seed: u64) -> Network {
        let mut rng = Rng::new(seed);
        let mut graph = Graph::new(self, &mut rng);
        let links = graph.links.iter().map(|_| {
            let interval = 10 + rng.below(91) as usize;
            let params = printed(0.05 + 0.1 * unit(&mut rng), 0.05 + 0.1 * unit(&mut rng));
            Link {
                said: Rate::from_f64((100.0 + 900.0 * unit(&mut rng)) * 1e6),
                carries: f64::INFINITY,
                follows: Follows::Nothing,
                interval,
                phase: rng.below(interval as u64) as usize,
                params,
            }
        });
        let links = links.collect();
        let sessions = (0..self.sessions).map(|_| {
            let from = rng.below(self.hosts as u64) as usize;
            let to = (from + 1 + rng.below(self.hosts as u64 - 1) as usize) % self.hosts;
            let way = graph.way(self.routers + from, self.routers + to);
            Session { way, rtt: 1 + rng.below(100) as usize, loss: 0.0 }
        });
        Network { links, sessions: sessions.collect() }
    }
}

/// Who is joined to whom: routers come first, then hosts.
struct Graph {
    /// Of each link its two ends, in its direction.
    links: Vec<(usize, usize)>,
    nodes: usize,
}

impl Graph {
    fn new(drawn: &Drawn, rng: &mut Rng) -> Graph {
        let Drawn { routers, chords, hosts, .. } = *drawn;
        let mut pairs: Vec<(usize, usize)> = (1..routers).map(|r| (r - 1, r)).collect();
        if routers > 2 {
            pairs.push((routers - 1, 0));
        }
        let mut router = || rng.below(routers as u64) as usize;
        pairs.extend((0..chords).map(|_| (router(), router())).filter(|(a, b)| a != b));
        pairs.extend((0..hosts).map(|host| (router(), routers + host)));
        let links = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
        Graph { links, nodes: routers + hosts }
    }

    /// The links of a shortest way.
    fn way(&mut self, from: usize, to: usize) -> Vec<usize> {
        let mut reached: Vec<Option<usize>> = vec![None; self.nodes];
        let mut edge = VecDeque::from([from]);
        while let Some(node) = edge.pop_front() {
            for (link, (_, next)) in self.links.iter().enumerate().filter(|(_, l)| l.0 == node) {
                if reached[*next].is_none() && *next != from {
                    reached[*next] = Some(link);
                    edge.push_back(*next);
                }
            }
        }
        let mut way = Vec::new();
        let mut node = to;
        while let Some(link) = reached[node] {
            way.push(link);
            node = self.links[link].0;
        }
        way.reverse();
        way
    }
}

/// What a link said of a session, on its way to the source.
struct News {
    due: usize,
    hop: usize,
    rate: Rate,
}

/// One run.
struct Course {
    /// The max-min rates, in bit/s.
    goal: Vec<f64>,
    /// For each session, what it had sent by each millisecond, in bit/s times milliseconds.
    sent: Vec<Vec<u64>>,
    overload: f64,
    loss: Vec<f64>,
    shared: Vec<f64>,
}

impl Course {
    fn run(network: &Network, seconds: f64) -> Course {
        let mut world = World::new(network);
        let end = (seconds * 1e3) as usize;
        while world.at < end {
            world.step();
        }
        let goal = goal(network);
        let World { sent, overload, loss, shared, .. } = world;
        let loss = loss.iter().map(|(lost, all)| lost / all.max(f64::MIN_POSITIVE)).collect();
        Course { goal, sent, overload, loss, shared }
    }

    /// Each session's mean rate over the last seconds, in bit/s.
    fn means(&self) -> impl Iterator<Item = f64> {
        let mean = |sent: &Vec<u64>| {
            let last = sent.len() - 1;
            (sent[last] - sent[last - LAST_MS]) as f64 / LAST_MS as f64
        };
        self.sent.iter().map(mean)
    }

    fn off(&self) -> f64 {
        let off = self.means().zip(&self.goal).map(|(mean, goal)| (mean / goal - 1.0).abs());
        off.fold(0.0, f64::max)
    }

    /// How far off a session is in one millisecond.
    fn off_at(&self, t: usize) -> f64 {
        let rates = self.sent.iter().map(|sent| (sent[t] - sent[t - 1]) as f64);
        rates.zip(&self.goal).map(|(rate, goal)| (rate / goal - 1.0).abs()).fold(0.0, f64::max)
    }

    fn swing(&self) -> f64 {
        let end = self.sent[0].len();
        (end - LAST_MS..end).map(|t| self.off_at(t)).fold(0.0, f64::max)
    }

    fn settled(&self) -> f64 {
        let end = self.sent[0].len();
        let away = (1..end).rev().find(|t| self.off_at(*t) > BAND);
        match away {
            Some(t) if t + 1 == end => f64::INFINITY,
            Some(t) => t as f64 / 1e3,
            None => 0.0,
        }
    }
}

/// The exact max-min rates by what links carry, in bit/s.
fn goal(network: &Network) -> Vec<f64> {
    let capacity = network.links.iter().map(|link| link.said.as_f64().min(link.carries));
    let mut exact = maxmin::Network::new(capacity.collect()).expect("capacities are positive");
    for session in &network.sessions {
        let uses: Vec<u32> = session.way.iter().map(|link| *link as u32).collect();
        let session = maxmin::Session { uses: &uses, weight: 1.0, demand: f64::INFINITY };
        exact.add(session).expect("a proper session");
    }
    solve(&exact)
}

/// What the sessions of a link that follows went through since its last look, in bits.
#[derive(Clone, Default)]
struct Ledger {
    strain: Strain,
    sent: Vec<f64>,
    lost: Vec<f64>,
}

/// A network under way.
struct World<'a> {
    network: &'a Network,
    /// Milliseconds so far.
    at: usize,
    /// For each link its sessions, and which of their hops it is.
    members: Vec<Vec<(usize, usize)>>,
    sent: Vec<Vec<u64>>,
    /// For each session the expected rate of each hop, as its source has heard it.
    told: Vec<Vec<Rate>>,
    news: Vec<VecDeque<News>>,
    /// What each link shares out.
    capacity: Vec<Rate>,
    ledgers: Vec<Ledger>,
    overload: f64,
    /// Lost and sent bits of each whole second.
    loss: Vec<(f64, f64)>,
    shared: Vec<f64>,
}

impl<'a> World<'a> {
    fn new(network: &'a Network) -> World<'a> {
        let sessions = network.sessions.len();
        let mut members = vec![Vec::new(); network.links.len()];
        for (k, session) in network.sessions.iter().enumerate() {
            session.way.iter().enumerate().for_each(|(hop, link)| members[*link].push((k, hop)));
        }
        let ledger = |of: &Vec<(usize, usize)>| Ledger {
            sent: vec![0.0; of.len()],
            lost: vec![0.0; of.len()],
            ..Ledger::default()
        };
        World {
            network,
            at: 0,
            ledgers: members.iter().map(ledger).collect(),
            members,
            sent: vec![vec![0]; sessions],
            told: network.sessions.iter().map(|s| vec![Rate::ZERO; s.way.len()]).collect(),
            news: (0..sessions).map(|_| VecDeque::new()).collect(),
            capacity: network.links.iter().map(|link| link.said).collect(),
            overload: 0.0,
            loss: Vec::new(),
            shared: Vec::new(),
        }
    }

    /// One millisecond: sources hear and send, links look at what comes, some say what they expect.
    fn step(&mut self) {
        self.at += 1;
        for k in 0..self.sent.len() {
            while self.news[k].front().is_some_and(|news| news.due <= self.at) {
                let Some(News { hop, rate, .. }) = self.news[k].pop_front() else { break };
                self.told[k][hop] = rate;
            }
            let rate = self.told[k].iter().min().copied().unwrap_or(Rate::ZERO);
            let before = self.sent[k][self.at - 1];
            self.sent[k].push(before + rate.as_bps());
        }
        (0..self.members.len()).for_each(|link| self.pass(link));
        for link in 0..self.members.len() {
            let Link { interval, phase, .. } = self.network.links[link];
            if self.at % interval == phase {
                self.tick(link);
            }
        }
        if (self.at as u64).is_multiple_of(LOOK.as_millis()) {
            (0..self.members.len()).for_each(|link| self.look(link));
        }
    }

    /// How long a session's data take to one of its links, in milliseconds; so does what that says.
    fn delay(&self, k: usize, hop: usize) -> usize {
        let Session { way, rtt, .. } = &self.network.sessions[k];
        rtt * (2 * hop + 1) / (4 * way.len())
    }

    /// What came of a session to a link over the `span` milliseconds that end now, as a mean rate.
    fn mean(&self, k: usize, hop: usize, span: usize) -> Rate {
        let delay = self.delay(k, hop);
        let sent = |t: usize| self.sent[k][t];
        let (until, from) = (self.at.saturating_sub(delay), self.at.saturating_sub(delay + span));
        Rate::from_bps((sent(until) - sent(from)) / span as u64)
    }

    /// What comes to a link in this millisecond: its load, and what is lost there.
    fn pass(&mut self, link: usize) {
        let Link { said, carries, .. } = self.network.links[link];
        let rates: Vec<f64> =
            self.members[link].iter().map(|&(k, hop)| self.mean(k, hop, 1).as_f64()).collect();
        let load: f64 = rates.iter().sum();
        self.overload = self.overload.max(load / said.as_f64());
        // What is lost before a link does not come there.
        let session = |n: usize| &self.network.sessions[self.members[link][n].0];
        let last = |n: usize| self.members[link][n].1 + 1 == session(n).way.len();
        let before = |n: usize| if last(n) { session(n).loss } else { 0.0 };
        let comes: f64 = rates.iter().enumerate().map(|(n, x)| x * (1.0 - before(n))).sum();
        let dropped = (1.0 - carries / comes).max(0.0);
        let second = (self.at - 1) / 1_000;
        self.loss.resize(self.loss.len().max(second + 1), (0.0, 0.0));
        for (n, rate) in rates.iter().enumerate() {
            let lost = rate * (1.0 - (1.0 - before(n)) * (1.0 - dropped)) / 1e3;
            self.loss[second].0 += lost;
            self.loss[second].1 += if last(n) { rate / 1e3 } else { 0.0 };
            self.ledgers[link].sent[n] += rate / 1e3;
            self.ledgers[link].lost[n] += lost;
        }
    }

    /// A link's interval is over: Algorithms 2 and 3, with what it shares out as the capacity.
    fn tick(&mut self, link: usize) {
        let Link { interval, ref params, .. } = self.network.links[link];
        let members = &self.members[link];
        let measured: Vec<Rate> =
            members.iter().map(|&(k, hop)| self.mean(k, hop, interval)).collect();
        let mut expected = vec![Rate::ZERO; measured.len()];
        if !measured.is_empty() {
            expected_rates(params, self.capacity[link], &measured, &mut expected);
        }
        for (&(k, hop), &rate) in members.iter().zip(&expected) {
            let due = self.at + self.delay(k, hop).max(1);
            self.news[k].push_back(News { due, hop, rate });
        }
        // What hops say passes each other: a nearer one's word is there sooner.
        for &(k, _) in members {
            self.news[k].make_contiguous().sort_by_key(|news| news.due);
        }
    }

    /// X.3.D: a link that follows looks at what its sessions lost since it looked last.
    fn look(&mut self, link: usize) {
        let Link { said, follows, .. } = self.network.links[link];
        if follows == Follows::Nothing {
            return;
        }
        let ledger = &mut self.ledgers[link];
        let mut toll = Toll::default();
        for (sent, lost) in ledger.sent.iter_mut().zip(&mut ledger.lost) {
            let (sent, lost) = (std::mem::take(sent), std::mem::take(lost));
            let counts = sent / 8.0 / PACKET >= PACKETS_LEAST as f64;
            toll.moving += usize::from(counts);
            toll.losing += usize::from(counts && lost / sent > LOSING);
            toll.through += Bytes(((sent - lost) / 8.0) as u64);
        }
        let followed = ledger.strain.look(said, LOOK, toll);
        self.capacity[link] = match follows {
            Follows::Nothing | Follows::Loss => followed,
            Follows::LossDown => followed.min(self.capacity[link]),
        };
        self.shared.push(self.capacity[link].as_f64() / said.as_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<Quantities, String> {
        let mut quantities = Quantities::new();
        let hops: Hops = toml::from_str(text).map_err(|e| e.to_string())?;
        run(&hops, &mut quantities).map(|()| quantities)
    }

    const ROW: &str = "name = 'x'\nseconds = 12\n\
        links = [{ mbps = 100, carries_mbps = 50 }, { mbps = 100 }]\n\
        sessions = [{ way = [1, 2], rtt_ms = 40 }, { way = [2], rtt_ms = 10 }]";

    /// What a link drops counts as sent: the law gives each its part of what is said, half is lost.
    #[test]
    fn a_link_that_carries_half_loses_half_and_the_law_does_not_see_it() {
        let found = found(ROW).expect("a run");
        let near = |name: &str, wanted: &[f64]| {
            let close = |(x, y): (&f64, &f64)| (x - y).abs() < 0.02 * y.abs();
            assert!(found[name].iter().zip(wanted).all(close), "{name}: {:?}", found[name]);
        };
        near("x_rates", &[50.0, 50.0]);
        near("x_goal", &[50.0, 50.0]);
        let three = ROW.replace("mbps = 100, carries_mbps = 50", "mbps = 100, carries_mbps = 25");
        let found = super::tests::found(&three).expect("a run");
        // Of 100 that are sent, 25 of the first one's 50 are lost.
        assert!((found["x_loss"][10] - 0.25).abs() < 0.01, "{:?}", found["x_loss"]);
    }

    #[test]
    fn drawn_ways_are_shortest_and_lead_from_host_to_host() {
        let drawn = Drawn { cases: 1, routers: 6, chords: 0, hosts: 9, sessions: 40 };
        let mut rng = Rng::new(7);
        let mut graph = Graph::new(&drawn, &mut rng);
        for (from, to) in (0..8).map(|host| (6 + host, 7 + host)) {
            let way = graph.way(from, to);
            assert_eq!((graph.links[way[0]].0, graph.links[way[way.len() - 1]].1), (from, to));
            let joined = way.windows(2).all(|two| graph.links[two[0]].1 == graph.links[two[1]].0);
            assert!(joined && (2..=5).contains(&way.len()), "a ring of six: {way:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(found(ROW).is_ok());
        for (good, bad) in [
            ("way = [2]", "way = [3]"),
            ("way = [2]", "way = [0]"),
            ("way = [2]", "way = []"),
            ("way = [1, 2]", "way = [1, 1]"),
            ("seconds = 12", "seconds = 5"),
            ("{ mbps = 100 }", "{ mbps = 0 }"),
            ("{ mbps = 100 }", "{ mbps = 100, interval_ms = 0 }"),
            ("{ mbps = 100 }", "{ mbps = 100, alpha = 1 }"),
        ] {
            assert!(found(&ROW.replace(good, bad)).is_err(), "{bad}");
        }
        let both = "drawn = { cases = 1, routers = 2, chords = 0, hosts = 2, sessions = 1 }";
        assert!(found(&format!("{ROW}\n{both}")).is_err(), "drawn and given");
        assert!(found(&format!("name = 'x'\nseconds = 6\n{both}")).is_ok());
        assert!(found("name = 'x'\nseconds = 6").is_err(), "nothing");
    }
}
