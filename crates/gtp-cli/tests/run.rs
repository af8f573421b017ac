//! `gtp run` and `gtp stream` with programs that others wrote, over loopback: what is said arrives,
//! over GTP where it can, over TCP where it must, and not at all where that was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A user with a configuration, a runtime directory and a pump of his own.
struct World {
    dir: TempDir,
    port: u16,
}

/// Ends with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The library that is put before others, where cargo has put it.
fn preload() -> PathBuf {
    let beside = std::env::current_exe().unwrap();
    let place = beside.with_file_name("libgtp_preload.so");
    assert!(place.exists(), "{} is built with the tests", place.display());
    place
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        World { dir, port: free_port() }
    }

    fn gtp(&self) -> Command {
        let mut gtp = Command::new(env!("CARGO_BIN_EXE_gtp"));
        gtp.env("GTP_CONFIG_DIR", self.dir.path().join("config"));
        gtp.env("XDG_RUNTIME_DIR", self.dir.path().join("run"));
        gtp.env("GTP_PRELOAD", preload()).env("GTP_DAEMON", "off");
        gtp.env("GTP_RUN_LOOPBACK", "1").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
        gtp.env("GTP_PUMP_LISTEN", format!("127.0.0.1:{}", self.port));
        gtp.env("GTP_PUMP_IDLE", "10s");
        gtp
    }

    /// `gtp run` of a program.
    fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.gtp();
        command.arg("run").args(options).arg("--").args(program);
        command
    }

    /// Python as a program that listens and says so, which prints a line first.
    fn python(&self, options: &[&str], script: &str) -> (Running, String) {
        let mut command = self.run(options, &["python3", "-u", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Running(child), line.trim().to_owned())
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Serves this directory on a free port, for ever.
const WEB: &str = "
import http.server, functools, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=DIR)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_address[1])
server.serve_forever()
";

#[test]
fn curl_fetches_from_a_web_server_over_gtp() {
    let world = World::new();
    let content: Vec<u8> =
        (0..5_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(world.dir.path().join("file"), &content).unwrap();
    let script = WEB.replace("DIR", &format!("{:?}", world.dir.path()));
    let (_server, port) = world.python(&[], &script);
    let url = format!("http://127.0.0.1:{port}/file");
    let fetched =
        world.run(&["--require"], &["curl", "-sS", "--max-time", "30", &url]).output().unwrap();
    assert!(fetched.status.success(), "{}", said(&fetched));
    assert!(fetched.stdout == content, "{} bytes, {}", fetched.stdout.len(), said(&fetched));
    assert_eq!(said(&fetched), "", "nothing is to be said of what went over GTP");
}

#[test]
fn a_host_without_gtp_is_reached_over_tcp_and_that_is_said_or_refused() {
    let world = World::new();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let (mut peer, _) = plain.accept().unwrap();
        let mut asked = [0; 4];
        peer.read_exact(&mut asked).unwrap();
        peer.write_all(b"HTTP/1.0 200 OK\r\n\r\nplain").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = peer.read_to_end(&mut Vec::new());
    });
    let url = format!("http://{address}/");
    let refused = world.run(&["--require"], &["curl", "-sS", &url]).output().unwrap();
    assert!(!refused.status.success());
    assert!(said(&refused).contains("only GTP will do"), "{}", said(&refused));
    let fetched = world.run(&[], &["curl", "-sS", "--max-time", "30", &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&fetched.stdout), "plain", "{}", said(&fetched));
    assert!(said(&fetched).contains("over TCP"), "{}", said(&fetched));
    answering.join().unwrap();
}

