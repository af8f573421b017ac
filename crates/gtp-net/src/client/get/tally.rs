//! Which session belongs to which source, and what all of a source's sessions brought together.
//!
//! The engine counts by session, people think in sources, and a source that was lost and came back
//! has had several sessions. It only adds up, and decides nothing.

use std::collections::HashMap;

use gtp_proto::FlowId;

use super::Source;
use crate::client::progress::{Progress, SourceShare, mean_loss};
use crate::engine::TransferProgress;

/// The numbers of a transfer, per source.
pub(super) struct Tally {
    flows: HashMap<FlowId, usize>,
    progress: Progress,
}

impl Tally {
    pub fn new(urls: impl Iterator<Item = String>) -> Tally {
        let sources = urls.map(SourceShare::new).collect();
        Tally { flows: HashMap::new(), progress: Progress { sources, ..Progress::default() } }
    }

    pub fn assign(&mut self, flow: FlowId, source: usize) {
        self.flows.insert(flow, source);
    }

    pub fn source_of(&self, flow: FlowId) -> Option<usize> {
        self.flows.get(&flow).copied()
    }

    /// What is at the destination is being read again, before anything moves.
    pub fn recheck(&mut self, bytes: u64, total: u64) {
        self.progress.rechecked = bytes;
        self.progress.total = total;
    }

    /// The object is known: it has so many files.
    pub fn has_files(&mut self, files: u64) {
        self.progress.files = files;
    }

    /// One more file is whole.
    pub fn file_done(&mut self) {
        self.progress.files_done += 1;
    }

    /// Nothing more will come: all files but so many are whole.
    pub fn is_over(&mut self, missing: u64) {
        self.progress.files_done = self.progress.files.saturating_sub(missing);
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Takes the engine's numbers in; says whether verified bytes have come.
    pub fn update(&mut self, numbers: &TransferProgress, sources: &mut [Source]) -> bool {
        let before = self.progress.bytes;
        let shares = &mut self.progress.sources;
        let old: Vec<u64> = shares.iter().map(|s| s.bytes).collect();
        for share in shares.iter_mut() {
            let way = share.way;
            *share = SourceShare { way, ..SourceShare::new(std::mem::take(&mut share.url)) };
        }
        let mut sent: Vec<Vec<(u64, f64)>> = vec![Vec::new(); shares.len()];
        for flow in &numbers.flows {
            let Some(&number) = self.flows.get(&flow.flow) else { continue };
            let (Some(share), Some(sent)) = (shares.get_mut(number), sent.get_mut(number)) else {
                continue;
            };
            share.bytes += flow.bytes;
            share.wire_bytes += flow.wire_bytes;
            share.duplicate_bytes += flow.duplicate_bytes;
            sent.push((flow.wire_bytes, flow.loss_ratio));
            if flow.alive || !share.alive {
                // A short transfer's session has ended when it is looked at first.
                share.way = flow.way;
            }
            if flow.alive {
                share.rate = flow.rate;
                share.granted = flow.granted;
                share.limited_by = flow.limited_by;
                share.rtt = flow.rtt;
                share.alive = true;
            }
        }
        for (share, sessions) in shares.iter_mut().zip(sent) {
            share.loss_ratio = mean_loss(sessions.into_iter());
        }
        let moved = numbers.bytes > before;
        for ((share, old), source) in shares.iter().zip(old).zip(sources) {
            if share.bytes > old {
                source.tries = 0;
            }
        }
        self.progress.bytes = numbers.bytes;
        self.progress.resumed_bytes = numbers.resumed_bytes;
        self.progress.total = numbers.total;
        moved
    }
}
