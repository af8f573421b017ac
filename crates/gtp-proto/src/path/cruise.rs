//! Cruise: climbing by roots until a queue shows, and stepping back from it.
//!
//! The climb's step grows with a root of the rate, so that sessions that share a path drift towards
//! equal shares: the larger one gains the smaller part. Below 10 Mbit/s it is the fourth root, or
//! slow sessions would need half as long again to catch up. Cuts are deep while shares still move
//! and shallow once they have settled.

use gtp_alloc::{Rate, Span, Time};

use super::compete::Why;
use super::measures::Verdict;
use super::sample::Conditions;
use super::start::Start;
use super::window::Window;
use super::{LIFT, PathBound, State};

/// The climb in 25 ms, in bit/s: the root of the rate times `of_fast`, or the fourth root of the
/// rate times the third power of `of_slow`, whichever is more. They are alike at 10 Mbit/s.
struct Climb {
    of_fast: f64,
    of_slow: f64,
}

/// While shares move: 0.9 Mbit/s at 20 Mbit/s.
const CLIMB_MOVING: Climb = Climb { of_fast: 40_000.0, of_slow: 252_000.0 };
/// Once they have settled: 0.55 Mbit/s at 20 Mbit/s.
const CLIMB_SETTLED: Climb = Climb { of_fast: 15_000.0, of_slow: 131_000.0 };
/// The time for which a step is meant.
const STEP_SPAN: f64 = 0.025;
/// A step for several round trips at once is at most this part of the rate.
const STEPS_MOST: f64 = 0.125;
/// Who gives way climbs by this part of a step, so that a rival that recovers from losses is there
/// first.
const GENTLE: f64 = 0.25;
/// A slow session may step by half its rate, but by no more than this.
const STEP_SLOW: Rate = Rate::from_mbps(3);
/// So many round trips without a queue lead back to where the last one was met; after them steps
/// double every third round trip.
const CAUTIOUS: u32 = 8;
/// Between these parts of the rate at which the last queue was met, steps do not double.
const NEAR: (f64, f64) = (0.8, 1.1);
/// A queue cuts the rate to this part of what arrives, while shares move far, while they drift, and
/// once they have settled.
const CUT_MOVING: f64 = 0.73;
const CUT_DRIFTING: f64 = 0.85;
const CUT_SETTLED: f64 = 0.95;
/// After so many cuts in a row at one rate shares count as settled.
const SETTLES: u32 = 2;
/// What arrives at successive cuts may change by this part in a settled share, beyond what measured
/// rates scatter by.
const MOVES: f64 = 0.01;
/// The same in a share that drifts.
const DRIFTS: f64 = 0.04;
/// One queue is cut for once in so long: others may hear of it later.
const COALESCE: Span = Span::from_millis(100);
/// From sample to sample a queue that a cut empties becomes shorter by this at least.
const SHRINKS: Span = Span::from_millis(1);
/// After so many cuts in one queue it is asked whose queue it is.
const PATIENCE: u32 = 2;
/// After so many falls in a row below this part of what there was, somebody takes it. The first
/// time it is asked whose queue it is. If that has not helped, or a rival is known, it is a rival
/// that does not yield.
const FALLS: u32 = 4;
const TAKEN: f64 = 0.8;
/// A rival is remembered for so long.
pub(super) const REMEMBERS: Span = Span::from_secs(60);
/// Losses in a queue within this time after others: somebody keeps it full.
const LOSES_AGAIN: Span = Span::from_secs(10);
/// Loss beside a queue below this is not worth an answer of its own.
const LOSS_LEAST: f64 = 0.002;

/// Where a climb has got to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cruise {
    /// Round trips without a queue.
    pub clean: u32,
    /// Cuts in the present queue.
    pub cuts: u32,
    /// How long it was when last seen after the last cut.
    pub queue: Option<Span>,
}

/// Whether shares have settled, and whether somebody takes ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Cuts in a row at one rate.
    alike: u32,
    /// Whether the last two cuts were at about one rate.
    drifts: bool,
    /// What was carried at the last cut, falls since in a row, and what there was before them.
    at_cut: f64,
    falls: u32,
    fell_from: f64,
    cut_at: Time,
    /// Until when a rival is remembered.
    pub rival_until: Time,
    /// Until when it is remembered that it was asked for such falls whose queue it is.
    doubts_until: Time,
    /// When losses in a queue were last met.
    lost_at: Option<Time>,
}

