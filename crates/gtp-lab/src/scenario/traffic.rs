//! What is done on a network: sessions, background flows and faults.
//!
//! A table of sessions may stand for many: patterns of hosts, a count, times and sizes to draw
//! from. Each is made here, once, with a name of its own, so that nothing later knows groups.

use std::ops::RangeInclusive;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Chance, Change, LinkState};

use super::drawn::{Drawn, Lots};
use super::model::{
    BackgroundEntry, Event, Level, LinkEntry, NodeEntry, NodeKind, Pattern, Reach, SessionEntry,
};
use super::names::Names;
use super::network::Network;
use super::protocol::{Protocol, WindowLaw, protocol};
use super::read::{At, DELAY, DELAYS, DURATION_MOST, MOMENT, MOMENTS, Table, wrong};
use super::routers::{self, Routers};
use super::tree::{Complaint, Place, Truth};
use super::units::{Quantity, Skew};

type Read<T> = Result<T, Complaint>;

/// Demands of all sessions together, each from its time on: twice as many as there are sessions.
const CHANGES_MAX: usize = 1 << 23;
/// Background flows and faults.
const OTHERS_MAX: usize = 1 << 16;

/// How hosts of two patterns are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pairing {
    /// Each source with each sink.
    All,
    /// The first with the first, and so on.
    Matched,
    /// Two different hosts drawn for each session.
    Random,
}

/// Reads all sessions.
///
/// # Errors
/// What does not fit.
pub fn sessions(
    top: &mut Table<'_>,
    level: Level,
    network: &Network,
    lots: &mut Lots,
) -> Read<Vec<SessionEntry>> {
    let mut made = Made { level, names: Names::default(), sessions: Vec::new() };
    for table in top.tables("session")? {
        group(table, network, lots, &mut made)?;
    }
    Ok(made.sessions)
}

/// The sessions of a scenario as far as they are made.
struct Made {
    level: Level,
    names: Names,
    sessions: Vec<SessionEntry>,
}

impl Made {
    /// Whether there is room for `all` more, each with so many changes of its demand.
    ///
    /// # Errors
    /// What there is no room for, in words.
    fn has_room_for(&self, all: usize, changes: usize) -> Result<(), String> {
        let (level, most) = (self.level.as_str(), self.level.sessions_most());
        let sessions = self.sessions.len().saturating_add(all);
        if sessions > most {
            return Err(format!(
                "{sessions} sessions are too many: level = {level:?} takes {most} at most"
            ));
        }
        let so_far: usize = self.sessions.iter().map(|session| session.demand.len()).sum();
        if so_far.saturating_add(all.saturating_mul(changes)) > CHANGES_MAX {
            return Err(format!(
                "more than {CHANGES_MAX} changes of all sessions' demands together"
            ));
        }
        Ok(())
    }
}

/// The keys of a group of sessions, before its members are made.
struct Group {
    start: Drawn<Span>,
    stagger: Span,
    stop: Option<Drawn<Span>>,
    lasts: Option<Drawn<Span>>,
    size: Option<Drawn<Bytes>>,
    demand: Option<Drawn<Rate>>,
    changes: Vec<(Span, Rate)>,
    weight: f64,
    rtt: Option<Drawn<Span>>,
    path: Option<usize>,
    unit: u16,
    protocol: Protocol,
    wire: Option<Drawn<Span>>,
    relays: Option<usize>,
    /// Where it says that its sessions bring one object, if it does.
    together: Option<Place>,
    /// Where it says when its sessions start.
    begins: Place,
    /// Where it says when they end.
    ends: Place,
}

