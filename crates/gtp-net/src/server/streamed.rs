//! Answers a stream into a file: writes what the client says, and gives it its name at the end.
//!
//! The client does not know how much it will send. So nothing is listed, resumed or asked for
//! again: either the stream ends and the file is in place, or nothing is kept. The last word is
//! this end's, in its own stream ([`Verdict`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gtp_alloc::Span;
use gtp_store::{RootKind, StreamedFile};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::put::refuse;
use super::session::{Client, Ending};
use super::spot::{Spot, find};
use super::stream_room::{NoRoom, StreamRoom};
use super::{Moved, Shared, Stop};
use crate::engine::SessionOpen;
use crate::flows::{Failure, FailureKind, keys};
use crate::messages::{Connected, Message, Reason, Verb};
use crate::stream::{
    Ends, Held, Line, Sessions, Silence, Stream, StreamReader, Verdict, held, promise, start,
};

pub(super) async fn serve(shared: &Arc<Shared>, client: Client, stop: &mut Stop) -> Ending {
    let file = match begin(&client).await {
        Ok(file) => file,
        Err(failure) => return refuse(client, failure).await,
    };
    let told = Arc::clone(&client.told);
    let stream = match open(shared, client, Span::ZERO).await {
        Ok(ends) => ends.of_bytes(),
        Err(failure) => {
            // What was begun is removed and looked at, which blocks.
            let _ = tokio::task::spawn_blocking(move || drop(file)).await;
            return Ending::failed(failure);
        }
    };
    let came = Arc::new(AtomicU64::new(0));
    let gauge = Arc::clone(&came);
    let moved = move || Moved { content_bytes: gauge.load(Ordering::Relaxed), ..Moved::default() };
    told.measure(moved.clone());
    let line = stream.line().clone();
    let mut taking = std::pin::pin!(take(stream, file, &came));
    let taken = tokio::select! {
        taken = &mut taking => taken,
        why = stop.told() => {
            line.abort();
            // Nothing of the file is left when this session ends.
            drop(taking.await);
            Err(why.failure())
        }
    };
    let files = u64::from(taken.is_ok());
    Ending { moved: Moved { files, ..moved() }, failure: taken.err(), ..Ending::default() }
}

/// Finds the place, and begins the file there.
async fn begin(client: &Client) -> Result<Begun, Failure> {
    let spot = find(client).await?;
    let path = spot.path();
    let failed = |why: &str| Failure::new(FailureKind::Destination, format!("{path}: {why}"));
    let Spot { holder, name, there, .. } = spot;
    let name = name.filter(|_| there != Some(RootKind::Dir));
    let name = name.ok_or_else(|| failed("is a directory; a stream needs a name in it"))?;
    let tag = gtp_sys::entropy::u64();
    let (outlet, path) = (Arc::clone(&client.outlet), client.path.clone());
    let creating = tokio::task::spawn_blocking(move || {
        let room = StreamRoom::begin(outlet, path, &holder, tag)?;
        let file = StreamedFile::create(holder, name, tag);
        Ok(file.map(|file| Begun { file, room }))
    });
    match creating.await {
        Ok(Ok(Ok(begun))) => Ok(begun),
        Ok(Ok(Err(error))) => Err(failed(&error.to_string())),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::new(FailureKind::Other, error.to_string())),
    }
}

/// A file that is begun, and its room within quotas.
struct Begun {
    file: StreamedFile,
    room: StreamRoom,
}

/// Opens the sessions of both directions, within the memory that is promised to streams.
pub(super) async fn open(
    shared: &Shared,
    mut client: Client,
    patience: Span,
) -> Result<Ends, Failure> {
    let Verb::Stream { down_session, window, delivery, .. } = client.open.verb else {
        return Err(Failure::new(FailureKind::Other, "the client wants no stream"));
    };
    let mut memory = shared.streams.share(client.holder);
    let unit_payload = client.open.unit_payload_max;
    let promised = promise(&mut memory, window, |window| held(window, unit_payload, delivery));
    let Some(window) = promised else {
        let text = "the server's memory for streams is promised; try again later";
        client.seat.linger(client.channel.refuse(Reason::Busy, text)).await;
        return Err(Failure::new(FailureKind::Temporary, text));
    };
    let hears = client.session(shared)?;
    let says = answering(&mut client, &hears, down_session)?;
    let opened = client.opened(shared, hears.local_session, None, (0, 0));
    client.channel.send(&opened).await?;
    let connected = Connected { down_session: says.local_session, window, delivery };
    let greeting = Some(Message::Connected(connected));
    let (carried, data_port) = (false, 0);
    let sessions =
        Sessions { says, hears, window, delivery, patience, greeting, carried, data_port };
    let Client { host, channel, seat, .. } = client;
    let place = Held::new(seat, shared.host.clock(), memory);
    let silence = Silence::of_host(channel.revision());
    Ok(start(&host, channel, sessions, silence, Some(place)))
}

/// The session of this end's own words, beside the one that brings the file.
fn answering(
    client: &mut Client,
    hears: &SessionOpen,
    down_session: u32,
) -> Result<SessionOpen, Failure> {
    let local_session = client.host.new_session_id();
    let secrets = client.channel.data_secrets(local_session, down_session)?;
    Ok(SessionOpen {
        local_session,
        peer_session: down_session,
        keys: keys(client.suite, secrets),
        role: hears.role.clone(),
        label: hears.label.clone(),
        ..*hears
    })
}

