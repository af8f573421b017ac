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
    /// When the next mark is made.
    due: Time,
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
    #[inline]
    pub fn sent(&mut self, now: Time, pn: u64, bytes: Bytes) {
        if self.due <= now {
            self.mark(now, pn);
        }
        self.sent += bytes;
    }

    fn mark(&mut self, now: Time, pn: u64) {
        if self.marks.len() == CHECKPOINTS {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { pn, at: now, sent: self.sent });
        self.due = now + MARK_EVERY;
    }

    /// When packet `pn` left, and the bytes sent before it, by the nearest mark.
    pub fn at(&self, pn: u64) -> Option<(Time, Bytes)> {
        let i = self.marks.partition_point(|m| m.pn <= pn);
        self.marks.get(i.checked_sub(1)?).map(|m| (m.at, m.sent))
    }

    /// Bytes sent from `from`, an answer of [`SendLog::at`], until before packet `end`; at most
    /// one mark more.
    pub fn sent_at_most(&self, from: (Time, Bytes), end: u64) -> Bytes {
        let i = self.marks.partition_point(|m| m.pn < end);
        self.marks.get(i).map_or(self.sent, |m| m.sent) - from.1
    }
}

/// The packets of the first round trip are counted as if they were this long, whatever the unit:
/// before anything is proven, a jumbo path gets no more bytes than an ordinary one.
const INITIAL_PACKET: Bytes = Bytes(1_500);

/// What may be sent in the first round trip, however long that will turn out to be.
pub(crate) const INITIAL: Bytes = Bytes(INITIAL_PACKET.0 * INITIAL_PACKETS);

/// What a source may send at first, before anything is proven, over a path of this round trip.
pub(crate) fn first_rate(rtt: Span) -> Rate {
    INITIAL.per(rtt + INTERVAL_MIN)
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
    /// The first one after it.
    pub end_pn: u64,
}

/// How a session wants to use the path, and what it knows of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// What it would send if the path did not limit it.
    pub aim: Rate,
    /// Round-trip times: smoothed and least.
    pub rtt: Span,
    pub rtt_least: Span,
    /// Next packet number to be sent.
    pub next_pn: u64,
}

/// Queueing delay below which a queue is not thought to be there.
const DELAY_FLOOR: Span = Span::from_millis(3);
/// A rate proven over less than this may be a burst's.
const PROOF_MIN: Span = Span::from_millis(2);
/// A sample this long evens out bursts and wake-ups.
const SAMPLE_MIN: Span = Span::from_millis(25);
/// So many bytes, 32 packets, tell an overload from chance: of five packets two are often lost.
const SAMPLE_BYTES: Bytes = Bytes(32 * 1_500);
/// The bound never falls below so many bytes a round trip, four packets: without data there would
/// be no sample to show that the path is free again.
const FLOOR_BYTES: Bytes = Bytes(4 * 1_500);
/// What arrives is said to follow what is sent down to this part of it, random loss apart.
const FOLLOWS: f64 = 0.96;
/// With this little arriving and no queue seen, the path is still the limit: a policer.
const POLICED: f64 = 0.6;
/// How fast the usual loss is learnt from samples without a queue.
const LEARN: f64 = 0.1;
/// So many samples in a row convince: a host that stands still for some tens of milliseconds looks
/// like a full path for that long.
const CONVINCED: u32 = 3;
/// While a queue drains, send this part of what arrived.
const DRAIN: f64 = 0.75;
/// Then start again from this part.
const RESUME: f64 = 0.95;
/// However little arrived for a moment (a host that stood still looks like a full path), one
/// step down goes to no less than this part of the best of the last seconds...
const STEP_DOWN: f64 = 0.7;
/// ...which are these.
const BEST_WINDOW: Span = Span::from_secs(3);
/// Far below that best, each round trip makes good a quarter of the distance.
const FAR_BELOW: f64 = 0.8;
/// When the climb meets a queue, go back to this part.
const CUT: f64 = 0.92;
/// From sample to sample a queue that a cut empties becomes shorter by this at least: half of what
/// the cut takes away in the shortest sample.
const SHRINKS: Span = Span::from_millis(1);
/// So many round trips of sending less show whether a queue is ours.
const PATIENCE_ROUNDS: u32 = 2;
/// A queue that outlasts our cuts belongs to others; it is first tolerated for this long, and
/// twice as long each time that it turns out to be still there.
const FOREIGN_HOLD: Span = Span::from_secs(3);
const FOREIGN_HOLD_MOST: Span = Span::from_secs(48);
/// A queue of ours that does not drain within this time is drained anew.
const DRAIN_MOST: Span = Span::from_secs(2);
/// Step of the climb per round trip, of what both ends would give.
const STEP: f64 = 0.006;
/// So many steps without a queue lead back to where the last one was met; after them steps double.
const CAUTIOUS: u32 = 12;
/// A step for several round trips at once is at most this part of the bound.
const STEPS_MOST: f64 = 0.125;
/// Where no capacity is known: so much, which is the same for all, and this part of the bound.
const STEP_LEAST: Rate = Rate::from_mbps(2);
const STEP_UNKNOWN: f64 = 0.005;
/// Far below what both ends would give no step is longer than with this part: a hundredth of a fast
/// host's rate may be all that the path carries.
const STEP_FAR: f64 = 0.04;
/// The bound is lifted when it is this far above what both ends would give.
const LIFT: f64 = 1.5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// No bottleneck seen: only the ramp limits.
    Open,
    /// A queue of ours is being emptied; `peak` is the longest delay seen.
    Drain { since: Time, level: Rate, rounds: u32, peak: Span },
    /// Climbing by steps: `clean` rounds without a queue, or `cuts` in one, which was so long when
    /// it was last seen after the last cut.
    Climb { clean: u32, cuts: u32, queue: Option<Span> },
}

