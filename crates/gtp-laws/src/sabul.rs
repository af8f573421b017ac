//! SABUL's laws: the gap of the paper's equations 1 to 5, and the period of release 2.x.
//!
//! Source: Oothongsap, Viniotis and Vouk, section II; for 2.x the released sender of 16 March 2003.
//! Both turn what a round of feedback said into a time between packets. Seconds and bits are plain
//! numbers here, because `gtp-peers` has the paper's model, which computes with the same functions.
//! [`Paper`] is the law as a round's ends call it, [`Sabul`] the same with rounds by the clock.
//!
//! | rule | source | where |
//! |---|---|---|
//! | more loss than the target: the gap grows by a factor and by c | eq. 1 | [`next_gap`] |
//! | less: it shrinks by a factor | eq. 2 | [`next_gap`] |
//! | as much: it grows by d | eq. 3 | [`next_gap`] |
//! | excessive loss: it grows by b; when, the paper does not say | eq. 4 | [`Paper::note_report`] |
//! | the rate that a gap stands for | eq. 5 | [`sending_rate`], [`gap_of`] |
//! | default values, and those of Lemma 7's conditions | IV.B | [`PR0`], [`PR1`] |
//! | a round ends after 200 ms; departure: by the source's clock | II | [`Sabul`] |
//! | the period of packets, from a smoothed loss rate | release 2.x | [`Release`] |

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::{Counts, SourceLaw};

/// Parameters of equations 1 to 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Eq. 1's factor.
    pub k1: f64,
    /// Eq. 2's factor.
    pub k2: f64,
    /// Eq. 1's addend, in seconds.
    pub c: f64,
    /// Eq. 3's addend, in seconds.
    pub d: f64,
    /// Eq. 4's addend, in seconds.
    pub b: f64,
    /// The target loss rate, alpha.
    pub target: f64,
}

/// alpha is not in the paper: the value of release 2.x.
pub const TARGET: f64 = 0.001;

/// The protocol's default values (IV.B).
pub const PR0: Parameters =
    Parameters { k1: 0.1, k2: 10.0, c: 0.5e-6, d: 0.1e-6, b: 2e-6, target: TARGET };

/// Values that keep the conditions of Lemma 7 (IV.B).
pub const PR1: Parameters =
    Parameters { k1: 0.00101, k2: 100.0, c: 0.002e-6, d: 0.1e-6, b: 0.002e-6, target: TARGET };

/// The gap of the next round, in seconds, from this round's gap and loss rate: eqs. 1, 2 and 3.
pub fn next_gap(gap: f64, loss: f64, p: &Parameters) -> f64 {
    if loss > p.target {
        gap * (1.0 + p.k1 * (loss - p.target)) + p.c // eq. 1
    } else if loss < p.target {
        gap * (1.0 + p.k2 * (loss - p.target)) // eq. 2
    } else {
        gap + p.d // eq. 3
    }
}

/// Eq. 5: the sending rate in bit/s for packets of `length` bits from an interface of `interface`
/// bit/s with this gap.
pub fn sending_rate(gap: f64, length: f64, interface: f64) -> f64 {
    length / (length / interface + gap) // eq. 5
}

/// Eq. 5 solved for the gap; zero for rates at or above the interface's.
pub fn gap_of(rate: f64, length: f64, interface: f64) -> f64 {
    (length / rate - length / interface).max(0.0)
}

/// When losses are excessive (eq. 4). The paper does not say and leaves it out of its analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// Never: eq. 4 is not used.
    #[default]
    Never,
    /// At the tenth loss report, then not for another 500: the rule that 2.x holds in a comment.
    TenthReport,
}

/// Equations 1 to 5 from round to round.
#[derive(Clone, Debug)]
pub struct Paper {
    gap: f64,
    parameters: Parameters,
    /// `C` of eq. 5.
    interface: f64,
    excess: Excess,
    reports: i32,
    counted: Counts,
}

impl Paper {
    /// A law that begins at `first` bit/s with packets of `length` bits, at an interface of
    /// `interface` bit/s, which may be infinite.
    pub fn new(
        parameters: Parameters,
        (interface, excess): (f64, Excess),
        first: f64,
        length: f64,
    ) -> Paper {
        let gap = gap_of(first, length, interface);
        Paper { gap, parameters, interface, excess, reports: 0, counted: Counts::default() }
    }

    /// Seconds between packets of `length` bits: eq. 5's denominator over the rate's unit.
    pub fn period(&self, length: f64) -> f64 {
        length / self.interface + self.gap
    }

    /// Eq. 5: the rate in bit/s for packets of `length` bits.
    pub fn rate(&self, length: f64) -> f64 {
        sending_rate(self.gap, length, self.interface)
    }

    /// A round is over, in which this was counted since the beginning. One in which nothing came
    /// says nothing, and word that is older than the last is no word.
    pub fn end_round(&mut self, total: &Counts) {
        if total.received < self.counted.received {
            return;
        }
        let round = total.since(&self.counted);
        self.counted = *total;
        if round.sent() > 0 {
            self.gap = next_gap(self.gap, round.loss(), &self.parameters);
        }
    }

