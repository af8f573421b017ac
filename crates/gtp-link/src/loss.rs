//! Which packets a wire loses: independently, in bursts, or both.
//!
//! The process sees packets in their order on the wire and nothing of them, so that what is lost
//! follows from the seed and the number of packets alone.

use crate::rng::{Chance, Rng};
use crate::spec::Burst;

/// The loss process of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    random: Chance,
    burst: Option<Burst>,
    mood: Mood,
}

/// The state of the two-state model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Good,
    Bad,
}

impl Loss {
    /// Independent losses of chance `random`, and bursts if given; it begins in the good state.
    pub fn new(random: Chance, burst: Option<Burst>) -> Loss {
        Loss { random, burst, mood: Mood::Good }
    }

    /// Replaces the chance of independent losses.
    pub fn set_random(&mut self, random: Chance) {
        self.random = random;
    }

    /// Whether the next packet is lost.
    pub fn strikes(&mut self, rng: &mut Rng) -> bool {
        let random = rng.happens(self.random);
        let burst = match self.burst {
            None => false,
            Some(burst) => self.step(burst, rng),
        };
        random || burst
    }

    fn step(&mut self, burst: Burst, rng: &mut Rng) -> bool {
        self.mood = match self.mood {
            Mood::Good if rng.happens(burst.enter) => Mood::Bad,
            Mood::Bad if rng.happens(burst.leave) => Mood::Good,
            Mood::Good => Mood::Good,
            Mood::Bad => Mood::Bad,
        };
        match self.mood {
            Mood::Good => false,
            Mood::Bad => rng.happens(burst.loss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_mean_length_and_share_of_the_two_state_model() {
        let burst = Burst {
            enter: Chance::from_billionths(10_000_000),
            leave: Chance::from_percent(10),
            loss: Chance::ALWAYS,
        };
        let (mut loss, mut rng) = (Loss::new(Chance::NEVER, Some(burst)), Rng::new(5));
        let (mut lost, mut bursts, mut before) = (0, 0, false);
        for _ in 0..1_000_000 {
            let now = loss.strikes(&mut rng);
            lost += i32::from(now);
            bursts += i32::from(now && !before);
            before = now;
        }
        // Share bad: 0.01 / (0.01 + 0.1) = 9.09 %; mean length: 1 / 0.1 = 10.
        assert!((85_000..97_000).contains(&lost), "{lost}");
        assert!((9..11).contains(&(lost / bursts)), "{lost} in {bursts}");
    }
}
