//! The clients of a churning server: what each does, and how it must end.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;

use super::World;

/// What is served: a name, and bytes.
const OBJECTS: [(&str, usize); 3] = [("small", 1), ("middle", 300_000), (LARGE, 8 << 20)];
const LARGE: &str = "large";
/// At which the large object is fetched: almost three minutes, so that many sessions are there at
/// a time and not only many processes that begin.
const SLOW: &str = "400kbit";
/// Files of the tree that is served.
const TREE: usize = 200;
/// Names under which clients put: many times as many as there are clients at a time, since one
/// that is stuck is there while many others come and go.
const INBOXES: usize = 4_096;
/// Names under which clients put that are killed; two that share one do no harm.
const KILLED: usize = 256;
/// An honest transfer takes no longer than this, or it counts as stuck: almost three times as long
/// as the slowest.
const LONGEST: Duration = Duration::from_secs(480);

/// One that is there.
pub(super) struct Client {
    number: usize,
    kind: Kind,
    began: Instant,
}

enum Kind {
    /// `gtp` in a process; what it fetches must be as what is served.
    Honest { child: Child, doing: Doing },
    /// `gtp` that is killed at its time.
    Killed { child: Child, at: Duration },
    /// Who connects, says something that means nothing, and holds the line for so long.
    Holds { _line: Option<TcpStream>, until: Duration },
}

/// What an honest client does.
enum Doing {
    Gets { object: String, into: PathBuf },
    Puts { object: &'static str, inbox: String },
}

/// Makes what is served.
pub(super) fn make_objects(directory: &Path) -> Result<()> {
    let served = directory.join("served");
    let mut rng = Rng::new(7);
    let mut bytes = |length: usize| -> Vec<u8> {
        std::iter::repeat_with(|| rng.next_u64().to_le_bytes()).flatten().take(length).collect()
    };
    for (name, length) in OBJECTS {
        std::fs::write(served.join(name), bytes(length))?;
    }
    std::fs::create_dir(served.join("tree"))?;
    for file in 0..TREE {
        std::fs::write(served.join("tree").join(format!("f{file}")), bytes(200 + file))?;
    }
    Ok(())
}

impl Client {
    /// The `number`-th client of a run.
    pub fn draw(world: &World, number: usize, rng: &mut Rng) -> Result<Client> {
        let kind = match rng.below(12) {
            0..=4 => gets(world, number, rng)?,
            5 | 6 => puts(world, number, rng)?,
            7 | 8 => killed(world, number, rng)?,
            9 | 10 => holds(world, rng)?,
            _ => babbles(world, rng)?,
        };
        Ok(Client { number, kind, began: Instant::now() })
    }

    /// Whether it has ended, or has to be ended.
    pub fn is_over(&mut self) -> bool {
        match &mut self.kind {
            Kind::Honest { child, .. } => {
                let ended = child.try_wait();
                !matches!(ended, Ok(None)) || self.began.elapsed() > LONGEST
            }
            Kind::Killed { at, .. } => self.began.elapsed() >= *at,
            Kind::Holds { until, .. } => self.began.elapsed() >= *until,
        }
    }

    /// Ends it; what it should have done and did not.
    pub fn verdict(mut self, world: &World) -> Result<Option<String>> {
        let place = world.place(&format!("client{}", self.number));
        let Kind::Honest { child, doing } = &mut self.kind else {
            // A client that is killed may leave what it had begun to fetch.
            drop(self);
            forget(&place)?;
            return Ok(None);
        };
        let what = match child.try_wait()? {
            None => Some("took too long".to_owned()),
            Some(status) if !status.success() => Some(status.to_string()),
            Some(_) => match doing {
                Doing::Gets { object, into } => differs(world, object, &into.join(&object))?,
                Doing::Puts { object, inbox } => {
                    differs(world, object, &world.place("served").join(inbox))?
                }
            },
        };
        child.kill()?;
        let mut words = String::new();
        if let Some(stderr) = &mut child.stderr {
            stderr.read_to_string(&mut words)?;
        }
        forget(&place)?;
        Ok(what.map(|what| format!("client {}: {what}: {}", self.number, words.trim())))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Honest { child, .. } | Kind::Killed { child, .. } => {
                // It may have ended.
                let _ = child.kill();
                let _ = child.wait();
            }
            Kind::Holds { .. } => {}
        }
    }
}

