//! `gtpd` and its settings file: what comes before what, what is refused, what a hangup changes.
//!
//! Each test starts daemons with files of its own and asks them what they share. How capacity is
//! shared out by these settings is for the tests of the crate `gtpd`.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::{World, size_of, wait_for};
use gtp_share::HostView;
use rustix::process::{Pid, Signal, kill_process};

/// A daemon with a file of settings, and a log.
struct Daemon {
    child: Child,
    settings: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

/// The program with a file of settings, at a socket, and nothing else in its environment.
fn command(world: &World, settings: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    command.env_clear().env("GTPD_CONFIG", settings).arg("--socket").arg(world.path("run/socket"));
    command.stdin(Stdio::null());
    command
}

impl Daemon {
    fn start(world: &World, settings: &str, with: impl FnOnce(&mut Command)) -> Daemon {
        let (file, log) = (world.path("gtpd.toml"), world.path("log"));
        std::fs::write(&file, settings).unwrap();
        let mut command = command(world, &file);
        command.stderr(std::fs::File::create(&log).unwrap());
        with(&mut command);
        let child = command.spawn().unwrap();
        let daemon = Daemon { child, settings: file, socket: world.path("run/socket"), log };
        wait_for("a daemon", || gtp_share::client::sessions(&daemon.socket).is_ok());
        daemon
    }

    fn host(&self) -> HostView {
        gtp_share::client::sessions(&self.socket).unwrap().0
    }

