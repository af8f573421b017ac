//! Descriptors: how many a process may have open, and those that it was started with.
//!
//! The soft limit is low by habit and the hard limit is high; a process that serves others raises
//! the first to the second. A process that goes on in the background must not hold open what its
//! parent had open: a pipe of a shell would never end, and a lock would never be free.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit of open descriptors to the maximum, and returns it.
///
/// Programs that it starts inherit the limit; none of them may use `select`.
pub fn raise_limit() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is, which `limit` says.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    limit()
}

/// With fewer descriptors no transfer is begun: engine, sockets and files of one take about twenty,
/// and a thread that gets none may wait for ever.
pub const LEAST: u64 = 24;

/// Refuses a limit of fewer descriptors than any transfer needs.
///
/// # Errors
/// In words, if this process may have fewer than [`LEAST`] open.
pub fn check_limit() -> io::Result<()> {
    match limit() {
        LEAST.. => Ok(()),
        few => Err(io::Error::other(format!(
            "this process may have {few} descriptors open, and needs {LEAST}: see `ulimit -n`"
        ))),
    }
}

/// How many descriptors this process may have open at present.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether an error says that this process or this machine is out of descriptors, which may be over
/// a little later.
pub fn are_used_up(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Lets no descriptor of this process but the standard three pass on to a program that it starts.
/// What is open stays open here.
///
/// # Errors
/// Where the kernel does not say which descriptors are open (`/proc` is not there).
pub fn pass_none_on() -> io::Result<()> {
    pass_none_on_of(|_| true)
}

/// The same of the descriptors that are open on a file whose path, as the kernel tells it, is one
/// of `these`.
///
/// # Errors
/// As [`pass_none_on`].
pub fn pass_none_on_of(these: impl Fn(&Path) -> bool) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        // One that is closed by now has no path.
        let is_one = || std::fs::read_link(entry.path()).is_ok_and(|path| these(&path));
        if let Some(number) = number.filter(|number| *number > 2 && is_one()) {
            // SAFETY: it takes numbers only and closes nothing here; one that is closed by now, as
            // the directory's own will be, is an error that means nothing.
            let _ = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn the_limit_rises_to_what_is_allowed_and_no_further() {
        let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_limit(), allowed);
        assert_eq!(limit(), allowed);
    }

    #[test]
    fn what_could_pass_on_does_not_any_more_and_is_open_still() {
        let passed = |file: &File| {
            let test = format!("test -e /proc/self/fd/{}", file.as_raw_fd());
            let status = std::process::Command::new("sh").args(["-c", &test]).status();
            status.expect("a shell").success()
        };
        let [null, zero] = ["/dev/null", "/dev/zero"].map(|path| {
            let file = File::open(path).expect("a file");
            rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("it is open");
            file
        });
        assert!(passed(&null) && passed(&zero));
        let is_null = |path: &Path| path == Path::new("/dev/null");
        pass_none_on_of(is_null).expect("descriptors are known");
        assert!(!passed(&null) && passed(&zero));
        pass_none_on().expect("descriptors are known");
        assert!(!passed(&zero) && null.metadata().is_ok() && zero.metadata().is_ok());
    }
}
