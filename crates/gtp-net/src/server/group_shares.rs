//! What groups of clients have of a server's rates.
//!
//! A group gives its members a weight and a rate each, and may have a rate and a guarantee for all
//! of them together. Those two are of a class at the host's agents, and a client is in one class:
//! of its groups that have either, the one with the least rate for all counts, or else the greatest
//! guarantee. What comes of it, [`gtp_alloc::within`] knows; who is in a group is decided by the
//! rules.

use std::collections::BTreeMap;

use gtp_alloc::Rate;
use gtp_proto::{Class, Classes};
use jiff::Timestamp;

use super::rules::{Exports, GroupRule};
use crate::engine::Allowance;
use crate::trust::{Hours, LocalTime};

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

/// What a member of these groups has: the least rate, the greatest weight, and the class of one; a
/// weight of one and no limit without any.
pub(super) fn allowance(
    groups: &[(&str, &GroupRule)],
    numbers: &GroupNumbers,
    now: &LocalTime,
) -> Allowance {
    let shares: Vec<(&str, GroupShare)> =
        groups.iter().map(|(name, group)| (*name, group.share_at(now))).collect();
    let shares = || shares.iter().copied();
    let most = shares().map(|(_, share)| share.rate).min().unwrap_or(Rate::UNLIMITED);
    let weight = shares().map(|(_, share)| share.weight).reduce(f64::max).unwrap_or(1.0);
    let classes = shares().filter(|(_, share)| share.is_class());
    let class =
        classes.min_by_key(|(_, share)| (share.total_rate, std::cmp::Reverse(share.guarantee)));
    let (total, class) = match class {
        Some((name, share)) => (share.total_rate, numbers.of(name)),
        None => (Rate::UNLIMITED, 0),
    };
    Allowance { weight, most, single: most.min(total), class }
}

/// The classes that the groups of these rules are to the host's agents.
pub(super) fn classes(rules: &Exports, numbers: &GroupNumbers, now: &LocalTime) -> Classes {
    let shares = rules.groups.iter().map(|(name, group)| (name, group.share_at(now)));
    let class = |(name, share): (&String, GroupShare)| Class {
        number: numbers.of(name),
        least: share.guarantee,
        most: share.total_rate,
        each: Rate::UNLIMITED,
    };
    Classes::new(shares.filter(|(_, share)| share.is_class()).map(class).collect())
}

/// What these classes are guaranteed together.
pub(super) fn guaranteed(classes: &Classes) -> Rate {
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
        let of = |groups: &[(&str, &GroupRule)]| allowance(groups, &numbers, &at("12:00"));
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
            let allowance = allowance(&[("a", &group)], &numbers, &at(time));
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
