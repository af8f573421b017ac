//! A probe over a stream of frames: each end sends what it is to send, and counts what comes.
//!
//! The server tells once a second how far it is, and ten times more when it has seen the end, since
//! each of its frames may be lost. The client believes the last word.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::pace::{self, Pace};
use super::said::{Sent, Word};
use super::schedule::WARM_UP_MOST;
use super::tally::{Came, Seen, Tally};
use super::wall::Wall;
use crate::stream::{Frame, FrameReader, FrameStream, FrameWriter};

/// What one end of a probe does.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// What it sends; nothing if it only counts.
    pub sends: Option<Pace>,
    /// Which end it is.
    pub end: End,
    /// How long frames count.
    pub span: Duration,
}

/// The ends of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It hears what the other end saw.
    Client,
    /// It tells what it sees.
    Server,
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What this end sent.
    pub sent: Sent,
    /// What this end saw of the other end's frames.
    pub seen: Seen,
    /// The last word of the other end: what it sent, and what it saw.
    pub told: Option<(Sent, Seen)>,
}

/// Runs one end to its end; `show` hears once a second how far it is.
///
/// # Errors
/// As the stream broke; `TimedOut` if the other end does not come to an end; `InvalidData` if it
/// says what no probe says.
pub async fn run(
    stream: FrameStream,
    asked: Asked,
    show: &(dyn Fn(Outcome) + Sync),
) -> io::Result<Outcome> {
    let late = asked.span + gtp_sys::clock::duration(WARM_UP_MOST) + END_SPAN;
    timeout(late, exchange(stream, asked, show)).await.unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, "the probe has not come to its end"))
    })
}

async fn exchange(
    stream: FrameStream,
    asked: Asked,
    show: &(dyn Fn(Outcome) + Sync),
) -> io::Result<Outcome> {
    let FrameStream { reader, writer, line } = stream;
    let (writer, noted) = (Arc::new(writer), Arc::new(Noted::default()));
    let sending = Sending::start(&writer, &noted, asked.sends);
    let outcome = match asked.end {
        End::Client => {
            let ends = async {
                sending.wait().await?;
                writer.finish();
                Ok(())
            };
            let both = async { tokio::try_join!(hear(&reader, &noted), ends) };
            let (told, ()) = tokio::select! {
                ended = both => ended?,
                broken = report(&noted, show, None) => return Err(broken),
            };
            noted.outcome(told)
        }
        End::Server => {
            let both = async { tokio::try_join!(hear(&reader, &noted), sending.wait()) };
            tokio::select! {
                ended = both => ended?,
                broken = report(&noted, show, Some(&writer)) => return Err(broken),
            };
            noted.lock().0.is_done = true;
            for _ in 0..LAST_WORDS {
                tell(&writer, &noted)?;
                sleep(LAST_WORD_SPAN).await;
            }
            writer.finish();
            noted.outcome(None)
        }
    };
    // The other end waits for this end's word that it has all.
    let _ = timeout(PARTING_SPAN, line.over()).await;
    Ok(outcome)
}

/// What an end has sent and seen so far.
#[derive(Default)]
struct Noted(Mutex<(Sent, Tally)>);

impl Noted {
    fn lock(&self) -> MutexGuard<'_, (Sent, Tally)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcome(&self, told: Option<(Sent, Seen)>) -> Outcome {
        let noted = self.lock();
        Outcome { sent: noted.0, seen: noted.1.seen(), told }
    }
}

/// The thread that sends, which ends with whoever waits for it.
struct Sending {
    thread: Option<tokio::task::JoinHandle<io::Result<Sent>>>,
    stop: Arc<AtomicBool>,
}

impl Sending {
    fn start(writer: &Arc<FrameWriter>, noted: &Arc<Noted>, pace: Option<Pace>) -> Sending {
        let stop = Arc::new(AtomicBool::new(false));
        let (writer, noted, told) = (Arc::clone(writer), Arc::clone(noted), Arc::clone(&stop));
        let thread = pace.map(|pace| {
            tokio::task::spawn_blocking(move || {
                pace::send(&writer, pace, &told, &|sent| noted.lock().0 = sent)
            })
        });
        Sending { thread, stop }
    }

    async fn wait(mut self) -> io::Result<()> {
        match self.thread.take() {
            Some(thread) => thread.await.map_err(io::Error::other)?.map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Counts what comes, up to the end of the stream; returns the other end's last word.
async fn hear(reader: &FrameReader, noted: &Noted) -> io::Result<Option<(Sent, Seen)>> {
    let (wall, mut last) = (Wall::now(), None);
    while let Some(frame) = reader.read().await? {
        // A fast probe always has a next frame.
        tokio::task::consume_budget().await;
        let Frame::Whole { bytes, came, .. } = frame else { continue };
        let overtaken = came.overtaken;
        match Word::read(&bytes) {
            Some(Word::WarmUp) => {}
            Some(Word::Counted { sent_ns }) => {
                noted.lock().1.note(Came { sent_ns, came_ns: wall.of(came.at), overtaken });
            }
            Some(Word::Standing(sent, seen)) => last = Some((sent, seen)),
            None => {
                let text = "the other end sent a frame that is none of a probe's";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
        }
    }
    Ok(last)
}

/// Shows once a second how far this end is, and tells the other end if there is a writer; ends only
/// with an error.
async fn report(
    noted: &Noted,
    show: &(dyn Fn(Outcome) + Sync),
    writer: Option<&FrameWriter>,
) -> io::Error {
    loop {
        sleep(TELL_SPAN).await;
        show(noted.outcome(None));
        if let Some(Err(broken)) = writer.map(|writer| tell(writer, noted)) {
            return broken;
        }
    }
}

/// Tells how far this end is, if there is room for the frame.
fn tell(writer: &FrameWriter, noted: &Noted) -> io::Result<()> {
    let Outcome { sent, seen, .. } = noted.outcome(None);
    let mut frame = Vec::new();
    Word::Standing(sent, seen).write(0, &mut frame);
    writer.offer(&frame).map(drop)
}

/// Time between two words on how far an end is.
const TELL_SPAN: Duration = Duration::from_secs(1);

/// How often the last word is said, and the time between two of them.
const LAST_WORDS: u32 = 10;
const LAST_WORD_SPAN: Duration = Duration::from_millis(20);

/// Time for the ends to part.
const PARTING_SPAN: Duration = Duration::from_secs(5);

/// Time for all that is not counted: opening the path, and what is under way at the end.
const END_SPAN: Duration = Duration::from_secs(20);
