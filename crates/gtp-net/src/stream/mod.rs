//! Connections that carry bytes: a stream each way between two programs.
//!
//! The control channel says who is there, what the stream leads to, and how it ended; two sessions
//! of the engine carry the bytes, one each way. The end of a stream is part of the stream, and
//! each end confirms what it has received, so an end is never mistaken for a break. An application
//! reads and writes; a task tends the connection until both ends have everything, also after the
//! application has left.

mod connect;
mod listen;
mod silence;
mod tend;
mod unended;
mod verdict;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::{fmt, io};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};

pub use connect::{connect, connect_frames};
pub(crate) use connect::{connect_frames_to, connect_to};
pub use listen::{Caller, Callers, Carries, ListenConfig, StreamListener};
pub(crate) use listen::{held, memory_for, promise};

pub(crate) use silence::Silence;
pub(crate) use tend::{Held, Sessions, start};
pub(crate) use unended::Breaking;
pub use unended::{Abandon, Unended};
pub(crate) use verdict::Verdict;

use crate::engine::{Broken, Reading, SourceProgress, Watch, Writing};
pub use crate::engine::{Frame, FrameReader, FrameWriter, StreamReader, StreamWriter, frame_most};
use crate::identity::Fingerprint;
pub use crate::messages::Delivery;

/// Units that a sink asks for ahead of what it has, if nobody says otherwise: 23 MB of units of
/// 1,400 bytes, which is 630 Mbit/s over a round trip of 60 ms, with time to repair what is lost
/// twice. Memory is taken as it is used.
pub const WINDOW: u32 = 16_384;

/// A connection of frames: from and to a peer that has proved its key.
pub struct FrameStream {
    /// Frames from the peer.
    pub reader: FrameReader,
    /// Frames to the peer.
    pub writer: FrameWriter,
    /// What is known of the connection.
    pub line: Line,
}

/// What is being opened, before its ends are given to whoever reads and writes.
pub(crate) struct Ends {
    reading: Reading,
    writing: Writing,
    line: Line,
}

impl Ends {
    pub(crate) fn of_bytes(self) -> Stream {
        let Ends { reading, writing, line } = self;
        Stream { reader: reading.of_bytes(), writer: writing.of_bytes(), line }
    }

    pub(crate) fn of_frames(self) -> FrameStream {
        let Ends { reading, writing, line } = self;
        FrameStream { reader: reading.of_frames(), writer: writing.of_frames(), line }
    }
}

/// A connection: bytes from and to a peer that has proved its key.
pub struct Stream {
    reader: StreamReader,
    writer: StreamWriter,
    line: Line,
}

/// What is known of a connection, and how to break it. Clones are of the same one.
#[derive(Clone)]
pub struct Line {
    breaker: Arc<Notify>,
    standing: watch::Receiver<Standing>,
    why: Arc<OnceLock<Broken>>,
    peer: Fingerprint,
    remote: SocketAddr,
    sent: Watch<SourceProgress>,
    /// What people read when the control connection carries the datagrams; of a caller alone.
    carried_words: Option<Arc<str>>,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Datagrams get through in both directions.
    pub open: bool,
    /// The peer has received all that was written, and its end.
    pub delivered: bool,
    /// All that the peer wrote is here, and its end.
    pub received: bool,
    /// It broke because no datagram got through.
    pub no_path: bool,
    /// UDP did not get through, and the control connection carries the datagrams since then, unless
    /// UDP gets through again.
    pub carried: bool,
    /// Nothing more happens: all is done, or the connection broke.
    pub over: bool,
}

impl Stream {
    /// Both directions on their own, and the line that they are on.
    pub fn into_split(self) -> (StreamReader, StreamWriter, Line) {
        (self.reader, self.writer, self.line)
    }

    /// What is known of the connection.
    pub fn line(&self) -> &Line {
        &self.line
    }
}

impl Line {
    /// The peer's key.
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }

    /// The peer's address on the control channel.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// How far it is.
    pub fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// How the session is doing that carries what is written here, at most 50 ms old.
    pub(crate) fn sent(&self) -> SourceProgress {
        self.sent.progress()
    }

    /// Why it broke, in words for people; `None` if it has not broken.
    pub fn why(&self) -> Option<&str> {
        self.why.get().map(|broken| broken.text.as_str())
    }

    /// Waits until the control connection carries the datagrams, and returns what people should
    /// read then; `None` at the end of a connection that it does not carry, or that was called.
    /// Safe to cancel.
    pub async fn carried(&self) -> Option<&str> {
        let mut standing = self.standing.clone();
        // Whoever tends the connection says that it is over before it goes.
        let told = standing.wait_for(|now| now.carried || now.over).await;
        let is_carried = told.is_ok_and(|now| now.carried);
        self.carried_words.as_deref().filter(|_| is_carried)
    }

    /// Breaks the connection: the peer reads what it has, and then an error.
    pub fn abort(&self) {
        self.breaker.notify_one();
    }

    /// Waits until datagrams get through in both directions; `false` if the connection broke
    /// before.
    pub async fn opened(&self) -> bool {
        let mut standing = self.standing.clone();
        // Whoever tends the connection says that it is over before it goes.
        let told = standing.wait_for(|now| now.open || now.over).await;
        told.is_ok_and(|now| now.open)
    }

    /// Waits until the peer has all that was written, and its end; `false` if the connection broke
    /// before. A process that ends then cuts off what the peer still says, its end included: one
    /// that wants the peer to end well waits for [`Line::over`].
    pub async fn delivered(&self) -> bool {
        let mut standing = self.standing.clone();
        // Whoever tends the connection says that it is over before it goes.
        let told = standing.wait_for(|now| now.delivered || now.over).await;
        told.is_ok_and(|now| now.delivered)
    }

    /// Waits until nothing more happens.
    pub async fn over(&self) {
        let mut standing = self.standing.clone();
        // As above: an error is an end as well.
        let _ = standing.wait_for(|now| now.over).await;
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for FrameStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameStream").field("peer", &self.line.peer).finish_non_exhaustive()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("peer", &self.line.peer).finish_non_exhaustive()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, out)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}
