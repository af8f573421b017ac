//! The daemon's place: one socket, one daemon, and whether another was there before.
//!
//! A lock beside the socket says who the daemon is; it goes with the process, however that ends.
//! The lock's file says how many processes the last daemon had: they may be on their way back with
//! what it had granted. A socket from the system's manager may mean the same, and nobody knows how
//! many. Nothing here trusts what others could have put into the directory.

use std::fmt;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gtp_share::{Listener, check_socket_dir};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::umask;

/// Whether there may be processes that another daemon has granted something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// There was none, or it had no processes left.
    Nobody,
    /// One has ended or died; this many processes are to come back.
    Left(usize),
    /// One may have died; its number of processes is unknown.
    Perhaps,
}

/// A place held; given up when dropped.
#[derive(Debug)]
pub struct Claim {
    listener: Listener,
    before: Before,
    held: Option<Held>,
}

/// A place that this process holds itself.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    lock: File,
    /// Which file the socket is.
    socket: Identity,
    open_to: OpenTo,
}

/// Who may connect to a socket.
#[derive(Clone, Copy, Debug)]
enum OpenTo {
    /// Everybody who may enter its directory.
    All,
    /// This user, and root.
    Owner,
}

/// Which file something is: the device, and the number there.
type Identity = (u64, u64);

/// Why a place is not to be had.
#[derive(Debug)]
pub enum ClaimError {
    /// Another daemon is there.
    Taken,
    /// The system refuses.
    Io(io::Error),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Taken => f.write_str("another process is there already"),
            ClaimError::Io(error) => error.fmt(f),
        }
    }
}

impl From<io::Error> for ClaimError {
    fn from(error: io::Error) -> ClaimError {
        ClaimError::Io(error)
    }
}

impl Claim {
    /// Listens at `path`; makes its directory if it is not there: for this user alone, or for
    /// everybody to enter if this is root, whose daemon is the whole machine's.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn at(path: &Path) -> Result<Claim, ClaimError> {
        Claim::open(path, OpenTo::All)
    }

    /// The same with a socket that this user and root alone may connect to.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn private(path: &Path) -> Result<Claim, ClaimError> {
        Claim::open(path, OpenTo::Owner)
    }

    fn open(path: &Path, open_to: OpenTo) -> Result<Claim, ClaimError> {
        let lock = lock_place(path, open_to)?;
        let before = match std::fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                std::fs::remove_file(path)?;
                noted(&lock).map_or(Before::Perhaps, Before::Left)
            }
            Ok(_) => {
                let text = format!("{}: is there and is no socket", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
            }
            // One that ended in order may have left processes, too.
            Err(_) => match noted(&lock) {
                None | Some(0) => Before::Nobody,
                Some(processes) => Before::Left(processes),
            },
        };
        let (listener, socket) = listen_at(path, open_to)?;
        let path = path.to_owned();
        Ok(Claim { listener, before, held: Some(Held { path, lock, socket, open_to }) })
    }

    /// Whether the socket has a name that may be removed.
    pub fn is_named(&self) -> bool {
        self.held.is_some()
    }

    /// Makes the socket again if its name was removed, as cleaners of temporary files do. Returns
    /// whether it was. What somebody else has put there is left alone.
    ///
    /// # Errors
    /// As [`Claim::at`].
    pub fn restore(&mut self) -> Result<bool, ClaimError> {
        let Some(held) = &mut self.held else { return Ok(false) };
        match identity(&held.path) {
            Ok(found) if found == held.socket => return Ok(false),
            Ok(_) => {
                let text = "something else is in its place";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text).into());
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Err(_) => {}
        }
        let lock = held.lock.metadata()?;
        let is_there = identity(&lock_of(&held.path, held.open_to))
            .is_ok_and(|found| found == (lock.dev(), lock.ino()));
        if !is_there {
            held.lock = lock_place(&held.path, held.open_to)?;
        }
        (self.listener, held.socket) = listen_at(&held.path, held.open_to)?;
        Ok(true)
    }

    /// Takes over the listening socket that the system's manager made.
    ///
    /// # Errors
    /// When it is no socket.
    pub fn from_manager(socket: impl AsFd) -> Result<Claim, ClaimError> {
        let fd: OwnedFd = socket.as_fd().try_clone_to_owned()?;
        Ok(Claim { listener: Listener::adopt(fd)?, before: Before::Perhaps, held: None })
    }

    /// Where processes come.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Who was there before.
    pub fn before(&self) -> Before {
        self.before
    }

    /// Leaves word for a next daemon of how many processes are here.
    pub fn note(&self, processes: usize) {
        if let Some(Held { path, lock, open_to, .. }) = &self.held
            && let Err(error) = lock.write_all_at(format!("{processes:<NOTE$}\n").as_bytes(), 0)
        {
            tracing::warn!("{}: {error}", lock_of(path, *open_to).display());
        }
    }
}

