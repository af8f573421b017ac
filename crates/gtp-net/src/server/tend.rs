//! Answers `tree`: surveys a whole tree, and changes it step by step for a client that may write.
//!
//! No datagram is sent. One question is answered at a time, by a thread that may block, and the
//! client is told meanwhile that this goes on. A survey's memory does not grow with what a tree
//! holds: its pages wait for a client that reads slowly, and so does the walk; of a directory that
//! the client may have too, at most 1 MiB of nodes are held back. What a survey keeps is the names
//! in the directory that it reads, and a number for each file with several names.

mod packing;

use std::collections::HashMap;
use std::sync::Arc;

use gtp_store::RelPath;
use gtp_store::replica::{
    Asked, Deed, DirSum, LeftOut, Node, Patch, Replica, SUMMED_MAX, Summing, Surveyed, piece_sums,
};
use packing::Packing;
use rustix::io::Errno;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinError;

use super::charge::PageCharge;
use super::outlet::{Outlet, Writer};
use super::quota::Meter;
use super::scan::wait;
use super::session::{Client, Deleting, Ending};
use super::walks::{self, Nothing, Pace};
use super::{Change, Changes, Shared, Stop};
use crate::control::{BARE_ADDRESS, ControlError};
use crate::flows::tree::{
    BadTree, asked, deed, holder, name, node_bytes, node_to_wire, small_file,
};
use crate::flows::{Failure, FailureKind, When, read_small};
use crate::messages::{
    AlikeList, BlockValues, BlocksWanted, CONTENTS_BYTES_MAX, Contents, ContentsWanted, DeedFault,
    Deeds, DeedsDone, DeedsPacked, ENTRIES_MAX, EntryKind, Fault, Lack, Lacks, Message, OwnPieces,
    PATH_MAX, PeerText, ROOTS_PER_PAGE, Reason, Roots, SMALL_MAX, SmallContent, SmallFile,
    TreeAlike, TreeDeed, TreeEnd, TreeNode, TreeOwner, TreePacked, TreePage, TreeSums, TreeWanted,
    Verb, printable,
};

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
            Ok(Message::Deeds(deeds) | Message::DeedsPacked(DeedsPacked(deeds))) if may_change => {
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
    let deleting = client.deleting;
    let (outlet, tree) = (Arc::clone(&client.outlet), client.path.clone());
    let (writer, meter) = outlet.writing(tree.as_ref());
    let counted = Counted { meter, outlet, tree, _writer: writer };
    Ok(async move {
        // The last to go: the server's end waits for it, and the session's end is told before.
        let _page = page;
        let told = told;
        let (server, steps) = (Arc::clone(&shared), deeds.deeds.len());
        let working = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            let rules = Rules { told: server.config.changes, deleting };
            carry_out(&replica, deeds, (rules, &counted), || server.steps.must_stop())
        });
        let Carried { done, changes } = working.await.map_err(broken_off)?;
        told.count_changes(steps.saturating_sub(done.faults.len()) as u64);
        shared.tell_changes(told.visit(), changes).await;
        Ok(done)
    })
}

/// What holds for the steps of a session.
#[derive(Clone, Copy)]
struct Rules {
    told: Changes,
    deleting: Deleting,
}

/// The quotas for which the steps of a session count.
struct Counted {
    meter: Meter,
    outlet: Arc<Outlet>,
    tree: Option<RelPath>,
    _writer: Writer,
}

impl Counted {
    /// Looks at what the steps concern, if it counts.
    ///
    /// # Errors
    /// Why that is not possible, for the client.
    fn charge(&self, deeds: &[Result<Deed, BadTree>]) -> Result<Option<PageCharge<'_>>, String> {
        if self.meter.is_idle() {
            return Ok(None);
        }
        let root = self.outlet.ground.dir().map_err(|nothing| nothing.text)?;
        let deeds = deeds.iter().filter_map(|deed| deed.as_ref().ok());
        Ok(PageCharge::of(&self.meter, (root, self.tree.clone()), deeds))
    }
}

