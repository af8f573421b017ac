//! The near end of `gtp ssh`: this process's standard streams, and the command at the other end.
//!
//! Standard input is read on a thread of its own, which a read that never returns holds up alone.
//! Each output has a queue of some size, so that a reader of one may rest without the other.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use gtp::{Line, Stream, StreamReader, StreamWriter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::frames::{self, End, Frame, INPUT_MOST, Output};
use crate::verbs::unhurried::Unhurried;

/// Where the command's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// From this process's.
    Own,
    /// It is empty.
    None,
}

/// Starts the command and carries its standard streams until it has ended.
///
/// # Errors
/// Why the connection broke before the command's end was known.
pub async fn carry(stream: Stream, command: Vec<u8>, input: Input) -> io::Result<End> {
    let (reader, writer, line) = stream.into_split();
    let (tell, told) = mpsc::channel(WAITING);
    let telling = tokio::spawn(write(writer, told));
    // A writer that has failed shows in what is read.
    let _ = tell.send(Frame::Start(command)).await;
    let room = Arc::new(Semaphore::new(INPUT_MOST));
    let feeding = match input {
        Input::Own => tokio::spawn(feed(read_input(), Arc::clone(&room), tell.clone())),
        Input::None => {
            let (_, nothing) = mpsc::channel(1);
            tokio::spawn(feed(nothing, Arc::clone(&room), tell.clone()))
        }
    };
    let mut outputs = Outputs::open(&tell)?;
    let ended = hear(reader, &mut outputs, &room, &feeding).await;
    let written = outputs.close().await;
    feeding.abort();
    // With its queue it says the end of what is said here.
    telling.abort();
    match ended {
        Ok(Some(end)) => {
            // The far end waits for a word; it does without if it must.
            let _ = timeout(LAST_WORD_SPAN, line.over()).await;
            written.map(|()| end)
        }
        Ok(None) => Err(why(&line, "the far end ended before the command")),
        Err(error) => Err(why(&line, &error.to_string())),
    }
}

fn why(line: &Line, otherwise: &str) -> io::Error {
    io::Error::other(line.why().unwrap_or(otherwise).to_owned())
}

/// Takes in what the far end says, up to the command's end.
async fn hear(
    reader: StreamReader,
    outputs: &mut Outputs,
    room: &Semaphore,
    feeding: &JoinHandle<()>,
) -> io::Result<Option<End>> {
    let mut reader = BufReader::with_capacity(READ_AHEAD, reader);
    while let Some(frame) = frames::read(&mut reader).await? {
        match frame {
            Frame::Output(which, bytes) => outputs.of(which).add(bytes).await,
            Frame::Taken(bytes) => {
                let most = INPUT_MOST - room.available_permits().min(INPUT_MOST);
                room.add_permits((bytes as usize).min(most));
            }
            Frame::InputUnread => feeding.abort(),
            Frame::End(end) => return Ok(Some(end)),
            Frame::Start(_) | Frame::Input(_) | Frame::InputEnd | Frame::Unread(_) => {
                return Err(frames::no_frame());
            }
        }
    }
    Ok(None)
}

/// Writes frames until it is aborted, which says the end.
async fn write(mut writer: StreamWriter, mut told: mpsc::Receiver<Frame>) {
    while let Some(frame) = told.recv().await {
        if writer.write_all(&frame.encode()).await.is_err() {
            return;
        }
    }
}

/// Passes standard input on, as far as the far end has room, and says its end.
async fn feed(mut input: mpsc::Receiver<Vec<u8>>, room: Arc<Semaphore>, tell: mpsc::Sender<Frame>) {
    while let Some(bytes) = input.recv().await {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Ok(taken) = room.acquire_many(length).await else { return };
        taken.forget();
        if tell.send(Frame::Input(bytes)).await.is_err() {
            return;
        }
    }
    // The connection may have broken.
    let _ = tell.send(Frame::InputEnd).await;
}

/// What standard input brings, to its end.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (to, input) = mpsc::channel(1);
    let reading = std::thread::Builder::new().name("gtp-input".into());
    let read = move || {
        let mut chunk = vec![0; CHUNK];
        while let Ok(count @ 1..) = read_patiently(&mut chunk) {
            if to.blocking_send(chunk[..count].to_vec()).is_err() {
                return;
            }
        }
    };
    // Without a thread the input is empty.
    if let Err(error) = reading.spawn(read) {
        tracing::warn!(%error, "standard input cannot be read");
    }
    input
}

/// Reads standard input, also where another process that holds it has set it not to block.
fn read_patiently(into: &mut [u8]) -> rustix::io::Result<usize> {
    let input = io::stdin();
    loop {
        match rustix::io::read(&input, &mut *into) {
            Err(Errno::AGAIN) => match poll(&mut [PollFd::new(&input, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            },
            Err(Errno::INTR) => {}
            read => return read,
        }
    }
}

/// Both outputs of the command.
struct Outputs {
    out: Sink,
    error: Sink,
}

/// One output: a queue, and the task that writes what is in it.
struct Sink {
    queue: mpsc::Sender<Vec<u8>>,
    writing: JoinHandle<io::Result<()>>,
}

impl Outputs {
    fn open(tell: &mpsc::Sender<Frame>) -> io::Result<Outputs> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let error = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Ok(Outputs {
            out: Sink::open(Output::Out, out, tell.clone()),
            error: Sink::open(Output::Error, error, tell.clone()),
        })
    }

    fn of(&self, which: Output) -> &Sink {
        match which {
            Output::Out => &self.out,
            Output::Error => &self.error,
        }
    }

    /// Waits until all is written.
    async fn close(self) -> io::Result<()> {
        let (out, error) = (self.out.close().await, self.error.close().await);
        out.and(error)
    }
}

impl Sink {
    fn open(which: Output, to: File, tell: mpsc::Sender<Frame>) -> Sink {
        let (queue, mut waiting) = mpsc::channel::<Vec<u8>>(QUEUED);
        let writing = tokio::spawn(async move {
            let mut to = Unhurried::to(to);
            let written = async {
                while let Some(bytes) = waiting.recv().await {
                    to.write_all(&bytes).await?;
                    to.flush().await?;
                }
                Ok(())
            };
            let written: io::Result<()> = written.await;
            if let Err(error) = &written {
                // The command learns by its next write.
                let _ = tell.send(Frame::Unread(which)).await;
                while waiting.recv().await.is_some() {}
                if error.kind() == io::ErrorKind::BrokenPipe {
                    return Ok(());
                }
            }
            written
        });
        Sink { queue, writing }
    }

    async fn add(&self, bytes: Vec<u8>) {
        // It takes everything until it is closed.
        let _ = self.queue.send(bytes).await;
    }

    async fn close(self) -> io::Result<()> {
        drop(self.queue);
        self.writing.await.map_err(io::Error::other)?
    }
}

/// Bytes of standard input that are carried at a time: what a pipe holds.
const CHUNK: usize = 64 << 10;

/// Bytes that are read from the stream at a time.
const READ_AHEAD: usize = 256 << 10;

/// Frames that wait for the stream.
const WAITING: usize = 4;

/// Frames of an output that wait for its reader: 2 MiB, as in OpenSSH.
const QUEUED: usize = 32;

/// Time for the far end to hear that all is here.
const LAST_WORD_SPAN: Duration = Duration::from_secs(1);
