//! Carries bytes between a kernel's TCP socket and a stream.
//!
//! The socket tells a break from an end as TCP does: a stream that broke resets it, and one that
//! is reset breaks the stream.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use gtp::Stream;
use gtp::carry::{Carried, hear, say};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

/// Carries until both directions have ended and the peer has all.
pub async fn carry(near: TcpStream, stream: Stream) {
    let (reader, writer, line) = stream.into_split();
    // Until all is well its closing resets, also when this process is killed: a program must not
    // take that for an end.
    linger(&near, Linger::Reset);
    // Streams have no urgent bytes: they come where they were written, as all others.
    let _ = sockopt::set_socket_oobinline(&near, true);
    let (from, mut to) = near.into_split();
    let up = async {
        let said = say(Drained(&from), writer).await;
        if let Carried::Left(_) = said {
            line.abort();
        }
        said
    };
    let down = async {
        let heard = hear(reader, &mut to).await;
        if let Carried::Whole = heard {
            // A program that is gone needs no end.
            let _ = to.shutdown().await;
        }
        heard
    };
    // Either way a break is a break of both.
    let ended = {
        tokio::pin!(down);
        let up_first = {
            tokio::pin!(up);
            tokio::select! {
                said = &mut up => Ok(said),
                heard = &mut down => Err(match heard {
                    Carried::Broken(_) => heard,
                    // A break shows to whoever says something; others are to hear of it as well.
                    Carried::Whole | Carried::Left(_) => tokio::select! {
                        said = &mut up => said,
                        () = line.over() => Carried::Broken(io::ErrorKind::ConnectionReset.into()),
                    },
                }),
            }
        };
        match up_first {
            Ok(said @ Carried::Broken(_)) | Err(said) => said,
            Ok(Carried::Whole | Carried::Left(_)) => tokio::select! {
                heard = &mut down => heard,
                left = leaves(from.as_ref()) => {
                    // The peer has what was said before it is told.
                    line.delivered().await;
                    line.abort();
                    left
                }
            },
        }
    };
    if let Carried::Whole | Carried::Left(_) = ended {
        linger(from.as_ref(), Linger::Deliver);
    }
    // As one: a writing half that is dropped alone says an end first.
    drop(from.reunite(to));
    line.over().await;
}

/// A socket that is read until it has nothing more. Its own reader takes a short read for the last
/// one, and would wait then: but the kernel stops short of an urgent byte as well.
struct Drained<'a>(&'a OwnedReadHalf);

impl AsyncRead for Drained<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket: &TcpStream = self.0.as_ref();
        loop {
            std::task::ready!(socket.poll_read_ready(context))?;
            match socket.try_read(into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// Waits until a program that has said its end has gone: the kernel answers what is said to it from
/// then on with a reset.
async fn leaves(near: &TcpStream) -> Carried {
    let waited = near.ready(Interest::ERROR).await;
    Carried::Left(waited.err().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
}

/// What closing a socket does.
enum Linger {
    /// It tells the other end of a break.
    Reset,
    /// What was written is delivered, and then the end.
    Deliver,
}

fn linger(near: &TcpStream, how: Linger) {
    let span = match how {
        Linger::Reset => Some(Duration::ZERO),
        Linger::Deliver => None,
    };
    // A socket that is gone needs neither.
    let _ = sockopt::set_socket_linger(near.as_fd(), span);
}
