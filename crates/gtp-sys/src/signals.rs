//! What this process was started to do about signals.
//!
//! Whoever starts a process may have it ignore a signal, and the process should know before it
//! takes that signal over. Nothing is changed here, and what follows from it is not known.

use std::io;

/// Whether this process ignores the signal that says that its terminal is gone, as `nohup` has
/// the programs do that it starts.
///
/// # Errors
/// What the system says, which for this signal it has no reason to.
pub fn hangup_is_ignored() -> io::Result<bool> {
    // SAFETY: an all-zero sigaction is a valid value to be overwritten.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action nothing changes, and `now` outlives the call.
    if unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(now.sa_sigaction == libc::SIG_IGN)
}
