//! The network part of a scenario: what a network file has, read by the same rules.
//!
//! Links, hosts and routes are those of the network file, so that a network can be pasted from one
//! into the other. A scenario adds what only a simulation needs: capacities of hosts, groups of
//! hosts, switches, and the nodes that a link joins. Keys that only the emulator needs (addresses,
//! namespaces, sockets) are known and without effect.

use std::ops::RangeInclusive;
use std::sync::Arc;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{
    Burst, CHANGE_LAST, Chance, Change, Jitter, LinkSpec, LinkState, Order, Policer, Reorder, Trace,
};

use super::drawn::{Drawn, Lots};
use super::model::{Event, HostEntry, LinkEntry, NodeEntry, NodeKind, PathEntry, RouteEntry};
use super::names::Names;
use super::protocol::{RouterEntry, router};
use super::read::{At, Table};
use super::traces::Traces;
use super::tree::{Complaint, Truth};
use super::units::{QueueSize, Skew};

type Read<T> = Result<T, Complaint>;

/// What a scenario says of its network.
#[derive(Debug, Default)]
pub struct Network {
    /// Links.
    pub links: Vec<LinkEntry>,
    /// Hosts and switches.
    pub nodes: Vec<NodeEntry>,
    /// Stated routes.
    pub routes: Vec<RouteEntry>,
    /// The links' changes.
    pub events: Vec<(Span, Event)>,
    /// Names of links.
    pub link_names: Names,
    /// Names of nodes.
    pub node_names: Names,
    /// Paths of the relay.
    pub paths: Vec<PathEntry>,
    /// Names of these paths.
    pub path_names: Names,
}

/// Hosts, switches and links that a scenario may have: a network of the rate level with 100,000
/// nodes fits ten times over.
pub const NODES_MAX: usize = 1 << 20;
/// Links, each of which has a queue and statistics of some hundred bytes.
pub const LINKS_MAX: usize = 1 << 17;

impl Network {
    /// Reads the tables of a network from `top`.
    ///
    /// # Errors
    /// What does not fit.
    pub fn read(&mut self, top: &mut Table<'_>, traces: &Traces, lots: &mut Lots) -> Read<()> {
        let seed = emulator_seed(top)?;
        for table in top.tables("host")? {
            self.host(table, lots)?;
        }
        for mut table in top.tables("switch")? {
            let name = table.needed("name", "a name")?;
            self.add_node(&name, &name.value, NodeKind::Switch)?;
            table.finish()?;
        }
        for table in top.tables("link")? {
            self.link(table, traces, seed)?;
        }
        for table in top.tables("route")? {
            self.route(table)?;
        }
        for table in top.tables("path")? {
            self.path(table)?;
        }
        Ok(())
    }

    fn host(&mut self, mut table: Table<'_>, lots: &mut Lots) -> Read<()> {
        let name = table.needed("name", "a name")?;
        let count = table.integer("count", 1..=NODES_MAX as i64)?;
        let out: Option<Drawn<Rate>> = Drawn::read(&mut table, "capacity_out")?;
        let in_: Option<Drawn<Rate>> = Drawn::read(&mut table, "capacity_in")?;
        let interval = table.interval("interval")?;
        let coalesce = table.delay("coalesce")?;
        let skew: Option<Skew> = table.quantity("clock_skew")?;
        for of_the_emulator in ["namespace", "address"] {
            table.node(of_the_emulator);
        }
        table.within("mtu", HOST_MTU, "a size from 576B to 65535B")?;
        table.finish()?;
        for number in 1..=count.unwrap_or(1) {
            let each = match count {
                Some(_) => format!("{}{number}", name.value),
                None => name.value.clone(),
            };
            let host = HostEntry {
                capacity_out: out.as_ref().map_or(Rate::UNLIMITED, |d| lots.draw(d)),
                capacity_in: in_.as_ref().map_or(Rate::UNLIMITED, |d| lots.draw(d)),
                interval,
                coalesce: coalesce.unwrap_or(Span::ZERO),
                skew_ppb: skew.unwrap_or_default().0,
            };
            self.add_node(&name, &each, NodeKind::Host(host))?;
        }
        Ok(())
    }

