//! What is usual on a path, and whether a sample is out of the ordinary.
//!
//! Usual are the noise of its delays and its random loss. Both are learnt only from samples without
//! a queue. A sample is judged against them: a queue is a delay that noise does not explain, an
//! excess a loss that chance does not explain.

use gtp_alloc::{Rate, Span, Time};

use super::calm::Calm;
use super::sample::{Conditions, Receipts, SAMPLE_MIN, Sample};
use crate::meter::WindowedMax;

/// Queueing delay below which a queue is not thought to be there. It is the same for every
/// round-trip time: with a threshold that grew with it, the longer of two sessions would take the
/// queue of the shorter one.
const DELAY_FLOOR: Span = Span::from_millis(5);
/// The threshold lies above the floor by this multiple of the mean delay without a queue.
const NOISE: f64 = 1.5;
/// The most by which the threshold lies above the floor, in seconds.
const NOISE_MOST: f64 = 0.020;
/// How fast the noise is learnt.
const NOISE_LEARN: f64 = 0.05;
/// How fast the usual loss is learnt once there are many counts.
const LEARN: f64 = 0.015;
/// A count has this number of packets at least: of few packets a single loss looks like many.
const COUNT: u64 = 48;
/// A count whose loss seems odd goes on until this number is lost: fewer may be chance, and where
/// networks reorder a late packet counts as lost.
const LOST_LEAST: u64 = 4;
/// A loss is one to ask about after this number of odd counts in a row: one alone may hold a host's
/// hiccup, or a burst of random losses.
const CONVINCED: u32 = 3;
/// So many packets must be lost in these counts together. Random losses that come in bursts make a
/// few counts in a row odd now and then; mild losses leave time to count more.
const CONVINCING: u64 = 24;
/// The losses must hit this part of the receipts that they would hit here and there, as what
/// exceeds a limit does. A few bursts of random losses that come close together hit less.
const SPREAD: f64 = 0.6;
/// After this number of odd counts in a row losses need not be spread: sessions that send in turns,
/// and hosts that send in bursts, lose to a limit in bursts too, but for as long as they exceed it.
/// So many are needed where the path carried as much for a second before, unless more is lost than
/// may be random.
const GOES_ON: u32 = 8;
/// A sample without loss contradicts odd counts before it by which it would hold this number of
/// losses or more: those were a burst of random losses.
const MISSED: f64 = 4.0;
/// What was lost is called a lot only over this number of packets.
const MANY: u64 = 128;
/// What the path carries is shown by this number of packets that arrive.
const ARRIVED_LEAST: u64 = 32;
/// If this part is lost beyond the usual, the path carries only what arrives.
const MUCH: f64 = 0.2;
/// More than this part is random only if a test has shown it: what rivals lose could creep in.
const LEARN_MOST: f64 = 0.05;
/// What is believed at first has the weight of so many packets.
const BELIEVED: f64 = 512.0;
/// Before anything is learnt it is believed that up to one packet in so many may be lost at random.
const BELIEVED_LOSS: f64 = 64.0;
/// What arrives is said to follow what is sent down to this part of it, random loss apart.
const FOLLOWS: f64 = 0.96;
/// Two standard deviations of one rate, and of the difference of two, in mean distances.
const OF_ONE: f64 = 2.5;
const OF_TWO: f64 = 3.5;
/// Loss this much above the usual may be a limit of the path; less is not worth a question.
pub(super) const ODD: f64 = 0.02;
/// More loss than this is never called random: a path that drops four packets of ten serves nobody.
pub(super) const RANDOM_MOST: f64 = 0.4;
/// More loss than this is called random only if it stays when a session competes for the path.
/// Where many share it, one that sends a little less leaves the losses as they are, and whoever
/// called them random would send at others' expense for ever.
pub(super) const RANDOM_SURE: f64 = 0.1;
/// A larger random loss than this is tested again after so long: what a rival took may have looked
/// like it, and a session that calls its own excess random would go on for ever.
const DOUBTED: f64 = 0.06;
const RETESTS: Span = Span::from_secs(20);
/// The longest delay is remembered for so long: losses within this time are losses of a queue.
const DEEP_WINDOW: Span = Span::from_secs(8);

