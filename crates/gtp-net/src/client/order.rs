//! Has a server fetch an object from other servers. No byte of it comes through here.
//!
//! For each source this end signs a ticket that lets the sink, and nobody else, read the object
//! there for some minutes. A connection that breaks is made anew, with new tickets; what the sink
//! has by then it keeps, so an order is repeated until it is carried out or nothing moves any more.
//! Whether the sink does what it says is seen by whoever lists it; it is believed here.

use std::sync::Arc;
use std::time::Duration;

use gtp_alloc::{Rate, Span, Time};
use gtp_sys::Clock;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connect::{Units, ask, reach};
use super::progress::{Event, Outcome, Progress, SourceShare};
use super::{Endpoint, Monitor, Terms, Url, back_off, stop_words, stopped};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN, SILENCE_SPAN};
use crate::flows::{Failure, FailureKind};
use crate::identity::Fingerprint;
use crate::messages::{
    FETCH_SOURCES_MAX, Fault, FetchFrom, FetchSeen, FetchSource, Fetched, Message, Verb,
};
use crate::ticket::{Allowed, TICKET_SECONDS_MOST, Ticket, TicketNumber};

/// What a server is to fetch, and from whom.
pub struct OrderRequest {
    /// Where the object is to be: the very path, also if it ends in a slash.
    pub sink: Url,
    /// Servers that have the object, each with its key: 1 to 8.
    pub sources: Vec<(Url, Fingerprint)>,
    /// The terms of the session with the sink, and of the sink's with the sources.
    pub terms: Terms,
}

/// Has a server fetch an object, and waits until it has. Dropping the future gives the order up;
/// the sink keeps what is complete.
///
/// # Errors
/// [`Failure`]; what is complete is kept for the next attempt.
pub async fn order(
    endpoint: Arc<Endpoint>,
    request: OrderRequest,
    monitor: Monitor,
) -> Result<Outcome, Failure> {
    if !(1..=FETCH_SOURCES_MAX).contains(&request.sources.len()) {
        let text = format!("{} takes 1 to {FETCH_SOURCES_MAX} sources", request.sink);
        return Err(Failure::new(FailureKind::Usage, text));
    }
    let clock = endpoint.host().clock();
    let gauge = Gauge::new(clock, request.sink.to_string());
    let mut order = Order { endpoint, request, monitor, gauge };
    let mut tries = 0;
    loop {
        let before = order.gauge.best;
        let failure = match order.attempt().await {
            Ok(fetched) => return Ok(order.outcome(fetched)),
            Err(failure) => failure,
        };
        let has_moved = order.gauge.best > before;
        tries = if has_moved { 0 } else { tries + 1 };
        // A ticket may have been used up by a path that breaks again and again.
        let may_help =
            failure.is_temporary() || (has_moved && failure.kind == FailureKind::Authentication);
        let quiet = gtp_sys::clock::duration(clock.now().since(order.gauge.moved_at));
        if !may_help || quiet > order.request.terms.patience {
            return Err(failure);
        }
        order.pause(failure, back_off(tries)).await?;
    }
}

struct Order {
    endpoint: Arc<Endpoint>,
    request: OrderRequest,
    monitor: Monitor,
    gauge: Gauge,
}

impl Order {
    /// Orders once, and hears how far it is until the end.
    async fn attempt(&mut self) -> Result<Fetched, Failure> {
        let mut stop = self.monitor.stop.clone();
        let stopping = |kind| Failure::new(kind, stop_words(kind));
        let opening = self.open();
        let mut channel = tokio::select! {
            opened = opening => opened?,
            kind = stopped(&mut stop) => return Err(stopping(kind)),
        };
        let mut keepalive = interval(KEEPALIVE_SPAN);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewal = interval(RENEWAL_SPAN);
        renewal.reset();
        loop {
            let heard = tokio::select! {
                heard = timeout(SILENCE_SPAN.min(self.silence()), channel.recv()) => heard,
                kind = stopped(&mut stop) => {
                    // The sink keeps what it has, whether it hears this or not.
                    let telling = async {
                        if channel.send(&Message::Cancel).await.is_ok() {
                            channel.close().await;
                        }
                    };
                    let _ = timeout(FAREWELL_SPAN, telling).await;
                    return Err(stopping(kind));
                }
                _ = renewal.tick() => {
                    let again = self.fetch_from(channel.peer());
                    channel.send(&Message::FetchFrom(again)).await?;
                    continue;
                }
                _ = keepalive.tick() => {
                    channel.send(&Message::Keepalive).await?;
                    continue;
                }
            };
            match heard.map_err(|_| ControlError::TimedOut("how far the fetch is"))?? {
                Message::FetchSeen(seen) => self.gauge.take(seen, &self.monitor),
                Message::Fetched(fetched) => {
                    channel.close().await;
                    return Ok(fetched);
                }
                // It is about a source, and the others go on.
                Message::Fault(Fault { text, path: Some(_), .. }) => {
                    self.monitor.tell(Event::Warning(text.to_string()));
                }
                Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                other => {
                    let text = format!("message {}", other.name());
                    return Err(ControlError::Unexpected(text).into());
                }
            }
        }
    }

