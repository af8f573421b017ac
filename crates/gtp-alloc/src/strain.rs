//! What all sessions lose alike, their host cannot carry: its capacity comes down (thesis X.3.D).
//!
//! Where some lose and others do not, paths are to blame, and the sessions see to that themselves.
//! Where every one loses at once, look after look, while most of the capacity is in use, the host
//! was said to carry more than it does: then no more is shared out than what came through. Whether
//! it carries more by now is tried from below, after a wait that doubles each time that it does
//! not. What sessions say of their losses is believed only as far as all of them agree; who looks
//! is not known here.

use crate::{Bytes, Rate, Span};

/// What the sessions of one direction went through since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    /// Sessions that moved enough to tell.
    pub moving: usize,
    /// Of them, those that lost more than [`LOSING`] of their packets.
    pub losing: usize,
    /// What all of them together brought through, none more than it was granted.
    pub through: Bytes,
}

/// The limit that losses put on one direction.
#[derive(Clone, Debug)]
pub struct Strain {
    /// Unlimited while there is none.
    limit: Rate,
    /// What came through in the looks in a row in which all lost, and how long they took.
    bad: (u32, Bytes, Span),
    /// What was shared out when the limit fell last.
    failed: Rate,
    /// The time without such losses since then, and how much of it passes before the limit rises.
    stood: Span,
    wait: Span,
}

/// Time between two looks: what sessions report is up to 100 ms old.
pub const LOOK: Span = Span::from_millis(250);
/// A session that lost more than this part of its packets is losing.
pub const LOSING: f64 = 0.005;
/// A session has to move so many packets between two looks for its losses to count.
pub const PACKETS_LEAST: u64 = 64;
/// One session alone cannot tell its host from its path.
const MOVING_LEAST: usize = 2;
/// Looks in a row in which all lose before anything is done: one may be an accident outside, and
/// reports of one look may be late.
const BAD_LOOKS: u32 = 2;
/// Losses are the host's only while so much of what it shares out comes through.
const IN_USE: f64 = 0.75;
/// Of what came through, this part is shared out.
const KEPT: f64 = 0.98;
/// Without such losses the limit rises by this in every [`LOOK`], once it has stood for its wait.
const RISE: f64 = 1.01;
/// The wait at first and at most. Each trial costs about one part in a hundred of a second's data.
const WAIT: Span = Span::from_secs(1);
const WAIT_MOST: Span = Span::from_secs(32);
/// A limit that falls within this part of where it fell last has met the same obstacle.
const SAME: f64 = 1.05;
/// So many waits after its last fall a limit meets another obstacle, even there.
const SOON: u64 = 4;
/// The limit is never below this part of the capacity.
const LEAST: f64 = 1.0 / 16.0;

impl Default for Strain {
    fn default() -> Strain {
        Strain {
            limit: Rate::UNLIMITED,
            bad: (0, Bytes::ZERO, Span::ZERO),
            failed: Rate::ZERO,
            stood: Span::ZERO,
            wait: WAIT,
        }
    }
}

impl Strain {
    /// What there is to share out of `capacity`, after a look at its sessions `span` after the last
    /// one. A capacity that nobody knows stays so: how much of it is in use cannot be told.
    pub fn look(&mut self, capacity: Rate, span: Span, toll: Toll) -> Rate {
        if capacity.is_unlimited() {
            *self = Strain::default();
            return capacity;
        }
        if toll.moving < MOVING_LEAST || toll.losing < toll.moving {
            self.bad = Strain::default().bad;
            self.rise(capacity, span);
            return capacity.min(self.limit);
        }
        let (looks, through, time) = self.bad;
        self.bad = (looks + 1, Bytes(through.0.saturating_add(toll.through.0)), time + span);
        let (looks, through, time) = self.bad;
        if looks >= BAD_LOOKS {
            self.bad = Strain::default().bad;
            let (rate, shared_out) = (through.per(time), capacity.min(self.limit));
            if rate >= shared_out.scale(IN_USE) {
                self.limit = shared_out.min(rate.scale(KEPT)).max(capacity.scale(LEAST));
                self.fell(shared_out);
            }
        }
        capacity.min(self.limit)
    }

    /// The limit has fallen from what was shared out. A fall before the wait is over ends no trial:
    /// the last fall was not deep enough. One long after it has nothing to do with it.
    fn fell(&mut self, shared_out: Rate) {
        if self.stood > self.wait {
            let soon = self.stood <= self.wait * SOON;
            let same = soon && shared_out <= self.failed.scale(SAME);
            self.wait = if same { (self.wait * 2).min(WAIT_MOST) } else { WAIT };
        }
        (self.failed, self.stood) = (shared_out, Span::ZERO);
    }