/// The file that is locked for a place. Sockets for their owner have names that people choose, of
/// which no two share one.
fn lock_of(path: &Path, open_to: OpenTo) -> PathBuf {
    match open_to {
        OpenTo::All => path.with_extension("lock"),
        OpenTo::Owner => {
            let mut name = path.as_os_str().to_owned();
            name.push(".lock");
            name.into()
        }
    }
}

/// Makes the directory of a place if it is not there, and locks the place.
fn lock_place(path: &Path, open_to: OpenTo) -> Result<File, ClaimError> {
    let dir = path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
    make_dir(dir, open_to)?;
    check_socket_dir(dir)?;
    let lock = open_lock(&lock_of(path, open_to))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(ClaimError::Taken),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Makes the socket. Who may come is decided by the directory, or by the socket's mode; the kernel
/// knows who comes. A mode set afterwards could reach what somebody put in the socket's place.
fn listen_at(path: &Path, open_to: OpenTo) -> io::Result<(Listener, Identity)> {
    let listener = match open_to {
        OpenTo::All => with_mask(0o111, || Listener::bind(path)),
        // The mask is the whole process's, which writes files for others meanwhile.
        OpenTo::Owner => Listener::bind_private(path),
    }?;
    Ok((listener, identity(path)?))
}

/// Which file has a name. A link is not followed.
fn identity(path: &Path) -> io::Result<Identity> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Makes the directory if it is not there: for this user alone, or for everybody to enter if this
/// is root.
fn make_dir(dir: &Path, open_to: OpenTo) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let make = |mode| DirBuilder::new().recursive(true).mode(mode).create(dir);
    match open_to {
        OpenTo::All if rustix::process::geteuid().is_root() => with_mask(0, || make(0o755)),
        OpenTo::All => with_mask(0, || make(0o700)),
        // The mask is the whole process's.
        OpenTo::Owner => make(0o700),
    }
}

