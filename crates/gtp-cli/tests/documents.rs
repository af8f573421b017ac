//! The commands that README, DAEMON and SOCKETS show, each run twice: both times with the exit code
//! that README states, and with the same files afterwards.
//!
//! Their hosts and directories stand for ones of this test; [`World::here`] is the table. A
//! command that is neither run nor named in [`ELSEWHERE`] fails the test.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{Serving, wait_for};
use gtp_share::client::sessions;

/// Commands that other parts of the project run, and what runs them.
const ELSEWHERE: [(&str, &str); 24] = [
    ("make demo", "tests/demo.rs, and .ci/run by make test"),
    ("make test", ".ci/run"),
    ("make install", "it builds everything optimised, into the home directory"),
    ("gtp cp host:data .", "tests/cp.rs"),
    ("gtp cp run42.h5 notes host:inbox/", "tests/cp.rs"),
    ("gtp cp a:data b:inbox/", "tests/cp_between.rs"),
    ("gtp cp a:x 'c:logs/*.gz' b:", "tests/cp_between.rs"),
    ("gtp cp --install host:data .", "tests/cp.rs"),
    ("gtp sync data/ host:backup/data", "tests/sync.rs"),
    ("gtp sync -n --delete data/ host:backup/data", "tests/sync.rs"),
    ("gtp sync host:data .", "tests/sync.rs"),
    ("rsync -a -e 'gtp ssh' data/ host:backup/data", "tests/ssh.rs"),
    ("GIT_SSH_COMMAND='gtp ssh' git clone host:repo", "tests/ssh.rs"),
    ("BORG_RSH='gtp ssh' borg create host:backups::monday data", "tests/ssh.rs"),
    (
        "restic -r sftp:host:/backups -o sftp.command='gtp ssh host -s sftp' backup data",
        "tests/ssh.rs",
    ),
    ("tar -cf - data | gtp ssh host 'tar -xf -'", "tests/ssh.rs"),
    ("tar -c data | gtp cp - host:data.tar", "tests/cp_streams.rs"),
    ("gtp cp host:data.tar - | tar -x", "tests/cp_streams.rs"),
    ("gtp cp host:data gtp://server/inbox/", "tests/cp_through.rs"),
    ("gtp cp notes a:x gtp://server/y b:", "tests/cp_through.rs"),
    ("gtp put run42.h5 gtp://B/ gtp://C/ gtp://D/ --relay", "tests/put_relay.rs"),
    ("gtp serve /data/inbox --writable --third-party 192.0.2.0/24", "tests/put_relay.rs"),
    ("gtp run iperf3 -s", "tests/run.rs"),
    ("gtp run iperf3 -c server", "tests/run.rs, in both directions"),
];

fn runs_elsewhere(command: &str) -> bool {
    ELSEWHERE.iter().any(|(known, _)| command == *known)
}

