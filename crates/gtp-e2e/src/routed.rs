//! Routers that share out links between namespaces: what each session gets beside its max-min rate
//! over all hosts and links, a second after each change.
//!
//! Networks of two levels are drawn: sites with hosts, each behind a link out and one in that a
//! `gtp router` in the site shares out. Sessions are `gtp get`s between hosts of different sites;
//! some begin later, and some are stopped. The links' emulation says what they dropped. One more
//! network is that of AECP's Figure 9: three links in a row. And one has hosts that know no router
//! beside hosts that do.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gtp_alloc::maxmin::{Network, Session, solve};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::lab::{Lab, namespace};

/// Networks that are drawn.
const NETWORKS: u64 = 20;
/// What is shared out of a link, as a part of what it carries: requests and receipts need the rest.
const SHARED_OUT: f64 = 0.9;
/// Seconds of each phase. After the first one the late sessions begin, and after the second one
/// the brief ones end.
const PHASE: f64 = 4.0;
/// A rate counts from so long after a change: the moment at which the last of the sessions that
/// begin has its first data, or at which some end.
const SETTLES: f64 = 1.0;
/// A session that begins has this long until its first data: a process starts, and TLS.
const BEGINS: f64 = 3.0;
/// How far a rate may be from the max-min one, as a part of that.
const OFF: f64 = 0.01;
/// What statuses of 106 bytes take of a session's rate, in Mbit/s, where there are two in each
/// control interval of 10 ms: one is due, and one tells of news. Counters of data do not have them.
const STATUSES: f64 = 0.17;

/// A network: one-way links that routers share out, hosts, and where each is.
struct Drawn {
    /// By site: what its links out and in share out, and their delay in milliseconds.
    sites: Vec<([f64; 2], f64)>,
    /// Each host's site, what it sends, and what each of its sessions receives: those that it
    /// receives are processes of their own.
    hosts: Vec<(usize, [f64; 2])>,
    sessions: Vec<Course>,
}

/// A session: its hosts, and the phases in which it runs.
#[derive(Clone, Copy)]
struct Course {
    from: usize,
    to: usize,
    first: usize,
    last: usize,
}

const PHASES: usize = 3;

fn drawn(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed);
    let mut mbit = |least: u64, more: u64| (least + rng.below(more)) as f64;
    let sites: Vec<_> = (0..3).map(|_| ([mbit(20, 30), mbit(20, 30)], mbit(1, 6))).collect();
    let hosts: Vec<_> = (0..6).map(|n| (n / 2, [mbit(15, 45), mbit(15, 45)])).collect();
    let sessions = (0..5 + rng.below(16) as usize)
        .map(|n| {
            let from = rng.below(6) as usize;
            let others = (0..6).filter(|to| to / 2 != from / 2).collect::<Vec<usize>>();
            let to = others[rng.below(others.len() as u64) as usize];
            let (first, last) = match n % 4 {
                1 => (1, PHASES - 1),
                2 => (0, 1),
                _ => (0, PHASES - 1),
            };
            Course { from, to, first, last }
        })
        .collect();
    Drawn { sites, hosts, sessions }
}

impl Drawn {
    /// The max-min rates of the sessions of a phase, in Mbit/s.
    fn fair(&self, phase: usize) -> Result<Vec<(usize, f64)>> {
        let hosts = self.hosts.iter().map(|(_, rates)| &rates[0]);
        let capacities = hosts.chain(self.sites.iter().flat_map(|(rates, _)| rates));
        let mut network = Network::new(capacities.copied().collect())?;
        let first = self.hosts.len() as u32;
        let runs = |course: &Course| (course.first..=course.last).contains(&phase);
        let open: Vec<usize> =
            (0..self.sessions.len()).filter(|&n| runs(&self.sessions[n])).collect();
        for &n in &open {
            let Course { from, to, .. } = self.sessions[n];
            let site = |host: usize| self.hosts[host].0 as u32;
            let uses = [from as u32, first + 2 * site(from), first + 2 * site(to) + 1];
            let demand = self.hosts[to].1[1];
            network.add(Session { uses: &uses, weight: 1.0, demand })?;
        }
        Ok(open.into_iter().zip(solve(&network)).collect())
    }

