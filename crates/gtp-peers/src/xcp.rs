//! XCP, Katabi, Handley and Rohrs, SIGCOMM 2002: routers tell each packet by how much its sender's
//! throughput should change. Thesis II.5.E (eq. II.15); constants and the rule for what a packet
//! does not take from the queue of ns-2, by which the papers' results were made.
//!
//! | rule | source | where |
//! |---|---|---|
//! | a packet says round-trip time, throughput, and what it wants | Katabi, 3.2 | [`Request`] |
//! | each mean round trip, what a link gives and takes | Katabi, 3.5.1; eq. II.15 | [`Queue`] |
//! | shuffle, and each packet's share | Katabi, 3.5.2 | [`Queue`] |
//! | the rest of a smaller wish stays in the pool | ns-2 | [`Queue`] |
//! | the receiver returns the routers' last word; the window follows | Katabi, 3.3, 3.4 | [`Law`] |
//! | the same queue, virtual, at sources and sinks: endpointXCP | thesis, VIII.2 | [`Node`] |
//! | what the queue's law comes to rest at | Low, Andrew and Wydrowski 2005 | [`equilibrium`] |
//!
//! The one idea: what to give in all follows from spare capacity and standing queue alone; how it
//! is shared out makes it fair. A router keeps no state per connection.

use gtp_alloc::{Rate, Span};

pub mod equilibrium;
mod law;
mod node;
mod queue;

pub use law::Law;
pub use node::Node;
pub use queue::Queue;

/// Share of the spare capacity given in one round-trip time: `alpha` of the XCP paper and ns-2.
pub const ALPHA: f64 = 0.4;
/// Share of the standing queue taken back in one round-trip time: `beta` of the XCP paper, which
/// must be `ALPHA^2 * sqrt(2)`.
pub const BETA: f64 = 0.226;
/// Share of the traffic that is shuffled in one round-trip time for fairness: `gamma`.
pub const GAMMA: f64 = 0.1;

/// The longest round-trip time that a packet is believed, as in ns-2.
pub const RTT_MAX: Span = Span::from_secs(1);

/// XCP's header on a packet with payload: what the sender says and the routers change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    /// The sender's smoothed round-trip time; zero before the first is known, and then routers
    /// neither count nor change the rest.
    pub rtt: Span,
    /// The sender's window over its round-trip time.
    pub throughput: Rate,
    /// By how much, in bit/s, this packet lets the throughput change: asked for by the sender,
    /// lowered by every router that gives less.
    pub delta: f64,
}
