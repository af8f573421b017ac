//! Whether all sources show the same object, and which one it is if they do not.
//!
//! The listing of the first source decides names and times, so it gets a short head start. With
//! three or more sources, the object that most of them show is fetched; sources that show another
//! are given up and named. If two sources differ, neither can be believed, and the transfer fails.

use std::time::Duration;

use gtp_store::{LOST, Manifest, RootKind, Value};

use super::{Failure, FailureKind, Gather, Source, State, Url};

/// How long the first address may take when another is ready.
const FIRST_SPAN: Duration = Duration::from_secs(1);

/// How long most of three sources or more may take to agree when another is ready.
const AGREE_SPAN: Duration = Duration::from_secs(2);

/// From this many sources on there can be a majority against one.
const SOURCES_THAT_VOTE: usize = 3;

impl Gather {
    /// The source whose object is fetched; `None` while others are worth waiting for.
    pub(super) fn leader(&self) -> Option<usize> {
        let parked: Vec<(usize, &Manifest)> = self
            .sources
            .iter()
            .enumerate()
            .filter_map(|(number, source)| match &source.state {
                State::Parked(ready) => Some((number, &*ready.described.manifest)),
                State::Connecting | State::Live { .. } | State::Gone(_) => None,
            })
            .collect();
        let like = |manifest| parked.iter().filter(|(_, m)| same_object(m, manifest)).count();
        // Of equals the first.
        let best = parked.iter().rev().max_by_key(|(_, manifest)| like(manifest))?;
        let waited = self.parked_at.map(|at| self.clock.now().since(at));
        let waited = waited.map_or(Duration::ZERO, gtp_sys::clock::duration);
        let pending = |number: usize| matches!(self.sources[number].state, State::Connecting);
        let all = self.sources.len();
        let agreed = like(best.1) * 2 > all;
        let may_agree = all >= SOURCES_THAT_VOTE && !agreed && (0..all).any(pending);
        let wait = pending(0) && waited < FIRST_SPAN || may_agree && waited < AGREE_SPAN;
        (!wait).then_some(best.0)
    }

    /// A source shows another object than the one that is being fetched.
    pub(super) fn shows_another(&mut self, number: usize) -> Result<(), Failure> {
        let url = self.sources[number].url.to_string();
        if self.sources[number].admitted {
            let text = "it changed while it was being fetched";
            if self.sources.len() == 1 {
                let text = format!("{url} changed while it was being fetched");
                return Err(Failure::new(FailureKind::Temporary, text));
            }
            return self.give_up(number, Failure::new(FailureKind::Integrity, text));
        }
        let (agree, differ) = self.votes();
        self.sources[number].differs = true;
        if agree > differ + 1 {
            let text = "it does not hold the same object as most: names or sizes differ";
            return self.give_up(number, Failure::new(FailureKind::Integrity, text));
        }
        let others = self.sources.iter().enumerate();
        let other = others.filter(|(n, source)| *n != number && source.admitted).map(|(_, s)| s);
        let other = other.map(|source| &source.url).next().unwrap_or(&self.sources[0].url);
        let text = format!("{url} and {other} do not hold the same object: names or sizes differ");
        Err(Failure::new(FailureKind::Integrity, text))
    }

    /// How many sources show the object that is being fetched, and how many others were seen to
    /// show another. The source that was just found to differ counts in neither.
    fn votes(&self) -> (usize, usize) {
        let Some(running) = &self.running else { return (0, 0) };
        let shows = |source: &Source| match &source.state {
            State::Parked(ready) => Some(same_object(&running.manifest, &ready.described.manifest)),
            State::Connecting | State::Live { .. } | State::Gone(_) if source.admitted => {
                Some(true)
            }
            State::Connecting | State::Live { .. } | State::Gone(_) => {
                source.differs.then_some(false)
            }
        };
        let votes: Vec<bool> = self.sources.iter().filter_map(shows).collect();
        let agree = votes.iter().filter(|&&vote| vote).count();
        (agree, votes.len() - agree)
    }
}

/// Refuses an object whose hash cannot be the user's, before anything of it is fetched.
///
/// # Errors
/// [`FailureKind::Integrity`].
pub(super) fn check_possible(hash: Value, url: &Url, manifest: &Manifest) -> Result<(), Failure> {
    let empty = manifest.content_bytes() == 0;
    let text = match hash {
        _ if empty && hash != gtp_store::empty_root() => "is an empty file, not one of that hash",
        // Between two ends it stands for a file that cannot be given.
        LOST => "does not have that hash: no file has one of zeros alone",
        _ => return Ok(()),
    };
    Err(Failure::new(FailureKind::Integrity, format!("{url} {text}")))
}

/// A file may have another name at another server; a directory's names count.
pub(super) fn same_object(a: &Manifest, b: &Manifest) -> bool {
    match (a.root_kind, b.root_kind) {
        (RootKind::File, RootKind::File) => a.content_bytes() == b.content_bytes(),
        (RootKind::Dir, RootKind::Dir) => a.same_content_layout(b),
        (RootKind::File, RootKind::Dir) | (RootKind::Dir, RootKind::File) => false,
    }
}
