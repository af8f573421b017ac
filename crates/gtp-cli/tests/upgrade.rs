//! A server and a daemon that are replaced while transfers run: what an upgrade by the system's
//! manager does. The manager, here the test, keeps the sockets; the old process ends and the new
//! one serves on. No transfer may fail, nor stand still for longer than an operator would notice.

mod common;

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{Serving, World, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// No transfer stands still for longer.
const STANDS_MOST: Duration = Duration::from_secs(2);

const SIZE: usize = 6_000_000;

/// The sockets of a server, which outlive it.
struct Manager {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Manager {
    fn new() -> Manager {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind(tcp.local_addr().unwrap()).unwrap();
        Manager { tcp, udp }
    }

    /// Starts a server on these sockets.
    fn start(&self, world: &World) -> Serving {
        let script =
            "exec 3<&0 4<&2 0</dev/null 2>>log; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\"";
        let gtp = world.gtp("server", &[]);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(gtp.get_program());
        command.args(["serve", "export", "--json", "--writable", "--drain", "60s"]).env_clear();
        command.env("GTP_CONFIG_DIR", world.path("server")).current_dir(world.path(""));
        command.stdin(OwnedFd::from(self.tcp.try_clone().unwrap()));
        command.stderr(OwnedFd::from(self.udp.try_clone().unwrap()));
        Serving::listening(command)
    }
}

/// A transfer whose progress is watched.
struct Watched {
    child: Child,
    bytes: Arc<AtomicU64>,
    /// The longest time without progress once it had begun.
    stood: JoinHandle<Duration>,
}

impl Watched {
    fn start(world: &World, args: &[&str]) -> Watched {
        let limit = ["--json", "--max-rate", "6Mbit"];
        let mut command = world.gtp("client", &[args, &limit].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
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
        Watched { child, bytes, stood }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until it has ended well; how long it stood still.
    fn done(mut self) -> Duration {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.stood.join().unwrap()
    }
}

#[test]
fn a_server_whose_sockets_the_manager_keeps_is_replaced_twice_and_no_transfer_fails_or_stands() {
    let world = World::new();
    world.list_client();
    let manager = Manager::new();
    let mut server = manager.start(&world);
    let contents = ["a", "bb"].map(|name| (name, world.export(name, SIZE)));
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    std::fs::write(world.path("mine"), common::bytes(SIZE, 9)).unwrap();
    let url = |name: &str| server.url(name);
    let (a, b, c, d) = (url("a"), url("bb"), url("c"), url("d"));
    let transfers = [
        Watched::start(&world, &["get", &a, "got-a"]),
        Watched::start(&world, &["get", &b, "got-bb"]),
        Watched::start(&world, &["put", "mine", &c]),
        Watched::start(&world, &["put", "mine", &d]),
    ];
    for upgrade in 1..=2_u64 {
        let all = |bytes| transfers.iter().all(|transfer| transfer.bytes() >= bytes);
        wait_for("progress of all", || all(upgrade * SIZE as u64 / 4));
        let pid = Pid::from_raw(server.id() as i32).unwrap();
        kill_process(pid, Signal::USR2).unwrap();
        assert_eq!(server.wait(), Some(0));
        server = manager.start(&world);
    }
    for transfer in transfers {
        let stood = transfer.done();
        println!("a transfer stood still for {:.2} s at most", stood.as_secs_f64());
        // Not even the pause before a client looks for the server again would be no break at all.
        assert!(stood >= Duration::from_millis(100), "nothing was interrupted: {stood:?}");
        assert!(stood <= STANDS_MOST, "{stood:?}");
    }
    for (name, content) in contents {
        assert!(std::fs::read(world.path(&format!("got-{name}"))).unwrap() == content);
    }
    for name in ["export/c", "export/d"] {
        assert!(std::fs::read(world.path(name)).unwrap() == common::bytes(SIZE, 9));
    }
}

#[test]
fn who_waits_for_a_server_that_takes_no_connections_pauses_no_longer_after_each_attempt() {
    let world = World::new();
    world.list_client();
    let content = world.export("a", 100_000);
    let manager = Manager::new();
    let mut server = manager.start(&world);
    let url = server.url("a");
    world.expect(0, &["ls", &url, "--accept-new"]);
    let pid = Pid::from_raw(server.id() as i32).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(server.wait(), Some(0));
    // Nobody takes what comes to the sockets.
    let mut get = world.gtp("client", &["get", &url, "got", "--json"]);
    let mut get = get.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(get.stdout.take().unwrap()).lines();
    let events = lines.map_while(Result::ok);
    let events = events.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let mut retries = events.filter(|event| event["event"] == "retry");
    for _ in 0..2 {
        let retry = retries.next().unwrap();
        assert!(retry["message"].as_str().unwrap().contains("timed out"), "{retry}");
        assert_eq!(retry["after"].as_f64(), Some(0.25), "{retry}");
    }
    let _server = manager.start(&world);
    retries.for_each(drop);
    assert_eq!(get.wait().unwrap().code(), Some(0));
    assert!(std::fs::read(world.path("got")).unwrap() == content);
}
