//! A source without a disk: files of given sizes whose content is computed.
//!
//! For measuring a path without measuring a disk, and for tests. Content depends on nothing but
//! the pattern, the file and the offset, so several synthetic sources serve the same object.

use std::sync::Arc;

use crate::hash::{Value, block_value};
use crate::manifest::{Entry, Kind, Manifest, Mode, Mtime, RootKind};
use crate::name::RelPath;
use crate::roots::Roots;
use crate::row::{BLOCK, blocks_in, content_of};
use crate::source::{BlockSource, Framed, SourceError};

/// What synthetic files are filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Zero bytes.
    Zeros,
    /// Bytes that do not compress: a function of this seed, the file and the offset.
    Random {
        /// Any number.
        seed: u64,
    },
}

/// Serves files that exist nowhere.
#[derive(Debug)]
pub struct SyntheticSource {
    manifest: Arc<Manifest>,
    pattern: Pattern,
    roots: Roots,
}

impl SyntheticSource {
    /// One file with this name and size in bytes.
    pub fn file(name: RelPath, size: u64, pattern: Pattern) -> SyntheticSource {
        let manifest =
            Manifest { root_kind: RootKind::File, own: None, entries: vec![entry(name, size)] };
        SyntheticSource::new(manifest, pattern)
    }

    /// A directory of files `00000000`, `00000001`, … with these sizes in bytes.
    pub fn dir(sizes: &[u64], pattern: Pattern) -> SyntheticSource {
        let named = |(i, &size): (usize, &u64)| {
            let name = RelPath::new(&format!("{i:08}")).expect("digits are a valid name");
            entry(name, size)
        };
        let entries = sizes.iter().enumerate().map(named).collect();
        SyntheticSource::new(Manifest { root_kind: RootKind::Dir, own: None, entries }, pattern)
    }

    /// The files of any manifest, filled with a pattern.
    pub fn new(manifest: Manifest, pattern: Pattern) -> SyntheticSource {
        SyntheticSource { manifest: Arc::new(manifest), pattern, roots: Roots::default() }
    }
}

impl BlockSource for SyntheticSource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let size = size_of_file(&self.manifest, file, block)?;
        out.resize(content_of(size, block) as usize, 0);
        fill(self.pattern, file, block, out);
        let value = block_value(size, block, out);
        out.extend_from_slice(&value);
        self.roots.note(file, size, block, value);
        Ok(())
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        let size = size_of_root(&self.manifest, file)?;
        let mut tree = self.roots.take(file, size);
        let mut content = Vec::new();
        for block in (0..blocks_in(size)).filter(|&b| !tree.there().contains(b)).collect::<Vec<_>>()
        {
            if !wanted() {
                self.roots.give_back(file, tree);
                return Err(SourceError::Unwanted);
            }
            content.resize(content_of(size, block) as usize, 0);
            fill(self.pattern, file, block, &mut content);
            tree.insert(block, block_value(size, block, &content));
        }
        let root = tree.root().expect("every block was inserted");
        self.roots.give_back(file, tree);
        Ok(root)
    }
}

/// The size of a file that has this block.
pub(crate) fn size_of_file(m: &Manifest, file: u32, block: u64) -> Result<u64, SourceError> {
    match m.entries.get(file as usize) {
        Some(entry) if block < blocks_in(entry.size) => Ok(entry.size),
        Some(_) | None => Err(SourceError::NoSuchBlock { file, block }),
    }
}

/// The size of a file that has a root: any file, also an empty one.
pub(crate) fn size_of_root(m: &Manifest, file: u32) -> Result<u64, SourceError> {
    match m.entries.get(file as usize) {
        Some(entry) if entry.kind == Kind::File => Ok(entry.size),
        Some(_) | None => Err(SourceError::NoSuchBlock { file, block: 0 }),
    }
}

fn entry(path: RelPath, size: u64) -> Entry {
    let mtime = Mtime::new(0, 0).expect("zero is a time");
    Entry { path, kind: Kind::File, size, mode: Mode::new(0o644), mtime }
}

fn fill(pattern: Pattern, file: u32, block: u64, out: &mut [u8]) {
    match pattern {
        Pattern::Zeros => out.fill(0),
        Pattern::Random { seed } => {
            let start = seed ^ mix(u64::from(file) << 40 ^ block);
            let (words, rest) = out.as_chunks_mut::<8>();
            for (i, word) in words.iter_mut().enumerate() {
                *word = mix(start.wrapping_add(i as u64)).to_le_bytes();
            }
            let last = mix(start.wrapping_add(words.len() as u64)).to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

/// The finaliser of SplitMix64: every input bit flips half of the output bits.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const _: () = assert!(BLOCK.is_multiple_of(8), "words of the pattern do not cross blocks");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{BlockCheck, check_block};
    use crate::new_framed;

    #[test]
    fn synthetic_blocks_verify_and_merge_to_the_root_of_their_bytes() {
        let size = 2 * BLOCK + 777;
        let name = RelPath::new("x").unwrap();
        let mut source = SyntheticSource::file(name, size, Pattern::Random { seed: 7 });
        let (mut whole, mut framed) = (Vec::new(), new_framed());
        for block in 0..3 {
            source.load_block(0, block, &mut framed).unwrap();
            assert!(matches!(check_block(size, block, &framed), BlockCheck::Good(_)));
            whole.extend_from_slice(&framed[..framed.len() - 32]);
        }
        assert_eq!(source.file_root(0).unwrap(), *blake3::hash(&whole).as_bytes());
        assert!(source.load_block(0, 3, &mut framed).is_err());
        assert!(source.load_block(1, 0, &mut framed).is_err());
    }
}
