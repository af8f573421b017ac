//! Face two: a router between network namespaces, for root.
//!
//! Every host of the file is a namespace with a TUN device. Whatever IP packet its kernel sends
//! there is looked up by its destination, passes the links of the route between the two hosts and
//! is written to the other's device: so kernel TCP and anything else crosses the very network that
//! the relay and the simulator know. Packets are not changed; no hop is counted.
//!
//! The device does not tell when a packet was sent: up to a tick may pass before it is seen, and
//! that is not in the timing error that the router states.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::process::Command as Program;
use std::rc::Rc;
use std::sync::mpsc;

use gtp_alloc::{Bytes, Time};
use gtp_link::{LinkId, Network, Outcome, RouteId};
use gtp_sys::Clock;
use gtp_sys::tun::Tun;

use crate::control::Command;
use crate::poller::{EventFlags, Poller, Waker};
use crate::spec::{HostSpec, NetSpec};
use crate::stats::{self, PathRow, Snapshot};
use crate::timing::Lateness;

/// See the module's head.
pub(crate) struct Router {
    poller: Poller,
    clock: Clock,
    start: Time,
    net: Network<Rc<[u8]>>,
    hosts: Vec<Host>,
    by_address: HashMap<IpAddr, usize>,
    routes: HashMap<(usize, usize), RouteId>,
    rows: Vec<PathRow>,
    /// The host at the end of each route.
    ends: Vec<usize>,
    late: Lateness,
    names: Vec<String>,
    refused: u64,
    failed: u64,
    unrouted: u64,
    commands: mpsc::Receiver<Command>,
}

/// A host at work. The device is closed before the namespace goes.
struct Host {
    tun: Tun,
    _namespace: Namespace,
}

/// A named network namespace, removed at the end if it was made here.
struct Namespace {
    name: String,
    origin: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Found,
    Made,
}

impl Router {
    /// Makes namespaces and devices; nothing is carried before [`Router::run`].
    pub(crate) fn open(spec: &NetSpec, commands: mpsc::Receiver<Command>) -> io::Result<Router> {
        let clock = Clock::start();
        let start = clock.now();
        let mut net = crate::network(spec, start);
        let (mut routes, mut rows, mut ends) = (HashMap::new(), Vec::new(), Vec::new());
        for route in &spec.routes {
            let links: Vec<LinkId> = route.links.iter().copied().map(LinkId).collect();
            let id = net.add_route(&links);
            let name = format!("{}-{}", spec.hosts[route.from].name, spec.hosts[route.to].name);
            if routes.insert((route.from, route.to), id).is_some() {
                return Err(io::Error::other(format!("two routes for {name}")));
            }
            rows.push(PathRow { name, ..PathRow::default() });
            ends.push(route.to);
        }
        let hosts = spec.hosts.iter().map(Host::open).collect::<io::Result<Vec<_>>>()?;
        let poller = Poller::new(spec.emulator.tick)?;
        for (n, host) in (0..).zip(&hosts) {
            poller.add(&host.tun, n, EventFlags::IN)?;
        }
        let addresses = |(n, host): (usize, &HostSpec)| -> Vec<(IpAddr, usize)> {
            host.addresses.iter().map(|(ip, _)| (*ip, n)).collect()
        };
        Ok(Router {
            poller,
            clock,
            start,
            net,
            by_address: spec.hosts.iter().enumerate().flat_map(addresses).collect(),
            hosts,
            routes,
            rows,
            ends,
            late: Lateness::default(),
            names: spec.links.iter().map(|link| link.name.clone()).collect(),
            refused: 0,
            failed: 0,
            unrouted: 0,
            commands,
        })
    }

