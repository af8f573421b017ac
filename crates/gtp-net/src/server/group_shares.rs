//! What groups of clients, and single keys, have of a server's rates.
//!
//! A group gives its members a weight and a rate each, and may have a rate and a guarantee for all
//! of them together. Those two are of a class at the host's agents, and a client is in one class:
//! that of its key if a line of the list guarantees something to the key itself; or else, of its
//! groups that have either, that with the least rate for all, or the greatest guarantee. What comes
//! of it, [`gtp_alloc::within`] knows; who is in a group is decided by the rules.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use gtp_alloc::Rate;
use gtp_proto::Class;
use jiff::Timestamp;

use super::rules::{Exports, GroupRule};
use crate::engine::Allowance;
use crate::identity::Fingerprint;
use crate::trust::{AuthorizedKeys, Hours, KeyShare, LocalTime};

/// What one group has, in each direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupShare {
    /// What each member may send, and receive, with all its sessions together.
    pub rate: Rate,
    /// What all members may send, and receive, together.
    pub total_rate: Rate,
    /// What they are served first together, as far as they want it.
    pub guarantee: Rate,
    /// The weight of each member among all clients.
    pub weight: f64,
}

impl Default for GroupShare {
    fn default() -> GroupShare {
        let (rate, total_rate) = (Rate::UNLIMITED, Rate::UNLIMITED);
        GroupShare { rate, total_rate, guarantee: Rate::ZERO, weight: 1.0 }
    }
}

/// What changes of a group's share in some hours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShareAt {
    /// In these.
    pub hours: Hours,
    /// What each member may send, and receive.
    pub rate: Option<Rate>,
    /// What all members may together.
    pub total_rate: Option<Rate>,
    /// What they are served first.
    pub guarantee: Option<Rate>,
    /// The weight of each.
    pub weight: Option<f64>,
}

/// Changes of one group's share.
pub const SHARES_AT_MOST: usize = 32;

impl ShareAt {
    /// The share that holds in these hours in place of another.
    pub(super) fn over(&self, share: GroupShare) -> GroupShare {
        GroupShare {
            rate: self.rate.unwrap_or(share.rate),
            total_rate: self.total_rate.unwrap_or(share.total_rate),
            guarantee: self.guarantee.unwrap_or(share.guarantee),
            weight: self.weight.unwrap_or(share.weight),
        }
    }
}

impl GroupRule {
    /// What its members have now.
    fn share_at(&self, now: &LocalTime) -> GroupShare {
        let changes = self.at.iter().filter(|at| at.hours.cover(now));
        changes.fold(self.share, |share, at| at.over(share))
    }

    /// When time alone changes what its members have, or may, next.
    fn turn(&self, now: &LocalTime) -> Option<Timestamp> {
        let hours = self.at.iter().map(|at| &at.hours).chain([&self.hours]);
        hours.filter_map(|hours| hours.turn(now)).min()
    }
}

/// When time alone changes what the groups of these rules have, or may, next.
pub(super) fn turn(rules: &Exports, now: &LocalTime) -> Option<Timestamp> {
    rules.groups.values().filter_map(|group| group.turn(now)).min()
}

impl GroupShare {
    /// Whether its members have something together.
    fn is_class(&self) -> bool {
        !self.total_rate.is_unlimited() || self.guarantee > Rate::ZERO
    }
}

/// The numbers by which agents know groups. A name keeps its number as long as the server runs, so
/// that sessions which begin while the rules change are never in another group's class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupNumbers(BTreeMap<String, u32>);

impl GroupNumbers {
    /// The same with numbers for all groups of these rules.
    pub fn with(&self, rules: &Exports) -> GroupNumbers {
        let mut numbers = self.0.clone();
        for name in rules.groups.keys() {
            let next = u32::try_from(numbers.len()).map_or(u32::MAX, |count| count + 1);
            numbers.entry(name.clone()).or_insert(next);
        }
        GroupNumbers(numbers)
    }

