//! The data path: one thread that hosts the core's sessions and agents on real sockets.

mod api;
mod assembly;
mod assign;
mod batch;
mod cache;
mod command;
mod driver;
mod envelope;
mod host;
mod reader;
mod run;
mod sink_side;
mod source_side;
mod table;
mod transfer;
mod writer;

pub use api::*;
pub use host::{Host, SourceHandle, TransferHandle};