impl Default for Shares {
    fn default() -> Shares {
        let (at_cut, alike) = (0.0, 0);
        let (falls, fell_from) = (0, 0.0);
        let [cut_at, rival_until, doubts_until] = [Time::ZERO; 3];
        let lost_at = None;
        Shares {
            alike,
            drifts: false,
            at_cut,
            falls,
            fell_from,
            cut_at,
            rival_until,
            doubts_until,
            lost_at,
        }
    }
}

impl Shares {
    /// Shares move: somebody came or went.
    pub fn unsettle(&mut self) {
        (self.alike, self.drifts) = (0, false);
    }

    /// A start has met the path's end at this rate.
    pub fn met_at(&mut self, now: Time, carried: Rate) {
        (self.alike, self.at_cut, self.cut_at) = (0, carried.as_f64(), now);
    }

    /// A cut at `now` where `carried` arrived, give or take the part `scatter`. Returns whether
    /// what was ours is being taken.
    fn note_cut(&mut self, now: Time, carried: f64, scatter: f64) -> bool {
        let moves = MOVES + scatter;
        self.drifts = (carried / self.at_cut - 1.0).abs() < DRIFTS + scatter;
        let falls = carried < self.at_cut * (1.0 - moves);
        let rises = carried > self.at_cut * (1.0 + moves);
        self.alike = if falls || rises { 0 } else { self.alike + 1 };
        self.falls = if falls {
            self.falls + 1
        } else if rises {
            0
        } else {
            self.falls
        };
        if self.falls == 0 || self.are_settled() {
            self.fell_from = carried;
        }
        (self.at_cut, self.cut_at) = (carried, now);
        self.falls >= FALLS && carried < TAKEN * self.fell_from
    }

    /// The part of the rate that a cut leaves.
    fn cut(&self) -> f64 {
        match self.drifts {
            _ if self.are_settled() => CUT_SETTLED,
            true => CUT_DRIFTING,
            false => CUT_MOVING,
        }
    }

    /// Whether shares do not move any more.
    fn are_settled(&self) -> bool {
        self.alike >= SETTLES
    }

    /// Whether the last queue was met at about this rate, so that doubled steps would overshoot.
    fn is_near(&self, bound: Rate) -> bool {
        let met_at = |part: f64| self.at_cut * part;
        (met_at(NEAR.0)..met_at(NEAR.1)).contains(&bound.as_f64())
    }

    /// Losses in a queue at `now`: whether they are not the first ones of late.
    pub fn note_loss(&mut self, now: Time, rtt: Span) -> bool {
        let since = self.lost_at.map(|at| now.since(at));
        let apart = since.is_none_or(|since| since > rtt * 2);
        if apart {
            self.lost_at = Some(now);
        }
        apart && since.is_some_and(|since| since < LOSES_AGAIN)
    }
}

impl PathBound {
    /// A sample of the present rate, in cruise.
    pub(super) fn cruise(&mut self, cruise: Cruise, now: Time, v: &Verdict, given: &Conditions) {
        if (v.excess || v.odd.is_some()) && self.answer_loss(now, v, given) {
            return;
        }
        if !v.queued {
            self.climb(cruise, v.rounds, given);
        } else if cruise.cuts == 0 || now.since(self.shares.cut_at) >= COALESCE.max(given.rtt * 2) {
            self.back_off(cruise, now, v, given);
        }
    }

    /// A loss that chance does not explain: in a queue, or without one. Returns whether it was
    /// answered.
    fn answer_loss(&mut self, now: Time, v: &Verdict, given: &Conditions) -> bool {
        if self.answer_drops(now, v, given) {
            return true;
        }
        let in_queue = v.queued && v.loss() > LOSS_LEAST;
        let after_queue = !v.queued && self.measures.is_odd(v) && self.measures.had_queue(now);
        if !in_queue && !after_queue {
            return self.answer_odd_loss(now, v, given);
        }
        let again = self.shares.note_loss(now, given.rtt) || given.yields;
        if again {
            self.shares.rival_until = now + REMEMBERS;
            self.compete_after_loss(now, v, Why::Rival, given);
        }
        again
    }

