//! What a bundle's journal takes over from journals that are named after fewer objects.
//!
//! A pattern that matches more than it did names another journal, and one of several objects may
//! have been alone before. Peers choose the names of a bundle, and how many unfinished transfers
//! lie in a directory: no journal costs a pass over the bundle, and what is done here can be
//! stopped.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::{Disk, Hold, Log, Origin};
use crate::destination::{Names, is_bundle_journal};
use crate::journal::Record;
use crate::manifest::{Entry, Kind, Manifest};
use crate::name::{JOURNAL_SUFFIX, beside, is_shortened};
use crate::recheck::Recheck;
use crate::sink::SinkError;

/// What a bundle needs to know to take over a journal.
pub(super) struct Heir<'a> {
    pub names: &'a Names,
    pub manifest: &'a Manifest,
    pub recheck: &'a Recheck,
}

/// Whose journal lies beside a bundle's.
#[derive(Debug, Clone, Copy)]
enum Whose<'a> {
    /// Another bundle's.
    Bundle,
    /// That of one of the objects of this bundle.
    Object(&'a Entry),
}

impl<'a> Heir<'a> {
    /// Gives `log` what the other journals say that know objects of this bundle alone.
    ///
    /// # Errors
    /// [`SinkError::Stopped`], and what the system says.
    pub fn inherit<D: Disk>(&self, log: &mut Log<D::File>, disk: &mut D) -> Result<(), SinkError> {
        if !self.names.is_bundle() {
            return Ok(());
        }
        let journals = disk.names(JOURNAL_SUFFIX).map_err(|e| self.failed(e))?;
        let mut known = Vec::new();
        for (journal, whose) in self.whose(journals)? {
            // A lock, even a short one, would refuse another transfer its own journal.
            if self.known(disk, &journal, whose, Hold::Unlocked)?.is_some() {
                known.push((journal, whose));
            }
        }
        if log.origin == Origin::Left && !known.is_empty() {
            log.find_end(disk).map_err(|e| self.failed(e))?;
        }
        for (journal, whose) in known {
            self.take_over(log, disk, &journal, whose)?;
        }
        Ok(())
    }

    /// Says of which journals the bundle may have use.
    fn whose(&self, journals: Vec<String>) -> Result<Vec<(String, Whose<'a>)>, SinkError> {
        let (mut found, mut shortened) = (Vec::new(), BTreeSet::new());
        for journal in journals {
            let Some(name) = journal.strip_suffix(JOURNAL_SUFFIX) else { continue };
            if journal == self.names.journal_path() {
                continue;
            } else if let Some(object) = self.entry(name) {
                found.push((journal, Whose::Object(object)));
            } else if is_bundle_journal(&journal) {
                found.push((journal, Whose::Bundle));
            } else if is_shortened(name) {
                shortened.insert(journal);
            }
        }
        self.find_shortened(shortened, &mut found)?;
        Ok(found)
    }

    /// Finds the objects whose journals have shortened names, in one pass for all of them.
    fn find_shortened(
        &self,
        mut journals: BTreeSet<String>,
        found: &mut Vec<(String, Whose<'a>)>,
    ) -> Result<(), SinkError> {
        for entry in &self.manifest.entries {
            if journals.is_empty() {
                break;
            }
            self.recheck.go_on()?;
            let name = entry.path.as_str();
            let journal = match name.contains('/') {
                true => None,
                false => journals.take(&beside(name, JOURNAL_SUFFIX)),
            };
            found.extend(journal.map(|journal| (journal, Whose::Object(entry))));
        }
        Ok(())
    }

    /// Takes over a journal that no transfer holds, if the bundle knows all its files. Where this
    /// breaks off, the journal is still there, and the next attempt takes it over once more: of
    /// the records of a file, the last ones count.
    fn take_over<D: Disk>(
        &self,
        log: &mut Log<D::File>,
        disk: &mut D,
        path: &str,
        whose: Whose<'_>,
    ) -> Result<(), SinkError> {
        let failed = |e| self.failed(e);
        let known = self.known(disk, path, whose, Hold::Locked)?;
        let Some(mut other) = known else { return Ok(()) };
        let first = log.files;
        if first.checked_add(other.files).is_none() {
            return Ok(());
        }
        let mut reader = other.reader(disk).map_err(failed)?;
        while let Some(record) = reader.next(disk, &mut other).map_err(failed)? {
            self.recheck.go_on()?;
            let Some(record) = self.translated(record, whose) else { break };
            log.push_numbered(record, first);
            if log.is_full() {
                log.flush(disk).map_err(failed)?;
            }
        }
        log.flush(disk).map_err(failed)?;
        log.origin = Origin::Left;
        disk.sync(&log.file).and_then(|()| disk.sync_dir("")).map_err(failed)?;
        disk.remove(path).map_err(failed)
    }

    /// A journal that names files, and of this bundle alone; `None` for any other.
    fn known<D: Disk>(
        &self,
        disk: &mut D,
        path: &str,
        whose: Whose<'_>,
        hold: Hold,
    ) -> Result<Option<Log<D::File>>, SinkError> {
        let failed = |e| self.failed(e);
        let left = Log::left_at(disk, path, hold).map_err(failed)?;
        let Some(mut other) = left else { return Ok(None) };
        let mut reader = other.reader(disk).map_err(failed)?;
        loop {
            self.recheck.go_on()?;
            match reader.look(disk, &mut other) {
                Ok(None) => return Ok((other.files > 0).then_some(other)),
                Ok(Some(record)) => match self.translated(record, whose) {
                    Some(_) => {}
                    None => return Ok(None),
                },
                // Its transfer has cut it meanwhile.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    /// A record of a journal beside the bundle's, as the bundle's own has it; `None` for one of a
    /// file that the bundle has not.
    fn translated(&self, record: Record, whose: Whose<'_>) -> Option<Record> {
        let Record::File { path, size, mtime } = record else { return Some(record) };
        let file = |path: &str| self.entry(path).filter(|entry| entry.kind == Kind::File);
        let found = match whose {
            Whose::Bundle => file(path.as_str()),
            // A file may be listed under any name where it is alone.
            Whose::Object(object) if object.kind == Kind::File => Some(object),
            // Alone, it may have been listed without its name or with it.
            Whose::Object(object) => {
                let name = object.path.as_str();
                file(&format!("{name}/{path}")).or_else(|| {
                    let has_name = path.components().next() == Some(name);
                    file(path.as_str()).filter(|_| has_name)
                })
            }
        };
        Some(Record::File { path: found?.path.clone(), size, mtime })
    }

    /// What the bundle has at this path.
    fn entry(&self, path: &str) -> Option<&'a Entry> {
        let entries = &self.manifest.entries;
        let at = entries.binary_search_by(|entry| entry.path.as_str().cmp(path)).ok()?;
        entries.get(at)
    }

    fn failed(&self, error: std::io::Error) -> SinkError {
        SinkError::disk(&self.names.shown(self.names.journal_path()), error)
    }
}
