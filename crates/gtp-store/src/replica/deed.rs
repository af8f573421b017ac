//! The single steps by which a tree is made like another.
//!
//! Each names what it concerns and, where something would be lost, what was seen there, so that
//! whoever carries it out can refuse when that is no longer so. Nothing here touches a file.

use super::keep::Keep;
use super::node::{ACL_NAMES, Node, NodeKind, Xattr};
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

/// The right to list a directory and to search it.
const LISTS_AND_SEARCHES: u16 = 0o5;

impl Dress {
    /// Whether a directory that is dressed so may not be listed and searched by its owner, or those
    /// that are made in it later may not.
    pub fn closes(&self) -> bool {
        let acl = |wanted| {
            let acls = self.acls.iter().flatten();
            acls.filter(move |(name, _)| name == wanted).find_map(|(_, value)| owners_part(value))
        };
        let [access, later] = ACL_NAMES;
        // The mode is set after the lists.
        let own = self.mode.map_or_else(|| acl(access), |mode| Some((mode >> 6) as u16));
        [own, acl(later)]
            .into_iter()
            .flatten()
            .any(|rights| rights & LISTS_AND_SEARCHES != LISTS_AND_SEARCHES)
    }
}

/// What an access control list gives to the owner. Linux gives a list as its version (4 bytes), and
/// 8 bytes for each entry: whose it is, its rights, and a number, each little-endian
/// (`linux/posix_acl_xattr.h`).
fn owners_part(list: &[u8]) -> Option<u16> {
    const OWNER: [u8; 2] = [1, 0];
    let (entries, _) = list.get(4..)?.as_chunks::<8>();
    let own = entries.iter().find(|entry| entry[..2] == OWNER)?;
    Some(u16::from_le_bytes([own[2], own[3]]))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(which: usize, owner: u8) -> Dress {
        let entries = [[1, 0, owner, 0, 255, 255, 255, 255], [4, 0, 7, 0, 255, 255, 255, 255]];
        let list = [&[2, 0, 0, 0], entries.as_flattened()].concat();
        Dress { acls: Some(vec![(ACL_NAMES[which].to_owned(), list)]), ..Dress::default() }
    }

    #[test]
    fn a_directory_is_closed_by_its_mode_or_a_list_that_its_owner_may_not_read_or_search_it() {
        let mode = |mode| Dress { mode: Some(mode), ..Dress::default() };
        for open in [mode(0o500), mode(0o755), Dress::default(), acl(0, 7), acl(1, 5)] {
            assert!(!open.closes(), "{open:?}");
        }
        for closed in [mode(0), mode(0o377), mode(0o677), acl(0, 0), acl(0, 6), acl(1, 1)] {
            assert!(closed.closes(), "{closed:?}");
        }
        assert!(!Dress { mode: Some(0o700), ..acl(0, 0) }.closes(), "the mode comes last");
        assert!(Dress { mode: Some(0o700), ..acl(1, 0) }.closes());
        let short = vec![(ACL_NAMES[0].to_owned(), vec![2, 0, 0, 0, 1, 0])];
        assert!(!Dress { acls: Some(short), ..Dress::default() }.closes());
    }
}
