//! Trees that are kept alike: what one holds, and the single steps that change it.
//!
//! A [`Replica`] is one tree beneath an open directory. [`Replica::survey`] says what it holds,
//! with everything that can be kept of it; [`Replica::steps`] carries out [`Deed`]s. What is to
//! be done is decided elsewhere, from two surveys. Paths may come from a hostile peer: each is a
//! [`RelPath`](crate::RelPath), is walked component by component without following a link, and so
//! stays beneath the tree. Nothing is removed that is not what the survey saw, and a directory only
//! when it is empty.

mod ahead;
mod alike;
mod chosen;
mod deed;
mod keep;
mod node;
mod pieces;
mod renamed;
mod steps;
mod survey;
mod tree;

pub use alike::{DirSum, SUMMED_MAX, Summing};
pub use chosen::ChosenSink;
pub use deed::{Deed, Dress, PatchHash, SMALL_MAX, Seen, patch_hash};
pub use keep::Keep;
pub use node::{ACL_NAMES, Node, NodeKind, TARGET_MAX, XATTRS_BYTES_MAX, XATTRS_MAX, Xattr};
pub use pieces::{PIECE, Patch, PieceSum, piece_sums};
pub use renamed::RenamedSource;
pub use steps::Steps;
pub use survey::{Asked, LeftOut, Surveyed};
pub use tree::{Fault, Replica};
