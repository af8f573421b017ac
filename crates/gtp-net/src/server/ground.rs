//! The directory or file that an export names, opened anew for each use.
//!
//! The path may be a link that is switched, and the directory be replaced: what is there counts.
//! A file system that is not mounted any more does not: whoever wrote then would write into the
//! mount point, and whoever read would find everything deleted. So it is remembered what was there.
//! Who may use it is unknown here.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gtp_alloc::Bucket;
use gtp_store::{Chosen, Export, SourceError};
use gtp_sys::Clock;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fstat, openat, statat, statx,
};
use rustix::io::Errno;

use super::COMPLAINTS;
use super::walks::Nothing;

/// What an export names.
pub(super) struct Ground {
    root: PathBuf,
    chosen: Option<Arc<Chosen>>,
    clock: Clock,
    complaints: Mutex<Bucket>,
    known: Mutex<Option<Footing>>,
    /// Called when another directory is there than before, before that one is used. One that has
    /// the path of the old one, on the same device, is taken for it: some file systems change the
    /// numbers of their files.
    moved: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Where an open directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Footing {
    /// Its path without links, as the system has it.
    path: Option<PathBuf>,
    device: u64,
    /// Whether a file system is mounted right there.
    is_mount: bool,
}

impl Footing {
    fn of(dir: BorrowedFd<'_>) -> Result<Footing, Errno> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok();
        let device = fstat(dir)?.st_dev;
        let asked = statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
        let told = asked
            .ok()
            .filter(|stat| stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT));
        let is_mount = match told {
            Some(stat) => stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
            // Old kernels do not say so. The directory above then tells whether this is another
            // file system.
            None => statat(dir, "..", AtFlags::empty())?.st_dev != device,
        };
        Ok(Footing { path, device, is_mount })
    }

    /// Whether what is there `now` may be used in place of this: the same, something else that the
    /// path was led to, or a file system that was mounted there.
    fn allows(&self, now: &Footing) -> bool {
        now.is_mount || now.path != self.path || (now.device == self.device && !self.is_mount)
    }
}

impl Ground {
    /// What this path names, of which only what was `chosen` is listed.
    pub fn new(root: PathBuf, chosen: Option<Arc<Chosen>>, clock: Clock) -> Ground {
        let (complaints, known) = (Mutex::new(COMPLAINTS), Mutex::default());
        Ground { root, chosen, clock, complaints, known, moved: None }
    }

    /// The same, that calls this whenever another directory is there than before, before that one
    /// is used.
    pub fn on_move(self, moved: impl Fn() + Send + Sync + 'static) -> Ground {
        Ground { moved: Some(Box::new(moved)), ..self }
    }

    /// The path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its path without links, as it was when it was opened last.
    pub fn real_path(&self) -> Option<PathBuf> {
        self.known().as_ref()?.path.clone()
    }

    /// Opens it to be listed and read. Blocks.
    ///
    /// # Errors
    /// What the client is told.
    pub fn export(&self) -> Result<Export, Nothing> {
        self.try_export().map_err(|why| self.away(&why))
    }

    /// The same without words for a client.
    ///
    /// # Errors
    /// What opening says.
    pub fn try_export(&self) -> Result<Export, SourceError> {
        let export = Export::open(&self.root)?;
        self.judge(export.holder()).map_err(|source| {
            let path = self.root.display().to_string();
            SourceError::Read { path, source }
        })?;
        Ok(match &self.chosen {
            Some(chosen) => export.choosing(Arc::clone(chosen)),
            None => export,
        })
    }

