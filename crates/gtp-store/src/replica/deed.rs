//! The single steps by which a tree is made like another.
//!
//! Each names what it concerns and, where something would be lost, what was seen there, so that
//! whoever carries it out can refuse when that is no longer so. Nothing here touches a file.

use super::keep::Keep;
use super::node::{Node, NodeKind, Xattr};
use super::pieces::Patch;
use crate::manifest::Mtime;
use crate::name::RelPath;

/// One step. It concerns one name of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Makes a directory for its owner alone; `None` makes the tree's own one, with up to two
    /// directories above it. A directory that is there is left as it is.
    MakeDir {
        /// Where.
        path: Option<RelPath>,
    },
    /// Removes what is there, if it is what was seen. A directory must be empty.
    Remove {
        /// What.
        path: RelPath,
        /// What was seen there.
        seen: Seen,
    },
    /// Moves what is there to another name beneath the tree, if it is what was seen; directories
    /// above the new name are made, and a file that is there is replaced.
    Move {
        /// What.
        path: RelPath,
        /// What was seen there.
        seen: Seen,
        /// The new name.
        to: RelPath,
    },
    /// Makes a symbolic link where nothing is.
    Link {
        /// Where.
        path: RelPath,
        /// What it leads to: 1 to [`TARGET_MAX`](super::TARGET_MAX) bytes.
        target: Vec<u8>,
    },
    /// Gives the file at `to` a further name, in place of the file that is there.
    HardLink {
        /// The further name.
        path: RelPath,
        /// A name that the file has.
        to: RelPath,
    },
    /// Frees the space of those parts of a file that are zeros.
    Dig {
        /// Which file.
        path: RelPath,
    },
    /// Sets attributes.
    Dress(Dress),
    /// Writes a file, which takes its name when it is whole, in place of the file that is there.
    Write {
        /// Where.
        path: RelPath,
        /// All that it holds: [`SMALL_MAX`] bytes at most.
        content: Vec<u8>,
        /// Permission bits, 0o777 at most.
        mode: u32,
        /// The time of the last change of content.
        mtime: Mtime,
    },
    /// The same for a file of which an older version is there, if it is what was seen.
    Patch {
        /// Where.
        path: RelPath,
        /// What was seen there.
        seen: Seen,
        /// What makes the new version of it.
        patch: Patch,
        /// Bytes of the new version: [`SMALL_MAX`] at most.
        size: usize,
        /// The first bytes of its BLAKE3 hash.
        hash: PatchHash,
        /// Permission bits, 0o777 at most.
        mode: u32,
        /// The time of the last change of content.
        mtime: Mtime,
    },
    /// Keeps a file or link as an old version in the place that the tree has for them
    /// ([`Replica::keeping_in`](super::Replica::keeping_in)).
    Keep {
        /// What.
        path: RelPath,
        /// Its name there.
        to: RelPath,
        /// How.
        how: Keep,
    },
}

/// By which the file that a patch has made is known to be the one that was meant.
pub type PatchHash = [u8; 16];

/// The hash of the content of a file that a patch makes.
pub fn patch_hash(content: &[u8]) -> PatchHash {
    blake3::hash(content).as_bytes().first_chunk().copied().unwrap_or_default()
}

/// The most bytes of a small file, which a step can write; longer files are moved by transfers.
pub const SMALL_MAX: usize = 64 << 10;

/// What is to be set at a name; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dress {
    /// Where; `None` is the tree's own directory.
    pub path: Option<RelPath>,
    /// Permission bits, 0o777 at most; not of a symbolic link.
    pub mode: Option<u32>,
    /// The time of the last change of content.
    pub mtime: Option<Mtime>,
    /// Numbers of owner and group.
    pub owner: Option<(u32, u32)>,
    /// All extended attributes of the user namespace that it is to have; others there go.
    pub xattrs: Option<Vec<Xattr>>,
    /// All access control lists that it is to have; others go.
    pub acls: Option<Vec<Xattr>>,
}

/// What a survey saw at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A file of this length and time.
    File {
        /// Its length in bytes.
        size: u64,
        /// When its content last changed.
        mtime: Mtime,
    },
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
}

impl Seen {
    /// What was seen at a node; `None` for what is never removed.
    pub fn of(node: &Node) -> Option<Seen> {
        match node.kind {
            NodeKind::File => Some(Seen::File { size: node.size, mtime: node.mtime }),
            NodeKind::Dir => Some(Seen::Dir),
            NodeKind::Link(_) => Some(Seen::Link),
            NodeKind::Special => None,
        }
    }
}

impl Deed {
    /// The name that it concerns; empty for the tree's own directory.
    pub fn name(&self) -> &str {
        let path = match self {
            Deed::MakeDir { path } | Deed::Dress(Dress { path, .. }) => path.as_ref(),
            Deed::Remove { path, .. }
            | Deed::Move { path, .. }
            | Deed::Link { path, .. }
            | Deed::HardLink { path, .. }
            | Deed::Dig { path }
            | Deed::Write { path, .. }
            | Deed::Patch { path, .. }
            | Deed::Keep { path, .. } => Some(path),
        };
        path.map_or("", RelPath::as_str)
    }
}
