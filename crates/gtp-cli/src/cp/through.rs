//! Copies that go through this machine: between a login and a server, from one server to another,
//! and from sources of several kinds.
//!
//! The two ends know nothing of each other and trust this one only. So everything is fetched first,
//! into a directory of this command's own, and then sent on as any local files are. The directory
//! is named after the command's words: repeated after an interruption, the command finds there what
//! it has fetched. It goes when all has been sent.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gtp::{Failure, FailureKind, Url};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::operand::{Operand, Remote};
use super::{Copy, Sources, To, paths};
use crate::output::aside;
use crate::show::Leg;

impl Copy<'_> {
    /// Fetches what is elsewhere, and sends it on with what is here.
    pub(super) async fn through(&mut self, from: Vec<Operand>, to: Operand) -> Result<(), Failure> {
        let to = if from.len() > 1 { as_directory(to) } else { to };
        let stage = Stage::of(&self.args.words, &self.args.way.ssh)?;
        aside(format_args!(
            "gtp: the data go through here, where they need space in {} until all are sent",
            gtp_text::of_text(&stage.dir.to_string_lossy())
        ));
        self.shower.set_leg(Leg::First);
        let Some(local) = self.gather(from, &stage).await? else {
            // What is here already stays for the next time; nothing of it has been delivered.
            *self.ends = std::mem::take(self.ends).undelivered();
            if files_in(&stage.dir).is_ok_and(|files| files == 0) {
                stage.clear();
            }
            return Ok(());
        };
        let fetching = std::mem::take(self.ends);
        self.shower.set_leg(Leg::Last);
        self.send_on(local, to).await?;
        self.ends.add_partial(&fetching);
        if !self.ends.has_failed() {
            stage.clear();
        }
        Ok(())
    }

    /// Fetches what is elsewhere; `None` if that fails. Of several sources, those that are not
    /// there are left out.
    async fn gather(
        &mut self,
        from: Vec<Operand>,
        stage: &Stage,
    ) -> Result<Option<Vec<PathBuf>>, Failure> {
        let (mut local, several) = (Vec::new(), from.len() > 1);
        let mut missing = None;
        for (number, operand) in from.into_iter().enumerate() {
            let fetched = match &operand {
                Operand::Local(path) if several && !path.exists() => Err(absent(path)),
                Operand::Local(path) => Ok(vec![path.clone()]),
                Operand::Remote(_) | Operand::Address(_) => {
                    self.fetch(&operand, &stage.room(number)?).await
                }
            };
            let fetched = match fetched {
                Err(failure) if several && failure.kind == FailureKind::Missing => {
                    self.ends.take(Err(failure), &mut self.shower);
                    Vec::new()
                }
                fetched => fetched?,
            };
            if several && let Some(failure) = self.ends.leave_out_missing() {
                missing.get_or_insert(failure);
            }
            if self.ends.has_failed() {
                return Ok(None);
            }
            local.extend(fetched);
        }
        match missing {
            Some(failure) if local.is_empty() => {
                self.ends.fail_by(failure);
                Ok(None)
            }
            Some(_) | None => Ok(Some(local)),
        }
    }

    /// Fetches a source into a directory, and returns what is to be sent on of it. What only an
    /// earlier command has found at the source is not kept.
    async fn fetch(&mut self, operand: &Operand, dir: &Path) -> Result<Vec<PathBuf>, Failure> {
        let is_content = match operand {
            Operand::Local(_) => false,
            Operand::Remote(Remote { path, .. }) => paths::is_content(path),
            Operand::Address(url) => url.parse::<Url>().is_ok_and(|url| url.names_directory()),
        };
        let before = self.ends.files();
        self.fetch_into(operand, dir).await?;
        let come = self.ends.files() - before;
        let missed_only = self.ends.has_missed_only();
        let may_be_sent_on = missed_only || !self.ends.has_failed();
        if may_be_sent_on && files_in(dir).map_err(|error| local(dir, &error))? > come {
            std::fs::remove_dir_all(dir).map_err(|error| local(dir, &error))?;
            make(dir)?;
            if come > 0 || !missed_only {
                self.fetch_into(operand, dir).await?;
            }
        }
        if self.ends.has_missed_only() && is_empty(dir).map_err(|error| local(dir, &error))? {
            // There is no content that the directory could stand for.
            return Ok(Vec::new());
        }
        fetched(dir, is_content)
    }

    async fn fetch_into(&mut self, operand: &Operand, dir: &Path) -> Result<(), Failure> {
        match operand.clone() {
            Operand::Local(_) => Ok(()),
            Operand::Remote(Remote { login, path }) => {
                let sources = Sources { login, paths: vec![path] };
                self.bring_all(vec![sources], &To::Here(&slashed(dir))).await
            }
            Operand::Address(url) => self.get(&[url], false, &slashed(dir)).await,
        }
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

fn is_empty(dir: &Path) -> std::io::Result<bool> {
    Ok(dir.read_dir()?.next().is_none())
}

/// Files in a directory and those beneath it.
fn files_in(dir: &Path) -> std::io::Result<u64> {
    let mut count = 0;
    for entry in dir.read_dir()? {
        let entry = entry?;
        count += match entry.file_type()?.is_dir() {
            true => files_in(&entry.path())?,
            false => 1,
        };
    }
    Ok(count)
}

/// That nothing is at a path of this machine.
fn absent(path: &Path) -> Failure {
    let failure = Failure::new(FailureKind::Missing, "no such file or directory");
    failure.about(gtp_text::of_text(&path.to_string_lossy()))
}

/// Several sources go beneath their destination.
fn as_directory(to: Operand) -> Operand {
    match to {
        Operand::Address(url) => Operand::Address(format!("{}/", url.trim_end_matches('/'))),
        Operand::Remote(Remote { login, path }) if !paths::is_content(&path) => {
            Operand::Remote(Remote { login, path: format!("{path}/") })
        }
        to @ (Operand::Remote(_) | Operand::Local(_)) => to,
    }
}

/// Where data wait on their way through this machine.
struct Stage {
    dir: PathBuf,
    /// Locked: an equal command would send what this one has not fetched yet, and remove what this
    /// one sends.
    _lock: File,
}

impl Stage {
    /// The directory of the command of these words, made if it is not there.
    ///
    /// # Errors
    /// [`FailureKind::Temporary`] if an equal command is under way.
    fn of(words: &[OsString], ssh: &str) -> Result<Stage, Failure> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".cache"));
        let cache = absolute("XDG_CACHE_HOME").or_else(home);
        let cache = cache.ok_or_else(|| {
            let text = "neither XDG_CACHE_HOME nor HOME names a place where data can wait";
            Failure::new(FailureKind::Destination, text)
        })?;
        let mut hasher = blake3::Hasher::new();
        // What a login means is the program's to say.
        for word in [OsStr::new(ssh)].into_iter().chain(words.iter().map(OsString::as_os_str)) {
            hasher.update(word.as_bytes()).update(&[0]);
        }
        let name = &hasher.finalize().to_hex()[..NAME_DIGITS];
        let all = cache.join("gtp").join("passing");
        let dir = all.join(name);
        make(&dir)?;
        let _lock = locked(&dir)?;
        // From now on it is a new one. Without that, it only goes sooner.
        let now = Duration::from_secs(gtp_sys::clock::unix_seconds());
        let _ = _lock.set_modified(SystemTime::UNIX_EPOCH + now);
        clear_old(&all);
        Ok(Stage { dir, _lock })
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