/// One sample, judged.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    /// What the path carried, as a sending rate: random loss is added back.
    carried: Rate,
    /// What arrived of what was sent, random loss apart.
    follows: f64,
    delay: Span,
    queued: bool,
    /// Round trips that it was sent for: several where 32 packets take long.
    rounds: u64,
}

/// The ramp and the path bound of one session.
#[derive(Debug)]
pub(crate) struct PathBound {
    state: State,
    bound: Rate,
    proven: WindowedMax,
    /// The best that the path carried of late, as a sending rate.
    best: WindowedMax,
    gathering: Option<Sample>,
    /// What was proven since the ramp last heard of it.
    proving: Option<Sample>,
    suspicion: u32,
    /// What usually arrives of what is sent when there is no queue: one less random loss.
    usual: f64,
    /// Samples that begin before this packet number show the path as it was before the last change.
    changed_pn: u64,
    tolerate_until: Time,
    foreign_hold: Span,
}

impl PathBound {
    pub fn new(now: Time) -> PathBound {
        PathBound {
            state: State::Open,
            bound: Rate::UNLIMITED,
            proven: WindowedMax::new(now, Span::from_secs(1)),
            best: WindowedMax::new(now, BEST_WINDOW),
            gathering: None,
            proving: None,
            suspicion: 0,
            usual: 1.0,
            changed_pn: 0,
            tolerate_until: Time::ZERO,
            foreign_hold: FOREIGN_HOLD,
        }
    }

    /// The rate that the path is believed to carry; unlimited while no bottleneck was seen.
    pub fn bound(&self) -> Rate {
        self.bound
    }

    /// Four times the goodput proven, or 64 packets a round trip.
    pub fn ramp(&mut self, now: Time, rtt: Span) -> Rate {
        first_rate(rtt).max(self.proven.max(now).scale(RAMP_FACTOR))
    }

    /// What a receipt says counts for the ramp, with those right before it that were too short to
    /// count: both ends may have had so much to tell each other that none is long. A sink that
    /// leaves receipts out must not make what was sent meanwhile seem sent in no time.
    pub fn note_proven(&mut self, now: Time, sample: &Sample, given: &Conditions) {
        let whole = match self.proving.take().filter(|begun| begun.end_pn == sample.first_pn) {
            Some(begun) => begun.join(*sample).within_what_was_sent(),
            None => *sample,
        };
        if whole.arrived_in < PROOF_MIN {
            self.proving = Some(whole);
            return;
        }
        self.proven.set_window((given.rtt * 4).max(Span::from_millis(500)));
        self.proven.add(now, whole.proven());
    }

