//! `gtp run` between two hosts with a lossy path between them: each has a pump of its own. Needs
//! root; without it the test says that it was skipped, or fails where GTP_REQUIRE_ROOT=1 is set.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::require_root;
use gtp_emu::{Emulator, Handle, NetSpec};
use tempfile::TempDir;

/// Two hosts, and the router between them.
struct World {
    dir: TempDir,
    /// Worlds of one process have hosts of their own.
    number: u32,
    router: Option<Handle>,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(router) = self.router.take() {
            router.stop().unwrap();
        }
    }
}

fn namespace(host: &str, number: u32) -> String {
    format!("gtp-run-{host}-{}-{number}", std::process::id())
}

fn address(host: &str) -> &'static str {
    if host == "a" { "10.83.0.1" } else { "10.83.0.2" }
}

impl World {
    fn new() -> World {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mut text = String::new();
        for name in ["there", "back"] {
            text.push_str(&format!(
                "[[link]]\nname = \"{name}\"\nrate = \"200Mbit\"\ndelay = \"5ms\"\nloss = \"1%\"\n"
            ));
        }
        for host in ["a", "b"] {
            let (namespace, address) = (namespace(host, number), address(host));
            text.push_str(&format!(
                "[[host]]\nname = \"{host}\"\nnamespace = \"{namespace}\"\n\
                 address = \"{address}/24\"\n"
            ));
        }
        for (from, to, link) in [("a", "b", "there"), ("b", "a", "back")] {
            text.push_str(&format!(
                "[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [\"{link}\"]\n"
            ));
        }
        let router = Emulator::router(&NetSpec::parse(&text).unwrap()).unwrap();
        let world = World { dir: tempfile::tempdir().unwrap(), number, router: Some(router) };
        for host in ["a", "b"] {
            let up = world.at(host, &["ip", "link", "set", "lo", "up"]).status().unwrap();
            assert!(up.success());
        }
        world
    }

    /// A program on a host.
    fn at(&self, host: &str, program: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace(host, self.number)]).args(program);
        command
    }

    /// The same under `gtp run`, with the host's own keys and pump.
    fn run(&self, host: &str, options: &[&str], program: &[&str]) -> Command {
        let gtp = [env!("CARGO_BIN_EXE_gtp"), "run"];
        let words: Vec<&str> = [&gtp[..], options, &["--"], program].concat();
        let mut command = self.at(host, &words);
        let preload: PathBuf = std::env::current_exe().unwrap().with_file_name("libgtp_preload.so");
        command.env("GTP_CONFIG_DIR", self.dir.path().join(host)).env("GTP_PRELOAD", preload);
        command.env("GTP_PUMP", self.dir.path().join(format!("{host}.sock")));
        command.env("GTP_DAEMON", "off").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
        command.env("GTP_PUMP_IDLE", "10s").env_remove("GTP_RUN_LOOPBACK");
        command
    }

    /// A web server of the world's directory on host b, that says each caller's address; its port.
    fn web(&self, command: impl Fn(&[&str]) -> Command) -> (Running, String) {
        let script = WEB.replace("DIR", &format!("{:?}", self.dir.path()));
        let mut command = command(&["python3", "-u", "-c", &script]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Running(child), line.trim().to_owned())
    }
}

const WEB: &str = "
import http.server, functools
class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self):
        self.send_header('X-Caller', self.client_address[0])
        super().end_headers()
    def log_message(self, *words):
        pass
handler = functools.partial(Handler, directory=DIR)
server = http.server.ThreadingHTTPServer(('0.0.0.0', 0), handler)
print(server.server_address[1])
server.serve_forever()
";

/// What a command said on its standard error, but that its kernel is too old to forbid TCP.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !line.contains("Landlock"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn speech(length: u32, seed: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(seed) >> 4) as u8).collect()
}

