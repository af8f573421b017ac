//! What a sink of blocks is, and how writing can fail.
//!
//! The trait is all that a transfer knows of a destination, so that a disk, a pipe and nothing at
//! all can take its place. Errors name the path and the kind of failure.

use std::io;
use std::ops::Range;

use rustix::io::Errno;

use crate::hash::Value;
use crate::name::{PART_SUFFIX, escaped};
use crate::reread::Reread;

/// Takes the blocks of one object in any order and keeps what verifies.
///
/// The caller writes every block that [`BlockSink::have`] does not list, calls
/// [`BlockSink::checkpoint`] about every 50 ms, and [`BlockSink::finish_file`] for every file
/// whose blocks are all there (the last one written, or all listed by `have`) once it knows, or
/// will not know, the source's root; then [`BlockSink::finish`]. On any other end it calls
/// [`BlockSink::suspend`].
pub trait BlockSink: Send {
    /// The blocks that are already good when the sink is opened: those of a resumed transfer,
    /// and all blocks of files that need not be fetched. Sorted, not overlapping.
    fn have(&self) -> &[Have];

    /// Whether a file was there before, whole under its final name, and is kept as it is. What
    /// an earlier transfer left without a name is not kept: nobody has vouched for it yet.
    fn is_kept(&self, _file: u32) -> bool {
        false
    }

    /// Which blocks may be written now.
    fn window(&self) -> Window;

    /// The device that it writes to, so that whoever writes can keep one that hangs from holding up
    /// others. `None`: no device, or it is not known, as by default.
    fn device(&self) -> Option<u64> {
        None
    }

    /// Checks one block (its content followed by its trailer) and keeps it if it is good. Any
    /// bytes may be given: they come from a peer.
    ///
    /// # Errors
    /// When the destination fails. A bad block is no error: [`Written::Bad`].
    fn write_block(
        &mut self,
        file: u32,
        block: u64,
        content_and_trailer: &[u8],
    ) -> Result<Written, SinkError>;

    /// As [`BlockSink::write_block`] of what `framed` holds, which the sink may take and leave
    /// another buffer for, so that a block need not be copied to be kept. What is left in it is
    /// unspecified. The default takes nothing.
    ///
    /// # Errors
    /// As there.
    fn take_block(
        &mut self,
        file: u32,
        block: u64,
        framed: &mut Vec<u8>,
    ) -> Result<Written, SinkError> {
        self.write_block(file, block, framed)
    }

    /// Makes every block written so far survive the death of this process.
    ///
    /// # Errors
    /// When the destination fails.
    fn checkpoint(&mut self) -> Result<(), SinkError>;

    /// Ends one file whose blocks are all there: compares its root with `expected`, if given,
    /// and gives the file its mode, time and name. Needed for every file with content, in any
    /// order. For a file that needed nothing it returns `None`; if it is kept and a root is
    /// expected of it, it is read and compared, and stays as it is whatever comes out.
    ///
    /// # Errors
    /// [`SinkError::RootMismatch`] (the file's blocks are dropped, a retry fetches them anew),
    /// [`SinkError::Incomplete`], and when the destination fails.
    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError>;

    /// Gives up a file that the source cannot give: what is here of it is dropped, and the object
    /// ends without it. Returns how many of its blocks were missing; `None` when it has ended
    /// already. The default cannot do without a file.
    ///
    /// # Errors
    /// [`SinkError::Unsuitable`] where the object is nothing without the file, and when the
    /// destination fails.
    fn give_up(&mut self, _file: u32) -> Result<Option<u64>, SinkError> {
        Err(SinkError::Unsuitable("the source cannot give a file that is needed".into()))
    }

    /// Entries that this destination has refused since the last call, while it takes the others.
    /// The default refuses none.
    fn take_refused(&mut self) -> Vec<Refused> {
        Vec::new()
    }

    /// Whether this file, for which [`BlockSink::finish_file`] has just returned, gets its name
    /// later, together with others. The default names files at once.
    fn is_named_later(&self, _file: u32) -> bool {
        false
    }

    /// Files that have got their names since the last call, of those that were to get them later,
    /// and empty ones. The default has none.
    fn take_named(&mut self) -> Vec<u32> {
        Vec::new()
    }

    /// One sentence about what the destination was found to be unable to do beside holding data,
    /// once. The default can do everything.
    fn take_warning(&mut self) -> Option<String> {
        None
    }

    /// What reads the blocks that this sink has written, now and after its end. The default keeps
    /// none that can be read.
    fn rereader(&self) -> Option<Reread> {
        None
    }