/// Removes directories that no command has used for a long time: nobody repeats it any more.
fn clear_old(all: &Path) {
    let is_ours = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.len() == NAME_DIGITS && name.iter().all(u8::is_ascii_hexdigit)
    };
    for dir in all.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
        // One that cannot be looked at or locked is left alone.
        let Some(lock) = is_ours(&dir).then(|| locked(&dir).ok()).flatten() else { continue };
        let used = lock.metadata().and_then(|about| about.modified()).ok();
        let age = used.and_then(|used| used.elapsed().ok()).unwrap_or_default();
        if age > AGE_MOST {
            aside(format_args!("gtp: {}", of_removal(&dir, std::fs::remove_dir_all(&dir))));
        }
    }
}

/// What is said of a directory that was old, and so was removed or was to be.
fn of_removal(dir: &Path, removed: std::io::Result<()>) -> String {
    let shown = gtp_text::of_text(&dir.to_string_lossy());
    let why = format!("the copy that it is of was not repeated for {AGE_DAYS} days");
    match removed {
        Ok(()) => format!("{shown} is removed: {why}"),
        Err(error) => format!("{shown} cannot be removed ({error}): {why}"),
    }
}

/// Makes a directory that is its owner's alone, and those above it.
fn make(dir: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| local(dir, &error))
}

/// Locks a directory for as long as what this returns is kept.
fn locked(dir: &Path) -> Result<File, Failure> {
    let file = File::open(dir).map_err(|error| local(dir, &error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => {
            let text = "the same copy is under way already, in another process";
            Err(Failure::new(FailureKind::Temporary, text))
        }
        Err(error) => Err(local(dir, &error.into())),
    }
}

fn local(dir: &Path, error: &std::io::Error) -> Failure {
    let shown = gtp_text::of_text(&dir.to_string_lossy());
    Failure::new(FailureKind::Destination, format!("{shown}: {error}"))
}

/// Time after which what waits for a command to be repeated goes, when another one begins.
const AGE_MOST: Duration = Duration::from_secs(AGE_DAYS * 86_400);
const AGE_DAYS: u64 = 14;

/// Hexadecimal digits of the hash of a command's words.
const NAME_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_two_equal_copies_has_the_place_where_data_wait() {
        let dir = tempfile::tempdir().unwrap();
        let first = locked(dir.path()).unwrap();
        let failure = locked(dir.path()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Temporary, "{failure}");
        drop(first);
        locked(dir.path()).unwrap();
    }

    #[test]
    fn what_waits_goes_when_it_is_old_unless_a_copy_is_at_work_on_it_and_nothing_else_does() {
        let all = tempfile::tempdir().unwrap();
        let aged = |name: &str, age: Duration| {
            let dir = all.path().join(name);
            make(&dir).unwrap();
            std::fs::write(dir.join("x"), "x").unwrap();
            File::open(&dir).unwrap().set_modified(SystemTime::now() - age).unwrap();
            dir
        };
        let old = AGE_MOST + Duration::from_secs(60);
        let gone = aged(&"a".repeat(NAME_DIGITS), old);
        let at_work = aged(&"b".repeat(NAME_DIGITS), old);
        let stay = [
            at_work.clone(),
            aged(&"c".repeat(NAME_DIGITS), AGE_MOST - Duration::from_secs(60)),
            aged("another thing", old),
        ];
        let lock = locked(&at_work).unwrap();
        clear_old(all.path());
        assert!(!gone.exists() && stay.iter().all(|dir| dir.join("x").exists()));
        drop(lock);
        clear_old(all.path());
        assert!(!at_work.exists());
    }

    #[test]
    fn an_old_directory_that_stays_is_not_said_to_be_removed() {
        let dir = Path::new("/cache/old");
        assert!(of_removal(dir, Ok(())).starts_with("/cache/old is removed: "));
        let stays = of_removal(dir, Err(Errno::ACCESS.into()));
        assert!(stays.contains("cannot be removed (Permission denied"), "{stays}");
    }
}