/// Opens the lock's file, or makes it. What somebody else put there, a link above all, is left
/// alone.
fn open_lock(path: &Path) -> io::Result<File> {
    let refuse = |why: &str| {
        let text = format!("{}: {why}: remove it", path.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    let lock = File::from(opened.map_err(|error| match error {
        Errno::LOOP => refuse("the lock file is a symbolic link"),
        error => error.into(),
    })?);
    let found = lock.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(refuse("the lock file is not a plain file with one name"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse(&format!("the lock file belongs to user {}", found.uid())));
    }
    // Whoever may open it may lock it, and keep every daemon from beginning.
    lock.set_permissions(Permissions::from_mode(0o600))?;
    Ok(lock)
}

/// Makes something while new files get no mode bits of `mask`, whatever the shell's mask is.
fn with_mask<T>(mask: u32, make: impl FnOnce() -> T) -> T {
    let before = umask(Mode::from_raw_mode(mask));
    let made = make();
    umask(before);
    made
}

/// Characters of a note.
const NOTE: usize = 8;

/// What the last daemon noted, if it did.
fn noted(lock: &File) -> Option<usize> {
    let mut text = [0; NOTE + 1];
    lock.read_exact_at(&mut text, 0).ok()?;
    str::from_utf8(&text).ok()?.trim_end().parse().ok()
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Some(Held { path, socket, .. }) = &self.held else { return };
        // If it is gone already, all the better; what somebody else put there is not ours.
        if identity(path).is_ok_and(|found| found == *socket) {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_daemon_and_remembers_one_that_died() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gtp").join("gtpd.sock");
        let first = Claim::at(&path).unwrap();
        assert_eq!(first.before(), Before::Nobody);
        let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        let root = rustix::process::geteuid().is_root();
        assert_eq!(mode & 0o777, if root { 0o755 } else { 0o700 });
        assert!(matches!(Claim::at(&path), Err(ClaimError::Taken)));
        drop(first);
        let mut died = Claim::at(&path).unwrap();
        assert_eq!(died.before(), Before::Nobody, "the last one ended well");
        died.held = None; // As if it was killed: the lock is gone, the socket is not.
        drop(died);
        let mut died = Claim::at(&path).unwrap();
        assert_eq!(died.before(), Before::Perhaps, "it noted nothing");
        died.note(120);
        died.note(7);
        died.held = None;
        drop(died);
        let ended = Claim::at(&path).unwrap();
        assert_eq!(ended.before(), Before::Left(7));
        drop(ended); // In order, and nobody has left it since.
        let idle = Claim::at(&path).unwrap();
        assert_eq!(idle.before(), Before::Left(7));
        idle.note(0);
        drop(idle);
        assert_eq!(Claim::at(&path).unwrap().before(), Before::Nobody);
    }

    #[test]
    fn a_lock_that_somebody_else_laid_out_is_left_alone() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let (path, lock) = (dir.path().join("gtpd.sock"), dir.path().join("gtpd.lock"));
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "kept").unwrap();
        std::fs::set_permissions(&precious, Permissions::from_mode(0o644)).unwrap();
        let lay: [&dyn Fn(); 3] = [
            &|| symlink(&precious, &lock).unwrap(),
            &|| std::fs::hard_link(&precious, &lock).unwrap(),
            &|| std::fs::create_dir(&lock).unwrap(),
        ];
        for lay in lay {
            lay();
            assert!(matches!(Claim::at(&path), Err(ClaimError::Io(_))));
            let found = std::fs::metadata(&precious).unwrap();
            assert_eq!((found.permissions().mode() & 0o777, found.len()), (0o644, 4));
            std::fs::remove_file(&lock).or_else(|_| std::fs::remove_dir(&lock)).unwrap();
        }
        symlink(dir.path().join("new"), &lock).unwrap();
        assert!(matches!(Claim::at(&path), Err(ClaimError::Io(_))));
        assert!(!dir.path().join("new").exists(), "nothing is made through a link");
    }

    #[test]
    fn a_directory_to_which_others_may_write_is_no_place_unless_it_is_sticky() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        let claim = |mode| {
            std::fs::set_permissions(&open, Permissions::from_mode(mode)).unwrap();
            Claim::at(&open.join("gtpd.sock"))
        };
        for mode in [0o777, 0o775] {
            assert!(matches!(claim(mode), Err(ClaimError::Io(_))), "{mode:o}");
        }
        let claimed = claim(0o1777).unwrap();
        let socket = std::fs::metadata(open.join("gtpd.sock")).unwrap();
        assert_eq!(socket.permissions().mode() & 0o777, 0o666);
        drop(claimed);
    }

    #[test]
    fn what_is_no_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        std::fs::write(&path, "kept").unwrap();
        assert!(matches!(Claim::at(&path), Err(ClaimError::Io(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
