//! What keeps a session to what its path carries.

/// What keeps a session to what its path carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// Its own path bound.
    #[default]
    ByPathBound,
    /// What carries its datagrams, which pushes back and has a congestion control of its own: see
    /// [`Supplied::NoRoom`](super::Supplied::NoRoom).
    ByCarrier,
    /// Nobody: after the ramp it sends what both ends allow, whatever the path shows. This harms
    /// nobody only where nobody else uses the path.
    ByNobody,
}
