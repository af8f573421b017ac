//! Carries bytes between a kernel socket and a stream, until both directions have ended.
//!
//! The end of one is said to the other; a stream that broke is noted in the socket first, so that
//! whoever reads finds the error and no end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gtp_stream::Stream;
use gtp_stream::carry::{Carried, hear, say};
use rustix::net::Shutdown;
use tokio::net::UnixStream;

use crate::fault::of_kind;
use crate::socket::Socket;

/// The far end of a socket's pair, for the runtime.
pub fn adopt(far: OwnedFd) -> io::Result<UnixStream> {
    let far = std::os::unix::net::UnixStream::from(far);
    far.set_nonblocking(true)?;
    UnixStream::from_std(far)
}

/// Carries until both directions have ended and the peer has all.
pub async fn carry(far: UnixStream, stream: Stream, socket: Arc<Socket>) {
    let (reader, writer, line) = stream.into_split();
    let (mut from, mut to) = far.into_split();
    let up = async {
        let said = tokio::select! {
            biased;
            said = say(&mut from, writer) => said,
            // A break shows to whoever says something; others are to hear of it as well.
            () = line.over() => Carried::Broken(io::ErrorKind::ConnectionReset.into()),
        };
        match said {
            Carried::Whole => {}
            Carried::Left(_) => line.abort(),
            Carried::Broken(error) => {
                socket.fail(of_kind(error.kind()));
                // What the program writes from now on fails; what it reads says why.
                shut(from.as_ref(), Shutdown::Read);
            }
        }
    };
    let down = async {
        if let Carried::Broken(error) = hear(reader, &mut to).await {
            socket.fail(of_kind(error.kind()));
        }
        shut(to.as_ref(), Shutdown::Write);
    };
    tokio::join!(up, down);
    line.over().await;
}

fn shut(far: &UnixStream, how: Shutdown) {
    // A socket that is gone is shut.
    let _ = rustix::net::shutdown(far.as_fd(), how);
}
