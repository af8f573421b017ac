//! What becomes of a block once the writer has looked at it.
//!
//! A good block is counted for the sessions that brought it. A bad one is asked for again, from
//! another source if there is one. A block that its source cannot give is looked for elsewhere, and
//! if no source has it, its file is given up. This module must not know how the writer checks a
//! block, nor which session is asked next.

use std::ops::Range;

use gtp_alloc::{Bytes, Time};
use gtp_proto::FlowId;
use gtp_store::TRAILER;

use super::{Transfer, live, only};
use crate::engine::api::TransferEvent;
use crate::engine::table::Table;
use crate::engine::writer::WriteJob;

/// What is remembered of a block at the writer.
pub struct InWriting {
    pub(super) units: Range<u64>,
    pub(super) file: u32,
    pub(super) block: u64,
    pub(super) length: Bytes,
    pub(super) brought: Vec<(FlowId, u64)>,
}

/// Damaged blocks that the only source may be asked for again: files of which a part was sent
/// before they changed and the rest after. More are damage.
const SECOND_CHANCES: usize = 64;

impl Transfer {
    /// The writer has looked at a block: it is counted, or asked for again.
    pub(super) fn handle_outcome(
        &mut self,
        now: Time,
        block: InWriting,
        outcome: gtp_store::Written,
        table: &mut Table,
    ) {
        let completed = match outcome {
            gtp_store::Written::Duplicate => return,
            gtp_store::Written::Bad => return self.handle_bad(now, block, table),
            gtp_store::Written::Lost => return self.handle_lost(block, table),
            gtp_store::Written::Good => false,
            gtp_store::Written::Completed => true,
        };
        if let Some(plan) = &mut self.plan {
            plan.suspects.clear(block.units.start);
            plan.lost.remove(&block.units.start);
        }
        for (flow, content) in without_trailer(block.brought) {
            self.counted.bytes += content;
            if let Some(record) = self.flows.iter_mut().find(|record| record.flow == flow) {
                record.bytes += content;
            }
        }
        self.blocks_left = self.blocks_left.saturating_sub(1);
        self.note_here(block.file, block.block, block.units);
        if completed && self.is_trusted(block.file) {
            self.tell_writer(WriteJob::Files(vec![(block.file, None)]));
        }
        self.check_all_blocks();
    }

    /// A source says that it cannot give a block. Another may; if there is none, the transfer goes
    /// on without the file.
    fn handle_lost(&mut self, lost: InWriting, table: &Table) {
        let Some(plan) = &mut self.plan else { return };
        let [(flow, _)] = lost.brought[..] else {
            // Parts of it came from elsewhere: it is asked of one of them alone.
            let parties = lost.brought.iter().map(|&(flow, _)| flow);
            plan.suspects.accuse(lost.units, parties);
            return;
        };
        let first = lost.units.start;
        let others = live(&self.flows, table).filter(|&id| id != flow);
        let possible = others.into_iter().any(|id| plan.group.may_ask(id, first));
        plan.suspects.clear(first);
        if possible {
            plan.group.refetch(lost.units, flow);
            plan.lost.insert(first, lost.file);
        } else if self.given_up.insert(lost.file) {
            self.tell_writer(WriteJob::GiveUp(lost.file));
        }
    }

    /// Gives up files with a block that none of the sources that are left can give.
    pub(in crate::engine) fn check_lost(&mut self, table: &Table) {
        let Some(plan) = self.plan.as_mut().filter(|plan| !plan.lost.is_empty()) else { return };
        let left: Vec<FlowId> = live(&self.flows, table).collect();
        let unasked = &plan.group;
        plan.lost.retain(|&first, file| {
            let refused = left.iter().all(|&flow| !unasked.may_ask(flow, first));
            let hopeless = refused && !left.is_empty() && !self.writing.contains_key(&first);
            if hopeless
                && self.given_up.insert(*file)
                && let Some(writer) = &self.writer
            {
                writer.send(WriteJob::GiveUp(*file));
            }
            !hopeless
        });
    }

    /// A block failed its check. Brought by one source alone, it is known who lied; by several, it
    /// is asked of one of them alone.
    fn handle_bad(&mut self, now: Time, bad: InWriting, table: &mut Table) {
        let Some(plan) = &mut self.plan else { return };
        let [(flow, _)] = bad.brought[..] else {
            let parties = bad.brought.iter().map(|&(flow, _)| flow);
            plan.suspects.accuse(bad.units, parties);
            return;
        };
        let first = bad.units.start;
        let mut others = live(&self.flows, table).filter(|&id| id != flow);
        let alone = others.all(|id| !plan.group.may_ask(id, first));
        drop(others);
        // A host that relays is asked once, and others may come to have what it has spoilt.
        let relays = self.relayed.as_ref().is_some_and(|relayed| relayed.is_of_others(flow));
        // A file that changed between two sendings of a block looks like damage once.
        let again = !relays
            && self.second_chances.len() < SECOND_CHANCES
            && self.second_chances.insert(first);
        if alone && again {
            let (file, block) = (bad.file, bad.block);
            plan.group.give_back(&only(bad.units));
            self.outbox.push(TransferEvent::BadBlock { flow, file, block });
            return;
        }
        plan.suspects.convict(first, flow);
        plan.group.refetch(bad.units, flow);
        let (file, block) = (bad.file, bad.block);
        self.outbox.push(TransferEvent::BadBlock { flow, file, block });
        let mut left = live(&self.flows, table).filter(|&id| plan.group.may_ask(id, first));
        if left.next().is_none() && !relays {
            self.outbox.push(TransferEvent::Unobtainable { flow, file, block });
            drop(left);
            self.stop(now, table);
        }
    }
}

/// What of a block each session brought is content: its trailer is taken off whoever is named
/// first, and what that one did not bring off the next.
fn without_trailer(brought: Vec<(FlowId, u64)>) -> impl Iterator<Item = (FlowId, u64)> {
    let mut trailer = TRAILER as u64;
    brought.into_iter().map(move |(flow, bytes)| {
        let off = trailer.min(bytes);
        trailer -= off;
        (flow, bytes - off)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_counts_for_nobody_also_where_one_session_brought_only_a_part_of_it() {
        let brought = vec![(1, 20), (2, 5), (3, 1_400), (4, 1_400)];
        let content: Vec<_> = without_trailer(brought).collect();
        assert_eq!(content, [(1, 0), (2, 0), (3, 1_400 - 7), (4, 1_400)]);
    }
}
