//! Draws that follow from a seed: SplitMix64, Steele, Lea and Flood 2014.
//!
//! For queues that drop by chance and sources that come and go. The same seed gives the same draws
//! on every machine; nothing here is for keys.

/// A generator of numbers that look random.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The generator of `seed`.
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// Even between zero and one, one excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // 53 bits, all that a double holds.
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with this mean: times between the events of a Poisson process.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_means_of_their_kinds_and_follow_from_the_seed() {
        let mut draw = Draw::new(1);
        let units: f64 = (0..100_000).map(|_| draw.unit()).sum();
        assert!((units / 100_000.0 - 0.5).abs() < 0.005);
        let times: f64 = (0..100_000).map(|_| draw.exponential(3.0)).sum();
        assert!((times / 100_000.0 - 3.0).abs() < 0.05);
        assert_eq!(Draw::new(7).unit(), Draw::new(7).unit());
        assert_ne!(Draw::new(7).unit(), Draw::new(8).unit());
    }
}
