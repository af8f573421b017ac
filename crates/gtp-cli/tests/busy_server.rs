//! A server with twenty clients of five keys, each with limits and weights, under everything that
//! its operator does in a day: it is upgraded twice, its settings and its list of keys change, one
//! key is revoked, and its daemon is killed and comes back. Nobody else's transfer may fail, and
//! each file is written once. How long transfers stand still is measured elsewhere:
//! `gtp-measure run busy-day`.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::{Serving, World, bytes, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Everything together may take so long, on a machine that does much else.
const ENDS: Duration = Duration::from_secs(300);
const SIZE: usize = 6_000_000;
const KEYS: usize = 5;
/// Gets and puts of each key.
const EACH: usize = 2;
/// The key that is revoked.
const REVOKED: usize = 4;

/// The configuration of the measured day.
const GROUPS: &str = include_str!("../../gtp-e2e/src/busy_day.toml");

/// The operator: what outlives a server's process.
struct Operator {
    world: World,
    tcp: TcpListener,
    udp: UdpSocket,
    socket: PathBuf,
}

impl Operator {
    fn new() -> Operator {
        let world = World::new();
        for dir in ["lab", "server"] {
            fs::create_dir_all(world.path(dir)).unwrap();
        }
        let mut list = String::new();
        for key in 0..KEYS {
            let id = world.run(&end(key), &["id"]).stdout;
            let id = String::from_utf8(id).unwrap();
            list += &format!("{} group=g{key} # {}\n", id.trim(), end(key));
        }
        fs::write(world.path("server/authorized_keys"), list).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind(tcp.local_addr().unwrap()).unwrap();
        let socket = world.path("gtpd.sock");
        let operator = Operator { world, tcp, udp, socket };
        operator.set("8Mbit");
        operator
    }

    /// Writes settings with this rate for each member of one group.
    fn set(&self, rate: &str) {
        let lab = self.world.path("lab").display().to_string();
        let text = GROUPS.replace("LAB", &lab).replace("RATE", rate);
        fs::write(self.world.path("serve.toml"), text).unwrap();
    }

    fn daemon(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
        command.env_clear().arg("--socket").arg(&self.socket);
        command.args(["--capacity-out", "48Mbit", "--capacity-in", "48Mbit"]);
        let daemon = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("a daemon", || gtp_share::client::sessions(&self.socket).is_ok());
        daemon
    }

    /// Starts a server on the sockets.
    fn start(&self) -> Serving {
        let script =
            "exec 3<&0 4<&2 0</dev/null 2>>log; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\"";
        let gtp = self.world.gtp("server", &[]);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(gtp.get_program());
        command.args(["serve", "--json", "--drain", "60s", "--audit", "audit", "--daemon"]);
        command.arg(&self.socket);
        command.env_clear().current_dir(self.world.path(""));
        command.env("GTP_CONFIG_DIR", self.world.path("server"));
        command.env("GTP_CONFIG_FILE", self.world.path("serve.toml"));
        command.stdin(OwnedFd::from(self.tcp.try_clone().unwrap()));
        command.stderr(OwnedFd::from(self.udp.try_clone().unwrap()));
        Serving::listening(command)
    }

    /// Ends a server for the next one.
    fn upgrade(&self, mut old: Serving) -> Serving {
        signal(&old, Signal::USR2);
        assert_eq!(old.wait(), Some(0));
        self.start()
    }
}

fn signal(server: &Serving, signal: Signal) {
    kill_process(Pid::from_raw(server.id() as i32).unwrap(), signal).unwrap();
}

fn end(key: usize) -> String {
    format!("key{key}")
}

