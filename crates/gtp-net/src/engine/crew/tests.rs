//! The crew with clerks that count, wait and hang: who is served, how many workers there are.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, Sender, channel};

use gtp_alloc::Span;

use super::*;

/// What a job does, given its clerk's number.
type Deed = Box<dyn FnOnce(u64) -> Step + Send>;

/// Does what its jobs say, and tells of its other steps.
struct Doer {
    number: u64,
    due: Option<Time>,
    told: Sender<Told>,
}

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Done(u64),
    Ticked(u64),
    Chore(u64),
    Closed(u64),
}

impl Clerk for Doer {
    type Job = Deed;

    fn work(&mut self, job: Deed) -> Step {
        job(self.number)
    }

    fn tick(&mut self) -> Step {
        if self.due.take_if(|due| Clock::start().now() >= *due).is_some() {
            self.told.send(Told::Ticked(self.number)).unwrap();
        }
        Step::Go
    }

    fn due(&self) -> Option<Time> {
        self.due
    }

    fn chore(&mut self, _: &dyn Fn() -> bool) -> Step {
        self.told.send(Told::Chore(self.number)).unwrap();
        Step::Go
    }

    fn close(&mut self) {
        self.told.send(Told::Closed(self.number)).unwrap();
    }
}

fn crew(workers: usize) -> Arc<Crew> {
    Crew::start(Sizes { workers, hashers: 1 }).unwrap()
}

/// Clerks of a crew, and what they tell.
fn doers(crew: &Arc<Crew>, devices: &[Option<u64>]) -> (Vec<Inlet<Doer>>, Receiver<Told>) {
    let (told, heard) = channel();
    let desks = devices.iter().zip(0..).map(|(&device, number)| {
        Inlet::open(crew, Doer { number, due: None, told: told.clone() }, device)
    });
    (desks.collect(), heard)
}

/// Tells that its turn has come, and is held until the other end is dropped.
fn held(begun: &Sender<u64>) -> (Deed, Sender<()>) {
    let (release, released) = channel::<()>();
    let begun = begun.clone();
    let deed = move |number| {
        begun.send(number).unwrap();
        assert!(released.recv().is_err(), "it is released by dropping the other end");
        Step::Go
    };
    (Box::new(deed), release)
}

#[test]
fn jobs_of_a_desk_are_done_in_their_order_one_at_a_time_whoever_does_them() {
    let crew = crew(4);
    let (desks, _told) = doers(&crew, &[None; 8]);
    let (done, all) = channel();
    let at_work: Arc<[AtomicUsize]> = (0..8).map(|_| AtomicUsize::new(0)).collect();
    for job in 0..500 {
        for desk in &desks {
            let (done, at_work) = (done.clone(), Arc::clone(&at_work));
            desk.send(Box::new(move |number| {
                let others = at_work[number as usize].fetch_add(1, Ordering::SeqCst);
                done.send((number, job, others)).unwrap();
                at_work[number as usize].fetch_sub(1, Ordering::SeqCst);
                Step::Go
            }));
        }
    }
    drop(done);
    let mut next = [0; 8];
    for (number, job, others) in all {
        assert_eq!((job, others), (next[number as usize], 0), "desk {number}");
        next[number as usize] += 1;
    }
    assert_eq!(next, [500; 8]);
}

#[test]
fn while_all_workers_are_held_work_for_other_devices_goes_on_and_the_usual_number_comes_back() {
    let crew = crew(2);
    let (desks, _told) = doers(&crew, &[Some(1), Some(1), Some(1), Some(2), Some(3)]);
    let (begun, begins) = channel();
    let mut releases = Vec::new();
    for desk in &desks[..4] {
        let (deed, release) = held(&begun);
        desk.send(deed);
        releases.push(release);
    }
    let mut who: Vec<u64> = (0..3).map(|_| begins.recv().unwrap()).collect();
    who.sort_unstable();
    assert_eq!(who, [0, 1, 3], "the third of the first device waits for that device");
    let (done, was_done) = channel();
    for _ in 0..50 {
        let done = done.clone();
        desks[4].send(Box::new(move |number| {
            done.send(number).unwrap();
            Step::Go
        }));
        assert_eq!(was_done.recv().unwrap(), 4);
    }
    let workers = crew.workers(Kind::Files);
    assert!((4..=5).contains(&workers), "{workers}: three are held, and one or two are not");
    releases.clear();
    assert_eq!(begins.recv().unwrap(), 2);
    while crew.workers(Kind::Files) > 2 {
        // Whoever ends its turn last sees that there are too many.
        std::thread::yield_now();
    }
    let done_once_more = done.clone();
    desks[0].send(Box::new(move |number| {
        done_once_more.send(number).unwrap();
        Step::Go
    }));
    assert_eq!(was_done.recv().unwrap(), 0);
}

#[test]
fn where_one_device_hangs_others_have_the_usual_number_of_workers() {
    let crew = crew(2);
    let (desks, _told) = doers(&crew, &[Some(1), Some(1), Some(2), Some(3)]);
    let (begun, begins) = channel();
    let mut releases = Vec::new();
    for desk in &desks[..2] {
        let (deed, release) = held(&begun);
        desk.send(deed);
        releases.push(release);
    }
    let hung = [begins.recv().unwrap(), begins.recv().unwrap()];
    assert_eq!(hung.iter().sum::<u64>(), 1, "both workers are held: {hung:?}");
    // Each needs a processor until the other one is there, so none of them is ever held.
    let there = Arc::new(AtomicUsize::new(0));
    let (met, meets) = channel();
    for desk in &desks[2..] {
        let (there, met) = (Arc::clone(&there), met.clone());
        desk.send(Box::new(move |_| {
            there.fetch_add(1, Ordering::SeqCst);
            let clock = Clock::start();
            let begun = clock.now();
            while there.load(Ordering::SeqCst) < 2 && clock.now().since(begun) < PATIENCE {
                std::hint::spin_loop();
            }
            met.send(there.load(Ordering::SeqCst)).unwrap();
            Step::Go
        }));
    }
    assert_eq!([meets.recv().unwrap(), meets.recv().unwrap()], [2, 2]);
    drop(releases);
}

