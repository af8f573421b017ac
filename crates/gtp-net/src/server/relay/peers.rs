//! The sinks from which a sink reads: a line to each, made anew when it breaks.
//!
//! Each line has a task that connects, shows the client's ticket, and tells what the other one has.
//! It connects within the ranges that the operator has named and to nobody else. A line that cannot
//! be, or is in vain a few times in a row, ends and gives its place back. This module must not know
//! what is done with the blocks, nor whom to believe.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::client::connect::{Granted, Units, ask, reach};
use crate::client::{Endpoint, Terms, Tickets, Url, back_off};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::engine::SessionOpen;
use crate::flows::{Failure, FailureKind};
use crate::messages::{Done, Message, RelayId, Verb};
use crate::relaying::Failing;
use crate::server::fetch::Source;

/// What a line tells.
pub(in crate::server) enum Report {
    /// The other one has opened a session.
    Ready(Box<SessionOpen>),
    /// It has these blocks, beside those that it has said before.
    Have(Vec<Range<u64>>),
    /// The line is lost, and with it what the other one has; it may be made anew.
    Gone,
    /// The line has ended by itself, for this reason.
    Out(Failure, Failing),
}

/// What a line is told.
#[derive(Clone, Copy, Debug)]
enum Word {
    /// Its data session is lost.
    Lost,
    /// Nothing is lacking any more.
    Done,
}

/// A line to another sink. Dropped, it is broken off.
pub(super) struct Line {
    tickets: Arc<Tickets>,
    url: Url,
    words: mpsc::Sender<Word>,
    /// Nothing once it ends by itself.
    task: Option<JoinHandle<()>>,
    /// Its place among the connections to other servers.
    _held: OwnedSemaphorePermit,
}

impl Line {
    /// Connects to the other sink as the source of an object.
    pub fn to(
        source: Source,
        (number, transfer): (u32, RelayId),
        (endpoint, held): (Arc<Endpoint>, OwnedSemaphorePermit),
        terms: Terms,
        reports: mpsc::Sender<(u32, Report)>,
    ) -> Line {
        let url = source.url.clone();
        let tickets = Arc::new(Tickets::new(HashMap::from([(url.clone(), source.ticket)])));
        let terms = Terms { tickets: Some(Arc::clone(&tickets)), ..terms };
        let (words, told) = mpsc::channel(2);
        let tending = Tending { url: url.clone(), transfer, number, endpoint, terms, reports };
        let task = Some(tokio::spawn(tending.run(told)));
        Line { tickets, url, words, task, _held: held }
    }

    /// Shows a newer ticket from now on.
    pub fn renew(&self, ticket: Vec<u8>) {
        self.tickets.replace(HashMap::from([(self.url.clone(), ticket)]));
    }

    /// How people name the other sink.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The data session of the line is lost.
    pub fn note_lost(&self) {
        // One word of it is enough.
        let _ = self.words.try_send(Word::Lost);
    }

    /// Nothing is lacking any more: says so to the other sink, and ends.
    pub fn finish(mut self) {
        if self.words.try_send(Word::Done).is_ok() {
            self.task = None;
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

struct Tending {
    url: Url,
    transfer: RelayId,
    number: u32,
    endpoint: Arc<Endpoint>,
    terms: Terms,
    reports: mpsc::Sender<(u32, Report)>,
}

impl Tending {
    async fn run(self, mut words: mpsc::Receiver<Word>) {
        let mut tries = 0;
        loop {
            let failure = match self.attempt(&mut words, &mut tries).await {
                Ok(Word::Done) => return,
                Ok(Word::Lost) => Failure::new(FailureKind::Temporary, "its datagrams are lost"),
                Err(failure) => failure,
            };
            if is_final(&failure) {
                return self.tell(Report::Out(failure, Failing::ForGood)).await;
            }
            tries += 1;
            if tries >= TRIES_MOST {
                return self.tell(Report::Out(failure, Failing::ForNow)).await;
            }
            tracing::debug!(url = %self.url, %failure, "a relay is tried again");
            self.tell(Report::Gone).await;
            tokio::select! {
                () = tokio::time::sleep(back_off(tries - 1)) => {}
                () = done(&mut words) => return,
            }
        }
    }

    /// Opens a session, and hears what the other one has until the session is over.
    async fn attempt(
        &self,
        words: &mut mpsc::Receiver<Word>,
        tries: &mut u32,
    ) -> Result<Word, Failure> {
        let opened = tokio::select! {
            opened = self.open() => opened?,
            () = done(words) => return Ok(Word::Done),
        };
        let Granted { mut channel, session, .. } = opened;
        self.tell(Report::Ready(Box::new(session))).await;
        let mut keepalive = interval(KEEPALIVE_SPAN);
        loop {
            let message = tokio::select! {
                message = channel.recv() => message?,
                word = words.recv() => return Ok(leave(channel, word).await),
                _ = keepalive.tick() => {
                    channel.send(&Message::Keepalive).await?;
                    continue;
                }
            };
            match message {
                Message::RelayHave(have) => {
                    *tries = 0;
                    self.tell(Report::Have(have.blocks.0)).await;
                }
                Message::Unheard => {}
                Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                other => {
                    let text = format!("message {}", other.name());
                    return Err(ControlError::Unexpected(text).into());
                }
            }
        }
    }

    async fn open(&self) -> Result<Granted, Failure> {
        let channel = reach(&self.endpoint, &self.url, &self.terms).await?;
        let verb = Verb::Relay { path: self.url.path().to_vec(), transfer: self.transfer };
        let on = (&self.terms, Units::Ordinary);
        ask(channel, &self.endpoint, &self.url, verb, on, &|| {}).await
    }

    async fn tell(&self, report: Report) {
        // Whoever does not listen any more drops the line.
        let _ = self.reports.send((self.number, report)).await;
    }
}

/// Takes leave of the other sink, for this reason; a line that nobody holds any more is done.
async fn leave(mut channel: ControlChannel, word: Option<Word>) -> Word {
    let word = word.unwrap_or(Word::Done);
    let message = match word {
        Word::Lost => Message::Cancel,
        Word::Done => Message::Done(Done::NOTHING),
    };
    let farewell = async {
        if channel.send(&message).await.is_ok() {
            channel.close().await;
        }
    };
    let _ = tokio::time::timeout(FAREWELL_SPAN, farewell).await;
    word
}

/// Waits until nothing is lacking any more. What is lost meanwhile was lost before.
async fn done(words: &mut mpsc::Receiver<Word>) {
    while let Some(Word::Lost) = words.recv().await {}
}

/// Whether another try cannot help: the other host is out of reach for good, or does not relay.
fn is_final(failure: &Failure) -> bool {
    match failure.kind {
        FailureKind::Destination
        | FailureKind::Authentication
        | FailureKind::OutsideHours
        | FailureKind::Quota
        | FailureKind::Revoked
        | FailureKind::Usage => true,
        FailureKind::Temporary
        | FailureKind::Unreachable
        | FailureKind::NoUdpPath
        | FailureKind::Missing
        | FailureKind::Integrity
        | FailureKind::TimeLimit
        | FailureKind::Interrupted
        | FailureKind::Other
        | FailureKind::Partial => false,
    }
}

/// Tries in a row that bring nothing, after which a line ends: some eight seconds of pauses.
const TRIES_MOST: u32 = 6;

/// How long telling another sink that nothing more is wanted may take.
const FAREWELL_SPAN: Duration = Duration::from_secs(1);
