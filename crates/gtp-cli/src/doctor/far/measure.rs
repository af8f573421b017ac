//! Ten seconds of the path from the server.
//!
//! That is an ordinary transfer whose content is dropped, and what its session knows of the path:
//! rate, losses, round trips, what limits it. Losses without a queue are what a policer makes.

use std::sync::Arc;
use std::time::Duration;

use gtp::{
    DiscardSink, Event, FailureKind, Get, Host, LimitedBy, Progress, Rate, Span, Transfer, Url,
};
use gtp_sys::Clock;
use tokio::time::{interval, sleep};

use super::super::DoctorArgs;
use super::super::finding::Finding;
use crate::limit::Ends;
use crate::{shell, words};

const CHECK: &str = "path";

/// What a session showed of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    /// Time from the first data packet to the last.
    span: Span,
    /// Content that came.
    bytes: u64,
    /// The part of the data packets that was lost.
    loss: f64,
    /// The shortest round-trip time, and the mean over the second half.
    rtt: [Span; 2],
    /// What limited it most of the time; `None` if it ended before that was looked at.
    limited_by: Option<LimitedBy>,
}

/// Fetches the object of the URL for ten seconds at most.
pub async fn check(args: &DoctorArgs, url: &Url, host: &Host) -> Finding {
    match fetch(args, url, host).await {
        Ok(seen) => judge(url, seen),
        Err(failure) => {
            let found = format!("nothing could be measured: {failure}");
            Finding::fault(CHECK, found, at_length(url))
        }
    }
}

/// The line that shows a failure in full; of a server as a whole, the one that shows what there is.
pub fn at_length(url: &Url) -> String {
    if is_root(url) {
        return format!("gtp ls {}    # and name one of what is there", shell::address(url));
    }
    format!("gtp get {} /tmp/    # shows the failure in full", shell::address(url))
}

fn is_root(url: &Url) -> bool {
    url.path().is_empty()
}

/// The directory that has the object.
fn above(url: &Url) -> Url {
    let end = url.path().iter().rposition(|&byte| byte == b'/').unwrap_or_default();
    Url::of(url.host().clone(), &url.path()[..end]).unwrap_or_else(|| url.clone())
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
    watch(get.start(host)?).await
}