    /// A loss report has come: eq. 4.
    pub fn note_report(&mut self) {
        match self.excess {
            Excess::Never => {}
            Excess::TenthReport => {
                self.reports += 1;
                if self.reports == EXCESSIVE {
                    self.gap += self.parameters.b; // eq. 4
                    self.reports = SUPPRESSED;
                }
            }
        }
    }
}

/// The paper's law with its default values, in rounds of 200 ms by the source's clock.
///
/// Departure: in the paper a round ends when the receiver's SYN packet comes. Where what came is
/// told at other times, the source ends a round with the first word after 200 ms.
#[derive(Clone, Debug)]
pub struct Sabul {
    first: Rate,
    interface: Rate,
    /// Once it is known how long packets are.
    law: Option<Paper>,
    next: Option<Time>,
}

impl Sabul {
    /// A law that begins at `first`, at an interface of `interface`.
    pub fn new(first: Rate, interface: Rate) -> Sabul {
        Sabul { first, interface, law: None, next: None }
    }
}

impl SourceLaw for Sabul {
    fn handle_counts(&mut self, now: Time, counts: &Counts, packet: Bytes) {
        let next = *self.next.get_or_insert(now + ROUND);
        if now < next {
            return;
        }
        self.next = Some(now + ROUND);
        let interface = (self.interface.as_f64(), Excess::Never);
        let length = bits(packet);
        let first = self.first.as_f64();
        let law = self.law.get_or_insert_with(|| Paper::new(PR0, interface, first, length));
        law.end_round(counts);
    }

    fn rate(&self, packet: Bytes) -> Rate {
        match &self.law {
            None => self.first.min(self.interface),
            Some(law) => Rate::from_f64(law.rate(bits(packet))),
        }
    }

    /// `C` of eq. 5; the gap stays.
    fn set_interface(&mut self, rate: Rate) {
        self.interface = rate;
        if let Some(law) = &mut self.law {
            law.interface = rate.as_f64();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next
    }
}

fn bits(packet: Bytes) -> f64 {
    packet.0 as f64 * 8.0
}

/// Release 2.x's law. Its quantity is the period of packets, not the gap on top of `L/C`.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// Seconds between packets.
    pub period: f64,
    /// The round's length in seconds.
    round: f64,
    smoothed: f64,
    reports: f64,
    doublings: i32,
    last_cut: Option<u64>,
}

/// What a loss report did to the release's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    None,
    /// Longer by an eighth, and nothing is sent for one round: the first loss after the last cut.
    First,
    /// Longer by an eighth: the losses go on.
    Further,
}

impl Release {
    /// A law with this first period and these rounds, in seconds.
    pub fn new(period: f64, round: f64) -> Release {
        Release { period, round, smoothed: 0.0, reports: 0.0, doublings: 1, last_cut: None }
    }

    /// A loss report whose first block is `first`, when `next` is the next new block.
    pub fn note_report(&mut self, first: u64, next: u64) -> Cut {
        if self.last_cut.is_none_or(|cut| first > cut) {
            self.period *= CUT;
            self.last_cut = Some(next);
            (self.reports, self.doublings) = (1.0, 4);
            return Cut::First;
        }
        self.reports += 1.0;
        if self.reports < libm::pow(2.0, f64::from(self.doublings)) {
            return Cut::None;
        }
        self.doublings += 1;
        self.period *= CUT;
        Cut::Further
    }

    /// The end of a round in which `loss` of what was sent was reported lost.
    pub fn end_round(&mut self, loss: f64) {
        self.smoothed = self.smoothed * PAST + loss * (1.0 - PAST);
        if self.smoothed > TARGET {
            return;
        }
        // The addition, in packets a round: a thousandth of the next power of ten of what a round
        // sends.
        let packets = self.round / self.period;
        let added = (libm::pow(10.0, libm::ceil(libm::log10(packets))) / 1000.0).max(1.0 / 1500.0);
        self.period = self.period * self.round / (self.period * added + self.round);
        self.period = self.period.clamp(SHORTEST, LONGEST);
    }
}

