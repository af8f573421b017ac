//! One test for each rule, by the section of draft-ietf-ccwg-bbr-06 that states it.

use gtp_alloc::{Span, Time};

use super::*;
use crate::tcp::law::Delivery;

/// A law that is fed acknowledgments by hand, of a path of 100 ms and 1,000 segments a second.
struct Bed {
    law: Bbr3,
    window: Window,
    ms: u64,
    delivered: u64,
}

/// An acknowledgment: what the path says, and whether it begins a round.
#[derive(Clone, Copy)]
struct Say {
    rate: f64,
    pipe: u64,
    rtt: u64,
    in_flight: u64,
    lost: u64,
    phase: Phase,
    slack: Fullness,
    used: Fullness,
    round: bool,
}

/// A full path without losses.
const FULL: Say = Say {
    rate: 1_000.0,
    pipe: 150,
    rtt: 100,
    in_flight: 150,
    lost: 0,
    phase: Phase::Open,
    slack: Fullness::Full,
    used: Fullness::Slack,
    round: true,
};

impl Bed {
    fn new() -> Bed {
        let window = Window::new(10.0, f64::INFINITY, f64::INFINITY);
        Bed { law: Bbr3::new(1), window, ms: 1_000, delivered: 0 }
    }

    /// One that has found the path's bandwidth and cruises.
    fn cruising() -> Bed {
        let mut bed = Bed::new();
        (0..5).for_each(|_| bed.say(FULL));
        bed.say(Say { pipe: 90, ..FULL });
        bed.say(Say { pipe: 90, ..FULL });
        assert_eq!(bed.law.state, State::Cruise);
        bed
    }

    /// The same, from which it has begun to refill.
    fn refilling() -> Bed {
        let mut bed = Bed::cruising();
        bed.law.cycle.wait = Span::ZERO;
        bed.say(FULL);
        assert_eq!(bed.law.state, State::Refill);
        bed
    }

    /// The same, one round later.
    fn probing() -> Bed {
        let mut bed = Bed::refilling();
        bed.say(FULL);
        assert_eq!(bed.law.state, State::Up);
        bed
    }

    fn say(&mut self, say: Say) {
        self.wait(100);
        self.hear(say);
    }

    fn wait(&mut self, ms: u64) {
        self.ms += ms;
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.ms * 1_000_000)
    }

    fn hear(&mut self, say: Say) {
        let arrived = 10;
        self.delivered += arrived;
        let begins = self.law.rounds.end.max(self.law.model.round_of_losses());
        let delivery = Delivery {
            segments: 100,
            interval: Span::from_secs_f64(100.0 / say.rate),
            delivered_then: if say.round { begins } else { 0 },
            in_flight: say.in_flight,
            lost: say.lost,
            fullness: say.slack,
        };
        let ack = AckView {
            now: self.now(),
            phase: say.phase,
            credit: 2.0,
            acked: arrived,
            arrived,
            lost: 0,
            rtt: Some(Span::from_millis(say.rtt)),
            smoothed_rtt: Span::from_millis(say.rtt),
            least_rtt: Span::from_millis(100),
            pipe_before: say.pipe,
            pipe: say.pipe,
            first: self.delivered,
            next: self.delivered + say.pipe,
            fullness: say.used,
            delivered: self.delivered,
            delivery: Some(delivery),
        };
        self.law.observe(&ack, &mut self.window);
    }

    /// Segment `number` is lost, the `lost`th since it was sent with `in_flight` under way.
    fn lose(&mut self, number: u64, lost: u64, in_flight: u64) {
        let view = LostView {
            now: self.now(),
            number,
            in_flight,
            lost,
            fullness: Fullness::Full,
            delivered: self.delivered,
        };
        self.law.handle_lost(&view, &mut self.window);
    }

    fn recover(&mut self) {
        let (window, delivered) = (self.window.size, self.delivered);
        let loss = LossView { now: self.now(), window, pipe: 100, next: 0, delivered };
        self.law.handle_loss(&loss, &mut self.window);
    }

    fn state(&self) -> State {
        self.law.state
    }

    fn pace(&self) -> f64 {
        self.law.pacing_rate().map_or(0.0, Rate::as_f64) / 12_000.0
    }
}

fn near(found: f64, asked: f64) {
    assert!((found / asked - 1.0).abs() < 1e-6, "{found} for {asked}");
}

