//! Several processes under one daemon share its capacity, and outlive it.

mod common;

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{World, require_root, wait_for};
use serde_json::{Value, json};

/// A running `gtpd`.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(socket: &Path, args: &[&str]) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
        command.env_clear().arg("--socket").arg(socket).args(args).stdin(Stdio::null());
        let daemon = Daemon { child: command.spawn().unwrap(), socket: socket.to_owned() };
        wait_for("a daemon", || gtp_share::client::sessions(&daemon.socket).is_ok());
        daemon
    }

    /// Takes its life as a fault would.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn args(&self) -> [String; 2] {
        ["--daemon".into(), self.socket.display().to_string()]
    }

    fn sessions(&self) -> Vec<gtp_share::SessionView> {
        gtp_share::client::sessions(&self.socket).map_or(Vec::new(), |(_, sessions)| sessions)
    }

    fn measured(&self) -> Vec<f64> {
        self.sessions().iter().map(|s| s.measured as f64).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(world: &World, daemon: &Daemon, url: &str, fingerprint: &str, to: &str) -> Child {
    let mut command = world.gtp("client", &["get", url, to, "--json", "--fingerprint"]);
    command.arg(fingerprint).args(daemon.args());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn done(child: Child) -> Output {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    output
}

/// Whether all of several rates are within `part` of `each`.
fn all_near(rates: &[f64], count: usize, each: f64, part: f64) -> bool {
    rates.len() == count && rates.iter().all(|r| (r - each).abs() <= part * each)
}

const CAPACITY: f64 = 120e6;

#[test]
fn processes_share_the_daemons_capacity_and_a_killed_ones_part_goes_to_the_others() {
    let world = World::new();
    let content = world.export("big", 40_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "120Mbit"]);
    let start = |to| get(&world, &daemon, &server.url("big"), &server.fingerprint, to);
    let (one, two, mut three) = (start("one"), start("two"), start("three"));
    wait_for("a third each", || all_near(&daemon.measured(), 3, CAPACITY / 3.0, 0.05));
    three.kill().unwrap();
    three.wait().unwrap();
    wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
    for (child, name) in [(one, "one"), (two, "two")] {
        done(child);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
}

#[test]
fn transfers_outlive_their_daemon_and_are_fair_again_under_the_next() {
    let world = World::new();
    let content = world.export("big", 40_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let socket = world.path("run/gtpd.sock");
    let mut daemon = Daemon::start(&socket, &["--capacity-in", "120Mbit"]);
    let start =
        |daemon: &Daemon, to| get(&world, daemon, &server.url("big"), &server.fingerprint, to);
    let children = [start(&daemon, "one"), start(&daemon, "two")];
    for _ in 0..3 {
        wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
        daemon.kill();
        daemon = Daemon::start(&socket, &["--capacity-in", "120Mbit"]);
    }
    wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
    for (child, name) in children.into_iter().zip(["one", "two"]) {
        done(child);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
}

#[test]
fn transfers_outlive_a_daemon_that_hangs_and_come_back_when_it_goes_on() {
    use rustix::process::{Pid, Signal, kill_process};
    let world = World::new();
    let content = world.export("big", 40_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "60Mbit"]);
    let pid = Pid::from_child(&daemon.child);
    let said = world.path("said");
    let mut command = world.gtp("client", &["get", &server.url("big"), "one", "--fingerprint"]);
    command.arg(&server.fingerprint).args(daemon.args()).stdout(Stdio::null());
    command.env("GTP_LOG", "info").stderr(std::fs::File::create(&said).unwrap());
    let mut child = command.spawn().unwrap();
    wait_for("all of it", || all_near(&daemon.measured(), 1, 60e6, 0.05));
    let says = |text: &str| std::fs::read_to_string(&said).unwrap().contains(text);
    kill_process(pid, Signal::STOP).unwrap();
    wait_for("a daemon that is missed", || says("the daemon is gone"));
    kill_process(pid, Signal::CONT).unwrap();
    wait_for("all of it again", || all_near(&daemon.measured(), 1, 60e6, 0.05));
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
}

#[test]
fn weights_and_limits_are_set_while_transfers_run() {
    let world = World::new();
    world.export("big", 30_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "120Mbit"]);
    let start = |to| get(&world, &daemon, &server.url("big"), &server.fingerprint, to);
    let children = [start("one"), start("two")];
    wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
    let path = daemon.args();
    let listed = world.expect(0, &["sessions", "--json", &path[0], &path[1]]);
    let lines = common::events(&listed);
    assert_eq!(lines[0]["capacity_in"], 120_000_000);
    let session = lines[1]["session"].to_string();
    world.expect(0, &["set", &session, "--max-rate", "20Mbit", &path[0], &path[1]]);
    wait_for("a limit", || {
        let rates = daemon.measured();
        all_near(&rates[..rates.len().min(1)], 1, 20e6, 0.05)
            && all_near(&rates[1..], 1, 100e6, 0.05)
    });
    world.expect(1, &["set", "999", "--max-rate", "20Mbit", &path[0], &path[1]]);
    world.expect(0, &["set", &session, "--max-rate", "off", &path[0], &path[1]]);
    for child in children {
        done(child);
    }
}

#[test]
fn a_transfer_has_its_guarantee_and_its_cap_as_they_are_set_and_lifted() {
    let world = World::new();
    world.export("big", 30_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "120Mbit"]);
    let start = |to| get(&world, &daemon, &server.url("big"), &server.fingerprint, to);
    let children = [start("one"), start("two")];
    let granted = |first: f64, second: f64| {
        let sessions = daemon.sessions();
        let rates: Vec<f64> = sessions.iter().map(|s| s.granted.unwrap_or(0) as f64).collect();
        let near = |rate: f64, wanted: f64| (rate - wanted).abs() <= 0.01 * CAPACITY;
        matches!(rates[..], [a, b] if near(a, first) && near(b, second))
    };
    wait_for("a half each", || granted(60e6, 60e6));
    let session = daemon.sessions()[0].session.to_string();
    let path = daemon.args();
    let set = |option: &str, rate: &str| {
        let words = ["set", &session, "--transfer", option, rate, &path[0], &path[1]];
        world.expect(0, &words);
    };
    set("--guarantee", "90Mbit");
    wait_for("a guarantee", || granted(90e6, 30e6));
    assert_eq!(daemon.sessions()[0].transfer_guarantee, 90_000_000);
    set("--guarantee", "off");
    wait_for("a half each again", || granted(60e6, 60e6));
    set("--max-rate", "20Mbit");
    wait_for("a cap", || granted(20e6, 100e6));
    assert_eq!(daemon.sessions()[0].transfer_max_rate, Some(20_000_000));
    // A session has no guarantee of its own.
    world.expect(2, &["set", &session, "--guarantee", "9Mbit", &path[0], &path[1]]);
    set("--max-rate", "off");
    children.into_iter().for_each(|child| drop(done(child)));
}

#[test]
fn a_user_has_the_guarantee_that_the_daemon_was_started_with() {
    let world = World::new();
    world.export("big", 10_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let own = rustix::process::geteuid().as_raw();
    let guarantee = format!("{own}=70Mbit");
    let args = ["--capacity-in", "120Mbit", "--user-guarantee", &guarantee];
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &args);
    let (host, _) = gtp_share::client::sessions(&daemon.socket).unwrap();
    assert_eq!(host.guaranteed, 70_000_000);
    let child = get(&world, &daemon, &server.url("big"), &server.fingerprint, "one");
    wait_for("all, since nobody else wants it", || all_near(&daemon.measured(), 1, CAPACITY, 0.05));
    done(child);
}

/// A `get` of all of `big` by a user, at an end of its own.
fn fetch_as(
    uid: u32,
    (world, end): (&World, &str),
    server: &common::Serving,
    daemon: &Daemon,
) -> Child {
    std::fs::create_dir(world.path(end)).unwrap();
    std::os::unix::fs::chown(world.path(end), Some(uid), Some(uid)).unwrap();
    let args = daemon.args();
    let mut command = world.gtp(end, &["get", &server.url("big"), "-"]);
    command.args(["--fingerprint", &server.fingerprint, &args[0], &args[1]]);
    command.uid(uid).gid(uid).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Needs root, to be two users; without it there is one, and nothing to be seen.
#[test]
fn a_users_guarantee_comes_before_what_others_want() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("big", 20_000_000);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("."), open.clone()).unwrap();
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let args = ["--capacity-in", "120Mbit", "--user-guarantee", "4001=90Mbit"];
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &args);
    std::fs::set_permissions(world.path("run"), open).unwrap();
    let fetch = |uid: u32, end: &str| fetch_as(uid, (&world, end), &server, &daemon);
    let children = [fetch(4_001, "a"), fetch(4_002, "b")];
    wait_for("a guarantee first", || {
        let sessions = daemon.sessions();
        let of = |uid: u32| sessions.iter().find(|s| s.uid == uid).and_then(|s| s.granted);
        let near = |rate: Option<u64>, wanted: f64| {
            rate.is_some_and(|rate| (rate as f64 - wanted).abs() <= 0.01 * CAPACITY)
        };
        near(of(4_001), 90e6) && near(of(4_002), 30e6)
    });
    children.into_iter().for_each(|child| drop(done(child)));
}

