//! H-TCP: D. Leith and R. Shorten, 2004 (draft-leith-tcp-htcp); thesis, Table VIII.1.
//!
//! With t the time since the last loss:
//!
//! | rule | source | where |
//! |---|---|---|
//! | a(t) = 1 for t <= 1 s, then 1 + 10 (t-1) + ((t-1)/2)^2 | draft, 3 | `increase` |
//! | a is scaled by 2 (1 - b) | draft, 3 | `increase` |
//! | b = RTTmin/RTTmax within [0.5, 0.8] | draft, 3 | `share` |
//! | b = 0.5 if throughput changed by more than 20 % since the last loss | draft, 3 | `share` |
//!
//! [`HTcp::in_whole_segments`] is Linux's of 2007 (2.6.22, `tcp_htcp.c`), which does otherwise in:
//!
//! | rule of Linux | where |
//! |---|---|
//! | round trips count in congestion avoidance only, for RTTmax not in a timeout's | `note` |
//! | b = 0.5, too, at the first steady loss after an unsteady one | `share` |
//! | b = 0.5, too, up to an RTTmin of 10 ms | `share` |
//! | throughput is not measured before there is an RTTmin | `observe` |
//! | t counts from the end of a loss's repair | `observe` |
//! | a(t) without its rest, computed anew only when the window has grown | `increase`, `grow` |
//! | a(t) scaled by the round-trip time over 100 ms, within 0.1 and 2, in eighths | `scaled` |
//! | slow start by one for each acknowledgment, to one beyond the threshold | `whole.rs` |
//! | a loss empties the counter of acknowledgments | `whole.rs` |
//!
//! So RTTmin is no property of the path: where each loss leaves a queue that never empties, it is
//! what that queue leaves, and b is above 0.5 where the papers' law keeps half.
//!
//! Departures: in the draft's form the optional scaling is left out, as in the laws' comparison;
//! with 100 ms it makes no difference. In Linux's form, round trips are not smoothed (by an eighth
//! of each), b is not in 128ths, and the longest of each cycle is taken, where Linux looks from the
//! fourth round trip after a loss on, lets that of before fade by 5 % of what it is above the
//! least, and rise by at most 20 ms at a time.

use gtp_alloc::{Span, Time};

use super::whole::{Counter, Leftover, slow_start};
use crate::tcp::law::{AckView, Law, LossView, Phase, Window};

/// Increase that grows with the time since the last loss.
#[derive(Clone, Copy, Debug, Default)]
pub struct HTcp {
    last_loss: Option<Time>,
    /// The longest round trip since the last loss, and the least of all that count.
    longest: Span,
    least: Span,
    /// Share kept on loss, as chosen at the last one.
    kept: f64,
    /// Segments arrived since the last measurement of throughput began.
    arrived: u64,
    since: Option<Time>,
    /// Round trips measured since the last loss, and the smoothed throughput.
    measured: u64,
    throughput: f64,
    /// The largest throughput in any round trip since the last loss, and that before it.
    peak: f64,
    last_peak: f64,
    /// Whether throughput was much the same at the last loss.
    steady: bool,
    /// If it counts in whole segments, and what it has as its increase.
    whole: Option<Counter>,
    held: f64,
}

impl HTcp {
    /// The law as Linux of 2007 computes it.
    pub fn in_whole_segments(leftover: Leftover) -> HTcp {
        HTcp { whole: Some(Counter::new(leftover)), held: 1.0, ..HTcp::default() }
    }

    fn increase(&self, now: Time) -> f64 {
        let since = self.last_loss.map_or(0.0, |at| now.since(at).as_secs_f64());
        let beyond = (since - LINEAR_FOR).max(0.0);
        // Draft, 3: alpha of the time since the last loss, scaled by 2 (1 - beta).
        let a = 1.0 + 10.0 * beyond + beyond * beyond / 4.0;
        let kept = if self.kept == 0.0 { 0.5 } else { self.kept };
        2.0 * (1.0 - kept) * if self.whole.is_some() { self.scaled(libm::floor(a)) } else { a }
    }

