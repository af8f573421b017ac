//! Copies that go through this machine: between a login and a server, from one server to another,
//! and from sources of several kinds.
//!
//! The two ends know nothing of each other and trust this one only. So everything is fetched first,
//! into a directory of this command's own, and then sent on as any local files are. The directory
//! is named after the command's words: repeated after an interruption, the command finds there what
//! it has fetched. It goes when all has been sent.

use std::fs::DirBuilder;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gtp::{Failure, FailureKind};

use super::operand::{Operand, Remote};
use super::{Copy, Sources, To, paths};
use crate::output::aside;

impl Copy<'_> {
    /// Fetches what is elsewhere, and sends it on with what is here.
    pub(super) async fn through(&mut self, from: Vec<Operand>, to: Operand) -> Result<(), Failure> {
        let stage = Stage::of(&self.args.words)?;
        aside(format_args!(
            "gtp: the data go through here, where they need space in {} until all are sent",
            gtp_text::of_text(&stage.dir.to_string_lossy())
        ));
        let before = std::mem::take(self.ends);
        let mut local = Vec::new();
        for (number, operand) in from.into_iter().enumerate() {
            local.extend(match operand {
                Operand::Local(path) => vec![path],
                Operand::Remote(Remote { login, path }) => {
                    let is_content = paths::is_content(&path);
                    let dir = stage.room(number)?;
                    let sources = Sources { login, paths: vec![path] };
                    self.bring_all(vec![sources], &To::Here(&slashed(&dir))).await?;
                    fetched(&dir, is_content)?
                }
                Operand::Address(url) => {
                    let dir = stage.room(number)?;
                    let is_content = url.ends_with('/');
                    self.get(&[url], &slashed(&dir)).await?;
                    fetched(&dir, is_content)?
                }
            });
            if self.ends.has_failed() {
                // What is here already stays for the next time.
                return Ok(());
            }
        }
        let fetching = std::mem::replace(self.ends, before);
        self.send_on(local, to).await?;
        self.ends.add_partial(&fetching);
        if !self.ends.has_failed() {
            stage.clear();
        }
        Ok(())
    }

    async fn send_on(&mut self, local: Vec<PathBuf>, to: Operand) -> Result<(), Failure> {
        if local.is_empty() {
            return Err(Failure::new(FailureKind::Missing, "nothing is there to be sent on"));
        }
        match to {
            Operand::Remote(remote) => self.push(local, &remote).await,
            Operand::Address(url) => self.put(local, url).await,
            Operand::Local(_) => {
                Err(Failure::new(FailureKind::Usage, "what is to stay here need not go through"))
            }
        }
    }
}

/// The path of a directory as one that takes things beneath it.
fn slashed(dir: &Path) -> PathBuf {
    dir.join("")
}

/// What has been fetched into a directory, as sources: its content, or each thing in it.
fn fetched(dir: &Path, is_content: bool) -> Result<Vec<PathBuf>, Failure> {
    if is_content {
        return Ok(vec![slashed(dir)]);
    }
    let entries = dir.read_dir().and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| local(dir, &error))?;
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        !name.ends_with(b".gtp-part") && !name.ends_with(b".gtp-journal")
    };
    let mut paths: Vec<_> =
        entries.into_iter().map(|entry| entry.path()).filter(is_whole).collect();
    paths.sort();
    Ok(paths)
}

/// Where data wait on their way through this machine.
struct Stage {
    dir: PathBuf,
}

impl Stage {
    /// The directory of the command of these words, made if it is not there.
    fn of(words: &[std::ffi::OsString]) -> Result<Stage, Failure> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let cache = absolute("XDG_CACHE_HOME").or_else(home);
        let cache = cache.ok_or_else(|| {
            let text = "neither XDG_CACHE_HOME nor HOME names a place where data can wait";
            Failure::new(FailureKind::Destination, text)
        })?;
        let mut hasher = blake3::Hasher::new();
        for word in words {
            hasher.update(word.as_bytes()).update(&[0]);
        }
        let name = &hasher.finalize().to_hex()[..NAME_DIGITS];
        let stage = Stage { dir: cache.join("gtp").join("passing").join(name) };
        make(&stage.dir)?;
        Ok(stage)
    }

    /// A directory in it for one source.
    fn room(&self, number: usize) -> Result<PathBuf, Failure> {
        let dir = self.dir.join(number.to_string());
        make(&dir)?;
        Ok(dir)
    }

    /// All has been sent.
    fn clear(self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            aside(format_args!("gtp: {}", local(&self.dir, &error)));
        }
    }
}

/// Makes a directory that is its owner's alone, and those above it.
fn make(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| local(dir, &error))
}

fn local(dir: &Path, error: &std::io::Error) -> Failure {
    let shown = gtp_text::of_text(&dir.to_string_lossy());
    Failure::new(FailureKind::Destination, format!("{shown}: {error}"))
}

/// Hexadecimal digits of the hash of a command's words.
const NAME_DIGITS: usize = 32;
