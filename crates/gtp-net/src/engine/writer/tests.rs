//! Writers at desks: an engine hears of one that ends, whatever the reason.

use std::sync::mpsc::channel;

use gtp_store::{BlockSource, DiscardSink, Have, Manifest, Pattern, RelPath, SyntheticSource};
use gtp_sys::wake::Poller;

use super::*;

/// A destination with a fault in its program.
struct Faulty(DiscardSink);

impl BlockSink for Faulty {
    fn have(&self) -> &[Have] {
        self.0.have()
    }

    fn window(&self) -> Window {
        self.0.window()
    }

    fn write_block(
        &mut self,
        _file: u32,
        _block: u64,
        _content: &[u8],
    ) -> Result<gtp_store::Written, SinkError> {
        panic!("as this test wants")
    }

    fn checkpoint(&mut self) -> Result<(), SinkError> {
        self.0.checkpoint()
    }

    fn finish_file(
        &mut self,
        file: u32,
        expected: Option<Value>,
    ) -> Result<Option<Value>, SinkError> {
        self.0.finish_file(file, expected)
    }

    fn finish(&mut self) -> Result<Finished, SinkError> {
        self.0.finish()
    }

    fn suspend(&mut self) -> Result<(), SinkError> {
        self.0.suspend()
    }
}

#[test]
fn the_engine_hears_of_a_writer_that_panics() {
    let name = RelPath::new("x").unwrap();
    let source = SyntheticSource::file(name, 1, Pattern::Zeros);
    let manifest: Arc<Manifest> = Arc::clone(source.manifest());
    let poller = Poller::new().unwrap();
    let (notices_in, heard) = channel();
    let notices = Notices::new(notices_in, poller.waker());
    let start = at_desk(Crew::of_process());
    let jobs = start(7, Box::new(Faulty(DiscardSink::new(manifest))), notices).unwrap();
    jobs.send(WriteJob::Block { file: 0, block: 0, first_unit: 0, bytes: Vec::new() });
    let heard = heard.recv().unwrap();
    assert!(matches!(heard, Notice::Written(7, Written::Failed(_))), "it was another notice");
}
