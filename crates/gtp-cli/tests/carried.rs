//! Transfers between two hosts where UDP is blocked: the control connection carries the data.
//!
//! Each test has two namespaces of its own, so all need root. What is blocked is dropped where it
//! arrives, and its sender hears nothing of that.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::hosts::{FAR, Hosts, To};
use common::{Serving, World, bytes, require_root, size_of, wait_for};
use serde_json::Value;

const UDP: &str = "ipproto udp";

/// A client at the near host, and a server at the far host that lets it read and write.
struct Pair {
    world: World,
    hosts: Hosts,
    server: Serving,
}

impl Pair {
    fn new() -> Pair {
        let (world, hosts) = (World::new(), Hosts::new());
        world.list_client();
        let server = serve(&world, &hosts);
        Pair { world, hosts, server }
    }

    fn url(&self, path: &str) -> String {
        format!("gtp://{FAR}:{}/{path}", self.server.port)
    }

    fn command(&self, words: &[&str]) -> Command {
        let key = ["--fingerprint", &self.server.fingerprint];
        self.hosts.near(&self.world.gtp("client", &[words, &key].concat()))
    }

    /// Starts a transfer whose events can be read.
    fn start(&self, words: &[&str]) -> Transfer {
        let mut command = self.command(&[words, &["--json"]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Transfer { child, lines: lines.lines(), carriers: Vec::new(), last: Value::Null }
    }

    /// Runs a transfer to its good end; returns what has carried it, change by change.
    #[track_caller]
    fn carriers(&self, words: &[&str]) -> Vec<String> {
        self.start(words).done()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.world.path(name)).unwrap_or_default()
    }
}

fn serve(world: &World, hosts: &Hosts) -> Serving {
    let listen = format!("{FAR}:0");
    let serve = ["serve", "export", "--json", "--writable", "--listen", &listen];
    Serving::start(hosts.far(&world.gtp("server", &serve)))
}

struct Transfer {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    carriers: Vec<String>,
    last: Value,
}

impl Transfer {
    /// The next event but progress; `None` at the end.
    fn next(&mut self) -> Option<&Value> {
        loop {
            let event: Value = serde_json::from_str(&self.lines.next()?.unwrap()).unwrap();
            if event["event"] == "carrier" {
                self.carriers.push(event["carrier"].as_str().unwrap().to_owned());
            }
            if event["event"] != "progress" {
                self.last = event;
                return Some(&self.last);
            }
        }
    }

    /// Waits until so many bytes are there.
    fn moved(&mut self, bytes: u64) {
        loop {
            let event: Value = serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap();
            if event["event"] == "progress" && event["bytes"].as_u64().unwrap() >= bytes {
                return;
            }
        }
    }

    /// Waits until something else carries the transfer.
    fn carried(&mut self, carrier: &str) {
        while let Some(event) = self.next() {
            if event["event"] == "carrier" && event["carrier"] == carrier {
                return;
            }
        }
        panic!("it ended: {:?}, {:?}", self.carriers, self.last);
    }

    #[track_caller]
    fn done(mut self) -> Vec<String> {
        while self.next().is_some() {}
        let ended = self.child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "{:?}: {said}", self.last);
        let told = said.contains("the control connection carries the data, which is slower");
        assert_eq!(told, self.carriers.contains(&"tcp".to_owned()), "{said}");
        self.carriers
    }
}

#[test]
fn whichever_way_udp_is_blocked_files_and_trees_arrive_and_without_a_block_by_udp() {
    if !require_root() {
        return;
    }
    let pair = Pair::new();
    let content = pair.world.export("t/x", 3_000_000);
    let deep = pair.world.export("t/deep/y", 70_000);
    assert!(pair.carriers(&["get", &pair.url("t/x"), "free"]).is_empty());
    for (number, blocked) in [&[To::Far][..], &[To::Near], &[To::Near, To::Far]].iter().enumerate()
    {
        let (got, sent) = (format!("got{number}"), format!("sent{number}"));
        blocked.iter().for_each(|&to| pair.hosts.block(to, UDP));
        let by = pair.carriers(&["get", &pair.url("t/x"), &got]);
        assert_eq!(by, ["tcp"], "{blocked:?}");
        let by = pair.carriers(&["put", &got, &pair.url(&sent)]);
        assert_eq!(by, ["tcp"], "{blocked:?}");
        assert!(pair.read(&got) == content && pair.read(&format!("export/{sent}")) == content);
        blocked.iter().for_each(|&to| pair.hosts.unblock(to, UDP));
    }
    pair.hosts.block(To::Far, UDP);
    assert_eq!(pair.carriers(&["get", &pair.url("t"), "tree"]), ["tcp"]);
    assert_eq!(pair.carriers(&["put", "tree", &pair.url("back")]), ["tcp"]);
    assert!(pair.read("export/back/x") == content && pair.read("export/back/deep/y") == deep);
}

