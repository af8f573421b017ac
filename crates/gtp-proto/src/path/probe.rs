//! Does a loss without a queue follow the rate? Sends less for a few round trips and counts.
//!
//! A policer, or a queue of a few packets, drops what exceeds its rate: at three quarters of what
//! arrived it drops nothing. Random loss stays. Once may be chance, so a limit must be found twice
//! at about the same rate.

use gtp_alloc::{Rate, Span, Time};

use super::compete::Why;
use super::cruise::Cruise;
use super::measures::{RANDOM_MOST, RANDOM_SURE, Verdict};
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
/// Of an outage more than this part is lost.
const OUTAGE: f64 = 0.5;
/// Two limits are one if they differ by no more than this part, within this time.
const AGREES: f64 = 0.125;
const AGREES_WITHIN: Span = Span::from_secs(10);
/// The part of a limit that is sent once it is known.
pub(super) const BELOW: f64 = 0.95;
/// Losses may begin below a limit this number of times, because it was measured too high.
const LOWERED_MOST: u32 = 4;
/// The window grows to this part of it.
const KEEPS: f64 = 0.98;
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
    /// The bound before it.
    before: Rate,
    /// The bound that holds again if the loss turns out to be random, as was thought before.
    back: Option<Rate>,
}

/// The rate at which losses were last found to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    rate: Rate,
    pub at: Time,
    /// The number of later tests in which losses still began there.
    pub stood: u32,
    /// The number of times that losses began below it.
    lowered: u32,
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
        if self.measures.odd_so_far().is_some_and(|loss| self.measures.is_much(loss)) {
            self.step_down(now, v, given);
        }
        true
    }

    /// Losses were found to begin at `level`: competes from below it.
    fn stop_at_limit(&mut self, now: Time, level: Rate, given: &Conditions) {
        let stood = self.limit.map_or(0, |known| known.stood);
        self.limit = Some(Limit { rate: level, at: now, stood, lowered: 0 });
        let rtt = given.rtt_least;
        let window = Window::young(now, level, rtt, given.flows).at_limit().cut_to(now, BELOW);
        self.begin_competing(now, window, rtt, Why::Limit, given);
    }

    /// Losses came while `carried` arrived, which may be a little less than the known limit.
    /// Returns whether that explains them: losses far below a limit, or time and again, are a
    /// rival's doing.
    pub(super) fn lower_limit(&mut self, now: Time, carried: Rate) -> bool {
        let Some(known) = self.limit.as_mut().filter(|known| known.is_near(carried)) else {
            return false;
        };
        (known.rate, known.at, known.lowered) = (known.rate.min(carried), now, known.lowered + 1);
        known.lowered <= LOWERED_MOST
    }

    /// What arrives is far less than what is sent: does not wait for an explanation.
    pub(super) fn step_down(&mut self, now: Time, v: &Verdict, given: &Conditions) {
        self.proven.clear(now);
        self.proven.add(now, v.carried);
        let in_cruise = matches!(self.state, State::Cruise(_));
        if in_cruise && v.shows_what_arrives() && v.carried < self.bound.scale(STEPS_DOWN) {
            self.set_bound(v.carried.scale(STEPS_DOWN), given);
        }
    }

    /// Tests again whether a large loss is random that was called so long ago. Returns whether a
    /// test began. A session that has little to send shows nothing.
    pub(super) fn retest(&mut self, now: Time, v: &Verdict, given: &Conditions) -> bool {
        let sends = matches!(self.state, State::Start(_) | State::Cruise(_) | State::Compete(_));
        let sends = sends && !given.idles;
        let arrives = v.carried.scale(self.measures.usual());
        let Some(loss) = sends.then(|| self.measures.doubt_random(now)).flatten() else {
            return false;
        };
        let back = self.bound;
        self.probe(now, &Verdict { carried: arrives, ..*v }, loss, given);
        self.goes_back_to(back);
        true
    }

    /// If the test that has just begun shows that the losses are random, it goes on with this
    /// bound.
    pub(super) fn goes_back_to(&mut self, bound: Rate) {
        if let State::Probe(probe) = &mut self.state {
            probe.back = Some(bound).filter(|bound| !bound.is_unlimited());
        }
    }

    pub(super) fn probe(&mut self, now: Time, v: &Verdict, loss: f64, given: &Conditions) {
        let until = now + given.rtt * 2 + LASTS;
        let (level, before) = (v.carried, self.bound);
        let bounded = !before.is_unlimited();
        let competed = matches!(self.state, State::Compete(_));
        let (packets, lost, back) = (0, 0, None);
        self.state = State::Probe(Probe {
            until,
            level,
            loss,
            packets,
            lost,
            bounded,
            competed,
            before,
            back,
        });
        self.set_bound(level.scale(PROBES_AT), given);
    }

    /// A sample of packets that all left before the rate was lowered. If most was lost before, and
    /// next to nothing of this sample is, at the same rate, there was an outage, which is over:
    /// returns whether so.
    pub(super) fn ends_outage(&mut self, v: &Verdict, given: &Conditions) -> bool {
        let State::Probe(probe) = self.state else { return false };
        let was = probe.loss > OUTAGE && !probe.competed;
        let shown = v.packets as f64 * probe.loss >= SHOWN;
        let usual = 1.0 - self.measures.usual();
        if !was || !shown || v.loss() - usual >= (probe.loss - usual) * VANISHED {
            return false;
        }
        match probe.before.is_unlimited() {
            true => self.lift(given),
            false => {
                self.state = State::Cruise(Cruise::default());
                self.set_bound(probe.before, given);
            }
        }
        true
    }

    /// A sample of the lower rate. One of which most is lost shows an outage, whatever the rate is:
    /// it answers nothing, and if it is not the last one, the guard is set.
    pub(super) fn hear_probe(&mut self, probe: Probe, now: Time, v: &Verdict, given: &Conditions) {
        if v.shows_an_outage() {
            return;
        }
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
        let random_most = if probe.competed { RANDOM_MOST } else { RANDOM_SURE };
        if !vanished && lost as f64 > random_most * packets as f64 {
            self.compete_after_loss(now, v, Why::Losses(probe.level), given);
            return;
        }
        if !vanished {
            self.measures.note_random(now, lost as f64 / packets as f64, packets);
            if let Some(bound) = probe.back {
                self.state = State::Cruise(Cruise::default());
                self.set_bound(bound, given);
                return;
            }
        }
        let agrees = vanished && self.limit.is_some_and(|known| known.agrees(now, probe.level));
        // A session that competed knows an end of the path, whatever its losses are.
        let goes_on = probe.competed || (vanished && probe.bounded);
        if agrees {
            self.stop_at_limit(now, probe.level, given);
            return;
        }
        if vanished {
            self.limit = Some(Limit { rate: probe.level, at: now, stood: 0, lowered: 0 });
        }
        if goes_on {
            self.resume(probe.level, given);
        } else {
            // Whatever made it think that the path had an end may have been chance.
            self.proven.add(now, probe.level.scale(self.measures.usual()));
            self.lift(given);
        }
    }
}

impl Limit {
    /// What a session that knows of the limit sends at most, until a test shows that it is gone.
    pub fn keeps_to(&self) -> Rate {
        self.rate.scale(KEEPS)
    }

    fn agrees(&self, now: Time, rate: Rate) -> bool {
        self.is_near(rate) && now.since(self.at) < AGREES_WITHIN
    }

    fn is_near(&self, rate: Rate) -> bool {
        let apart = (self.rate.as_f64() - rate.as_f64()).abs();
        apart < AGREES * rate.as_f64()
    }
}
