//! Answers a probe: sends frames at the rate that was asked for, and tells what came of those of
//! the client.
//!
//! The rates are the session's, so a probe gets no more than a transfer from the same place would:
//! what is due beyond that is held up and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    let Ok(_permit) = shared.probes.try_acquire() else {
        let text = format!("{AT_ONCE} probes run here already: try again later");
        return refuse(client, Failure::new(FailureKind::Temporary, text)).await;
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
        | Verb::Tree { .. } => None,
    }
}

/// Probes that run at a time. Each has a thread that may keep a processor busy.
pub(super) const AT_ONCE: usize = 4;
