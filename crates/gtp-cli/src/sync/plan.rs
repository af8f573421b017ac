//! What is to be done so that one tree becomes like another: two surveys in, a list of steps out.
//!
//! Nothing here touches a file or a network, so every rule can be tested without either. A source's
//! survey may come from a hostile peer: whatever it says, a step concerns only names that are
//! beneath the tree, and nothing is removed that the destination's survey did not show.

use std::collections::{BTreeMap, HashMap, HashSet};

use gtp::replica::{ACL_NAMES, Deed, Dress, Node, NodeKind, Seen, Xattr};
use gtp::{Mtime, RelPath, TimeStep};

/// What counts as a difference, and what is kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Whether files are compared by their hashes in place of their times.
    pub checksum: bool,
    /// Seconds by which times may differ and count as the same.
    pub modify_window_s: u64,
    /// The steps in which the destination keeps times.
    pub time_step: TimeStep,
    /// Whether what the source has not is removed.
    pub delete: bool,
    /// Whether names of one file stay names of one file.
    pub hard_links: bool,
    /// Whether owner and group are kept.
    pub owner: bool,
    /// Whether extended attributes are kept.
    pub xattrs: bool,
    /// Whether access control lists are kept.
    pub acls: bool,
    /// Whether zeros of files that are moved take no space.
    pub sparse: bool,
}

/// One line for the user: eleven letters as rsync has them, and the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What changes, as in the table of README.
    pub change: String,
    /// The path beneath the tree; `.` is the tree itself.
    pub path: String,
    /// Where a link leads, or which file a further name is of.
    pub to: Option<String>,
}

impl Item {
    /// Whether something is removed.
    pub fn is_deletion(&self) -> bool {
        self.change == DELETING
    }
}

/// A version of a file that another one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Its length in bytes.
    pub size: u64,
    /// When its content last changed.
    pub mtime: Mtime,
}

/// Steps by which the destination becomes like the source, in the order of the fields.
#[derive(Debug, Default)]
pub struct Plan {
    /// Lines for the user, in the order of paths; deletions come first.
    pub items: Vec<Item>,
    /// What is in the way of something of another kind.
    pub obstacles: Vec<Deed>,
    /// Further names for files that are to be replaced, with the directories for them.
    pub backed: Vec<Deed>,
    /// Which file each of these further names, escaped for display, is of.
    pub backed_as: HashMap<String, String>,
    /// What is kept in a directory elsewhere before it is overwritten or removed, and its name
    /// there.
    pub kept: Vec<(RelPath, RelPath)>,
    /// Directories to be made.
    pub dirs: Vec<Deed>,
    /// Times of files that differ in their content only, so that no later run takes them for equal.
    pub aged: Vec<Deed>,
    /// Files to be moved, with their sizes in bytes.
    pub files: BTreeMap<String, u64>,
    /// Files to be moved of which another version is there, with what was seen of that.
    pub replaced: HashMap<String, Replaced>,
    /// Symbolic links.
    pub links: Vec<Deed>,
    /// Further names of files.
    pub names: Vec<Deed>,
    /// Files whose zeros are to take no space.
    pub dug: Vec<Deed>,
    /// Attributes of files and links.
    pub dressed: Vec<Deed>,
    /// What the source has not, each directory after what it holds.
    pub removed: Vec<Deed>,
    /// Attributes of directories, each after those beneath it.
    pub dressed_dirs: Vec<Deed>,
    /// What cannot be done or kept: paths, with the reasons.
    pub unkept: Vec<(String, String)>,
}

impl Plan {
    /// Returns how many names are removed, or replaced by something of another kind.
    pub fn removals(&self) -> usize {
        self.obstacles.iter().chain(&self.removed).count()
    }

    /// Returns whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes of all files to be moved.
    pub fn bytes(&self) -> u64 {
        self.files.values().sum()
    }

    /// Keeps everything that is there.
    pub fn remove_nothing(&mut self) {
        let kept: HashSet<&str> = self.removed.iter().map(Deed::name).collect();
        self.items.retain(|item| item.change != DELETING || !kept.contains(item.path.as_str()));
        // What stays needs no backup.
        self.kept.retain(|(path, _)| !kept.contains(path.as_str()));
        self.removed.clear();
    }
}

impl Plan {
    /// Does nothing at these names and beneath them.
    pub fn leave_beneath(&mut self, left: &HashSet<String>) {
        if left.is_empty() {
            return;
        }
        let is_left = |path: &str| ancestors(path).any(|part| left.contains(part));
        self.items.retain(|item| !is_left(&item.path));
        self.files.retain(|path, _| !is_left(path));
        self.kept.retain(|(path, _)| !is_left(path.as_str()));
        let all = [&mut self.obstacles, &mut self.dirs, &mut self.aged, &mut self.links];
        let more = [&mut self.names, &mut self.dug, &mut self.dressed];
        let last = [&mut self.removed, &mut self.dressed_dirs];
        for deeds in all.into_iter().chain(more).chain(last) {
            deeds.retain(|deed| !is_left(deed.name()));
        }
    }

