//! Face one: a relay, without root.
//!
//! Each path listens on one port number for datagrams and for connections; both pass the path's
//! links and come out at its target, and what the target answers passes the links of the other
//! direction. One thread does everything in rounds: take in what came, let the network work off
//! what is due, send it.
//!
//! The relay decides nothing about delay, rate or loss: the network does, to whose parcels it
//! gives the sizes that their IP packets would have.

mod flows;
mod streams;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use gtp_alloc::{Bytes, Span, Time};
use gtp_link::{LinkId, Network, Outcome, RouteId};
use gtp_sys::Clock;

use crate::control::{Command, Protocol};
use crate::poller::{EventFlags, Poller, Waker};
use crate::spec::{Carriage, NetSpec, PathSpec};
use crate::stats::{self, PathRow, Snapshot};
use crate::timing::Lateness;
use crate::udp::{Inbox, UdpPort};
use flows::{Datagram, Flows};
use streams::{Segment, Streams};

/// Which way along a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From client to target.
    Up,
    /// From target to client.
    Down,
}

impl Way {
    fn back(self) -> Way {
        match self {
            Way::Up => Way::Down,
            Way::Down => Way::Up,
        }
    }
}

/// What passes the network.
#[derive(Clone, Debug)]
enum Parcel {
    Datagram(Datagram),
    Segment(Segment),
}

/// A path at work.
struct Lane {
    target: SocketAddr,
    port: UdpPort,
    listener: TcpListener,
    udp: Carriage,
    tcp: Carriage,
    row: PathRow,
}

impl Lane {
    fn open(spec: &PathSpec) -> io::Result<Lane> {
        let (port, listener) = bind_both(spec.listen)?;
        listener.set_nonblocking(true)?;
        Ok(Lane {
            target: spec.target,
            port,
            listener,
            udp: spec.udp,
            tcp: spec.tcp,
            row: PathRow { name: spec.name.clone(), ..PathRow::default() },
        })
    }

    fn count_in(&mut self, way: Way, size: Bytes) {
        self.way(way).count_in(size);
    }

    fn way(&mut self, way: Way) -> &mut stats::WayRow {
        match way {
            Way::Up => &mut self.row.up,
            Way::Down => &mut self.row.down,
        }
    }
}

/// The links, the paths over them, and what is between.
struct Lanes {
    net: Network<Parcel>,
    lanes: Vec<Lane>,
    refused: u64,
}

impl Lanes {
    fn route(lane: usize, way: Way) -> RouteId {
        RouteId(match way {
            Way::Up => 2 * lane,
            Way::Down => 2 * lane + 1,
        })
    }

    fn place(route: RouteId) -> (usize, Way) {
        (route.0 / 2, if route.0.is_multiple_of(2) { Way::Up } else { Way::Down })
    }

    /// The propagation delay one way, without queues.
    fn delay(&self, lane: usize, way: Way) -> Span {
        self.net.route_delay(Lanes::route(lane, way))
    }

    /// Sends a parcel on its way. Gives it back if it cannot even begin: the path is blocked for
    /// it or the emulator is full.
    fn send(&mut self, at: Time, lane: usize, way: Way, parcel: Parcel) -> Result<(), Parcel> {
        let path = &mut self.lanes[lane];
        let (size, carriage) = match &parcel {
            Parcel::Datagram(d) => (d.size_towards(&path.target), path.udp),
            Parcel::Segment(s) => (s.size_towards(&path.target), path.tcp),
        };
        path.count_in(way, size);
        if carriage == Carriage::Blocked {
            path.way(way).dropped_packets += 1;
            return Err(parcel);
        }
        let sent = self.net.send(at, Lanes::route(lane, way), size, parcel);
        if sent.is_err() {
            self.refused += 1;
            self.lanes[lane].way(way).dropped_packets += 1;
        }
        sent
    }
}

/// See the module's head.
pub(crate) struct Relay {
    poller: Poller,
    clock: Clock,
    start: Time,
    lanes: Lanes,
    flows: Flows,
    streams: Streams,
    inbox: Inbox,
    late: Lateness,
    names: Vec<String>,
    commands: mpsc::Receiver<Command>,
    next_sweep: Time,
}

/// Whether the rounds go on.
enum Next {
    Round,
    Stop,
}

