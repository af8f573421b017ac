//! Capacity as a trace: times at which a link may deliver, repeated without end.
//!
//! The form is that of mahimahi: a line is a whole number of milliseconds, at which one
//! opportunity to deliver 1,504 bytes comes. As many lines of the same number are as many
//! opportunities, and the last line is when the trace begins anew. An opportunity that finds
//! nothing waiting is gone; a packet leaves with the opportunity that takes its last byte, and what
//! is left of that one is the next packet's, if it waits by then.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use gtp_alloc::{Bytes, Rate, Span, Time};

/// When a link may deliver; see the module's head. Time counts from zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds that have opportunities, and how many have come by their end.
    steps: Arc<[Step]>,
    period_ms: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    ms: u32,
    until: u32,
}

/// Why a trace is refused. Lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// The line is not a whole number.
    Number(usize),
    /// The line's number is less than the one before.
    Order(usize),
    /// The line's number is more than a day.
    Late(usize),
    /// It has more opportunities than [`Trace::OPPORTUNITIES_MAX`].
    Long,
    /// It has no opportunity, or takes no time.
    Empty,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Number(line) => {
                write!(f, "line {line} of the trace is not a whole number of milliseconds")
            }
            TraceError::Order(line) => {
                write!(f, "line {line} of the trace is earlier than the line before")
            }
            TraceError::Late(line) => {
                write!(f, "line {line} of the trace is more than {MS_MAX} ms, a day")
            }
            TraceError::Long => {
                write!(f, "the trace has more than {} opportunities", Trace::OPPORTUNITIES_MAX)
            }
            TraceError::Empty => f.write_str("the trace has no opportunity, or takes no time"),
        }
    }
}

impl core::error::Error for TraceError {}

impl Trace {
    /// Bytes that an opportunity delivers: mahimahi's packet, with a header of its device.
    pub const OPPORTUNITY: Bytes = Bytes(1_504);
    /// Opportunities in a trace: a minute of 3 Gbit/s.
    pub const OPPORTUNITIES_MAX: u32 = 1 << 24;
    /// The largest file of a trace.
    pub const FILE_MAX: u64 = 64 << 20;

    /// Reads the text of a file.
    ///
    /// # Errors
    /// If a line is not a number of milliseconds from the one before to a day, or there are too
    /// many lines, or none after time zero.
    pub fn read(text: &str) -> Result<Trace, TraceError> {
        let mut steps: Vec<Step> = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let ms: u32 = line.trim().parse().map_err(|_| TraceError::Number(number))?;
            let (last, before) = steps.last().map_or((0, 0), |step| (step.ms, step.until));
            if ms < last {
                return Err(TraceError::Order(number));
            }
            if ms > MS_MAX {
                return Err(TraceError::Late(number));
            }
            add(&mut steps, ms, before, 1)?;
        }
        let period_ms = steps.last().map_or(0, |step| step.ms);
        Trace::new(steps, period_ms)
    }

    /// Makes a trace of rates that follow each other, each for a time in whole milliseconds.
    ///
    /// # Errors
    /// If there are too many opportunities, or none.
    pub fn of_rates(rates: &[(Rate, Span)]) -> Result<Trace, TraceError> {
        let mut steps: Vec<Step> = Vec::new();
        let (mut now, mut rest, mut before) = (0u64, 0u128, 0u32);
        for &(rate, span) in rates {
            for _ in 0..span.as_millis() {
                now += 1;
                let ms = u32::try_from(now).ok().filter(|&ms| ms <= MS_MAX);
                let ms = ms.ok_or(TraceError::Long)?;
                rest += u128::from(rate.as_bps());
                let more = rest / BITS_A_SECOND;
                rest %= BITS_A_SECOND;
                let more = u32::try_from(more).map_err(|_| TraceError::Long)?;
                if more > 0 {
                    add(&mut steps, ms, before, more)?;
                    before += more;
                }
            }
        }
        Trace::new(steps, now as u32)
    }

    fn new(steps: Vec<Step>, period_ms: u32) -> Result<Trace, TraceError> {
        if steps.is_empty() || period_ms == 0 {
            return Err(TraceError::Empty);
        }
        Ok(Trace { steps: steps.into(), period_ms })
    }

    /// Returns the rate that it has on average.
    pub fn mean_rate(&self) -> Rate {
        Bytes(self.total() * Trace::OPPORTUNITY.0).per(Span::from_millis(self.period_ms.into()))
    }

    /// Returns after what time it begins anew.
    pub fn period(&self) -> Span {
        Span::from_millis(self.period_ms.into())
    }

    /// Returns how many opportunities come before `time`.
    pub fn before(&self, time: Time) -> u64 {
        let (nanos, period) = (time.as_nanos(), self.period().as_nanos());
        let (mut cycle, mut rest) = (nanos / period, nanos % period);
        if rest == 0 && cycle > 0 {
            // Those of the last millisecond are not over yet.
            (cycle, rest) = (cycle - 1, period);
        }
        let place = self.steps.partition_point(|step| u64::from(step.ms) * MS < rest);
        let come = place.checked_sub(1).map_or(0, |last| u64::from(self.steps[last].until));
        cycle.saturating_mul(self.total()).saturating_add(come)
    }

    /// Returns when the opportunity of this number comes, counted from 0.
    pub fn time(&self, number: u64) -> Time {
        let (cycle, rest) = (number / self.total(), number % self.total());
        let place = self.steps.partition_point(|step| u64::from(step.until) <= rest);
        let ms = self.steps.get(place).map_or(self.period_ms, |step| step.ms);
        let ms =
            cycle.checked_mul(self.period_ms.into()).and_then(|all| all.checked_add(ms.into()));
        ms.and_then(|ms| ms.checked_mul(MS)).map_or(Time::MAX, Time::from_nanos)
    }

    /// Opportunities in one period.
    fn total(&self) -> u64 {
        self.steps.last().map_or(1, |step| u64::from(step.until))
    }
}

