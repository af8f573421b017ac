//! Whether ssh waits for its user: for a password, or for a word about a key that it does not know.
//!
//! ssh asks on the terminal, which it opens only for that, or through a program that it starts
//! ([`ASKPASS`]). Both show in what it and the processes beneath it hold and are. Terminals that
//! this process was itself started with are not passed on to it, so each that it holds is a
//! question. What waits elsewhere, such as an agent's own question or a key that wants to be
//! touched, cannot be seen.

use std::ffi::OsString;
use std::fs::{read, read_dir, read_link, read_to_string};
use std::path::Path;

/// Keeps the terminals that this process holds, but for the standard streams, from the programs
/// that it starts. To be called before ssh is started.
///
/// # Errors
/// Where the kernel does not say which descriptors are open (`/proc` is not there).
pub fn pass_no_terminal_on() -> std::io::Result<()> {
    gtp_sys::descriptors::pass_none_on_of(is_terminal)
}

/// Whether this process or one beneath it asks its user for something.
pub fn asks(process: u32) -> bool {
    let askpass = std::env::var_os(ASKPASS).filter(|program| !program.is_empty());
    any_beneath(process, &askpass.unwrap_or_else(|| USUAL_ASKPASS.into()), DEPTH_MAX)
}

/// The same, if `askpass` is the program that asks.
fn any_beneath(process: u32, askpass: &OsString, depth: u32) -> bool {
    has_terminal(process)
        || runs(process, askpass)
        || depth > 0 && children(process).iter().any(|&id| any_beneath(id, askpass, depth - 1))
}

/// Whether a process holds a terminal. The standard streams of ssh are pipes.
fn has_terminal(process: u32) -> bool {
    let open = read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    open.filter_map(|fd| read_link(fd.path()).ok()).any(|path| is_terminal(&path))
}

fn is_terminal(path: &Path) -> bool {
    let names = ["/dev/tty", "/dev/pts/", "/dev/console"];
    path.to_str().is_some_and(|path| names.iter().any(|name| path.starts_with(name)))
}

/// Whether it is this program, or a script of this name.
fn runs(process: u32, program: &OsString) -> bool {
    let words = read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words.split(|&b| b == 0).take(2).any(|word| word == program.as_encoded_bytes())
}

/// The processes that it has started.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|at| read_to_string(at.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// What names the program by which ssh asks where there is no terminal.
const ASKPASS: &str = "SSH_ASKPASS";

/// That program, if none is named (OpenSSH's default).
const USUAL_ASKPASS: &str = "/usr/bin/ssh-askpass";

/// Processes beneath one another that are looked at: a wrapper, ssh, one that jumps, its question.
const DEPTH_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_terminals_count_as_such() {
        for path in ["/dev/tty", "/dev/pts/3", "/dev/tty1", "/dev/console"] {
            assert!(is_terminal(Path::new(path)), "{path}");
        }
        for path in ["/dev/null", "pipe:[1]", "socket:[2]", "/home/tty"] {
            assert!(!is_terminal(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_program_beneath_is_found_by_its_name() {
        // The shell waits for the command, so that there are two processes.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000; true"]).stdin(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        while children(shell.id()).is_empty() {
            std::thread::yield_now();
        }
        let sleep = children(shell.id())[0];
        while !runs(sleep, &"sleep".into()) {
            std::thread::yield_now();
        }
        assert!(any_beneath(shell.id(), &"sleep".into(), DEPTH_MAX));
        assert!(!any_beneath(shell.id(), &"/usr/bin/ssh-askpass".into(), DEPTH_MAX));
        let id = rustix::process::Pid::from_raw(i32::try_from(sleep).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