    fn network(&self) -> String {
        let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
        text += &link("lan", "delay = \"50us\"");
        for (s, (rates, delay)) in self.sites.iter().enumerate() {
            text += &link(&format!("out{s}"), &narrow(rates[0], *delay));
            text += &link(&format!("in{s}"), &narrow(rates[1], *delay));
            text += &host(&format!("r{s}"), &address(100 + s));
        }
        for n in 0..self.hosts.len() {
            text += &host(&format!("h{n}"), &address(n));
        }
        for (n, (site, _)) in self.hosts.iter().enumerate() {
            let (own, router) = (format!("h{n}"), format!("r{site}"));
            text += &route(&own, &router, &["lan".into()]);
            text += &route(&router, &own, &["lan".into()]);
            for (m, (other, _)) in self.hosts.iter().enumerate().filter(|(_, h)| h.0 != *site) {
                text +=
                    &route(&own, &format!("h{m}"), &[format!("out{site}"), format!("in{other}")]);
            }
        }
        text
    }
}

fn link(name: &str, fields: &str) -> String {
    format!("[[link]]\nname = \"{name}\"\n{fields}\n")
}

/// A link of which a router shares out so many Mbit/s.
fn narrow(mbit: f64, delay_ms: f64) -> String {
    let bits = (mbit * 1e6 / SHARED_OUT).round();
    // Long enough that a program which is held up for a while loses nothing when it catches up.
    format!("rate = \"{bits}bit\"\nqueue = \"100ms\"\ndelay = \"{delay_ms}ms\"")
}

fn host(name: &str, address: &str) -> String {
    let namespace = namespace(name);
    format!(
        "[[host]]\nname = \"{name}\"\nnamespace = \"{namespace}\"\naddress = [\"{address}/24\"]\n"
    )
}

fn route(from: &str, to: &str, links: &[String]) -> String {
    let links: Vec<String> = links.iter().map(|link| format!("\"{link}\"")).collect();
    format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [{}]\n", links.join(", "))
}

fn address(n: usize) -> String {
    format!("10.77.0.{}", 10 + n)
}

/// A laboratory with routers, servers and sessions.
struct World<'t> {
    lab: Lab,
    tools: &'t Tools,
    key: PathBuf,
    sessions: Vec<Option<(Child, f64)>>,
}

/// Where a router listens.
fn router_at(n: usize) -> String {
    format!("{}:4811", address(100 + n))
}

impl<'t> World<'t> {
    fn new(network: &str, tools: &'t Tools) -> Result<World<'t>> {
        let lab = Lab::open_file(network, &tools.gtp)?;
        let key = lab.dir.path().join("key");
        let object = lab.dir.path().join("data");
        fs::create_dir(&object)?;
        File::create(object.join("object"))?.set_len(1 << 40)?;
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&key)?;
        file.write_all("5a".repeat(32).as_bytes())?;
        Ok(World { lab, tools, key, sessions: Vec::new() })
    }

    /// Starts the router of this number for a link of these rates out and in.
    fn router(&mut self, n: usize, rates: [f64; 2]) -> Result<()> {
        let [out, in_] = rates.map(|mbit| format!("{}kbit", (mbit * 1e3).round()));
        let (link, key) = (format!("{out}/{in_}"), self.key.display().to_string());
        let listen = router_at(n);
        let words = ["router", "--listen", &listen, "--link", &link, "--key", &key];
        let program = self.tools.gtp.display().to_string();
        self.lab.start(&format!("r{n}"), &program, &words)
    }

    /// Has each server's list name a key for each session: those that are not listed would share
    /// one part by their address.
    fn list_keys(&self, sessions: usize, servers: usize) -> Result<()> {
        let mut list = Vec::new();
        for n in 0..sessions {
            let mut id = Command::new(&self.tools.gtp);
            let said = id.env("GTP_CONFIG_DIR", self.lab.config(&format!("get{n}"))).arg("id");
            let said = said.output()?;
            ensure!(said.status.success(), "session {n} has no key");
            list.extend(said.stdout);
        }
        for n in 0..servers {
            let config = self.lab.config(&format!("h{n}-4810"));
            fs::create_dir_all(&config)?;
            fs::write(config.join("authorized_keys"), &list)?;
        }
        Ok(())
    }

    /// Starts a server of this capacity that asks these routers.
    fn serve(&mut self, n: usize, capacity: f64, routers: &[usize]) -> Result<()> {
        let (data, capacity) = (self.lab.dir.path().join("data"), kbit(capacity));
        let mut options = vec!["--public", "--daemon", "off", "--capacity-out", &capacity];
        let words: Vec<String> = routers.iter().map(|&r| self.word(r)).collect();
        for word in &words {
            options.extend(["--router", word]);
        }
        self.lab.serve(&format!("h{n}"), &data, &options)?;
        Ok(())
    }

