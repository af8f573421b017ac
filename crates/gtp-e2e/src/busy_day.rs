//! A busy server under all that its operator does in a day, and how long transfers stand still.
//!
//! Twenty clients of five keys, each key with limits or a weight, move files over loopback while
//! the server is upgraded twice by the kernel's sockets, its settings and its list of keys change,
//! one key is revoked, and its daemon is killed and comes back. Every transfer of the other keys
//! must end well. Figures are the longest time in which nothing of one of them moved, and the
//! longest without progress, each with what its operator did then and what the client said
//! meanwhile: attempts, the way, the daemon, and what was granted and by what it was limited. The
//! progress of a get counts whole blocks of 256 KiB, each of which takes ten seconds where a
//! machine without processors moves 0.2 Mbit/s.

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

/// What is kept of what a client says between two steps.
const SAID_MOST: usize = 40;

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
    /// It has so many bytes, and so many of its packets have moved; what it says of its session.
    Has { bytes: u64, wire_bytes: u64, says: String },
    /// It says something else.
    Says(String),
    /// It says no more.
    Ended,
}

impl Heard {
    /// What a line of a client's says.
    fn of(event: &Value) -> Option<Heard> {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let source = &event["sources"][0];
        match event["event"].as_str()? {
            "progress" => Some(Heard::Has {
                bytes: number(&event["bytes"]),
                wire_bytes: number(&source["wire_bytes"]),
                says: format!(
                    "alive {}, by {}, granted {}, limited by {}, path {}",
                    source["alive"],
                    source["carrier"],
                    source["granted"],
                    source["limited_by"],
                    source["path"]["state"]
                ),
            }),
            "retry" | "carrier" | "daemon" | "warning" => {
                let words = ["standing", "after", "message"].map(|field| match &event[field] {
                    Value::Null => String::new(),
                    value => format!(" {value}"),
                });
                Some(Heard::Says(format!("{}{}", event["event"], words.concat())))
            }
            _ => None,
        }
    }
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
    /// What was said since, each with the seconds that had passed; nothing twice in a row.
    said: Vec<(f64, String)>,
    stood: Stood,
}

/// A time without steps.
#[derive(Clone, Default)]
struct Stood {
    time: Duration,
    /// What the operator had done last when it ended.
    stage: &'static str,
    said: Vec<(f64, String)>,
}

impl Steps {
    fn hear(&mut self, when: Instant, number: u64, stage: &'static str) {
        if number <= self.number {
            return;
        }
        self.number = number;
        let said = std::mem::take(&mut self.said);
        if let Some(before) = self.grew.replace(when) {
            let time = when.saturating_duration_since(before);
            if time > self.stood.time {
                self.stood = Stood { time, stage, said };
            }
        }
    }

    /// Something is said between two steps.
    fn note(&mut self, when: Instant, words: &str) {
        let Some(grew) = self.grew else { return };
        let is_new = self.said.last().is_none_or(|(_, last)| last != words);
        if is_new && self.said.len() < SAID_MOST {
            let seconds = when.saturating_duration_since(grew).as_secs_f64();
            self.said.push((seconds, words.to_owned()));
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
            for heard in events.filter_map(|event| Heard::of(&event)) {
                // Who listened has given up.
                let _ = tell.send((at, Instant::now(), heard));
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
            let one = others().max_by_key(|one| steps(one).stood.time);
            one.map(|one| (one.what.clone(), steps(one).stood.clone())).unwrap_or_default()
        };
        let (who, silent) = longest(|one| &one.wire);
        let (stood_who, stood) = longest(|one| &one.progress);
        let seconds = silent.time.as_secs_f64();
        if seconds > STANDS_MOST {
            let stage = silent.stage;
            missed.push(format!("nothing moved of {who} for {seconds:.1} s after: {stage}"));
        }
        Ok(json!({"case": "busy-day", "transfers": self.transfers.len(),
            "longest_silence_s": seconds, "of": who, "after": silent.stage,
            "said_meanwhile": silent.said,
            "longest_without_progress_s": stood.time.as_secs_f64(), "without_progress": stood_who,
            "without_progress_after": stood.stage, "said_without_progress": stood.said,
            "missed": missed}))
    }
}

impl Transfer {
    fn hear(&mut self, when: Instant, heard: Heard, stage: &'static str) {
        match heard {
            Heard::Has { bytes, wire_bytes, says } => {
                self.bytes = self.bytes.max(bytes);
                self.progress.hear(when, bytes, stage);
                self.wire.hear(when, wire_bytes, stage);
                self.note(when, &says);
            }
            Heard::Says(words) => self.note(when, &words),
            Heard::Ended => self.is_over = true,
        }
    }

    fn note(&mut self, when: Instant, words: &str) {
        self.progress.note(when, words);
        self.wire.note(when, words);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_step_comes_with_what_was_said_in_it() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut steps = Steps::default();
        steps.note(at(0), "before the first step");
        for (seconds, number) in [(1, 10), (2, 20)] {
            steps.hear(at(seconds), number, "beginning");
            steps.note(at(seconds), "moves");
        }
        for (seconds, words) in [(4, "retry"), (5, "retry"), (9, "alive")] {
            steps.hear(at(seconds), 20, "upgrade");
            steps.note(at(seconds), words);
        }
        steps.hear(at(40), 30, "upgrade");
        steps.note(at(41), "moves");
        steps.hear(at(42), 40, "upgrade");
        let Stood { time, stage, said } = steps.stood;
        assert_eq!((time, stage), (Duration::from_secs(38), "upgrade"));
        let said: Vec<(f64, &str)> = said.iter().map(|(s, words)| (*s, &words[..])).collect();
        assert_eq!(said, [(0.0, "moves"), (2.0, "retry"), (7.0, "alive")]);
    }

    #[test]
    fn lines_of_clients_say_what_they_have_and_why_they_wait() {
        let of = |text: &str| Heard::of(&serde_json::from_str(text).unwrap());
        let progress =
            r#"{"event":"progress","bytes":5,"sources":[{"wire_bytes":7,"alive":true}]}"#;
        assert!(matches!(of(progress), Some(Heard::Has { bytes: 5, wire_bytes: 7, .. })));
        let retry = of(r#"{"event":"retry","after":0.25,"message":"the server stops"}"#);
        let Some(Heard::Says(words)) = retry else { panic!("nothing") };
        assert_eq!(words, r#""retry" 0.25 "the server stops""#);
        assert!(of(r#"{"event":"started"}"#).is_none());
    }
}
