//! Guarantees and caps of users and of transfers, and whose sessions they are.
//!
//! A user's are said at the daemon's start, a transfer's while it runs, and are gone with its last
//! session. Here is only who has which; what comes of them, [`gtp_alloc::within`] knows.

use std::collections::{BTreeMap, BTreeSet};

use gtp_alloc::Rate;
use gtp_alloc::within::{Class, Group, Limits, guaranteed};

use crate::hub::ClientId;

/// A transfer of a process: on whose behalf it runs, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferId {
    pub client: ClientId,
    pub principal: u64,
    pub transfer: u64,
}

/// What one transfer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// Served first, as far as it is wanted.
    pub least: Rate,
    /// No more than this.
    pub most: Rate,
}

impl Given {
    /// Nothing.
    pub const NOTHING: Given = Given { least: Rate::ZERO, most: Rate::UNLIMITED };

    fn limits(self) -> Limits {
        // A number, so that sums are.
        let least = self.least.min(Rate::from_bps(u64::MAX - 1)).as_f64();
        Limits { least, most: self.most.as_f64() }
    }
}

/// All limits of a host.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    users: BTreeMap<u32, Given>,
    transfers: BTreeMap<TransferId, (u32, Given)>,
}

impl Bounds {
    /// Users who have no less, and who have no more, than these.
    pub fn new(least: &BTreeMap<u32, Rate>, most: &BTreeMap<u32, Rate>) -> Bounds {
        let mut users: BTreeMap<u32, Given> = BTreeMap::new();
        for (&uid, &rate) in least {
            users.entry(uid).or_insert(Given::NOTHING).least = rate;
        }
        for (&uid, &rate) in most {
            users.entry(uid).or_insert(Given::NOTHING).most = rate;
        }
        Bounds { users, ..Bounds::default() }
    }

    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.transfers.is_empty()
    }

    /// Whether a transfer has any.
    pub fn has_transfers(&self) -> bool {
        !self.transfers.is_empty()
    }

    /// What a transfer has.
    pub fn of(&self, id: TransferId) -> Given {
        self.transfers.get(&id).map_or(Given::NOTHING, |(_, given)| *given)
    }

    /// Gives a user's transfer limits.
    pub fn give(&mut self, uid: u32, id: TransferId, given: Given) {
        if given == Given::NOTHING {
            self.transfers.remove(&id);
        } else {
            self.transfers.insert(id, (uid, given));
        }
    }

    /// Forgets transfers that are not among these.
    pub fn keep(&mut self, present: &BTreeSet<TransferId>) {
        self.transfers.retain(|id, _| present.contains(id));
    }

    /// All guarantees together.
    pub fn guaranteed(&self) -> Rate {
        Rate::from_f64(guaranteed(&self.users([])))
    }

    /// Users with limits, or with transfers that have some. Of the sessions in a row their users
    /// and transfers are given, in its order.
    pub fn users(&self, row: impl IntoIterator<Item = (u32, TransferId)>) -> Vec<Class> {
        if self.is_empty() {
            return Vec::new();
        }
        let group = |given: Given| Group { limits: given.limits(), members: Vec::new() };
        let mut users: BTreeMap<u32, (Class, BTreeMap<TransferId, usize>)> = BTreeMap::new();
        let known = |uid: u32| {
            let given = self.users.get(&uid).copied().unwrap_or(Given::NOTHING);
            (Class { all: group(given), inner: Vec::new() }, BTreeMap::new())
        };
        for &uid in self.users.keys() {
            users.insert(uid, known(uid));
        }
        for (id, (uid, given)) in &self.transfers {
            let (user, transfers) = users.entry(*uid).or_insert_with(|| known(*uid));
            transfers.insert(*id, user.inner.len());
            user.inner.push(group(*given));
        }
        for (place, (uid, id)) in row.into_iter().enumerate() {
            let Some((user, transfers)) = users.get_mut(&uid) else { continue };
            user.all.members.push(place);
            if let Some(&at) = transfers.get(&id) {
                user.inner[at].members.push(place);
            }
        }
        users.into_values().map(|(user, _)| user).collect()
    }
}
