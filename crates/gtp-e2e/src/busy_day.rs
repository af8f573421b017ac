//! A busy server under all that its operator does in a day, and how long transfers stand still.
//!
//! Twenty clients of five keys, each key with limits or a weight, move files over loopback while
//! the server is upgraded twice by the kernel's sockets, its settings and its list of keys change,
//! one key is revoked, and its daemon is killed and comes back. Every transfer of the other keys
//! must end well. Figures are the longest time in which nothing of one of them moved, and what its
//! operator did then, and the longest time without progress: that of a get counts whole blocks of
//! 256 KiB, each of which takes ten seconds where a machine without processors moves 0.2 Mbit/s.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::product::{Server, program, start_daemon};
use crate::running::Running;

/// Bytes of each file.
const SIZE: usize = 6_000_000;
const KEYS: usize = 5;
/// Gets and puts of each key.
const EACH: usize = 2;
/// The key that is revoked.
const REVOKED: usize = 4;
/// No transfer stands still for longer on a machine with nothing else to do.
const STANDS_MOST: f64 = 2.0;
/// Everything together may take so long.
const ENDS: Duration = Duration::from_secs(300);

const GROUPS: &str = include_str!("busy_day.toml");

/// Runs the case once.
///
/// # Errors
/// If a process cannot be started, or all together take too long.
pub fn run(tools: &Tools) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let operator = Operator::new(tools, directory.path())?;
    let daemon = operator.daemon()?;
    let mut server = operator.start()?;
    let mut day = Day::begin(&operator, &server)?;
    day.reach(1, "the beginning")?;
    operator.set("6Mbit")?;
    server.signal("HUP")?;
    day.reach(2, "hangup")?;
    server = operator.upgrade(server)?;
    day.reach(3, "first upgrade")?;
    operator.revoke()?;
    day.reach(4, "key revoked")?;
    drop(daemon);
    day.reach(5, "daemon gone")?;
    let _daemon = operator.daemon()?;
    day.reach(6, "daemon back")?;
    server = operator.upgrade(server)?;
    let row = day.end(&operator, "second upgrade")?;
    drop(server);
    Ok(row)
}

/// What outlives a server's process.
struct Operator<'a> {
    tools: &'a Tools,
    at: &'a Path,
    tcp: TcpListener,
    udp: UdpSocket,
    socket: PathBuf,
}

impl<'a> Operator<'a> {
    fn new(tools: &'a Tools, at: &'a Path) -> Result<Operator<'a>> {
        fs::create_dir(at.join("lab"))?;
        fs::create_dir(at.join("server"))?;
        let mut list = String::new();
        for key in 0..KEYS {
            let id = program(tools, &at.join(name(key)), "gtp").arg("id").output()?;
            ensure!(id.status.success(), "gtp id: {}", String::from_utf8_lossy(&id.stderr));
            let id = String::from_utf8(id.stdout)?;
            list += &format!("{} group=g{key} # {}\n", id.trim(), name(key));
        }
        fs::write(at.join("server/authorized_keys"), list)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind(tcp.local_addr()?)?;
        let operator = Operator { tools, at, tcp, udp, socket: at.join("gtpd.sock") };
        operator.set("8Mbit")?;
        Ok(operator)
    }

    /// Writes settings with this rate for each member of one group.
    fn set(&self, rate: &str) -> Result<()> {
        let lab = self.at.join("lab").display().to_string();
        let text = GROUPS.replace("LAB", &lab).replace("RATE", rate);
        Ok(fs::write(self.at.join("serve.toml"), text)?)
    }

    fn daemon(&self) -> Result<Running> {
        let capacities = ["--capacity-out", "48Mbit", "--capacity-in", "48Mbit"];
        start_daemon(self.tools, self.at, &self.socket, &capacities)
    }

    /// Starts a server on the sockets.
    fn start(&self) -> Result<Server> {
        let script =
            "exec 3<&0 4<&2 0</dev/null 2>>log; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\"";
        let gtp = program(self.tools, self.at, "gtp");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(gtp.get_program());
        command.args(["serve", "--json", "--drain", "60s", "--daemon"]).arg(&self.socket);
        command.current_dir(self.at).env("GTP_CONFIG_DIR", self.at.join("server"));
        command.env("GTP_CONFIG_FILE", self.at.join("serve.toml"));
        command.stdin(OwnedFd::from(self.tcp.try_clone()?));
        command.stderr(OwnedFd::from(self.udp.try_clone()?));
        Server::start_logged(command, self.at.join("log"))
    }

    /// Ends a server for the next one.
    fn upgrade(&self, server: Server) -> Result<Server> {
        server.signal("USR2")?;
        server.finish()?;
        self.start()
    }

    fn revoke(&self) -> Result<()> {
        let mut keys = program(self.tools, &self.at.join("server"), "gtp");
        let said = keys.args(["keys", "revoke", &name(REVOKED)]).output()?;
        ensure!(said.status.success(), "gtp keys: {}", String::from_utf8_lossy(&said.stderr));
        Ok(())
    }
}

