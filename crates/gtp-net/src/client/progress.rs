//! What whoever started a transfer hears about it.
//!
//! Events happen once and are told in order; progress is a state, of which only the newest counts.
//! Both are plain values, free of handles, so that any front end can keep them.

use gtp_alloc::{Rate, Span};
use gtp_proto::LimitedBy;
use gtp_proto::path::Standing;
use gtp_store::{RootKind, Value};

use crate::engine::Way;
use crate::flows::Failure;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object is known and bytes begin to move.
    Started {
        /// Where it goes, or the address it goes to; escaped for display.
        destination: String,
        /// A file or a directory.
        kind: RootKind,
        /// Files in it.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A source was lost, or did not answer, and is tried again.
    Retry {
        /// Its address.
        url: String,
        /// Why.
        failure: Failure,
        /// The pause before.
        after: Span,
    },
    /// The data of a source go by another way: UDP does not get through, or does again.
    Way {
        /// Its address.
        url: String,
        /// By which way.
        way: Way,
        /// The same for people.
        text: String,
    },
    /// A source is given up; the others go on.
    Dropped {
        /// Its address.
        url: String,
        /// Why.
        failure: Failure,
    },
    /// Something at the source will not come.
    Skipped(Failure),
    /// The destination cannot do something that data do not need, in a sentence.
    Warning(String),
    /// A block failed its check and is fetched anew.
    BadBlock {
        /// The source that sent it.
        url: String,
        /// The file in the object.
        path: String,
        /// The block.
        block: u64,
    },
    /// The blocks of a file are each good, and together another file: some came from an earlier
    /// transfer or a source that is gone. All of it is fetched anew.
    Renewed {
        /// The file in the object.
        path: String,
    },
    /// A file is whole and has its name.
    FileDone {
        /// The file in the object.
        path: String,
        /// Its bytes.
        bytes: u64,
        /// Its BLAKE3 hash; `None` if it was there before.
        blake3: Option<Value>,
    },
}

/// How a transfer is doing.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time since the request.
    pub elapsed: Span,
    /// Content bytes in place, those of an earlier transfer included. For `put` what the server has
    /// proved to have received.
    pub bytes: u64,
    /// Of them, those that were there before.
    pub resumed_bytes: u64,
    /// Content bytes read again at the destination before anything moves: what an earlier transfer
    /// left counts only once it is hashed. It rises while that goes on.
    pub rechecked: u64,
    /// Content bytes in all; 0 as long as nobody knows.
    pub total: u64,
    /// Files that are whole. `put` is told of bytes alone, so its files count as whole in their
    /// order: as many of the first ones as fit in `bytes`.
    pub files_done: u64,
    /// Files in all; 0 as long as nobody knows, and of a stream.
    pub files: u64,
    /// Every source, in the order named; for `put` the one server.
    pub sources: Vec<SourceShare>,
}

/// What one source does.
#[derive(Clone, Debug)]
pub struct SourceShare {
    /// Its address.
    pub url: String,
    /// Content bytes that came from it and verified.
    pub bytes: u64,
    /// IP bytes of data packets.
    pub wire_bytes: u64,
    /// Payload bytes that were here already.
    pub duplicate_bytes: u64,
    /// IP bytes per time, last interval.
    pub rate: Rate,
    /// What it is granted.
    pub granted: Rate,
    /// What keeps it from going faster.
    pub limited_by: LimitedBy,
    /// How the path stands, where this end sends.
    pub path: Option<Standing>,
    /// Data packets lost of those sent.
    pub loss_ratio: f64,
    /// Smoothed round-trip time.
    pub rtt: Span,
    /// By which way its datagrams go.
    pub way: Way,
    /// Whether a session with it runs.
    pub alive: bool,
}

impl SourceShare {
    /// A source that has done nothing yet.
    pub(super) fn new(url: String) -> SourceShare {
        SourceShare {
            url,
            bytes: 0,
            wire_bytes: 0,
            duplicate_bytes: 0,
            rate: Rate::ZERO,
            granted: Rate::ZERO,
            limited_by: LimitedBy::Path,
            path: None,
            loss_ratio: 0.0,
            rtt: Span::ZERO,
            way: Way::Udp,
            alive: false,
        }
    }
}

impl Progress {
    /// IP bytes per time of all sources together.
    pub fn rate(&self) -> Rate {
        self.alive().fold(Rate::ZERO, |sum, s| sum.saturating_add(s.rate))
    }

    /// What all sources together are granted.
    pub fn granted(&self) -> Rate {
        self.alive().fold(Rate::ZERO, |sum, s| sum.saturating_add(s.granted))
    }

    /// What limits the source that brings most.
    pub fn limited_by(&self) -> LimitedBy {
        let most = self.alive().max_by_key(|s| s.rate);
        most.map_or(LimitedBy::Path, |s| s.limited_by)
    }

    /// Data packets lost of those sent, all sources together.
    pub fn loss_ratio(&self) -> f64 {
        mean_loss(self.sources.iter().map(|source| (source.wire_bytes, source.loss_ratio)))
    }

    /// Payload bytes that came more than once.
    pub fn duplicate_bytes(&self) -> u64 {
        self.sources.iter().map(|s| s.duplicate_bytes).sum()
    }

    fn alive(&self) -> impl Iterator<Item = &SourceShare> {
        self.sources.iter().filter(|s| s.alive)
    }
}

/// The loss of several sessions together, from 0 to 1: of each the bytes that arrived and its own
/// loss ratio. What arrived is the part that was not lost.
pub(super) fn mean_loss(sessions: impl Iterator<Item = (u64, f64)>) -> f64 {
    let (mut sent, mut lost) = (0.0, 0.0);
    for (arrived, ratio) in sessions {
        let ratio = if ratio.is_nan() { 0.0 } else { ratio.clamp(0.0, 1.0) };
        let all = arrived as f64 / (1.0 - ratio.min(LOSS_COUNTED));
        sent += all;
        lost += all * ratio;
    }
    if sent > 0.0 { (lost / sent).min(1.0) } else { 0.0 }
}

/// A session that loses more than this, of which next to nothing arrives, counts as losing this.
const LOSS_COUNTED: f64 = 0.99;

/// What a finished transfer has done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Content bytes of the object.
    pub bytes: u64,
    /// Of them, those that were there before.
    pub resumed_bytes: u64,
    /// From the request to the end.
    pub elapsed: Span,
    /// Files written by this transfer, or finished by it.
    pub files_written: u64,
    /// Files that were there, unchanged.
    pub files_unchanged: u64,
    /// The object's BLAKE3 hash if it is one file.
    pub blake3: Option<Value>,
    /// The last numbers of all sources.
    pub progress: Progress,
    /// What was there but did not come.
    pub skipped: Vec<Failure>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_loss_of_any_sessions_lies_between_none_and_all(
            sessions in proptest::collection::vec((any::<u64>(), any::<f64>()), 0..9)
        ) {
            let loss = mean_loss(sessions.into_iter());
            prop_assert!((0.0..=1.0).contains(&loss), "{}", loss);
        }

        #[test]
        fn the_loss_of_several_lies_between_theirs(
            sessions in proptest::collection::vec((1u64..1 << 50, 0.0..0.99f64), 1..9)
        ) {
            let least = sessions.iter().map(|s| s.1).fold(1.0, f64::min);
            let most = sessions.iter().map(|s| s.1).fold(0.0, f64::max);
            let loss = mean_loss(sessions.into_iter());
            prop_assert!((least - 1e-9..=most + 1e-9).contains(&loss), "{}", loss);
        }
    }
}
