//! UDT's laws: the packet period, the flow window, and the filters of its measurements.
//!
//! Sources: the thesis, II.5.D (eq. II.14 is the window filter of release 1.x, not the rate law);
//! the released 1.x and 4 for the rest, as noted at each. Periods are seconds, rates are packets a
//! second. It knows no packets and no timers: every input is an argument.
//!
//! | rule | source | where |
//! |---|---|---|
//! | slow start: the window grows by what is acknowledged, until a loss | 1.x, 4 | `note_ack` |
//! | it ends at the rate received | 1.x, 4 | `leave_slow_start` |
//! | window: 0.875 W + 0.125 R (RTT + SYN) | thesis, eq. II.14; 1.x | `note_ack` |
//! | window: R (RTT + SYN) + 16 | 4 | `note_ack` |
//! | no raise while smoothed loss exceeds 1 % | 1.x | `note_ack` |
//! | a SYN without loss: more packets, by what is free | 1.x, 4 | [`addition`], [`raised`] |
//! | after a cut a ninth of the link counts as free at most | 1.x, 4 | `added` |
//! | a loss beyond the last cut: the period times 1.125 | 1.x, 4 | `note_loss` |
//! | further cuts in the same window, at random | 4 | `note_loss` |
//! | rates of arrival and of pairs: the mean near the median | 1.x, 4 | [`Spans`] |

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The interval of rate control, in seconds: SYN.
pub const SYN: f64 = 0.01;

/// Which release decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// 1.x: no raise while the smoothed loss exceeds 1 %; the window is filtered (eq. II.14).
    One,
    /// 4: no gate; the window is what arrives in `RTT + SYN`, and 16.
    #[default]
    Four,
}

/// What an acknowledgement tells, smoothed by the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    /// Packets a second that the receiver gets.
    pub received: f64,
    /// Packets a second that the path's narrowest link could carry.
    pub bandwidth: f64,
    /// Round-trip time in seconds.
    pub rtt: f64,
}

/// UDT's congestion control.
#[derive(Clone, Debug)]
pub struct Law {
    version: Version,
    /// Bits of a packet.
    packet: f64,
    /// Seconds between packets.
    pub period: f64,
    /// Packets that may be unacknowledged.
    pub window: f64,
    most: f64,
    slow_start: bool,
    had_loss: bool,
    smoothed: f64,
    last_cut: Option<u64>,
    /// The period before the last cut.
    period_before: f64,
    /// Loss reports since the last window's cut, that one included, as far as they are looked at.
    reports: f64,
    mean_reports: f64,
    /// Every so many of them cut further.
    every: f64,
    dice: u64,
}

impl Law {
    /// A law for packets of `packet` bytes and windows of at most `most` packets.
    pub fn new(version: Version, packet: u64, most: u64, seed: u64) -> Law {
        Law {
            version,
            packet: packet as f64 * 8.0,
            period: 1e-6,
            window: FIRST_WINDOW,
            most: most as f64,
            slow_start: true,
            had_loss: false,
            smoothed: 0.0,
            last_cut: None,
            period_before: 1e-6,
            reports: 0.0,
            mean_reports: 1.0,
            every: 1.0,
            dice: seed,
        }
    }

    /// Whether no loss was seen and the window not used up yet.
    pub fn is_starting(&self) -> bool {
        self.slow_start
    }

    /// An acknowledgement of `acked` more packets, at most one each SYN. `loss`: what was reported
    /// lost of what was sent since the one before.
    pub fn note_ack(&mut self, acked: u64, loss: f64, m: &Measures) {
        self.smoothed = 0.125 * self.smoothed + 0.875 * loss;
        if self.slow_start {
            self.window += acked as f64;
            if self.window > self.most {
                self.leave_slow_start(m);
            }
            return;
        }
        let arrives = m.received * (m.rtt + SYN);
        self.window = match self.version {
            // Eq. II.14.
            Version::One => 0.875 * self.window + 0.125 * arrives,
            // UDT 4.
            Version::Four => arrives + FIRST_WINDOW,
        };
        self.window = self.window.max(FIRST_WINDOW).min(self.most);
        // UDT 1.x.
        let gated = self.version == Version::One && self.smoothed > GATE;
        if core::mem::take(&mut self.had_loss) || gated {
            return;
        }
        self.period = raised(self.period, self.added(m.bandwidth));
    }