    /// Time without such losses: once the wait is over, the limit rises.
    fn rise(&mut self, capacity: Rate, span: Span) {
        let before = self.stood;
        self.stood = before + span;
        if self.limit.is_unlimited() {
            return;
        }
        let risen = self.stood.saturating_sub(self.wait.max(before)).as_secs_f64();
        let raised = self.limit.scale(libm::pow(RISE, risen / LOOK.as_secs_f64()));
        self.limit = if raised < capacity { raised } else { Rate::UNLIMITED };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FULL: Rate = Rate::from_mbps(1_000);

    /// A look in which so many Mbit/s came through.
    fn look(strain: &mut Strain, moving: usize, losing: usize, through: u64) -> Rate {
        let through = Rate::from_mbps(through).bytes_in(LOOK);
        strain.look(FULL, LOOK, Toll { moving, losing, through })
    }

    #[test]
    fn capacity_falls_to_what_came_through_once_all_have_lost_twice_in_a_row() {
        let mut strain = Strain::default();
        assert_eq!(look(&mut strain, 3, 3, 900), FULL);
        let fallen = look(&mut strain, 3, 3, 800);
        assert_eq!(fallen, Rate::from_mbps(850).scale(KEPT), "of both looks together");
        let mut again = Strain::default();
        for losing in [3, 0, 3, 0, 3] {
            assert_eq!(look(&mut again, 3, losing, 900), FULL, "never twice in a row");
        }
    }

    #[test]
    fn some_that_lose_or_one_alone_or_all_of_an_idle_host_change_nothing() {
        let mut strain = Strain::default();
        for _ in 0..10 {
            assert_eq!(look(&mut strain, 5, 4, 900), FULL);
            assert_eq!(look(&mut strain, 1, 1, 900), FULL);
            assert_eq!(look(&mut strain, 0, 0, 0), FULL);
        }
        for _ in 0..10 {
            assert_eq!(look(&mut strain, 2, 2, 700), FULL, "that is their paths");
        }
    }

    #[test]
    fn without_losses_it_comes_back_by_a_hundredth_a_look_after_a_second_until_it_is_whole() {
        let mut strain = Strain::default();
        look(&mut strain, 2, 2, 800);
        let mut last = look(&mut strain, 2, 2, 800);
        assert_eq!(last, Rate::from_mbps(784));
        for _ in 0..4 {
            assert_eq!(look(&mut strain, 2, 0, 700), last, "the wait");
        }
        let mut looks = 0;
        while last < FULL {
            let next = look(&mut strain, 2, 0, 700);
            assert!(next > last && next <= last.scale(1.011), "{last:?} to {next:?}");
            last = next;
            looks += 1;
        }
        assert_eq!(looks, 25, "6 s with four looks a second");
    }

    /// The seconds from one fall to the next of a host that takes 800 Mbit/s, and what is lost.
    fn trials(strain: &mut Strain, falls: usize) -> (Vec<f64>, f64) {
        let (mut spans, mut looks, mut shared_out, mut lost) = (Vec::new(), 0, FULL, 0.0);
        while spans.len() < falls {
            let over = (shared_out.as_f64() / 800e6 - 1.0).max(0.0);
            let losing = if over > LOSING { 2 } else { 0 };
            let next = look(strain, 2, losing, shared_out.as_bps().min(800_000_000) / 1_000_000);
            (looks, lost) = (looks + 1, lost + over);
            if next < shared_out {
                spans.push(f64::from(looks) * LOOK.as_secs_f64());
                looks = 0;
            }
            shared_out = next;
        }
        let looked = spans.iter().sum::<f64>() / LOOK.as_secs_f64();
        (spans, lost / looked)
    }

    #[test]
    fn each_trial_that_meets_the_same_obstacle_comes_after_twice_the_wait_up_to_half_a_minute() {
        let mut strain = Strain::default();
        trials(&mut strain, 1);
        let (spans, _) = trials(&mut strain, 9);
        assert!(spans[1..5].windows(2).all(|two| two[1] > 1.4 * two[0]), "{spans:?}");
        assert!((32.0..36.0).contains(&spans[8]), "{spans:?}");
        let (_, lost) = trials(&mut strain, 4);
        assert!(lost < 0.001, "trials cost {lost} of the data");
    }

    #[test]
    fn an_obstacle_elsewhere_or_long_after_is_tried_again_after_a_second() {
        let fall = |strain: &mut Strain, through: u64| {
            while look(strain, 2, 2, through) >= Rate::from_mbps(through) {}
        };
        let rises_after = |strain: &mut Strain| {
            let low = look(strain, 2, 0, 100);
            1 + (0..).find(|_| look(strain, 2, 0, 100) > low).expect("it rises")
        };
        let mut strain = Strain::default();
        trials(&mut strain, 5);
        while look(&mut strain, 2, 0, 900) < FULL {}
        fall(&mut strain, 900);
        assert_eq!(rises_after(&mut strain), 4, "beyond the old obstacle");
        let mut strain = Strain::default();
        fall(&mut strain, 800);
        look(&mut strain, 0, 0, 0);
        strain.look(FULL, Span::from_secs(600), Toll::default());
        fall(&mut strain, 800);
        assert_eq!(rises_after(&mut strain), 4, "ten minutes later");
    }

    #[test]
    fn time_without_sessions_counts_as_looks_do() {
        let mut strain = Strain::default();
        look(&mut strain, 2, 2, 800);
        assert!(look(&mut strain, 2, 2, 800) < FULL);
        assert_eq!(strain.look(FULL, Span::from_secs(60), Toll::default()), FULL);
    }

    #[test]
    fn sessions_that_go_on_losing_leave_a_sixteenth_and_an_unknown_capacity_stays_unknown() {
        let mut strain = Strain::default();
        let mut shared_out = FULL;
        for _ in 0..100 {
            let through = shared_out.scale(0.8).as_bps() / 1_000_000 + 1;
            shared_out = look(&mut strain, 2, 2, through);
        }
        assert_eq!(shared_out, FULL.scale(LEAST));
        for through in [0, 1 << 40] {
            let toll = Toll { moving: 2, losing: 2, through: Bytes(through) };
            for _ in 0..3 {
                assert!(Strain::default().look(Rate::UNLIMITED, LOOK, toll).is_unlimited());
            }
        }
    }
}
