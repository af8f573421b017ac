//! Carrying bytes between a stream and whatever else reads and writes.
//!
//! Each direction ends in one of three ways, which whoever carries must tell apart: the end was
//! said, the stream broke, or the local side did.

use std::io;

use gtp_net::stream::{StreamReader, StreamWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// How one direction ended.
#[derive(Debug)]
pub enum Carried {
    /// All was carried, and the end said: to the peer, or by it.
    Whole,
    /// The stream broke.
    Broken(io::Error),
    /// The local side cannot be read from, or written to, any more.
    Left(io::Error),
}

/// Carries from a local reader to the peer, up to the reader's end, which the peer is told. Where
/// the reader fails, or this is dropped before, no end is said, and the caller breaks the
/// connection off.
pub async fn say(mut from: impl AsyncRead + Unpin, writer: StreamWriter) -> Carried {
    let mut unended = Unended(Some(writer));
    let mut chunk = vec![0; CHUNK];
    while let Some(writer) = &mut unended.0 {
        let count = match from.read(&mut chunk).await {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Carried::Left(error),
        };
        if let Err(error) = writer.write_all(&chunk[..count]).await {
            return Carried::Broken(error);
        }
    }
    if let Some(writer) = unended.0.take() {
        writer.finish();
    }
    Carried::Whole
}

/// A writer whose end was not read yet: dropped, it says none.
struct Unended(Option<StreamWriter>);

impl Drop for Unended {
    fn drop(&mut self) {
        if let Some(writer) = self.0.take() {
            writer.abandon();
        }
    }
}

/// Carries from the peer to a local writer, up to the stream's end, which the writer is not told.
pub async fn hear(mut reader: StreamReader, to: &mut (impl AsyncWrite + Unpin)) -> Carried {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match reader.read(&mut chunk).await {
            Ok(0) => return Carried::Whole,
            Ok(count) => count,
            Err(error) => return Carried::Broken(error),
        };
        let written = async {
            to.write_all(&chunk[..count]).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return Carried::Left(error);
        }
    }
}

/// Bytes that are carried at a time.
const CHUNK: usize = 256 << 10;
