//! What a drawn world consists of, and the least time in which it could be over.
//!
//! A plan is a function of its seed alone. This module must not know how a world runs.

use gtp_alloc::{Span, Time};

/// A random number generator (SplitMix64), so that a world is a function of its seed.
#[derive(Clone, Copy, Debug)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

/// What a sink does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// What it should.
    Honest,
    /// The same, and it can send only a fiftieth of what it can receive.
    Slow,
    /// It ends at this time; with it go its connections, or they fall silent.
    Dies { at: Time, silently: bool },
    /// It says that it has blocks which it has not, and gives something else for any that is asked
    /// of it; or it says twice that it has a block.
    Lies { twice: bool },
    /// It says what it has, and never gives any of it.
    Withholds,
}

impl Nature {
    /// Whether it is to have everything in the end.
    pub fn is_honest(self) -> bool {
        match self {
            Nature::Honest | Nature::Slow => true,
            Nature::Dies { .. } | Nature::Lies { .. } | Nature::Withholds => false,
        }
    }
}

/// A sink as it is drawn. Capacities are in bit/s.
#[derive(Clone, Debug)]
pub struct SinkPlan {
    pub nature: Nature,
    pub capacity_in: f64,
    pub capacity_out: f64,
    /// From here to the middle of the network.
    pub delay: Span,
}

/// What a world consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub blocks: u64,
    pub source_out: f64,
    pub source_delay: Span,
    pub sinks: Vec<SinkPlan>,
}

/// Bits of a block.
pub const BLOCK_BITS: f64 = gtp_store::BLOCK as f64 * 8.0;

impl Plan {
    /// Two to eight sinks, of which one at least is honest and can give, and perhaps one each that
    /// dies, lies, withholds, or is slow.
    pub fn drawn(seed: u64) -> Plan {
        let mut dice = Dice(seed);
        let mbps = |dice: &mut Dice, least, most| dice.between(least, most) as f64 * 1e6;
        let count = dice.between(2, 8) as usize;
        let blocks = dice.between(40, 400);
        let source_out = mbps(&mut dice, 50, 1_000);
        let source_delay = Span::from_millis(dice.between(1, 30));
        let mut sinks: Vec<SinkPlan> = (0..count)
            .map(|_| {
                let capacity_in = mbps(&mut dice, 40, 400);
                // Most hosts send as much as they receive.
                let capacity_out =
                    if dice.below(3) > 0 { capacity_in } else { mbps(&mut dice, 40, 400) };
                let delay = Span::from_millis(dice.between(1, 60));
                SinkPlan { nature: Nature::Honest, capacity_in, capacity_out, delay }
            })
            .collect();
        let dies_at = Time::ZERO + Span::from_millis(dice.below(10_000));
        let (silently, twice) = (dice.below(2) == 0, dice.below(4) == 0);
        let natures =
            [Nature::Slow, Nature::Dies { at: dies_at, silently }, Nature::Lies { twice }];
        let mut next = 1;
        for nature in natures.into_iter().chain([Nature::Withholds]) {
            if dice.below(3) == 0 && next < count {
                sinks[next].nature = nature;
                next += 1;
            }
        }
        for sink in sinks.iter_mut().filter(|sink| sink.nature == Nature::Slow) {
            sink.capacity_out = sink.capacity_in / 50.0;
        }
        // Which place is whose plays no part.
        for place in 0..count {
            sinks.swap(place, dice.below(count as u64) as usize);
        }
        Plan { seed, blocks, source_out, source_delay, sinks }
    }

    /// The same with honest sinks that can send as much as they can receive.
    pub fn of_equals(seed: u64) -> Plan {
        let mut plan = Plan::drawn(seed);
        for sink in &mut plan.sinks {
            (sink.nature, sink.capacity_out) = (Nature::Honest, sink.capacity_in);
        }
        plan
    }

    /// The least time in which all honest sinks could have everything, in seconds, whatever the
    /// others do: the slowest must receive it, the source must send it once, and source and honest
    /// sinks together must send what these receive. Rates are fluid, and nothing is late.
    pub fn best_seconds(&self) -> f64 {
        let honest = || self.sinks.iter().filter(|sink| sink.nature.is_honest());
        let bits = self.blocks as f64 * BLOCK_BITS;
        let slowest = honest().map(|sink| sink.capacity_in).fold(f64::INFINITY, f64::min);
        let out = self.source_out + honest().map(|sink| sink.capacity_out).sum::<f64>();
        let all = bits * honest().count() as f64 / out;
        (bits / slowest).max(bits / self.source_out).max(all)
    }

    /// Time for a message from one place to another; the source is the place after the last.
    pub fn delay(&self, from: usize, to: usize) -> Span {
        let of = |place: usize| self.sinks.get(place).map_or(self.source_delay, |sink| sink.delay);
        of(from) + of(to)
    }
}