/// Adds `more` opportunities at `ms`, of which `before` came earlier.
fn add(steps: &mut Vec<Step>, ms: u32, before: u32, more: u32) -> Result<(), TraceError> {
    let until = before.checked_add(more).filter(|&all| all <= Trace::OPPORTUNITIES_MAX);
    let until = until.ok_or(TraceError::Long)?;
    match steps.last_mut().filter(|step| step.ms == ms) {
        Some(step) => step.until = until,
        None => steps.push(Step { ms, until }),
    }
    Ok(())
}

/// How far a link has come in its trace.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    trace: Trace,
    /// The opportunity in use, and the bytes that are left of it.
    number: u64,
    left: u64,
}

impl Track {
    pub(crate) fn new(trace: Trace) -> Track {
        Track { trace, number: 0, left: Trace::OPPORTUNITY.0 }
    }

    /// Serves a packet that is the next from `ready` on. Returns when it leaves.
    pub(crate) fn serve(&mut self, ready: Time, size: Bytes) -> Time {
        let first = self.trace.before(ready);
        if self.number < first {
            (self.number, self.left) = (first, Trace::OPPORTUNITY.0);
        }
        let missing = size.0.saturating_sub(self.left);
        let more = missing.div_ceil(Trace::OPPORTUNITY.0);
        let have = self.left.saturating_add(more.saturating_mul(Trace::OPPORTUNITY.0));
        self.left = have - size.0;
        self.number = self.number.saturating_add(more);
        self.trace.time(self.number)
    }