/// How long a test waits for what must happen.
const PATIENCE: Span = Span::from_secs(30);

#[test]
fn however_many_devices_hang_there_are_four_times_the_usual_workers_at_most() {
    let crew = crew(2);
    let devices: Vec<_> = (0..40).map(Some).collect();
    let (desks, _told) = doers(&crew, &devices);
    let (begun, begins) = channel();
    let mut releases = Vec::new();
    for desk in &desks {
        let (deed, release) = held(&begun);
        desk.send(deed);
        releases.push(release);
    }
    (0..8).for_each(|_| assert!(begins.recv().is_ok()));
    for _ in 0..10 {
        watch::look(&crew.0, Kind::Files);
    }
    assert_eq!(crew.workers(Kind::Files), 8);
    assert!(begins.try_recv().is_err());
    releases.clear();
    assert_eq!(begins.iter().take(32).count(), 32, "all have their turn in the end");
}

#[test]
fn work_that_needs_a_processor_is_not_taken_for_work_that_is_held() {
    let crew = crew(1);
    let (desks, _told) = doers(&crew, &[Some(1), Some(2)]);
    let (looked, has_looked) = channel::<()>();
    let (begun, begins) = channel();
    desks[0].send(Box::new(move |number| {
        begun.send(number).unwrap();
        while has_looked.try_recv().is_err() {
            std::hint::spin_loop();
        }
        Step::Go
    }));
    begins.recv().unwrap();
    let (done, was_done) = channel();
    desks[1].send(Box::new(move |number| {
        done.send(number).unwrap();
        Step::Go
    }));
    let begun = Clock::start().now();
    while Clock::start().now().since(begun) < HELD * 3 {
        watch::look(&crew.0, Kind::Files);
        assert_eq!(crew.workers(Kind::Files), 1);
    }
    looked.send(()).unwrap();
    assert_eq!(was_done.recv().unwrap(), 1);
}

#[test]
fn a_desk_to_which_nothing_leads_any_more_is_closed_after_its_last_job() {
    let crew = crew(2);
    let (told, heard) = channel();
    let desk = Inlet::open(&crew, Doer { number: 7, due: None, told: told.clone() }, Some(1));
    for job in 0..100 {
        let told = told.clone();
        desk.send(Box::new(move |_| {
            told.send(Told::Done(job)).unwrap();
            Step::Go
        }));
    }
    drop((desk, told));
    let all: Vec<_> = heard.iter().collect();
    assert_eq!(all[..100], (0..100).map(Told::Done).collect::<Vec<_>>());
    assert_eq!(all[100..], [Told::Closed(7)]);
}

#[test]
fn what_is_due_without_a_job_is_done_at_its_time_and_once() {
    let crew = crew(1);
    let (told, heard) = channel();
    let due = Clock::start().now() + Span::from_millis(20);
    let desk = Inlet::open(&crew, Doer { number: 7, due: Some(due), told }, None);
    desk.send(Box::new(|_| Step::Go));
    assert_eq!(heard.recv().unwrap(), Told::Ticked(7));
    assert!(Clock::start().now() >= due);
    drop(desk);
    assert_eq!(heard.iter().collect::<Vec<_>>(), [Told::Closed(7)]);
}

#[test]
fn a_chore_is_done_before_the_next_job_and_by_another_kind_of_worker() {
    let crew = crew(1);
    let (desks, told) = doers(&crew, &[Some(1)]);
    let party = Party::Listed(1);
    desks[0].send(Box::new(move |_| Step::Chore(party)));
    let (done, was_done) = channel();
    desks[0].send(Box::new(move |_| {
        done.send(std::thread::current().name().map(str::to_owned)).unwrap();
        Step::Go
    }));
    assert_eq!(was_done.recv().unwrap().as_deref(), Some("gtp-files"));
    assert_eq!(told.try_recv().unwrap(), Told::Chore(0));
}

#[test]
fn a_clerk_that_panics_takes_nobody_with_it() {
    let crew = crew(1);
    let (desks, _told) = doers(&crew, &[Some(1), Some(1)]);
    desks[0].send(Box::new(|_| panic!("as this test wants")));
    let (done, was_done) = channel::<u64>();
    let lost = done.clone();
    desks[0].send(Box::new(move |number| {
        lost.send(number).unwrap();
        Step::Go
    }));
    desks[1].send(Box::new(move |number| {
        done.send(number).unwrap();
        Step::Go
    }));
    assert_eq!(was_done.iter().collect::<Vec<_>>(), [1], "the jobs of the first are dropped");
    assert_eq!(crew.workers(Kind::Files), 1);
}

#[test]
fn threads_end_with_the_last_desk_and_whoever_else_holds_the_crew() {
    let crew = crew(3);
    let inner = Arc::downgrade(&crew.0);
    let (desks, told) = doers(&crew, &[None]);
    drop(crew);
    assert!(inner.upgrade().is_some(), "a desk is left");
    drop(desks);
    assert_eq!(told.iter().collect::<Vec<_>>(), [Told::Closed(0)]);
    while inner.strong_count() > 0 {
        // Each thread holds it until it has ended.
        std::thread::yield_now();
    }
}
