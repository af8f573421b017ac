//! The pacer against exact arithmetic, and late wake-ups.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const PACKET: Bytes = Bytes(1_477);

/// Sends all that may leave at `now`; the bytes.
fn burst(pacer: &mut Pacer, now: Time) -> u64 {
    let mut bytes = 0;
    while pacer.may_send(now) {
        pacer.sent(now, PACKET);
        bytes += PACKET.0;
    }
    bytes
}

fn started(rate: Rate) -> Pacer {
    let mut pacer = Pacer::new(Time::ZERO);
    pacer.set_rate(Time::ZERO, rate);
    pacer
}

#[test]
fn every_rate_is_held_exactly_over_a_second() {
    let exponents = [3, 4, 5, 6, 7, 8, 9, 10];
    let odd = [1_234_567, 629_999_999, 999_999_937, 40_000_000_003, 100_000_000_000];
    for bps in exponents.map(|e| 10_u64.pow(e)).into_iter().chain(odd) {
        let rate = Rate::from_bps(bps);
        let mut pacer = started(rate);
        let span = Span::from_secs(1).max((Bytes(PACKET.0 * 20)) / rate);
        let (mut now, mut sent) = (Time::ZERO, 0_u64);
        while let Some(wake) = pacer.next_wake().filter(|w| w.since(Time::ZERO) < span) {
            now = now.max(wake);
            sent += burst(&mut pacer, now);
        }
        // The clock stopped before the last batch: it and one packet may be missing.
        let slack = pacer.rate.bytes_in(pacer.quantum).0 + 2 * PACKET.0;
        let due = rate.bytes_in(span).0;
        assert!(sent <= due + slack && sent + slack >= due, "{rate}: {sent} of {due}");
        // What was sent and when the next may leave agree to the nanosecond.
        let exact = u128::from(sent) * 8 * 1_000_000_000 / u128::from(bps);
        let off = u128::from(pacer.next.as_nanos()).abs_diff(exact);
        assert!(off <= 1, "{rate}: {off} ns");
    }
}

#[test]
fn a_burst_after_idling_is_a_batch_or_a_millisecond_or_one_packet() {
    for bps in [1_000, 1_000_000, 30_000_000, 600_000_000, 10_000_000_000, 100_000_000_000] {
        let rate = Rate::from_bps(bps);
        let mut pacer = started(rate);
        let now = Time::ZERO + Span::from_secs(100);
        pacer.idle(now);
        let most = BURST_BYTES.0.min(rate.bytes_in(BURST_SPAN).0) + PACKET.0;
        assert!(burst(&mut pacer, now) <= most, "{rate}");
    }
}

#[test]
fn a_late_wake_up_is_caught_up_at_once_for_four_milliseconds_and_a_25th_of_them() {
    for bps in [1_000_000, 600_000_000, 10_000_000_000] {
        let rate = Rate::from_bps(bps);
        let mut pacer = started(rate);
        let sent = burst(&mut pacer, Time::ZERO + Span::from_secs(5));
        assert!(sent <= rate.bytes_in(CATCH_UP).0 * 26 / 25 + PACKET.0 + 1, "{rate}: {sent}");
    }
}

#[test]
fn rate_zero_sends_nothing_and_owes_nothing() {
    let mut pacer = started(Rate::from_bps(8));
    assert!(burst(&mut pacer, Time::ZERO) > 0);
    let now = Time::ZERO + Span::from_secs(1);
    pacer.set_rate(now, Rate::ZERO);
    assert!(!pacer.may_send(now) && pacer.next_wake().is_none());
    pacer.set_rate(now, Rate::from_mbps(1));
    assert!(pacer.may_send(now));
}

#[test]
fn what_is_owed_for_the_last_packet_is_owed_at_the_new_rate() {
    let mut pacer = started(Rate::from_bps(1_000));
    burst(&mut pacer, Time::ZERO);
    let now = Time::ZERO + Span::from_secs(1);
    pacer.set_rate(now, Rate::from_mbps(1_000));
    let left = PACKET.0 * 8 - 1_000;
    let wait = pacer.next.since(now);
    assert!(wait.as_nanos().abs_diff(left) < 10, "a nanosecond a bit: {wait:?}");
}

#[test]
fn an_unlimited_rate_costs_no_time() {
    let mut pacer = started(Rate::UNLIMITED);
    for _ in 0..1_000 {
        assert!(pacer.may_send(Time::ZERO));
        pacer.sent(Time::ZERO, PACKET);
    }
}