fn name(key: usize) -> String {
    format!("key{key}")
}

/// What is heard of a transfer.
enum Heard {
    /// It has so many bytes, and so many of its packets have moved.
    Has { bytes: u64, wire_bytes: u64 },
    /// It says no more.
    Ended,
}

/// One transfer, as far as it is heard of.
struct Transfer {
    key: usize,
    what: String,
    child: Child,
    bytes: u64,
    /// How far it is.
    progress: Steps,
    /// What has moved for it.
    wire: Steps,
    is_over: bool,
}

/// A number that grows, and the longest time in which it did not, once it had begun to.
#[derive(Default)]
struct Steps {
    number: u64,
    grew: Option<Instant>,
    /// With what the operator had done then.
    stood: (Duration, &'static str),
}

impl Steps {
    fn hear(&mut self, when: Instant, number: u64, stage: &'static str) {
        if number <= self.number {
            return;
        }
        self.number = number;
        if let Some(before) = self.grew.replace(when) {
            let stood = when.saturating_duration_since(before);
            if stood > self.stood.0 {
                self.stood = (stood, stage);
            }
        }
    }
}

/// All transfers.
struct Day {
    transfers: Vec<Transfer>,
    heard: Receiver<(usize, Instant, Heard)>,
    /// What the operator did last.
    stage: &'static str,
    ends: Instant,
}

impl Day {
    /// Begins all transfers.
    fn begin(operator: &Operator<'_>, server: &Server) -> Result<Day> {
        let (tell, heard) = channel();
        let ends = Instant::now() + ENDS;
        let mut day = Day { transfers: Vec::new(), heard, stage: "beginning", ends };
        fs::write(operator.at.join("mine"), bytes(99))?;
        for key in 0..KEYS {
            for n in 0..EACH {
                let name = format!("get-{key}-{n}");
                fs::write(operator.at.join("lab").join(&name), bytes(n as u64))?;
                let url = format!("gtp://{}/lab/{name}", server.address);
                day.start((operator, server), key, &["get", &url, &name], &tell)?;
                let url = format!("gtp://{}/lab/put-{key}-{n}", server.address);
                day.start((operator, server), key, &["put", "mine", &url], &tell)?;
            }
        }
        Ok(day)
    }

