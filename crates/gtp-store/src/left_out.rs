//! Entries of a tree that a destination does not take: an obstacle at a name, another user's
//! directory, a name that the file system cannot hold. Such an entry is left out and reported, and
//! the others are written. An error that concerns the destination as a whole ends the transfer.

use std::collections::HashSet;

use crate::disk::{Disk, FoundKind};
use crate::file_sink::FileSink;
use crate::manifest::{Entry, Kind, Manifest, RootKind};
use crate::parts::may_mean_the_name;
use crate::sink::{Fault, Refused, SinkError};
use crate::walk::split;

/// Returns whether the object is one file, under its own name or another. If such a file cannot
/// have its place, the whole transfer fails.
fn is_one_file(manifest: &Manifest) -> bool {
    match (manifest.root_kind, &manifest.own, &manifest.entries[..]) {
        (RootKind::File, _, _) => true,
        (RootKind::Dir, None, [only]) => only.kind == Kind::File,
        (RootKind::Dir, _, _) => false,
    }
}

impl<D: Disk> FileSink<D> {
    /// Leaves out an entry that this destination does not take. An error that concerns more than
    /// one entry of a tree comes back.
    pub(crate) fn refuse(&mut self, file: u32, error: SinkError) -> Result<(), SinkError> {
        if let Some(dir) = self.removed_dir(file, &error) {
            return Err(self.parts.refused(&dir, Fault::Gone));
        }
        if is_one_file(self.arrivals.manifest()) || !error.concerns_one_entry() {
            return Err(error);
        }
        if let Some(missing) = self.arrivals.give_up(file) {
            self.drop_part(file);
            self.refused.push(Refused { file, missing, error });
        }
        let entry = self.arrivals.entry(file);
        if entry.kind == Kind::Dir {
            self.refused_dirs.insert(self.parts.names.final_path(&entry.path));
        }
        Ok(())
    }

    /// The directory that somebody has removed, or replaced by something else, since the transfer
    /// made or found it, if that is what this error comes from: the topmost one above the entry.
    fn removed_dir(&mut self, file: u32, error: &SinkError) -> Option<String> {
        let may = [Fault::Missing, Fault::NotADirectory, Fault::Unnameable];
        if !may.contains(&error.fault()?) {
            return None;
        }
        if !self.parts.disk.is_linked() {
            return Some(String::new());
        }
        let path = self.parts.final_path(file);
        for (at, _) in path.match_indices('/') {
            let dir = &path[..at];
            if self.refused_dirs.contains(dir) {
                return None;
            }
            match self.parts.disk.look(dir) {
                Ok(Some(found)) if found.kind == FoundKind::Dir => {}
                Ok(_) => return Some(dir.to_owned()),
                Err(_) => return None,
            }
        }
        None
    }

    /// Leaves out a file that is whole and did not get its name. Its part goes only if something
    /// still has that name, or the file system can give that name to nothing: a rename that failed
    /// half-way, or for a reason that nobody knows, may have left the part as the only copy.
    pub(crate) fn refuse_whole(&mut self, file: u32, error: SinkError) -> Result<(), SinkError> {
        if is_one_file(self.arrivals.manifest()) {
            return Err(error);
        }
        let path = self.parts.final_path(file);
        let never = error.fault() == Some(Fault::Unnameable);
        let unclear = matches!(
            &error,
            SinkError::Destination { source: Some(source), .. } if may_mean_the_name(source)
        );
        let goes = never || !unclear && matches!(self.parts.disk.look(&path), Ok(Some(_)));
        if error.concerns_one_entry() && !goes {
            self.parts.forget(file);
        }
        self.refuse(file, error)
    }

    /// On a file system that ignores case: leaves out entries whose names an earlier one has
    /// already. A later file would replace the earlier one, and the content of a later directory
    /// would mix with that of the earlier one.
    pub(crate) fn refuse_twins(&mut self, manifest: &Manifest) -> Result<(), SinkError> {
        if manifest.entries.len() < 2 || !self.folds_case()? {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut closed: HashSet<&str> = HashSet::new();
        for (entry, number) in manifest.entries.iter().zip(0u32..) {
            let within = closed.contains(split(entry.path.as_str()).0);
            if !within && seen.insert(folded(entry.path.as_str())) {
                continue;
            }
            if entry.kind == Kind::Dir {
                closed.insert(entry.path.as_str());
            }
            let path = self.parts.names.final_path(&entry.path);
            let error = self.parts.refused(&path, Fault::Twin);
            self.refuse(number, error)?;
        }
        Ok(())
    }

    /// Whether the journal, which is there, is found by its name in the other case as well, and
    /// is not a file of that other name.
    fn folds_case(&mut self) -> Result<bool, SinkError> {
        let path = self.parts.names.journal_path().to_owned();
        let other = path.to_ascii_uppercase();
        let disk = &mut self.parts.disk;
        let both = disk.look(&path).and_then(|own| Ok((own, disk.look(&other)?)));
        let (own, found) = both.map_err(|e| self.parts.failed(&path, e))?;
        // The same file, as far as the file system can tell files from each other.
        let one = own.zip(found).is_some_and(|(own, found)| own.identity == found.identity);
        if !one {
            return Ok(false);
        }
        let listed = self.parts.disk.count_names(&other);
        Ok(listed.map_err(|e| self.parts.failed(&path, e))? == 0)
    }

    /// Leaves out a directory of the object by its path.
    pub(crate) fn refuse_dir(&mut self, path: &str, error: SinkError) -> Result<(), SinkError> {
        let manifest = self.arrivals.manifest().clone();
        let is = |entry: &Entry| self.parts.names.final_path(&entry.path) == path;
        match manifest.entries.iter().position(is) {
            Some(number) => self.refuse(number as u32, error),
            None => Err(error),
        }
    }

    /// Removes the parts of a file that will not be complete.
    pub(crate) fn drop_part(&mut self, file: u32) {
        if self.parts.number(file).is_some()
            && let Err(error) = self.parts.discard(file)
        {
            tracing::debug!(%error, "a part file stays");
        }
    }
}

/// A name as file systems see it that ignore case. Those of Windows drop dots and spaces at the end
/// of a component as well.
fn folded(path: &str) -> String {
    let components = path.split('/').map(|part| part.trim_end_matches(['.', ' ']).to_lowercase());
    components.collect::<Vec<_>>().join("/")
}
