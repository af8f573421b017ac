//! `gtp put` to several addresses: what arrives at each, what one that fails means for the others,
//! and how often the source is read.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::trees::differences;
use common::{Serving, World, bytes, events, require_root, size_of, wait_for};
use serde_json::Value;

/// A world whose client may write at so many servers, each with a directory of its own, `s0` and so
/// on.
fn world(servers: usize) -> (World, Vec<Serving>) {
    let world = World::new();
    world.list_client();
    let all = (0..servers).map(|n| serve(&world, n, &["--writable"])).collect();
    (world, all)
}

/// Starts the server of this number.
fn serve(world: &World, number: usize, args: &[&str]) -> Serving {
    let dir = format!("s{number}");
    fs::create_dir_all(world.path(&dir)).unwrap();
    world.serve_dir("server", &dir, args)
}

/// A put of these paths to these addresses.
#[track_caller]
fn put(world: &World, code: i32, paths: &[&str], urls: &[String], more: &[&str]) -> Output {
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let args = [&["put"][..], paths, &urls, &["--json", "--accept-new"], more].concat();
    world.expect(code, &args)
}

/// The event of this kind of a sink.
#[track_caller]
fn of_sink<'a>(events: &'a [Value], kind: &str, url: &str) -> &'a Value {
    let is_it = |event: &&Value| event["event"] == kind && event["sink"] == url;
    events.iter().find(is_it).unwrap_or_else(|| panic!("{kind} of {url}: {events:?}"))
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key}: {event}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_file_arrives_at_all_addresses_and_its_bytes_are_read_once() {
    let (world, servers) = world(3);
    // A file of several blocks that nobody has changed in the last seconds: others are read twice.
    let source = "/bin/bash";
    let content = fs::read(source).unwrap();
    let urls: Vec<String> = servers.iter().map(|server| server.url("in/")).collect();
    let output = put(&world, 0, &[source], &urls, &[]);
    let events = events(&output);
    for (n, url) in urls.iter().enumerate() {
        assert!(fs::read(world.path(&format!("s{n}/in/bash"))).unwrap() == content);
        assert_eq!(number(of_sink(&events, "started", url), "files"), 1);
        let done = of_sink(&events, "done", url);
        assert_eq!(number(done, "bytes"), content.len() as u64);
        assert!(number(done, "goodput") > 0, "{done}");
    }
    let ended = events.last().unwrap();
    assert_eq!((&ended["event"], number(ended, "exit_code")), (&"ended".into(), 0));
    assert_eq!((number(ended, "objects"), number(ended, "done")), (3, 3));
    let read = (number(ended, "read_bytes"), number(ended, "read_again_bytes"));
    assert_eq!(read, (content.len() as u64, 0));
    assert_eq!(said(&output), "");
    let again = common::events(&put(&world, 0, &[source], &urls, &[]));
    for url in &urls {
        let done = of_sink(&again, "done", url);
        assert_eq!(number(done, "resumed_bytes"), content.len() as u64);
    }
    assert_eq!(number(again.last().unwrap(), "read_bytes"), 0, "all have it");
}

#[test]
fn trees_with_many_small_files_arrive_under_the_name_that_each_address_gives_them() {
    let (world, servers) = world(3);
    for n in 0..400 {
        let dir = world.path(&format!("tree/{}", n % 7));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(n.to_string()), bytes(n * 13, n as u64)).unwrap();
    }
    fs::write(world.path("tree/large"), bytes(3_000_000, 9)).unwrap();
    fs::create_dir(world.path("tree/empty")).unwrap();
    fs::write(world.path("beside"), "beside").unwrap();
    let urls = [servers[0].url("new"), servers[1].url(""), servers[2].url("deep/")];
    put(&world, 0, &["tree"], &urls, &[]);
    let arrived = [world.path("s0/new"), world.path("s1/tree"), world.path("s2/deep/tree")];
    for place in &arrived {
        assert_eq!(differences(&world.path("tree"), place), "", "{place:?}");
    }
    let urls: Vec<String> = servers.iter().map(|server| server.url("two/")).collect();
    let ended = events(&put(&world, 0, &["tree", "beside"], &urls, &[]));
    for n in 0..3 {
        let place = world.path(&format!("s{n}/two/tree"));
        assert_eq!(differences(&world.path("tree"), &place), "", "{place:?}");
        assert_eq!(fs::read(world.path(&format!("s{n}/two/beside"))).unwrap(), b"beside");
    }
    assert_eq!(number(ended.last().unwrap(), "done"), 3);
}

