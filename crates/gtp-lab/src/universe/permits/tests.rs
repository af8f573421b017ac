//! Worlds of routers that do not come right: they must be caught.

use super::*;
use crate::scenario::model::RouterKey;
use crate::universe::shares::{Standard, judge};
use crate::universe::witness::witnesses;
use crate::universe::{Kind, lasting};

/// The first of these worlds in which every session has one exact share, and some have less than
/// their hosts and links alone would let them have.
fn worlds(count: u64) -> impl Iterator<Item = (u64, Scenario)> {
    let all = (1..=count).map(|seed| (seed, Kind::Routers.world(seed)));
    all.filter(|(_, world)| {
        let active = lasting(world);
        let permits = |world: &Scenario| permits(world, world, &active).expect("shares");
        let alone = unrouted(world);
        let limited = |&k: &usize| !world.sessions[k].demand_at(world.duration).is_unlimited();
        let (with, without) = (permits(world), permits(&alone));
        with.held > 0 && with.vague + without.vague == 0 && !active.iter().any(limited)
    })
}

/// Whether the run of one world is found wanting where another should have run, and whether all of
/// it could be judged.
fn is_caught(should: &Scenario, ran: &Scenario) -> (bool, bool) {
    let (outcome, witnesses) =
        course::run_watched(ran, |trace| witnesses(ran, trace)).expect("it runs");
    let judgement = judge(should, &outcome, &witnesses);
    let whole = judgement.means.excused == 0 && judgement.standard == Standard::Plain;
    (!judgement.failures.is_empty(), whole)
}

#[test]
fn hosts_that_do_not_ask_are_caught_wherever_a_router_lowers_what_they_may_send() {
    let mut caught = 0;
    for (seed, world) in worlds(80) {
        let mut deaf = world.clone();
        deaf.allocators.iter_mut().for_each(|router| router.askers.clear());
        let (is_caught, whole) = is_caught(&world, &deaf);
        assert!(is_caught || !whole, "world {seed}");
        caught += usize::from(is_caught);
    }
    assert!(caught >= 8, "{caught}");
}

#[test]
fn routers_that_share_out_four_fifths_are_caught_wherever_they_lower_what_sessions_may_send() {
    let mut caught = 0;
    for (seed, world) in worlds(300) {
        let mut poorer = world.clone();
        for router in &mut poorer.allocators {
            router.links.iter_mut().for_each(|(_, rate)| *rate = rate.scale(0.8));
        }
        for (_, event) in &mut poorer.events {
            if let Event::Router(_, RouterEvent::Capacity(_, rate)) = event {
                *rate = rate.scale(0.8);
            }
        }
        let active = lasting(&world);
        let [full, less] = [&world, &poorer].map(|w| permits(w, w, &active).expect("shares"));
        // One that lets have nothing lets have no less, and others may have more than hosts do.
        let mut both = full.bounds.iter().zip(&less.bounds);
        if !both.any(|(full, less)| less.share.1 < 0.9 * full.share.1) {
            continue;
        }
        let (is_caught, whole) = is_caught(&world, &poorer);
        assert!(is_caught || !whole, "world {seed}");
        caught += usize::from(is_caught);
    }
    assert!(caught >= 6, "{caught}");
}

#[test]
fn drawn_routers_come_to_every_end_and_are_known_to_some_and_not_to_others() {
    let (mut known, mut strangers, mut fickle, mut unheard, mut gone) = (0, 0, 0, 0, 0);
    for seed in 1..=200 {
        let world = Kind::Routers.world(seed);
        let routers = Routers::at_end(&world);
        let uses = course::uses(&world).expect("ways");
        known += uses.iter().filter(|uses| !uses.crossed.is_empty()).count();
        strangers += uses.iter().filter(|uses| uses.crossed.is_empty()).count();
        fickle += routers.fickle.iter().flatten().flatten().count();
        unheard += world.allocators.iter().filter(|r| r.key == RouterKey::Another).count();
        gone += routers.last.iter().flatten().filter(|rate| **rate >= NOBODY).count();
    }
    assert!(known > 200 && strangers > 100, "{known} known, {strangers} strangers");
    assert!(fickle > 20 && unheard > 10 && gone > 40, "{fickle}, {unheard}, {gone}");
}
