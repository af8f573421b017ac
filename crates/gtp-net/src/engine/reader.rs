//! The worker that reads a source session's object.
//!
//! One thread per session owns the [`BlockSource`](gtp_store::BlockSource), loads the blocks that
//! it is told to, in that order, and computes roots. Roots for which files must be read again are
//! computed on a thread of low priority, in turns with other clients. What nobody waits for any
//! more it leaves at the next block. It ends when nobody can give it work.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use gtp_alloc::Span;
use gtp_proto::FlowId;
use gtp_store::{BLOCK, Framed, Kind, LOST, RelPath, RootKind, SourceError, TRAILER, Value};
use gtp_sys::Clock;
use gtp_sys::descriptors::are_used_up;
use tokio::sync::oneshot;

use super::command::{Notice, Notices, Object};
use super::turns::{CHORES, Party};

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
    queue: Sender<ReadJob>,
    /// The session is over: blocks are wanted no more, though roots may be.
    over: Arc<AtomicBool>,
}

impl ReadJobs {
    /// To nobody: whatever is sent is dropped.
    pub fn unread() -> ReadJobs {
        ReadJobs { queue: channel().0, over: Arc::default() }
    }

    /// Queues a job. A reader that is gone drops it, which its answer's receiver notices.
    pub fn send(&self, job: ReadJob) {
        let _ = self.queue.send(job);
    }

