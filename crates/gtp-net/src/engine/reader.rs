//! The worker that reads a source session's object.
//!
//! A clerk of the crew's owns the [`BlockSource`](gtp_store::BlockSource), loads the blocks that it
//! is told to, in that order, and computes roots. Roots for which files must be read again are a
//! chore: they are computed by threads of low priority, in turns with other clients. What nobody
//! waits for any more it leaves at the next block. It ends when nobody can give it work.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_alloc::Span;
use gtp_proto::FlowId;
use gtp_store::{BLOCK, Framed, Kind, LOST, RelPath, RootKind, SourceError, TRAILER, Value};
use gtp_sys::Clock;
use gtp_sys::descriptors::are_used_up;
use tokio::sync::oneshot;

use super::command::{Notice, Notices, Object};
use super::crew::{Clerk, Crew, Inlet, Step};
use super::turns::Party;

/// What a reader is asked.
pub(super) enum ReadJob {
    /// Load a block into this buffer. Where units are `cut` so long, it begins with this one.
    Load { file: u32, block: u64, first_unit: u64, cut: u16, buffer: Framed },
    /// Compute the roots of files.
    Roots(Range<u32>, oneshot::Sender<Result<Vec<Value>, SourceError>>),
}

/// What a reader answers to [`ReadJob::Load`].
pub(super) enum Loaded {
    /// The block that begins with this unit, where units are cut so long, and how long it took.
    Block { first_unit: u64, cut: u16, content_and_trailer: Framed, took: Span },
    /// A file cannot be given any more, or was given although it grew.
    FileFault { path: RelPath, error: SourceError },
    /// Reading failed.
    Failed { error: SourceError },
}

/// The way to a reader.
#[derive(Clone)]
pub(super) struct ReadJobs {
    /// `None`: to nobody.
    desk: Option<Arc<Inlet<Reader>>>,
    /// The session is over: blocks are wanted no more, though roots may be.
    over: Arc<AtomicBool>,
}

impl ReadJobs {
    /// To nobody: whatever is sent is dropped.
    pub fn unread() -> ReadJobs {
        ReadJobs { desk: None, over: Arc::default() }
    }

    /// Queues a job. A reader that is gone drops it, which its answer's receiver notices.
    pub fn send(&self, job: ReadJob) {
        if let Some(desk) = &self.desk {
            desk.send(job);
        }
    }

    /// Blocks that are still to be loaded are not wanted any more.
    pub fn stop_loading(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Reads an object for a session.
pub(super) struct Reader {
    flow: FlowId,
    reading: Reading,
    /// The session is over.
    over: Arc<AtomicBool>,
    notices: Notices,
    clock: Clock,
    /// Roots that are being computed.
    hashing: Option<Hashing>,
}

/// Roots of these files that are still to be computed, those before them, and who waits for all.
struct Hashing {
    files: Range<u32>,
    values: Vec<Value>,
    answer: oneshot::Sender<Result<Vec<Value>, SourceError>>,
}

/// The reader has ended, which it does on its own only when it cannot go on.
pub(super) fn gone() -> SourceError {
    let source = io::Error::other("the reader has ended");
    SourceError::Read { path: "the object".into(), source }
}

impl Reader {
    /// A reader for this session, and for this party.
    pub fn new(flow: FlowId, object: Object, party: Party, notices: Notices) -> Reader {
        let (reading, over) = (Reading::of(object, party), Arc::default());
        Reader { flow, reading, over, notices, clock: Clock::start(), hashing: None }
    }

    /// Gives the reader its desk.
    pub fn at_desk(self, crew: &Arc<Crew>) -> ReadJobs {
        let (device, over) = (self.reading.object.device(), Arc::clone(&self.over));
        ReadJobs { desk: Some(Arc::new(Inlet::open(crew, self, device))), over }
    }

    fn load(&mut self, (file, block): (u32, u64), (first_unit, cut): (u64, u16), out: Framed) {
        let (began, mut buffer) = (self.clock.now(), out);
        let loaded = match self.reading.load(file, block, &mut buffer) {
            Ok(()) => {
                let took = self.clock.now().since(began);
                Loaded::Block { first_unit, cut, content_and_trailer: buffer, took }
            }
            Err(error) => Loaded::Failed { error },
        };
        self.reading.tell(self.flow, &self.notices);
        self.notices.send(Notice::Loaded(self.flow, loaded));
    }

    /// Goes on with roots, or answers.
    fn go_on(&mut self, hashing: Hashing, hashed: Result<Hashed, SourceError>) -> Step {
        let all = match hashed {
            Ok(Hashed::Some) => {
                self.hashing = Some(hashing);
                return Step::Chore(self.reading.party);
            }
            Ok(Hashed::All) => Ok(hashing.values),
            Err(error) => Err(error),
        };
        self.reading.tell(self.flow, &self.notices);
        // Whoever asked may have gone; then nobody misses the answer.
        let _ = hashing.answer.send(all);
        Step::Go
    }
}

impl Drop for Reader {
    /// A reader that panics is dropped on the way, and the engine hears of its end.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.notices.send(Notice::Loaded(self.flow, Loaded::Failed { error: gone() }));
        }
    }
}