    fn add_node(&mut self, at: &At<String>, name: &str, kind: NodeKind) -> Read<()> {
        if self.nodes.len() >= NODES_MAX {
            let message = format!("more than {NODES_MAX} hosts and switches");
            return Err(Complaint::new(&at.place, message));
        }
        self.node_names.add("host or switch", name, &at.place)?;
        self.nodes.push(NodeEntry { name: name.to_owned(), kind });
        Ok(())
    }

    fn link(&mut self, mut table: Table<'_>, traces: &Traces, seed: u64) -> Read<()> {
        let name = table.needed("name", "a name")?;
        let spec = link_spec(&mut table, traces)?;
        let router = router(&mut table, spec.queue)?;
        if spec.policer.is_some() && matches!(router, Some(RouterEntry::Managed(_))) {
            let message = "a policer is of links with a queue of their own: make it another link";
            return Err(Complaint::new(table.place(), message));
        }
        let own_seed = table.integer("seed", 0..=i64::MAX)?;
        let from = table.text("from", "the name of a host or switch")?;
        let to = table.text("to", "the name of a host or switch")?;
        let duplex = table.truth("duplex")?.unwrap_or(Truth::False);
        let ends = match (from, to) {
            (Some(from), Some(to)) => {
                Some((self.node_names.place(&from)?, self.node_names.place(&to)?))
            }
            (None, None) => None,
            (Some(_), None) => return Err(table.lacks("to", "the node at its far end")),
            (None, Some(_)) => return Err(table.lacks("from", "the node at its near end")),
        };
        if duplex == Truth::True && ends.is_none() {
            return Err(table.lacks("from", "the nodes that a duplex link joins"));
        }
        let changes = table.tables("change")?;
        table.finish()?;
        let mut places = vec![self.add_link(&name, &name.value, &spec, own_seed, seed, ends)?];
        self.links[places[0]].router = router;
        if duplex == Truth::True {
            let back = format!("{}-back", name.value);
            let ends = ends.map(|(from, to)| (to, from));
            let own_seed = own_seed.map(|s| s.wrapping_add(1));
            places.push(self.add_link(&name, &back, &spec, own_seed, seed, ends)?);
        }
        for table in changes {
            let place = table.place().clone();
            let (at, change) = link_change(table)?;
            if spec.trace.is_some() && change.rate.is_some() {
                let message = "the rate of a link with a trace is the trace's";
                return Err(Complaint::new(&place, message));
            }
            self.events.extend(places.iter().map(|&link| (at, Event::Link(link, change))));
        }
        Ok(())
    }

    fn add_link(
        &mut self,
        at: &At<String>,
        name: &str,
        spec: &LinkSpec,
        own_seed: Option<i64>,
        seed: u64,
        ends: Option<(usize, usize)>,
    ) -> Read<usize> {
        let number = self.links.len();
        if number >= LINKS_MAX {
            return Err(Complaint::new(&at.place, format!("more than {LINKS_MAX} links")));
        }
        self.link_names.add("link", name, &at.place)?;
        // The rule of the network file, so that a link loses the same packets in both worlds.
        let derived = seed.wrapping_mul(1_000_003).wrapping_add(number as u64);
        let seed = own_seed.map_or(derived, |s| s as u64);
        self.links.push(LinkEntry {
            name: name.to_owned(),
            spec: spec.clone(),
            seed,
            ends,
            router: None,
        });
        Ok(number)
    }

