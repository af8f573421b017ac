//! Do losses still begin at the limit? Sends more for a moment and looks.
//!
//! A limit is found by losses that twice went away when less was sent. Bursts of random losses may
//! do that too, and then a window that grows as a TCP's would take long to show it. So a session
//! that has been without losses for a while sends more for a moment. Each time that the limit
//! stands, it waits twice as long for the next test.

use gtp_alloc::{Rate, Span, Time};

use super::compete::Compete;
use super::measures::Verdict;
use super::probe::BELOW;
use super::sample::Conditions;
use super::window::Window;
use super::{PathBound, State};

/// The first test comes after this time without losses, and this number of round trips.
const CALM: Span = Span::from_secs(1);
const CALM_ROUNDS: u64 = 8;
/// The wait for a test doubles no more often than this.
const DOUBLINGS_MOST: u32 = 4;
/// The test sends this times the window's rate.
const TRIES_AT: f64 = 1.25;
/// The test lasts for this time, this number of round trips, and one part in so many of the time
/// without losses. In a shorter one a policer may pass on what it has saved up while the session
/// sent less than its limit.
const LASTS: Span = Span::from_millis(500);
const LASTS_ROUNDS: u64 = 4;
const LASTS_PART: u64 = 8;
/// A test in which no more than this times the window's rate arrived shows nothing.
const SHOWS: f64 = 1.1;

/// A test that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    until: Time,
    /// The window before it, and its rate.
    before: Window,
    level: Rate,
}

impl PathBound {
    /// Tests a limit when the time has come, and judges the test. Returns whether the sample was
    /// dealt with.
    pub(super) fn retry_limit(
        &mut self,
        compete: &mut Compete,
        now: Time,
        v: &Verdict,
        fresh: bool,
        given: &Conditions,
    ) -> bool {
        let Some(retry) = compete.retry else { return self.begin_retry(compete, now, given) };
        let stands = fresh && v.excess;
        if !stands && now < retry.until {
            self.state = State::Compete(*compete);
            return true;
        }
        if !stands && v.carried > retry.level.scale(SHOWS) {
            self.limit = None;
            self.shares.unsettle();
            self.resume(v.carried.min(self.bound), given);
            return true;
        }
        (compete.retry, compete.calm_since) = (None, None);
        compete.window = if stands { self.limit_stands(&retry, now) } else { retry.before };
        self.state = State::Compete(*compete);
        self.set_bound(compete.window.rate(given.rtt), given);
        true
    }

    fn begin_retry(&mut self, compete: &mut Compete, now: Time, given: &Conditions) -> bool {
        let Some(calm) = compete.calm_since.map(|since| now.since(since)) else { return false };
        let first = CALM.max(given.rtt * CALM_ROUNDS);
        let level = compete.window.rate(given.rtt);
        if calm < first * self.limit_stood() || given.aim < level.scale(TRIES_AT) {
            return false;
        }
        let until = now + LASTS + given.rtt * LASTS_ROUNDS + calm / LASTS_PART;
        compete.retry = Some(Retry { until, before: compete.window, level });
        self.state = State::Compete(*compete);
        self.set_bound(level.scale(TRIES_AT), given);
        true
    }

    fn limit_stood(&self) -> u64 {
        self.limit.map_or(1, |limit| 1 << limit.stood.min(DOUBLINGS_MOST))
    }

    /// The limit has stood a test; returns the window that goes on.
    fn limit_stands(&mut self, retry: &Retry, now: Time) -> Window {
        if let Some(limit) = &mut self.limit {
            (limit.at, limit.stood) = (now, limit.stood + 1);
        }
        retry.before.cut_to(now, BELOW)
    }
}
