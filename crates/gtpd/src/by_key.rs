//! What clients of this host's servers moved in the last hour, by their keys.
//!
//! Servers tell the keys on their lists apart; so does this, up to a bound for each user and for
//! all, and others count together with strangers. A key that has moved nothing for an hour is
//! forgotten, so that the room goes to those that move. What servers call their clients is kept to
//! be shown to those who may see it.

use std::collections::BTreeMap;

use gtp_alloc::Time;
use gtp_share::{KEYS, KeyView, Label, Posted, Side};

use crate::history::History;
use crate::hub::Right;
use crate::seats::direction;

/// Keys that are told apart at most, with 360 points for each direction: 1.5 MB.
const KEYS_MOST: usize = 256;
/// Of them, those of one user's servers at most: whoever makes keys up takes no more room.
const KEYS_OF_ONE: usize = KEYS_MOST / 2;
/// Users for whom there is a row of those that are not told apart, beside the keys: of others it is
/// not kept, so that whoever can run processes as many users takes no more room.
const OTHERS_MOST: usize = 100;

/// A client of a user's servers; none for all of them that are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Whose {
    uid: u32,
    key: Option<u64>,
}

/// The last hour by key.
#[derive(Debug)]
pub(crate) struct ByKey {
    known: BTreeMap<Whose, Known>,
    history: History<Whose>,
}

/// What is known of a key.
#[derive(Debug)]
struct Known {
    label: Label,
    /// Bytes out and in since it is known.
    moved: [u64; 2],
}

impl ByKey {
    /// Begins at `now`.
    pub fn new(now: Time) -> ByKey {
        ByKey { known: BTreeMap::new(), history: History::new(now) }
    }

    /// A session of a user's process has moved so many bytes.
    pub fn count(&mut self, uid: u32, posted: &Posted, moved: u64) {
        if posted.principal == 0 || moved == 0 {
            return;
        }
        let key = Some(posted.principal).filter(|principal| principal & KEYS != 0);
        let whose = match (Whose { uid, key }, Whose { uid, key: None }) {
            (listed, others) if key.is_some() && !self.has_room(listed) => others,
            (whose, _) => whose,
        };
        if whose.key.is_none() && !self.has_room_for_others(whose) {
            return;
        }
        let none = || Known { label: posted.label, moved: [0; 2] };
        let known = self.known.entry(whose).or_insert_with(none);
        known.label = posted.label;
        let way = match posted.side {
            Side::Source => &mut known.moved[0],
            Side::Sink => &mut known.moved[1],
        };
        *way = way.saturating_add(moved);
    }

    /// Whether this key is known, or may be told apart from others.
    fn has_room(&self, whose: Whose) -> bool {
        let keys = || self.known.keys().filter(|one| one.key.is_some());
        self.known.contains_key(&whose)
            || (keys().count() < KEYS_MOST
                && keys().filter(|one| one.uid == whose.uid).count() < KEYS_OF_ONE)
    }

    /// Whether a user's row of those that are not told apart is there, or may be.
    fn has_room_for_others(&self, whose: Whose) -> bool {
        let others = || self.known.keys().filter(|one| one.key.is_none());
        self.known.contains_key(&whose) || others().count() < OTHERS_MOST
    }

    /// Ends the points that are over, as [`History::turn`]; forgets keys that are idle.
    pub fn turn(&mut self, now: Time) {
        let sides = [Side::Source, Side::Sink];
        let both = |(&whose, known): (&Whose, &Known)| {
            [0, 1].map(|way| (whose, sides[way], known.moved[way]))
        };
        self.history.turn(now, self.known.iter().flat_map(both));
        let idle = self.history.forget_idle();
        self.known.retain(|whose, _| !idle.contains(whose));
    }

    /// The last hour of each key that moved something in it, with the names that `right` allows to
    /// see.
    pub fn view(&self, right: Right) -> Vec<KeyView> {
        let rows = self.history.rows().into_iter().map(|(whose, side, rates)| {
            let Whose { uid, key } = whose;
            let sees = right.sees(uid);
            let label = self.known.get(&whose).map(|known| known.label);
            let label = label.filter(|_| sees && key.is_some());
            KeyView {
                uid,
                key: key.map(|key| format!("{:016x}", key & !KEYS)),
                name: label.map_or_else(String::new, |label| label.name()),
                groups: label.map_or_else(String::new, |label| label.groups()),
                direction: direction(side).to_owned(),
                rates,
            }
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use gtp_alloc::Span;

    use super::*;
    use crate::server::tests::posted;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn of(key: u64, name: &str) -> Posted {
        let label = Label::new("192.0.2.1:9").of_client(name, "lab");
        Posted { principal: key | KEYS, side: Side::Source, label, ..posted(0) }
    }

    #[test]
    fn each_key_has_its_hour_and_its_name_is_for_its_servers_user_and_for_root() {
        let mut keys = ByKey::new(at(0));
        keys.count(7, &of(1, "anna"), 60_000);
        keys.count(7, &of(2, "bert"), 120_000);
        keys.count(7, &Posted { principal: 1 << 32, ..posted(0) }, 30_000);
        keys.count(7, &posted(0), 9_000_000);
        keys.turn(at(10));
        let seen = |right| {
            let rows = keys.view(right).into_iter().map(|row| (row.name, row.groups, row.rates));
            rows.collect::<Vec<_>>()
        };
        let named = [("", "", 24_000), ("anna", "lab", 48_000), ("bert", "lab", 96_000)];
        let named = named.map(|(name, groups, rate)| (name.into(), groups.into(), vec![rate]));
        assert_eq!((seen(Right::Of(7)), seen(Right::Anybodys)), (named.to_vec(), named.to_vec()));
        assert!(
            seen(Right::Of(8)).iter().all(|(name, groups, _)| (name.clone() + groups).is_empty())
        );
        assert_eq!(keys.view(Right::Of(8))[1].key.as_deref(), Some("0000000000000001"));
    }

    #[test]
    fn keys_that_are_made_up_take_a_bounded_room_and_those_that_are_idle_give_it_back() {
        let mut keys = ByKey::new(at(0));
        (0..10_000).for_each(|key| keys.count(7, &of(key, "x"), 1_000));
        keys.count(8, &of(3, "anna"), 1_000);
        assert_eq!(keys.known.len(), KEYS_OF_ONE + 2, "others of one user, and another user's");
        keys.turn(at(10));
        let rest = 10_000 - KEYS_OF_ONE as u64;
        assert!(keys.view(Right::Anybodys).iter().any(|row| row.rates == [rest * 800]));
        keys.count(7, &of(10_001, "y"), 1_000);
        keys.turn(at(3_700));
        let names: Vec<String> = keys.view(Right::Of(7)).into_iter().map(|row| row.name).collect();
        assert_eq!((names, keys.known.len()), (vec![String::new()], 1));
        keys.count(7, &of(10_002, "z"), 1_000);
        assert_eq!(keys.known.len(), 2);
    }

    #[test]
    fn users_that_are_made_up_take_a_bounded_room_and_no_places_of_keys() {
        let mut keys = ByKey::new(at(0));
        for uid in 0..10_000 {
            keys.count(uid, &Posted { principal: 1 << 32, ..posted(0) }, 1_000);
        }
        assert_eq!(keys.known.len(), OTHERS_MOST);
        keys.count(20_000, &of(1, "anna"), 1_000);
        keys.turn(at(10));
        let names: Vec<String> =
            keys.view(Right::Of(20_000)).into_iter().map(|row| row.name).collect();
        assert!(names.contains(&"anna".to_owned()), "{names:?}");
    }
}