    fn route(&mut self, mut table: Table<'_>) -> Read<()> {
        let from = table.needed("from", "the name of a host")?;
        let to = table.needed("to", "the name of a host")?;
        let links = table.texts("links", "names of links")?;
        let links = links.ok_or_else(|| table.lacks("links", "names of links; [] is a wire"))?;
        let place = table.place().clone();
        table.finish()?;
        let links: Arc<[usize]> = self.link_names.places(&links)?.into();
        let froms = self.node_names.matching(&from)?;
        let tos = self.node_names.matching(&to)?;
        if self.routes.len() + froms.len() * tos.len() > ROUTES_MAX {
            return Err(Complaint::new(&place, format!("more than {ROUTES_MAX} routes")));
        }
        for &from in &froms {
            for &to in &tos {
                self.routes.push(RouteEntry { from, to, links: links.clone() });
            }
        }
        Ok(())
    }

    /// A path of the relay: the client, at whose side `up` begins, is the sink.
    fn path(&mut self, mut table: Table<'_>) -> Read<()> {
        let name = table.needed("name", "a name")?;
        for of_the_emulator in ["listen", "target", "udp", "tcp"] {
            table.node(of_the_emulator);
        }
        let up = table.texts("up", "names of links")?.unwrap_or_default();
        let down = table.texts("down", "names of links")?.unwrap_or_default();
        table.finish()?;
        let (back, forth) = (self.link_names.places(&up)?, self.link_names.places(&down)?);
        self.path_names.add("path", &name.value, &name.place)?;
        self.paths.push(PathEntry { name: name.value, forth, back });
        Ok(())
    }
}

/// Stated routes.
const ROUTES_MAX: usize = 1 << 20;

/// The seed of links without one of their own; the emulator's other keys have no effect here.
fn emulator_seed(top: &mut Table<'_>) -> Read<u64> {
    let Some(mut table) = top.table("emulator")? else { return Ok(1) };
    for of_the_emulator in ["tick", "memory", "idle"] {
        table.node(of_the_emulator);
    }
    let seed = table.integer("seed", 0..=i64::MAX)?;
    table.finish()?;
    Ok(seed.unwrap_or(1) as u64)
}

fn link_spec(table: &mut Table<'_>, traces: &Traces) -> Read<LinkSpec> {
    let rate: Option<Rate> = table.quantity("rate")?;
    let place = table.place().clone();
    let trace = trace(table, traces)?;
    if rate.is_some() && trace.is_some() {
        return Err(Complaint::new(&place, "a link has a rate or a trace"));
    }
    let rate = trace.as_ref().map(Trace::mean_rate).or(rate).unwrap_or(Rate::UNLIMITED);
    let queue = match table.queue("queue")? {
        None if rate.is_unlimited() => Bytes(u64::MAX),
        None => rate.bytes_in(USUAL_QUEUE),
        Some(QueueSize::Bytes(bytes)) => bytes,
        Some(QueueSize::Span(_)) if rate.is_unlimited() => {
            let message = "a queue given as a time needs the link's rate";
            let misspelt = table.misspelt("rate");
            return Err(misspelt.unwrap_or_else(|| Complaint::new(&place, message)));
        }
        Some(QueueSize::Span(span)) => rate.bytes_in(span),
    };
    let jitter = Jitter {
        span: table.delay("jitter")?.unwrap_or(Span::ZERO),
        order: table
            .choice("jitter_order", &[("kept", Order::Kept), ("free", Order::Free)])?
            .unwrap_or(Order::Kept),
    };
    Ok(LinkSpec {
        rate,
        trace,
        delay: table.delay("delay")?.unwrap_or(Span::ZERO),
        queue,
        mtu: table.within("mtu", LINK_MTU, "a size from 68B to 65535B")?,
        policer: table.table("policer")?.map(policer).transpose()?,
        jitter,
        loss: table.quantity("loss")?.unwrap_or(Chance::NEVER),
        burst: table.table("burst")?.map(burst).transpose()?,
        duplicate: table.quantity("duplicate")?.unwrap_or(Chance::NEVER),
        reorder: table.table("reorder")?.map(reorder).transpose()?.unwrap_or_default(),
        state: table.choice("state", &STATES)?.unwrap_or(LinkState::Up),
    })
}

