//! Background flows: when packets leave that nothing controls.
//!
//! A generator answers one question, when the next packet leaves, from its pattern and its own
//! random numbers. Distributions are drawn by inversion through `libm`, rounded to nanoseconds.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::Rng;

use super::spec::Pattern;

/// The times of one flow's packets.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    pattern: Pattern,
    packet: Bytes,
    rng: Rng,
    /// The on-time under way ends then; [`Time::MAX`] for patterns without. What it leaves of a
    /// packet is sent in the next one, so that short on-times do not round the mean rate up.
    on_until: Time,
    due: Time,
}

impl Generator {
    pub fn new(now: Time, pattern: Pattern, packet: Bytes, seed: u64) -> Generator {
        let mut generator =
            Generator { pattern, packet, rng: Rng::new(seed), on_until: Time::MAX, due: now };
        match pattern {
            Pattern::Constant { .. } => {}
            Pattern::Poisson { .. } => generator.due = now + generator.gap(),
            Pattern::OnOff { .. } | Pattern::ParetoOnOff { .. } => {
                generator.on_until = now;
                generator.rest();
            }
        }
        generator
    }

    /// When the next packet leaves.
    pub fn due(&self) -> Time {
        self.due
    }

    /// A packet left when it was due.
    pub fn sent(&mut self) {
        let gap = self.gap();
        self.due += gap;
        self.rest();
    }

    fn gap(&mut self) -> Span {
        match self.pattern {
            Pattern::Constant { rate } => self.packet / rate,
            Pattern::Poisson { mean } => self.exponential(self.packet / mean),
            Pattern::OnOff { peak, .. } | Pattern::ParetoOnOff { peak, .. } => self.packet / peak,
        }
    }

    /// If the on-time is over when the next packet is due: goes on in the next one.
    fn rest(&mut self) {
        while self.due >= self.on_until && self.on_until < Time::MAX {
            let (off, on) = match self.pattern {
                Pattern::Constant { .. } | Pattern::Poisson { .. } => return,
                Pattern::OnOff { on, off, .. } => (self.exponential(off), self.exponential(on)),
                Pattern::ParetoOnOff { on, off, shape, .. } => {
                    (self.pareto(off, shape), self.pareto(on, shape))
                }
            };
            let left = self.due.since(self.on_until);
            self.due = self.on_until + off + left;
            self.on_until = self.on_until + off + on.max(Span::from_nanos(1));
        }
    }

    fn exponential(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(-libm::log(self.unit()) * mean.as_secs_f64())
    }

    /// Pareto: the least value is `mean (shape - 1) / shape`, the tail falls as `x^-shape`.
    fn pareto(&mut self, mean: Span, shape: f64) -> Span {
        let least = mean.as_secs_f64() * (shape - 1.0) / shape;
        Span::from_secs_f64(least * libm::pow(self.unit(), -1.0 / shape))
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        ((self.rng.next_u64() >> 11) + 1) as f64 / STEPS
    }
}

/// What is wrong with a pattern, if anything is.
pub(crate) fn fault(pattern: &Pattern, packet: Bytes) -> Option<&'static str> {
    let moves = |rate: Rate| rate > Rate::ZERO && !rate.is_unlimited();
    if packet == Bytes::ZERO || packet > PACKET_MOST {
        return Some("a background packet has 1 to 65,535 bytes");
    }
    match *pattern {
        Pattern::Constant { rate } | Pattern::Poisson { mean: rate } if !moves(rate) => {
            Some("a background rate is above zero and finite")
        }
        Pattern::OnOff { peak, .. } | Pattern::ParetoOnOff { peak, .. } if !moves(peak) => {
            Some("a background rate is above zero and finite")
        }
        Pattern::OnOff { on, .. } | Pattern::ParetoOnOff { on, .. } if on == Span::ZERO => {
            Some("a mean on-time is above zero")
        }
        Pattern::ParetoOnOff { shape, .. } if !(shape > 1.0 && shape.is_finite()) => {
            Some("a Pareto shape is above 1")
        }
        Pattern::OnOff { peak, on, .. } if is_short(on, packet, peak) => {
            Some("a packet takes at most 1,000 mean on-times: raise on or the rate")
        }
        // Most of these times are near the least of them, whatever their mean.
        Pattern::ParetoOnOff { peak, on, shape, .. }
            if is_short(pareto_least(on, shape), packet, peak) =>
        {
            Some("a packet takes at most 1,000 of the least on-times: raise on, shape or the rate")
        }
        Pattern::Constant { .. }
        | Pattern::Poisson { .. }
        | Pattern::OnOff { .. }
        | Pattern::ParetoOnOff { .. } => None,
    }
}

