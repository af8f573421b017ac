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

use gtp_alloc::{Bytes, Span, Time};
use gtp_sys::clock::Clock;

use gtp_proto::limits::UNIT_ETHERNET;

use crate::messages::{Delivery, STREAM_WINDOW_LEAST};
use crate::stream::{held, memory_for};

pub use gathering::{Gathering, Happened, Left, Seen, SinkTerms};
pub use gtp_proto::in_step::{PART_HEAD, PARTS_MOST, Released, Settled, Tally, Totals};
pub use picture::Picture;
pub use sending::{After, Sending, Sent, SinkEnd, SourceTerms, connect};

/// The time in which paths are filled before the first frame is due: seven of the longest round
/// trips that are usual, in which a rate grows from 64 packets in one to what is wanted.
const WARM_UP: Span = Span::from_secs(1);

/// Units of a source's window: three times what 800 Mbit/s have under way over a round trip of
/// 150 ms. A unit that was lost holds those behind it until it has come again.
pub const WINDOW: u32 = 32_768;

/// Bytes that a sink may hold for all its sources at most, beside the frames themselves.
const WINDOWS_MOST: u64 = 2 << 30;

/// The window of each of so many sources at a sink, and the memory of a listener that promises it
/// to each of them, whether its key is listed or not, and to each that calls again. No more is held
/// than the windows of those that have a place.
pub fn room(parts: u16) -> (u32, Bytes) {
    let parts = u64::from(parts.max(1));
    let held = |window| held(window, UNIT_ETHERNET, Some(Delivery::Frames));
    let mut window = WINDOW;
    while window > STREAM_WINDOW_LEAST && parts * held(window) > WINDOWS_MOST {
        window /= 2;
    }
    (window, Bytes(memory_for(2 * parts, held(window))))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Fingerprint, Identity};
    use crate::server::budget::{Budget, Holder};
    use crate::stream::promise;

    #[test]
    fn each_source_of_a_group_is_promised_its_whole_window_also_when_it_calls_again() {
        let key: Fingerprint = Identity::generate().fingerprint();
        for (parts, holder) in
            [(1, Holder::Strangers), (4, Holder::Listed(key)), (64, Holder::Strangers)]
        {
            let (window, memory) = room(parts);
            let budget = Budget::new(memory);
            let held = |window| held(window, UNIT_ETHERNET, Some(Delivery::FramesOnce));
            let mut shares: Vec<_> = (0..2 * parts).map(|_| budget.share(holder)).collect();
            for share in &mut shares {
                assert_eq!(promise(share, window, held), Some(window), "{parts} parts");
            }
            assert!(u64::from(parts) * held(window) <= WINDOWS_MOST);
        }
        assert_eq!(room(4).0, WINDOW);
    }
}
