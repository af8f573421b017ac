//! How an object is cut into units, and where each unit that is missing stands.
//!
//! A plan is made when the first path says how long its units are, and holds until a path that
//! carries shorter ones takes its place. This module must not know sessions' states, the writer or
//! files' hashes.

use std::collections::BTreeMap;

use gtp_proto::{Group, RangeSet};
use gtp_store::{BLOCK, Have, Manifest, Row};

use crate::engine::assembly::Assembly;
use crate::engine::suspects::Suspects;

/// How an object is cut, and what of it is on its way.
pub struct Plan {
    pub row: Row,
    pub group: Group,
    pub assembly: Assembly,
    /// Blocks that are asked of one session alone.
    pub suspects: Suspects,
    /// No unit from here on was ever asked for.
    pub front: u64,
    /// Units of files that were given up.
    pub dropped: RangeSet,
    /// Blocks that some source cannot give, by their first unit, and their files.
    pub lost: BTreeMap<u64, u32>,
}

impl Plan {
    pub(super) fn new(
        manifest: &Manifest,
        payload: u16,
        have: &[Have],
    ) -> Result<Plan, gtp_store::RowError> {
        let row = Row::of(manifest, payload)?;
        let mut group = Group::new(0..row.units());
        for part in have {
            group.have(row.blocks_units(part.file, part.blocks.clone()));
        }
        let (assembly, suspects) = (Assembly::default(), Suspects::default());
        Ok(Plan {
            row,
            group,
            assembly,
            suspects,
            front: 0,
            dropped: RangeSet::new(),
            lost: BTreeMap::new(),
        })
    }

    /// Takes units of files that were given up out of a set.
    pub(super) fn remove_dropped(&self, units: &mut RangeSet) {
        if self.dropped.is_empty() {
            return;
        }
        let unwanted = units.iter().flat_map(|range| self.dropped.within(range));
        for range in unwanted.collect::<Vec<_>>() {
            units.remove(range);
        }
    }

    /// Nothing more of this file is wanted.
    pub(super) fn drop_file(&mut self, manifest: &Manifest, file: u32) {
        let blocks = manifest.entries.get(file as usize).map_or(0, |e| e.size.div_ceil(BLOCK));
        if blocks > 0 {
            let units = self.row.blocks_units(file, 0..blocks);
            self.group.have(units.clone());
            self.dropped.insert(units);
        }
    }
}
