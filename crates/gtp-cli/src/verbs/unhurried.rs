//! Standard output as the place where a stream goes, which waits for its reader for ever.
//!
//! A descriptor that was set not to block, by another process that holds the same pipe, fails with
//! `EAGAIN` while its reader is slow. It is waited for here as one that blocks would be.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;

use crate::patient::wait;

/// An asynchronous writer that waits until its descriptor takes all, on a thread for what blocks.
/// Bytes are written when the next ones come or the writer is flushed.
pub struct Unhurried {
    file: Arc<File>,
    writing: Option<JoinHandle<io::Result<()>>>,
}

impl Unhurried {
    /// Writes to this.
    pub fn to(file: File) -> Unhurried {
        Unhurried { file: Arc::new(file), writing: None }
    }

    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(Pin::new(writing).poll(context));
        self.writing = None;
        Poll::Ready(written.map_err(io::Error::other)?)
    }
}

impl AsyncWrite for Unhurried {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(context))?;
        let (file, all) = (Arc::clone(&self.file), bytes.to_vec());
        self.writing = Some(tokio::task::spawn_blocking(move || write_all(&file, &all)));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Writes all of `bytes`, however long its reader takes.
fn write_all(mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(&file),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    /// The ends of a pipe: the one to read from, and the one to write to, which does not block.
    fn pipe() -> (File, File) {
        let (near, far) = std::io::pipe().unwrap();
        fcntl_setfl(&far, OFlags::NONBLOCK).unwrap();
        (File::from(OwnedFd::from(near)), File::from(OwnedFd::from(far)))
    }

    #[tokio::test]
    async fn a_stream_is_written_whole_to_a_pipe_that_does_not_block_or_fails_in_words() {
        use tokio::io::AsyncWriteExt;
        let all: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let (mut near, far) = pipe();
        let reader = tokio::task::spawn_blocking(move || {
            let mut read = Vec::new();
            near.read_to_end(&mut read).unwrap();
            read
        });
        let mut stream = Unhurried::to(far);
        stream.write_all(&all).await.unwrap();
        stream.flush().await.unwrap();
        drop(stream);
        assert!(reader.await.unwrap() == all);
        let (near, far) = pipe();
        drop(near);
        let mut gone = Unhurried::to(far);
        gone.write_all(b"x").await.unwrap();
        assert_eq!(gone.flush().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