/// Writes what comes, and says what became of it.
async fn take(stream: Stream, file: Begun, came: &AtomicU64) -> Result<(), Failure> {
    let (reader, mut writer, line) = stream.into_split();
    let (to_disk, pieces) = mpsc::channel(PIECES_WAITING);
    let own = line.clone();
    let writing = tokio::task::spawn_blocking(move || write(file, pieces, &own));
    if let Err(broken) = pass_on(reader, to_disk, came).await {
        // Nobody has told its writer of an end, so it fails; then the file has gone.
        drop(writing.await);
        let text = line.why().map_or_else(|| broken.to_string(), str::to_owned);
        return Err(Failure::new(FailureKind::Temporary, text));
    }
    let written = writing.await.unwrap_or_else(|error| Err(io::Error::other(error).into()));
    let (placed, kind) = match written {
        Err(Unplaced::Broken(why)) => return Err(Failure::new(FailureKind::Temporary, why)),
        Err(Unplaced::Full(Failure { kind, text })) => (Err(io::Error::other(text)), kind),
        Err(Unplaced::Disk(error)) => (Err(error), FailureKind::Destination),
        Ok(()) => (Ok(()), FailureKind::Destination),
    };
    // A client that does not hear it has lost the connection, and says so.
    let _ = writer.write_all(&Verdict::of(&placed).encode()).await;
    writer.finish();
    drop(writer);
    let _ = timeout(PARTING_SPAN, line.over()).await;
    placed.map_err(|error| Failure::new(kind, error.to_string()))
}

/// What the writer of a file is told.
enum Piece {
    Bytes(Vec<u8>),
    /// Nothing has come for a while: quotas may have changed meanwhile.
    Look,
    /// The stream has ended, and all of it was told.
    End,
}

/// Gives a stream to the writer of its file, to its end or until the writer has failed.
///
/// # Errors
/// If the stream breaks.
async fn pass_on(
    mut reader: StreamReader,
    to_disk: mpsc::Sender<Piece>,
    came: &AtomicU64,
) -> io::Result<()> {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let Ok(read) = timeout(LOOK_SPAN, reader.read_buf(&mut piece)).await else {
            if to_disk.send(Piece::Look).await.is_err() {
                return Ok(());
            }
            continue;
        };
        let count = read?;
        came.fetch_add(count as u64, Ordering::Relaxed);
        let piece = if count == 0 { Piece::End } else { Piece::Bytes(piece) };
        if to_disk.send(piece).await.is_err() || count == 0 {
            return Ok(());
        }
    }
}

/// Why a file did not get its name.
enum Unplaced {
    /// It cannot be written.
    Disk(io::Error),
    /// There is no room for it.
    Full(Failure),
    /// The client has broken the connection off, or it broke: what came may be a part.
    Broken(String),
}

impl From<io::Error> for Unplaced {
    fn from(error: io::Error) -> Unplaced {
        Unplaced::Disk(error)
    }
}

/// Writes a file, and notes for quotas what became of it. Blocks.
fn write(
    Begun { file, mut room }: Begun,
    pieces: mpsc::Receiver<Piece>,
    line: &Line,
) -> Result<(), Unplaced> {
    let written = write_all(file, &mut room, pieces, line);
    // The part file has gone by now.
    drop(room);
    written
}

/// Writes a file, which gets its name once its end is told, unless the connection has broken by
/// then.
fn write_all(
    mut file: StreamedFile,
    room: &mut StreamRoom,
    mut pieces: mpsc::Receiver<Piece>,
    line: &Line,
) -> Result<(), Unplaced> {
    while let Some(piece) = pieces.blocking_recv() {
        let bytes = match piece {
            Piece::Bytes(bytes) => Some(bytes),
            Piece::Look => Some(Vec::new()),
            Piece::End => None,
        };
        match bytes {
            Some(bytes) => {
                let is_broken = || line.why().is_some();
                room.more(bytes.len() as u64, is_broken).map_err(|none| {
                    match (none, line.why()) {
                        (NoRoom::Broken, Some(why)) => Unplaced::Broken(why.to_owned()),
                        (NoRoom::Full(full), _) => Unplaced::Full(full.into()),
                        (none, _) => Unplaced::Disk(io::Error::other(none.to_string())),
                    }
                })?;
                file.append(&bytes)?;
            }
            None => {
                // It may take long, and the client may give up in the meantime.
                file.settle()?;
                return match line.why() {
                    Some(why) => Err(Unplaced::Broken(why.to_owned())),
                    None => Ok(file.place()?),
                };
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the stream did not end").into())
}

/// Time without a piece after which the writer of a file looks whether quotas have changed.
const LOOK_SPAN: Duration = Duration::from_secs(1);

/// Bytes that are read at a time, and pieces of them that wait for the disk.
const PIECE_BYTES: usize = 256 << 10;
const PIECES_WAITING: usize = 4;

/// Time for a client to hear what became of its file.
const PARTING_SPAN: Duration = Duration::from_secs(5);
