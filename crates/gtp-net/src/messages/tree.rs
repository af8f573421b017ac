//! What is said of trees that are kept alike: their nodes, the steps that change them, and the
//! values of blocks.
//!
//! Everything here is of [`Revision::Fifth`](gtp_proto::Revision::Fifth). Whether a path is sane
//! and a step allowed is judged by whoever takes it in; here only lengths and ranges are, and that
//! a single name is one.

use gtp_store::RelPath;
use gtp_store::replica::PIECE;
use minicbor::decode::Error as DecodeError;
use minicbor::{Decode, Decoder, Encode};

use super::fields::{PeerText, Roots, check_path};
use super::limits::*;
use super::{Malformed, within};

/// Client to server: asks for a survey of the whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeWanted {
    /// Whether each file is to be hashed.
    #[n(0)]
    pub hashes: bool,
    /// Whether extended attributes of the user namespace are to be told.
    #[n(1)]
    pub xattrs: bool,
    /// Whether access control lists are to be told.
    #[n(2)]
    pub acls: bool,
    /// Whether the client understands [`super::Message::TreePacked`]; if absent, it does not.
    #[n(3)]
    pub packs: Option<bool>,
    /// What the client's own tree holds; a server may leave out what is the same.
    #[n(4)]
    pub sums: Option<TreeSums>,
    /// A name in the tree's own directory; what is beside it, and beneath it, is not to be told.
    #[cbor(n(5), with = "minicbor::bytes")]
    pub only: Option<Vec<u8>>,
}

/// Sums of what directories hold.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeSums {
    /// With which they were made, 32 bytes.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub key: Vec<u8>,
    /// At most [`TREE_SUMS_MAX`] sums of 8 bytes each.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub sums: Vec<u8>,
}

impl TreeWanted {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        if self.only.as_deref().is_some_and(|only| !is_single_name(only)) {
            return Err(Malformed::OutOfRange("name in the tree's own directory"));
        }
        self.sums.as_ref().map_or(Ok(()), TreeSums::check)
    }
}

/// Whether these bytes name something in a directory, and nothing beneath that.
fn is_single_name(bytes: &[u8]) -> bool {
    RelPath::from_bytes(bytes).is_ok_and(|name| !name.as_str().contains('/'))
}

impl TreeSums {
    fn check(&self) -> Result<(), Malformed> {
        within(self.key.len(), 32..=32, "length of a key")?;
        within(self.sums.len() % 8, 0..=0, "rest of a sum")?;
        within(self.sums.len(), 0..=8 * TREE_SUMS_MAX, "length of sums")
    }
}

/// Server to client: some nodes of the tree, each directory before what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreePage {
    /// At most [`ENTRIES_PER_PAGE`] nodes; one at least if there is nothing alike.
    #[cbor(n(0), decode_with = "decode_list")]
    pub nodes: Vec<TreeNode>,
    /// Directories that hold what the client has said; only for a client that has.
    #[n(1)]
    pub alike: Option<AlikeList>,
}

/// Directories that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct AlikeList {
    /// 1 to [`ENTRIES_PER_PAGE`] of them.
    #[cbor(n(0), decode_with = "decode_list")]
    pub dirs: Vec<TreeAlike>,
}

/// A directory that holds the same as the client's, in place of the nodes in it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeAlike {
    /// How many nodes of the page come before those in it.
    #[n(0)]
    pub before: u32,
    /// The place of its sum among those that the client has said, from 0.
    #[n(1)]
    pub number: u32,
    /// See [`TreeNode::same`]: of the nodes that have it, in the order of their names.
    #[cbor(n(2), decode_with = "decode_list")]
    pub same: Vec<u64>,
    /// The owner of all nodes in it, or of each.
    #[cbor(n(3), decode_with = "decode_list")]
    pub owners: Vec<TreeOwner>,
}

/// Numbers of owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct TreeOwner {
    /// Of the owner.
    #[n(0)]
    pub uid: u32,
    /// Of the group.
    #[n(1)]
    pub gid: u32,
}

