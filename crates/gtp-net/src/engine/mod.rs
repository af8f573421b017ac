//! The data path: one thread that hosts the core's sessions and agents on real sockets.

mod api;
mod command;
mod host;
mod reader;
mod run;
mod writer;

pub use api::*;
pub use host::{Host, SourceHandle, TransferHandle};
