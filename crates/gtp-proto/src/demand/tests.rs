//! Applications that are short of data, and that are not.

use alloc::collections::VecDeque;

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);
const PACKET: Bytes = Bytes(1_477);
/// What the pacer would let go.
const ALLOWED: Rate = Rate::from_mbps(600);

/// Sends a packet every `gap_us` for `ms`, waiting for it in between if `waits`.
fn produce(demand: &mut Demand, from: Time, ms: u64, gap_us: u64, waits: Waits) -> Time {
    let mut now = from;
    while now.since(from) < Span::from_millis(ms) {
        demand.sent(now, PACKET, || MUCH);
        if matches!(waits, Waits::Yes) {
            demand.wait(now + Span::from_micros(1), ALLOWED, Lack::Data);
        }
        now += Span::from_micros(gap_us);
    }
    now
}

enum Waits {
    Yes,
    No,
}

#[test]
fn a_session_that_always_has_something_to_send_wants_everything() {
    let mut demand = Demand::new(START);
    let now = produce(&mut demand, START, 2_000, 100, Waits::No);
    assert!(!demand.is_limited());
    assert_eq!(demand.claim(now), Rate::UNLIMITED);
}

#[test]
fn a_slow_producer_claims_a_tenth_and_the_floor_above_its_rate() {
    let mut demand = Demand::new(START);
    let now = produce(&mut demand, START, 2_000, 500, Waits::Yes);
    assert!(demand.is_limited());
    let rate = 1_477.0 * 8.0 / 500e-6;
    let claim = demand.claim(now).as_f64();
    let expected = rate * (1.0 + DEMAND_ALPHA) + DEMAND_FLOOR.as_f64();
    assert!((claim - expected).abs() < 0.02 * expected, "{claim} {expected}");
}

#[test]
fn a_producer_that_is_slow_no_more_is_unlimited_after_half_a_second() {
    let mut demand = Demand::new(START);
    let now = produce(&mut demand, START, 1_000, 500, Waits::Yes);
    let now = produce(&mut demand, now, 550, 50, Waits::No);
    assert!(!demand.is_limited());
    assert_eq!(demand.claim(now), Rate::UNLIMITED);
}

#[test]
fn a_slow_producer_that_catches_up_after_a_pause_doubles_its_claim_and_takes_it_back() {
    let mut demand = Demand::new(START);
    let now = produce(&mut demand, START, 1_000, 500, Waits::Yes);
    let claim = demand.claim(now).as_f64();
    let now = produce(&mut demand, now, 150, 480, Waits::No);
    let doubled = demand.claim(now).as_f64();
    assert!((doubled / claim - 2.0).abs() < 0.1, "{doubled} {claim}");
    let now = produce(&mut demand, now, 100, 500, Waits::Yes);
    let after = demand.claim(now).as_f64();
    assert!((after / claim - 1.0).abs() < 0.1, "{after} {claim}");
}

#[test]
fn a_claim_is_held_over_a_pause_and_then_falls_to_the_floor() {
    let mut demand = Demand::new(START);
    let now = produce(&mut demand, START, 1_000, 500, Waits::Yes);
    let claim = demand.claim(now);
    let pause = |demand: &mut Demand, ms: u64| {
        let later = now + Span::from_millis(ms);
        demand.roll(later);
        demand.claim(later)
    };
    assert!(pause(&mut demand, 150) >= claim.scale(0.9), "an on-off application keeps it");
    for ms in [600, 900, 1_200] {
        pause(&mut demand, ms);
    }
    assert_eq!(pause(&mut demand, 1_500), DEMAND_FLOOR);
}

/// Runs an application of `bps` that gets ahead by 16 KiB at most, over a session that is granted
/// what it claims, and at most 50 Mbit/s, 100 ms later. Returns what part of it is sent in the end.
fn part_sent(bps: f64, granted_at_first: f64) -> f64 {
    let step = Span::from_micros(100);
    let mut demand = Demand::new(START);
    let (mut now, mut ready, mut credit, mut sent) = (START, 0.0_f64, 0.0_f64, 0_u64);
    let mut grants: VecDeque<f64> = core::iter::repeat_n(granted_at_first, 1_000).collect();
    for turn in 0..60_000 {
        now += step;
        ready = (ready + bps / 8.0 * step.as_secs_f64()).min(16_384.0);
        grants.push_back(demand.claim(now).as_f64().min(50e6));
        let grant = grants.pop_front().unwrap_or(0.0);
        credit = (credit + grant / 8.0 * step.as_secs_f64()).min(2.0 * PACKET.0 as f64);
        while credit >= PACKET.0 as f64 {
            if ready < PACKET.0 as f64 {
                demand.wait(now, ALLOWED, Lack::Data);
                break;
            }
            demand.sent(now, PACKET, || MUCH);
            (credit, ready) = (credit - PACKET.0 as f64, ready - PACKET.0 as f64);
            sent += if turn >= 30_000 { PACKET.0 } else { 0 };
        }
    }
    sent as f64 * 8.0 / 3.0 / bps
}

#[test]
fn an_application_that_cannot_get_ahead_is_never_held_below_what_it_supplies() {
    for tenths in 5..100 {
        for granted_at_first in [0.5e6, 2e6, 50e6] {
            let part = part_sent(f64::from(tenths) * 1e5, granted_at_first);
            assert!(part > 0.98, "{} Mbit/s: {part}", f64::from(tenths) / 10.0);
        }
    }
}