/// Server to client: the survey is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeEnd {
    /// Nodes sent in all.
    #[n(0)]
    pub nodes_total: u64,
    /// Whether the tree's own directory is there.
    #[n(1)]
    pub is_there: bool,
    /// Whether the server can give what it makes to any owner.
    #[n(2)]
    pub may_own: bool,
    /// The longest file, in bytes, that a step writes and whose content is told; absent if the
    /// server knows neither.
    #[n(3)]
    pub small_max: Option<u32>,
    /// Whether a file or link is at the path, and what was told is the directory that holds it, and
    /// it.
    #[n(4)]
    pub alone: Option<bool>,
    /// Whether the server tells sums of the pieces of small files and takes
    /// [`TreeDeed::Patch`]; if absent, it does neither.
    #[n(5)]
    pub patches: Option<bool>,
    /// Whether the server understands [`super::Message::DeedsPacked`]; if absent, it does not.
    #[n(6)]
    pub packs: Option<bool>,
}

/// One name of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeNode {
    /// The path beneath the tree; empty for its own directory.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// What it is.
    #[n(1)]
    pub kind: NodeKind,
    /// Bytes of a file; 0 for others.
    #[n(2)]
    pub size: u64,
    /// Permission bits with set-user, set-group and sticky bits.
    #[n(3)]
    pub mode: u32,
    /// When its content last changed.
    #[n(4)]
    pub mtime: Moment,
    /// Numbers of owner and group.
    #[n(5)]
    pub uid: u32,
    /// See `uid`.
    #[n(6)]
    pub gid: u32,
    /// Of a symbolic link: where it leads, 1 to [`TARGET_MAX`] bytes.
    #[cbor(n(7), with = "minicbor::bytes")]
    pub target: Option<Vec<u8>>,
    /// A number that all names of one file share; absent if it has one name.
    #[n(8)]
    pub same: Option<u64>,
    /// The BLAKE3 hash of a file, if it was asked for.
    #[n(9)]
    pub hash: Option<Roots>,
    /// Extended attributes.
    #[cbor(n(10), decode_with = "decode_list")]
    pub xattrs: Vec<TreeXattr>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum NodeKind {
    /// A regular file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Link,
    /// A device, pipe or socket.
    #[n(3)]
    Special,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Moment {
    /// Whole seconds since 1970, negative before.
    #[n(0)]
    pub seconds: i64,
    /// The rest of it in nanoseconds, below a second.
    #[n(1)]
    pub nanos: u32,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeXattr {
    /// Its name, 1 to 255 bytes.
    #[n(0)]
    pub name: String,
    /// Its value, at most [`XATTR_MAX`] bytes.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub value: Vec<u8>,
}

/// Client to server: steps to be carried out in this order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Deeds {
    /// 1 to [`DEEDS_PER_PAGE`] steps.
    #[cbor(n(0), decode_with = "decode_list")]
    pub deeds: Vec<TreeDeed>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TreeDeed {
    /// Makes a directory; an empty path is the tree's own one.
    #[n(0)]
    MakeDir {
        /// Where.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// Removes what was seen.
    #[n(1)]
    Remove {
        /// What.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// What was seen there.
        #[n(1)]
        seen: TreeSeen,
    },
    /// Moves what was seen to another name.
    #[n(2)]
    Move {
        /// What.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// What was seen there.
        #[n(1)]
        seen: TreeSeen,
        /// The new name.
        #[cbor(n(2), with = "minicbor::bytes")]
        to: Vec<u8>,
    },
    /// Makes a symbolic link.
    #[n(3)]
    Link {
        /// Where.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// Where it leads.
        #[cbor(n(1), with = "minicbor::bytes")]
        target: Vec<u8>,
    },
    /// Gives a file a further name.
    #[n(4)]
    HardLink {
        /// The further name.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// A name that it has.
        #[cbor(n(1), with = "minicbor::bytes")]
        to: Vec<u8>,
    },
    /// Frees the space of zeros.
    #[n(5)]
    Dig {
        /// Of which file.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
    },
    /// Sets attributes.
    #[n(6)]
    Dress {
        /// Where.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// Permission bits, 0o777 at most.
        #[n(1)]
        mode: Option<u32>,
        /// The time of the last change of content.
        #[n(2)]
        mtime: Option<Moment>,
        /// The number of the owner; with `gid`.
        #[n(3)]
        uid: Option<u32>,
        /// The number of the group; with `uid`.
        #[n(4)]
        gid: Option<u32>,
        /// All extended attributes of the user namespace.
        #[n(5)]
        xattrs: Option<XattrList>,
        /// All access control lists.
        #[n(6)]
        acls: Option<XattrList>,
    },
    /// Writes a file; only to a server that has said so.
    #[n(7)]
    Write {
        /// Where.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// All that it holds, at most [`SMALL_MAX`] bytes.
        #[cbor(n(1), with = "minicbor::bytes")]
        content: Vec<u8>,
        /// Permission bits, 0o777 at most.
        #[n(2)]
        mode: u32,
        /// The time of the last change of content.
        #[n(3)]
        mtime: Moment,
    },
    /// Makes a new version of a file of the older one; only to a server that has said so.
    #[n(8)]
    Patch {
        /// Where.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// What was seen there.
        #[n(1)]
        seen: TreeSeen,
        /// The pieces of the older version that stay, one bit each.
        #[n(2)]
        kept: u64,
        /// What is not in them, at most [`SMALL_MAX`] bytes.
        #[cbor(n(3), with = "minicbor::bytes")]
        rest: Vec<u8>,
        /// Bytes of the new version, at most [`SMALL_MAX`].
        #[n(4)]
        size: u32,
        /// The first 16 bytes of its BLAKE3 hash.
        #[cbor(n(5), with = "minicbor::bytes")]
        hash: Vec<u8>,
        /// Permission bits, 0o777 at most.
        #[n(6)]
        mode: u32,
        /// The time of the last change of content.
        #[n(7)]
        mtime: Moment,
    },
    /// Keeps an old version outside the tree; only to a far end that was asked for that.
    #[n(9)]
    Keep {
        /// What.
        #[cbor(n(0), with = "minicbor::bytes")]
        path: Vec<u8>,
        /// Its name there.
        #[cbor(n(1), with = "minicbor::bytes")]
        to: Vec<u8>,
        /// Whether it is to be a copy, and no further name of the file.
        #[n(2)]
        copied: bool,
    },
}

/// Extended attributes of one node.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct XattrList {
    /// At most [`XATTRS_MAX`] of them.
    #[cbor(n(0), decode_with = "decode_list")]
    pub all: Vec<TreeXattr>,
}

/// What was seen at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TreeSeen {
    /// What it was.
    #[n(0)]
    pub kind: NodeKind,
    /// Bytes of a file; 0 for others.
    #[n(1)]
    pub size: u64,
    /// When a file's content last changed; absent for others.
    #[n(2)]
    pub mtime: Option<Moment>,
}

/// Server to client: steps were carried out, but for some.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct DeedsDone {
    /// Steps that failed, at most [`DEEDS_PER_PAGE`].
    #[cbor(n(0), decode_with = "decode_list")]
    pub faults: Vec<DeedFault>,
    /// What old versions lack that were kept; absent if nothing.
    #[n(1)]
    pub lacks: Option<Lacks>,
}