    /// The addition, in packets a SYN.
    fn added(&self, bandwidth: f64) -> f64 {
        let mut free = bandwidth - 1.0 / self.period;
        if self.period > self.period_before && bandwidth / 9.0 < free {
            free = bandwidth / 9.0;
        }
        addition(free, self.packet)
    }

    /// A loss report whose first packet is `first`, when `newest` was the last new one sent.
    pub fn note_loss(&mut self, first: u64, newest: u64, m: &Measures) {
        if self.slow_start {
            self.leave_slow_start(m);
            if m.received > 0.0 {
                return;
            }
        }
        self.had_loss = true;
        if self.last_cut.is_none_or(|cut| first > cut) {
            self.period_before = self.period;
            self.period *= CUT;
            self.mean_reports = libm::ceil(self.mean_reports * 0.875 + self.reports * 0.125);
            self.reports = 1.0;
            self.last_cut = Some(newest);
            self.every = libm::ceil(self.mean_reports * self.draw()).max(1.0);
        } else if self.reports < REPORTS_SEEN {
            self.reports += 1.0;
            if self.reports % self.every == 0.0 {
                self.period *= CUT;
                self.last_cut = Some(newest);
            }
        }
    }

    /// Nothing was heard for long.
    pub fn note_timeout(&mut self, m: &Measures) {
        if self.slow_start {
            self.leave_slow_start(m);
        }
    }

    fn leave_slow_start(&mut self, m: &Measures) {
        self.slow_start = false;
        self.period = if m.received > 0.0 { 1.0 / m.received } else { (m.rtt + SYN) / self.window };
    }

    /// A number in 0..1 (SplitMix64).
    fn draw(&mut self) -> f64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The rate law's addition in packets a SYN, for `free` packets a second of `bits` bits: the next
/// power of ten of the free bit rate, times 1.5e-6 over the packet's bytes, and never less than a
/// byte's worth.
pub fn addition(free: f64, bits: f64) -> f64 {
    let bytes = bits / 8.0;
    if free <= 0.0 {
        return 1.0 / bytes;
    }
    let decade = libm::pow(10.0, libm::ceil(libm::log10(free * bits)));
    (decade * 1.5e-6 / bytes).max(1.0 / bytes)
}

/// The period that sends `added` packets more in a SYN.
pub fn raised(period: f64, added: f64) -> f64 {
    period * SYN / (period * added + SYN)
}

/// The last spans between packets, and the rate that they stand for: the mean of those within a
/// factor of eight of the median.
#[derive(Clone, Debug)]
pub struct Spans {
    spans: VecDeque<f64>,
    most: usize,
}

impl Spans {
    /// Room for `most` spans.
    pub fn new(most: usize) -> Spans {
        Spans { spans: VecDeque::new(), most: most.max(1) }
    }

    /// Takes one in, in seconds.
    pub fn push(&mut self, span: f64) {
        if self.spans.len() == self.most {
            self.spans.pop_front();
        }
        self.spans.push_back(span);
    }

    /// Packets a second; zero unless more than `least` spans are near the median.
    pub fn rate(&self, least: usize) -> f64 {
        let mut sorted: Vec<f64> = self.spans.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let Some(median) = sorted.get(sorted.len() / 2).copied() else { return 0.0 };
        let near = sorted.iter().filter(|s| **s < median * 8.0 && **s > median / 8.0);
        let (count, sum) = near.fold((0, 0.0), |(n, sum), s| (n + 1, sum + s));
        if count > least && sum > 0.0 { f64::from(count as u32) / sum } else { 0.0 }
    }
}

/// The first window, and the margin of version 4's.
const FIRST_WINDOW: f64 = 16.0;
/// A cut makes the period longer by an eighth.
const CUT: f64 = 1.125;
/// Loss reports of one window that may cut, the first included (UDT 4): with all five the rate is
/// 0.55 of what it was.
const REPORTS_SEEN: f64 = 5.0;
/// 1.x's gate.
const GATE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURES: Measures = Measures { received: 40_000.0, bandwidth: 83_333.0, rtt: 0.058 };

