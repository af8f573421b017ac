//! `gtp sync` and `gtp cp` through a login, of which the client, the far end or ssh is killed at a
//! random moment: the same command then completes the tree, and files that were complete stay.
//!
//! GTP_LONG=1 asks for 30 kills of each command instead of three; GTP_SEED=… repeats a run's
//! moments.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::dice::{Dice, seed, times};
use common::sshd::Sshd;
use common::{bytes, events, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The rate of a command that is to be killed: the whole tree then takes more than two seconds.
const RATE: &str = "80Mbit";

/// A latest moment for a kill, counted from the start of the command.
const LATEST_MS: u64 = 2_500;

/// Files of the tree, their sizes in bytes.
const FILES: u64 = 22;
const SIZE: u64 = 1 << 20;

/// What may be fetched twice for a kill: a block, and what comes in 50 ms.
const TWICE: u64 = 262_144 + 80_000_000 / 8 / 20;

/// Which process is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Client,
    FarEnd,
    Ssh,
}

/// A command, and where its destination is.
struct Way {
    words: [&'static str; 3],
    destination: PathBuf,
}

fn ways(far: &Sshd, verb: &'static str) -> [Way; 2] {
    [
        Way { words: [verb, "tree/", "far:there"], destination: far.home("there") },
        Way { words: [verb, "far:tree/", "here"], destination: far.world.path("here") },
    ]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The tree, at both ends.
fn plant(far: &Sshd, seed: u64) {
    for root in [far.world.path("tree"), far.home("tree")] {
        for number in 0..FILES {
            let path = root.join(format!("d{}/f{number}", number % 4));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes(SIZE as usize, seed ^ number)).unwrap();
        }
    }
}

/// What a tree holds: contents by their paths.
fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => dirs.push(path),
                false => {
                    let name = path.strip_prefix(root).unwrap().to_owned();
                    all.insert(name, std::fs::read(path).unwrap());
                }
            }
        }
    }
    all
}

/// The identity of a file: one that is written again has another.
fn identity(path: &Path) -> (u64, u64) {
    let about = path.metadata().unwrap();
    (about.dev(), about.ino())
}

/// A command under way, and where its ssh has left its process id.
struct Running {
    child: Child,
    ssh: PathBuf,
    /// All that it has said, once it has ended.
    said: Receiver<String>,
}

impl Running {
    fn start(far: &Sshd, way: &Way, more: &[&str]) -> Running {
        let ssh = far.world.path("ssh.pid");
        // It may be there from an earlier command.
        let _ = std::fs::remove_file(&ssh);
        let conf = far.world.path("ssh.conf");
        let script = format!("echo $$ > {}; exec ssh -F {} \"$@\"", ssh.display(), conf.display());
        let words = [&[way.words[1], way.words[2], "--json"], more].concat();
        let mut command = far.gtp(way.words[0], &words);
        command.env("GTP_SSH", far.instead(&script));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut out, (tell, said)) = (child.stdout.take().unwrap(), channel());
        std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            // The test may have failed meanwhile and have stopped listening.
            let _ = tell.send(text);
        });
        Running { child, ssh, said }
    }

    /// Kills this process, if it is there; whether it was.
    fn kill(&mut self, far: &Sshd, victim: Victim) -> bool {
        let id = match victim {
            Victim::Client => i32::try_from(self.child.id()).ok(),
            Victim::FarEnd => far.far_end_ids().first().copied(),
            Victim::Ssh => {
                std::fs::read_to_string(&self.ssh).ok().and_then(|id| id.trim().parse().ok())
            }
        };
        let has_ended = self.child.try_wait().unwrap().is_some();
        let id = id.filter(|_| !has_ended).and_then(Pid::from_raw);
        id.is_some_and(|id| kill_process(id, Signal::KILL).is_ok())
    }

    /// Waits until the command and its far end are gone; how it ended, and what it has said.
    fn end(self, far: &Sshd) -> (Output, String) {
        let said = self.said.recv_timeout(Duration::from_secs(30)).expect("the command ends");
        wait_for("the end of the far end", || far.far_ends() == 0);
        (self.child.wait_with_output().unwrap(), said)
    }
}

/// Bytes that were there when a killed command spoke last. It may have been killed in a line.
fn were_there(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let progress = lines.rfind(|event| event["event"] == "progress");
    progress.map_or(0, |event| event["bytes"].as_u64().unwrap())
}

