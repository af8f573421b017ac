//! Many runs on all cores, with results in the order of their numbers.
//!
//! A run is a function of its number alone, so neither the number of threads nor their order can
//! be seen in the results.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::ProgressBar;

/// Threads to use where nobody says how many.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The results of `work` for 0, 1, … `count`, made by so many threads.
pub fn run<T: Send>(
    count: usize,
    threads: usize,
    bar: &ProgressBar,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = work(number);
                    // Nothing in here can leave the list half written.
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let square = |n: usize| n * n;
        let one = run(100, 1, &ProgressBar::hidden(), square);
        assert_eq!(one, run(100, 7, &ProgressBar::hidden(), square));
        assert_eq!((one[9], one.len()), (81, 100));
        assert!(run(0, 4, &ProgressBar::hidden(), square).is_empty());
    }
}
