//! The places where the product touches the machine: one clock, one entropy source, TUN devices.
//!
//! Everything above receives times and seeds as arguments and so stays repeatable. What has to ask
//! the kernel asks it here, once, behind a narrow safe interface. This crate knows no protocol
//! and takes no decision.

pub mod address;
pub mod ancillary;
pub mod clock;
pub mod descriptors;
pub mod entropy;
pub mod memory;
pub mod nic;
pub mod owner;
pub mod peer;
pub mod prefetch;
mod pressure;
pub mod process;
pub mod pump;
pub mod schedule;
pub mod signals;
pub mod stdio;
pub mod steer;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod wake;

pub use clock::Clock;
