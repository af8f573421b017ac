//! Walks through exported objects, on threads of low priority, in turns with other clients.
//!
//! Whole listings are shared: all clients that ask for the same object before a walk begins get its
//! result, and a walk that finds the object unchanged returns the listing that exists already. Many
//! clients of one tree therefore take the memory of one. A walk begins only after all clients that
//! get its result have asked, so none gets an older state. It ends at the next entry once no client
//! waits for it. This module must not know how a listing is sent.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use gtp_store::{
    Claim, Export, Granted, Manifest, NamesHeld, RelPath, Scanned, SharedNames, SourceError,
};
use tokio::sync::watch;

use super::Whose;
use super::admission::listing_bytes;
use super::budget::{Budget, Holder, NAMES_MEMORY, Share, USED_UP};
use super::clients::Seat;
use crate::engine::turns::{CHORES, Party, Turn};
use crate::flows::{Failure, FailureKind, FileIndex, has_settled, reason_of_source};
use crate::messages::{CONTENT_MAX, ENTRIES_MAX, PATHS_MAX, Reason};

/// The text that clients are told while the export does not exist. It does not give the path.
pub(super) const GONE: &str =
    "this export is not there at present; it comes back when its file system is mounted";

/// The client for which an object is looked up.
#[derive(Clone)]
pub(super) struct Asker {
    pub holder: Holder,
    pub party: Party,
    /// The client's place, which is held until the walk has ended even if the client is gone.
    pub seat: Arc<Seat>,
}

/// A whole object as clients see it, and the memory that it takes.
pub(super) struct Listing {
    pub scanned: Arc<Scanned>,
    pub index: FileIndex,
    _share: Share,
}

/// Why there is no listing.
#[derive(Clone, Debug)]
pub(super) struct Nothing {
    /// The reason that the client is told; `text` says it in words.
    pub reason: Reason,
    pub text: String,
    /// The failure that the server reports.
    pub failure: Failure,
    /// Whose memory was used up, if that is why.
    pub used_up: Option<Holder>,
}

impl Nothing {
    /// The answer if the export has no such object, or if it cannot be listed.
    pub fn there(error: SourceError) -> Nothing {
        let reason = reason_of_source(&error);
        let text = match &error {
            SourceError::NoRoom => USED_UP.into(),
            other => other.to_string(),
        };
        Nothing { reason, text, failure: error.into(), used_up: None }
    }

    /// The answer if the listing exceeds a limit of the messages, or what a client accepts.
    pub fn beyond(text: String) -> Nothing {
        let failure = Failure::new(FailureKind::Other, text.clone());
        Nothing { reason: Reason::Limit, text, failure, used_up: None }
    }

    /// The answer if there may be something later.
    pub fn for_now(text: &str) -> Nothing {
        let failure = Failure::new(FailureKind::Temporary, text);
        Nothing { reason: Reason::Busy, text: text.into(), failure, used_up: None }
    }

    /// The answer if the export itself does not exist. It does not give the path.
    pub fn exported() -> Nothing {
        Nothing::for_now(GONE)
    }

    /// The answer if the walk could not begin, or broke off.
    pub fn broken_off() -> Nothing {
        Nothing::for_now("the server could not look for it; try again later")
    }
}

type Outcome = Result<Arc<Listing>, Arc<Nothing>>;

/// All walks of a server, and the listings that they made.
pub(super) struct Walks {
    open: Box<dyn Fn() -> Result<Export, Nothing> + Send + Sync>,
    budget: Arc<Budget>,
    /// The names of large directories that are being listed now.
    names: Arc<SharedNames>,
    /// The lanes that have a walker; each with the batch that it walks for next, if there is one.
    lanes: Mutex<HashMap<Lane, Option<Batch>>>,
    /// The newest listing of each object, as long as a client uses it.
    latest: Mutex<HashMap<Option<RelPath>, Weak<Listing>>>,
}

/// What walks are kept apart by: the object, and who asks.
type Lane = (Option<RelPath>, Company);

/// The clients that may share a walk.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Company {
    /// All that are on the list, or all that are not, because walks for strangers may have to wait
    /// for their turns.
    All(Whose),
    /// One holder alone, after a walk on another's account failed for want of memory. That one may
    /// ask again and again, and nobody else must wait for it.
    Only(Holder),
}

/// Clients that get the result of one walk.
struct Batch {
    /// The client that asked first, whose turns and memory the walk uses.
    asker: Asker,
    walked: Arc<AtomicU64>,
    outcome: watch::Sender<Option<Outcome>>,
}

