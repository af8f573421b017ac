//! Tells the host what its clients have together, whenever that changes.
//!
//! Rules, the list of keys, the hour and who is there change while sessions run. At each look at
//! the list the allowances of all clients are worked out anew if anything did, and the host hears
//! of them if they differ; those whose hours are over are found out as well. Groups of clients, and
//! keys with a guarantee of their own, are classes to the host's own agents, and within what its
//! user has to a daemon; one of an earlier release does not hear of them, and the log says so.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::Rate;
use gtp_proto::{Class, Classes};
use jiff::Timestamp;

use super::group_shares::{
    GroupNumbers, KEY_CLASSES_MOST, KeyNumbers, KeyTerms, classes, guaranteed, turn,
};
use super::rules::{Exports, Subject};
use crate::engine::{Allowance, Allowances, Host, Named, Stands};
use crate::identity::Fingerprint;
use crate::server::budget::Holder;
use crate::trust::{ClientTrust, Closed, Hours, LocalTime};

/// Rules, and the numbers that their groups have, and keys.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    pub rules: Exports,
    pub numbers: GroupNumbers,
    pub keys: Arc<KeyNumbers>,
}

impl Ruled {
    /// Other rules; groups that stay keep their numbers, and so do keys.
    pub fn with(&self, rules: Exports) -> Ruled {
        let numbers = self.numbers.with(&rules);
        Ruled { rules, numbers, keys: Arc::clone(&self.keys) }
    }

    /// What a client with this key has now.
    pub fn allowance(&self, trust: &ClientTrust, key: &Fingerprint, now: &LocalTime) -> Allowance {
        self.told(self.rules.terms_of(&trust.keys, key, now), key).0
    }

    /// What the host is told of a client with this key and these terms, and of its class if that is
    /// its own.
    fn told(&self, terms: KeyTerms<'_>, key: &Fingerprint) -> (Allowance, Option<Class>) {
        let number = || self.keys.of(key);
        (terms.allowance(&self.numbers, number), terms.own_class(number))
    }

    /// The names of a client's groups.
    pub fn groups(&self, trust: &ClientTrust, key: &Fingerprint) -> Vec<Arc<str>> {
        let subject = Subject::of(&self.rules, trust, key);
        subject.groups().iter().map(|(name, _)| Arc::from(*name)).collect()
    }

    /// Who a client with this key is.
    fn named(&self, trust: &ClientTrust, key: &Fingerprint) -> Named {
        let name = trust.keys.comment(key).map_or_else(|| key.to_string(), str::to_owned);
        Named { name, groups: self.groups(trust, key).join(",") }
    }

    /// Whether a client with this key may come now: within the hours of its lines, and within those
    /// of each of its groups.
    ///
    /// # Errors
    /// [`Closed`] if not.
    pub fn open(
        &self,
        trust: &ClientTrust,
        key: &Fingerprint,
        now: &LocalTime,
    ) -> Result<(), Closed> {
        let (own, subject) = (trust.keys.hours(key), Subject::of(&self.rules, trust, key));
        let groups = subject.groups().iter().map(|(_, group)| &group.hours);
        Hours::all(&groups.chain([&own]).collect::<Vec<_>>(), now)
    }
}

/// What the host was told last.
#[derive(Default)]
pub(super) struct Sharing(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// What was worked out by these rules, this list and this time.
    by: Option<(Arc<Ruled>, Arc<ClientTrust>, Timestamp)>,
    /// When time alone changes something of it.
    until: Option<Timestamp>,
    known: BTreeMap<Fingerprint, Known>,
    /// There were groups or lines with shares, so the host knows of allowances.
    has_shares: bool,
    allowances: Allowances,
    promised: Promised,
    /// It was said that there are more keys with a guarantee here than count.
    is_crowd_said: bool,
    warned: Option<String>,
    /// What was said last of groups that the configuration does not have.
    unknown: Option<String>,
}

/// What is guaranteed to groups and to keys, whether they are here or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Promised {
    groups: Rate,
    keys: Rate,
}

/// What is known of a client.
struct Known {
    allowance: Allowance,
    /// The class that it is alone.
    class: Option<Class>,
    closed: Option<Closed>,
    named: Named,
}

impl Sharing {
    /// Works out what these clients have, and tells the host if that is news. Returns those who may
    /// not be here now.
    pub fn look(
        &self,
        host: &Host,
        (ruled, trust): (Arc<Ruled>, &Arc<ClientTrust>),
        keys: BTreeSet<Fingerprint>,
        now: &LocalTime,
    ) -> BTreeMap<Fingerprint, Closed> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = told.look((ruled, trust), keys, now) {
            host.allow(news);
        }
        told.warn(host);
        let closed = told.known.iter().filter_map(|(key, known)| Some((*key, known.closed?)));
        closed.collect()
    }
}

