//! What the path between two hosts lets through: the ramp and the path bound.
//!
//! GTP's rates come from the two ends. The network is normally not the limit, but when it is,
//! nobody tells. So a source never sends more than a few times what is proven to arrive (the
//! ramp), and it watches whether what arrives follows what it sends. Only when it does not, and a
//! queue is building, is there a bound: it drops under what arrived until the queue is gone, then
//! climbs by small equal steps, so that several sessions in one bottleneck drift towards equal
//! shares. Random loss alone never lowers it. The module knows rates and delays, not packets.

use alloc::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::limits::{CHECKPOINTS, INITIAL_PACKETS, INTERVAL_MIN, RAMP_FACTOR};
use crate::meter::WindowedMax;

/// When which packet number had been sent, to know the rate at which a receipt's packets left.
#[derive(Debug, Default)]
pub(crate) struct SendLog {
    marks: VecDeque<Mark>,
    sent: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    pn: u64,
    at: Time,
    sent: Bytes,
}

const MARK_EVERY: Span = Span::from_millis(1);

impl SendLog {
    /// Notes that packet `pn` of `bytes` left at `now`.
    pub fn sent(&mut self, now: Time, pn: u64, bytes: Bytes) {
        let due = self.marks.back().is_none_or(|m| now.since(m.at) >= MARK_EVERY);
        if due {
            if self.marks.len() == CHECKPOINTS {
                self.marks.pop_front();
            }
            self.marks.push_back(Mark { pn, at: now, sent: self.sent });
        }
        self.sent += bytes;
    }

    /// Bytes sent in all.
    pub fn total(&self) -> Bytes {
        self.sent
    }

    /// When packet `pn` left, and the bytes sent before it, by the nearest mark.
    pub fn at(&self, pn: u64) -> Option<(Time, Bytes)> {
        let i = self.marks.partition_point(|m| m.pn <= pn);
        self.marks.get(i.checked_sub(1)?).map(|m| (m.at, m.sent))
    }
}

/// What one receipt, or several together, say of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Bytes sent, and the time they took to leave.
    pub sent: Bytes,
    pub sent_in: Span,
    /// Bytes that arrived, and the time they took to arrive.
    pub arrived: Bytes,
    pub arrived_in: Span,
    /// Smallest queueing delay.
    pub delay: Span,
    /// Packet number with which the sample starts.
    pub first_pn: u64,
}

/// How a session wants to use the path, and what it knows of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// What it would send if the path did not limit it.
    pub aim: Rate,
    /// Round-trip times: smoothed and least.
    pub rtt: Span,
    pub rtt_least: Span,
    /// The sink's control interval.
    pub interval: Span,
    /// Next packet number to be sent.
    pub next_pn: u64,
}

/// Queueing delay below which a queue is not thought to be there.
const DELAY_FLOOR: Span = Span::from_millis(3);
/// A sample this long evens out bursts and wake-ups.
const SAMPLE_MIN: Span = Span::from_millis(25);
/// What arrives is said to follow what is sent down to this ratio.
const FOLLOWS: f64 = 0.95;
/// With this much lost and no queue seen, the path is still the limit: a policer.
const POLICED: f64 = 0.7;
/// While a queue drains, send this part of what arrived.
const DRAIN: f64 = 0.75;
/// Then start again from this part.
const RESUME: f64 = 0.95;
/// A queue that stays although less is sent belongs to others; it is accepted for this long.
const FOREIGN_HOLD: Span = Span::from_secs(3);
/// A queue that stays although what arrives follows is tested for being ours after this long.
const STANDING: Span = Span::from_millis(1_000);

/// Step of the climb per round trip, of what both ends would give.
const STEP: f64 = 0.008;
/// So many steps without a queue lead back to where the last one was met; after them steps double.
const CAUTIOUS: u32 = 12;
/// Step of the climb where no capacity is known, besides half a percent.
const STEP_UNKNOWN: Rate = Rate::from_mbps(2);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No bottleneck seen: only the ramp limits.
    Open,
    /// A queue of ours is being emptied.
    Drain { since: Time, level: Rate, rounds: u32, delay: Span },
    /// Climbing by steps.
    Climb { clean: u32, queued_since: Option<Time> },
}

/// The ramp and the path bound of one session.
#[derive(Debug)]
pub(crate) struct PathBound {
    state: State,
    bound: Rate,
    proven: WindowedMax,
    gathering: Option<Sample>,
    suspicion: u32,
    /// Samples that begin before this packet number show the path as it was before the last change.
    changed_pn: u64,
    tolerate_until: Time,
}

impl PathBound {
    pub fn new(now: Time) -> PathBound {
        PathBound {
            state: State::Open,
            bound: Rate::UNLIMITED,
            proven: WindowedMax::new(now, Span::from_secs(1)),
            gathering: None,
            suspicion: 0,
            changed_pn: 0,
            tolerate_until: Time::ZERO,
        }
    }

    /// The rate that the path is believed to carry; unlimited while no bottleneck was seen.
    pub fn bound(&self) -> Rate {
        self.bound
    }

