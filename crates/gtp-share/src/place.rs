//! Where the daemon's socket lies.
//!
//! A host's own daemon comes first, a user's own second. Both directories belong to whoever runs
//! the daemon, so that nobody else can stand in for it.

use std::path::PathBuf;

/// The socket of the daemon of the whole host.
const SYSTEM: &str = "/run/gtp/gtpd.sock";

/// Where a daemon may listen, the first to be tried first.
pub fn places() -> Vec<PathBuf> {
    std::iter::once(PathBuf::from(SYSTEM)).chain(user_place()).collect()
}

/// Where a user's own daemon listens; none without `XDG_RUNTIME_DIR`.
pub fn user_place() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    dir.is_absolute().then(|| dir.join("gtp").join("gtpd.sock"))
}
