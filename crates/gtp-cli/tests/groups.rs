//! What groups of clients have of a server together and single keys by their lines, and what a
//! hangup or another line changes of it for sessions that run.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use common::{Serving, World, bytes, ports::free_port, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// A server that may send 60 Mbit/s, and the keys `many` and `one`.
struct Shared {
    world: World,
    server: Serving,
    metrics: u16,
    gets: Vec<Child>,
    daemon: Option<Child>,
}

/// The fingerprint of one end.
fn id(world: &World, end: &str) -> String {
    String::from_utf8(world.run(end, &["id"]).stdout).unwrap().trim().to_owned()
}

/// A daemon that shares out 60 Mbit/s.
fn daemon(socket: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    command.env_clear().arg("--socket").arg(socket).args(["--capacity-out", "60Mbit"]);
    let daemon = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a daemon", || gtp_share::client::sessions(socket).is_ok());
    daemon
}

impl Shared {
    /// One that shares out what it has itself.
    fn new(groups: &str) -> Shared {
        let world = World::new();
        Shared::under(world, groups, None)
    }

    /// One that was told its directory, in which the lab is.
    fn of_directory(groups: &str) -> Shared {
        let world = World::new();
        let dir = world.path("all").display().to_string();
        Shared::serving(world, &[&dir], groups, None)
    }

    /// One under a daemon.
    fn joined(groups: &str) -> Shared {
        let world = World::new();
        let daemon = daemon(&world.path("gtpd.sock"));
        Shared::under(world, groups, Some(daemon))
    }

    fn under(world: World, groups: &str, daemon: Option<Child>) -> Shared {
        let groups = format!("{}{groups}", export(&world));
        Shared::serving(world, &[], &groups, daemon)
    }

    fn serving(world: World, dir: &[&str], tables: &str, daemon: Option<Child>) -> Shared {
        for dir in ["all/lab", "server"] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        fs::write(world.path("all/lab/large"), bytes(192 << 20, 1)).unwrap();
        list(&world, "group=lab", "group=lab");
        set(&world, tables);
        let metrics = free_port();
        let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(dir);
        match daemon {
            None => command.args(["--daemon", "off", "--capacity-out", "60Mbit"]),
            Some(_) => command.arg("--daemon").arg(world.path("gtpd.sock")),
        };
        command.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
        command.env("TZ", noon());
        command.env("GTP_CONFIG_FILE", world.path("serve.toml"));
        let server = Serving::start_logged(command, &world.path("log"));
        for end in ["many", "one"] {
            let listed = world.run(end, &["ls", &server.url(""), "--accept-new"]);
            assert!(listed.status.success());
        }
        Shared { world, server, metrics, gets: Vec::new(), daemon }
    }

    /// Begins transfers of one end that go on until the test ends.
    fn get(&mut self, end: &str, sessions: usize) {
        for n in 0..sessions {
            let (url, to) = (self.server.url("lab/large"), format!("{end}-{n}"));
            let mut get = self.world.gtp(end, &["get", &url, &to, "--daemon", "off"]);
            get.stdout(Stdio::null()).stderr(Stdio::null());
            self.gets.push(get.spawn().unwrap());
        }
    }

    /// Puts other groups in place, and other lines of both keys, while transfers go on.
    fn change(&self, groups: &str, many: &str, one: &str) {
        self.change_all(&format!("{}{groups}", export(&self.world)), many, one);
    }

    fn change_all(&self, tables: &str, many: &str, one: &str) {
        set(&self.world, tables);
        list(&self.world, many, one);
        let id = Pid::from_raw(self.server.id() as i32).unwrap();
        kill_process(id, Signal::HUP).unwrap();
    }

    /// Writes other lines of both keys while transfers go on; the server is told nothing.
    fn lines(&self, many: &str, one: &str) {
        list(&self.world, many, one);
    }

    /// Mbit/s that the sessions of a key move.
    fn rate(&self, key: &str) -> f64 {
        let Some(page) = common::page(self.metrics) else { return 0.0 };
        let head = format!("gtp_serve_moving_bits_per_second{{key=\"{key}\",verb=\"get\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&head)).map(str::to_owned);
        value.map_or(0.0, |value| value.parse::<f64>().unwrap() / 1e6)
    }

    /// Waits until both keys move about this, in Mbit/s.
    fn wait(&self, many: f64, one: f64) {
        let near = |rate: f64, wanted: f64| (rate / wanted - 1.0).abs() < 0.12;
        let what = format!("{many} and {one} Mbit/s");
        wait_for(&what, || near(self.rate("many"), many) && near(self.rate("one"), one));
    }

    /// Expects that the key `one` is outside of its hours.
    fn refuses_one(&self) {
        let refused = self.world.run("one", &["ls", &self.server.url("")]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(7), "{said}");
        assert!(said.contains("outside the hours of this key"), "{said}");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.world.path("log")).unwrap()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for get in self.gets.iter_mut().chain(&mut self.daemon) {
            // It may have ended; either way it is waited for.
            let _ = get.kill();
            let _ = get.wait();
        }
    }
}