#[test]
fn curl_fetches_over_gtp_where_both_have_it_and_over_tcp_where_one_has_not() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let content = speech(3_000_000, 31);
    std::fs::write(world.dir.path().join("file"), &content).unwrap();
    let fetch = |options: &[&str], port: &str| {
        let url = format!("http://{}:{port}/file", address("b"));
        let headers = world.dir.path().join("headers");
        let curl = ["curl", "-sS", "--max-time", "60", "-D", headers.to_str().unwrap(), &url];
        let fetched = world.run("a", options, &curl).output().unwrap();
        (fetched, std::fs::read_to_string(headers).unwrap_or_default())
    };
    let (_server, port) = world.web(|program| world.run("b", &[], program));
    let (fetched, headers) = fetch(&["--require"], &port);
    assert!(fetched.status.success() && fetched.stdout == content, "{}", said(&fetched));
    assert_eq!(said(&fetched), "", "nothing is to be said of what went over GTP");
    let own = format!("X-Caller: {}", address("b"));
    assert!(headers.contains(&own), "a caller is none of the loopback address: {headers}");
    // The same host has a program that is not under `gtp run`.
    let (_plain, port) = world.web(|program| world.at("b", program));
    let (refused, _) = fetch(&["--require"], &port);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("only GTP will do"), "{}", said(&refused));
    let (fetched, headers) = fetch(&[], &port);
    assert!(fetched.status.success() && fetched.stdout == content, "{}", said(&fetched));
    assert!(said(&fetched).contains("over TCP"), "{}", said(&fetched));
    assert!(headers.contains(&format!("X-Caller: {}", address("a"))), "{headers}");
}

#[test]
fn the_hosts_own_address_is_reached_as_it_is_and_a_pump_that_is_busy_is_asked_again() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let fetch = |options: &[&str], host: &str, port: &str| {
        let url = format!("http://{}:{port}/", address(host));
        let curl = ["curl", "-sS", "--max-time", "60", "-o", "/dev/null", &url];
        world.run("a", options, &curl).output().unwrap()
    };
    let (_own, port) = world.web(|program| world.at("a", program));
    for options in [&[][..], &["--require"]] {
        let fetched = fetch(options, "a", &port);
        assert!(fetched.status.success(), "{}", said(&fetched));
        assert_eq!(said(&fetched), "", "it is no other host");
    }
    // One that turns its callers away at once, as a pump does that has too many.
    let mut busy = world.at("b", &["python3", "-u", "-c", BUSY]);
    let mut busy = Running(busy.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(busy.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "busy");
    let (_plain, port) = world.web(|program| world.at("b", program));
    let fetched = fetch(&[], "b", &port);
    assert!(fetched.status.success() && said(&fetched).contains("over TCP"), "{}", said(&fetched));
    drop((busy, lines));
    let (_server, port) = world.web(|program| world.run("b", &[], program));
    let fetched = fetch(&["--require"], "b", &port);
    assert!(fetched.status.success(), "{}", said(&fetched));
}

const BUSY: &str = "
import socket
listener = socket.create_server(('0.0.0.0', 4811))
print('busy')
while True:
    listener.accept()[0].close()
";

#[test]
fn netcat_says_and_hears_everything_over_gtp() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let (file, open) = (|name: &str| world.dir.path().join(name), |path| File::open(path).unwrap());
    let (there, back) = (speech(2_000_000, 97), speech(1_000_000, 193));
    std::fs::write(file("there"), &there).unwrap();
    std::fs::write(file("back"), &back).unwrap();
    let mut server = world.run("b", &[], &["nc", "-v", "-n", "-N", "-l", "0.0.0.0", "9000"]);
    server.stdin(open(file("back"))).stdout(File::create(file("heard")).unwrap());
    let mut server = Running(server.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let first = lines.next().expect("nc, of netcat-openbsd, is needed").unwrap();
    assert!(first.contains("Listening"), "{first}");
    let mut client = world.run("a", &["--require"], &["nc", "-n", "-N", address("b"), "9000"]);
    let ended = client.stdin(open(file("there"))).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(said(&ended), "");
    assert!(server.0.wait().unwrap().success());
    assert!(ended.stdout == back && std::fs::read(file("heard")).unwrap() == there);
}