/// 5.6.1 (the table), 2.5.
#[test]
fn gains_are_those_of_the_drafts_table() {
    let states = [
        (State::Startup, 2.772_588_722_239_781, 2.0),
        (State::Drain, 0.5, 2.0),
        (State::Down, 0.9, 2.0),
        (State::Cruise, 1.0, 2.0),
        (State::Refill, 1.0, 2.0),
        (State::Up, 1.25, 2.25),
        (State::ProbeRtt, 1.0, 0.5),
    ];
    for (state, pacing, window) in states {
        near(state.pacing_gain(), pacing);
        near(state.window_gain(), window);
    }
}

/// 5.3.1.2.
#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more() {
    let mut bed = Bed::new();
    for rate in [100.0, 125.0, 157.0, 190.0, 195.0] {
        bed.say(Say { rate, ..FULL });
        bed.hear(Say { rate, round: false, ..FULL });
        assert_eq!(bed.state(), State::Startup);
    }
    bed.say(Say { rate: 196.0, ..FULL });
    assert_eq!(bed.state(), State::Drain);
}

/// 5.3.1.2.
#[test]
fn rounds_that_the_application_limits_do_not_end_startup() {
    let mut bed = Bed::new();
    (0..20).for_each(|_| bed.say(Say { slack: Fullness::Slack, ..FULL }));
    assert_eq!(bed.state(), State::Startup);
}

/// A start-up in which so many ranges are lost, and the round after.
fn startup_with_losses(ranges: u64, lost: u64, phase: Phase) -> Bed {
    let mut bed = Bed::new();
    bed.say(FULL);
    bed.recover();
    (0..ranges).for_each(|n| bed.lose(10 + 2 * n, n + 1, 150));
    bed.hear(Say { phase, lost, round: false, ..FULL });
    assert_eq!(bed.state(), State::Startup, "a round has to pass");
    bed.say(Say { phase, lost, ..FULL });
    bed
}

/// 5.3.1.3.
#[test]
fn startup_ends_by_losses_in_six_ranges_of_more_than_two_per_cent_in_a_round_of_recovery() {
    let bed = startup_with_losses(6, 6, Phase::Recovery);
    assert_eq!(bed.state(), State::Drain);
    near(bed.law.model.inflight_long, 100.0);
    for (ranges, lost, phase) in
        [(5, 6, Phase::Recovery), (6, 3, Phase::Recovery), (6, 6, Phase::Open)]
    {
        let bed = startup_with_losses(ranges, lost, phase);
        assert_eq!(bed.state(), State::Startup, "{ranges} {lost} {phase:?}");
    }
}

/// 5.3.2.
#[test]
fn drain_ends_with_a_product_in_flight_or_after_three_rounds() {
    let drained = |pipe| {
        let mut bed = Bed::new();
        (0..4).for_each(|_| bed.say(FULL));
        assert_eq!(bed.state(), State::Drain);
        (1..10).find(|_| {
            bed.say(Say { pipe, ..FULL });
            bed.state() != State::Drain
        })
    };
    assert_eq!((drained(100), drained(101)), (Some(1), Some(4)));
}

/// 5.3.3.1, 5.3.3.9 (`IsTimeToCruise`), 2.8 (headroom).
#[test]
fn down_ends_with_the_queue_drained_and_fifteen_per_cent_of_headroom() {
    let mut bed = Bed::cruising();
    bed.law.model.inflight_long = 110.0;
    bed.law.state = State::Down;
    for (pipe, state) in [(100, State::Down), (94, State::Down), (93, State::Cruise)] {
        bed.hear(Say { pipe, in_flight: 90, round: false, ..FULL });
        assert_eq!(bed.state(), state, "{pipe}");
    }
    let mut bed = Bed::cruising();
    bed.law.state = State::Down;
    for (pipe, state) in [(101, State::Down), (100, State::Cruise)] {
        bed.hear(Say { pipe, round: false, ..FULL });
        assert_eq!(bed.state(), state, "{pipe}, without a bound");
    }
}

/// 5.3.3.8.2.
#[test]
fn it_waits_two_to_three_seconds_or_as_many_rounds_as_a_product_has_segments() {
    let mut waits = alloc::vec::Vec::new();
    for seed in 0..50 {
        let mut law = Bbr3::new(seed);
        law.start_down(Time::ZERO, 0);
        waits.push(law.cycle.wait.as_secs_f64());
        assert!(law.cycle.rounds <= 1);
    }
    assert!(waits.iter().all(|wait| (2.0..3.0).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < 2.3) && waits.iter().any(|wait| *wait > 2.7));
    let rounds = |product: f64| {
        let mut bed = Bed::cruising();
        bed.law.cycle.wait = Span::from_secs(1_000);
        bed.law.cycle.rounds = 0;
        let rate = product / 0.1;
        bed.law.model.cycles_of(rate);
        (1..100).find(|_| {
            bed.wait(1);
            bed.hear(Say { rate, pipe: 4, ..FULL });
            bed.state() == State::Refill
        })
    };
    assert_eq!((rounds(20.0), rounds(200.0)), (Some(20), Some(63)));
}

