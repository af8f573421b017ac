//! The data path: threads that host the core's sessions and agents on real sockets.
//!
//! [`Host`] and its handles speak to the threads, of which each is an engine with sockets and
//! sessions of its own; `council` is the agent that engines of one host share, and `mates` what
//! else they have together. `run` is an engine's loop, and only moves bytes (`naps` says how long
//! it may rest, `calls` counts); `driver` holds everything that decides, as a plain value without
//! input or output. Around the driver: `table` (all sessions), `source_side` with `cache`,
//! `ahead` and `reader`, `sink_side` with `transfer`, `assign`, `suspects`, `anew`, `assembly`,
//! `writer` and its `backlog` (readers and writers work on the threads of a `crew`), and `envelope`
//! and `batch` on the way to the wire. `stream` has the sessions of byte streams. `allotter` asks
//! whoever shares the host's capacity out: an agent here, or the host's daemon, which `keeper`
//! looks for (`standing` says what follows where it is not there); to it `details` says what a
//! session is. `unthreaded` is an engine for counting what a packet costs. Who may move what is
//! decided elsewhere: sessions come here with their keys.

mod ahead;
mod allotter;
mod anew;
mod api;
mod assembly;
mod assign;
mod backlog;
mod batch;
mod bits;
mod cache;
mod calls;
mod carrier;
mod command;
mod council;
mod crew;
mod details;
mod driver;
mod envelope;
mod host;
mod intake;
mod keeper;
mod law;
mod loads;
mod mates;
mod naps;
mod pending_questions;
mod reader;
mod rows;
mod run;
mod sink_side;
mod source_side;
mod standing;
mod stream;
mod suspects;
mod table;
mod timing;
mod transfer;
pub(crate) mod turns;
mod unthreaded;
mod ways;
#[cfg(test)]
mod worlds;
mod writer;

pub use api::*;
pub use calls::Calls;
pub use carrier::{CARRIED_MOST, Carrier};
pub use gtp_share::Places;
pub use gtp_share::client::Missed;
pub use host::{Host, SourceHandle, TransferHandle, Watch, default_capacity, default_engines};
pub use keeper::{Sharing, StartError};
pub use law::{Alone, Law};
pub use standing::{Bond, Stands};
pub use stream::{
    Broken, Came, Ended, Frame, FrameReader, FrameWriter, FramesIn, FramesOut, Heard, Incoming,
    Outgoing, Reading, Spoken, StreamEvent, StreamReader, StreamWriter, Units, Writing, frame_most,
};
#[doc(hidden)]
pub use unthreaded::Unthreaded;
