//! Routers that allocate, and what happens to them: `[[router]]` and its faults.
//!
//! A router shares out one-way links of the scenario among the sessions of the hosts that know it.
//! Which sessions cross which links follows from their ways and is not known here; nor is how a
//! router computes.

use std::collections::BTreeSet;

use gtp_alloc::{Rate, Span};
use gtp_proto::limits::ROUTER_LINKS;

use super::model::{
    AllocatorEntry, BackgroundEntry, Event, LawName, NodeKind, RouterEvent, RouterKey,
    SessionEntry, Site,
};
use super::names::Names;
use super::network::Network;
use super::read::{At, Table};
use super::traffic::hosts;
use super::tree::Complaint;

type Read<T> = Result<T, Complaint>;

/// What is done on the network, as far as routers must know.
pub struct Busy<'a> {
    /// Its sessions.
    pub sessions: &'a [SessionEntry],
    /// Its background flows.
    pub backgrounds: &'a [BackgroundEntry],
    /// By which its hosts share.
    pub law: LawName,
}

/// The routers of a scenario.
#[derive(Debug, Default)]
pub struct Routers {
    /// The routers.
    pub entries: Vec<AllocatorEntry>,
    names: Names,
}

/// Routers that a scenario may have: each has a host of its own.
const ROUTERS_MAX: usize = 1 << 10;
/// Hosts that know a router, counted for each: each of them is a talk of some kilobytes.
const ASKERS_MAX: usize = 1 << 16;
/// What a router shares out of a link if the file does not say it: the rest is for requests,
/// receipts and other protocols.
const SHARED_OUT: f64 = 0.95;
/// Round-trip time of the wire to a router if the file says nothing of where it is.
const NEAR: Span = Span::from_millis(1);

/// Reads all routers.
///
/// # Errors
/// What does not fit.
pub fn routers(top: &mut Table<'_>, network: &Network, busy: &Busy<'_>) -> Read<Routers> {
    let mut found = Routers::default();
    for table in top.tables("router")? {
        if busy.law == LawName::EndNode {
            let message = "a router shares out by the law of `law = \"grant\"`: its sessions have \
                           that law, too";
            return Err(Complaint::new(table.place(), message));
        }
        found.read(table, network, busy)?;
    }
    Ok(found)
}

impl Routers {
    fn read(&mut self, mut table: Table<'_>, network: &Network, busy: &Busy<'_>) -> Read<()> {
        let name = table.needed("name", "a name")?;
        let links = links(&mut table, network)?;
        let askers = askers(&mut table, network)?;
        let site = self.site(&mut table, network, busy)?;
        let keys = [("hosts", RouterKey::Hosts), ("another", RouterKey::Another)];
        let key = table.choice("key", &keys)?.unwrap_or(RouterKey::Hosts);
        let place = table.place().clone();
        table.finish()?;
        let talks: usize = self.entries.iter().map(|router| router.askers.len()).sum();
        if self.entries.len() >= ROUTERS_MAX || talks + askers.len() > ASKERS_MAX {
            let message = format!(
                "more than {ROUTERS_MAX} routers, or more than {ASKERS_MAX} hosts that know them"
            );
            return Err(Complaint::new(&place, message));
        }
        self.names.add("router", &name.value, &name.place)?;
        self.entries.push(AllocatorEntry { name: name.value, site, links, askers, key });
        Ok(())
    }

    fn site(&self, table: &mut Table<'_>, network: &Network, busy: &Busy<'_>) -> Read<Site> {
        let host = table.text("host", "the name of a host")?;
        let rtt = table.delay("rtt")?;
        match (host, rtt) {
            (None, rtt) => Ok(Site::Wire(rtt.unwrap_or(NEAR))),
            (Some(name), Some(_)) => {
                let message = "`host` and `rtt` both say where the router is: keep one";
                Err(Complaint::new(&name.place, message))
            }
            (Some(name), None) => {
                let [host] = hosts(network, &name)?[..] else {
                    let message = format!("{:?} stands for several hosts: name one", name.value);
                    return Err(Complaint::new(&name.place, message));
                };
                let moves = busy.sessions.iter().any(|s| s.source == host || s.sink == host)
                    || busy.backgrounds.iter().any(|b| b.source == host || b.sink == host);
                let taken = self.entries.iter().any(|router| router.site == Site::Host(host));
                if moves || taken {
                    let message = format!(
                        "{:?} has something else to do: a router has a host of its own",
                        name.value
                    );
                    return Err(Complaint::new(&name.place, message));
                }
                Ok(Site::Host(host))
            }
        }
    }

