//! Two thousand random worlds with random faults: when these have ended, all must come right.
//!
//! A failure prints the world's number and the command that shows it again.

use std::process::Command;

/// Lines about sessions with too little at the end, of two thousand worlds, at most. Nearly all are
/// of one kind, a known weakness of the core: a session whose application supplies some Mbit/s and
/// runs ahead by 16 KiB only can go on swinging between claims of 1, 2, 4, … Mbit/s, and on average
/// has half of what it wants. To be lowered to none.
const UNFAIR_MAX: usize = 20;

#[test]
fn two_thousand_worlds_come_right_once_their_faults_have_ended() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    let output = command.args(["universe", "--worlds", "2000"]).output().expect("gtp-lab runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("2000 worlds from seed 1"), "{said}");
    let failures: Vec<&str> = said.lines().filter(|line| line.starts_with("world ")).collect();
    // Nothing is lost or left undone, no two runs part, no packet does the impossible.
    let unfair = |line: &&str| line.contains("Mbit/s at the end");
    assert!(failures.iter().all(unfair), "{said}");
    assert!(failures.len() <= UNFAIR_MAX, "{said}");
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
