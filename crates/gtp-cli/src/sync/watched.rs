//! The watch of a tree here, or of a single file.
//!
//! It tells that something in the tree has changed, and that changes may have been missed. What has
//! changed is not told. Of a file, the directory that holds it is watched: programs often write a
//! new version under another name, which then takes its place.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp::{Failure, FailureKind};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A tree or a file that is watched.
pub struct Watched {
    changed: Arc<Notify>,
    /// Why changes may have been missed.
    lost: Arc<Mutex<Option<String>>>,
    subject: Subject,
    /// Dropped, it ends the watch.
    _watcher: RecommendedWatcher,
}

/// What is watched.
#[derive(Clone)]
struct Subject {
    /// The directory.
    root: PathBuf,
    /// The name in it that alone counts; `None` if the whole tree does.
    only: Option<OsString>,
    /// Device and inode of the directory.
    place: (u64, u64),
}

impl Subject {
    /// What is at a path: a directory, also behind a link, or something else, which must be there.
    fn of(source: &Path) -> std::io::Result<Subject> {
        let (dir, only) = match source.is_dir() {
            true => (source, None),
            false => {
                source.symlink_metadata()?;
                (holder(source), source.file_name().map(OsString::from))
            }
        };
        let root = dir.canonicalize()?;
        Ok(Subject { place: place(&root)?, root, only })
    }

    fn mode(&self) -> RecursiveMode {
        if self.only.is_some() { RecursiveMode::NonRecursive } else { RecursiveMode::Recursive }
    }

    /// Why this is not what is at the path now; `None` if it is.
    fn lost(&self, source: &Path) -> Option<String> {
        match Subject::of(source) {
            Ok(now) if now.place == self.place && now.only == self.only => None,
            Ok(_) => Some("something else has its name".into()),
            // A file is missing for a moment between two versions. That it is back will be told.
            Err(_) if self.only.is_some() && place(holder(source)).ok() == Some(self.place) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Watched {
    /// Begins to watch.
    ///
    /// # Errors
    /// A [`Failure`] if the system does not watch it.
    pub fn begin(source: &Path) -> Result<Watched, Failure> {
        let failed = |why: String| {
            let shown = gtp_text::of_text(&source.to_string_lossy());
            Failure::new(FailureKind::Other, format!("{shown}: cannot be watched: {why}"))
        };
        let subject = Subject::of(source).map_err(|error| failed(error.to_string()))?;
        let (changed, lost) = (Arc::new(Notify::new()), Arc::default());
        let (tell, why, own) = (Arc::clone(&changed), Arc::clone(&lost), subject.clone());
        let heard = move |event: notify::Result<Event>| match Heard::of(event, &own) {
            Heard::Nothing => {}
            Heard::Change => tell.notify_one(),
            Heard::Lost(text) => {
                lock(&why).get_or_insert(text);
                tell.notify_one();
            }
        };
        // The tree holds its links as links, so what they lead to is no concern of it.
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher =
            RecommendedWatcher::new(heard, config).map_err(|error| failed(error.to_string()))?;
        let begun = watcher.watch(&subject.root, subject.mode());
        begun.map_err(|error| failed(error.to_string()))?;
        Ok(Watched { changed, lost, subject, _watcher: watcher })
    }

    /// Why changes of the source may have been missed; `None` if they have not.
    pub fn lost(&self, source: &Path) -> Option<String> {
        let told = lock(&self.lost).clone();
        told.or_else(|| self.subject.lost(source))
    }

    /// Waits until something has changed, and then for quiet.
    pub async fn settled(&self) {
        self.changed.notified().await;
        let quiet = async { while timeout(QUIET_SPAN, self.changed.notified()).await.is_ok() {} };
        // A tree that is never quiet is looked at after that time.
        let _ = timeout(LATEST_SPAN, quiet).await;
    }
}

/// The directory that holds what is at a path.
fn holder(source: &Path) -> &Path {
    let holder = source.parent().filter(|holder| !holder.as_os_str().is_empty());
    holder.unwrap_or(Path::new("."))
}

/// Device and inode of a directory, also behind a link.
fn place(dir: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(dir).map(|about| (about.dev(), about.ino()))
}

fn lock(lost: &Mutex<Option<String>>) -> std::sync::MutexGuard<'_, Option<String>> {
    lost.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an event means.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Change,
    /// Changes may be missed from now on, or have been, with the reason.
    Lost(String),
}

impl Heard {
    fn of(event: notify::Result<Event>, Subject { root, only, .. }: &Subject) -> Heard {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Heard::Lost(error.to_string()),
        };
        if event.need_rescan() {
            return Heard::Lost("there were more changes than the system keeps".into());
        }
        let is_of_root = event.paths.iter().any(|path| path == root);
        let is_own = only
            .as_ref()
            .is_none_or(|only| event.paths.iter().any(|path| path.file_name() == Some(only)));
        match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) if is_of_root => {
                Heard::Lost("it was moved or removed".into())
            }
            _ if !is_own => Heard::Nothing,
            // What is mapped into memory and written there is told at its close alone.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Heard::Change,
            // What this command reads is no change.
            EventKind::Access(_) => Heard::Nothing,
            _ => Heard::Change,
        }
    }
}