/// A time zone in which it is noon, whatever the time is.
fn noon() -> String {
    let utc = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let west = utc % 86_400 - 43_200;
    let sign = if west < 0 { "-" } else { "" };
    let (hours, minutes) = (west.abs() / 3_600, west.abs() / 60 % 60);
    format!("LCL{sign}{hours:02}:{minutes:02}")
}

/// The table of the lab.
fn export(world: &World) -> String {
    let lab = world.path("all/lab").display().to_string();
    format!("[export.lab]\npath = \"{lab}\"\nread = true\n")
}

fn set(world: &World, tables: &str) {
    fs::write(world.path("serve.toml"), tables).unwrap();
}

/// Writes what stands behind both keys in the list.
fn list(world: &World, many: &str, one: &str) {
    let keys = ["many", "one"].map(|end| id(world, end));
    let text = format!("{} {many} # many\n{} {one} # one\n", keys[0], keys[1]);
    fs::write(world.path("server/authorized_keys"), text).unwrap();
}

#[test]
fn a_groups_total_rate_is_of_all_members_and_a_hangup_changes_it_for_sessions_that_run() {
    let mut shared = Shared::new("[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\n");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(8.0, 8.0);
    shared.change("[group.lab]\ntotal-rate = \"32Mbit\"\n", "group=lab", "group=lab");
    shared.wait(16.0, 16.0);
    // A line that names another group counts at once as well, and so does a rate for each.
    let groups = "[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\nrate = \"8Mbit\"\n";
    shared.change(groups, "group=lab", "group=two");
    shared.wait(16.0, 8.0);
    let groups = "[group.lab]\n[group.two]\nweight = 2\n";
    shared.change(groups, "group=lab", "group=two");
    shared.wait(20.0, 40.0);
}

#[test]
fn a_group_is_served_its_guarantee_first_and_more_than_there_is_is_cut_and_said() {
    let mut shared = Shared::new("[group.lab]\n[group.two]\n");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(30.0, 30.0);
    let promised = |lab: &str, two: &str| {
        format!("[group.lab]\nguarantee = \"{lab}\"\n[group.two]\nguarantee = \"{two}\"\n")
    };
    shared.change(&promised("10Mbit", "48Mbit"), "group=lab", "group=two");
    shared.wait(12.0, 48.0);
    assert!(!shared.log().contains("in one proportion"), "{}", shared.log());
    shared.change(&promised("40Mbit", "80Mbit"), "group=lab", "group=two");
    shared.wait(20.0, 40.0);
    let said = "guarantees of 120 Mbit/s for groups together are more than the 60 Mbit/s";
    assert!(shared.log().contains(said), "{}", shared.log());
}

#[test]
fn under_a_daemon_groups_have_the_same_and_its_lists_name_the_clients() {
    let mut shared = Shared::joined("[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\n");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(8.0, 8.0);
    let groups = "[group.lab]\nrate = \"12Mbit\"\n[group.two]\nweight = 3\n";
    shared.change(groups, "group=lab", "group=two");
    shared.wait(12.0, 48.0);
    let groups = "[group.lab]\nguarantee = \"40Mbit\"\n[group.two]\nweight = 3\n";
    shared.change(groups, "group=lab", "group=two");
    shared.wait(40.0, 20.0);
    let (_, sessions) = gtp_share::client::sessions(&shared.world.path("gtpd.sock")).unwrap();
    let clients = sessions.into_iter().filter_map(|session| session.client);
    let one = clients.into_iter().find(|client| client.name == "one").unwrap();
    assert_eq!((one.groups.as_str(), one.weight, one.group_guarantee), ("two", 3.0, 0));
    let log = shared.log();
    assert!(!log.contains("does not hear of groups"), "{log}");
    // A daemon that is there anew hears of them as well.
    let mut old = shared.daemon.take().unwrap();
    old.kill().unwrap();
    old.wait().unwrap();
    shared.daemon = Some(daemon(&shared.world.path("gtpd.sock")));
    wait_for("the daemon's word", || shared.log().contains("the daemon is back"));
    shared.wait(40.0, 20.0);
}

