//! Rates and round-trip times against hand-made courses.

use std::collections::{BTreeSet, VecDeque};
use std::iter;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const START: Time = Time::from_nanos(1_000_000_000);
const INTERVAL: Span = Span::from_millis(10);

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

/// A stream of 1,250-byte packets, one every `gap`, read every `interval`.
struct Stream {
    interval: Span,
    gap: Span,
    /// How late each is.
    late: fn(u64) -> Span,
    /// Which ones do not come.
    lost: fn(u64) -> bool,
    /// Which ones hold no data, and take no time.
    plain: fn(u64) -> bool,
    /// How long a part waits for late packets.
    waits: Span,
}

impl Stream {
    fn new(interval: Span, gap: Span) -> Stream {
        let none = |_| false;
        Stream { interval, gap, late: |_| Span::ZERO, lost: none, plain: none, waits: Span::ZERO }
    }

    /// The rate at the end of each interval.
    fn rates(&self) -> Vec<Rate> {
        let plain_before = |n: u64| (0..n).filter(|&n| (self.plain)(n)).count() as u64;
        let sent = |n: u64| START + self.gap * (n - plain_before(n));
        let numbers = (0..2_000).filter(|&n| !(self.lost)(n));
        let mut coming: Vec<(Time, u64)> = numbers.map(|n| (sent(n) + (self.late)(n), n)).collect();
        coming.sort_unstable();
        let mut coming = coming.into_iter().peekable();
        let (mut meter, mut rates, mut now) = (StreamMeter::new(START), Vec::new(), START);
        let (mut missing, mut newest, mut ends) = (BTreeSet::new(), 0, VecDeque::new());
        while coming.peek().is_some() {
            now += self.interval;
            let (mut bytes, mut arrived) = (0, 0);
            while let Some((at, n)) = coming.next_if(|&(at, _)| at <= now) {
                if !(self.plain)(n) {
                    meter.add(at, n, sent(n).as_wire_micros(), Bytes(1_250));
                    bytes += 1_250;
                }
                missing.extend(newest..n);
                missing.remove(&n);
                (arrived, newest) = (arrived + 1, newest.max(n + 1));
            }
            meter.end_part(Bytes(bytes), arrived);
            ends.push_back((now, newest));
            while let Some((_, upto)) =
                ends.pop_front_if(|&mut (ended, _)| now.since(ended) >= self.waits)
            {
                let still = missing.split_off(&upto);
                let lost = core::mem::replace(&mut missing, still);
                meter.settle(upto, lost.into_iter().map(|n| n..n + 1));
            }
            meter.roll(now, self.interval, self.interval);
            rates.push(meter.rate());
        }
        rates
    }
}

fn within(rates: &[Rate], least: f64, most: f64) {
    let off = rates.iter().find(|rate| !(least..=most).contains(&rate.as_f64()));
    assert_eq!(off, None);
}

#[test]
fn a_steady_stream_is_measured_exactly_however_few_packets_an_interval_holds() {
    // At 100 kbit/s to 100 Mbit/s: from a tenth of a packet in an interval to a hundred.
    for (gap_us, bps) in [(100_000, 1e5), (30_000, 1e7 / 30.0), (8_000, 1.25e6), (100, 1e8)] {
        let rates = Stream::new(INTERVAL, Span::from_micros(gap_us)).rates();
        within(&rates[rates.len() / 4..], bps * 0.999, bps * 1.001);
    }
}

/// Up to 6 ms late, in no order.
fn unordered(n: u64) -> Span {
    Span::from_micros(n * 2_654_435_761 % 6_000)
}

#[test]
fn packets_that_are_late_or_overtake_each_other_do_not_change_what_was_sent() {
    for waits in [0, 10] {
        let stream = Stream {
            late: unordered,
            waits: Span::from_millis(waits),
            ..Stream::new(INTERVAL, Span::from_millis(1))
        };
        let rates = stream.rates();
        within(&rates[rates.len() / 4..rates.len() * 3 / 4], 0.999e7, 1.001e7);
    }
}

#[test]
fn a_part_that_waits_counts_what_late_packets_brought() {
    // Some datagrams hold no data, so what a late one brings is not what all bring on average.
    let gap = Span::from_micros(300);
    let rates = |waits| {
        let plain = |n| n % 16 == 7;
        let stream = Stream { late: unordered, plain, waits, ..Stream::new(INTERVAL, gap) };
        stream.rates()[40..55].to_vec()
    };
    let sent = Bytes(1_250).per(gap).as_f64();
    within(&rates(INTERVAL), sent * 0.999, sent * 1.001);
    let at_once = rates(Span::ZERO);
    assert!(at_once.iter().any(|rate| (rate.as_f64() / sent - 1.0).abs() > 0.01), "{at_once:?}");
}

#[test]
fn what_is_lost_was_sent() {
    for waits in [0, 10] {
        let stream = Stream {
            lost: |n| n % 20 == 7,
            waits: Span::from_millis(waits),
            ..Stream::new(INTERVAL, Span::from_millis(1))
        };
        let rates = stream.rates();
        within(&rates[rates.len() / 4..], 0.999e7, 1.001e7);
    }
}