/// A transfer whose progress is watched.
struct Watched {
    key: usize,
    what: String,
    child: Child,
    bytes: u64,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // It may have ended; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All transfers, and what is heard of them: how many bytes one has, or that it says no more.
struct Transfers {
    all: Vec<Watched>,
    heard: Receiver<(usize, Option<u64>)>,
}

impl Transfers {
    /// Begins all of them.
    fn begin(operator: &Operator, server: &Serving) -> Transfers {
        let world = &operator.world;
        fs::write(world.path("mine"), bytes(SIZE, 9)).unwrap();
        let (tell, heard) = channel();
        let mut transfers = Transfers { all: Vec::new(), heard };
        for key in 0..KEYS {
            let listed = world.run(&end(key), &["ls", &server.url(""), "--accept-new"]);
            assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
            for n in 0..EACH {
                let name = format!("get-{key}-{n}");
                fs::write(world.path("lab").join(&name), bytes(SIZE, n as u64)).unwrap();
                let url = server.url(&format!("lab/{name}"));
                transfers.start((world, key), &["get", &url, &name], tell.clone());
                let url = server.url(&format!("lab/put-{key}-{n}"));
                transfers.start((world, key), &["put", "mine", &url], tell.clone());
            }
        }
        transfers
    }

    fn start(
        &mut self,
        (world, key): (&World, usize),
        args: &[&str],
        tell: Sender<(usize, Option<u64>)>,
    ) {
        let weight = (key + 1).to_string();
        let more = ["--json", "--max-rate", "6Mbit", "--daemon", "off", "--weight", &weight];
        // A busy machine may keep them from each other for long.
        let more = [&more[..], &["--retry-for", "200s"]].concat();
        let mut command = world.gtp(&end(key), &[args, &more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = self.all.len();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                if event["event"] == "progress" {
                    // Who listened may have failed.
                    let _ = tell.send((at, event["bytes"].as_u64()));
                }
            }
            let _ = tell.send((at, None));
        });
        let what = format!("{} {}", end(key), args.join(" "));
        self.all.push(Watched { key, what, child, bytes: 0 });
    }

    /// Waits until all but those of the revoked key have so many eighths, or are over.
    fn reach(&mut self, eighths: usize) {
        let least = (SIZE * eighths / 8) as u64;
        while self.all.iter().any(|one| one.key != REVOKED && one.bytes < least) {
            let heard = self.heard.recv_timeout(ENDS);
            let (at, bytes) = heard.unwrap_or_else(|_| panic!("{eighths} of 8 parts of all"));
            let one = &mut self.all[at];
            one.bytes = bytes.map_or(u64::MAX, |bytes| bytes.max(one.bytes));
        }
    }
}

/// Files that the sessions of a path wrote, all together, by the audit.
fn written(audit: &str, path: &str) -> u64 {
    let records = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ends = records.filter(|record| record["event"] == "end" && record["path"] == path);
    ends.map(|end| end["files"].as_u64().unwrap()).sum()
}

#[test]
fn an_operators_day_at_a_busy_server_fails_nobodys_transfer_but_those_of_a_revoked_key() {
    let operator = Operator::new();
    let mut daemon = operator.daemon();
    let mut server = operator.start();
    let mut transfers = Transfers::begin(&operator, &server);
    transfers.reach(1);
    operator.set("6Mbit");
    signal(&server, Signal::HUP);
    transfers.reach(2);
    server = operator.upgrade(server);
    transfers.reach(3);
    let revoked = operator.world.run("server", &["keys", "revoke", &end(REVOKED)]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    transfers.reach(4);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    transfers.reach(5);
    daemon = operator.daemon();
    transfers.reach(6);
    server = operator.upgrade(server);
    for transfer in &mut transfers.all {
        let code = transfer.child.wait().unwrap().code();
        let due = if transfer.key == REVOKED { 7 } else { 0 };
        assert_eq!(code, Some(due), "{}", transfer.what);
    }
    signal(&server, Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let audit = fs::read_to_string(operator.world.path("audit")).unwrap();
    for (key, n) in (0..REVOKED).flat_map(|key| (0..EACH).map(move |n| (key, n))) {
        let got = fs::read(operator.world.path(&format!("get-{key}-{n}"))).unwrap();
        assert!(got == bytes(SIZE, n as u64), "get-{key}-{n}");
        let put = fs::read(operator.world.path(&format!("lab/put-{key}-{n}"))).unwrap();
        assert!(put == bytes(SIZE, 9), "put-{key}-{n}");
        assert_eq!(written(&audit, &format!("lab/put-{key}-{n}")), 1, "put-{key}-{n}");
    }
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
