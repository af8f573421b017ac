//! Waiting until a daemon grants all of its sessions equal parts.
//!
//! This module asks the daemon alone; it must not know what the sessions are.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::product::pass;

/// A grant is fair within this part of an equal one.
const FAIR: f64 = 0.05;
/// What is waited for comes within this, or the case fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until `count` sessions are granted `each` bit/s by the daemon at `socket`, and calls
/// `check` between two looks. Returns the seconds since `began`.
///
/// # Errors
/// If that never happens, or `check` fails.
pub fn wait(
    (socket, began): (&Path, Instant),
    count: usize,
    each: f64,
    mut check: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let near = |granted: &f64| (granted - each).abs() <= FAIR * each;
    loop {
        let granted = granted(socket);
        if granted.len() == count && granted.iter().all(near) {
            return Ok(began.elapsed().as_secs_f64());
        }
        check()?;
        ensure!(began.elapsed() < PATIENCE, "never equal: {granted:?}");
        pass(LOOK);
    }
}

/// What each session has been granted, in bit/s; nothing of a daemon that is not there yet.
fn granted(socket: &Path) -> Vec<f64> {
    let sessions = gtp_share::client::sessions(socket).map(|(_, sessions)| sessions);
    sessions.into_iter().flatten().map(|one| one.granted.unwrap_or(0) as f64).collect()
}