/// What old versions lack because their place has no such thing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Lacks {
    /// At most [`LACKS_MAX`] kinds.
    #[cbor(n(0), decode_with = "decode_list")]
    pub kinds: Vec<Lack>,
}

/// One thing that old versions lack.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Lack {
    /// What, for people.
    #[n(0)]
    pub what: PeerText,
    /// How many of them lack it.
    #[n(1)]
    pub number: u32,
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct DeedFault {
    /// Its place among the steps, from 0.
    #[n(0)]
    pub index: u32,
    /// Why, for people.
    #[n(1)]
    pub text: PeerText,
}

/// Client to server: asks for the values of a file's blocks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BlocksWanted {
    /// Which file.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// Its length as it was surveyed.
    #[n(1)]
    pub size: u64,
    /// The first block.
    #[n(2)]
    pub first: u64,
}

/// Values of blocks of a file, in a row: the answer to [`BlocksWanted`], as many as there are up to
/// the limit; and from the source of a put, of files of its manifest, before the manifest's end.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct BlockValues {
    /// Which file.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// The first block.
    #[n(1)]
    pub first: u64,
    /// At most [`ROOTS_PER_PAGE`] values of 32 bytes.
    #[n(2)]
    pub values: Roots,
}

/// Client to server: asks for the contents of small files.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ContentsWanted {
    /// 1 to [`CONTENTS_PER_PAGE`] files.
    #[cbor(n(0), decode_with = "decode_list")]
    pub files: Vec<SmallFile>,
    /// Whether a file that has changed so lately that a further change might not show is not to be
    /// told.
    #[n(1)]
    pub settled: bool,
    /// With which sums of pieces are made, 32 bytes. If it is given, sums are told in place of
    /// contents; and of a file of which the client has said sums, what makes it of the client's.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub key: Option<Vec<u8>>,
}

