//! Do losses come with the longest delays? Then a queue drops them, however short it is.
//!
//! A queue of a few packets is too short to be seen as one: it is full and empty again within a
//! receipt. But a packet that it drops leaves while the others that arrive wait longest. Random
//! loss and a policer's do not care for the delay. So the longest delay of each receipt is noted,
//! of those with losses and of those without. A queue drops if the first ones are all about as long
//! as any delay, and the others are not, by more than chance explains. This module must not know
//! what is done about it.

use gtp_alloc::{Rate, Span, Time};

use super::sample::Sample;
use crate::meter::WindowedMax;

/// The number of recent receipts over which both means are taken. Both cover the same receipts,
/// because delays and losses change with time.
const MEMORY: f64 = 512.0;
/// The least number of receipts with losses among them that makes a mean.
const LOSSY_LEAST: f64 = 6.0;
/// The least number of receipts without losses among them that makes a mean.
const CLEAN_LEAST: f64 = 24.0;
/// A receipt whose number of packets differs from the usual one by more than this factor does not
/// count: of more packets more are lost, and their longest delay is longer.
const OTHER_SIZE: f64 = 2.0;
/// This number of receipts of another size in a row makes that size the usual one.
const NEW_SIZE: u32 = 8;
/// The least difference of the means, in seconds. Hosts delay packets by less.
const APART: f64 = 200e-6;
/// The least difference of the means, as a part of the mean without losses. Where delays vary by
/// themselves, late packets count as lost.
const PART: f64 = 0.15;
/// The least difference of the means, in multiples of what chance moves the lossy one by.
const SURE: f64 = 4.0;
/// Delays at losses differ from their mean by at most this part of it on average, because a full
/// queue always has the same length.
const LIKE: f64 = 0.1;
/// Delays at losses are on average at least this part of the longest recent delay.
const FULL: f64 = 0.8;
/// The time for which the longest delay is remembered.
const WINDOW: Span = Span::from_secs(8);
/// The time for which a queue that was found is remembered.
const REMEMBERS: Span = Span::from_secs(60);
/// The number of recent packets from which the loss at short delays is known.
const PACKETS: f64 = 2_048.0;

/// The longest delays of receipts with losses and without.
#[derive(Debug)]
pub(super) struct Drops {
    lossy: Mean,
    clean: Mean,
    /// The longest delay of late, in nanoseconds.
    longest: WindowedMax,
    /// The usual number of packets of a receipt, and how many in a row had another.
    size: f64,
    others: u32,
    /// The last time at which a queue dropped for certain, and the delay above which it does.
    found: Option<(Time, f64)>,
    /// Packets that came while delays were short, and those of them that were lost.
    packets: f64,
    lost: f64,
}

/// A mean of times, in seconds, that forgets.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    weight: f64,
    mean: f64,
    /// Mean distance from the mean.
    apart: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.weight += 1.0;
        let part = 1.0 / self.weight;
        self.apart += part * (libm::fabs(value - self.mean) - self.apart);
        self.mean += part * (value - self.mean);
    }
}

impl Drops {
    pub fn new(now: Time) -> Drops {
        let (lossy, clean) = (Mean::default(), Mean::default());
        let longest = WindowedMax::new(now, WINDOW);
        Drops { lossy, clean, longest, size: 0.0, others: 0, found: None, packets: 0.0, lost: 0.0 }
    }

    /// Notes a receipt, or what the receipts of several sessions say together. A queue that holds
    /// more than `short` is not looked for.
    pub fn note(&mut self, now: Time, sample: &Sample, short: Span) {
        let peak = sample.peak.as_secs_f64();
        let packets = sample.packets() as f64;
        self.longest.add(now, Rate::from_bps(sample.peak.as_nanos()));
        if packets > self.size * OTHER_SIZE || packets < self.size / OTHER_SIZE {
            self.note_other_size(packets);
            return;
        }
        self.others = 0;
        for mean in [&mut self.lossy, &mut self.clean] {
            mean.weight *= 1.0 - 1.0 / MEMORY;
        }
        let (lossy, clean) = (&mut self.lossy, &mut self.clean);
        if sample.lost > 0 { lossy } else { clean }.add(peak);
        if sample.lost > 0 && self.are_a_queues(now, short) {
            self.found = Some((now, self.middle()));
        }
        if !self.is_long(sample) {
            let keeps = 1.0 - (packets / PACKETS).min(1.0);
            self.packets = self.packets * keeps + packets;
            self.lost = self.lost * keeps + sample.lost as f64;
        }
    }

    fn note_other_size(&mut self, packets: f64) {
        self.others += 1;
        if self.size == 0.0 || self.others >= NEW_SIZE {
            (self.size, self.others) = (packets, 0);
            (self.lossy, self.clean) = (Mean::default(), Mean::default());
        }
    }

