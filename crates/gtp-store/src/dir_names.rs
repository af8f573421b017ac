//! The names in directories, in order, which several listings may share.
//!
//! A directory with very many names would otherwise be read again by each listing for every few
//! thousand of them. As long as one listing holds the names of a directory, another one that finds
//! it with the same identity and times takes them over; a directory that has changed has other
//! times and is read anew. While one listing collects the names of a directory, others go on with
//! few at a time. Names of a directory that changed a moment ago are not shared, since its times
//! may stay the same at the next change. One listing at a time may collect them for itself, and
//! others go on with few until the directory has been left alone for long enough. A directory that
//! changes again and again has a few sets of names at a time, whatever the number of its listings.
//!
//! Names that are shared count once for each account whose listings hold them, and for an account
//! no longer than a listing of its own lasts: nobody prolongs what another pays for. What an
//! account is, and how much memory it has, is unknown here.
//!
//! They are sorted in runs of a few thousand, each as soon as it is collected, and each listing
//! merges the runs as it goes. So no step sorts a whole directory, whatever its size.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::export::Stamp;

/// The names of directories that are being listed now.
pub struct SharedNames {
    settled: fn(i64) -> bool,
    known: Mutex<HashMap<Stamp, Weak<Runs>>>,
    /// The directories whose names are being collected for all.
    collected: Mutex<HashSet<Stamp>>,
    /// How many sets of names of each directory are being collected or held.
    sets: Mutex<HashMap<Directory, usize>>,
}

/// A directory by its device and its inode number.
type Directory = (u64, u64);

/// The most sets of names of one directory at a time.
const SETS_MOST: usize = 4;

/// Memory that was granted. It is given back when this is dropped.
pub type Granted = Box<dyn Any + Send + Sync>;

/// How many names a listing may hold.
pub struct NamesHeld {
    /// Names at a time, of all its directories together, each of some 50 bytes.
    pub(crate) most: usize,
    /// Where it shares the names of directories with more, and finds memory for them.
    pub(crate) sharing: Option<Sharing>,
}

pub(crate) struct Sharing {
    with: Arc<SharedNames>,
    claim: Claim,
    grant: Box<dyn FnMut(usize) -> Option<Granted> + Send>,
}

/// A claim says what a listing may ask for, to share the names of directories.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// Names count on the account with this number.
    pub account: u64,
    /// The listing may hold shared names of so many bytes at a time.
    pub bytes: usize,
}

impl From<usize> for NamesHeld {
    /// A listing holds so many names at a time. It reads a directory with more several times.
    fn from(most: usize) -> NamesHeld {
        NamesHeld { most, sharing: None }
    }
}

impl NamesHeld {
    /// Shares the names of directories with more than it holds, as long as `grant` gives the bytes
    /// for them, which it is asked for once for all listings of the account that hold the same
    /// names. Without memory such a directory is read several times.
    pub fn sharing(
        self,
        with: &Arc<SharedNames>,
        claim: Claim,
        grant: impl FnMut(usize) -> Option<Granted> + Send + 'static,
    ) -> NamesHeld {
        let sharing = Sharing { with: Arc::clone(with), claim, grant: Box::new(grant) };
        NamesHeld { sharing: Some(sharing), ..self }
    }
}

impl fmt::Debug for NamesHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamesHeld").field("most", &self.most).finish_non_exhaustive()
    }
}

impl SharedNames {
    /// Shares nothing yet. `settled` says whether a time of change, in seconds of the wall clock,
    /// is old enough for the next change to show by another time.
    pub fn new(settled: fn(i64) -> bool) -> Arc<SharedNames> {
        let (known, collected, sets) = Default::default();
        Arc::new(SharedNames { settled, known, collected, sets })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Stamp, Weak<Runs>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collected(&self) -> MutexGuard<'_, HashSet<Stamp>> {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sets(&self) -> MutexGuard<'_, HashMap<Directory, usize>> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a directory with this stamp always has these names.
    fn lasts(&self, stamp: &Stamp) -> bool {
        stamp.names_a_file() && (self.settled)(stamp.changed())
    }
}

impl Sharing {
    /// Takes over the names of a directory with this stamp, beside the bytes that this listing
    /// holds, if another one holds them and there is memory on the account of this one.
    pub(crate) fn find(&mut self, stamp: &Stamp, held: usize) -> Option<Taken> {
        let names = self.with.known().get(stamp).and_then(Weak::upgrade)?;
        let bytes = names.size();
        if held.checked_add(bytes)? > self.claim.bytes {
            return None;
        }
        let mut paid = names.paid();
        let granted = match paid.get(&self.claim.account).and_then(Weak::upgrade) {
            Some(granted) => granted,
            None => Arc::new((self.grant)(bytes)?),
        };
        paid.retain(|_, granted| granted.strong_count() > 0);
        paid.insert(self.claim.account, Arc::downgrade(&granted));
        drop(paid);
        Some(Taken { names, _granted: granted })
    }

