//! How much is there beneath a directory: bytes and names.
//!
//! A file counts with its length, also where it has holes, and once for each of its names. A
//! directory, a link or a special file counts as a name. Journals that transfers keep do not
//! count; unfinished files do. No link is followed. What the numbers are for is unknown here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, fstat, statat};
use rustix::io::Errno;

use crate::name::{JOURNAL_SUFFIX, PART_SUFFIX, beside};
use crate::walk;
use descent::all_beneath;

mod descent;

/// An amount of content and names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Lengths of files, in bytes.
    pub bytes: u64,
    /// Names.
    pub files: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }

    /// What is left of it without the other; nothing where the other is more.
    #[must_use]
    pub fn minus(self, other: Usage) -> Usage {
        Usage {
            bytes: self.bytes.saturating_sub(other.bytes),
            files: self.files.saturating_sub(other.files),
        }
    }
}

/// Looks at single names beneath a directory. Names that follow one another in one directory cost
/// one walk there.
#[derive(Debug)]
pub struct Sizes {
    base: OwnedFd,
    near: Option<(String, OwnedFd)>,
}

impl Sizes {
    /// Looks beneath this directory.
    pub fn beneath(base: OwnedFd) -> Sizes {
        Sizes { base, near: None }
    }

    /// The directory beneath which it looks.
    pub fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// Looks at directories anew from now on: one may have taken another's place.
    pub fn look_anew(&mut self) {
        self.near = None;
    }

    /// What a name takes, alone and not with what is beneath it: nothing if it is not there, and
    /// `None` if it cannot be looked at.
    pub fn of(&mut self, path: &str) -> Option<Usage> {
        let (parent, name) = walk::split(path);
        told(self.dir(parent).and_then(|dir| usage_of(dir, name.as_bytes())))
    }

    /// The same for a name together with the unfinished file that is to get it.
    pub fn with_part(&mut self, path: &str) -> Option<Usage> {
        Some(self.of(path)?.plus(self.of_part(path)?))
    }