    /// Whether a queue dropped what is missing of this sample.
    pub fn explain(&self, now: Time, sample: &Sample) -> bool {
        let expected = self.lost / self.packets.max(1.0) * sample.packets() as f64;
        let more = sample.lost as f64 > expected + 2.0 * libm::sqrt(expected);
        let found = self.found.filter(|(at, _)| now.since(*at) < REMEMBERS);
        more && found.is_some_and(|(_, above)| sample.peak.as_secs_f64() > above)
    }

    /// Whether losses come with the longest delays, and these are no longer than `short`.
    fn are_a_queues(&mut self, now: Time, short: Span) -> bool {
        let longest = Span::from_nanos(self.longest.max(now).as_bps()).as_secs_f64();
        let (lossy, clean) = (&self.lossy, &self.clean);
        if lossy.weight < LOSSY_LEAST || clean.weight < CLEAN_LEAST {
            return false;
        }
        let chance = clean.apart.max(lossy.apart) / libm::sqrt(lossy.weight);
        let apart = APART.max(SURE * chance).max(PART * clean.mean);
        let alike = lossy.apart < LIKE * lossy.mean && lossy.mean > FULL * longest;
        alike && lossy.mean - clean.mean > apart && lossy.mean < short.as_secs_f64()
    }

    /// Whether a sample's longest delay is nearer to that of receipts with losses.
    fn is_long(&self, sample: &Sample) -> bool {
        sample.peak.as_secs_f64() > self.middle()
    }

    fn middle(&self) -> f64 {
        (self.lossy.mean + self.clean.mean) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;
    const SHORT: Span = Span::from_millis(10);

    fn sample(lost: u64, peak_us: u64) -> Sample {
        Sample { lost, end_pn: 10, peak: Span::from_micros(peak_us), ..Sample::default() }
    }

    /// Receipts of ten packets, of which every `nth` has a loss and this peak, the others peaks up
    /// to `most`, in microseconds.
    fn noted(short: Span, nth: u64, peak: impl Fn(u64) -> u64, most: u64) -> Drops {
        let mut drops = Drops::new(NOW);
        for n in 0..400 {
            let other = n * 7_919 % (most + 1);
            let lost = u64::from(n % nth == 0);
            drops.note(NOW, &sample(lost, if lost > 0 { peak(other) } else { other }), short);
        }
        drops
    }

    #[test]
    fn losses_at_the_longest_delays_are_a_queues() {
        let drops = noted(SHORT, 10, |_| 1_200, 1_200);
        assert!(drops.explain(NOW, &sample(1, 1_200)));
        assert!(!drops.explain(NOW, &sample(1, 300)), "this one came with a short delay");
        assert!(!drops.explain(NOW + REMEMBERS, &sample(1, 1_200)), "that was long ago");
        let drops = noted(Span::from_millis(1), 10, |_| 1_200, 1_200);
        assert!(!drops.explain(NOW, &sample(1, 1_200)), "the queue is long");
    }

    #[test]
    fn losses_at_any_delay_and_where_there_is_none_are_chance() {
        for most in [0, 100, 1_200, 20_000] {
            for nth in [2, 5, 10, 30] {
                let drops = noted(Span::from_secs(1), nth, |other| other, most);
                assert!(!drops.explain(NOW, &sample(1, 1_000_000)), "{nth} {most}");
            }
        }
    }

    #[test]
    fn a_few_losses_say_nothing() {
        let drops = noted(SHORT, 80, |_| 1_200, 100);
        assert!(!drops.explain(NOW, &sample(1, 1_200)));
    }

    #[test]
    fn longer_receipts_with_more_losses_and_longer_delays_are_chance() {
        let mut drops = Drops::new(NOW);
        for n in 0..2_000 {
            let (long, peak_us) = (n % 400 >= 200, n * 7_919 % 5_000);
            let short = sample(u64::from(n % 10 == 0), peak_us);
            let long_one = Sample { end_pn: 100, ..sample(3, 4_000 + peak_us / 5) };
            drops.note(NOW, if long { &long_one } else { &short }, SHORT);
        }
        assert!(!drops.explain(NOW, &sample(1, 5_000)));
    }

    #[test]
    fn losses_as_many_as_there_are_without_delay_are_chance() {
        let mut drops = Drops::new(NOW);
        for n in 0..2_000 {
            let (long, chance) = (n % 3 == 0, n % 60 == 1);
            let lost = if long { 1 } else { u64::from(chance) * 10 };
            drops.note(NOW, &sample(lost, if long { 1_200 } else { 0 }), SHORT);
        }
        assert!(!drops.explain(NOW, &sample(1, 1_200)), "{drops:?}");
        assert!(drops.explain(NOW, &sample(5, 1_200)), "{drops:?}");
    }
}
