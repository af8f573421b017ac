//! A source and a sink of blocks that are memory.
//!
//! The content is a function of a seed and of where a byte lies, so both ends know it and no part
//! is like another. An object is that content, or the content several times, each time a file of
//! its own: long runs need no more memory. The source lends its blocks, which lie ready with their
//! trailers; the sink keeps the memory that a block arrived in, and gives for it that of the same
//! block of an earlier file. [`Arrived::verify`] then looks whether what lies there was sent.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Entry, Finished, Framed, Have, Kind, Lender, Manifest, Mode,
    Mtime, Pattern, RelPath, RootKind, SinkError, SourceError, SyntheticSource, TRAILER, Value,
    Window, Written, new_framed,
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
        Ok(Arc::new(Manifest { root_kind: RootKind::Dir, own: None, entries }))
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
    framed: Vec<Bytes>,
}

impl Content {
    /// Makes it, which takes about a second per GiB.
    pub fn make(object: Object) -> Result<Content, String> {
        let mut made = object.made();
        let block = |number| {
            let mut framed = new_framed();
            made.load_block(0, number, &mut framed).map_err(|error| error.to_string())?;
            Ok(Bytes::copy_from_slice(&framed))
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
#[derive(Clone)]
pub(crate) struct MemorySource(pub Arc<Content>);

impl Lender for MemorySource {
    fn lend(&self, file: u32, block: u64) -> Option<Bytes> {
        let framed = usize::try_from(block).ok().and_then(|at| self.0.framed.get(at));
        framed.filter(|_| file < self.0.object.times).cloned()
    }
}

impl BlockSource for MemorySource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.0.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let framed = self.lend(file, block).ok_or(SourceError::NoSuchBlock { file, block })?;
        out.clear();
        out.extend_from_slice(&framed);
        Ok(())
    }

    fn lender(&self) -> Option<Box<dyn Lender>> {
        Some(Box::new(self.clone()))
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
    /// For each block, with its trailer: memory that was touched, or what came last.
    blocks: Vec<Vec<u8>>,
    /// For each file and block: whether it has come.
    here: Vec<bool>,
    missing: u64,
}

impl Arrived {
    /// Takes the memory, and touches it so that the kernel need not find it later.
    pub fn room(object: Object) -> Arrived {
        let framed = |block: u64| (object.bytes - block * BLOCK).min(BLOCK) as usize + TRAILER;
        let blocks = (0..object.blocks()).map(|block| vec![0xff; framed(block)]).collect();
        let missing = object.blocks() * u64::from(object.times);
        let here = vec![false; missing as usize];
        Arrived(Arc::new(Mutex::new(Room { object, blocks, here, missing })))
    }

    /// Sinks that fill it together, each with a part of every file by its weight among all.
    pub fn sinks(&self, weights: &[u64]) -> Vec<MemorySink> {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner).object;
        let all: u64 = weights.iter().sum::<u64>().max(1);
        let border = |weight: u64| object.blocks() * weight / all;
        let mut before = 0;
        let sink = |&weight: &u64| {
            let own = border(before)..border(before + weight);
            before += weight;
            let outside = [0..own.start, own.end..object.blocks()];
            let outside = outside.into_iter().filter(|part| !part.is_empty());
            let have = (0..object.times)
                .flat_map(|file| outside.clone().map(move |blocks| Have { file, blocks }));
            MemorySink { room: self.clone(), object, have: have.collect() }
        };
        weights.iter().map(sink).collect()
    }

    /// Compares every byte that lies there with what was sent.
    pub fn verify(&self) -> Result<(), String> {
        let room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if room.missing > 0 {
            return Err(format!("{} blocks did not come", room.missing));
        }
        let (mut made, mut framed) = (room.object.made(), new_framed());
        for (number, block) in room.blocks.iter().enumerate() {
            let loaded = made.load_block(0, number as u64, &mut framed);
            loaded.map_err(|error| error.to_string())?;
            if framed[..] != block[..] {
                return Err(format!("block {number} differs from what was sent"));
            }
        }
        Ok(())
    }
}

/// Keeps blocks where they arrived.
pub(crate) struct MemorySink {
    room: Arrived,
    object: Object,
    /// What others fill.
    have: Vec<Have>,
}

impl Room {
    fn take(&mut self, file: u32, block: u64, framed: &mut Vec<u8>) -> Written {
        let at = (u64::from(file) * self.object.blocks() + block) as usize;
        let place = &mut self.blocks[block as usize];
        if framed.len() != place.len() {
            return Written::Bad;
        }
        if std::mem::replace(&mut self.here[at], true) {
            return Written::Duplicate;
        }
        self.missing -= 1;
        std::mem::swap(place, framed);
        Written::Good
    }
}

impl BlockSink for MemorySink {
    fn have(&self) -> &[Have] {
        &self.have
    }

