//! What a path group is called.
//!
//! Sessions with one name share a path, and what one sink says of it counts for all of them. So a
//! name holds what tells peers apart: the addresses of both ends, and at a server the listed key
//! of the client, at a client the server's port.

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
