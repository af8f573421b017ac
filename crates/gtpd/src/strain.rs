//! What all sessions lose alike, their host cannot carry: its capacity comes down (thesis X.3.D).
//!
//! Where some lose and others do not, paths are to blame, and the sessions see to that themselves.
//! Where every one loses at once, look after look, the host was said to carry more than it does:
//! then no more is shared out than what came through. That is tried again from below, slowly.
//! Pure arithmetic, as in [`crate::room`]; what sessions say of their losses is believed only as
//! far as all of them agree.

use gtp_alloc::Rate;

/// What the sessions of one direction went through since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    /// Sessions that moved enough to tell.
    pub moving: usize,
    /// Of them, those that lost more than [`LOSING`] of their packets.
    pub losing: usize,
    /// What all of them together brought through.
    pub through: Rate,
}

/// The limit that losses put on one direction.
#[derive(Clone, Debug)]
pub struct Strain {
    /// Unlimited while there is none.
    limit: Rate,
    bad: u32,
}

/// A session that lost more than this part of its packets is losing.
pub const LOSING: f64 = 0.005;
/// A session has to move so many packets between two looks for its losses to count.
pub const PACKETS_LEAST: u64 = 64;
/// One session alone cannot tell its host from its path.
const MOVING_LEAST: usize = 2;
/// Looks in a row in which all lose before anything is done: one may be an accident outside.
const BAD_LOOKS: u32 = 2;
/// Of what came through, this part is shared out.
const KEPT: f64 = 0.98;
/// Without such losses the limit rises by this with every look.
const RISE: f64 = 1.01;
/// The limit is never below this part of the capacity.
const LEAST: f64 = 1.0 / 16.0;

impl Default for Strain {
    fn default() -> Strain {
        Strain { limit: Rate::UNLIMITED, bad: 0 }
    }
}

impl Strain {
    /// What there is to share out of `capacity`, after a look at its sessions.
    pub fn look(&mut self, capacity: Rate, toll: Toll) -> Rate {
        let all_lose = toll.moving >= MOVING_LEAST && toll.losing == toll.moving;
        self.bad = if all_lose { self.bad + 1 } else { 0 };
        if self.bad >= BAD_LOOKS {
            self.bad = 0;
            let least = if capacity.is_unlimited() { Rate::ZERO } else { capacity.scale(LEAST) };
            self.limit = self.limit.min(toll.through.scale(KEPT)).max(least);
        } else if !all_lose && !self.limit.is_unlimited() {
            let raised = self.limit.scale(RISE);
            self.limit = if raised < capacity { raised } else { Rate::UNLIMITED };
        }
        capacity.min(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Rate = Rate::from_mbps(1_000);

    fn toll(moving: usize, losing: usize, through: u64) -> Toll {
        Toll { moving, losing, through: Rate::from_mbps(through) }
    }

    #[test]
    fn capacity_falls_to_what_came_through_once_all_have_lost_twice_in_a_row() {
        let mut strain = Strain::default();
        assert_eq!(strain.look(FULL, toll(3, 3, 700)), FULL);
        assert_eq!(strain.look(FULL, toll(3, 3, 700)), Rate::from_mbps(686));
        let mut again = Strain::default();
        for losing in [3, 0, 3, 0, 3] {
            assert_eq!(again.look(FULL, toll(3, losing, 700)), FULL, "never twice in a row");
        }
    }

    #[test]
    fn some_that_lose_or_one_alone_change_nothing() {
        let mut strain = Strain::default();
        for _ in 0..10 {
            assert_eq!(strain.look(FULL, toll(5, 4, 300)), FULL);
            assert_eq!(strain.look(FULL, toll(1, 1, 300)), FULL);
            assert_eq!(strain.look(FULL, toll(0, 0, 0)), FULL);
        }
    }

    #[test]
    fn without_losses_it_comes_back_by_a_hundredth_a_look_until_it_is_whole() {
        let mut strain = Strain::default();
        strain.look(FULL, toll(2, 2, 500));
        let mut last = strain.look(FULL, toll(2, 2, 500));
        assert_eq!(last, Rate::from_mbps(490));
        let mut looks = 0;
        while last < FULL {
            let next = strain.look(FULL, toll(2, 0, 490));
            assert!(next > last && next <= last.scale(1.011), "{last:?} to {next:?}");
            last = next;
            looks += 1;
        }
        assert_eq!(looks, 72, "18 s with four looks a second");
    }

    #[test]
    fn sessions_that_say_that_nothing_came_through_leave_a_sixteenth() {
        let mut strain = Strain::default();
        for _ in 0..20 {
            strain.look(FULL, toll(2, 2, 0));
        }
        assert_eq!(strain.look(FULL, toll(2, 2, 0)), FULL.scale(LEAST));
        let mut unknown = Strain::default();
        unknown.look(Rate::UNLIMITED, toll(2, 2, 100));
        let limit = unknown.look(Rate::UNLIMITED, toll(2, 2, 100));
        assert_eq!(limit, Rate::from_mbps(98), "a capacity that nobody knows is found");
    }
}
