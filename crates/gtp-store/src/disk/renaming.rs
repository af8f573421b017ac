//! Renaming on file systems that refuse the ordinary call, or on which it does not replace.
//!
//! Nothing is lost where none of the other ways works either. This module must not know what a
//! name is for.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, RenameFlags, linkat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

/// Renames where the ordinary call is refused, or does not replace: by its newer form, or by a
/// second link. Nobody sees the name empty unless the file system cannot replace at all.
///
/// # Errors
/// What the system says; the file then has its old name.
pub fn rename_otherwise(holder: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), Errno> {
    if renameat_with(holder, from, holder, to, RenameFlags::empty()).is_ok() {
        return Ok(());
    }
    replace_by_link(holder, from, to)
}

fn replace_by_link(holder: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), Errno> {
    if let Ok(stat) = statat(holder, to, AtFlags::SYMLINK_NOFOLLOW) {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::EXIST);
        }
        // Only where the part can get the name: else what was there would be lost.
        let spare = format!("{from}~");
        // A process that was killed here has left its own.
        match unlinkat(holder, &spare, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        linkat(holder, from, holder, &spare, AtFlags::empty())?;
        unlinkat(holder, &spare, AtFlags::empty())?;
        unlinkat(holder, to, AtFlags::empty())?;
    }
    linkat(holder, from, holder, to, AtFlags::empty())?;
    unlinkat(holder, from, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_stale_spare_link_does_not_keep_a_file_from_its_name() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["x.part", "x.part~", "x"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let holder = File::open(dir.path()).unwrap();
        let part = "x.part";
        replace_by_link(holder.as_fd(), part, "x").unwrap();
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), part.as_bytes());
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}
