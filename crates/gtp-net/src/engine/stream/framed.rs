//! The ends of a stream of frames, for an application.
//!
//! A writer gives frames one by one; a reader gets each whole, or word of how many were lost
//! before it. Both wait as the ends of a stream of bytes do.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::frames_in::Frame;
use super::pipe::{Broken, InPipe, OutPipe};
use super::ring::{InRing, OutRing};

/// The end of a stream of frames that an application writes to. Frames that were taken are sent
/// even when it is dropped, and its drop ends the stream as [`FrameWriter::finish`] does.
pub struct FrameWriter {
    pub(in crate::engine) pipe: Arc<OutPipe>,
    /// Whoever tends the stream learns by its end that nobody writes any more.
    pub(in crate::engine) _presence: oneshot::Sender<()>,
}

impl FrameWriter {
    /// Takes a frame as soon as there is room for it. Safe to cancel: it was taken or it was not.
    ///
    /// # Errors
    /// `InvalidInput` for a frame longer than half the window; as the stream broke; `BrokenPipe`
    /// after the end.
    pub async fn write(&self, frame: &[u8]) -> io::Result<()> {
        poll_fn(|context| self.poll_write(context, frame)).await
    }

    /// Takes a frame if there is room for it now; says whether. A live source that is late drops
    /// the frame instead.
    ///
    /// # Errors
    /// As of [`FrameWriter::write`].
    pub fn offer(&self, frame: &[u8]) -> io::Result<bool> {
        self.say(frame, None)
    }

    /// As [`FrameWriter::offer`], but only while no more than so many bytes wait to be sent: for a
    /// source whose frames are worth nothing once they have waited.
    ///
    /// # Errors
    /// As of [`FrameWriter::write`].
    pub fn offer_at_once(&self, frame: &[u8], waiting_most: usize) -> io::Result<bool> {
        {
            let out = self.pipe.lock();
            out.check()?;
            if out.ring.unsent() > waiting_most {
                return Ok(false);
            }
        }
        self.say(frame, None)
    }

    /// [`FrameWriter::write`], for whoever polls.
    ///
    /// # Errors
    /// As of [`FrameWriter::write`].
    pub fn poll_write(&self, context: &mut Context<'_>, frame: &[u8]) -> Poll<io::Result<()>> {
        match self.say(frame, Some(context)) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Nothing more will be written.
    pub fn finish(&self) {
        self.pipe.finish();
    }

    /// Lets go of the stream without an end, which its drop would say: for whoever then breaks the
    /// connection off.
    pub fn abandon(self) {
        self.pipe.abandon();
    }

    fn say(&self, frame: &[u8], context: Option<&mut Context<'_>>) -> io::Result<bool> {
        let mut out = self.pipe.lock();
        out.check()?;
        let OutRing::Frames(ring) = &mut out.ring else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if !ring.fits(frame.len()) {
            let text = "a frame longer than half the stream's window";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let taken = ring.say(frame);
        if taken {
            out.ring_bell();
        } else if let Some(context) = context {
            out.writer = Some(context.waker().clone());
        }
        Ok(taken)
    }
}

impl Drop for FrameWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The end of a stream of frames that an application reads from. Dropped before the stream's end,
/// it lets the peer go on, into nothing.
pub struct FrameReader {
    pub(in crate::engine) pipe: Arc<InPipe>,
    /// As in [`FrameWriter`].
    pub(in crate::engine) _presence: oneshot::Sender<()>,
}

impl FrameReader {
    /// The next frame, or word of those lost before it; `None` is the end of the stream, and only
    /// that. Safe to cancel.
    ///
    /// # Errors
    /// As the stream broke, once what came before is read.
    pub async fn read(&self) -> io::Result<Option<Frame>> {
        poll_fn(|context| self.poll_read(context)).await
    }

    /// [`FrameReader::read`], for whoever polls.
    ///
    /// # Errors
    /// As of [`FrameReader::read`].
    pub fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Frame>>> {
        let mut inside = self.pipe.lock();
        let InRing::Frames(ring) = &mut inside.ring else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        if let Some(frame) = ring.read() {
            if ring.due().is_some() {
                inside.tell_taken();
            }
            return Poll::Ready(Ok(Some(frame)));
        }
        if ring.is_whole() {
            return Poll::Ready(Ok(None));
        }
        if let Some(broken) = &inside.broken {
            return Poll::Ready(Err(Broken::error(broken)));
        }
        inside.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for FrameReader {
    fn drop(&mut self) {
        self.pipe.drop_unread();
    }
}