/// Whether a packet takes so many on-times that going through them is a long work.
fn is_short(on: Span, packet: Bytes, peak: Rate) -> bool {
    on * ON_TIMES_MOST < packet / peak
}

fn pareto_least(mean: Span, shape: f64) -> Span {
    Span::from_secs_f64(mean.as_secs_f64() * (shape - 1.0) / shape)
}

/// On-times that a packet may take: each is a turn of a loop, a thousand some 50 microseconds.
const ON_TIMES_MOST: u64 = 1_000;
/// The longest packet: IP's.
const PACKET_MOST: Bytes = Bytes(65_535);

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(pattern: Pattern, seconds: u64) -> f64 {
        let mut generator = Generator::new(Time::ZERO, pattern, Bytes(1_000), 5);
        let mut packets = 0u64;
        let mut last = Time::ZERO;
        while generator.due() < Time::ZERO + Span::from_secs(seconds) {
            assert!(generator.due() >= last);
            last = generator.due();
            packets += 1;
            generator.sent();
        }
        packets as f64 * 8_000.0 / seconds as f64
    }

    #[test]
    fn every_pattern_has_the_mean_rate_that_its_parameters_say() {
        let rate = Rate::from_mbps(10);
        let (on, off) = (Span::from_millis(30), Span::from_millis(90));
        assert_eq!(mean(Pattern::Constant { rate }, 100), 10e6);
        let near = |got: f64, wanted: f64, part: f64| {
            assert!((got - wanted).abs() < part * wanted, "{got} for {wanted}");
        };
        near(mean(Pattern::Poisson { mean: rate }, 1_000), 10e6, 0.005);
        near(mean(Pattern::OnOff { peak: rate, on, off }, 2_000), 2.5e6, 0.02);
        let heavy = Pattern::ParetoOnOff { peak: rate, on, off, shape: 2.5 };
        near(mean(heavy, 4_000), 2.5e6, 0.03);
    }

    #[test]
    fn on_times_that_are_tiny_beside_a_packet_are_refused() {
        let (packet, peak) = (Bytes(65_535), Rate::from_bps(1_000));
        let (on, off) = (Span::from_nanos(1), Span::ZERO);
        assert!(fault(&Pattern::OnOff { peak, on, off }, packet).is_some());
        let shape = 1.5;
        assert!(fault(&Pattern::ParetoOnOff { peak, on, off, shape }, packet).is_some());
        // 524.28 s of service: the least that is taken, and a little less.
        let on = Span::from_micros(524_280);
        assert!(fault(&Pattern::OnOff { peak, on, off }, packet).is_none());
        let less = Span::from_micros(524_279);
        assert!(fault(&Pattern::OnOff { peak, on: less, off }, packet).is_some());
        // A mean that is long enough, of times that are nearly all short.
        let shape = 1.001;
        assert!(fault(&Pattern::ParetoOnOff { peak, on, off, shape }, packet).is_some());
        let on = Span::from_secs(600);
        assert!(fault(&Pattern::ParetoOnOff { peak, on, off, shape }, packet).is_none());
    }

    #[test]
    fn patterns_that_would_never_or_always_send_are_refused() {
        let packet = Bytes(1_000);
        let on = Span::from_millis(1);
        let rate = Rate::from_mbps(1);
        assert!(fault(&Pattern::Constant { rate: Rate::ZERO }, packet).is_some());
        assert!(fault(&Pattern::Poisson { mean: Rate::UNLIMITED }, packet).is_some());
        assert!(fault(&Pattern::Constant { rate }, Bytes(0)).is_some());
        for shape in [1.0, f64::NAN, f64::INFINITY] {
            let pattern = Pattern::ParetoOnOff { peak: rate, on, off: on, shape };
            assert!(fault(&pattern, packet).is_some());
        }
        assert!(fault(&Pattern::OnOff { peak: rate, on, off: Span::ZERO }, packet).is_none());
    }
}
