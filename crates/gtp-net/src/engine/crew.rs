//! The threads that work on files: a fixed number for a process, whatever its sessions.
//!
//! There is a worker for each processor, but no fewer than 4 and no more than 16; a hasher of low
//! priority for every four processors; and one thread that watches. What they work on are
//! [`desk`]s, one for each session that reads and each transfer that writes: a desk has a turn of
//! some milliseconds, then others have theirs.
//!
//! A call to a disk that hangs keeps its worker, as nothing ends such a call. So while calls hold
//! workers and there is work for another device, as many are added as are held, up to four times
//! the usual number in all; a worker that finds no work ends when more than the usual number are
//! free. No device has more workers at a time than the usual number, so it takes several that hang
//! to hold up the others.
//!
//! The crew begins with a process's first session and ends with its last host. This module must not
//! know files, sessions or the network.

mod desk;
mod ready;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use gtp_alloc::Time;
use gtp_sys::Clock;
use gtp_sys::process::this_thread;

pub(super) use self::desk::{Clerk, Inlet, Step};
use self::ready::{Place, Ready};
use self::watch::HELD;
use super::turns::{self, CHORES, LISTED_IN_A_ROW, Party, Turn};

/// What wants turns of workers.
trait Work: Send + Sync {
    /// What it works on.
    fn place(&self) -> Place;
    /// Has a turn, which ends early once it `may_go_on` no more.
    fn turn(&self, may_go_on: &dyn Fn() -> bool) -> Next;
    /// The time has come that it asked for.
    fn wake(self: Arc<Self>);
}

/// What is to become of work after a turn.
enum Next {
    /// It asks again when there is something to do.
    Rest,
    /// It is to be woken at this time.
    At(Time),
    /// It has more to do.
    Again,
    /// It has a chore to do, in turns with others.
    Chore(Party),
}

/// The threads of a process that work on files.
pub(super) struct Crew(Arc<Inner>);

/// Their numbers.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    workers: usize,
    hashers: usize,
}

/// So many workers at least: a disk answers several requests at a time sooner than one by one.
const WORKERS_LEAST: usize = 4;
/// More would wait for the same disks and the same memory.
const WORKERS_MOST: usize = 16;
/// With those that are added while others are held, there are so many times the usual number.
const TIMES_MOST: usize = 4;

impl Sizes {
    fn of_process() -> Sizes {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let workers = processors.clamp(WORKERS_LEAST, WORKERS_MOST);
        Sizes { workers, hashers: turns::width() }
    }
}

/// Which workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Files,
    Hashing,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::Files, Kind::Hashing];

    fn name(self) -> &'static str {
        match self {
            Kind::Files => "gtp-files",
            Kind::Hashing => "gtp-hasher",
        }
    }
}

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// The watching thread waits for this.
    watch: Condvar,
    places: AtomicU64,
}

struct State {
    files: Gang,
    hashing: Gang,
    /// What is due without a job, by its time and a number of its own.
    dues: BTreeMap<(Time, u64), Weak<dyn Work>>,
    numbers: u64,
    ending: bool,
}

