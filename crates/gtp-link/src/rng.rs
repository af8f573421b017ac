//! A small seeded generator and integer chances.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, 2019) seeded by SplitMix64 (Steele, Lea and
//! Flood, 2014): 20 lines, no floating point, the same draws on every machine. It is not for keys.

/// A seeded generator of numbers that look random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed`; every seed is as good as any other.
    pub fn new(seed: u64) -> Rng {
        let mut state = [0; 4];
        let mut at = seed;
        for word in &mut state {
            at = at.wrapping_add(GOLDEN_GAMMA);
            *word = mix(at);
        }
        Rng { state }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number in `0..bound`, zero if `bound` is zero. The bias, at most `bound / 2^64`, is far
    /// below what any run could notice.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Whether an event of this `chance` happens. Chances of zero and of one draw nothing.
    pub fn happens(&mut self, chance: Chance) -> bool {
        match chance {
            Chance::NEVER => false,
            Chance::ALWAYS => true,
            Chance(billionths) => self.below(BILLION as u64) < billionths as u64,
        }
    }
}

/// A probability in billionths, from zero to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Chance(u32);

impl Chance {
    /// Probability zero.
    pub const NEVER: Chance = Chance(0);
    /// Probability one.
    pub const ALWAYS: Chance = Chance(BILLION);

    /// `n` billionths, at most one.
    pub const fn from_billionths(n: u32) -> Chance {
        Chance(if n > BILLION { BILLION } else { n })
    }

    /// `n` per cent, at most one.
    pub const fn from_percent(n: u32) -> Chance {
        Chance::from_billionths(n.saturating_mul(BILLION / 100))
    }

    /// Billionths.
    pub const fn as_billionths(self) -> u32 {
        self.0
    }
}

/// A number that depends on `seed` and `index` alone, as if drawn: for values that must be found
/// again without keeping them.
pub(crate) fn hashed(seed: u64, index: u64) -> u64 {
    mix(mix(seed ^ GOLDEN_GAMMA).wrapping_add(index.wrapping_mul(GOLDEN_GAMMA)))
}

/// SplitMix64's output function.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SplitMix64's step: 2^64 over the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
const BILLION: u32 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
    }

    #[test]
    fn a_one_per_cent_chance_happens_in_one_per_cent_of_a_million_draws() {
        let mut rng = Rng::new(1);
        let hits = (0..1_000_000).filter(|_| rng.happens(Chance::from_percent(1))).count();
        assert!((9_700..10_300).contains(&hits), "{hits}");
    }

    #[test]
    fn never_and_always_hold_without_a_draw() {
        let mut rng = Rng::new(3);
        let untouched = rng.clone();
        assert!(!rng.happens(Chance::NEVER) && rng.happens(Chance::ALWAYS));
        assert_eq!(rng, untouched);
    }
}
