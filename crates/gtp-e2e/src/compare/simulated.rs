//! A scenario in the packet-level simulator, sampled as the laboratory samples the emulator.
//!
//! The world is built from the very network file that the emulator reads, so that both have the
//! same links in the same order on the same routes. What it does not have: TCP and TLS before a
//! session, the machine's own delays, and clocks that are read late.

use anyhow::{Context, Result, ensure};
use gtp_alloc::{Rate, Span, Time};
use gtp_emu::NetSpec;
use gtp_emu::stats::{LinkRow, PathRow, Snapshot, WayRow};
use gtp_link::LinkId;
use gtp_proto::{Kept, Law, PathUse};
use gtp_sim::packet::{HostSpec, NodeId, Path, SessionId, SessionSpec, World};

use super::{INTERVAL_MS, Run, Scenario};
use crate::record::Record;

/// Between two samples, as in the laboratory.
const EVERY: Span = Span::from_millis(10);

/// After the last stop: longer than what is under way then needs.
const TAIL: Span = Span::from_secs(1);

/// Runs a scenario in virtual time, each session's start `delays` seconds after its planned one.
///
/// # Errors
/// If the world cannot be built.
pub fn simulate(scenario: &Scenario, delays: &[f64]) -> Result<Run> {
    let lives = &scenario.lives;
    ensure!(delays.len() == lives.len(), "{} delays, {} sessions", delays.len(), lives.len());
    let spec = NetSpec::parse(&scenario.net.file())?;
    let mut made = Made::of(&spec, scenario);
    for (i, (life, delay)) in lives.iter().zip(delays).enumerate() {
        made.add(&spec, scenario, i, (life.0 + delay, life.1))?;
    }
    let end = time(scenario.end()) + TAIL;
    let mut samples = vec![made.sample()];
    while made.world.now() < end {
        let next = made.world.now() + EVERY;
        made.world.run_until(next);
        samples.push(made.sample());
    }
    Ok(Run { record: Record(samples), zero: 0.0, hash: Some(made.world.hash()) })
}

fn time(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// A world, with what is sampled off it.
struct Made {
    world: World,
    hosts: Vec<NodeId>,
    /// Numbers of the world's links, in the file's order.
    links: Vec<LinkId>,
    names: Vec<String>,
    sessions: Vec<(String, SessionId)>,
}

impl Made {
    fn of(spec: &NetSpec, scenario: &Scenario) -> Made {
        let mut world = World::new(spec.emulator.seed);
        let links = spec.links.iter().map(|l| world.add_seeded_link(l.spec.clone(), l.seed));
        let links = links.collect();
        let interval = match scenario.law {
            Law::EndNode { .. } => Some(Span::from_millis(INTERVAL_MS)),
            Law::Grant | Law::SourceAlone | Law::SinkAlone | Law::SessionAlone => None,
        };
        let capacity = Rate::from_f64(scenario.capacity);
        let host = |name: &str| match (name.starts_with("sink"), scenario.net.limits_sources()) {
            (true, _) => HostSpec { in_: capacity, interval, ..HostSpec::default() },
            (false, true) => HostSpec { out: capacity, interval, ..HostSpec::default() },
            (false, false) => HostSpec::default(),
        };
        let hosts = spec.hosts.iter().map(|h| world.add_host(host(&h.name))).collect();
        let names = spec.links.iter().map(|l| l.name.clone()).collect();
        Made { world, hosts, links, names, sessions: Vec::new() }
    }

    /// Adds session `i`.
    fn add(
        &mut self,
        spec: &NetSpec,
        scenario: &Scenario,
        i: usize,
        life: (f64, f64),
    ) -> Result<()> {
        let named = |name: &str| spec.hosts.iter().position(|h| h.name == name);
        let (source, sink) = scenario.net.ends(i);
        let source = named(&source).context("the network lacks a source")?;
        let sink = named(&sink).context("the network lacks a sink")?;
        let id = self.world.add_session(SessionSpec {
            start: time(life.0),
            stop: Some(time(life.1)),
            law: scenario.law,
            kept: match scenario.path {
                PathUse::Unbounded => Kept::ByNothing,
                PathUse::Bounded(_) => Kept::ByPathBound,
            },
            down: self.way(spec, source, sink)?,
            up: self.way(spec, sink, source)?,
            ..SessionSpec::new(self.hosts[source], self.hosts[sink])
        })?;
        self.sessions.push((scenario.net.route(i), id));
        Ok(())
    }

    /// The links of the file's route between two hosts.
    fn way(&self, spec: &NetSpec, from: usize, to: usize) -> Result<Path> {
        let found = spec.routes.iter().find(|r| r.from == from && r.to == to);
        let found = found.context("the network lacks a route")?;
        Ok(Path::Links(found.links.iter().map(|&n| self.links[n]).collect()))
    }

    /// What the emulator would say of itself now.
    fn sample(&self) -> (f64, Snapshot) {
        let t = self.world.now().since(Time::ZERO).as_secs_f64();
        let links = self.links.iter().zip(&self.names).filter_map(|(id, name)| {
            let stats = self.world.link(*id)?.stats();
            Some(LinkRow {
                name: name.clone(),
                offered_packets: stats.offered.packets,
                offered_bytes: stats.offered.bytes.0,
                carried_packets: stats.carried.packets,
                carried_bytes: stats.carried.bytes.0,
                dropped_queue: stats.drops.queue.packets,
                ..LinkRow::default()
            })
        });
        let paths = self.sessions.iter().filter_map(|(name, id)| {
            let status = self.world.session(*id)?;
            let up = WayRow {
                out_packets: status.received_packets,
                out_bytes: status.received_bytes.0,
                ..WayRow::default()
            };
            Some(PathRow { name: name.clone(), up, ..PathRow::default() })
        });
        (t, Snapshot { t, links: links.collect(), paths: paths.collect(), ..Snapshot::default() })
    }
}
