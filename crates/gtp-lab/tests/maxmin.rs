//! `gtp-lab maxmin` through its built binary: what scripts see.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gtp-lab"))
}

fn maxmin(network: &str) -> Output {
    let mut child = lab()
        .args(["maxmin", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(network.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Asserts exit code 2, nothing on stdout, and each of `words` on stderr.
fn refused(network: &str, words: &[&str]) {
    let output = maxmin(network);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{network}: {said}");
    assert!(output.stdout.is_empty());
    for word in words {
        assert!(said.contains(word), "{network}: {said:?} lacks {word:?}");
    }
}

#[test]
fn rates_are_printed_in_the_order_of_the_sessions() {
    let output = maxmin(
        r#"{"capacity":{"a":1000,"b":300,"c":1e9},"sessions":[
            {"id":"z","uses":["a","c"]},
            {"id":"y","uses":["b","a"],"demand":null,"weight":2},
            {"id":"x","uses":["a"],"demand":100.5,"weight":1}]}"#,
    );
    assert_eq!(text(&output.stdout), "{\"rates\":{\"z\":599.5,\"y\":300.0,\"x\":100.5}}\n");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

#[test]
fn an_empty_network_has_no_rates() {
    assert_eq!(text(&maxmin(r#"{"capacity":{},"sessions":[]}"#).stdout), "{\"rates\":{}}\n");
}

#[test]
fn names_may_hold_anything_that_json_can() {
    let output =
        maxmin(r#"{"capacity":{"é\n":8},"sessions":[{"id":"\"q\"","uses":["\u00e9\n"]}]}"#);
    assert_eq!(text(&output.stdout), "{\"rates\":{\"\\\"q\\\"\":8.0}}\n");
}

#[test]
fn a_missing_file_is_exit_code_3_and_bad_usage_2() {
    let output = lab().args(["maxmin", "/nonexistent/network.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/nonexistent/network.json"));
    assert_eq!(lab().arg("maxmin").output().unwrap().status.code(), Some(2));
    assert_eq!(lab().arg("nonsense").output().unwrap().status.code(), Some(2));
    assert_eq!(lab().args(["maxmin", "/"]).output().unwrap().status.code(), Some(1));
}

#[test]
fn a_file_is_read_like_standard_input() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(br#"{"capacity":{"a":4},"sessions":[{"id":"s","uses":["a"]}]}"#).unwrap();
    let output = lab().arg("maxmin").arg(file.path()).output().unwrap();
    assert_eq!(text(&output.stdout), "{\"rates\":{\"s\":4.0}}\n");
}

#[test]
fn ambiguous_input_is_refused_by_name() {
    let with = |capacity: &str, sessions: &str| {
        format!("{{\"capacity\":{{{capacity}}},\"sessions\":[{sessions}]}}")
    };
    let node = r#""a":10"#;
    let s = r#"{"id":"s","uses":["a"]}"#;
    refused(&with(r#""a":1,"b":2,"a":1"#, s), &["\"a\"", "two capacities"]);
    refused(&with(node, &format!("{s},{s}")), &["\"s\"", "rename"]);
    refused(&with(node, r#"{"id":"s","uses":["a","q"]}"#), &["\"s\"", "\"q\"", "add it"]);
    refused(&with(node, r#"{"id":"s","uses":["a","a"]}"#), &["\"s\"", "\"a\"", "once"]);
    refused(&with(node, r#"{"id":"s","uses":[]}"#), &["\"s\"", "demand"]);
    refused(&with(node, r#"{"id":"s","uses":["a"],"demand":-1}"#), &["\"s\"", "demand"]);
    refused(&with(node, r#"{"id":"s","uses":["a"],"weight":0}"#), &["\"s\"", "weight"]);
    refused(&with(r#""a":-5"#, s), &["\"a\"", "-5"]);
    refused(&with(node, r#"{"id":"s","uses":["a"],"wieght":2}"#), &["wieght", "line 1"]);
    refused(&with(node, r#"{"uses":["a"]}"#), &["id"]);
    refused(&with(r#""a":1e999"#, s), &["out of range"]);
    refused("", &["not a network"]);
    refused("[1,2]", &["not a network"]);
}

#[test]
fn two_hundred_thousand_sessions_take_no_time_worth_mentioning() {
    let mut network = String::from("{\"capacity\":{");
    for v in 0..1_000 {
        let comma = if v == 0 { "" } else { "," };
        network += &format!("{comma}\"n{v}\":1e9");
    }
    network += "},\"sessions\":[";
    for k in 0..200_000 {
        let comma = if k == 0 { "" } else { "," };
        let (a, b) = (k % 500, 500 + k * 7 % 500);
        network += &format!("{comma}{{\"id\":\"s{k}\",\"uses\":[\"n{a}\",\"n{b}\"]}}");
    }
    network += "]}";
    let output = maxmin(&network);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(printed.starts_with("{\"rates\":{\"s0\":2500000.0,\"s1\":2500000.0,"));
    assert!(printed.ends_with("\"s199999\":2500000.0}}\n"));
}
