//! Readers of both standard streams that go away, or stand still.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{World, wait_for};
use rustix::process::{Pid, Signal, kill_process};

/// The writing end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs a command with an unread standard output; its exit code, and what it says of it.
fn run_unread(mut command: Command) -> (Option<i32>, String) {
    let output = command.stdout(unread()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn results_that_nobody_reads_are_no_failure() {
    let world = World::new();
    world.export("a", 10);
    world.export("b", 10);
    let server = world.serve("server", &["--public"]);
    let url = server.url("");
    let manual = world.path("man").display().to_string();
    let commands: [&[&str]; 10] = [
        &["ls", &url, "--accept-new"],
        &["ls", &url, "--json", "--accept-new"],
        &["config"],
        &["config", "--json"],
        &["id"],
        &["id", "--json"],
        &["completions", "bash"],
        &["man", &manual],
        &["--help"],
        &["--version"],
    ];
    for args in commands {
        let (code, said) = run_unread(world.gtp("client", args));
        assert_eq!((code, said.as_str()), (Some(0), ""), "gtp {args:?}");
    }
}

#[test]
fn a_result_that_cannot_be_written_is_a_failure_that_says_so() {
    let world = World::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["id"][..], &["config"], &["config", "--json"], &["completions", "zsh"]] {
        let output = world.gtp("client", args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "gtp {args:?}: {said}");
        assert!(said.starts_with("gtp: standard output: No space left"), "gtp {args:?}: {said}");
    }
}

#[test]
fn a_failure_that_nobody_reads_of_keeps_its_exit_code() {
    let world = World::new();
    let refused = "gtp://127.0.0.1:1/x";
    let cases: [(&[&str], i32); 5] = [
        (&["serve", "missing"], 3),
        (&["get", "http://x/", "."], 2),
        (&["frobnicate"], 2),
        (&["get", refused, ".", "--retry-for", "1ms", "--json"], 5),
        (&["ls", refused], 5),
    ];
    for (args, code) in cases {
        let mut command = world.gtp("client", args);
        let status = command.env("GTP_LOG", "trace").stdout(unread()).stderr(unread()).status();
        assert_eq!(status.unwrap().code(), Some(code), "gtp {args:?}");
    }
}

#[test]
fn a_daemon_whose_diagnostics_nobody_reads_ends_as_it_would() {
    let world = World::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gtpd"));
    command.env_clear().env("GTP_LOG", "trace").arg("--socket").arg(world.path("gtpd.sock"));
    command.args(["--exit-when-idle", "10ms", "--web", "127.0.0.1:0"]);
    command.stdin(Stdio::null()).stderr(unread());
    assert_eq!(command.status().unwrap().code(), Some(0));
}

#[test]
fn a_transfer_goes_on_when_nobody_reads_of_it() {
    let world = World::new();
    let content = world.export("file", 3_000_000);
    let server = world.serve("server", &["--public"]);
    let url = server.url("file");
    for (name, more) in [("json", "--json"), ("lines", "--progress=always")] {
        let mut get = world.gtp("client", &["get", &url, name, "--accept-new", more]);
        let status = get.env("GTP_LOG", "trace").stdout(unread()).stderr(unread()).status();
        assert_eq!(status.unwrap().code(), Some(0), "{more}");
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
    // The data themselves are another matter.
    let (code, said) = run_unread(world.gtp("client", &["get", &url, "-", "--accept-new"]));
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("standard output") && said.lines().count() == 1, "{said}");
}

/// A server that is killed at the end.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // It may have ended, which the test has then said.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_serves_on_when_nobody_reads_of_it() {
    let world = World::new();
    let content = world.export("file", 100_000);
    let args = ["serve", "export", "--public", "--json", "--listen", "127.0.0.1:0"];
    let mut command = world.gtp("server", &args);
    command.env("GTP_LOG", "trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Reaped(command.spawn().unwrap());
    let mut first = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    drop(server.0.stderr.take());
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let url = format!("gtp://{}/file", first["addr"].as_str().unwrap());
    for name in ["one", "two"] {
        world.expect(0, &["get", &url, name, "--accept-new"]);
        assert_eq!(std::fs::read(world.path(name)).unwrap(), content);
    }
    assert!(server.0.try_wait().unwrap().is_none(), "it ended");
}

/// A server with both streams piped; where it listens.
fn piped_server(
    world: &World,
    log: &str,
) -> (Reaped, BufReader<std::process::ChildStdout>, String) {
    let args = ["serve", "export", "--public", "--json", "--listen", "127.0.0.1:0"];
    let mut command = world.gtp("server", &args);
    command.env("GTP_LOG", log).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Reaped(command.spawn().unwrap());
    let mut out = BufReader::new(server.0.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    (server, out, first["addr"].as_str().unwrap().to_owned())
}

fn signal(server: &Reaped, signal: Signal) {
    kill_process(Pid::from_child(&server.0), signal).unwrap();
}

/// Sends what is no TLS, and waits for the end of the connection.
fn send_garbage(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may have had enough of it already.
    let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
    let _ = stream.read_to_end(&mut Vec::new());
}

/// What the lines of a server's process hold in memory, in bytes.
fn resident(server: &Reaped) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1_024
}

#[test]
fn a_server_whose_readers_stand_still_serves_on_in_bounded_memory_and_ends_when_told_to() {
    let world = World::new();
    let content = world.export("file", 100_000);
    // Nobody reads either stream any more: both pipes are full soon.
    let (mut server, _out, address) = piped_server(&world, "trace");
    for _ in 0..1_000 {
        send_garbage(&address);
    }
    let before = resident(&server);
    for _ in 0..3_000 {
        send_garbage(&address);
    }
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 4 << 20, "grown by {grown} bytes");
    let url = format!("gtp://{address}/file");
    world.expect(0, &["get", &url, "one", "--accept-new"]);
    assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
    signal(&server, Signal::TERM);
    wait_for("the server's end", || server.0.try_wait().unwrap().is_some());
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn a_flood_of_garbage_writes_a_few_lines_and_says_how_many_it_left_out() {
    let world = World::new();
    let (mut server, mut out, address) = piped_server(&world, "warn");
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    let begun = std::time::Instant::now();
    for _ in 0..2_000 {
        send_garbage(&address);
    }
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    let (mut lines, mut told, mut left_out) = (0, 0, 0);
    while told + left_out < 2_000 {
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        lines += 1;
        match line.split_once("left out here: ") {
            Some((_, rest)) => left_out += rest.split(' ').next().unwrap().parse::<u64>().unwrap(),
            None => told += u64::from(line.contains("refused")),
        }
    }
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(lines <= 10 * seconds + 10, "{lines} lines in {seconds} s");
}

#[test]
fn a_hangup_does_not_end_a_server() {
    let world = World::new();
    let content = world.export("file", 1_000);
    let (mut server, _out, address) = piped_server(&world, "warn");
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    for _ in 0..2 {
        signal(&server, Signal::HUP);
        let mut line = String::new();
        while !line.contains("reload:") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0, "the server has ended");
        }
    }
    let url = format!("gtp://{address}/file");
    world.expect(0, &["get", &url, "one", "--accept-new"]);
    assert_eq!(std::fs::read(world.path("one")).unwrap(), content);
    signal(&server, Signal::TERM);
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn a_trace_that_cannot_be_written_is_told_and_makes_the_command_fail_at_its_end() {
    let world = World::new();
    let content = world.export("a", 300_000);
    let server = world.serve("server", &["--public"]);
    let args = ["get", &server.url("a"), "out", "--accept-new", "--trace", "/dev/full"];
    let output = world.expect(4, &args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/dev/full: No space left"), "{said}");
    assert!(std::fs::read(world.path("out")).unwrap() == content);
}

#[test]
fn data_for_a_standard_output_that_is_full_are_said_to_be_lost_there() {
    let world = World::new();
    world.export("a", 300_000);
    let server = world.serve("server", &["--public"]);
    let mut get = world.gtp("client", &["get", &server.url("a"), "-", "--accept-new"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = get.stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("standard output: no space left"), "{said}");
}
