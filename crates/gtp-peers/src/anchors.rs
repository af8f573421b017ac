//! Anchors: schemes outside the papers that mark the ends of what the rivals can do.
//!
//! | anchor | what it marks | where |
//! |---|---|---|
//! | rate meter, after EyeQ (Jeyakumar et al., NSDI 2013) | one rate from the sink | [`Meter`] |
//! | idealised Vlink: a typed-in cap shared equally | what static slicing wastes | [`Slice`] |
//! | links' grants, after PERC (Jose et al., HotNets 2015) | max-min by messages | [`Link`] |
//! | the central allocator | the upper bound: exact max-min at once | [`central`] |
//!
//! All steer the [`Source`](crate::advertised::Source) of explicit rates: meter and slice as the
//! router at a node, PERC's links as the routers of all links, the central allocator by its demand.
//! None is tuned to any figure.

use alloc::vec::Vec;

use gtp_alloc::Rate;
use gtp_alloc::maxmin::{self, Network};

mod meter;
pub mod perc;
mod slice;

pub use meter::Meter;
pub use perc::Link;
pub use slice::Slice;

/// The exact max-min rates of a network, in its sessions' order: what an allocator that knows all
/// demands and talks without delay would give.
#[must_use]
pub fn central(network: &Network) -> Vec<Rate> {
    maxmin::solve(network).into_iter().map(Rate::from_f64).collect()
}
