//! Ten seconds of the path from the server.
//!
//! That is an ordinary transfer whose content is dropped, and what its session knows of the path:
//! rate, losses, round trips, what limits it. Losses without a queue are what a policer makes.

use std::sync::Arc;
use std::time::Duration;

use gtp::{DiscardSink, FailureKind, Get, Host, LimitedBy, Progress, Rate, Span, Url};
use tokio::time::{interval, sleep};

use super::super::DoctorArgs;
use super::super::finding::Finding;
use crate::words;

const CHECK: &str = "path";

/// What a session showed of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// How long it moved.
    span: Span,
    /// Content that came.
    bytes: u64,
    /// The part of the data packets that was lost.
    loss: f64,
    /// The shortest round-trip time, and the mean over the second half.
    rtt: [Span; 2],
    /// What limited it last.
    limited_by: LimitedBy,
}

/// Fetches the object of the URL for ten seconds at most.
pub async fn check(args: &DoctorArgs, url: &Url, host: &Host) -> Finding {
    match fetch(args, url, host).await {
        Ok(seen) => judge(url, seen),
        Err(failure) => {
            let found = format!("nothing could be measured: {failure}");
            Finding::fault(
                CHECK,
                found,
                format!("gtp get {url} /tmp/    # says the same at length"),
            )
        }
    }
}

async fn fetch(args: &DoctorArgs, url: &Url, host: &Host) -> Result<Seen, gtp::Failure> {
    let mut get =
        Get::new(url.clone()).into_sink(|listing| Ok(DiscardSink::new(Arc::clone(listing))));
    for fingerprint in &args.trust.fingerprint {
        get = get.fingerprint(*fingerprint);
    }
    if args.trust.accept_new {
        get = get.accept_new();
    }
    let mut transfer = get.start(host)?;
    let stopper = transfer.stopper();
    let (mut look, mut over) = (interval(LOOK), std::pin::pin!(sleep(LONGEST)));
    let mut course = Course::default();
    loop {
        tokio::select! {
            outcome = transfer.wait() => {
                outcome?;
                break;
            }
            _ = look.tick() => course.take(&transfer.progress()),
            () = &mut over => {
                stopper.stop(FailureKind::TimeLimit);
                break;
            }
        }
    }
    course.take(&transfer.progress());
    Ok(course.seen())
}

/// What was seen at each look.
#[derive(Default)]
struct Course {
    rtts: Vec<Span>,
    last: Progress,
}

impl Course {
    fn take(&mut self, progress: &Progress) {
        let rtt = progress.sources.first().map(|source| source.rtt).filter(|rtt| *rtt > Span::ZERO);
        self.rtts.extend(rtt.filter(|_| progress.bytes > 0));
        if !progress.sources.is_empty() {
            self.last = progress.clone();
        }
    }

    fn seen(&self) -> Seen {
        let late = self.rtts.get(self.rtts.len() / 2..).unwrap_or_default();
        let sum: u64 = late.iter().map(|rtt| rtt.as_nanos()).sum();
        let mean = Span::from_nanos(sum / (late.len() as u64).max(1));
        Seen {
            span: self.last.elapsed,
            bytes: self.last.bytes,
            loss: self.last.loss_ratio(),
            rtt: [self.rtts.iter().copied().min().unwrap_or(Span::ZERO), mean],
            limited_by: self.last.limited_by(),
        }
    }
}

