//! Whether the programs that are found here are of one release.
//!
//! What a shell, `gtp cp` from elsewhere or the daemon's unit start is the one in `PATH`, which
//! need not be this one. Each is asked for its version, as a person would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::finding::Finding;

const CHECK: &str = "version";

/// This program's own version.
const OWN: &str = env!("CARGO_PKG_VERSION");

/// Asks the `gtp` and the `gtpd` in `PATH`.
pub fn check() -> Finding {
    let asked: Vec<(PathBuf, Option<String>)> = ["gtp", "gtpd"]
        .iter()
        .filter_map(|name| in_path(name))
        .map(|program| {
            let said = ask(&program);
            (program, said)
        })
        .collect();
    judge(&asked)
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let programs = std::env::split_paths(&path).map(|dir| dir.join(name));
    programs.into_iter().find(|program| program.is_file())
}

/// The version that a program says it has; `None` if it is another program.
fn ask(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null());
    let said = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let (name, version) = said.trim().split_once(' ')?;
    matches!(name, "gtp" | "gtpd").then(|| gtp_text::of_message(version).to_string())
}

fn judge(asked: &[(PathBuf, Option<String>)]) -> Finding {
    for (program, said) in asked {
        let shown = program.display();
        match said {
            Some(version) if version == OWN => {}
            Some(version) => {
                let found = format!("this is {OWN}, and {shown} is {version}");
                return Finding::warning(
                    CHECK,
                    found,
                    "make install    # or put this one first in PATH",
                );
            }
            None => {
                let found = format!("this is {OWN}, and {shown} is another program");
                return Finding::warning(
                    CHECK,
                    found,
                    "put this program's directory first in PATH",
                );
            }
        }
    }
    Finding::ok(CHECK, OWN)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_program_in_the_path_of_another_version_or_of_another_name_is_told() {
        let there = |said: Option<&str>| (PathBuf::from("/usr/bin/gtp"), said.map(str::to_owned));
        assert_eq!(judge(&[there(Some(OWN))]), Finding::ok(CHECK, OWN));
        assert_eq!(judge(&[]).verdict, Verdict::Ok);
        for (said, says) in [(Some("0.0.1"), "gtp is 0.0.1"), (None, "another program")] {
            let found = judge(&[there(said)]);
            assert_eq!(found.verdict, Verdict::Warning);
            assert!(found.found.contains(says), "{found:?}");
        }
    }
}