    /// Opens the fetch at the sink, and tells it the sources.
    async fn open(&self) -> Result<ControlChannel, Failure> {
        let OrderRequest { sink, terms, .. } = &self.request;
        let channel = reach(&self.endpoint, sink, terms).await?;
        let verb = Verb::Fetch { path: sink.path().to_vec() };
        let on = (terms, Units::Ordinary);
        let granted = ask(channel, &self.endpoint, sink, verb, on, &|| {}).await?;
        let mut channel = granted.channel;
        let asked = self.fetch_from(channel.peer());
        channel.send(&Message::FetchFrom(asked)).await?;
        Ok(channel)
    }

    /// The sources, with tickets that hold from now on.
    fn fetch_from(&self, holder: Fingerprint) -> FetchFrom {
        let source = |(url, key): &(Url, Fingerprint)| FetchSource {
            host: url.host().to_string(),
            ticket: self.ticket(url, *key, holder),
        };
        let sources = self.request.sources.iter().map(source).collect();
        let patience_ms = u32::try_from(self.silence().as_millis()).unwrap_or(u32::MAX);
        FetchFrom { sources, patience_ms }
    }

    fn ticket(&self, url: &Url, server: Fingerprint, holder: Fingerprint) -> Vec<u8> {
        let begins_s = gtp_sys::clock::unix_seconds();
        let ends_s = begins_s.saturating_add(TICKET_SECONDS_MOST);
        let allowed = Allowed { server, holder, path: url.path().to_vec(), begins_s, ends_s };
        Ticket::sign(self.endpoint.identity(), &allowed, number())
    }

    /// How long the sink may go on without progress before the order is made anew.
    fn silence(&self) -> Duration {
        PATIENCE_OF_SINK.min(self.request.terms.patience)
    }

    /// Waits before the next attempt.
    async fn pause(&mut self, failure: Failure, span: Duration) -> Result<(), Failure> {
        let (url, after) = (self.request.sink.to_string(), Span::from_secs_f64(span.as_secs_f64()));
        self.monitor.tell(Event::Retry { url, failure, after });
        let mut stop = self.monitor.stop.clone();
        tokio::select! {
            () = tokio::time::sleep(span) => Ok(()),
            kind = stopped(&mut stop) => Err(Failure::new(kind, stop_words(kind))),
        }
    }

    fn outcome(&mut self, fetched: Fetched) -> Outcome {
        let Fetched { bytes, resumed_bytes, files_written, files_unchanged, .. } = fetched;
        // What an attempt of this order had found there was there before the order.
        let resumed_bytes = self.gauge.resumed_first.unwrap_or(resumed_bytes).min(bytes);
        let progress = self.gauge.end(bytes, resumed_bytes, &self.monitor);
        let first = fetched.first_left_out.map(|text| text.to_string());
        let more = fetched.left_out.saturating_sub(u64::from(first.is_some()));
        let more = (more > 0).then(|| format!("{more} more entries were left out"));
        let skipped = first.into_iter().chain(more);
        Outcome {
            bytes,
            resumed_bytes,
            elapsed: progress.elapsed,
            files_written,
            files_unchanged,
            blake3: None,
            progress,
            skipped: skipped.map(|text| Failure::new(FailureKind::Partial, text)).collect(),
        }
    }
}