/// A transfer at this rate whose UDP is blocked once a part of it is there.
fn blocked_midway(pair: &Pair, verb: &str, blocked: To, size: usize) -> Transfer {
    let content = bytes(size, 3);
    std::fs::write(pair.world.path("export/large"), &content).unwrap();
    std::fs::write(pair.world.path("large"), &content).unwrap();
    let to = pair.url("put");
    let (words, part) = match verb {
        "get" => ([verb, &pair.url("large"), "got", "--max-rate", "16Mbit"], "got.gtp-part"),
        _ => ([verb, "large", &to, "--max-rate", "16Mbit"], "export/put.gtp-part"),
    };
    let transfer = pair.start(&words);
    wait_for("a part of it", || size_of(&pair.world.path(part)) > 0);
    pair.hosts.block(blocked, UDP);
    transfer
}

#[test]
fn when_udp_dies_midway_the_same_session_goes_on_over_tcp() {
    if !require_root() {
        return;
    }
    for (verb, result) in [("get", "got"), ("put", "export/put")] {
        for blocked in [To::Near, To::Far] {
            let pair = Pair::new();
            let mut transfer = blocked_midway(&pair, verb, blocked, 8_000_000);
            while transfer.next().is_some_and(|event| event["event"] != "done") {
                assert_ne!(
                    transfer.last["event"], "retry",
                    "{verb} {blocked:?}: {}",
                    transfer.last
                );
            }
            assert_eq!(transfer.done(), ["tcp"], "{verb} {blocked:?}");
            assert!(pair.read(result) == pair.read("large"), "{verb} {blocked:?}");
        }
    }
}

#[test]
fn udp_is_taken_back_when_it_gets_through_again() {
    if !require_root() {
        return;
    }
    for (verb, result) in [("get", "got"), ("put", "export/put")] {
        let pair = Pair::new();
        let mut transfer = blocked_midway(&pair, verb, To::Far, 30_000_000);
        transfer.carried("tcp");
        pair.hosts.unblock(To::Far, UDP);
        transfer.carried("udp");
        assert_eq!(transfer.done(), ["tcp", "udp"], "{verb}");
        assert!(pair.read(result) == pair.read("large"), "{verb}");
    }
}

#[test]
fn a_server_whose_firewall_lets_in_answers_alone_sends_first_and_udp_is_taken() {
    if !require_root() {
        return;
    }
    for near_too in [false, true] {
        let pair = Pair::new();
        pair.hosts.answers_only(To::Far, None);
        // Opened towards the server for the control connection, and for nothing else.
        if near_too {
            pair.hosts.answers_only(To::Near, None);
        }
        let content = pair.world.export("x", 16_000_000);
        let limit = ["--max-rate", "10Mbit"];
        let by = pair.carriers(&[&["get", &pair.url("x"), "got"][..], &limit].concat());
        assert_eq!(by, ["tcp", "udp"], "{near_too}");
        let by = pair.carriers(&[&["put", "got", &pair.url("sent")][..], &limit].concat());
        assert_eq!(by, ["tcp", "udp"], "{near_too}");
        assert!(pair.read("got") == content && pair.read("export/sent") == content);
    }
}

#[test]
fn of_several_sources_only_the_blocked_one_goes_over_tcp() {
    if !require_root() {
        return;
    }
    let pair = Pair::new();
    let content = pair.world.export("x", 30_000_000);
    let open = serve(&pair.world, &pair.hosts);
    pair.hosts.block(To::Far, &format!("{UDP} dport {}", pair.server.port));
    let mirror = format!("gtp://{FAR}:{}/x", open.port);
    let get = ["get", &pair.url("x"), "out", "--mirror", &mirror, "--max-rate", "16Mbit"];
    let mut transfer = pair.start(&[&get[..], &["--fingerprint", &open.fingerprint]].concat());
    transfer.carried("tcp");
    assert_eq!(transfer.last["url"], pair.url("x"));
    assert_eq!(transfer.done(), ["tcp"]);
    assert!(pair.read("out") == content);
}

#[test]
fn what_was_killed_on_tcp_is_resumed_on_tcp() {
    if !require_root() {
        return;
    }
    let pair = Pair::new();
    let content = pair.world.export("x", 12_000_000);
    pair.hosts.block(To::Far, UDP);
    let url = pair.url("x");
    let words = ["get", &url, "out", "--max-rate", "16Mbit"];
    let mut killed = pair.start(&words);
    killed.moved(3_000_000);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let mut again = pair.start(&words);
    while again.next().is_some_and(|event| event["event"] != "done") {}
    assert!(again.last["resumed_bytes"].as_u64().unwrap() > 0, "{}", again.last);
    assert_eq!(again.done(), ["tcp"]);
    assert!(pair.read("out") == content);
}
