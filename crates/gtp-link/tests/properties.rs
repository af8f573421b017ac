//! What holds for every link, whatever is offered to it.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{
    Burst, Chance, Change, Jitter, Link, LinkSpec, LinkState, Network, Order, Outcome, Policer,
    Reorder, Transit, Verdict,
};
use proptest::prelude::*;

/// Packets as (gap before it in ns, size in bytes).
fn offers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..60_000_u64, 1..3_000_u64), 1..400)
}

/// Links whose packets keep their order.
fn orderly() -> impl Strategy<Value = LinkSpec> {
    let numbers = (1..2_000_u64, 0..20_000_000_u64, 0..60_000_u64, 0..9_000_000_u64);
    let chances = (0..300_000_000_u32, 0..300_000_000_u32, any::<bool>());
    (numbers, chances).prop_map(|((mbps, delay, queue, jitter), (loss, twice, bursts))| {
        let burst = Burst {
            enter: Chance::from_percent(1),
            leave: Chance::from_percent(20),
            loss: Chance::from_percent(80),
        };
        LinkSpec {
            rate: Rate::from_mbps(mbps),
            delay: Span::from_nanos(delay),
            queue: Bytes(queue),
            mtu: Some(Bytes(2_900)),
            jitter: Jitter { span: Span::from_nanos(jitter), order: Order::Kept },
            loss: Chance::from_billionths(loss),
            burst: bursts.then_some(burst),
            duplicate: Chance::from_billionths(twice),
            ..LinkSpec::default()
        }
    })
}

/// Links that may do anything.
fn any_link() -> impl Strategy<Value = LinkSpec> {
    let policer = prop::option::of((1..2_000_u64, 0..60_000_u64));
    (orderly(), 0..500_000_000_u32, 0..5_000_000_u64, any::<bool>(), policer).prop_map(
        |(spec, chance, extra, free, policer)| {
            let order = if free { Order::Free } else { Order::Kept };
            let chance = Chance::from_billionths(chance);
            let policer = policer.map(|(mbps, bucket)| Policer {
                rate: Rate::from_mbps(mbps),
                bucket: Bytes(bucket),
            });
            LinkSpec {
                policer,
                jitter: Jitter { order, ..spec.jitter },
                reorder: Reorder { chance, extra: Span::from_nanos(extra) },
                ..spec
            }
        },
    )
}

/// Offers everything; gives (offered at, size, verdict).
fn run(spec: &LinkSpec, seed: u64, offers: &[(u64, u64)]) -> (Link, Vec<(Time, Bytes, Verdict)>) {
    let mut link = Link::new(spec.clone(), seed);
    let mut now = Time::from_nanos(1);
    let verdicts = offers
        .iter()
        .map(|&(gap, size)| {
            now += Span::from_nanos(gap);
            let verdict = link.enqueue(now, Bytes(size));
            assert!(link.queued(now) <= spec.queue, "the queue never holds more than its size");
            (now, Bytes(size), verdict)
        })
        .collect();
    (link, verdicts)
}

fn transits(verdicts: &[(Time, Bytes, Verdict)]) -> Vec<(Time, Bytes, Transit)> {
    verdicts
        .iter()
        .filter_map(|&(at, size, verdict)| match verdict {
            Verdict::Deliver { transit, .. } => Some((at, size, transit)),
            Verdict::Drop(_) => None,
        })
        .collect()
}

