//! What keeps a session to what its path carries.
//!
//! The session's world says so, because it knows what carries the datagrams. This module must not
//! know how a path is measured.

/// What keeps a session to what its path carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// Its own path bound.
    #[default]
    ByPathBound,
    /// What carries its datagrams, which pushes back and has a congestion control of its own: see
    /// [`Supplied::NoRoom`](super::Supplied::NoRoom).
    ByCarrier,
    /// Nothing: after the ramp it sends what both ends allow, whatever the path shows. Only on a
    /// path that is its own is this harmless.
    ByNothing,
}
