//! What keeps a transfer from going faster, in the words that people read of sessions as well.
//!
//! The words are the ones that the daemon's page has, and those of `gtp top` and of progress are
//! the same. This file must not have any of its own.

use gtp::Progress;
pub use gtp_share::limit::{Ends, of_session, read};

/// The hosts of a transfer, whose sessions all go one way. Only who sends knows how paths stand.
pub fn ends_of(progress: &Progress) -> Ends {
    if progress.sources.iter().any(|share| share.path.is_some()) { Ends::PUT } else { Ends::GET }
}
