//! `gtp put --relay`: sinks give blocks on to each other, so that the source sends each block about
//! once; and what becomes of sinks that cannot, or that are lost. `gtp cp --also --relay` likewise.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::hosts::{Mesh, meshed};
use common::trees::differences;
use common::{Serving, World, bytes, events, require_root, size_of, wait_for};
use serde_json::Value;

/// Servers, each with an export, a key and a list of its own.
struct Sinks {
    world: World,
    servers: Vec<Serving>,
}

/// Lets a server read from others on this machine.
const RELAYS: [&str; 2] = ["--third-party", "127.0.0.0/8:1-65535"];

impl Sinks {
    /// As many as there are rates, in Mbit/s, at which each can send and receive.
    fn new(rates: &[u32]) -> Sinks {
        let mut sinks = Sinks { world: World::new(), servers: Vec::new() };
        for (n, &rate) in rates.iter().enumerate() {
            let server = sinks.serve(n, rate, &RELAYS);
            sinks.servers.push(server);
        }
        sinks
    }

    fn command(&self, n: usize, rate: u32) -> Command {
        let id = self.world.expect(0, &["id"]).stdout;
        let (dir, config, rate) = (format!("s{n}"), format!("c{n}"), format!("{rate}Mbit"));
        fs::create_dir_all(self.world.path(&dir)).unwrap();
        fs::create_dir_all(self.world.path(&config)).unwrap();
        fs::write(self.world.path(&format!("{config}/authorized_keys")), &id).unwrap();
        let mut serve = self.world.gtp(&config, &["serve", &dir, "--json", "--writable"]);
        serve.args(["--daemon", "off", "--capacity-in", &rate, "--capacity-out", &rate]);
        serve
    }

    fn serve(&self, n: usize, rate: u32, args: &[&str]) -> Serving {
        let mut serve = self.command(n, rate);
        serve.args(["--listen", "127.0.0.1:0"]).args(args);
        Serving::start(serve)
    }

    fn urls(&self, path: &str) -> Vec<String> {
        self.servers.iter().map(|server| server.url(path)).collect()
    }

    /// A put of this path to all of them.
    fn put(&self, path: &str, urls: &[String], more: &[&str]) -> Command {
        let mut put = self.world.gtp("client", &["put", path, "--relay", "--json"]);
        put.args(["--accept-new", "--daemon", "off"]).args(urls).args(more);
        put
    }

    fn path(&self, n: usize, name: &str) -> PathBuf {
        self.world.path(&format!("s{n}")).join(name)
    }
}

#[track_caller]
fn expect(code: i32, mut command: Command) -> (Vec<Value>, String) {
    ended(code, command.output().unwrap())
}

#[track_caller]
fn ended(code: i32, output: Output) -> (Vec<Value>, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    (events(&output), said)
}

/// How often the object has left the source.
fn times_sent(events: &[Value]) -> f64 {
    let relay = &events.last().unwrap()["relay"];
    let number = |key: &str| relay[key].as_u64().unwrap_or_else(|| panic!("{relay}")) as f64;
    number("sent_wire_bytes") / number("object_wire_bytes")
}

#[test]
fn each_block_leaves_the_source_about_once_and_all_sinks_get_all_of_it() {
    let sinks = Sinks::new(&[30, 60, 90]);
    let content = bytes(12_000_000, 1);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let put = sinks.put("f", &sinks.urls("in/"), &["--capacity-out", "100Mbit"]);
    let (events, said) = expect(0, put);
    for n in 0..3 {
        assert!(fs::read(sinks.path(n, "in/f")).unwrap() == content);
    }
    let times = times_sent(&events);
    assert!((0.95..1.1).contains(&times), "{times}: {said}");
    let relay = &events.last().unwrap()["relay"];
    assert_eq!(relay["relaying"], serde_json::json!([true, true, true]));
    // 12 MB in packets at the slowest sink's 30 Mbit/s.
    let best = relay["best_seconds"].as_f64().unwrap();
    assert!((3.3..3.5).contains(&best), "{best}");
    assert_eq!(said, "");
}