    /// Whether a directory that is open is the one at this path.
    ///
    /// # Errors
    /// If the one at this path cannot be looked at, though it may be there.
    pub fn leads_to(&mut self, path: &str, open: BorrowedFd<'_>) -> Result<bool, Errno> {
        match self.dir(path).and_then(place) {
            Ok(found) => Ok(place(open)? == found),
            Err(error) if means_nothing(error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a directory is there.
    pub fn is_dir(&mut self, path: &str) -> bool {
        self.dir(path).is_ok()
    }

    /// The length and the time, in whole seconds, of the file that has a name.
    pub fn file(&mut self, path: &str) -> Option<(u64, i64)> {
        let (parent, name) = walk::split(path);
        let stat = statat(self.dir(parent).ok()?, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then_some((stat.st_size as u64, stat.st_mtime))
    }

    /// What the unfinished file takes that is to get this name; `None` if it cannot be looked at.
    pub fn of_part(&mut self, path: &str) -> Option<Usage> {
        let (parent, name) = walk::split(path);
        let part = beside(name, PART_SUFFIX);
        told(self.dir(parent).and_then(|dir| usage_of(dir, part.as_bytes())))
    }

    /// Tells what takes what beneath a path, if a directory is there: the paths are beneath it.
    /// `None` stands for what cannot be looked at.
    pub fn beneath_path(&mut self, path: &str, each: &mut dyn FnMut(&str, Option<Usage>)) {
        let opened = walk::dir_for_reading(self.base.as_fd(), path);
        let all = opened.and_then(|dir| {
            all_beneath(dir, &mut |path, takes| {
                each(path, takes);
                true
            })
        });
        if all.err().is_some_and(|error| !means_nothing(error)) {
            each("", None);
        }
    }

    fn dir(&mut self, path: &str) -> Result<BorrowedFd<'_>, Errno> {
        if path.is_empty() {
            return Ok(self.base.as_fd());
        }
        let near = match self.near.take() {
            Some(near) if near.0 == path => near,
            // What is not there may be made before the next look.
            _ => (path.to_owned(), walk::dir_handle(self.base.as_fd(), path)?),
        };
        Ok(self.near.insert(near).1.as_fd())
    }
}

/// What was found: nothing where there is no such name, and `None` where nobody knows.
fn told(found: Result<Usage, Errno>) -> Option<Usage> {
    match found {
        Ok(usage) => Some(usage),
        Err(error) => means_nothing(error).then(Usage::default),
    }
}

/// Which directory this is.
fn place(dir: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    fstat(dir).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Whether an error says that nothing can be there.
fn means_nothing(error: Errno) -> bool {
    // A link on the way is followed by nobody, and a name that is too long cannot be given.
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
}

/// Tells what each name beneath a directory takes, with its path, until `each` says that it is
/// enough. Directories that cannot be read are passed over. Returns whether all was told.
///
/// # Errors
/// If the directory itself cannot be read.
pub fn usage_beneath(
    dir: OwnedFd,
    each: &mut dyn FnMut(&str, Usage) -> bool,
) -> Result<bool, Errno> {
    all_beneath(dir, &mut |path, takes| takes.is_none_or(|takes| each(path, takes)))
}

fn usage_of(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Usage, Errno> {
    if name.ends_with(JOURNAL_SUFFIX.as_bytes()) {
        return Ok(Usage::default());
    }
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let bytes = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_size as u64,
        _ => 0,
    };
    Ok(Usage { bytes, files: 1 })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::unprivileged::without_rights;

    fn handle(dir: &std::path::Path) -> OwnedFd {
        OwnedFd::from(fs::File::open(dir).unwrap())
    }

    #[test]
    fn what_is_in_a_directory_that_is_made_between_two_looks_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut sizes = Sizes::beneath(handle(dir.path()));
        assert_eq!(sizes.of("new/f"), Some(Usage::default()));
        fs::create_dir(dir.path().join("new")).unwrap();
        fs::write(dir.path().join("new/f"), "12345").unwrap();
        assert_eq!(sizes.of("new/f"), Some(Usage { bytes: 5, files: 1 }));
        fs::rename(dir.path().join("new"), dir.path().join("old")).unwrap();
        fs::create_dir(dir.path().join("new")).unwrap();
        sizes.look_anew();
        assert_eq!(sizes.of("new/f"), Some(Usage::default()));
    }

    #[test]
    fn all_that_is_beneath_a_directory_counts_but_journals_and_what_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        for (name, bytes) in [("a/b/f", 5), ("a/x.gtp-part", 7), ("a/x.gtp-journal", 11)] {
            fs::write(dir.path().join(name), vec![0; bytes]).unwrap();
        }
        fs::write(dir.path().join("out/large"), vec![0; 1_000]).unwrap();
        std::os::unix::fs::symlink("../out", dir.path().join("a/link")).unwrap();
        let mut told = Vec::new();
        let took = usage_beneath(handle(&dir.path().join("a")), &mut |path, takes| {
            told.push((path.to_owned(), takes.bytes, takes.files));
            true
        });
        told.sort();
        let expected = [("b", 0), ("b/f", 5), ("link", 0), ("x.gtp-part", 7)];
        let expected: Vec<_> = expected.map(|(p, bytes)| (p.to_owned(), bytes, 1)).into();
        assert_eq!((took, told), (Ok(true), expected));
        let mut sizes = Sizes::beneath(handle(dir.path()));
        let mut beneath = sizes.of("a").unwrap();
        sizes.beneath_path("a", &mut |_, takes| beneath = beneath.plus(takes.unwrap()));
        assert_eq!(beneath, Usage { bytes: 12, files: 5 });
        assert!(sizes.is_dir("a/b") && !sizes.is_dir("a/b/f") && !sizes.is_dir("none"));
        assert_eq!(sizes.file("a/b/f").map(|(size, _)| size), Some(5));
        assert_eq!(sizes.of("a/b/f"), Some(Usage { bytes: 5, files: 1 }));
        assert_eq!(sizes.of_part("a/x"), Some(Usage { bytes: 7, files: 1 }));
        assert_eq!(sizes.with_part("a/x"), Some(Usage { bytes: 7, files: 1 }));
        for none in ["a/none", "a/link/large", "a/b/f/g", "none/x"] {
            assert_eq!(sizes.of(none), Some(Usage::default()), "{none}");
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_told_apart_from_what_is_not_there() {
        without_rights(|| {
            let dir = tempfile::tempdir().unwrap();
            let closed = dir.path().join("a/closed");
            fs::create_dir_all(&closed).unwrap();
            fs::write(closed.join("f"), "12345").unwrap();
            let mode = |bits| fs::set_permissions(&closed, Permissions::from_mode(bits)).unwrap();
            mode(0);
            let mut sizes = Sizes::beneath(handle(dir.path()));
            let mut unseen = Vec::new();
            sizes.beneath_path("a", &mut |path, takes| {
                unseen.extend(takes.is_none().then(|| path.to_owned()));
            });
            assert_eq!((sizes.of("a/closed/f"), sizes.with_part("a/closed/f")), (None, None));
            assert_eq!(unseen, ["closed"]);
            let other = handle(&dir.path().join("a"));
            assert_eq!(sizes.leads_to("a/closed/x", other.as_fd()), Err(Errno::ACCESS));
            mode(0o700);
            assert_eq!(sizes.leads_to("a/closed/x", other.as_fd()), Ok(false));
            assert_eq!(sizes.leads_to("a/closed", other.as_fd()), Ok(false));
            assert_eq!(sizes.leads_to("a/closed", handle(&closed).as_fd()), Ok(true));
            assert_eq!(sizes.of("a/closed/f"), Some(Usage { bytes: 5, files: 1 }));
        });
    }
}
