//! A source and a sink of blocks that are memory.
//!
//! The content is a function of a seed and of where a byte lies, so both ends know it and no part
//! is like another. An object is that content, or the content several times, each time a file of
//! its own: long runs need no more memory. The source has its blocks ready with their trailers;
//! the sink copies each block to its place the first time, and compares it with what lies there
//! later. [`Arrived::verify`] then looks whether that was what was sent.

use std::sync::{Arc, Mutex, PoisonError};

use gtp_store::{
    BLOCK, BlockSink, BlockSource, Entry, Finished, Have, Kind, Manifest, Mode, Mtime, Pattern,
    RelPath, RootKind, SinkError, SourceError, SyntheticSource, TRAILER, Value, Window, Written,
};

/// The seed of the content.
pub const SEED: u64 = 0x6774_7062;
/// Most bytes of content that an end holds in memory.
pub const CONTENT_MOST: u64 = 16 << 30;
/// Most times that it is moved.
pub(crate) const TIMES_MOST: u32 = 4_096;

/// What is moved: this many bytes of content, so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub bytes: u64,
    pub times: u32,
}

impl Object {
    /// An object within the limits, whatever a peer or a user has said.
    pub fn new(bytes: u64, times: u32) -> Result<Object, String> {
        if !(1..=CONTENT_MOST).contains(&bytes) {
            return Err(format!("{bytes} bytes of content: expected 1 B to 16 GiB"));
        }
        if !(1..=TIMES_MOST).contains(&times) {
            return Err(format!("the content {times} times: expected 1 to {TIMES_MOST}"));
        }
        Ok(Object { bytes, times })
    }

    /// Bytes that move in all.
    pub fn total(self) -> u64 {
        self.bytes * u64::from(self.times)
    }

    /// Blocks of one file.
    pub fn blocks(self) -> u64 {
        self.bytes.div_ceil(BLOCK)
    }

    /// The listing, which both ends make for themselves.
    pub fn manifest(self) -> Result<Arc<Manifest>, String> {
        let entry = |number: u32| {
            let name = format!("{number:08}");
            Ok(Entry {
                path: RelPath::new(&name).map_err(|error| error.to_string())?,
                kind: Kind::File,
                size: self.bytes,
                mode: Mode::new(0o644),
                mtime: Mtime::new(0, 0).map_err(|error| error.to_string())?,
            })
        };
        let entries = (0..self.times).map(entry).collect::<Result<_, String>>()?;
        Ok(Arc::new(Manifest { root_kind: RootKind::Dir, entries }))
    }

    /// The content's own source, block by block.
    fn made(self) -> SyntheticSource {
        SyntheticSource::dir(&[self.bytes], Pattern::Random { seed: SEED })
    }
}

/// The content's blocks, each with its trailer.
pub(crate) struct Content {
    object: Object,
    manifest: Arc<Manifest>,
    framed: Vec<Vec<u8>>,
}

impl Content {
    /// Makes it, which takes about a second per GiB.
    pub fn make(object: Object) -> Result<Content, String> {
        let mut made = object.made();
        let block = |number| {
            let mut framed = Vec::new();
            made.load_block(0, number, &mut framed).map_err(|error| error.to_string())?;
            Ok(framed)
        };
        let framed = (0..object.blocks()).map(block).collect::<Result<_, String>>()?;
        Ok(Content { object, manifest: object.manifest()?, framed })
    }

    /// One block without its trailer.
    pub fn block(&self, number: u64) -> &[u8] {
        let framed = &self.framed[number as usize];
        &framed[..framed.len() - TRAILER]
    }

    pub fn object(&self) -> Object {
        self.object
    }
}

/// Gives the content; any number of them share it.
pub(crate) struct MemorySource(pub Arc<Content>);

impl BlockSource for MemorySource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.0.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Vec<u8>) -> Result<(), SourceError> {
        let framed = usize::try_from(block).ok().and_then(|at| self.0.framed.get(at));
        match framed {
            Some(framed) if file < self.0.object.times => {
                out.clear();
                out.extend_from_slice(framed);
                Ok(())
            }
            Some(_) | None => Err(SourceError::NoSuchBlock { file, block }),
        }
    }

    fn file_root_while(&mut self, file: u32, _: &dyn Fn() -> bool) -> Result<Value, SourceError> {
        // Nobody who measures asks for roots.
        Err(SourceError::NoSuchBlock { file, block: 0 })
    }
}

/// Where the content arrives. It outlives the sink, to be looked at.
#[derive(Clone)]
pub(crate) struct Arrived(Arc<Mutex<Room>>);

struct Room {
    object: Object,
    bytes: Vec<u8>,
    /// For each file and block: whether it has come.
    here: Vec<bool>,
    missing: u64,
    /// For each block: whether some file's has come, which later ones must equal.
    filled: Vec<bool>,
    /// A file's block that did not.
    other: Option<(u32, u64)>,
}

impl Arrived {
    /// Takes the memory, and touches it so that the kernel need not find it later.
    pub fn room(object: Object) -> Arrived {
        let mut bytes = vec![0; object.bytes as usize];
        bytes.iter_mut().step_by(4_096).for_each(|byte| *byte = 0xff);
        let blocks = object.blocks() * u64::from(object.times);
        let here = vec![false; blocks as usize];
        let filled = vec![false; object.blocks() as usize];
        let room = Room { object, bytes, here, missing: blocks, filled, other: None };
        Arrived(Arc::new(Mutex::new(room)))
    }