/// 5.3.3.3.
#[test]
fn refill_forgets_the_short_term_bounds_and_lasts_a_round() {
    let mut bed = Bed::cruising();
    (bed.law.model.bw_short, bed.law.model.inflight_short) = (500.0, 50.0);
    bed.law.cycle.wait = Span::ZERO;
    bed.hear(Say { round: false, ..FULL });
    assert_eq!(bed.state(), State::Refill);
    assert!(bed.law.model.bw_short.is_infinite() && bed.law.model.inflight_short.is_infinite());
    bed.hear(Say { round: false, ..FULL });
    assert_eq!(bed.state(), State::Refill);
    bed.say(FULL);
    assert_eq!(bed.state(), State::Up);
}

/// 5.3.3.7, condition 1.
#[test]
fn up_ends_after_three_rounds_without_a_quarter_more() {
    let mut bed = Bed::probing();
    for state in [State::Up, State::Up, State::Down] {
        bed.say(FULL);
        assert_eq!(bed.state(), state);
    }
    let mut bed = Bed::probing();
    bed.law.model.inflight_long = 100.0;
    (0..20).for_each(|_| {
        bed.window.size = 60.0 + bed.law.model.inflight_long;
        bed.say(Say { used: Fullness::Full, in_flight: 90, ..FULL });
    });
    assert_eq!(bed.state(), State::Up, "the bound is what limits it");
}

/// 5.3.3.5: 1, 2, 4, 8 segments in successive rounds.
#[test]
fn the_long_term_bound_grows_twice_as_fast_in_each_round_of_up() {
    let mut bed = Bed::refilling();
    bed.window.size = 110.0;
    bed.say(FULL);
    let mut grown = alloc::vec::Vec::new();
    for _ in 0..4 {
        bed.law.model.inflight_long = 100.0;
        // 110 segments arrive in a round.
        (1..=11).for_each(|n| {
            bed.window.size = 110.0;
            bed.hear(Say { used: Fullness::Full, in_flight: 90, round: n == 11, ..FULL });
        });
        grown.push(bed.law.model.inflight_long - 100.0);
    }
    assert_eq!(grown, [1.0, 2.0, 4.0, 8.0]);
}

/// 5.3.3.7, condition 2; 5.5.10.2.
#[test]
fn a_probe_that_loses_two_per_cent_ends_and_bounds_what_is_in_flight() {
    let mut bed = Bed::probing();
    for lost in 1..=3 {
        bed.lose(lost, lost, 150);
        assert_eq!(bed.state(), State::Up, "{lost} of 150");
    }
    bed.lose(4, 4, 150);
    assert_eq!(bed.state(), State::Down);
    // 149 before it, of which 3 were lost: (0.02 * 149 - 3) / 0.98 beyond.
    near(bed.law.model.inflight_long, 149.0 - 0.02 / 0.98);
    assert!(bed.law.cycle.went_too_high);
    bed.lose(5, 50, 150);
    near(bed.law.model.inflight_long, 149.0 - 0.02 / 0.98);
}

/// 5.5.10.2, 2.8 (beta).
#[test]
fn the_long_term_bound_is_not_cut_below_seven_tenths_of_the_product() {
    let mut bed = Bed::probing();
    bed.window.size = 500.0;
    bed.lose(1, 10, 20);
    near(bed.law.model.inflight_long, 70.0);
}

/// 5.3.3.6.
#[test]
fn the_probe_after_one_that_lost_stops_at_the_bound_and_if_that_goes_well_the_next_is_at_once() {
    let mut bed = Bed::probing();
    (1..=4).for_each(|n| bed.lose(n, n, 150));
    assert_eq!(bed.state(), State::Down);
    bed.law.cycle.wait = Span::ZERO;
    bed.say(Say { pipe: 90, ..FULL });
    assert_eq!(bed.state(), State::Refill);
    bed.say(Say { pipe: 90, ..FULL });
    assert_eq!(bed.state(), State::Up);
    bed.hear(Say { pipe: 148, round: false, ..FULL });
    assert_eq!(bed.state(), State::Up);
    bed.hear(Say { pipe: 151, round: false, ..FULL });
    assert_eq!(bed.state(), State::Down);
    bed.law.cycle.wait = Span::from_secs(1_000);
    bed.say(FULL);
    assert_eq!(bed.state(), State::Refill);
    bed.say(FULL);
    assert_eq!(bed.state(), State::Up);
    bed.say(Say { pipe: 160, ..FULL });
    assert_eq!(bed.state(), State::Up, "now the bound does not stop it");
}

