//! What receipts say of a path, gathered until it is enough to judge by.
//!
//! A receipt covers a few milliseconds, too little to tell an overload from a burst or from chance.
//! This module must not know what is made of a sample.

use core::num::NonZeroU8;

use gtp_alloc::{Bytes, Rate, Span};

/// What one receipt, or several together, say of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Bytes sent, and the time they took to leave.
    pub sent: Bytes,
    /// See `sent`.
    pub sent_in: Span,
    /// Bytes that arrived, and the time they took to arrive.
    pub arrived: Bytes,
    /// See `arrived`.
    pub arrived_in: Span,
    /// Smallest queueing delay.
    pub delay: Span,
    /// Greatest queueing delay.
    pub peak: Span,
    /// Packet number with which the sample starts.
    pub first_pn: u64,
    /// The first one after it.
    pub end_pn: u64,
    /// How many of these packets are missing.
    pub lost: u64,
    /// How many that arrived were marked.
    pub marked: u64,
    /// The receipts that say so.
    pub receipts: Receipts,
}

/// A number of receipts, and of those among them in which packets are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receipts {
    all: u64,
    lossy: u64,
}

impl Receipts {
    /// One receipt in which `lost` packets are missing.
    pub fn one(lost: u64) -> Receipts {
        Receipts { all: 1, lossy: u64::from(lost > 0) }
    }

    /// These and the others.
    pub fn and(self, others: Receipts) -> Receipts {
        let Receipts { all, lossy } = others;
        Receipts { all: self.all.saturating_add(all), lossy: self.lossy.saturating_add(lossy) }
    }

    /// The part of the receipts with losses that there would be if the part `loss` of so many
    /// packets was lost here and there. In bursts the same losses hit fewer receipts.
    pub fn spread(&self, packets: u64, loss: f64) -> f64 {
        let all = self.all.max(1) as f64;
        let spared = libm::pow(1.0 - loss, packets as f64 / all);
        self.lossy as f64 / (all * (1.0 - spared)).max(1.0)
    }
}

/// How a session wants to use the path, and what it knows of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// What it would send if the path did not limit it.
    pub aim: Rate,
    /// What both ends allow it now.
    pub granted: Rate,
    /// Round-trip times: smoothed and least.
    pub rtt: Span,
    /// See `rtt`.
    pub rtt_least: Span,
    /// The time between two receipts.
    pub interval: Span,
    /// Next packet number to be sent.
    pub next_pn: u64,
    /// Whether its application leaves it waiting.
    pub idles: bool,
    /// Whether it gives way to everybody else.
    pub yields: bool,
    /// The TCP flows that it stands for where it competes.
    pub flows: NonZeroU8,
}

impl Sample {
    /// The rate at which the sample's bytes are proven to arrive. The time of arrival is only the
    /// sink's word; that they cannot all have come faster than they left is not.
    pub fn proven(&self) -> Rate {
        self.arrived.per(self.arrived_in.max(self.sent_in))
    }

    /// Packets with these numbers, all of which arrived as they left, without a queue.
    #[cfg(test)]
    pub fn whole(sent: Bytes, sent_in: Span, pns: core::ops::Range<u64>) -> Sample {
        let (arrived, arrived_in) = (sent, sent_in);
        let (first_pn, end_pn) = (pns.start, pns.end);
        let receipts = Receipts::one(0);
        let no_queue = Sample::default();
        Sample { sent, sent_in, arrived, arrived_in, first_pn, end_pn, receipts, ..no_queue }
    }

    /// How many packets it is about, lost ones among them.
    pub fn packets(&self) -> u64 {
        self.end_pn.saturating_sub(self.first_pn).max(self.lost).max(1)
    }

    /// This one and the next, as one.
    pub fn join(self, next: Sample) -> Sample {
        Sample {
            sent: self.sent + next.sent,
            sent_in: self.sent_in + next.sent_in,
            arrived: self.arrived + next.arrived,
            arrived_in: self.arrived_in + next.arrived_in,
            delay: self.delay.min(next.delay),
            peak: self.peak.max(next.peak),
            first_pn: self.first_pn,
            end_pn: next.end_pn,
            lost: self.lost.saturating_add(next.lost),
            marked: self.marked.saturating_add(next.marked),
            receipts: self.receipts.and(next.receipts),
        }
    }

    /// The same sample without arrivals beyond what was sent: of short packets each receipt may
    /// claim a little more.
    pub fn within_what_was_sent(self) -> Sample {
        Sample { arrived: self.arrived.min(self.sent), ..self }
    }
}

/// A sample this long evens out bursts and wake-ups.
pub(super) const SAMPLE_MIN: Span = Span::from_millis(25);
/// 32 packets of this length tell an overload from chance: of five packets two are often lost.
const SAMPLE_BYTES: Bytes = Bytes(32 * 1_500);
/// The number of packets after which a slow session has seen enough of a round trip. Whoever
/// waited for more would see each queue later than faster ones, and be cut again and again.
const ROUND_PACKETS: u64 = 16;
/// The same for a session that competes, which heeds losses as soon as a TCP does, and for one that
/// asks whose queue it is, of which the delay alone is looked at.
const QUICK_PACKETS: u64 = 8;

/// What makes a sample whole: many packets, or a few of them over some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enough {
    few: u64,
    over: Span,
}

impl Enough {
    /// Many packets alone.
    pub fn many() -> Enough {
        Enough { few: u64::MAX, over: Span::MAX }
    }

    /// A round trip's packets, if it has a few.
    pub fn round(rtt: Span) -> Enough {
        Enough { few: ROUND_PACKETS, over: rtt.max(SAMPLE_MIN) }
    }

    /// As `round`, with fewer packets and no least time.
    pub fn quick(rtt: Span) -> Enough {
        Enough { few: QUICK_PACKETS, over: rtt }
    }

    fn is_reached(&self, sample: &Sample) -> bool {
        let lasts = |long: Span| sample.sent_in >= long && sample.arrived_in >= long / 2;
        let few = sample.packets() >= self.few && lasts(self.over);
        few || sample.sent >= SAMPLE_BYTES && lasts(SAMPLE_MIN)
    }
}

/// Joins what receipts say until it is long enough.
#[derive(Debug, Default)]
pub(super) struct Gathering(Option<Sample>);

impl Gathering {
    /// Adds a receipt's sample and returns a whole one, if there is one now. Nothing before packet
    /// `changed_pn` shows the path as it is since the last change of the rate.
    pub fn add(&mut self, sample: Sample, changed_pn: u64, enough: Enough) -> Option<Sample> {
        let whole = match self.0.take() {
            Some(begun) if !outdates(&sample, &begun, changed_pn) => begun.join(sample),
            Some(_) | None => sample,
        };
        if !enough.is_reached(&whole) {
            self.0 = Some(whole);
            return None;
        }
        Some(whole)
    }
}

/// Whether `begun` is better not waited for: it shows the path as it was before the last change,
/// `sample` as it is, and so few packets are sent that a whole sample takes long.
fn outdates(sample: &Sample, begun: &Sample, changed_pn: u64) -> bool {
    let slow = begun.sent_in >= SAMPLE_MIN;
    slow && begun.first_pn < changed_pn && sample.first_pn >= changed_pn
}
