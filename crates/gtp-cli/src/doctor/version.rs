//! Whether the programs that are found here are of one release.
//!
//! What a shell, `gtp cp` from elsewhere or the daemon's unit start is the one in `PATH`, which
//! need not be this one. Each is asked for its version, as a person would.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::Access;

use super::finding::Finding;
use crate::shell;

const CHECK: &str = "version";

/// This program's own version.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// What a program answers when it is asked for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// This version of this program.
    Version(String),
    /// Something else: it is another program.
    Else,
    /// Nothing in time.
    Nothing,
}

/// Asks the `gtp` and the `gtpd` in `PATH`.
pub fn check() -> Finding {
    let asked: Vec<(PathBuf, Said)> = ["gtp", "gtpd"]
        .iter()
        .filter_map(|name| in_path(name))
        .map(|program| {
            let said = ask(&program, PATIENCE);
            (program, said)
        })
        .collect();
    judge(&asked)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| is_program(program))
}

/// Whether a shell would run the file: it passes over one without the right to execute it.
fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

fn ask(program: &Path, patience: Duration) -> Said {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Said::Else };
    let (answer_in, answer) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = out.take(ANSWER_MOST).read_to_string(&mut text);
            // Nobody waits any more for an answer that is late.
            let _ = answer_in.send(read.map(|_| text));
        });
    }
    let answer = answer.recv_timeout(patience);
    // It has said all that is wanted, or takes too long; it may have ended.
    let _ = child.kill();
    let _ = child.wait();
    match answer {
        Ok(Ok(text)) => version_in(&text).map_or(Said::Else, Said::Version),
        Ok(Err(_)) => Said::Else,
        Err(_) => Said::Nothing,
    }
}

/// The version in an answer; `None` if it is another program's.
fn version_in(answer: &str) -> Option<String> {
    let (name, version) = answer.trim().split_once(' ')?;
    matches!(name, "gtp" | "gtpd").then(|| gtp_text::of_message(version))
}

fn judge(asked: &[(PathBuf, Said)]) -> Finding {
    for (program, said) in asked {
        let shown = program.display();
        let (found, mend) = match said {
            Said::Version(version) if version == OWN => continue,
            Said::Version(version) => (
                format!("this is {OWN}, and {shown} is {version}"),
                "make install    # or put this one first in PATH".to_owned(),
            ),
            Said::Else => (
                format!("this is {OWN}, and {shown} is another program"),
                "put this program's directory first in PATH".to_owned(),
            ),
            Said::Nothing => (
                format!("this is {OWN}, and {shown} does not say its version"),
                format!("{} --version    # see why it hangs", shell::path(program)),
            ),
        };
        return Finding::warning(CHECK, found, mend);
    }
    Finding::ok(CHECK, OWN)
}

/// How long a program may take to say its version; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer that are read; a version has a few dozen.
const ANSWER_MOST: u64 = 4_096;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_program_in_the_path_that_is_not_this_release_is_told() {
        let there = |said: Said| (PathBuf::from("/usr/bin/gtp"), said);
        let version = |of: &str| Said::Version(of.to_owned());
        assert_eq!(judge(&[there(version(OWN))]), Finding::ok(CHECK, OWN));
        assert_eq!(judge(&[]).verdict, Verdict::Ok);
        for (said, says) in [
            (version("0.0.1"), "gtp is 0.0.1"),
            (Said::Else, "another program"),
            (Said::Nothing, "does not say"),
        ] {
            let found = judge(&[there(version(OWN)), there(said)]);
            assert_eq!(found.verdict, Verdict::Warning);
            assert!(found.found.contains(says), "{found:?}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_a_file_that_cannot_be_run_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let script = |name: &str, mode: u32, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            file
        };
        let hangs = script("hangs", 0o755, "exec sleep 600");
        assert_eq!(ask(&hangs, Duration::from_millis(50)), Said::Nothing);
        let lingers = script("lingers", 0o755, "echo gtp 1.2.3; exec sleep 600 >/dev/null");
        assert_eq!(ask(&lingers, PATIENCE), Said::Version("1.2.3".to_owned()));
        assert_eq!(ask(&script("other", 0o755, "echo git 2.1"), PATIENCE), Said::Else);
        assert!(is_program(&hangs) && !is_program(&script("data", 0o644, "")));
        assert!(!is_program(dir.path()), "a directory");
    }
}
