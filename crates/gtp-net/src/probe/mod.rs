//! Probes: datagrams at a constant rate, and what a path does to them.
//!
//! A probe is a stream of frames that are never sent again, one frame to a datagram. Each end sends
//! at the rate that was asked for, as far as the other end and this host's agent allow it, and
//! notes what comes: how much is lost, how the one-way delay varies, what is overtaken. A server
//! answers by the service that [`Plan`] names (docs/PROTOCOL.md, 20.3).

mod call;
mod exchange;
mod pace;
mod plan;
mod said;
mod schedule;
mod tally;
mod wall;

use std::net::SocketAddr;

use gtp_alloc::Span;

pub use call::{Measured, Way, call};
pub use exchange::Outcome;
pub(crate) use exchange::{Asked, End, run};
pub(crate) use pace::Pace;
pub use plan::{FRAME, Plan, RATE_MOST, SPAN};
pub use said::{Sent, Word};
pub use tally::Seen;

/// How long an end waits at least for what others have overtaken: what comes later counts as lost.
pub(crate) const LATE: Span = Span::from_millis(500);

/// Bytes of a datagram beside its frame, with UDP and IP: headers and tag of a data packet, and the
/// head of a frame's unit (docs/PROTOCOL.md, 7.2 and 20.1).
pub(crate) fn headers(peer: SocketAddr) -> u64 {
    let ip_and_udp = match peer.ip().to_canonical().is_ipv4() {
        true => 28,
        false => 48,
    };
    49 + 5 + ip_and_udp
}