impl Clerk for Reader {
    type Job = ReadJob;

    fn work(&mut self, job: ReadJob) -> Step {
        match job {
            ReadJob::Load { .. } if self.over.load(Ordering::Relaxed) => Step::Go,
            ReadJob::Load { file, block, first_unit, cut, buffer } => {
                self.load((file, block), (first_unit, cut), buffer);
                Step::Go
            }
            ReadJob::Roots(files, answer) => {
                let mut hashing = Hashing { files, values: Vec::new(), answer };
                let hashed = self.reading.known_roots(&mut hashing);
                self.go_on(hashing, hashed)
            }
        }
    }

    fn chore(&mut self, may_go_on: &dyn Fn() -> bool) -> Step {
        let Some(mut hashing) = self.hashing.take() else { return Step::Go };
        let hashed = self.reading.hash(&mut hashing, may_go_on);
        self.go_on(hashing, hashed)
    }
}

/// How far roots are.
#[derive(Debug, PartialEq, Eq)]
enum Hashed {
    /// There are more to be computed.
    Some,
    /// All are there.
    All,
}

/// Blocks that are hashed before another client's turn: some milliseconds' work.
const BLOCKS_A_TURN: u32 = 8;

/// Roots of one question that are given without a turn, if no file must be read for them.
const ROOTS_AT_ONCE: u32 = 64;

/// An object that is read, and which of its files cannot be given any more.
struct Reading {
    object: Object,
    /// For whom it is read.
    party: Party,
    /// Whether the object is worth sending without one of its files.
    several: bool,
    lost: BTreeSet<u32>,
    /// Not told yet.
    faults: Vec<(u32, SourceError)>,
    told: usize,
}

/// Files of which a sink hears by name that they cannot be given; of more it hears by their blocks.
const FAULTS_TOLD: usize = 900;

impl Reading {
    fn of(object: Object, party: Party) -> Reading {
        let manifest = object.manifest();
        let files = manifest.entries.iter().filter(|entry| entry.size > 0).take(2).count();
        let several = manifest.root_kind == RootKind::Dir && files > 1;
        Reading { object, party, several, lost: BTreeSet::new(), faults: Vec::new(), told: 0 }
    }

    /// Loads a block; of a file of a tree that cannot be given, what says so in its place.
    fn load(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        if !self.lost.contains(&file) {
            match self.object.load_block(file, block, out) {
                Ok(()) => return Ok(()),
                Err(error) => self.lose(file, error)?,
            }
        }
        let size = self.object.manifest().entries.get(file as usize).map_or(0, |e| e.size);
        let content = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        out.clear();
        out.resize(content + TRAILER, 0);
        out[content..].copy_from_slice(&LOST);
        Ok(())
    }

