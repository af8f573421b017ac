//! Counts what lies at the places of an account, on a thread of low priority.
//!
//! Nobody writes at these places before the count is done, and it begins once all sessions have
//! ended that were writing when it was asked for, so it misses nothing that sessions do. Those that
//! come later write elsewhere. What cannot be opened is tried again, since it may be mounted later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gtp_store::{Usage, usage_beneath};

use super::outlet::Outlet;
use super::quota::{Count, Ledger};
use crate::trust::Below;

/// Time between two looks at an export where somebody writes, or that is not there.
const PAUSE: Duration = Duration::from_millis(500);

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
        let mut all = Usage::default();
        for (name, (outlet, writers)) in &exports {
            loop {
                if known.upgrade().is_none_or(|ledger| !ledger.awaits(count)) {
                    return;
                }
                if writers.have_ended()
                    && let Some(more) = beneath(name, outlet, &places)
                {
                    all = all.plus(more);
                    break;
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

/// What lies in an export at these places; `None` if it is not there.
fn beneath(name: &str, outlet: &Outlet, places: &[Below]) -> Option<Usage> {
    let dir = outlet.ground.dir().ok()?;
    let mut all = Usage::default();
    let counted = usage_beneath(dir, &mut |path, takes| {
        if places.iter().any(|place| place.covers_text(name, path)) {
            all = all.plus(takes);
        }
        true
    });
    counted.ok().map(|_| all)
}
