//! What a path group is called.
//!
//! Sessions with one name share a path, and what one sink says of it counts for all of them. So a
//! name holds what a peer cannot choose as it likes: the addresses that its packets really come
//! from and go to, and the key that it has proven to have.

/// The name of a path group; see the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathName {
    local: [u8; 16],
    peer: [u8; 16],
    key: [u8; 32],
}

impl PathName {
    /// Makes the name of the path from the address `local` to the address `peer`, whose key is
    /// `key`.
    pub const fn new(local: [u8; 16], peer: [u8; 16], key: [u8; 32]) -> PathName {
        PathName { local, peer, key }
    }
}
