//! Steps that several tests share.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use gtp_store::{
    BLOCK, BlockSink, BlockSource, Destination, Entry, Export, FileSink, FileSource, Finished,
    Kind, Manifest, Mode, Mtime, RelPath, RootKind, SinkError, SinkOptions, Written,
};

/// A valid name.
pub fn name(s: &str) -> RelPath {
    RelPath::new(s).unwrap()
}

/// A file of a listing, with a size and a second as its time.
pub fn file(path: &str, size: u64, secs: i64) -> Entry {
    let mtime = Mtime::new(secs, 5).unwrap();
    Entry { path: name(path), kind: Kind::File, size, mode: Mode::new(0o640), mtime }
}

/// A directory of a listing.
pub fn dir(path: &str, secs: i64) -> Entry {
    Entry { kind: Kind::Dir, mode: Mode::new(0o750), ..file(path, 0, secs) }
}

/// A tree of these entries.
pub fn tree(mut entries: Vec<Entry>) -> Manifest {
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Manifest { root_kind: RootKind::Dir, own: None, entries }
}

/// A listing of one file.
pub fn single(path: &str, size: u64) -> Manifest {
    Manifest { root_kind: RootKind::File, own: None, entries: vec![file(path, size, 1_000)] }
}

/// A source of all that is at `path`.
pub fn source(path: &Path) -> FileSource {
    FileSource::new(Export::open(path).unwrap().scan(None).unwrap())
}

/// A sink for an object named `obj` at `dest`.
pub fn sink(dest: &Path, manifest: &Arc<Manifest>) -> Result<FileSink, SinkError> {
    let object = name("obj");
    let destination = Destination::beneath(dest, object, manifest.root_kind)?;
    FileSink::open(destination, manifest.clone(), SinkOptions::default())
}

/// Every block that the sink does not have, in order.
pub fn missing(manifest: &Manifest, sink: &dyn BlockSink) -> Vec<(u32, u64)> {
    let have: BTreeSet<(u32, u64)> =
        sink.have().iter().flat_map(|h| h.blocks.clone().map(|b| (h.file, b))).collect();
    let blocks = manifest.entries.iter().enumerate();
    let blocks = blocks.flat_map(|(f, e)| (0..e.size.div_ceil(BLOCK)).map(move |b| (f as u32, b)));
    blocks.filter(|at| !have.contains(at)).collect()
}

/// Copies these blocks, all of which must be taken.
pub fn copy(
    source: &mut dyn BlockSource,
    sink: &mut dyn BlockSink,
    blocks: &[(u32, u64)],
) -> Result<(), SinkError> {
    let mut framed = gtp_store::new_framed();
    for &(file, block) in blocks {
        source.load_block(file, block, &mut framed).unwrap();
        let written = sink.write_block(file, block, &framed)?;
        assert!(matches!(written, Written::Good | Written::Completed), "{written:?}");
    }
    Ok(())
}

/// Ends every file with the source's root, then the object.
pub fn finish(
    source: &mut dyn BlockSource,
    sink: &mut dyn BlockSink,
) -> Result<Finished, SinkError> {
    let manifest = source.manifest().clone();
    for (number, entry) in manifest.entries.iter().enumerate() {
        if entry.kind == Kind::File {
            let root = source.file_root(number as u32).unwrap();
            sink.finish_file(number as u32, Some(root))?;
        }
    }
    sink.finish()
}

/// Copies all that is missing and finishes.
pub fn transfer(
    source: &mut dyn BlockSource,
    sink: &mut dyn BlockSink,
) -> Result<Finished, SinkError> {
    let missing = missing(&source.manifest().clone(), sink);
    copy(source, sink, &missing)?;
    finish(source, sink)
}

/// A generator for tests: the same numbers from the same seed.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }

    /// Shuffles.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Everything beneath a directory: relative path, and the content of files.
pub fn contents(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let mut out = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(at) = left.pop() {
        for item in std::fs::read_dir(&at).unwrap() {
            let path = item.unwrap().path();
            let shown = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                out.push((shown, None));
                left.push(path);
            } else {
                out.push((shown, Some(std::fs::read(&path).unwrap())));
            }
        }
    }
    out.sort();
    out
}