/// A small file as it was surveyed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SmallFile {
    /// Which.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub path: Vec<u8>,
    /// What was seen there.
    #[n(1)]
    pub seen: TreeSeen,
    /// Sums of 8 bytes of the pieces of the older version that the client has, which is `size`
    /// bytes long.
    #[n(2)]
    pub own: Option<OwnPieces>,
}

/// An older version of a small file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OwnPieces {
    /// Its length in bytes, at most [`SMALL_MAX`].
    #[n(0)]
    pub size: u32,
    /// One sum of 8 bytes for each of its pieces.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub sums: Vec<u8>,
}

/// Server to client: the contents that [`ContentsWanted`] asks for, in that order.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Contents {
    /// One for each file.
    #[cbor(n(0), decode_with = "decode_list")]
    pub files: Vec<SmallContent>,
}

/// The content of a small file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SmallContent {
    /// All that it holds; absent if it is not what was seen, or cannot be told.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub content: Option<Vec<u8>>,
    /// Sums of its pieces, 8 bytes each.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub sums: Option<Vec<u8>>,
    /// The pieces of the client's older version that stay, one bit each; `content` is the rest
    /// then.
    #[n(2)]
    pub kept: Option<u64>,
}

impl ContentsWanted {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.files.len(), 1..=CONTENTS_PER_PAGE, "number of files")?;
        within(self.key.as_ref().map_or(32, Vec::len), 32..=32, "length of a key")?;
        self.files.iter().try_for_each(|file| {
            file.seen.check()?;
            if let Some(own) = &file.own {
                within(own.size as usize, 0..=SMALL_MAX, "length of a file's content")?;
                check_sums(&own.sums)?;
            }
            check_path(&file.path)
        })
    }
}

impl Contents {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.files.len(), 1..=CONTENTS_PER_PAGE, "number of files")?;
        let lengths = self.files.iter().map(|file| file.content.as_ref().map_or(0, Vec::len));
        let bytes = lengths.clone().sum::<usize>();
        within(bytes, 0..=CONTENTS_BYTES_MAX, "length of all contents")?;
        self.files.iter().filter_map(|file| file.sums.as_deref()).try_for_each(check_sums)?;
        within(lengths.max().unwrap_or(0), 0..=SMALL_MAX, "length of a file's content")
    }
}

impl TreePage {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        let least = usize::from(self.alike.is_none());
        within(self.nodes.len(), least..=ENTRIES_PER_PAGE, "number of nodes in a page")?;
        if let Some(AlikeList { dirs }) = &self.alike {
            within(dirs.len(), 1..=ENTRIES_PER_PAGE, "number of directories in a page")?;
            let mut before = 0;
            for dir in dirs {
                within(dir.before as usize, before..=self.nodes.len(), "place in a page")?;
                within(dir.owners.len(), 1..=ENTRIES_PER_PAGE, "number of owners")?;
                before = dir.before as usize;
            }
        }
        self.nodes.iter().try_for_each(TreeNode::check)
    }
}

impl TreeNode {
    fn check(&self) -> Result<(), Malformed> {
        check_path(&self.path)?;
        within(self.size, 0..=CONTENT_MAX, "size")?;
        within(self.mode, 0..=0o7777, "mode")?;
        self.mtime.check()?;
        let target = self.target.as_ref().map_or(0, Vec::len);
        match self.kind {
            NodeKind::Link => within(target, 1..=TARGET_MAX, "length of a link's target")?,
            NodeKind::File | NodeKind::Directory | NodeKind::Special => {
                within(target, 0..=0, "length of a link's target")?;
            }
        }
        let hashes = self.hash.as_ref().map_or(1, |hash| hash.0.len());
        within(hashes, 1..=1, "number of hashes")?;
        check_xattrs(&self.xattrs)
    }
}

impl Moment {
    fn check(self) -> Result<(), Malformed> {
        within(self.nanos, 0..=999_999_999, "nanoseconds")
    }
}

impl TreeSeen {
    fn check(self) -> Result<(), Malformed> {
        within(self.size, 0..=CONTENT_MAX, "size")?;
        self.mtime.map_or(Ok(()), Moment::check)
    }
}

impl Deeds {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.deeds.len(), 1..=DEEDS_PER_PAGE, "number of steps")?;
        self.deeds.iter().try_for_each(TreeDeed::check)
    }
}

