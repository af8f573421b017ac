//! Streams between two hosts where UDP is blocked: the control connection carries them as well, for
//! `gtp stream`, `gtp put -` and `gtp cp -`. Each test has two namespaces of its own, so all need
//! root.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Output, Stdio};

use common::hosts::{FAR, Hosts, To};
use common::sshd::Sshd;
use common::{Serving, World, bytes, events, require_root, size_of, wait_for};

const UDP: &str = "ipproto udp";
const CARRIED: &str = "the control connection carries the data, which is slower";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Somebody at the far host who receives one stream, and the words for the sender.
fn receiver(world: &World, hosts: &Hosts) -> (Child, Vec<String>) {
    let listen = format!("{FAR}:4810");
    let words = ["stream", "receive", "--listen", &listen, "--public"];
    let mut command = hosts.far(&world.gtp("server", &words));
    command.stdout(File::create(world.path("received")).unwrap());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("--fingerprint") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before it listened");
    }
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    let key = line.split(' ').next_back().unwrap().trim().to_owned();
    let url = format!("gtp://{FAR}:4810/");
    (child, ["stream", "send", &url, "--fingerprint", &key].map(str::to_owned).to_vec())
}

/// Sends a file's content as a stream from the near host.
fn send(world: &World, hosts: &Hosts, words: &[&str]) -> Output {
    let mut command = hosts.near(&world.gtp("client", words));
    command.stdin(File::open(world.path("content")).unwrap()).output().unwrap()
}

#[test]
fn whichever_way_udp_is_blocked_a_stream_arrives_whole_over_tcp_unless_udp_is_insisted_on() {
    if !require_root() {
        return;
    }
    let (world, hosts) = (World::new(), Hosts::new());
    let content = bytes(3_000_000, 1);
    std::fs::write(world.path("content"), &content).unwrap();
    for blocked in [&[][..], &[To::Far], &[To::Near], &[To::Near, To::Far]] {
        blocked.iter().for_each(|&to| hosts.block(to, UDP));
        let (mut far, words) = receiver(&world, &hosts);
        let sent = send(&world, &hosts, &words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(sent.status.code(), Some(0), "{blocked:?}: {}", said(&sent));
        assert!(far.wait().unwrap().success(), "{blocked:?}");
        assert!(std::fs::read(world.path("received")).unwrap() == content, "{blocked:?}");
        let told = said(&sent).matches(CARRIED).count();
        assert_eq!(told, usize::from(!blocked.is_empty()), "{}", said(&sent));
        blocked.iter().for_each(|&to| hosts.unblock(to, UDP));
    }
    hosts.block(To::Far, UDP);
    let (mut far, words) = receiver(&world, &hosts);
    let only = [&words.iter().map(String::as_str).collect::<Vec<_>>()[..], &["--udp", "only"]];
    let sent = send(&world, &hosts, &only.concat());
    assert_eq!(sent.status.code(), Some(11), "{}", said(&sent));
    far.kill().unwrap();
    far.wait().unwrap();
}

/// Waits until a part of a stream to the file `export/x` is there.
fn wait_for_a_part(world: &World, least: u64) {
    wait_for("a part of the stream", || {
        let names = world.path("export").read_dir().unwrap().flatten();
        names.map(|entry| size_of(&entry.path())).sum::<u64>() >= least
    });
}

#[test]
fn a_stream_whose_udp_dies_goes_on_over_tcp_and_takes_udp_back() {
    if !require_root() {
        return;
    }
    let (world, hosts) = (World::new(), Hosts::new());
    world.list_client();
    let listen = format!("{FAR}:0");
    let serve = ["serve", "export", "--json", "--writable", "--listen", &listen];
    let server = Serving::start(hosts.far(&world.gtp("server", &serve)));
    let url = format!("gtp://{FAR}:{}/x", server.port);
    let words =
        ["put", "-", &url, "--fingerprint", &server.fingerprint, "--json", "--max-rate", "1Mbit"];
    let mut near = hosts.near(&world.gtp("client", &words));
    near.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut near = near.spawn().unwrap();
    let mut input = near.stdin.take().unwrap();
    let mut lines = BufReader::new(near.stdout.take().unwrap()).lines();
    let mut carried = |by: &str| {
        let is = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["event"] == "carrier" && event["carrier"] == by
        };
        assert!(lines.any(|line| is(&line.unwrap())), "{by} has not carried it");
    };
    let content = bytes(3_000_000, 2);
    let (first, rest) = content.split_at(1_000_000);
    input.write_all(first).unwrap();
    wait_for_a_part(&world, first.len() as u64);
    for to in [To::Near, To::Far] {
        hosts.block(to, UDP);
    }
    let (second, third) = rest.split_at(1_000_000);
    input.write_all(second).unwrap();
    carried("tcp");
    wait_for_a_part(&world, 2_000_000);
    for to in [To::Near, To::Far] {
        hosts.unblock(to, UDP);
    }
    // What tries UDP are copies of datagrams with content, so there must be some for a while.
    let feeding = std::thread::spawn({
        let third = third.to_vec();
        move || input.write_all(&third).unwrap()
    });
    carried("udp");
    feeding.join().unwrap();
    lines.for_each(drop);
    let ended = near.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
    assert!(std::fs::read(world.path("export/x")).unwrap() == [first, second, third].concat());
}

#[test]
fn where_only_the_port_of_ssh_is_open_its_pipe_carries_what_is_piped_in() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
    hosts.leave_open(22);
    let content = bytes(3_000_000, 3);
    std::fs::write(sshd.world.path("content"), &content).unwrap();
    let send = |words: &[&str]| {
        let mut command = hosts.near(&sshd.gtp("cp", words));
        command.stdin(File::open(sshd.world.path("content")).unwrap()).output().unwrap()
    };
    let sent = send(&["-", "far:x", "--json"]);
    assert_eq!(sent.status.code(), Some(0), "{}", said(&sent));
    assert!(std::fs::read(sshd.home("x")).unwrap() == content);
    assert!(said(&sent).contains("ssh carries the data"), "{}", said(&sent));
    assert!(events(&sent).iter().any(|event| event["carrier"] == "tcp"));
    let insisted = send(&["-", "far:y", "--udp", "only"]);
    assert_eq!(insisted.status.code(), Some(11), "{}", said(&insisted));
    assert!(!sshd.home("y").exists());
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}
