//! Measures what this host can do: a path from memory to memory, and a disk.
//!
//! One idea: nothing is imitated. The path is measured by sessions of the engine that moves files,
//! with the same control channel, keys, rates and repair; only the ends are memory, so that no
//! disk and no hashing of content counts. The disk is measured by the store that keeps files.
//! What lies there when the clock has stopped is compared with what was sent, byte by byte.
#![forbid(unsafe_code)]

mod cpu;
mod disk;
mod fetch;
mod memory;
mod serve;
mod setup;

pub use cpu::cpu_seconds;
pub use disk::{DiskFigures, measure_disk, try_disk};
pub use fetch::{Fetch, NetFigures, fetch};
pub use gtp_net::engine::Calls;
pub use memory::{CONTENT_MOST, SEED};
pub use serve::{Serve, Served, Server};
pub use setup::{Capacities, Ends, Strangers};