/// Quiet of the tree before a change counts.
const QUIET_SPAN: Duration = Duration::from_millis(300);

/// Time after which a change counts although the tree is not quiet.
const LATEST_SPAN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use notify::event::{Flag, RemoveKind};

    use super::*;

    fn subject(only: Option<&str>) -> Subject {
        Subject { root: "/src".into(), only: only.map(OsString::from), place: (1, 2) }
    }

    #[test]
    fn of_a_single_file_nothing_else_in_its_directory_is_a_change() {
        let heard = |path: &str| {
            let event = Event::new(EventKind::Modify(ModifyKind::Any)).add_path(path.into());
            Heard::of(Ok(event), &subject(Some("a")))
        };
        assert_eq!((heard("/src/a"), heard("/src/b")), (Heard::Change, Heard::Nothing));
        let renamed = EventKind::Modify(ModifyKind::Name(notify::event::RenameMode::Both));
        let renamed = Event::new(renamed).add_path("/src/new".into()).add_path("/src/a".into());
        assert_eq!(Heard::of(Ok(renamed), &subject(Some("a"))), Heard::Change);
        let gone = Event::new(EventKind::Remove(RemoveKind::Folder)).add_path("/src".into());
        assert!(matches!(Heard::of(Ok(gone), &subject(Some("a"))), Heard::Lost(_)));
    }

    #[test]
    fn a_file_that_is_missing_for_a_moment_is_still_watched_and_a_directory_in_its_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "1").unwrap();
        let subject = Subject::of(&path).unwrap();
        assert_eq!(subject.lost(&path), None);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(subject.lost(&path), None);
        std::fs::create_dir(&path).unwrap();
        assert!(subject.lost(&path).is_some());
        assert!(Subject::of(&dir.path().join("absent")).is_err());
    }

    #[test]
    fn an_event_that_may_hide_a_change_asks_for_a_new_watch_and_reading_is_no_change() {
        let of = |kind: EventKind, path: &str| Event::new(kind).add_path(path.into());
        let heard = |event: notify::Result<Event>| Heard::of(event, &subject(None));
        let closed = |mode| EventKind::Access(AccessKind::Close(mode));
        assert_eq!(heard(Ok(of(closed(AccessMode::Write), "/src/a"))), Heard::Change);
        assert_eq!(heard(Ok(of(closed(AccessMode::Read), "/src/a"))), Heard::Nothing);
        let removed = EventKind::Remove(RemoveKind::Folder);
        assert_eq!(heard(Ok(of(removed, "/src/d"))), Heard::Change);
        let overflow = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        let full = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
        for lost in [Ok(of(removed, "/src")), Ok(overflow), Err(full)] {
            assert!(matches!(heard(lost), Heard::Lost(_)));
        }
    }
}