/// Whether a step takes something away from where it is.
fn deletes(deed: &Deed) -> bool {
    match deed {
        Deed::Remove { .. } | Deed::Move { .. } => true,
        Deed::MakeDir { .. }
        | Deed::Link { .. }
        | Deed::HardLink { .. }
        | Deed::Dig { .. }
        | Deed::Dress(_)
        | Deed::Write { .. }
        | Deed::Patch { .. }
        | Deed::Keep { .. } => false,
    }
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
    (rules, counted): (Rules, &Counted),
    must_stop: impl Fn() -> bool,
) -> Carried {
    let (mut steps, mut refused) = (replica.steps(), Vec::new());
    let told = |wire| (rules.told == Changes::Told).then(|| change(wire));
    let changes: Vec<Change> = deeds.deeds.iter().filter_map(told).collect();
    let deeds: Vec<_> = deeds.deeds.into_iter().map(deed).collect();
    let mut charge = match counted.charge(&deeds) {
        Ok(charge) => charge,
        Err(why) => return all_refused(deeds.len(), changes, &why),
    };
    for (index, deed) in deeds.into_iter().enumerate() {
        match deed {
            Ok(_) if must_stop() => refused.push((index, STOPS.to_owned())),
            Ok(deed) if deletes(&deed) && rules.deleting == Deleting::Refused => {
                refused.push((index, NO_DELETING.to_owned()));
            }
            Ok(deed) => match charge.as_mut().map_or(Ok(()), |charge| charge.admit(&deed)) {
                Ok(()) => steps.carry_out(index, &deed),
                Err(full) => refused.push((index, full.to_string())),
            },
            Err(bad) => refused.push((index, bad.to_string())),
        }
    }
    let kinds = steps.lacks().iter();
    let kinds = kinds.map(|(what, &number)| Lack { what: PeerText::new(*what), number });
    let kinds: Vec<Lack> = kinds.collect();
    let lacks = (!kinds.is_empty()).then_some(Lacks { kinds });
    refused.extend(steps.finish().into_iter().map(|(index, fault)| (index, fault.why)));
    charge.into_iter().for_each(PageCharge::settle);
    carried(refused, lacks, changes)
}

/// That no step is carried out.
fn all_refused(steps: usize, changes: Vec<Change>, why: &str) -> Carried {
    carried((0..steps).map(|index| (index, why.to_owned())).collect(), None, changes)
}

fn carried(
    mut refused: Vec<(usize, String)>,
    lacks: Option<Lacks>,
    mut changes: Vec<Change>,
) -> Carried {
    refused.sort_by_key(|(index, _)| *index);
    let faults = refused.into_iter().map(|(index, why)| {
        let why = cut(why);
        if let Some(change) = changes.get_mut(index) {
            change.failure = Some(why.clone());
        }
        DeedFault { index: index as u32, text: PeerText::new(why) }
    });
    Carried { done: DeedsDone { faults: faults.collect(), lacks }, changes }
}

/// As much of a reason as a message takes.
fn cut(mut why: String) -> String {
    let end = (0..=FAULT_MAX.min(why.len())).rev().find(|&at| why.is_char_boundary(at));
    why.truncate(end.unwrap_or(0));
    why
}