    fn of(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// The numbers by which agents know keys that are guaranteed something themselves, above those of
/// all groups. A key keeps its number as long as the server runs, as a group does.
#[derive(Debug, Default)]
pub(super) struct KeyNumbers(Mutex<BTreeMap<Fingerprint, u32>>);

/// The first number of a key.
const FIRST_OF_KEYS: u32 = 1 << 31;

/// Keys whose own guarantees count at one time. Each has an agent look at all sessions once more in
/// each interval: with so many and 512 sessions, as often as a daemon does (`gtpd`, `limits`).
pub(super) const KEY_CLASSES_MOST: usize = 128;

impl KeyNumbers {
    /// The number of a key, the lower the earlier it was asked for.
    pub fn of(&self, key: &Fingerprint) -> u32 {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(*key).or_insert(FIRST_OF_KEYS.saturating_add(next))
    }
}

/// What a client has of a server's rates, by its key's lines and by its groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyTerms<'g> {
    /// The most that all its sessions may have.
    pub rate: Rate,
    /// Its weight among all clients.
    pub weight: f64,
    /// What it has a part in.
    pub part: KeyPart<'g>,
}

/// What a client is served first, and with whom it has a rate together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyPart<'g> {
    /// Nothing, with nobody.
    None,
    /// So much is served first to the key itself.
    Own(Rate),
    /// What the members of this group have together counts.
    Group {
        /// Its name.
        name: &'g str,
        /// What it has.
        share: GroupShare,
    },
}

