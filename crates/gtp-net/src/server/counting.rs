//! Counts what lies at the places of an account, on a thread of low priority.
//!
//! Nobody writes at these places before the count is done, and it begins once all sessions have
//! ended that were writing when it was asked for, so it misses nothing that sessions do. Those that
//! come later write elsewhere. What cannot be opened is tried again, since it may be mounted later.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use gtp_store::{Usage, usage_beneath};

use super::outlet::Outlet;
use super::quota::{Count, Ledger};
use crate::trust::Below;

/// Time between two looks at an export where somebody writes, or that is not there.
const PAUSE: Duration = Duration::from_millis(500);

/// Looks after which the log says what a count waits for: a minute.
const TOLD_AFTER: u32 = 120;

/// Counts what is at these places, and notes it; ends early once nobody waits for that count.
pub(super) fn count(
    ledger: &Arc<Ledger>,
    count: Count,
    places: Vec<Below>,
    outlets: &BTreeMap<String, Arc<Outlet>>,
) {
    let mut exports = BTreeMap::new();
    for place in &places {
        if let Some(outlet) = outlets.get(place.export()) {
            let writers = || (Arc::clone(outlet), outlet.writers_so_far());
            exports.entry(place.export().to_owned()).or_insert_with(writers);
        }
    }
    let known = Arc::downgrade(ledger);
    let work = move || {
        gtp_sys::schedule::background();
        let (mut all, mut pauses) = (Usage::default(), 0_u32);
        for (name, (outlet, writers)) in &exports {
            let is_awaited = || known.upgrade().is_some_and(|ledger| ledger.awaits(count));
            loop {
                if !is_awaited() {
                    return;
                }
                let opened = writers.have_ended().then(|| outlet.ground.dir().ok()).flatten();
                if let Some(dir) = opened {
                    match beneath(name, dir, &places, is_awaited) {
                        Counted::All(more) => {
                            all = all.plus(more);
                            break;
                        }
                        Counted::Away => {}
                        Counted::Stopped => return,
                    }
                }
                pauses = pauses.saturating_add(1);
                if pauses == TOLD_AFTER {
                    tell_waiting(name, writers.have_ended());
                }
                // Nobody tells when an export is back, or when those who write have ended.
                std::thread::sleep(PAUSE);
            }
        }
        if let Some(ledger) = known.upgrade() {
            ledger.counted(count, all);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("gtp-count".into()).spawn(work) {
        tracing::error!(%error, "what is there cannot be counted for a quota: nobody may write");
    }
}

/// Says why nobody may write for so long.
fn tell_waiting(export: &str, nobody_writes: bool) {
    let why = match nobody_writes {
        true => "its directory cannot be read",
        false => "sessions that were writing there have not ended; `gtp keys revoke` ends a key's",
    };
    tracing::warn!(export, why, "what is there cannot be counted for a quota: nobody may write");
}

/// What came of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    All(Usage),
    /// The directory cannot be read.
    Away,
    /// Nobody waits for it any more.
    Stopped,
}

/// What lies in the directory of an export at these places.
fn beneath(name: &str, dir: OwnedFd, places: &[Below], is_awaited: impl Fn() -> bool) -> Counted {
    let (mut all, mut names) = (Usage::default(), 0_u32);
    let counted = usage_beneath(dir, &mut |path, takes| {
        if places.iter().any(|place| place.covers_text(name, path)) {
            all = all.plus(takes);
        }
        names = names.wrapping_add(1);
        !names.is_multiple_of(AT_ONCE) || is_awaited()
    });
    match counted {
        Ok(true) => Counted::All(all),
        Ok(false) => Counted::Stopped,
        Err(_) => Counted::Away,
    }
}

/// Names that are counted between two looks at whether somebody waits for them: some milliseconds.
const AT_ONCE: u32 = 256;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    #[test]
    fn a_count_for_which_nobody_waits_any_more_stops_before_its_end() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..4 * AT_ONCE {
            fs::write(dir.path().join(n.to_string()), "1").unwrap();
        }
        let (places, asked) = (["x".parse().unwrap()], Cell::new(0));
        let top = || OwnedFd::from(fs::File::open(dir.path()).unwrap());
        let until = |most: u32| {
            asked.set(0);
            let is_awaited = || asked.replace(asked.get() + 1) < most;
            beneath("x", top(), &places, is_awaited)
        };
        let files = u64::from(4 * AT_ONCE);
        assert_eq!(until(u32::MAX), Counted::All(Usage { bytes: files, files }));
        assert_eq!((until(1), asked.get()), (Counted::Stopped, 2));
    }
}
