//! Trees between the store's words and the wire's: nodes, steps, pages.
//!
//! What comes from a peer is checked here once: names by the store's rules, and that each node is
//! in a directory that was told before it.

use std::collections::{HashMap, HashSet};

use gtp_store::replica::{
    Asked, Deed, DirSum, Dress, Keep, Node, NodeKind as Kind, Patch, Seen, Xattr, piece_sums,
};
use gtp_store::{Mtime, RelPath, Value};

use crate::flows::When;
use crate::messages::{
    CONTENTS_BYTES_MAX, CONTENTS_PER_PAGE, ContentsWanted, DEEDS_PER_PAGE, Deeds, ENTRIES_MAX,
    Message, Moment, NodeKind, OwnPieces, PACKED_PAGE_MAX, PATHS_MAX, Packed, Roots, SmallFile,
    TREE_EXTRAS_MAX, TREE_SUMS_MAX, TreeAlike, TreeDeed, TreeNode, TreePage, TreeSeen, TreeSums,
    TreeWanted, TreeXattr, XattrList, printable,
};

/// Why a survey is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTree {
    /// A name that breaks a rule.
    #[error("{0}: {1}")]
    Name(String, String),
    /// A node that is in no directory, or told twice.
    #[error("{0}: it is told twice, or before the directory that holds it")]
    Order(String),
    /// More than there may be.
    #[error("the tree has too many names, or too long ones")]
    TooMuch,
    /// Directories that are said to be alike and are none of this end's.
    #[error("it calls a directory alike that is not known here")]
    Alike,
    /// An end that does not fit.
    #[error("the tree ends with a number of names that did not come")]
    Count,
}

/// A tree of this end's, of which the other end need not tell what both hold.
#[derive(Debug)]
pub struct OwnTree {
    /// Its nodes, sorted by the bytes of their paths.
    nodes: Vec<Node>,
    key: [u8; 32],
    /// The directories that are summed up, with their sums.
    sums: Vec<(String, DirSum)>,
}

impl OwnTree {
    /// Draws a key for the sums of a tree.
    pub fn draw_key() -> [u8; 32] {
        let mut key = [0; 32];
        gtp_sys::entropy::fill(&mut key);
        key
    }

    /// A tree with these nodes, and sums of its directories that were made with this key. The first
    /// ones count.
    pub fn new(nodes: Vec<Node>, key: [u8; 32], mut sums: Vec<(String, DirSum)>) -> OwnTree {
        sums.truncate(TREE_SUMS_MAX);
        OwnTree { nodes, key, sums }
    }

    /// What has this path in it.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| node.name().cmp(path)).ok()?;
        self.nodes.get(at)
    }

    /// The sums for the wire.
    pub(crate) fn to_wire(&self) -> TreeSums {
        let sums = self.sums.iter().flat_map(|(_, sum)| sum).copied().collect();
        TreeSums { key: self.key.to_vec(), sums }
    }

    /// For each directory that is summed up, the nodes in it.
    fn by_directory(&self) -> Vec<Vec<&Node>> {
        let numbers = self.sums.iter().map(|(dir, _)| dir.as_str()).zip(0..);
        let numbers: HashMap<&str, usize> = numbers.collect();
        let mut dirs = vec![Vec::new(); self.sums.len()];
        for node in self.nodes.iter().filter(|node| node.path.is_some()) {
            if let Some(&number) = numbers.get(holder(node.name())) {
                dirs[number].push(node);
            }
        }
        dirs
    }
}

/// The directory that holds a path.
pub(crate) fn holder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(holder, _)| holder)
}

/// Gathers the pages of a survey.
#[derive(Debug, Default)]
pub(crate) struct Gathered<'a> {
    /// What this end's directories hold, by the places of their sums.
    own: Vec<Vec<&'a Node>>,
    nodes: Vec<Node>,
    dirs: HashSet<String>,
    names: HashSet<String>,
    path_bytes: usize,
    extra_bytes: usize,
}