    /// Whether the blocks of a file can come anew after [`SinkError::RootMismatch`]. The default:
    /// they cannot, for example because they were passed on.
    fn begins_anew(&self, _file: u32) -> bool {
        false
    }

    /// Ends the object: directories, empty files, durability, and no trace of the transfer left.
    ///
    /// # Errors
    /// [`SinkError::Incomplete`] when a file was not finished, and when the destination fails.
    fn finish(&mut self) -> Result<Finished, SinkError>;

    /// Ends the transfer before the object is whole: what is complete gets its name, the rest is
    /// kept for a resume. Best effort; nothing more may be written.
    ///
    /// # Errors
    /// When the destination fails; what was kept before stays.
    fn suspend(&mut self) -> Result<(), SinkError>;
}

/// Blocks of one file that need not be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Have {
    /// Place in the manifest.
    pub file: u32,
    /// Blocks within the file.
    pub blocks: Range<u64>,
}

/// Which blocks a sink takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// Any block at any time.
    Any,
    /// Only those from `next` up to, not including, `end`: the sink writes in order and holds a
    /// bounded number of early blocks. Blocks of the object's only file.
    Blocks {
        /// The first block not written yet.
        next: u64,
        /// The first block too early to take.
        end: u64,
    },
}

/// An entry that a destination refuses: it is left out, and the others are written.
#[derive(Debug)]
pub struct Refused {
    /// Place in the manifest.
    pub file: u32,
    /// How many of its blocks had not been kept.
    pub missing: u64,
    /// Why.
    pub error: SinkError,
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was good and is kept.
    Good,
    /// It was good, is kept, and was the last that its file missed.
    Completed,
    /// It was there already; nothing was done, not even a check.
    Duplicate,
    /// Its source says that it cannot give it ([`LOST`](crate::LOST)).
    Lost,
    /// Content and trailer disagree, or the length is wrong: fetch it again, elsewhere.
    Bad,
}

/// What a whole transfer left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Files that have their content from this transfer or from one that it resumed. Those that
    /// were given up or refused do not count.
    pub files_written: u64,
    /// Files that were there already with the same size and time, and were not fetched.
    pub files_unchanged: u64,
    /// Content bytes of good blocks that this sink was given.
    pub bytes_written: u64,
    /// The BLAKE3 hash of the object, when it is one file and was not skipped.
    pub root: Option<Value>,
}

/// The kinds of failure of a destination, for messages and exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No space, or no quota, left.
    Full,
    /// The file system is read-only.
    ReadOnly,
    /// Permission denied.
    Denied,
    /// The directory that should hold the destination does not exist.
    Missing,
    /// Something other than a directory is where a directory is needed.
    NotADirectory,
    /// A directory is where a file is needed.
    IsADirectory,
    /// A symbolic link is in the way; links are never followed nor replaced.
    Link,
    /// A device, pipe or socket is in the way.
    Special,
    /// The part file or journal there is not ours: a link, another owner's, or of another kind.
    Foreign,
    /// Another name of the object, or of a directory on the way, differs from it in case only (or
    /// in dots and spaces at the end), and the file system does not tell them apart.
    Twin,
    /// What is there should be compared, and cannot be read.
    Unread,
    /// A directory or part file of the transfer was removed, or replaced, while it was under way.
    Gone,
    /// Another transfer is writing this destination.
    InUse,
    /// The file is larger than the file system, or a limit of the process, allows.
    TooLarge,
    /// The name is too long for the file system.
    NameTooLong,
    /// The file system has no such names, for example because of a character.
    Unnameable,
    /// Anything else.
    Other,
}

/// How a sink fails.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The destination refused; exit code 4.
    #[error("{path}: {}", describe(*.fault, .source))]
    Destination {
        /// Escaped for display.
        path: String,
        /// What kind of failure.
        fault: Fault,
        /// What the system said, if it was asked.
        source: Option<io::Error>,
    },
    /// The file's blocks are each good, but together they are not the file that the source
    /// (or the user) says it is; exit code 6.
    #[error("{path}: its BLAKE3 hash is {}, expected {}", hex(.got), hex(.expected))]
    RootMismatch {
        /// Escaped for display.
        path: String,
        /// What was expected.
        expected: Value,
        /// What the blocks merge into.
        got: Value,
    },
    /// The caller wanted to finish while blocks are missing.
    #[error("{path}: still missing: {}", gtp_text::count(*missing, "block"))]
    Incomplete {
        /// Escaped for display.
        path: String,
        /// How many.
        missing: u64,
    },
    /// The block is outside the object or outside the sink's window.
    #[error("no block {block} of file {file} is wanted now")]
    NotWanted {
        /// Place in the manifest.
        file: u32,
        /// Block within the file.
        block: u64,
    },
    /// Its opening was stopped.
    #[error("stopped")]
    Stopped,
    /// This sink cannot take this object.
    #[error("{0}")]
    Unsuitable(String),
}

