//! A walk through all that is beneath a directory, however deep it is.
//!
//! Down to the depth that a path may have, each directory on the way is open and read as the walk
//! goes. Names may lie deeper, since a tree may be moved beneath another: such a directory is read
//! at once, only the last one is open, and the way back up is its `..`, which must lead to the
//! directory that was left. So a walk holds as many descriptors as a path may have components.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;

use super::{Usage, means_nothing, place, told, usage_of};
use crate::name::MAX_DEPTH;
use crate::walk;

/// Hears what each name takes, by its path, and says whether to go on.
type Each<'e> = dyn FnMut(&str, Option<Usage>) -> bool + 'e;

/// Tells what each name beneath a directory takes, with its path, until `each` says that it is
/// enough; `None` for what cannot be looked at. Returns whether all was told.
///
/// # Errors
/// If the directory itself cannot be read.
pub(super) fn all_beneath(dir: OwnedFd, each: &mut Each<'_>) -> Result<bool, Errno> {
    let top = Level { reading: Reading::Open(Dir::read_from(&dir)?), path: 0 };
    let (path, deepest, is_enough) = (String::new(), None, false);
    let mut descent = Descent { levels: vec![top], path, deepest, each, is_enough };
    while !descent.levels.is_empty() {
        if !descent.step() {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Descent<'e, 'f> {
    /// The directories on the way, the top first.
    levels: Vec<Level>,
    /// The path of the last one.
    path: String,
    /// It, where it is not kept open for being read.
    deepest: Option<OwnedFd>,
    each: &'e mut Each<'f>,
    /// That was heard while a directory was read at once.
    is_enough: bool,
}

struct Level {
    reading: Reading,
    /// The length of the path of the directory above.
    path: usize,
}

enum Reading {
    /// Its names come one by one.
    Open(Dir),
    /// Its names are told, and these directories are left.
    Listed { left: Vec<CString>, place: (u64, u64) },
}

/// What comes next on the way.
enum Next {
    /// A directory beneath the last one, with its name.
    Below(OwnedFd, CString),
    /// Another name of the last one.
    Beside,
    /// There is no other name.
    Above,
    /// Enough was heard.
    Nothing,
}

impl Descent<'_, '_> {
    /// Goes on by one name. `false`: that is enough.
    fn step(&mut self) -> bool {
        match self.next() {
            Next::Below(dir, name) => return self.enter(&dir, &name),
            Next::Beside => {}
            Next::Above => self.leave(),
            Next::Nothing => return false,
        }
        true
    }

    fn next(&mut self) -> Next {
        let Descent { levels, path, deepest, each, is_enough: _ } = self;
        let Some(level) = levels.last_mut() else { return Next::Nothing };
        match &mut level.reading {
            Reading::Open(dir) => match dir.read() {
                None => Next::Above,
                Some(entry) => {
                    let entry = entry.and_then(|entry| Ok((entry, dir.fd()?)));
                    let Ok((entry, dir)) = entry else {
                        return if each(path, None) { Next::Above } else { Next::Nothing };
                    };
                    let name = entry.file_name();
                    match tell(dir, name, path, each) {
                        false => Next::Nothing,
                        true if may_lead_down(entry.file_type(), name) => {
                            below(dir, name, path, each)
                        }
                        true => Next::Beside,
                    }
                }
            },
            Reading::Listed { left, .. } => match (left.pop(), deepest) {
                (None, _) => Next::Above,
                (Some(name), Some(dir)) => below(dir.as_fd(), &name, path, each),
                // It is not where it was, so what is left of it is out of reach.
                (Some(_), None) if each(path, None) => Next::Above,
                (Some(_), None) => Next::Nothing,
            },
        }
    }

    /// Goes down into a directory. `false`: that is enough.
    fn enter(&mut self, dir: &OwnedFd, name: &CStr) -> bool {
        let above = self.path.len();
        self.path = beneath(&self.path, name);
        let reading = match self.levels.len() <= MAX_DEPTH {
            true => Dir::read_from(dir).map(Reading::Open),
            false => self.list(dir),
        };
        match reading {
            Ok(reading) => self.levels.push(Level { reading, path: above }),
            Err(error) => {
                let goes_on = means_nothing(error) || (self.each)(&self.path, None);
                self.path.truncate(above);
                return goes_on;
            }
        }
        !self.is_enough
    }

    /// Tells all names of a directory at once.
    fn list(&mut self, dir: &OwnedFd) -> Result<Reading, Errno> {
        let (place, mut left) = (place(dir.as_fd())?, Vec::new());
        for entry in Dir::read_from(dir)? {
            let goes_on = match entry {
                Ok(entry) => {
                    let name = entry.file_name();
                    if may_lead_down(entry.file_type(), name) {
                        left.push(name.to_owned());
                    }
                    tell(dir.as_fd(), name, &self.path, self.each)
                }
                Err(_) => (self.each)(&self.path, None),
            };
            self.is_enough |= !goes_on;
            if self.is_enough {
                break;
            }
        }
        self.deepest = dir.try_clone().ok();
        Ok(Reading::Listed { left, place })
    }

    /// Goes back up.
    fn leave(&mut self) {
        let Some(left) = self.levels.pop() else { return };
        self.path.truncate(left.path);
        let from = self.deepest.take().filter(|_| matches!(left.reading, Reading::Listed { .. }));
        if let (Some(from), Some(Level { reading: Reading::Listed { place: was, .. }, .. })) =
            (from, self.levels.last())
        {
            let up = walk::open_bytes(from.as_fd(), b"..", FLAGS).ok();
            self.deepest = up.filter(|up| place(up.as_fd()) == Ok(*was));
        }
    }
}

const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY);

/// Tells what a name takes. `false`: that is enough.
fn tell(dir: BorrowedFd<'_>, name: &CStr, path: &str, each: &mut Each<'_>) -> bool {
    if is_dots(name) {
        return true;
    }
    let takes = told(usage_of(dir, name.to_bytes()));
    takes == Some(Usage::default()) || each(&beneath(path, name), takes)
}

/// Opens what may be a directory.
fn below(dir: BorrowedFd<'_>, name: &CStr, path: &str, each: &mut Each<'_>) -> Next {
    match walk::open_bytes(dir, name.to_bytes(), FLAGS) {
        Ok(dir) => Next::Below(dir, name.to_owned()),
        Err(error) if means_nothing(error) || each(&beneath(path, name), None) => Next::Beside,
        Err(_) => Next::Nothing,
    }
}

fn beneath(path: &str, name: &CStr) -> String {
    let name = name.to_string_lossy();
    if path.is_empty() { name.into_owned() } else { format!("{path}/{name}") }
}

fn may_lead_down(kind: FileType, name: &CStr) -> bool {
    matches!(kind, FileType::Directory | FileType::Unknown) && !is_dots(name)
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory with a file at each of so many levels, and one beside the way.
    fn deep(levels: usize) -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let top = OwnedFd::from(fs::File::open(dir.path()).unwrap());
        let mut at = top.try_clone().unwrap();
        for level in 0..levels {
            let mode = rustix::fs::Mode::from_raw_mode(0o700);
            for name in ["d", "e"] {
                rustix::fs::mkdirat(&at, name, mode).unwrap();
            }
            let file = OFlags::CREATE | OFlags::WRONLY;
            let file = rustix::fs::openat(&at, "f", file, mode).unwrap();
            rustix::fs::ftruncate(&file, level as u64 + 1).unwrap();
            at = walk::open_bytes(at.as_fd(), b"d", FLAGS).unwrap();
        }
        (dir, top)
    }

    fn count(dir: OwnedFd) -> (Usage, bool) {
        let (mut all, mut is_whole) = (Usage::default(), true);
        all_beneath(dir, &mut |_, takes| {
            is_whole &= takes.is_some();
            all = all.plus(takes.unwrap_or_default());
            true
        })
        .unwrap();
        (all, is_whole)
    }

    #[test]
    fn what_lies_deeper_than_a_path_can_say_counts_as_well() {
        for levels in [MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2, 3 * MAX_DEPTH] {
            let (_dir, top) = deep(levels);
            let n = levels as u64;
            let expected = Usage { bytes: n * (n + 1) / 2, files: 3 * n };
            assert_eq!(count(top), (expected, true), "{levels}");
        }
    }

    #[test]
    fn a_walk_ends_where_it_is_told_to_also_far_below() {
        let levels = MAX_DEPTH + 20;
        let (_dir, top) = deep(levels);
        let mut left = 3 * (MAX_DEPTH + 10);
        let whole = all_beneath(top, &mut |_, _| {
            left -= 1;
            left > 0
        });
        assert_eq!((whole, left), (Ok(false), 0));
    }

    #[test]
    fn what_is_left_of_a_deep_directory_is_unseen_if_the_walk_was_moved_out_of_it_meanwhile() {
        let (dir, top) = deep(MAX_DEPTH + 1);
        let mut far = dir.path().to_path_buf();
        far.extend(vec!["d"; MAX_DEPTH + 1]);
        for name in ["x", "y"] {
            fs::create_dir_all(far.join(name).join("z")).unwrap();
            fs::write(far.join(name).join("z/g"), "1").unwrap();
        }
        let (mut unseen, mut moved) = (Vec::new(), None);
        all_beneath(top, &mut |path, takes| {
            if takes.is_none() {
                unseen.push(path.to_owned());
            }
            if path.ends_with("/z/g") && moved.is_none() {
                let names: Vec<&str> = path.rsplit('/').collect();
                fs::rename(far.join(names[2]), dir.path().join("moved")).unwrap();
                moved = Some(names[2].to_owned());
            }
            true
        })
        .unwrap();
        assert!(moved.is_some());
        assert_eq!(unseen, [vec!["d"; MAX_DEPTH + 1].join("/")]);
    }
}
