//! Frames in step over real connections: several sources to one sink, one source to several sinks.
//!
//! Sources call, sinks listen. Each connection is a stream of frames that are delivered whole or
//! not at all; its other direction carries what the sink says about its clock. Which frame is
//! released when is decided by the core ([`gtp_proto::in_step`]); here are the connections around
//! it (docs/PROTOCOL.md, 20.4).

mod gathering;
mod picture;
mod pulse;
mod sending;
mod source;

use gtp_alloc::{Span, Time};
use gtp_sys::clock::Clock;

pub use gathering::{Gathering, Happened, Left, Seen, SinkTerms};
pub use gtp_proto::in_step::{PART_HEAD, PARTS_MOST, Released, Settled, Tally, Totals};
pub use picture::Picture;
pub use sending::{After, Sending, Sent, SinkEnd, SourceTerms, connect};

/// The time in which paths are filled before the first frame is due: seven of the longest round
/// trips that are usual, in which a rate grows from 64 packets in one to what is wanted.
const WARM_UP: Span = Span::from_secs(1);

/// So much after a time.
fn later(time: Time, span: Span) -> Time {
    Time::from_nanos(time.as_nanos().saturating_add(span.as_nanos()))
}

/// Waits until the clock shows this time.
async fn wait_until(clock: Clock, at: Time) {
    let left = at.since(clock.now());
    if left > Span::ZERO {
        tokio::time::sleep(gtp_sys::clock::duration(left)).await;
    }
}

/// The same for a time that may never come.
async fn wait_for(clock: Clock, at: Option<Time>) {
    match at {
        Some(at) => wait_until(clock, at).await,
        None => std::future::pending().await,
    }
}
