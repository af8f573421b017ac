//! The end that calls for a probe.
//!
//! It names the plan, runs its own end, and puts together what both ends have sent and seen. The
//! server's last word may be lost; then nothing is known of the way there.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gtp_alloc::Rate;

use super::{Asked, End, LATE, Outcome, Pace, Plan, Seen, Sent, headers, run};
use crate::client::{Endpoint, Terms, Url};
use crate::flows::{Failure, FailureKind, LimitedBy};
use crate::messages::Delivery;
use crate::stream::connect_frames_to;

/// What a probe has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The way to the server, if it was probed.
    pub up: Option<Way>,
    /// The way from the server, if it was probed.
    pub down: Option<Way>,
    /// The smoothed round-trip time of the session that sends, in seconds.
    pub rtt_s: f64,
}

/// One direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// What its source sent.
    pub sent: Sent,
    /// What its sink saw.
    pub seen: Seen,
    /// Bytes of a datagram of it, with all headers.
    pub datagram: u64,
    /// What held frames up last, if this end sent them and some were held up.
    pub limited_by: Option<LimitedBy>,
}

impl Way {
    /// The rate at which its source sent.
    pub fn sent_rate(&self) -> Rate {
        self.rate(self.sent.frames)
    }

    /// The rate at which frames came.
    pub fn seen_rate(&self) -> Rate {
        self.rate(self.seen.frames)
    }

    fn rate(&self, frames: u64) -> Rate {
        let bits = frames as f64 * self.datagram as f64 * 8.0;
        match self.sent.span_ns {
            0 => Rate::ZERO,
            span_ns => Rate::from_f64(bits * 1e9 / span_ns as f64),
        }
    }
}

/// Probes the way to the server of `url` and back, as planned; `show` hears once a second what this
/// end has sent and seen.
///
/// # Errors
/// [`Failure`]: as of any client; of kind `Usage` for a plan that is not sound; of kind `Temporary`
/// if the probe breaks off, or the server's last word is lost.
pub async fn call(
    endpoint: &Endpoint,
    url: &Url,
    terms: &Terms,
    plan: Plan,
    show: &(dyn Fn(Outcome) + Sync),
) -> Result<Measured, Failure> {
    if !plan.is_sound() {
        return Err(Failure::new(FailureKind::Usage, "the numbers of the probe are out of range"));
    }
    let service = plan.service(url.path());
    let on = (Delivery::Frames, LATE);
    let stream = connect_frames_to(endpoint, url, &service, terms, window(plan), on).await?;
    let line = stream.line.clone();
    let headers = headers(line.remote());
    let sends = Pace::of(plan.up, (plan.frame, headers), plan.span);
    let asked = Asked { sends, end: End::Client, span: plan.span };
    let limit = Limit::default();
    let show = |outcome: Outcome| {
        limit.note(outcome.sent.held, line.sent().limited_by);
        show(outcome);
    };
    let outcome = run(stream, asked, &show).await.map_err(|error| broken(&line, &error))?;
    let Some((sent, seen)) = outcome.told.filter(|(sent, _)| sent.is_done) else {
        let text = "the server's last word on the probe was lost; try again";
        return Err(Failure::new(FailureKind::Temporary, text));
    };
    let datagram = u64::from(plan.frame) + headers;
    let up = Way { sent: outcome.sent, seen, datagram, limited_by: limit.last() };
    let down = Way { sent, seen: outcome.seen, datagram, limited_by: None };
    Ok(Measured {
        up: (plan.up > Rate::ZERO).then_some(up),
        down: (plan.down > Rate::ZERO).then_some(down),
        rtt_s: line.sent().rtt.as_secs_f64(),
    })
}

/// What was limiting the session when frames were last held up.
#[derive(Default)]
struct Limit(Mutex<(u64, Option<LimitedBy>)>);

impl Limit {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<LimitedBy>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, held: u64, limited_by: LimitedBy) {
        let mut known = self.lock();
        if held > known.0 {
            *known = (held, Some(limited_by));
        }
    }

    fn last(&self) -> Option<LimitedBy> {
        self.lock().1
    }
}

fn broken(line: &crate::stream::Line, error: &io::Error) -> Failure {
    let kind = match line.standing().no_path {
        true => FailureKind::NoUdpPath,
        false => FailureKind::Temporary,
    };
    let text = line.why().map_or_else(|| error.to_string(), str::to_owned);
    Failure::new(kind, format!("the probe broke off: {text}"))
}

/// Packets under way in one second at the faster of both rates: the bounds of a stream's window do
/// the rest.
fn window(plan: Plan) -> u32 {
    let bytes = plan.up.max(plan.down).as_bps() / 8;
    u32::try_from(bytes / u64::from(plan.frame)).unwrap_or(u32::MAX)
}
