//! Links, queues and losses as values: what a network does to a packet, without any packet.
//!
//! A [`Link`] takes a size at a time and answers when that packet will be at the far end, or why
//! it will not be. The answer is known at once, because departures are in order: one calculation
//! and no timer per hop. [`Network`] strings links together into routes that share them, and
//! carries anything as its parcels: real datagrams in the emulator, numbers in a simulation.
//!
//! Nothing here reads a clock or draws entropy: `now` and the seeds are arguments, so that the
//! same calls give the same answers on every machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod link;
mod loss;
pub mod managed;
mod network;
mod policer;
mod ring;
mod rng;
mod spec;
mod stats;
mod trace;
mod wire;

pub use link::{Link, Reason, Transit, Verdict};
pub use loss::Loss;
pub use network::{LinkId, Network, Outcome, RouteId};
pub use ring::Ring;
pub use rng::{Chance, Rng};
pub use spec::{
    Burst, CHANGE_LAST, Change, DELAY_MOST, Jitter, LinkSpec, LinkState, Order, Policer,
    QUEUE_MOST, Reorder,
};
pub use stats::{Count, Drops, LinkStats};
pub use trace::{Trace, TraceError};
pub use wire::Wire;
