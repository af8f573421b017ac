//! LambdaStream's receiver without its blocks: from when packets come to the rate that is asked
//! for.
//!
//! It is told of each packet, or of the first of those that left at one time, and of the end of
//! each epoch; it holds the rate that the sender is to keep, and the number by which packets say at
//! which rate they left. What is said to the sender, and when again, is for whoever has it.
//!
//! Rules and departures are those of LambdaStream's ends in `gtp-peers` (L1 to L4, D1 to D5, D8):
//! the two that are made here are D1, when an epoch has samples enough, and D2, one cut at a time.

use alloc::vec::Vec;

use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Differentiation, K1, Loss, RateControl, SPIKE, available, average_delay};

/// A packet that came; where several leave at one time, the first of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number on the wire.
    pub ordinal: u64,
    /// When it left, by the sender's clock.
    pub sent: Time,
    /// The number of the rate that it left at.
    pub rate: u64,
    /// Its group in a train, from one on; none: zero.
    pub group: u64,
    /// Packets that came since the one before, one of these two included.
    pub came: u64,
    /// Packets that were lost since the one before.
    pub lost: u64,
}

/// How much a gap counts in the mean of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weighing {
    /// Each alike: packets leave one by one.
    Packets,
    /// By its length.
    Time,
}

/// L2: the gaps of one epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    weight: f64,
    ratios: f64,
    spanned: f64,
}

/// L4: the train that is arriving: the group's number, its first and its last packet, and the
/// groups before it as (sent, came) in bit/s.
#[derive(Clone, Debug, Default)]
struct Train {
    group: u64,
    first: Option<(Time, Arrived)>,
    last: Option<(Time, Arrived)>,
    came: u64,
    groups: Vec<(f64, f64)>,
}

/// The rate that a receiver asks for, and what it knows of the path.
#[derive(Clone, Debug)]
pub struct Judge {
    weighing: Weighing,
    control: RateControl,
    differentiation: Differentiation,
    packet: f64,
    /// L1: the rate asked for, its number, when it was asked for, and whether it was seen.
    rate: f64,
    number: u64,
    asked: Time,
    seen: bool,
    /// D1: samples count from the rate of this number on.
    measured: u64,
    rtt: Option<Span>,
    before: Option<(Time, Arrived)>,
    samples: Samples,
    train: Train,
    /// D5.
    available: Option<f64>,
    ratio: Option<f64>,
    updates: u64,
    cuts: u64,
}

impl Judge {
    /// A receiver on a link of `link`, whose first rate is `initial`, of packets of `packet` bytes
    /// on links.
    pub fn new(link: Rate, initial: Rate, packet: Bytes) -> Judge {
        Judge {
            weighing: Weighing::Packets,
            control: RateControl::new(link.as_f64()),
            differentiation: Differentiation::default(),
            packet: packet.0 as f64 * 8.0,
            rate: initial.as_f64(),
            number: 0,
            asked: Time::ZERO,
            seen: true,
            measured: 0,
            rtt: None,
            before: None,
            samples: Samples::default(),
            train: Train::default(),
            available: None,
            ratio: None,
            updates: 0,
            cuts: 0,
        }
    }

    /// The same, told of bursts: an epoch's gaps count by how long they are, since a short one is
    /// followed by a long one.
    pub fn of_bursts(self) -> Judge {
        Judge { weighing: Weighing::Time, ..self }
    }

    /// The rate asked for.
    pub fn rate(&self) -> Rate {
        Rate::from_f64(self.rate)
    }

    /// Its number: changes with every rate that is asked for.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// D9: asks for the rate that there is, to see when packets say its number.
    pub fn ask_anew(&mut self, now: Time) {
        self.ask(now, self.rate);
    }

    /// Smoothed round-trip time, once it is known.
    pub fn rtt(&self) -> Option<Span> {
        self.rtt
    }

    /// A round-trip time that is known otherwise.
    pub fn set_rtt(&mut self, rtt: Span) {
        self.rtt = Some(rtt);
    }

    /// Changes of the rate by L2, and by L3.
    pub fn changes(&self) -> (u64, u64) {
        (self.updates, self.cuts)
    }

    /// L2: the mean ratio of receiving over sending gaps in the last epoch (L, Fig. 3).
    pub fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    /// L4: what the last train found to be available, in bit/s.
    pub fn available(&self) -> Option<f64> {
        self.available
    }

    /// D1: an epoch's length.
    pub fn epoch_length(&self) -> Span {
        self.rtt.map_or(LEAST_EPOCH, |rtt| rtt.max(LEAST_EPOCH))
    }

    /// D1: when the epoch after the one that ended at `now` ends: one that lacks samples only goes
    /// on until it has them.
    pub fn next_epoch(&self, now: Time) -> Time {
        now + if self.samples.weight > 0.0 { LEAST_EPOCH } else { self.epoch_length() }
    }

    /// D6: the rate that was asked for is not seen in packets after two epochs.
    pub fn is_unheard(&self, now: Time) -> bool {
        !self.seen && now >= self.asked + self.epoch_length() * 2
    }

    /// A packet came.
    pub fn note(&mut self, now: Time, packet: &Arrived) {
        self.note_train(now, packet);
        self.note_gap(now, packet);
    }