    /// Takes in what a receipt says, and bounds the path by it.
    pub fn handle_sample(&mut self, now: Time, sample: Sample, given: &Conditions) {
        let whole = match self.gathering.take() {
            Some(begun) if !self.outdates(&sample, &begun) => begun.join(sample),
            Some(_) | None => sample,
        };
        let short = whole.sent_in < SAMPLE_MIN || whole.arrived_in < SAMPLE_MIN / 2;
        if short || whole.sent < SAMPLE_BYTES {
            self.gathering = Some(whole);
            return;
        }
        let verdict = self.weigh(&whole, given);
        self.best.add(now, verdict.carried);
        let fresh = whole.first_pn >= self.changed_pn;
        match self.state {
            State::Open => self.watch(now, verdict, given),
            State::Drain { .. } if fresh => self.drained(now, verdict, given),
            State::Drain { since, level, rounds, peak } => {
                let peak = peak.max(verdict.delay);
                self.state = State::Drain { since, level, rounds, peak };
            }
            State::Climb { .. } if fresh => self.climb(now, verdict, given),
            State::Climb { .. } => {}
        }
    }

    /// Whether `begun` is better not waited for: it shows the path as it was before the last
    /// change, `sample` as it is, and so few packets are sent that a whole sample takes long.
    fn outdates(&self, sample: &Sample, begun: &Sample) -> bool {
        let slow = begun.sent_in >= SAMPLE_MIN;
        slow && begun.first_pn < self.changed_pn && sample.first_pn >= self.changed_pn
    }

    fn weigh(&mut self, sample: &Sample, given: &Conditions) -> Verdict {
        let sent = sample.sent.per(sample.sent_in).as_f64().max(1.0);
        let arrived = sample.proven().as_f64();
        let threshold = DELAY_FLOOR.max(given.rtt_least / 16);
        let queued = sample.delay > threshold;
        let ratio = arrived / sent;
        if sample.delay < threshold / 3 && ratio > POLICED {
            self.usual += LEARN * (ratio.min(1.0) - self.usual);
        }
        Verdict {
            carried: Rate::from_f64(arrived / self.usual),
            follows: ratio / self.usual,
            delay: sample.delay,
            queued,
            rounds: sample.sent_in.as_nanos() / given.rtt.max(SAMPLE_MIN).as_nanos(),
        }
    }

    /// Without a bound: several samples in a row that do not follow make one.
    fn watch(&mut self, now: Time, v: Verdict, given: &Conditions) {
        let overloaded = (v.queued && v.follows < FOLLOWS) || v.follows < POLICED;
        self.suspicion = if overloaded { self.suspicion + 1 } else { 0 };
        if self.suspicion >= CONVINCED {
            self.suspicion = 0;
            self.drain(now, v, given);
        }
    }

    fn drain(&mut self, now: Time, v: Verdict, given: &Conditions) {
        let level = v.carried.max(self.best.max(now).min(self.bound).scale(STEP_DOWN));
        self.state = State::Drain { since: now, level, rounds: 0, peak: v.delay };
        self.set_bound(level.scale(DRAIN), given);
    }

    /// The effect of draining is seen: the queue is gone, or it is not ours, or it needs longer.
    fn drained(&mut self, now: Time, v: Verdict, given: &Conditions) {
        let State::Drain { since, level, rounds, peak } = self.state else { return };
        let stays = rounds >= PATIENCE_ROUNDS && v.delay * 8 > peak * 7;
        if v.queued && stays && v.follows >= FOLLOWS {
            self.tolerate(now);
        } else if v.queued && (now.since(since) > DRAIN_MOST || v.follows < FOLLOWS) {
            self.drain(now, v, given);
            return;
        } else if v.queued {
            self.state = State::Drain { since, level, rounds: rounds + 1, peak };
            return;
        }
        self.state = State::Climb { clean: 0, cuts: 0, queue: None };
        self.set_bound(level.scale(RESUME), given);
    }

