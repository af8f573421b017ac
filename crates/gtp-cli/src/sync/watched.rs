//! The watch of a tree here.
//!
//! It tells that something in the tree has changed, and that changes may have been missed. What has
//! changed is not told.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gtp::{Failure, FailureKind};
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::timeout;

/// A tree that is watched.
pub struct Watched {
    changed: Arc<Notify>,
    /// Why changes may have been missed.
    lost: Arc<Mutex<Option<String>>>,
    /// Device and inode of the directory.
    place: (u64, u64),
    /// Dropped, it ends the watch.
    _watcher: RecommendedWatcher,
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
        let place = place(source).map_err(|error| failed(error.to_string()))?;
        let root = source.canonicalize().map_err(|error| failed(error.to_string()))?;
        let (changed, lost) = (Arc::new(Notify::new()), Arc::default());
        let (tell, why, own) = (Arc::clone(&changed), Arc::clone(&lost), root.clone());
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
        let begun = watcher.watch(&root, RecursiveMode::Recursive);
        begun.map_err(|error| failed(error.to_string()))?;
        Ok(Watched { changed, lost, place, _watcher: watcher })
    }

    /// Why changes of the source may have been missed; `None` if they have not.
    pub fn lost(&self, source: &Path) -> Option<String> {
        let told = lock(&self.lost).clone();
        told.or_else(|| match place(source) {
            Ok(place) if place == self.place => None,
            Ok(_) => Some("another directory has its name".into()),
            Err(error) => Some(error.to_string()),
        })
    }

    /// Waits until something has changed, and then for quiet.
    pub async fn settled(&self) {
        self.changed.notified().await;
        let quiet = async { while timeout(QUIET_SPAN, self.changed.notified()).await.is_ok() {} };
        // A tree that is never quiet is looked at after that time.
        let _ = timeout(LATEST_SPAN, quiet).await;
    }
}

/// Device and inode of a directory, also behind a link.
fn place(source: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::metadata(source).map(|about| (about.dev(), about.ino()))
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
    fn of(event: notify::Result<Event>, root: &Path) -> Heard {
        let event = match event {
            Ok(event) => event,
            Err(error) => return Heard::Lost(error.to_string()),
        };
        if event.need_rescan() {
            return Heard::Lost("there were more changes than the system keeps".into());
        }
        let is_of_root = event.paths.iter().any(|path| path == root);
        match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_)) if is_of_root => {
                Heard::Lost("it was moved or removed".into())
            }
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

    #[test]
    fn an_event_that_may_hide_a_change_asks_for_a_new_watch_and_reading_is_no_change() {
        let of = |kind: EventKind, path: &str| Event::new(kind).add_path(path.into());
        let heard = |event: notify::Result<Event>| Heard::of(event, Path::new("/src"));
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