#[test]
fn rsync_fetches_from_its_daemon_and_gives_it_over_gtp() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let path = |name: &str| world.dir.path().join(name).to_str().unwrap().to_owned();
    for dir in ["served", "served/deep", "given", "fetched"] {
        std::fs::create_dir(path(dir)).unwrap();
    }
    let files = [("one", 1_500_000), ("deep/two", 300_000), ("deep/none", 0)];
    for (name, length) in files {
        std::fs::write(path("served") + "/" + name, speech(length, 57 + length)).unwrap();
    }
    let module = |name| format!("[{name}]\npath = {}\nread only = no\n", path(name));
    let config =
        format!("use chroot = no\nuid = root\ngid = root\n{}{}", module("served"), module("given"));
    std::fs::write(path("rsyncd.conf"), config).unwrap();
    let config = format!("--config={}", path("rsyncd.conf"));
    let daemon = ["rsync", "--daemon", "--no-detach", "--port=8730", &config];
    let daemon = world.run("b", &[], &daemon).spawn().expect("rsync is needed");
    let _daemon = Running(daemon);
    let at = |module: &str| format!("rsync://{}:8730/{module}/", address("b"));
    let copy = |from: &str, to: &str| {
        let rsync = ["rsync", "-a", "--timeout=60", from, to];
        world.run("a", &["--require"], &rsync).output().unwrap()
    };
    // It does not say when it listens; the kernel does. Its pump hears of it a moment later, and
    // who asks in between takes the host for one without GTP, for half a minute.
    let listens = || {
        let sockets = world.at("b", &["cat", "/proc/net/tcp"]).output().unwrap().stdout;
        String::from_utf8_lossy(&sockets).contains(":221A 00000000:0000 0A") // 8730
    };
    assert!((0..5_000).any(|_| listens()));
    let tries = (0..5_000).map(|_| copy(&at("served"), &(path("fetched") + "/")));
    let fetched = tries.inspect(|tried| eprintln!("{}", said(tried))).find(|t| t.status.success());
    assert_eq!(said(&fetched.expect("rsync is needed, and fetches")), "");
    let given = copy(&(path("fetched") + "/"), &at("given"));
    assert!(given.status.success(), "{}", said(&given));
    assert_eq!(said(&given), "");
    for (name, length) in files {
        assert!(std::fs::read(path("given") + "/" + name).unwrap() == speech(length, 57 + length));
    }
}

/// Gives back all that it hears, to any number of callers.
const ECHOES: &str = "
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while said := self.request.recv(65536):
            self.request.sendall(said)
class Server(socketserver.ThreadingTCPServer):
    request_queue_size, daemon_threads = 100, True
server = Server(('0.0.0.0', 0), Echo)
print(server.server_address[1])
server.serve_forever()
";

/// Has so many connections at once, and speaks over each.
const MANY: &str = "
import socket
peers = [socket.create_connection(('HOST', PORT)) for _ in range(64)]
for number, peer in enumerate(peers):
    peer.sendall(b'%03d' % number)
print([peer.recv(3, socket.MSG_WAITALL) for peer in peers] == [b'%03d' % n for n in range(64)])
print({peer.getpeername() for peer in peers}, {peer.getsockname()[0] for peer in peers})
";

/// Connects without blocking, with an event loop that knows the socket before.
const LOOPS: &str = "
import errno, select, socket
under_way = 0
for number in range(12):
    peer, told = socket.socket(), select.epoll()
    peer.setblocking(False)
    told.register(peer, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    told.poll(0)
    assert peer.connect_ex(('HOST', PORT)) == errno.EINPROGRESS
    known = told.poll(0)
    under_way += not known
    events = known or told.poll(60)
    assert events == [(peer.fileno(), select.EPOLLOUT)], events
    assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    peer.sendall(b'word')
    events = told.poll(60)
    assert events[0][1] & select.EPOLLIN, events
    assert peer.recv(4) == b'word'
print('under way' if under_way else 'none was under way')
";

#[test]
fn as_many_connections_as_the_limits_allow_are_over_gtp_at_once_and_name_the_other_host() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let mut server = world.run("b", &[], &["python3", "-u", "-c", ECHOES]);
    let mut server = Running(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let ask = |script: &str| {
        let script = script.replace("HOST", address("b")).replace("PORT", port.trim());
        let ran = world.run("a", &["--require"], &["python3", "-c", &script]).output().unwrap();
        assert!(ran.status.success(), "{}", said(&ran));
        assert_eq!(said(&ran), "");
        String::from_utf8(ran.stdout).unwrap()
    };
    let (own, other) = (address("a"), address("b"));
    let names = format!("{{('{other}', {})}} {{'{own}'}}", port.trim());
    assert_eq!(ask(MANY), format!("True\n{names}\n"));
    assert_eq!(ask(LOOPS), "under way\n");
}