/// The paper's interval between two SYN packets.
pub const ROUND: Span = Span::from_millis(200);
/// [`Excess::TenthReport`].
const EXCESSIVE: i32 = 10;
const SUPPRESSED: i32 = -500;
/// The release's cut on loss.
const CUT: f64 = 1.125;
/// Weight of the past in its loss rate.
const PAST: f64 = 0.1;
/// Its bounds of the period, in seconds. The release puts them on at the end of a round that
/// raises and nowhere else: a cut may pass the longest, and the next raise comes back to it.
const SHORTEST: f64 = 10e-6;
const LONGEST: f64 = 1000e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_changes_counts_from_then_on() {
        let (packet, fast) = (Bytes(1_500), Rate::from_mbps(1_000));
        let mut law = Sabul::new(Rate::from_mbps(100), fast);
        law.set_interface(Rate::from_mbps(50));
        assert_eq!(law.rate(packet), Rate::from_mbps(50));
        law.set_interface(fast);
        let came = |received| Counts { received, lost: 0 };
        law.handle_counts(Time::ZERO, &came(0), packet);
        law.handle_counts(Time::ZERO + ROUND, &came(100), packet);
        let gap = 12_000.0 / law.rate(packet).as_f64() - 12_000.0 / 1e9;
        law.set_interface(Rate::from_mbps(200));
        let found = 12_000.0 / law.rate(packet).as_f64();
        assert!((found - (12_000.0 / 200e6 + gap)).abs() < 1e-9, "{found}");
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-12 * b.abs()
    }

    #[test]
    fn equations_1_to_3_by_hand() {
        // Loss 10.1 %, target 0.1 %: 20 us * (1 + 0.1 * 0.1) + 0.5 us.
        assert!(close(next_gap(20e-6, 0.101, &PR0), 20.7e-6));
        // No loss: 20 us * (1 - 10 * 0.001).
        assert!(close(next_gap(20e-6, 0.0, &PR0), 19.8e-6));
        assert!(close(next_gap(20e-6, 0.001, &PR0), 20.1e-6));
        assert!(close(next_gap(20e-6, 0.0, &PR1), 18e-6));
    }

    #[test]
    fn equation_5_by_hand() {
        // 12,000 bits at 1 Gbit/s take 12 us; a gap of 12 us halves the rate.
        assert!(close(sending_rate(12e-6, 12_000.0, 1e9), 500e6));
        assert!(close(gap_of(500e6, 12_000.0, 1e9), 12e-6));
        assert_eq!(gap_of(2e9, 12_000.0, 1e9), 0.0);
    }

    #[test]
    fn the_release_cuts_once_for_losses_of_before_the_cut() {
        let mut law = Release::new(16e-6, 0.2);
        assert_eq!(law.note_report(100, 150), Cut::First);
        assert!(close(law.period, 18e-6));
        // Fifteen more reports of what was sent before: at the sixteenth it cuts again.
        let cuts: alloc::vec::Vec<Cut> = (0..15).map(|_| law.note_report(120, 160)).collect();
        assert!(cuts[..14].iter().all(|cut| *cut == Cut::None) && cuts[14] == Cut::Further);
        assert!(close(law.period, 20.25e-6));
        assert_eq!(law.note_report(151, 160), Cut::First);
    }

    #[test]
    fn the_releases_bounds_are_put_on_by_a_raise_and_not_by_a_cut() {
        let mut law = Release::new(990e-6, 0.2);
        assert_eq!(law.note_report(100, 150), Cut::First);
        assert!(close(law.period, 1_113.75e-6));
        law.end_round(0.01);
        assert!(close(law.period, 1_113.75e-6), "no raise, no bound");
        law.end_round(0.0);
        assert_eq!(law.period, LONGEST);
        let mut law = Release::new(10.001e-6, 0.2);
        law.end_round(0.0);
        assert_eq!(law.period, SHORTEST);
    }

    #[test]
    fn the_release_adds_ten_packets_to_ten_thousand_and_holds_above_the_limit() {
        let mut law = Release::new(20e-6, 0.2);
        law.end_round(0.0);
        // 10,000 packets a round and, 10^4 / 1000 being 10, ten more.
        assert!(close(0.2 / law.period, 10_010.0));
        let before = law.period;
        law.end_round(0.0012);
        assert_eq!(law.period, before);
        assert!(close(law.smoothed, 0.00108));
    }

    #[test]
    fn rounds_by_the_clock_shrink_the_gap_by_a_hundredth_and_lengthen_it_after_loss() {
        let packet = Bytes(1_500);
        let mut law = Sabul::new(Rate::from_mbps(500), Rate::from_mbps(1_000));
        let mut counts = Counts::default();
        let at = |n: u64| Time::ZERO + ROUND * n;
        law.handle_counts(at(0), &counts, packet);
        assert_eq!(law.rate(packet), Rate::from_mbps(500));
        counts.received += 8_000;
        law.handle_counts(at(0) + Span::from_millis(199), &counts, packet);
        assert_eq!(law.rate(packet), Rate::from_mbps(500), "the round is not over");
        law.handle_counts(at(1), &counts, packet);
        // 12 us * 0.99 beside the 12 us of eq. 5.
        assert!((law.rate(packet).as_f64() - 12_000.0 / 23.88e-6).abs() < 1.0);
        law.handle_counts(at(2), &counts, packet);
        assert!((law.rate(packet).as_f64() - 12_000.0 / 23.88e-6).abs() < 1.0, "nothing came");
        counts = Counts { received: counts.received + 899, lost: 101 };
        law.handle_counts(at(3), &counts, packet);
        // 11.88 us * (1 + 0.1 * 0.1) + 0.5 us.
        assert!((law.rate(packet).as_f64() - 12_000.0 / 24.4988e-6).abs() < 1.0);
    }
}
