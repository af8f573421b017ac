//! The directories of a survey that are still to come, and threads that list them ahead of it.
//!
//! A survey hands on what it finds directory by directory, in one order. Most of its time goes into
//! calls of the kernel, so other threads can make them for the directories that come next. What
//! they hold ready is bounded. This module must not know what is found in a directory.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Directories that are still to come, as `L`istings once they have been listed.
pub(super) struct Ahead<L> {
    state: Mutex<State<L>>,
    changed: Condvar,
}

/// What a directory holds, as far as it has been listed ahead.
pub(super) trait Listed {
    /// Bytes that it takes, about.
    fn bytes(&self) -> usize;
}

struct State<L> {
    /// The next one is the last.
    coming: Vec<Coming<L>>,
    /// Directories that have come so far, which number them.
    count: u64,
    /// Bytes of what is listed ahead.
    held_bytes: usize,
    is_over: bool,
}

struct Coming<L> {
    number: u64,
    path: String,
    progress: Progress<L>,
}

enum Progress<L> {
    Untouched,
    Taken,
    Listed(L),
}

/// What the survey gets of the next directory.
pub(super) enum Next<L> {
    /// Its path; nobody has listed it.
    Untouched(String),
    /// What it holds.
    Listed(L),
}

/// A directory that a thread lists. When this is dropped, the listing is handed over, or the
/// directory is again one that nobody has taken.
struct Taken<'a, L: Listed> {
    ahead: &'a Ahead<L>,
    number: u64,
    listing: Option<L>,
}

/// Ends the threads once the survey is over, however it ends.
pub(super) struct Over<'a, L>(&'a Ahead<L>);

impl<L: Listed> Ahead<L> {
    /// Of a survey that begins at this directory.
    pub fn of(path: &str) -> Ahead<L> {
        let state = State { coming: Vec::new(), count: 0, held_bytes: 0, is_over: false };
        let ahead = Ahead { state: Mutex::new(state), changed: Condvar::new() };
        ahead.add(vec![path.to_owned()]);
        ahead
    }