    /// Leaves the tree's own directory as it is, but that it is made.
    pub fn spare_root(&mut self) {
        self.items.retain(|item| item.path != "." || item.change.starts_with('c'));
        self.dressed_dirs.retain(|deed| !deed.name().is_empty());
        self.unkept.retain(|(path, _)| path != ".");
    }

    /// Keeps what is in the way of something of another kind, with all that would come in its
    /// place.
    pub fn spare_obstacles(&mut self) {
        let spared: HashSet<String> =
            self.obstacles.drain(..).map(|deed| deed.name().to_owned()).collect();
        self.leave_beneath(&spared);
    }
}

/// What stands in place of the letters where something is removed.
pub const DELETING: &str = "*deleting  ";

/// Decides what is to be done. `protected` are directories of the destination that hold something
/// that is not to be touched. Both surveys are sorted by path.
pub fn plan(
    source: &[Node],
    destination: &[Node],
    protected: &HashSet<String>,
    rules: Rules,
) -> Plan {
    let there: HashMap<&str, &Node> = destination.iter().map(|node| (node.name(), node)).collect();
    let mut planner = Planner {
        rules,
        there,
        leaders: leaders(source, rules),
        cleared: HashSet::new(),
        refused: HashSet::new(),
        touched: HashSet::new(),
        wanted_dirs: Vec::new(),
        plan: Plan::default(),
    };
    for node in source {
        planner.node(node, destination);
    }
    planner.remove_others(source, destination, protected);
    planner.dress_dirs();
    planner.plan
}

/// For each file with several names in the source, its first name.
fn leaders(source: &[Node], rules: Rules) -> HashMap<u64, &Node> {
    let mut leaders = HashMap::new();
    for node in source.iter().filter(|node| rules.hard_links && node.is_file()) {
        if let Some(same) = node.same {
            leaders.entry(same).or_insert(node);
        }
    }
    leaders
}

