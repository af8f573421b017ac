//! Carrying bytes between a stream and whatever else reads and writes.
//!
//! Each direction ends in one of three ways, which whoever carries must tell apart: the end was
//! said, the stream broke, or the local side did.

use std::io;

use gtp_net::stream::{Frame, FrameReader, FrameWriter, StreamReader, StreamWriter, Unended};
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
    let mut unended = Unended::new(writer);
    let mut chunk = vec![0; CHUNK];
    while let Some(writer) = unended.get_mut() {
        let count = match from.read(&mut chunk).await {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Carried::Left(error),
        };
        if let Err(error) = writer.write_all(&chunk[..count]).await {
            return Carried::Broken(error);
        }
    }
    unended.finish();
    Carried::Whole
}

/// Carries frames of `size` bytes from a local reader to the peer; what is left at its end makes
/// the last one. Otherwise as [`say`].
pub async fn say_frames(
    mut from: impl AsyncRead + Unpin,
    writer: FrameWriter,
    size: u64,
) -> Carried {
    let mut unended = Unended::new(writer);
    let mut frame = Vec::new();
    while let Some(writer) = unended.get_mut() {
        frame.clear();
        match (&mut from).take(size).read_to_end(&mut frame).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Carried::Left(error),
        }
        if let Err(error) = writer.write(&frame).await {
            return Carried::Broken(error);
        }
    }
    unended.finish();
    Carried::Whole
}

/// Carries frames from the peer to a local writer, which `lost` makes hear of those that did not
/// come: the first one's number, and how many.
pub async fn hear_frames<W: AsyncWrite + Unpin>(
    reader: FrameReader,
    to: &mut W,
    mut lost: impl FnMut(&mut W, u64, u64),
) -> Carried {
    loop {
        let bytes = match reader.read().await {
            Ok(None) => return Carried::Whole,
            Ok(Some(Frame::Whole { bytes, .. })) => bytes,
            Ok(Some(Frame::Lost { first, count })) => {
                lost(to, first, count);
                continue;
            }
            Err(error) => return Carried::Broken(error),
        };
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return Carried::Left(error);
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
