//! Sends a file whose length nobody knows before its end: standard input, say.
//!
//! A stream carries it, and the server gives the file its name when the stream's end is there. What
//! was read once cannot be read again, so a connection that breaks later is not made anew. An input
//! that fails, and a transfer that is stopped before the end has been sent, leave nothing at the
//! server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gtp_alloc::{Span, Time};
use gtp_store::RootKind;
use gtp_sys::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::MissedTickBehavior;

use super::progress::{Event, Outcome, Progress, SourceShare};
use super::{Endpoint, LOOK_SPAN, Monitor, Terms, Udp, Url, back_off, stopped};
use crate::engine::{Law, Way};
use crate::flows::{Failure, FailureKind};
use crate::messages::{PATH_MAX, PUT_SERVICE};
use crate::stream::{
    Breaking, Line, Stream, StreamReader, StreamWriter, Unended, Verdict, WINDOW, connect_to,
};

/// Where the bytes of a stream come from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// A stream to be sent, and the file that it becomes.
pub struct PourRequest {
    /// What is read, to its end.
    pub input: Input,
    /// The server, and the path of the file there.
    pub url: Url,
    /// On what terms.
    pub terms: Terms,
}

/// Sends what is read to a server, which makes a file of it. Dropping the future gives it up:
/// unless the end of the input has been sent by then, nothing is kept.
///
/// # Errors
/// [`FailureKind::Usage`] if the address is a directory's or the control law is not for streams,
/// [`FailureKind::Missing`] if the input cannot be read, [`FailureKind::Destination`] if the server
/// cannot write the file, and whatever connecting fails by.
pub async fn pour(
    endpoint: Arc<Endpoint>,
    request: PourRequest,
    monitor: Monitor,
) -> Result<Outcome, Failure> {
    let PourRequest { input, url, terms } = request;
    check(&url, &terms)?;
    let clock = endpoint.host().clock();
    let (began, udp) = (clock.now(), terms.udp);
    let pouring = Pouring { endpoint, url, udp, monitor, clock, began };
    let (mut stop, said) = (pouring.monitor.stop.clone(), Said::default());
    let begun = tokio::select! {
        begun = pouring.connect(&terms) => begun?,
        kind = stopped(&mut stop) => return Err(said.failure(kind, STOPPED)),
    };
    let Begun { reader, writer, breaking, line } = begun;
    pouring.tell_started();
    let poured = tokio::select! {
        poured = pouring.run(reader, say(input, writer, &said), &line, &said) => poured,
        kind = stopped(&mut stop) => Err(said.failure(kind, STOPPED)),
    };
    match poured {
        Ok(bytes) => {
            breaking.keep();
            Ok(pouring.outcome(&line, bytes))
        }
        Err(failure) => {
            drop(breaking);
            // The server hears why before this process may end.
            line.over().await;
            Err(failure)
        }
    }
}

/// Refuses what no stream can do before anybody is asked.
fn check(url: &Url, terms: &Terms) -> Result<(), Failure> {
    let usage = |text: &str| Failure::new(FailureKind::Usage, text);
    if url.names_directory() {
        return Err(usage("a stream has no name: write the file's behind the directory"));
    }
    if url.path().len() > PATH_MAX {
        return Err(usage("the path is too long"));
    }
    match terms.law {
        Law::Grant | Law::EndNode { .. } => Ok(()),
        Law::Gtp2004
        | Law::Rbudp(_)
        | Law::Sabul(_)
        | Law::Tsunami(_)
        | Law::LambdaStream { .. } => {
            Err(usage("a stream to a file takes --control grant or endnode"))
        }
    }
}

/// A connection on which no end has been said. Dropped, it is abandoned and broken off.
struct Begun {
    reader: StreamReader,
    writer: Unended<StreamWriter>,
    breaking: Breaking,
    line: Line,
}

impl Begun {
    fn new(stream: Stream) -> Begun {
        let (reader, writer, line) = stream.into_split();
        let (writer, breaking) = (Unended::new(writer), Breaking::new(&line));
        Begun { reader, writer, breaking, line }
    }
}

struct Pouring {
    endpoint: Arc<Endpoint>,
    url: Url,
    udp: Udp,
    monitor: Monitor,
    clock: Clock,
    began: Time,
}

impl Pouring {
    /// Connects, and tries again for as long as patience lasts: nothing has been read so far.
    async fn connect(&self, terms: &Terms) -> Result<Begun, Failure> {
        let service = [PUT_SERVICE, self.url.path()].concat();
        let mut tries = 0;
        loop {
            let failure = match self.attempt(terms, &service).await {
                Ok(begun) => return Ok(begun),
                Err(failure) => failure,
            };
            let quiet = gtp_sys::clock::duration(self.clock.now().since(self.began));
            if !failure.is_temporary() || quiet > terms.patience {
                return Err(failure);
            }
            tries += 1;
            let pause = back_off(tries);
            let after = Span::from_nanos(pause.as_nanos() as u64);
            self.monitor.tell(Event::Retry { url: self.url.to_string(), failure, after });
            // Nothing tells when the server can be reached again.
            tokio::time::sleep(pause).await;
        }
    }

    /// Connects, and waits until datagrams get through.
    async fn attempt(&self, terms: &Terms, service: &[u8]) -> Result<Begun, Failure> {
        let stream = connect_to(&self.endpoint, &self.url, service, terms, WINDOW).await?;
        let begun = Begun::new(stream);
        match begun.line.opened().await {
            true => Ok(begun),
            false => Err(broke(&begun.line)),
        }
    }