    /// L2: an epoch is over.
    pub fn end_epoch(&mut self, now: Time) {
        let enough = self.samples.spanned >= LEAST_EPOCH.as_secs_f64();
        if self.samples.weight == 0.0 || !enough {
            return;
        }
        let ratio = self.samples.ratios / self.samples.weight;
        self.ratio = Some(ratio);
        let free = self.available.map_or(0.0, |a| a - self.rate);
        self.samples = Samples::default();
        let next = self.control.update(self.rate, ratio, free);
        if next != self.rate {
            self.updates += 1;
            self.ask(now, next);
            self.measured = self.number;
        }
    }

    /// L1.
    fn ask(&mut self, now: Time, rate: f64) {
        self.rate = rate;
        self.number += 1;
        (self.asked, self.seen) = (now, false);
    }

    /// L2 and L3: the packet beside the one before it.
    fn note_gap(&mut self, now: Time, packet: &Arrived) {
        if !self.seen && packet.rate == self.number {
            self.seen = true;
            let sample = now.since(self.asked);
            self.rtt = Some(self.rtt.map_or(sample, |old| (old * 7 + sample) / 8));
        }
        let Some((came, last)) = self.before.replace((now, *packet)) else { return };
        if packet.ordinal <= last.ordinal {
            return;
        }
        let delay = average_delay(now.since(came).as_secs_f64(), packet.ordinal, last.ordinal);
        // Eq. 2's divisor is the same on both sides of the ratio.
        let sent = packet.sent.since(last.sent).as_secs_f64();
        let gap = average_delay(sent, packet.ordinal, last.ordinal);
        let current = packet.rate >= self.measured && packet.group == 0;
        let alike = last.rate == packet.rate && last.group == packet.group;
        if current && alike && gap > 0.0 && delay <= SPIKE * gap {
            let weight = match self.weighing {
                Weighing::Packets => 1.0,
                Weighing::Time => sent,
            };
            self.samples.weight += weight;
            self.samples.ratios += delay / gap * weight;
            self.samples.spanned += sent;
        }
        if packet.lost > 0
            && self.differentiation.judge(packet.ordinal, delay, gap) == Loss::Counts
            && self.seen
        {
            self.cuts += 1;
            self.ask(now, self.rate / (1.0 + K1));
        }
    }

    /// L4.
    fn note_train(&mut self, now: Time, packet: &Arrived) {
        let group = packet.group;
        if group != self.train.group {
            self.end_group();
            if group <= 1 {
                self.end_train();
            }
            self.train.group = group;
            (self.train.first, self.train.last, self.train.came) = (None, None, 0);
        }
        if group > 0 {
            if self.train.first.is_some() {
                self.train.came += packet.came;
            }
            self.train.first.get_or_insert((now, *packet));
            self.train.last = Some((now, *packet));
        }
    }

    fn end_group(&mut self) {
        let (Some(first), Some(last)) = (self.train.first, self.train.last) else { return };
        let sent = last.1.sent.since(first.1.sent).as_secs_f64();
        let came = last.0.since(first.0).as_secs_f64();
        if sent > 0.0 && came > 0.0 {
            let left = self.packet * last.1.ordinal.saturating_sub(first.1.ordinal) as f64;
            let arrived = self.packet * self.train.came as f64;
            self.train.groups.push((left / sent, arrived / came));
        }
    }

    fn end_train(&mut self) {
        if let Some(rate) = available(&self.train.groups) {
            self.available = Some(rate);
        }
        self.train.groups.clear();
    }
}

/// D1.
pub const LEAST_EPOCH: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes(1_500);

    /// Feeds packets that leave each 60 us (200 Mbit/s) and come each `gap_us`, of which one in
    /// `one_in` is lost, `burst` leaving at a time; ends an epoch each 20 ms.
    fn fed(judge: &mut Judge, packets: u64, burst: u64, gap_us: u64, one_in: u64) {
        let at = |us: u64| Time::from_nanos(us * 1_000);
        let (mut epoch, mut lost, mut came) = (at(20_000), 0, 0);
        for n in 0..packets {
            let gone = n % one_in == one_in - 1;
            (lost, came) = if gone { (lost + 1, came) } else { (lost, came + 1) };
            if n % burst != 0 || gone {
                continue;
            }
            let now = at(1_000 + n * gap_us);
            while epoch <= now {
                judge.end_epoch(epoch);
                epoch = judge.next_epoch(epoch);
            }
            let (sent, rate) = (at(n * 60), judge.number());
            judge.note(now, &Arrived { ordinal: n, sent, rate, group: 0, came, lost });
            (lost, came) = (0, 0);
        }
    }

    #[test]
    fn bursts_give_the_ratio_that_packets_one_by_one_do() {
        for burst in [1, 10] {
            let link = Rate::from_mbps(200);
            let mut judge = Judge::new(link, link, PACKET).of_bursts();
            fed(&mut judge, 2_000, burst, 66, u64::MAX);
            let ratio = judge.ratio().expect("an epoch");
            assert!((ratio - 1.1).abs() < 0.01, "bursts of {burst}: {ratio}");
            assert!(judge.rate() < Rate::from_mbps(190), "bursts of {burst}: {:?}", judge.rate());
        }
    }

    #[test]
    fn scattered_losses_at_the_usual_pace_change_nothing() {
        let mut judge = Judge::new(Rate::from_mbps(200), Rate::from_mbps(150), PACKET);
        judge.ask_anew(Time::ZERO);
        fed(&mut judge, 5_000, 1, 60, 150);
        assert_eq!((judge.changes(), judge.rate()), ((0, 0), Rate::from_mbps(150)));
    }
}
