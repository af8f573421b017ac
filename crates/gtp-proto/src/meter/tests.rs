//! Rates and round-trip times against hand-made courses.

use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);

#[test]
fn a_meter_gives_the_mean_of_the_last_whole_interval() {
    let mut meter = Meter::new(START);
    meter.add(Bytes(1_250));
    meter.roll(START + Span::from_millis(9), Span::from_millis(10));
    assert_eq!(meter.rate(), Rate::ZERO, "the interval is not over");
    meter.roll(START + Span::from_millis(10), Span::from_millis(10));
    assert_eq!(meter.rate(), Rate::from_mbps(1));
    meter.roll(START + Span::from_millis(30), Span::from_millis(10));
    assert_eq!(meter.rate(), Rate::ZERO);
    meter.roll(START, Span::ZERO);
    assert_eq!(meter.rate(), Rate::ZERO, "time that stands still is no interval");
}

#[test]
fn no_round_trip_time_beyond_the_limit_is_believed() {
    let mut rtt = RttMeter::default();
    assert_eq!((rtt.smoothed(), rtt.least()), (Span::ZERO, Span::ZERO));
    rtt.add(START, Span::from_secs(2_000));
    assert_eq!(rtt.smoothed(), RTT_MOST);
    rtt.add(START, Span::ZERO);
    assert_eq!(rtt.least(), Span::from_nanos(1));
}

#[test]
fn the_least_round_trip_time_is_forgotten_after_two_windows() {
    let mut rtt = RttMeter::default();
    rtt.add(START, Span::from_millis(10));
    for s in 1..=11 {
        rtt.add(START + Span::from_secs(s), Span::from_millis(50));
    }
    assert_eq!(rtt.least(), Span::from_millis(10), "it may still be true");
    for s in 12..=23 {
        rtt.add(START + Span::from_secs(s), Span::from_millis(50));
    }
    assert_eq!(rtt.least(), Span::from_millis(50));
}

proptest! {
    #[test]
    fn the_windowed_maximum_is_that_of_the_window_to_one_slot(
        samples in proptest::collection::vec((0..400_u64, any::<u32>()), 1..60),
    ) {
        let window = Span::from_millis(800);
        let mut meter = WindowedMax::new(START, window);
        let mut now = START;
        let mut seen: Vec<(Time, Rate)> = Vec::new();
        for (gap_ms, bps) in samples {
            now += Span::from_millis(gap_ms);
            let rate = Rate::from_bps(bps.into());
            meter.add(now, rate);
            seen.push((now, rate));
            let max = |age_ms| {
                let age = Span::from_millis(age_ms);
                seen.iter().filter(|(at, _)| now.since(*at) < age).map(|(_, r)| *r).max()
            };
            let got = meter.max(now);
            prop_assert!(Some(got) >= max(700) && Some(got) <= max(801), "{got}");
        }
        prop_assert_eq!(meter.max(now + Span::from_secs(1)), Rate::ZERO);
    }

    #[test]
    fn the_smoothed_round_trip_time_lies_between_its_samples(
        samples in proptest::collection::vec(1..2_000_000_u64, 1..50),
    ) {
        let mut rtt = RttMeter::default();
        for (i, us) in samples.iter().enumerate() {
            rtt.add(START + Span::from_millis(i as u64), Span::from_micros(*us));
        }
        let span = |us: Option<&u64>| Span::from_micros(us.copied().unwrap_or(0));
        prop_assert!(rtt.smoothed() <= span(samples.iter().max()));
        prop_assert!(rtt.smoothed() + Span::from_nanos(1) >= span(samples.iter().min()));
        prop_assert_eq!(rtt.least(), span(samples.iter().min()));
    }
}
