//! Sinks without a destination directory: one that writes a file in order into any writer, and
//! one that checks every block and keeps none.
//! Neither keeps anything for a resume.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use crate::arrivals::{Arrivals, Checked, Progress};
use crate::hash::{Value, empty_root};
use crate::manifest::{Manifest, RootKind};
use crate::name::escaped;
use crate::row::blocks_in;
use crate::sink::{BlockSink, Finished, Have, SinkError, Window, Written};

/// Checks blocks and drops them.
#[derive(Debug)]
pub struct DiscardSink {
    arrivals: Arrivals,
    bytes_written: u64,
    root: Option<Value>,
}

impl DiscardSink {
    /// A sink for an object with this (valid) listing.
    pub fn new(manifest: Arc<Manifest>) -> DiscardSink {
        DiscardSink { arrivals: Arrivals::new(manifest), bytes_written: 0, root: None }
    }
}

impl BlockSink for DiscardSink {
    fn have(&self) -> &[Have] {
        &[]
    }

    fn window(&self) -> Window {
        Window::Any
    }

    fn write_block(
        &mut self,
        file: u32,
        block: u64,
        content_and_trailer: &[u8],
    ) -> Result<Written, SinkError> {
        match self.arrivals.check(file, block, content_and_trailer)? {
            Checked::Over(written) => Ok(written),
            Checked::Keep(value, content) => {
                self.bytes_written += content.len() as u64;
                Ok(self.arrivals.note(file, block, value))
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError> {
        let finished = finish_in_memory(&mut self.arrivals, &mut self.root, file, expected);
        if matches!(finished, Err(SinkError::RootMismatch { .. })) {
            self.arrivals.forget(file);
        }
        finished
    }

    fn begins_anew(&self, file: u32) -> bool {
        self.arrivals.is_open(file)
    }

    fn give_up(&mut self, file: u32) -> Result<Option<u64>, SinkError> {
        if self.arrivals.manifest().root_kind == RootKind::File {
            let path = escaped(self.arrivals.entry(0).path.as_str());
            let text = format!("{path}: the source cannot give it any more");
            return Err(SinkError::Unsuitable(text));
        }
        match self.arrivals.progress(file) {
            Progress::Open => Ok(self.arrivals.give_up(file)),
            Progress::Settled | Progress::Finished | Progress::GivenUp => Ok(None),
        }
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        finished_in_memory(&self.arrivals, self.bytes_written, self.root)
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Writes one file in order into a writer, such as a pipe.
///
/// Blocks that come early are held until their turn, at most as many as the window has. What was
/// written cannot be taken back: a root that differs is found only after the last byte.
#[derive(Debug)]
pub struct OrderedWriterSink<W> {
    arrivals: Arrivals,
    out: W,
    /// What errors call it.
    name: String,
    window_blocks: u64,
    next: u64,
    early: BTreeMap<u64, Vec<u8>>,
    bytes_written: u64,
    root: Option<Value>,
}

impl<W: Write + Send> OrderedWriterSink<W> {
    /// A sink that holds fewer than `window_blocks` early blocks (at least one is in the window).
    ///
    /// # Errors
    /// When the object is a directory.
    pub fn new(
        manifest: Arc<Manifest>,
        out: W,
        window_blocks: u64,
    ) -> Result<OrderedWriterSink<W>, SinkError> {
        if manifest.root_kind != RootKind::File || manifest.validate().is_err() {
            return Err(SinkError::Unsuitable("only one file can be written to a stream".into()));
        }
        Ok(OrderedWriterSink {
            arrivals: Arrivals::new(manifest),
            out,
            name: "the output".to_owned(),
            window_blocks: window_blocks.max(1),
            next: 0,
            early: BTreeMap::new(),
            bytes_written: 0,
            root: None,
        })
    }

    /// The same under another name than "the output" in errors.
    pub fn called(mut self, name: &str) -> OrderedWriterSink<W> {
        self.name = name.to_owned();
        self
    }

    /// Gives the writer back.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn end(&self) -> u64 {
        let blocks = blocks_in(self.arrivals.entry(0).size);
        self.next.saturating_add(self.window_blocks).min(blocks)
    }

    /// Writes the block whose turn it is, and every held one that follows.
    fn write_turn(&mut self, content: &[u8]) -> io::Result<()> {
        self.out.write_all(content)?;
        self.next += 1;
        while let Some(content) = self.early.remove(&self.next) {
            self.out.write_all(&content)?;
            self.next += 1;
        }
        Ok(())
    }

    fn fail(&self, error: io::Error) -> SinkError {
        SinkError::disk(&self.name, error)
    }
}

impl<W: Write + Send> BlockSink for OrderedWriterSink<W> {
    fn have(&self) -> &[Have] {
        &[]
    }

    fn window(&self) -> Window {
        Window::Blocks { next: self.next, end: self.end() }
    }

    fn write_block(
        &mut self,
        file: u32,
        block: u64,
        content_and_trailer: &[u8],
    ) -> Result<Written, SinkError> {
        let (value, content) = match self.arrivals.check(file, block, content_and_trailer)? {
            Checked::Over(written) => return Ok(written),
            Checked::Keep(value, content) => (value, content),
        };
        if block >= self.end() {
            return Err(SinkError::NotWanted { file, block });
        }
        self.bytes_written += content.len() as u64;
        if block == self.next {
            self.write_turn(content).map_err(|e| self.fail(e))?;
        } else {
            self.early.insert(block, content.to_vec());
        }
        Ok(self.arrivals.note(file, block, value))
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.out.flush().map_err(|e| self.fail(e))
    }

    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError> {
        finish_in_memory(&mut self.arrivals, &mut self.root, file, expected)
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        let finished = finished_in_memory(&self.arrivals, self.bytes_written, self.root)?;
        self.out.flush().map_err(|e| self.fail(e))?;
        Ok(finished)
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        self.out.flush().map_err(|e| self.fail(e))
    }
}

fn finish_in_memory(
    arrivals: &mut Arrivals,
    object_root: &mut Option<Value>,
    file: u32,
    expected: Option<Value>,
) -> Result<Option<Value>, SinkError> {
    if !arrivals.is_open(file) {
        return Ok(None);
    }
    let root = arrivals.root(file, expected)?;
    arrivals.finished(file);
    if arrivals.manifest().root_kind == RootKind::File {
        *object_root = Some(root);
    }
    Ok(Some(root))
}

fn finished_in_memory(
    arrivals: &Arrivals,
    bytes_written: u64,
    root: Option<Value>,
) -> Result<Finished, SinkError> {
    arrivals.all_finished()?;
    let manifest = arrivals.manifest();
    let empty_file = manifest.root_kind == RootKind::File && manifest.content_bytes() == 0;
    let root = root.or_else(|| empty_file.then(empty_root));
    let files_written = manifest.files() - arrivals.given_up();
    Ok(Finished { files_written, files_unchanged: 0, bytes_written, root })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::RelPath;
    use crate::row::BLOCK;
    use crate::source::{BlockSource, new_framed};
    use crate::synthetic::{Pattern, SyntheticSource};

    fn source(blocks: u64) -> SyntheticSource {
        let size = blocks * BLOCK - 5;
        SyntheticSource::file(RelPath::new("x").unwrap(), size, Pattern::Random { seed: 1 })
    }

    #[test]
    fn early_blocks_wait_for_their_turn_and_leave_in_order() {
        let mut source = source(5);
        let mut sink = OrderedWriterSink::new(source.manifest().clone(), Vec::new(), 3).unwrap();
        let mut framed = new_framed();
        for block in [2, 1, 0, 4, 3] {
            source.load_block(0, block, &mut framed).unwrap();
            assert!(!matches!(sink.write_block(0, block, &framed).unwrap(), Written::Bad));
        }
        let root = source.file_root(0).unwrap();
        assert_eq!(sink.finish_file(0, Some(root)).unwrap(), Some(root));
        assert_eq!(sink.finish().unwrap().root, Some(root));
        let out = sink.into_inner();
        assert_eq!((out.len() as u64, blake3::hash(&out)), (5 * BLOCK - 5, root.into()));
    }

    #[test]
    fn blocks_beyond_the_window_are_not_held() {
        let mut source = source(9);
        let mut sink = OrderedWriterSink::new(source.manifest().clone(), Vec::new(), 3).unwrap();
        assert_eq!(sink.window(), Window::Blocks { next: 0, end: 3 });
        let mut framed = new_framed();
        source.load_block(0, 3, &mut framed).unwrap();
        let refused = sink.write_block(0, 3, &framed);
        assert!(matches!(refused, Err(SinkError::NotWanted { .. })));
    }

    #[test]
    fn a_full_device_is_named_as_full() {
        let mut source = source(1);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut sink = OrderedWriterSink::new(source.manifest().clone(), full, 3).unwrap();
        let mut framed = new_framed();
        source.load_block(0, 0, &mut framed).unwrap();
        let error = sink.write_block(0, 0, &framed).unwrap_err();
        assert_eq!(error.fault(), Some(crate::Fault::Full));
    }

    #[test]
    fn a_discarding_sink_does_not_give_up_the_only_file_of_an_object() {
        let mut sink = DiscardSink::new(source(2).manifest().clone());
        assert!(matches!(sink.give_up(0), Err(SinkError::Unsuitable(_))));
        assert!(matches!(sink.finish(), Err(SinkError::Incomplete { .. })));
    }

    #[test]
    fn a_discarding_sink_checks_counts_and_compares_roots() {
        let mut source = SyntheticSource::dir(&[3, 0, BLOCK + 1], Pattern::Zeros);
        let mut sink = DiscardSink::new(source.manifest().clone());
        let mut framed = new_framed();
        source.load_block(2, 1, &mut framed).unwrap();
        framed[0] ^= 1;
        assert_eq!(sink.write_block(2, 1, &framed).unwrap(), Written::Bad);
        for (file, block, written) in
            [(0, 0, Written::Completed), (2, 1, Written::Good), (2, 0, Written::Completed)]
        {
            source.load_block(file, block, &mut framed).unwrap();
            assert_eq!(sink.write_block(file, block, &framed).unwrap(), written);
        }
        assert_eq!(sink.write_block(2, 0, &framed).unwrap(), Written::Duplicate);
        let wrong = sink.finish_file(0, Some([0; 32]));
        assert!(matches!(wrong, Err(SinkError::RootMismatch { .. })));
        assert!(matches!(sink.finish_file(0, None), Err(SinkError::Incomplete { .. })));
        assert!(sink.begins_anew(0), "its blocks are dropped");
        source.load_block(0, 0, &mut framed).unwrap();
        assert_eq!(sink.write_block(0, 0, &framed).unwrap(), Written::Completed);
        assert!(matches!(sink.finish(), Err(SinkError::Incomplete { .. })));
        for file in 0..3 {
            sink.finish_file(file, None).unwrap();
        }
        let done = sink.finish().unwrap();
        assert_eq!((done.files_written, done.bytes_written), (3, BLOCK + 4 + 3), "3 came twice");
    }
}
