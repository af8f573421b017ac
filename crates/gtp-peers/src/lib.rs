//! The rivals that the papers name, as plain values: every end and every router of them.
//!
//! Each protocol is one file that reads beside its paper: an index of its rules at the head,
//! equations cited at the line, departures marked. An end is an [`Endpoint`], a queue that takes
//! part in control is a [`Router`]; what travels between them is a [`Packet`]. None of them knows
//! a clock, a socket or a random source: `now` is an argument, and so is every seed, so that the
//! same calls give the same course on every machine.
//!
//! Nothing here is for real traffic: payload is a length and headers are fields. The simulator
//! hosts these types beside the project's own protocol on the same links.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod advertised;
pub mod aecp;
pub mod anchors;
mod endpoint;
mod packet;
pub mod red;
mod router;

pub mod rate;
pub mod tcp;
pub mod vcp;
pub mod xcp;

pub use endpoint::{Endpoint, Progress};
pub use packet::{Body, Note, Packet};
pub use router::{Admission, Router};