    fn word(&self, router: usize) -> String {
        format!("{},key={}", router_at(router), self.key.display())
    }

    /// Starts the session of this number, from one host to another and into nothing, with a trace.
    fn get(
        &mut self,
        n: usize,
        (from, to): (usize, usize),
        capacity: f64,
        routers: &[usize],
    ) -> Result<()> {
        let config = self.lab.config(&format!("get{n}"));
        let mut get: Command = self.lab.command(&format!("h{to}"), &self.tools.gtp);
        get.env("GTP_CONFIG_DIR", config);
        get.args(["get", &format!("gtp://{}/object", address(from)), "-", "--accept-new"]);
        get.args(["--daemon", "off", "--capacity-in", &kbit(capacity), "--trace"]);
        get.arg(self.trace(n));
        for &router in routers {
            get.args(["--router", &self.word(router)]);
        }
        let null = || Stdio::null();
        let child = get.stdin(null()).stdout(null()).stderr(null()).spawn()?;
        let now = self.lab.now();
        self.sessions.resize_with(self.sessions.len().max(n + 1), || None);
        self.sessions[n] = Some((child, now));
        Ok(())
    }

    fn trace(&self, n: usize) -> PathBuf {
        self.lab.dir.path().join(format!("trace{n}"))
    }

    fn wait_until(&self, at: f64) {
        let left = (at - self.lab.now()).max(0.0);
        std::thread::sleep(Duration::from_secs_f64(left));
    }

    /// Ends a session cleanly, so that its trace is whole.
    fn stop(&mut self, n: usize) -> Result<()> {
        let Some((child, _)) = self.sessions.get_mut(n).and_then(Option::as_mut) else {
            return Ok(());
        };
        // `ip netns exec` becomes the program: the number is the program's.
        ensure!(
            Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?.success(),
            "a session has ended by itself"
        );
        child.wait()?;
        Ok(())
    }

    /// The mean rate in Mbit/s of a session between two times of the laboratory.
    fn rate(&self, n: usize, (from, until): (f64, f64)) -> Result<f64> {
        let began = self.sessions[n].as_ref().context("it never began")?.1;
        rate_in(&self.trace(n), (from - began, until - began))
            .with_context(|| format!("session {n} from {from:.1} to {until:.1} s"))
    }

    /// When the first data of a session came, by the laboratory's time.
    fn first_data(&self, n: usize) -> Result<f64> {
        let began = self.sessions[n].as_ref().context("it never began")?.1;
        let text = fs::read_to_string(self.trace(n))?;
        let mut samples = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let moves = |line: &Value| line["wire_bytes"].as_u64().is_some_and(|bytes| bytes > 0);
        let first = samples.find(moves).with_context(|| format!("session {n} moves nothing"))?;
        Ok(began + first["seconds"].as_f64().context("no time")?)
    }

    /// What limited a session at a time of the laboratory.
    fn limited_by(&self, n: usize, at: f64) -> Result<String> {
        let began = self.sessions[n].as_ref().context("it never began")?.1;
        let text = fs::read_to_string(self.trace(n))?;
        let samples = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut before =
            samples.filter(|line| line["seconds"].as_f64().is_some_and(|s| s <= at - began));
        let last = before.next_back().context("no samples")?;
        Ok(last["limited_by"].as_str().unwrap_or("nothing").to_owned())
    }

    /// Packets that all links have dropped.
    fn dropped(&self) -> Result<u64> {
        let links = self.lab.emulator().stats()?.links;
        Ok(links.iter().map(|link| link.dropped_queue).sum())
    }
}

fn kbit(mbit: f64) -> String {
    format!("{}kbit", (mbit * 1e3).round())
}

/// The mean rate in Mbit/s in a trace between two of its times.
fn rate_in(trace: &Path, (from, until): (f64, f64)) -> Result<f64> {
    let text = fs::read_to_string(trace)?;
    let samples = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let all: Vec<(f64, f64)> = samples
        .filter_map(|line| Some((line["seconds"].as_f64()?, line["wire_bytes"].as_f64()?)))
        .filter(|(at, _)| (from..=until).contains(at))
        .collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        anyhow::bail!("no samples");
    };
    ensure!(last.0 - first.0 > 0.5 * (until - from), "too few samples");
    Ok((last.1 - first.1) * 8e-6 / (last.0 - first.0))
}

