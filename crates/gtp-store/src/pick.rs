//! The listing of chosen entries of a directory, without a walk through the rest of it.
//!
//! Whoever knows already which files are wanted pays for those alone. Everything is reached beneath
//! the handle, and no link is followed, as in a whole listing.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, fstat, statat};

use crate::export::{Export, Scanned, Stamp, attributes, beneath_error, entry};
use crate::lister::may_read;
use crate::manifest::{Entry, Kind, Manifest, RootKind};
use crate::name::RelPath;
use crate::numbering::Numbering;
use crate::source::SourceError;
use crate::walk;

impl Export {
    /// The listing of these paths of a directory and of nothing else. A chosen entry needs the
    /// directories above it. What is not there, cannot be read or is neither a file nor a directory
    /// is missing in the listing. Takes time in proportion to the paths.
    ///
    /// # Errors
    /// If the directory itself cannot be looked at, or there are too many paths.
    pub fn pick(self, paths: &BTreeSet<String>) -> Result<Scanned, SourceError> {
        let own = fstat(self.base()).map_err(|error| beneath_error(".", error))?;
        let mut picking = Picking { base: self.into_base(), dir: None };
        let found = paths.iter().filter_map(|path| picking.look(path));
        let (entries, stamps): (Vec<Entry>, Vec<Stamp>) = found.unzip();
        let manifest = Manifest { root_kind: RootKind::Dir, own: Some(attributes(&own)), entries };
        manifest.validate()?;
        Ok(Scanned {
            manifest: Arc::new(manifest),
            skipped: Vec::new(),
            skipped_total: 0,
            base: picking.base,
            stamps,
            is_unchanged: false,
        })
    }
}

struct Picking {
    base: OwnedFd,
    /// The directory of the last path, which the next one often shares.
    dir: Option<(String, OwnedFd, Numbering)>,
}

impl Picking {
    fn look(&mut self, path: &str) -> Option<(Entry, Stamp)> {
        let whole = RelPath::new(path).ok()?;
        let (parent, name) = walk::split(path);
        if self.dir.as_ref().is_none_or(|(at, ..)| at != parent) {
            let dir = walk::dir_handle(self.base.as_fd(), parent).ok()?;
            let numbering = Numbering::of(&dir);
            self.dir = Some((parent.to_owned(), dir, numbering));
        }
        let (_, dir, numbering) = self.dir.as_ref()?;
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            _ => return None,
        };
        if kind == Kind::File {
            may_read(dir, name.as_bytes()).ok()?;
        }
        Some((entry(whole, kind, &stat), Stamp::of(&stat, *numbering)))
    }
}