    /// Four times the goodput proven, or 64 packets of `packet` bytes a round trip.
    pub fn ramp(&mut self, now: Time, rtt: Span, packet: Bytes) -> Rate {
        let first = Bytes(packet.0 * INITIAL_PACKETS).per(rtt + INTERVAL_MIN);
        first.max(self.proven.max(now).scale(RAMP_FACTOR))
    }

    /// Takes in what a receipt says.
    pub fn handle_sample(&mut self, now: Time, sample: Sample, given: &Conditions) {
        if sample.arrived_in >= Span::from_millis(2) {
            self.proven.set_window((given.rtt * 4).max(Span::from_millis(500)));
            self.proven.add(now, sample.arrived.per(sample.arrived_in));
        }
        let whole = match self.gathering.take() {
            Some(begun) => begun.join(sample),
            None => sample,
        };
        if whole.sent_in < SAMPLE_MIN || whole.arrived_in < SAMPLE_MIN / 2 {
            self.gathering = Some(whole);
            return;
        }
        self.judge(now, whole, given);
    }

    fn judge(&mut self, now: Time, sample: Sample, given: &Conditions) {
        let sent = sample.sent.per(sample.sent_in);
        let arrived = sample.arrived.per(sample.arrived_in);
        let follows = arrived.as_f64() / sent.as_f64().max(1.0);
        let threshold = DELAY_FLOOR.max(given.rtt_least / 16);
        let queued = sample.delay > threshold;
        let fresh = sample.first_pn >= self.changed_pn;
        match self.state {
            State::Open => {
                let overloaded = (queued && follows < FOLLOWS) || follows < POLICED;
                self.suspicion = if overloaded { self.suspicion + 1 } else { 0 };
                if self.suspicion >= 2 {
                    self.drain(now, arrived, sample.delay, given);
                }
            }
            State::Drain { since, level, rounds, delay } if fresh => {
                let standing = rounds >= 2 && sample.delay * 8 > delay * 7;
                if !queued || (standing && follows >= FOLLOWS) {
                    if queued {
                        self.tolerate_until = now + FOREIGN_HOLD;
                    }
                    self.climb(level.scale(RESUME), given);
                } else if now.since(since) > Span::from_secs(2) {
                    self.drain(now, arrived, sample.delay, given);
                } else {
                    let rounds = rounds + 1;
                    self.state = State::Drain { since, level, rounds, delay };
                }
            }
            State::Drain { since, level, rounds, delay } => {
                // What arrives while the queue is full is the bottleneck's own rate.
                let level = if queued { level.min(arrived) } else { level };
                let delay = delay.max(sample.delay);
                self.state = State::Drain { since, level, rounds, delay };
            }
            State::Climb { clean, queued_since } if fresh => {
                self.step(now, clean, queued_since, queued, follows, arrived, given);
            }
            State::Climb { .. } => {}
        }
        if let State::Drain { level, .. } = self.state {
            self.bound = level.scale(DRAIN);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn step(
        &mut self,
        now: Time,
        clean: u32,
        queued_since: Option<Time>,
        queued: bool,
        follows: f64,
        arrived: Rate,
        given: &Conditions,
    ) {
        if (queued && follows < FOLLOWS + 0.02) || follows < POLICED {
            if now >= self.tolerate_until || follows < FOLLOWS {
                self.climb(arrived.min(self.bound).scale(0.9), given);
                return;
            }
        }
        if queued {
            let since = queued_since.unwrap_or(now);
            if now.since(since) > STANDING && now >= self.tolerate_until {
                self.drain(now, arrived, Span::ZERO, given);
            } else {
                self.state = State::Climb { clean: 0, queued_since: Some(since) };
            }
            return;
        }
        let clean = clean + 1;
        let doubling = 1u64 << (clean.saturating_sub(CAUTIOUS) / 3).min(6);
        let step = match given.aim {
            // Nobody says what there is to be had.
            Rate::UNLIMITED => STEP_UNKNOWN.saturating_add(self.bound.scale(0.005)),
            aim => aim.scale(STEP),
        };
        let step = step.scale(doubling as f64);
        self.bound = self.bound.saturating_add(step);
        self.changed_pn = given.next_pn;
        self.state = State::Climb { clean, queued_since: None };
        if self.bound.as_f64() > 1.5 * given.aim.as_f64() {
            self.state = State::Open;
            self.bound = Rate::UNLIMITED;
            self.suspicion = 0;
        }
    }

    fn drain(&mut self, now: Time, level: Rate, delay: Span, given: &Conditions) {
        self.state = State::Drain { since: now, level, rounds: 0, delay };
        self.changed_pn = given.next_pn;
        self.suspicion = 0;
    }

    fn climb(&mut self, bound: Rate, given: &Conditions) {
        self.bound = bound;
        self.changed_pn = given.next_pn;
        self.state = State::Climb { clean: 0, queued_since: None };
    }
}

impl Sample {
    fn join(self, next: Sample) -> Sample {
        Sample {
            sent: self.sent + next.sent,
            sent_in: self.sent_in + next.sent_in,
            arrived: self.arrived + next.arrived,
            arrived_in: self.arrived_in + next.arrived_in,
            delay: self.delay.min(next.delay),
            first_pn: self.first_pn,
        }
    }
}
