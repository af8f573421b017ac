//! Real files for the demo: made quickly, hashed as they are made, and looked at again at the end.
//!
//! The content comes from a counter through a mixing function, so that no file system can leave
//! holes and no network can compress it. Sessions whose files are equally long share one file by
//! hard links, so that five sources need little more room than one. Everything lies in one
//! directory that vanishes with the value that names it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use gtp::{Failure, FailureKind, Value};

use super::plan::{Each, Plan, SESSIONS};

/// The name of the file of each session, at its source.
pub const SESSION_FILE: &str = "session.bin";

/// The name of the file that all sources have.
pub const LARGE_FILE: &str = "large.bin";

/// A directory for everything, removed when this is dropped.
#[derive(Debug)]
pub struct Workspace {
    dir: PathBuf,
}

/// What the files are, once they are made.
#[derive(Clone, Debug, Default)]
pub struct Hashes {
    /// Of the sessions' files.
    pub sessions: Each<Value>,
    /// Of the file that all sources have.
    pub large: Value,
}

/// How far the making is; shared with whoever waits.
#[derive(Debug, Default)]
pub struct Making {
    /// Bytes made so far.
    pub bytes: AtomicU64,
    /// Set when nobody wants them any more.
    pub stop: AtomicBool,
}

impl Workspace {
    /// A directory with room for so many bytes: in `TMPDIR` if that is set, else where large
    /// files of short life belong.
    ///
    /// # Errors
    /// When there is no room, or it cannot be made.
    pub fn new(bytes: u64) -> Result<Workspace, Failure> {
        let named = std::env::var_os("TMPDIR").map(PathBuf::from);
        let places = match named {
            Some(place) => vec![place],
            None => vec![PathBuf::from("/var/tmp"), std::env::temp_dir()],
        };
        let place = places.iter().find(|place| room(place) >= bytes).ok_or_else(|| {
            let text = format!(
                "the demo needs {:.1} GB of disk for a minute, and {} has {:.1}; name another \
                 place in TMPDIR",
                bytes as f64 / 1e9,
                places[0].display(),
                room(&places[0]) as f64 / 1e9,
            );
            Failure::new(FailureKind::Destination, text)
        })?;
        let made = tempfile::Builder::new().prefix("gtp-demo-").tempdir_in(place);
        let dir = made.map_err(|error| destination(place, &error))?.keep();
        Ok(Workspace { dir })
    }

    /// The directory that this source exports.
    pub fn export(&self, source: usize) -> PathBuf {
        self.dir.join(format!("source-{source}")).join("export")
    }

    /// Where this source keeps its key, and writes what it says.
    pub fn home(&self, source: usize) -> PathBuf {
        self.dir.join(format!("source-{source}")).join("home")
    }

    /// Where the sink keeps its key.
    pub fn sink_home(&self) -> PathBuf {
        self.dir.join("sink").join("home")
    }

    /// Where files arrive.
    pub fn arrived(&self, name: &str) -> PathBuf {
        self.dir.join("sink").join("arrived").join(name)
    }

    /// Makes all directories, and the files of this plan at their sources.
    ///
    /// # Errors
    /// What the system says; of kind `Interrupted` when told to stop.
    pub fn fill(&self, plan: &Plan, making: &Making) -> Result<Hashes, Failure> {
        let filled = self.try_fill(plan, making);
        filled.map_err(|error| destination(&self.dir, &error))
    }

    fn try_fill(&self, plan: &Plan, making: &Making) -> io::Result<Hashes> {
        for source in 0..SESSIONS {
            fs::create_dir_all(self.export(source))?;
            fs::create_dir_all(self.home(source))?;
        }
        fs::create_dir_all(self.sink_home())?;
        fs::create_dir_all(self.arrived(""))?;
        let mut hashes = Hashes::default();
        for session in 0..SESSIONS {
            let bytes = plan.file_bytes(session);
            let path = self.export(session).join(SESSION_FILE);
            let twin = (0..session).find(|&other| plan.file_bytes(other) == bytes);
            hashes.sessions[session] = match twin {
                Some(twin) => {
                    fs::hard_link(self.export(twin).join(SESSION_FILE), &path)?;
                    hashes.sessions[twin]
                }
                None => make(&path, bytes, session as u64, making)?,
            };
        }
        // The first session's file is as long as the large one is to be.
        let original = self.export(0).join(SESSION_FILE);
        for source in 0..SESSIONS {
            fs::hard_link(&original, self.export(source).join(LARGE_FILE))?;
        }
        hashes.large = hashes.sessions[0];
        Ok(hashes)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // A transfer that was interrupted may still put a last block down.
        for _ in 0..REMOVE_TRIES {
            match fs::remove_dir_all(&self.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    std::thread::sleep(REMOVE_PAUSE);
                }
                Ok(()) | Err(_) => return,
            }
        }
        tracing::warn!("{} could not be removed", self.dir.display());
    }
}