impl Told {
    /// What has changed, if anything has.
    fn look(
        &mut self,
        (ruled, trust): (Arc<Ruled>, &Arc<ClientTrust>),
        keys: BTreeSet<Fingerprint>,
        now: &LocalTime,
    ) -> Option<Allowances> {
        let same = self.by.as_ref().is_some_and(|(rules, list, looked)| {
            let is_then = *looked <= now.at() && self.until.is_none_or(|until| now.at() < until);
            Arc::ptr_eq(rules, &ruled) && Arc::ptr_eq(list, trust) && is_then
        });
        if !same {
            self.known.clear();
            self.until = turn(&ruled.rules, now);
            self.promised.keys = trust.keys.guaranteed();
            self.has_shares |= !ruled.rules.groups.is_empty() || trust.keys.have_shares();
            self.warn_of_unknown(&ruled.rules, trust);
        }
        self.known.retain(|key, _| keys.contains(key));
        for key in keys {
            let Entry::Vacant(new) = self.known.entry(key) else { continue };
            let terms = ruled.rules.terms_of(&trust.keys, &key, now);
            let (allowance, class) = ruled.told(terms, &key);
            let closed = ruled.open(trust, &key, now).err();
            let named = ruled.named(trust, &key);
            new.insert(Known { allowance, class, closed, named });
            let own = trust.keys.hours(&key).turn(now);
            self.until = [self.until, own].into_iter().flatten().min();
        }
        let number = |key: &Fingerprint| Holder::Listed(*key).principal();
        let shared = self.known.iter().filter(|_| self.has_shares);
        let of = shared.map(|(key, known)| (number(key), known.allowance)).collect();
        let names = self.known.iter().map(|(key, known)| (number(key), known.named.clone()));
        let names = names.collect();
        let classes = self.classes(&ruled, now);
        let news = Allowances { classes, of, names };
        self.by = Some((ruled, Arc::clone(trust), now.at()));
        if news == self.allowances {
            return None;
        }
        self.allowances = news.clone();
        Some(news)
    }

    /// The classes of groups, and those of keys that are here: of too many, those that came first.
    fn classes(&mut self, ruled: &Ruled, now: &LocalTime) -> Classes {
        let mut all = classes(&ruled.rules, &ruled.numbers, now);
        let mut own: Vec<Class> = self.known.values().filter_map(|known| known.class).collect();
        own.sort_by_key(|class| class.number);
        self.promised.groups = guaranteed(&all);
        if own.len() > KEY_CLASSES_MOST && !std::mem::replace(&mut self.is_crowd_said, true) {
            tracing::warn!(
                "more than {KEY_CLASSES_MOST} keys with a guarantee on their lines are here: that \
                 of those which came last does not count while the others are here"
            );
        }
        all.extend(own.into_iter().take(KEY_CLASSES_MOST));
        Classes::new(all)
    }

    /// Says which groups of the list the configuration does not have: their names may be misspelt.
    fn warn_of_unknown(&mut self, rules: &Exports, trust: &ClientTrust) {
        let unknown = unknown_groups(rules, trust);
        if self.unknown != unknown {
            unknown.iter().for_each(|words| tracing::warn!("{words}"));
            self.unknown = unknown;
        }
    }

    /// Says what of the groups' rates does not count as it was written.
    fn warn(&mut self, host: &Host) {
        let [out, in_] = host.capacities();
        let has_classes = !self.allowances.classes.is_empty();
        let warning = match host.stands() {
            Stands::Joined => {
                let counts = !has_classes || host.counts_groups();
                (!counts).then(|| UNDER_A_DAEMON.to_owned())
            }
            Stands::Alone | Stands::Waiting | Stands::Orphaned => {
                over_promised(self.promised, out.min(in_))
            }
        };
        if self.warned != warning {
            warning.iter().for_each(|warning| tracing::warn!("{warning}"));
            self.warned = warning;
        }
    }
}

const UNDER_A_DAEMON: &str = "the daemon that shares out this machine's capacity is of an earlier \
                              release and does not hear of groups: their guarantees and weights do \
                              not count, and their rates limit each session alone; start it anew";

