//! The directories of an object: which are made, which are lent permissions, and what each gets at
//! the end.
//!
//! A directory that the transfer makes is its owner's alone until all is there, and then gets the
//! mode of its source. The journal names it before it is made, and names what is lent before it is
//! lent, so that the next attempt sets every mode that this one could not.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use crate::arrivals::Progress;
use crate::disk::{Disk, FoundKind, MadeDir};
use crate::file_sink::FileSink;
use crate::journal::Record;
use crate::manifest::{Attributes, Kind, Manifest, RootKind};
use crate::name::RelPath;
use crate::sink::{Fault, SinkError};
use crate::walk::split;

/// What the owner of a directory needs to write into it.
const OWNER: u32 = 0o700;

impl<D: Disk> FileSink<D> {
    /// The listed directories that are not there yet, in order.
    pub(crate) fn absent_dirs(
        &mut self,
        manifest: &Manifest,
    ) -> Result<BTreeSet<String>, SinkError> {
        let mut absent = BTreeSet::new();
        if manifest.root_kind == RootKind::File {
            return Ok(absent);
        }
        let root = self.parts.names.root().to_owned();
        if !root.is_empty() && self.is_absent(&root, &absent)? {
            absent.insert(root);
        } else {
            self.note_lacking(&root)?;
        }
        for (entry, number) in manifest.entries.iter().zip(0u32..) {
            if entry.kind != Kind::Dir || self.arrivals.progress(number) == Progress::GivenUp {
                continue;
            }
            let path = self.parts.names.final_path(&entry.path);
            match self.is_absent(&path, &absent) {
                Ok(true) => drop(absent.insert(path)),
                Ok(false) => self.note_lacking(&path)?,
                Err(error) => self.refuse(number, error)?,
            }
        }
        Ok(absent)
    }

    /// Notes the mode of a directory before its permissions may have to be lent, so that it gets
    /// them back even if this process is killed meanwhile.
    fn note_lacking(&mut self, dir: &str) -> Result<(), SinkError> {
        match self.parts.disk.lacking(dir) {
            Some(mode) => self.note_loan(dir, mode),
            None => Ok(()),
        }
    }

    pub(crate) fn note_loan(&mut self, dir: &str, mode: u32) -> Result<(), SinkError> {
        if !std::mem::replace(&mut self.end_known, true) {
            let found = self.log.find_end(&mut self.parts.disk);
            found.map_err(|e| self.parts.failed(self.parts.names.journal_path(), e))?;
        }
        // A path that is longer than a journal can say cannot be noted.
        let path = RelPath::new(dir).ok();
        if path.is_some() || dir.is_empty() {
            self.log.push(&Record::Loan { path, mode });
        }
        self.flush()
    }

    /// Whether a directory is to be made at `path`, when these are not there either.
    fn is_absent(&mut self, path: &str, absent: &BTreeSet<String>) -> Result<bool, SinkError> {
        if absent.contains(split(path).0) {
            return Ok(true);
        }
        let found = self.parts.disk.look(path).map_err(|e| self.parts.failed(path, e))?;
        match found.map(|found| found.kind) {
            None => Ok(true),
            Some(FoundKind::Dir) => Ok(false),
            Some(FoundKind::Link) => Err(self.parts.refused(path, Fault::Link)),
            Some(FoundKind::File | FoundKind::Special) => {
                Err(self.parts.refused(path, Fault::NotADirectory))
            }
        }
    }

    /// Makes directories after the journal names them, so that a resumed transfer sets their modes.
    pub(crate) fn make_dirs(&mut self, absent: BTreeSet<String>) -> Result<(), SinkError> {
        let handle = self.made.contains("").then(String::new);
        for path in handle.iter().chain(&absent) {
            let record = match RelPath::new(path) {
                Ok(path) => Record::Dir { path: Some(path) },
                Err(_) if path.is_empty() => Record::Dir { path: None },
                Err(_) => continue, // Longer than a journal can say; only its mode would be lost.
            };
            self.log.push(&record);
            if self.log.is_full() {
                self.flush()?;
            }
        }
        self.flush()?;
        for path in absent {
            match self.parts.disk.make_dir(&path) {
                Ok(MadeDir::There) => {}
                Ok(MadeDir::New) => drop(self.touched.insert(split(&path).0.to_owned())),
                Err(error) => {
                    let error = self.parts.failed(&path, error);
                    self.refuse_dir(&path, error)?;
                    continue;
                }
            }
            self.made.insert(path);
        }
        Ok(())
    }

    /// Gives directories their times, and modes to those that the transfer has made, the deepest
    /// first: a later one changes the time of its parent no more, and a mode without search closes
    /// nothing that is still needed.
    pub(crate) fn dress_dirs(&mut self) -> Result<(), SinkError> {
        let manifest = self.arrivals.manifest().clone();
        for (number, entry) in manifest.entries.iter().enumerate().rev() {
            let number = number as u32;
            if entry.kind != Kind::Dir || self.arrivals.progress(number) == Progress::GivenUp {
                continue;
            }
            let path = self.parts.names.final_path(&entry.path);
            let attributes = Attributes { mode: entry.mode, mtime: entry.mtime };
            if let Err(error) = self.set_dir_attributes(&path, attributes) {
                self.refuse(number, error)?;
            }
        }
        Ok(())
    }

    /// The same for the object itself, which may hold the journal.
    pub(crate) fn dress_root(&mut self) -> Result<(), SinkError> {
        let Some(own) = self.arrivals.manifest().own else { return Ok(()) };
        let root = self.parts.names.root().to_owned();
        self.set_dir_attributes(&root, own)
    }

    /// Whether a later attempt can still write into every directory that was made, once all have
    /// their modes.
    pub(crate) fn made_dirs_stay_open(&self) -> bool {
        let manifest = self.arrivals.manifest();
        let dirs = manifest.entries.iter().filter(|e| e.kind == Kind::Dir).map(|e| e.mode);
        let mut modes = dirs.chain(manifest.own.map(|own| own.mode));
        self.made.is_empty() || modes.all(|mode| mode.bits() & OWNER == OWNER)
    }

    fn set_dir_attributes(&mut self, path: &str, attributes: Attributes) -> Result<(), SinkError> {
        let mode = self.made.contains(path).then_some(attributes.mode);
        match self.parts.disk.set_dir_attributes(path, mode, attributes.mtime) {
            // It existed and belongs to another user; only its time cannot be set.
            Err(error) if mode.is_none() && error.kind() == ErrorKind::PermissionDenied => {
                tracing::debug!(path, %error, "a directory keeps its time");
                Ok(())
            }
            dressed => dressed.map_err(|e| self.parts.failed(path, e)),
        }
    }
}