/// A client's claim to the result of a walk.
pub(super) struct Waiting {
    walked: Arc<AtomicU64>,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Batch {
    fn of(asker: Asker) -> Batch {
        Batch { asker, walked: Arc::default(), outcome: watch::Sender::new(None) }
    }

    fn join(&self) -> Waiting {
        Waiting { walked: Arc::clone(&self.walked), outcome: self.outcome.subscribe() }
    }
}

impl Waiting {
    /// Returns the count of the walk's steps, which grows as the walk goes on.
    pub fn walked(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.walked)
    }

    /// Waits for the result. Safe to cancel.
    pub async fn outcome(&mut self) -> Outcome {
        match self.outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(broken_off())),
            // The walker ended without a result.
            Err(_) => Err(broken_off()),
        }
    }
}

fn broken_off() -> Arc<Nothing> {
    Arc::new(Nothing::broken_off())
}

impl Walks {
    /// Makes the walks of a server. `open` opens the export anew for each walk.
    pub fn new(
        budget: Arc<Budget>,
        open: impl Fn() -> Result<Export, Nothing> + Send + Sync + 'static,
    ) -> Arc<Walks> {
        let (lanes, latest) = (Mutex::default(), Mutex::default());
        let names = SharedNames::new(has_settled);
        Arc::new(Walks { open: Box::new(open), budget, names, lanes, latest })
    }

    /// Asks for the whole listing of the object at `path`.
    pub fn ask(self: &Arc<Walks>, path: Option<RelPath>, asker: Asker) -> Waiting {
        let company = Company::All(asker.holder.whose());
        self.ask_in((path, company), asker)
    }

    /// Asks again if this client got nothing because the memory of another one, whose walk it
    /// shared, is used up. Then the walk is on the client's own account.
    pub fn ask_again(
        self: &Arc<Walks>,
        nothing: &Nothing,
        path: Option<RelPath>,
        asker: Asker,
    ) -> Option<Waiting> {
        let holder = asker.holder;
        let foreign = nothing.used_up.is_some_and(|other| other != holder);
        foreign.then(|| self.ask_in((path, Company::Only(holder)), asker))
    }

    fn ask_in(self: &Arc<Walks>, lane: Lane, asker: Asker) -> Waiting {
        let mut lanes = self.lanes();
        if let Some(next) = lanes.get_mut(&lane) {
            return next.get_or_insert_with(|| Batch::of(asker)).join();
        }
        let batch = Batch::of(asker);
        let waiting = batch.join();
        let walker = Walker { walks: Arc::clone(self), lane: Some(lane.clone()), batch: None };
        lanes.insert(lane, Some(batch));
        drop(lanes);
        // If there is no thread, the walker is dropped, which tells all clients that wait.
        let _ = spawn(move || walker.run());
        waiting
    }

    /// Returns the share of memory for listings that this client asks for.
    pub fn share(&self, holder: Holder) -> Share {
        self.budget.share(holder)
    }

    /// Opens the export.
    ///
    /// # Errors
    /// If it cannot be opened, with what the client is told.
    pub fn export(&self) -> Result<Export, Nothing> {
        (self.open)()
    }

