//! Standard output as the place where a stream goes, which waits for its reader for ever.
//!
//! A descriptor that was set not to block, by another process that holds the same pipe, fails with
//! `EAGAIN` while its reader is slow. It is waited for here as one that blocks would be.

use std::fs::File;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;

use crate::patient::write_within;

/// An asynchronous writer that waits until its descriptor takes all, on a thread for what blocks.
/// Writing begins there at once. The next bytes, and a flush, wait until it is done, and return
/// its error.
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
        self.writing = Some(tokio::task::spawn_blocking(move || Endless(&file).write_all(&all)));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Writes with as many tries as its reader needs.
struct Endless<'a>(&'a File);

impl Write for Endless<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_within(&mut self.0, bytes, None)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};

    use super::*;
    use crate::patient::tests::pipe;

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