#[test]
fn a_server_that_refuses_is_named_and_the_others_get_all_and_the_next_run_moves_only_the_rest() {
    let (world, mut servers) = world(3);
    servers[1] = serve(&world, 1, &["--public"]);
    let content = bytes(2_000_000, 1);
    fs::write(world.path("f"), &content).unwrap();
    let urls: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let output = put(&world, 12, &["f"], &urls, &["--retry-for", "2s"]);
    let told = events(&output);
    let error = of_sink(&told, "error", &urls[1]);
    assert_eq!((number(error, "exit_code"), number(error, "bytes")), (4, 0), "{error}");
    let text = said(&output);
    assert!(text.contains(&format!("gtp: {}: ", urls[1])), "{text}");
    assert!(text.contains(&format!("{}  failed: ", urls[1])), "{text}");
    for n in [0, 2] {
        assert!(text.contains(&format!("{}  done: ", urls[n])), "{text}");
        assert!(fs::read(world.path(&format!("s{n}/f"))).unwrap() == content);
    }
    assert!(text.contains("2 of 3 done"), "{text}");
    assert_eq!(number(told.last().unwrap(), "done"), 2);
    let listen = format!("127.0.0.1:{}", servers[1].port);
    servers[1].kill();
    servers[1] = serve(&world, 1, &["--writable", "--listen", &listen]);
    let told = events(&put(&world, 0, &["f"], &urls, &[]));
    for (n, moved) in [(0, 0), (1, 2_000_000), (2, 0)] {
        let done = of_sink(&told, "done", &urls[n]);
        assert_eq!(number(done, "bytes") - number(done, "resumed_bytes"), moved);
        assert!(fs::read(world.path(&format!("s{n}/f"))).unwrap() == content);
    }
}

#[test]
fn a_server_that_dies_in_the_middle_holds_up_nobody_and_its_rest_comes_with_the_next_run() {
    let (world, mut servers) = world(3);
    let content = bytes(6_000_000, 2);
    fs::write(world.path("f"), &content).unwrap();
    let urls: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let mut putting = world.gtp("client", &["put", "f", &urls[0], &urls[1], &urls[2]]);
    putting.args(["--accept-new", "--json", "--max-rate", "16Mbit", "--retry-for", "1s"]);
    let putting = putting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("blocks", || size_of(&world.path("s1/f.gtp-journal")) > 200);
    servers[1].kill();
    let output = putting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(12), "{}", said(&output));
    let told = events(&output);
    assert_eq!(number(of_sink(&told, "error", &urls[1]), "exit_code"), 5);
    assert!(told.iter().any(|event| event["event"] == "retry" && event["sink"] == *urls[1]));
    let listen = format!("127.0.0.1:{}", servers[1].port);
    servers[1] = serve(&world, 1, &["--writable", "--listen", &listen]);
    let told = events(&put(&world, 0, &["f"], &urls, &[]));
    let resumed = |n: usize| number(of_sink(&told, "done", &urls[n]), "resumed_bytes");
    assert_eq!((resumed(0), resumed(2)), (6_000_000, 6_000_000));
    assert!((1..6_000_000).contains(&resumed(1)), "{}", resumed(1));
    for n in 0..3 {
        assert!(fs::read(world.path(&format!("s{n}/f"))).unwrap() == content);
    }
}

