//! Whole sessions over bad paths: every unit arrives, whatever the links do.

mod world;

use gtp_alloc::{Rate, Span};
use gtp_link::{Burst, Chance, LinkSpec, Reorder};
use gtp_proto::Law;
use world::{FlowSpec, World};

fn percent(p: f64) -> Chance {
    Chance::from_billionths((p * 1e7) as u32)
}

/// One flow of `units` over a path with these links there and back, with 100 Mbit/s at the sink.
fn flow(units: u64, there: LinkSpec, back: LinkSpec) -> (World, usize) {
    let mut world = World::new();
    let down = vec![world.link(there)];
    let up = vec![world.link(back)];
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, None);
    let sink = world.host(Rate::UNLIMITED, Rate::from_mbps(100), None);
    let (law, weight, max_rate) = (Law::Grant, 1.0, Rate::UNLIMITED);
    let flow = world.flow(FlowSpec { source, sink, down, up, law, weight, max_rate, units });
    (world, flow)
}

/// Seconds until all has arrived.
fn finish(world: &mut World, flow: usize, units: u64, limit: u64) -> f64 {
    let step = Span::from_millis(20);
    while world.flows[flow].sink.outstanding() > 0 {
        assert!(world.elapsed() < limit as f64, "{} left", world.flows[flow].sink.outstanding());
        world.run_for(step);
    }
    assert_eq!(world.flows[flow].payload, units * u64::from(world::UNIT));
    world.elapsed()
}

fn far(delay_ms: u64) -> LinkSpec {
    LinkSpec { delay: Span::from_millis(delay_ms), ..LinkSpec::default() }
}

const SIZES: [u64; 4] = [1, 2, 200, 20_000];

#[test]
fn all_units_arrive_through_thirty_percent_of_loss_both_ways() {
    for units in SIZES {
        let lossy = LinkSpec { loss: percent(30.0), ..far(30) };
        let (mut world, flow) = flow(units, lossy.clone(), lossy);
        finish(&mut world, flow, units, 12);
    }
}

#[test]
fn all_units_arrive_once_through_reordering_and_none_is_asked_for_twice() {
    for units in SIZES {
        let reorder = Reorder { chance: percent(10.0), extra: Span::from_millis(4) };
        let link = LinkSpec { reorder, ..far(30) };
        let (mut world, flow) = flow(units, link.clone(), link);
        finish(&mut world, flow, units, 6);
        // The sender sees some packets late and never lost.
        let duplicates = world.flows[flow].sink.counters().duplicates;
        assert!(duplicates <= units / 200 + 1, "{units}: {duplicates}");
    }
}

#[test]
fn all_units_arrive_through_copies_of_every_second_packet() {
    for units in SIZES {
        let link = LinkSpec { duplicate: percent(50.0), ..far(30) };
        let (mut world, flow) = flow(units, link.clone(), link);
        finish(&mut world, flow, units, 6);
        // Copies on the way have a packet number that was seen: they are replays, no more.
        assert_eq!(world.flows[flow].sink.counters().duplicates, 0);
    }
}

#[test]
fn all_units_arrive_through_bursts_of_loss() {
    let burst = Burst { enter: percent(0.5), leave: percent(5.0), loss: percent(100.0) };
    for units in SIZES {
        let link = LinkSpec { burst: Some(burst), ..far(30) };
        let (mut world, flow) = flow(units, link.clone(), link);
        finish(&mut world, flow, units, 20);
    }
}

#[test]
fn everything_at_once_still_delivers_every_unit() {
    let burst = Burst { enter: percent(0.2), leave: percent(5.0), loss: percent(90.0) };
    let link = LinkSpec {
        loss: percent(10.0),
        burst: Some(burst),
        duplicate: percent(10.0),
        reorder: Reorder { chance: percent(10.0), extra: Span::from_millis(50) },
        ..far(30)
    };
    for units in SIZES {
        let (mut world, flow) = flow(units, link.clone(), link.clone());
        finish(&mut world, flow, units, 30);
    }
}

#[test]
fn one_unit_takes_two_round_trips_and_a_little() {
    let (mut world, flow) = flow(1, far(30), far(30));
    let seconds = finish(&mut world, flow, 1, 2);
    assert!(seconds <= 0.16, "{seconds}");
}

#[test]
fn loss_of_feedback_alone_does_not_lower_the_rate() {
    for loss in [5.0, 20.0] {
        let back = LinkSpec { loss: percent(loss), ..far(30) };
        let (mut world, flow) = flow(1 << 40, far(30), back);
        world.run_for(Span::from_secs(5));
        let rate = world.rate(flow, 1.0, 5.0);
        assert!(rate > 0.98 * 100e6, "{loss} %: {rate}");
        assert!(world.flows[flow].source.path_bound().is_unlimited());
    }
}