impl<'g> KeyTerms<'g> {
    /// What a client has that is in these groups and whose lines say this: the least rate, the
    /// greatest weight, and a part in one thing. A weight of one and no limit without any.
    fn of(groups: &[(&'g str, &GroupRule)], own: KeyShare, now: &LocalTime) -> KeyTerms<'g> {
        let shares: Vec<(&'g str, GroupShare)> =
            groups.iter().map(|(name, group)| (*name, group.share_at(now))).collect();
        let shares = || shares.iter().copied();
        let rates = shares().map(|(_, share)| share.rate).chain(own.rate);
        let weights = shares().map(|(_, share)| share.weight).chain(own.weight);
        let rate = rates.min().unwrap_or(Rate::UNLIMITED);
        let weight = weights.reduce(f64::max).unwrap_or(1.0);
        let classes = shares().filter(|(_, share)| share.is_class());
        let class =
            classes.min_by_key(|(_, share)| (share.total_rate, std::cmp::Reverse(share.guarantee)));
        match (own.guarantee, class) {
            // It is not among the group's members then, so that their rate is a limit for it alone.
            (Some(least), class) => {
                let total = class.map_or(Rate::UNLIMITED, |(_, share)| share.total_rate);
                KeyTerms { rate: rate.min(total), weight, part: KeyPart::Own(least) }
            }
            (None, Some((name, share))) => {
                KeyTerms { rate, weight, part: KeyPart::Group { name, share } }
            }
            (None, None) => KeyTerms { rate, weight, part: KeyPart::None },
        }
    }

    /// What the host is told of it; the numbers are those of groups and of this key.
    pub(super) fn allowance(&self, groups: &GroupNumbers, key: impl Fn() -> u32) -> Allowance {
        let KeyTerms { rate: most, weight, part } = *self;
        let (total, class) = match part {
            KeyPart::None => (Rate::UNLIMITED, 0),
            KeyPart::Own(_) => (Rate::UNLIMITED, key()),
            KeyPart::Group { name, share } => (share.total_rate, groups.of(name)),
        };
        Allowance { weight, most, single: most.min(total), class }
    }

    /// The class that its key alone is to the host's agents, if it is one.
    pub(super) fn own_class(&self, number: impl Fn() -> u32) -> Option<Class> {
        let KeyPart::Own(least) = self.part else { return None };
        Some(Class { number: number(), least, most: self.rate, each: Rate::UNLIMITED })
    }
}

impl Exports {
    /// What a key of this list has of the server's rates now.
    pub fn terms_of(
        &self,
        keys: &AuthorizedKeys,
        key: &Fingerprint,
        now: &LocalTime,
    ) -> KeyTerms<'_> {
        KeyTerms::of(&self.groups_of(keys, key), keys.share(key), now)
    }
}

/// The classes that the groups of these rules are to the host's agents.
pub(super) fn classes(rules: &Exports, numbers: &GroupNumbers, now: &LocalTime) -> Vec<Class> {
    let shares = rules.groups.iter().map(|(name, group)| (name, group.share_at(now)));
    let class = |(name, share): (&String, GroupShare)| Class {
        number: numbers.of(name),
        least: share.guarantee,
        most: share.total_rate,
        each: Rate::UNLIMITED,
    };
    shares.filter(|(_, share)| share.is_class()).map(class).collect()
}

/// What these classes are guaranteed together.
pub(super) fn guaranteed(classes: &[Class]) -> Rate {
    let each = classes.iter().map(|class| class.least.min(class.most));
    each.fold(Rate::ZERO, Rate::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(total: Rate, guarantee: u64, weight: f64, rate: Rate) -> GroupRule {
        let guarantee = Rate::from_mbps(guarantee);
        let share = GroupShare { rate, total_rate: total, guarantee, weight };
        GroupRule { share, ..GroupRule::default() }
    }

    /// A time of a Monday, in UTC.
    fn at(time: &str) -> LocalTime {
        let at = format!("2026-11-30T{time}:00Z").parse().unwrap();
        LocalTime::new(at, jiff::tz::TimeZone::UTC)
    }

    fn allowance(
        groups: &[(&str, &GroupRule)],
        own: KeyShare,
        numbers: &GroupNumbers,
        now: &LocalTime,
    ) -> Allowance {
        KeyTerms::of(groups, own, now).allowance(numbers, || 99)
    }

    fn numbers(names: &[&str]) -> GroupNumbers {
        let groups = names.iter().map(|name| ((*name).to_owned(), GroupRule::default()));
        GroupNumbers::default().with(&Exports { groups: groups.collect(), ..Exports::default() })
    }

    #[test]
    fn of_several_groups_the_least_rate_and_the_greatest_weight_count_and_the_tightest_class() {
        let (any, numbers) = (Rate::UNLIMITED, numbers(&["a", "b", "c", "d"]));
        let plain = group(any, 0, 3.0, Rate::from_mbps(9));
        let wide = group(Rate::from_mbps(80), 20, 1.0, any);
        let narrow = group(Rate::from_mbps(40), 0, 0.5, any);
        let promised = group(any, 70, 1.0, any);
        let none = KeyShare::default();
        let of = |groups: &[(&str, &GroupRule)]| allowance(groups, none, &numbers, &at("12:00"));
        assert_eq!(of(&[]), Allowance::default());
        assert_eq!(of(&[("a", &plain)]).class, 0, "its members have nothing together");
        let all = of(&[("a", &plain), ("b", &wide), ("c", &narrow), ("d", &promised)]);
        let most = Rate::from_mbps(9);
        assert_eq!(all, Allowance { weight: 3.0, most, single: most, class: 3 });
        let single = Rate::from_mbps(80);
        assert_eq!(
            of(&[("b", &wide), ("d", &promised)]),
            Allowance { weight: 1.0, most: any, single, class: 2 }
        );
    }

    #[test]
    fn the_least_rate_and_the_greatest_weight_of_a_line_and_the_groups_count() {
        let (any, mbps) = (Rate::UNLIMITED, Rate::from_mbps);
        let (numbers, group) = (numbers(&["a"]), group(mbps(40), 0, 3.0, mbps(9)));
        let of = |rate: Option<u64>, weight: Option<f64>| {
            let own = KeyShare { rate: rate.map(mbps), weight, guarantee: None };
            let [alone, grouped] = [&[][..], &[("a", &group)][..]]
                .map(|groups| allowance(groups, own, &numbers, &at("12:00")));
            assert_eq!((alone.class, grouped.class), (0, 1));
            assert_eq!((alone.single, grouped.single), (alone.most, grouped.most.min(mbps(40))));
            [(alone.most, alone.weight), (grouped.most, grouped.weight)]
        };
        assert_eq!(of(None, None), [(any, 1.0), (mbps(9), 3.0)]);
        assert_eq!(of(Some(5), Some(0.5)), [(mbps(5), 0.5), (mbps(5), 3.0)]);
        assert_eq!(of(Some(50), Some(4.0)), [(mbps(50), 4.0), (mbps(9), 4.0)]);
    }

    #[test]
    fn a_key_with_a_guarantee_of_its_own_is_a_class_alone_and_its_groups_rate_a_limit_for_it() {
        let mbps = Rate::from_mbps;
        let numbers = numbers(&["a"]);
        let group = group(mbps(40), 20, 3.0, mbps(60));
        let groups = [("a", &group)];
        let of = |rate: Option<u64>| {
            let own = KeyShare { rate: rate.map(mbps), weight: None, guarantee: Some(mbps(50)) };
            let terms = KeyTerms::of(&groups, own, &at("12:00"));
            (terms.allowance(&numbers, || 99), terms.own_class(|| 99).unwrap())
        };
        let (allowance, class) = of(None);
        let most = mbps(40);
        assert_eq!(allowance, Allowance { weight: 3.0, most, single: most, class: 99 });
        assert_eq!((class.number, class.least, class.most), (99, mbps(50), most));
        assert_eq!(guaranteed(&[class]), most, "no more is promised than allowed");
        let (allowance, class) = of(Some(30));
        assert_eq!((allowance.single, class.most), (mbps(30), mbps(30)));
        let none = KeyTerms::of(&groups, KeyShare::default(), &at("12:00"));
        assert_eq!(none.own_class(|| 99), None);
    }

    #[test]
    fn numbers_of_keys_are_none_of_groups_and_stay() {
        let [a, b] = [[1], [2]].map(|key| Fingerprint::of_public_key(&key));
        let keys = KeyNumbers::default();
        let first = [&a, &b].map(|key| keys.of(key));
        assert_eq!(first, [FIRST_OF_KEYS, FIRST_OF_KEYS + 1]);
        assert_eq!([&b, &a].map(|key| keys.of(key)), [first[1], first[0]]);
    }

    #[test]
    fn a_group_keeps_its_number_whatever_groups_come_and_go() {
        let first = numbers(&["b", "c"]);
        let groups = ["a", "c"].map(|name| (name.to_owned(), GroupRule::default()));
        let then = first.with(&Exports { groups: groups.into(), ..Exports::default() });
        assert_eq!((first.of("b"), first.of("c")), (1, 2));
        assert_eq!((then.of("a"), then.of("c"), then.of("none")), (3, 2, 0));
    }

    #[test]
    fn a_guarantee_above_the_rate_of_its_group_counts_as_that_rate() {
        let (any, numbers) = (Rate::UNLIMITED, numbers(&["a", "b", "c"]));
        let groups = [
            ("a".to_owned(), group(Rate::from_mbps(10), 30, 1.0, any)),
            ("b".to_owned(), group(any, 5, 1.0, any)),
            ("c".to_owned(), group(any, 0, 2.0, Rate::from_mbps(3))),
        ];
        let rules = Exports { groups: groups.into(), ..Exports::default() };
        let classes = classes(&rules, &numbers, &at("12:00"));
        assert_eq!(classes.iter().map(|class| class.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(guaranteed(&classes), Rate::from_mbps(15));
    }

    #[test]
    fn shares_change_by_the_time_of_day_and_the_last_change_that_holds_counts() {
        let hours = |text: &str| text.parse().unwrap();
        let mbps = |rate| Some(Rate::from_mbps(rate));
        let nights =
            ShareAt { hours: hours("20:00-06:00"), total_rate: mbps(90), ..ShareAt::default() };
        let late = ShareAt {
            hours: hours("23:00-24:00"),
            total_rate: mbps(70),
            weight: Some(3.0),
            ..ShareAt::default()
        };
        let base = group(Rate::from_mbps(50), 10, 1.0, Rate::from_mbps(5));
        let group = GroupRule { at: vec![nights, late], hours: hours("06:00-05:00"), ..base };
        let numbers = numbers(&["a"]);
        let of = |time: &str| {
            let share = group.share_at(&at(time));
            let own = KeyShare::default();
            let allowance = allowance(&[("a", &group)], own, &numbers, &at(time));
            assert_eq!(allowance.weight, share.weight);
            (share.total_rate.as_bps() / 1_000_000, share.weight, share.rate)
        };
        let each = Rate::from_mbps(5);
        assert_eq!((of("12:00"), of("20:00")), ((50, 1.0, each), (90, 1.0, each)));
        assert_eq!((of("23:30"), of("05:59")), ((70, 3.0, each), (90, 1.0, each)));
        let turn = |time: &str| group.turn(&at(time)).unwrap().to_string();
        assert_eq!(turn("12:00"), "2026-11-30T20:00:00Z");
        assert_eq!(turn("23:30"), "2026-12-01T00:00:00Z");
        assert_eq!(turn("04:00"), "2026-11-30T05:00:00Z", "that of its hours");
    }
}