    /// Begins to collect so many names of a directory with this stamp, of so many bytes together,
    /// beside the bytes that this listing holds.
    pub(crate) fn collect(
        &mut self,
        stamp: Stamp,
        (names, bytes): (usize, usize),
        held: usize,
    ) -> Option<Collecting> {
        u32::try_from(bytes).ok()?;
        let all = names.checked_mul(size_of::<Span>())?.checked_add(bytes)?;
        if held.checked_add(all)? > self.claim.bytes {
            return None;
        }
        let (for_all, sets_most) = match self.with.lasts(&stamp) {
            true => (Some(ForAll::begin(&self.with, stamp)?), SETS_MOST),
            false => (None, 1),
        };
        let set = Set::begin(&self.with, stamp.place(), sets_most)?;
        let granted = (self.grant)(all)?;
        let (bytes, spans) = (Vec::with_capacity(bytes), Vec::with_capacity(names));
        Some(Collecting { bytes, spans, granted, for_all, set })
    }

    /// Takes over what was collected of a directory, which has this stamp now, and shares it if
    /// that is safe.
    pub(crate) fn share(&self, mut collected: Collecting, stamp: &Stamp) -> Taken {
        // Others may begin to collect when this is known.
        let for_all = collected.for_all.take().filter(|for_all| for_all.stamp == *stamp);
        let (runs, granted) = Runs::of(collected);
        let taken = Taken { names: Arc::new(runs), _granted: Arc::new(granted) };
        taken.names.paid().insert(self.claim.account, Arc::downgrade(&taken._granted));
        if for_all.is_some() {
            let mut known = self.with.known();
            known.retain(|_, names| names.strong_count() > 0);
            known.insert(*stamp, Arc::downgrade(&taken.names));
        }
        taken
    }
}

/// The only collecting of a directory's names for all, as long as it goes on.
struct ForAll {
    with: Arc<SharedNames>,
    stamp: Stamp,
}

impl ForAll {
    /// Begins it, unless one goes on.
    fn begin(with: &Arc<SharedNames>, stamp: Stamp) -> Option<ForAll> {
        let is_first = with.collected().insert(stamp);
        is_first.then(|| ForAll { with: Arc::clone(with), stamp })
    }
}

impl Drop for ForAll {
    fn drop(&mut self) {
        self.with.collected().remove(&self.stamp);
    }
}

/// One of the sets of names of a directory, from when it is collected as long as it is held.
struct Set {
    with: Arc<SharedNames>,
    directory: Directory,
}

impl Set {
    /// Begins it, unless there are `most` already.
    fn begin(with: &Arc<SharedNames>, directory: Directory, most: usize) -> Option<Set> {
        let mut sets = with.sets();
        let count = sets.entry(directory).or_default();
        (*count < most).then(|| {
            *count += 1;
            Set { with: Arc::clone(with), directory }
        })
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let mut sets = self.with.sets();
        if let Some(count) = sets.get_mut(&self.directory) {
            *count -= 1;
            if *count == 0 {
                sets.remove(&self.directory);
            }
        }
    }
}

/// Where a name begins, and its length.
type Span = (u32, u16);

/// Names that are being collected, in memory that was granted for them.
pub(crate) struct Collecting {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    granted: Granted,
    for_all: Option<ForAll>,
    set: Set,
}

impl Collecting {
    /// Adds a name. Returns `false` if there is no room for it.
    pub(crate) fn add(&mut self, name: &[u8]) -> bool {
        let fits = self.bytes.len() + name.len() <= self.bytes.capacity()
            && self.spans.len() < self.spans.capacity();
        let (Ok(at), Ok(length)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len()))
        else {
            return false;
        };
        if fits {
            self.bytes.extend_from_slice(name);
            self.spans.push((at, length));
            if self.spans.len().is_multiple_of(RUN) {
                self.sort_last();
            }
        }
        fits
    }

    /// Sorts the last run.
    fn sort_last(&mut self) {
        let begin = self.spans.len().saturating_sub(1) / RUN * RUN;
        self.spans[begin..].sort_unstable_by_key(|span| name_at(&self.bytes, *span));
    }
}

impl fmt::Debug for Collecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collecting").field("names", &self.spans.len()).finish_non_exhaustive()
    }
}

/// All names of a directory in runs, each of which is in order.
pub(crate) struct Runs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// The memory for them that each account has given to its listings.
    paid: Mutex<HashMap<u64, Weak<Granted>>>,
    _set: Set,
}

/// Names in a run: so many are sorted at once, within a millisecond.
const RUN: usize = 4_096;

impl Runs {
    fn of(mut collected: Collecting) -> (Runs, Granted) {
        collected.sort_last();
        let Collecting { bytes, spans, granted, set, .. } = collected;
        (Runs { bytes, spans, paid: Mutex::default(), _set: set }, granted)
    }

    fn paid(&self) -> MutexGuard<'_, HashMap<u64, Weak<Granted>>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of memory that it takes.
    fn size(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }

