//! The common advertised rate, thesis II.5.E, after Charny's consistent marking (1995) and the
//! generalised max-min of Hou, Tzeng and Panwar (1998).
//!
//! | rule | source | where |
//! |---|---|---|
//! | a session says what it wants, a switch at most its rate | Charny; thesis, II.5.E | [`Cell`] |
//! | whoever wants less is marked; the rate is the rest | Charny; thesis, II.5.E | [`rate_for`] |
//! | the same with demands, as generalised max-min | Hou, Tzeng and Panwar | [`rate_for`] |
//! | a switch remembers what each session said last | Charny | [`Switch`] |
//! | until it falls silent | ours | [`Switch`] |
//! | the source sends at the lesser of demand and what came back | Charny | [`Source`], [`Sink`] |
//!
//! The one idea: one number per switch, from which max-min follows. The thesis's objection, table
//! II.2: that number is a licence to everyone, and when those that wanted less want more, all use
//! it at once.
//!
//! Unlike the other routers here a switch keeps state per session; that is the scheme. Departure:
//! a switch learns what those before it allow, not what those behind it do (in ATM the cells that
//! come back tell it); the thesis's example has one.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Rate, Span, Time};

use crate::{Admission, Note, Packet, Router};

mod ends;

pub use ends::{ECHO, Message, Sink, Source};

/// The most sessions that a switch remembers; those beyond are told the rate but not counted.
pub const SESSIONS_MAX: usize = 1 << 16;

/// Sources speak ten times a second and, by control packets, each round trip and after a tenth of
/// a second and two round trips if nothing came: whoever was not heard of for this long has gone.
pub(crate) const FORGOTTEN: Span = Span::from_secs(1);

/// What a packet carries for switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Whose packet it is.
    pub session: u32,
    /// What the session wants.
    pub wanted: Rate,
    /// What the way allows: unlimited at first, lowered by each switch to what it advertises.
    pub rate: Rate,
}

/// The advertised rate of a link of `capacity` whose sessions want these rates: what is left by
/// the sessions that want less than it, over the number of the others; if all want less, what the
/// greediest could have.
#[must_use]
pub fn rate_for(capacity: Rate, wanted: &[Rate]) -> Rate {
    let mut wanted = wanted.to_vec();
    wanted.sort_unstable();
    let mut left = capacity.as_bps();
    for (marked, want) in wanted.iter().enumerate() {
        // Thesis, II.5.E: spare capacity over the sessions that are not marked.
        let share = left / (wanted.len() - marked) as u64;
        if want.as_bps() >= share {
            return Rate::from_bps(share);
        }
        left -= want.as_bps();
    }
    Rate::from_bps(left).saturating_add(wanted.last().copied().unwrap_or(Rate::ZERO))
}

/// What a switch knows of a session.
#[derive(Clone, Copy, Debug)]
struct Known {
    wanted: Rate,
    heard: Time,
}

/// The controller of one link, or of one node. It forgets who has been silent for a second.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    capacity: Rate,
    sessions: BTreeMap<u32, Known>,
}

impl Switch {
    /// A switch that waits for its link's capacity.
    #[must_use]
    pub fn new() -> Switch {
        Switch::default()
    }

    /// The rate that every session is told.
    #[must_use]
    pub fn advertised(&self) -> Rate {
        let wanted: Vec<Rate> = self.sessions.values().map(|known| known.wanted).collect();
        rate_for(self.capacity, &wanted)
    }

    fn remember(&mut self, now: Time, cell: Cell) {
        self.sessions.retain(|_, known| now.since(known.heard) < FORGOTTEN);
        if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&cell.session) {
            // What switches before this one do not allow is not wanted here.
            let wanted = cell.wanted.min(cell.rate); // Hou, Tzeng and Panwar.
            self.sessions.insert(cell.session, Known { wanted, heard: now });
        }
    }
}

impl Router for Switch {
    fn set_capacity(&mut self, _now: Time, capacity: Rate) {
        self.capacity = capacity;
    }

