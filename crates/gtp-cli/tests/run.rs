//! `gtp run` and `gtp stream` with programs that others wrote, over loopback: what is said arrives,
//! over GTP where it can, over TCP where it must, and not at all where that was asked.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use common::ports::free_port;
use common::without_proc;
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

/// What a command said on its standard error, but that its kernel is too old to forbid TCP.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !line.contains("Landlock"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A web server that has no GTP, and one caller.
fn serve_one(plain: TcpListener) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut peer, _) = plain.accept().unwrap();
        let mut asked = [0; 4];
        peer.read_exact(&mut asked).unwrap();
        peer.write_all(b"HTTP/1.0 200 OK\r\n\r\nplain").unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = peer.read_to_end(&mut Vec::new());
    })
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
    let answering = serve_one(plain);
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
fn where_the_path_carries_no_datagrams_the_pump_says_so_and_takes_tcp() {
    let (near, far) = (World::new(), World::new());
    std::fs::write(far.dir.path().join("file"), "content").unwrap();
    let script = WEB.replace("DIR", &format!("{:?}", far.dir.path()));
    let (_server, web) = far.python(&[], &script.replace("127.0.0.1", "0.0.0.0"));
    // To the near pump this is another host's, which answers TCP alone.
    common::pass_tcp(TcpListener::bind(("127.0.0.2", near.port)).unwrap(), far.port);
    let url = format!("http://127.0.0.2:{web}/file");
    let fetched = near.run(&[], &["curl", "-sS", "--max-time", "30", &url]).output().unwrap();
    assert_eq!(out(&fetched), "content", "{}", said(&fetched));
    let why = format!("UDP port {} is not let through", near.port);
    assert!(said(&fetched).contains(&why), "{}", said(&fetched));
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
    // It listens anew for each client, and says so.
    let mut listens = move || {
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert!(words.read_line(&mut line).unwrap() > 0, "it has ended");
        }
    };
    for direction in [&[][..], &["-R"], &["-P", "3"]] {
        listens();
        let client = ["iperf3", "-c", "127.0.0.1", "-p", &port, "-n", "20M"];
        let client: Vec<&str> = client.iter().chain(direction).copied().collect();
        let measured = world.run(&["--require"], &client).output().unwrap();
        let (out, failed) = (out(&measured), said(&measured));
        assert!(measured.status.success(), "{out}{failed}");
        assert!(out.contains("receiver"), "{out}");
        assert_eq!(failed, "");
    }
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

/// A C program.
fn compile(world: &World, name: &str, source: &str, options: &[&str]) -> String {
    let program = world.dir.path().join(name);
    let text = program.with_extension("c");
    std::fs::write(&text, source).unwrap();
    let cc = Command::new("cc").args(options).arg("-o").args([&program, &text]).output().unwrap();
    assert!(cc.status.success(), "{}", said(&cc));
    program.to_str().unwrap().to_owned()
}

/// Waits for a line, then says what came of a connection.
const LATE: &str = "
import socket, sys
print('begun')
sys.stdin.readline()
peer = socket.create_connection(('127.0.0.1', PORT))
peer.sendall(b'x')
print(peer.recv(1))
";

/// Gives back what it hears, once.
const ECHO: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1])
peer, _ = listener.accept()
peer.sendall(peer.recv(1))
";

/// Has a pump that ends as soon as any, started now, come and go.
fn a_pump_has_come_and_gone(world: &World) {
    let mut other = world.gtp();
    let socket = world.dir.path().join("other.sock");
    other.arg("pump").arg("--pump").arg(socket).args(["--pump-listen", "127.0.0.1:0"]);
    let ended = other.env("GTP_PUMP_IDLE", "4s").output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
}

#[test]
fn a_program_without_a_runtime_directory_finds_a_pump_of_its_users_alone() {
    let world = World::new();
    let mut command = world.run(&[], &["printenv", "GTP_RUN_SOCKET"]);
    let ran = command.env_remove("XDG_RUNTIME_DIR").env("GTP_PUMP_IDLE", "1s").output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    let place = out(&ran);
    let uid = rustix::process::geteuid().as_raw();
    let places = [format!("/run/user/{uid}"), format!("/tmp/gtp-{uid}")];
    let found = places.iter().find(|dir| place == format!("{dir}/gtp/pump.sock"));
    let found = std::fs::metadata(found.expect(&place)).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&found) & 0o777, 0o700);
}

