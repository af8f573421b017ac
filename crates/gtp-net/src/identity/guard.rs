//! Whether another user can change a file that decides whom this user trusts.
//!
//! A user who may write a file, or a directory on the way to it, controls its content. So the file,
//! its directory and all directories above it up to the user's home must belong to this user or to
//! root, and no other user may write there. The same holds for symbolic links on the way and for
//! the directories that hold them: whoever can replace a link decides where it leads. A directory
//! in which each user may remove only their own files (the sticky bit) is acceptable. Subordinate
//! user ids are other users: what runs under them in a container may not decide whom its user
//! trusts. What the file says is unknown here.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

use super::place;

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
        "{path} belongs to another user (uid {uid}), who could let himself in; {remedy}",
        path = path.display(), remedy = remedy(path, *uid, *own)
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

/// What to do about a file of another user. A service's list is changed by that service's user:
/// root cannot change it safely in a directory that another user may change meanwhile.
fn remedy(path: &Path, uid: u32, own: u32) -> String {
    match own {
        0 => format!("as root, run the command as that user: sudo -u '#{uid}' gtp ..."),
        _ => format!("make it yours: chown {own} '{}'", path.display()),
    }
}

/// Checks a file, its directory, and the directories above it within the user's home; for each link
/// on the way, the link, the directory that holds it, and those above that within the home. What
/// does not exist passes.
///
/// # Errors
/// What is exposed, the file first.
pub(crate) fn check(path: &Path) -> Result<(), Exposed> {
    check_within(path, place::home().as_deref(), geteuid().as_raw())
}

fn check_within(path: &Path, home: Option<&Path>, own: u32) -> Result<(), Exposed> {
    let Ok(Way { end, links }) = Way::to(path) else { return Ok(()) };
    let home = home.and_then(|home| home.canonicalize().ok());
    judge(&end, own)?;
    check_dirs(end.parent().unwrap_or(&end), home.as_deref(), own)?;
    for link in links {
        let owner = std::fs::symlink_metadata(&link).map(|meta| meta.uid());
        if let Some(uid) = owner.ok().filter(|&uid| uid != own && uid != 0) {
            return Err(Exposed::Foreign { path: link, uid, own });
        }
        if let Some(holder) = link.parent() {
            check_dirs(holder, home.as_deref(), own)?;
        }
    }
    Ok(())
}

/// Where a path leads, without links. The file need not be there.
///
/// # Errors
/// `NotFound` if a link on the way leads nowhere; what the system says.
pub(crate) fn end_of(path: &Path) -> io::Result<PathBuf> {
    let Way { end, links } = Way::to(path)?;
    links.iter().try_for_each(|link| std::fs::metadata(link).map(drop))?;
    Ok(end)
}

/// Checks a directory, and those above it within the home. In what is no directory, as the home
/// `/dev/null`, there is nothing to be exposed.
fn check_dirs(dir: &Path, home: Option<&Path>, own: u32) -> Result<(), Exposed> {
    let inside = |dir: &Path| home.is_some_and(|home| dir.starts_with(home));
    let dirs = dir.ancestors().enumerate();
    let counted = dirs.take_while(|(above, dir)| *above == 0 || inside(dir));
    let mut dirs = counted.map(|(_, dir)| dir).filter(|dir| dir.is_dir());
    dirs.try_for_each(|dir| judge(dir, own))
}

/// How a path is resolved.
struct Way {
    /// Where it leads, without links. A file that does not exist yet can be made there.
    end: PathBuf,
    /// The links on the way.
    links: Vec<PathBuf>,
}

/// Links that the kernel follows in one path (path_resolution(7)).
const LINKS_MOST: usize = 40;

impl Way {
    fn to(path: &Path) -> io::Result<Way> {
        let mut left = parts(path);
        if path.is_relative() {
            left.extend(parts(&std::env::current_dir()?));
        }
        let mut way = Way { end: PathBuf::from("/"), links: Vec::new() };
        while let Some(part) = left.pop() {
            if part == ".." {
                way.end.pop();
                continue;
            }
            let next = way.end.join(&part);
            let Ok(target) = std::fs::read_link(&next) else {
                way.end = next;
                continue;
            };
            if way.links.len() == LINKS_MOST {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            if target.is_absolute() {
                way.end = PathBuf::from("/");
            }
            left.extend(parts(&target));
            way.links.push(next);
        }
        Ok(way)
    }
}

/// The components of a path without its root, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}

/// Checks one file or directory.
fn judge(path: &Path, own: u32) -> Result<(), Exposed> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
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
    fn whoever_can_replace_a_link_on_the_way_exposes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let own = geteuid().as_raw();
        let link = |target: &str, link: &str| {
            fs::create_dir_all(top.join(link).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, top.join(link)).unwrap();
        };
        fs::create_dir_all(top.join("real/gtp")).unwrap();
        fs::write(top.join("real/gtp/list"), "").unwrap();
        // A directory on the way is a link, behind another one; and the file is a link.
        link("../b/config", "a/config");
        link("../real/../real", "b/config");
        link("gtp/list", "real/list");
        let exposed = |path: &str| check_within(&top.join(path), None, own);
        for path in ["a/config/gtp/list", "a/config/list", "a/config/gtp/none", "a/../b/config/x"] {
            assert_eq!(exposed(path), Ok(()), "{path}");
        }
        for (holder, path) in [
            ("a", "a/config/gtp/list"),
            ("b", "a/config/gtp/list"),
            ("b", "a/config/gtp/none"),
            ("real", "a/config/list"),
            ("real/gtp", "a/config/list"),
        ] {
            set_mode(&top.join(holder), 0o777);
            let expected = Exposed::Writable { path: top.join(holder), mode: 0o777 };
            assert_eq!(exposed(path), Err(expected), "{path}");
            set_mode(&top.join(holder), 0o1777);
            assert_eq!(exposed(path), Ok(()), "{path}: nobody else can replace the link");
            set_mode(&top.join(holder), 0o755);
        }
        // Not even the owner's place for links is trusted if it is a subordinate user's.
        if own == 0 {
            std::os::unix::fs::lchown(top.join("a/config"), Some(100_000), None).unwrap();
            let expected = Exposed::Foreign { path: top.join("a/config"), uid: 100_000, own };
            assert_eq!(exposed("a/config/gtp/list"), Err(expected));
        }
        link("loop", "loop");
        assert_eq!(exposed("loop/list"), Ok(()), "it leads nowhere");
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