    /// Adds the directories in the one that was handed out last. The first of them comes next.
    pub fn add(&self, paths: Vec<String>) {
        let mut state = self.state();
        for path in paths.into_iter().rev() {
            state.count += 1;
            let number = state.count;
            state.coming.push(Coming { number, path, progress: Progress::Untouched });
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next directory, once it is listed if a thread has taken it; `None` behind the last. The
    /// survey lists others meanwhile.
    pub fn next(&self, list: impl Fn(&str) -> L) -> Option<Next<L>> {
        let mut state = self.state();
        while matches!(state.coming.last()?.progress, Progress::Taken) {
            match state.take() {
                Some((number, path)) => {
                    drop(state);
                    self.list(number, &path, &list);
                    state = self.state();
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let Coming { path, progress, .. } = state.coming.pop()?;
        let Progress::Listed(listing) = progress else { return Some(Next::Untouched(path)) };
        state.held_bytes -= listing.bytes();
        drop(state);
        self.changed.notify_all();
        Some(Next::Listed(listing))
    }

    /// Lists directories that come soon, until the survey is over.
    pub fn help(&self, list: impl Fn(&str) -> L) {
        while let Some((number, path)) = self.take() {
            self.list(number, &path, &list);
        }
    }

    fn list(&self, number: u64, path: &str, list: impl Fn(&str) -> L) {
        let mut taken = Taken { ahead: self, number, listing: None };
        taken.listing = Some(list(path));
    }

    /// The guard that ends the threads.
    pub fn over(&self) -> Over<'_, L> {
        Over(self)
    }

    /// Waits until there is a directory to list; `None` once the survey is over.
    fn take(&self) -> Option<(u64, String)> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(taken) = state.take() {
                return Some(taken);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L> State<L> {
    fn take(&mut self) -> Option<(u64, String)> {
        if self.held_bytes >= HELD_BYTES_MAX {
            return None;
        }
        // The survey itself is about to list the next one.
        let mut soon = self.coming.iter_mut().rev().take(AHEAD).skip(1);
        let coming = soon.find(|coming| matches!(coming.progress, Progress::Untouched))?;
        coming.progress = Progress::Taken;
        Some((coming.number, coming.path.clone()))
    }
}

impl<L: Listed> Drop for Taken<'_, L> {
    fn drop(&mut self) {
        let mut state = self.ahead.state();
        let bytes = self.listing.as_ref().map_or(0, L::bytes);
        let is_own = |coming: &&mut Coming<L>| coming.number == self.number;
        if let Some(coming) = state.coming.iter_mut().rev().find(is_own) {
            coming.progress = self.listing.take().map_or(Progress::Untouched, Progress::Listed);
            state.held_bytes += bytes;
        }
        drop(state);
        self.ahead.changed.notify_all();
    }
}

impl<L> Drop for Over<'_, L> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.0.changed.notify_all();
    }
}

/// Bytes that are listed ahead, from which on no thread takes a further directory.
const HELD_BYTES_MAX: usize = 4 << 20;

/// How many of the next directories threads look at for one that nobody has taken.
const AHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    struct Names(Vec<String>);

    impl Listed for Names {
        fn bytes(&self) -> usize {
            self.0.len() * (HELD_BYTES_MAX / 10)
        }
    }

    /// The directories of a tree in the order of a survey that these threads help.
    fn order(tree: &HashMap<String, Vec<String>>, helpers: usize) -> Vec<String> {
        let ahead = Ahead::<Names>::of("");
        let list = |path: &str| Names(tree.get(path).cloned().unwrap_or_default());
        let mut order = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|| ahead.help(list));
            }
            let _over = ahead.over();
            while let Some(next) = ahead.next(list) {
                let Names(names) = match next {
                    Next::Untouched(path) => list(&path),
                    Next::Listed(names) => names,
                };
                order.extend(names.iter().cloned());
                ahead.add(names);
            }
        });
        order
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_order_is_the_same_however_many_threads_help(
            holders in prop::collection::vec(0_usize..40, 1..40),
        ) {
            let mut tree: HashMap<String, Vec<String>> = HashMap::new();
            for (number, holder) in holders.iter().enumerate() {
                let holder = match holder % (number + 1) {
                    0 => String::new(),
                    holder => holder.to_string(),
                };
                tree.entry(holder).or_default().push((number + 1).to_string());
            }
            let alone = order(&tree, 0);
            prop_assert_eq!(alone.len(), holders.len());
            prop_assert_eq!(order(&tree, 3), alone);
        }
    }

    #[test]
    fn threads_stop_listing_when_enough_is_held_and_go_on_when_it_is_fetched() {
        let ahead = Ahead::<Names>::of("");
        // Each listing takes four tenths of what may be held.
        let listed = AtomicUsize::new(0);
        let list = |_: &str| {
            listed.fetch_add(1, Ordering::SeqCst);
            Names(vec![String::new(); 4])
        };
        assert!(matches!(ahead.next(list), Some(Next::Untouched(path)) if path.is_empty()));
        ahead.add((0..7).map(|n| n.to_string()).collect());
        std::thread::scope(|scope| {
            scope.spawn(|| ahead.help(list));
            let _over = ahead.over();
            while ahead.state().held_bytes < HELD_BYTES_MAX {
                std::thread::yield_now();
            }
            assert_eq!(listed.load(Ordering::SeqCst), 3);
            assert!(ahead.state().take().is_none());
            assert!(matches!(ahead.next(list), Some(Next::Untouched(path)) if path == "0"));
            assert!(matches!(ahead.next(list), Some(Next::Listed(_))));
            while ahead.state().held_bytes < HELD_BYTES_MAX {
                std::thread::yield_now();
            }
            assert_eq!(listed.load(Ordering::SeqCst), 4);
        });
    }

    #[test]
    fn a_directory_whose_thread_panics_is_left_to_the_survey() {
        let ahead = Ahead::<Names>::of("d");
        ahead.add(vec!["next".into()]);
        let helped = std::thread::scope(|scope| {
            scope.spawn(|| ahead.help(|_| panic!("as the test wants"))).join()
        });
        assert!(helped.is_err());
        for path in ["next", "d"] {
            let next = ahead.next(|_| Names(Vec::new()));
            assert!(matches!(next, Some(Next::Untouched(untouched)) if untouched == path));
        }
    }
}