/// All cases: with a number, one drawn network; `router-row` and `router-strangers` the others.
///
/// # Errors
/// If a network or a process cannot be started.
pub fn run(name: &str, tools: &Tools) -> Result<Vec<Value>> {
    match name.strip_prefix("router-") {
        Some("row") => Ok(vec![row_of_links(tools)?]),
        Some("strangers") => Ok(vec![strangers(tools)?]),
        Some(seed) => Ok(vec![network(seed.parse().context("no such network")?, tools)?]),
        None => {
            let mut rows = vec![row_of_links(tools)?, strangers(tools)?];
            for seed in 1..=NETWORKS {
                rows.push(network(seed, tools)?);
            }
            Ok(rows)
        }
    }
}

/// One drawn network.
fn network(seed: u64, tools: &Tools) -> Result<Value> {
    let drawn = drawn(seed);
    let mut world = World::new(&drawn.network(), tools)?;
    for (n, (rates, _)) in drawn.sites.iter().enumerate() {
        world.router(n, *rates)?;
    }
    world.list_keys(drawn.sessions.len(), drawn.hosts.len())?;
    for (n, (site, rates)) in drawn.hosts.iter().enumerate() {
        world.serve(n, rates[0], &[*site])?;
    }
    let mut changes = Vec::new();
    for phase in 0..PHASES {
        for n in 0..drawn.sessions.len() {
            let course = drawn.sessions[n];
            if course.last + 1 == phase {
                world.stop(n)?;
            }
            if course.first == phase {
                let (site, rates) = drawn.hosts[course.to];
                world.get(n, (course.from, course.to), rates[1], &[site])?;
            }
        }
        changes.push(world.lab.now());
        world.wait_until(world.lab.now() + BEGINS + SETTLES + PHASE);
    }
    changes.push(world.lab.now());
    for n in 0..drawn.sessions.len() {
        if drawn.sessions[n].last + 1 == PHASES {
            world.stop(n)?;
        }
    }
    figures(seed, &drawn, &world, &changes)
}

fn figures(seed: u64, drawn: &Drawn, world: &World<'_>, changes: &[f64]) -> Result<Value> {
    let (mut worst, mut missed, mut count) = (0.0_f64, Vec::new(), 0);
    for (phase, ends) in changes.windows(2).enumerate() {
        let fair = drawn.fair(phase)?;
        let mut changed = ends[0];
        for &(n, _) in fair.iter().filter(|(n, _)| drawn.sessions[*n].first == phase) {
            changed = changed.max(world.first_data(n)?);
        }
        for (n, fair) in fair {
            let got = world.rate(n, (changed + SETTLES, ends[1]))?;
            let off = (got - fair).max(fair - got - STATUSES).max(0.0) / fair;
            (worst, count) = (worst.max(off), count + 1);
            if off > OFF {
                let by = world.limited_by(n, ends[1])?;
                missed.push(format!(
                    "network {seed}, phase {phase}, session {n}: {got:.2} Mbit/s of {fair:.2}, \
                     limited by {by}"
                ));
            }
        }
    }
    let dropped = world.dropped()?;
    if dropped > 0 {
        missed.push(format!("network {seed}: shared links drop {dropped} packets"));
    }
    let sessions = drawn.sessions.len();
    Ok(json!({
        "case": "router",
        "network": seed,
        "sessions": sessions,
        "rates_compared": count,
        "worst_share_off": worst,
        "dropped": dropped,
        "missed": missed,
    }))
}

