//! One name of a tree, with all that can be kept of what it stands for.
//!
//! Values are as the file system gives them and may come from a hostile peer. The limits here bound
//! what one name may take; which attributes may be set at all is said here too.

use crate::hash::Value;
use crate::manifest::Mtime;
use crate::name::RelPath;

/// The longest target of a symbolic link in bytes (Linux's PATH_MAX, without the final zero).
pub const TARGET_MAX: usize = 4_095;

/// The most extended attributes of one node.
pub const XATTRS_MAX: usize = 64;

/// The most bytes of names and values of one node's extended attributes (the limit of one value on
/// Linux).
pub const XATTRS_BYTES_MAX: usize = 64 << 10;

/// The names under which Linux gives access control lists.
pub const ACL_NAMES: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// An extended attribute: its name and its value.
pub type Xattr = (String, Vec<u8>);

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The path beneath the tree; `None` is the tree's own directory.
    pub path: Option<RelPath>,
    /// What it is.
    pub kind: NodeKind,
    /// The length in bytes of a file; 0 for others.
    pub size: u64,
    /// Permission bits with set-user, set-group and sticky bits.
    pub mode: u32,
    /// When its content last changed.
    pub mtime: Mtime,
    /// The number of its owner.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// A number that all names of one file share; `None` if it has one name only.
    pub same: Option<u64>,
    /// The BLAKE3 hash of a file, if it was asked for.
    pub hash: Option<Value>,
    /// Extended attributes, sorted by name, as far as they were asked for.
    pub xattrs: Vec<Xattr>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link with this target, which need not exist.
    Link(Vec<u8>),
    /// A device, pipe or socket, which is not carried.
    Special,
}

impl Node {
    /// Returns the path as text; empty for the tree's own directory.
    pub fn name(&self) -> &str {
        self.path.as_ref().map_or("", RelPath::as_str)
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == NodeKind::Dir
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == NodeKind::File
    }
}

/// Whether an attribute may be carried: those of users, and access control lists. Others belong to
/// the system, and a peer must not name them.
pub(super) fn may_carry(name: &str) -> bool {
    let plain = name.len() <= 255 && !name.contains('\0');
    plain && (name.starts_with("user.") && name.len() > 5 || ACL_NAMES.contains(&name))
}