#[test]
fn shares_follow_the_hours_and_members_of_a_group_come_and_stay_within_its_window_alone() {
    let at = "[[group.lab.at]]\nwindow = \"10:00-14:00\"\ntotal-rate = \"32Mbit\"\n";
    let mut shared =
        Shared::new(&format!("[group.lab]\ntotal-rate = \"16Mbit\"\n{at}[group.two]\n"));
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(16.0, 16.0);
    let closed = "[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\nwindow = \"22:00-06:00\"\n";
    shared.change(closed, "group=lab", "group=lab,two");
    let ended = shared.gets.last_mut().unwrap().wait().unwrap();
    assert_eq!(ended.code(), Some(7));
    let refused = shared.world.run("one", &["ls", &shared.server.url("")]);
    assert_eq!(refused.status.code(), Some(7));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("outside the hours of this key") && said.contains("22:00 ("), "{said}");
    // A night is no fault: neither is counted with what alerts look at.
    let counts = [
        "gtp_serve_refused_total{why=\"outside_hours\",whose=\"listed\"} 1",
        "gtp_serve_refused_total{why=\"not_allowed\",whose=\"listed\"} 0",
        "gtp_serve_ends_total{verb=\"get\",outcome=\"outside_hours\"} 1",
        "gtp_serve_ends_total{verb=\"get\",outcome=\"authentication\"} 0",
    ];
    wait_for("the counts of a night", || {
        let page = common::page(shared.metrics).unwrap_or_default();
        counts.iter().all(|count| page.lines().any(|line| line == *count))
    });
    assert!(shared.log().contains("reason=\"outside_hours\""), "{}", shared.log());
}

#[test]
fn groups_of_a_server_with_one_directory_have_their_rates_and_hours_and_a_hangup_changes_them() {
    let mut shared = Shared::of_directory("[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\n");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(8.0, 8.0);
    let groups = "[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\nrate = \"8Mbit\"\n";
    shared.change_all(groups, "group=lab", "group=two");
    shared.wait(16.0, 8.0);
    let closed = "[group.lab]\ntotal-rate = \"16Mbit\"\n[group.two]\nwindow = \"22:00-06:00\"\n";
    shared.change_all(closed, "group=lab", "group=two");
    let ended = shared.gets.last_mut().unwrap().wait().unwrap();
    assert_eq!(ended.code(), Some(7));
    shared.refuses_one();
    // What the command says of a key is what the server does.
    let mut test = shared.world.gtp("server", &["keys", "test", "one"]);
    test.env("TZ", noon()).env("GTP_CONFIG_FILE", shared.world.path("serve.toml"));
    let tested = test.output().unwrap();
    let words = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert_eq!((tested.status.code(), words.contains("but not now")), (Some(7), true), "{words}");
    let page = common::page(shared.metrics).unwrap();
    assert!(page.contains("gtp_serve_group_content_bytes_total{group=\"lab\",verb=\"get\"}"));
    // Exports beside a directory change nothing: neither groups nor anything else.
    shared.change_all(&export(&shared.world), "group=lab", "group=two");
    wait_for("the hangup", || shared.log().contains("reload: the configuration stays as it was"));
    shared.refuses_one();
}

#[test]
fn what_a_line_gives_its_key_counts_for_sessions_that_run_as_soon_as_it_is_written() {
    let mut shared = Shared::new("");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(30.0, 30.0);
    shared.lines("rate=12Mbit", "");
    shared.wait(12.0, 48.0);
    shared.lines("weight=2", "");
    shared.wait(40.0, 20.0);
    shared.lines("", "guarantee=45Mbit");
    shared.wait(15.0, 45.0);
    let page = common::page(shared.metrics).unwrap();
    assert!(!page.contains("group=\""), "a line is no group: {page}");
    shared.lines("guarantee=40Mbit", "guarantee=80Mbit");
    shared.wait(20.0, 40.0);
    let said = "guarantees of 120 Mbit/s for groups and keys together are more than the 60 Mbit/s";
    wait_for("what is promised", || shared.log().contains(said));
}

#[test]
fn a_line_and_groups_combine_and_a_guarantee_of_its_own_takes_a_key_out_of_its_groups_rate() {
    let mut shared = Shared::of_directory("[group.lab]\nrate = \"16Mbit\"\n");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(16.0, 16.0);
    shared.lines("group=lab rate=20Mbit", "group=lab rate=8Mbit");
    shared.wait(16.0, 8.0);
    let tables = "[group.lab]\ntotal-rate = \"20Mbit\"\n";
    shared.change_all(tables, "group=lab guarantee=5Mbit", "group=lab");
    shared.wait(20.0, 20.0);
    shared.lines("group=lab", "group=lab");
    shared.wait(10.0, 10.0);
}

#[test]
fn under_a_daemon_lines_give_their_keys_the_same() {
    let mut shared = Shared::joined("");
    shared.get("many", 3);
    shared.get("one", 1);
    shared.wait(30.0, 30.0);
    shared.lines("rate=12Mbit", "weight=3");
    shared.wait(12.0, 48.0);
    shared.lines("guarantee=40Mbit", "weight=3");
    shared.wait(40.0, 20.0);
    let (_, sessions) = gtp_share::client::sessions(&shared.world.path("gtpd.sock")).unwrap();
    let clients = sessions.into_iter().filter_map(|session| session.client);
    let many = clients.into_iter().find(|client| client.name == "many").unwrap();
    assert_eq!((many.groups.as_str(), many.group_guarantee), ("", 40_000_000));
}