    /// Notes that a file cannot be given; an error that concerns more than a file comes back.
    fn lose(&mut self, file: u32, error: SourceError) -> Result<(), SourceError> {
        let of_one_file = match error {
            SourceError::Missing { .. }
            | SourceError::Denied { .. }
            | SourceError::Link { .. }
            | SourceError::Special { .. }
            | SourceError::Changed { .. }
            | SourceError::Grew { .. } => true,
            // Where descriptors are used up it is not the file's fault.
            SourceError::Read { ref source, .. } => !are_used_up(source),
            SourceError::NoSuchBlock { .. }
            | SourceError::NoRoom
            | SourceError::Unwanted
            | SourceError::Listing(_) => false,
        };
        if !self.several || !of_one_file {
            return Err(error);
        }
        if self.lost.insert(file) {
            self.faults.push((file, error));
        }
        Ok(())
    }

    /// Begins to compute roots: those for which no file must be read, as far as they come first.
    /// A directory, and a file that cannot be given, have zeros.
    fn known_roots(&mut self, hashing: &mut Hashing) -> Result<Hashed, SourceError> {
        let files = hashing.files.clone();
        // Blocks that were sent have been hashed already, and their roots cost little.
        let few = files.start..files.end.min(files.start.saturating_add(ROOTS_AT_ONCE));
        match self.add_roots(few, &mut hashing.values, &|| false) {
            Ok(()) | Err(SourceError::Unwanted) => {}
            Err(error) => return Err(error),
        }
        hashing.files.start += hashing.values.len() as u32;
        Ok(if hashing.files.is_empty() { Hashed::All } else { Hashed::Some })
    }

    /// Computes more of them, as long as somebody waits and it may go on.
    fn hash(
        &mut self,
        hashing: &mut Hashing,
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<Hashed, SourceError> {
        let (looks, is_over) = (Cell::new(0), Cell::new(false));
        let Hashing { files, values, answer } = hashing;
        // Whether it is wanted is asked before each file and block: a time to let others in.
        let wanted = &|| {
            looks.set(looks.get() + 1);
            is_over.set(looks.get() % BLOCKS_A_TURN == 0 && !may_go_on());
            !is_over.get() && !answer.is_closed()
        };
        while files.start < files.end {
            let one = files.start..files.start + 1;
            let done = if wanted() {
                self.add_roots(one, values, wanted)
            } else {
                Err(SourceError::Unwanted)
            };
            match done {
                Ok(()) => files.start += 1,
                Err(SourceError::Unwanted) if is_over.get() => return Ok(Hashed::Some),
                Err(error) => return Err(error),
            }
        }
        Ok(Hashed::All)
    }

    fn add_roots(
        &mut self,
        files: Range<u32>,
        values: &mut Vec<Value>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<(), SourceError> {
        for file in files {
            let kind = self.object.manifest().entries.get(file as usize).map(|entry| entry.kind);
            let dir = kind == Some(Kind::Dir);
            let value = if dir || self.lost.contains(&file) {
                LOST
            } else {
                match self.object.file_root_while(file, wanted) {
                    Ok(value) => value,
                    Err(error) => {
                        self.lose(file, error)?;
                        LOST
                    }
                }
            };
            values.push(value);
        }
        Ok(())
    }

    /// Tells which files have turned out to be lost, or to have grown.
    fn tell(&mut self, flow: FlowId, notices: &Notices) {
        self.faults.extend(self.object.take_remarks());
        for (file, error) in self.faults.drain(..) {
            let Some(entry) = self.object.manifest().entries.get(file as usize) else { continue };
            self.told += 1;
            if self.told <= FAULTS_TOLD {
                let path = entry.path.clone();
                notices.send(Notice::Loaded(flow, Loaded::FileFault { path, error }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