/// A queue that drops something is at least this part of the longest of late: a single loss at a
/// shorter one is chance.
const NEARLY_FULL: f64 = 0.8;

/// A sample, judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// What the path carried, as a sending rate: random loss is added back.
    pub carried: Rate,
    /// What arrived of what was sent, by rates, random loss apart.
    pub follows: f64,
    /// The least queueing delay.
    pub delay: Span,
    /// Whether there is a queue.
    pub queued: bool,
    /// Whether a queue has marked packets.
    pub marked: bool,
    /// Round trips that it was sent for: several where 32 packets take long.
    pub rounds: u32,
    /// Packets, and how many of them were lost.
    pub packets: u64,
    /// See `packets`.
    pub lost: u64,
    /// As [`Receipts::spread`].
    pub spread: f64,
    /// Whether chance does not explain the loss.
    pub excess: bool,
    /// Whether more was lost than usual while a queue may have been full, even a single packet: a
    /// TCP would react.
    pub unusual: bool,
    /// Whether a queue dropped what was lost, seen or not.
    pub dropped: bool,
    /// The loss of all counts in a row that were odd, if this sample makes it one to ask about.
    pub odd: Option<f64>,
}

impl Verdict {
    /// Whether enough arrived to show what the path carries. In an outage next to nothing does.
    pub fn shows_what_arrives(&self) -> bool {
        self.packets - self.lost.min(self.packets) >= ARRIVED_LEAST
    }

    /// Whether most was lost. If that goes on for a second, the guard is set.
    pub fn shows_an_outage(&self) -> bool {
        self.lost * 2 > self.packets
    }

    /// The part that was lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.packets as f64
    }
}

/// Packets without a queue, and how many of them were lost.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    lost: u64,
    receipts: Receipts,
    /// Whether some delay among them is nearly a queue's: then it does not show what is usual.
    doubtful: bool,
}

/// Counts in a row whose loss was odd, together, and the present one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    odd: Count,
    times: u32,
    present: Count,
}

/// What is usual on a path.
#[derive(Debug)]
pub(super) struct Measures {
    /// What usually arrives of what is sent when there is no queue: one less random loss.
    usual: f64,
    /// The number of packets from which that was learnt.
    known: f64,
    counts: Counts,
    /// Loss that a test has shown to be random, and when it did.
    random: f64,
    shown_at: Time,
    /// Mean delay, in seconds, of samples without a queue.
    noise: f64,
    /// Mean distance of what arrives from what is sent, as a part, in samples without a queue.
    scatter: f64,
    /// The longest delay of late, in nanoseconds.
    deep: WindowedMax,
    calm: Calm,
}

impl Measures {
    pub fn new(now: Time) -> Measures {
        let deep = WindowedMax::new(now, DEEP_WINDOW);
        let (usual, known, counts, calm) = (1.0, 0.0, Counts::default(), Calm::new(now));
        let (random, shown_at, noise, scatter) = (0.0, now, 0.0, 0.0);
        Measures { usual, known, counts, random, shown_at, noise, scatter, deep, calm }
    }

    /// The part that usually arrives.
    pub fn usual(&self) -> f64 {
        self.usual
    }

    /// The delay above which there is a queue.
    pub fn threshold(&self) -> Span {
        DELAY_FLOOR + self.noise()
    }

    /// The same for a session that gives way if it `yields`: it sees a queue before others do.
    pub fn threshold_of(&self, yields: bool) -> Span {
        if yields { DELAY_FLOOR / 2 + self.noise() } else { self.threshold() }
    }

    fn noise(&self) -> Span {
        Span::from_secs_f64((NOISE * self.noise).min(NOISE_MOST))
    }

    /// The part by which two measured rates may differ although nothing has changed, each over
    /// `packets`.
    pub fn scatter(&self, packets: u64) -> f64 {
        let chance = libm::sqrt(2.0 * (1.0 - self.usual) / packets as f64);
        OF_TWO * self.scatter + 2.0 * chance
    }

    /// Whether too little arrives of what is sent, by more than rates scatter.
    pub fn falls_behind(&self, v: &Verdict) -> bool {
        v.queued && v.follows < FOLLOWS - OF_ONE * self.scatter
    }

