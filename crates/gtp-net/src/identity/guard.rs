//! Whether another user can change a file that decides whom this user trusts.
//!
//! A user who may write a file, or a directory on the way to it, controls its content. So the file,
//! its directory and all directories above it up to the user's home must belong to this user or to
//! root, and no other user may write there. A directory in which each user may remove only their
//! own files (the sticky bit) is acceptable. What the file says is unknown here.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Bits by which group and others may write.
const WRITABLE: u32 = 0o022;
/// In a directory with this bit only the owner of a file may replace it.
const STICKY: u32 = 0o1000;

/// Another user may change what is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// Group or world may write.
    #[error(
        "others may write {path} (mode {mode:03o}), and so could let themselves in; if they have \
         not, run: chmod go-w '{path}'",
        path = path.display()
    )]
    Writable {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{path} belongs to another user (uid {uid}), who could let himself in; make it yours: \
         chown {own} '{path}'",
        path = path.display()
    )]
    Foreign {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// This user.
        own: u32,
    },
}

/// Checks a file, its directory, and the directories above it within the user's home. What does not
/// exist passes; links are followed, so their targets count.
///
/// # Errors
/// What is exposed, the file first.
pub(crate) fn check(path: &Path) -> Result<(), Exposed> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    check_within(path, home.as_deref(), geteuid().as_raw())
}

fn check_within(path: &Path, home: Option<&Path>, own: u32) -> Result<(), Exposed> {
    // A file that does not exist yet can be made by any user who may write its directory.
    let real = path.canonicalize().or_else(|_| real_place(path));
    let Ok(real) = real else { return Ok(()) };
    let home = home.and_then(|home| home.canonicalize().ok());
    let inside = |dir: &Path| home.as_ref().is_some_and(|home| dir.starts_with(home));
    for (above, place) in real.ancestors().enumerate() {
        if above > 1 && !inside(place) {
            break;
        }
        if let Ok(meta) = std::fs::metadata(place) {
            judge(place, &meta, own)?;
        }
    }
    Ok(())
}

/// Where a file that does not exist yet will be.
fn real_place(path: &Path) -> io::Result<PathBuf> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(dir.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

fn judge(path: &Path, meta: &Metadata, own: u32) -> Result<(), Exposed> {
    let (uid, mode) = (meta.uid(), meta.mode() & 0o7777);
    if uid != own && uid != 0 {
        return Err(Exposed::Foreign { path: path.to_owned(), uid, own });
    }
    if mode & WRITABLE != 0 && !(meta.is_dir() && mode & STICKY != 0) {
        return Err(Exposed::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_that_others_may_write_or_replace_is_exposed_up_to_the_users_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("home");
        let config = home.join("config");
        let inner = config.join("gtp");
        let file = inner.join("authorized_keys");
        fs::create_dir_all(&inner).unwrap();
        fs::write(&file, "").unwrap();
        let own = geteuid().as_raw();
        let check = || check_within(&file, Some(&home), own);
        for path in [&file, &inner, &config, &home] {
            let sound = if path.is_dir() { 0o755 } else { 0o644 };
            for mode in [sound | 0o020, sound | 0o002, 0o777] {
                set_mode(path, mode);
                let exposed = Exposed::Writable { path: path.clone(), mode };
                assert!(exposed.to_string().contains("chmod go-w"));
                assert_eq!(check(), Err(exposed));
            }
            set_mode(path, sound);
            assert_eq!(check(), Ok(()));
        }
        set_mode(&home, 0o1777);
        assert_eq!(check(), Ok(()), "nobody can replace what is another's there");
        set_mode(&home, 0o777);
        assert_eq!(check_within(&file, None, own), Ok(()), "above its directory is not looked at");
        set_mode(&home, 0o755);
        fs::remove_file(&file).unwrap();
        assert_eq!(check(), Ok(()));
        set_mode(&inner, 0o777);
        assert!(check().is_err(), "others could make the file");
    }

    #[test]
    fn a_file_of_another_user_is_exposed_and_one_of_root_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("known_hosts");
        fs::write(&file, "").unwrap();
        let owner = fs::metadata(&file).unwrap().uid();
        let other = check_within(&file, None, owner + 1);
        if owner == 0 {
            assert_eq!(other, Ok(()));
        } else {
            assert!(matches!(other, Err(Exposed::Foreign { .. })), "{other:?}");
        }
        assert_eq!(check_within(&file, None, owner), Ok(()));
    }

    #[test]
    fn a_link_is_judged_by_where_it_leads() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("elsewhere");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("list"), "").unwrap();
        let link = dir.path().join("authorized_keys");
        std::os::unix::fs::symlink(place.join("list"), &link).unwrap();
        let own = geteuid().as_raw();
        assert_eq!(check_within(&link, None, own), Ok(()));
        set_mode(&place, 0o777);
        assert!(check_within(&link, None, own).is_err());
    }
}
