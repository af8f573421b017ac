//! Answers `tree`: surveys a whole tree, and changes it step by step for a client that may write.
//!
//! No datagram is sent. One question is answered at a time, by a thread that may block, and the
//! client is told meanwhile that this goes on. A survey takes the same memory however large the
//! tree is: its pages wait for a client that reads slowly, and so does the walk.

use std::sync::Arc;

use gtp_store::RelPath;
use gtp_store::replica::{Asked, LeftOut, Replica, Surveyed};
use rustix::io::Errno;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinError;

use super::scan::wait;
use super::session::{Client, Ending};
use super::walks::{self, Pace};
use super::{Change, Changes, Moved, Shared, Stop};
use crate::control::ControlError;
use crate::flows::tree::{asked, deed, name, node_bytes, node_to_wire};
use crate::flows::{Failure, FailureKind};
use crate::messages::{
    BlockValues, BlocksWanted, DeedFault, Deeds, DeedsDone, ENTRIES_MAX, EntryKind, Fault, Message,
    PATH_MAX, PeerText, ROOTS_PER_PAGE, Reason, Roots, TreeDeed, TreeEnd, TreePacked, TreePage,
    TreeWanted, Verb, printable,
};

pub(super) async fn serve(shared: &Arc<Shared>, client: Client, stop: &mut Stop) -> Ending {
    let failure = tokio::select! {
        ended = tend(shared, client) => ended.err(),
        why = stop.told() => Some(why.failure()),
    };
    Ending { moved: Moved::default(), failure }
}

async fn tend(shared: &Arc<Shared>, mut client: Client) -> Result<(), Failure> {
    let replica = match Replica::beneath(&shared.config.root, client.path.clone()) {
        Ok(replica) => Arc::new(replica),
        Err(error) => {
            let failure = Failure::new(FailureKind::Temporary, error.to_string());
            client.channel.refuse(Reason::Busy, "what this server exports is no directory").await;
            return Err(failure);
        }
    };
    let changes = matches!(client.open.verb, Verb::Tree { changes: true, .. });
    if changes {
        client.channel.allow_pages();
    }
    let session = client.host.new_session_id();
    let opened = client.opened(shared, session, Some(EntryKind::Directory), (0, 0));
    client.channel.send(&opened).await?;
    attend(shared, &mut client, &replica, changes).await
}