fn group(mut table: Table<'_>, network: &Network, lots: &mut Lots, made: &mut Made) -> Read<()> {
    let name = table.text("name", "a name")?;
    let name = name.unwrap_or_else(|| At { value: "s".into(), place: table.place().clone() });
    let source = table.needed("source", "the name of a host, or a pattern such as src*")?;
    let sink = table.needed("sink", "the name of a host, or a pattern such as dst*")?;
    let pairing = table.choice(
        "pair",
        &[("all", Pairing::All), ("matched", Pairing::Matched), ("random", Pairing::Random)],
    )?;
    let most = Level::Rate.sessions_most() as i64;
    let count = table.integer("count", 1..=most)?.unwrap_or(1) as usize;
    let many = place(&mut table, ["count"]);
    let place = table.place().clone();
    let group = Group::read(&mut table, network, &made.sessions)?;
    table.finish()?;
    let sources = hosts(network, &source)?;
    let sinks = hosts(network, &sink)?;
    let pairing = pairing.unwrap_or(Pairing::All);
    let pairs = match pairing {
        Pairing::All => sources.len().saturating_mul(sinks.len()),
        Pairing::Matched if sources.len() == sinks.len() => sources.len(),
        Pairing::Matched => {
            let (a, b) = (sources.len(), sinks.len());
            let message = format!("{a} sources cannot be matched one to one with {b} sinks");
            return Err(Complaint::new(&place, message));
        }
        Pairing::Random => 1,
    };
    let all = pairs.saturating_mul(count);
    made.has_room_for(all, group.changes.len()).map_err(|why| Complaint::new(&many, why))?;
    let alone = all == 1;
    let together = group.together(&made.sessions, sinks.len(), lots)?;
    for n in 0..all {
        let (source, sink) = match pairing {
            Pairing::All => (sources[n / count / sinks.len()], sinks[n / count % sinks.len()]),
            Pairing::Matched => (sources[n / count], sinks[n / count]),
            Pairing::Random => different(&sources, &sinks, lots)
                .ok_or_else(|| Complaint::new(&place, "no two different hosts to pair"))?,
        };
        let own = if alone { name.value.clone() } else { format!("{}{}", name.value, n + 1) };
        made.names.add("session", &own, &name.place)?;
        let mut session = group.session(own, (source, sink), n as u64, lots);
        if let Some((number, size)) = together {
            (session.group, session.size) = (Some(number), Some(size));
        }
        group.check_times(&session)?;
        made.sessions.push(session);
    }
    Ok(())
}

/// Where the first of these keys stands that is there; the table's head if none is.
fn place<const N: usize>(table: &mut Table<'_>, keys: [&'static str; N]) -> Place {
    let found = keys.into_iter().find_map(|key| table.node(key));
    found.map_or(table.place(), |node| &node.place).clone()
}

/// A source and a sink that are not the same host.
fn different(sources: &[usize], sinks: &[usize], lots: &mut Lots) -> Option<(usize, usize)> {
    let source = sources[lots.below(sources.len())];
    for _ in 0..64 {
        let sink = sinks[lots.below(sinks.len())];
        if sink != source {
            return Some((source, sink));
        }
    }
    sinks.iter().find(|&&sink| sink != source).map(|&sink| (source, sink))
}

impl Group {
    fn read(table: &mut Table<'_>, network: &Network, before: &[SessionEntry]) -> Read<Group> {
        let stop = Drawn::within(table, "stop", &MOMENTS, MOMENT)?;
        let lasts = Drawn::within(table, "lasts", &MOMENTS, MOMENT)?;
        if stop.is_some() && lasts.is_some() {
            let message = "`stop` and `lasts` say the same: keep one";
            return Err(Complaint::new(table.place(), message));
        }
        let unit = table.within("unit", UNITS, "a size from 64B to 8900B")?;
        let path = table.text("path", "the name of a path")?;
        let rtt = Drawn::within(table, "rtt", &DELAYS, DELAY)?;
        if path.is_some() && rtt.is_some() {
            let message = "`path` and `rtt` say the same: keep one";
            return Err(Complaint::new(table.place(), message));
        }
        let wire = Drawn::within(table, "wire", &DELAYS, DELAY)?;
        if wire.is_some() && rtt.is_some() {
            let message = "`wire` and `rtt` are both wires of the session's own: keep one";
            return Err(Complaint::new(table.place(), message));
        }
        let mut changes = Vec::new();
        for change in table.tables("change")? {
            changes.push(demand_change(change)?);
        }
        changes.sort_by_key(|(at, _)| *at);
        let weight = table.number("weight", WEIGHTS)?.unwrap_or(1.0);
        let protocol = protocol(table, weight)?;
        let relays = relays(table, protocol, before)?;
        let together = match table.truth("together")? {
            Some(Truth::True) => Some(place(table, ["together"])),
            Some(Truth::False) | None => None,
        };
        Ok(Group {
            together,
            start: Drawn::within(table, "start", &MOMENTS, MOMENT)?
                .unwrap_or(Drawn::One(Span::ZERO)),
            stagger: table.moment("stagger")?.unwrap_or(Span::ZERO),
            stop,
            lasts,
            size: Drawn::within(table, "size", &SIZES, "a size from 1B to 1024TiB")?,
            demand: Drawn::read(table, "demand")?,
            changes,
            weight,
            protocol,
            wire,
            relays,
            rtt,
            path: path.map(|name| network.path_names.place(&name)).transpose()?,
            unit: unit.map_or(USUAL_UNIT, |unit| unit.0 as u16),
            begins: place(table, ["stagger", "start"]),
            ends: place(table, ["stop", "lasts"]),
        })
    }

