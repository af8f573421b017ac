//! Byte streams: sessions whose units come into being as an application speaks.
//!
//! A stream is an object of unknown length, carried in a ring of bounded memory at each end. The
//! source cuts what it was told into units as they leave; the sink asks for a window of units
//! ahead of what it has, and asks again for what was lost; to be asked for a unit lets the source
//! forget the one a window before. One session is one direction; a connection has two. The core's
//! sessions are those of files: rates, repairs and agents know no difference.
//!
//! What a stream carries is bytes, of which each arrives, or frames, of which those arrive that
//! nothing is lost of.
//!
//! Here are the two sides in the engine, and the pipes to whoever reads and writes. Who may
//! connect to whom is decided elsewhere.

mod framed;
mod frames_in;
mod frames_out;
mod handle;
mod heard;
mod pipe;
mod ring;
mod sink;
mod source;
mod spoken;
#[cfg(test)]
mod tests;
mod units;

pub use framed::{FrameReader, FrameWriter};
pub use frames_in::{Came, Frame, FramesIn};
pub use frames_out::{Ended, FramesOut, frame_most};
pub use handle::{Incoming, Outgoing, Reading, Writing};
pub use heard::Heard;
pub use pipe::{Broken, StreamReader, StreamWriter};
pub use spoken::Spoken;
pub use units::Units;

pub(super) use pipe::{InPipe, OutPipe};
pub(super) use sink::StreamSink;
pub(super) use source::StreamSource;

use std::sync::{Arc, Mutex};

use gtp_alloc::Span;
use gtp_proto::{FlowId, Repairs};
use tokio::sync::mpsc::UnboundedSender;

use super::api::{FlowProgress, SessionOpen, SourceProgress};

/// What is heard from a stream's session, at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The path is open.
    PathOpen,
    /// No datagram came in time. The session has ended.
    NoPath,
    /// For some seconds no datagram has come, and none is given a way but UDP. The session goes on.
    Silent,
    /// At a sink: the whole stream is here, this many bytes, or what of its frames will ever be.
    Whole(u64),
    /// At a source of frames: all of them were cut into units, and more will not be said.
    Ended(Ended),
    /// The peer is done with the session, which has ended.
    Closed,
    /// The session has ended because of the peer or the network.
    Lost(String),
}

/// What is sent to the engine about streams.
pub(super) enum StreamNotice {
    OpenSource(Box<NewStreamSource>),
    OpenSink(Box<NewStreamSink>),
    /// The application has said something after a silence.
    Supplied(FlowId),
    /// The application has read something.
    Taken(FlowId),
    /// The peer has said how much there is of a stream of frames.
    Ended(FlowId, Ended),
    Close(FlowId),
}

/// A stream's session to be opened that sends.
pub(super) struct NewStreamSource {
    pub flow: FlowId,
    pub session: SessionOpen,
    pub pipe: Arc<OutPipe>,
    pub events: UnboundedSender<StreamEvent>,
    pub progress: Arc<Mutex<SourceProgress>>,
}

/// A stream's session to be opened that receives.
pub(super) struct NewStreamSink {
    pub flow: FlowId,
    pub session: SessionOpen,
    pub repairs: Repairs,
    /// How long it waits at least for what was overtaken.
    pub patience: Span,
    pub pipe: Arc<InPipe>,
    pub events: UnboundedSender<StreamEvent>,
    pub progress: Arc<Mutex<Option<FlowProgress>>>,
}