impl Relay {
    /// Opens every path's sockets; nothing is carried before [`Relay::run`].
    pub(crate) fn open(spec: &NetSpec, commands: mpsc::Receiver<Command>) -> io::Result<Relay> {
        let clock = Clock::start();
        let start = clock.now();
        let mut net = crate::network(spec, start);
        for path in &spec.paths {
            for way in [&path.up, &path.down] {
                let links: Vec<LinkId> = way.iter().copied().map(LinkId).collect();
                net.add_route(&links);
            }
        }
        let lanes = spec.paths.iter().map(Lane::open).collect::<io::Result<Vec<_>>>()?;
        let poller = Poller::new(spec.emulator.tick)?;
        for (n, lane) in (0..).zip(&lanes) {
            poller.add(lane.port.socket(), Token::Datagrams(n).pack(), EventFlags::IN)?;
            poller.add(&lane.listener, Token::Listener(n).pack(), EventFlags::IN)?;
        }
        Ok(Relay {
            poller,
            clock,
            start,
            lanes: Lanes { net, lanes, refused: 0 },
            flows: Flows::new(spec.emulator.idle),
            streams: Streams::default(),
            inbox: Inbox::new(),
            late: Lateness::default(),
            names: spec.links.iter().map(|link| link.name.clone()).collect(),
            commands,
            next_sweep: start,
        })
    }

    /// Wakes this relay from other threads.
    pub(crate) fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Where each path listens.
    pub(crate) fn listening(&self) -> io::Result<Vec<(String, SocketAddr)>> {
        let lanes = self.lanes.lanes.iter();
        lanes.map(|l| Ok((l.row.name.clone(), l.port.socket().local_addr()?))).collect()
    }

    /// Rounds until told to stop; then the last counters.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub(crate) fn run(mut self) -> io::Result<Snapshot> {
        // Without it the emulator is only less exact, which it measures.
        let punctuality = gtp_sys::schedule::punctual();
        tracing::debug!(?punctuality, "running");
        loop {
            let until = self.next_due();
            let ready = self.poller.wait(until)?;
            if let Next::Stop = self.obey() {
                return Ok(self.snapshot());
            }
            for (token, flags) in ready {
                self.take_in(Token::unpack(token), flags);
            }
            self.work_off();
            self.sweep();
        }
    }

    fn next_due(&mut self) -> Option<Time> {
        let due = [self.lanes.net.poll_timeout(), self.streams.poll_timeout()];
        due.into_iter().flatten().chain([self.next_sweep]).min()
    }

    fn take_in(&mut self, token: Option<Token>, flags: EventFlags) {
        let Relay { poller, clock, lanes, flows, streams, inbox, .. } = self;
        match token {
            Some(Token::Datagrams(lane)) => {
                flows.handle_clients(poller, inbox, lanes, lane as usize, *clock);
            }
            Some(Token::Flow(slot)) => flows.handle_target(inbox, lanes, slot, *clock),
            Some(Token::Listener(lane)) => {
                streams.handle_arrivals(poller, lanes, lane as usize, clock.now());
            }
            Some(Token::Stream(slot, way)) => {
                streams.handle_ready(lanes, slot, way, flags, clock.now());
            }
            None => {}
        }
    }

    /// Everything due by now leaves the network, and then the machine.
    fn work_off(&mut self) {
        let now = self.clock.now();
        let Relay { poller, lanes, flows, streams, late, .. } = self;
        streams.handle_timeouts(lanes, now);
        while let Some(outcome) = lanes.net.poll(now) {
            match outcome {
                Outcome::Delivered { due, route, parcel } => {
                    let (lane, way) = Lanes::place(route);
                    match parcel {
                        Parcel::Datagram(d) => flows.handle_delivery(lanes, way, d, due, late),
                        Parcel::Segment(s) => {
                            streams.handle_delivery(poller, lanes, (lane, way), s, due);
                        }
                    }
                }
                Outcome::Dropped { at, route, parcel, .. } => {
                    let (lane, way) = Lanes::place(route);
                    lanes.lanes[lane].way(way).dropped_packets += 1;
                    if let Parcel::Segment(segment) = parcel {
                        streams.handle_loss(lanes, (lane, way), segment, at);
                    }
                }
            }
        }
        flows.flush(lanes, late);
    }

    fn obey(&mut self) -> Next {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Stats(answer) => {
                    // Whoever asked may have gone.
                    let _ = answer.send(self.snapshot());
                }
                Command::Link(link, change) => {
                    let now = self.clock.now();
                    self.work_off();
                    self.lanes.net.set_link(now, LinkId(link), change);
                }
                Command::Carry(lane, protocol, carriage) => match protocol {
                    Protocol::Udp => self.lanes.lanes[lane].udp = carriage,
                    Protocol::Tcp => self.lanes.lanes[lane].tcp = carriage,
                },
                Command::Stop => return Next::Stop,
            }
        }
        Next::Round
    }

    fn sweep(&mut self) {
        let now = self.clock.now();
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.flows.expire(now);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let now = self.clock.now();
        let mut paths: Vec<PathRow> = self.lanes.lanes.iter().map(|l| l.row.clone()).collect();
        for (n, path) in paths.iter_mut().enumerate() {
            path.udp_clients = self.flows.count(n);
            path.tcp_connections = self.streams.count(n);
        }
        Snapshot {
            t: stats::seconds(self.start, now),
            links: stats::link_rows(&self.lanes.net, &self.names, now.since(self.start)),
            paths,
            timing_error: self.late.summary(),
            refused_packets: self.lanes.refused,
            failed_packets: self.flows.failed(),
            unrouted_packets: 0,
        }
    }
}

