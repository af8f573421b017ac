//! Taking up an earlier transfer: its journal is read from the beginning, and every block that it
//! names is hashed again in the part file. What has its journaled value is there; everything else
//! is fetched anew.

use std::collections::HashMap;

use crate::arrivals::Progress;
use crate::disk::Disk;
use crate::file_sink::FileSink;
use crate::hash::Value;
use crate::journal::Record;
use crate::manifest::{Kind, Mtime};
use crate::name::RelPath;
use crate::parts::Verified;
use crate::row::{blocks_in, content_of};
use crate::sink::SinkError;

/// What the numbers of a journal stand for in the present listing.
#[derive(Debug, Default)]
struct Numbers {
    /// By number; `None` for files that are not wanted in the journaled version.
    files: Vec<Option<u32>>,
    /// The newest number of each file that is.
    newest: HashMap<u32, u32>,
}

impl<D: Disk> FileSink<D> {
    /// Reads the journal and notes every block that is still good.
    pub(crate) fn replay(&mut self) -> Result<(), SinkError> {
        let mut numbers = Numbers::default();
        let reader = self.log.reader(&mut self.parts.disk);
        let mut reader = reader.map_err(|e| self.journal_failed(e))?;
        loop {
            let next = reader.next(&mut self.parts.disk, &mut self.log);
            match next.map_err(|e| self.journal_failed(e))? {
                None => return Ok(()),
                Some(Record::File { path, size, mtime }) => {
                    self.name_file(&mut numbers, path, size, mtime)?;
                }
                Some(Record::Block { number, block, value }) => {
                    self.replay_block(&mut numbers, number, block, value)?;
                }
                Some(Record::Dir { path }) => {
                    let path = path.as_ref().map_or("", RelPath::as_str);
                    self.made.insert(path.to_owned());
                }
                Some(Record::Loan { path, mode }) => {
                    let path = path.as_ref().map_or("", RelPath::as_str);
                    self.parts.disk.owe(path, mode);
                }
            }
        }
    }

    fn name_file(
        &mut self,
        numbers: &mut Numbers,
        path: RelPath,
        size: u64,
        mtime: Mtime,
    ) -> Result<(), SinkError> {
        self.recheck.go_on()?;
        let number = numbers.files.len() as u32;
        let entries = &self.arrivals.manifest().entries;
        let at = entries.binary_search_by(|entry| entry.path.cmp(&path));
        let Some(file) = at.ok().filter(|&at| entries[at].kind == Kind::File) else {
            numbers.files.push(None);
            self.found.orphans.push(path);
            return Ok(());
        };
        let (entry, file) = (&entries[file], file as u32);
        let same = entry.size == size && entry.mtime == mtime;
        self.found.restarted.remove(&path);
        if let Some(older) = numbers.newest.remove(&file) {
            numbers.files[older as usize] = None;
            self.found.resumed_bytes -= self.arrivals.forget(file);
            self.parts.forget(file);
        }
        if same && self.arrivals.progress(file) == Progress::Open {
            numbers.newest.insert(file, number);
            numbers.files.push(Some(file));
        } else {
            numbers.files.push(None);
            if !same {
                self.found.restarted.insert(path);
            }
        }
        Ok(())
    }

    fn replay_block(
        &mut self,
        numbers: &mut Numbers,
        number: u32,
        block: u64,
        value: Value,
    ) -> Result<(), SinkError> {
        let Some(Some(file)) = numbers.files.get(number as usize).copied() else {
            return Ok(());
        };
        if self.arrivals.tree(file).is_some_and(|tree| tree.there().contains(block)) {
            return Ok(());
        }
        self.recheck.go_on()?;
        let size = self.arrivals.entry(file).size;
        let verified = match self.parts.verify(file, number, block, &value) {
            Ok(verified) => verified,
            Err(error) => {
                self.refuse(file, error)?;
                numbers.files[number as usize] = None;
                return Ok(());
            }
        };
        if block < blocks_in(size) {
            self.recheck.count(u64::from(content_of(size, block)));
        }
        match verified {
            Verified::Good => {
                self.arrivals.note(file, block, value);
                self.found.resumed_bytes += u64::from(content_of(size, block));
                if blocks_in(size) == 1 {
                    self.parts.dress(file)?;
                    self.parts.close(file);
                }
            }
            Verified::Wrong => {}
            Verified::NoPart => numbers.files[number as usize] = None,
        }
        Ok(())
    }

    fn journal_failed(&self, error: std::io::Error) -> SinkError {
        self.parts.failed(self.parts.names.journal_path(), error)
    }
}
