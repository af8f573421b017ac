//! The engine's thread: the one loop around sockets, core and workers.

use std::io;
use std::sync::mpsc::Receiver;

use gtp_sys::wake::Poller;

use super::api::HostConfig;
use super::command::{Notice, Notices};

/// Starts the thread.
pub(super) fn spawn(
    _config: HostConfig,
    _poller: Poller,
    _inbox: Receiver<Notice>,
    _notices: Notices,
) -> io::Result<()> {
    Ok(())
}