    /// If a queue that is too short to be seen dropped packets, competes for it as a TCP does.
    /// Returns whether one did.
    pub(super) fn answer_drops(&mut self, now: Time, v: &Verdict, given: &Conditions) -> bool {
        if !v.dropped || v.queued {
            return false;
        }
        self.compete_after_loss(now, v, Why::Rival, given);
        true
    }

    /// A queue marked or dropped something, or a loss is not random: competes from a window that
    /// was cut for it, or gives way.
    pub(super) fn compete_after_loss(
        &mut self,
        now: Time,
        v: &Verdict,
        why: Why,
        given: &Conditions,
    ) {
        let (level, rtt) = (v.carried.min(self.bound), given.rtt_least + v.delay);
        if given.yields {
            self.give_way(now, level, given);
            return;
        }
        let mut window = Window::young(now, level, rtt, given.flows);
        window.handle_loss(now);
        self.begin_competing(now, window, rtt, why, given);
    }

    /// The queue is there: steps back from it, waits until it is gone, or asks whose it is.
    fn back_off(&mut self, cruise: Cruise, now: Time, v: &Verdict, given: &Conditions) {
        let Cruise { cuts, queue, .. } = cruise;
        let shrinks = queue.is_none_or(|last| v.delay + SHRINKS <= last);
        if cuts > 0 && shrinks && !self.measures.falls_behind(v) {
            // The last cut is emptying it: another would only leave the link idle.
            self.state = State::Cruise(Cruise { clean: 0, cuts, queue: Some(v.delay) });
            return;
        }
        let level = v.carried.min(self.bound);
        if given.yields {
            self.give_way(now, level, given);
            return;
        }
        if cuts >= PATIENCE {
            self.ask(now, v, None, given);
            return;
        }
        if self.shares.note_cut(now, level.as_f64(), self.measures.scatter(v.packets)) {
            self.shares.falls = 0;
            if now < self.shares.rival_until.max(self.shares.doubts_until) {
                self.meet_rival(now, level, given);
            } else {
                self.shares.doubts_until = now + REMEMBERS;
                self.ask(now, v, None, given);
            }
            return;
        }
        let cut = self.shares.cut();
        self.state = State::Cruise(Cruise { clean: 0, cuts: cuts + 1, queue: None });
        self.set_bound(level.scale(cut), given);
    }

    fn climb(&mut self, cruise: Cruise, rounds: u32, given: &Conditions) {
        let (clean, rounds) = (cruise.clean.saturating_add(rounds.max(1)), f64::from(rounds));
        let root = if self.shares.are_settled() { CLIMB_SETTLED } else { CLIMB_MOVING };
        let spans = (given.rtt.as_secs_f64() / STEP_SPAN).clamp(1.0, 8.0);
        let rate = self.bound.as_f64().max(1.0);
        let step = libm::sqrt(rate * root.of_fast);
        let step = step.max(libm::sqrt(libm::sqrt(rate * root.of_slow) * root.of_slow)) * spans;
        let steady = given.yields || self.shares.is_near(self.bound);
        let doublings = if steady { 0 } else { clean.saturating_sub(CAUTIOUS) / 3 };
        let doubling = f64::from(1u32 << doublings.min(6));
        let step = if given.yields { step * GENTLE } else { step };
        let slow = Rate::from_f64(step).min(self.bound.scale(0.5)).min(STEP_SLOW);
        let step = Rate::from_f64(step * doubling * rounds.max(1.0));
        let step = step.min(self.bound.scale(STEPS_MOST).max(slow));
        self.state = State::Cruise(Cruise { clean, cuts: 0, queue: None });
        self.set_bound(self.bound.saturating_add(step), given);
        if self.bound.as_f64() > LIFT * given.aim.as_f64() {
            self.lift(given);
        }
    }

    /// The path carries more than both ends would give: there is no bound.
    pub(super) fn lift(&mut self, given: &Conditions) {
        self.state = State::Start(Start::default());
        self.bound = Rate::UNLIMITED;
        self.changed_pn = given.next_pn;
    }
}
