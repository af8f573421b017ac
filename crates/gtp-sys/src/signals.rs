//! What this process was started to do about signals, and the one that would end it for an error.
//!
//! The parent of a process may have it ignore a signal, and the process should know before it
//! handles that signal.

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

/// Has a write beyond the limit for the size of files (`ulimit -f`) fail with `EFBIG`, as other
/// writes fail, where SIGXFSZ would end the process. A process that was started to ignore that
/// signal goes on doing so. Programs that this one starts have the default again.
///
/// # Errors
/// The system's error; for this signal none is expected.
pub fn survive_file_limit() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value to be overwritten.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action nothing changes, and `action` outlives the call.
    if unsafe { libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // An ignored signal would stay ignored in the programs started; a handler is left behind.
    extern "C" fn pass_over(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = pass_over;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does nothing and lives as long as the process; `action` outlives the
    // call.
    if unsafe { libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
