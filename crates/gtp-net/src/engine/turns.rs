//! Turns for work that can wait: few threads work at a time, in the order in which they came.
//!
//! Otherwise hashing whole files for a hundred clients would take every processor from the engines.
//! A working thread gives up its turn now and then and queues again, so that one long job does not
//! hold up many short ones. What the work is, is unknown here.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// The turns of this process's hashing: one for every four processors, at least one.
pub(super) static HASHING: LazyLock<Turns> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Turns::new(processors.div_ceil(4))
});

/// A queue for a fixed number of turns.
pub(super) struct Turns {
    queue: Mutex<Queue>,
}

struct Queue {
    free: usize,
    waiting: VecDeque<Arc<Bell>>,
}

#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

/// A turn: the right to work until this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    pub fn new(width: usize) -> Turns {
        Turns { queue: Mutex::new(Queue { free: width, waiting: VecDeque::new() }) }
    }

    /// Waits for a turn.
    pub fn take(&self) -> Turn<'_> {
        let bell = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Turn(self);
            }
            let bell = Arc::new(Bell::default());
            queue.waiting.push_back(Arc::clone(&bell));
            bell
        };
        let mut rung = bell.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            rung = bell.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        match queue.waiting.pop_front() {
            // The turn passes on.
            Some(next) => {
                *next.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
                next.changed.notify_one();
            }
            None => queue.free += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_work_at_a_time_than_there_are_turns_and_all_get_one() {
        let turns = Turns::new(2);
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _turn = turns.take();
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((done.into_inner(), most.into_inner()), (1_600, 2));
        assert_eq!(turns.queue().free, 2);
    }

    #[test]
    fn turns_come_in_the_order_in_which_they_were_asked_for() {
        let turns = Turns::new(1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = turns.take();
            for n in 0..5 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take();
                    order.lock().unwrap().push(n);
                });
                while turns.queue().waiting.len() <= n {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
    }
}
