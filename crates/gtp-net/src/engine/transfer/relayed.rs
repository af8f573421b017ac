//! Sessions that have only a part of the object: hosts that receive it themselves.
//!
//! Each of them says which blocks it has, and is asked for nothing else. What it brings is what
//! others say a block is, so each of its blocks must have the value that the object's own source
//! has said; one whose value nobody has said counts as bad. The object's own source may limit what
//! it is asked for as well, and is believed. Blocks are counted through the object, because hosts
//! may cut them into units differently. This module must not know who relays to whom.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use gtp_proto::{FlowId, RangeSet};
use gtp_store::{BlockRow, Have, LOST, Manifest, TRAILER, Value};

use super::{Plan, Transfer};
use crate::engine::api::{Brings, TransferEvent};

/// What the handle says of such sessions.
pub(in crate::engine) enum RelayNotice {
    /// A session that is about to be added brings only what it offers.
    Limit(FlowId, Brings),
    /// It has these blocks, beside those that it has offered before.
    Offer(FlowId, Vec<Range<u64>>),
    /// The values of blocks, from this number on.
    Values(u64, Vec<Value>),
}

/// What is known of the object's blocks where sessions have parts of it.
pub(in crate::engine) struct Relayed {
    blocks: BlockRow,
    /// What each session brings, and what it offers of what is not here.
    flows: BTreeMap<FlowId, (Brings, RangeSet)>,
    /// Blocks that are here and good.
    here: RangeSet,
    /// Of blocks that are not.
    values: HashMap<u64, Value>,
}

impl Relayed {
    fn new(manifest: &Manifest, have: &[Have]) -> Relayed {
        let blocks = BlockRow::of(manifest);
        let numbers = have.iter().filter_map(|have| {
            let all = blocks.file(have.file)?;
            Some(all.start + have.blocks.start..(all.start + have.blocks.end).min(all.end))
        });
        let here = numbers.collect();
        Relayed { blocks, flows: BTreeMap::new(), here, values: HashMap::new() }
    }

    /// Tells a plan what each session offers.
    pub(super) fn instruct(&self, plan: &mut Plan) {
        for (&flow, (_, offered)) in &self.flows {
            plan.group.offer(flow, 0..0);
            offered.iter().for_each(|range| self.offer_units(plan, flow, range));
        }
    }

    fn offer_units(&self, plan: &mut Plan, flow: FlowId, range: Range<u64>) {
        for (file, blocks) in self.blocks.parts(range) {
            plan.group.offer(flow, plan.row.blocks_units(file, blocks));
        }
    }

    /// Whether a session is one of a host that relays.
    pub(super) fn is_of_others(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|(brings, _)| *brings == Brings::Others)
    }

    /// A session is gone. Of what it has brought it is known for ever that others have said it.
    fn withdraw(&mut self, flow: FlowId) -> bool {
        let known = self.flows.get_mut(&flow);
        known.map(|(_, offered)| *offered = RangeSet::new()).is_some()
    }

    /// Makes the trailer of a block that such sessions have brought what it must be, so that the
    /// writer sees whether the content is.
    pub(super) fn vouch(&self, at: (u32, u64), brought: &[(FlowId, u64)], framed: &mut [u8]) {
        if !brought.iter().any(|&(flow, _)| self.is_of_others(flow)) {
            return;
        }
        let Some(trailer) = framed.len().checked_sub(TRAILER) else { return };
        let known = self.blocks.number(at.0, at.1).and_then(|number| self.values.get(&number));
        // No content has this value, and it does not say that the source has lost the block.
        let value = known.filter(|value| **value != LOST).unwrap_or(&NOTHING);
        framed[trailer..].copy_from_slice(value);
    }
}

