//! Turns for work that can wait: few threads work at a time, and clients take turns.
//!
//! Otherwise hashing files and walking through trees for a hundred clients would take every
//! processor from the engines. A worker offers its turn to others every few milliseconds. The next
//! turn goes to the client that has had fewest, however many sessions it has. Listed clients come
//! before strangers, which get a small part of the turns while listed clients wait. This module
//! must not know what the work is.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// The turns of this process. There is one for every four processors, and at least one.
pub(crate) static CHORES: LazyLock<Turns> = LazyLock::new(|| Turns::new(width()));

/// How many turns this process has at a time.
pub(crate) fn width() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get).div_ceil(4)
}

/// Turns that listed clients get before a stranger gets one, while both wait. It leaves 3 % of the
/// turns to strangers.
pub(super) const LISTED_IN_A_ROW: u32 = 31;

/// The client for which a worker works, as far as turns are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// A listed client, with the number of its key.
    Listed(u64),
    /// All strangers of one IPv4 address, or of one /64 prefix of IPv6.
    Strangers(u64),
}

impl Party {
    /// Returns the party of a client. A principal of zero means a stranger.
    pub fn of(principal: u64, address: IpAddr) -> Party {
        match (principal, address.to_canonical()) {
            (0, IpAddr::V4(v4)) => Party::Strangers(u64::from(v4.to_bits())),
            (0, IpAddr::V6(v6)) => Party::Strangers((v6.to_bits() >> 64) as u64),
            (key, _) => Party::Listed(key),
        }
    }
}

/// A fixed number of turns, and the queue of those that wait for one.
pub(crate) struct Turns {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    free: usize,
    listed: Lane,
    strangers: Lane,
    /// Turns that listed clients have had in a row while strangers waited.
    listed_in_a_row: u32,
}

/// The parties of one kind, listed clients or strangers.
#[derive(Default)]
struct Lane {
    /// Those that wait, in the order in which they came.
    waiting: Vec<(Party, Waiter)>,
    /// Turns that each party has had. A new party begins with one more than `level`, so that it
    /// queues behind those that wait. A party that has had no more than that, and does not wait, is
    /// forgotten.
    had: HashMap<Party, u64>,
    /// Turns that the party with the latest turn had had before it.
    level: u64,
}

/// What waits for a turn.
enum Waiter {
    /// A thread.
    Thread(Arc<Bell>),
    /// Work that has no thread before it has a turn.
    Work(Box<dyn FnOnce() -> Option<Turn<'static>> + Send>),
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

/// A turn, which is the right to work until this value is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    party: Party,
}

impl Turns {
    pub fn new(width: usize) -> Turns {
        Turns { queue: Mutex::new(Queue { free: width, ..Queue::default() }) }
    }

