//! `gtp serve` as a service: what its log and its audit say.

mod common;

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use common::{Serving, World, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A server whose log is kept in `log`, of which the client is the listed writer "anna".
fn serving(world: &World, args: &[&str]) -> Serving {
    let id = String::from_utf8(world.expect(0, &["id"]).stdout).unwrap();
    std::fs::create_dir_all(world.path("server")).unwrap();
    let listed = format!("{}  # anna\n", id.trim());
    std::fs::write(world.path("server/authorized_keys"), listed).unwrap();
    let mut command = world.gtp("server", &["serve", "export", "--json", "--writable"]);
    command.args(["--listen", "127.0.0.1:0"]).args(args);
    let server = Serving::start_logged(command, &world.path("log"));
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    server
}

fn log(world: &World) -> String {
    std::fs::read_to_string(world.path("log")).unwrap()
}

fn signal(server: &Serving, signal: Signal) {
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), signal).unwrap();
}

/// The JSON lines of a file that are whole.
fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Waits until the server has ended `count` sessions.
#[track_caller]
fn wait_for_ends(world: &World, word: &str, count: usize) {
    wait_for("the ends of sessions", || log(world).matches(word).count() >= count);
}

#[test]
fn the_log_as_json_sums_each_transfer_up_with_who_what_how_much_and_how_it_ended() {
    let world = World::new();
    world.export("a", 3_000_000);
    let server = serving(&world, &["--log-format", "json"]);
    world.expect(0, &["get", &server.url("a"), "out"]);
    world.expect(0, &["put", "out", &server.url("b")]);
    world.expect(3, &["get", &server.url("missing"), "x"]);
    wait_for_ends(&world, "session ends", 4);
    let lines = json_lines(&world.path("log"));
    for line in &lines {
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(["INFO", "WARN"].contains(&line["level"].as_str().unwrap()), "{line}");
    }
    let ends: Vec<&Value> = lines.iter().filter(|l| l["message"] == "session ends").collect();
    let of = |verb: &str| *ends.iter().find(|line| line["verb"] == verb).unwrap();
    for (verb, object) in [("get", "/a"), ("put", "/b")] {
        let end = of(verb);
        let said = [&end["name"], &end["object"], &end["outcome"], &end["files"]];
        assert_eq!(said, [&json!("anna"), &json!(object), &json!("done"), &json!(1)], "{end}");
        assert_eq!(end["bytes"], 3_000_000, "{end}");
        assert!(end["wire_bytes"].as_u64().unwrap() > 3_000_000, "{end}");
        let (seconds, rate) = (end["seconds"].as_f64().unwrap(), end["rate"].as_f64().unwrap());
        let bytes = end["bytes"].as_f64().unwrap();
        assert!((rate - bytes * 8.0 / seconds).abs() <= 1.0, "{end}");
        assert!((0.0..1.0).contains(&end["loss"].as_f64().unwrap()), "{end}");
    }
    let failed = ends.iter().find(|line| line["object"] == "/missing").unwrap();
    assert_eq!([&failed["level"], &failed["outcome"]], ["INFO", "missing"]);
    assert!(failed["why"].as_str().unwrap().contains("missing"), "{failed}");
}

