//! The world's own claims: packets pass links in order, routers see them come and go, timers
//! ring once.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_path::{START, Urgent, World, bottleneck, wire};
use gtp_peers::{Admission, Body, Endpoint, Note, Packet, Progress, Router};

/// Sends a packet at each multiple of a period.
struct Metronome {
    next: Time,
    period: Span,
    size: Bytes,
    sent: u64,
}

/// Counts what arrives.
#[derive(Default)]
struct Counter {
    bytes: Bytes,
    last: Time,
}

impl Endpoint for Metronome {
    fn handle_packet(&mut self, _now: Time, _packet: &Packet) {}
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_transmit(&mut self, now: Time) -> Option<Packet> {
        if now < self.next {
            return None;
        }
        self.next += self.period;
        self.sent += 1;
        Some(Packet { size: self.size, body: Body::Empty, note: Note::None })
    }
    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}
    fn progress(&self) -> Progress {
        Progress { sent: self.sent, ..Progress::default() }
    }
}

impl Endpoint for Counter {
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        self.bytes += packet.size;
        self.last = now;
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_transmit(&mut self, _now: Time) -> Option<Packet> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn set_demand(&mut self, _now: Time, _rate: Option<Rate>) {}
    fn progress(&self) -> Progress {
        Progress { delivered: self.bytes, ..Progress::default() }
    }
}

/// Drops every third packet and counts.
#[derive(Default)]
struct Toll {
    came: u64,
    left: u64,
    ticks: u64,
    queued_at_most: Bytes,
    behind: Vec<Bytes>,
    next: Time,
}

impl Router for Toll {
    fn set_capacity(&mut self, now: Time, _capacity: Rate) {
        self.next = now + Span::from_millis(100);
    }
    fn handle_arrival(&mut self, _now: Time, queued: Bytes, _packet: &mut Packet) -> Admission {
        self.queued_at_most = self.queued_at_most.max(queued);
        self.came += 1;
        if self.came.is_multiple_of(3) { Admission::Drop } else { Admission::Pass }
    }
    fn handle_departure(&mut self, _now: Time, queued: Bytes, _packet: &mut Packet) {
        self.left += 1;
        self.behind.push(queued);
    }
    fn handle_timeout(&mut self, now: Time, _queued: Bytes) {
        self.ticks += 1;
        self.next = now + Span::from_millis(100);
    }
    fn poll_timeout(&self) -> Option<Time> {
        Some(self.next)
    }
}

fn metronome(period: Span) -> Box<Metronome> {
    Box::new(Metronome { next: START, period, size: Bytes(1_000), sent: 0 })
}

#[test]
fn a_packet_takes_its_size_over_the_rate_and_the_delays() {
    let mut world = World::new();
    let slow = world.link(bottleneck(Rate::from_mbps(8), Span::from_millis(5), Bytes(10_000)));
    let back = world.link(wire(Span::ZERO));
    let flow = world.flow(
        Span::ZERO,
        metronome(Span::from_secs(10)),
        Box::<Counter>::default(),
        &[slow],
        &[back],
    );
    world.run_for(Span::from_secs(1));
    // 1,000 bytes at 8 Mbit/s take 1 ms.
    assert_eq!(world.receiver::<Counter>(flow).last, START + Span::from_millis(6));
}

#[test]
fn a_router_sees_all_that_comes_and_what_it_lets_pass_leaves() {
    let mut world = World::new();
    let spec = bottleneck(Rate::from_mbps(8), Span::from_millis(5), Bytes(100_000));
    let gate = world.controlled_link(spec, Box::<Toll>::default());
    let back = world.link(wire(Span::ZERO));
    let flow = world.flow(
        Span::ZERO,
        metronome(Span::from_millis(1)),
        Box::<Counter>::default(),
        &[gate],
        &[back],
    );
    world.run_for(Span::from_millis(2_999));
    world.run_for(Span::from_millis(500));
    let toll = world.router::<Toll>(gate);
    assert_eq!(world.sent(flow).sent, toll.came);
    assert_eq!(toll.came, 3_500);
    assert_eq!(toll.ticks, 34);
    assert_eq!(world.lost(gate), toll.came / 3);
    assert_eq!(toll.queued_at_most, Bytes::ZERO);
    assert!((world.wire_rate(flow, 1.0, 3.0) / 5.333e6 - 1.0).abs() < 0.01);
}