    /// Waits for a turn.
    pub fn take(&self, party: Party) -> Turn<'_> {
        let bell = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                queue.lane(party).count(party);
                return Turn { turns: self, party };
            }
            queue.lane(party).wait(party)
        };
        bell.wait();
        Turn { turns: self, party }
    }

    /// Calls `work` with a turn once there is one: at once, or on the thread that gives one up. It
    /// must be short, and gives the turn back if it can do nothing with it.
    pub fn take_later(
        &'static self,
        party: Party,
        work: impl FnOnce(Turn<'static>) -> Option<Turn<'static>> + Send + 'static,
    ) {
        {
            let mut queue = self.queue();
            if queue.free == 0 {
                let later = Box::new(move || work(Turn { turns: self, party }));
                return queue.lane(party).enqueue(party, Waiter::Work(later));
            }
            queue.free -= 1;
            queue.lane(party).count(party);
        }
        let back = work(Turn { turns: self, party });
        call(back.and_then(Turn::pass_on));
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Gives the turn up to parties that are due earlier, and waits for it to come back.
    pub fn offer(&mut self) {
        let (own, due) = {
            let mut queue = self.turns.queue();
            let own = queue.lane(self.party).wait(self.party);
            (own, queue.pass_on())
        };
        call(due);
        own.wait();
    }

    /// Gives the turn up; whoever is due has it and is to be called.
    fn pass_on(self) -> Option<Waiter> {
        let due = self.turns.queue().pass_on();
        // Dropped, it would be given up again.
        std::mem::forget(self);
        due
    }

    /// Whether others wait for a turn.
    pub fn is_wanted(&self) -> bool {
        let queue = self.turns.queue();
        !queue.listed.waiting.is_empty() || !queue.strangers.waiting.is_empty()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let due = self.turns.queue().pass_on();
        call(due);
    }
}

/// Tells whoever is due that its turn has come. However many give it back at once, one after the
/// other is called here, and none from within another.
fn call(mut due: Option<Waiter>) {
    while let Some(waiter) = due {
        due = match waiter {
            Waiter::Thread(bell) => {
                bell.ring();
                None
            }
            Waiter::Work(work) => work().and_then(Turn::pass_on),
        };
    }
}

impl Queue {
    fn lane(&mut self, party: Party) -> &mut Lane {
        match party {
            Party::Listed(_) => &mut self.listed,
            Party::Strangers(_) => &mut self.strangers,
        }
    }

    /// Gives a turn that has become free to whoever is due, if anyone waits: it is to be called.
    #[must_use]
    fn pass_on(&mut self) -> Option<Waiter> {
        let strangers_wait = !self.strangers.waiting.is_empty();
        let strangers_due = strangers_wait && self.listed_in_a_row >= LISTED_IN_A_ROW;
        if !strangers_due && let Some(due) = self.listed.next() {
            self.listed_in_a_row = if strangers_wait { self.listed_in_a_row + 1 } else { 0 };
            return Some(due);
        }
        self.listed_in_a_row = 0;
        let due = self.strangers.next();
        self.free += usize::from(due.is_none());
        due
    }
}

impl Lane {
    fn wait(&mut self, party: Party) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        self.enqueue(party, Waiter::Thread(Arc::clone(&bell)));
        bell
    }

    fn enqueue(&mut self, party: Party, waiter: Waiter) {
        self.had.insert(party, self.had(party));
        self.waiting.push((party, waiter));
    }

    /// Takes out who is due: the first of the party that has had fewest turns.
    fn next(&mut self) -> Option<Waiter> {
        let waiting = self.waiting.iter().enumerate();
        let due = waiting.min_by_key(|(at, (party, _))| (self.had(*party), *at));
        let (party, waiter) = self.waiting.remove(due?.0);
        self.count(party);
        Some(waiter)
    }

    fn had(&self, party: Party) -> u64 {
        self.had.get(&party).copied().unwrap_or(self.level + 1)
    }

    /// Counts a turn that begins for `party`.
    fn count(&mut self, party: Party) {
        let had = self.had(party);
        self.level = self.level.max(had);
        self.had.insert(party, had + 1);
        let Lane { waiting, had, level } = self;
        let waiting: HashSet<Party> = waiting.iter().map(|(party, _)| *party).collect();
        had.retain(|party, had| *had > *level + 1 || waiting.contains(party));
    }
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            rung = self.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn no_more_work_at_a_time_than_there_are_turns_and_all_get_one() {
        let turns = Turns::new(2);
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for n in 0..16 {
                let (turns, now, most, done) = (&turns, &now, &most, &done);
                let party = if n % 2 == 0 { Party::Listed(n % 3) } else { Party::Strangers(n % 5) };
                scope.spawn(move || {
                    for _ in 0..100 {
                        let mut turn = turns.take(party);
                        for _ in 0..2 {
                            let working = now.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(working, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                            turn.offer();
                        }
                    }
                });
            }
        });
        assert_eq!((done.into_inner(), most.into_inner()), (3_200, 2));
        assert_eq!(turns.queue().free, 2);
    }

    /// Returns how many of the first `turns` each of these parties gets, if each has more work than
    /// that.
    fn share_out(parties: &[Party], turns: usize) -> Vec<usize> {
        let mut queue = Queue::default();
        let mut bells: Vec<_> = parties.iter().map(|&p| queue.lane(p).wait(p)).collect();
        let mut got = vec![0; parties.len()];
        for _ in 0..turns {
            call(queue.pass_on());
            let rung = |bell: &Arc<Bell>| *bell.rung.lock().unwrap();
            let who = bells.iter().position(rung).unwrap();
            got[who] += 1;
            bells[who] = queue.lane(parties[who]).wait(parties[who]);
        }
        assert_eq!(queue.free, 0);
        got
    }

    #[test]
    fn clients_get_as_many_turns_each_however_many_sessions_they_have() {
        let [one, other] = [1, 2].map(Party::Listed);
        let mut parties = vec![one; 32];
        parties.push(other);
        let got = share_out(&parties, 640);
        assert_eq!(got[32], 320);
        assert!(got[..32].iter().all(|&turns| turns == 10), "{got:?}");
    }

    #[test]
    fn strangers_slow_a_listed_client_down_by_a_thirtieth_at_most_and_are_not_starved() {
        let mut parties: Vec<_> = (0..64).map(Party::Strangers).collect();
        parties.push(Party::Listed(1));
        let got = share_out(&parties, 6_400);
        assert_eq!(got[64], 6_200);
        assert!(got[..64].iter().all(|turns| (3..=4).contains(turns)), "{got:?}");
        assert_eq!(share_out(&parties[..64], 640), [10; 64], "alone they have all");
    }

    #[test]
    fn clients_that_come_back_neither_make_up_for_lost_time_nor_starve_those_that_wait() {
        let mut queue = Queue::default();
        let busy = Party::Listed(0);
        for _ in 0..1_000 {
            queue.listed.wait(busy);
            call(queue.pass_on());
        }
        let waits = queue.listed.wait(busy);
        for key in 1..10_000 {
            queue.listed.wait(Party::Listed(key));
            queue.listed.wait(Party::Listed(key));
            call(queue.pass_on());
            assert!(key < 3 || *waits.rung.lock().unwrap(), "{key}");
        }
        queue.listed.waiting.truncate(3);
        call(queue.pass_on());
        assert!(queue.listed.had.len() <= 3, "{:?}", queue.listed.had);
    }

    #[test]
    fn turns_of_one_client_come_in_the_order_in_which_they_were_asked_for() {
        let turns = Turns::new(1);
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let first = turns.take(Party::Listed(1));
            for n in 0..5 {
                let (turns, tell) = (&turns, tell.clone());
                scope.spawn(move || {
                    let _turn = turns.take(Party::Listed(1));
                    tell.send(n).unwrap();
                });
                while turns.queue().listed.waiting.len() <= n {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn however_many_give_their_turn_back_at_once_none_is_called_from_within_another() {
        const MANY: usize = 1_000;
        let turns: &Turns = Box::leak(Box::new(Turns::new(1)));
        let called: &AtomicUsize = Box::leak(Box::default());
        let first = turns.take(Party::Listed(1));
        for _ in 0..MANY {
            turns.take_later(Party::Listed(1), move |turn| {
                called.fetch_add(1, Ordering::Relaxed);
                Some(turn)
            });
        }
        let small = std::thread::Builder::new().stack_size(16 << 10);
        small.spawn(move || drop(first)).unwrap().join().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), MANY);
        assert_eq!(turns.queue().free, 1);
    }

    #[test]
    fn a_stranger_is_known_by_its_address_and_a_listed_client_by_its_key() {
        let of = |principal, address: &str| Party::of(principal, address.parse().unwrap());
        assert_eq!(of(0, "10.0.0.1"), of(0, "::ffff:10.0.0.1"));
        assert_eq!(of(0, "2001:db8:1:2::1"), of(0, "2001:db8:1:2:ffff::9"));
        assert_ne!(of(0, "2001:db8:1:2::1"), of(0, "2001:db8:1:3::1"));
        assert_eq!(of(7, "10.0.0.1"), of(7, "10.0.0.2"));
        assert_ne!(of(7, "10.0.0.1"), of(0, "10.0.0.1"));
    }
}
