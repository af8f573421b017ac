//! Tells a client what a tree holds, in pages, as a walk goes through it.
//!
//! Nodes of a directory that the client may have too are held back until the directory is complete;
//! if the client has said its sum, it is only told that it has the same. This module must not know
//! who asks, nor how pages travel.

use std::collections::HashMap;

use gtp_store::RelPath;
use gtp_store::replica::{Asked, DirSum, LeftOut, Node, Replica, SUMMED_MAX, Summing, Surveyed};
use rustix::io::Errno;
use tokio::sync::mpsc::Sender;

use super::packing::Packing;
use crate::flows::tree::{holder, node_bytes, node_to_wire};
use crate::messages::{
    AlikeList, ENTRIES_MAX, Fault, Message, PATH_MAX, Packed, PeerText, Reason, SMALL_MAX,
    TreeAlike, TreeEnd, TreeNode, TreeOwner, TreePage, TreeSums, TreeWanted,
};
use crate::server::walks::Pace;

/// Walks through a tree and gives what is there to a client, in pages.
pub(super) struct Telling {
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
    pub is_alone: bool,
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
    pub fn new(to: Sender<Vec<Message>>, pace: Pace, wanted: &TreeWanted) -> Telling {
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
    pub fn walk(
        mut self,
        replica: &Replica,
        (asked, helpers): (Asked, usize),
        only: Option<&RelPath>,
    ) {
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
                Packing::Packed => Message::TreePacked(Packed(page)),
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::channel;

    use super::*;
    use crate::engine::turns::Party;
    use crate::flows::tree::{Gathered, OwnTree};
    use crate::messages::printable;

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
}
