//! The data path: one thread that hosts the core's sessions and agents on real sockets.

mod api;

pub use api::*;
