//! Files as rows of verified blocks.
//!
//! An object is a file or a directory tree. A [`Manifest`] lists its entries, every file is cut
//! into blocks of [`BLOCK`] bytes, and the blocks of all files in manifest order form the [`Row`]
//! whose fixed-size units travel. A block carries its own BLAKE3 value as a trailer, so any block
//! from any source is checked alone, and the values merge into the file's ordinary BLAKE3 root.
//!
//! The one idea: a [`BlockSource`] can produce any block at any time without a pass over the file,
//! and a [`BlockSink`] takes blocks in any order, keeps only what verified, and after any kind of
//! death resumes with exactly the blocks that are still good.
//!
//! This crate knows no network, no protocol and no clock, and starts no thread: its values are
//! `Send` and block in system calls on whatever worker the caller gives them.
#![forbid(unsafe_code)]

mod abilities;
mod arrivals;
mod block_row;
mod destination;
mod dir_names;
mod directories;
mod disk;
mod export;
mod file_sink;
mod file_source;
mod files_in_order;
mod gathering;
mod hash;
pub mod journal;
mod known_roots;
mod left_out;
mod lent;
mod lister;
mod log;
mod manifest;
mod name;
mod numbering;
mod parts;
mod pick;
mod plain_sinks;
mod recheck;
pub mod replica;
mod reread;
mod resume;
mod roots;
mod row;
mod shared_blocks;
mod shared_files;
mod sink;
mod source;
mod streamed;
mod synthetic;
mod time_step;
mod tree;
#[cfg(test)]
mod unprivileged;
mod usage;
mod walk;

pub use abilities::is_refused;
pub use block_row::BlockRow;
pub use destination::{Destination, UNFINISHED_DIR};
pub use dir_names::{Claim, Granted, NamesHeld, SharedNames};
pub use disk::{Disk, Found, FoundKind, Identity, LockedFile, MadeDir, Opened, OsDisk};
pub use export::{Chosen, Export, MAX_SKIPPED, Scanned, SkipReason, Skipped};
pub use file_sink::{Durability, Existing, FileSink, SinkOptions};
pub use file_source::FileSource;
pub use files_in_order::FilesInOrder;
pub use gtp_ranges::RangeSet;
pub use hash::{BlockCheck, LOST, Value, block_value, check_block, empty_root};
pub use known_roots::KnownRoots;
pub use lister::{Depth, Lister, Step};
pub use manifest::{
    Attributes, Entry, Kind, MAX_ENTRIES, Manifest, ManifestError, Mode, Mtime, MtimeError,
    RootKind,
};
pub use name::{MAX_COMPONENT, MAX_DEPTH, MAX_PATH, NameError, RelPath, escaped};
pub use plain_sinks::{DiscardSink, OrderedWriterSink};
pub use recheck::Recheck;
pub use reread::{Reading, Reread};
pub use row::{BLOCK, MAX_UNITS, Place, Row, RowError, TRAILER};
pub use shared_blocks::{MAX_READERS, ReadBytes, ReadCount};
pub use shared_files::{Settling, SharedFiles};
pub use sink::{BlockSink, Fault, Finished, Have, Refused, SinkError, Window, Written};
pub use source::{BlockSource, Framed, Lender, SourceError, new_framed};
pub use streamed::StreamedFile;
pub use synthetic::{Pattern, SyntheticSource};
pub use time_step::TimeStep;
pub use tree::Tree;
pub use usage::{Sizes, Usage, usage_beneath};