    /// The routers that a pattern stands for.
    fn matching(&self, table: &mut Table<'_>) -> Read<Vec<usize>> {
        let pattern = table.needed("router", "the name of a router, or a pattern such as gate*")?;
        self.names.matching(&pattern)
    }
}

/// The links that a router shares out, and how much of each.
fn links(table: &mut Table<'_>, network: &Network) -> Read<Vec<(usize, Rate)>> {
    let patterns = table.texts("links", "names of links, or patterns such as core*")?;
    let patterns =
        patterns.ok_or_else(|| table.lacks("links", "names of the links that it shares out"))?;
    let capacity: Option<Rate> = table.quantity("capacity")?;
    let mut links: Vec<(usize, Rate)> = Vec::new();
    for pattern in &patterns {
        for link in network.link_names.matching(pattern)? {
            let rate = network.links[link].spec.rate;
            let shared = match capacity {
                Some(capacity) => capacity,
                None if rate.is_unlimited() => {
                    let name = &network.links[link].name;
                    let expected = format!("what it shares out of {name:?}, which has no `rate`");
                    return Err(table.lacks("capacity", &expected));
                }
                None => rate.scale(SHARED_OUT),
            };
            if !links.iter().any(|(known, _)| *known == link) {
                links.push((link, shared));
            }
        }
    }
    if (1..=ROUTER_LINKS).contains(&links.len()) {
        return Ok(links);
    }
    let message =
        format!("a router shares out 1 to {ROUTER_LINKS} links, and these are {}", links.len());
    Err(Complaint::new(patterns.first().map_or(table.place(), |first| &first.place), message))
}

/// The hosts that know a router: all of them if the file names none.
fn askers(table: &mut Table<'_>, network: &Network) -> Read<Vec<usize>> {
    let Some(patterns) = table.texts("hosts", "names of hosts, or patterns such as src*")? else {
        let is_host = |&n: &usize| matches!(network.nodes[n].kind, NodeKind::Host(_));
        return Ok((0..network.nodes.len()).filter(is_host).collect());
    };
    let each = |pattern: &At<String>| hosts(network, pattern);
    let found: Vec<Vec<usize>> = patterns.iter().map(each).collect::<Read<_>>()?;
    Ok(found.into_iter().flatten().collect::<BTreeSet<usize>>().into_iter().collect())
}

/// What a fault does, and what ends it.
type Faults = Vec<(Event, Option<Event>)>;

/// Routers fall silent, and know what they knew when they are back.
///
/// # Errors
/// If there is no such router.
pub fn silent(table: &mut Table<'_>, routers: &Routers) -> Read<Faults> {
    let end = |n| Some(Event::Router(n, RouterEvent::Back));
    let one = |n| (Event::Router(n, RouterEvent::Silent), end(n));
    Ok(routers.matching(table)?.into_iter().map(one).collect())
}

/// Routers begin anew: at once, or after they were away for so long.
///
/// # Errors
/// If there is no such router.
pub fn restart(table: &mut Table<'_>, lasts: Option<Span>, routers: &Routers) -> Read<Faults> {
    let anew = |n| Event::Router(n, RouterEvent::Restart);
    let one = |n| match lasts {
        None => (anew(n), None),
        Some(_) => (Event::Router(n, RouterEvent::Silent), Some(anew(n))),
    };
    Ok(routers.matching(table)?.into_iter().map(one).collect())
}

/// A router shares out another part of one of its links.
///
/// # Errors
/// If there is no such router, or it does not share out this link.
pub fn capacity(table: &mut Table<'_>, network: &Network, routers: &Routers) -> Read<Faults> {
    let link = table.needed("link", "the name of a link that the router shares out")?;
    let place = network.link_names.place(&link)?;
    let capacity: Option<Rate> = table.quantity("capacity")?;
    let capacity = capacity.ok_or_else(|| table.lacks("capacity", "a rate such as 100Mbit"))?;
    let mut faults = Vec::new();
    for n in routers.matching(table)? {
        let router = &routers.entries[n];
        let Some(number) = router.number_of(place) else {
            let message = format!("{:?} does not share out {:?}", router.name, link.value);
            return Err(Complaint::new(&link.place, message));
        };
        let change = |rate| Event::Router(n, RouterEvent::Capacity(number, rate));
        faults.push((change(capacity), Some(change(router.links[number].1))));
    }
    Ok(faults)
}

#[cfg(test)]
mod tests;