pub(super) fn url(world: &World, path: &str) -> String {
    format!("gtp://{}/{path}", world.server.address)
}

fn gets(world: &World, number: usize, rng: &mut Rng) -> Result<Kind> {
    let object = match rng.below(OBJECTS.len() as u64 + 1) as usize {
        tree if tree == OBJECTS.len() => "tree".to_owned(),
        file => OBJECTS[file].0.to_owned(),
    };
    let into = world.place(&format!("client{number}"));
    std::fs::create_dir(&into)?;
    let mut command = world.gtp(number);
    command.arg("get").arg(url(world, &object)).arg(into.join(&object));
    command
        .args(["--fingerprint", &world.server.fingerprint, "--daemon"])
        .arg(world.place("gtpd.sock"));
    if object == LARGE {
        command.args(["--max-rate", SLOW]);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    Ok(Kind::Honest { child, doing: Doing::Gets { object, into } })
}

fn put(world: &World, number: usize, object: &str, inbox: &str) -> Result<Child> {
    let mut command = world.gtp(number);
    command.arg("put").arg(world.place("served").join(object)).arg(url(world, inbox));
    command
        .args(["--fingerprint", &world.server.fingerprint, "--daemon"])
        .arg(world.place("gtpd.sock"));
    Ok(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
}

/// No two that are there at a time send under one name, and names come again, so that the disk
/// does not fill.
fn puts(world: &World, number: usize, rng: &mut Rng) -> Result<Kind> {
    let (object, _) = OBJECTS[rng.below(2) as usize];
    let inbox = format!("inbox-{}", number % INBOXES);
    let child = put(world, number, object, &inbox)?;
    Ok(Kind::Honest { child, doing: Doing::Puts { object, inbox } })
}

fn killed(world: &World, number: usize, rng: &mut Rng) -> Result<Kind> {
    let at = Duration::from_millis(rng.below(1_500));
    let child = if rng.below(2) == 0 {
        put(world, number, LARGE, &format!("killed-{}", number % KILLED))?
    } else {
        let into = world.place(&format!("client{number}"));
        std::fs::create_dir(&into)?;
        let mut command = world.gtp(number);
        command.arg("get").arg(url(world, LARGE)).arg(&into);
        command.args(["--fingerprint", &world.server.fingerprint, "--daemon", "off"]);
        command.args(["--max-rate", "20Mbit"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?
    };
    Ok(Kind::Killed { child, at })
}

fn holds(world: &World, rng: &mut Rng) -> Result<Kind> {
    let until = Duration::from_millis(rng.below(8_000));
    // A server that has enough of strangers may refuse.
    let mut line = TcpStream::connect(&world.server.address).ok();
    if let Some(line) = &mut line {
        let words: Vec<u8> = (0..rng.below(600)).map(|_| rng.next_u64() as u8).collect();
        let _ = line.write_all(&words);
    }
    Ok(Kind::Holds { _line: line, until })
}

fn babbles(world: &World, rng: &mut Rng) -> Result<Kind> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    for _ in 0..rng.below(2_000) {
        let words: Vec<u8> = (0..rng.below(1_400)).map(|_| rng.next_u64() as u8).collect();
        // A full buffer drops what the server would drop.
        let _ = socket.send_to(&words, &world.server.address);
    }
    Ok(Kind::Holds { _line: None, until: Duration::ZERO })
}

/// How what arrived at a place differs from the object that is served.
fn differs(world: &World, object: &str, arrived: &Path) -> Result<Option<String>> {
    let served = world.place("served").join(object);
    let same = |a: &Path, b: &Path| -> Result<bool> {
        Ok(std::fs::read(a)? == std::fs::read(b).with_context(|| b.display().to_string())?)
    };
    if !served.is_dir() {
        return Ok((!same(&served, arrived)?).then(|| format!("{object} has other content")));
    }
    let files = std::fs::read_dir(&served)?.collect::<Result<Vec<_>, _>>()?;
    ensure!(files.len() == TREE, "the tree that is served has changed");
    for file in files {
        if !same(&file.path(), &arrived.join(file.file_name()))? {
            return Ok(Some(format!("{} has other content", file.path().display())));
        }
    }
    Ok(None)
}

/// Removes a client's directory if it had one.
fn forget(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}
