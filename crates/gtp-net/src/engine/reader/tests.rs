//! Readers at desks: blocks in order, roots in slices, and what nobody waits for any more.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use gtp_store::{BlockSource, Export, FileSource, Manifest, Pattern, SyntheticSource, new_framed};
use gtp_sys::wake::Poller;

use super::*;

type Answer = oneshot::Receiver<Result<Vec<Value>, SourceError>>;

fn reading(object: impl BlockSource + 'static) -> Reading {
    Reading::of(Box::new(object), Party::Listed(1))
}

fn hashing(files: Range<u32>) -> (Hashing, Answer) {
    let (answer, awaited) = oneshot::channel();
    (Hashing { files, values: Vec::new(), answer }, awaited)
}

/// A source of so many files of one block.
fn small_files(dir: &std::path::Path, count: u32) -> FileSource {
    for name in 0..count {
        std::fs::write(dir.join(name.to_string()), "some").unwrap();
    }
    FileSource::new(Export::open(dir).unwrap().scan(None).unwrap())
}

#[test]
fn hashing_stops_at_the_next_file_when_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut object = reading(small_files(dir.path(), 20));
    let (mut work, awaited) = hashing(0..20);
    assert_eq!(object.known_roots(&mut work).unwrap(), Hashed::Some);
    let awaited = Cell::new(Some(awaited));
    let goes_away = || {
        drop(awaited.take());
        true
    };
    let hashed = object.hash(&mut work, &goes_away);
    assert!(matches!(hashed, Err(SourceError::Unwanted)), "{hashed:?}");
    assert_eq!(work.values.len(), 3, "of each a look before the file, and one before its block");
}

#[test]
fn hashing_lets_others_in_within_a_large_file_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..9 * BLOCK + 5).map(|at| (at % 251) as u8).collect();
    std::fs::write(dir.path().join("large"), &content).unwrap();
    let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
    let mut object = reading(FileSource::new(scanned));
    let (mut work, _awaited) = hashing(0..1);
    assert_eq!(object.known_roots(&mut work).unwrap(), Hashed::Some);
    assert_eq!(object.hash(&mut work, &|| false).unwrap(), Hashed::Some);
    // One look before the file and one before each of ten blocks: those six are not read again.
    let asked = Cell::new(0);
    let count = || {
        asked.set(asked.get() + 1);
        false
    };
    assert_eq!(object.hash(&mut work, &count).unwrap(), Hashed::All);
    assert_eq!((asked.get(), work.values), (0, vec![*blake3::hash(&content).as_bytes()]));
}

/// Notes which threads read for roots.
struct Noted(FileSource, Arc<Mutex<BTreeSet<Option<String>>>>);

impl BlockSource for Noted {
    fn manifest(&self) -> &Arc<Manifest> {
        self.0.manifest()
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.0.load_block(file, block, out)
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        let threads = &self.1;
        self.0.file_root_while(file, &|| {
            let wanted = wanted();
            if wanted {
                threads.lock().unwrap().insert(std::thread::current().name().map(str::to_owned));
            }
            wanted
        })
    }
}

#[tokio::test]
async fn files_are_read_for_their_roots_by_threads_of_low_priority_and_known_roots_need_no_reading()
{
    let dir = tempfile::tempdir().unwrap();
    let threads = Arc::default();
    let object = Noted(small_files(dir.path(), 100), Arc::clone(&threads));
    let poller = Poller::new().unwrap();
    let notices = Notices::new(channel().0, poller.waker());
    let reader = Reader::new(1, Box::new(object), Party::Listed(1), notices);
    let jobs = reader.at_desk(&Crew::of_process().unwrap());
    let roots = async |files: Range<u32>| {
        let (answer, awaited) = oneshot::channel();
        jobs.send(ReadJob::Roots(files, answer));
        awaited.await.unwrap().unwrap()
    };
    assert_eq!(roots(0..100).await.len(), 100);
    let hasher = BTreeSet::from([Some("gtp-hasher".to_owned())]);
    assert_eq!(std::mem::take(&mut *threads.lock().unwrap()), hasher);
    assert_eq!(roots(0..100).await, vec![*blake3::hash(b"some").as_bytes(); 100]);
    assert!(threads.lock().unwrap().is_empty(), "nothing was read");
}

#[test]
fn blocks_of_a_session_that_is_over_are_not_read() {
    let name = RelPath::new("x").unwrap();
    let source = SyntheticSource::file(name, 3 * BLOCK, Pattern::Zeros);
    let poller = Poller::new().unwrap();
    let (notices_in, heard) = channel();
    let notices = Notices::new(notices_in, poller.waker());
    let mut reader = Reader::new(1, Box::new(source), Party::Listed(1), notices);
    reader.over.store(true, Ordering::Relaxed);
    for block in 0..3 {
        let (cut, buffer) = (1_400, new_framed());
        let load = ReadJob::Load { file: 0, block, first_unit: block, cut, buffer };
        assert!(matches!(reader.work(load), Step::Go));
    }
    let (answer, mut roots) = oneshot::channel();
    assert!(matches!(reader.work(ReadJob::Roots(0..1, answer)), Step::Chore(_)));
    assert!(matches!(reader.chore(&|| true), Step::Go));
    drop(reader);
    assert!(heard.recv().is_err(), "no block was loaded");
    assert_eq!(roots.try_recv().unwrap().unwrap().len(), 1, "roots may still be asked for");
}

/// An object with a fault in its program.
struct Faulty(SyntheticSource);

impl BlockSource for Faulty {
    fn manifest(&self) -> &Arc<Manifest> {
        self.0.manifest()
    }

    fn load_block(&mut self, _: u32, _: u64, _: &mut Framed) -> Result<(), SourceError> {
        panic!("as this test wants")
    }

    fn file_root_while(&mut self, _: u32, _: &dyn Fn() -> bool) -> Result<Value, SourceError> {
        panic!("as this test wants")
    }
}

#[test]
fn the_engine_hears_of_a_reader_that_panics() {
    let source = SyntheticSource::file(RelPath::new("x").unwrap(), BLOCK, Pattern::Zeros);
    let poller = Poller::new().unwrap();
    let (notices_in, heard) = channel();
    let notices = Notices::new(notices_in, poller.waker());
    let reader = Reader::new(7, Box::new(Faulty(source)), Party::Listed(1), notices);
    let jobs = reader.at_desk(&Crew::of_process().unwrap());
    let (cut, buffer) = (1_400, new_framed());
    jobs.send(ReadJob::Load { file: 0, block: 0, first_unit: 0, cut, buffer });
    let heard = heard.recv().unwrap();
    assert!(matches!(heard, Notice::Loaded(7, Loaded::Failed { .. })), "it was another notice");
}
