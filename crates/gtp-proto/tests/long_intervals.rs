//! Control intervals of a minute: sessions live through them, and settle in as many as in short
//! ones.

mod world;

use gtp_alloc::{Rate, Span};
use gtp_link::LinkSpec;
use gtp_proto::Law;
use world::{FlowSpec, World};

const LAW: Law = Law::EndNode { alpha: 0.1, beta: 0.2 };
const CAPACITY: Rate = Rate::from_mbps(3);
/// Before the last session joins.
const BEFORE: u64 = 40;
/// After that.
const AFTER: u64 = 40;

/// Adds a session of a source of its own to this sink, over 20 ms there and back.
fn join(world: &mut World, sink: usize, law: Law, interval: Span) -> usize {
    let source = world.host(Rate::UNLIMITED, Rate::UNLIMITED, Some(interval));
    let delay = Span::from_millis(10);
    let link = |world: &mut World| world.link(LinkSpec { delay, ..LinkSpec::default() });
    let (down, up) = (vec![link(world)], vec![link(world)]);
    let (weight, max_rate, units) = (1.0, Rate::UNLIMITED, 1 << 40);
    world.flow(FlowSpec { source, sink, down, up, law, weight, max_rate, units })
}

/// Intervals from the joining of a fifth session until all are within 5 % of equal shares.
fn settles_in(interval: Span) -> u64 {
    let mut world = World::new();
    let sink = world.host(Rate::UNLIMITED, CAPACITY, Some(interval));
    let mut flows: Vec<usize> = (0..4).map(|_| join(&mut world, sink, LAW, interval)).collect();
    world.run_for(interval * BEFORE);
    flows.push(join(&mut world, sink, LAW, interval));
    world.run_for(interval * AFTER);
    let span = interval.as_secs_f64();
    let share = CAPACITY.as_f64() / flows.len() as f64;
    let off = |at: &u64| {
        let from = (BEFORE + at) as f64 * span;
        let rate = |&flow| world.rate(flow, from, from + span);
        flows.iter().map(rate).any(|rate| (rate - share).abs() > 0.05 * share)
    };
    (0..AFTER).rfind(off).map_or(0, |last| last + 1)
}

#[test]
fn sessions_settle_in_as_many_intervals_of_a_minute_as_of_a_second() {
    let [second, minute] = [1, 60].map(|secs| settles_in(Span::from_secs(secs)));
    assert!((2..AFTER - 5).contains(&second), "{second}");
    assert!(minute.abs_diff(second) <= 2, "{minute} of a minute, {second} of a second");
}

#[test]
fn between_two_intervals_of_ten_minutes_both_ends_speak_and_a_session_moves_on() {
    for law in [LAW, Law::Grant] {
        let mut world = World::new();
        let interval = Span::from_secs(600);
        let sink = world.host(Rate::UNLIMITED, CAPACITY, Some(interval));
        let flow = join(&mut world, sink, law, interval);
        world.run_for(interval * 2);
        let rates: Vec<f64> = (60..119)
            .map(|ten| world.rate(flow, f64::from(ten) * 10.0, f64::from(ten + 1) * 10.0))
            .collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        assert!(least > 0.0 && most <= 1.05 * least, "{law:?}: {rates:?}");
    }
}
