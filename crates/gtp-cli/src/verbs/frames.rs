//! Frames of a stream: one sent each so often, and how evenly they come.
//!
//! A frame is so many bytes of the stream, one after another; the stream itself knows nothing of
//! them. Whoever receives notes when the last byte of each can be read.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use gtp::frames::{Evenness, Frames, jitter};
use gtp::{Failure, FailureKind, Host, Span};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Interval;

use crate::output::aside;
use crate::words::{count, say_bytes};

/// Frames that are noted at most: 16 MB of times.
const FRAMES_MOST: usize = 1 << 20;

/// A writer whose frames are noted as they come by.
pub struct Watched<'a, W> {
    inner: W,
    host: &'a Host,
    size: u64,
    frames: Frames,
    written: u64,
    /// Frames that did not come: how many, and which, as far as there is room to note it.
    lost: u64,
    gaps: Vec<(u64, u64)>,
}

impl<'a, W> Watched<'a, W> {
    /// Notes frames of `size` bytes by the clock of `host`.
    pub fn new(inner: W, host: &'a Host, size: u64) -> Watched<'a, W> {
        let frames = Frames::of(size).at_most(FRAMES_MOST);
        Watched { inner, host, size, frames, written: 0, lost: 0, gaps: Vec::new() }
    }

    /// `count` frames from number `first` on did not come.
    pub fn note_lost(&mut self, first: u64, count: u64) {
        self.lost += count;
        if self.gaps.len() < FRAMES_MOST {
            self.gaps.push((first, count));
        }
    }

    /// Says how evenly they came, to people and, if there is one, into a file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tell(&self, report: Option<&Path>) -> Result<(), Failure> {
        let intervals = self.frames.intervals(0);
        let frames = count(self.frames.times().len() as u64, "frame");
        match Evenness::of(&intervals) {
            None => aside(format_args!("{frames} of {}", say_bytes(self.size))),
            Some(even) => aside(format_args!(
                "{frames} of {}, one each {}; off by {} (median), {} (99th percentile), {} \
                 (most)",
                say_bytes(self.size),
                millis(even.interval),
                millis(even.deviation),
                millis(even.deviation_p99),
                millis(even.deviation_most)
            )),
        }
        if self.lost > 0 {
            let (lost, gaps) = (count(self.lost, "frame"), count(self.gaps.len() as u64, "gap"));
            aside(format_args!("{lost} did not come, in {gaps}"));
        }
        let Some(path) = report else { return Ok(()) };
        let text = format!("{}\n", self.to_json(&intervals));
        std::fs::write(path, text).map_err(|error| {
            Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
        })
    }

    fn to_json(&self, intervals: &[Span]) -> Value {
        let times = self.frames.times();
        let since = |first| move |at: &gtp::Time| at.since(first).as_secs_f64();
        let at: Vec<f64> = times
            .first()
            .map(|&first| times.iter().map(since(first)).collect())
            .unwrap_or_default();
        let even = Evenness::of(intervals);
        let seconds = |span: Option<Span>| span.map(|span| span.as_secs_f64());
        json!({
            "frame_bytes": self.size,
            "frames": times.len(),
            "frames_lost": self.lost,
            "gaps": self.gaps,
            "interval_median_s": seconds(even.map(|e| e.interval)),
            "deviation_median_s": seconds(even.map(|e| e.deviation)),
            "deviation_p99_s": seconds(even.map(|e| e.deviation_p99)),
            "deviation_most_s": seconds(even.map(|e| e.deviation_most)),
            "jitter_s": jitter(intervals),
            "at_s": at,
        })
    }
}

fn millis(span: Span) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1e3)
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Watched<'_, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (now, readable) = (self.host.now(), self.written + bytes.len() as u64);
        self.frames.note(now, readable);
        let count = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.written += count as u64;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A reader that gives one frame each so often.
pub struct Paced<R> {
    inner: R,
    size: u64,
    /// Bytes of the present frame that are still to be given.
    left: u64,
    every: Option<Interval>,
    chunk: Box<[u8]>,
}

impl<R> Paced<R> {
    /// Frames of `size` bytes, one each `every`, or as they are wanted.
    pub fn new(inner: R, size: u64, every: Option<Duration>) -> Paced<R> {
        let chunk = vec![0; CHUNK].into_boxed_slice();
        Paced { inner, size, left: 0, every: every.map(tokio::time::interval), chunk }
    }
}

/// Bytes that are read at a time.
const CHUNK: usize = 64 << 10;

impl<R: AsyncRead + Unpin> AsyncRead for Paced<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left == 0 {
            if let Some(every) = &mut this.every {
                ready!(every.poll_tick(cx));
            }
            this.left = this.size;
        }
        let room = out.remaining().min(this.chunk.len()) as u64;
        let mut part = ReadBuf::new(&mut this.chunk[..room.min(this.left) as usize]);
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut part))?;
        this.left -= part.filled().len() as u64;
        out.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn frames_come_one_after_another_with_all_their_bytes_in_order() {
        let content: Vec<u8> = (0..250_000_u32).map(|n| n as u8).collect();
        for every in [None, Some(Duration::from_millis(1))] {
            let mut paced = Paced::new(&content[..], 100_000, every);
            let (mut read, mut chunk) = (Vec::new(), vec![0; 300_000]);
            loop {
                let count = paced.read(&mut chunk).await.expect("bytes");
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&chunk[..count]);
                let begun = read.len() - count;
                assert_eq!(begun / 100_000, (read.len() - 1) / 100_000, "not beyond a frame");
            }
            assert!(read == content);
        }
    }
}