    fn climb(&mut self, now: Time, v: Verdict, given: &Conditions) {
        let State::Climb { clean, cuts, queue } = self.state else { return };
        let overloaded = (v.queued && v.follows < FOLLOWS) || v.follows < POLICED;
        if !v.queued && !overloaded {
            self.foreign_hold = FOREIGN_HOLD;
            // A slow session's sample is of several rounds, and all of them were clean.
            let rounds = u32::try_from(v.rounds).unwrap_or(u32::MAX).max(1);
            self.step(now, clean.saturating_add(rounds), v.rounds, given);
            return;
        }
        if !overloaded && now < self.tolerate_until {
            self.state = State::Climb { clean: 0, cuts, queue };
            return;
        }
        let shrinks = queue.is_none_or(|last| v.delay + SHRINKS <= last);
        if cuts > 0 && shrinks && !overloaded {
            // The last cut is emptying it: another would only leave the link idle.
            self.state = State::Climb { clean: 0, cuts, queue: Some(v.delay) };
            return;
        }
        if cuts >= PATIENCE_ROUNDS && !overloaded {
            self.tolerate(now);
            self.state = State::Climb { clean: 0, cuts: 0, queue: None };
            return;
        }
        self.state = State::Climb { clean: 0, cuts: cuts + 1, queue: None };
        self.set_bound(v.carried.min(self.bound).scale(CUT), given);
    }

    fn step(&mut self, now: Time, clean: u32, rounds: u64, given: &Conditions) {
        let doubling = 1u64 << (clean.saturating_sub(CAUTIOUS) / 3).min(6);
        let at_most = |part| STEP_LEAST.saturating_add(self.bound.scale(part));
        let step = match given.aim {
            // Nobody says what there is to be had.
            Rate::UNLIMITED => at_most(STEP_UNKNOWN),
            aim => aim.scale(STEP).min(at_most(STEP_FAR)),
        };
        let one = step.scale(doubling as f64);
        let mut step = one.max(one.scale(rounds as f64).min(self.bound.scale(STEPS_MOST)));
        let best = self.best.max(now);
        if self.bound < best.scale(FAR_BELOW) {
            step = step.max(best.saturating_sub(self.bound).scale(0.25));
        }
        self.state = State::Climb { clean, cuts: 0, queue: None };
        self.set_bound(self.bound.saturating_add(step), given);
        if self.bound.as_f64() > LIFT * given.aim.as_f64() {
            self.state = State::Open;
            self.bound = Rate::UNLIMITED;
        }
    }

    /// The queue is others' work: live with it for a while.
    fn tolerate(&mut self, now: Time) {
        self.tolerate_until = now + self.foreign_hold;
        self.foreign_hold = (self.foreign_hold * 2).min(FOREIGN_HOLD_MOST);
    }

    fn set_bound(&mut self, bound: Rate, given: &Conditions) {
        self.bound = bound.max(FLOOR_BYTES.per(given.rtt + INTERVAL_MIN));
        self.changed_pn = given.next_pn;
    }
}

impl Sample {
    /// The rate at which the sample's bytes are proven to arrive. The time of arrival is only the
    /// sink's word; that they cannot all have come faster than they left is not.
    fn proven(&self) -> Rate {
        self.arrived.per(self.arrived_in.max(self.sent_in))
    }

    fn join(self, next: Sample) -> Sample {
        Sample {
            sent: self.sent + next.sent,
            sent_in: self.sent_in + next.sent_in,
            arrived: self.arrived + next.arrived,
            arrived_in: self.arrived_in + next.arrived_in,
            delay: self.delay.min(next.delay),
            first_pn: self.first_pn,
            end_pn: next.end_pn,
        }
    }