    /// Linux's scaling by round-trip time: whole milliseconds, and the scale in whole eighths.
    fn scaled(&self, a: f64) -> f64 {
        let ms = whole_milliseconds(self.least);
        let eighths = if ms > 0.0 { libm::floor(8.0 * REFERENCE_MS / ms) } else { 8.0 };
        libm::floor(8.0 * a / eighths.clamp(4.0, 80.0)).max(1.0)
    }

    /// Linux measures nowhere but in congestion avoidance.
    fn note(&mut self, ack: &AckView) {
        if let (Some(_), Some(rtt)) = (self.whole, ack.rtt) {
            self.least = if self.least == Span::ZERO { rtt } else { self.least.min(rtt) };
            if ack.phase == Phase::Open {
                self.longest = self.longest.max(rtt);
            }
        }
    }

    /// The share that this loss leaves: the adaptive one is trusted only while throughput is much
    /// the same (draft, 3).
    fn share(&mut self) -> f64 {
        let steady = self.last_peak > 0.0
            && libm::fabs(self.peak / self.last_peak - 1.0) <= THROUGHPUT_CHANGE;
        let before = core::mem::replace(&mut self.steady, steady);
        // Linux: not by so short round trips, nor at the first steady loss after an unsteady one.
        let adaptive =
            self.whole.is_none() || before && whole_milliseconds(self.least) > LEAST_ADAPTIVE_MS;
        if steady && adaptive && self.longest > Span::ZERO {
            (self.least.as_secs_f64() / self.longest.as_secs_f64()).clamp(0.5, 0.8)
        } else {
            0.5
        }
    }
}

impl Law for HTcp {
    fn name(&self) -> &'static str {
        "htcp"
    }

    fn observe(&mut self, ack: &AckView, _window: &mut Window) {
        if self.whole.is_none() {
            self.longest = self.longest.max(ack.rtt.unwrap_or_default());
            self.least = ack.least_rtt;
        }
        match ack.phase {
            Phase::Opening | Phase::Open => {}
            // What comes in while losses are repaired says nothing of the throughput.
            Phase::Recovery | Phase::Timeout => {
                (self.arrived, self.since) = (0, Some(ack.now));
                if self.whole.is_some() {
                    self.last_loss = Some(ack.now); // Linux: its clock waits for the repair.
                }
                return;
            }
        }
        self.arrived += ack.arrived;
        let since = *self.since.get_or_insert(ack.now);
        let elapsed = ack.now.since(since);
        // In Linux, not before congestion avoidance has a least round trip.
        if self.whole.is_some() && self.least == Span::ZERO {
            return;
        }
        if elapsed >= ack.smoothed_rtt && elapsed > Span::ZERO {
            let latest = self.arrived as f64 / elapsed.as_secs_f64();
            (self.arrived, self.since) = (0, Some(ack.now));
            self.measured += 1;
            // Just after a loss anew, then smoothed.
            let fresh = self.measured <= FRESH;
            self.throughput = if fresh { latest } else { 0.75 * self.throughput + 0.25 * latest };
            self.peak = if fresh { latest } else { self.peak.max(self.throughput) };
        }
    }

    fn grow(&mut self, ack: &AckView, window: &mut Window) {
        if let Some(credit) = slow_start(self.whole.as_ref(), ack, window) {
            self.note(ack);
            let increase = self.increase(ack.now);
            match &mut self.whole {
                None => window.size += credit * increase / window.size,
                Some(counter) => {
                    let before = libm::floor(window.size);
                    counter.grow(window, credit, before / self.held);
                    self.held = if window.size > before { increase } else { self.held };
                }
            }
        }
    }

    fn shrink(&mut self, loss: &LossView) -> f64 {
        if let Some(counter) = &mut self.whole {
            counter.lose();
        }
        self.kept = self.share();
        self.last_peak = self.peak;
        (self.peak, self.measured) = (0.0, 0);
        self.longest = Span::ZERO;
        // Linux: before its clock begins anew, so that the first segment comes early.
        self.held = self.increase(loss.now);
        self.last_loss = Some(loss.now);
        match self.whole {
            None => loss.window * self.kept,
            Some(_) => libm::floor(loss.window * self.kept),
        }
    }
}

