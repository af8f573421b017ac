//! Fetches a file again whose blocks are each valid but together have the wrong hash.
//!
//! That happens when blocks of two different files were mixed: by an earlier transfer of another
//! object under the same name, by a source that differs from the others, or by one whose file was
//! rewritten meanwhile. The blocks do not show
//! which of them are wrong, so the whole file is requested again. The holder of the handle decides
//! whether that can help; this module only reports what speaks for it.

use gtp_alloc::Bytes;
use gtp_store::{BLOCK, SinkError};

use super::api::TransferEvent;
use super::table::Table;
use super::transfer::{Phase, Transfer, have_bytes, live, only};

impl Transfer {
    /// The writer has found that a file is not what it must be.
    pub(super) fn wrong_root(&mut self, file: u32, error: SinkError, table: &Table) {
        let resumed = self.have.iter().any(|have| have.file == file);
        let left: Vec<_> = live(&self.flows, table).collect();
        let gone = self.flows.iter().filter(|of| of.bytes > 0 && !left.contains(&of.flow)).count();
        // Those that had gone when it began anew have brought nothing since.
        let before = self.gone.insert(file, gone).unwrap_or(0);
        let doubtful = resumed || gone > before;
        self.outbox.push(TransferEvent::WrongRoot { file, doubtful, error });
    }

    /// All blocks of a file that the sink has dropped are wanted once more.
    pub fn begin_anew(&mut self, file: u32) {
        let size = self.manifest.entries.get(file as usize).map_or(0, |entry| entry.size);
        let blocks = size.div_ceil(BLOCK);
        let ended = !matches!(self.phase, Phase::Moving | Phase::Finishing);
        if ended || blocks == 0 || self.given_up.contains(&file) {
            return;
        }
        let resumed = self.have.iter().filter(|have| have.file == file);
        let resumed: u64 = resumed.map(|have| have_bytes(&self.manifest, have)).sum();
        self.have.retain(|have| have.file != file);
        self.counted.resumed_bytes = self.counted.resumed_bytes.saturating_sub(resumed);
        self.counted.bytes = self.counted.bytes.saturating_sub(Bytes(size).0);
        self.blocks_left += blocks;
        if let Some(plan) = &mut self.plan {
            let units = plan.row.blocks_units(file, 0..blocks);
            // What is behind the front needs no room; these blocks do.
            plan.front = plan.front.min(units.start);
            plan.group.give_back(&only(units));
        }
        self.phase = Phase::Moving;
        self.stalled = false;
        self.dirty = true;
    }
}
