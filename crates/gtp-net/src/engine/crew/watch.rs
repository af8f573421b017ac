//! Watches over the crew: who is late, and what is due without a job.
//!
//! One thread of the crew does no work on files, so that it is never held up: it wakes desks at
//! their times, and looks how many workers are held by calls to the kernel while work waits that
//! none of them could do. Then it adds a worker. It must not know what the work is.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_sys::process::is_running;

use super::{Inner, Kind, State, Work};
use crate::engine::turns::Turn;

/// A worker that a turn has kept for so long, and that waits for something other than a processor,
/// is held. A turn is [`super::desk`]'s 4 ms unless a disk makes it longer: one seek or sync of a
/// slow one takes about as long as this, and many a hundredth of it.
pub(super) const HELD: Span = Span::from_millis(25);

/// How often it looks while work waits for workers.
const LOOK: Span = Span::from_millis(20);

/// Watches until the crew ends.
pub(super) fn watch(inner: &Arc<Inner>) {
    let mut looked = Time::ZERO;
    loop {
        let mut state = inner.state();
        if state.ending {
            return;
        }
        let now = inner.clock.now();
        let due = take_due(&mut state, now);
        if !due.is_empty() {
            drop(state);
            due.into_iter().for_each(Work::wake);
            state = inner.state();
            // This may have been the last to hold the crew, whose end is told once.
            if state.ending {
                return;
            }
        }
        let waits = Kind::ALL.iter().any(|&kind| state.gang(kind).is_to_be_watched());
        if waits && now.since(looked) >= LOOK {
            drop(state);
            looked = now;
            Kind::ALL.iter().for_each(|&kind| look(inner, kind));
            continue;
        }
        let until = waits.then(|| LOOK.saturating_sub(now.since(looked)));
        let next = state.dues.keys().next().map(|(due, _)| due.since(now));
        wait(inner, state, until.into_iter().chain(next).min());
    }
}

fn wait(inner: &Inner, state: MutexGuard<'_, State>, span: Option<Span>) {
    let span = span.map_or(Duration::from_secs(3_600), gtp_sys::clock::duration);
    // Woken early or not, it looks at everything again.
    drop(inner.watch.wait_timeout(state, span));
}

/// Takes out what is due at `now`.
fn take_due(state: &mut State, now: Time) -> Vec<Arc<dyn Work>> {
    let later = state.dues.split_off(&(now + Span::from_nanos(1), 0));
    let due = std::mem::replace(&mut state.dues, later);
    due.into_values().filter_map(|desk| desk.upgrade()).collect()
}

/// Adds a worker if fewer than usual are free and work waits for one.
pub(super) fn look(inner: &Arc<Inner>, kind: Kind) {
    let now = inner.clock.now();
    let late = inner.state().gang(kind).late(now);
    let held: Vec<_> = late.into_iter().filter(|late| !is_running(late.thread)).collect();
    let mut state = inner.state();
    let gang = state.gang(kind);
    // A turn for chores that a held worker has is of use to others.
    let turns: Vec<Turn<'static>> =
        held.iter().filter_map(|late| gang.take_turn(late.number, late.since)).collect();
    drop(state);
    // Whoever is due is told here, and may become work of this crew.
    drop(turns);
    let mut state = inner.state();
    let gang = state.gang(kind);
    let still = held.iter().filter(|late| gang.is_at_it(late.number, late.since)).count();
    if let Some(number) = gang.reserve(still) {
        drop(state);
        if let Err(error) = inner.start_worker(kind, number) {
            tracing::warn!(%error, "all threads for files wait for disks, and there is no other");
        }
    }
}