    /// What was to leave from now on does not.
    pub(crate) fn cut(&mut self) {
        (self.number, self.left) = (0, Trace::OPPORTUNITY.0);
    }
}

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;
/// Milliseconds of a day.
const MS_MAX: u32 = 86_400_000;
/// The rate of one opportunity in each millisecond, in bits per second.
const BITS_A_SECOND: u128 = 1_504 * 8 * 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Link, LinkSpec, Reason, Verdict};

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn link(text: &str) -> Link {
        let trace = Some(Trace::read(text).expect("a trace"));
        Link::new(LinkSpec { trace, queue: Bytes(6_000), ..LinkSpec::default() }, 1)
    }

    /// The milliseconds at which packets offered at such times leave. `None`: it was dropped.
    fn leaves<const N: usize>(link: &mut Link, offers: [(u64, u64); N]) -> [Option<u64>; N] {
        offers.map(|(ms, size)| match link.enqueue(at(ms), Bytes(size)) {
            Verdict::Deliver { transit, .. } => {
                let nanos = transit.leave.as_nanos();
                assert_eq!(nanos % MS, 0);
                Some(nanos / MS)
            }
            Verdict::Drop(_) => None,
        })
    }

    #[test]
    fn packets_leave_at_opportunities_and_the_trace_begins_anew() {
        let mut link = link("1\n1\n4\n");
        let full = [(0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500)];
        assert_eq!(leaves(&mut link, full), [1, 1, 4, 5, 5].map(Some));
        // What comes at 6 ms finds the opportunities of 1 ms (5 ms) gone.
        assert_eq!(leaves(&mut link, [(6, 1_500), (13, 1_500)]), [Some(8), Some(13)]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_a_large_one_takes_several() {
        let mut link = link("2\n4\n6\n");
        let offers = [(0, 500), (0, 500), (0, 500), (0, 4_000), (0, 512)];
        // 4 bytes are left of the first; 4,000 take these and 516 of the fourth, at 8 ms.
        assert_eq!(leaves(&mut link, offers), [2, 2, 2, 8, 8].map(Some));
    }

    #[test]
    fn what_an_opportunity_has_left_is_gone_with_it() {
        let mut link = link("2\n4\n");
        assert_eq!(leaves(&mut link, [(0, 100), (3, 100), (4, 1_404)]), [2, 4, 4].map(Some));
        assert_eq!(leaves(&mut link, [(4, 1)]), [Some(6)]);
    }

    #[test]
    fn what_exceeds_the_queue_while_no_opportunity_comes_is_dropped() {
        let mut link = link("100\n");
        let offers = [(0, 1_500); 6];
        // One is in service and four wait.
        let found = leaves(&mut link, offers);
        assert_eq!(found, [Some(100), Some(200), Some(300), Some(400), Some(500), None]);
        assert_eq!(link.stats().drops.queue.packets, 1);
    }

    #[test]
    fn a_link_that_is_mended_goes_on_with_the_next_opportunity() {
        let mut link = link("10\n");
        assert_eq!(leaves(&mut link, [(0, 1_500), (0, 1_500)]), [Some(10), Some(20)]);
        link.change(at(5), Change::DOWN);
        assert_eq!(link.enqueue(at(6), Bytes(100)), Verdict::Drop(Reason::Down));
        link.change(at(7), Change::UP);
        assert_eq!(leaves(&mut link, [(8, 1_500)]), [Some(10)]);
    }

    #[test]
    fn opportunities_before_a_time_are_those_whose_own_time_is_earlier() {
        let trace = Trace::read("0\n3\n3\n7\n").expect("a trace");
        for number in 0..40 {
            let time = trace.time(number);
            let earlier = (0..60).filter(|&n| trace.time(n) < time).count() as u64;
            assert_eq!(trace.before(time), earlier, "{number}");
            assert!(trace.before(time + Span::from_nanos(1)) > number);
        }
    }

    #[test]
    fn a_trace_of_rates_carries_them_to_a_packet() {
        let (high, low) = (Rate::from_mbps(100), Rate::from_mbps(25));
        let second = Span::from_secs(1);
        let trace = Trace::of_rates(&[(high, second), (low, second)]).expect("a trace");
        assert_eq!(trace.period(), Span::from_secs(2));
        for (from, to, rate) in [(0, 1_000, high), (1_000, 2_000, low), (2_000, 3_000, high)] {
            let after = Span::from_nanos(1);
            let count = trace.before(at(to) + after) - trace.before(at(from) + after);
            let packets = rate.bytes_in(second).0 as f64 / 1_504.0;
            assert!((count as f64 - packets).abs() <= 1.0, "{from}: {count} for {packets}");
        }
        let mean = trace.mean_rate().as_f64() / 62.5e6;
        assert!((mean - 1.0).abs() < 1e-3, "{mean}");
    }

    #[test]
    fn a_broken_trace_is_named_by_its_line() {
        let cases = [
            ("", TraceError::Empty),
            ("0\n0\n", TraceError::Empty),
            ("1\n2x\n", TraceError::Number(2)),
            ("1\n\n", TraceError::Number(2)),
            ("-1\n", TraceError::Number(1)),
            ("5\n4\n", TraceError::Order(2)),
            ("86400001\n", TraceError::Late(1)),
            ("99999999999999999999\n", TraceError::Number(1)),
        ];
        for (text, error) in cases {
            assert_eq!(Trace::read(text), Err(error), "{text:?}");
        }
        assert!(alloc::format!("{}", TraceError::Order(2)).contains("line 2"));
    }

    #[test]
    fn traces_without_measure_are_refused_and_no_time_overflows() {
        let fast = [(Rate::from_mbps(1_000_000), Span::from_secs(1_000))];
        assert_eq!(Trace::of_rates(&fast), Err(TraceError::Long));
        let long = [(Rate::from_mbps(1), Span::from_secs(90_000))];
        assert_eq!(Trace::of_rates(&long), Err(TraceError::Long));
        assert_eq!(Trace::of_rates(&[(Rate::ZERO, Span::from_secs(1))]), Err(TraceError::Empty));
        let trace = Trace::read("1\n1\n1\n").expect("a trace");
        assert_eq!(trace.time(u64::MAX), Time::MAX);
        let mut track = Track::new(trace);
        assert_eq!(track.serve(Time::MAX, Bytes(1_500)), Time::MAX);
        assert_eq!(track.serve(Time::MAX, Bytes(1 << 40)), Time::MAX);
        assert_eq!(track.serve(Time::MAX, Bytes(u64::MAX)), Time::MAX);
    }
}
