//! Whose queue is it? Sends less for as long as our own queue would need to drain.
//!
//! A queue of ours drains when we send less; a rival that fills it keeps it full. Only a queue that
//! stays makes a session compete.

use gtp_alloc::{Rate, Span, Time};

use super::compete::Compete;
use super::cruise::{Cruise, REMEMBERS};
use super::measures::Verdict;
use super::sample::Conditions;
use super::window::Window;
use super::{PathBound, State};

/// While it asks, a session sends this part of what arrived.
const ASKS_AT: f64 = 0.6;
/// It waits for a queue to drain no longer than this.
const DRAIN_MOST: Span = Span::from_secs(2);
/// A queue that has shrunk to this part is ours: a rival's does not shrink.
const SHRUNK: u64 = 4;
/// Samples that an answer needs.
const SAMPLES: u32 = 2;
/// A session whose queue it was starts again at this part of what the path carried.
const RESUMES: f64 = 0.95;

/// A question that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// When the queue would be gone if it was ours.
    until: Time,
    /// What the path carried.
    level: Rate,
    /// The queue when it was asked, and the shortest since.
    was: Span,
    least: Span,
    /// Samples since.
    heard: u32,
    /// What it goes back to if the rival is still there.
    back: Option<Compete>,
}

impl PathBound {
    /// Begins to ask; `back` is what it did so far if it competed.
    pub(super) fn ask(
        &mut self,
        now: Time,
        v: &Verdict,
        back: Option<Compete>,
        given: &Conditions,
    ) {
        let level = v.carried.min(self.bound);
        let until = drained_at(now, v.delay, given);
        let (was, least) = (v.delay, v.delay);
        self.state = State::Ask(Ask { until, level, was, least, heard: 0, back });
        self.set_bound(level.scale(ASKS_AT), given);
    }

    /// A sample while it asks; `fresh` if it shows the lower rate. Until that is seen, the queue
    /// still grows, and takes longer to drain.
    pub(super) fn hear_answer(
        &mut self,
        mut ask: Ask,
        now: Time,
        v: &Verdict,
        fresh: bool,
        given: &Conditions,
    ) {
        if v.delay > ask.was {
            (ask.was, ask.least) = (v.delay, v.delay);
            ask.until = drained_at(now, v.delay, given);
        }
        (ask.least, ask.heard) = (ask.least.min(v.delay), ask.heard + u32::from(fresh));
        let drained = !v.marked && ask.least <= ask.was / SHRUNK;
        if fresh && !v.queued {
            self.resume(ask.level, given);
        } else if now < ask.until || ask.heard < SAMPLES {
            self.state = State::Ask(ask);
        } else if drained {
            self.resume(ask.level, given);
        } else if let Some(back) = ask.back {
            self.shares.rival_until = now + REMEMBERS;
            self.go_on_competing(now, back, given);
        } else {
            self.meet_rival(now, ask.level, given);
        }
    }

    /// The queue was ours: climbs again from below what the path carried.
    pub(super) fn resume(&mut self, level: Rate, given: &Conditions) {
        self.state = State::Cruise(Cruise::default());
        self.set_bound(level.scale(RESUMES), given);
    }

    /// The queue is a rival's: competes, from what there is.
    pub(super) fn meet_rival(&mut self, now: Time, level: Rate, given: &Conditions) {
        self.shares.rival_until = now + REMEMBERS;
        let window = Window::young(now, level, given.rtt, given.flows);
        self.compete_with(now, window, given.rtt, given);
    }
}

/// When a queue of ours would be gone, at the lower rate.
fn drained_at(now: Time, delay: Span, given: &Conditions) -> Time {
    let drains = Span::from_secs_f64(delay.as_secs_f64() / (1.0 - ASKS_AT)).min(DRAIN_MOST);
    now + drains + given.rtt + given.interval * 2
}