/// Runs the command again, to its end; bytes of packets with data that this took.
fn complete(far: &Sshd, way: &Way) -> u64 {
    let mut command: Command = far.gtp(way.words[0], &[way.words[1], way.words[2], "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{:?}: {}", way.words, said(&output));
    let done = events(&output).into_iter().find(|event| event["event"] == "done");
    done.map_or(0, |done| done["received_bytes"].as_u64().unwrap())
}

/// Kills a command at a moment and completes it; whether anybody was there to be killed.
fn try_once(far: &Sshd, way: &Way, victim: Victim, moment: Duration) -> bool {
    if way.destination.exists() {
        std::fs::remove_dir_all(&way.destination).unwrap();
    }
    let mut running = Running::start(far, way, &["--max-rate", RATE]);
    let ended = running.said.recv_timeout(moment);
    let was_there = ended.is_err() && running.kill(far, victim);
    let (output, lines) = match ended {
        Ok(lines) => (running.child.wait_with_output().unwrap(), lines),
        Err(_) => running.end(far),
    };
    assert!(!said(&output).contains("panicked"), "{}", said(&output));
    let whole = content(&far.home("tree"));
    let before = content(&way.destination);
    let kept = before.iter().filter(|(path, content)| whole.get(*path) == Some(*content));
    let kept: Vec<&PathBuf> = kept.map(|(path, _)| path).collect();
    let of = |path: &PathBuf| identity(&way.destination.join(path));
    let identities: Vec<(u64, u64)> = kept.iter().map(|path| of(path)).collect();
    let took = complete(far, way);
    let there = were_there(&lines);
    println!(
        "{:?}, {victim:?} after {moment:?}: code {:?}, {there} bytes and {} of {FILES} whole files \
         were there, then {took} bytes came",
        way.words,
        output.status.code(),
        kept.len()
    );
    assert!(content(&way.destination) == whole, "all is there, and nothing else");
    let now: Vec<(u64, u64)> = kept.iter().map(|path| of(path)).collect();
    assert_eq!(now, identities, "what was complete is not written again");
    let missing = FILES * SIZE - there.max(kept.len() as u64 * SIZE);
    // Packets have headers of a twentieth, and a few are sent twice.
    assert!(took <= (missing + TWICE) * 110 / 100, "{took} bytes for {missing}");
    was_there
}

/// Many small files, in their `version`, that have not just changed.
fn plant_small(root: &Path, version: u64) {
    for number in 0..SMALL_FILES {
        let path = root.join(format!("d{}/f{number}", number % 7));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The first half of each stays, so that patches are sent.
        let content = [bytes(2_048, number), bytes(2_048, number ^ version << 32)].concat();
        std::fs::write(&path, content).unwrap();
        let past = std::time::UNIX_EPOCH + Duration::from_secs(1_100_000_000 + version);
        std::fs::File::open(path).unwrap().set_modified(past).unwrap();
    }
}

const SMALL_FILES: u64 = 400;

/// The latest moment at which a command that moves them is killed.
const SMALL_LATEST_MS: u64 = 1_000;

/// Kills a sync of small files, which travel in steps, and completes it. Whether the kill came
/// after the first and before the last of them.
fn try_small_once(far: &Sshd, (way, source): (&Way, &Path), kill: (Victim, Duration)) -> bool {
    let (victim, moment) = kill;
    let (old, new) = (content(&way.destination), content(source));
    let mut running = Running::start(far, way, &[]);
    let ended = running.said.recv_timeout(moment);
    let was_there = ended.is_err() && running.kill(far, victim);
    let output = match ended {
        Ok(_) => running.child.wait_with_output().unwrap(),
        Err(_) => running.end(far).0,
    };
    assert!(!said(&output).contains("panicked"), "{}", said(&output));
    let there = content(&way.destination);
    let mut changed = 0;
    for (path, content) in &new {
        let now = there.get(path).expect("no file is missing for a moment");
        changed += usize::from(now == content);
        assert!(now == content || now == &old[path], "{} is a mixture", path.display());
    }
    println!("{:?}, {victim:?} after {moment:?}: {changed} of {SMALL_FILES}", way.words);
    complete(far, way);
    assert!(content(&way.destination) == new, "all is there, and nothing else");
    was_there && (1..new.len()).contains(&changed)
}

#[test]
fn of_small_files_of_which_any_part_is_killed_each_is_old_or_new_and_the_sync_is_completed() {
    let kills = times(60, 6);
    let seed = seed();
    println!("GTP_SEED={seed}, {kills} kills");
    let mut dice = Dice(seed);
    let far = Sshd::with_gtp();
    let sources = [far.world.path("tree"), far.home("tree")];
    let ways = ways(&far, "sync");
    for (way, source) in ways.iter().zip(&sources) {
        plant_small(source, 0);
        complete(&far, way);
    }
    let mut amid = 0;
    for number in 0..kills {
        let victim = [Victim::Client, Victim::FarEnd, Victim::Ssh][number % 3];
        let one = dice.below(2) as usize;
        plant_small(&sources[one], 1 + number as u64);
        let moment = Duration::from_millis(dice.below(SMALL_LATEST_MS));
        amid += usize::from(try_small_once(&far, (&ways[one], &sources[one]), (victim, moment)));
    }
    println!("{amid} of {kills} kills came amid the steps");
}

fn kill_again_and_again(verb: &'static str) {
    let kills = times(30, 3);
    let seed = seed();
    println!("GTP_SEED={seed}, {kills} kills");
    let mut dice = Dice(seed);
    let far = Sshd::with_gtp();
    plant(&far, seed);
    let ways = ways(&far, verb);
    let mut met = 0;
    for number in 0..kills {
        let victim = [Victim::Client, Victim::FarEnd, Victim::Ssh][number % 3];
        let way = &ways[dice.below(2) as usize];
        let moment = Duration::from_millis(dice.below(LATEST_MS));
        met += usize::from(try_once(&far, way, victim, moment));
    }
    assert!(met > 0, "nobody was there to be killed: GTP_SEED={seed}");
}

#[test]
fn a_sync_of_which_any_part_is_killed_at_any_moment_is_completed_and_moves_no_whole_file_twice() {
    kill_again_and_again("sync");
}

#[test]
fn a_cp_of_which_any_part_is_killed_at_any_moment_is_completed_and_moves_no_whole_file_twice() {
    kill_again_and_again("cp");
}