    fn tell_started(&self) {
        self.monitor.tell(Event::Started {
            destination: self.url.to_string(),
            kind: RootKind::File,
            files: 1,
            bytes: 0,
        });
    }

    /// Waits until the input is sent and the file is in place, and returns its bytes.
    async fn run(
        &self,
        mut reader: StreamReader,
        saying: impl Future<Output = Result<(), Unsaid>>,
        line: &Line,
        said: &Said,
    ) -> Result<u64, Failure> {
        let mut look = tokio::time::interval(LOOK_SPAN);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut saying = std::pin::pin!(saying);
        let mut hearing = std::pin::pin!(Verdict::hear(&mut reader));
        let (mut is_saying, mut way) = (true, Way::Udp);
        let verdict = loop {
            tokio::select! {
                ended = &mut saying, if is_saying => match ended {
                    Err(Unsaid::Input(error)) => return Err(unread(&error)),
                    // Of a break the server may have said why.
                    Ok(()) | Err(Unsaid::Broken) => is_saying = false,
                },
                heard = &mut hearing => break heard,
                _ = look.tick() => self.look(line, said.bytes(), &mut way),
            }
        };
        // A short input is sent before there is time to look.
        self.look(line, said.bytes(), &mut way);
        match verdict {
            Ok(Verdict::InPlace) if said.has_ended() => Ok(said.bytes()),
            Ok(Verdict::Failed(why)) => Err(Failure::new(FailureKind::Destination, why)),
            Ok(Verdict::InPlace) => {
                let text = "the server has ended the file before its end";
                Err(Failure::new(FailureKind::Other, text))
            }
            Err(_) => {
                let failure = broke(line);
                Err(said.failure(failure.kind, &failure.text))
            }
        }
    }

    /// Tells how it is doing.
    fn look(&self, line: &Line, said: u64, told: &mut Way) {
        let progress = self.progress(line, said);
        let way = progress.sources.first().map_or(*told, |share| share.way);
        if way != *told {
            *told = way;
            self.monitor.tell(self.endpoint.way_changed(&self.url, way, self.udp));
        }
        self.monitor.progress.send_replace(progress);
    }

    fn progress(&self, line: &Line, said: u64) -> Progress {
        let sent = line.sent();
        let url = self.url.to_string();
        let share = SourceShare {
            bytes: said,
            wire_bytes: sent.wire_bytes,
            rate: sent.rate,
            granted: sent.granted,
            limited_by: sent.limited_by,
            path: sent.path,
            loss_ratio: sent.loss_ratio,
            rtt: sent.rtt,
            way: sent.way,
            alive: !line.standing().over,
            ..SourceShare::new(url)
        };
        Progress {
            elapsed: self.clock.now().since(self.began),
            bytes: said,
            sources: vec![share],
            ..Progress::default()
        }
    }

    fn outcome(&self, line: &Line, bytes: u64) -> Outcome {
        let progress = Progress { total: bytes, ..self.progress(line, bytes) };
        Outcome {
            bytes,
            resumed_bytes: 0,
            elapsed: progress.elapsed,
            files_written: 1,
            files_unchanged: 0,
            blake3: None,
            progress,
            skipped: Vec::new(),
        }
    }
}

/// What has been sent of an input.
#[derive(Default)]
struct Said {
    bytes: AtomicU64,
    /// All of it was sent, and its end.
    has_ended: AtomicBool,
}

impl Said {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// A failure before the verdict. Once the end has been sent the server may have placed the
    /// file.
    fn failure(&self, kind: FailureKind, text: &str) -> Failure {
        let kept = match self.has_ended() {
            true => "all was sent; whether the file is in place is not known",
            false => "a stream cannot go on later, and nothing of it is kept",
        };
        Failure::new(kind, format!("{text}; {kept}"))
    }
}

/// Why an input was not sent to its end.
enum Unsaid {
    /// It cannot be read.
    Input(std::io::Error),
    /// Nobody takes it any more.
    Broken,
}

/// Sends an input to its end, and counts what was sent. The end is said only if the input has one;
/// dropped before, this abandons the stream.
async fn say(
    mut input: Input,
    mut unended: Unended<StreamWriter>,
    said: &Said,
) -> Result<(), Unsaid> {
    let mut piece = vec![0; PIECE_BYTES];
    while let Some(writer) = unended.get_mut() {
        let count = match input.read(&mut piece).await {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(Unsaid::Input(error)),
        };
        if writer.write_all(&piece[..count]).await.is_err() {
            return Err(Unsaid::Broken);
        }
        said.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    said.has_ended.store(true, Ordering::Relaxed);
    unended.finish();
    Ok(())
}

fn unread(error: &std::io::Error) -> Failure {
    let text = format!("the input cannot be read: {error}; nothing is kept there");
    Failure::new(FailureKind::Missing, text)
}

/// Why a connection broke.
fn broke(line: &Line) -> Failure {
    let why = line.why().unwrap_or("the connection broke").to_owned();
    match line.standing().no_path {
        true => Failure::new(FailureKind::NoUdpPath, why),
        false => Failure::new(FailureKind::Temporary, why),
    }
}

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Words for a stop that was asked for.
const STOPPED: &str = "stopped";