impl<'a> Gathered<'a> {
    /// Of a tree that is to be told beside this one.
    pub fn beside(own: Option<&'a OwnTree>) -> Gathered<'a> {
        Gathered { own: own.map(OwnTree::by_directory).unwrap_or_default(), ..Gathered::default() }
    }

    /// Takes a page in, and hands on each node that it tells in full.
    ///
    /// # Errors
    /// [`BadTree`].
    pub fn page(&mut self, page: TreePage, mut each: impl FnMut(&Node)) -> Result<(), BadTree> {
        let alike = page.alike.map(|list| list.dirs).unwrap_or_default();
        let mut alike = alike.into_iter().peekable();
        for (number, wire) in page.nodes.into_iter().enumerate() {
            while let Some(dir) = alike.next_if(|dir| dir.before as usize <= number) {
                self.alike(dir)?;
            }
            let node = node(wire)?;
            each(&node);
            self.take(node)?;
        }
        alike.try_for_each(|dir| self.alike(dir))
    }

    /// Takes the nodes of a directory from this end's.
    fn alike(&mut self, dir: TreeAlike) -> Result<(), BadTree> {
        let number = dir.number as usize;
        // Told twice, it would hold nothing.
        let nodes = std::mem::take(self.own.get_mut(number).ok_or(BadTree::Alike)?);
        let mut numbers = dir.same.into_iter();
        let owners = dir.owners;
        if nodes.is_empty() || owners.len() != 1 && owners.len() != nodes.len() {
            return Err(BadTree::Alike);
        }
        for (node, owner) in nodes.into_iter().zip(owners.iter().cycle()) {
            let same = node.same.map(|_| numbers.next().ok_or(BadTree::Alike)).transpose()?;
            self.take(Node { same, uid: owner.uid, gid: owner.gid, ..node.clone() })?;
        }
        if numbers.next().is_some() { Err(BadTree::Alike) } else { Ok(()) }
    }

    fn take(&mut self, node: Node) -> Result<(), BadTree> {
        self.path_bytes += node.name().len();
        self.extra_bytes += extra_bytes(&node);
        let count = self.nodes.len() as u64;
        if count > ENTRIES_MAX || self.path_bytes > PATHS_MAX || self.extra_bytes > TREE_EXTRAS_MAX
        {
            return Err(BadTree::TooMuch);
        }
        let path = node.name().to_owned();
        let fits = match &node.path {
            None => self.nodes.is_empty() && node.is_dir(),
            Some(_) => self.dirs.contains(holder(&path)),
        };
        if !fits || !self.names.insert(path.clone()) {
            return Err(BadTree::Order(printable(path.as_bytes())));
        }
        if node.is_dir() {
            self.dirs.insert(path);
        }
        self.nodes.push(node);
        Ok(())
    }

    /// All nodes, sorted by the bytes of their paths.
    ///
    /// # Errors
    /// [`BadTree::Count`].
    pub fn end(mut self, total: u64) -> Result<Vec<Node>, BadTree> {
        if self.nodes.len() as u64 != total {
            return Err(BadTree::Count);
        }
        self.nodes.sort_by(|one, other| one.name().cmp(other.name()));
        Ok(self.nodes)
    }
}

fn extra_bytes(node: &Node) -> usize {
    let target = if let Kind::Link(target) = &node.kind { target.len() } else { 0 };
    target + node.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

/// What a survey is asked for, as a message.
pub(crate) fn wanted(asked: Asked, own: Option<&OwnTree>, only: Option<&RelPath>) -> TreeWanted {
    TreeWanted {
        hashes: asked.hashes,
        xattrs: asked.xattrs,
        acls: asked.acls,
        packs: Some(true),
        sums: own.map(OwnTree::to_wire),
        only: only.map(bytes_of),
    }
}

/// What a message asks of a survey.
pub(crate) fn asked(wanted: &TreeWanted) -> Asked {
    Asked { hashes: wanted.hashes, xattrs: wanted.xattrs, acls: wanted.acls }
}

/// A path as the wire has it; `None` is the tree's own directory.
fn path(bytes: &[u8]) -> Result<Option<RelPath>, BadTree> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let named = RelPath::from_bytes(bytes);
    named.map(Some).map_err(|why| BadTree::Name(printable(bytes), why.to_string()))
}

/// A path that names something beneath the tree.
pub(crate) fn name(bytes: &[u8]) -> Result<RelPath, BadTree> {
    path(bytes)?.ok_or_else(|| BadTree::Name(String::new(), "no name is given".into()))
}

fn moment(mtime: Mtime) -> Moment {
    Moment { seconds: mtime.secs(), nanos: mtime.nanos() }
}

fn mtime(moment: Moment) -> Result<Mtime, BadTree> {
    let bad = |_| BadTree::Name(String::new(), "a time that there is not".into());
    Mtime::new(moment.seconds, moment.nanos).map_err(bad)
}

fn xattr_to_wire((name, value): &Xattr) -> TreeXattr {
    TreeXattr { name: name.clone(), value: value.clone() }
}

fn xattrs(wire: Vec<TreeXattr>) -> Vec<Xattr> {
    let mut all: Vec<Xattr> = wire.into_iter().map(|one| (one.name, one.value)).collect();
    all.sort();
    all
}

/// A node for the wire.
pub(crate) fn node_to_wire(node: &Node) -> TreeNode {
    let (kind, target) = match &node.kind {
        Kind::File => (NodeKind::File, None),
        Kind::Dir => (NodeKind::Directory, None),
        Kind::Link(target) => (NodeKind::Link, Some(target.clone())),
        Kind::Special => (NodeKind::Special, None),
    };
    TreeNode {
        path: node.name().as_bytes().to_vec(),
        kind,
        size: node.size,
        mode: node.mode,
        mtime: moment(node.mtime),
        uid: node.uid,
        gid: node.gid,
        target,
        same: node.same,
        hash: node.hash.map(|hash| Roots(vec![hash])),
        xattrs: node.xattrs.iter().map(xattr_to_wire).collect(),
    }
}

fn node(wire: TreeNode) -> Result<Node, BadTree> {
    let kind = match wire.kind {
        NodeKind::File => Kind::File,
        NodeKind::Directory => Kind::Dir,
        NodeKind::Link => Kind::Link(wire.target.unwrap_or_default()),
        NodeKind::Special => Kind::Special,
    };
    let hash: Option<Value> = wire.hash.and_then(|hash| hash.0.first().copied());
    Ok(Node {
        path: path(&wire.path)?,
        size: if kind == Kind::File { wire.size } else { 0 },
        kind,
        mode: wire.mode,
        mtime: mtime(wire.mtime)?,
        uid: wire.uid,
        gid: wire.gid,
        same: wire.same,
        hash,
        xattrs: xattrs(wire.xattrs),
    })
}

/// Bytes that a node takes in a page, at most.
pub(crate) fn node_bytes(node: &Node) -> usize {
    node.name().len() + extra_bytes(node) + 128 + 8 * node.xattrs.len()
}

/// Steps for the wire, in pages that may be sent.
pub(crate) fn pages(deeds: &[Deed]) -> Vec<Deeds> {
    let mut pages: Vec<Deeds> = Vec::new();
    let mut room = 0;
    for deed in deeds {
        let bytes = deed_bytes(deed);
        let full = pages.last().is_none_or(|page| page.deeds.len() == DEEDS_PER_PAGE);
        if full || bytes > room {
            pages.push(Deeds { deeds: Vec::new() });
            room = PAGE_BYTES;
        }
        room = room.saturating_sub(bytes);
        if let Some(page) = pages.last_mut() {
            page.deeds.push(deed_to_wire(deed));
        }
    }
    pages
}

fn deed_bytes(deed: &Deed) -> usize {
    let more = match deed {
        Deed::Move { to, .. } | Deed::HardLink { to, .. } | Deed::Keep { to, .. } => {
            to.as_str().len()
        }
        Deed::Link { target, .. } => target.len(),
        Deed::Dress(dress) => {
            let lists = [&dress.xattrs, &dress.acls].into_iter().flatten().flatten();
            lists.map(|(name, value)| name.len() + value.len() + 16).sum()
        }
        Deed::Write { content, .. } => content.len(),
        Deed::Patch { patch, .. } => patch.rest.len() + 64,
        Deed::MakeDir { .. } | Deed::Remove { .. } | Deed::Dig { .. } => 0,
    };
    deed.name().len() + more + 96
}

/// A page of these steps as a message, packed if the server understands that and it saves time:
/// not if the page goes out at once anyway, nor if it is long, when it is content that most of it
/// holds.
pub(crate) fn page_message(page: Deeds, steps: &[Deed], packs: bool) -> Message {
    let bytes: usize = steps.iter().map(deed_bytes).sum();
    match packs && (SENT_AT_ONCE..=PACKED_BYTES_MAX).contains(&bytes) {
        true => Message::DeedsPacked(Packed(page)),
        false => Message::Deeds(page),
    }
}

/// Bytes of a page of steps, about, that is still packed.
const PACKED_BYTES_MAX: usize = PACKED_PAGE_MAX / 2;

/// Bytes of a page of steps, unless it has one step only.
const PAGE_BYTES: usize = 512 << 10;

fn seen_to_wire(seen: Seen) -> TreeSeen {
    match seen {
        Seen::File { size, mtime } => {
            TreeSeen { kind: NodeKind::File, size, mtime: Some(moment(mtime)) }
        }
        Seen::Dir => TreeSeen { kind: NodeKind::Directory, size: 0, mtime: None },
        Seen::Link => TreeSeen { kind: NodeKind::Link, size: 0, mtime: None },
    }
}

fn seen(wire: TreeSeen) -> Result<Seen, BadTree> {
    match (wire.kind, wire.mtime) {
        (NodeKind::File, Some(time)) => Ok(Seen::File { size: wire.size, mtime: mtime(time)? }),
        (NodeKind::Directory, _) => Ok(Seen::Dir),
        (NodeKind::Link, _) => Ok(Seen::Link),
        (NodeKind::File, None) | (NodeKind::Special, _) => {
            Err(BadTree::Name(String::new(), "what was seen is no file, directory or link".into()))
        }
    }
}

/// A small file of which something is asked.
#[derive(Clone, Debug)]
pub struct SmallAsked {
    /// Its path beneath the tree.
    pub path: RelPath,
    /// What was seen there.
    pub seen: Seen,
    /// The older version that this end has; what both have in common need not travel.
    pub old: Option<Vec<u8>>,
}

/// What is asked of small files.
#[derive(Clone, Copy)]
pub(crate) enum Question {
    /// Their contents.
    Contents(When),
    /// What makes them of this end's older versions, whose pieces are summed up with this key.
    Rests(When, [u8; 32]),
    /// Sums of their pieces, made with this key.
    Sums([u8; 32]),
}

impl Question {
    /// A page without files.
    fn page(self) -> ContentsWanted {
        let (when, key) = match self {
            Question::Contents(when) => (when, None),
            Question::Rests(when, key) => (when, Some(key)),
            Question::Sums(key) => (When::Now, Some(key)),
        };
        let (files, settled) = (Vec::new(), when == When::Settled);
        ContentsWanted { files, settled, key: key.map(|key| key.to_vec()) }
    }

