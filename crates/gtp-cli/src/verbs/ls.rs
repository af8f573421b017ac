//! `gtp ls`: what a server has at an address.
//!
//! One level only: whoever wants a tree asks again below. Names are escaped for people, and given
//! as they are to programs. Each is printed as it comes, so a long listing takes little memory.
//! What a reader that stops has not taken waits here, because the server would give up waiting.
//! What is there and cannot be fetched is listed at the end, with the reason, and the code says
//! that there is such a thing. A listing that fails has printed what came before.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp::{AcceptNew, Entry, Failure, FailureKind, Host, Kind, Listed, Span};
use gtp_sys::Clock;
use serde_json::json;

use crate::args::LsArgs;
use crate::output;
use crate::words;

pub fn run(args: LsArgs) -> Result<ExitCode, Failure> {
    let runtime = super::runtime()?;
    let host = super::start_client(Host::builder())?;
    let accept_new = if args.trust.accept_new { AcceptNew::Yes } else { AcceptNew::No };
    let (url, trust) = (args.url, args.trust);
    let parts = Arc::new(Backlog::new(PATIENCE));
    let (come, printed) = (Ending(Arc::clone(&parts)), Printing(parts));
    let listing = runtime.spawn(async move {
        // While one part waits for the reader, this thread's other tasks go on elsewhere.
        let each = |part| tokio::task::block_in_place(|| come.0.push(part));
        host.list_each(&url, &trust.fingerprint, accept_new, each).await
    });
    let mut left_out = Vec::new();
    while let Some(part) = printed.0.next() {
        match part {
            Listed::Entries(entries) => {
                entries.iter().try_for_each(|entry| say_entry(entry, args.json))?;
            }
            Listed::LeftOut(failure) => left_out.push(failure),
        }
    }
    let ended = runtime.block_on(listing).map_err(super::other);
    left_out.iter().try_for_each(|failure| say_left_out(failure, args.json))?;
    ended??;
    match left_out.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::from(FailureKind::Partial.exit_code())),
    }
}

/// Parts of a listing that wait to be printed.
struct Backlog {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    parts: VecDeque<Listed>,
    has_ended: bool,
    /// Nobody prints any more.
    is_closed: bool,
    /// How long the server may be kept waiting by one part, and by all that are still to come.
    patience: (Span, Span),
}

/// Parts that wait before the server is kept waiting.
const PARTS: usize = 8;
/// The server is kept waiting for so long by one part, and by all together. It gives up when it
/// cannot send anything for 30 s.
const PATIENCE: (Span, Span) = (Span::from_secs(5), Span::from_secs(60));

impl Backlog {
    fn new(patience: (Span, Span)) -> Backlog {
        let (has_ended, is_closed) = (false, false);
        let waiting = Waiting { parts: VecDeque::new(), has_ended, is_closed, patience };
        Backlog { state: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a part. If too many wait, this waits until they are fewer, but not for a reader that
    /// seems to have stopped. Once nobody prints any more, parts are dropped.
    fn push(&self, part: Listed) {
        let (waiting, clock) = (self.lock(), Clock::start());
        let ((one, all), begun) = (waiting.patience, clock.now());
        let most = Duration::from_nanos(one.min(all).as_nanos());
        let is_full = |waiting: &mut Waiting| !waiting.is_closed && waiting.parts.len() >= PARTS;
        let waited = self.changed.wait_timeout_while(waiting, most, is_full);
        let (mut waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let waited = clock.now().since(begun);
        waiting.patience.1 = match timeout.timed_out() {
            true => Span::ZERO,
            false => all.saturating_sub(waited),
        };
        if !waiting.is_closed {
            waiting.parts.push_back(part);
        }
        self.changed.notify_all();
    }

    /// The next part; `None` when the listing has ended.
    fn next(&self) -> Option<Listed> {
        let is_idle = |waiting: &mut Waiting| waiting.parts.is_empty() && !waiting.has_ended;
        let waiting = self.changed.wait_while(self.lock(), is_idle);
        let part = waiting.unwrap_or_else(PoisonError::into_inner).parts.pop_front();
        self.changed.notify_all();
        part
    }
}

/// Says when it is dropped that no more parts come.
struct Ending(Arc<Backlog>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// Says when it is dropped that nobody prints any more: whoever adds parts waits no longer.
struct Printing(Arc<Backlog>);

impl Drop for Printing {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        (waiting.is_closed, waiting.parts) = (true, VecDeque::new());
        self.0.changed.notify_all();
    }
}

fn say_entry(entry: &Entry, json: bool) -> Result<(), Failure> {
    if json { output::json(as_json(entry)) } else { output::line(as_text(entry)) }
}

fn say_left_out(failure: &Failure, json: bool) -> Result<(), Failure> {
    if json {
        let kind = failure.kind.as_str();
        return output::json(json!({ "event": "skipped", "kind": kind, "message": failure.text }));
    }
    output::line(format_args!("{:>3} {:>10}  {failure} (left out)", "-", "-"))
}

fn as_json(entry: &Entry) -> serde_json::Value {
    json!({
        "event": "entry",
        "path": entry.path.as_str(),
        "kind": word(entry.kind),
        "size": entry.size,
        "mode": format!("{:o}", entry.mode.bits()),
        "mtime": entry.mtime.secs() as f64 + f64::from(entry.mtime.nanos()) / 1e9,
    })
}

fn as_text(entry: &Entry) -> String {
    let size = match entry.kind {
        Kind::File => words::say_bytes(entry.size),
        Kind::Dir => "-".into(),
    };
    let slash = match entry.kind {
        Kind::File => "",
        Kind::Dir => "/",
    };
    format!("{:o} {size:>10}  {}{slash}", entry.mode.bits(), entry.path)
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "directory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_parts_wait_for_a_reader_that_goes_on_and_all_for_one_that_has_stopped() {
        let part = || Listed::Entries(Vec::new());
        let hour = Span::from_secs(3_600);
        let backlog = Arc::new(Backlog::new((hour, hour)));
        let come = Ending(Arc::clone(&backlog));
        let writing = std::thread::spawn(move || (0..1_000).for_each(|_| come.0.push(part())));
        let mut count = 0;
        while backlog.next().is_some() {
            count += 1;
            assert!(backlog.lock().parts.len() <= PARTS);
        }
        writing.join().unwrap();
        assert_eq!(count, 1_000);
        let stopped = Backlog::new((Span::from_millis(1), hour));
        (0..1_000).for_each(|_| stopped.push(part()));
        assert_eq!(stopped.lock().parts.len(), 1_000);
        assert_eq!(stopped.lock().patience.1, Span::ZERO);
    }

    #[test]
    fn a_part_waits_no_longer_when_nobody_prints_any_more_and_is_dropped() {
        let part = || Listed::Entries(Vec::new());
        let hour = Span::from_secs(3_600);
        let backlog = Arc::new(Backlog::new((hour, hour)));
        let printed = Printing(Arc::clone(&backlog));
        let (come, (tell, told)) = (Arc::clone(&backlog), std::sync::mpsc::channel());
        let writing = std::thread::spawn(move || {
            for n in 0..=2 * PARTS {
                tell.send(n).unwrap();
                come.push(part());
            }
        });
        while told.recv().unwrap() < PARTS {}
        drop(printed); // The next part waits, or is about to.
        writing.join().unwrap();
        assert!(backlog.lock().parts.is_empty());
    }
}
