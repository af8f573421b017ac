//! One sender, several receivers without a group: the same bytes, or frames, to all.
//!
//! Bytes arrive everywhere, so the slowest receiver sets the pace. Frames do not wait: a receiver
//! that has no room for one misses it, and slows nobody. One that is gone is left out, and the
//! others go on.

use std::io;

use gtp::{Failure, FailureKind, FrameStream, FrameWriter, Host, Line, Stream, StreamWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::frames::Paced;
use super::stream::{broken, connect, delivery, local, of_the_far_end, say_if_carried};
use crate::args::StreamArgs;
use crate::output::aside;
use crate::words::count;

/// Bytes that are carried at a time.
const CHUNK: usize = 256 << 10;

/// One receiver.
struct Receiver {
    shown: String,
    writer: Option<Writer>,
    line: Line,
    dropped: u64,
    gone: Option<Failure>,
}

enum Writer {
    Bytes(StreamWriter),
    Frames(FrameWriter),
}

/// Sends standard input to all addresses.
///
/// # Errors
/// [`Failure`]; of kind `Partial` if some have got all and others are gone.
pub async fn send(args: &StreamArgs, host: &Host) -> Result<(), Failure> {
    let mut receivers = call(args, host).await?;
    let input = tokio::io::stdin();
    let frame = args.frames.filter(|_| args.unreliable);
    let said = match args.frames {
        Some(size) => say(Paced::new(input, size, args.frame_every), frame, &mut receivers).await,
        None => say(input, None, &mut receivers).await,
    };
    said.map_err(local)?;
    receivers.iter_mut().for_each(Receiver::end);
    for receiver in &mut receivers {
        receiver.over().await;
    }
    judge(&receivers)
}

/// Calls all receivers at once.
async fn call(args: &StreamArgs, host: &Host) -> Result<Vec<Receiver>, Failure> {
    let mut calling = JoinSet::new();
    for (number, url) in args.urls.iter().enumerate() {
        let (connect, host) = (connect(args, url)?, host.clone());
        let shown = url.to_string();
        let frames = args.unreliable.then(|| delivery(args));
        calling.spawn(async move {
            let opened = match frames {
                None => connect.start(&host).await.map(of_bytes),
                Some(delivery) => connect.start_frames(&host, delivery).await.map(of_frames),
            };
            // What was opened breaks off with its receiver, even if another one cannot be reached.
            (number, opened.map(|opened| Receiver::new(shown, opened)))
        });
    }
    let mut opened: Vec<Option<Receiver>> = args.urls.iter().map(|_| None).collect();
    while let Some(called) = calling.join_next().await {
        let (number, called) = called.map_err(super::other)?;
        let called = called.map_err(|failure| of_the_far_end(failure).about(&args.urls[number]));
        opened[number] = Some(called?);
    }
    let receivers: Vec<Receiver> = opened.into_iter().flatten().collect();
    receivers.iter().for_each(|receiver| say_if_carried(&receiver.line));
    Ok(receivers)
}

fn of_bytes(stream: Stream) -> (Writer, Line) {
    let (_, writer, line) = stream.into_split();
    (Writer::Bytes(writer), line)
}

fn of_frames(FrameStream { writer, line, .. }: FrameStream) -> (Writer, Line) {
    (Writer::Frames(writer), line)
}

/// Says all there is to all receivers, in frames of this length if there is one; fails if the
/// reader does.
async fn say(
    mut from: impl AsyncRead + Unpin,
    frame: Option<u64>,
    receivers: &mut [Receiver],
) -> io::Result<()> {
    let most = frame.unwrap_or(CHUNK as u64);
    let mut content = Vec::with_capacity(most.min(CHUNK as u64) as usize);
    while receivers.iter().any(|receiver| receiver.gone.is_none()) {
        content.clear();
        let read = match frame {
            Some(_) => (&mut from).take(most).read_to_end(&mut content).await?,
            None => (&mut from).take(most).read_buf(&mut content).await?,
        };
        if read == 0 {
            break;
        }
        for receiver in receivers.iter_mut().filter(|receiver| receiver.gone.is_none()) {
            receiver.take(&content).await;
        }
    }
    Ok(())
}

impl Receiver {
    fn new(shown: String, (writer, line): (Writer, Line)) -> Self {
        Receiver { shown, writer: Some(writer), line, dropped: 0, gone: None }
    }

    /// Gives it what was read. Bytes wait for room; each receiver has a window of its own, so one
    /// that is behind holds the others up only once that is full.
    async fn take(&mut self, content: &[u8]) {
        let taken = match &mut self.writer {
            None => return,
            Some(Writer::Bytes(writer)) => writer.write_all(content).await.map(|()| true),
            Some(Writer::Frames(writer)) => writer.offer(content),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => self.dropped += 1,
            Err(error) => {
                let failure = broken(error);
                aside(format_args!("gtp: {} is gone: {failure}", self.shown));
                self.gone = Some(failure);
                self.abandon();
            }
        }
    }

    /// Says the end.
    fn end(&mut self) {
        match self.writer.take() {
            None => {}
            Some(Writer::Bytes(writer)) => writer.finish(),
            Some(Writer::Frames(writer)) => writer.finish(),
        }
    }

    /// Waits until it has all, unless it is gone.
    async fn over(&mut self) {
        if self.gone.is_some() {
            return;
        }
        self.line.over().await;
        if !self.line.standing().delivered {
            let why = self.line.why().unwrap_or("the connection broke before it had all");
            self.gone = Some(Failure::new(FailureKind::Temporary, why));
        }
        if self.dropped > 0 {
            let dropped = count(self.dropped, "frame");
            aside(format_args!("{}: {dropped} dropped: the way had no room", self.shown));
        }
    }

    /// Breaks the connection off without an end.
    fn abandon(&mut self) {
        match self.writer.take() {
            None => {}
            Some(Writer::Bytes(writer)) => writer.abandon(),
            Some(Writer::Frames(writer)) => writer.abandon(),
        }
        self.line.abort();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Whoever stops in the middle has said no end.
        if self.writer.is_some() {
            self.abandon();
        }
    }
}

/// How the command ends, by what became of its receivers.
fn judge(receivers: &[Receiver]) -> Result<(), Failure> {
    let gone: Vec<&Receiver> = receivers.iter().filter(|one| one.gone.is_some()).collect();
    let words: Vec<String> = gone
        .iter()
        .filter_map(|one| one.gone.as_ref().map(|why| format!("{}: {}", one.shown, why.text)))
        .collect();
    match gone.first().and_then(|one| one.gone.as_ref()) {
        None => Ok(()),
        Some(first) if gone.len() == receivers.len() => {
            Err(Failure { text: words.join("; "), ..first.clone() })
        }
        Some(_) => Err(Failure::new(FailureKind::Partial, words.join("; "))),
    }
}
