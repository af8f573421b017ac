//! Classes of owners: those to whom a host gives a rate, a guarantee or both together.
//!
//! A host that serves tells its agents which classes there are; an owner names its class by number,
//! so that a report stays small and a change of terms counts at once for sessions that run. What
//! comes of guarantees and caps, [`gtp_alloc::within`] knows; who is in a class is not known here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::Rate;
use gtp_alloc::within::{self, Group, Limits};

/// What a host gives to owners of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// Its number, by which owners name it; not zero.
    pub number: u32,
    /// What all sessions of all its owners are served first, in each direction.
    pub least: Rate,
    /// The most that they may have together.
    pub most: Rate,
    /// The most that each owner may have with all its sessions.
    pub each: Rate,
}

/// All classes of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Classes {
    /// Sorted by number.
    all: Vec<Class>,
}

impl Classes {
    /// These classes; of several with one number the first counts.
    pub fn new(mut all: Vec<Class>) -> Classes {
        all.sort_by_key(|class| class.number);
        all.dedup_by_key(|class| class.number);
        Classes { all }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, by their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.all.iter()
    }

    /// The class with this number.
    pub fn get(&self, number: u32) -> Option<&Class> {
        let at = self.all.binary_search_by_key(&number, |class| class.number).ok()?;
        Some(&self.all[at])
    }

    /// The most that one owner of a class may have.
    pub fn each(&self, number: u32) -> Rate {
        self.get(number).map_or(Rate::UNLIMITED, |class| class.each)
    }

    /// Those with limits of which somebody is in this row of class numbers, with their places.
    pub(crate) fn over(&self, row: impl Iterator<Item = u32>) -> Vec<within::Class> {
        let mut found: BTreeMap<u32, within::Class> = BTreeMap::new();
        for (place, number) in row.enumerate() {
            let Some(class) = self.get(number).filter(|class| class.has_limits()) else { continue };
            let empty = || within::Class { all: group(class), inner: Vec::new() };
            found.entry(number).or_insert_with(empty).all.members.push(place);
        }
        found.into_values().collect()
    }
}

impl Class {
    fn has_limits(&self) -> bool {
        self.least > Rate::ZERO || !self.most.is_unlimited()
    }
}

fn group(class: &Class) -> Group {
    // Finite, so that sums are finite.
    let least = class.least.min(Rate::from_bps(u64::MAX - 1)).as_f64();
    Group { limits: Limits { least, most: class.most.as_f64() }, members: Vec::new() }
}