impl Transfer {
    /// The handle has said something of sessions that have parts of the object.
    pub fn handle_relay(&mut self, notice: RelayNotice) {
        let (manifest, have) = (&self.manifest, &self.have);
        let relayed = self.relayed.get_or_insert_with(|| Box::new(Relayed::new(manifest, have)));
        self.dirty = true;
        match notice {
            RelayNotice::Limit(flow, brings) => {
                relayed.flows.insert(flow, (brings, RangeSet::new()));
                if let Some(plan) = &mut self.plan {
                    plan.group.offer(flow, 0..0);
                }
            }
            RelayNotice::Offer(flow, ranges) => {
                for range in ranges {
                    let end = range.end.min(relayed.blocks.len());
                    let mut fresh = RangeSet::new();
                    fresh.insert(range.start..end);
                    let there: Vec<_> = relayed.here.within(range.start..end).collect();
                    for range in there {
                        fresh.remove(range);
                    }
                    for range in fresh.iter() {
                        if let Some((_, offered)) = relayed.flows.get_mut(&flow) {
                            offered.insert(range.clone());
                        }
                        if let Some(plan) = &mut self.plan {
                            relayed.offer_units(plan, flow, range);
                        }
                    }
                }
            }
            RelayNotice::Values(first, values) => {
                for (number, value) in (first..relayed.blocks.len()).zip(values) {
                    if !relayed.here.contains(number) {
                        relayed.values.insert(number, value);
                    }
                }
            }
        }
    }

    /// A block is here and good.
    pub(super) fn note_here(&mut self, file: u32, block: u64, units: Range<u64>) {
        let Some(relayed) = &mut self.relayed else { return };
        let Some(number) = relayed.blocks.number(file, block) else { return };
        relayed.here.insert(number..number + 1);
        relayed.values.remove(&number);
        for (_, offered) in relayed.flows.values_mut() {
            offered.remove(number..number + 1);
        }
        if let Some(plan) = &mut self.plan {
            plan.group.settle(units);
        }
        self.outbox.push(TransferEvent::BlockHere { number });
    }

    /// A session is gone, and what it offered as well.
    pub(super) fn withdraw(&mut self, flow: FlowId) {
        if let Some(relayed) = &mut self.relayed
            && relayed.withdraw(flow)
            && let Some(plan) = &mut self.plan
        {
            plan.group.withdraw(flow);
        }
    }
}

/// The value of no content: BLAKE3 would have to be broken to find any.
const NOTHING: Value = [0xff; TRAILER];

#[cfg(test)]
mod tests {
    use gtp_store::{BLOCK, BlockSource, Pattern, RelPath, SyntheticSource};

    use super::*;

    #[test]
    fn a_block_of_a_relay_must_have_the_value_that_the_source_has_said() {
        let name = RelPath::new("x").unwrap();
        let source = SyntheticSource::file(name, 3 * BLOCK, Pattern::Zeros);
        let mut relayed = Relayed::new(source.manifest(), &[]);
        relayed.flows.insert(1, (Brings::Own, RangeSet::new()));
        relayed.flows.insert(2, (Brings::Others, RangeSet::new()));
        relayed.values.insert(1, [5; TRAILER]);
        let vouched = |relayed: &Relayed, block, brought: &[(FlowId, u64)]| {
            let mut framed = vec![9; 100];
            relayed.vouch((0, block), brought, &mut framed);
            assert_eq!(framed[..68], [9; 68]);
            framed[68]
        };
        let trailer = |block, brought: &[(FlowId, u64)]| vouched(&relayed, block, brought);
        assert_eq!(trailer(1, &[(1, 100)]), 9, "the source is believed");
        assert_eq!(trailer(1, &[(2, 100)]), 5);
        assert_eq!(trailer(1, &[(1, 50), (2, 50)]), 5);
        assert_eq!(trailer(2, &[(2, 100)]), 0xff, "nobody has said what it is");
        assert!(relayed.withdraw(2));
        assert_eq!(vouched(&relayed, 1, &[(2, 100)]), 5, "also of one that has left");
    }
}