#[test]
fn a_server_whose_disk_is_full_fails_alone() {
    if !require_root() {
        return;
    }
    let (world, mut servers) = world(2);
    fs::create_dir(world.path("s2")).unwrap();
    mount(&world.path("s2"), &["mount", "-t", "tmpfs", "-o", "size=1m", "none"]);
    servers.push(serve(&world, 2, &["--writable"]));
    fs::write(world.path("f"), bytes(2_000_000, 3)).unwrap();
    let urls: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let told = events(&put(&world, 12, &["f"], &urls, &["--retry-for", "2s"]));
    assert_eq!(number(of_sink(&told, "error", &urls[2]), "exit_code"), 4);
    for n in [0, 1] {
        assert_eq!(number(of_sink(&told, "done", &urls[n]), "bytes"), 2_000_000);
    }
    drop(servers.pop());
    mount(&world.path("s2"), &["umount", "-l"]);
}

fn mount(at: &Path, words: &[&str]) {
    let mut command = Command::new(words[0]);
    assert!(command.args(&words[1..]).arg(at).status().unwrap().success());
}

#[test]
fn where_all_fail_alike_the_exit_code_is_that_of_one() {
    let (world, mut servers) = world(2);
    let urls: Vec<String> = servers.iter().map(|server| server.url("")).collect();
    put(&world, 3, &["gone"], &urls, &[]);
    fs::write(world.path("f"), "f").unwrap();
    fs::write(world.path("g"), "g").unwrap();
    let named: Vec<String> = servers.iter().map(|server| server.url("new")).collect();
    put(&world, 4, &["f", "g"], &named, &[]);
    servers.iter_mut().for_each(Serving::kill);
    let output = put(&world, 5, &["f"], &urls, &["--retry-for", "1s"]);
    let told = events(&output);
    assert_eq!(number(told.last().unwrap(), "done"), 0);
    assert_eq!(number(told.last().unwrap(), "exit_code"), 5);
}

#[test]
fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
    let (world, servers) = world(1);
    fs::write(world.path("f"), "f").unwrap();
    let (a, b) = (servers[0].url("a"), servers[0].url("b/"));
    let refused = |args: &[&str], words: &str| {
        let output = world.expect(2, &[&["put"], args].concat());
        assert!(said(&output).contains(words), "{args:?}: {}", said(&output));
    };
    refused(&["f", &a, &b, &a], "a: this destination is named twice");
    let (bare, slash) = (servers[0].url(""), servers[0].url("").trim_end_matches('/').to_owned());
    refused(&["f", &bare, &slash], "this destination is named twice");
    refused(&["f", &a, "dir"], "\"dir\" is no address");
    refused(&["f", &a, "./dir", &b], "an address stands before a path");
    refused(&[&a, &b], "a path is needed");
    refused(&["-", &a, &b], "standard input is read once, so it goes to one destination");
    let many: Vec<String> = (0..33).map(|n| servers[0].url(&n.to_string())).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(&[&["f"], &many[..]].concat(), "33 destinations; one command takes 32 at most");
    assert_eq!(fs::read_dir(world.path("s0")).unwrap().count(), 0);
}

#[test]
fn a_signal_stops_all_of_them_and_what_is_there_is_kept() {
    let (world, servers) = world(2);
    fs::write(world.path("f"), bytes(6_000_000, 4)).unwrap();
    let urls: Vec<String> = servers.iter().map(|server| server.url("f")).collect();
    let mut putting = world.gtp("client", &["put", "f", &urls[0], &urls[1], "--accept-new"]);
    putting.args(["--json", "--max-rate", "10Mbit"]).stdout(Stdio::piped());
    let putting = putting.stderr(Stdio::piped()).spawn().unwrap();
    for n in 0..2 {
        wait_for("blocks", || size_of(&world.path(&format!("s{n}/f.gtp-journal"))) > 200);
    }
    let pid = rustix::process::Pid::from_child(&putting);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = putting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let told = events(&output);
    assert_eq!(number(told.last().unwrap(), "exit_code"), 130);
    let told = events(&put(&world, 0, &["f"], &urls, &[]));
    for url in &urls {
        assert!(number(of_sink(&told, "done", url), "resumed_bytes") > 0);
    }
}
