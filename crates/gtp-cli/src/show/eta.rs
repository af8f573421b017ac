//! The time that a transfer still needs, from samples of what has moved.
//!
//! The pace is a mean over all that has moved at first, and over some ten seconds later on; what is
//! shown runs down with the clock and is drawn towards what the pace says. So it does not jump when
//! a burst comes or one look catches nothing. It knows times and bytes, and no transfer or
//! terminal.

/// The estimate of one transfer.
#[derive(Clone, Debug, Default)]
pub struct Eta {
    /// When the first data were seen, and the last sample.
    last: Option<Sample>,
    begun: f64,
    /// Bytes a second.
    pace: f64,
    /// What was said last, in seconds.
    said: Option<f64>,
}

/// What has moved until when.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: f64,
    moved: u64,
}

/// Seconds of data without which nothing is said.
const LEAST: f64 = 2.0;
/// Seconds over which the pace is a mean.
const HORIZON: f64 = 10.0;
/// Seconds in which what is said comes nearer by two thirds to what the pace says.
const DRAWN: f64 = 3.0;

impl Eta {
    /// Takes a sample: `moved` bytes since the beginning at `at` seconds, and `left` bytes to go.
    /// Returns the seconds until the end; `None` where two seconds of data have not been seen, or
    /// nothing moves.
    pub fn sample(&mut self, at: f64, moved: u64, left: u64) -> Option<f64> {
        let Some(last) = self.last.filter(|last| at >= last.at && moved >= last.moved) else {
            // Nothing has moved, or another transfer begins.
            *self = Eta::default();
            if moved > 0 {
                (self.last, self.begun) = (Some(Sample { at, moved }), at);
            }
            return None;
        };
        let span = at - last.at;
        if span > 0.0 {
            let now = (moved - last.moved) as f64 / span;
            // All samples count alike until there are as many as the horizon holds.
            let seen = (at - self.begun).min(HORIZON);
            self.pace += (now - self.pace) * (span / seen).min(1.0);
            self.last = Some(Sample { at, moved });
        }
        if at - self.begun < LEAST || self.pace < 1.0 {
            return None;
        }
        let estimate = left as f64 / self.pace;
        let said = match self.said {
            Some(said) => {
                let on = (said - span).max(0.0);
                on + (estimate - on) * (1.0 - (-span / DRAWN).exp())
            }
            None => estimate,
        };
        self.said = Some(said);
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said at each tenth of a second of a transfer of `total` bytes of which so many have
    /// moved.
    fn said(total: u64, moved: impl Fn(f64) -> f64, seconds: u32) -> Vec<(f64, Option<f64>)> {
        let mut eta = Eta::default();
        let looks = (0..seconds * 10).map(|look| f64::from(look) / 10.0);
        looks
            .map(|at| {
                let moved = (moved(at) as u64).min(total);
                (at, eta.sample(at, moved, total - moved))
            })
            .collect()
    }

    #[test]
    fn nothing_is_said_before_two_seconds_of_data() {
        // Data begin to move after three seconds.
        let all = said(100_000_000, |at| 1e6 * (at - 3.0).max(0.0), 10);
        for (at, said) in all {
            // The first data are seen at 3.1 seconds.
            assert!(said.is_none() || at > 3.05 + LEAST, "{at}: {said:?}");
            assert!(said.is_some() || at < 3.15 + LEAST, "{at}: {said:?}");
        }
    }

    #[test]
    fn a_steady_pace_is_said_exactly_and_runs_down_with_the_clock() {
        for (at, said) in said(20_000_000, |at| 1e6 * (at + 0.1), 18) {
            let Some(said) = said else { continue };
            assert!((said - (19.9 - at)).abs() < 0.01, "{at}: {said}");
        }
    }

    #[test]
    fn a_start_that_gathers_speed_makes_the_time_fall_and_never_jump() {
        // 60 Mbit/s after four seconds, as a path is felt out.
        let moved = |at: f64| 7.5e6 * (at - 2.0 + 2.0 * (-at / 2.0).exp()).max(0.0) + 1.0;
        let mut before: Option<f64> = None;
        for (at, said) in said(300_000_000, moved, 35) {
            let Some(said) = said else { continue };
            if let Some(before) = before {
                assert!(said <= before + 0.05, "{at}: it rises from {before} to {said}");
                assert!(said >= before * 0.9 - 0.1, "{at}: it falls from {before} to {said}");
            }
            before = Some(said);
        }
        assert!(before.is_some_and(|last| (last - 7.1).abs() < 3.0), "{before:?}");
    }

    #[test]
    fn bursts_and_looks_that_catch_nothing_do_not_show() {
        // A megabyte at once, every half second.
        let all = said(60_000_000, |at| 1e6 * (1.0 + (at * 2.0).floor()), 25);
        let late: Vec<f64> = all.iter().filter_map(|(_, said)| *said).collect();
        for pair in late.windows(2) {
            assert!((pair[1] - pair[0]).abs() < 1.0, "{pair:?}");
        }
    }

    #[test]
    fn a_stall_makes_it_rise_slowly_and_the_next_transfer_begins_with_nothing() {
        let mut eta = Eta::default();
        let mut at = 0.0;
        let mut before = 0.0;
        for look in 1..=100_u64 {
            at = look as f64 / 10.0;
            let moved = look * 100_000;
            before = eta.sample(at, moved, 100_000_000 - moved).unwrap_or_default();
        }
        assert!((before - 90.0).abs() < 1.0, "{before}");
        for _ in 0..50 {
            at += 0.1;
            let said = eta.sample(at, 10_000_000, 90_000_000).unwrap();
            assert!(said < before * 1.05, "{said} after {before}");
            before = said;
        }
        assert!(before > 100.0, "{before}");
        assert_eq!(eta.sample(0.1, 5_000, 1_000), None);
        assert_eq!(eta.sample(1.0, 6_000, 0), None);
    }
}
