//! Where the sockets of a host's daemon, a user's daemon and a user's pump lie.
//!
//! The host's daemon comes first, the user's second. Each directory belongs to the user that runs
//! the daemon, so that no other user can impersonate it. A user's sockets are in the runtime
//! directory that the system keeps for the user. Services, containers, `su` and `cron` have none,
//! or name another user's; then they are in a directory beneath `/tmp`, where any user may have
//! made one of that name first. So it is used only if it belongs to this user and is closed to all
//! others.

use std::ffi::OsString;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// The socket of the daemon of the whole host.
const SYSTEM: &str = "/run/gtp/gtpd.sock";
/// The sockets at which servers that the system's manager runs are looked at, one for each unit.
pub const SERVERS: [&str; 3] = [
    "/run/gtp-serve/status.sock",
    "/run/gtp-serve-readonly/status.sock",
    "/run/gtp-serve-owners/status.sock",
];
/// The directory of all that is GTP's, within a user's own.
const OURS: &str = "gtp";

/// Which daemon a process looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// The host's, else the user's own.
    Usual,
    /// The one at this socket, which somebody named.
    Named(PathBuf),
}

impl Places {
    /// The sockets to try now, in this order. The answer changes with the directories of this host,
    /// so each look asks again: what was absent may since have been made by another user.
    pub fn now(&self) -> Vec<PathBuf> {
        match self {
            Places::Usual => places(),
            Places::Named(path) => vec![path.clone()],
        }
    }
}

/// Where a daemon may listen now, the first to be tried first.
pub fn places() -> Vec<PathBuf> {
    std::iter::once(PathBuf::from(SYSTEM)).chain(user_place().ok()).collect()
}

/// Where a user's own daemon listens. Nothing is made.
///
/// # Errors
/// As [`user_dir`].
pub fn user_place() -> io::Result<PathBuf> {
    Ok(user_dir()?.join("gtpd.sock"))
}

/// The directory of this user's sockets: `gtp` in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`,
/// else in `/tmp/gtp-UID`. It need not be there; [`make_user_dir`] makes it.
///
/// # Errors
/// `PermissionDenied` if `/tmp/gtp-UID` exists and other users own it or can enter it.
pub fn user_dir() -> io::Result<PathBuf> {
    Roots::of_this_process().find()
}

/// Makes the directory of this user's sockets, unless it is there.
///
/// # Errors
/// As [`user_dir`], and the system's error.
pub fn make_user_dir() -> io::Result<PathBuf> {
    Roots::of_this_process().make()
}

/// Whether a socket is in one of the directories where a user's own daemon may listen, whoever has
/// made that directory. Only this user or root is believed there.
pub(crate) fn is_users_own(socket: &Path) -> bool {
    socket != Path::new(SYSTEM) && Roots::of_this_process().has(socket)
}