#[test]
fn what_is_urgent_waits_for_the_packet_in_service_alone() {
    let mut world = World::new();
    let spec = bottleneck(Rate::from_mbps(8), Span::from_millis(5), Bytes(100_000));
    let gate = world.controlled_link(spec, Box::<Toll>::default());
    world.set_urgent(gate, |packet| packet.size < Bytes(500));
    let back = world.link(wire(Span::ZERO));
    let mut ends = Vec::new();
    for (period, size) in [(Span::from_micros(500), 1_000), (Span::from_millis(10), 40)] {
        let (size, next) = (Bytes(size), START + Span::from_micros(700));
        let end = Box::new(Metronome { next, period, size, sent: 0 });
        ends.push(world.flow(Span::ZERO, end, Box::<Counter>::default(), &[gate], &[back]));
    }
    let mut late = Span::ZERO;
    for _ in 0..999 {
        world.run_for(Span::from_millis(10));
        let sent = world.sender::<Metronome>(ends[1]).next.since(START + Span::from_millis(10));
        let last = world.receiver::<Counter>(ends[1]).last;
        late = late.max(last.since(START + sent));
    }
    // 1 ms for the packet before it, 40 us for itself, 5 ms of delay.
    assert!(late > Span::from_millis(5) && late <= Span::from_micros(6_040), "{late:?}");
    let passed = world.received(ends[0]).delivered.0 / 1_000;
    let (toll, lost) = (world.router::<Toll>(gate), world.lost(gate));
    // The router's own drops and the packets in the queue, in service and on the wire.
    let waiting = toll.came - lost - toll.left;
    assert!(waiting > 3_000, "the rest waits: {waiting}");
    assert!(toll.queued_at_most >= Bytes(waiting * 990), "{:?}", toll.queued_at_most);
    assert!((9_940..=9_970).contains(&passed), "the link was never idle: {passed}");
}

/// A link of 8 Mbit/s that lets packets below 500 bytes pass, takes none above 1,000, and flows of
/// one packet each, which start after so many microseconds. When each is there, in microseconds.
fn passages(packets: &[(u64, u64)]) -> Vec<Option<u64>> {
    let mut world = World::new();
    let mut spec = bottleneck(Rate::from_mbps(8), Span::ZERO, Bytes(100_000));
    spec.mtu = Some(Bytes(1_000));
    let gate = world.link(spec);
    world.set_urgent(gate, |packet| packet.size < Bytes(500));
    let back = world.link(wire(Span::ZERO));
    let mut ends = Vec::new();
    for (after, size) in packets {
        let (period, size) = (Span::from_secs(100), Bytes(*size));
        let end = Box::new(Metronome { next: START, period, size, sent: 0 });
        let after = Span::from_micros(*after);
        ends.push(world.flow(after, end, Box::<Counter>::default(), &[gate], &[back]));
    }
    world.run_for(Span::from_secs(10));
    let last = ends.iter().map(|end| world.receiver::<Counter>(*end).last);
    last.map(|at| (at > START).then(|| at.since(START).as_nanos() / 1_000)).collect()
}

#[test]
fn two_that_come_as_the_link_falls_free_do_not_both_enter_it() {
    let came = passages(&[(0, 1_000), (1_000, 1_000), (1_000, 1_000), (1_500, 40)]);
    assert_eq!(came, [Some(1_000), Some(2_000), Some(3_040), Some(2_040)]);
}

#[test]
fn what_waits_behind_packets_that_the_link_refuses_still_leaves() {
    let came = passages(&[(0, 1_000), (100, 1_500), (200, 1_500), (300, 1_000)]);
    assert_eq!(came, [Some(1_000), None, None, Some(2_000)]);
}

#[test]
fn a_router_hears_of_lanes_without_anything_urgent_what_it_hears_of_a_queue() {
    let heard = |urgent: Option<Urgent>| {
        let mut world = World::new();
        let spec = bottleneck(Rate::from_mbps(8), Span::from_millis(5), Bytes(100_000));
        let gate = world.controlled_link(spec, Box::<Toll>::default());
        urgent.into_iter().for_each(|urgent| world.set_urgent(gate, urgent));
        let back = world.link(wire(Span::ZERO));
        let period = Span::from_nanos(300_100);
        let (there, back) = ([gate], [back]);
        world.flow(Span::ZERO, metronome(period), Box::<Counter>::default(), &there, &back);
        world.run_for(Span::from_millis(50));
        world.router::<Toll>(gate).behind.clone()
    };
    let queue = heard(None);
    assert_eq!(heard(Some(|_| false)), queue);
    // Of those that came at 0, 0.3, 0.9, 1.2 and 1.8 ms: the third at 1 ms, two at 2 ms.
    assert_eq!((queue.len(), &queue[..2]), (50, &[Bytes(1_000), Bytes(2_000)][..]));
}

#[test]
fn a_list_of_ordinals_is_what_a_link_loses() {
    let mut world = World::new();
    let there = world.link(wire(Span::from_millis(1)));
    let back = world.link(wire(Span::ZERO));
    world.lose(there, &[0, 2, 3]);
    let end = Box::<Counter>::default();
    let flow = world.flow(Span::ZERO, metronome(Span::from_millis(1)), end, &[there], &[back]);
    world.run_for(Span::from_millis(10));
    assert_eq!((world.lost(there), world.seen(there)), (3, 11));
    assert_eq!(world.received(flow).delivered, Bytes(7_000));
}