#[test]
fn no_name_that_a_client_sends_breaks_a_line_of_the_log_or_commands_a_terminal() {
    let world = World::new();
    for (format, head) in [("text", "20"), ("journald", "<")] {
        let server = serving(&world, &["--log-format", format]);
        world.expect(3, &["get", &server.url("a%0AINFO%1B%5B31m%E2%80%AE"), "x"]);
        wait_for_ends(&world, "refused", 1);
        let said = log(&world);
        assert!(said.lines().all(|line| line.starts_with(head)), "{said}");
        assert!(said.contains("INFO") && !said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    }
}

#[test]
fn the_journal_gets_the_level_of_each_line_and_no_second_time() {
    let world = World::new();
    let server = serving(&world, &["--log-format", "journald"]);
    let content = world.export("file", 10);
    std::fs::write(world.path("mine"), content).unwrap();
    // No directory is where this file is.
    world.expect(4, &["put", "mine", &server.url("file/mine")]);
    wait_for_ends(&world, "session ends", 2);
    let said = log(&world);
    assert!(said.starts_with("<6>gtp_serve: serving export on "), "{said}");
    assert!(said.lines().any(|line| line.starts_with("<4>gtp_serve: session ends")), "{said}");
}

#[test]
fn the_audit_says_who_read_wrote_and_removed_what_and_goes_on_in_a_new_file_after_a_hangup() {
    let world = World::new();
    world.export("a", 100_000);
    world.export("tree/old", 10);
    let server = serving(&world, &["--audit", "audit"]);
    world.expect(0, &["get", &server.url("a"), "out"]);
    std::fs::create_dir(world.path("new")).unwrap();
    std::fs::write(world.path("new/file"), common::bytes(70_000, 1)).unwrap();
    world.expect(0, &["sync", "--delete", "new/", &server.url("tree")]);
    let audit = world.path("audit");
    let ends = |path: &Path| json_lines(path).iter().filter(|l| l["event"] == "end").count();
    wait_for("the ends of all sessions", || {
        let lines = json_lines(&audit);
        let begun = lines.iter().filter(|l| l["event"] == "begin").count();
        begun >= 4 && begun == ends(&audit)
    });
    let lines = json_lines(&audit);
    assert!(lines.iter().all(|l| l["name"] == "anna" && l["time"].is_string()), "{lines:?}");
    let has = |wanted: &[(&str, Value)]| {
        lines.iter().any(|line| wanted.iter().all(|(key, value)| line[*key] == *value))
    };
    let done = || ("outcome", json!("done"));
    assert!(has(&[("event", json!("end")), ("verb", json!("get")), ("path", json!("a")), done()]));
    assert!(has(&[
        ("event", json!("change")),
        ("change", json!("remove")),
        done(),
        ("path", json!("tree/old"))
    ]));
    let put = [("event", json!("end")), ("verb", json!("put")), ("bytes", json!(70_000)), done()];
    assert!(has(&put), "{lines:?}");
    std::fs::rename(&audit, world.path("audit.1")).unwrap();
    signal(&server, Signal::HUP);
    wait_for("a new file", || audit.exists());
    world.expect(0, &["get", &server.url("a"), "again"]);
    wait_for("its record", || ends(&audit) == 1);
    assert_eq!(json_lines(&world.path("audit.1")).len(), lines.len());
}

#[test]
fn the_audit_and_the_log_name_the_final_path_of_each_file_and_tree_that_was_put() {
    let world = World::new();
    world.export("staff/there", 10);
    let server = serving(&world, &["--audit", "audit"]);
    std::fs::create_dir_all(world.path("run/deep")).unwrap();
    for name in ["hi.txt", "odd name", "run/deep/file"] {
        std::fs::write(world.path(name), b"content").unwrap();
    }
    world.expect(0, &["put", "hi.txt", &server.url("staff/")]);
    world.expect(0, &["put", "hi.txt", "odd name", "run", &server.url("staff/")]);
    world.expect(0, &["put", "run/", &server.url("copy")]);
    world.expect(0, &["put", "hi.txt", &server.url("other.txt")]);
    wait_for_ends(&world, "session ends", 5);
    let lines = json_lines(&world.path("audit"));
    let ends = lines.iter().filter(|l| l["event"] == "end" && l["verb"] == "put");
    let objects: Vec<Value> = ends.map(|line| line["objects"].clone()).collect();
    let several = json!(["staff/hi.txt", "staff/odd name", "staff/run"]);
    let wanted = [json!(["staff/hi.txt"]), several, json!(["copy"]), json!(["other.txt"])];
    assert_eq!(objects, wanted, "{lines:?}");
    let said = log(&world);
    let ends: Vec<&str> = said.lines().filter(|line| line.contains("session ends")).collect();
    let wrote = |line: &&&str| line.contains(" wrote=");
    assert_eq!(ends.iter().filter(wrote).count(), 2, "where the path does not say it: {said}");
    assert!(said.contains("object=\"/staff\" wrote=\"/staff/hi.txt\""), "{said}");
}

#[test]
fn a_refused_client_is_in_the_audit_by_its_key_and_an_audit_that_cannot_be_kept_is_a_failure() {
    let world = World::new();
    let mut server = serving(&world, &["--audit", "audit"]);
    let out = world.run("stranger", &["ls", &server.url(""), "--accept-new"]);
    assert_eq!(out.status.code(), Some(7));
    let key = String::from_utf8(world.run("stranger", &["id"]).stdout).unwrap();
    let is_told = || {
        let lines = json_lines(&world.path("audit"));
        lines.iter().any(|l| l["event"] == "refused" && l["key"] == key.trim())
    };
    wait_for("the refusal", is_told);
    signal(&server, Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let server = serving(&world, &["--audit", "/dev/full"]);
    signal(&server, Signal::TERM);
    let mut server = server;
    assert_eq!(server.wait(), Some(4), "the records of one listing are lost");
    assert!(log(&world).contains("the audit cannot be written"), "{}", log(&world));
    let mut command = world.gtp("server", &["serve", "export", "--audit", "export"]);
    let refused = command.stderr(File::create(world.path("log")).unwrap()).status().unwrap();
    assert_eq!(refused.code(), Some(4));
    assert!(log(&world).contains("the audit cannot be kept: export: Is a directory"));
}

#[test]
fn the_daemon_writes_its_lines_in_the_form_that_is_asked_for() {
    let world = World::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    for (format, head) in [("text", "20"), ("json", "{\"timestamp\":\"20"), ("journald", "<3>")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gtpd"));
        command.env_clear().args(["--log-format", format, "--metrics", &taken, "--socket"]);
        command.arg(world.path("gtpd.sock")).stdin(Stdio::null());
        let ended = command.output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with(head) && said.contains("--metrics: Address already in use"),
            "{said}"
        );
    }
}