    /// Returns what a walk for this client may hold of names. Those of a large directory are shared
    /// with other walks, and count once as memory of each holder whose walks hold them.
    pub fn names(&self, holder: Holder) -> NamesHeld {
        let budget = Arc::clone(&self.budget);
        let claim = Claim { account: holder.principal(), bytes: NAMES_MEMORY };
        NamesHeld::from(NAMES_EACH).sharing(&self.names, claim, move |bytes| {
            let mut share = budget.share(holder);
            share.take(bytes as u64).then(|| Box::new(share) as Granted)
        })
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Lane, Option<Batch>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, HashMap<Option<RelPath>, Weak<Listing>>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn walk(&self, path: Option<&RelPath>, batch: &Batch) -> Result<Arc<Listing>, Nothing> {
        let holder = batch.asker.holder;
        let (names, mut share) = (self.names(holder), self.budget.share(holder));
        let mut pace = Pace::begin(batch.asker.party);
        let mut room = |path| {
            batch.walked.fetch_add(1, Ordering::Relaxed);
            pace.step();
            batch.outcome.receiver_count() > 0 && share.take(listing_bytes(path))
        };
        let export = self.export()?;
        let earlier = self.latest().get(&path.cloned()).and_then(Weak::upgrade);
        let known = earlier.as_ref().map(|earlier| &earlier.scanned);
        let scanned = export.scan_like(path, known, names, &mut room).map_err(|error| {
            let used_up = matches!(error, SourceError::NoRoom).then_some(holder);
            Nothing { used_up, ..Nothing::there(error) }
        })?;
        if let Some(earlier) = earlier.filter(|e| Arc::ptr_eq(&e.scanned, &scanned)) {
            return Ok(earlier);
        }
        if let Some(text) = beyond_limits(&scanned.manifest) {
            return Err(Nothing::beyond(text));
        }
        let index = FileIndex::of(&scanned.manifest);
        let listing = Arc::new(Listing { scanned, index, _share: share });
        let mut latest = self.latest();
        latest.retain(|_, listing| listing.strong_count() > 0);
        latest.insert(path.cloned(), Arc::downgrade(&listing));
        Ok(listing)
    }
}

/// Walks for one lane as long as clients ask.
struct Walker {
    walks: Arc<Walks>,
    /// The lane, or `None` once it has ended.
    lane: Option<Lane>,
    /// The batch for which it walks. If the walk panics, the lane is dropped before the batch: a
    /// client that is told and asks again must not be put into a lane without a walker.
    batch: Option<Batch>,
}

impl Walker {
    fn run(mut self) {
        while let Some((path, batch)) = self.next() {
            let batch = self.batch.insert(batch);
            let outcome = self.walks.walk(path.as_ref(), batch).map_err(Arc::new);
            batch.outcome.send_replace(Some(outcome));
            self.batch = None;
        }
    }

    /// Returns the next batch for which a client waits. If there is none, the lane ends.
    fn next(&mut self) -> Option<(Option<RelPath>, Batch)> {
        let lane = self.lane.take()?;
        let mut lanes = self.walks.lanes();
        let next = lanes.get_mut(&lane).and_then(Option::take);
        let Some(batch) = next.filter(|batch| batch.outcome.receiver_count() > 0) else {
            lanes.remove(&lane);
            return None;
        };
        let path = lane.0.clone();
        self.lane = Some(lane);
        Some((path, batch))
    }
}

impl Drop for Walker {
    fn drop(&mut self) {
        // There was no thread, or it panicked: clients that wait in the lane must be told.
        if let Some(lane) = self.lane.take() {
            self.walks.lanes().remove(&lane);
        }
    }
}

/// Starts a thread for a walk, at a low priority so that it does not delay transfers.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    spawn_prompt(move || {
        gtp_sys::schedule::background();
        work();
    })
}

/// The same for a client that this process serves alone, and that waits for the walk: at the
/// priority of the process.
///
/// # Errors
/// If the system gives no thread.
pub(super) fn spawn_prompt(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("gtp-walker".into()).stack_size(STACK);
    thread.spawn(work).map(drop)
}

/// Bytes of a walker's stack, of which names that it reads take 16 KiB.
const STACK: usize = 512 * 1024;

/// A walker's turns, which it offers to others every few milliseconds.
pub(super) struct Pace {
    party: Party,
    turn: Option<Turn<'static>>,
    steps: u32,
}

/// Steps after which a walker offers its turn to others. A step takes some microseconds.
const STEPS_A_TURN: u32 = 512;

impl Pace {
    /// Waits for the first turn.
    pub fn begin(party: Party) -> Pace {
        Pace { party, turn: Some(CHORES.take(party)), steps: 0 }
    }

    /// Counts a step that is about to be taken, and waits for a turn if it is due.
    pub fn step(&mut self) {
        self.steps += 1;
        match &mut self.turn {
            Some(turn) if self.steps.is_multiple_of(STEPS_A_TURN) => turn.offer(),
            Some(_) => {}
            None => self.turn = Some(CHORES.take(self.party)),
        }
    }

    /// Gives the turn up until the next step.
    pub fn rest(&mut self) {
        self.turn = None;
    }
}

/// Returns which limit of the messages, or of what a client accepts, a listing exceeds.
fn beyond_limits(manifest: &Manifest) -> Option<String> {
    let paths: usize = manifest.entries.iter().map(|entry| entry.path.as_str().len()).sum();
    beyond(manifest.entries.len() as u64, paths, manifest.content_bytes())
}

