//! A source of one file that is listed under another name than it has.
//!
//! The name is the one that the file gets at the destination, so that the two ends of a transfer
//! speak of one path. The file is opened, and its errors are told, under its own name.

use std::sync::Arc;

use crate::file_source::FileSource;
use crate::hash::Value;
use crate::manifest::{Kind, Manifest};
use crate::name::RelPath;
use crate::source::{BlockSource, Framed, SourceError};

/// Gives the blocks of a file in a directory as those of a file of another name.
pub struct RenamedSource {
    inner: FileSource,
    manifest: Arc<Manifest>,
}

impl RenamedSource {
    /// Lists the files of `inner`, of which there is one at most, under this name.
    pub fn new(inner: FileSource, name: &RelPath) -> RenamedSource {
        let mut manifest = Manifest::clone(inner.manifest());
        for entry in manifest.entries.iter_mut().filter(|entry| entry.kind == Kind::File) {
            entry.path = name.clone();
        }
        RenamedSource { inner, manifest: Arc::new(manifest) }
    }
}

impl BlockSource for RenamedSource {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.inner.load_block(file, block, out)
    }

    fn device(&self) -> Option<u64> {
        self.inner.device()
    }

    fn take_remarks(&mut self) -> Vec<(u32, SourceError)> {
        self.inner.take_remarks()
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        self.inner.file_root_while(file, wanted)
    }
}