    /// Wakes this router from other threads.
    pub(crate) fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Rounds until told to stop; then the last counters.
    ///
    /// # Errors
    /// If the kernel refuses to wait, or a device is gone.
    pub(crate) fn run(mut self) -> io::Result<Snapshot> {
        // Without it the emulator is only less exact, which it measures.
        let punctuality = gtp_sys::schedule::punctual();
        tracing::debug!(?punctuality, "running");
        let mut packet = vec![0; LARGEST];
        loop {
            let until = self.net.poll_timeout();
            let ready = self.poller.wait(until)?;
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Stats(answer) => {
                        // Whoever asked may have gone.
                        let _ = answer.send(self.snapshot());
                    }
                    Command::Link(link, change) => {
                        self.work_off();
                        let now = self.clock.now();
                        self.net.set_link(now, LinkId(link), change);
                    }
                    // A router has no paths; the handle knows none to ask for.
                    Command::Carry(..) => {}
                    Command::Stop => return Ok(self.snapshot()),
                }
            }
            for (host, _) in ready {
                self.take_in(host as usize, &mut packet)?;
            }
            self.work_off();
        }
    }

    fn take_in(&mut self, from: usize, packet: &mut [u8]) -> io::Result<()> {
        for _ in 0..PACKETS_PER_ROUND {
            let Some(len) = self.hosts[from].tun.read(packet)? else { return Ok(()) };
            let packet = &packet[..len];
            let route = destination(packet)
                .and_then(|to| self.by_address.get(&to))
                .and_then(|to| self.routes.get(&(from, *to)));
            let Some(&route) = route else {
                self.unrouted += 1;
                continue;
            };
            let size = Bytes(len as u64);
            self.rows[route.0].up.count_in(size);
            if self.net.send(self.clock.now(), route, size, Rc::from(packet)).is_err() {
                self.refused += 1;
                self.rows[route.0].up.dropped_packets += 1;
            }
        }
        Ok(())
    }

    /// Everything due by now leaves the network, and then the machine.
    fn work_off(&mut self) {
        let now = self.clock.now();
        while let Some(outcome) = self.net.poll(now) {
            match outcome {
                Outcome::Delivered { due, route, parcel } => {
                    self.late.record(self.clock.now().since(due));
                    self.rows[route.0].up.count_out(Bytes(parcel.len() as u64));
                    if self.hosts[self.ends[route.0]].tun.write(&parcel).is_err() {
                        self.failed += 1;
                    }
                }
                Outcome::Dropped { route, .. } => self.rows[route.0].up.dropped_packets += 1,
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        Snapshot {
            t: stats::seconds(self.start, now),
            links: stats::link_rows(&self.net, &self.names, now.since(self.start)),
            paths: self.rows.clone(),
            timing_error: self.late.summary(),
            refused_packets: self.refused,
            failed_packets: self.failed,
            unrouted_packets: self.unrouted,
        }
    }
}

impl Host {
    fn open(spec: &HostSpec) -> io::Result<Host> {
        let namespace = Namespace::find_or_make(&spec.namespace)?;
        let tun = Tun::open(DEVICE, Some(&namespace.path()))?;
        let inside = |words: &[&str]| ip(&[&["-n", spec.namespace.as_str()], words].concat());
        inside(&["link", "set", "lo", "up"])?;
        for (address, length) in &spec.addresses {
            let address = format!("{address}/{length}");
            if address.contains(':') {
                inside(&["addr", "add", &address, "dev", DEVICE, "nodad"])?;
            } else {
                inside(&["addr", "add", &address, "dev", DEVICE])?;
            }
        }
        let mtu = spec.mtu.to_string();
        inside(&["link", "set", DEVICE, "mtu", &mtu, "txqueuelen", QUEUE_LENGTH, "up"])?;
        Ok(Host { tun, _namespace: namespace })
    }
}

impl Namespace {
    fn find_or_make(name: &str) -> io::Result<Namespace> {
        let mut namespace = Namespace { name: name.to_owned(), origin: Origin::Found };
        if !namespace.path().exists() {
            ip(&["netns", "add", name])?;
            namespace.origin = Origin::Made;
        }
        Ok(namespace)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if self.origin == Origin::Made
            && let Err(error) = ip(&["netns", "del", &self.name])
        {
            tracing::warn!(%error, namespace = self.name, "cannot remove the namespace");
        }
    }
}

/// Runs iproute2's `ip`.
fn ip(words: &[&str]) -> io::Result<()> {
    let output = Program::new("ip").args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {}: {}", words.join(" "), said.trim())))
}

/// Where an IP packet is bound for; `None` if it is none.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        }
        6 => {
            let bytes: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// The device's name in every namespace.
const DEVICE: &str = "gtp0";
/// Packets that may wait for the router in a device: 120 ms at 1 Gbit/s.
const QUEUE_LENGTH: &str = "10000";
/// The largest IP packet.
const LARGEST: usize = 65_535;
/// Packets read from one device per round, so that none starves the others: 61 times what comes
/// in a tick of 100 µs at 1 Gbit/s.
const PACKETS_PER_ROUND: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_of_both_families_are_read_and_stumps_are_none() {
        let mut v4 = [0; 20];
        v4[0] = 0x45;
        v4[16..20].copy_from_slice(&[10, 0, 0, 2]);
        assert_eq!(destination(&v4), Some(Ipv4Addr::new(10, 0, 0, 2).into()));
        let mut v6 = [0; 40];
        v6[0] = 0x60;
        v6[39] = 1;
        assert_eq!(destination(&v6), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(destination(&v4[..19]), None);
        assert_eq!(destination(&v6[..39]), None);
        assert_eq!(destination(&[]), None);
        assert_eq!(destination(&[0x10; 40]), None);
    }
}