    /// A file of it.
    fn file(self, SmallAsked { path, seen, old }: &SmallAsked) -> SmallFile {
        let own = match self {
            Question::Contents(_) | Question::Sums(_) => None,
            Question::Rests(_, key) => {
                let old = old.as_deref().unwrap_or_default();
                let size = u32::try_from(old.len()).unwrap_or(u32::MAX);
                Some(OwnPieces { size, sums: piece_sums(old, &key).concat() })
            }
        };
        SmallFile { path: bytes_of(path), seen: seen_to_wire(*seen), own }
    }
}

/// Questions for small files, in pages that may be sent.
pub(crate) fn questions(files: &[SmallAsked], what: Question) -> Vec<ContentsWanted> {
    let mut pages: Vec<ContentsWanted> = Vec::new();
    let (mut room, mut contents) = (0, 0);
    for asked in files {
        let file = what.file(asked);
        let said = question_bytes(asked) + file.own.as_ref().map_or(0, |own| own.sums.len());
        let content = size_of(asked.seen);
        let is_full = pages.last().is_none_or(|page| page.files.len() == CONTENTS_PER_PAGE);
        if is_full || said > room || content > contents {
            pages.push(what.page());
            (room, contents) = (QUESTION_BYTES, CONTENTS_BYTES_MAX as u64);
        }
        room = room.saturating_sub(said);
        contents = contents.saturating_sub(content);
        if let Some(page) = pages.last_mut() {
            page.files.push(file);
        }
    }
    pages
}

/// Bytes of a question for one file, about; sums of this end's pieces come on top.
pub(crate) fn question_bytes(asked: &SmallAsked) -> usize {
    asked.path.as_str().len() + 80
}

/// Bytes that a connection sends before the first answer: ten packets.
pub const SENT_AT_ONCE: usize = 14_000;

/// Bytes of content of all small files beyond which none travels in steps. A connection that has
/// just begun to send carries them in ten round trips or so.
pub const SMALL_TOGETHER_MAX: u64 = 4 << 20;

/// Bytes of a question for contents.
const QUESTION_BYTES: usize = 48 << 10;

/// The length of a file in bytes; 0 for others.
pub(crate) fn size_of(seen: Seen) -> u64 {
    match seen {
        Seen::File { size, .. } => size,
        Seen::Dir | Seen::Link => 0,
    }
}

/// The file that a peer asks for.
///
/// # Errors
/// [`BadTree::Name`].
pub(crate) fn small_file(wire: &SmallFile) -> Result<(RelPath, Seen), BadTree> {
    Ok((name(&wire.path)?, seen(wire.seen)?))
}

fn bytes_of(path: &RelPath) -> Vec<u8> {
    path.as_str().as_bytes().to_vec()
}

fn deed_to_wire(deed: &Deed) -> TreeDeed {
    let path = deed.name().as_bytes().to_vec();
    match deed {
        Deed::MakeDir { .. } => TreeDeed::MakeDir { path },
        Deed::Remove { seen, .. } => TreeDeed::Remove { path, seen: seen_to_wire(*seen) },
        Deed::Move { seen, to, .. } => {
            TreeDeed::Move { path, seen: seen_to_wire(*seen), to: bytes_of(to) }
        }
        Deed::Link { target, .. } => TreeDeed::Link { path, target: target.clone() },
        Deed::HardLink { to, .. } => TreeDeed::HardLink { path, to: bytes_of(to) },
        Deed::Dig { .. } => TreeDeed::Dig { path },
        Deed::Keep { to, how, .. } => {
            TreeDeed::Keep { path, to: bytes_of(to), copied: *how == Keep::Copy }
        }
        Deed::Write { content, mode, mtime, .. } => {
            let (content, mtime) = (content.clone(), moment(*mtime));
            TreeDeed::Write { path, content, mode: *mode, mtime }
        }
        Deed::Patch { seen, patch, size, hash, mode, mtime, .. } => TreeDeed::Patch {
            path,
            seen: seen_to_wire(*seen),
            kept: patch.kept,
            rest: patch.rest.clone(),
            size: u32::try_from(*size).unwrap_or(u32::MAX),
            hash: hash.to_vec(),
            mode: *mode,
            mtime: moment(*mtime),
        },
        Deed::Dress(dress) => {
            let list = |all: &Option<Vec<Xattr>>| {
                all.as_ref().map(|all| XattrList { all: all.iter().map(xattr_to_wire).collect() })
            };
            TreeDeed::Dress {
                path,
                mode: dress.mode,
                mtime: dress.mtime.map(moment),
                uid: dress.owner.map(|(uid, _)| uid),
                gid: dress.owner.map(|(_, gid)| gid),
                xattrs: list(&dress.xattrs),
                acls: list(&dress.acls),
            }
        }
    }
}

/// The step that a peer asks for.
///
/// # Errors
/// [`BadTree::Name`].
pub(crate) fn deed(wire: TreeDeed) -> Result<Deed, BadTree> {
    Ok(match wire {
        TreeDeed::MakeDir { path: at } => Deed::MakeDir { path: path(&at)? },
        TreeDeed::Remove { path, seen: was } => {
            Deed::Remove { path: name(&path)?, seen: seen(was)? }
        }
        TreeDeed::Move { path, seen: was, to } => {
            Deed::Move { path: name(&path)?, seen: seen(was)?, to: name(&to)? }
        }
        TreeDeed::Link { path, target } => Deed::Link { path: name(&path)?, target },
        TreeDeed::HardLink { path, to } => Deed::HardLink { path: name(&path)?, to: name(&to)? },
        TreeDeed::Dig { path } => Deed::Dig { path: name(&path)? },
        TreeDeed::Keep { path, to, copied } => {
            let how = if copied { Keep::Copy } else { Keep::Name };
            Deed::Keep { path: name(&path)?, to: name(&to)?, how }
        }
        TreeDeed::Write { path, content, mode, mtime: time } => {
            Deed::Write { path: name(&path)?, content, mode, mtime: mtime(time)? }
        }
        TreeDeed::Patch { path, seen: was, kept, rest, size, hash, mode, mtime: time } => {
            let (patch, size) = (Patch { kept, rest }, size as usize);
            let hash = hash.first_chunk().copied().unwrap_or_default();
            let (path, seen, mtime) = (name(&path)?, seen(was)?, mtime(time)?);
            Deed::Patch { path, seen, patch, size, hash, mode, mtime }
        }
        TreeDeed::Dress { path: at, mode, mtime: time, uid, gid, xattrs: of_user, acls } => {
            Deed::Dress(Dress {
                path: path(&at)?,
                mode,
                mtime: time.map(mtime).transpose()?,
                owner: uid.zip(gid),
                xattrs: of_user.map(|list| xattrs(list.all)),
                acls: acls.map(|list| xattrs(list.all)),
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{AlikeList, TreeOwner};

    fn told(path: &str, kind: NodeKind) -> TreeNode {
        let target = (kind == NodeKind::Link).then(|| b"/etc".to_vec());
        TreeNode {
            path: path.as_bytes().to_vec(),
            kind,
            size: 0,
            mode: 0o644,
            mtime: Moment { seconds: 1, nanos: 2 },
            uid: 0,
            gid: 0,
            target,
            same: None,
            hash: None,
            xattrs: Vec::new(),
        }
    }

    fn gathered(nodes: &[(&str, NodeKind)]) -> Result<usize, BadTree> {
        let nodes: Vec<TreeNode> = nodes.iter().map(|(path, kind)| told(path, *kind)).collect();
        let total = nodes.len() as u64;
        let mut gathered = Gathered::default();
        gathered.page(TreePage { nodes, alike: None }, |_| {})?;
        gathered.end(total).map(|nodes| nodes.len())
    }

    #[test]
    fn a_survey_whose_names_lead_elsewhere_or_lie_beneath_a_link_is_refused() {
        use NodeKind::{Directory, File, Link};
        let root = ("", Directory);
        assert_eq!(gathered(&[root, ("d", Directory), ("d/f", File), ("l", Link)]), Ok(4));
        for hostile in ["../x", "/etc/passwd", "a/../../x", "d//x", "x\n", "x.gtp-part", "."] {
            assert!(gathered(&[root, (hostile, File)]).is_err(), "{hostile}");
        }
        for (one, other) in [("l", "l/f"), ("d", "e/f"), ("d/f", "d"), ("f", "f")] {
            let nodes = [root, (one, Link), (other, File)];
            assert!(matches!(gathered(&nodes), Err(BadTree::Order(_))), "{one} {other}");
        }
        assert!(gathered(&[("f", File)]).is_err(), "without the tree's own directory");
        assert_eq!(Gathered::default().end(1), Err(BadTree::Count));
    }

    /// A tree here whose directory `d` is summed up.
    fn own() -> OwnTree {
        let named = |path, kind| node(told(path, kind)).unwrap();
        let mut nodes = vec![named("", NodeKind::Directory), named("d", NodeKind::Directory)];
        nodes.push(Node { same: Some(99), ..named("d/a", NodeKind::File) });
        nodes.push(named("d/b", NodeKind::File));
        OwnTree::new(nodes, [0; 32], vec![("d".into(), [1; 8])])
    }

    fn alike(dirs: Vec<TreeAlike>) -> Result<Vec<Node>, BadTree> {
        let own = own();
        let mut gathered = Gathered::beside(Some(&own));
        let nodes = vec![told("", NodeKind::Directory), told("d", NodeKind::Directory)];
        gathered.page(TreePage { nodes, alike: Some(AlikeList { dirs }) }, |_| {})?;
        gathered.end(4)
    }

    fn in_d(owners: &[u32]) -> TreeAlike {
        let owners = owners.iter().map(|&uid| TreeOwner { uid, gid: 5 }).collect();
        TreeAlike { before: 2, number: 0, same: vec![7], owners }
    }

    #[test]
    fn a_directory_that_is_alike_holds_this_ends_nodes_with_the_other_ends_owners_and_numbers() {
        for (owners, expected) in [(&[3][..], [3, 3]), (&[3, 4], [3, 4])] {
            let nodes = alike(vec![in_d(owners)]).unwrap();
            let names: Vec<&str> = nodes.iter().map(Node::name).collect();
            assert_eq!(names, ["", "d", "d/a", "d/b"]);
            assert_eq!([nodes[2].uid, nodes[3].uid], expected);
            assert_eq!((nodes[2].same, nodes[3].same, nodes[3].gid), (Some(7), None, 5));
        }
    }

    #[test]
    fn a_directory_that_is_called_alike_wrongly_is_refused() {
        let lies = [
            vec![TreeAlike { number: 1, ..in_d(&[3]) }],
            vec![TreeAlike { same: Vec::new(), ..in_d(&[3]) }],
            vec![TreeAlike { same: vec![7, 8], ..in_d(&[3]) }],
            vec![in_d(&[3, 4, 5])],
            vec![in_d(&[3]), in_d(&[3])],
        ];
        for lie in lies {
            assert_eq!(alike(lie), Err(BadTree::Alike));
        }
        let early = TreeAlike { before: 1, ..in_d(&[3]) };
        assert!(matches!(alike(vec![early]), Err(BadTree::Order(_))), "before its directory");
        let mut unasked = Gathered::default();
        let page =
            TreePage { nodes: Vec::new(), alike: Some(AlikeList { dirs: vec![in_d(&[3])] }) };
        assert_eq!(unasked.page(page, |_| {}), Err(BadTree::Alike));
    }

    #[test]
    fn a_step_comes_back_as_it_was_and_one_with_a_hostile_name_is_refused() {
        let path = || RelPath::new("d/f").unwrap();
        let time = Mtime::new(-5, 7).unwrap();
        let was = Seen::File { size: 3, mtime: time };
        let attribute = ("user.x".to_owned(), b"y".to_vec());
        let deeds = [
            Deed::MakeDir { path: None },
            Deed::Remove { path: path(), seen: was },
            Deed::Move { path: path(), seen: Seen::Link, to: path() },
            Deed::Link { path: path(), target: b"../x".to_vec() },
            Deed::HardLink { path: path(), to: path() },
            Deed::Dig { path: path() },
            Deed::Keep { path: path(), to: path(), how: Keep::Name },
            Deed::Keep { path: path(), to: path(), how: Keep::Copy },
            Deed::Write { path: path(), content: vec![1, 0, 2], mode: 0o640, mtime: time },
            Deed::Patch {
                path: path(),
                seen: was,
                patch: Patch { kept: 5, rest: vec![9] },
                size: 4,
                hash: [3; 16],
                mode: 0o600,
                mtime: time,
            },
            Deed::Dress(Dress {
                path: Some(path()),
                mode: Some(0o640),
                mtime: Some(time),
                owner: Some((1, 2)),
                xattrs: Some(vec![attribute]),
                acls: None,
            }),
        ];
        let there: Vec<Deed> = pages(&deeds)
            .into_iter()
            .flat_map(|page| page.deeds)
            .map(|wire| deed(wire).unwrap())
            .collect();
        assert_eq!(there, deeds);
        for hostile in [&b""[..], b"..", b"/x", b"a/../b", b"x.gtp-journal", b"\xff"] {
            let wire = TreeDeed::Remove { path: hostile.to_vec(), seen: seen_to_wire(was) };
            assert!(deed(wire).is_err(), "{hostile:?}");
        }
    }
}
