//! What a program of results does when nobody reads them any more.

use std::fs::File;
use std::process::{Command, Stdio};

/// The writing end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn results_that_nobody_reads_are_no_failure_and_no_panic() {
    for args in [&["repro", "--list"] as &[&str], &["--help"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(args);
        let output = command.stdout(unread()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
    }
}

#[test]
fn a_refusal_that_nobody_reads_keeps_its_exit_code() {
    let run = |stderr: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
        command.args(["run", "no-such-file.toml"]).stderr(stderr).output().unwrap().status.code()
    };
    let code = run(Stdio::null());
    assert!(code.is_some_and(|code| code != 0 && code != 101), "{code:?}");
    assert_eq!(run(unread()), code);
}

#[test]
fn results_that_cannot_be_written_are_a_failure_that_says_so() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtp-lab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let output = command.args(["repro", "--list"]).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("standard output") && !said.contains("panicked"), "{said}");
}

#[test]
fn words_that_are_not_taken_are_repeated_without_what_would_act_on_a_terminal() {
    for words in [&["x\u{202e}y\u{9b}"][..], &["run", "a", "--x\u{202e}y\u{9b}"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_gtp-lab")).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains(['\u{202e}', '\u{9b}']) && said.contains("u{202e}"), "{said:?}");
    }
}