#[test]
fn without_proc_a_running_pump_is_used_and_a_missing_one_is_said_to_need_it() {
    if !common::require_root() {
        return;
    }
    let world = World::new();
    let alone = without_proc(&world.run(&[], &["true"])).output().unwrap();
    assert_eq!(alone.status.code(), Some(1), "{}", said(&alone));
    assert!(said(&alone).contains("no pump can be started here: /proc is"), "{}", said(&alone));
    let script = WEB.replace("DIR", &format!("{:?}", world.dir.path()));
    let (_server, port) = world.python(&[], &script);
    let curl = ["curl", "-sS", "--max-time", "30", &format!("http://127.0.0.1:{port}/")];
    let fetched = without_proc(&world.run(&["--require"], &curl)).output().unwrap();
    assert_eq!((fetched.status.code(), said(&fetched)), (Some(0), String::new()));
}

#[test]
fn a_pump_stays_as_long_as_programs_that_do_nothing_or_listen() {
    let world = World::new();
    let run = |script: &str| {
        let mut command = world.run(&["--require"], &["python3", "-u", "-c", script]);
        command.env("GTP_PUMP_IDLE", "2s").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        (Running(child), lines, line.trim().to_owned())
    };
    // It closes all that it did not open itself, as programs do that serve in the background.
    let closes = "import os\nos.closerange(3, 4096)\n";
    let (_server, _said, port) = run(&format!("{closes}{ECHO}"));
    a_pump_has_come_and_gone(&world);
    let (mut idle, mut lines, _) = run(&LATE.replace("PORT", &port));
    idle.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "b'x'\n");
    drop((idle, _server));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port().to_string();
    let (mut idle, _lines, _) = run(&LATE.replace("PORT", &port));
    let mut words = idle.0.stdin.take().unwrap();
    a_pump_has_come_and_gone(&world);
    assert!(TcpStream::connect(("127.0.0.1", world.port)).is_ok(), "the pump is there");
    words.write_all(b"go\n").unwrap();
    assert!(!idle.0.wait().unwrap().success(), "nobody under gtp run listens there");
}

/// Listens, and no more; then another program that is not under `gtp run` takes its port.
const CLOSES: &str = "
import socket, sys
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1])
sys.stdin.readline()
listener.close()
print('closed')
sys.stdin.readline()
";

#[test]
fn nobody_is_passed_on_to_a_program_that_took_a_port_over() {
    let world = World::new();
    let mut command = world.run(&[], &["python3", "-u", "-c", CLOSES]);
    let mut listens = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(listens.stdout.take().unwrap()).lines();
    let port = lines.next().unwrap().unwrap();
    listens.stdin.as_mut().unwrap().write_all(b"close\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "closed");
    let _listens = Running(listens);
    let plain = TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    plain.set_nonblocking(true).unwrap();
    let script = LATE.replace("PORT", &port).replace("sys.stdin.readline()", "");
    let ran = world.run(&["--require"], &["python3", "-c", &script]).output().unwrap();
    assert!(!ran.status.success());
    assert!(said(&ran).contains("no program under gtp run listens"), "{}", said(&ran));
    assert!(plain.accept().is_err(), "the pump has called it");
}

/// What `gtp run` promises of programs that do not know it.
const CONNECTS: &str = "
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&to, sizeof to) == 0)
        return 0;
    perror(\"connect\");
    return 1;
}
";

#[test]
fn where_only_gtp_will_do_no_program_that_it_starts_reaches_anybody_over_tcp() {
    let world = World::new();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port().to_string();
    let loaded = compile(&world, "loaded", CONNECTS, &[]);
    let alone = compile(&world, "alone", CONNECTS, &["-static"]);
    let python = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
    let clears = format!("import os; os.environ.clear(); {python}");
    let programs: [&[&str]; 5] = [
        &[&loaded, &port],
        &["env", "-i", &loaded, &port],
        &["env", "-u", "GTP_RUN_SOCKET", &loaded, &port],
        &["sh", "-c", "exec \"$0\" \"$1\"", &alone, &port],
        &["python3", "-c", &clears],
    ];
    for program in programs {
        let refused = world.run(&["--require"], program).output().unwrap();
        assert!(!refused.status.success(), "{program:?}");
        // Without the demand, the same comes through.
        let served = world.run(&[], program).output().unwrap();
        assert!(served.status.success(), "{program:?}: {}", said(&served));
        plain.accept().unwrap();
    }
    plain.set_nonblocking(true).unwrap();
    assert!(plain.accept().is_err());
}