    fn window(&self) -> Window {
        Window::Any
    }

    fn write_block(&mut self, file: u32, block: u64, framed: &[u8]) -> Result<Written, SinkError> {
        self.take_block(file, block, &mut framed.to_vec())
    }

    fn take_block(
        &mut self,
        file: u32,
        block: u64,
        framed: &mut Vec<u8>,
    ) -> Result<Written, SinkError> {
        if file >= self.object.times || block >= self.object.blocks() {
            return Err(SinkError::NotWanted { file, block });
        }
        let mut room = self.room.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(room.take(file, block, framed))
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
        let (mut sinks, mut framed) = (arrived.sinks(&[1]), new_framed());
        for file in 0..object.times {
            for block in 0..object.blocks() {
                source.load_block(file, block, &mut framed).unwrap();
                let mut came = framed.to_vec();
                spoil(file, block, &mut came);
                sinks[0].take_block(file, block, &mut came).unwrap();
            }
        }
        arrived
    }

    #[test]
    fn what_comes_whole_verifies_and_one_wrong_byte_or_missing_block_does_not() {
        let object = Object::new(2 * BLOCK + 5_000, 2).unwrap();
        moved(object, |_, _, _| {}).verify().unwrap();
        let wrong = |file, block, framed: &mut Vec<u8>| {
            if (file, block) == (1, 2) {
                framed[4_999] ^= 1;
            }
        };
        assert!(moved(object, wrong).verify().unwrap_err().contains("block 2"));
        let short = |file, block, framed: &mut Vec<u8>| {
            if (file, block) == (0, 1) {
                framed.pop();
            }
        };
        assert!(moved(object, short).verify().unwrap_err().contains("1 blocks"));
    }

    #[test]
    fn sinks_divide_every_block_among_themselves_by_their_weights() {
        let object = Object::new(9 * BLOCK + 7, 3).unwrap();
        let arrived = Arrived::room(object);
        for weights in [&[1][..], &[1, 1], &[3, 1, 1], &[1; 20], &[0, 2]] {
            let mut wanted = vec![0; 10 * 3];
            for sink in arrived.sinks(weights) {
                for (at, count) in wanted.iter_mut().enumerate() {
                    let (file, block) = (at as u32 / 10, at as u64 % 10);
                    let there = |part: &Have| part.file == file && part.blocks.contains(&block);
                    *count += u32::from(!sink.have().iter().any(there));
                }
            }
            assert_eq!(wanted, vec![1; 30], "{weights:?}");
        }
    }

    #[test]
    fn a_block_counts_once_and_one_outside_is_refused() {
        let object = Object::new(BLOCK, 1).unwrap();
        let content = Content::make(object).unwrap();
        let mut sink = Arrived::room(object).sinks(&[1]).remove(0);
        assert_eq!(sink.write_block(0, 0, &content.framed[0]).unwrap(), Written::Good);
        assert_eq!(sink.write_block(0, 0, &content.framed[0]).unwrap(), Written::Duplicate);
        assert!(sink.write_block(0, 1, &content.framed[0]).is_err());
        assert!(sink.write_block(1, 0, &content.framed[0]).is_err());
        let mut source = MemorySource(Arc::new(content));
        for (file, block) in [(1, 0), (0, 1), (0, u64::MAX)] {
            assert!(source.load_block(file, block, &mut new_framed()).is_err());
            assert!(source.lend(file, block).is_none());
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
