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

use super::rules::{Exports, GroupRule};
use crate::engine::Allowance;

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
pub(super) fn allowance(groups: &[(&str, &GroupRule)], numbers: &GroupNumbers) -> Allowance {
    let shares = || groups.iter().map(|(name, group)| (*name, group.share));
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
pub(super) fn classes(rules: &Exports, numbers: &GroupNumbers) -> Classes {
    let shared = rules.groups.iter().filter(|(_, group)| group.share.is_class());
    let class = |(name, group): (&String, &GroupRule)| Class {
        number: numbers.of(name),
        least: group.share.guarantee,
        most: group.share.total_rate,
        each: Rate::UNLIMITED,
    };
    Classes::new(shared.map(class).collect())
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
        let of = |groups: &[(&str, &GroupRule)]| allowance(groups, &numbers);
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
        let classes = classes(&Exports { groups: groups.into(), ..Exports::default() }, &numbers);
        assert_eq!(classes.iter().map(|class| class.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(guaranteed(&classes), Rate::from_mbps(15));
    }
}
