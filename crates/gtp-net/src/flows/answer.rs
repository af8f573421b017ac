//! Answers the questions for roots at the end that has the bytes.
//!
//! A hash may take as long as reading the file, so it is computed while the channel is heard and
//! kept alive: a peer that leaves is noticed at once, and dropping the answers stops the reading at
//! the next block. Whoever asks has checked every block already; this is about the files as wholes.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use gtp_store::{SourceError, Value};

use super::{Failure, FileIndex};
use crate::control::ControlError;
use crate::engine::SourceHandle;
use crate::messages::{Message, Roots, RootsPage, RootsWanted};

/// Questions that wait; beyond them the channel is not read. Each takes 16 bytes, and a peer has
/// half as many open at a time.
pub(super) const QUESTIONS_MAX: usize = 1_024;

/// Bytes that any source can read and hash in a second, however slow its disk.
const SLOWEST: u64 = 8 << 20;

/// Time in which anybody can say the hashes of this many bytes, beside the time of the exchange.
pub(crate) fn hashing_span(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST)
}

/// The questions of one peer, in order, and the answer under way.
#[derive(Default)]
pub(crate) struct RootAnswers {
    asked: VecDeque<RootsWanted>,
    computing: Option<Computing>,
}

type Computing = Pin<Box<dyn Future<Output = Result<Message, SourceError>> + Send>>;

impl RootAnswers {
    /// Whether one more question may be heard.
    pub fn has_room(&self) -> bool {
        self.asked.len() < QUESTIONS_MAX
    }

    /// Whether an answer is under way.
    pub fn is_busy(&self) -> bool {
        self.computing.is_some()
    }

    /// Takes a question; begins with it if it is the only one.
    ///
    /// # Errors
    /// When it is for files that there are not: the peer breaks a rule.
    pub fn ask(
        &mut self,
        wanted: RootsWanted,
        source: &SourceHandle,
        index: &FileIndex,
    ) -> Result<(), Failure> {
        if index.entries(wanted.first_file, wanted.files).is_none() {
            let text = "a question for files that are not".into();
            return Err(ControlError::Unexpected(text).into());
        }
        self.asked.push_back(wanted);
        self.begin(source, index);
        Ok(())
    }

    /// Begins with the next question if none is under way.
    pub fn begin(&mut self, source: &SourceHandle, index: &FileIndex) {
        if self.computing.is_some() {
            return;
        }
        let Some(wanted) = self.asked.pop_front() else { return };
        let entries = index.entries(wanted.first_file, wanted.files).unwrap_or_default();
        // Entries between files are directories; runs of files are asked for at once.
        let runs = entries.chunk_by(|a, b| a + 1 == *b);
        let ranges = runs.filter_map(|run| Some(*run.first()?..*run.last()? + 1));
        let parts: Vec<_> = ranges.map(|range| source.roots(range)).collect();
        self.computing = Some(Box::pin(async move {
            let mut roots: Vec<Value> = Vec::new();
            for part in parts {
                roots.extend(part.await?);
            }
            let page = RootsPage { first_file: wanted.first_file, roots: Roots(roots) };
            Ok(Message::Roots(page))
        }));
    }

    /// The answer under way, when it is there; never, if there is none. Safe to cancel.
    pub async fn next(&mut self) -> Result<Message, SourceError> {
        let Some(computing) = &mut self.computing else { return std::future::pending().await };
        let answer = computing.await;
        self.computing = None;
        answer
    }
}