/// How far the sink says it is.
struct Gauge {
    clock: Clock,
    began: Time,
    /// When more than ever was last there.
    moved_at: Time,
    best: u64,
    /// The most that any attempt has read of what was there.
    best_rechecked: u64,
    /// What was there before the first attempt.
    resumed_first: Option<u64>,
    /// The bytes of the newest word, and when it came.
    last: Option<(u64, Time)>,
    rate: Rate,
    progress: Progress,
}

impl Gauge {
    fn new(clock: Clock, url: String) -> Gauge {
        let began = clock.now();
        let sources = vec![SourceShare { alive: true, ..SourceShare::new(url) }];
        let progress = Progress { sources, ..Progress::default() };
        Gauge {
            clock,
            began,
            moved_at: began,
            best: 0,
            best_rechecked: 0,
            resumed_first: None,
            last: None,
            rate: Rate::ZERO,
            progress,
        }
    }

    fn take(&mut self, seen: FetchSeen, monitor: &Monitor) {
        let now = self.clock.now();
        let FetchSeen { bytes, total, resumed_bytes, rechecked } = seen;
        // Each attempt reads again what is there: only what no attempt had read is progress.
        if bytes > self.best || rechecked > self.best_rechecked {
            self.moved_at = now;
        }
        self.best = self.best.max(bytes);
        self.best_rechecked = self.best_rechecked.max(rechecked);
        if bytes > 0 {
            self.resumed_first.get_or_insert(resumed_bytes);
        }
        if let Some((before, at)) = self.last
            && now.since(at) > Span::ZERO
        {
            let bits = bytes.saturating_sub(before) as f64 * 8.0;
            let newest = bits / now.since(at).as_secs_f64();
            self.rate = Rate::from_f64(self.rate.as_f64() * (1.0 - NEWEST) + newest * NEWEST);
        }
        // What is found there has not just come.
        self.last = (bytes > 0).then_some((bytes, now));
        let was_there = self.resumed_first.unwrap_or(0);
        self.progress.bytes = bytes;
        (self.progress.total, self.progress.rechecked) = (total, rechecked);
        self.progress.resumed_bytes = was_there;
        self.progress.sources[0].bytes = bytes.saturating_sub(was_there);
        self.progress.sources[0].rate = self.rate;
        self.tell(monitor);
    }

    fn end(&mut self, bytes: u64, resumed_bytes: u64, monitor: &Monitor) -> Progress {
        (self.progress.bytes, self.progress.total) = (bytes, bytes);
        self.progress.resumed_bytes = resumed_bytes;
        self.progress.sources[0].bytes = bytes - resumed_bytes;
        self.tell(monitor);
        self.progress.clone()
    }

    fn tell(&mut self, monitor: &Monitor) {
        self.progress.elapsed = self.clock.now().since(self.began);
        monitor.progress.send_replace(self.progress.clone());
    }
}

/// A number that nobody can guess.
pub(super) fn number() -> TicketNumber {
    let halves = u128::from(gtp_sys::entropy::u64()) << 64 | u128::from(gtp_sys::entropy::u64());
    halves.to_be_bytes()
}

/// How long the sink goes on without progress before it says so, and gets new tickets.
const PATIENCE_OF_SINK: Duration = Duration::from_secs(10);

/// Time after which the sink gets new tickets: half of what one lasts.
const RENEWAL_SPAN: Duration = Duration::from_secs(TICKET_SECONDS_MOST / 2);

/// Time for telling a sink that its order is given up.
const FAREWELL_SPAN: Duration = Duration::from_secs(1);

/// The part of the newest rate in the one that is shown; a word comes four times a second.
const NEWEST: f64 = 0.25;

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;

    #[test]
    fn what_an_earlier_attempt_has_read_again_is_no_progress() {
        let (events, _heard) = mpsc::unbounded_channel();
        let monitor = Monitor {
            events,
            progress: watch::channel(Progress::default()).0,
            stop: watch::channel(None).1,
        };
        let mut gauge = Gauge::new(Clock::start(), "gtp://h/x".into());
        let mut moved = |rechecked| {
            gauge.moved_at = Time::ZERO;
            gauge.take(FetchSeen { bytes: 0, total: 100, resumed_bytes: 0, rechecked }, &monitor);
            gauge.moved_at != Time::ZERO
        };
        let attempts = [10, 20, 20, 5, 20, 21];
        assert_eq!(attempts.map(&mut moved), [true, true, false, false, false, true]);
    }
}