    /// What each run holds after this name, or all of it. The run with the next name is the last.
    fn after(&self, name: Option<&[u8]>) -> Vec<Range<usize>> {
        let mut left = Vec::new();
        for (run, begin) in self.spans.chunks(RUN).zip((0..).step_by(RUN)) {
            let is_done =
                |span: &Span| name.is_some_and(|name| name_at(&self.bytes, *span) <= name);
            let rest = begin + run.partition_point(is_done)..begin + run.len();
            if !rest.is_empty() {
                left.push(rest);
            }
        }
        left.sort_unstable_by_key(|rest| Reverse(self.name(rest.start)));
        left
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        self.spans.get(at).map(|span| name_at(&self.bytes, *span))
    }

    fn next(&self, left: &[Range<usize>]) -> Option<&[u8]> {
        self.name(left.last()?.start)
    }

    /// Takes the next name from the runs.
    fn take(&self, left: &mut Vec<Range<usize>>) -> Option<&[u8]> {
        let name = self.next(left)?;
        // The system may report a name twice if it was changed while the directory was read.
        while self.next(left) == Some(name) {
            let mut rest = left.pop()?;
            rest.start += 1;
            if !rest.is_empty() {
                let next = self.name(rest.start);
                let place = left.partition_point(|other| self.name(other.start) > next);
                left.insert(place, rest);
            }
        }
        Some(name)
    }
}

fn name_at(bytes: &[u8], (at, length): Span) -> &[u8] {
    &bytes[at as usize..][..usize::from(length)]
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("names", &self.spans.len()).finish_non_exhaustive()
    }
}

/// The names of a directory, and the memory for them on the account of the listing that holds
/// them. That is given back last.
#[derive(Debug)]
pub(crate) struct Taken {
    names: Arc<Runs>,
    _granted: Arc<Granted>,
}

impl Taken {
    /// The names after this one, or all.
    pub(crate) fn after(self, name: Option<&[u8]>) -> Upcoming {
        let left = self.names.after(name);
        Upcoming::Shared(self, left)
    }
}

/// The next names of a directory.
#[derive(Debug)]
pub(crate) enum Upcoming {
    /// Names of the listing's own, in reverse order.
    Own(Vec<Box<[u8]>>),
    /// All names, and what is left of each run.
    Shared(Taken, Vec<Range<usize>>),
}

impl Upcoming {
    pub(crate) fn none() -> Upcoming {
        Upcoming::Own(Vec::new())
    }

    pub(crate) fn peek(&self) -> Option<&[u8]> {
        match self {
            Upcoming::Own(names) => names.last().map(|name| &**name),
            Upcoming::Shared(taken, left) => taken.names.next(left),
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Box<[u8]>> {
        match self {
            Upcoming::Own(names) => names.pop(),
            Upcoming::Shared(taken, left) => taken.names.take(left).map(Box::from),
        }
    }

    /// The names of the listing's own.
    pub(crate) fn own(&self) -> usize {
        match self {
            Upcoming::Own(names) => names.len(),
            Upcoming::Shared(..) => 0,
        }
    }

    /// The bytes of memory that was granted.
    pub(crate) fn granted(&self) -> usize {
        match self {
            Upcoming::Own(_) => 0,
            Upcoming::Shared(taken, _) => taken.names.size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(names: &[String]) -> Taken {
        let bytes = names.iter().map(String::len).sum();
        let (bytes, spans) = (Vec::with_capacity(bytes), Vec::with_capacity(names.len()));
        let set = Set::begin(&SharedNames::new(|_| true), (1, 1), 1).unwrap();
        let mut collecting = Collecting { bytes, spans, granted: Box::new(()), for_all: None, set };
        assert!(names.iter().all(|name| collecting.add(name.as_bytes())));
        assert!(!collecting.add(b"x"), "there is room for no more");
        let (runs, granted) = Runs::of(collecting);
        Taken { names: Arc::new(runs), _granted: Arc::new(granted) }
    }

    fn all(mut names: Upcoming) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(next) = names.peek().map(<[u8]>::to_vec) {
            assert_eq!(names.pop().as_deref(), Some(&*next));
            all.push(String::from_utf8(next).unwrap());
        }
        assert_eq!(names.pop(), None);
        all
    }

    #[test]
    fn names_of_many_runs_come_in_order_and_once_from_any_name_on() {
        for count in [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN + 5] {
            // A step that has no divisor in common with any of the numbers.
            let scrambled = |n: usize| format!("{:06}", n * 7_919 % count);
            let mut names: Vec<String> = (0..count).map(scrambled).collect();
            names.extend((0..count.min(9)).map(scrambled));
            let sorted: Vec<String> = (0..count).map(|n| format!("{n:06}")).collect();
            assert_eq!(all(taken(&names).after(None)), sorted);
            for after in (0..count).step_by(1 + count / 7) {
                let rest = all(taken(&names).after(Some(sorted[after].as_bytes())));
                assert_eq!(rest, sorted[after + 1..]);
            }
        }
    }
}
