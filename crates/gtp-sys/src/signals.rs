//! What this process was started to do about signals.
//!
//! The parent of a process may have it ignore a signal, and the process should know before it
//! handles that signal. Nothing is changed here.

use std::io;

/// Whether this process ignores SIGHUP, the signal that its terminal is gone, as programs under
/// `nohup` do.
///
/// # Errors
/// The system's error; for this signal none is expected.
pub fn hangup_is_ignored() -> io::Result<bool> {
    // SAFETY: an all-zero sigaction is a valid value to be overwritten.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action nothing changes, and `now` outlives the call.
    if unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.sa_sigaction == libc::SIG_IGN)
}