/// Draft, 3: the low-speed regime's length, in seconds.
const LINEAR_FOR: f64 = 1.0;
/// Round trips after a loss whose throughput is taken as it is measured (Linux).
const FRESH: u64 = 3;
/// Linux scales to this round-trip time, in milliseconds.
const REFERENCE_MS: f64 = 100.0;
/// Linux: from a round trip longer than this on, in whole milliseconds, it adapts what it keeps.
const LEAST_ADAPTIVE_MS: f64 = 10.0;
/// Draft, 3: the change of throughput beyond which the adaptive decrease is not trusted.
const THROUGHPUT_CHANGE: f64 = 0.2;

fn whole_milliseconds(span: Span) -> f64 {
    libm::round(span.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::whole::tests::{ack, loss};
    use super::*;

    #[test]
    fn increase_is_one_for_a_second_and_then_quadratic() {
        let law = HTcp { last_loss: Some(Time::ZERO), kept: 0.5, ..HTcp::default() };
        let at = |ms: u64| law.increase(Time::from_nanos(ms * 1_000_000));
        assert_eq!([at(500), at(1_000), at(2_000), at(5_000)], [1.0, 1.0, 11.25, 45.0]);
    }

    #[test]
    fn half_the_round_trip_halves_the_increase_in_the_form_of_linux() {
        let linux = HTcp::in_whole_segments(Leftover::Dropped);
        let at = |rtt: u64, ms: u64| {
            let (last_loss, least) = (Some(Time::ZERO), Span::from_millis(rtt));
            let law = HTcp { last_loss, least, kept: 0.5, ..linux };
            law.increase(Time::from_nanos(ms * 1_000_000))
        };
        assert_eq!([at(100, 2_000), at(50, 2_000), at(1_000, 2_000)], [11.0, 5.0, 22.0]);
        assert_eq!([at(50, 500), at(5, 2_000)], [1.0, 1.0]);
        // 8 * 100 / 101 is seven eighths: one millisecond more is a seventh more.
        assert_eq!(at(101, 2_000), 12.0);
    }

    #[test]
    fn increase_is_two_fifths_where_four_fifths_are_kept() {
        let law = HTcp { last_loss: Some(Time::ZERO), kept: 0.8, ..HTcp::default() };
        for (ms, want) in [(500, 0.4), (1_000, 0.4), (2_000, 4.5), (5_000, 18.0)] {
            let found = law.increase(Time::from_nanos(ms * 1_000_000));
            assert!((found - want).abs() < 1e-12, "{ms} ms: {found}");
        }
    }

    #[test]
    fn linux_knows_no_round_trip_of_slow_start() {
        let mut window = Window::new(100.0, 101.0, f64::INFINITY);
        let (mut law, mut linux) = (HTcp::default(), HTcp::in_whole_segments(Leftover::Dropped));
        for (rtt, least) in [(100, 0), (101, 0), (108, 108), (107, 107), (150, 107)] {
            let ack = ack(0, Phase::Open, rtt);
            law.observe(&ack, &mut window);
            linux.observe(&ack, &mut window);
            linux.grow(&ack, &mut window);
            let seen = [law.least, linux.least];
            assert_eq!(seen, [Span::from_millis(100), Span::from_millis(least)], "{rtt} ms");
        }
        assert_eq!(window.size, 102.0, "one for each acknowledgment, to one beyond the threshold");
    }

    #[test]
    fn linux_takes_its_longest_round_trip_in_congestion_avoidance_outside_repairs() {
        let mut window = Window::new(100.0, 100.0, f64::INFINITY);
        let (mut law, mut linux) = (HTcp::default(), HTcp::in_whole_segments(Leftover::Dropped));
        for (phase, rtt, longest) in
            [(Phase::Open, 300, 0), (Phase::Timeout, 250, 0), (Phase::Open, 200, 200)]
        {
            let ack = ack(0, phase, rtt);
            law.observe(&ack, &mut window);
            linux.observe(&ack, &mut window);
            linux.grow(&ack, &mut window);
            let seen = [law.longest, linux.longest];
            assert_eq!(seen, [Span::from_millis(300), Span::from_millis(longest)], "{rtt} ms");
        }
    }

    #[test]
    fn linux_keeps_what_the_least_round_trip_of_congestion_avoidance_says() {
        let linux = HTcp::in_whole_segments(Leftover::Dropped);
        let mut law = HTcp { peak: 1.0, last_peak: 1.0, steady: true, ..linux };
        let mut window = Window::new(354.0, 100.0, f64::INFINITY);
        for rtt in [108, 202] {
            let ack = ack(0, Phase::Open, rtt);
            law.observe(&ack, &mut window);
            law.grow(&ack, &mut window);
        }
        // The connection's is 100 ms, of which half would be left: 177.
        assert_eq!(law.shrink(&loss(0, 354.0)), 189.0);
    }

    #[test]
    fn linux_adapts_from_the_second_steady_loss_on() {
        for (law, want) in [
            (HTcp::default(), [0.5, 0.625, 0.5, 0.625]),
            (HTcp::in_whole_segments(Leftover::Dropped), [0.5; 4]),
        ] {
            let (least, longest) = (Span::from_millis(100), Span::from_millis(160));
            let mut law = HTcp { least, ..law };
            let mut kept = |peak| {
                (law.longest, law.peak) = (longest, peak);
                law.shrink(&loss(0, 100.0));
                law.kept
            };
            assert_eq!([1.0, 1.0, 2.0, 2.0].map(&mut kept), want);
            assert_eq!(kept(2.0), 0.625);
        }
    }

    #[test]
    fn linux_does_not_adapt_to_round_trips_of_ten_milliseconds() {
        let linux = HTcp::in_whole_segments(Leftover::Dropped);
        for (law, least, want) in
            [(HTcp::default(), 10, 0.625), (linux, 10, 0.5), (linux, 11, 0.6875)]
        {
            let (least, longest) = (Span::from_millis(least), Span::from_millis(16));
            let mut law = HTcp { least, longest, peak: 1.0, last_peak: 1.0, steady: true, ..law };
            law.shrink(&loss(0, 100.0));
            assert_eq!(law.kept, want);
        }
    }

    #[test]
    fn the_first_segment_after_a_loss_comes_at_the_pace_before_it() {
        let linux = HTcp::in_whole_segments(Leftover::Dropped);
        let mut law = HTcp { last_loss: Some(Time::ZERO), ..linux };
        law.shrink(&loss(5_000, 100.0));
        assert_eq!([law.held, law.increase(loss(5_000, 0.0).now)], [45.0, 1.0]);
    }

    #[test]
    fn linux_measures_no_throughput_before_it_knows_a_round_trip() {
        let mut window = Window::new(10.0, f64::INFINITY, f64::INFINITY);
        let (mut law, mut linux) = (HTcp::default(), HTcp::in_whole_segments(Leftover::Dropped));
        for ms in [0, 200] {
            law.observe(&ack(ms, Phase::Open, 100), &mut window);
            linux.observe(&ack(ms, Phase::Open, 100), &mut window);
        }
        assert!(law.peak > 0.0 && linux.peak == 0.0, "{} {}", law.peak, linux.peak);
    }

    #[test]
    fn the_clock_of_linux_waits_for_the_repair() {
        for (law, want) in [
            (HTcp::default(), Time::ZERO),
            (HTcp::in_whole_segments(Leftover::Dropped), Time::from_nanos(200_000_000)),
        ] {
            let mut law = HTcp { last_loss: Some(Time::ZERO), ..law };
            let mut window = Window::new(100.0, 100.0, f64::INFINITY);
            for (ms, phase) in [(100, Phase::Recovery), (200, Phase::Recovery), (201, Phase::Open)]
            {
                law.observe(&ack(ms, phase, 100), &mut window);
            }
            assert_eq!(law.last_loss, Some(want));
        }
    }
}
