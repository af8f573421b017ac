//! Answers a probe: sends frames at the rate that was asked for, and tells what came of those of
//! the client.
//!
//! The rates are the session's, so a probe gets no more than a transfer from the same place would:
//! what is due beyond that is held up and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp_alloc::Rate;

use super::budget::Holder;
use super::put::refuse;
use super::session::{Client, Ending};
use super::{Moved, Shared, Stop, streamed};
use crate::flows::{Failure, FailureKind};
use crate::messages::Verb;
use crate::probe::{Asked, End, LATE, Outcome, Pace, Plan, headers, run};

pub(super) async fn serve(shared: &Arc<Shared>, client: Client, stop: &mut Stop) -> Ending {
    let Some(plan) = plan(&client) else {
        let text = "the numbers of the probe are out of range";
        return refuse(client, Failure::new(FailureKind::Usage, text)).await;
    };
    let _slot = match admit(&shared.probes, &plan, client.holder, client.may_write) {
        Ok(slot) => slot,
        Err(failure) => return refuse(client, failure).await,
    };
    let told = Arc::clone(&client.told);
    let stream = match streamed::open(shared, client, LATE).await {
        Ok(ends) => ends.of_frames(),
        Err(failure) => return Ending::failed(failure),
    };
    let line = stream.line.clone();
    let gauge = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&gauge);
    let frame = u64::from(plan.frame);
    let moved = move || Moved {
        content_bytes: gauge.load(Ordering::Relaxed).saturating_mul(frame),
        ..Moved::default()
    };
    told.measure(moved.clone());
    let sends = Pace::of(plan.down, (plan.frame, headers(line.remote())), plan.span);
    let asked = Asked { sends, end: End::Server, span: plan.span };
    let show = |outcome: Outcome| {
        seen.store(outcome.sent.frames.saturating_add(outcome.seen.frames), Ordering::Relaxed);
    };
    let ended = tokio::select! {
        ended = run(stream, asked, &show) => ended,
        why = stop.told() => {
            line.abort();
            return Ending { moved: moved(), ..Ending::failed(why.failure()) };
        }
    };
    let failure = ended.err().map(|error| {
        let text = line.why().map_or_else(|| error.to_string(), str::to_owned);
        Failure::new(FailureKind::Temporary, text)
    });
    Ending { moved: moved(), failure, ..Ending::default() }
}

fn plan(client: &Client) -> Option<Plan> {
    match &client.open.verb {
        Verb::Stream { service, .. } => Plan::read(service).map(|(plan, _place)| plan),
        Verb::Get { .. }
        | Verb::Put { .. }
        | Verb::List { .. }
        | Verb::Fetch { .. }
        | Verb::Relay { .. }
        | Verb::Tree { .. } => None,
    }
}

/// Whether this probe may run, and its place among those that do.
fn admit<'a>(
    probes: &'a Probes,
    plan: &Plan,
    holder: Holder,
    may_write: bool,
) -> Result<Slot<'a>, Failure> {
    let refused = |text: String| Err(Failure::new(FailureKind::Usage, text));
    if plan.up > READER_RATE && !may_write {
        return refused(format!(
            "who may not write here may send a probe of {} Mbit/s at most (probe --down has the \
             server send)",
            READER_RATE.as_bps() / 1_000_000
        ));
    }
    if holder == Holder::Strangers && plan.span > STRANGER_SPAN {
        return refused(format!(
            "a key that this server does not know may probe for {} s at most",
            STRANGER_SPAN.as_secs()
        ));
    }
    probes.enter(holder).ok_or_else(|| {
        let text = "too many probes run here already: try again later";
        Failure::new(FailureKind::Temporary, text)
    })
}

/// Whose probes run. Each has a thread that may keep a processor busy.
#[derive(Default)]
pub(super) struct Probes(Mutex<Vec<Holder>>);

/// The place of one probe, until it is dropped.
struct Slot<'a> {
    of: &'a Probes,
    holder: Holder,
}

impl Probes {
    /// A place for a probe; `None` if too many run. No holder takes the places of all others.
    fn enter(&self, holder: Holder) -> Option<Slot<'_>> {
        let mut running = self.running();
        let own = running.iter().filter(|&&other| other == holder).count();
        let most = match holder {
            Holder::Listed(_) => OF_A_KEY,
            Holder::Strangers => OF_STRANGERS,
        };
        if running.len() >= AT_ONCE || own >= most {
            return None;
        }
        running.push(holder);
        Some(Slot { of: self, holder })
    }

    fn running(&self) -> MutexGuard<'_, Vec<Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut running = self.of.running();
        if let Some(at) = running.iter().position(|&holder| holder == self.holder) {
            running.swap_remove(at);
        }
    }
}

/// Probes that run at a time; of one key on the list; and of all strangers together.
const AT_ONCE: usize = 4;
const OF_A_KEY: usize = 2;
const OF_STRANGERS: usize = 1;

/// What somebody who may only read sends to this server at most: enough for delay and loss, and
/// little of what those who may write have here.
const READER_RATE: Rate = Rate::from_mbps(10);

/// How long a stranger's probe lasts at most.
const STRANGER_SPAN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Fingerprint;

    fn plan(up_mbps: u64, seconds: u64) -> Plan {
        let (up, down) = (Rate::from_mbps(up_mbps), Rate::from_mbps(1_000));
        Plan { up, down, frame: 100, span: Duration::from_secs(seconds) }
    }

    fn key(number: u8) -> Holder {
        Holder::Listed(Fingerprint::of_public_key(&[number]))
    }

    #[test]
    fn neither_strangers_nor_one_key_take_all_places_of_probes() {
        let probes = Probes::default();
        let stranger = probes.enter(Holder::Strangers);
        assert!(stranger.is_some() && probes.enter(Holder::Strangers).is_none());
        let of_one = (probes.enter(key(1)), probes.enter(key(1)));
        assert!(of_one.0.is_some() && of_one.1.is_some() && probes.enter(key(1)).is_none());
        let last = probes.enter(key(2));
        assert!(last.is_some() && probes.enter(key(3)).is_none());
        drop(stranger);
        assert!(probes.enter(key(3)).is_some(), "a place is free again");
    }

    #[test]
    fn who_may_only_read_sends_little_and_a_stranger_only_for_a_moment() {
        let refused = |plan, holder, may_write| {
            let probes = Probes::default();
            let admitted = admit(&probes, &plan, holder, may_write).map(drop);
            admitted.err().map(|failure| failure.kind)
        };
        assert_eq!(refused(plan(10, 600), key(1), false), None);
        assert_eq!(refused(plan(11, 1), key(1), false), Some(FailureKind::Usage));
        assert_eq!(refused(plan(11, 600), key(1), true), None);
        assert_eq!(refused(plan(1, 10), Holder::Strangers, false), None);
        assert_eq!(refused(plan(1, 11), Holder::Strangers, false), Some(FailureKind::Usage));
    }
}
