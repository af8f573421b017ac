//! Two thousand random worlds with random faults: when these have ended, all must come right.
//!
//! A failure prints the world's number and the command that shows it again.

use std::process::Command;

#[test]
fn two_thousand_worlds_come_right_once_their_faults_have_ended() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    let output = command.args(["universe", "--worlds", "2000"]).output().expect("gtp-lab runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("2000 worlds from seed 1"), "{said}");
    assert!(said.contains(": 0 failed"), "{said}");
    assert!(output.status.success(), "{said}");
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