/// The trace that a link names, which was read with the file.
fn trace(table: &mut Table<'_>, traces: &Traces) -> Read<Option<Trace>> {
    let Some(name) = table.text("trace", "the name of a file of a trace")? else {
        return Ok(None);
    };
    match traces.get(name.place.file, &name.value) {
        Some(trace) => Ok(Some(trace.clone())),
        None => {
            let message = "a trace is named in a file, and not swept";
            Err(Complaint::new(&name.place, message))
        }
    }
}

/// The queue of a link that has a rate and states none, as in the network file.
const USUAL_QUEUE: Span = Span::from_millis(100);
/// What IPv4 lets a link carry at least (RFC 791), and the longest packet.
const LINK_MTU: RangeInclusive<Bytes> = Bytes(68)..=Bytes(65_535);
/// What every IPv4 host must take, and the same.
const HOST_MTU: RangeInclusive<Bytes> = Bytes(576)..=Bytes(65_535);
/// Words for a link's state.
pub const STATES: [(&str, LinkState); 2] = [("up", LinkState::Up), ("down", LinkState::Down)];

fn policer(mut table: Table<'_>) -> Read<Policer> {
    let rate: Option<Rate> = table.quantity("rate")?;
    let rate = rate.ok_or_else(|| table.lacks("rate", "a rate such as 100Mbit"))?;
    let bucket = match table.queue("bucket")? {
        None => return Err(table.lacks("bucket", "a size such as 8MB or a time such as 100ms")),
        Some(QueueSize::Bytes(bytes)) => bytes,
        Some(QueueSize::Span(span)) => rate.bytes_in(span),
    };
    let place = table.node("bucket").map_or(table.place(), |node| &node.place).clone();
    if bucket < BUCKET_LEAST {
        let message = format!(
            "a bucket of {} bytes lets no full packet pass: it takes {} at least",
            bucket.0, BUCKET_LEAST.0
        );
        return Err(Complaint::new(&place, message));
    }
    table.finish()?;
    Ok(Policer { rate, bucket })
}

/// A packet of Ethernet.
const BUCKET_LEAST: Bytes = Bytes(1_500);

fn burst(mut table: Table<'_>) -> Read<Burst> {
    let chance = "a share such as 1%";
    let enter = table.quantity("enter")?.ok_or_else(|| table.lacks("enter", chance))?;
    let leaves = SELDOM..=Chance::ALWAYS;
    let leave = table.within("leave", leaves, "a share above 0%, or no burst ends")?;
    let leave = leave.ok_or_else(|| table.lacks("leave", chance))?;
    let loss = table.quantity("loss")?.unwrap_or(Chance::ALWAYS);
    table.finish()?;
    Ok(Burst { enter, leave, loss })
}

/// The least chance that there is but none.
const SELDOM: Chance = Chance::from_billionths(1);

fn reorder(mut table: Table<'_>) -> Read<Reorder> {
    let chance = table.quantity("chance")?;
    let chance = chance.ok_or_else(|| table.lacks("chance", "a share such as 1%"))?;
    let extra = table.delay("extra")?;
    let extra = extra.ok_or_else(|| table.lacks("extra", "a time such as 3ms"))?;
    table.finish()?;
    Ok(Reorder { chance, extra })
}

fn link_change(mut table: Table<'_>) -> Read<(Span, Change)> {
    // A network file is also an emulator's, which runs for longer than a simulation.
    let at = table.within("at", Span::ZERO..=CHANGE_LAST, "a time of at most 8760h")?;
    let at = at.ok_or_else(|| table.lacks("at", "a time such as 10s"))?;
    let change = Change {
        rate: table.quantity("rate")?,
        delay: table.delay("delay")?,
        queue: table.room("queue")?,
        loss: table.quantity("loss")?,
        state: table.choice("state", &STATES)?,
    };
    table.finish()?;
    Ok((at, change))
}