#[test]
fn a_host_that_is_late_by_twenty_milliseconds_now_and_then_sends_what_it_may() {
    let rate = Rate::from_mbps(630);
    let mut pacer = started(rate);
    let (mut now, mut sent, mut turn) = (Time::ZERO, 0_u64, 0_u64);
    let end = Time::ZERO + Span::from_secs(10);
    while now < end {
        turn += 1;
        let late = if turn.is_multiple_of(600) { 20 } else { 0 };
        now = now.max(pacer.next_wake().unwrap_or(end)) + Span::from_millis(late);
        sent += burst(&mut pacer, now);
    }
    let due = rate.bytes_in(now.since(Time::ZERO)).0;
    assert!(sent * 1_000 >= due * 998 && sent <= due + PACKET.0, "{sent} of {due}");
}

#[test]
fn what_is_late_when_the_rate_rises_is_made_good_as_it_was_owed() {
    let (low, high) = (Rate::from_mbps(10), Rate::from_mbps(80));
    let late = Span::from_millis(60);
    let mut pacer = started(low);
    burst(&mut pacer, Time::ZERO);
    let raised = Time::ZERO + late;
    pacer.set_rate(raised, high);
    let (mut now, mut sent) = (raised, 0);
    while now < raised + Span::from_secs(5) {
        sent += burst(&mut pacer, now);
        now = pacer.next_wake().unwrap_or(Time::MAX);
    }
    let allowed = low.bytes_in(late).0 + high.bytes_in(now.since(raised)).0;
    let slack = high.bytes_in(BURST_SPAN).0 + 2 * PACKET.0; // The last batch may be missing.
    assert!(sent <= allowed + slack && sent + slack >= allowed, "{sent} of {allowed}");
}

proptest! {
    #[test]
    fn no_course_of_rates_and_wake_ups_sends_more_than_the_rates_allow(
        course in proptest::collection::vec(
            (0..2_000_000_000_u64, 0..20_000_000_u64, any::<bool>()),
            1..60,
        ),
    ) {
        let mut pacer = Pacer::new(Time::ZERO);
        let (mut now, mut sent, mut allowed) = (Time::ZERO, 0_u64, 0_u64);
        let rates: Vec<u64> = course.iter().map(|c| c.0).collect();
        for (bps, nanos, late) in course {
            let rate = Rate::from_bps(bps);
            pacer.set_rate(now, rate);
            if !late {
                sent += burst(&mut pacer, now);
            }
            let span = Span::from_nanos(nanos);
            now += span;
            if !late {
                sent += burst(&mut pacer, now);
            }
            allowed += rate.bytes_in(span).0 + 1;
        }
        let most = Rate::from_bps(rates.into_iter().max().unwrap_or(0));
        let slack = most.bytes_in(CATCH_UP).0 + 2 * PACKET.0;
        prop_assert!(sent <= allowed + slack, "{sent} of {allowed} + {slack}");
    }
}

#[test]
fn short_and_long_arithmetic_give_the_same_departures() {
    for rate in [1, 7, 1_000, 99_000_001, 1_000_000_000, 400_000_000_007] {
        let mut short = Pacer::new(Time::ZERO);
        short.set_rate(Time::ZERO, Rate::from_bps(rate));
        let mut long = short.clone();
        for bytes in (0..2_000).map(|n| Bytes(n * 7 % 1_501)) {
            if let Some(span) = short.short_cost(bytes) {
                assert_eq!((span, short.credit), (long.long_cost(bytes), long.credit), "{rate}");
            } else {
                assert!(bytes.0 * 8_000_000_000 < short.credit, "no other reason here");
                assert_eq!(short.long_cost(bytes), long.long_cost(bytes));
            }
        }
    }
}

#[test]
fn what_is_said_beside_data_is_within_the_rate_and_leaves_data_half_of_it() {
    const SAID: Bytes = Bytes(100);
    let interval = Span::from_millis(10);
    for (bps, data_least) in [(1_000_000, 0.91), (160_000, 0.5), (20_000, 0.5)] {
        let rate = Rate::from_bps(bps);
        let mut pacer = started(rate);
        let (mut now, mut data, mut said) = (Time::ZERO, 0_u64, 0_u64);
        for _ in 0..3_000 {
            let until = now + interval;
            while let Some(at) = pacer.next_wake().filter(|&at| at <= until) {
                data += burst(&mut pacer, now.max(at));
            }
            now = until;
            pacer.said(now, SAID);
            said += SAID.0.min(rate.bytes_in(interval).0 / 2);
        }
        let allowed = rate.bytes_in(now.since(Time::ZERO)).0;
        let part = data as f64 / allowed as f64;
        assert!(data + said <= allowed + 3 * PACKET.0, "{bps}: {data} + {said} of {allowed}");
        assert!(part > data_least - 0.03, "{bps}: {part}");
    }
}