    /// The number of the group that its sessions are, and the size of the object, if they bring one
    /// together.
    fn together(
        &self,
        before: &[SessionEntry],
        sinks: usize,
        lots: &mut Lots,
    ) -> Read<Option<(usize, Bytes)>> {
        let Some(place) = &self.together else { return Ok(None) };
        let refuse = |message: &str| Err(Complaint::new(place, message));
        if self.protocol != Protocol::Gtp || self.demand.is_some() || !self.changes.is_empty() {
            return refuse("sessions that bring one object are GTP's, and have no `demand`");
        }
        if sinks > 1 {
            return refuse("sessions that bring one object have one sink");
        }
        let Some(size) = &self.size else {
            return refuse("sessions that bring one object state its `size`");
        };
        let number = before.iter().filter_map(|session| session.group).max();
        Ok(Some((number.map_or(0, |number| number + 1), lots.draw(size))))
    }

    /// Refuses a session that starts after the longest run, or would end before it starts.
    fn check_times(&self, session: &SessionEntry) -> Read<()> {
        let (name, start) = (&session.name, session.start);
        let at = start.as_secs_f64();
        if start > DURATION_MOST {
            let message = format!(
                "session {name:?} would start at {at} s: `start` and `stagger` add up to 24h at \
                 most"
            );
            return Err(Complaint::new(&self.begins, message));
        }
        match session.stop {
            Some(stop) if stop <= start => {
                let stop = stop.as_secs_f64();
                let message = format!(
                    "session {name:?} would stop before it starts: at {stop} s, and it starts at \
                     {at} s"
                );
                Err(Complaint::new(&self.ends, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn session(
        &self,
        name: String,
        (source, sink): (usize, usize),
        n: u64,
        lots: &mut Lots,
    ) -> SessionEntry {
        let start = lots.draw(&self.start) + self.stagger * n;
        let stop = self.stop.as_ref().map(|stop| lots.draw(stop));
        let stop = stop.or_else(|| self.lasts.as_ref().map(|lasts| start + lots.draw(lasts)));
        let mut demand = Vec::new();
        match &self.demand {
            Some(first) => demand.push((Span::ZERO, lots.draw(first))),
            None if self.changes.is_empty() => {}
            None => demand.push((Span::ZERO, Rate::UNLIMITED)),
        }
        demand.extend_from_slice(&self.changes);
        SessionEntry {
            name,
            source,
            sink,
            start,
            stop,
            size: self.size.as_ref().map(|size| lots.draw(size)),
            demand,
            weight: self.weight,
            reach: match (&self.rtt, self.path) {
                (Some(rtt), _) => Reach::Wire(lots.draw(rtt)),
                (None, Some(path)) => Reach::Path(path),
                (None, None) => Reach::Routes,
            },
            unit: self.unit,
            protocol: self.protocol,
            wire: self.wire.as_ref().map_or(Span::ZERO, |wire| lots.draw(wire)),
            relays: self.relays,
            group: None,
        }
    }
}

/// Reads `relays`: the session whose data this one sends on, as the second half of a split TCP.
fn relays(
    table: &mut Table<'_>,
    protocol: Protocol,
    before: &[SessionEntry],
) -> Read<Option<usize>> {
    let Some(name) = table.text("relays", "the name of a session further up")? else {
        return Ok(None);
    };
    let plain = |protocol| match protocol {
        Protocol::Window(windowed) => {
            matches!(windowed.law, WindowLaw::Tcp(_)) && windowed.connections == 1
        }
        Protocol::Gtp | Protocol::Rate(_) | Protocol::Advertised | Protocol::Perc => false,
    };
    let first = before.iter().position(|session| session.name == name.value);
    let taken = before.iter().any(|session| session.relays.is_some() && session.relays == first);
    let refused = match first {
        None => format!("no session {:?} further up", name.value),
        Some(first) if !plain(protocol) || !plain(before[first].protocol) => {
            "only a TCP of one connection relays, and only such a one is relayed".to_owned()
        }
        Some(first) if before[first].relays.is_some() || taken => {
            "a relay is between two sessions".to_owned()
        }
        Some(first) => return Ok(Some(first)),
    };
    Err(Complaint::new(&name.place, refused))
}

/// Weights that both engines take.
const WEIGHTS: RangeInclusive<f64> = 0.001..=1_000.0;
/// Payload of a packet on Ethernet.
const USUAL_UNIT: u16 = gtp_proto::limits::UNIT_ETHERNET;
const UNITS: RangeInclusive<Bytes> = Bytes(64)..=Bytes(8_900);
/// What a session moves: a pebibyte at most, which at a terabit per second takes two hours and
/// has fewer of the smallest units than a row may have.
const SIZES: RangeInclusive<Bytes> = Bytes(1)..=Bytes(1 << 50);

fn demand_change(mut table: Table<'_>) -> Read<(Span, Rate)> {
    let at = table.moment("at")?;
    let at = at.ok_or_else(|| table.lacks("at", Span::EXPECTED))?;
    let expected = "a rate such as 50Mbit, or \"none\" or \"unlimited\"";
    let node = table.node("demand").ok_or_else(|| table.lacks("demand", expected))?;
    let rate = match node.value.as_text() {
        Some("none") => Rate::ZERO,
        Some("unlimited") => Rate::UNLIMITED,
        Some(_) | None => super::read::quantity(node, "demand")?,
    };
    table.finish()?;
    Ok((at, rate))
}

/// The hosts that a pattern stands for; switches send and receive nothing.
///
/// # Errors
/// If there is none.
pub fn hosts(network: &Network, pattern: &At<String>) -> Read<Vec<usize>> {
    let found = network.node_names.matching(pattern)?;
    let is_host = |&n: &usize| matches!(network.nodes[n].kind, NodeKind::Host(_));
    let hosts: Vec<usize> = found.into_iter().filter(is_host).collect();
    if hosts.is_empty() {
        let message = format!("{:?} is a switch; only hosts send and receive", pattern.value);
        return Err(Complaint::new(&pattern.place, message));
    }
    Ok(hosts)
}

/// The one host that a name stands for.
fn host(network: &Network, name: &At<String>) -> Read<usize> {
    match hosts(network, name)?[..] {
        [host] => Ok(host),
        ref several => {
            let (name_given, n) = (&name.value, several.len());
            let message = format!(
                "{name_given:?} stands for {n} hosts: a background flow joins two, name one"
            );
            Err(Complaint::new(&name.place, message))
        }
    }
}

/// Words for the patterns of background flows.
#[derive(Clone, Copy)]
enum Kind {
    Constant,
    Poisson,
    OnOff,
    Pareto,
}

/// Reads all background flows.
///
/// # Errors
/// What does not fit.
pub fn backgrounds(top: &mut Table<'_>, network: &Network) -> Read<Vec<BackgroundEntry>> {
    let mut found: Vec<BackgroundEntry> = Vec::new();
    for mut table in top.tables("background")? {
        if found.len() >= OTHERS_MAX {
            let message = format!("more than {OTHERS_MAX} background flows");
            return Err(Complaint::new(table.place(), message));
        }
        let name = table.text("name", "a name")?.map(|name| name.value);
        let source = table.needed("source", "the name of a host")?;
        let sink = table.needed("sink", "the name of a host")?;
        let links = table.texts("links", "names of links")?;
        let packet = table.within("packet", PACKETS, "a size from 28B to 65535B")?;
        let packet = packet.unwrap_or(Bytes(1_000));
        let pattern = pattern(&mut table, packet)?;
        let start = table.moment("start")?.unwrap_or(Span::ZERO);
        let stop = table.within("stop", start..=DURATION_MOST, "a time from `start` to 24h")?;
        let entry = BackgroundEntry {
            name: name.unwrap_or_else(|| format!("background{}", found.len() + 1)),
            source: host(network, &source)?,
            sink: host(network, &sink)?,
            links: links.map(|links| network.link_names.places(&links)).transpose()?,
            start,
            stop,
            packet,
            pattern,
        };
        table.finish()?;
        found.push(entry);
    }
    Ok(found)
}

/// Packets of background flows: an empty datagram, and the longest.
const PACKETS: RangeInclusive<Bytes> = Bytes(28)..=Bytes(65_535);

/// When the packets of a flow, of `packet` bytes, leave.
fn pattern(table: &mut Table<'_>, packet: Bytes) -> Read<Pattern> {
    let kinds = [
        ("constant", Kind::Constant),
        ("poisson", Kind::Poisson),
        ("onoff", Kind::OnOff),
        ("pareto", Kind::Pareto),
    ];
    let kind = table.choice("kind", &kinds)?.unwrap_or(Kind::Constant);
    let rate: Option<Rate> = table.quantity("rate")?;
    let rate = rate.ok_or_else(|| table.lacks("rate", Rate::EXPECTED))?;
    let span = |table: &mut Table<'_>, key| {
        let node = table.node(key).ok_or_else(|| table.lacks(key, Span::EXPECTED))?;
        let span = super::read::quantity(node, key)?;
        if (packet / rate..=DURATION_MOST).contains(&span) {
            return Ok(span);
        }
        let expected = "a time of at most 24h, and not shorter than a packet takes at `rate` \
                        (kind = \"poisson\" takes such)";
        Err(wrong(node, key, &node.value, expected))
    };
    Ok(match kind {
        Kind::Constant => Pattern::Constant(rate),
        Kind::Poisson => Pattern::Poisson(rate),
        Kind::OnOff => {
            Pattern::OnOff { peak: rate, on: span(table, "on")?, off: span(table, "off")? }
        }
        Kind::Pareto => Pattern::Pareto {
            peak: rate,
            on: span(table, "on")?,
            off: span(table, "off")?,
            shape: table.number("shape", 1.01..=10.0)?.unwrap_or(1.5),
        },
    })
}

/// Words for faults.
#[derive(Clone, Copy)]
enum Fault {
    LinkDown,
    LinkLoss,
    LinkRate,
    LinkDelay,
    Pause,
    Agents,
    Capacity,
    Clock,
    Coalesce,
    RouterSilent,
    RouterRestart,
    RouterCapacity,
}

const FAULTS: [(&str, Fault); 12] = [
    ("link-down", Fault::LinkDown),
    ("link-loss", Fault::LinkLoss),
    ("link-rate", Fault::LinkRate),
    ("link-delay", Fault::LinkDelay),
    ("pause", Fault::Pause),
    ("agents", Fault::Agents),
    ("capacity", Fault::Capacity),
    ("clock", Fault::Clock),
    ("coalesce", Fault::Coalesce),
    ("router-silent", Fault::RouterSilent),
    ("router-restart", Fault::RouterRestart),
    ("router-capacity", Fault::RouterCapacity),
];

/// Reads all faults as what happens when, their ends included.
///
/// # Errors
/// What does not fit.
pub fn faults(
    top: &mut Table<'_>,
    network: &Network,
    routers: &Routers,
) -> Read<Vec<(Span, Event)>> {
    let mut events = Vec::new();
    for mut table in top.tables("fault")? {
        if events.len() >= OTHERS_MAX {
            let message = format!("more than {OTHERS_MAX} faults");
            return Err(Complaint::new(table.place(), message));
        }
        let kind = table.choice("kind", &FAULTS)?;
        let kind =
            kind.ok_or_else(|| table.lacks("kind", "what happens, such as \"link-down\""))?;
        let at = table.moment("at")?;
        let at = at.ok_or_else(|| table.lacks("at", Span::EXPECTED))?;
        let lasting = Span::from_nanos(1)..=DURATION_MOST;
        let lasts = table.within("for", lasting, "a time above 0s and of at most 24h")?;
        for (begin, end) in fault(&mut table, kind, lasts, (network, routers))? {
            events.push((at, begin));
            if let (Some(end), Some(lasts)) = (end, lasts) {
                events.push((at + lasts, end));
            }
        }
        table.finish()?;
    }
    Ok(events)
}

/// Beginnings of a fault, each with what ends it.
fn fault(
    table: &mut Table<'_>,
    kind: Fault,
    lasts: Option<Span>,
    (network, routers): (&Network, &Routers),
) -> Read<Vec<(Event, Option<Event>)>> {
    match kind {
        Fault::RouterSilent => routers::silent(table, routers),
        Fault::RouterRestart => routers::restart(table, lasts, routers),
        Fault::RouterCapacity => routers::capacity(table, network, routers),
        Fault::LinkDown | Fault::LinkLoss | Fault::LinkRate | Fault::LinkDelay => {
            link_fault(table, kind, network)
        }
        Fault::Pause => {
            let lasts = lasts.ok_or_else(|| table.lacks("for", Span::EXPECTED))?;
            each_host(table, network, |n, _| (Event::Pause(n, lasts), None))
        }
        Fault::Agents => {
            each_host(table, network, |n, _| (Event::AgentsStop(n), Some(Event::AgentsRun(n))))
        }
        Fault::Capacity => {
            let (out, in_) = (table.quantity("capacity_out")?, table.quantity("capacity_in")?);
            if out.is_none() && in_.is_none() {
                return Err(table.lacks("capacity_in", "`capacity_in`, `capacity_out` or both"));
            }
            each_host(table, network, |host, node| {
                let NodeKind::Host(spec) = &node.kind else {
                    return (Event::Capacity { host, out, in_ }, None);
                };
                let back = Event::Capacity {
                    host,
                    out: out.map(|_: Rate| spec.capacity_out),
                    in_: in_.map(|_: Rate| spec.capacity_in),
                };
                (Event::Capacity { host, out, in_ }, Some(back))
            })
        }
        Fault::Clock => {
            let skew: Option<Skew> = table.quantity("clock_skew")?;
            let skew = skew.ok_or_else(|| table.lacks("clock_skew", Skew::EXPECTED))?;
            each_host(table, network, |n, node| {
                let usual = match &node.kind {
                    NodeKind::Host(host) => host.skew_ppb,
                    NodeKind::Switch => 0,
                };
                (Event::Skew(n, skew.0), Some(Event::Skew(n, usual)))
            })
        }
        Fault::Coalesce => {
            let span = table.delay("coalesce")?;
            let span = span.ok_or_else(|| table.lacks("coalesce", Span::EXPECTED))?;
            each_host(table, network, |n, node| {
                let usual = match &node.kind {
                    NodeKind::Host(host) => host.coalesce,
                    NodeKind::Switch => Span::ZERO,
                };
                (Event::Coalesce(n, span), Some(Event::Coalesce(n, usual)))
            })
        }
    }
}

fn each_host(
    table: &mut Table<'_>,
    network: &Network,
    events: impl Fn(usize, &NodeEntry) -> (Event, Option<Event>),
) -> Read<Vec<(Event, Option<Event>)>> {
    let pattern = table.needed("host", "the name of a host, or a pattern such as src*")?;
    Ok(hosts(network, &pattern)?.into_iter().map(|n| events(n, &network.nodes[n])).collect())
}

fn link_fault(
    table: &mut Table<'_>,
    kind: Fault,
    network: &Network,
) -> Read<Vec<(Event, Option<Event>)>> {
    let pattern = table.needed("link", "the name of a link, or a pattern such as core*")?;
    let none = Change::default();
    let (change, back): (Change, fn(&LinkEntry) -> Change) = match kind {
        Fault::LinkLoss => {
            let loss: Option<Chance> = table.quantity("loss")?;
            let loss = loss.ok_or_else(|| table.lacks("loss", Chance::EXPECTED))?;
            let back = |l: &LinkEntry| Change { loss: Some(l.spec.loss), ..Change::default() };
            (Change { loss: Some(loss), ..none }, back)
        }
        Fault::LinkRate => {
            let rate: Option<Rate> = table.quantity("rate")?;
            let rate = rate.ok_or_else(|| table.lacks("rate", Rate::EXPECTED))?;
            let back = |l: &LinkEntry| Change { rate: Some(l.spec.rate), ..Change::default() };
            (Change { rate: Some(rate), ..none }, back)
        }
        Fault::LinkDelay => {
            let delay = table.delay("delay")?;
            let delay = delay.ok_or_else(|| table.lacks("delay", Span::EXPECTED))?;
            let back = |l: &LinkEntry| Change { delay: Some(l.spec.delay), ..Change::default() };
            (Change { delay: Some(delay), ..none }, back)
        }
        Fault::LinkDown
        | Fault::Pause
        | Fault::Agents
        | Fault::Capacity
        | Fault::Clock
        | Fault::Coalesce
        | Fault::RouterSilent
        | Fault::RouterRestart
        | Fault::RouterCapacity => {
            let down = Change { state: Some(LinkState::Down), ..none };
            (down, |_| Change { state: Some(LinkState::Up), ..Change::default() })
        }
    };
    let links = network.link_names.matching(&pattern)?;
    Ok(links
        .into_iter()
        .map(|link| {
            let back = back(&network.links[link]);
            (Event::Link(link, change), Some(Event::Link(link, back)))
        })
        .collect())
}

#[cfg(test)]
mod tests;