    /// Opens it to be changed. Blocks.
    ///
    /// # Errors
    /// What the client is told.
    pub fn dir(&self) -> Result<OwnedFd, Nothing> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let opened =
            openat(CWD, &self.root, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::NOTDIR => Nothing::for_now("what this server exports is no directory"),
                other => self.away(&other),
            })?;
        self.judge(opened.as_fd()).map_err(|why| self.away(&why))?;
        Ok(opened)
    }

    /// Takes what is there now for what is meant, unless a file system was mounted there and is not
    /// now. Blocks.
    pub fn look_anew(&self) {
        let Ok(export) = Export::open(&self.root) else { return };
        let Ok(now) = Footing::of(export.holder()) else { return };
        let mut known = self.known();
        if known.as_ref().is_none_or(|known| !known.is_mount || known.allows(&now)) {
            self.note(&mut known, now);
        }
    }

    fn note(&self, known: &mut Option<Footing>, now: Footing) {
        let is_other = known.as_ref().is_some_and(|before| *before != now);
        *known = Some(now);
        // Nobody opens it meanwhile.
        if let Some(moved) = self.moved.as_ref().filter(|_| is_other) {
            moved();
        }
    }

    fn judge(&self, dir: BorrowedFd<'_>) -> std::io::Result<()> {
        let now = Footing::of(dir)?;
        let mut known = self.known();
        if known.as_ref().is_some_and(|known| !known.allows(&now)) {
            return Err(std::io::Error::other(UNMOUNTED));
        }
        self.note(&mut known, now);
        Ok(())
    }

    fn away(&self, error: &dyn std::fmt::Display) -> Nothing {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if complaints.take(self.clock.now()) {
            let root = self.root.display();
            tracing::warn!(%error, "the export {root} cannot be opened");
        }
        Nothing::exported()
    }

    fn known(&self) -> MutexGuard<'_, Option<Footing>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why what is there is not used.
const UNMOUNTED: &str = "its file system is not mounted: another one is there than before. If that \
                         is meant, start the server again";

#[cfg(test)]
mod tests {
    use super::*;

    fn footing(path: &str, device: u64, is_mount: bool) -> Footing {
        Footing { path: Some(path.into()), device, is_mount }
    }

    #[test]
    fn an_empty_mount_point_is_never_taken_for_the_file_system_that_was_mounted_there() {
        let (mounted, below) = (footing("/srv", 7, true), footing("/srv", 1, false));
        assert!(!mounted.allows(&below) && mounted.allows(&mounted));
        assert!(mounted.allows(&footing("/srv", 8, true)), "mounted again, it has another number");
        assert!(!mounted.allows(&footing("/srv", 7, false)), "a bind mount of the same device");
        assert!(below.allows(&mounted), "it was not mounted yet");
        let beneath = footing("/srv/x", 7, false);
        assert!(!beneath.allows(&footing("/srv/x", 1, false)) && beneath.allows(&beneath));
        assert!(beneath.allows(&footing("/srv/y", 1, false)), "a link leads elsewhere");
    }

    #[test]
    fn whoever_counts_what_is_there_hears_of_another_directory_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (count, heard) = std::sync::mpsc::channel();
        for name in ["a", "b"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let link = dir.path().join("link");
        let ground = Ground::new(link.clone(), None, Clock::start());
        let ground = ground.on_move(move || count.send(()).unwrap());
        let lead = |name: &str| {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(dir.path().join(name), &link).unwrap();
        };
        let use_it = || {
            assert!(ground.dir().is_ok() && ground.export().is_ok());
            heard.try_iter().count()
        };
        lead("a");
        assert_eq!((use_it(), use_it()), (0, 0), "the first one is counted when it is opened");
        lead("b");
        assert_eq!((use_it(), use_it()), (1, 0));
        let place = std::fs::canonicalize(dir.path().join("b")).unwrap();
        assert_eq!(ground.real_path(), Some(place));
        lead("a");
        ground.look_anew();
        assert_eq!((heard.try_iter().count(), use_it()), (1, 0));
    }

    #[test]
    fn a_directory_that_was_replaced_by_another_one_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let ground = Ground::new(dir.path().join("x"), None, Clock::start());
        assert!(ground.dir().is_err() && ground.export().is_err());
        for _ in 0..2 {
            std::fs::create_dir(dir.path().join("x")).unwrap();
            assert!(ground.dir().is_ok() && ground.export().is_ok());
            std::fs::remove_dir(dir.path().join("x")).unwrap();
        }
        std::fs::write(dir.path().join("x"), "a file").unwrap();
        assert!(ground.export().is_ok());
        assert!(ground.dir().is_err_and(|nothing| nothing.text.contains("no directory")));
    }
}