struct Planner<'a> {
    rules: Rules,
    there: HashMap<&'a str, &'a Node>,
    leaders: HashMap<u64, &'a Node>,
    /// Names at which something of another kind is removed before.
    cleared: HashSet<String>,
    /// Names at which something that cannot be removed stands.
    refused: HashSet<String>,
    /// Directories in which something changes.
    touched: HashSet<String>,
    wanted_dirs: Vec<&'a Node>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn node(&mut self, node: &'a Node, destination: &[Node]) {
        let holder = parent(node.name());
        if node.path.is_some() && self.refused.contains(holder) {
            self.refused.insert(node.name().to_owned());
            return;
        }
        if node.kind == NodeKind::Special {
            self.unkept(node.name(), "is a device, pipe or socket, which is not carried");
            return;
        }
        if node.mode & 0o7000 != 0 && !matches!(node.kind, NodeKind::Link(_)) {
            self.unkept(node.name(), "its set-user, set-group or sticky bit is not kept");
        }
        if !self.clear_way(node, destination) {
            self.refused.insert(node.name().to_owned());
            return;
        }
        let there = self.there.get(node.name()).copied();
        let there = there.filter(|_| !self.cleared.contains(node.name()));
        match &node.kind {
            NodeKind::Dir => self.dir(node, there),
            NodeKind::File => self.file(node, there),
            NodeKind::Link(target) => self.link(node, target, there),
            NodeKind::Special => {}
        }
    }

    /// Removes what is at a node's name and is of another kind; whether the name is free then.
    fn clear_way(&mut self, node: &Node, destination: &[Node]) -> bool {
        let Some(there) = self.there.get(node.name()).copied() else { return true };
        if same_kind(node, there) || self.cleared.contains(node.name()) {
            return true;
        }
        let Some(path) = there.path.clone() else {
            self.unkept("", "the destination is no directory");
            return false;
        };
        let mut beneath = Vec::new();
        if there.is_dir() {
            let prefix = format!("{}/", there.name());
            let inside = destination.iter().filter(|other| other.name().starts_with(&prefix));
            beneath.extend(inside);
            if !beneath.is_empty() && !self.rules.delete {
                self.unkept(node.name(), "a directory that is not empty is in the way (--delete)");
                return false;
            }
        }
        let mut deeds = Vec::new();
        for other in beneath.into_iter().rev().chain([there]) {
            let (Some(path), Some(seen)) = (other.path.clone(), Seen::of(other)) else {
                self.unkept(node.name(), "a device, pipe or socket is in the way");
                return false;
            };
            deeds.push(Deed::Remove { path, seen });
        }
        for deed in &deeds {
            self.item(DELETING, deed.name(), None);
            self.cleared.insert(deed.name().to_owned());
        }
        self.touch(path.as_str());
        self.plan.obstacles.extend(deeds);
        true
    }

    fn dir(&mut self, node: &'a Node, there: Option<&Node>) {
        self.wanted_dirs.push(node);
        match there {
            Some(there) => {
                let change = self.attributes(node, there);
                if change.iter().any(|&c| c != '.') {
                    self.touched.insert(node.name().to_owned());
                    self.item(&letters('.', 'd', &change), node.name(), None);
                }
            }
            None => {
                self.plan.dirs.push(Deed::MakeDir { path: node.path.clone() });
                self.touched.insert(node.name().to_owned());
                self.touch(node.name());
                self.item("cd+++++++++", node.name(), None);
            }
        }
    }

    fn file(&mut self, node: &'a Node, there: Option<&Node>) {
        let Some(path) = node.path.clone() else { return };
        let leader = node.same.and_then(|same| self.leaders.get(&same).copied());
        if let Some(leader) = leader.filter(|leader| leader.name() != node.name()) {
            return self.further_name(path, leader, there);
        }
        let Some(there) = there else {
            self.move_file(node, path, None);
            return self.item(">f+++++++++", node.name(), None);
        };
        let mut change = self.attributes(node, there);
        if node.size != there.size {
            change[1] = 's';
        }
        let by_content = self.rules.checksum && node.size == there.size;
        if by_content && (node.hash.is_none() || node.hash != there.hash) {
            change[0] = 'c';
        }
        let differs =
            change[0] == 'c' || change[1] == 's' || (!self.rules.checksum && change[2] == 't');
        if differs {
            if node.size == there.size && self.is_kept_time(node.mtime, there.mtime) {
                let mtime = Mtime::new(there.mtime.secs().wrapping_sub(1), 0).ok();
                let path = node.path.clone();
                self.plan.aged.push(Deed::Dress(Dress { path, mtime, ..Dress::default() }));
            }
            self.move_file(node, path, Some(there));
            self.item(&letters('>', 'f', &change), node.name(), None);
        } else if change.iter().any(|&c| c != '.') {
            self.plan.dressed.push(self.dress(node));
            self.item(&letters('.', 'f', &change), node.name(), None);
        }
    }

    fn move_file(&mut self, node: &Node, path: RelPath, there: Option<&Node>) {
        self.plan.files.insert(path.as_str().to_owned(), node.size);
        if let Some(there) = there {
            let replaced = Replaced { size: there.size, mtime: there.mtime };
            self.plan.replaced.insert(path.as_str().to_owned(), replaced);
        }
        self.touch(path.as_str());
        self.plan.dressed.push(self.dress(node));
        if self.rules.sparse {
            self.plan.dug.push(Deed::Dig { path });
        }
    }

    fn further_name(&mut self, path: RelPath, leader: &Node, there: Option<&Node>) {
        let Some(to) = leader.path.clone() else { return };
        if self.refused.contains(leader.name()) {
            return;
        }
        let first = self.there.get(leader.name()).and_then(|node| node.same);
        let is_moved = self.plan.files.contains_key(leader.name());
        if !is_moved && first.is_some() && there.and_then(|node| node.same) == first {
            return;
        }
        self.touch(path.as_str());
        self.item("hf+++++++++", path.as_str(), Some(leader.name().to_owned()));
        self.plan.names.push(Deed::HardLink { path, to });
    }

    fn link(&mut self, node: &Node, target: &[u8], there: Option<&Node>) {
        let Some(path) = node.path.clone() else { return };
        let shown = || Some(String::from_utf8_lossy(target).into_owned());
        match there.map(|there| (there, &there.kind)) {
            Some((there, NodeKind::Link(other))) if other == target => {
                let change = self.attributes(node, there);
                if change.iter().any(|&c| c != '.') {
                    self.plan.dressed.push(self.dress(node));
                    self.item(&letters('.', 'L', &change), node.name(), shown());
                }
                return;
            }
            Some(_) => {
                self.plan.links.push(Deed::Remove { path: path.clone(), seen: Seen::Link });
                self.item("cLc.t......", node.name(), shown());
            }
            None => self.item("cL+++++++++", node.name(), shown()),
        }
        self.touch(node.name());
        self.plan.links.push(Deed::Link { path, target: target.to_vec() });
        self.plan.dressed.push(self.dress(node));
    }

    /// The letters of attributes that differ: content, size, time, mode, owner, group, use, lists,
    /// extended attributes.
    fn attributes(&self, node: &Node, there: &Node) -> [char; 9] {
        let is_link = matches!(node.kind, NodeKind::Link(_));
        let (own, other) = (split_xattrs(&node.xattrs), split_xattrs(&there.xattrs));
        let differs = [
            (2, 't', !self.is_same_time(node.mtime, there.mtime)),
            (3, 'p', !is_link && node.mode != there.mode && kept_mode(node) != there.mode & 0o777),
            (4, 'o', self.rules.owner && node.uid != there.uid),
            (5, 'g', self.rules.owner && node.gid != there.gid),
            (7, 'a', self.rules.acls && own.1 != other.1),
            (8, 'x', self.rules.xattrs && own.0 != other.0),
        ];
        let mut change = ['.'; 9];
        for (at, letter, _) in differs.into_iter().filter(|(_, _, differs)| *differs) {
            change[at] = letter;
        }
        change
    }

    fn is_same_time(&self, one: Mtime, other: Mtime) -> bool {
        if self.rules.modify_window_s == 0 || self.is_kept_time(one, other) {
            return self.is_kept_time(one, other);
        }
        one.secs().abs_diff(other.secs()) <= self.rules.modify_window_s
    }

    /// Whether a time there is what the destination makes of one of the source.
    fn is_kept_time(&self, one: Mtime, there: Mtime) -> bool {
        one == there || self.rules.time_step.of(one) == there
    }

    fn dress(&self, node: &Node) -> Deed {
        let is_link = matches!(node.kind, NodeKind::Link(_));
        let (xattrs, acls) = split_xattrs(&node.xattrs);
        Deed::Dress(Dress {
            path: node.path.clone(),
            mode: (!is_link).then_some(kept_mode(node)),
            mtime: Some(node.mtime),
            owner: self.rules.owner.then_some((node.uid, node.gid)),
            xattrs: (self.rules.xattrs && !is_link).then_some(xattrs),
            acls: (self.rules.acls && !is_link).then_some(acls),
        })
    }

    fn remove_others(
        &mut self,
        source: &[Node],
        destination: &[Node],
        protected: &HashSet<String>,
    ) {
        if !self.rules.delete {
            return;
        }
        let wanted: HashSet<&str> = source.iter().map(Node::name).collect();
        let mut kept: HashSet<String> = protected.clone();
        for node in destination.iter().rev() {
            let Some(path) = node.path.clone() else { continue };
            if wanted.contains(path.as_str()) || self.cleared.contains(path.as_str()) {
                continue;
            }
            let seen = Seen::of(node).filter(|_| !kept.contains(path.as_str()));
            let Some(seen) = seen else {
                if node.kind == NodeKind::Special {
                    self.unkept(path.as_str(), "is a device, pipe or socket and is not deleted");
                }
                kept.insert(parent(path.as_str()).to_owned());
                continue;
            };
            self.touch(path.as_str());
            self.plan.items.insert(
                0,
                Item { change: DELETING.into(), path: path.as_str().to_owned(), to: None },
            );
            self.plan.removed.push(Deed::Remove { path, seen });
        }
    }

    /// The time of a directory changes with what is in it, so it is set again whenever that was.
    fn dress_dirs(&mut self) {
        for node in std::mem::take(&mut self.wanted_dirs).into_iter().rev() {
            if self.touched.contains(node.name()) {
                self.plan.dressed_dirs.push(self.dress(node));
            }
        }
    }

    fn touch(&mut self, path: &str) {
        if !path.is_empty() {
            self.touched.insert(parent(path).to_owned());
        }
    }

    fn item(&mut self, change: &str, path: &str, to: Option<String>) {
        let path = if path.is_empty() { "." } else { path };
        self.plan.items.push(Item { change: change.into(), path: path.into(), to });
    }

    fn unkept(&mut self, path: &str, why: &str) {
        let path = if path.is_empty() { "." } else { path };
        self.plan.unkept.push((path.to_owned(), why.to_owned()));
    }
}

/// What is kept of a mode. Without its sticky bit, in a directory that others may write to each of
/// them could remove what is another's, so they may not write to it.
fn kept_mode(node: &Node) -> u32 {
    match node.is_dir() && node.mode & 0o1000 != 0 {
        true => node.mode & 0o755,
        false => node.mode & 0o777,
    }
}

fn same_kind(one: &Node, other: &Node) -> bool {
    std::mem::discriminant(&one.kind) == std::mem::discriminant(&other.kind)
}

/// A path and the directories above it, nearest first.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(holder, _)| holder))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn letters(what: char, kind: char, change: &[char; 9]) -> String {
    [what, kind].into_iter().chain(change.iter().copied()).collect()
}

/// Attributes of users, and access control lists.
fn split_xattrs(all: &[Xattr]) -> (Vec<Xattr>, Vec<Xattr>) {
    let is_acl = |(name, _): &Xattr| ACL_NAMES.contains(&name.as_str());
    all.iter().cloned().partition(|one| !is_acl(one))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