/// Looks at a transfer until it ends, for ten seconds at most.
async fn watch(mut transfer: Transfer) -> Result<Seen, gtp::Failure> {
    let clock = Clock::start();
    let asked = clock.now();
    // How long a path is measured: the object's own end comes first if it is short.
    let (mut look, mut over) = (interval(LOOK), std::pin::pin!(sleep(LONGEST)));
    let mut course = Course::default();
    loop {
        tokio::select! {
            event = transfer.next_event() => match event {
                Some(Event::Started { .. }) => course.start(clock.now().since(asked)),
                Some(_) => {}
                None => {
                    transfer.wait().await?;
                    break;
                }
            },
            _ = look.tick() => course.take(&transfer.progress()),
            () = &mut over => {
                transfer.stopper().stop(FailureKind::TimeLimit);
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
    limits: Vec<LimitedBy>,
    /// Time from the request to the last moment at which no data packet had come.
    begun: Span,
    last: Progress,
}

impl Course {
    /// Content begins to move, at this time after the request.
    fn start(&mut self, at: Span) {
        self.begun = self.begun.max(at);
    }

    fn take(&mut self, progress: &Progress) {
        if progress.sources.iter().all(|source| source.wire_bytes == 0) {
            self.begun = self.begun.max(progress.elapsed);
        }
        // A source whose session has ended no longer says what limits it.
        if progress.bytes > 0 && progress.sources.iter().any(|source| source.alive) {
            self.limits.push(progress.limited_by());
        }
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
            span: self.last.elapsed.saturating_sub(self.begun),
            bytes: self.last.bytes,
            loss: self.last.loss_ratio(),
            rtt: [self.rtts.iter().copied().min().unwrap_or(Span::ZERO), mean],
            limited_by: self.limited_by(),
        }
    }

    /// What limited the transfer at most of the looks.
    fn limited_by(&self) -> Option<LimitedBy> {
        let times = |by: &LimitedBy| self.limits.iter().filter(|other| *other == by).count();
        self.limits.iter().copied().max_by_key(times)
    }
}

fn judge(url: &Url, seen: Seen) -> Finding {
    let rate = Rate::from_bps((seen.bytes as f64 * 8.0 / seen.span.as_secs_f64().max(1e-3)) as u64);
    let [least, mean] = seen.rtt;
    let queue = mean.saturating_sub(least);
    let (found, at) = (say(seen, rate, queue), shell::address(url));
    if seen.bytes < BYTES_LEAST {
        let above = shell::address(&above(url));
        let mend = format!("gtp ls {above}    # and name a larger object");
        return Finding::warning(CHECK, format!("too little came to judge by: {found}"), mend);
    }
    let is_flat = queue < QUEUE_SEEN;
    if seen.loss > LOSS_SEEN && is_flat && seen.limited_by == Some(LimitedBy::Path) {
        let why = "packets are lost and none is delayed, as by a policer or a bad link";
        let most = rate.scale(BELOW).as_bps() / 100_000;
        let mend = format!("gtp get {at} . --max-rate {}.{}Mbit", most / 10, most % 10);
        return Finding::warning(CHECK, format!("{why}: {found}"), mend);
    }
    if seen.loss > LOSS_SEEN {
        let found = format!("packets are lost on the way: {found}");
        let mend = "ip -s link    # here and there: errors, dropped; cables, radio";
        return Finding::warning(CHECK, found, mend);
    }
    if queue > QUEUE_LONG {
        let found = format!("a queue on the way delays everything: {found}");
        return Finding::warning(CHECK, found, format!("gtp get {at} . --weight low"));
    }
    Finding::ok(CHECK, found)
}

/// What was seen, in words.
fn say(seen: Seen, rate: Rate, queue: Span) -> String {
    let ms = |span: Span| span.as_secs_f64() * 1e3;
    let by = seen
        .limited_by
        .map(|by| format!(", limited by {}", Ends::GET.limit_at_length(by)))
        .unwrap_or_default();
    format!(
        "{} for {:.1} s, {:.2} % lost, {:.1} ms there and back, {:.1} ms of queue{by}",
        words::say_rate(rate),
        seen.span.as_secs_f64(),
        seen.loss * 100.0,
        ms(seen.rtt[0]),
        ms(queue),
    )
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
    use gtp::{SourceShare, Way};

    use super::super::super::finding::Verdict;
    use super::*;

    fn seen() -> Seen {
        let span = Span::from_secs(10);
        let (rtt, limited_by) = ([Span::from_millis(20); 2], Some(LimitedBy::Path));
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
                Seen { loss: 0.02, limited_by: Some(LimitedBy::Sink), ..seen() },
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

    #[test]
    fn where_too_little_came_the_directory_of_the_object_is_listed() {
        for (url, listed) in [
            ("gtp://a.example/pub/f1.bin", "gtp ls gtp://a.example:4810/pub "),
            ("gtp://a.example/pub/run/", "gtp ls gtp://a.example:4810/pub "),
            ("gtp://a.example/f1.bin", "gtp ls gtp://a.example:4810/ "),
            ("gtp://a.example/", "gtp ls gtp://a.example:4810/ "),
        ] {
            let short = judge(&url.parse().unwrap(), Seen { bytes: 9_000, ..seen() });
            assert!(short.mend.unwrap().starts_with(listed), "{url}");
        }
    }

    #[test]
    fn a_failure_of_a_server_as_a_whole_is_mended_by_a_look_at_what_there_is() {
        let mend = |url: &str| at_length(&url.parse().unwrap());
        assert!(mend("gtp://a.example/").starts_with("gtp ls gtp://a.example:4810/ "));
        assert!(mend("gtp://a.example/x").starts_with("gtp get gtp://a.example:4810/x /tmp/"));
    }

    fn source(alive: bool, limited_by: LimitedBy) -> SourceShare {
        SourceShare {
            url: String::new(),
            bytes: 0,
            wire_bytes: 0,
            duplicate_bytes: 0,
            rate: Rate::ZERO,
            granted: Rate::ZERO,
            limited_by,
            path: None,
            loss_ratio: 0.006,
            rtt: Span::ZERO,
            way: Way::Udp,
            alive,
        }
    }

    fn look(ms: u64, bytes: u64, source: SourceShare) -> Progress {
        let elapsed = Span::from_millis(ms);
        let sources = vec![SourceShare { wire_bytes: bytes, ..source }];
        Progress { elapsed, bytes, sources, ..Progress::default() }
    }

    #[test]
    fn what_limits_a_transfer_that_ends_is_what_limited_it_while_it_moved() {
        let url: Url = "gtp://a.example/x".parse().unwrap();
        let mut course = Course::default();
        for (ms, bytes, alive, by) in [
            (100, 0, true, LimitedBy::Path),
            (200, 1_000_000, true, LimitedBy::Sink),
            (300, 4_000_000, true, LimitedBy::Sink),
            (400, 5_000_000, true, LimitedBy::Demand),
            (410, 5_000_000, false, LimitedBy::Path),
        ] {
            course.take(&look(ms, bytes, source(alive, by)));
        }
        assert_eq!(course.seen().limited_by, Some(LimitedBy::Sink));
        assert!(judge(&url, course.seen()).found.starts_with("packets are lost on the way"));
        let mut unseen = Course::default();
        unseen.take(&look(90, 5_000_000, source(false, LimitedBy::Path)));
        let found = judge(&url, unseen.seen());
        assert!(
            !found.found.contains("limited by") && !found.found.contains("policer"),
            "{found:?}"
        );
    }

    #[test]
    fn the_time_before_the_first_content_counts_for_nothing() {
        let mut course = Course::default();
        let source = || source(true, LimitedBy::Path);
        course.take(&look(600, 0, source()));
        course.start(Span::from_millis(650));
        // A packet of the first block, which is not whole.
        let first = SourceShare { wire_bytes: 1_500, ..source() };
        let elapsed = Span::from_millis(700);
        course.take(&Progress { elapsed, sources: vec![first], ..Progress::default() });
        course.take(&look(750, 2_000_000, source()));
        course.take(&look(1_050, 10_000_000, source()));
        assert_eq!(course.seen().span, Span::from_millis(400));
    }
}