    /// Whether there was a queue within the last seconds.
    pub fn had_queue(&mut self, now: Time) -> bool {
        Span::from_nanos(self.deep.max(now).as_bps()) > self.threshold()
    }

    /// Whether chance does not explain that `lost` of `packets` are missing.
    pub fn is_excess(&self, packets: u64, lost: u64) -> bool {
        let known = (1.0 - self.usual) * self.known;
        let usual = (known + BELIEVED / BELIEVED_LOSS) / (self.known + BELIEVED);
        is_beyond_chance(packets, lost, usual)
    }

    /// Whether a loss is so large that it should be asked whether it is random.
    pub fn is_odd(&self, v: &Verdict) -> bool {
        v.excess && self.asks_about(v.loss())
    }

    fn asks_about(&self, loss: f64) -> bool {
        loss > 1.0 - self.usual + ODD && loss > 1.5 * self.random
    }

    /// The loss of the odd counts so far and the present one, if they have many packets.
    pub fn odd_so_far(&self) -> Option<f64> {
        let both = self.counts.odd.and(self.counts.present);
        (both.packets >= MANY).then(|| both.loss())
    }

    /// Whether so much is lost, and not at one time as in an outage, that the path carries only
    /// what arrives, whenever it was sent.
    pub fn loses_much(&self, v: &Verdict) -> bool {
        let shows = v.packets >= MANY && v.shows_what_arrives();
        shows && self.is_much(v.loss()) && v.spread >= SPREAD
    }

    /// Whether this part is much more than what is usually lost.
    pub fn is_much(&self, loss: f64) -> bool {
        loss > 1.0 - self.usual + MUCH
    }

    /// Notes that `loss` is random, which `packets` have shown by `now`.
    pub fn note_random(&mut self, now: Time, loss: f64, packets: u64) {
        let loss = loss.min(RANDOM_MOST);
        let chance = libm::sqrt(loss * (1.0 - loss) / packets.max(1) as f64);
        (self.random, self.shown_at) = (self.random.max(loss + 2.0 * chance), now);
        (self.usual, self.known) = (1.0 - loss, self.known.max(packets as f64));
    }

    /// The random loss that is to be tested again, if there is one. It is not called random any
    /// longer.
    pub fn doubt_random(&mut self, now: Time) -> Option<f64> {
        let loss = 1.0 - self.usual;
        let doubted = self.random.min(loss) > DOUBTED && now.since(self.shown_at) >= RETESTS;
        if doubted {
            (self.usual, self.random, self.known) = (1.0, 0.0, 0.0);
        }
        doubted.then_some(loss)
    }

    /// Judges a sample, and learns from it what is usual if `learns`. `dropped` says whether a
    /// queue dropped what was lost, whose loss is not usual.
    pub fn weigh(
        &mut self,
        now: Time,
        sample: &Sample,
        given: &Conditions,
        learns: bool,
        dropped: bool,
    ) -> Verdict {
        self.deep.add(now, Rate::from_bps(sample.delay.as_nanos()));
        let rate = sample.sent.per(sample.sent_in);
        let ratio = sample.proven().as_f64() / rate.as_f64().max(1.0);
        let marked = sample.marked > 0;
        let queued = marked || sample.delay > self.threshold_of(given.yields);
        let (packets, lost) = (sample.packets(), sample.lost);
        // Whoever competes heeds each loss that it does not know to be random: a TCP does.
        let excess = if learns {
            self.is_excess(packets, lost)
        } else {
            is_beyond_chance(packets, lost, 1.0 - self.usual)
        };
        let full = Rate::from_bps(sample.peak.as_nanos()) > self.deep.max(now).scale(NEARLY_FULL);
        let unusual = full && lost as f64 > expected_at_most(packets, 1.0 - self.usual);
        self.learn_noise(sample.delay, ratio);
        let calm = self.calm.shows(now, rate);
        let odd = self.count_sample(sample, learns && !queued && !dropped, calm);
        let loss = lost as f64 / packets as f64;
        if self.counts.times == 0 && !(excess && self.asks_about(loss)) {
            self.calm.note(now, rate, sample.sent_in);
        }
        let rounds = sample.sent_in.as_nanos() / given.rtt.max(SAMPLE_MIN).as_nanos();
        Verdict {
            carried: Rate::from_f64(sample.proven().as_f64() / self.usual),
            follows: ratio / self.usual,
            delay: sample.delay,
            queued,
            marked,
            rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
            packets,
            lost,
            spread: sample.receipts.spread(packets, loss),
            excess: excess || dropped,
            unusual: unusual || excess || dropped,
            dropped,
            odd,
        }
    }

