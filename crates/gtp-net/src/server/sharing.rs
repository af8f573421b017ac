//! Tells the host what its clients have together, whenever that changes.
//!
//! Rules, the list of keys and who is there change while sessions run. At each look at the list the
//! allowances of all clients are worked out anew if anything did, and the host hears of them if
//! they differ. Groups of clients are classes to the host's own agents; a daemon does not hear of
//! them, and the log says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use gtp_alloc::Rate;

use super::group_shares::{GroupNumbers, allowance, classes, guaranteed};
use super::rules::{Exports, Subject};
use crate::engine::{Allowance, Allowances, Host, Stands};
use crate::identity::Fingerprint;
use crate::server::budget::Holder;
use crate::trust::ClientTrust;

/// Rules, and the numbers that their groups have.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    pub rules: Exports,
    pub numbers: GroupNumbers,
}

impl Ruled {
    /// What a client with this key has.
    pub fn allowance(&self, trust: &ClientTrust, key: &Fingerprint) -> Allowance {
        allowance(Subject::of(&self.rules, trust, key).groups(), &self.numbers)
    }
}

/// What the host was told last.
#[derive(Default)]
pub(super) struct Sharing(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// What was worked out by these rules and this list.
    by: Option<(Arc<Ruled>, Arc<ClientTrust>)>,
    known: BTreeMap<Fingerprint, Allowance>,
    allowances: Allowances,
    warned: Option<String>,
}

impl Sharing {
    /// Works out what these clients have, and tells the host if that is news.
    pub fn look(
        &self,
        host: &Host,
        ruled: Arc<Ruled>,
        trust: &Arc<ClientTrust>,
        keys: BTreeSet<Fingerprint>,
    ) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = told.look(ruled, trust, keys) {
            host.allow(news);
        }
        let promised = guaranteed(&told.allowances.classes);
        let [out, in_] = host.capacities();
        let has_classes = !told.allowances.classes.is_empty();
        let warning = match host.stands() {
            Stands::Joined => has_classes.then(|| UNDER_A_DAEMON.to_owned()),
            Stands::Alone | Stands::Waiting | Stands::Orphaned => {
                over_promised(promised, out.min(in_))
            }
        };
        if told.warned != warning {
            warning.iter().for_each(|warning| tracing::warn!("{warning}"));
            told.warned = warning;
        }
    }
}

impl Told {
    /// What has changed, if anything has.
    fn look(
        &mut self,
        ruled: Arc<Ruled>,
        trust: &Arc<ClientTrust>,
        keys: BTreeSet<Fingerprint>,
    ) -> Option<Allowances> {
        let same = self
            .by
            .as_ref()
            .is_some_and(|(rules, list)| Arc::ptr_eq(rules, &ruled) && Arc::ptr_eq(list, trust));
        if !same {
            self.known.clear();
        }
        self.known.retain(|key, _| keys.contains(key));
        for key in keys {
            self.known.entry(key).or_insert_with(|| ruled.allowance(trust, &key));
        }
        let number = |key: &Fingerprint| Holder::Listed(*key).principal();
        let of = self.known.iter().map(|(key, allowance)| (number(key), *allowance)).collect();
        let now = Allowances { classes: classes(&ruled.rules, &ruled.numbers), of };
        self.by = Some((ruled, Arc::clone(trust)));
        if now == self.allowances {
            return None;
        }
        self.allowances = now.clone();
        Some(now)
    }
}

const UNDER_A_DAEMON: &str = "a daemon shares out this machine's capacity and does not hear of \
                              groups: their guarantees and weights do not count, and their rates \
                              limit each session alone";

/// What is to be said where more is guaranteed than there is.
fn over_promised(guaranteed: Rate, capacity: Rate) -> Option<String> {
    let mbps = |rate: Rate| rate.as_bps() / 1_000_000;
    (guaranteed > capacity).then(|| {
        format!(
            "guarantees of {} Mbit/s for groups together are more than the {} Mbit/s that there \
             are: they are cut in one proportion",
            mbps(guaranteed),
            mbps(capacity)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::group_shares::GroupShare;
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
        Arc::new(Ruled { rules, numbers })
    }

    #[test]
    fn the_host_hears_of_clients_and_rules_when_they_change_and_not_otherwise() {
        let (mut told, trust, rules) = (Told::default(), trust(), ruled(40));
        let single = |news: &Allowances| news.of.values().map(|a| a.single).collect::<Vec<_>>();
        let first = told.look(Arc::clone(&rules), &trust, BTreeSet::new()).unwrap();
        assert_eq!((first.classes.iter().count(), first.of.len()), (1, 0));
        let came = told.look(Arc::clone(&rules), &trust, [key()].into()).unwrap();
        assert_eq!(single(&came), [Rate::from_mbps(40)]);
        assert_eq!(told.look(Arc::clone(&rules), &trust, [key()].into()), None);
        let changed = told.look(ruled(70), &trust, [key()].into()).unwrap();
        assert_eq!(single(&changed), [Rate::from_mbps(70)]);
        let gone = told.look(ruled(70), &trust, BTreeSet::new()).unwrap();
        assert!(gone.of.is_empty());
    }

    #[test]
    fn guarantees_above_the_capacity_are_said_and_those_within_it_are_not() {
        let mbps = Rate::from_mbps;
        assert_eq!(over_promised(mbps(100), mbps(100)), None);
        assert_eq!(over_promised(mbps(100), Rate::UNLIMITED), None);
        let said = over_promised(mbps(150), mbps(100)).unwrap();
        assert!(said.contains("150 Mbit/s") && said.contains("the 100 Mbit/s"), "{said}");
    }
}
