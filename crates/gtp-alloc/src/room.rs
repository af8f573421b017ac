//! Room for others: what an interface carries that is not GTP's keeps its place (thesis VIII.1.B).
//!
//! The interface counts all bytes, the sessions count theirs; the difference is other people's.
//! Their part is taken from the capacity, with a quarter more so that it can grow, as soon as it
//! is seen in two looks in a row, and given back when it is gone. A reserve is theirs always.
//! Pure arithmetic: who reads the counters, and when, is not known here. The daemon looks at a real
//! interface with it, the simulator at a modelled one.

use crate::{Bytes, Rate, Span};

/// The capacity of one direction beside other traffic.
#[derive(Clone, Debug)]
pub struct Room {
    full: Rate,
    reserve: Rate,
    last: Option<(Bytes, Bytes)>,
    seen: [Rate; 2],
}

/// Interface bytes for each of a session's: frame headers of 14 bytes on packets of some 1,500, and
/// requests.
const OVERHEAD: f64 = 1.03;
/// Less than this part of the capacity, or of what sessions move, is not told from noise.
const NOISE: f64 = 0.05;
/// What others have may grow by this.
const GROWTH: f64 = 1.25;
/// What is left for them without a reserve is at most this part: traffic that takes all it can get
/// would else end up with everything.
const OTHERS_MOST: f64 = 0.5;

impl Room {
    /// A direction of `full` capacity of which `reserve` is always left to others.
    pub fn new(full: Rate, reserve: Rate) -> Room {
        Room { full, reserve, last: None, seen: [Rate::ZERO; 2] }
    }

    /// The capacity after a look `span` after the last one, at which the interface had carried
    /// `all` bytes in its life and sessions `own`, and sessions may have `said` so much since the
    /// last one beside what they moved: what they said hides as much of others' traffic.
    pub fn look(&mut self, span: Span, all: Bytes, own: Bytes, said: Bytes) -> Rate {
        let last = self.last.replace((all, own));
        if let Some((all_before, own_before)) = last {
            // Counters that go back belong to an interface that was made anew.
            let all = Bytes(all.0.saturating_sub(all_before.0)).per(span);
            // The sessions' sum wraps.
            let own = Bytes(own.0.wrapping_sub(own_before.0)).per(span);
            let said = said.per(span);
            let others = (all.as_f64() - own.as_f64() * OVERHEAD - said.as_f64()).max(0.0);
            let full = if self.full.is_unlimited() { 0.0 } else { self.full.as_f64() };
            let noise = NOISE * own.as_f64().max(full);
            let others = if others > noise { Rate::from_f64(others) } else { Rate::ZERO };
            self.seen = [others, self.seen[0]];
        }
        self.capacity()
    }

    /// The capacity now; unlimited stays unlimited.
    pub fn capacity(&self) -> Rate {
        let others = self.seen[0].min(self.seen[1]).scale(GROWTH);
        let left = others.min(self.full.scale(OTHERS_MOST)).max(self.reserve);
        self.full.saturating_sub(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strain::LOOK;

    /// Looks at a world in which others and sessions move so many Mbit/s.
    fn look(room: &mut Room, sums: &mut (u64, u64), own: u64, others: u64) -> u64 {
        let bytes = |mbps: u64| Rate::from_mbps(mbps).bytes_in(LOOK).0;
        sums.0 += bytes(own + others);
        sums.1 += bytes(own);
        room.look(LOOK, Bytes(sums.0), Bytes(sums.1), Bytes::ZERO).as_bps() / 1_000_000
    }

    #[test]
    fn what_slow_sessions_say_beside_their_data_is_no_other_traffic_and_hides_none() {
        let full = Rate::from_mbps(50);
        let mut room = Room::new(full, Rate::ZERO);
        let (mut all, mut own) = (0, 0);
        let mut look = |others: Rate, said: Rate| {
            own += Rate::from_mbps(46).bytes_in(LOOK).0;
            let said = said.bytes_in(LOOK);
            all += full.bytes_in(LOOK).0 + others.bytes_in(LOOK).0;
            room.look(LOOK, Bytes(all), Bytes(own), said)
        };
        for _ in 0..4 {
            assert_eq!(look(Rate::ZERO, Rate::from_mbps(5)), full);
        }
        look(Rate::from_mbps(10), Rate::from_mbps(5));
        let with = look(Rate::from_mbps(10), Rate::from_mbps(5));
        assert!((38..42).contains(&(with.as_bps() / 1_000_000)), "{with}");
    }

    #[test]
    fn others_get_their_place_after_two_looks_and_give_it_back_after_one() {
        let mut room = Room::new(Rate::from_mbps(1_000), Rate::ZERO);
        let mut sums = (0, 0);
        assert_eq!(look(&mut room, &mut sums, 900, 0), 1_000);
        assert_eq!(look(&mut room, &mut sums, 900, 0), 1_000);
        assert_eq!(look(&mut room, &mut sums, 800, 200), 1_000);
        let with = look(&mut room, &mut sums, 800, 200);
        assert!((750..790).contains(&with), "{with}: 200 and a quarter, less what noise may be");
        assert_eq!(look(&mut room, &mut sums, 750, 0), 1_000);
    }

    #[test]
    fn a_moment_in_which_reports_are_late_is_no_other_traffic() {
        let mut room = Room::new(Rate::from_mbps(1_000), Rate::ZERO);
        let mut sums = (0, 0);
        look(&mut room, &mut sums, 900, 0);
        assert_eq!(look(&mut room, &mut sums, 700, 200), 1_000);
        assert_eq!(look(&mut room, &mut sums, 900, 0), 1_000);
        assert_eq!(look(&mut room, &mut sums, 900, 40), 1_000);
        assert_eq!(look(&mut room, &mut sums, 900, 40), 1_000, "4 % are noise");
    }

    #[test]
    fn a_reserve_is_always_left_and_others_never_take_more_than_half() {
        let mut room = Room::new(Rate::from_mbps(1_000), Rate::from_mbps(100));
        let mut sums = (0, 0);
        assert_eq!(look(&mut room, &mut sums, 0, 0), 900);
        for _ in 0..3 {
            look(&mut room, &mut sums, 100, 900);
        }
        assert_eq!(room.capacity(), Rate::from_mbps(500));
        assert!(Room::new(Rate::UNLIMITED, Rate::from_mbps(1)).capacity().is_unlimited());
    }
}
