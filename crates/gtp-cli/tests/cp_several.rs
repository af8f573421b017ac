//! `gtp cp --also`: from this machine to several places at once, behind logins and at servers.

mod common;

use std::process::Output;

use common::sshd::Sshd;
use common::{bytes, events, wait_for, writable};
use serde_json::Value;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn expect(sshd: &Sshd, code: i32, words: &[&str]) -> Output {
    let output = sshd.gtp("cp", words).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
    output
}

/// The sinks of the events of this kind, in the alphabet's order.
fn sinks(events: &[Value], kind: &str) -> Vec<String> {
    let of_kind = events.iter().filter(|event| event["event"] == kind);
    let mut sinks: Vec<String> =
        of_kind.map(|event| event["sink"].as_str().unwrap().to_owned()).collect();
    sinks.sort();
    sinks
}

#[test]
fn a_tree_and_a_file_arrive_behind_two_logins_and_at_a_server_at_once() {
    let sshd = Sshd::with_gtp();
    let server = writable(&sshd.world, &[]);
    let (large, small) = (bytes(2_000_000, 1), bytes(50, 2));
    std::fs::create_dir(sshd.world.path("tree")).unwrap();
    std::fs::write(sshd.world.path("tree/large"), &large).unwrap();
    std::fs::write(sshd.world.path("small"), &small).unwrap();
    let there = [sshd.home("one"), sshd.home("two"), sshd.world.path("export/three")];
    let url = server.url("three/");
    let words = ["tree", "small", "far:one", "--also", "far:two/", "--also", &url, "--json"];
    for again in [false, true] {
        let output = expect(&sshd, 0, &words);
        let told = events(&output);
        assert_eq!(sinks(&told, "done"), ["far:one", "far:two/", &url]);
        for place in &there {
            assert!(std::fs::read(place.join("tree/large")).unwrap() == large, "{place:?}");
            assert!(std::fs::read(place.join("small")).unwrap() == small, "{place:?}");
        }
        let written: u64 = told
            .iter()
            .filter(|event| event["event"] == "done")
            .map(|done| done["files_written"].as_u64().unwrap())
            .sum();
        assert_eq!(written, if again { 0 } else { 6 });
    }
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

#[test]
fn a_login_that_cannot_be_had_fails_alone_and_is_named() {
    let sshd = Sshd::with_gtp();
    std::fs::write(sshd.world.path("f"), "content").unwrap();
    let words = ["f", "nowhere.invalid:x", "--also", "far:f", "--json"];
    let output = expect(&sshd, 12, &words);
    let told = events(&output);
    assert_eq!(sinks(&told, "error"), ["nowhere.invalid:x"]);
    assert_eq!(sinks(&told, "done"), ["far:f"]);
    assert!(said(&output).contains("gtp: nowhere.invalid:x: "), "{}", said(&output));
    assert_eq!(std::fs::read(sshd.home("f")).unwrap(), b"content");
    let output = expect(&sshd, 5, &["f", "nowhere.invalid:x", "--also", "gone.invalid:y"]);
    assert!(said(&output).contains("0 of 2 done"), "{}", said(&output));
}

#[test]
fn further_destinations_are_elsewhere_and_their_sources_are_here() {
    let sshd = Sshd::with_gtp();
    std::fs::write(sshd.world.path("f"), "content").unwrap();
    for (words, says) in [
        (&["f", "far:x", "--also", "here"][..], "--also here: that is on this machine"),
        (&["f", "far:x", "--also", "far:x"], "far:x: this destination is named twice"),
        (&["-", "far:x", "--also", "far:y"], "standard input is read once"),
        (&["far:x", "here", "--also", "far:y"], "all sources are paths here"),
        (&["far:x", "far:z", "--also", "far:y"], "all sources are paths here"),
        (&["f", "far:x", "gtp://h/z", "--also", "far:y"], "all sources are paths here"),
    ] {
        let output = expect(&sshd, 2, words);
        assert!(said(&output).contains(says), "{words:?}: {}", said(&output));
    }
    assert_eq!(sshd.far_ends(), 0, "nobody was called");
}
