//! Does a loss without a queue follow the rate? Sends less for a few round trips and counts.
//!
//! A policer, or a queue of a few packets, drops what exceeds its rate: at three quarters of what
//! arrived it drops nothing. Random loss stays. Once may be chance, so a limit must be found twice
//! at about the same rate.

use gtp_alloc::{Rate, Span, Time};

use super::measures::Verdict;
use super::sample::Conditions;
use super::window::Window;
use super::{PathBound, State};

/// The part of the arriving rate that a session sends during the test.
const PROBES_AT: f64 = 0.75;
/// The test lasts for two round trips and this time at least.
const LASTS: Span = Span::from_millis(50);
/// The test counts as many packets as would hold this number of losses at the loss in question.
const LOSSES: f64 = 24.0;
/// The least and the most packets that the test counts.
const PACKETS: (f64, f64) = (128.0, 2_048.0);
/// The test waits for its packets no longer than this after its least time.
const LONGER: Span = Span::from_millis(500);
/// The test finds no limit if fewer losses than this were to be expected among its packets.
const SHOWN: f64 = 6.0;
/// Losses that fall below this part of what they were follow the rate.
const VANISHED: f64 = 1.0 / 3.0;
/// Two limits are one if they differ by no more than this part, within this time.
const AGREES: f64 = 0.125;
const AGREES_WITHIN: Span = Span::from_secs(10);
/// The part of a limit that is sent once it is known.
pub(super) const BELOW: f64 = 0.95;
/// If more than this part is lost, the path carries only what arrives, whatever the reason.
const MUCH: f64 = 0.2;
/// The part of the arriving rate that is sent at once after such a loss.
const STEPS_DOWN: f64 = 0.85;

/// A test that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    until: Time,
    /// What arrived, and the loss that is asked about.
    level: Rate,
    loss: f64,
    /// Packets of the test, and how many of them are lost.
    packets: u64,
    lost: u64,
    /// Whether there was a bound before it.
    bounded: bool,
    /// Whether the session competed before it.
    competed: bool,
}

/// The rate at which losses were last found to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    rate: Rate,
    at: Time,
}

impl PathBound {
    /// A loss without a queue that chance does not explain. Returns whether there is one, over
    /// which nothing climbs.
    pub(super) fn answer_odd_loss(&mut self, now: Time, v: &Verdict, given: &Conditions) -> bool {
        if let Some(loss) = v.odd {
            self.probe(now, v, loss, given);
            return true;
        }
        if v.queued || !self.measures.is_odd(v) {
            return false;
        }
        let most = 1.0 - self.measures.usual() + MUCH;
        if self.measures.odd_so_far().is_some_and(|loss| loss > most) {
            self.step_down(now, v, given);
        }
        true
    }

    /// What arrives is far less than what is sent: does not wait for an explanation.
    fn step_down(&mut self, now: Time, v: &Verdict, given: &Conditions) {
        self.proven.clear(now);
        self.proven.add(now, v.carried);
        if matches!(self.state, State::Cruise(_)) && v.carried < self.bound.scale(STEPS_DOWN) {
            self.set_bound(v.carried.scale(STEPS_DOWN), given);
        }
    }

    pub(super) fn probe(&mut self, now: Time, v: &Verdict, loss: f64, given: &Conditions) {
        let until = now + given.rtt * 2 + LASTS;
        let (level, bounded) = (v.carried, !self.bound.is_unlimited());
        let competed = matches!(self.state, State::Compete(_));
        self.state =
            State::Probe(Probe { until, level, loss, packets: 0, lost: 0, bounded, competed });
        self.set_bound(level.scale(PROBES_AT), given);
    }

    /// A sample of the lower rate.
    pub(super) fn hear_probe(&mut self, probe: Probe, now: Time, v: &Verdict, given: &Conditions) {
        let (packets, lost) = (probe.packets + v.packets, probe.lost + v.lost);
        let enough = (LOSSES / probe.loss).clamp(PACKETS.0, PACKETS.1);
        let few = (packets as f64) < enough && now < probe.until + LONGER;
        if now < probe.until || few {
            self.state = State::Probe(Probe { packets, lost, ..probe });
            return;
        }
        let usual = 1.0 - self.measures.usual();
        let (left, was) = (lost as f64 / packets as f64 - usual, probe.loss - usual);
        let shown = packets as f64 * probe.loss >= SHOWN;
        let vanished = shown && left < was * VANISHED;
        if !vanished {
            self.measures.note_random(lost as f64 / packets as f64, packets);
        }
        let known = self.limit.filter(|_| vanished);
        let agrees = known.is_some_and(|known| known.agrees(now, probe.level));
        if vanished {
            self.limit = Some(Limit { rate: probe.level, at: now });
        }
        // A session that competed knows an end of the path, whatever its losses are.
        let goes_on = probe.competed || (vanished && probe.bounded);
        if agrees {
            let rtt = given.rtt_least;
            let window = Window::young(now, probe.level, rtt).at_limit().cut_to(now, BELOW);
            self.begin_competing(now, window, rtt, true, given);
        } else if goes_on {
            self.resume(probe.level, given);
        } else {
            // Whatever made it think that the path had an end may have been chance.
            self.proven.add(now, probe.level.scale(self.measures.usual()));
            self.lift(given);
        }
    }
}

impl Limit {
    fn agrees(&self, now: Time, rate: Rate) -> bool {
        let apart = (self.rate.as_f64() - rate.as_f64()).abs();
        apart < AGREES * rate.as_f64() && now.since(self.at) < AGREES_WITHIN
    }
}