    fn handle_arrival(&mut self, now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        if let Note::Advertised(cell) = &mut packet.note {
            self.remember(now, *cell);
            cell.rate = cell.rate.min(self.advertised()); // Charny.
        }
        Admission::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use proptest::prelude::*;

    #[test]
    fn table_ii_2_advertises_seven_tenths_and_risks_28_tenths() {
        let capacity = Rate::from_mbps(1_000);
        let wanted = [1_000, 100, 100, 100].map(Rate::from_mbps);
        let advertised = rate_for(capacity, &wanted);
        assert_eq!(advertised, Rate::from_mbps(700));
        let now = wanted.map(|want| want.min(advertised));
        assert_eq!(now, [700, 100, 100, 100].map(Rate::from_mbps));
        // All want everything now, and none has heard anything new.
        let sum: u64 = [capacity; 4].iter().map(|want| want.min(&advertised).as_bps()).sum();
        assert_eq!(Rate::from_bps(sum), Rate::from_mbps(2_800));
    }

    #[test]
    fn a_switch_tells_all_the_same_and_never_more_than_the_way_before_it() {
        let mut switch = Switch::new();
        switch.set_capacity(Time::ZERO, Rate::from_mbps(100));
        let mut told = |at, session, wanted| {
            let note = Note::Advertised(Cell { session, wanted, rate: Rate::from_mbps(95) });
            let mut packet = Packet { size: Bytes(1_000), body: Body::Empty, note };
            let now = Time::ZERO + Span::from_millis(at);
            switch.handle_arrival(now, Bytes::ZERO, &mut packet);
            match packet.note {
                Note::Advertised(cell) => cell.rate,
                other => panic!("the note became {other:?}"),
            }
        };
        assert_eq!(told(0, 1, Rate::UNLIMITED), Rate::from_mbps(95));
        assert_eq!(told(0, 2, Rate::UNLIMITED), Rate::from_mbps(50));
        assert_eq!(told(0, 2, Rate::from_mbps(10)), Rate::from_mbps(90), "not what it wants");
        assert_eq!(told(999, 1, Rate::UNLIMITED), Rate::from_mbps(90));
        assert_eq!(told(1_000, 1, Rate::UNLIMITED), Rate::from_mbps(95), "the second has gone");
    }

    #[test]
    fn what_a_switch_before_does_not_allow_is_left_to_others() {
        let (mut narrow, mut wide) = (Switch::new(), Switch::new());
        narrow.set_capacity(Time::ZERO, Rate::from_mbps(20));
        wide.set_capacity(Time::ZERO, Rate::from_mbps(100));
        let note = |session| {
            let cell = Cell { session, wanted: Rate::UNLIMITED, rate: Rate::UNLIMITED };
            Packet { size: Bytes(1_000), body: Body::Empty, note: Note::Advertised(cell) }
        };
        let mut long = note(1);
        narrow.handle_arrival(Time::ZERO, Bytes::ZERO, &mut long);
        wide.handle_arrival(Time::ZERO, Bytes::ZERO, &mut long);
        wide.handle_arrival(Time::ZERO, Bytes::ZERO, &mut note(2));
        assert_eq!(wide.advertised(), Rate::from_mbps(80));
    }

    #[test]
    fn an_idle_switch_advertises_its_capacity() {
        assert_eq!(rate_for(Rate::from_mbps(5), &[]), Rate::from_mbps(5));
        assert_eq!(rate_for(Rate::ZERO, &[Rate::UNLIMITED]), Rate::ZERO);
        assert_eq!(rate_for(Rate::UNLIMITED, &[Rate::UNLIMITED; 3]).as_bps(), u64::MAX / 3);
    }

    proptest! {
        #[test]
        fn what_sessions_may_use_is_max_min_over_one_link(
            capacity in 1_u64..1_000_000_000_000,
            wanted in prop::collection::vec(0_u64..1_000_000_000_000, 1..20),
        ) {
            let rates: Vec<Rate> = wanted.iter().map(|want| Rate::from_bps(*want)).collect();
            let advertised = rate_for(Rate::from_bps(capacity), &rates).as_bps();
            let used: u64 = wanted.iter().map(|want| (*want).min(advertised)).sum();
            let sum: u64 = wanted.iter().sum();
            prop_assert!(used <= capacity);
            // Full to the last bit that divides, or everyone content.
            prop_assert!(used + (wanted.len() as u64) > capacity.min(sum));
        }
    }
}