    /// A sink that fills it.
    pub fn sink(&self) -> MemorySink {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner).object;
        MemorySink { room: self.clone(), object }
    }

    /// Compares every byte with what was sent.
    pub fn verify(&self) -> Result<(), String> {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if room.missing > 0 {
            return Err(format!("{} blocks did not come", room.missing));
        }
        if let Some((file, block)) = room.other {
            return Err(format!("block {block} of file {file} differs from another file's"));
        }
        let (mut made, mut framed) = (room.object.made(), Vec::new());
        for (number, block) in room.bytes.chunks(BLOCK as usize).enumerate() {
            let loaded = made.load_block(0, number as u64, &mut framed);
            loaded.map_err(|error| error.to_string())?;
            if framed.get(..block.len()) != Some(block) {
                return Err(format!("block {number} differs from what was sent"));
            }
        }
        Ok(())
    }
}

/// Copies blocks to their places.
pub(crate) struct MemorySink {
    room: Arrived,
    object: Object,
}

impl Room {
    fn write(&mut self, file: u32, block: u64, framed: &[u8]) -> Written {
        let at = (u64::from(file) * self.object.blocks() + block) as usize;
        let start = (block * BLOCK) as usize;
        let end = self.bytes.len().min(start + BLOCK as usize);
        if framed.len() != end - start + TRAILER {
            return Written::Bad;
        }
        if std::mem::replace(&mut self.here[at], true) {
            return Written::Duplicate;
        }
        self.missing -= 1;
        let (place, content) = (&mut self.bytes[start..end], &framed[..end - start]);
        if !std::mem::replace(&mut self.filled[block as usize], true) {
            place.copy_from_slice(content);
        } else if place != content {
            self.other = Some((file, block));
        }
        Written::Good
    }
}

impl BlockSink for MemorySink {
    fn have(&self) -> &[Have] {
        &[]
    }

    fn window(&self) -> Window {
        Window::Any
    }

    fn write_block(&mut self, file: u32, block: u64, framed: &[u8]) -> Result<Written, SinkError> {
        if file >= self.object.times || block >= self.object.blocks() {
            return Err(SinkError::NotWanted { file, block });
        }
        let mut room = self.room.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(room.write(file, block, framed))
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish_file(&mut self, _: u32, _: Option<Value>) -> Result<Option<Value>, SinkError> {
        Ok(None)
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        Ok(Finished {
            files_written: u64::from(self.object.times),
            files_unchanged: 0,
            bytes_written: self.object.total(),
            root: None,
        })
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(object: Object, spoil: impl Fn(u32, u64, &mut Vec<u8>)) -> Arrived {
        let mut source = MemorySource(Arc::new(Content::make(object).unwrap()));
        let arrived = Arrived::room(object);
        let (mut sink, mut framed) = (arrived.sink(), Vec::new());
        for file in 0..object.times {
            for block in 0..object.blocks() {
                source.load_block(file, block, &mut framed).unwrap();
                spoil(file, block, &mut framed);
                sink.write_block(file, block, &framed).unwrap();
            }
        }
        arrived
    }

    #[test]
    fn what_comes_whole_verifies_and_one_wrong_byte_or_missing_block_does_not() {
        let object = Object::new(2 * BLOCK + 5_000, 2).unwrap();
        moved(object, |_, _, _| {}).verify().unwrap();
        for spoilt in [(0, 2), (1, 2)] {
            let wrong = |file, block, framed: &mut Vec<u8>| {
                if (file, block) == spoilt {
                    framed[4_999] ^= 1;
                }
            };
            assert!(moved(object, wrong).verify().unwrap_err().contains("block 2"));
        }
        let short = |file, block, framed: &mut Vec<u8>| {
            if (file, block) == (0, 1) {
                framed.pop();
            }
        };
        assert!(moved(object, short).verify().unwrap_err().contains("1 blocks"));
    }

    #[test]
    fn a_block_counts_once_and_one_outside_is_refused() {
        let object = Object::new(BLOCK, 1).unwrap();
        let content = Content::make(object).unwrap();
        let mut sink = Arrived::room(object).sink();
        assert_eq!(sink.write_block(0, 0, &content.framed[0]).unwrap(), Written::Good);
        assert_eq!(sink.write_block(0, 0, &content.framed[0]).unwrap(), Written::Duplicate);
        assert!(sink.write_block(0, 1, &content.framed[0]).is_err());
        assert!(sink.write_block(1, 0, &content.framed[0]).is_err());
        let mut source = MemorySource(Arc::new(content));
        for (file, block) in [(1, 0), (0, 1), (0, u64::MAX)] {
            assert!(source.load_block(file, block, &mut Vec::new()).is_err());
        }
    }

    #[test]
    fn sizes_beyond_the_limits_are_refused_before_memory_is_taken() {
        for (bytes, times) in [(0, 1), (CONTENT_MOST + 1, 1), (1, 0), (1, TIMES_MOST + 1)] {
            assert!(Object::new(bytes, times).is_err(), "{bytes} {times}");
        }
        assert_eq!(Object::new(3, 4).unwrap().total(), 12);
    }
}