    fn capacities(&self) -> (Option<u64>, Option<u64>) {
        let host = self.host();
        (host.capacity_out, host.capacity_in)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Changes the file and sends a hangup; waits for what the log then says.
    fn reload(&self, settings: &str, said: &str) {
        std::fs::write(&self.settings, settings).unwrap();
        let before = self.log().matches(said).count();
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        wait_for(said, || self.log().matches(said).count() > before);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(world: &World, settings: &str) -> String {
    let file = world.path("bad.toml");
    std::fs::write(&file, settings).unwrap();
    said(&command(world, &file).output().unwrap())
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_daemon_does_not_start_with_a_file_that_is_not_there_or_has_a_line_that_is_no_setting() {
    let world = World::new();
    let none = said(&command(&world, &world.path("none.toml")).output().unwrap());
    assert!(none.contains("none.toml"), "{none}");
    for (settings, why) in [
        ("reserve = \"1Mbit\"\ncapasity-in = \"1Mbit\"\n", "bad.toml, line 2: unknown setting"),
        ("capacity-in = \"fast\"\n", "bad.toml, line 1: `capacity-in`: "),
        (
            "user-max = [\"7=1Mbit\"]\nuser-guarantee = [\"7=2Mbit\"]\n",
            "bad.toml, line 2: `user-guarantee` of user 7 is more than `user-max` (line 1)",
        ),
        ("capacity-in = = 1\n", "bad.toml, line 1"),
    ] {
        let refusal = refused(&world, settings);
        assert!(refusal.contains(why), "{refusal}");
    }
}

/// What the daemon could not start with, and the line at which it is.
const UNFIT: [(&str, u32); 6] = [
    ("metrics = \"0.0.0.0:9811\"\n", 1),
    ("# a page\nweb = \"9813\"\n", 2),
    ("metrics = \"127.0.0.1:9811\"\nweb = \"127.0.0.1:9811\"\n", 2),
    ("interface = \"nosuch0\"\n", 1),
    ("capacity-in = \"80Mbit\"\n\nreserve = \"90Mbit\"\n", 3),
    ("user-weight = [\"7=1\", \"7=2\"]\n", 1),
];

#[test]
fn a_hangup_and_a_check_refuse_what_a_start_refuses_in_the_same_words() {
    let world = World::new();
    let first = "capacity-in = \"8Mbit\"\n";
    let daemon = Daemon::start(&world, first, |_| {});
    for (settings, line) in UNFIT {
        let refusal = refused(&world, settings);
        let why = refusal.lines().next().unwrap().split_once("bad.toml, ").unwrap().1.to_owned();
        assert!(why.starts_with(&format!("line {line}: `")), "{why}");
        daemon.reload(settings, "reload: the settings stay as they were");
        let bare = |text: &str| text.replace(['"', '\\'], "");
        let log = daemon.log();
        assert!(bare(&log).contains(&format!("gtpd.toml, {}", bare(&why))), "{why}: {log}");
        let mut check = command(&world, &world.path("bad.toml"));
        let checked = said(&check.arg("--check").output().unwrap());
        assert!(checked.contains(&why), "{checked}");
    }
    assert_eq!(daemon.capacities().1, Some(8_000_000));
    std::fs::write(&daemon.settings, first).unwrap();
    let checked = command(&world, &daemon.settings).arg("--check").output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    let words = String::from_utf8(checked.stdout).unwrap();
    assert!(words.contains("can be used") && words.contains("8.0 Mbit/s in"), "{words}");
}

#[test]
fn a_page_whose_address_another_has_is_said_with_its_line() {
    let world = World::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = format!("# c\nweb = \"{}\"\n", other.local_addr().unwrap());
    let file = world.path("gtpd.toml");
    std::fs::write(&file, settings).unwrap();
    let ended = command(&world, &file).output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{words}");
    assert!(words.contains("gtpd.toml, line 2: `web`: Address already in use"), "{words}");
}

#[test]
fn settings_that_others_may_write_are_told_of_at_the_start_and_at_a_hangup() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let daemon = Daemon::start(&world, "capacity-in = \"8Mbit\"\n", |_| {});
    assert!(!daemon.log().contains("others may write"), "{}", daemon.log());
    let mode = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&daemon.settings, mode).unwrap();
    daemon.reload("capacity-in = \"9Mbit\"\n", "gtpd.toml (mode 666)");
    assert!(daemon.log().contains("chmod go-w"), "{}", daemon.log());
    drop(daemon);
    let again = Daemon::start(&world, "capacity-in = \"8Mbit\"\n", |_| {});
    wait_for("the warning", || again.log().contains("gtpd.toml (mode 666)"));
}

#[test]
fn options_come_before_the_environment_and_the_environment_before_the_file() {
    let world = World::new();
    let settings = "capacity-in = \"10Mbit\"\ncapacity-out = \"20Mbit\"\n\
                    user-guarantee = [\"7=3Mbit\"]\n";
    let daemon = Daemon::start(&world, settings, |command| {
        command.args(["--capacity-out", "50Mbit"]).env("GTP_CAPACITY_OUT", "40Mbit");
        command.env("GTPD_USER_GUARANTEE", "7=1Mbit,8=1Mbit");
    });
    assert_eq!(daemon.capacities(), (Some(50_000_000), Some(10_000_000)));
    assert_eq!(daemon.host().guaranteed, 2_000_000);
    let log = daemon.log();
    for by in ["--capacity-out", "GTPD_USER_GUARANTEE"] {
        assert!(log.contains(&format!("has no effect: {by} says otherwise")), "{log}");
    }
    assert!(!log.contains("`capacity-in"), "{log}");
}

#[test]
fn a_hangup_changes_what_can_change_names_the_rest_and_touches_no_session() {
    let world = World::new();
    let content = world.export("large", 6_000_000);
    let first = "capacity-in = \"8Mbit\"\ncapacity-out = \"8Mbit\"\n";
    let daemon = Daemon::start(&world, first, |_| {});
    let server = world.serve("server", &["--public", "--daemon", "off"]);
    let (url, socket) = (server.url("large"), daemon.socket.display().to_string());
    let mut get =
        world.gtp("client", &["get", &url, "out", "--daemon", &socket, "--max-rate", "8Mbit"]);
    get.args(["--fingerprint", &server.fingerprint]).stderr(Stdio::null());
    let mut get = get.spawn().unwrap();
    wait_for("data", || size_of(&world.path("out.gtp-part")) > 0);
    let session = || gtp_share::client::sessions(&daemon.socket).unwrap().1[0].session;
    let before = session();
    let none = "reload: the settings stay as they were";
    daemon.reload("capacity-in = \"9Mbit\"\nlaw = \"mine\"\n", none);
    assert!(daemon.log().contains("line 2: `law`"), "{}", daemon.log());
    assert_eq!(daemon.capacities(), (Some(8_000_000), Some(8_000_000)));
    let second = "capacity-in = \"400Mbit\"\ncapacity-out = \"300Mbit\"\nreserve = \"100Mbit\"\n\
                  user-guarantee = [\"7=3Mbit\"]\nlaw = \"endnode\"\n";
    daemon.reload(second, "reload: the settings were read again");
    let log = daemon.log();
    assert!(log.contains("count from the next start on settings=\"law\""), "{log}");
    wait_for("the capacities", || daemon.capacities() == (Some(200_000_000), Some(300_000_000)));
    assert_eq!((daemon.host().guaranteed, session()), (3_000_000, before));
    assert_eq!(get.wait().unwrap().code(), Some(0));
    assert!(std::fs::read(world.path("out")).unwrap() == content);
}

#[test]
fn a_hangup_changes_which_lines_are_written_and_in_which_form() {
    let world = World::new();
    let daemon = Daemon::start(&world, "capacity-in = \"8Mbit\"\n", |_| {});
    daemon.reload("log-format = \"json\"\n", "\"level\":\"INFO\"");
    assert!(daemon.log().lines().next().unwrap().contains(" INFO gtpd: shares"));
}

#[test]
fn the_settings_file_that_is_packaged_is_one_that_the_daemon_takes_with_each_example() {
    let packaged = include_str!("../../../packaging/gtpd/gtpd.toml");
    let world = World::new();
    assert!(packaged.lines().all(|line| line.is_empty() || line.starts_with('#')));
    let examples = packaged.lines().filter_map(|line| line.strip_prefix("# "));
    let examples: Vec<String> = examples
        .filter(|line| line.contains(" = "))
        .map(|line| line.replace("eth0", "lo"))
        .map(|line| match line.split_once(":98") {
            Some((name, _)) => format!("{name}:0\""),
            None => line,
        })
        .collect();
    assert!(examples.len() >= 11, "{examples:?}");
    let daemon = Daemon::start(&world, &examples.join("\n"), |_| {});
    assert_eq!(daemon.host().guaranteed, 1_000_000_000);
}