    fn start(
        &mut self,
        (operator, server): (&Operator<'_>, &Server),
        key: usize,
        words: &[&str],
        tell: &Sender<(usize, Instant, Heard)>,
    ) -> Result<()> {
        let mut command = program(operator.tools, &operator.at.join(name(key)), "gtp");
        command.args(words).args(["--json", "--max-rate", "6Mbit", "--daemon", "off"]);
        command.args(["--fingerprint", &server.fingerprint, "--weight", &(key + 1).to_string()]);
        command.current_dir(operator.at).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("a client does not start")?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let (tell, at) = (tell.clone(), self.transfers.len());
        thread::spawn(move || {
            let events = lines.map_while(Result::ok);
            let events = events.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
            for event in events.filter(|event| event["event"] == "progress") {
                let number = |value: &Value| value.as_u64().unwrap_or(0);
                let wire_bytes = number(&event["sources"][0]["wire_bytes"]);
                let has = Heard::Has { bytes: number(&event["bytes"]), wire_bytes };
                // Who listened has given up.
                let _ = tell.send((at, Instant::now(), has));
            }
            let _ = tell.send((at, Instant::now(), Heard::Ended));
        });
        let what = format!("{} {}", name(key), words.join(" "));
        let (progress, wire) = (Steps::default(), Steps::default());
        self.transfers.push(Transfer {
            key,
            what,
            child,
            bytes: 0,
            progress,
            wire,
            is_over: false,
        });
        Ok(())
    }

    /// Waits until all transfers but those of the revoked key have so many eighths, or are over.
    fn reach(&mut self, eighths: usize, stage: &'static str) -> Result<()> {
        self.stage = stage;
        let least = (SIZE * eighths / 8) as u64;
        self.wait(|one| one.key == REVOKED || one.is_over || one.bytes >= least)
    }

    fn wait(&mut self, is_there: impl Fn(&Transfer) -> bool) -> Result<()> {
        while !self.transfers.iter().all(&is_there) {
            let left = self.ends.saturating_duration_since(Instant::now());
            let heard = self.heard.recv_timeout(left);
            let (at, when, heard) =
                heard.with_context(|| format!("not all got on after: {}", self.stage))?;
            self.transfers[at].hear(when, heard, self.stage);
        }
        Ok(())
    }

    /// Waits for all ends; what was to be seen.
    fn end(mut self, operator: &Operator<'_>, stage: &'static str) -> Result<Value> {
        self.stage = stage;
        self.wait(|one| one.is_over)?;
        let mut missed = Vec::new();
        for one in &mut self.transfers {
            let (code, due) = (one.child.wait()?.code(), if one.key == REVOKED { 7 } else { 0 });
            if code != Some(due) {
                missed.push(format!("{} ended with {code:?} and not {due}", one.what));
            }
        }
        for (key, n) in (0..REVOKED).flat_map(|key| (0..EACH).map(move |n| (key, n))) {
            let pairs = [(format!("get-{key}-{n}"), n as u64), (format!("lab/put-{key}-{n}"), 99)];
            for (path, seed) in pairs {
                if fs::read(operator.at.join(&path)).ok().is_none_or(|got| got != bytes(seed)) {
                    missed.push(format!("{path} is not what was sent"));
                }
            }
        }
        let others = || self.transfers.iter().filter(|one| one.key != REVOKED);
        let longest = |steps: fn(&Transfer) -> &Steps| {
            let one = others().max_by_key(|one| steps(one).stood.0);
            one.map(|one| (steps(one).stood.0.as_secs_f64(), one.what.clone(), steps(one).stood.1))
        };
        let nothing = (0.0, String::new(), "");
        let (silent, who, stage) = longest(|one| &one.wire).unwrap_or(nothing.clone());
        if silent > STANDS_MOST {
            missed.push(format!("nothing moved of {who} for {silent:.1} s after: {stage}"));
        }
        let (stood, _, _) = longest(|one| &one.progress).unwrap_or(nothing);
        Ok(json!({"case": "busy-day", "transfers": self.transfers.len(),
            "longest_silence_s": silent, "of": who, "after": stage,
            "longest_without_progress_s": stood, "missed": missed}))
    }
}

impl Transfer {
    fn hear(&mut self, when: Instant, heard: Heard, stage: &'static str) {
        match heard {
            Heard::Has { bytes, wire_bytes } => {
                self.bytes = self.bytes.max(bytes);
                self.progress.hear(when, bytes, stage);
                self.wire.hear(when, wire_bytes, stage);
            }
            Heard::Ended => self.is_over = true,
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The content of a file.
fn bytes(seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(SIZE).collect()
}