#[test]
fn where_only_gtp_will_do_connections_within_the_host_stay_as_they_are() {
    let world = World::new();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = plain.local_addr().unwrap();
    let answering = serve_one(plain);
    let url = format!("http://{address}/");
    let mut command = world.run(&["--require"], &["curl", "-sS", "--max-time", "30", &url]);
    let fetched = command.env_remove("GTP_RUN_LOOPBACK").output().unwrap();
    assert_eq!((out(&fetched), said(&fetched)), ("plain".into(), "".into()));
    answering.join().unwrap();
    let nobody = format!("http://127.0.0.1:{}/", free_port());
    let mut command = world.run(&["--require"], &["curl", "-sS", &nobody]);
    let refused = command.env_remove("GTP_RUN_LOOPBACK").output().unwrap();
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
}

/// Says whether it has children that it did not start, and whether its pump is in its session.
const ASKS: &str = "
import os, socket, struct
try:
    print('child', os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print('no child')
pump = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
pump.connect(os.environ['GTP_RUN_SOCKET'])
peer = pump.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
pid, _, _ = struct.unpack('iii', peer)
print(os.getsid(pid) == os.getsid(0), os.getpgid(pid) == os.getpgid(0))
";

#[test]
fn a_pump_is_no_child_of_the_program_and_not_in_its_session() {
    let world = World::new();
    let ran = world.run(&[], &["python3", "-c", ASKS]).output().unwrap();
    assert_eq!(out(&ran), "no child\nFalse False", "{}", said(&ran));
}

#[test]
fn of_many_that_are_the_first_at_once_each_finds_the_pump() {
    let world = World::new();
    let start = |_| {
        let mut command = world.run(&[], &["true"]);
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = (0..6).map(start).collect();
    for one in all {
        let ended = one.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", said(&ended));
        assert_eq!(said(&ended), "");
    }
}

/// Sets options, connects, and says what has become of them.
const OPTIONS: &str = "
import socket, struct
peer = socket.socket()
ints = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 54321)]
time, linger = struct.pack('ll', 12, 0), struct.pack('ii', 1, 9)
for level, name, value in ints:
    peer.setsockopt(level, name, value)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
peer.connect(('127.0.0.1', PORT))
found = [peer.getsockopt(level, name) for level, name, _ in ints]
print(found, peer.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == time,
    peer.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8) == linger)
peer.sendall(b'x')
peer.recv(1)
";

#[test]
fn options_that_were_set_before_connecting_are_there_after() {
    let world = World::new();
    let (_server, port) = world.python(&[], ECHO);
    let script = OPTIONS.replace("PORT", &port);
    let ran = world.run(&["--require"], &["python3", "-c", &script]).output().unwrap();
    assert_eq!(out(&ran), "[1, 77, 108642] True True", "{}", said(&ran));
}

#[test]
fn a_pump_that_takes_nobody_in_holds_up_no_program_for_ever() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};
    let world = World::new();
    let path = world.dir.path().join("hangs.sock");
    let new = || socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new(&path).unwrap();
    let (hangs, waits) = (new(), new());
    bind(&hangs, &address).unwrap();
    listen(&hangs, 0).unwrap();
    connect(&waits, &address).unwrap(); // There is room for one.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", plain.local_addr().unwrap());
    let answering = serve_one(plain);
    let mut command = Command::new("timeout");
    command.args(["60", "env"]).arg(format!("LD_PRELOAD={}", preload().display()));
    command.arg(format!("GTP_RUN_SOCKET={}", path.display())).arg("GTP_RUN_LOOPBACK=1");
    let fetched = command.args(["curl", "-sS", &url]).output().unwrap();
    assert_eq!(out(&fetched), "plain", "{}", said(&fetched));
    assert!(said(&fetched).contains("the pump does not answer"), "{}", said(&fetched));
    answering.join().unwrap();
}

#[test]
fn a_pump_that_hangs_keeps_no_port_of_a_program_that_has_ended() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hangs.sock");
    let hangs = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&hangs, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&hangs, 8).unwrap();
    let script = "