    /// Learns from a sample without a queue how delays and rates scatter. `ratio` is the part that
    /// arrived, by rates.
    fn learn_noise(&mut self, delay: Span, ratio: f64) {
        if delay < self.threshold() / 2 && ratio > 0.97 * self.usual {
            self.noise += NOISE_LEARN * (delay.as_secs_f64() - self.noise);
            let apart = libm::fabs(ratio / self.usual - 1.0);
            self.scatter += NOISE_LEARN * (apart - self.scatter);
        }
    }

    /// Counts a sample if it `counts`; if not, a row of counts ends.
    fn count_sample(&mut self, sample: &Sample, counts: bool, calm: bool) -> Option<f64> {
        if !counts {
            self.counts = Counts::default();
            return None;
        }
        let (packets, lost, receipts) = (sample.packets(), sample.lost, sample.receipts);
        let doubtful = sample.delay > self.threshold() / 2;
        self.count(Count { packets, lost, receipts, doubtful }, calm)
    }

    /// Counts a sample without a queue. A count teaches what is usual, unless so much of it was
    /// lost that it may be a limit's doing. The loss comes back if that happens time and again, and
    /// for longer if it is `calm`, because the path carried as much before, and the loss may be
    /// random.
    fn count(&mut self, sample: Count, calm: bool) -> Option<f64> {
        self.counts = self.counts.unless_contradicted(&sample);
        let Counts { odd, times, present } = self.counts;
        let present = present.and(sample);
        let is_odd =
            self.is_excess(present.packets, present.lost) && self.asks_about(present.loss());
        if present.packets < COUNT || is_odd && present.lost < LOST_LEAST {
            self.counts.present = present;
            return None;
        }
        self.counts = Counts::default();
        if !is_odd {
            self.learn(present);
            return None;
        }
        let (odd, times) = (odd.and(present), times + 1);
        let waits = calm && odd.loss() <= RANDOM_MOST;
        let goes_on = odd.is_spread() && !waits || times >= GOES_ON;
        if times >= CONVINCED && odd.lost >= CONVINCING && goes_on {
            return Some(odd.loss());
        }
        self.counts = Counts { odd, times, ..Counts::default() };
        None
    }

    fn learn(&mut self, count: Count) {
        if count.doubtful {
            return;
        }
        self.known += count.packets as f64;
        let share = (count.packets as f64 / (self.known + BELIEVED)).max(LEARN);
        let least = 1.0 - self.random.max(LEARN_MOST);
        self.usual = (self.usual + share * (1.0 - count.loss() - self.usual)).max(least);
    }
}

/// Whether more than chance explains that `lost` of `packets` are missing, where the part `usual`
/// is lost at random.
fn is_beyond_chance(packets: u64, lost: u64, usual: f64) -> bool {
    lost as f64 > expected_at_most(packets, usual) + 1.0
}

/// The largest loss of `packets` that chance explains where it usually takes this part.
fn expected_at_most(packets: u64, usual: f64) -> f64 {
    let expected = usual * packets as f64;
    1.2 * expected + 3.0 * libm::sqrt(expected)
}

impl Counts {
    /// The same, or none if they were odd and `sample` shows that the loss does not go on.
    fn unless_contradicted(self, sample: &Count) -> Counts {
        let missed = self.odd.and(self.present).loss() * sample.packets as f64;
        if self.times > 0 && sample.lost == 0 && missed >= MISSED {
            Counts::default()
        } else {
            self
        }
    }
}