    fn started(version: Version) -> Law {
        let mut law = Law::new(version, 1_500, 25_600, 1);
        law.note_loss(10, 50, &MEASURES);
        law
    }

    #[test]
    fn the_addition_is_a_power_of_ten_of_what_is_free() {
        // 300 Mbit/s free: 10^9 * 1.5e-6 / 1500 = one packet a SYN. 50 Mbit/s: a tenth of that.
        assert!((addition(300e6 / 12_000.0, 12_000.0) - 1.0).abs() < 1e-12);
        assert!((addition(50e6 / 12_000.0, 12_000.0) - 0.1).abs() < 1e-12);
        assert_eq!(addition(-5.0, 12_000.0), 1.0 / 1_500.0);
        // One packet more in 10 ms: 833.3 become 834.3.
        assert!((SYN / raised(12e-6, 1.0) - (SYN / 12e-6 + 1.0)).abs() < 1e-9);
    }

    #[test]
    fn the_first_loss_ends_the_start_at_the_rate_received() {
        let law = started(Version::Four);
        assert!(!law.is_starting());
        assert_eq!(law.period, 1.0 / 40_000.0);
    }

    #[test]
    fn a_later_loss_lengthens_the_period_by_an_eighth_once_a_window() {
        let mut law = started(Version::Four);
        law.note_loss(60, 100, &MEASURES);
        let cut = law.period;
        assert!((cut * 40_000.0 - 1.125).abs() < 1e-12);
        // After the cut no raise until an acknowledgement without loss, then at most a ninth of the
        // link: 83,333 / 9 packets are 111 Mbit/s, one packet a SYN.
        law.note_ack(10, 0.0, &MEASURES);
        assert_eq!(law.period, cut);
        law.note_ack(10, 0.0, &MEASURES);
        assert!((SYN / law.period - (SYN * 40_000.0 / 1.125 + 1.0)).abs() < 1e-6);
    }

    #[test]
    fn after_a_cut_four_more_reports_of_the_window_are_looked_at_and_no_others() {
        for (every, further) in [(1.0, 4), (2.0, 2), (3.0, 1), (5.0, 1), (6.0, 0), (10.0, 0)] {
            let mut law = started(Version::Four);
            law.note_loss(60, 100, &MEASURES);
            let cut = law.period;
            law.every = every;
            (0..50).for_each(|_| law.note_loss(60, 100, &MEASURES));
            let want = cut * libm::pow(CUT, f64::from(further));
            assert!((law.period / want - 1.0).abs() < 1e-12, "{every}: {}", law.period / cut);
        }
    }

    #[test]
    fn version_one_does_not_raise_above_a_hundredth_of_loss_and_filters_its_window() {
        let mut law = started(Version::One);
        let period = law.period;
        law.note_ack(10, 0.012, &MEASURES);
        assert_eq!(law.period, period);
        // Eq. II.14 from 16: 0.875 * 16 + 0.125 * 40,000 * 0.068.
        assert!((law.window - 354.0).abs() < 1e-9);
        law.note_ack(10, 0.0, &MEASURES);
        assert!(law.period < period);
    }

    #[test]
    fn a_span_far_from_the_median_does_not_count() {
        let mut spans = Spans::new(16);
        (0..9).for_each(|_| spans.push(12e-6));
        spans.push(0.05);
        assert!((spans.rate(8) - 83_333.3).abs() < 0.1);
        assert_eq!(spans.rate(9), 0.0);
    }
}
