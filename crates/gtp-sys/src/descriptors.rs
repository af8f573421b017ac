//! Descriptors that a process was started with and did not ask for.
//!
//! A process that goes on in the background must not hold open what whoever started it had open: a
//! pipe of a shell would never end, and a lock never be free.

use std::io;

/// Lets no descriptor of this process but the standard three pass on to a program that it starts.
/// What is open stays open here.
///
/// # Errors
/// Where the kernel does not say which descriptors are open (`/proc` is not there).
pub fn pass_none_on() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
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
    fn what_could_pass_on_does_not_any_more_and_is_open_still() {
        let file = File::open("/dev/null").expect("a file");
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("it is open");
        let passed = || {
            let test = format!("test -e /proc/self/fd/{}", file.as_raw_fd());
            std::process::Command::new("sh").args(["-c", &test]).status().expect("a shell")
        };
        assert!(passed().success());
        pass_none_on().expect("descriptors are known");
        assert!(!passed().success() && file.metadata().is_ok());
    }
}
