//! What has limited a transfer for most of its time.
//!
//! What limits it is looked at ten times a second while it moves; the newest look alone would say
//! what limited the last block. It knows numbers, not transfers.

use gtp::{LimitedBy, Progress};

/// How often each limit was seen.
#[derive(Clone, Debug, Default)]
pub struct Limits(Vec<(LimitedBy, u32)>);

impl Limits {
    /// Takes in a look, if bytes are still to come.
    pub fn note(&mut self, progress: &Progress) {
        let moves = progress.sources.iter().any(|source| source.alive);
        if !moves || progress.total == 0 || progress.bytes >= progress.total {
            return;
        }
        let limit = progress.limited_by();
        match self.0.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, looks)) => *looks += 1,
            None => self.0.push((limit, 1)),
        }
    }

    /// The limit that was seen most often; `None` if the transfer was over before a look.
    pub fn most(&self) -> Option<LimitedBy> {
        self.0.iter().max_by_key(|(_, looks)| *looks).map(|(limit, _)| *limit)
    }
}