/// Checks that nobody else can replace a socket in a directory: root or this user owns it, and
/// nobody else may write to it, unless it is sticky.
///
/// # Errors
/// `PermissionDenied`, in words for people; else what the system says.
pub fn check_socket_dir(dir: &Path) -> io::Result<()> {
    let found = std::fs::metadata(dir)?;
    let own = rustix::process::geteuid().as_raw();
    let refuse = |why: &str| {
        let text = format!(
            "{}: {why}, and could replace the socket: use a directory of this user's",
            dir.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    if found.uid() != 0 && found.uid() != own {
        return refuse(&format!("user {} owns this directory", found.uid()));
    }
    if found.mode() & 0o1000 != 0 {
        return Ok(());
    }
    match (found.mode() & 0o002 != 0, found.mode() & 0o020 != 0) {
        (true, _) => refuse("every user may write to this directory"),
        (false, true) => refuse("a group may write to this directory"),
        (false, false) => Ok(()),
    }
}

/// What decides where a user's directory is.
struct Roots {
    /// What `XDG_RUNTIME_DIR` says.
    named: Option<OsString>,
    /// Where the system keeps a directory for each user.
    users: PathBuf,
    /// Where anybody may make a directory.
    shared: PathBuf,
    /// The user.
    uid: u32,
}

impl Roots {
    fn of_this_process() -> Roots {
        // It is read once: a program's threads may change its environment at any time.
        static NAMED: OnceLock<Option<OsString>> = OnceLock::new();
        Roots {
            named: NAMED.get_or_init(|| std::env::var_os("XDG_RUNTIME_DIR")).clone(),
            users: PathBuf::from("/run/user"),
            shared: PathBuf::from("/tmp"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    fn find(&self) -> io::Result<PathBuf> {
        let named = self.named.as_ref().map(PathBuf::from);
        if let Some(dir) = named.filter(|dir| dir.is_absolute() && self.is_usable(dir)) {
            return Ok(dir.join(OURS));
        }
        let kept = self.users.join(self.uid.to_string());
        if kept.metadata().is_ok_and(|found| self.is_private(&found)) {
            return Ok(kept.join(OURS));
        }
        let shared = self.in_shared();
        match shared.symlink_metadata() {
            Ok(found) if !self.is_private(&found) => Err(self.refusal(&shared, &found)),
            Ok(_) | Err(_) => Ok(shared.join(OURS)),
        }
    }

    fn make(&self) -> io::Result<PathBuf> {
        let dir = self.find()?;
        let shared = self.in_shared();
        if dir.starts_with(&shared) {
            make_private(&shared)?;
            // Whoever was faster than this process made it.
            let found = shared.symlink_metadata()?;
            if !self.is_private(&found) {
                return Err(self.refusal(&shared, &found));
            }
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        self.check_made(&dir)?;
        Ok(dir)
    }

    /// Looks again at a directory that is there now: another user may have been faster and have
    /// made it, or the one above it.
    fn check_made(&self, dir: &Path) -> io::Result<()> {
        for made in dir.parent().into_iter().chain([dir]) {
            let found = made.metadata()?;
            if !self.is_closed(&found) {
                return Err(self.refusal(made, &found));
            }
        }
        Ok(())
    }

    /// Whether a socket is in one of the directories that [`find`](Roots::find) may give.
    fn has(&self, socket: &Path) -> bool {
        let named = self.named.as_ref().map(PathBuf::from).filter(|dir| dir.is_absolute());
        let mut tops =
            named.into_iter().chain([self.users.join(self.uid.to_string()), self.in_shared()]);
        tops.any(|top| socket.parent() == Some(top.join(OURS).as_path()))
    }

    fn in_shared(&self) -> PathBuf {
        self.shared.join(format!("gtp-{}", self.uid))
    }

    /// Whether a directory that was named is this user's, or can be made. `su` leaves the name of
    /// another user's, and containers that of one which is not there.
    fn is_usable(&self, dir: &Path) -> bool {
        match dir.metadata() {
            Ok(found) => self.is_closed(&found),
            Err(_) => {
                let above = dir.ancestors().skip(1).find(|above| above.exists());
                let writable = Access::WRITE_OK | Access::EXEC_OK;
                above.is_some_and(|above| accessat(CWD, above, writable, AtFlags::EACCESS).is_ok())
            }
        }
    }

    /// Whether something is a directory of this user's to which nobody else may write.
    fn is_closed(&self, found: &Metadata) -> bool {
        found.is_dir() && found.uid() == self.uid && found.mode() & 0o022 == 0
    }

    /// What is wrong with what is at a place that is to be a directory of this user's alone, and
    /// what to type.
    fn refusal(&self, place: &Path, found: &Metadata) -> io::Error {
        let shown = gtp_text::of_text(&place.to_string_lossy());
        let (uid, owner, mode) = (self.uid, found.uid(), found.mode() & 0o7777);
        let why = if found.is_symlink() {
            format!("is a symbolic link, which gtp does not follow there: remove it (rm {shown})")
        } else if owner != uid {
            format!(
                "belongs to user {owner}, and you are user {uid}: ask that user or root to remove \
                 it, or use a directory of your own \
                 (mkdir -p -m 700 ~/.gtp-run; export XDG_RUNTIME_DIR=~/.gtp-run)"
            )
        } else if !found.is_dir() {
            format!("is not a directory: remove it (rm {shown})")
        } else {
            format!("has mode {mode:04o}, which lets other users in: close it (chmod 700 {shown})")
        };
        io::Error::new(io::ErrorKind::PermissionDenied, format!("{shown} {why}"))
    }

    /// Whether something is a directory of this user's, and closed to all others.
    fn is_private(&self, found: &Metadata) -> bool {
        found.is_dir() && found.uid() == self.uid && found.mode() & 0o077 == 0
    }
}

/// Makes a directory of mode 0700 whatever the mask, unless something of that name is there.
fn make_private(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn roots(top: &Path, named: Option<PathBuf>) -> Roots {
        let uid = rustix::process::geteuid().as_raw();
        let (users, shared) = (top.join("run-user"), top.join("tmp"));
        std::fs::create_dir_all(&shared).unwrap();
        Roots { named: named.map(Into::into), users, shared, uid }
    }

    fn mode(dir: &Path, mode: u32) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn without_a_named_directory_the_systems_own_is_used_and_without_that_one_is_made_in_tmp() {
        let top = tempfile::tempdir().unwrap();
        let roots = roots(top.path(), None);
        let made = roots.make().unwrap();
        let shared = top.path().join(format!("tmp/gtp-{}", roots.uid));
        assert_eq!(made, shared.join("gtp"));
        for dir in [&shared, &made] {
            assert_eq!(dir.metadata().unwrap().mode() & 0o777, 0o700, "{}", dir.display());
        }
        assert_eq!(roots.find().unwrap(), made);
        assert_eq!(roots.make().unwrap(), made, "it may be there");
        let kept = roots.users.join(roots.uid.to_string());
        mode(&kept, 0o755);
        assert_eq!(roots.find().unwrap(), made, "others may enter that one");
        mode(&kept, 0o700);
        assert_eq!(roots.find().unwrap(), kept.join("gtp"));
    }

    #[test]
    fn a_named_directory_counts_unless_it_is_anothers_or_cannot_be_made() {
        let top = tempfile::tempdir().unwrap();
        let named = top.path().join("named/deep");
        let mut roots = roots(top.path(), Some(named.clone()));
        assert_eq!(roots.find().unwrap(), named.join("gtp"), "it can be made");
        assert_eq!(roots.make().unwrap(), named.join("gtp"));
        let shared = roots.in_shared().join("gtp");
        mode(&named, 0o777);
        assert_eq!(roots.find().unwrap(), shared, "anybody can write to that one");
        roots.named = Some("relative".into());
        assert_eq!(roots.find().unwrap(), shared);
        // As `su` leaves it.
        mode(&named, 0o700);
        roots.named = Some(named.into());
        roots.uid += 1;
        assert_eq!(roots.find().unwrap(), roots.in_shared().join("gtp"));
    }

    #[test]
    fn what_others_can_have_made_in_tmp_is_refused_with_what_is_wrong_and_what_to_type() {
        let top = tempfile::tempdir().unwrap();
        let roots = roots(top.path(), None);
        let (shared, elsewhere) = (roots.in_shared(), top.path().join("elsewhere"));
        let place = shared.display().to_string();
        let refused = |roots: &Roots, why: &str| {
            for refused in [roots.find(), roots.make()] {
                let said = refused.unwrap_err().to_string();
                assert!(said.contains(why), "{why}: {said}");
            }
        };
        mode(&elsewhere, 0o700);
        symlink(&elsewhere, &shared).unwrap();
        refused(&roots, &format!("{place} is a symbolic link"));
        refused(&roots, &format!("(rm {place})"));
        assert!(!elsewhere.join("gtp").exists(), "no link is followed");
        std::fs::remove_file(&shared).unwrap();
        std::fs::write(&shared, "").unwrap();
        refused(&roots, &format!("{place} is not a directory: remove it"));
        std::fs::remove_file(&shared).unwrap();
        mode(&shared, 0o750);
        refused(
            &roots,
            &format!("has mode 0750, which lets other users in: close it (chmod 700 {place})"),
        );
        let own = roots.uid;
        let another = Roots { uid: own + 1, ..roots };
        mode(&another.in_shared(), 0o700);
        refused(&another, &format!("belongs to user {own}, and you are user {}", own + 1));
        refused(&another, "export XDG_RUNTIME_DIR=");
    }

    #[test]
    fn a_directory_that_another_made_meanwhile_is_no_place_for_a_socket() {
        let top = tempfile::tempdir().unwrap();
        let named = top.path().join("named");
        let roots = roots(top.path(), Some(named.clone()));
        let dir = roots.make().unwrap();
        roots.check_made(&dir).unwrap();
        // The kernel makes nothing where something is, so this is what a faster one leaves.
        mode(&dir, 0o770);
        assert!(roots.make().is_err(), "others may write to it");
        mode(&dir, 0o700);
        mode(&named, 0o770);
        assert!(roots.check_made(&dir).is_err(), "others may replace it");
        let another = Roots { uid: roots.uid + 1, ..roots };
        assert!(another.check_made(&dir).is_err(), "it is another user's");
    }

    #[test]
    fn a_users_own_places_are_known_whether_or_not_they_are_there() {
        let top = tempfile::tempdir().unwrap();
        let roots = roots(top.path(), Some(top.path().join("named")));
        let kept = roots.users.join(roots.uid.to_string());
        for own in [top.path().join("named"), kept, roots.in_shared()] {
            assert!(roots.has(&own.join("gtp/gtpd.sock")), "{}", own.display());
        }
        assert!(!roots.has(Path::new(SYSTEM)) && !roots.has(&top.path().join("gtpd.sock")));
        let uid = roots.uid;
        assert!(is_users_own(Path::new(&format!("/tmp/gtp-{uid}/gtp/gtpd.sock"))));
        assert!(!is_users_own(Path::new(SYSTEM)));
    }

    #[test]
    fn a_socket_is_not_put_where_a_group_or_everybody_may_replace_it() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path();
        for (bits, fits) in [(0o755, true), (0o775, false), (0o757, false), (0o1777, true)] {
            mode(dir, bits);
            assert_eq!(check_socket_dir(dir).is_ok(), fits, "{bits:o}");
        }
    }
}