proptest! {
    #[test]
    fn every_packet_offered_is_carried_or_dropped(
        spec in any_link(), seed: u64, offers in offers()
    ) {
        let (link, verdicts) = run(&spec, seed, &offers);
        let stats = link.stats();
        let delivered = transits(&verdicts);
        let bytes: u64 = delivered.iter().map(|(_, size, _)| size.0).sum();
        prop_assert_eq!(stats.offered.packets, offers.len() as u64);
        prop_assert_eq!(stats.carried.packets, delivered.len() as u64);
        prop_assert_eq!(stats.carried.bytes, Bytes(bytes));
        let sum = stats.carried.packets + stats.drops.total().packets;
        prop_assert_eq!(stats.offered.packets, sum);
        let sum = stats.carried.bytes + stats.drops.total().bytes;
        prop_assert_eq!(stats.offered.bytes, sum);
    }

    #[test]
    fn packets_keep_their_order_unless_reordering_is_asked_for(
        spec in orderly(), seed: u64, offers in offers()
    ) {
        let delivered = transits(&run(&spec, seed, &offers).1);
        prop_assert!(delivered.windows(2).all(|w| w[0].2.at <= w[1].2.at));
    }

    #[test]
    fn no_window_carries_more_than_the_rate(spec in any_link(), seed: u64, offers in offers()) {
        let delivered = transits(&run(&spec, seed, &offers).1);
        // It is enough to look at windows that begin as a packet leaves and end as another does.
        for first in 0..delivered.len() {
            let mut bytes = Bytes::ZERO;
            for last in first + 1..delivered.len() {
                bytes += delivered[last].1;
                let window = delivered[last].2.leave.since(delivered[first].2.leave);
                prop_assert!(bytes / spec.rate <= window);
            }
        }
    }

    #[test]
    fn no_packet_arrives_before_propagation_and_serialisation(
        spec in any_link(), seed: u64, offers in offers()
    ) {
        for (offered, size, transit) in transits(&run(&spec, seed, &offers).1) {
            prop_assert!(transit.leave >= offered + size / spec.rate);
            prop_assert!(transit.at >= transit.leave + spec.delay);
        }
    }

    #[test]
    fn jitter_that_keeps_order_stays_within_its_span(
        spec in orderly(), seed: u64, offers in offers()
    ) {
        for (_, _, transit) in transits(&run(&spec, seed, &offers).1) {
            prop_assert!(transit.at <= transit.leave + spec.delay + spec.jitter.span);
        }
    }

    #[test]
    fn what_stands_is_the_least_that_waited(
        spec in any_link(), seed: u64, offers in offers(), asked in 0..400_usize,
    ) {
        let mut link = Link::new(spec, seed);
        let mut now = Time::from_nanos(1);
        let mut least = Bytes::ZERO;
        for (i, &(gap, size)) in offers.iter().enumerate() {
            // A queue only falls between two packets.
            for part in [gap / 2, gap - gap / 2] {
                now += Span::from_nanos(part);
                least = least.min(link.queued(now));
            }
            if i == asked % offers.len() {
                prop_assert_eq!(link.take_least_queued(now), least);
                least = link.queued(now);
            }
            link.enqueue(now, Bytes(size));
        }
        prop_assert_eq!(link.take_least_queued(now), least);
    }

    #[test]
    fn the_same_seed_gives_the_same_run(spec in any_link(), seed: u64, offers in offers()) {
        let (one, two) = (run(&spec, seed, &offers), run(&spec, seed, &offers));
        prop_assert_eq!(one.1, two.1);
        prop_assert_eq!(one.0.stats(), two.0.stats());
    }

    #[test]
    fn a_network_gives_every_parcel_back_once_per_copy_through_any_changes(
        specs in prop::collection::vec(any_link(), 1..4),
        offers in offers(),
        changes in prop::collection::vec((0..20_000_000_u64, 0..4_usize, 0..5_u8), 0..12),
    ) {
        let mut net = Network::new(Bytes(u64::MAX));
        let ids: Vec<_> = specs.into_iter().zip(1..).map(|(s, n)| net.add_link(s, n)).collect();
        let route = net.add_route(&ids);
        for (at, link, kind) in changes {
            let change = match kind {
                0 => Change::DOWN,
                1 => Change::UP,
                2 => Change { rate: Some(Rate::from_mbps(at % 999)), ..Change::default() },
                3 => Change { delay: Some(Span::from_nanos(at)), ..Change::default() },
                _ => Change { state: Some(LinkState::Up), queue: Some(Bytes(at)), ..Change::DOWN },
            };
            net.schedule(Time::from_nanos(at), ids[link % ids.len()], change);
        }
        // In the end all is mended, so that nothing stays for ever.
        for &id in &ids {
            let mend = Change { rate: Some(Rate::from_mbps(100)), ..Change::UP };
            net.schedule(Time::from_nanos(30_000_000), id, mend);
        }
        let mut at = Time::ZERO;
        for (number, (gap, size)) in offers.iter().enumerate() {
            at += Span::from_nanos(*gap);
            prop_assert!(net.send(at, route, Bytes(*size), number).is_ok());
        }
        let (mut delivered, mut dropped, mut clock) = (0_u64, 0_u64, Time::ZERO);
        while let Some(outcome) = net.poll(Time::MAX) {
            let when = match outcome {
                Outcome::Delivered { due, .. } => { delivered += 1; due }
                Outcome::Dropped { at, .. } => { dropped += 1; at }
            };
            prop_assert!(clock <= when, "outcomes come in the order of their times");
            clock = when;
        }
        prop_assert_eq!(net.held(), Bytes::ZERO);
        let last = net.link(ids[ids.len() - 1]).stats();
        prop_assert_eq!(delivered, last.carried.packets + last.duplicated.packets);
        prop_assert!(delivered + dropped >= offers.len() as u64);
        let counted: u64 = ids.iter().map(|&id| net.link(id).stats().drops.total().packets).sum();
        // A packet cut off with its copy is one drop of the link and two parcels that come back.
        prop_assert!(dropped >= counted);
    }
}