#[test]
fn one_that_waited_a_little_at_the_end_of_a_ramp_is_not_held_to_what_the_ramp_let_through() {
    let mut demand = Demand::new(START);
    // 10, then 100, then 600 Mbit/s, for 60 ms each, and a reader that is late for 13 ms.
    let mut now = START;
    for gap_us in [1_200, 120, 20] {
        now = produce(&mut demand, now, 60, gap_us, Waits::No);
    }
    demand.wait(now, ALLOWED, Lack::Data);
    now += Span::from_millis(13);
    now = produce(&mut demand, now, 60, 20, Waits::No);
    assert!(demand.is_limited());
    let claim = demand.claim(now).as_f64();
    assert!(claim > 0.9 * ALLOWED.as_f64(), "{claim}");
    // But who is slow is known for it at once.
    let mut slow = Demand::new(START);
    let now = produce(&mut slow, START, 250, 1_200, Waits::Yes);
    let claim = slow.claim(now).as_f64();
    assert!(claim < 1.2 * (10e6 + DEMAND_FLOOR.as_f64()), "{claim}");
}

/// One that has been silent for a second, its claim at the floor.
fn silent(lack: Lack) -> (Demand, Time) {
    let mut demand = Demand::new(START);
    demand.wait(START, ALLOWED, lack);
    let mut now = START;
    for _ in 0..10 {
        now += Span::from_millis(100);
        demand.roll(now);
    }
    assert_eq!(demand.claim(now), DEMAND_FLOOR);
    (demand, now)
}

#[test]
fn what_waits_after_a_silence_is_claimed_so_that_it_is_sent_within_a_tenth_of_a_second() {
    let (mut demand, now) = silent(Lack::Data);
    assert!(!demand.backlog(now, Bytes(12_500)), "the floor carries that");
    assert_eq!(demand.claim(now), DEMAND_FLOOR);
    assert!(demand.backlog(now, Bytes(200_000)));
    assert_eq!(demand.claim(now), Rate::from_mbps(16));
    assert!(!demand.backlog(now, Bytes(200_000)), "nothing new is known by asking again");
    assert!(demand.backlog(now, Bytes(2_000_000)));
    assert_eq!(demand.claim(now), Rate::from_mbps(160));
    assert!(demand.is_limited());
    let later = now + DEMAND_HOLD + Span::from_millis(1);
    assert_eq!(demand.claim(later), DEMAND_FLOOR, "it is held as other claims are");
}

#[test]
fn what_a_sink_has_not_asked_for_is_not_claimed() {
    let (mut demand, now) = silent(Lack::Requests);
    assert!(!demand.backlog(now, Bytes(2_000_000)));
    assert_eq!(demand.claim(now), DEMAND_FLOOR);
}

#[test]
fn a_claim_for_what_waits_doubles_as_others_do_until_it_is_for_everything() {
    let (mut demand, start) = silent(Lack::Data);
    demand.backlog(start, Bytes(200_000));
    let mut now = start;
    while now.since(start) < Span::from_millis(450) {
        // Something more has come to wait before the next step.
        let doublings = now.since(start).as_nanos() / SATED.as_nanos();
        demand.backlog(now, Bytes(200_000 << doublings.min(3)));
        demand.sent(now, PACKET, || MUCH);
        let claim = demand.claim(now).as_f64();
        let most = 16e6 * f64::from(2_u32 << doublings.min(4));
        assert!(demand.is_limited() && claim <= most, "{claim} after {doublings}");
        now += Span::from_millis(10);
    }
    let now = produce(&mut demand, now, 100, 1_000, Waits::No);
    assert!(!demand.is_limited());
    // Nor does the window end with another finding.
    demand.roll(now + WINDOW);
    assert_eq!(demand.claim(now + WINDOW), Rate::UNLIMITED);
    // One that waits again begins again.
    demand.wait(now + WINDOW, ALLOWED, Lack::Data);
    demand.roll(now + WINDOW + WINDOW);
    assert!(demand.is_limited());
    assert!(demand.claim(now + WINDOW + WINDOW) <= ALLOWED.scale(1.2));
}

/// What one supplies whose sink asks for four packets ten times a second, or for as many in all
/// when it finds the time: at most the `late`st of so many times.
fn supplied_to_a_lazy_sink(late: u64) -> Rate {
    let mut demand = Demand::new(Time::ZERO);
    let (mut now, mut left, mut most) = (Time::ZERO, 0, Rate::ZERO);
    for tenth in 0..60_u64 {
        left += if (tenth + 1).is_multiple_of(late) { 4 * late } else { 0 };
        for _ in 0..10 {
            now += Span::from_millis(10);
            let asked = Bytes(PACKET.0 * left);
            if left == 0 {
                demand.wait(now, Rate::from_mbps(1), Lack::Requests);
            } else {
                left -= 1;
                demand.sent(now, PACKET, || asked);
            }
            let supplied = demand.supplied(now, asked);
            most = if tenth >= 20 { most.max(supplied) } else { Rate::ZERO };
        }
    }
    most
}

#[test]
fn a_sink_that_asks_for_little_at_a_time_is_supplied_with_its_mean_however_late_it_asks() {
    let mean = Bytes(PACKET.0 * 40).per(Span::from_secs(1));
    for late in 1..=5 {
        let supplied = supplied_to_a_lazy_sink(late).as_f64();
        let most = mean.as_f64() * 1.1 * 1.41;
        assert!(supplied <= most, "{late}: {supplied} of {most}");
    }
}