impl TreeDeed {
    fn check(&self) -> Result<(), Malformed> {
        match self {
            TreeDeed::MakeDir { path } | TreeDeed::Dig { path } => check_path(path),
            TreeDeed::Remove { path, seen } => {
                seen.check()?;
                check_path(path)
            }
            TreeDeed::Move { path, seen, to } => {
                seen.check()?;
                check_path(path)?;
                check_path(to)
            }
            TreeDeed::Link { path, target } => {
                within(target.len(), 1..=TARGET_MAX, "length of a link's target")?;
                check_path(path)
            }
            TreeDeed::HardLink { path, to } | TreeDeed::Keep { path, to, .. } => {
                check_path(path)?;
                check_path(to)
            }
            TreeDeed::Dress { path, mode, mtime, uid, gid, xattrs, acls } => {
                check_path(path)?;
                within(mode.unwrap_or(0), 0..=0o777, "mode")?;
                mtime.map_or(Ok(()), Moment::check)?;
                if uid.is_some() != gid.is_some() {
                    return Err(Malformed::OutOfRange("owner without a group"));
                }
                let mut lists = [xattrs, acls].into_iter().flatten();
                lists.try_for_each(|list| check_xattrs(&list.all))
            }
            TreeDeed::Write { path, content, mode, mtime } => {
                within(content.len(), 0..=SMALL_MAX, "length of a file's content")?;
                within(*mode, 0..=0o777, "mode")?;
                mtime.check()?;
                check_path(path)
            }
            TreeDeed::Patch { path, seen, rest, size, hash, mode, mtime, .. } => {
                seen.check()?;
                within(rest.len(), 0..=SMALL_MAX, "length of a file's content")?;
                within(*size as usize, 0..=SMALL_MAX, "length of a file's content")?;
                within(hash.len(), 16..=16, "length of a hash")?;
                within(*mode, 0..=0o777, "mode")?;
                mtime.check()?;
                check_path(path)
            }
        }
    }
}

impl DeedsDone {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.faults.len(), 0..=DEEDS_PER_PAGE, "number of faults")?;
        self.faults.iter().try_for_each(|fault| {
            within(fault.index as usize, 0..=DEEDS_PER_PAGE - 1, "number of a step")?;
            fault.text.check()
        })?;
        let Some(Lacks { kinds }) = &self.lacks else { return Ok(()) };
        within(kinds.len(), 1..=LACKS_MAX, "number of kinds")?;
        kinds.iter().try_for_each(|Lack { what, number }| {
            within(*number as usize, 1..=DEEDS_PER_PAGE, "number of old versions")?;
            what.check()
        })
    }
}

impl TreeEnd {
    pub(super) fn check(self) -> Result<(), Malformed> {
        within(self.nodes_total, 0..=ENTRIES_MAX + 1, "number of nodes")
    }
}

impl BlocksWanted {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.size, 0..=CONTENT_MAX, "size")?;
        within(self.first, 0..=CONTENT_MAX, "number of a block")?;
        check_path(&self.path)
    }
}

impl BlockValues {
    pub(super) fn check(&self) -> Result<(), Malformed> {
        within(self.first, 0..=CONTENT_MAX, "number of a block")?;
        within(self.values.0.len(), 0..=ROOTS_PER_PAGE, "number of values")?;
        check_path(&self.path)
    }
}

/// Whether these are sums of the pieces of a small file.
fn check_sums(sums: &[u8]) -> Result<(), Malformed> {
    within(sums.len() % 8, 0..=0, "rest of a sum")?;
    within(sums.len(), 0..=8 * (SMALL_MAX / PIECE), "length of sums")
}

fn check_xattrs(all: &[TreeXattr]) -> Result<(), Malformed> {
    within(all.len(), 0..=XATTRS_MAX, "number of extended attributes")?;
    all.iter().try_for_each(|one| {
        within(one.name.len(), 1..=255, "length of an attribute's name")?;
        within(one.value.len(), 0..=XATTR_MAX, "length of an attribute's value")
    })
}

/// Decodes a list without believing its stated length.
pub(super) fn decode_list<'b, C, T: Decode<'b, C>>(
    decoder: &mut Decoder<'b>,
    context: &mut C,
) -> Result<Vec<T>, DecodeError> {
    let count = decoder.array()?.ok_or_else(|| DecodeError::message("list without a length"))?;
    if count > ENTRIES_PER_PAGE as u64 {
        return Err(DecodeError::message("too long a list"));
    }
    let mut list = Vec::new();
    for _ in 0..count {
        list.push(T::decode(decoder, context)?);
    }
    Ok(list)
}