/// Reads a file again and says whether it has this hash, then removes it.
///
/// # Errors
/// What the system says.
pub fn verify_and_remove(path: &Path, hash: &Value) -> Result<bool, Failure> {
    let looked = hash_of(path).and_then(|found| fs::remove_file(path).map(|()| found));
    looked.map(|found| found == *hash).map_err(|error| destination(path, &error))
}

/// Bytes that this process may still write there; none if there is no such place.
fn room(place: &Path) -> u64 {
    let stat = rustix::fs::statvfs(place);
    stat.map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Makes a file and hashes it on the way.
fn make(path: &Path, bytes: u64, seed: u64, making: &Making) -> io::Result<Value> {
    let mut file = File::create_new(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    let mut counter = seed << 56;
    while left > 0 {
        if making.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        for word in piece.chunks_exact_mut(8) {
            counter += 1;
            word.copy_from_slice(&mixed(counter).to_le_bytes());
        }
        let length = left.min(PIECE as u64);
        let part = &piece[..length as usize];
        file.write_all(part)?;
        hasher.update(part);
        making.bytes.fetch_add(length, Ordering::Relaxed);
        left -= length;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(counter: u64) -> u64 {
    let mut z = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn hash_of(path: &Path) -> io::Result<Value> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(*hasher.finalize().as_bytes()),
            length => hasher.update(&piece[..length]),
        };
    }
}

fn destination(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::Destination, format!("{}: {error}", path.display()))
}

/// Bytes made, written and hashed at a time.
const PIECE: usize = 1 << 20;

/// How often the removal of everything is tried, and the pause between: five seconds in all.
const REMOVE_TRIES: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::Span;

    const TINY: Plan = Plan { step: Span::from_millis(5) };

    #[test]
    fn files_are_made_at_their_sources_and_vanish_with_the_workspace() {
        let workspace = Workspace::new(1).expect("a directory");
        let hashes = workspace.fill(&TINY, &Making::default()).expect("the files");
        for session in 0..SESSIONS {
            let path = workspace.export(session).join(SESSION_FILE);
            assert_eq!(path.metadata().expect("a file").len(), TINY.file_bytes(session));
            assert_eq!(hash_of(&path).expect("readable"), hashes.sessions[session]);
            let large = workspace.export(session).join(LARGE_FILE);
            assert_eq!(hash_of(&large).expect("readable"), hashes.large);
        }
        assert_ne!(hashes.sessions[0], hashes.sessions[1]);
        let place = workspace.dir.clone();
        drop(workspace);
        assert!(!place.exists());
    }

    #[test]
    fn a_file_that_differs_in_one_byte_does_not_verify() {
        let workspace = Workspace::new(1).expect("a directory");
        let hashes = workspace.fill(&TINY, &Making::default()).expect("the files");
        let (good, bad) = (workspace.arrived("good"), workspace.arrived("bad"));
        let mut content = fs::read(workspace.export(2).join(SESSION_FILE)).expect("readable");
        fs::write(&good, &content).expect("writable");
        *content.last_mut().expect("not empty") ^= 1;
        fs::write(&bad, &content).expect("writable");
        assert!(verify_and_remove(&good, &hashes.sessions[2]).expect("there"));
        assert!(!verify_and_remove(&bad, &hashes.sessions[2]).expect("there"));
        assert!(!good.exists() && !bad.exists());
    }

    #[test]
    fn the_making_stops_when_told_and_too_little_room_is_refused() {
        let workspace = Workspace::new(1).expect("a directory");
        let making = Making { stop: true.into(), ..Making::default() };
        assert!(workspace.fill(&TINY, &making).is_err());
        let refused = Workspace::new(u64::MAX).expect_err("no disk has this room");
        assert!(refused.text.contains("TMPDIR"), "{refused}");
    }
}