/// A step as the operator hears of it.
fn change(wire: &TreeDeed) -> Change {
    let (what, path, to) = match wire {
        TreeDeed::MakeDir { path } => ("make_directory", path, None),
        TreeDeed::Remove { path, .. } => ("remove", path, None),
        TreeDeed::Move { path, to, .. } => ("move", path, Some(to)),
        TreeDeed::Link { path, target } => ("link", path, Some(target)),
        TreeDeed::HardLink { path, to } => ("hard_link", path, Some(to)),
        TreeDeed::Keep { path, to, .. } => ("keep", path, Some(to)),
        TreeDeed::Dig { path } => ("punch_holes", path, None),
        TreeDeed::Dress { path, .. } => ("attributes", path, None),
        TreeDeed::Write { path, .. } | TreeDeed::Patch { path, .. } => ("write", path, None),
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

/// Walks through a tree and gives what is there to a client, in pages.
struct Telling {
    to: Sender<Vec<Message>>,
    pace: Pace,
    packing: Packing,
    known: Option<Known>,
    /// The numbers that names of one file share, made short.
    same: HashMap<u64, u64>,
    page: Page,
    room: usize,
    told: u64,
    left_out: u64,
    waiting: Vec<Message>,
    /// Whether the client has named what is no directory.
    is_alone: bool,
}

/// A page that is being filled.
#[derive(Default)]
struct Page {
    nodes: Vec<TreeNode>,
    alike: Vec<TreeAlike>,
}

/// What the client has said that its own tree holds.
struct Known {
    summing: Summing,
    /// The places of the sums.
    sums: HashMap<DirSum, u32>,
    /// The directory whose nodes come.
    dir: String,
    /// These nodes.
    held: Vec<Node>,
    /// Bytes of these nodes, about.
    held_bytes: usize,
    /// Whether there are more nodes in it than are held back.
    is_large: bool,
}

impl Known {
    fn of(sums: &TreeSums) -> Option<Known> {
        let (sums, key) = (&sums.sums, sums.key.as_slice().try_into().ok()?);
        let (sums, _) = sums.as_chunks();
        let sums = sums.iter().copied().zip(0..).collect();
        let (summing, dir, held) = (Summing::new(key), String::new(), Vec::new());
        Some(Known { summing, sums, dir, held, held_bytes: 0, is_large: false })
    }

    /// Holds a node back.
    fn hold(&mut self, node: Node) {
        self.held_bytes += node_bytes(&node);
        self.held.push(node);
        self.is_large = self.held.len() > SUMMED_MAX || self.held_bytes > HELD_BYTES_MAX;
    }

    /// The nodes that were held back.
    fn release(&mut self) -> Vec<Node> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Whether so many files with several names were met that no more directories are summed up.
    fn is_full(&self) -> bool {
        self.summing.shared_files() > SHARED_FILES_MAX
    }
}

impl Telling {
    fn new(to: Sender<Vec<Message>>, pace: Pace, wanted: &TreeWanted) -> Telling {
        let packing = if wanted.packs == Some(true) { Packing::Packed } else { Packing::Plain };
        Telling {
            to,
            pace,
            packing,
            known: wanted.sums.as_ref().and_then(Known::of),
            same: HashMap::new(),
            page: Page::default(),
            room: packing.page_bytes(),
            told: 0,
            left_out: 0,
            waiting: Vec::new(),
            is_alone: false,
        }
    }

    /// Walks through the tree with the help of further threads, or looks at one name in it.
    fn walk(mut self, replica: &Replica, (asked, helpers): (Asked, usize), only: Option<&RelPath>) {
        let each = &mut |found| self.take(found);
        let walked = match only {
            Some(name) => replica.survey_name(asked, name, each),
            None => replica.survey_with(asked, helpers, each),
        };
        let last = match walked {
            Ok(_) if self.told > ENTRIES_MAX => {
                Message::fault(Reason::Limit, "the tree has too many names")
            }
            Ok(is_there) => {
                self.leave_dir();
                self.turn_page();
                Message::TreeEnd(TreeEnd {
                    nodes_total: self.told,
                    is_there,
                    may_own: Replica::may_own(),
                    small_max: u32::try_from(SMALL_MAX).ok(),
                    alone: self.is_alone.then_some(true),
                    patches: Some(true),
                    packs: Some(true),
                })
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
                self.told += 1;
                self.told <= ENTRIES_MAX && self.look_at(*node)
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

    /// Holds a node back until its directory is complete, if the client may have the same; else
    /// tells it. Whether the client is still there.
    fn look_at(&mut self, node: Node) -> bool {
        let Some(known) = &self.known else { return self.tell(&node) };
        let dir = holder(node.name());
        // The tree's own directory is in none.
        let is_next = node.path.is_none() || known.dir != dir;
        if is_next && !self.leave_dir() {
            return false;
        }
        // Within a directory whose nodes are held back, there is a bound already.
        self.known.take_if(|known| known.held.is_empty() && known.is_full());
        let Some(known) = &mut self.known else { return self.tell(&node) };
        if is_next {
            holder(node.name()).clone_into(&mut known.dir);
        }
        if node.path.is_none() || known.is_large {
            known.summing.pass(std::slice::from_ref(&node));
            return self.tell(&node);
        }
        known.hold(node);
        if known.is_large { self.tell_held() } else { true }
    }

    /// Tells what was held back of a directory; whether the client is still there.
    fn leave_dir(&mut self) -> bool {
        let Some(known) = &mut self.known else { return true };
        known.is_large = false;
        if known.held.is_empty() {
            return true;
        }
        let sum = known.summing.sum(&known.dir, &known.held);
        match known.sums.get(&sum).copied() {
            Some(number) => self.tell_alike(number),
            None => self.tell_held(),
        }
    }

    /// Tells that a directory holds what the client has said; whether the client is still there.
    fn tell_alike(&mut self, number: u32) -> bool {
        let Some(known) = &mut self.known else { return true };
        let held = known.release();
        let same = held.iter().filter_map(|node| node.same);
        let same: Vec<u64> = same.map(|same| short(&mut self.same, same)).collect();
        let owner = |node: &Node| TreeOwner { uid: node.uid, gid: node.gid };
        let mut owners: Vec<TreeOwner> = held.iter().map(owner).collect();
        if owners.iter().all(|owner| owners.first() == Some(owner)) {
            owners.truncate(1);
        }
        if !self.make_room(8 * (same.len() + owners.len()) + ALIKE_BYTES) {
            return false;
        }
        let before = u32::try_from(self.page.nodes.len()).unwrap_or(u32::MAX);
        self.page.alike.push(TreeAlike { before, number, same, owners });
        true
    }

    fn tell_held(&mut self) -> bool {
        let Some(known) = &mut self.known else { return true };
        let held = known.release();
        known.summing.pass(&held);
        held.iter().all(|node| self.tell(node))
    }

    /// Tells a node; whether the client is still there.
    fn tell(&mut self, node: &Node) -> bool {
        if !self.make_room(node_bytes(node)) {
            return false;
        }
        let same = node.same.map(|same| short(&mut self.same, same));
        self.page.nodes.push(TreeNode { same, ..node_to_wire(node) });
        true
    }

    /// Makes sure that so many bytes more may come into the page; whether the client is still
    /// there.
    fn make_room(&mut self, bytes: usize) -> bool {
        let entries = self.page.nodes.len().max(self.page.alike.len());
        let is_full = entries == self.packing.page_nodes() || bytes > self.room;
        if is_full {
            self.turn_page();
            if !self.give() {
                return false;
            }
        }
        self.room = self.room.saturating_sub(bytes);
        true
    }

    fn turn_page(&mut self) {
        let Page { nodes, alike } = std::mem::take(&mut self.page);
        let alike = (!alike.is_empty()).then_some(AlikeList { dirs: alike });
        let page = TreePage { nodes, alike };
        self.room = self.packing.page_bytes();
        if !page.nodes.is_empty() || page.alike.is_some() {
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

/// Bytes of nodes that are held back of a directory, about; of one with more, all are told.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Files with several names that a survey with sums meets; what comes behind more is told in full.
const SHARED_FILES_MAX: usize = 1 << 16;

/// A short number in place of a long one that names of one file share.
fn short(all: &mut HashMap<u64, u64>, same: u64) -> u64 {
    let next = all.len() as u64;
    *all.entry(same).or_insert(next)
}

/// What a client is told of something that is left out: the reason says whether it may hide more.
fn fault_of(left_out: &LeftOut) -> Message {
    let reason = if left_out.hides { Reason::Unreadable } else { Reason::Other };
    let mut path = left_out.path.clone();
    path.truncate(PATH_MAX);
    let text = PeerText::new(left_out.why.clone());
    Message::Fault(Fault { reason, text, path: Some(path) })
}

/// Bytes of a directory that is alike, at most, beside numbers and owners.
const ALIKE_BYTES: usize = 32;

/// Names that are left out and told. A client that is not told of all must not infer anything from
/// absence; the last one that is told says so.
const LEFT_OUT_MAX: u64 = 1_000;

/// Why nothing is removed or moved.
const NO_DELETING: &str = "this key may not remove or move anything here (delete)";

/// Why a step is not tried when the server ends.
const STOPS: &str = "the server stops";

/// Bytes of the text of a step that failed, so that all of a page fit into one message.
const FAULT_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::engine::turns::Party;
    use crate::flows::tree::{Gathered, OwnTree};

    /// Where no quota counts.
    fn uncounted(dir: &std::path::Path) -> Counted {
        let budget = super::super::budget::Budget::new(gtp_alloc::Bytes(1));
        let outlets = super::super::outlet::Outlets::one(dir.to_owned(), "", None, budget);
        let verb = Verb::Tree { path: Vec::new(), changes: true };
        let key = crate::identity::Identity::generate().fingerprint();
        let keys = crate::trust::AuthorizedKeys::of_one(key, crate::trust::Access::ALL);
        let strangers = crate::trust::Strangers::Refused;
        let trust = crate::trust::ClientTrust { keys, strangers };
        let outlet = outlets.unwrap().find(&trust, &key, &verb).ok().unwrap().outlet;
        let (writer, meter) = outlet.writing(None);
        Counted { meter, outlet, tree: None, _writer: writer }
    }

    const TOLD: Rules = Rules { told: Changes::Told, deleting: Deleting::Allowed };

    #[test]
    fn without_the_right_to_delete_nothing_is_removed_or_moved_and_other_steps_are_done() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        let replica = Replica::beneath(dir.path(), None).unwrap();
        let kind = crate::messages::NodeKind::Directory;
        let seen = crate::messages::TreeSeen { kind, size: 0, mtime: None };
        let path = || b"a".to_vec();
        let deeds = vec![
            TreeDeed::Move { path: path(), seen, to: b"c".to_vec() },
            TreeDeed::Remove { path: path(), seen },
            TreeDeed::MakeDir { path: b"b".to_vec() },
        ];
        let rules = Rules { deleting: Deleting::Refused, ..TOLD };
        let Carried { done, .. } =
            carry_out(&replica, Deeds { deeds }, (rules, &uncounted(dir.path())), || false);
        let failed: Vec<u32> = done.faults.iter().map(|fault| fault.index).collect();
        assert_eq!(failed, [0, 1]);
        assert!(dir.path().join("a").exists() && dir.path().join("b").exists());
    }

    #[test]
    fn a_page_stops_between_its_steps_and_says_of_each_whether_it_was_carried_out() {
        let dir = tempfile::tempdir().unwrap();
        let replica = Replica::beneath(dir.path(), None).unwrap();
        let make = |name: &str| TreeDeed::MakeDir { path: name.into() };
        let deeds = Deeds { deeds: ["a", "b", "c"].map(make).into() };
        let looks = Cell::new(0);
        let must_stop = || looks.replace(looks.get() + 1) >= 1;
        let Carried { done, changes } =
            carry_out(&replica, deeds, (TOLD, &uncounted(dir.path())), must_stop);
        assert!(dir.path().join("a").is_dir());
        assert!(!dir.path().join("b").exists() && !dir.path().join("c").exists());
        let failed: Vec<u32> = done.faults.iter().map(|fault| fault.index).collect();
        assert_eq!(failed, [1, 2]);
        let told: Vec<_> = changes.iter().map(|change| change.failure.as_deref()).collect();
        assert_eq!(told, [None, Some(STOPS), Some(STOPS)]);
    }

    fn node_names(nodes: &[TreeNode]) -> Vec<String> {
        nodes.iter().map(|node| printable(&node.path)).collect()
    }

    /// What a server says of a tree to a client that has said these sums.
    fn told(dir: &std::path::Path, sums: Option<TreeSums>) -> Vec<TreePage> {
        let replica = Replica::beneath(dir, None).unwrap();
        let (to, mut from) = channel(1);
        let (hashes, xattrs, acls, packs, only) = (false, false, false, None, None);
        let none = TreeWanted { hashes, xattrs, acls, packs, sums, only };
        let pace = Pace::begin(Party::of(0, std::net::Ipv4Addr::LOCALHOST.into()));
        let telling = Telling::new(to, pace, &none);
        let walking =
            std::thread::spawn(move || telling.walk(&replica, (Asked::default(), 0), None));
        let mut pages = Vec::new();
        while let Some(messages) = from.blocking_recv() {
            pages.extend(messages.into_iter().filter_map(|message| match message {
                Message::TreePage(page) => Some(page),
                _ => None,
            }));
        }
        walking.join().unwrap();
        pages
    }

    fn own_tree(dir: &std::path::Path) -> (Vec<Node>, OwnTree) {
        let replica = Replica::beneath(dir, None).unwrap();
        let (mut nodes, mut summing) = (Vec::new(), Summing::new([3; 32]));
        let took = replica.survey(Asked::default(), &mut |found| {
            if let Surveyed::Node(node) = found {
                nodes.push(*node);
            }
            true
        });
        assert_eq!(took, Ok(true));
        let dirs = nodes[1..].chunk_by(|one, other| holder(one.name()) == holder(other.name()));
        let sums = dirs
            .map(|dir| (holder(dir[0].name()).to_owned(), summing.sum(holder(dir[0].name()), dir)));
        let sums = sums.collect();
        nodes.sort_by(|one, other| one.name().cmp(other.name()));
        (nodes.clone(), OwnTree::new(nodes, [3; 32], sums))
    }

    #[test]
    fn only_directories_that_the_client_has_not_said_are_told_and_it_knows_the_others() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/b", "a-b", "c"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let names = ["a/b/x", "a/b/y", "a/z", "a-b/f", "c/f"];
        names.iter().for_each(|name| std::fs::write(dir.path().join(name), name).unwrap());
        std::fs::hard_link(dir.path().join("a/z"), dir.path().join("c/same")).unwrap();
        let (_, own) = own_tree(dir.path());
        std::fs::write(dir.path().join("a/b/y"), "other").unwrap();
        std::fs::write(dir.path().join("c/new"), "new").unwrap();
        let pages = told(dir.path(), Some(own.to_wire()));
        let plain: Vec<String> = pages.iter().flat_map(|page| node_names(&page.nodes)).collect();
        assert_eq!(plain, ["", "a", "a-b", "c", "a/b/x", "a/b/y", "c/f", "c/new", "c/same"]);
        let mut gathered = Gathered::beside(Some(&own));
        pages.into_iter().for_each(|page| gathered.page(page, |_| {}).unwrap());
        let (now, _) = own_tree(dir.path());
        let same = |nodes: &[Node]| -> Vec<Node> {
            nodes.iter().map(|node| Node { same: None, ..node.clone() }).collect()
        };
        let known = gathered.end(now.len() as u64).unwrap();
        assert_eq!(same(&known), same(&now));
        let number = |name: &str| known.iter().find(|node| node.name() == name).unwrap().same;
        assert!(number("a/z").is_some() && number("a/z") == number("c/same"));
        let all: usize = told(dir.path(), None).iter().map(|page| page.nodes.len()).sum();
        assert_eq!(all, now.len());
    }

    /// What a server holds back for a client that has said sums, once these nodes have come, and
    /// how many it has counted. The walk's turn is given back: another walk may wait for it.
    fn held_back(nodes: impl Iterator<Item = Node>) -> (Option<Known>, u64) {
        let (to, _from) = channel(1_000);
        let sums = TreeSums { key: vec![3; 32], sums: Vec::new() };
        let (hashes, xattrs, acls, packs, only) = (false, false, false, None, None);
        let wanted = TreeWanted { hashes, xattrs, acls, packs, sums: Some(sums), only };
        let pace = Pace::begin(Party::of(0, std::net::Ipv4Addr::LOCALHOST.into()));
        let mut telling = Telling::new(to, pace, &wanted);
        for node in nodes {
            assert!(telling.take(Surveyed::Node(Box::new(node))));
        }
        (telling.known, telling.told)
    }

    /// An empty file, one of several names if it has a number.
    fn file(name: &str, same: Option<u64>) -> Node {
        let mtime = gtp_store::Mtime::new(1, 2).unwrap();
        let (path, kind) = (Some(RelPath::new(name).unwrap()), gtp_store::replica::NodeKind::File);
        let (hash, xattrs) = (None, Vec::new());
        Node { path, kind, size: 0, mode: 0, mtime, uid: 0, gid: 0, same, hash, xattrs }
    }

    #[test]
    fn of_a_directory_no_more_than_a_bounded_number_of_bytes_is_held_back() {
        let xattr = || ("user.x".to_owned(), vec![0; 60_000]);
        let large = |name: &str| Node { xattrs: vec![xattr()], ..file(name, None) };
        let held_of = |count: u32| {
            let nodes = (0..count).map(|number| large(&format!("d/{number:02}")));
            held_back(nodes).0.unwrap()
        };
        let few = held_of(17);
        assert!(!few.is_large && few.held.len() == 17);
        let many = held_of(30);
        assert!(many.is_large && many.held.is_empty() && many.held_bytes == 0);
    }

    #[test]
    fn no_more_is_summed_up_behind_a_bounded_number_of_files_with_several_names() {
        let all = |count: u64| {
            let names = (0..count).map(|number| file(&format!("{number}/f"), Some(number)));
            names.chain([file("z/f", None)])
        };
        let most = SHARED_FILES_MAX as u64;
        let (known, _) = held_back(all(most));
        assert!(known.is_some());
        let (known, told) = held_back(all(most + 2));
        assert!(known.is_none() && told == most + 3);
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