/// The commands in the shell blocks of a document, without their comments.
fn commands(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in document.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            let command = line.split(" #").next().unwrap_or_default().trim();
            if !command.is_empty() && !command.starts_with('#') {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

struct World {
    world: common::World,
    /// Hosts A, C and D serve; B takes.
    hosts: [(&'static str, Serving); 4],
    /// What the environment says as well.
    says: Vec<(&'static str, String)>,
}

/// A process that ends with the test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// For hosts that take data.
const WRITABLE: &[&str] = &["--writable"];

impl World {
    fn new() -> World {
        let world = common::World::new();
        for host in ["A", "C", "D"] {
            for (name, size) in [("run42.h5", 700_000), ("copies/run42.h5", 700_000)] {
                let path = world.path(host).join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, common::bytes(size, 42)).unwrap();
            }
            std::fs::create_dir_all(world.path(host).join("run42/deeper")).unwrap();
            std::fs::write(world.path(host).join("run42/deeper/x"), common::bytes(9_000, 7))
                .unwrap();
        }
        for directory in ["B", "work/notes", "client", "server", "home"] {
            std::fs::create_dir_all(world.path(directory)).unwrap();
        }
        std::fs::write(world.path("work/notes/today"), b"all is well").unwrap();
        let id = world.run("client", &["id"]).stdout;
        std::fs::write(world.path("server/authorized_keys"), id).unwrap();
        let serve =
            |host: &'static str, more: &[&str]| (host, world.serve_dir("server", host, more));
        let hosts =
            [serve("A", &[]), serve("C", WRITABLE), serve("D", WRITABLE), serve("B", WRITABLE)];
        World { world, hosts, says: Vec::new() }
    }

    /// A command of README as it is here: the table of what stands for what.
    fn here(&self, command: &str) -> String {
        let mut here = command.to_owned();
        for (host, serving) in &self.hosts {
            let address = format!("gtp://127.0.0.1:{}/", serving.port);
            here = here.replace(&format!("gtp://{host}/"), &address);
        }
        let path = |name: &str| self.world.path(name).display().to_string();
        let id = self.world.run("client", &["id"]).stdout;
        here.replace("/data/export", &path("A"))
            .replace("/data/inbox", &path("B"))
            .replace("~/.config/gtp", &path("home/.config/gtp"))
            .replace("SHA256:…", String::from_utf8(id).unwrap().trim())
    }

    /// A shell in the client's directory that runs a command.
    fn shell(&self, command: &str) -> Command {
        let gtp = PathBuf::from(env!("CARGO_BIN_EXE_gtp"));
        let mut path = gtp.parent().unwrap().as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("PATH", path).env("HOME", self.world.path("home"));
        shell.env("GTP_CONFIG_DIR", self.world.path("client")).envs(self.says.clone());
        shell.current_dir(self.world.path("work")).args(["-c", command]);
        shell
    }

    /// Starts a command that runs until it is ended.
    fn start(&self, command: &str) -> Kept {
        Kept(self.shell(&format!("exec {command}")).spawn().unwrap())
    }

    /// Runs a command twice, with success and the same files both times.
    fn twice(&self, command: &str, here: &str) {
        let first = self.run(here);
        let after_first = self.files();
        let second = self.run(here);
        assert_eq!((first.0, second.0), (Some(0), Some(0)), "{command}: {first:?}, {second:?}");
        let changed = self.files();
        assert!(after_first.keys().eq(changed.keys()), "{command}: {:?}", changed.keys());
        assert!(after_first == changed, "{command} changes what it has made");
    }

    /// Runs a command and returns its exit code and what it said.
    fn run(&self, command: &str) -> (Option<i32>, String) {
        let output = self.shell(command).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Every file of the client and of the host that takes, with its content.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for directory in ["work", "B"] {
            add_files(&self.world.path(directory), &mut files);
        }
        files
    }
}

fn add_files(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_files(&path, files),
            false => {
                files.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
}

#[test]
fn every_command_of_readme_has_the_same_result_when_it_is_run_again() {
    let readme = include_str!("../../../README.md");
    let commands = commands(readme);
    assert!(commands.len() >= 10, "{commands:?}");
    let world = World::new();
    let (mut fetched, mut served) = (0, 0);
    for command in &commands {
        if runs_elsewhere(command) {
            continue;
        }
        let here = world.here(command);
        if here.starts_with("gtp serve ") {
            // It serves until it is ended: the second one begins as the first one did.
            for _ in 0..2 {
                let words: Vec<&str> = here.split_whitespace().skip(1).collect();
                let mut serve = world.world.gtp("server", &words);
                serve.args(["--json", "--listen", "127.0.0.1:0"]);
                drop(Serving::start(serve));
            }
            served += 1;
            continue;
        }
        world.twice(command, &here);
        fetched += 1;
    }
    assert!(fetched >= 6 && served >= 3, "{fetched} and {served}: {commands:?}");
    let arrived = world.files();
    for path in ["work/run42.h5", "work/run42/deeper/x", "B/run42.h5", "B/today"] {
        assert!(arrived.contains_key(&world.world.path(path)), "{path}: {:?}", arrived.keys());
    }
}

#[test]
fn every_command_of_the_daemons_document_has_the_same_result_when_it_is_run_again() {
    let mut world = World::new();
    let socket = world.world.path("gtpd.sock");
    let at = socket.display().to_string();
    world.says = vec![("GTPD_SOCKET", at.clone()), ("GTP_DAEMON", at)];
    std::fs::write(world.world.path("A/large"), common::bytes(30 << 20, 3)).unwrap();
    assert_eq!(world.run(&world.here("gtp ls gtp://A/ --accept-new")).0, Some(0));
    let listed = || sessions(&socket).map_or(Vec::new(), |(_, sessions)| sessions);
    let (mut daemon, mut transfer, mut run) = (None, None, 0);
    for command in &commands(include_str!("../../../docs/DAEMON.md")) {
        let mut here = world.here(command);
        if here.starts_with("gtpd ") {
            for _ in 0..2 {
                drop(daemon.take());
                daemon = Some(world.start(&here));
                wait_for("a daemon", || sessions(&socket).is_ok());
            }
            // Beside one that runs there is no room for another.
            assert_eq!(world.run(&here).0, Some(1), "{command}");
            let slow = world.here("gtp get gtp://A/large /dev/null --max-rate 1Mbit");
            transfer = Some(world.start(&slow));
            wait_for("a session", || !listed().is_empty());
        } else {
            let number = listed().first().expect("a session").session;
            here = here.replace("gtp set 1 ", &format!("gtp set {number} "));
            world.twice(command, &here);
            run += 1;
        }
    }
    assert!(run >= 4 && transfer.is_some() && daemon.is_some(), "{run}");
}

#[test]
fn the_streams_of_the_sockets_document_carry_the_same_when_they_are_run_again() {
    let world = World::new();
    let id = world.world.run("client", &["id"]).stdout;
    std::fs::write(world.world.path("client/authorized_keys"), id).unwrap();
    std::fs::create_dir(world.world.path("work/dir")).unwrap();
    std::fs::write(world.world.path("work/dir/x"), common::bytes(900_000, 5)).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = |command: &str| {
        let here = world.here(command).replace("[::]:4810", &format!("127.0.0.1:{free}"));
        here.replace("gtp://receiver/", &format!("gtp://127.0.0.1:{free}/"))
    };
    let shown = commands(include_str!("../../../docs/SOCKETS.md"));
    let shown: Vec<_> = shown.iter().filter(|command| !runs_elsewhere(command)).collect();
    let [receive, send] = shown[..] else { panic!("two that belong together: {shown:?}") };
    assert!(receive.starts_with("gtp stream receive ") && send.contains("gtp stream send "));
    let mut copies = Vec::new();
    for _ in 0..2 {
        let mut receiver = world.start(&here(receive));
        let listens = format!(":{free:04X} 00000000:0000 0A");
        let sockets = || std::fs::read_to_string("/proc/net/tcp").unwrap();
        wait_for("a receiver", || sockets().contains(&listens));
        let (code, said) = world.run(&here(send));
        assert_eq!(code, Some(0), "{send}: {said}");
        assert!(receiver.0.wait().unwrap().success(), "{receive}");
        copies.push(std::fs::read(world.world.path("work/copy")).unwrap());
    }
    assert!(copies[0] == copies[1] && copies[0].len() > 900_000, "{}", copies[0].len());
}