impl Count {
    fn and(self, next: Count) -> Count {
        Count {
            packets: self.packets + next.packets,
            lost: self.lost + next.lost,
            receipts: self.receipts.and(next.receipts),
            doubtful: self.doubtful || next.doubtful,
        }
    }

    fn loss(&self) -> f64 {
        self.lost as f64 / self.packets.max(1) as f64
    }

    fn is_spread(&self) -> bool {
        self.receipts.spread(self.packets, self.loss()) >= SPREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(packets: u64, lost: u64) -> Count {
        Count { packets, lost, receipts: Receipts::one(lost), doubtful: false }
    }

    /// Counts `samples` of 40 packets, of which every `nth` packet is lost; returns the first loss
    /// that is to be asked about.
    fn lose_every(measures: &mut Measures, nth: u64, samples: u64) -> Option<f64> {
        let lost_before = |packet: u64| packet / nth;
        (0..samples).find_map(|sample| {
            let lost = lost_before(40 * (sample + 1)) - lost_before(40 * sample);
            measures.count(count(40, lost), false)
        })
    }

    #[test]
    fn a_twentieth_lost_at_a_slow_rate_is_learnt_or_asked_about_within_a_thousand_packets() {
        let mut measures = Measures::new(Time::ZERO);
        let asked = lose_every(&mut measures, 20, 25);
        assert!(asked.is_some() || measures.usual() < 0.97, "{}", measures.usual());
    }

    #[test]
    fn a_single_burst_of_losses_is_not_asked_about_and_does_not_become_usual() {
        let mut measures = Measures::new(Time::ZERO);
        assert_eq!(lose_every(&mut measures, u64::MAX, 50), None);
        let burst = count(289, 280);
        assert_eq!(measures.count(burst, false), None);
        assert_eq!(lose_every(&mut measures, u64::MAX, 50), None);
        assert!(measures.usual() > 0.999, "{}", measures.usual());
    }

    #[test]
    fn a_few_bursts_are_not_asked_about_and_many_or_losses_here_and_there_are() {
        for (at_once, receipts, asks) in [(6, 60, false), (1, 60, true), (6, 240, true)] {
            let mut measures = Measures::new(Time::ZERO);
            assert_eq!(lose_every(&mut measures, 300, 50), None);
            // Receipts of four packets.
            let lossy = |receipt: u64| receipt % (2 * at_once) < at_once.min(2);
            let asked = (0..receipts).find_map(|receipt| {
                let lost = if lossy(receipt) { 4.min(at_once) } else { 0 };
                measures.count(count(4, lost), false)
            });
            assert_eq!(asked.is_some(), asks, "{at_once} at once, {receipts} receipts");
        }
    }

    #[test]
    fn bursts_with_a_sample_without_loss_between_them_are_not_asked_about() {
        let mut measures = Measures::new(Time::ZERO);
        assert_eq!(lose_every(&mut measures, 300, 50), None);
        for (packets, lost) in [(55, 5), (40, 17), (62, 0), (66, 8), (63, 0)] {
            let asked = measures.count(count(packets, lost), false);
            assert_eq!(asked, None, "{lost} of {packets}");
        }
    }

    #[test]
    fn losses_while_no_more_is_sent_than_the_path_carried_before_are_asked_about_if_they_go_on() {
        let asked_after = |calm| {
            let mut measures = Measures::new(Time::ZERO);
            assert_eq!(lose_every(&mut measures, 300, 50), None);
            (1..100).find(|_| measures.count(count(60, 10), calm).is_some())
        };
        assert_eq!(asked_after(false), Some(CONVINCED));
        assert_eq!(asked_after(true), Some(GOES_ON));
    }

    #[test]
    fn losses_that_creep_up_do_not_become_usual_beyond_a_twentieth_without_a_test() {
        let mut measures = Measures::new(Time::ZERO);
        for nth in [100, 50, 33, 25, 20, 16, 14, 12, 11, 10] {
            lose_every(&mut measures, nth, 500);
        }
        assert!(measures.usual() >= 1.0 - LEARN_MOST, "{}", measures.usual());
        measures.note_random(Time::ZERO, 0.1, 500);
        assert!((measures.usual() - 0.9).abs() < 1e-9);
    }
}
