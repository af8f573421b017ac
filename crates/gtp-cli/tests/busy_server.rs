//! A server with twenty clients of five keys, each with limits and weights, under everything that
//! its operator does in a day: it is upgraded twice, its settings and its list of keys change, one
//! key is revoked, and its daemon ends and comes back. Nobody else's transfer may fail, or stand
//! still for longer than two seconds.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Serving, World, bytes, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// No transfer stands still for longer.
const STANDS_MOST: Duration = Duration::from_secs(2);
const SIZE: usize = 6_000_000;
const KEYS: usize = 5;
/// Gets and puts of each key.
const EACH: usize = 2;
/// The key that is revoked.
const REVOKED: usize = 4;

const GROUPS: &str = r#"
writable = true
[export.lab]
path = "LAB"
read = true
write = true
[group.g0]
weight = 3
[group.g1]
rate = "RATE"
[group.g2]
total-rate = "9Mbit"
[group.g3]
guarantee = "8Mbit"
"#;

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
        command.args(["serve", "--json", "--drain", "60s", "--daemon"]).arg(&self.socket);
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
    bytes: Arc<AtomicU64>,
    /// The longest time without progress once it had begun.
    stood: JoinHandle<Duration>,
}

impl Watched {
    fn start(world: &World, key: usize, args: &[&str]) -> Watched {
        let weight = (key + 1).to_string();
        let more = ["--json", "--max-rate", "6Mbit", "--daemon", "off", "--weight", &weight];
        let mut command = world.gtp(&end(key), &[args, &more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let bytes = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&bytes);
        let stood = thread::spawn(move || {
            let (mut last, mut most) = (None::<Instant>, Duration::ZERO);
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap();
                if event["event"] != "progress" {
                    continue;
                }
                let now = event["bytes"].as_u64().unwrap();
                if seen.fetch_max(now, Ordering::Relaxed) < now {
                    let before = last.replace(Instant::now());
                    most = before.map_or(most, |before| most.max(before.elapsed()));
                }
            }
            most
        });
        let what = format!("{} {}", end(key), args.join(" "));
        Watched { key, what, child, bytes, stood }
    }

    /// Waits until it has ended; its exit code, and how long it stood still.
    fn done(mut self) -> (Option<i32>, Duration, String) {
        let code = self.child.wait().unwrap().code();
        (code, self.stood.join().unwrap(), self.what)
    }
}

/// Begins all transfers.
fn begin(operator: &Operator, server: &Serving) -> Vec<Watched> {
    let world = &operator.world;
    fs::write(world.path("mine"), bytes(SIZE, 9)).unwrap();
    let mut transfers = Vec::new();
    for key in 0..KEYS {
        let listed = world.run(&end(key), &["ls", &server.url(""), "--accept-new"]);
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        for n in 0..EACH {
            let name = format!("get-{key}-{n}");
            fs::write(world.path("lab").join(&name), bytes(SIZE, n as u64)).unwrap();
            let url = server.url(&format!("lab/{name}"));
            transfers.push(Watched::start(world, key, &["get", &url, &name]));
            let url = server.url(&format!("lab/put-{key}-{n}"));
            transfers.push(Watched::start(world, key, &["put", "mine", &url]));
        }
    }
    transfers
}

#[test]
fn an_operators_day_at_a_busy_server_fails_nobodys_transfer_but_those_of_a_revoked_key() {
    let operator = Operator::new();
    let mut daemon = operator.daemon();
    let mut server = operator.start();
    let transfers = begin(&operator, &server);
    let others = || transfers.iter().filter(|transfer| transfer.key != REVOKED);
    let progress = |part: usize| {
        let least = (SIZE * part / 8) as u64;
        let has = |transfer: &Watched| transfer.bytes.load(Ordering::Relaxed) >= least;
        wait_for(&format!("{part} of 8 parts of all"), || others().all(has));
    };
    progress(1);
    operator.set("6Mbit");
    signal(&server, Signal::HUP);
    progress(2);
    server = operator.upgrade(server);
    progress(3);
    let revoked = operator.world.run("server", &["keys", "revoke", &end(REVOKED)]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    progress(4);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    progress(5);
    daemon = operator.daemon();
    progress(6);
    server = operator.upgrade(server);
    for transfer in transfers {
        let key = transfer.key;
        let (code, stood, what) = transfer.done();
        println!("{what}: {code:?}, stood still for {:.2} s at most", stood.as_secs_f64());
        assert_eq!(code, Some(if key == REVOKED { 7 } else { 0 }), "{what}");
        assert!(key == REVOKED || stood <= STANDS_MOST, "{what}: {stood:?}");
    }
    for (key, n) in (0..REVOKED).flat_map(|key| (0..EACH).map(move |n| (key, n))) {
        let got = fs::read(operator.world.path(&format!("get-{key}-{n}"))).unwrap();
        assert!(got == bytes(SIZE, n as u64), "get-{key}-{n}");
        let put = fs::read(operator.world.path(&format!("lab/put-{key}-{n}"))).unwrap();
        assert!(put == bytes(SIZE, 9), "put-{key}-{n}");
    }
    drop(server);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
