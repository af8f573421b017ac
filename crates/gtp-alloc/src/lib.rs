//! Pure allocation mathematics of the Group Transport Protocol.
//!
//! Everything here is a function of its arguments: no clock, no entropy, no I/O. The crate holds
//! the units that the whole workspace speaks in, the exact global max-min allocation, the times at
//! which transfers end that have it, the two control laws that a host may run over its sessions,
//! how its capacity comes down where all of them lose and makes room for what is not theirs, and
//! the measures by which their results are judged.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bucket;
pub mod endnode;
pub mod fairness;
pub mod fluid;
pub mod grant;
pub mod led;
pub mod maxmin;
pub mod room;
pub mod strain;
pub mod tree;
pub mod units;
pub mod within;

pub use bucket::Bucket;
pub use units::{Bytes, Rate, Span, Time};