impl SinkError {
    /// What kind of failure of the destination it is, if it is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            SinkError::Destination { fault, .. } => Some(*fault),
            SinkError::RootMismatch { .. }
            | SinkError::Incomplete { .. }
            | SinkError::NotWanted { .. }
            | SinkError::Stopped
            | SinkError::Unsuitable(_) => None,
        }
    }

    /// What is the matter, without the path, which may be known under another name elsewhere.
    pub fn words(&self) -> String {
        match self {
            // The path is said without the ending that tells what is in the way.
            SinkError::Destination { path, fault: Fault::Foreign, .. }
                if path.ends_with(PART_SUFFIX) =>
            {
                format!("what is in the place of its {PART_SUFFIX} is not ours and is left alone")
            }
            SinkError::Destination { fault, source, .. } => describe(*fault, source),
            SinkError::RootMismatch { .. }
            | SinkError::Incomplete { .. }
            | SinkError::NotWanted { .. }
            | SinkError::Stopped
            | SinkError::Unsuitable(_) => self.to_string(),
        }
    }

    /// Whether another entry of the same tree may still be written: an obstacle at a name, and not
    /// a disk that is full, read-only or broken.
    pub(crate) fn concerns_one_entry(&self) -> bool {
        let SinkError::Destination { fault, source, .. } = self else { return false };
        match fault {
            Fault::Denied
            | Fault::Missing
            | Fault::NotADirectory
            | Fault::IsADirectory
            | Fault::Link
            | Fault::Special
            | Fault::Foreign
            | Fault::Twin
            | Fault::Unread
            | Fault::TooLarge
            | Fault::NameTooLong
            | Fault::Unnameable => true,
            Fault::Full | Fault::ReadOnly | Fault::InUse | Fault::Gone => false,
            Fault::Other => source.as_ref().and_then(io::Error::raw_os_error).is_some_and(|code| {
                // Files that are in use there.
                let at_one_name = [Errno::INVAL, Errno::ILSEQ, Errno::BUSY, Errno::TXTBSY];
                at_one_name.contains(&Errno::from_raw_os_error(code))
            }),
        }
    }

    pub(crate) fn disk(path: &str, source: io::Error) -> SinkError {
        let fault = Fault::of(&source);
        SinkError::Destination { path: escaped(path), fault, source: Some(source) }
    }

    pub(crate) fn refused(path: &str, fault: Fault) -> SinkError {
        SinkError::Destination { path: escaped(path), fault, source: None }
    }
}

impl Fault {
    fn of(error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fault::Full,
            io::ErrorKind::ReadOnlyFilesystem => Fault::ReadOnly,
            io::ErrorKind::PermissionDenied => Fault::Denied,
            io::ErrorKind::NotFound => Fault::Missing,
            io::ErrorKind::NotADirectory => Fault::NotADirectory,
            io::ErrorKind::IsADirectory => Fault::IsADirectory,
            io::ErrorKind::FileTooLarge => Fault::TooLarge,
            io::ErrorKind::InvalidFilename => Fault::NameTooLong,
            // Everything that the standard library may add has no better word yet.
            _ => Fault::Other,
        }
    }

    /// The failure in words.
    pub fn words(self) -> &'static str {
        match self {
            Fault::Full => "no space left",
            Fault::ReadOnly => "the file system is read-only",
            Fault::Denied => "permission denied",
            Fault::Missing => "no such directory",
            Fault::NotADirectory => "not a directory",
            Fault::IsADirectory => "is a directory",
            Fault::Link => "a symbolic link is in the way",
            Fault::Special => "a device, pipe or socket is in the way",
            Fault::Foreign => "is not a file of ours and is left alone",
            Fault::Twin => "this file system takes another name of the same tree for the same name",
            Fault::Unread => "is there and cannot be read to be checked",
            Fault::Gone => "was removed while it was being written",
            Fault::InUse => "another transfer is writing here",
            Fault::TooLarge => "the file is too large here",
            Fault::NameTooLong => "the name is too long here",
            Fault::Unnameable => "the file system does not take this name",
            Fault::Other => "failed",
        }
    }
}

fn describe(fault: Fault, source: &Option<io::Error>) -> String {
    match (fault, source) {
        (Fault::Other, Some(source)) => source.to_string(),
        (fault, _) => fault.words().to_owned(),
    }
}

fn hex(value: &Value) -> String {
    blake3::Hash::from_bytes(*value).to_hex().to_string()
}