    /// Blocks that are still to be loaded are not wanted any more.
    pub fn stop_loading(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Starts the reader of a session.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(
    flow: FlowId,
    object: Object,
    party: Party,
    notices: Notices,
) -> io::Result<ReadJobs> {
    let (queue, jobs) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let thread = std::thread::Builder::new().name("gtp-reader".into());
    thread.spawn(move || read(flow, Reading::of(object, party), &jobs, &is_over, &notices))?;
    Ok(ReadJobs { queue, over })
}

/// How a reader begins.
pub(super) type Start = fn(FlowId, Object, Party, Notices) -> io::Result<ReadJobs>;

/// The reader has ended, which it does on its own only when it cannot go on.
pub(super) fn gone() -> SourceError {
    let source = io::Error::other("the reader has ended");
    SourceError::Read { path: "the object".into(), source }
}

fn read(
    flow: FlowId,
    mut reading: Reading,
    jobs: &Receiver<ReadJob>,
    over: &AtomicBool,
    notices: &Notices,
) {
    let clock = Clock::start();
    for job in jobs {
        match job {
            ReadJob::Load { .. } if over.load(Ordering::Relaxed) => {}
            ReadJob::Load { file, block, first_unit, cut, mut buffer } => {
                let began = clock.now();
                let loaded = match reading.load(file, block, &mut buffer) {
                    Ok(()) => {
                        let took = clock.now().since(began);
                        Loaded::Block { first_unit, cut, content_and_trailer: buffer, took }
                    }
                    Err(error) => Loaded::Failed { error },
                };
                reading.tell(flow, notices);
                notices.send(Notice::Loaded(flow, loaded));
            }
            ReadJob::Roots(files, answer) => {
                let values = reading.roots(files, &|| !answer.is_closed());
                reading.tell(flow, notices);
                // Whoever asked may have gone; then nobody misses the answer.
                let _ = answer.send(values);
            }
        }
    }
}

/// Blocks that are hashed before another session's turn: some milliseconds' work.
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

    /// The roots of `files`, as long as somebody waits for them; zeros for directories and for
    /// files that cannot be given.
    fn roots(
        &mut self,
        files: Range<u32>,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<Value>, SourceError> {
        let mut values = Vec::new();
        // Blocks that were sent have been hashed already, and their roots cost little.
        let few = files.start..files.end.min(files.start.saturating_add(ROOTS_AT_ONCE));
        match self.add_roots(few, &mut values, &|| false) {
            Ok(()) | Err(SourceError::Unwanted) => {}
            Err(error) => return Err(error),
        }
        let rest = files.start + values.len() as u32..files.end;
        if rest.is_empty() {
            return Ok(values);
        }
        std::thread::scope(|scope| {
            let hasher = std::thread::Builder::new().name("gtp-hasher".into());
            let reading = &mut *self;
            let hashing = hasher.spawn_scoped(scope, move || {
                gtp_sys::schedule::background();
                reading.hash(rest, values, wanted)
            });
            // The system may have no thread to give: the peer then hears that reading failed.
            let hashed = hashing.map(|thread| thread.join()).map_err(no_thread)?;
            hashed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Adds the roots of `files`, in turns with others.
    fn hash(
        &mut self,
        files: Range<u32>,
        mut values: Vec<Value>,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Vec<Value>, SourceError> {
        let (turn, looks) = (RefCell::new(CHORES.take(self.party)), Cell::new(0));
        // Whether it is wanted is asked before each file and block: a time to let others in.
        let wanted = &|| {
            looks.set(looks.get() + 1);
            if looks.get() % BLOCKS_A_TURN == 0 {
                turn.borrow_mut().offer();
            }
            wanted()
        };
        for file in files {
            if !wanted() {
                return Err(SourceError::Unwanted);
            }
            self.add_roots(file..file + 1, &mut values, wanted)?;
        }
        Ok(values)
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

fn no_thread(source: io::Error) -> SourceError {
    SourceError::Read { path: "the object".into(), source }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicI32;

    use gtp_store::{BlockSource, Export, FileSource, Pattern, SyntheticSource, new_framed};
    use gtp_sys::wake::Poller;

    use super::*;

    fn reading(object: impl BlockSource + 'static) -> Reading {
        Reading::of(Box::new(object), Party::Listed(1))
    }

    #[test]
    fn hashing_stops_at_the_next_file_when_nobody_waits() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
        let mut object = reading(FileSource::new(scanned));
        let all = object.object.manifest().entries.len() as u32;
        let looks = AtomicI32::new(0);
        let stays = || looks.fetch_add(1, Ordering::Relaxed) < 2;
        assert!(matches!(object.roots(0..all, &stays), Err(SourceError::Unwanted)));
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        assert_eq!(object.roots(0..all, &|| true).unwrap().len(), all as usize);
    }

    #[test]
    fn hashing_stops_at_the_next_block_of_a_large_file_and_goes_on_from_there() {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..9 * BLOCK + 5).map(|at| (at % 251) as u8).collect();
        std::fs::write(dir.path().join("large"), &content).unwrap();
        let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
        let mut object = reading(FileSource::new(scanned));
        let looks = AtomicI32::new(0);
        let stays = || looks.fetch_add(1, Ordering::Relaxed) < 4;
        assert!(matches!(object.roots(0..1, &stays), Err(SourceError::Unwanted)));
        assert_eq!(
            looks.load(Ordering::Relaxed),
            5,
            "one look before the file, and one before each block"
        );
        looks.store(-6, Ordering::Relaxed);
        let whole = object.roots(0..1, &stays).unwrap();
        assert_eq!(whole, [*blake3::hash(&content).as_bytes()]);
        assert_eq!(
            looks.load(Ordering::Relaxed),
            -6 + 1 + 7,
            "the three blocks read before were not read again"
        );
    }

    #[test]
    fn files_are_read_for_their_roots_on_a_thread_of_low_priority_and_known_roots_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in 0..100 {
            std::fs::write(dir.path().join(name.to_string()), "some").unwrap();
        }
        let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
        let mut object = reading(FileSource::new(scanned));
        let threads = Mutex::new(BTreeSet::new());
        let wanted = || {
            threads.lock().unwrap().insert(std::thread::current().name().map(str::to_owned));
            true
        };
        object.roots(0..100, &wanted).unwrap();
        let hasher = BTreeSet::from([Some("gtp-hasher".to_owned())]);
        assert_eq!(std::mem::take(&mut *threads.lock().unwrap()), hasher);
        object.roots(10..10 + ROOTS_AT_ONCE, &wanted).unwrap();
        assert!(threads.lock().unwrap().is_empty(), "nothing was read");
        object.roots(0..100, &wanted).unwrap();
        assert_eq!(*threads.lock().unwrap(), hasher, "a long answer takes turns");
    }

    #[test]
    fn blocks_of_a_session_that_is_over_are_not_read() {
        let name = RelPath::new("x").unwrap();
        let source = SyntheticSource::file(name, 3 * BLOCK, Pattern::Zeros);
        let poller = Poller::new().unwrap();
        let (notices_in, heard) = channel();
        let (jobs_in, jobs) = channel();
        for block in 0..3 {
            let (cut, buffer) = (1_400, new_framed());
            jobs_in.send(ReadJob::Load { file: 0, block, first_unit: block, cut, buffer }).unwrap();
        }
        let (answer, mut roots) = oneshot::channel();
        jobs_in.send(ReadJob::Roots(0..1, answer)).unwrap();
        drop(jobs_in);
        let notices = Notices::new(notices_in, poller.waker());
        read(1, reading(source), &jobs, &AtomicBool::new(true), &notices);
        drop(notices);
        assert!(heard.recv().is_err(), "no block was loaded");
        assert_eq!(roots.try_recv().unwrap().unwrap().len(), 1, "roots may still be asked for");
    }
}
