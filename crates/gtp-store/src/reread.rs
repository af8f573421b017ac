//! Blocks that a sink has written, read again while it goes on.
//!
//! Whoever receives an object may give its blocks on before the object is whole. A block lies in
//! the file's part or, once the file is whole, under its final name. Nothing is locked and nothing
//! is believed: a block counts only if it has the value that the caller knows, so a file that
//! somebody else has put in the place of ours gives nothing. This module writes nothing.

use std::io;
use std::sync::Arc;

use crate::destination::Names;
use crate::disk::{Disk, LockedFile, Opened, OsDisk};
use crate::hash::{Value, block_value};
use crate::manifest::Manifest;
use crate::row::{BLOCK, blocks_in, content_of};
use crate::source::Framed;

/// Files that are kept open: that from which blocks are read, and the one before it. Each session
/// that reads has a `Reread` of its own, so more would use descriptors up.
const OPEN_MOST: usize = 2;

/// What came of reading a block again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The block, with its value.
    It,
    /// Something else, or no file of ours.
    Another,
    /// It could not be read: another try may do.
    Unread,
}

/// Reads blocks of an object where a sink has put them.
pub struct Reread {
    disk: OsDisk,
    names: Names,
    manifest: Arc<Manifest>,
    /// Most recently used last.
    open: Vec<(u32, LockedFile)>,
}

impl std::fmt::Debug for Reread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reread")
    }
}

impl Reread {
    pub(crate) fn new(disk: OsDisk, names: Names, manifest: Arc<Manifest>) -> Reread {
        Reread { disk, names, manifest, open: Vec::new() }
    }

    /// Another one for the same object; `None` if the system gives no descriptor.
    pub fn another(&self) -> Option<Reread> {
        let (names, manifest) = (self.names.clone(), Arc::clone(&self.manifest));
        Some(Reread::new(self.disk.another()?, names, manifest))
    }

    /// Replaces `out` with a block's content and its value, if what is there has this value; `out`
    /// is unspecified if not.
    pub fn read(&mut self, file: u32, block: u64, value: &Value, out: &mut Framed) -> Reading {
        let size = self.manifest.entries.get(file as usize).map_or(0, |entry| entry.size);
        if block >= blocks_in(size) {
            return Reading::Another;
        }
        out.clear();
        out.resize(content_of(size, block) as usize, 0);
        let mut look = |reread: &mut Reread| {
            let at = match reread.handle(file) {
                Ok(at) => at,
                Err(why) => return why,
            };
            let (disk, handle) = (&mut reread.disk, &reread.open[at].1);
            match disk.read_at(handle, block * BLOCK, out) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Reading::Another,
                Err(_) => Reading::Unread,
                Ok(()) if block_value(size, block, out) == *value => Reading::It,
                Ok(()) => Reading::Another,
            }
        };
        // The part may have been begun anew since it was opened.
        let found = match look(self) {
            Reading::It => Reading::It,
            Reading::Another | Reading::Unread => {
                self.open.retain(|(open, _)| *open != file);
                look(self)
            }
        };
        out.extend_from_slice(value);
        found
    }

    /// The place in `open` of a file, or why there is none.
    fn handle(&mut self, file: u32) -> Result<usize, Reading> {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == file) {
            self.open[at..].rotate_left(1);
            return Ok(self.open.len() - 1);
        }
        let entry = self.manifest.entries.get(file as usize).ok_or(Reading::Another)?;
        let [part, whole] = [self.names.part_path(&entry.path), self.names.final_path(&entry.path)];
        let mut opened = |path: &str| match self.disk.open_to_read(path) {
            Ok(Opened::Ours(handle)) => Ok(handle),
            Ok(Opened::Absent | Opened::Foreign) => Err(Reading::Another),
            Ok(Opened::Locked) | Err(_) => Err(Reading::Unread),
        };
        // It may get its final name between the two.
        let handle = match opened(&part) {
            Err(Reading::Another) => opened(&whole)?,
            other => other?,
        };
        if self.open.len() == OPEN_MOST {
            self.open.remove(0);
        }
        self.open.push((file, handle));
        Ok(self.open.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::destination::Destination;
    use crate::file_sink::{FileSink, SinkOptions};
    use crate::manifest::RootKind;
    use crate::sink::BlockSink;
    use crate::source::{BlockSource, new_framed};
    use crate::synthetic::{Pattern, SyntheticSource};
    use crate::{RelPath, TRAILER};

    fn sink(dir: &Path, manifest: Arc<Manifest>) -> FileSink {
        let name = RelPath::new("f").unwrap();
        let destination = Destination::beneath(dir, name, RootKind::File).unwrap();
        FileSink::open(destination, manifest, SinkOptions::default()).unwrap()
    }

    #[test]
    fn a_block_is_read_again_from_the_part_and_from_the_whole_file_and_only_with_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let name = RelPath::new("f").unwrap();
        let mut source = SyntheticSource::file(name, 2 * BLOCK + 5, Pattern::Random { seed: 7 });
        let mut sink = sink(dir.path(), Arc::clone(source.manifest()));
        let mut reread = sink.rereader().unwrap();
        let mut values = Vec::new();
        let mut out = new_framed();
        for block in 0..3 {
            let mut framed = new_framed();
            source.load_block(0, block, &mut framed).unwrap();
            let value: Value = framed[framed.len() - TRAILER..].try_into().unwrap();
            assert_eq!(
                reread.read(0, block, &value, &mut out),
                Reading::Another,
                "it is not there yet"
            );
            sink.write_block(0, block, &framed).unwrap();
            assert_eq!(reread.read(0, block, &value, &mut out), Reading::It);
            assert_eq!(out[..], framed[..]);
            values.push(value);
        }
        assert_eq!(reread.read(0, 1, &values[0], &mut out), Reading::Another, "another block");
        assert_eq!(reread.read(0, 3, &values[0], &mut out), Reading::Another, "no block");
        sink.finish_file(0, None).unwrap();
        sink.finish().unwrap();
        assert_eq!(reread.read(0, 2, &values[2], &mut out), Reading::It, "the open part");
        let mut late = sink.rereader().unwrap();
        assert_eq!(late.read(0, 2, &values[2], &mut out), Reading::It, "the file under its name");
        std::fs::write(dir.path().join("f"), "another").unwrap();
        assert_eq!(late.read(0, 0, &values[0], &mut out), Reading::Another);
    }
}
