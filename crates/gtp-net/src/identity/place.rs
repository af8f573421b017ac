//! Where configuration lies, and how its files change: whole or not at all.
//!
//! Secrets are made readable by their owner alone from the first moment. What the files say is
//! known to those who read them.

use std::env;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use gtp_store::is_refused;
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};

/// Neither the environment nor the system's list of users names a directory for configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no configuration directory: set GTP_CONFIG_DIR, XDG_CONFIG_HOME or HOME")]
pub struct NoConfigDir;

/// The directory of this user's keys and lists: `GTP_CONFIG_DIR`, else `gtp` in
/// `XDG_CONFIG_HOME`, else `.config/gtp` in `HOME`, or, where that is not set, in the home that the
/// system's list of users says. It need not exist.
///
/// # Errors
/// [`NoConfigDir`] if none of the three is set, and the system knows no home.
pub fn config_dir() -> Result<PathBuf, NoConfigDir> {
    config_dir_by(|name| env::var_os(name), home())
}

/// This user's home: `HOME`, or, where that is not set, what the system's list of users says.
pub(super) fn home() -> Option<PathBuf> {
    env::home_dir().filter(|home| !home.as_os_str().is_empty())
}

/// The same for any environment and home. The XDG specification wants relative paths ignored.
pub(super) fn config_dir_by(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
) -> Result<PathBuf, NoConfigDir> {
    let set = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = set("GTP_CONFIG_DIR") {
        return Ok(dir);
    }
    if let Some(home) = set("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute()) {
        return Ok(home.join("gtp"));
    }
    home.map(|home| home.join(".config").join("gtp")).ok_or(NoConfigDir)
}

/// Whether an error says that there is no such file, also where a home is no directory
/// (`/dev/null`).
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether an error says that this user may not do that, or nobody may.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Makes a directory and its parents, closed to others.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Opens a file for reading; a FIFO in its place does not make the caller wait.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = as_int(OFlags::NONBLOCK | OFlags::NOCTTY);
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn as_int(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).expect("open flags fit an int")
}

/// Makes a file of mode 0600 with this content, at once and only if nothing has its name.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = Draft::write(path, content)?;
    match renameat_with(CWD, &draft.path, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        // File systems without that flag have hard links, which are as exclusive.
        Err(error) if is_refused(&error.into()) => {
            std::fs::hard_link(&draft.path, path)?;
        }
        Err(error) => return Err(error.into()),
    }
    synced(sync_dir_of(path))
}

/// Puts a file of mode 0600 with this content in the place of what was there, at once.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = Draft::write(path, content)?;
    std::fs::rename(&draft.path, path)?;
    synced(sync_dir_of(path))
}

/// The same with the mode and, as root, the owner and the group of what was there; a new file gets
/// those of its directory. So a service whose group may read a list of root's still can.
pub(crate) fn replace_like(path: &Path, content: &[u8]) -> io::Result<()> {
    let draft = Draft::write(path, content)?;
    let (file, dir) = (std::fs::metadata(path), dir_of(path));
    if rustix::process::geteuid().is_root() {
        let model =
            file.as_ref().map_or_else(|_| std::fs::metadata(dir), |meta| Ok(meta.clone()))?;
        std::os::unix::fs::chown(&draft.path, Some(model.uid()), Some(model.gid()))?;
    }
    if let Ok(meta) = file {
        std::fs::set_permissions(&draft.path, meta.permissions())?;
    }
    std::fs::rename(&draft.path, path)?;
    synced(sync_dir_of(path))
}

/// Holds the lock beside `path` until the returned file is dropped. Waits for other holders. A link
/// in the lock's place is not followed.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut new = OpenOptions::new();
    new.create(true).truncate(false).write(true).mode(0o600).custom_flags(as_int(flags));
    let file = new.open(name)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("its lock is not a regular file"));
    }
    match flock(&file, FlockOperation::LockExclusive) {
        Ok(()) => {}
        // Without locks two processes that change a list at one moment lose one of the changes.
        Err(error) if is_refused(&error.into()) || error == rustix::io::Errno::NOLCK => {
            tracing::debug!(%error, "no locks here");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(file)
}

/// A written and synced file under a name of its own; removed when dropped, if still there.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(target: &Path, content: &[u8]) -> io::Result<Draft> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        for _ in 0..100 {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = target.with_file_name(format!(".{name}.{}-{count}", process::id()));
            let mut new = OpenOptions::new();
            match new.write(true).create_new(true).mode(0o600).open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => {
                    let mut file = opened?;
                    let draft = Draft { path };
                    file.write_all(content)?;
                    synced(file.sync_all())?;
                    return Ok(draft);
                }
            }
        }
        Err(io::Error::other("too many left-over files of crashed processes"))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename nothing is there any more, which is as good.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Treats a refusal to sync, by a file system or a sandbox, as success.
fn synced(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if is_refused(&error) => Ok(()),
        done => done,
    }
}

fn sync_dir_of(path: &Path) -> io::Result<()> {
    File::open(dir_of(path))?.sync_all()
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
