//! A file whose length nobody knows before its end.
//!
//! Its bytes come in order and are written to a part file beside its final name. It gets that name
//! when its end was said and its bytes survive a loss of power; else the part file goes, because a
//! stream cannot be resumed. Whether the bytes are the right ones is for the caller to know.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fsync, renameat, statat, unlinkat};

use crate::disk::{PERMISSIONS, umask};
use crate::name::{PART_SUFFIX, RelPath, beside};
use crate::walk;

/// A file that is being written in order. Dropping it removes what was written.
#[derive(Debug)]
pub struct StreamedFile {
    dir: OwnedFd,
    part: String,
    name: RelPath,
    file: File,
    bytes: u64,
    is_placed: bool,
}

impl StreamedFile {
    /// The name that its part file has beside `name`.
    pub fn part_of(name: &RelPath, tag: u64) -> String {
        beside(name.as_str(), &format!(".{tag:016x}{PART_SUFFIX}"))
    }

    /// Begins a file `name` in the directory `dir`. `tag` tells its part file from those of other
    /// streams to the same name. What has the name now stays until [`StreamedFile::place`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a name of several components, and what creating the part
    /// file says.
    pub fn create(dir: OwnedFd, name: RelPath, tag: u64) -> io::Result<StreamedFile> {
        if name.parent().is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name is a path"));
        }
        let part = StreamedFile::part_of(&name, tag);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        // Who may read it is said when it gets its name.
        let file = walk::open(dir.as_fd(), &part, flags, Mode::from_raw_mode(0o600))?;
        let file = File::from(file);
        Ok(StreamedFile { dir, part, name, file, bytes: 0, is_placed: false })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// What writing says.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits until the bytes survive a loss of power.
    ///
    /// # Errors
    /// What syncing says.
    pub fn settle(&self) -> io::Result<()> {
        Ok(fsync(&self.file)?)
    }

    /// Gives the file its name once its bytes are on the disk. It takes the place and the
    /// permissions of a file that has the name; a new file gets those that the umask leaves.
    ///
    /// # Errors
    /// What syncing and renaming say; the part file is removed then.
    pub fn place(mut self) -> io::Result<()> {
        self.dress();
        self.settle()?;
        renameat(&self.dir, &*self.part, &self.dir, self.name.as_str())?;
        self.is_placed = true;
        // A handle that only names the directory cannot be synced.
        let holder = walk::dir_for_reading(self.dir.as_fd(), "");
        if let Err(error) = holder.and_then(fsync) {
            // Some file systems sync no directory.
            tracing::debug!(%error, "a directory was not synced");
        }
        Ok(())
    }

    /// Gives the part file the permissions that the file is to have.
    fn dress(&self) {
        let there = statat(&self.dir, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let is_file = |mode: &u32| FileType::from_raw_mode(*mode) == FileType::RegularFile;
        let replaced = there.map(|stat| stat.st_mode).filter(is_file);
        let mode = replaced.map_or(0o666 & !umask(), |mode| mode & PERMISSIONS);
        // Some file systems keep no permissions; then the file stays its owner's.
        if let Err(error) = fchmod(&self.file, Mode::from_raw_mode(mode)) {
            tracing::debug!(%error, "a file's permissions were not set");
        }
    }
}

impl Drop for StreamedFile {
    fn drop(&mut self) {
        if self.is_placed {
            return;
        }
        if let Err(error) = unlinkat(&self.dir, &*self.part, AtFlags::empty()) {
            tracing::debug!(part = %self.part, %error, "a part file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn begin(dir: &std::path::Path, name: &str) -> io::Result<StreamedFile> {
        let handle = OwnedFd::from(File::open(dir).unwrap());
        StreamedFile::create(handle, RelPath::new(name).unwrap(), 7)
    }

    fn names(dir: &std::path::Path) -> Vec<String> {
        let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn it_has_its_name_once_it_is_whole_and_replaces_what_had_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "old").unwrap();
        let mut file = begin(dir.path(), "a").unwrap();
        file.append(b"new ").unwrap();
        file.append(b"content").unwrap();
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"old");
        assert_eq!(file.bytes(), 11);
        file.place().unwrap();
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"new content");
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn it_keeps_the_permissions_of_the_file_that_it_replaces_and_is_private_until_then() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().mode() & 0o7777;
        let set =
            |mode| std::fs::set_permissions(dir.path().join("a"), Permissions::from_mode(mode));
        std::fs::write(dir.path().join("a"), "old").unwrap();
        std::fs::write(dir.path().join("b"), "as the umask has it").unwrap();
        for (before, after) in [(0o600, 0o600), (0o4755, 0o755), (0o444, 0o444)] {
            set(before).unwrap();
            let file = begin(dir.path(), "a").unwrap();
            assert_eq!(mode(&file.part), 0o600);
            file.place().unwrap();
            assert_eq!(mode("a"), after);
        }
        begin(dir.path(), "new").unwrap().place().unwrap();
        assert_eq!(mode("new"), mode("b"));
        // A link has no permissions of its own; it goes.
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        begin(dir.path(), "link").unwrap().place().unwrap();
        assert_eq!(mode("link"), mode("b"));
    }

    #[test]
    fn nothing_is_left_of_one_that_does_not_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = begin(dir.path(), &"x".repeat(255)).unwrap();
        file.append(b"a part").unwrap();
        let part = names(dir.path()).pop().unwrap();
        assert!(RelPath::new(&part).is_err(), "no peer can name it");
        drop(file);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_directory_of_the_name_stays_and_a_path_is_no_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        assert!(begin(dir.path(), "d").unwrap().place().is_err());
        assert_eq!(names(dir.path()), ["d"]);
        assert!(begin(dir.path(), "d/x").is_err());
    }
}