import socket
print(socket.create_server(('127.0.0.1', 0)).getsockname()[1])
";
    let mut command = Command::new("timeout");
    command.args(["60", "env"]).arg(format!("LD_PRELOAD={}", preload().display()));
    command.arg(format!("GTP_RUN_SOCKET={}", path.display())).arg("GTP_RUN_LOOPBACK=1");
    // The program itself: what `python3` names may be a chain of scripts, each of which would wait.
    let names = ["-c", "import sys; print(sys.executable)"];
    let python = Command::new("python3").args(names).output().unwrap();
    let ran = command.args([&out(&python), "-c", script]).output().unwrap();
    assert!(said(&ran).contains("the pump does not answer"), "{}", said(&ran));
    let port: u16 = out(&ran).parse().unwrap();
    TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn a_pump_holds_open_nothing_of_whoever_started_it() {
    let world = World::new();
    let file = world.dir.path().join("held");
    let run = world.run(&[], &["true"]);
    let words = std::iter::once(run.get_program()).chain(run.get_args());
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 7>\"$0\"; flock 7; \"$@\""]).arg(&file).args(words);
    shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = shell.output().unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
    assert!(TcpStream::connect(("127.0.0.1", world.port)).is_ok(), "the pump is there");
    let file = std::fs::File::open(file).unwrap();
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked, Ok(()), "somebody has it open still");
}

#[test]
fn a_pump_is_never_beneath_a_ban_and_what_is_has_the_pump_above() {
    let world = World::new();
    let (above, beneath) = (world.dir.path().join("above"), world.dir.path().join("beneath"));
    let (above, beneath) = (above.to_str().unwrap(), beneath.to_str().unwrap());
    let gtp = env!("CARGO_BIN_EXE_gtp");
    let (_server, port) = world.python(&["--pump", above], ECHO);
    let asks = LATE.replace("PORT", &port).replace("sys.stdin.readline()", "");
    let words = [gtp, "run", "--require", "python3", "-c", &asks];
    let ran = world.run(&["--require", "--pump", above], &words).output().unwrap();
    assert_eq!(out(&ran), "begun\nb'x'", "{}", said(&ran));
    let words = [gtp, "run", "--pump", beneath, "--pump-listen", "127.0.0.1:0", "true"];
    let ran = world.run(&["--require", "--pump", above], &words).output().unwrap();
    assert!(said(&ran).contains("no pump can be started beneath"), "{}", said(&ran));
    assert!(!ran.status.success());
}