/// Work that waits for a worker, with its turn if it is a chore.
type Ticket = (Arc<dyn Work>, Option<Turn<'static>>);

/// A chore that was set aside.
type Aside = (Party, Arc<dyn Work>);

/// The workers of one kind.
struct Gang {
    usual: usize,
    ready: Ready<Ticket>,
    workers: BTreeMap<u64, Worker>,
    /// Those that wait for work, the one that came last at the end: its memory is warm.
    idle: Vec<u64>,
    /// Chores whose place has all the workers that it may have; they have given their turns back.
    aside: Vec<Aside>,
    /// Chores of listed clients that were taken from there since one of a stranger's.
    listed_in_row: u32,
}

struct Worker {
    bell: Arc<Condvar>,
    thread: i32,
    busy: Option<Busy>,
}

struct Busy {
    since: Time,
    place: Place,
    turn: Option<Turn<'static>>,
}

/// A worker whose turn takes long.
struct Late {
    number: u64,
    thread: i32,
    since: Time,
}

impl Crew {
    /// The crew of this process, which begins now if there is none.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn of_process() -> io::Result<Arc<Crew>> {
        static CREW: Mutex<Weak<Crew>> = Mutex::new(Weak::new());
        let mut crew = CREW.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crew) = crew.upgrade() {
            return Ok(crew);
        }
        let new = Crew::start(Sizes::of_process())?;
        *crew = Arc::downgrade(&new);
        Ok(new)
    }

    fn start(sizes: Sizes) -> io::Result<Arc<Crew>> {
        let state = State {
            files: Gang::new(sizes.workers),
            hashing: Gang::new(sizes.hashers),
            dues: BTreeMap::new(),
            numbers: 0,
            ending: false,
        };
        let inner = Arc::new(Inner {
            clock: Clock::start(),
            state: Mutex::new(state),
            watch: Condvar::new(),
            places: AtomicU64::new(0),
        });
        // Dropped on the way, it has those end that have begun.
        let crew = Arc::new(Crew(Arc::clone(&inner)));
        for kind in Kind::ALL {
            let usual = inner.state().gang(kind).usual;
            for _ in 0..usual {
                let number = inner.state().gang(kind).add();
                inner.start_worker(kind, number)?;
            }
        }
        let thread = std::thread::Builder::new().name("gtp-watch".into());
        thread.spawn(move || watch::watch(&inner))?;
        Ok(crew)
    }

    fn clock(&self) -> Clock {
        self.0.clock
    }

    /// What work on this device is on.
    fn place(&self, device: Option<u64>) -> Place {
        let own = || Place::Own(self.0.places.fetch_add(1, Ordering::Relaxed));
        device.map_or_else(own, Place::Device)
    }

    /// Has a worker come.
    fn enqueue(&self, work: Arc<dyn Work>) {
        let mut state = self.0.state();
        state.files.ready.push(work.place(), (work, None));
        self.0.ring(&mut state, Kind::Files);
    }

    /// How many workers there are.
    #[cfg(test)]
    fn workers(&self, kind: Kind) -> usize {
        self.0.state().gang(kind).workers.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ending = true;
        for kind in Kind::ALL {
            let gang = state.gang(kind);
            gang.idle.clear();
            gang.workers.values().for_each(|worker| worker.bell.notify_one());
        }
        self.0.watch.notify_one();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the worker that has this number.
    fn start_worker(self: &Arc<Inner>, kind: Kind, number: u64) -> io::Result<()> {
        let inner = Arc::clone(self);
        let thread = std::thread::Builder::new().name(kind.name().into());
        let started = thread.spawn(move || {
            match kind {
                Kind::Files => {}
                Kind::Hashing => gtp_sys::schedule::background(),
            }
            inner.run_worker(kind, number);
        });
        if started.is_err() {
            self.state().gang(kind).workers.remove(&number);
        }
        started.map(drop)
    }

    fn run_worker(self: &Arc<Inner>, kind: Kind, number: u64) {
        let mut state = self.state();
        let Some(worker) = state.gang(kind).workers.get_mut(&number) else { return };
        worker.thread = this_thread();
        let bell = Arc::clone(&worker.bell);
        loop {
            let (now, ending) = (self.clock.now(), state.ending);
            let gang = state.gang(kind);
            if let Some(work) = gang.begin(number, now) {
                drop(state);
                self.give_turn(kind, number, work);
                state = self.state();
            } else if ending || gang.has_too_many(now) {
                gang.workers.remove(&number);
                return;
            } else {
                gang.idle.push(number);
                let idle = |state: &mut State| state.gang(kind).idle.contains(&number);
                let woken = bell.wait_while(state, idle);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Gives work a turn of this worker, and does with it what it says.
    fn give_turn(self: &Arc<Inner>, kind: Kind, number: u64, work: Arc<dyn Work>) {
        let next = work.turn(&|| {
            let now = self.clock.now();
            self.state().gang(kind).may_go_on(number, now)
        });
        let mut state = self.state();
        let (turn, aside) = state.gang(kind).end(number);
        match &next {
            Next::Rest | Next::Chore(_) => {}
            Next::At(due) => state.await_time(*due, &work),
            Next::Again => state.files.ready.push(work.place(), (Arc::clone(&work), None)),
        }
        match (&next, kind) {
            (Next::At(_), _) => self.watch.notify_one(),
            // This worker comes for it itself, or for what is before it.
            (Next::Again, Kind::Files) => {}
            (Next::Again, Kind::Hashing) => self.ring(&mut state, Kind::Files),
            (Next::Rest | Next::Chore(_), _) => {}
        }
        drop(state);
        // Without the lock: others may be due, and this may have been the last of the crew.
        drop(turn);
        if let Some((party, work)) = aside {
            self.queue_chore(party, work);
        }
        if let Next::Chore(party) = next {
            self.queue_chore(party, work);
        }
    }

    fn queue_chore(self: &Arc<Inner>, party: Party, work: Arc<dyn Work>) {
        let inner = Arc::clone(self);
        CHORES.take_later(party, move |turn| inner.begin_chore(party, work, turn));
    }

    /// A chore has its turn, and waits for a hasher; or for another one of its place to end, and
    /// then it gives the turn back.
    fn begin_chore(
        &self,
        party: Party,
        work: Arc<dyn Work>,
        turn: Turn<'static>,
    ) -> Option<Turn<'static>> {
        let mut state = self.state();
        if state.hashing.ready.has_enough(work.place()) {
            state.hashing.aside.push((party, work));
            return Some(turn);
        }
        state.hashing.ready.push(work.place(), (work, Some(turn)));
        self.ring(&mut state, Kind::Hashing);
        // A turn that is held is looked at, whoever holds it.
        self.watch.notify_one();
        None
    }

    /// Has somebody come for work that has just been put there.
    fn ring(&self, state: &mut State, kind: Kind) {
        let gang = state.gang(kind);
        if !gang.ready.is_due() {
            return;
        }
        match gang.idle.pop() {
            Some(number) => {
                if let Some(worker) = gang.workers.get(&number) {
                    worker.bell.notify_one();
                }
            }
            None => self.watch.notify_one(),
        }
    }
}

impl State {
    fn gang(&mut self, kind: Kind) -> &mut Gang {
        match kind {
            Kind::Files => &mut self.files,
            Kind::Hashing => &mut self.hashing,
        }
    }

    fn await_time(&mut self, due: Time, work: &Arc<dyn Work>) {
        self.numbers += 1;
        self.dues.insert((due, self.numbers), Arc::downgrade(work));
    }
}

impl Gang {
    fn new(usual: usize) -> Gang {
        let (workers, idle, aside) = (BTreeMap::new(), Vec::new(), Vec::new());
        Gang { usual, ready: Ready::new(usual), workers, idle, aside, listed_in_row: 0 }
    }

    /// Adds a worker; returns its number.
    fn add(&mut self) -> u64 {
        let number = self.workers.keys().next_back().map_or(0, |last| last + 1);
        self.workers.insert(number, Worker { bell: Arc::default(), thread: 0, busy: None });
        number
    }

    /// Takes the next work for this worker.
    fn begin(&mut self, number: u64, now: Time) -> Option<Arc<dyn Work>> {
        let (place, (work, turn)) = self.ready.take()?;
        if let Some(worker) = self.workers.get_mut(&number) {
            worker.busy = Some(Busy { since: now, place, turn });
        }
        Some(work)
    }

    /// The worker's turn is over. Returns its turn for chores, if it still has one, and a chore
    /// that was set aside for its place.
    fn end(&mut self, number: u64) -> (Option<Turn<'static>>, Option<Aside>) {
        let busy = self.workers.get_mut(&number).and_then(|worker| worker.busy.take());
        let Some(Busy { place, turn, .. }) = busy else { return (None, None) };
        self.ready.done(place);
        let next = self.next_aside(place).map(|at| self.aside.remove(at));
        if let Some((party, _)) = &next {
            let is_listed = matches!(party, Party::Listed(_));
            self.listed_in_row = if is_listed { self.listed_in_row.saturating_add(1) } else { 0 };
        }
        (turn, next)
    }

    /// Which chore that was set aside for a place comes next: listed clients' before strangers',
    /// of which one comes after [`LISTED_IN_A_ROW`].
    fn next_aside(&self, place: Place) -> Option<usize> {
        let wants_listed = self.listed_in_row < LISTED_IN_A_ROW;
        let of_place = |(_, work): &Aside| work.place() == place;
        let is_wanted = |(party, _): &Aside| matches!(party, Party::Listed(_)) == wants_listed;
        let wanted = self.aside.iter().position(|aside| of_place(aside) && is_wanted(aside));
        wanted.or_else(|| self.aside.iter().position(of_place))
    }

    /// Whether a worker may go on with a chore: it has its turn, and nobody else waits for one, nor
    /// for its place. That it asks shows that it was not held.
    fn may_go_on(&mut self, number: u64, now: Time) -> bool {
        let busy = self.workers.get_mut(&number).and_then(|worker| worker.busy.as_mut());
        let Some(busy) = busy else { return false };
        busy.since = now;
        let has_turn = busy.turn.as_ref().is_some_and(|turn| !turn.is_wanted());
        let place = busy.place;
        has_turn && self.next_aside(place).is_none()
    }

    /// Whether somebody must look who is held: work waits for workers, or turns are held that
    /// others may wait for.
    fn is_to_be_watched(&self) -> bool {
        let holds_turn = |worker: &Worker| worker.busy.as_ref().is_some_and(|b| b.turn.is_some());
        self.idle.is_empty() && self.ready.is_due() || self.workers.values().any(holds_turn)
    }

    fn late(&self, now: Time) -> Vec<Late> {
        let late = self.workers.iter().filter_map(|(&number, worker)| {
            let since = worker.busy.as_ref()?.since;
            (now.since(since) >= HELD).then_some(Late { number, thread: worker.thread, since })
        });
        late.collect()
    }

    /// Whether a worker is still at the turn that began then.
    fn is_at_it(&self, number: u64, since: Time) -> bool {
        let busy = self.workers.get(&number).and_then(|worker| worker.busy.as_ref());
        busy.is_some_and(|busy| busy.since == since)
    }

    /// Takes the turn for chores of a worker that is held since then.
    fn take_turn(&mut self, number: u64, since: Time) -> Option<Turn<'static>> {
        let busy = self.workers.get_mut(&number)?.busy.as_mut()?;
        if busy.since == since { busy.turn.take() } else { None }
    }

    /// Adds a worker if there is work that could begin and, with so many held, fewer than the usual
    /// number are not.
    fn reserve(&mut self, held: usize) -> Option<u64> {
        let waits = self.ready.is_due() && self.idle.is_empty();
        let there = self.workers.len();
        let is_short = held + self.usual > there && there < self.usual * TIMES_MOST;
        (waits && is_short).then(|| self.add())
    }

    /// Whether there are more workers than usual although enough are not held.
    fn has_too_many(&self, now: Time) -> bool {
        let held = |w: &&Worker| w.busy.as_ref().is_some_and(|b| now.since(b.since) >= HELD);
        let free = self.workers.len() - self.workers.values().filter(held).count();
        self.workers.len() > self.usual && free > self.usual
    }
}
