//! The directories of an object: which of them are made, which are made writable for the transfer,
//! and which modes and times they get at its end.
//!
//! Only its owner may use a directory that the transfer makes until all content is there; then it
//! gets the mode of its source. The journal names the directory before it is made, and each mode
//! before it is changed, so that the next attempt can set every mode that this one did not. This
//! module must not know blocks.

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

/// The permissions that the owner of a directory needs to write into it.
const OWNER: u32 = 0o700;

impl<D: Disk> FileSink<D> {
    /// Returns the directories of the object that do not exist yet, in order.
    ///
    /// # Errors
    /// If the destination cannot be read, or the journal cannot be written.
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

    /// Notes in the journal the mode of a directory that may have to be made writable, so that it
    /// gets this mode back even if this process is killed meanwhile.
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
        // A path that is too long for the journal cannot be noted.
        let path = RelPath::new(dir).ok();
        if path.is_some() || dir.is_empty() {
            self.log.push(&Record::Loan { path, mode });
        }
        self.flush()
    }

    /// Returns whether a directory must be made at `path`, if those in `absent` must be made too.
    ///
    /// # Errors
    /// If something that is not a directory stands there, or the destination cannot be read.
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

    /// Makes directories, after naming them in the journal so that a resumed transfer can set their
    /// modes.
    ///
    /// # Errors
    /// If one cannot be made and the transfer cannot go on without it, or the journal cannot be
    /// written.
    pub(crate) fn make_dirs(&mut self, absent: BTreeSet<String>) -> Result<(), SinkError> {
        let handle = self.made.contains("").then(String::new);
        for path in handle.iter().chain(&absent) {
            let record = match RelPath::new(path) {
                Ok(path) => Record::Dir { path: Some(path) },
                Err(_) if path.is_empty() => Record::Dir { path: None },
                Err(_) => continue, // It is too long for the journal; only its mode may be lost.
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
                    let error = self.parts.not_named(&path, error);
                    self.refuse_dir(&path, error)?;
                    continue;
                }
            }
            self.made.insert(path);
        }
        Ok(())
    }

    /// Sets the times of all directories and the modes of those that the transfer has made. The
    /// deepest come first, so that no change in a directory follows the setting of its time, and no
    /// mode closes a directory beneath which something is still to be set.
    ///
    /// # Errors
    /// If one cannot be set and the transfer cannot go on without it.
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

    /// Sets the time of the object's own directory, and its mode if the transfer has made it. It
    /// comes last, because this directory may hold the journal.
    ///
    /// # Errors
    /// If either cannot be set.
    pub(crate) fn dress_root(&mut self) -> Result<(), SinkError> {
        let Some(own) = self.arrivals.manifest().own else { return Ok(()) };
        let root = self.parts.names.root().to_owned();
        self.set_dir_attributes(&root, own)
    }

    /// Returns whether a later attempt could still write into every directory that this transfer
    /// has made, after all modes are set.
    pub(crate) fn made_dirs_stay_open(&self) -> bool {
        let manifest = self.arrivals.manifest();
        let dirs = manifest.entries.iter().filter(|e| e.kind == Kind::Dir).map(|e| e.mode);
        let mut modes = dirs.chain(manifest.own.map(|own| own.mode));
        self.made.is_empty() || modes.all(|mode| mode.bits() & OWNER == OWNER)
    }

    fn set_dir_attributes(&mut self, path: &str, attributes: Attributes) -> Result<(), SinkError> {
        let mode = self.made.contains(path).then_some(attributes.mode);
        match self.parts.disk.set_dir_attributes(path, mode, attributes.mtime) {
            // The directory existed and belongs to another user. Only its time cannot be set.
            Err(error) if mode.is_none() && error.kind() == ErrorKind::PermissionDenied => {
                tracing::debug!(path, %error, "a directory keeps its time");
                Ok(())
            }
            dressed => dressed.map_err(|e| self.parts.failed(path, e)),
        }
    }
}