#[test]
fn iperf3_measures_over_gtp_in_both_directions() {
    let world = World::new();
    let port = free_port().to_string();
    let server = ["iperf3", "-s", "-p", &port, "--forceflush"];
    let mut command = world.run(&[], &server);
    let mut server = command.stdout(Stdio::piped()).spawn().expect("iperf3 is needed");
    let mut words = BufReader::new(server.stdout.take().unwrap());
    let _server = Running(server);
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(words.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    let words = std::thread::spawn(move || words.read_to_end(&mut Vec::new()));
    for direction in [&[][..], &["-R"], &["-P", "3"]] {
        let client = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-n", "20M"];
        let client: Vec<&str> = client.iter().chain(direction).copied().collect();
        let measured = world.run(&["--require"], &client).output().unwrap();
        let (out, failed) = (String::from_utf8_lossy(&measured.stdout), said(&measured));
        assert!(measured.status.success(), "{out}{failed}");
        assert!(out.contains("receiver"), "{out}");
        assert_eq!(failed, "");
    }
    drop(_server);
    words.join().unwrap().unwrap();
}

/// Forks; the child writes and ends at once, and the parent has gone before.
const FORKS: &str = "
import os, socket, sys
peer = socket.create_connection(('127.0.0.1', PORT))
if os.fork() == 0:
    os.setsid()
    peer.sendall(b'from a child ' * 100000)
    os._exit(0)
os._exit(0)
";

const COUNTS: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1])
peer, _ = listener.accept()
count = 0
while True:
    got = peer.recv(65536)
    if not got: break
    count += len(got)
out = open(OUT, 'w'); out.write(str(count)); out.close()
";

#[test]
fn what_a_forked_child_wrote_arrives_although_both_have_ended() {
    let world = World::new();
    let out = world.dir.path().join("count");
    let script = COUNTS.replace("OUT", &format!("{out:?}"));
    let (mut server, port) = world.python(&[], &script);
    let script = FORKS.replace("PORT", &port);
    let ran = world.run(&["--require"], &["python3", "-c", &script]).output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(server.0.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(out).unwrap(), "1300000");
}

/// Breaks its connection in the way that TCP calls a reset.
const BREAKS: &str = "
import socket, struct
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1])
peer, _ = listener.accept()
peer.recv(1)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
peer.close()
";

const HEARS: &str = "
import socket
peer = socket.create_connection(('127.0.0.1', PORT))
peer.sendall(b'x')
try:
    print('end' if not peer.recv(1) else 'bytes')
except ConnectionResetError:
    print('reset')
";

#[test]
fn a_reset_arrives_as_a_reset_and_not_as_an_end() {
    let world = World::new();
    let (_server, port) = world.python(&[], BREAKS);
    let script = HEARS.replace("PORT", &port);
    let ran = world.run(&["--require"], &["python3", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "reset\n", "{}", said(&ran));
}

#[test]
fn programs_that_cannot_be_spoken_for_are_told_so() {
    let world = World::new();
    let source = world.dir.path().join("static.c");
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let program = world.dir.path().join("static");
    let cc =
        Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).output().unwrap();
    assert!(cc.status.success(), "{}", said(&cc));
    let ran = world.run(&[], &[program.to_str().unwrap()]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(said(&ran).contains("statically"), "{}", said(&ran));
    let ran = world.run(&[], &["no-such-program"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(3));
    // The pump was not needed for that, and nobody has started one.
    assert!(TcpStream::connect(("127.0.0.1", world.port)).is_err());
}

#[test]
fn a_stream_takes_standard_input_to_standard_output() {
    let world = World::new();
    let address = format!("127.0.0.1:{}", world.port);
    let mut receive = world.gtp();
    receive.args(["stream", "receive", "--listen", &address]);
    let mut receiver = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut words = BufReader::new(receiver.stderr.take().unwrap());
    words.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    let content: Vec<u8> = (0..4_000_000_u32).map(|at| (at.wrapping_mul(97) >> 5) as u8).collect();
    let mut send = world.gtp();
    send.args(["stream", "send", &format!("gtp://{address}/")]).stdin(Stdio::piped());
    let mut sender = send.spawn().unwrap();
    let (mut to, said) = (sender.stdin.take().unwrap(), content.clone());
    let writing = std::thread::spawn(move || to.write_all(&said).unwrap());
    let mut heard = Vec::new();
    receiver.stdout.take().unwrap().read_to_end(&mut heard).unwrap();
    writing.join().unwrap();
    assert!(sender.wait().unwrap().success() && receiver.wait().unwrap().success());
    assert!(heard == content);
}

#[test]
fn a_pump_ends_when_nobody_needs_it_and_is_there_once() {
    let world = World::new();
    let mut pump = world.gtp();
    pump.arg("pump").env("GTP_PUMP_IDLE", "2s");
    let mut pump = pump.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(pump.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let second = world.gtp().arg("pump").output().unwrap();
    assert!(said(&second).contains("already"), "{}", said(&second));
    let ran = world.run(&[], &["true"]).output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(pump.wait().unwrap().success());
}