fn judge(url: &Url, seen: Seen) -> Finding {
    let rate = Rate::from_bps((seen.bytes as f64 * 8.0 / seen.span.as_secs_f64().max(1e-3)) as u64);
    let [least, mean] = seen.rtt;
    let queue = mean.saturating_sub(least);
    let ms = |span: Span| span.as_secs_f64() * 1e3;
    let found = format!(
        "{} for {:.1} s, {:.2} % lost, {:.1} ms there and back, {:.1} ms of queue, limited by {}",
        words::say_rate(rate),
        seen.span.as_secs_f64(),
        seen.loss * 100.0,
        ms(least),
        ms(queue),
        limit(seen.limited_by),
    );
    if seen.bytes < BYTES_LEAST {
        let mend = format!("name a larger object: gtp ls {url}");
        return Finding::warning(CHECK, format!("too little came to judge by: {found}"), mend);
    }
    let is_flat = queue < QUEUE_SEEN;
    if seen.loss > LOSS_SEEN && is_flat && seen.limited_by == LimitedBy::Path {
        let why = "packets are lost and none is delayed, as by a policer or a bad link";
        let most = rate.scale(BELOW).as_bps() / 100_000;
        let mend = format!("gtp get {url} . --max-rate {}.{}Mbit", most / 10, most % 10);
        return Finding::warning(CHECK, format!("{why}: {found}"), mend);
    }
    if seen.loss > LOSS_SEEN {
        let found = format!("packets are lost on the way: {found}");
        return Finding::warning(
            CHECK,
            found,
            "ip -s link    # here and there: errors, dropped; cables, radio",
        );
    }
    if queue > QUEUE_LONG {
        let found = format!("a queue on the way delays everything: {found}");
        return Finding::warning(CHECK, found, format!("gtp get {url} . --weight low"));
    }
    Finding::ok(CHECK, found)
}

/// What limits a session, in words.
fn limit(by: LimitedBy) -> &'static str {
    match by {
        LimitedBy::Source => "the server's capacity",
        LimitedBy::Sink => "this host's capacity",
        LimitedBy::Demand => "what the server's disk gives",
        LimitedBy::Path => "the path",
        LimitedBy::Disk => "this host's disk",
    }
}

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// Time of the measurement at most.
const LONGEST: Duration = Duration::from_secs(10);
/// Content without which nothing can be said: a megabyte.
const BYTES_LEAST: u64 = 1_000_000;
/// Less is lost on ordinary paths.
const LOSS_SEEN: f64 = 0.005;
/// A queue that holds less than this is none.
const QUEUE_SEEN: Span = Span::from_millis(2);
/// A queue of which people notice.
const QUEUE_LONG: Span = Span::from_millis(100);
/// The part of a policed rate that passes without losses.
const BELOW: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    fn seen() -> Seen {
        let span = Span::from_secs(10);
        let (rtt, limited_by) = ([Span::from_millis(20); 2], LimitedBy::Path);
        Seen { span, bytes: 50_000_000, loss: 0.0, rtt, limited_by }
    }

    #[test]
    fn a_policer_a_lossy_link_a_long_queue_and_a_short_object_have_rows_of_their_own() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let longer = |ms: u64| [Span::from_millis(20), Span::from_millis(20 + ms)];
        for (seen, verdict, says) in [
            (seen(), Verdict::Ok, "40.0 Mbit/s for 10.0 s"),
            (Seen { loss: 0.02, ..seen() }, Verdict::Warning, "none is delayed"),
            (Seen { loss: 0.02, rtt: longer(40), ..seen() }, Verdict::Warning, "lost on the way"),
            (
                Seen { loss: 0.02, limited_by: LimitedBy::Sink, ..seen() },
                Verdict::Warning,
                "lost on",
            ),
            (Seen { rtt: longer(40), ..seen() }, Verdict::Ok, "40.0 ms of queue"),
            (Seen { rtt: longer(140), ..seen() }, Verdict::Warning, "a queue on the way"),
            (Seen { bytes: 9_000, ..seen() }, Verdict::Warning, "too little"),
        ] {
            let found = judge(&url, seen);
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
        let policed = judge(&url, Seen { loss: 0.02, ..seen() });
        assert_eq!(
            policed.mend.as_deref(),
            Some("gtp get gtp://a.example:4810/x . --max-rate 38.0Mbit")
        );
    }
}
