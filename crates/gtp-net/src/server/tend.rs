//! Answers `tree`: surveys a whole tree, and changes it step by step for a client that may write.
//!
//! No datagram is sent. One question is answered at a time, by a thread that may block, and the
//! client is told meanwhile that this goes on. A survey's memory does not grow with what a tree
//! holds: its pages wait for a client that reads slowly, and so does the walk; of a directory that
//! the client may have too, at most 1 MiB of nodes are held back. What a survey keeps is the names
//! in the directory that it reads, and a number for each file with several names.

mod deeds;
mod packing;
mod telling;

use std::sync::Arc;

use gtp_store::RelPath;
use gtp_store::replica::{Patch, Replica, piece_sums};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinError;

use super::scan::wait;
use super::session::{Client, Ending};
use super::walks::{self, Nothing, Pace};
use super::{Shared, Stop};
use crate::control::{BARE_ADDRESS, ControlError};
use crate::flows::tree::{asked, name, small_file};
use crate::flows::{Failure, FailureKind, When, read_small};
use crate::messages::{
    BlockValues, BlocksWanted, CONTENTS_BYTES_MAX, Contents, ContentsWanted, EntryKind, Fault,
    Message, OwnPieces, Packed, ROOTS_PER_PAGE, Reason, Roots, SmallContent, SmallFile, TreeWanted,
    Verb,
};
use deeds::change_tree;
use telling::Telling;

pub(super) async fn serve(shared: &Arc<Shared>, client: Client, stop: &mut Stop) -> Ending {
    let ended = tokio::select! {
        ended = tend(shared, client) => ended,
        why = stop.told() => Err(why.failure()),
    };
    let is_done = matches!(ended, Ok(Parting::Done));
    Ending { failure: ended.err(), is_done, ..Ending::default() }
}

/// How a client ends its session.
enum Parting {
    /// It has said that it needs no more.
    Done,
    /// Its connection has ended.
    Closed,
}

async fn tend(shared: &Arc<Shared>, mut client: Client) -> Result<Parting, Failure> {
    let place = shared.config.old_versions.iter().cloned();
    let replica = match open(shared, &mut client).await? {
        Ok(replica) => place.fold(replica, Replica::keeping_in),
        Err(Nothing { reason, text, failure, .. }) => {
            client.channel.refuse(reason, text).await;
            return Err(failure);
        }
    };
    let changes = matches!(client.open.verb, Verb::Tree { changes: true, .. });
    if changes {
        client.channel.allow_pages();
    }
    let tended = match replica.of_file().filter(|_| !changes) {
        Some((holder, name)) => Tended { replica: Arc::new(holder), alone: Some(name) },
        None => Tended { replica: Arc::new(replica), alone: None },
    };
    let session = client.host.new_session_id();
    let opened = client.opened(shared, session, Some(EntryKind::Directory), (0, 0));
    client.channel.send(&opened).await?;
    attend(shared, &mut client, &tended, changes).await
}

/// Opens the tree that the client means, while it waits.
async fn open(shared: &Shared, client: &mut Client) -> Result<Result<Replica, Nothing>, Failure> {
    let (ground, path) = (Arc::clone(&client.outlet.ground), client.path.clone());
    let opening = move || {
        let dir = ground.dir()?;
        Replica::beneath_open(dir, path).map_err(|_| Nothing::exported())
    };
    work(shared, client, opening).await
}

/// What a session is about.
struct Tended {
    replica: Arc<Replica>,
    /// The file or link that the client has named, in the directory that holds it.
    alone: Option<RelPath>,
}