    /// Of short packets each receipt may claim a little more than was sent.
    fn within_what_was_sent(self) -> Sample {
        Sample { arrived: self.arrived.min(self.sent), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_can_have_arrived_of_short_packets_than_was_sent() {
        let mut log = SendLog::default();
        let at = |n: u64| Time::from_nanos(n * MARK_EVERY.as_nanos());
        for pn in 0..100 {
            log.sent(at(pn), pn, Bytes(90));
        }
        let from = log.at(10).unwrap();
        assert_eq!(log.sent_at_most(from, 20), Bytes(900), "a receipt would count ten whole ones");
        assert_eq!(log.sent_at_most(from, 100), Bytes(90 * 90), "up to the newest packet");
        assert_eq!(log.sent_at_most(from, 500), Bytes(90 * 90), "not beyond it");
    }

    /// A link of `rate` in the path with a queue, as receipts show it a round trip later.
    struct Fluid {
        rate: Rate,
        rtt: Span,
        queue: Bytes,
        arrived: Bytes,
        pn: u64,
        on_the_way: VecDeque<Sample>,
    }

    const TICK: Span = Span::from_millis(25);

    impl Fluid {
        fn new(rate: Rate, rtt: Span) -> Fluid {
            let on_the_way = VecDeque::new();
            let (queue, arrived) = (Bytes::ZERO, Bytes::ZERO);
            Fluid { rate, rtt, queue, arrived, pn: 0, on_the_way }
        }

        /// A tick at `now` at what the path permits of `aim`.
        fn run(&mut self, now: Time, path: &mut PathBound, aim: Rate) {
            let (sent, carries) = (path.bound().min(aim).bytes_in(TICK), self.rate.bytes_in(TICK));
            let before = self.queue;
            let arrived = Bytes((before + sent).0.min(carries.0));
            self.queue = before + sent - arrived;
            self.arrived += arrived;
            let delay = |queue: Bytes| queue / self.rate;
            self.on_the_way.push_back(Sample {
                sent,
                sent_in: TICK,
                arrived,
                arrived_in: TICK,
                delay: delay(Bytes(before.0.min(self.queue.0))),
                first_pn: self.pn,
                end_pn: self.pn + 1,
            });
            self.pn += 1;
            if self.on_the_way.len() as u64 > self.rtt.as_nanos() / TICK.as_nanos()
                && let Some(sample) = self.on_the_way.pop_front()
            {
                let (rtt, rtt_least, next_pn) = (self.rtt, self.rtt, self.pn);
                path.handle_sample(now, sample, &Conditions { aim, rtt, rtt_least, next_pn });
            }
        }
    }

    /// Between hosts that are near.
    const NEAR: Conditions = Conditions {
        aim: Rate::UNLIMITED,
        rtt: Span::from_micros(60),
        rtt_least: Span::from_micros(60),
        next_pn: 0,
    };

    #[test]
    fn the_ramp_rises_however_short_the_receipts_are() {
        for span in [Span::from_micros(300), Span::from_millis(1), Span::from_millis(10)] {
            let (mut path, mut now, mut pn) = (PathBound::new(Time::ZERO), Time::ZERO, 0);
            let first = path.ramp(now, NEAR.rtt);
            while path.ramp(now, NEAR.rtt) < first.scale(100.0) {
                let sent = path.ramp(now, NEAR.rtt).bytes_in(span);
                now += span;
                let sample = Sample {
                    sent,
                    sent_in: span,
                    arrived: sent,
                    arrived_in: span,
                    delay: Span::ZERO,
                    first_pn: pn,
                    end_pn: pn + 10,
                };
                pn += 10;
                path.note_proven(now, &sample, &NEAR);
                assert!(now < Time::ZERO + Span::from_millis(50), "{span:?}");
            }
        }
    }

    /// A source of 1 Gbit/s in packets of so many bytes, and a sink that says of each
    /// millisecond's that all of it arrived in 20 us; or skips the last two of each.
    fn ramp_of_a_liar(packet: u64, skips: bool) -> f64 {
        let (mut path, mut log) = (PathBound::new(Time::ZERO), SendLog::default());
        let rate = Rate::from_mbps(1_000);
        let gap = Bytes(packet) / rate;
        let packets = Span::from_millis(1).as_nanos() / gap.as_nanos();
        let (mut now, mut pn, mut most) = (Time::ZERO, 0, Rate::ZERO);
        for _ in 0..300 {
            let first_pn = pn;
            for _ in 0..packets {
                log.sent(now, pn, Bytes(packet));
                (now, pn) = (now + gap, pn + 1);
            }
            let end_pn = if skips { pn - 2 } else { pn };
            let (Some(from), Some(until)) = (log.at(first_pn), log.at(end_pn)) else { continue };
            let sample = Sample {
                sent: until.1 - from.1,
                sent_in: until.0.since(from.0),
                arrived: log.sent_at_most(from, end_pn),
                arrived_in: Span::from_micros(20),
                delay: Span::ZERO,
                first_pn,
                end_pn,
            };
            path.note_proven(now, &sample, &NEAR);
            most = most.max(path.proven.max(now));
        }
        most.as_f64() / rate.as_f64()
    }

    #[test]
    fn a_sink_that_leaves_receipts_out_or_hurries_proves_no_more_than_was_sent() {
        for packet in [200, 1_500] {
            for skips in [false, true] {
                let times = ramp_of_a_liar(packet, skips);
                assert!(times <= 1.6, "packets of {packet}, {skips}: {times:.1} times");
            }
        }
    }

    #[test]
    fn a_link_in_the_path_is_used_to_97_percent_with_no_standing_queue_at_any_round_trip() {
        for rtt in [2, 27, 60, 140, 300] {
            let mut path = PathBound::new(Time::ZERO);
            let mut fluid = Fluid::new(Rate::from_mbps(300), Span::from_millis(rtt));
            // The longest time for which the queue was never empty.
            let (mut now, mut emptied, mut stood) = (Time::ZERO, Time::ZERO, Span::ZERO);
            let mut run = |seconds: u64| {
                let begun = fluid.arrived;
                (emptied, stood) = (now, Span::ZERO);
                for _ in 0..seconds * 40 {
                    now += TICK;
                    fluid.run(now, &mut path, Rate::from_mbps(630));
                    if fluid.queue == Bytes::ZERO {
                        emptied = now;
                    }
                    stood = stood.max(now.since(emptied));
                }
                (fluid.arrived - begun).per(Span::from_secs(seconds)).as_f64()
            };
            run(3);
            let used = run(30) / 300e6;
            assert!(used >= 0.97, "{rtt} ms: {used:.3}");
            let often = Span::from_millis(8 * rtt + 200);
            assert!(stood <= often, "{rtt} ms: a queue stands for {stood:?}");
        }
    }

    #[test]
    fn a_slow_session_regains_its_rate_once_a_policer_is_gone() {
        let rtt = Span::from_millis(27);
        let every = Span::from_millis(13);
        let mut path = PathBound::new(Time::ZERO);
        let (mut now, mut pn) = (Time::ZERO, 0);
        let mut run = |path: &mut PathBound, rate: Rate, arrives: u64| {
            now += every;
            let sent = rate.bytes_in(every);
            let sample = Sample {
                sent,
                sent_in: every,
                arrived: Bytes(sent.0 * arrives / 100),
                arrived_in: every,
                delay: Span::ZERO,
                first_pn: pn,
                end_pn: pn + 1,
            };
            pn += 1;
            let given =
                Conditions { aim: Rate::from_mbps(4), rtt, rtt_least: rtt, next_pn: pn + 2 };
            path.handle_sample(now, sample, &given);
            now
        };
        let sends = Rate::from_bps(1_500_000);
        while path.bound().is_unlimited() {
            run(&mut path, sends, 45);
        }
        let policed = run(&mut path, sends, 45);
        assert!(path.bound() <= sends);
        let mut free = policed;
        while path.bound() < Rate::from_mbps(4) {
            let bound = path.bound();
            free = run(&mut path, bound, 100);
        }
        assert!(free.since(policed) < Span::from_secs(5), "{:?}", free.since(policed));
    }
}