/// What a ready descriptor belongs to, packed into the 64 bits that the kernel keeps for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Datagrams(u32),
    Listener(u32),
    Flow(u32),
    /// A connection's side: the one from which `Way` begins.
    Stream(u32, Way),
}

impl Token {
    fn pack(self) -> u64 {
        let (kind, number) = match self {
            Token::Datagrams(n) => (0, n),
            Token::Listener(n) => (1, n),
            Token::Flow(n) => (2, n),
            Token::Stream(n, Way::Up) => (3, n),
            Token::Stream(n, Way::Down) => (4, n),
        };
        kind << 32 | u64::from(number)
    }

    fn unpack(token: u64) -> Option<Token> {
        let number = token as u32;
        match token >> 32 {
            0 => Some(Token::Datagrams(number)),
            1 => Some(Token::Listener(number)),
            2 => Some(Token::Flow(number)),
            3 => Some(Token::Stream(number, Way::Up)),
            4 => Some(Token::Stream(number, Way::Down)),
            _ => None,
        }
    }
}

/// Binds UDP and TCP to the same port number; a free one is looked for if it is 0.
fn bind_both(listen: SocketAddr) -> io::Result<(UdpPort, TcpListener)> {
    let mut tries = if listen.port() == 0 { FREE_PORT_TRIES } else { 1 };
    loop {
        let listener = TcpListener::bind(listen)?;
        tries -= 1;
        match UdpPort::bind(listener.local_addr()?) {
            Ok(port) => return Ok((port, listener)),
            Err(e) if tries == 0 => return Err(e),
            Err(_) => {}
        }
    }
}

/// How often idle clients are looked for.
const SWEEP: Span = Span::from_secs(1);
/// Free ports tried for one that both protocols have.
const FREE_PORT_TRIES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_connection_that_cannot_be_watched_costs_no_later_one_its_place() {
        let text = r#"
            [[link]]
            name = "both"
            [[path]]
            name = "p"
            listen = "127.0.0.1:0"
            target = "127.0.0.1:9"
            up = ["both"]
            down = ["both"]
        "#;
        let (_commander, commands) = mpsc::channel();
        let mut relay = Relay::open(&NetSpec::parse(text).unwrap(), commands).unwrap();
        let entrance = relay.listening().unwrap()[0].1;
        let exhausted = Poller::exhausted().unwrap();
        let Relay { streams, lanes, poller, start, .. } = &mut relay;
        let mut arrive = |poller: &Poller| {
            let client = TcpStream::connect(entrance).unwrap();
            streams.handle_arrivals(poller, lanes, 0, *start);
            (client, streams.count(0))
        };
        let counts = [&exhausted, &exhausted, poller].map(|poller| arrive(poller).1);
        assert_eq!(counts, [0, 0, 1]);
    }
}