/// Answers questions until the client has no more.
async fn attend(
    shared: &Arc<Shared>,
    client: &mut Client,
    replica: &Arc<Replica>,
    may_change: bool,
) -> Result<(), Failure> {
    let mut answered = 0;
    loop {
        answered += 1;
        client.seat.note(answered, shared.host.clock().now());
        match client.channel.recv().await {
            Ok(Message::TreeWanted(wanted)) => {
                survey(shared, client, replica, wanted).await?;
            }
            Ok(Message::Deeds(deeds)) if may_change => {
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
            Ok(Message::Done(_)) | Err(ControlError::Closed) => return Ok(()),
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

/// Carries a page of steps out and tells the operator of them, before the server ends.
///
/// # Errors
/// [`FailureKind::Temporary`] if the server ends already.
fn change_tree(
    shared: &Arc<Shared>,
    client: &Client,
    replica: &Arc<Replica>,
    deeds: Deeds,
) -> Result<impl Future<Output = Result<DeedsDone, Failure>> + use<>, Failure> {
    let begun = shared.steps.begin();
    let page = begun.ok_or_else(|| Failure::new(FailureKind::Temporary, STOPS))?;
    let (shared, told) = (Arc::clone(shared), Arc::clone(&client.told));
    let (replica, seat) = (Arc::clone(replica), Arc::clone(&client.seat));
    Ok(async move {
        // The last to go: the server's end waits for it, and the session's end is told before.
        let _page = page;
        let told = told;
        let (server, steps) = (Arc::clone(&shared), deeds.deeds.len());
        let working = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            carry_out(&replica, deeds, server.config.changes, || server.steps.must_stop())
        });
        let Carried { done, changes } = working.await.map_err(broken_off)?;
        told.count_changes(steps.saturating_sub(done.faults.len()) as u64);
        shared.tell_changes(told.visit(), changes).await;
        Ok(done)
    })
}

/// What came of a page of steps.
struct Carried {
    done: DeedsDone,
    /// The steps as the operator hears of them, if that is wanted.
    changes: Vec<Change>,
}

/// Carries steps out in their order. One that fails does not keep the others from being tried, but
/// none is tried once they must stop.
fn carry_out(
    replica: &Replica,
    deeds: Deeds,
    told: Changes,
    must_stop: impl Fn() -> bool,
) -> Carried {
    let (mut faults, mut changes) = (Vec::new(), Vec::new());
    for (index, wire) in (0..).zip(deeds.deeds) {
        let change = (told == Changes::Told).then(|| change(&wire));
        let done = match deed(wire) {
            Ok(_) if must_stop() => Err(STOPS.to_owned()),
            Ok(deed) => replica.apply(&deed).map_err(|fault| fault.why),
            Err(bad) => Err(bad.to_string()),
        };
        let failure = done.err().map(|mut why| {
            let end = (0..=FAULT_MAX.min(why.len())).rev().find(|&at| why.is_char_boundary(at));
            why.truncate(end.unwrap_or(0));
            why
        });
        changes.extend(change.map(|change| Change { failure: failure.clone(), ..change }));
        let fault = |why| DeedFault { index, text: PeerText::new(why) };
        faults.extend(failure.map(fault));
    }
    Carried { done: DeedsDone { faults }, changes }
}

/// A step as the operator hears of it.
fn change(wire: &TreeDeed) -> Change {
    let (what, path, to) = match wire {
        TreeDeed::MakeDir { path } => ("make_directory", path, None),
        TreeDeed::Remove { path, .. } => ("remove", path, None),
        TreeDeed::Move { path, to, .. } => ("move", path, Some(to)),
        TreeDeed::Link { path, target } => ("link", path, Some(target)),
        TreeDeed::HardLink { path, to } => ("hard_link", path, Some(to)),
        TreeDeed::Dig { path } => ("punch_holes", path, None),
        TreeDeed::Dress { path, .. } => ("attributes", path, None),
    };
    Change { what, path: printable(path), to: to.map(|to| printable(to)), failure: None }
}

fn block_values(replica: &Replica, wanted: &BlocksWanted) -> BlockValues {
    let values = name(&wanted.path).ok().and_then(|path: RelPath| {
        let (first, most) = (wanted.first, ROOTS_PER_PAGE);
        replica.block_values(&path, wanted.size, first, most).ok()
    });
    let values = Roots(values.unwrap_or_default());
    BlockValues { path: wanted.path.clone(), first: wanted.first, values }
}

/// Sends a survey as the walk goes.
async fn survey(
    shared: &Shared,
    client: &mut Client,
    replica: &Arc<Replica>,
    wanted: TreeWanted,
) -> Result<(), Failure> {
    let (to, mut from) = channel(1);
    let asker = client.asker();
    let replica = Arc::clone(replica);
    // If there is no thread, the channel closes, which is seen below.
    let _ = walks::spawn(move || {
        let _seat = asker.seat;
        let packing = if wanted.packs == Some(true) { Packing::Packed } else { Packing::Plain };
        Telling::new(to, Pace::begin(asker.party), packing).walk(&replica, asked(wanted));
    });
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

/// Walks through a tree and gives what is there to a client, in pages.
struct Telling {
    to: Sender<Vec<Message>>,
    pace: Pace,
    packing: Packing,
    page: TreePage,
    room: usize,
    told: u64,
    left_out: u64,
    waiting: Vec<Message>,
}

impl Telling {
    fn new(to: Sender<Vec<Message>>, pace: Pace, packing: Packing) -> Telling {
        let (page, waiting) = (TreePage { nodes: Vec::new() }, Vec::new());
        let room = packing.page_bytes();
        Telling { to, pace, packing, page, room, told: 0, left_out: 0, waiting }
    }

    fn walk(mut self, replica: &Replica, asked: Asked) {
        let walked = replica.survey(asked, &mut |found| self.take(found));
        let last = match walked {
            Ok(_) if self.told > ENTRIES_MAX => {
                Message::fault(Reason::Limit, "the tree has too many names")
            }
            Ok(is_there) => {
                self.turn_page();
                let may_own = Replica::may_own();
                Message::TreeEnd(TreeEnd { nodes_total: self.told, is_there, may_own })
            }
            Err(Errno::LOOP | Errno::NOTDIR) => {
                Message::fault(Reason::Destination, "is not a directory")
            }
            Err(Errno::ACCESS) => Message::fault(Reason::Permission, "permission denied"),
            Err(_) => Message::fault(Reason::Unreadable, "cannot be read"),
        };
        self.waiting.push(last);
        self.give();
    }

    /// Takes in what the walk found; whether to go on.
    fn take(&mut self, found: Surveyed) -> bool {
        self.pace.step();
        match found {
            Surveyed::Node(node) => {
                let bytes = node_bytes(&node);
                if self.page.nodes.len() == self.packing.page_nodes() || bytes > self.room {
                    self.turn_page();
                    if !self.give() {
                        return false;
                    }
                }
                self.room = self.room.saturating_sub(bytes);
                self.page.nodes.push(node_to_wire(&node));
                self.told += 1;
                self.told <= ENTRIES_MAX
            }
            Surveyed::LeftOut(left_out) => {
                self.left_out += 1;
                if self.left_out <= LEFT_OUT_MAX {
                    self.waiting.push(fault_of(&left_out));
                }
                true
            }
        }
    }

    fn turn_page(&mut self) {
        let page = std::mem::replace(&mut self.page, TreePage { nodes: Vec::new() });
        self.room = self.packing.page_bytes();
        if !page.nodes.is_empty() {
            self.waiting.push(match self.packing {
                Packing::Plain => Message::TreePage(page),
                Packing::Packed => Message::TreePacked(TreePacked(page)),
            });
        }
    }

    /// Hands over what is ready; whether the client is still there.
    fn give(&mut self) -> bool {
        self.pace.rest();
        self.to.blocking_send(std::mem::take(&mut self.waiting)).is_ok()
    }
}

/// What a client is told of something that is left out: the reason says whether it may hide more.
fn fault_of(left_out: &LeftOut) -> Message {
    let reason = if left_out.hides { Reason::Unreadable } else { Reason::Other };
    let mut path = left_out.path.clone().into_bytes();
    path.truncate(PATH_MAX);
    let text = PeerText::new(left_out.why.clone());
    Message::Fault(Fault { reason, text, path: Some(path) })
}

/// How pages are sent.
#[derive(Clone, Copy)]
enum Packing {
    Plain,
    /// Deflated, to a client that understands it.
    Packed,
}

impl Packing {
    /// Bytes of a page, unless it has one node only. What is packed together becomes shorter.
    fn page_bytes(self) -> usize {
        match self {
            Packing::Plain => PAGE_BYTES,
            Packing::Packed => 2 * PAGE_BYTES,
        }
    }

    fn page_nodes(self) -> usize {
        match self {
            Packing::Plain => PAGE_NODES,
            Packing::Packed => 2 * PAGE_NODES,
        }
    }
}

/// Nodes of a page that is sent, so that a client that does not read costs little.
const PAGE_NODES: usize = 512;

/// Bytes of a page that is sent, unless it has one node only.
const PAGE_BYTES: usize = 64 << 10;

/// Names that are left out and told. A client that is not told of all must not infer anything from
/// absence; the last one that is told says so.
const LEFT_OUT_MAX: u64 = 1_000;

/// Why a step is not tried when the server ends.
const STOPS: &str = "the server stops";

/// Bytes of the text of a step that failed, so that all of a page fit into one message.
const FAULT_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_page_stops_between_its_steps_and_says_of_each_whether_it_was_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let replica = Replica::beneath(dir.path(), None).unwrap();
        let make = |name: &str| TreeDeed::MakeDir { path: name.into() };
        let deeds = Deeds { deeds: ["a", "b", "c"].map(make).into() };
        let looks = Cell::new(0);
        let must_stop = || looks.replace(looks.get() + 1) >= 1;
        let Carried { done, changes } = carry_out(&replica, deeds, Changes::Told, must_stop);
        assert!(dir.path().join("a").is_dir());
        assert!(!dir.path().join("b").exists() && !dir.path().join("c").exists());
        let failed: Vec<u32> = done.faults.iter().map(|fault| fault.index).collect();
        assert_eq!(failed, [1, 2]);
        let told: Vec<_> = changes.iter().map(|change| change.failure.as_deref()).collect();
        assert_eq!(told, [None, Some(STOPS), Some(STOPS)]);
    }

    #[tokio::test]
    async fn the_end_waits_for_a_page_that_has_begun_and_lets_none_begin_after_it() {
        let steps = super::super::Steps::default();
        let page = steps.begin().unwrap();
        let mut gone = std::pin::pin!(steps.gone());
        tokio::select! {
            biased;
            () = &mut gone => panic!("a page is still there"),
            () = std::future::ready(()) => {}
        }
        assert!(steps.begin().is_none());
        drop(page);
        gone.await;
    }
}