/// 5.5.10.3.
#[test]
fn a_round_with_losses_cuts_the_short_term_bounds_to_seven_tenths_or_what_was_delivered() {
    let cut = |rate| {
        let mut bed = Bed::cruising();
        bed.law.cycle.wait = Span::from_secs(1_000);
        bed.law.model.forget_signals();
        bed.window.size = 200.0;
        bed.lose(1, 1, 100);
        bed.say(Say { rate, pipe: 90, ..FULL });
        (bed.law.model.bw_short, bed.law.model.bw)
    };
    let (bound, bw) = cut(600.0);
    near(bound, 700.0);
    near(bw, 700.0);
    near(cut(800.0).0, 800.0);
}

/// 5.5.10.3.
#[test]
fn losses_in_refill_do_not_cut_the_short_term_bounds() {
    let mut bed = Bed::refilling();
    bed.lose(1, 1, 150);
    bed.say(FULL);
    assert!(bed.law.model.bw_short.is_infinite());
}

/// 5.5.5, 5.5.6.
#[test]
fn the_bandwidth_is_the_most_of_two_cycles() {
    let mut bed = Bed::cruising();
    near(bed.law.bandwidth(), 1_000.0);
    bed.law.model.advance();
    near(bed.law.bandwidth(), 1_000.0);
    bed.hear(Say { rate: 400.0, round: false, ..FULL });
    near(bed.law.bandwidth(), 1_000.0);
    bed.law.model.advance();
    near(bed.law.bandwidth(), 400.0);
}

/// 5.5.4.
#[test]
fn what_the_application_limits_counts_only_if_it_is_more() {
    let mut bed = Bed::cruising();
    let slack = Fullness::Slack;
    bed.law.model.cycles_of(500.0);
    bed.hear(Say { rate: 400.0, slack, round: false, ..FULL });
    near(bed.law.bandwidth(), 500.0);
    bed.hear(Say { rate: 700.0, slack, round: false, ..FULL });
    near(bed.law.bandwidth(), 700.0);
}

/// 5.3.4.1, 5.3.4.3, 2.16.2.
#[test]
fn after_five_seconds_without_a_lower_round_trip_half_the_product_is_kept_for_200_ms() {
    let mut bed = Bed::cruising();
    bed.law.cycle.wait = Span::from_secs(1_000);
    bed.wait(4_000);
    bed.hear(Say { rtt: 150, round: false, ..FULL });
    assert_eq!(bed.state(), State::Cruise);
    bed.wait(1_500);
    let before = bed.window.size;
    bed.hear(Say { rtt: 150, round: false, ..FULL });
    assert_eq!(bed.state(), State::ProbeRtt);
    near(bed.window.size, 50.0);
    bed.say(Say { pipe: 51, ..FULL });
    bed.say(Say { pipe: 50, ..FULL });
    bed.wait(201);
    bed.hear(Say { pipe: 50, round: false, ..FULL });
    assert_eq!(bed.state(), State::ProbeRtt, "a round has to pass as well");
    bed.hear(Say { pipe: 50, ..FULL });
    assert_eq!(bed.state(), State::Cruise);
    assert!(bed.window.size >= before, "{} {before}", bed.window.size);
    assert_eq!(bed.law.floor.least, Some(Span::from_millis(100)));
}

/// 5.3.4.4.
#[test]
fn a_look_for_the_propagation_time_before_the_path_was_full_leads_back_to_startup() {
    let mut bed = Bed::new();
    bed.say(FULL);
    bed.wait(5_001);
    bed.hear(Say { rtt: 150, slack: Fullness::Slack, ..FULL });
    assert_eq!(bed.state(), State::ProbeRtt);
    bed.say(Say { pipe: 4, ..FULL });
    bed.wait(200);
    bed.say(Say { pipe: 4, ..FULL });
    assert_eq!(bed.state(), State::Startup);
}