#[test]
fn a_sink_whose_server_does_not_relay_is_sent_all_and_the_command_says_so() {
    let mut sinks = Sinks::new(&[60, 60]);
    sinks.servers.push(sinks.serve(2, 60, &[]));
    let content = bytes(4_000_000, 2);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let (events, said) = expect(0, sinks.put("f", &sinks.urls("f"), &[]));
    for n in 0..3 {
        assert!(fs::read(sinks.path(n, "f")).unwrap() == content);
    }
    let times = times_sent(&events);
    assert!((1.95..2.2).contains(&times), "{times}");
    let relaying = &events.last().unwrap()["relay"]["relaying"];
    assert_eq!(*relaying, serde_json::json!([true, true, false]));
    let words = format!("{}: its server does not relay (serve --third-party)", sinks.urls("f")[2]);
    assert!(said.contains(&words), "{said}");
}

#[test]
fn sinks_that_may_not_reach_each_other_are_sent_all() {
    let mut sinks = Sinks::new(&[]);
    for n in 0..2 {
        let server = sinks.serve(n, 60, &["--third-party", "192.0.2.1"]);
        sinks.servers.push(server);
    }
    let content = bytes(4_000_000, 3);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let (events, said) = expect(0, sinks.put("f", &sinks.urls("f"), &[]));
    for n in 0..2 {
        assert!(fs::read(sinks.path(n, "f")).unwrap() == content);
    }
    assert!(times_sent(&events) > 1.9, "{}", times_sent(&events));
    let urls = sinks.urls("f");
    let words = format!("{}: it does not reach {}: what only that one has", urls[0], urls[1]);
    assert!(said.contains(&words), "{said}");
}

#[test]
fn trees_are_relayed_file_by_file_and_what_is_there_moves_nowhere() {
    let sinks = Sinks::new(&[60, 60, 60]);
    for n in 0..60 {
        let dir = sinks.world.path(&format!("tree/{}", n % 5));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(n.to_string()), bytes(n * 9_000, n as u64)).unwrap();
    }
    fs::write(sinks.world.path("tree/large"), bytes(3_000_000, 9)).unwrap();
    let urls = [sinks.servers[0].url("new"), sinks.servers[1].url(""), sinks.servers[2].url("a/")];
    let (events, said) = expect(0, sinks.put("tree", &urls, &[]));
    let places = [sinks.path(0, "new"), sinks.path(1, "tree"), sinks.path(2, "a/tree")];
    for place in &places {
        assert_eq!(differences(&sinks.world.path("tree"), place), "", "{place:?}");
    }
    assert!(times_sent(&events) < 1.1, "{}: {said}", times_sent(&events));
    // One has lost a file, which comes from the source: the others keep what they have.
    fs::remove_file(places[1].join("large")).unwrap();
    let (events, _) = expect(0, sinks.put("tree", &urls, &[]));
    assert_eq!(differences(&sinks.world.path("tree"), &places[1]), "");
    let sent = events.last().unwrap()["relay"]["sent_wire_bytes"].as_u64().unwrap();
    assert!((3_000_000..3_300_000).contains(&sent), "{sent}");
}

#[test]
fn a_sink_that_is_lost_in_the_middle_takes_nothing_from_the_others() {
    let mut sinks = Sinks::new(&[40, 40, 40]);
    let content = bytes(12_000_000, 4);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let urls = sinks.urls("f");
    let mut put = sinks.put("f", &urls, &["--retry-for", "1s"]);
    let putting = put.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("blocks", || size_of(&sinks.path(1, "f.gtp-journal")) > 600);
    sinks.servers[1].kill();
    let (told, said) = ended(12, putting.wait_with_output().unwrap());
    for n in [0, 2] {
        assert!(fs::read(sinks.path(n, "f")).unwrap() == content);
    }
    // Only what it had got, and given to nobody yet, is sent again.
    assert!(times_sent(&told) < 1.35, "{}: {said}", times_sent(&told));
    sinks.servers[1] = sinks.serve(1, 40, &RELAYS);
    let (told, _) = expect(0, sinks.put("f", &sinks.urls("f"), &[]));
    assert!(fs::read(sinks.path(1, "f")).unwrap() == content);
    assert!(times_sent(&told) < 1.0, "{}", times_sent(&told));
}