/// Answers questions until the client has no more.
async fn attend(
    shared: &Arc<Shared>,
    client: &mut Client,
    tended: &Tended,
    may_change: bool,
) -> Result<Parting, Failure> {
    let (replica, mut answered) = (&tended.replica, 0);
    loop {
        answered += 1;
        client.seat.note(answered, shared.host.clock().now());
        match client.channel.recv().await {
            Ok(Message::TreeWanted(wanted)) => {
                survey(shared, client, tended, wanted).await?;
            }
            Ok(Message::Deeds(deeds) | Message::DeedsPacked(Packed(deeds))) if may_change => {
                // It goes on, and is told of, if the client must leave meanwhile.
                let working = change_tree(shared, client, replica, deeds)?;
                let working = tokio::spawn(working);
                let carried = wait(client, shared, working, || 0).await?;
                let done = carried.map_err(broken_off)??;
                client.channel.send(&Message::DeedsDone(done)).await?;
            }
            Ok(Message::BlocksWanted(wanted)) => {
                let replica = Arc::clone(replica);
                let values = work(shared, client, move || block_values(&replica, &wanted)).await?;
                client.channel.send(&Message::BlockValues(values)).await?;
            }
            Ok(Message::ContentsWanted(wanted)) => {
                let replica = Arc::clone(replica);
                let told = work(shared, client, move || contents(&replica, &wanted)).await?;
                client.channel.send(&Message::Contents(told)).await?;
            }
            Ok(Message::Done(_)) => return Ok(Parting::Done),
            Err(ControlError::Closed) => return Ok(Parting::Closed),
            Ok(other) => {
                let error = ControlError::Unexpected(format!("message {}", other.name()));
                client.channel.dismiss(Reason::Unexpected, error.to_string()).await;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Does something on a thread that may block, while the client waits.
async fn work<T: Send + 'static>(
    shared: &Shared,
    client: &mut Client,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let seat = Arc::clone(&client.seat);
    let working = tokio::task::spawn_blocking(move || {
        let _seat = seat;
        job()
    });
    wait(client, shared, working, || 0).await?.map_err(broken_off)
}

fn broken_off(error: JoinError) -> Failure {
    Failure::new(FailureKind::Other, error.to_string())
}

fn block_values(replica: &Replica, wanted: &BlocksWanted) -> BlockValues {
    let values = name(&wanted.path).ok().and_then(|path: RelPath| {
        let (first, most) = (wanted.first, ROOTS_PER_PAGE);
        replica.block_values(&path, wanted.size, first, most).ok()
    });
    let values = Roots(values.unwrap_or_default());
    BlockValues { path: wanted.path.clone(), first: wanted.first, values }
}

/// The contents of small files that are what the client has seen, or what is asked of them instead,
/// as far as they fit into a message.
fn contents(replica: &Replica, wanted: &ContentsWanted) -> Contents {
    let mut room = CONTENTS_BYTES_MAX;
    let when = if wanted.settled { When::Settled } else { When::Now };
    let key: Option<[u8; 32]> = wanted.key.as_deref().and_then(|key| key.try_into().ok());
    let told = |file: &SmallFile| {
        let content = read_small(replica, &small_file(file).ok()?, when)?;
        let told = told_of(content, file.own.as_ref(), key.as_ref());
        let bytes = told.content.as_ref().map_or(0, Vec::len);
        room = room.checked_sub(bytes)?;
        Some(told)
    };
    let files = wanted.files.iter().map(told).map(Option::unwrap_or_default);
    Contents { files: files.collect() }
}

/// What is told of a small file: its content; with a key, sums of its pieces, or of the client's
/// older version what is not in that.
fn told_of(content: Vec<u8>, own: Option<&OwnPieces>, key: Option<&[u8; 32]>) -> SmallContent {
    match (key, own) {
        (None, _) => SmallContent { content: Some(content), ..SmallContent::default() },
        (Some(key), None) => {
            let sums = piece_sums(&content, key).concat();
            SmallContent { sums: Some(sums), ..SmallContent::default() }
        }
        (Some(key), Some(own)) => {
            let patch = Patch::of(&content, own.size.into(), own.sums.as_chunks().0, key);
            let (content, kept) = (Some(patch.rest), Some(patch.kept));
            SmallContent { content, kept, ..SmallContent::default() }
        }
    }
}

/// Sends a survey as the walk goes.
async fn survey(
    shared: &Shared,
    client: &mut Client,
    tended: &Tended,
    wanted: TreeWanted,
) -> Result<(), Failure> {
    let (to, mut from) = channel(1);
    let asker = client.asker();
    let (replica, alone) = (Arc::clone(&tended.replica), tended.alone.clone());
    // A server leaves its other processors to its other clients.
    let is_only = client.channel.ends().remote == BARE_ADDRESS;
    let walk = move || {
        let _seat = asker.seat;
        let mut telling = Telling::new(to, Pace::begin(asker.party), &wanted);
        telling.is_alone = alone.is_some();
        // What is no name was refused as the message came.
        let only = alone.or_else(|| name(wanted.only.as_deref()?).ok());
        let asked = asked(&wanted);
        let helpers = if is_only { asked.helpers() } else { 0 };
        telling.walk(&replica, (asked, helpers), only.as_ref());
    };
    // If there is no thread, the channel closes, which is seen below.
    let _ = match is_only {
        true => walks::spawn_prompt(walk),
        false => walks::spawn(walk),
    };
    while let Some(messages) = next(shared, client, &mut from).await? {
        let is_last = messages.iter().any(|message| {
            matches!(message, Message::TreeEnd(_) | Message::Fault(Fault { path: None, .. }))
        });
        client.channel.send_all(messages.into_iter()).await?;
        if is_last {
            return Ok(());
        }
    }
    let text = "the survey broke off";
    client.channel.send(&Message::fault(Reason::Busy, text)).await?;
    Err(Failure::new(FailureKind::Temporary, text))
}

async fn next(
    shared: &Shared,
    client: &mut Client,
    from: &mut Receiver<Vec<Message>>,
) -> Result<Option<Vec<Message>>, Failure> {
    wait(client, shared, from.recv(), || 0).await
}
