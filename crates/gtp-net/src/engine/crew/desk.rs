//! One session's work on files: its jobs in their order, done by one worker at a time.
//!
//! A desk keeps what is to be done and whoever can do it, its clerk, and asks the crew for a turn
//! when there is something. Whichever worker comes does jobs for a few milliseconds and puts the
//! clerk back. A desk that nobody can give work to any more is closed once its jobs are done. This
//! module must not know files, sessions or how many workers there are.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::{Span, Time};

use super::ready::Place;
use super::{Crew, Next, Work};
use crate::engine::turns::Party;

/// Does the jobs of a desk.
pub(in crate::engine) trait Clerk: Send + 'static {
    /// What it is asked.
    type Job: Send + 'static;

    /// Does a job.
    fn work(&mut self, job: Self::Job) -> Step;

    /// Does what is due without a job. It is asked when its jobs are done, and at [`Clerk::due`].
    fn tick(&mut self) -> Step {
        Step::Go
    }

    /// When something is due without a job.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Does more of what it has said is a chore, as long as it may go on.
    fn chore(&mut self, _may_go_on: &dyn Fn() -> bool) -> Step {
        Step::Go
    }

    /// Nobody can give it a job any more, and all are done.
    fn close(&mut self) {}
}

/// What a clerk says after a step.
pub(in crate::engine) enum Step {
    /// It can take the next job.
    Go,
    /// What it has begun can wait, and takes turns with others of this kind for this party. Its
    /// next jobs come after that.
    Chore(Party),
    /// It has ended. This is done once it is gone, with all that it held.
    End(Box<dyn FnOnce() + Send>),
}

/// Jobs are done for so long before others have a turn: some blocks, or a file's sync.
const TURN: Span = Span::from_millis(4);

/// The jobs of a session, and who does them.
pub(super) struct Desk<C: Clerk> {
    crew: Arc<Crew>,
    place: Place,
    state: Mutex<State<C>>,
}

struct State<C: Clerk> {
    jobs: VecDeque<C::Job>,
    /// Away while a worker has it, and gone after its end.
    clerk: Option<C>,
    standing: Standing,
    /// Nobody can give a job any more.
    closed: bool,
    /// The clerk does a chore.
    chore: bool,
    /// The crew will come when something is due.
    awaited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is nothing to do.
    Resting,
    /// It waits for a worker, or has one.
    Busy,
    /// The clerk has ended.
    Over,
}

/// The way to a desk. Once it is dropped, the desk is closed after its last job.
pub(in crate::engine) struct Inlet<C: Clerk>(Arc<Desk<C>>);

impl<C: Clerk> Inlet<C> {
    /// Gives the clerk a desk; its work is on this device, if that is known.
    pub fn open(crew: &Arc<Crew>, clerk: C, device: Option<u64>) -> Inlet<C> {
        let place = crew.place(device);
        let state = Mutex::new(State {
            jobs: VecDeque::new(),
            clerk: Some(clerk),
            standing: Standing::Resting,
            closed: false,
            chore: false,
            awaited: false,
        });
        Inlet(Arc::new(Desk { crew: Arc::clone(crew), place, state }))
    }

    /// Gives the clerk a job; dropped if it has ended.
    pub fn send(&self, job: C::Job) {
        let mut state = self.0.state();
        if state.standing == Standing::Over {
            // Without the lock: what the job holds is unknown here.
            drop(state);
            return drop(job);
        }
        state.jobs.push_back(job);
        self.0.rouse(state);
    }
}

impl<C: Clerk> Drop for Inlet<C> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        self.0.rouse(state);
    }
}

impl<C: Clerk> Desk<C> {
    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a worker unless it has asked already.
    fn rouse(self: &Arc<Self>, mut state: MutexGuard<'_, State<C>>) {
        if state.standing == Standing::Resting {
            state.standing = Standing::Busy;
            drop(state);
            self.crew.enqueue(Arc::clone(self) as Arc<dyn Work>);
        }
    }

    /// Does chores or jobs until the turn is over.
    fn do_some(&self, clerk: &mut C, may_go_on: &dyn Fn() -> bool) -> Step {
        if self.state().chore {
            let step = clerk.chore(may_go_on);
            self.state().chore = matches!(step, Step::Chore(_));
            return step;
        }
        let clock = self.crew.clock();
        let begun = clock.now();
        while clock.now().since(begun) < TURN {
            let job = self.state().jobs.pop_front();
            let Some(job) = job else { return clerk.tick() };
            match clerk.work(job) {
                Step::Go => {}
                other @ (Step::Chore(_) | Step::End(_)) => return other,
            }
        }
        clerk.tick()
    }

    /// Puts the clerk back; says what the desk needs next.
    fn put_back(&self, mut clerk: C, step: Step) -> Next {
        let due = clerk.due();
        let mut state = self.state();
        let mut farewell = None;
        let next = match step {
            Step::End(last) => {
                farewell = Some(last);
                None
            }
            Step::Chore(party) => {
                state.chore = true;
                Some(Next::Chore(party))
            }
            Step::Go if !state.jobs.is_empty() => Some(Next::Again),
            Step::Go if state.closed => None,
            Step::Go => {
                state.standing = Standing::Resting;
                let due = due.filter(|_| !state.awaited);
                state.awaited |= due.is_some();
                Some(due.map_or(Next::Rest, Next::At))
            }
        };
        if let Some(next) = next {
            state.clerk = Some(clerk);
            return next;
        }
        state.standing = Standing::Over;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        if farewell.is_none() {
            clerk.close();
        }
        let farewell = Farewell(farewell);
        drop((clerk, jobs));
        drop(farewell);
        Next::Rest
    }
}

/// What is done once a clerk is gone, even if it panics on the way.
struct Farewell(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Farewell {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

impl<C: Clerk> Work for Desk<C> {
    fn place(&self) -> Place {
        self.place
    }

    fn turn(&self, may_go_on: &dyn Fn() -> bool) -> Next {
        let clerk = self.state().clerk.take();
        let Some(mut clerk) = clerk else { return Next::Rest };
        let done = catch_unwind(AssertUnwindSafe(|| {
            let step = self.do_some(&mut clerk, may_go_on);
            self.put_back(clerk, step)
        }));
        done.unwrap_or_else(|_| {
            // The clerk is gone, and so is what it was asked: those whose answer is in a job hear
            // of that, and the engine's own clerks tell it when they are dropped.
            let mut state = self.state();
            state.standing = Standing::Over;
            let jobs = std::mem::take(&mut state.jobs);
            drop(state);
            drop(jobs);
            Next::Rest
        })
    }

    fn wake(self: Arc<Self>) {
        let mut state = self.state();
        state.awaited = false;
        self.rouse(state);
    }
}
