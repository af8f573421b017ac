//! Carries bytes between a kernel's TCP socket and a stream.
//!
//! The socket tells a break from an end as TCP does: a stream that broke resets it, and one that
//! is reset breaks the stream.

use std::os::fd::AsFd;
use std::time::Duration;

use gtp::Stream;
use gtp::carry::{Carried, hear, say};
use rustix::net::sockopt;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// Carries until both directions have ended and the peer has all.
pub async fn carry(near: TcpStream, stream: Stream) {
    let (reader, writer, line) = stream.into_split();
    // Until all is well its closing resets, also when this process is killed: a program must not
    // take that for an end.
    linger(&near, Linger::Reset);
    let (mut from, mut to) = near.into_split();
    let up = async {
        let said = say(&mut from, writer).await;
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
        tokio::pin!(up, down);
        tokio::select! {
            said = &mut up => match said {
                Carried::Broken(_) => said,
                Carried::Whole | Carried::Left(_) => down.await,
            },
            heard = &mut down => match heard {
                Carried::Broken(_) => heard,
                Carried::Whole | Carried::Left(_) => up.await,
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

/// Two ends of a TCP connection within this host: the pump's, and a program's.
pub async fn pair() -> std::io::Result<(TcpStream, std::net::TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let theirs = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (ours, from) = listener.accept().await?;
        if from == theirs.local_addr()? {
            ours.set_nodelay(true)?;
            theirs.set_nodelay(true)?;
            let theirs = theirs.into_std()?;
            theirs.set_nonblocking(false)?;
            return Ok((ours, theirs));
        }
    }
}
