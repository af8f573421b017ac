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
/// the reader fails no end is said, and the caller breaks the connection off.
pub async fn say(mut from: impl AsyncRead + Unpin, mut writer: StreamWriter) -> Carried {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut chunk).await {
            Ok(0) => {
                writer.finish();
                return Carried::Whole;
            }
            Ok(count) => count,
            Err(error) => {
                // No end was read, so none is said.
                writer.abandon();
                return Carried::Left(error);
            }
        };
        if let Err(error) = writer.write_all(&chunk[..count]).await {
            return Carried::Broken(error);
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
        if let Err(error) = to.write_all(&chunk[..count]).await {
            return Carried::Left(error);
        }
    }
}

/// Bytes that are carried at a time.
const CHUNK: usize = 256 << 10;