#[test]
fn servers_of_one_host_share_what_it_sends() {
    let world = World::new();
    let content = world.export("big", 20_000_000);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-out", "120Mbit"]);
    let args = daemon.args();
    let serve = |end| world.serve(end, &["--public", &args[0], &args[1]]);
    let servers = [serve("one"), serve("two")];
    let fetch = |server: &common::Serving, to: &str| {
        let mut command = world.gtp("client", &["get", &server.url("big"), to]);
        command.args(["--daemon", "off", "--fingerprint", &server.fingerprint]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [fetch(&servers[0], "one.big"), fetch(&servers[1], "two.big")];
    wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
    for (child, name) in children.into_iter().zip(["one.big", "two.big"]) {
        done(child);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
}

#[test]
fn clients_of_a_server_share_equally_by_their_keys_whichever_engine_has_them_and_leave_nothing() {
    let world = World::new();
    let content = world.export("big", 20_000_000);
    let ids = ["a", "b"].map(|end| world.run(end, &["id"]).stdout);
    std::fs::create_dir_all(world.path("server")).unwrap();
    std::fs::write(world.path("server/authorized_keys"), ids.concat()).unwrap();
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-out", "120Mbit"]);
    let args = daemon.args();
    let server = world.serve("server", &[&args[0], &args[1], "--engines", "3"]);
    let fetch = |end: &str, to: &str| {
        let mut command = world.gtp(end, &["get", &server.url("big"), to, "--daemon", "off"]);
        command.args(["--fingerprint", &server.fingerprint]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [fetch("a", "one"), fetch("b", "two"), fetch("b", "three"), fetch("b", "four")];
    wait_for("one half, three sixths", || {
        let mut rates = daemon.measured();
        rates.sort_by(f64::total_cmp);
        rates.len() == 4
            && all_near(&rates[..3], 3, CAPACITY / 6.0, 0.05)
            && all_near(&rates[3..], 1, CAPACITY / 2.0, 0.05)
    });
    for (child, name) in children.into_iter().zip(["one", "two", "three", "four"]) {
        done(child);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
    wait_for("an empty list", || daemon.sessions().is_empty());
}

#[test]
fn sessions_of_one_client_share_a_path_and_the_list_says_so() {
    let world = World::new();
    world.export("big", 30_000_000);
    let ids = ["a", "b"].map(|end| world.run(end, &["id"]).stdout);
    std::fs::create_dir_all(world.path("server")).unwrap();
    std::fs::write(world.path("server/authorized_keys"), ids.concat()).unwrap();
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-out", "60Mbit"]);
    let args = daemon.args();
    let server = world.serve("server", &[&args[0], &args[1], "--engines", "1"]);
    let fetch = |end: &str, to: &str| {
        let mut command = world.gtp(end, &["get", &server.url("big"), to, "--daemon", "off"]);
        command.args(["--fingerprint", &server.fingerprint]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [fetch("a", "one"), fetch("a", "two"), fetch("b", "three")];
    wait_for("two sessions on one path, and one on another", || {
        let sessions = daemon.sessions();
        let mut paths: Vec<_> = sessions.iter().filter_map(|s| s.path.as_ref()).collect();
        paths.sort_by_key(|path| path.sessions);
        paths.len() == 3
            && paths.iter().map(|path| path.sessions).eq([1, 2, 2])
            && paths[1].group == paths[2].group
            && paths[1].group.is_some()
            && paths[0].group != paths[1].group
    });
    let listed = world.expect(0, &["sessions", "--json", &args[0], &args[1]]);
    let label = common::events(&listed)[1]["label"].as_str().unwrap().to_owned();
    assert!(label.rsplit(' ').next() == Some("big"), "what it moves: {label}");
    let path = &common::events(&listed)[1]["path"];
    assert_eq!((&path["state"], &path["queue"]), (&json!("start"), &json!("none")), "{path}");
    let table = world.expect(0, &["sessions", &args[0], &args[1]]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("no limit seen for 2"));
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_path_is_used_as_both_ends_allow_and_each_end_says_how() {
    let world = World::new();
    world.export("big", 30_000_000);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-out", "60Mbit"]);
    let args = daemon.args();
    let (off, four, eight) = ("--no-path-bound", "--path-flows=4", "--path-flows=8");
    let cases = [
        ("", "", Some(1), ""),
        (eight, four, Some(4), ""),
        (four, eight, Some(4), "counts as 4 TCP flows, not 8"),
        (off, off, None, "nothing bounds this transfer"),
        (four, off, Some(4), "the server was not started with --no-path-bound"),
        (off, eight, Some(8), ""),
        // Both by an environment: the more cautious holds.
        (off, "both", Some(4), ""),
        ("", off, Some(1), "the server was not started with --no-path-bound"),
    ];
    for (n, (at_server, at_client, flows, words)) in cases.into_iter().enumerate() {
        let words_of = |word: &'static str| (!word.is_empty()).then_some(word);
        let terms: Vec<&str> = [&*args[0], &args[1], "--public"].into_iter().collect();
        let terms: Vec<&str> = terms.into_iter().chain(words_of(at_server)).collect();
        let server = world.serve("server", &terms);
        let to = format!("to{n}");
        let mut command = world.gtp("client", &["get", &server.url("big"), &to, "--daemon=off"]);
        command.args(["--fingerprint", &server.fingerprint]);
        match at_client {
            "both" => command.env("GTP_NO_PATH_BOUND", "1").env("GTP_PATH_FLOWS", "4"),
            word => command.args(words_of(word)),
        };
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let standing = || Some(daemon.sessions().first()?.path.as_ref()?.clone());
        wait_for("a session", || standing().is_some());
        let path = standing().unwrap();
        assert_eq!(path.is_unbounded(), flows.is_none(), "{at_server} {at_client}: {path:?}");
        assert!(flows.is_none_or(|flows| path.flows == flows), "{at_server} {at_client}: {path:?}");
        child.kill().unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        let warned = said.contains("nothing bounds") || said.contains("counts as");
        let warned = warned || said.contains("--no-path-bound");
        assert!(said.contains(words), "{at_server} {at_client}: {said}");
        assert_eq!(warned, !words.is_empty(), "{at_server} {at_client}: {said}");
        drop(server);
        wait_for("its end", || daemon.sessions().is_empty());
    }
}

#[test]
fn a_daemon_that_comes_while_a_server_gives_is_found_by_each_of_its_engines() {
    let world = World::new();
    let content = world.export("big", 30_000_000);
    let mut command = world.gtp("server", &["serve", "export", "--json", "--public"]);
    command.args(["--listen", "127.0.0.1:0", "--engines", "2", "--capacity-out", "60Mbit"]);
    command.args(["--daemon", "auto"]).env("XDG_RUNTIME_DIR", world.path("run"));
    let server = common::Serving::start(command);
    let children = [fetch(&world, &server, "one"), fetch(&world, &server, "two")];
    let socket = world.path("run/gtp/gtpd.sock");
    let daemon = Daemon::start(&socket, &["--capacity-out", "120Mbit"]);
    wait_for("a half each", || all_near(&daemon.measured(), 2, CAPACITY / 2.0, 0.05));
    let (host, _) = gtp_share::client::sessions(&daemon.socket).unwrap();
    assert_eq!(host.processes, 2, "an engine is to it what a process is");
    for (child, name) in children.into_iter().zip(["one", "two"]) {
        done(child);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
}

/// A `get` of `big` by a client that takes part in no daemon.
fn fetch(world: &World, server: &common::Serving, to: &str) -> Child {
    let mut command = world.gtp("client", &["get", &server.url("big"), to, "--daemon", "off"]);
    command.args(["--json", "--fingerprint", &server.fingerprint]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A server that finds its daemon where daemons of users are.
fn serve_and_find(world: &World) -> common::Serving {
    let mut command = world.gtp("server", &["serve", "export", "--json", "--public"]);
    command.args(["--listen", "127.0.0.1:0", "--engines", "1", "--daemon", "auto"]);
    command.args(["--capacity-out", "400Mbit"]).env("XDG_RUNTIME_DIR", world.path("run"));
    common::Serving::start(command)
}

#[test]
fn a_server_that_outlives_its_daemon_serves_however_that_ended() {
    use rustix::process::{Pid, Signal, kill_process};
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let world = World::new();
        let content = world.export("big", 4_000_000);
        let server = serve_and_find(&world);
        let socket = world.path("run/gtp/gtpd.sock");
        let mut daemon = Daemon::start(&socket, &["--capacity-out", "120Mbit"]);
        let joined = || gtp_share::client::sessions(&socket).is_ok_and(|(h, _)| h.processes == 1);
        wait_for("a server that has joined", joined);
        kill_process(Pid::from_child(&daemon.child), signal).unwrap();
        daemon.child.wait().unwrap();
        let began = std::time::Instant::now();
        done(fetch(&world, &server, "one"));
        let took = began.elapsed();
        assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
        assert!(took.as_secs_f64() < 5.0, "{signal:?}: 32 Mbit took {took:?}");
    }
}

#[test]
fn a_transfer_that_runs_when_its_servers_daemon_ends_goes_on_with_the_part_and_then_with_all() {
    let world = World::new();
    world.export("big", 60_000_000);
    let server = serve_and_find(&world);
    let socket = world.path("run/gtp/gtpd.sock");
    let mut daemon = Daemon::start(&socket, &["--capacity-out", "20Mbit"]);
    let joined = || gtp_share::client::sessions(&socket).is_ok_and(|(h, _)| h.processes == 1);
    wait_for("a server that has joined", joined);
    let mut child = fetch(&world, &server, "one");
    wait_for("all of it", || all_near(&daemon.measured(), 1, 20e6, 0.05));
    daemon.kill();
    let ended = std::time::Instant::now();
    // So much more than the daemon shared out is only to be had alone.
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let rates = std::io::BufRead::lines(output).map_while(Result::ok).filter_map(|line| {
        let event: Value = serde_json::from_str(&line).ok()?;
        event["rate"].as_f64()
    });
    let fast = rates.into_iter().find(|&rate| rate > 150e6);
    assert!(fast.is_some(), "it never was alone again");
    let took = ended.elapsed().as_secs_f64();
    assert!((2.5..8.0).contains(&took), "alone again after {took} s");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_daemon_that_was_named_and_is_not_there_is_not_ignored() {
    let world = World::new();
    world.export("big", 1_000);
    let nowhere = world.path("none.sock").display().to_string();
    let args = ["serve", "export", "--public", "--listen", "127.0.0.1:0", "--daemon", &nowhere];
    let output = world.run("server", &args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("no daemon runs at") && said.contains("gtpd --socket"), "{said}");
}

#[test]
fn programs_are_told_what_a_transfer_is_to_the_daemon() {
    let world = World::new();
    world.export("big", 20_000_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let mut daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "40Mbit"]);
    let mut child = get(&world, &daemon, &server.url("big"), &server.fingerprint, "one");
    let lines = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut standings = Vec::new();
    for line in std::io::BufRead::lines(lines) {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "daemon" {
            standings.push(event["standing"].as_str().unwrap().to_owned());
        }
        if event["event"] == "progress" && standings == ["joined"] {
            daemon.kill();
        }
        if standings == ["joined", "orphaned"] {
            break;
        }
    }
    assert_eq!(standings, ["joined", "orphaned"]);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// docs/DAEMON.md states the bound: five seconds, and two for the last look.
#[test]
fn a_daemon_that_was_named_and_never_answers_is_given_up_within_seven_seconds() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let world = World::new();
    world.export("big", 1_000);
    let place = world.path("silent.sock");
    let silent = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&silent, &SocketAddrUnix::new(&place).unwrap()).unwrap();
    listen(&silent, 64).unwrap();
    let named = place.display().to_string();
    let args = ["serve", "export", "--public", "--listen", "127.0.0.1:0", "--daemon", &named];
    let asked = std::time::Instant::now();
    let output = world.run("server", &args);
    let took = asked.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("does not answer"), "{said}");
    // Another second is for starting the program on a machine with other work.
    assert!((5.0..8.0).contains(&took), "{took} s");
}

#[test]
fn a_daemon_of_another_version_is_refused_where_it_was_named_and_left_where_it_was_found() {
    let world = World::new();
    let content = world.export("big", 300_000);
    std::fs::create_dir_all(world.path("run/gtp")).unwrap();
    let place = world.path("run/gtp/gtpd.sock");
    let listener = gtp_share::Listener::bind(&place).unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        loop {
            match listener.accept() {
                Ok(Some(connection)) => {
                    connection.wait(None).unwrap();
                    let answer = br#"{"attached":{"version":1,"slots":1}}"#;
                    connection.send(answer, &[]).unwrap();
                    kept.push(connection);
                }
                Ok(None) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    });
    let named = place.display().to_string();
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let url = server.url("big");
    let args = ["get", &url, "one", "--fingerprint", &server.fingerprint, "--daemon", &named];
    let output = world.expect(7, &args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("start the daemon anew"), "{said}");
    let mut command = world.gtp("client", &["get", &url, "one", "--daemon", "auto"]);
    command.args(["--fingerprint", &server.fingerprint]);
    command.env("XDG_RUNTIME_DIR", world.path("run"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = done(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("allocates for itself"), "{said}");
    assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
}

#[test]
fn a_daemon_that_is_hung_up_on_goes_on_and_says_what_it_read_again() {
    use rustix::process::{Pid, Signal, kill_process};
    let world = World::new();
    let socket = world.path("run/gtpd.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    let said = world.path("said");
    command.env_clear().arg("--socket").arg(&socket).args(["--capacity-in", "120Mbit"]);
    command.stdin(Stdio::null()).stderr(std::fs::File::create(&said).unwrap());
    let daemon = Daemon { child: command.spawn().unwrap(), socket };
    wait_for("a daemon", || gtp_share::client::sessions(&daemon.socket).is_ok());
    let says = |words: &str| std::fs::read_to_string(&said).unwrap().contains(words);
    let begins = format!("120.0 Mbit/s in at {}", daemon.socket.display());
    wait_for("its first line", || says(&begins));
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    wait_for("a word of it", || says("reload: the settings were read again; shares"));
    let (host, _) = gtp_share::client::sessions(&daemon.socket).unwrap();
    assert_eq!(host.capacity_in, Some(120_000_000));
}

/// Needs root, to be two users; without it there is one, and nothing to be seen.
#[test]
fn users_share_equally_however_many_processes_they_run() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("big", 30_000_000);
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path("."), open.clone()).unwrap();
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let daemon = Daemon::start(&world.path("run/gtpd.sock"), &["--capacity-in", "120Mbit"]);
    std::fs::set_permissions(world.path("run"), open).unwrap();
    let fetch = |uid: u32, end: &str| fetch_as(uid, (&world, end), &server, &daemon);
    let children = [fetch(4_001, "a"), fetch(4_002, "b"), fetch(4_002, "c"), fetch(4_002, "d")];
    let of = |uid: u32| -> (usize, f64) {
        let sessions = daemon.sessions();
        let rates = sessions.iter().filter(|s| s.uid == uid).map(|s| s.measured as f64);
        (rates.clone().count(), rates.sum())
    };
    wait_for("a half each", || {
        let ((one, first), (three, second)) = (of(4_001), of(4_002));
        let near = |rate: f64| (rate - CAPACITY / 2.0).abs() <= 0.03 * CAPACITY / 2.0;
        (one, three) == (1, 3) && near(first) && near(second)
    });
    for child in children {
        done(child);
    }
}

#[test]
fn a_transfer_starts_a_daemon_where_none_runs_and_the_next_finds_it() {
    let world = World::new();
    let content = world.export("big", 300_000);
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let start = |to: &str| {
        let mut command = world.gtp("client", &["get", &server.url("big"), to]);
        command.args(["--daemon", "start", "--fingerprint", &server.fingerprint]);
        command.args(["--capacity-in", "150Mbit"]);
        command.env("XDG_RUNTIME_DIR", world.path("run"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    done(start("one"));
    assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
    let place = world.path("run/gtp/gtpd.sock");
    let (host, _) = gtp_share::client::sessions(&place).unwrap();
    assert_eq!(host.capacity_in, Some(150_000_000), "as the first transfer was told");
    let daemon = || gtp_share::Connection::open(&place).unwrap().peer().pid;
    let first = daemon();
    done(start("two"));
    assert_eq!(daemon(), first, "one daemon is enough");
    let pid = rustix::process::Pid::from_raw(first).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_socket_that_somebody_else_made_is_served() {
    let world = World::new();
    let place = world.path("given.sock");
    let listener = gtp_share::Listener::bind(&place).unwrap();
    let socket = listener.as_fd().try_clone_to_owned().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    command.env_clear().args(["--socket-on-stdin", "--capacity-in", "5Mbit"]).stdin(socket);
    let child = command.spawn().unwrap();
    let daemon = Daemon { child, socket: place };
    let (host, sessions) = gtp_share::client::sessions(&daemon.socket).unwrap();
    assert_eq!((host.capacity_in, sessions.len()), (Some(5_000_000), 0));
}

#[test]
fn without_a_daemon_the_list_says_so() {
    let world = World::new();
    let output = world.expect(5, &["sessions", "--daemon", "/nowhere/gtpd.sock"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("No gtpd runs here; start it: gtpd"));
    let _: Vec<Value> = common::events(&output);
}

#[test]
fn whoever_made_a_users_own_place_first_is_not_believed_there() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let place = world.path("run/gtp/gtpd.sock");
    let dir = place.parent().unwrap();
    std::fs::create_dir_all(dir).unwrap();
    std::os::unix::fs::chown(dir, Some(65_534), None).unwrap();
    // The kernel notes who listens.
    let text = "import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
os.setuid(65534)
s.listen()
print('here', flush=True)
sys.stdin.read()";
    let mut other = Command::new("python3");
    other.args(["-c", text]).arg(&place).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let mut here = [0; 4];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut here).unwrap();
    let mut ask = world.gtp("client", &["sessions"]);
    let asked = ask.env("XDG_RUNTIME_DIR", world.path("run")).output().unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(said.contains("user 65534, who is not trusted here"), "{said}");
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn a_daemon_whose_socket_was_removed_makes_it_again_with_its_lock_and_its_directory() {
    let world = World::new();
    let (run, socket) = (world.path("run"), world.path("run/gtpd.sock"));
    let _daemon = Daemon::start(&socket, &[]);
    let another = || {
        let mut gtpd = Command::new(env!("CARGO_BIN_EXE_gtpd"));
        gtpd.env_clear().arg("--socket").arg(&socket).stdin(Stdio::null());
        gtpd.output().unwrap()
    };
    let remove = [
        &|| std::fs::remove_file(&socket) as std::io::Result<()>,
        &|| std::fs::remove_file(&socket).and(std::fs::remove_file(run.join("gtpd.lock"))),
        &|| std::fs::remove_dir_all(&run) as std::io::Result<()>,
    ] as [&dyn Fn() -> std::io::Result<()>; 3];
    for remove in remove {
        remove().unwrap();
        wait_for("its socket", || gtp_share::client::sessions(&socket).is_ok());
        let refused = another();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("a daemon runs there already"), "{said}");
    }
}

#[test]
fn a_daemon_refuses_options_that_contradict_each_other_or_name_nothing() {
    let refused = [
        &["--interface", "nope0"][..],
        &["--interface", "../net"],
        &["--reserve", "5Gbit", "--capacity-in", "1Gbit"],
        &["--reserve", "1Gbit", "--capacity-out", "1Gbit"],
        &["--interval", "5s"],
        &["--user-guarantee", "0=5Mbit", "--user-max", "0=1Mbit"],
        &["--user-max", "7=1Mbit", "--user-max", "7=2Mbit"],
        &["--user-weight", "7=1", "--user-weight", "7=2"],
        &["--user-guarantee", "7=1Mbit", "--user-guarantee", "7=1Mbit"],
    ];
    let world = World::new();
    for args in refused {
        let mut gtpd = Command::new(env!("CARGO_BIN_EXE_gtpd"));
        gtpd.env_clear().arg("--socket").arg(world.path("run/gtpd.sock")).args(args);
        // One that takes them would run on.
        gtpd.args(["--exit-when-idle", "1s"]).stdin(Stdio::null());
        let ended = gtpd.output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{args:?}");
        assert!(!ended.stderr.is_empty(), "{args:?}");
    }
}

/// Answers whoever comes to a daemon's place in this way, for ever.
fn pretend(socket: &Path, answer: impl Fn(gtp_share::Connection) + Send + 'static) {
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = gtp_share::Listener::bind(socket).unwrap();
    std::thread::spawn(move || {
        loop {
            match listener.accept().unwrap() {
                Some(connection) => answer(connection),
                None => std::thread::yield_now(),
            }
        }
    });
}

#[test]
fn what_answers_as_no_daemon_does_is_named_and_one_that_hangs_up_is_code_5() {
    let world = World::new();
    let (garbage, gone) = (world.path("garbage/s"), world.path("gone/s"));
    pretend(&garbage, |connection| {
        assert!(connection.wait(None).unwrap());
        // To close with something unread is to reset: the answer would not arrive.
        connection.receive(&mut [0; 256]).unwrap();
        connection.send(b"220 ready", &[]).unwrap();
    });
    pretend(&gone, drop);
    for (socket, code, words) in
        [(&garbage, 1, "does not answer as a daemon does"), (&gone, 5, "has ended the connection")]
    {
        let place = socket.display().to_string();
        for args in [
            &["sessions", "--daemon", &place][..],
            &["set", "1", "--weight", "2", "--daemon", &place],
        ] {
            let said = String::from_utf8(world.expect(code, args).stderr).unwrap();
            assert!(said.contains(words) && said.contains(&place), "{args:?} {said}");
        }
    }
}