/// Three links in a row (AECP, Figure 9): one session crosses all, three cross one each.
fn row_of_links(tools: &Tools) -> Result<Value> {
    const SHARED: [f64; 3] = [40.0, 20.0, 40.0];
    const FAIR: [f64; 4] = [10.0, 30.0, 10.0, 30.0];
    let ways = [(0, 3), (0, 1), (1, 2), (2, 3)];
    let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
    text += &link("lan", "delay = \"50us\"");
    text += &link("back", "delay = \"10ms\"");
    for (n, rate) in SHARED.iter().enumerate() {
        text += &link(&format!("row{n}"), &narrow(*rate, 5.0));
        text += &host(&format!("r{n}"), &address(100 + n));
    }
    for (n, (from, to)) in ways.iter().enumerate() {
        let [source, sink] = [2 * n, 2 * n + 1].map(|n| format!("h{n}"));
        text += &host(&source, &address(2 * n));
        text += &host(&sink, &address(2 * n + 1));
        let links: Vec<String> = (*from..*to).map(|n| format!("row{n}")).collect();
        text += &route(&source, &sink, &links);
        text += &route(&sink, &source, &["back".into()]);
        for r in *from..*to {
            text += &route(&source, &format!("r{r}"), &["lan".into()]);
            text += &route(&format!("r{r}"), &source, &["lan".into()]);
        }
    }
    let mut world = World::new(&text, tools)?;
    for (n, rate) in SHARED.iter().enumerate() {
        world.router(n, [*rate; 2])?;
    }
    for (n, (from, to)) in ways.iter().enumerate() {
        world.serve(2 * n, 300.0, &(*from..*to).collect::<Vec<usize>>())?;
        world.get(n, (2 * n, 2 * n + 1), 300.0, &[])?;
    }
    let began = world.lab.now() + BEGINS + SETTLES;
    world.wait_until(began + PHASE);
    let until = world.lab.now();
    (0..ways.len()).try_for_each(|n| world.stop(n))?;
    let rates: Vec<f64> =
        (0..ways.len()).map(|n| world.rate(n, (began, until))).collect::<Result<_>>()?;
    let (mut missed, dropped) = (Vec::new(), world.dropped()?);
    for (n, (got, fair)) in rates.iter().zip(FAIR).enumerate() {
        if (got - fair).max(fair - got - STATUSES) > OFF * fair {
            missed.push(format!("flow {}: {got:.2} Mbit/s of {fair}", n + 1));
        }
    }
    if dropped > 0 {
        missed.push(format!("the links in a row drop {dropped} packets"));
    }
    Ok(json!({
        "case": "router-row",
        "rates": rates,
        "fair": FAIR,
        "dropped": dropped,
        "missed": missed,
    }))
}

/// Two sessions over one link: what one of them has that knows no router, while the other asks one
/// and while it does not.
fn strangers(tools: &Tools) -> Result<Value> {
    const SHARED: f64 = 30.0;
    let mut rates = Vec::new();
    for asked in [false, true] {
        let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
        text += &link("lan", "delay = \"50us\"");
        text += &link("back", "delay = \"5ms\"");
        text += &link("shared", &narrow(SHARED, 5.0));
        text += &host("r0", &address(100));
        for n in 0..2 {
            let [source, sink] = [2 * n, 2 * n + 1].map(|n| format!("h{n}"));
            text += &host(&source, &address(2 * n));
            text += &host(&sink, &address(2 * n + 1));
            text += &route(&source, &sink, &["shared".into()]);
            text += &route(&sink, &source, &["back".into()]);
            text += &route(&source, "r0", &["lan".into()]);
            text += &route("r0", &source, &["lan".into()]);
        }
        let mut world = World::new(&text, tools)?;
        world.router(0, [SHARED / 2.0; 2])?;
        for n in 0..2 {
            let routers: &[usize] = if asked && n == 1 { &[0] } else { &[] };
            world.serve(2 * n, 300.0, routers)?;
            world.get(n, (2 * n, 2 * n + 1), 300.0, &[])?;
        }
        let began = world.lab.now() + BEGINS + 2.0;
        world.wait_until(began + 3.0 * PHASE);
        let until = world.lab.now();
        (0..2).try_for_each(|n| world.stop(n))?;
        rates.push(world.rate(0, (began, until))?);
    }
    let [without, with] = [rates[0], rates[1]];
    let missed = (with < 0.95 * without).then(|| {
        format!("a host that knows no router has {with:.2} Mbit/s, and {without:.2} without one")
    });
    Ok(json!({
        "case": "router-strangers",
        "with": with,
        "without": without,
        "missed": missed.into_iter().collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_network_is_one_that_the_emulator_reads_and_has_5_to_20_sessions() {
        for seed in 1..=NETWORKS {
            let drawn = drawn(seed);
            gtp_emu::NetSpec::parse(&drawn.network()).unwrap();
            assert!((5..=20).contains(&drawn.sessions.len()));
            let fair = drawn.fair(0).unwrap();
            assert!(fair.iter().all(|(_, rate)| *rate > 1.0), "network {seed}: {fair:?}");
        }
    }
}