/// Says of a socket that is another's what a program says that listens on it, in words and with
/// sockets of its own that do not.
const LIES: &str = "
import array, os, socket
def ask(text, *sockets):
    pump = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pump.connect(os.environ['GTP_RUN_SOCKET'])
    fds = array.array('i', [one.fileno() for one in sockets])
    pump.sendmsg([text.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if sockets else [])
    return pump.recv(1000).decode()
at = ('127.0.0.1', PORT)
called = socket.socket()
called.connect(at)
bound = socket.socket()
bound.bind(('127.0.0.1', 0))
said = [ask('listen 127.0.0.1:PORT INODE both'), ask('listen'), ask('listen', called),
    ask('listen', bound), ask('listen', socket.socket())]
print([text for text in said if text.startswith('ok')])
";

#[test]
fn nobody_is_passed_on_to_a_socket_that_its_announcer_does_not_have() {
    let world = World::new();
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port().to_string();
    let inode = rustix::fs::fstat(&plain).unwrap().st_ino;
    let lies = LIES.replace("PORT", &port).replace("INODE", &inode.to_string());
    let ran = world.run(&[], &["python3", "-c", &lies]).output().unwrap();
    assert_eq!(out(&ran), "[]", "{}", said(&ran));
    plain.accept().unwrap(); // It was called over TCP.
    let asks = LATE.replace("PORT", &port).replace("sys.stdin.readline()", "");
    let ran = world.run(&["--require"], &["python3", "-c", &asks]).output().unwrap();
    assert!(said(&ran).contains("no program under gtp run listens"), "{}", said(&ran));
    plain.set_nonblocking(true).unwrap();
    assert!(plain.accept().is_err(), "the pump has called it");
}

/// The process that is the pump: its keeper's child.
fn pump_of(world: &World) -> rustix::process::Pid {
    let socket = world.dir.path().join("run").join("gtp").join("pump.sock");
    let keeper = gtp_share::Connection::open(&socket).unwrap().peer().pid;
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let pid = children.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

#[test]
fn a_pump_that_was_killed_is_there_again_and_knows_who_listens() {
    let world = World::new();
    let (_server, port) = world.python(&[], ECHO);
    let asks = LATE.replace("PORT", &port);
    let mut command = world.run(&["--require"], &["python3", "-u", "-c", &asks]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut waits = command.spawn().unwrap();
    let mut lines = BufReader::new(waits.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let first = pump_of(&world);
    rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
    // Nobody has run `gtp run` since.
    waits.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(lines.next().map(Result::unwrap), Some("b'x'".into()));
    assert!(waits.wait().unwrap().success());
    let second = pump_of(&world);
    assert_ne!(second, first);
    // One that is told to end does.
    rustix::process::kill_process(second, rustix::process::Signal::TERM).unwrap();
    let socket = world.dir.path().join("run").join("gtp").join("pump.sock");
    while gtp_share::Connection::open(&socket).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn a_keeper_holds_no_directory_and_told_to_end_ends_its_pump() {
    let world = World::new();
    let mut detaches = world.gtp();
    detaches.args(["pump", "--detach", "--pump", "run/gtp/pump.sock"]);
    detaches.env("GTP_CONFIG_DIR", "kept");
    assert!(detaches.current_dir(world.dir.path()).status().unwrap().success());
    let pump =
        rustix::process::pidfd_open(pump_of(&world), rustix::process::PidfdFlags::empty()).unwrap();
    let socket = world.dir.path().join("run").join("gtp").join("pump.sock");
    let keeper = gtp_share::Connection::open(&socket).unwrap().peer().pid;
    let cwd = std::fs::read_link(format!("/proc/{keeper}/cwd")).unwrap();
    assert_eq!(cwd, PathBuf::from("/"));
    assert!(world.dir.path().join("kept").is_dir(), "its key is where it was to be");
    let keeper = rustix::process::Pid::from_raw(keeper).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::TERM).unwrap();
    let mut ended = [rustix::event::PollFd::new(&pump, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut ended, None).unwrap();
    while gtp_share::Connection::open(&socket).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn a_program_of_another_version_is_told_so_by_the_pump() {
    let world = World::new();
    assert!(world.run(&[], &["true"]).status().unwrap().success());
    let socket = world.dir.path().join("run").join("gtp").join("pump.sock");
    let answered = |question: &[u8]| {
        let pump = gtp_share::Connection::open(&socket).unwrap();
        pump.send(question, &[]).unwrap();
        assert!(pump.wait(None).unwrap());
        let mut answer = vec![0; 1_024];
        match pump.receive(&mut answer).unwrap() {
            gtp_share::Incoming::Message(count, _) => {
                String::from_utf8(answer[..count].to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answered(b"v2 fallbacks"), "ok\n");
    for other in [&b"connect 10.0.0.2:80 weight=1"[..], b"v1 stay"] {
        let said = answered(other);
        assert!(said.starts_with("tcp ") && said.contains("end the pump"), "{said}");
    }
}

/// Connects, says so, and waits.
const WAITS: &str = "
import socket, sys
peer = socket.create_connection(('127.0.0.1', PORT))
print('there')
sys.stdin.readline()
";

#[test]
fn what_goes_over_tcp_in_place_of_gtp_is_listed_with_the_sessions() {
    let world = World::new();
    let listed = || {
        let listed = world.gtp().args(["sessions", "--json"]).output().unwrap();
        assert!(listed.status.success(), "{}", said(&listed));
        assert!(said(&listed).contains("No gtpd runs here"), "{}", said(&listed));
        serde_json::from_str::<serde_json::Value>(&out(&listed)).unwrap()
    };
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain.local_addr().unwrap().port().to_string();
    let waits = WAITS.replace("PORT", &port);
    let mut command = world.run(&[], &["python3", "-u", "-c", &waits]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut waits = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(waits.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "there");
    let (one, pid) = (listed(), waits.0.id().into());
    assert_eq!((one["over"].as_str(), one["open"].as_bool()), (Some("tcp"), Some(true)), "{one}");
    assert_eq!(one["to"], format!("127.0.0.1:{port}"), "{one}");
    assert_eq!((one["pid"].as_u64(), one["program"].as_str()), (Some(pid), Some("python3")));
    assert!(one["why"].as_str().unwrap().contains("no program under gtp run listens"), "{one}");
    drop(waits);
    assert_eq!(listed()["open"], false);
    let people = world.gtp().arg("sessions").output().unwrap();
    assert!(out(&people).contains("over TCP in place of GTP"), "{}", out(&people));
    let nobody = world.gtp().args(["sessions", "--pump", "/nowhere/pump.sock"]).output().unwrap();
    assert!(!nobody.status.success() && out(&nobody).is_empty(), "neither daemon nor pump");
}
