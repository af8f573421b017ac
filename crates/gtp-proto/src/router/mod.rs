//! Allocation for a link that belongs to no host.
//!
//! The thesis proposes (X.3.B) that routers whose links are bottlenecks run the allocator of end
//! nodes, and that a session has the least rate of its whole way. [`Router`] is such an allocator:
//! it shares out what its one-way links carry by the grant law, as a sink's host does. It forwards
//! nothing and sees no data. [`Crossings`] is a host's side: it asks the routers that the host's
//! sessions cross, lowers what their agent grants to what routers grant, and tells the other end
//! the least of all offers, so that rates are max-min over hosts and links together. A router may
//! only lower. One that is silent is ignored. Both ends of the machine know datagrams and tags;
//! neither knows sockets, addresses or keys.

mod allocator;
mod crossing;
mod occupancy;
mod pace;
mod passage;
mod speaker;
mod wire;

use gtp_alloc::Rate;

pub use allocator::{HostChange, LinkStanding, Router, RouterConfig};
pub use crossing::{Crossings, News, Passage, RouterChange};
pub use wire::{
    Answer, Ask, Dropped, HEAD_BYTES, HostId, Pass, Stage, TAG_BYTES, Tags, Use, Verdict,
};

/// A rate that changes by less than this part is no news between a host and a router.
const NEWS: f64 = 0.001;

/// Whether a rate that was said once is far enough from what it is now to be said again.
fn has_moved(said: Rate, now: Rate) -> bool {
    let is_close = (said.as_f64() - now.as_f64()).abs() <= NEWS * said.as_f64();
    said != now && (said.is_unlimited() || now.is_unlimited() || !is_close)
}