/// Returns which of these limits is exceeded by a listing with so many entries, bytes of paths and
/// bytes of content.
pub(super) fn beyond(entries: u64, paths: usize, content: u64) -> Option<String> {
    if entries > ENTRIES_MAX {
        Some(format!("more than {ENTRIES_MAX} entries"))
    } else if paths > PATHS_MAX {
        Some(format!("more than {PATHS_MAX} bytes of names"))
    } else if content > CONTENT_MAX {
        Some(format!("more than {CONTENT_MAX} bytes of content"))
    } else {
        None
    }
}

/// Names that each walk may always hold: about 100 KB. Of a directory with more, all names are read
/// into memory that counts, and where that is used up, it is read several times.
const NAMES_EACH: usize = 2_048;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::sync::mpsc;

    use gtp_alloc::Bytes;
    use gtp_store::{Depth, Entry, Kind, Mode, Mtime, RootKind, Step};

    use super::super::admission::Limits;
    use super::super::clients::Clients;
    use super::*;
    use crate::identity::Identity;

    fn seat() -> Arc<Seat> {
        let clients = Clients::new(Limits::default());
        Arc::new(clients.arrive(SocketAddr::from(([127, 0, 0, 1], 1))).0)
    }

    fn stranger() -> Asker {
        Asker { holder: Holder::Strangers, party: Party::Strangers(1), seat: seat() }
    }

    fn listed() -> Asker {
        let holder = Holder::Listed(Identity::generate().fingerprint());
        Asker { holder, party: Party::Listed(holder.principal()), seat: seat() }
    }

    /// Walks through a directory, each of which begins when it is let.
    fn gated(dir: &Path, memory: u64) -> (Arc<Walks>, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (began, begins) = mpsc::channel();
        let (go_on, gate) = mpsc::channel();
        let (dir, gate) = (dir.to_owned(), Mutex::new(gate));
        let walks = Walks::new(Budget::new(Bytes(memory)), move || {
            began.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Export::open(&dir).map_err(Nothing::there)
        });
        (walks, begins, go_on)
    }

    fn tree(files: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..files {
            std::fs::write(dir.path().join(n.to_string()), "x").unwrap();
        }
        dir
    }

    #[test]
    fn a_listing_beyond_what_messages_may_say_is_known_by_which_limit() {
        let listing = |count: u64, size| {
            let entry = |n| Entry {
                path: RelPath::new(&format!("{n}")).unwrap(),
                kind: Kind::File,
                size,
                mode: Mode::new(0o644),
                mtime: Mtime::new(0, 0).unwrap(),
            };
            Manifest {
                root_kind: RootKind::Dir,
                own: None,
                entries: (0..count).map(entry).collect(),
            }
        };
        let beyond = |count, size| beyond_limits(&listing(count, size)).unwrap_or_default();
        assert_eq!(beyond(2, CONTENT_MAX / 2) + &beyond(ENTRIES_MAX, 0), "");
        assert!(beyond(2, CONTENT_MAX / 2 + 1).ends_with("bytes of content"));
        assert!(beyond(1, u64::MAX).ends_with("bytes of content"));
        assert!(beyond(ENTRIES_MAX + 1, 0).ends_with("entries"));
    }

    #[tokio::test]
    async fn whoever_asks_before_a_walk_begins_gets_its_result_and_later_ones_the_next() {
        let dir = tree(10);
        let (walks, begins, go_on) = gated(dir.path(), 1 << 30);
        let mut first = walks.ask(None, stranger());
        begins.recv().unwrap();
        let mut others: Vec<_> = (0..9).map(|_| walks.ask(None, stranger())).collect();
        // It is there when they ask, and the walk under way may have passed it.
        std::fs::write(dir.path().join("new"), "x").unwrap();
        let mut last = walks.ask(None, stranger());
        for _ in 0..2 {
            go_on.send(()).unwrap();
        }
        first.outcome().await.unwrap();
        let shared = last.outcome().await.unwrap();
        assert_eq!(shared.scanned.manifest.entries.len(), 11);
        for other in &mut others {
            assert!(Arc::ptr_eq(&shared, &other.outcome().await.unwrap()));
        }
        assert_eq!(begins.try_iter().count(), 1, "two walks for eleven clients");
    }

    #[tokio::test]
    async fn a_walk_that_finds_nothing_changed_gives_out_the_listing_that_is_there() {
        let dir = tree(10);
        let (walks, _begins, go_on) = gated(dir.path(), 4 * listing_bytes(1) * 10);
        for _ in 0..4 {
            go_on.send(()).unwrap();
        }
        let first = walks.ask(None, stranger()).outcome().await.unwrap();
        let again = walks.ask(None, listed()).outcome().await.unwrap();
        assert!(Arc::ptr_eq(&first, &again), "it needs no memory of its own");
        std::fs::write(dir.path().join("3"), "longer").unwrap();
        let changed = walks.ask(None, stranger()).outcome().await;
        assert_eq!(changed.err().unwrap().used_up, Some(Holder::Strangers));
        drop((first, again));
        // A walker holds its result for a moment longer.
        while !walks.lanes().is_empty() {
            tokio::task::yield_now().await;
        }
        let changed = walks.ask(None, stranger()).outcome().await.unwrap();
        assert_eq!(changed.scanned.manifest.entries[3].size, 6);
    }

    #[tokio::test]
    async fn whose_memory_is_used_up_keeps_nobody_else_from_a_walk() {
        let dir = tree(10);
        let (walks, begins, go_on) = gated(dir.path(), 4 * listing_bytes(1) * 10);
        let (full, other) = (listed(), listed());
        let mut taken = walks.share(full.holder);
        assert!(taken.take(1));
        let mut first = walks.ask(None, full.clone());
        begins.recv().unwrap();
        // It asks before the other, and again as soon as it hears that there is no room.
        let mut second = walks.ask(None, full.clone());
        let mut waiting = walks.ask(None, other.clone());
        for _ in 0..2 {
            go_on.send(()).unwrap();
        }
        let failed = |outcome: Outcome| outcome.err().unwrap();
        assert_eq!(failed(first.outcome().await).used_up, Some(full.holder));
        let nothing = failed(second.outcome().await);
        assert!(walks.ask_again(&nothing, None, full.clone()).is_none(), "it is told");
        let nothing = failed(waiting.outcome().await);
        let _third = walks.ask(None, full.clone());
        let mut waiting = walks.ask_again(&nothing, None, other).unwrap();
        for _ in 0..2 {
            go_on.send(()).unwrap();
        }
        assert!(waiting.outcome().await.is_ok());
    }

    #[test]
    fn a_slow_stranger_does_not_prolong_what_a_listed_client_paid_for_names() {
        let dir = tree(NAMES_EACH + 100);
        let mut walks = Walks::new(Budget::new(Bytes(1 << 30)), || Err(Nothing::exported()));
        Arc::get_mut(&mut walks).unwrap().names = SharedNames::new(|_| true);
        let export = Export::open(dir.path()).unwrap();
        let begin = |holder| {
            let mut lister = export.lister(None, Depth::One, walks.names(holder)).unwrap();
            while !matches!(lister.step(), Some(Ok(Step::Entry(_)))) {}
            lister
        };
        let listed = listed().holder;
        let left = |holder| walks.share(holder).left();
        let (all, first, slow) = (left(listed), begin(listed), begin(Holder::Strangers));
        assert!(left(listed) < all && left(listed) == left(Holder::Strangers));
        drop(first);
        assert_eq!(left(listed), all);
        assert!(left(Holder::Strangers) < all, "it pays for itself");
        drop(slow);
        assert_eq!(left(Holder::Strangers), all);
    }

    #[tokio::test]
    async fn a_walk_that_nobody_waits_for_ends_and_gives_its_memory_and_its_place_back() {
        let dir = tree(2_000);
        let (walks, begins, go_on) = gated(dir.path(), 1 << 30);
        let asker = stranger();
        let seat = Arc::downgrade(&asker.seat);
        let waiting = walks.ask(None, asker);
        begins.recv().unwrap();
        let walked = waiting.walked();
        drop(waiting);
        assert!(seat.upgrade().is_some(), "the walk goes on");
        go_on.send(()).unwrap();
        // The lane ends right after its last walk.
        while seat.upgrade().is_some() || !walks.lanes().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(walked.load(Ordering::Relaxed), 1);
        assert!(walks.share(Holder::Strangers).take(1 << 28));
    }

    #[tokio::test]
    async fn a_walker_that_panics_leaves_nobody_waiting_and_the_next_one_walks() {
        let dir = tree(1);
        let path = dir.path().to_owned();
        let panics = std::sync::atomic::AtomicBool::new(true);
        let walks = Walks::new(Budget::new(Bytes(1 << 20)), move || {
            assert!(!panics.swap(false, Ordering::Relaxed), "as the test wants");
            Export::open(&path).map_err(Nothing::there)
        });
        let failed = walks.ask(None, stranger()).outcome().await.err().unwrap();
        assert_eq!(failed.reason, Reason::Busy);
        assert!(walks.ask(None, stranger()).outcome().await.is_ok());
    }
}