/// What is to be said of groups that lines of the list name and the configuration does not have. A
/// server without any rules may use a list that is another one's.
fn unknown_groups(rules: &Exports, trust: &ClientTrust) -> Option<String> {
    if rules.exports.is_empty() && rules.groups.is_empty() {
        return None;
    }
    let unknown = trust.keys.groups_but(|name| rules.groups.contains_key(name));
    let shown = unknown.iter().take(UNKNOWN_SHOWN).map(|(name, whose)| format!("{name} ({whose})"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match unknown.len().saturating_sub(UNKNOWN_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!unknown.is_empty()).then(|| {
        format!(
            "lines of the list of keys name groups that the configuration does not have, and that \
             give nothing: {shown}{more}"
        )
    })
}

/// Groups that one warning names.
const UNKNOWN_SHOWN: usize = 8;

/// What is to be said where more is guaranteed than there is.
fn over_promised(promised: Promised, capacity: Rate) -> Option<String> {
    let mbps = |rate: Rate| rate.as_bps() / 1_000_000;
    let Promised { groups, keys } = promised;
    let all = groups.saturating_add(keys);
    let whose = if keys == Rate::ZERO { "groups" } else { "groups and keys" };
    (all > capacity).then(|| {
        format!(
            "guarantees of {} Mbit/s for {whose} together are more than the {} Mbit/s that there \
             are: they are cut in one proportion",
            mbps(all),
            mbps(capacity)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::group_shares::{GroupShare, ShareAt};
    use crate::server::rules::GroupRule;
    use crate::trust::{Access, AuthorizedKeys, Strangers};

    fn key() -> Fingerprint {
        Fingerprint::of_public_key(&[1])
    }

    fn trust() -> Arc<ClientTrust> {
        let keys = AuthorizedKeys::of_one(key(), Access::ALL);
        Arc::new(ClientTrust { keys, strangers: Strangers::Refused })
    }

    fn ruled(total: u64) -> Arc<Ruled> {
        let share = GroupShare { total_rate: Rate::from_mbps(total), ..GroupShare::default() };
        let group = GroupRule { keys: [key()].into(), share, ..GroupRule::default() };
        let rules = Exports { groups: [("g".to_owned(), group)].into(), ..Exports::default() };
        let numbers = GroupNumbers::default().with(&rules);
        Arc::new(Ruled { rules, numbers, ..Ruled::default() })
    }

    fn at(time: &str) -> LocalTime {
        let at = format!("2026-11-30T{time}:00Z").parse().unwrap();
        LocalTime::new(at, jiff::tz::TimeZone::UTC)
    }

    #[test]
    fn the_host_hears_of_clients_and_rules_when_they_change_and_not_otherwise() {
        let (mut told, trust, rules, now) = (Told::default(), trust(), ruled(40), at("12:00"));
        let single = |news: &Allowances| news.of.values().map(|a| a.single).collect::<Vec<_>>();
        let by = |rules: &Arc<Ruled>| (Arc::clone(rules), &trust);
        let first = told.look(by(&rules), BTreeSet::new(), &now).unwrap();
        assert_eq!((first.classes.iter().count(), first.of.len()), (1, 0));
        let came = told.look(by(&rules), [key()].into(), &now).unwrap();
        assert_eq!(single(&came), [Rate::from_mbps(40)]);
        let named = Named { name: key().to_string(), groups: "g".to_owned() };
        assert_eq!(came.names.into_values().collect::<Vec<_>>(), [named]);
        assert_eq!(told.look(by(&rules), [key()].into(), &now), None);
        let other = ruled(70);
        let changed = told.look(by(&other), [key()].into(), &now).unwrap();
        assert_eq!(single(&changed), [Rate::from_mbps(70)]);
        let gone = told.look(by(&other), BTreeSet::new(), &now).unwrap();
        assert!(gone.of.is_empty() && gone.names.is_empty());
    }

    #[test]
    fn the_hour_changes_what_clients_have_and_ends_the_time_of_those_who_have_hours() {
        let (mut told, trust, plain) = (Told::default(), trust(), ruled(40));
        let mut rules = plain.rules.clone();
        let group = rules.groups.get_mut("g").unwrap();
        group.hours = "08:00-22:00".parse().unwrap();
        let total_rate = Some(Rate::from_mbps(90));
        let hours = "20:00-06:00".parse().unwrap();
        group.at.push(ShareAt { hours, total_rate, ..ShareAt::default() });
        let numbers = plain.numbers.clone();
        let ruled = Arc::new(Ruled { rules, numbers, ..Ruled::default() });
        let mut look = |time: &str| {
            let news = told.look((Arc::clone(&ruled), &trust), [key()].into(), &at(time));
            let single = news.map(|news| news.of.values().next().unwrap().single);
            (single.map(|rate| rate.as_bps() / 1_000_000), told.known[&key()].closed)
        };
        assert_eq!(look("12:00"), (Some(40), None));
        assert_eq!(look("19:59"), (None, None));
        assert_eq!(look("20:00"), (Some(90), None));
        let opens = "2026-12-01T08:00:00Z".parse().ok();
        assert_eq!(look("22:00"), (None, Some(Closed { opens })));
        // Somebody has set the clock back.
        assert_eq!(look("12:00"), (Some(40), None));
    }

    /// A list of these lines, each of the key with its number.
    fn list_of(lines: &[(u8, &str)]) -> Arc<ClientTrust> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let line =
            |(n, rest): &(u8, &str)| format!("{} {rest}\n", Fingerprint::of_public_key(&[*n]));
        std::fs::write(&path, lines.iter().map(line).collect::<String>()).unwrap();
        let keys = AuthorizedKeys::load(&path).unwrap();
        Arc::new(ClientTrust { keys, strangers: Strangers::Refused })
    }

    #[test]
    fn what_lines_give_their_keys_the_host_hears_without_any_group_and_when_a_line_changes() {
        let (mut told, rules, now) = (Told::default(), Arc::new(Ruled::default()), at("12:00"));
        let mut look = |trust: &Arc<ClientTrust>| {
            let news = told.look((Arc::clone(&rules), trust), [key()].into(), &now)?;
            let allowance = *news.of.values().next()?;
            let class = news.classes.get(allowance.class).copied();
            let mbps = |rate: Rate| rate.as_bps() / 1_000_000;
            let class = class.map(|class| (mbps(class.least), mbps(class.most)));
            Some((mbps(allowance.most), allowance.weight, class))
        };
        assert_eq!(look(&list_of(&[(1, "")])), None, "it has heard of nothing yet");
        let limited = list_of(&[(1, "rate=50Mbit weight=2")]);
        assert_eq!((look(&limited), look(&limited)), (Some((50, 2.0, None)), None));
        let promised = list_of(&[(1, "rate=30Mbit guarantee=10Mbit"), (2, "guarantee=1Gbit")]);
        assert_eq!(look(&promised), Some((30, 1.0, Some((10, 30)))), "of those here alone");
        let all = Rate::UNLIMITED.as_bps() / 1_000_000;
        assert_eq!(look(&list_of(&[(1, "")])), Some((all, 1.0, None)), "it is told that too");
        assert_eq!(told.promised, Promised::default());
    }

    #[test]
    fn guarantees_count_for_so_many_keys_at_most_and_for_those_that_came_first() {
        let (mut told, rules, now) = (Told::default(), Arc::new(Ruled::default()), at("12:00"));
        let lines: Vec<(u8, &str)> = (0..=200).map(|n| (n, "guarantee=1Mbit")).collect();
        let (trust, most) = (list_of(&lines), KEY_CLASSES_MOST);
        let keys = |all: std::ops::Range<u8>| all.map(|n| Fingerprint::of_public_key(&[n]));
        let mut counted = |all: std::ops::Range<u8>| {
            let news = told.look((Arc::clone(&rules), &trust), keys(all).collect(), &now).unwrap();
            let counts = |allowance: &Allowance| news.classes.get(allowance.class).is_some();
            let of = |n: u8| news.of[&Holder::Listed(keys(n..n + 1).next().unwrap()).principal()];
            (news.of.values().filter(|a| counts(a)).count(), counts(&of(199)), counts(&of(100)))
        };
        assert_eq!(counted(100..200), (100, true, true));
        assert_eq!(counted(0..200), (most, true, true), "those that were here go on");
        assert_eq!(told.promised.keys, Rate::from_mbps(201), "whoever is here");
    }

    #[test]
    fn a_group_that_only_a_line_names_is_said_with_whose_line_that_is() {
        let rules = ruled(40).rules.clone();
        let list = |groups: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("list");
            std::fs::write(&path, format!("{} group={groups} # anna\n", key())).unwrap();
            let keys = AuthorizedKeys::load(&path).unwrap();
            ClientTrust { keys, strangers: Strangers::Refused }
        };
        assert_eq!(unknown_groups(&Exports::default(), &list("g,h")), None, "it has no rules");
        assert_eq!(unknown_groups(&rules, &list("g")), None);
        let said = unknown_groups(&rules, &list("h,g")).unwrap();
        assert!(said.ends_with("give nothing: h (anna)"), "{said}");
    }

    #[test]
    fn guarantees_above_the_capacity_are_said_and_those_within_it_are_not() {
        let mbps = Rate::from_mbps;
        let of = |groups, keys, capacity| {
            let (groups, keys) = (mbps(groups), mbps(keys));
            over_promised(Promised { groups, keys }, capacity)
        };
        assert_eq!(of(100, 0, mbps(100)), None);
        assert_eq!(of(60, 40, mbps(100)), None);
        assert_eq!(of(100, 100, Rate::UNLIMITED), None);
        let said = of(150, 0, mbps(100)).unwrap();
        assert!(said.contains("150 Mbit/s for groups together"), "{said}");
        let said = of(60, 41, mbps(100)).unwrap();
        assert!(said.contains("101 Mbit/s for groups and keys together"), "{said}");
        assert!(said.contains("the 100 Mbit/s"), "{said}");
    }
}
