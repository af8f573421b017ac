//! Whether ssh waits for its user: for a password, or for a word about a key that it does not know.
//!
//! ssh asks on the terminal, which it opens only for that, or through a program that it starts
//! ([`ASKPASS`]). Both show in what it and the processes beneath it hold and are. A terminal that
//! this process was itself started with, and so passes on, is no question. What waits elsewhere,
//! such as an agent's own question or a key that wants to be touched, cannot be seen.

use std::ffi::OsString;
use std::fs::{read, read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};

/// Whether this process or one beneath it asks its user for something.
pub fn asks(process: u32) -> bool {
    let askpass = std::env::var_os(ASKPASS).filter(|program| !program.is_empty());
    let askpass = askpass.unwrap_or_else(|| USUAL_ASKPASS.into());
    any_beneath(process, &Known { askpass, passed_on: passed_on() }, DEPTH_MAX)
}

/// By what a question is known.
struct Known {
    /// The program that asks.
    askpass: OsString,
    /// Terminals that processes have without opening them.
    passed_on: Vec<Terminal>,
}

/// The number of a descriptor, and what it is of.
type Terminal = (u32, PathBuf);

fn any_beneath(process: u32, known: &Known, depth: u32) -> bool {
    let has_opened = |terminal| !known.passed_on.contains(&terminal);
    terminals(&format!("/proc/{process}/fd")).any(has_opened)
        || runs(process, &known.askpass)
        || depth > 0 && children(process).iter().any(|&id| any_beneath(id, known, depth - 1))
}

/// The terminals that a process holds. The standard streams of ssh are pipes.
fn terminals(fds: &str) -> impl Iterator<Item = Terminal> {
    let open = read_dir(fds).into_iter().flatten().flatten();
    let terminal = |path: PathBuf| {
        let number = path.file_name()?.to_str()?.parse().ok()?;
        Some((number, read_link(path).ok().filter(|path| is_terminal(path))?))
    };
    open.filter_map(move |fd| terminal(fd.path()))
}

/// The terminals beside its standard streams that this process passes on to those that it starts.
fn passed_on() -> Vec<Terminal> {
    let stays_open = |number: u32| {
        let about = read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        flags.is_some_and(|flags| flags & rustix::fs::OFlags::CLOEXEC.bits() == 0)
    };
    let all = terminals("/proc/self/fd");
    all.filter(|&(number, _)| number > 2 && stays_open(number)).collect()
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
        let known = |askpass: &str| Known { askpass: askpass.into(), passed_on: Vec::new() };
        assert!(any_beneath(shell.id(), &known("sleep"), DEPTH_MAX));
        assert!(!any_beneath(shell.id(), &known("/usr/bin/ssh-askpass"), DEPTH_MAX));
        let id = rustix::process::Pid::from_raw(i32::try_from(sleep).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
    }
}
