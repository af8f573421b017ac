//! Trees between the store's words and the wire's: nodes, steps, pages.
//!
//! What comes from a peer is checked here once: names by the store's rules, and that each node is
//! in a directory that was told before it.

use std::collections::HashSet;

use gtp_store::replica::{Asked, Deed, Dress, Node, NodeKind as Kind, Seen, Xattr};
use gtp_store::{Mtime, RelPath, Value};

use crate::messages::{
    DEEDS_PER_PAGE, Deeds, ENTRIES_MAX, Moment, NodeKind, PATHS_MAX, Roots, TREE_EXTRAS_MAX,
    TreeDeed, TreeNode, TreePage, TreeSeen, TreeWanted, TreeXattr, XattrList, printable,
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
    /// An end that does not fit.
    #[error("the tree ends with a number of names that did not come")]
    Count,
}

/// Gathers the pages of a survey.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    nodes: Vec<Node>,
    dirs: HashSet<String>,
    names: HashSet<String>,
    path_bytes: usize,
    extra_bytes: usize,
}

impl Gathered {
    /// Takes a page in.
    ///
    /// # Errors
    /// [`BadTree`].
    pub fn page(&mut self, page: TreePage) -> Result<(), BadTree> {
        for wire in page.nodes {
            let node = node(wire)?;
            self.path_bytes += node.name().len();
            self.extra_bytes += extra_bytes(&node);
            let count = self.nodes.len() as u64;
            if count > ENTRIES_MAX
                || self.path_bytes > PATHS_MAX
                || self.extra_bytes > TREE_EXTRAS_MAX
            {
                return Err(BadTree::TooMuch);
            }
            let path = node.name().to_owned();
            let (holder, _) = path.rsplit_once('/').unwrap_or(("", &path));
            let fits = match &node.path {
                None => self.nodes.is_empty() && node.is_dir(),
                Some(_) => self.dirs.contains(holder),
            };
            if !fits || !self.names.insert(path.clone()) {
                return Err(BadTree::Order(printable(path.as_bytes())));
            }
            if node.is_dir() {
                self.dirs.insert(path);
            }
            self.nodes.push(node);
        }
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
pub(crate) fn wanted(asked: Asked) -> TreeWanted {
    TreeWanted { hashes: asked.hashes, xattrs: asked.xattrs, acls: asked.acls, packs: Some(true) }
}

/// What a message asks of a survey.
pub(crate) fn asked(wanted: TreeWanted) -> Asked {
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
        Deed::Move { to, .. } | Deed::HardLink { to, .. } => to.as_str().len(),
        Deed::Link { target, .. } => target.len(),
        Deed::Dress(dress) => {
            let lists = [&dress.xattrs, &dress.acls].into_iter().flatten().flatten();
            lists.map(|(name, value)| name.len() + value.len() + 16).sum()
        }
        Deed::MakeDir { .. } | Deed::Remove { .. } | Deed::Dig { .. } => 0,
    };
    deed.name().len() + more + 96
}

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
        gathered.page(TreePage { nodes })?;
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
