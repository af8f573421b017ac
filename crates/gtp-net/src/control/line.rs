//! What a channel speaks over: its own TLS connection, or a pipe to the task that has taken that
//! connection over to carry datagrams as well, or a pipe that somebody else protects. The channel's
//! messages are the same over each, so that it only reads and writes; keys can be had from the
//! connection alone.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{self, AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio_rustls::TlsStream;

use super::ControlError;

/// The channel's end of the pipe to whoever has the connection.
#[derive(Debug)]
pub(super) struct Shared {
    pub pipe: DuplexStream,
    /// Dropped with the pipe, it says so to whoever has the connection, also while that waits for
    /// the peer.
    pub _held: oneshot::Sender<()>,
}

/// One of them.
#[derive(Debug)]
pub(super) enum Line<S> {
    /// The channel's own connection.
    Own(Box<TlsStream<S>>),
    /// The pipe to whoever has the connection.
    Shared(Shared),
    /// A pipe whose far end is known, such as one through ssh. It has no keys.
    Bare(DuplexStream),
    /// None, while one is exchanged for another.
    None,
}

impl<S> Line<S> {
    /// The connection.
    ///
    /// # Errors
    /// [`ControlError::Lost`] if somebody else has it.
    pub fn tls(&self) -> Result<&TlsStream<S>, ControlError> {
        match self {
            Line::Own(stream) => Ok(stream),
            Line::Shared(_) | Line::None => {
                Err(ControlError::Lost(io::Error::other("the connection carries datagrams")))
            }
            Line::Bare(_) => {
                Err(ControlError::Lost(io::Error::other("the connection has no keys")))
            }
        }
    }

    /// Gives the connection to `taker`, and goes on with the pipe that it returns.
    ///
    /// # Errors
    /// [`ControlError::Unexpected`] if it is given away already.
    pub fn give_away(
        &mut self,
        taker: impl FnOnce(TlsStream<S>) -> Shared,
    ) -> Result<(), ControlError> {
        match std::mem::replace(self, Line::None) {
            Line::Own(stream) => {
                *self = Line::Shared(taker(*stream));
                Ok(())
            }
            given @ (Line::Shared(_) | Line::Bare(_) | Line::None) => {
                *self = given;
                Err(ControlError::Unexpected("datagrams are carried already".into()))
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Own(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
            Line::Shared(shared) => Pin::new(&mut shared.pipe).poll_read(context, buffer),
            Line::Bare(pipe) => Pin::new(pipe).poll_read(context, buffer),
            Line::None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Line::Own(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
            Line::Shared(shared) => Pin::new(&mut shared.pipe).poll_write(context, bytes),
            Line::Bare(pipe) => Pin::new(pipe).poll_write(context, bytes),
            Line::None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Own(stream) => Pin::new(&mut **stream).poll_flush(context),
            Line::Shared(shared) => Pin::new(&mut shared.pipe).poll_flush(context),
            Line::Bare(pipe) => Pin::new(pipe).poll_flush(context),
            Line::None => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Own(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            Line::Shared(shared) => Pin::new(&mut shared.pipe).poll_shutdown(context),
            Line::Bare(pipe) => Pin::new(pipe).poll_shutdown(context),
            Line::None => Poll::Ready(Ok(())),
        }
    }
}
