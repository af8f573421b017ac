//! Pages of numbers for Prometheus, served by a thread of their own.
//!
//! What is on a page is its owner's to know: a server's sessions, or a router's links. Who may ask,
//! and how often a page is made, [`gtpd::http`] knows.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use gtp::{Bucket, Failure, FailureKind, Time};
use gtp_sys::Clock;
use gtpd::http::{Page, Pages, Work};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What a page of numbers is.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is registered, in the text format of OpenMetrics.
pub fn text(registry: &Registry) -> Vec<u8> {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    // As the format has it.
    text.replace(" inf\n", " +Inf\n").into_bytes()
}

/// Serves pages at a loopback address until the socket that it returns is closed.
///
/// # Errors
/// [`FailureKind::Usage`] if the address is no loopback address or not available. The setting that
/// it comes from is not named.
pub fn serve<S: Send + Sync + 'static>(
    address: SocketAddr,
    pages: &'static [Page<S>],
    of: &Arc<S>,
) -> Result<UnixStream, Failure> {
    let failed =
        |error: std::io::Error| Failure::new(FailureKind::Usage, format!("{address}: {error}"));
    let pages = Pages::listen(address, pages).map_err(failed)?.with_readers(READERS);
    let (serving, end) = UnixStream::pair().map_err(failed)?;
    let of = Arc::clone(of);
    let thread = std::thread::Builder::new().name("gtp-metrics".into());
    thread.spawn(move || answer(pages, &of, &end)).map_err(failed)?;
    Ok(serving)
}

/// Readers of the numbers at a time: each takes a descriptor from clients.
const READERS: usize = 16;

/// The pause before the next try to wait for readers. Waiting fails if the kernel has no memory,
/// and nothing tells when it has some again.
const POLL_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Answers those who ask, until the other end of `end` is closed.
fn answer<S>(mut pages: Pages<S>, of: &S, end: &UnixStream) {
    let mut waiting = Waiting::new();
    while waiting.goes_on(end, pages.poll_timeout(), pages.fds()) {
        pages.serve(waiting.now(), of, Work::default());
    }
}

/// Waits for those who ask, on a thread of its own.
#[derive(Debug)]
pub struct Waiting {
    clock: Clock,
    complaints: Bucket,
}

impl Waiting {
    /// Nothing was waited for yet.
    pub fn new() -> Waiting {
        Waiting { clock: Clock::start(), complaints: Bucket::new(1, 2) }
    }

    /// The time by which it waits.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits until one of `fds` is ready or `until` has come; `false`: the other end of `end` is
    /// closed.
    pub fn goes_on<'f>(
        &mut self,
        end: &'f UnixStream,
        until: Time,
        fds: impl Iterator<Item = PollFd<'f>>,
    ) -> bool {
        let span = until.since(self.now()).as_nanos();
        let timeout = Timespec {
            tv_sec: (span / 1_000_000_000) as i64,
            tv_nsec: (span % 1_000_000_000) as _,
        };
        let timeout = (until != Time::MAX).then_some(&timeout);
        let mut all = vec![PollFd::from_borrowed_fd(end.as_fd(), PollFlags::IN)];
        all.extend(fds);
        let waited = poll(&mut all, timeout);
        if all.first().is_some_and(|end| !end.revents().is_empty()) {
            return false;
        }
        if let Err(error) = waited
            && error != Errno::INTR
        {
            if self.complaints.take(self.clock.now()) {
                tracing::warn!(%error, "nobody can be waited for who asks for the numbers");
            }
            std::thread::sleep(POLL_PAUSE);
        }
        true
    }
}