#[test]
fn a_file_that_one_sink_refuses_keeps_nothing_else_from_it_and_nothing_from_the_others() {
    let sinks = Sinks::new(&[60, 60, 60]);
    fs::create_dir(sinks.world.path("tree")).unwrap();
    for n in 0..8 {
        fs::write(sinks.world.path(&format!("tree/{n}")), bytes(3_000_000, n)).unwrap();
    }
    // Something that is not the sink's own stands where it would write.
    fs::create_dir_all(sinks.path(1, "tree/3.gtp-part")).unwrap();
    let (told, said) = expect(12, sinks.put("tree", &sinks.urls(""), &[]));
    assert!(said.contains("3: what is in the place of its .gtp-part is not ours"), "{said}");
    for n in [0, 2] {
        assert_eq!(differences(&sinks.world.path("tree"), &sinks.path(n, "tree")), "");
    }
    for n in (0..8).filter(|n| *n != 3) {
        assert!(fs::read(sinks.path(1, &format!("tree/{n}"))).unwrap() == bytes(3_000_000, n));
    }
    assert!(!sinks.path(1, "tree/3").exists());
    assert!(times_sent(&told) < 1.3, "{}: {said}", times_sent(&told));
}

#[test]
fn a_copy_to_several_servers_relays_as_a_put_does() {
    let sinks = Sinks::new(&[60, 60, 60]);
    let content = bytes(9_000_000, 6);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let urls = sinks.urls("in/");
    let copy = |words: &[&str]| {
        let mut copy = sinks.world.gtp("client", &["cp", "f", &urls[0]]);
        copy.args(words).args(["--relay", "--json", "--accept-new", "--daemon", "off"]);
        copy
    };
    let (told, said) = expect(0, copy(&["--also", &urls[1], "--also", &urls[2]]));
    for n in 0..3 {
        assert!(fs::read(sinks.path(n, "in/f")).unwrap() == content);
    }
    assert!((0.95..1.15).contains(&times_sent(&told)), "{}: {said}", times_sent(&told));
    let relaying = &told.last().unwrap()["relay"]["relaying"];
    assert_eq!(*relaying, serde_json::json!([true, true, true]));
    let (_, said) = expect(2, copy(&[]));
    assert!(said.contains("--relay needs several destinations (--also)"), "{said}");
    let (_, said) = expect(2, copy(&["--also", &urls[1], "--control", "endnode"]));
    assert!(said.contains("--relay needs --control grant"), "{said}");
}

#[test]
fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
    let sinks = Sinks::new(&[60]);
    fs::write(sinks.world.path("f"), "f").unwrap();
    let (_, said) = expect(2, sinks.put("f", &sinks.urls("f"), &[]));
    assert!(said.contains("--relay needs several addresses"), "{said}");
    let urls = [sinks.servers[0].url("f"), sinks.servers[0].url("g")];
    let (_, said) = expect(2, sinks.put("f", &urls, &["--control", "endnode"]));
    assert!(said.contains("--relay needs --control grant"), "{said}");
    assert!(!sinks.path(0, "f").exists());
}

#[test]
fn between_hosts_of_their_own_the_source_sends_the_object_about_once() {
    if !require_root() {
        return;
    }
    let mesh = Mesh::new(5);
    let mut sinks = Sinks::new(&[]);
    for n in 0..4 {
        let mut serve = sinks.command(n, 40);
        serve.args(["--listen", &format!("{}:4810", meshed(n))]);
        serve.args(["--third-party", "10.89.0.0/24"]);
        sinks.servers.push(Serving::start(mesh.at(n, &serve)));
    }
    let content = bytes(12_000_000, 5);
    fs::write(sinks.world.path("f"), &content).unwrap();
    let urls: Vec<String> = (0..4).map(|n| format!("gtp://{}/in/", meshed(n))).collect();
    let before = mesh.moved(4);
    let put = mesh.at(4, &sinks.put("f", &urls, &["--capacity-out", "80Mbit"]));
    let (events, said) = expect(0, put);
    for n in 0..4 {
        assert!(fs::read(sinks.path(n, "in/f")).unwrap() == content);
    }
    assert!(times_sent(&events) < 1.1, "{}: {said}", times_sent(&events));
    // All packets in both directions, of TCP as well: a tenth of content more than the packets of
    // one object take.
    let moved = mesh.moved(4) - before;
    assert!(moved < 14_500_000, "{moved}");
}
