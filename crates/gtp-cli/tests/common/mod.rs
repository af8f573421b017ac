//! A server and its clients as processes, in a directory of their own, over loopback.
#![allow(dead_code)]

pub mod dice;
pub mod hosts;
pub mod ports;
pub mod relay;
pub mod sshd;
pub mod trees;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A directory with an export, and places for the configuration of both ends.
pub struct World {
    dir: TempDir,
}

/// A running `gtp serve`.
pub struct Serving {
    child: Child,
    pub port: u16,
    pub fingerprint: String,
}

impl World {
    pub fn new() -> World {
        let world = World { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(world.path("export")).unwrap();
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the export and returns its content.
    pub fn export(&self, name: &str, size: usize) -> Vec<u8> {
        let content = bytes(size, name.len() as u64 + size as u64);
        let path = self.path("export").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &content).unwrap();
        content
    }

    /// The command, with the configuration directory of this end and nothing else set.
    pub fn gtp(&self, end: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gtp"));
        command.env_clear().env("GTP_CONFIG_DIR", self.path(end)).current_dir(self.dir.path());
        command.args(args).stdin(Stdio::null());
        command
    }

    pub fn run(&self, end: &str, args: &[&str]) -> Output {
        self.gtp(end, args).output().unwrap()
    }

    /// Puts the client on the list of the server.
    #[track_caller]
    pub fn list_client(&self) {
        let id = self.expect(0, &["id"]);
        std::fs::create_dir_all(self.path("server")).unwrap();
        std::fs::write(self.path("server/authorized_keys"), id.stdout).unwrap();
    }

    /// Runs the client's command and expects an exit code.
    #[track_caller]
    pub fn expect(&self, code: i32, args: &[&str]) -> Output {
        let output = self.run("client", args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "gtp {args:?}: {said}");
        output
    }

    pub fn serve(&self, end: &str, args: &[&str]) -> Serving {
        self.serve_dir(end, "export", args)
    }

    pub fn serve_dir(&self, end: &str, dir: &str, args: &[&str]) -> Serving {
        let mut command = self.gtp(end, &["serve", dir, "--json"]);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(args);
        Serving::start(command)
    }
}

/// The page of numbers at a loopback port, as a program asks for it, if somebody serves there.
pub fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A server that lets this world's client write, and that the client knows.
pub fn writable(world: &World, args: &[&str]) -> Serving {
    world.list_client();
    let server = world.serve("server", &[&["--writable"], args].concat());
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    server
}

impl Serving {
    /// Starts a server with `--json` and waits until it listens.
    pub fn start(command: Command) -> Serving {
        Serving::start_after(command)
    }

    /// The same for one that another program becomes after it has said something.
    pub fn start_after(mut command: Command) -> Serving {
        command.stderr(Stdio::null());
        Serving::listening(command)
    }

    /// Starts a server with `--json` whose log is kept in a file.
    pub fn start_logged(mut command: Command, log: &Path) -> Serving {
        command.stderr(std::fs::File::create(log).unwrap());
        Serving::listening(command)
    }

    /// Starts a server with `--json`, and waits until it listens.
    pub fn listening(mut command: Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !first.starts_with('{') {
            first.clear();
            assert!(out.read_line(&mut first).unwrap() > 0, "it ended before it listened");
        }
        // Keeps the pipe open, and empty.
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let first: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(first["event"], "listening");
        let port = first["addr"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
        let fingerprint = first["fingerprint"].as_str().unwrap().to_owned();
        Serving { child, port, fingerprint }
    }

    pub fn url(&self, path: &str) -> String {
        format!("gtp://127.0.0.1:{}/{path}", self.port)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends; its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether this is root. Where root is required, to be somebody else is a failure.
pub fn require_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(std::env::var("GTP_REQUIRE_ROOT").as_deref() != Ok("1"), "this test needs root");
        eprintln!("skipped: needs root");
    }
    root
}

/// Bytes that do not repeat.
pub fn bytes(size: usize, seed: u64) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    let mut content = vec![0; size];
    hasher.finalize_xof().fill(&mut content);
    content
}

/// The JSON lines of a command.
pub fn events(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The same command where `/proc` is not mounted; root may arrange that.
pub fn without_proc(command: &Command) -> Command {
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""]);
    hidden.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => hidden.env(name, value),
            None => hidden.env_remove(name),
        };
    }
    hidden
}

/// How many warnings of a command's JSON lines have these words.
pub fn warnings(output: &Output, words: &str) -> usize {
    let says = |event: &&Value| {
        event["event"] == "warning" && event["message"].as_str().is_some_and(|m| m.contains(words))
    };
    events(output).iter().filter(says).count()
}

/// Waits until something holds, for half a minute.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// Size of a file, 0 if it is not there.
pub fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Passes TCP on to a port and answers no datagram: a firewall that blocks UDP.
pub fn tcp_only(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    pass_tcp(listener, to);
    port
}

/// Passes on what comes to a listener to a port over IPv4.
pub fn pass_tcp(listener: TcpListener, to: u16) {
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { return };
            for (from, into) in [(&near, &far), (&far, &near)] {
                let (from, into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                std::thread::spawn(move || pass(from, into));
            }
        }
    });
}

fn pass(mut from: TcpStream, mut into: TcpStream) {
    let mut buffer = [0; 16_384];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if into.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
    let _ = into.shutdown(std::net::Shutdown::Write);
}
