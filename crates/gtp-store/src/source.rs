//! What a source of blocks is, and how reading can fail.
//!
//! The trait is all that a transfer knows of an origin, so that files and made-up bytes can take
//! its place. Errors name the path and say whether the file changed.

use std::io;
use std::sync::Arc;

use aligned_vec::{AVec, ConstAlign};
use bytes::Bytes;

use crate::hash::Value;
use crate::manifest::{Manifest, ManifestError};
use crate::name::RelPath;

/// A block with its trailer, as it is loaded: it begins where a cache line does.
///
/// The kernel copies a file's pages by `rep movsb`, for which AMD's processors since Zen 3 take
/// four times as long where the target lies 1 to 31 bytes further into its page than the source
/// into its own. What `malloc` gives for a block lies 16 bytes into a page; a file begins one.
pub type Framed = AVec<u8, ConstAlign<LINE>>;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A buffer that has nothing in it, nor memory.
pub fn new_framed() -> Framed {
    AVec::new(LINE)
}

/// Produces any block of one object, in any order, any number of times.
pub trait BlockSource: Send {
    /// The object's listing. It never changes; a source that does is an error of its blocks.
    fn manifest(&self) -> &Arc<Manifest>;

    /// Replaces `out` with a block's content followed by its value (its trailer). `file` is the
    /// entry's place in the manifest, `block` counts within the file.
    ///
    /// # Errors
    /// [`SourceError::NoSuchBlock`] for a block outside the object (a peer may ask for any),
    /// [`SourceError::Changed`] when the file is not the one that was listed any more, and what
    /// reading says. `out` is then unspecified.
    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError>;

    /// The way to blocks that lie in memory already, to be sent from where they lie; `None` where
    /// blocks must be loaded. The default has none.
    fn lender(&self) -> Option<Box<dyn Lender>> {
        None
    }

    /// The device that it is read from, so that whoever reads can keep one that hangs from holding
    /// up others; of several, one of them. `None`: no device, or it is not known, as by default.
    fn device(&self) -> Option<u64> {
        None
    }

    /// What there is to say, since the last call, of files that are delivered nevertheless, by
    /// their places in the manifest: [`SourceError::Grew`]. The default has nothing to say.
    fn take_remarks(&mut self) -> Vec<(u32, SourceError)> {
        Vec::new()
    }

    /// The BLAKE3 hash of a whole file. Blocks that were loaded cost nothing more; others are
    /// read now, so this may take as long as reading the file.
    ///
    /// # Errors
    /// As [`BlockSource::load_block`]; [`SourceError::NoSuchBlock`] for a directory.
    fn file_root(&mut self, file: u32) -> Result<Value, SourceError> {
        self.file_root_while(file, &|| true)
    }

    /// As [`BlockSource::file_root`], but `wanted` is asked before each block is read, and when it
    /// says no the work ends there. What was read until then is remembered for the next time: if
    /// nothing else is asked before that, it goes on where it ended.
    ///
    /// # Errors
    /// As there; [`SourceError::Unwanted`] when it ended early.
    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError>;
}

/// Lends the blocks of an object that lies in memory: nothing is read, so nobody waits and nothing
/// is copied before it is sent.
pub trait Lender: Send {
    /// A block's content followed by its value, as [`BlockSource::load_block`] gives it; `None` for
    /// one that must be loaded, or that is outside the object (a peer may ask for any).
    fn lend(&self, file: u32, block: u64) -> Option<Bytes>;
}

/// How a source fails.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no such file or directory, or a component of its path is a link.
    #[error("{path}: no such file or directory")]
    Missing {
        /// Escaped for display.
        path: String,
    },
    /// The source host may not read it.
    #[error("{path}: permission denied")]
    Denied {
        /// Escaped for display.
        path: String,
    },
    /// It is a symbolic link.
    #[error("{path}: is a symbolic link, which is neither followed nor carried")]
    Link {
        /// Escaped for display.
        path: String,
    },
    /// It is neither a regular file nor a directory.
    #[error("{path}: neither a regular file nor a directory")]
    Special {
        /// Escaped for display.
        path: String,
    },
    /// The file was written, cut, replaced or removed since it was listed.
    #[error("{path}: changed while being sent")]
    Changed {
        /// The file, relative to the object.
        path: RelPath,
    },
    /// The file was written or became longer since it was listed, and what was listed of it is
    /// delivered as it was when it was read. Said beside a delivery, never instead of one.
    #[error("{path}: changed while being sent; delivered as listed")]
    Grew {
        /// The file, relative to the object.
        path: RelPath,
    },
    /// No such block in this object: the request was wrong.
    #[error("no block {block} in file {file}")]
    NoSuchBlock {
        /// Place in the manifest.
        file: u32,
        /// Block within the file.
        block: u64,
    },
    /// The caller has no room for a listing of this length.
    #[error("no room for the listing")]
    NoRoom,
    /// Nobody waits for the answer any more.
    #[error("given up: nobody waits for it any more")]
    Unwanted,
    /// The object cannot be listed within the limits.
    #[error(transparent)]
    Listing(#[from] ManifestError),
    /// Reading failed otherwise.
    #[error("{path}: {source}")]
    Read {
        /// Escaped for display.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl SourceError {
    /// What is the matter, without the path.
    pub fn words(&self) -> String {
        let all = self.to_string();
        let path = match self {
            SourceError::Missing { path }
            | SourceError::Denied { path }
            | SourceError::Link { path }
            | SourceError::Special { path }
            | SourceError::Read { path, .. } => path.clone(),
            SourceError::Changed { path } | SourceError::Grew { path } => path.to_string(),
            SourceError::NoSuchBlock { .. }
            | SourceError::NoRoom
            | SourceError::Unwanted
            | SourceError::Listing(_) => return all,
        };
        all.strip_prefix(&format!("{path}: ")).map_or(all.clone(), str::to_owned)
    }
}