#[test]
fn what_is_lost_after_the_newest_packet_counts_once_with_those_that_follow() {
    let mut meter = StreamMeter::new(START);
    // Before each fortieth packet goes a datagram without data, which takes a number too.
    let number = |ms: u64| ms + (ms + 20) / 40;
    for ms in 0..200 {
        let now = START + Span::from_millis(ms);
        if ms % 40 == 20 {
            // It came, and shows that the four before it are lost.
            let lost = number(ms - 4)..number(ms) - 1;
            meter.end_part(Bytes(25_000), 20);
            meter.settle(number(ms), iter::once(lost));
        }
        if !(16..20).contains(&(ms % 40)) {
            meter.add(now, number(ms), now.as_wire_micros(), Bytes(1_250));
        }
        if ms % 10 == 0 && ms > 0 {
            meter.roll(now, INTERVAL, INTERVAL);
            within(&[meter.rate()], 0.99e7, 1.01e7);
        }
    }
}

#[test]
fn numbers_that_go_back_with_time_are_measured_all_the_same() {
    let mut meter = StreamMeter::new(START);
    for (ms, numbers) in [(0, 0..59), (1, 81..101), (2, 60..61)] {
        let now = START + Span::from_millis(ms);
        numbers.for_each(|pn| meter.add(now, pn, now.as_wire_micros(), Bytes(1_250)));
    }
    meter.end_part(Bytes(100_000), 80);
    meter.settle(101, iter::once(61..81));
    meter.roll(START + Span::from_millis(12), INTERVAL, INTERVAL);
    assert!(meter.rate() < Rate::from_mbps(1_000), "{}", meter.rate());
}

#[test]
fn packets_that_are_lost_for_a_while_show_no_lower_rate() {
    let mut meter = StreamMeter::new(START);
    let at = |ms| START + Span::from_millis(ms);
    for ms in (0..=20).chain(110..=111) {
        meter.add(at(ms), ms, at(ms).as_wire_micros(), Bytes(1_250));
        meter.roll(at(ms), INTERVAL, Span::from_millis(100));
        if ms == 20 {
            for ms in 21..110 {
                meter.roll(at(ms), INTERVAL, Span::from_millis(100));
                assert_eq!(meter.rate(), Rate::from_mbps(10), "{ms} ms");
            }
        }
    }
    meter.end_part(Bytes(28_750), 23);
    meter.settle(112, iter::once(21..110));
    meter.roll(at(121), INTERVAL, Span::from_millis(100));
    assert_eq!(meter.rate(), Rate::from_mbps(10));
    meter.roll(at(400), INTERVAL, Span::from_millis(100));
    assert!(meter.rate() < Rate::from_mbps(1), "it has ended");
}

#[test]
fn a_stream_that_rests_for_forty_minutes_is_measured_anew() {
    let mut meter = StreamMeter::new(START);
    let rest = Span::from_secs(40 * 60);
    for begin in [START, START + rest] {
        for ms in 0..=20 {
            let now = begin + Span::from_millis(ms);
            meter.add(now, ms, now.as_wire_micros(), Bytes(1_250));
        }
        meter.roll(begin + Span::from_millis(20), INTERVAL, INTERVAL);
        assert_eq!(meter.rate(), Rate::from_mbps(10));
        meter.roll(begin + rest / 2, INTERVAL, INTERVAL);
        assert!(meter.rate() < Rate::from_bps(100));
    }
}

#[test]
fn a_stream_that_ends_is_measured_as_less_and_less() {
    let mut meter = StreamMeter::new(START);
    let at = |ms| START + Span::from_millis(ms);
    for ms in 0..=11 {
        meter.add(at(ms), ms, at(ms).as_wire_micros(), Bytes(1_250));
    }
    meter.roll(at(11), INTERVAL, INTERVAL);
    assert_eq!(meter.rate(), Rate::from_mbps(10));
    meter.roll(at(21), INTERVAL, INTERVAL);
    assert_eq!(meter.rate(), Rate::from_mbps(10), "the next may be late");
    meter.roll(at(40), INTERVAL, INTERVAL);
    assert_eq!(meter.rate(), Rate::from_mbps(1), "two packets in 20 ms, had the second come now");
    meter.roll(at(1_020), INTERVAL, INTERVAL);
    assert_eq!(meter.rate(), Rate::from_bps(20_000));
}

#[test]
fn a_first_burst_out_of_order_is_not_counted() {
    let mut meter = StreamMeter::new(START);
    for (seen, n) in (0_u64..).zip([3_u64, 1, 2].into_iter().chain(4..40)) {
        let sent = START + Span::from_millis(n.saturating_sub(1) / 3);
        meter.add(START + Span::from_micros(seen * 340), n, sent.as_wire_micros(), Bytes(1_250));
    }
    meter.roll(START + Span::from_millis(14), INTERVAL, INTERVAL);
    assert_eq!(meter.rate(), Rate::from_mbps(30));
}

#[test]
fn an_interval_that_ends_within_a_burst_does_not_split_it() {
    let mut meter = StreamMeter::new(START);
    for n in 0..2_000 {
        // Bursts of ten, one each millisecond, that take half of it to arrive.
        let sent = START + Span::from_millis(n / 10);
        let seen = sent + Span::from_micros(n % 10 * 50);
        meter.add(seen, n, sent.as_wire_micros(), Bytes(1_250));
        if n % 107 == 106 {
            meter.roll(seen, INTERVAL, INTERVAL);
            assert_eq!(meter.rate(), Rate::from_mbps(100));
        }
    }
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
    for s in 1..=61 {
        rtt.add(START + Span::from_secs(s), Span::from_millis(50));
    }
    assert_eq!(rtt.least(), Span::from_millis(10), "it may still be true");
    for s in 62..=123 {
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