/// 5.3.4.3: `BBR.min_rtt` keeps ten seconds, so that it outlives one look.
#[test]
fn the_propagation_time_is_the_least_of_ten_seconds() {
    let mut floor = Floor::default();
    let mut bed = Bed::cruising();
    let mut least = |ms: u64, rtt| {
        bed.hear(Say { rtt, ..FULL });
        let (now, rtt) = (Time::from_nanos(ms * 1_000_000), Some(Span::from_millis(rtt)));
        floor.update(&Sample { now, rtt, ..SAMPLE });
        floor.least.map(|least| least.as_nanos() / 1_000_000)
    };
    assert_eq!(least(100_000, 50), Some(50));
    assert_eq!(least(105_100, 80), Some(50));
    assert_eq!(least(109_900, 90), Some(50));
    assert_eq!(least(110_200, 90), Some(90));
}

const SAMPLE: Sample = Sample {
    now: Time::ZERO,
    rtt: None,
    rate: 1_000.0,
    delivered: 100.0,
    delivered_then: 0,
    total: 0,
    arrived: 10.0,
    in_flight: 100.0,
    lost: 0.0,
    slack: false,
    pipe: 100.0,
    window_limited: false,
};

/// 5.4.1.
#[test]
fn after_a_rest_it_paces_at_the_bandwidth_and_does_not_look_for_the_propagation_time() {
    let mut bed = Bed::cruising();
    bed.law.cycle.wait = Span::from_secs(1_000);
    bed.law.state = State::Down;
    bed.wait(20_000);
    let now = bed.now();
    bed.law.handle_idle(now, &mut bed.window);
    near(bed.pace(), 990.0);
    bed.hear(Say { rtt: 150, pipe: 4, ..FULL });
    assert_ne!(bed.state(), State::ProbeRtt);
}

/// 5.5.9, 5.6.4.2.
#[test]
fn acknowledgments_that_come_in_bunches_widen_the_window_by_the_most_of_ten_rounds() {
    let mut bunches = Bunches::default();
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    bunches.restart(at(0));
    let mut extra = |ms, arrived, round| {
        bunches.update(&Sample { now: at(ms), arrived, ..SAMPLE }, 1_000.0, 500.0, round, 10);
        bunches.extra()
    };
    near(extra(10, 10.0, 1), 10.0);
    near(extra(20, 60.0, 1), 60.0);
    near(extra(120, 10.0, 10), 60.0);
    near(extra(130, 10.0, 11), 10.0);
}

/// 5.6.2.
#[test]
fn pacing_is_one_per_cent_below_the_bandwidth_and_does_not_fall_in_startup() {
    let mut bed = Bed::new();
    bed.say(FULL);
    near(bed.pace(), 0.99 * 4.0 * core::f64::consts::LN_2 * 1_000.0);
    let before = bed.pace();
    bed.law.model.cycles_of(500.0);
    bed.say(Say { rate: 500.0, ..FULL });
    assert!(bed.pace() >= before);
    near(Bed::cruising().pace(), 990.0);
}

/// 5.6.4.6, 5.6.4.7.
#[test]
fn the_window_is_twice_the_product_and_cruising_leaves_headroom_below_the_bound() {
    let mut bed = Bed::cruising();
    bed.law.cycle.wait = Span::from_secs(1_000);
    let cruise = Say { pipe: 90, in_flight: 90, round: false, ..FULL };
    (0..200).for_each(|_| {
        bed.wait(10);
        bed.hear(cruise);
    });
    near(bed.window.size, 200.0 + bed.law.bunches.extra());
    near(bed.law.bunches.extra(), 10.0);
    bed.law.model.inflight_long = 100.0;
    bed.hear(cruise);
    near(bed.window.size, 85.0);
    bed.law.model.inflight_short = 40.0;
    bed.hear(cruise);
    near(bed.window.size, 40.0);
    bed.law.model.inflight_short = 1.0;
    bed.hear(cruise);
    near(bed.window.size, 4.0);
}

/// 5.6.4.4.
#[test]
fn a_timeout_leaves_one_segment_and_the_window_comes_back_after_the_repair() {
    let mut bed = Bed::cruising();
    bed.law.cycle.wait = Span::from_secs(1_000);
    let before = bed.window.size;
    let loss = LossView { now: bed.now(), window: before, pipe: 0, next: 0, delivered: 0 };
    bed.law.handle_timeout(&loss, &mut bed.window);
    near(bed.window.size, 1.0);
    bed.hear(Say { phase: Phase::Timeout, pipe: 1, round: false, ..FULL });
    assert!(bed.window.size < before);
    bed.hear(Say { pipe: 1, round: false, ..FULL });
    assert!(bed.window.size >= before, "{} {before}", bed.window.size);
}
