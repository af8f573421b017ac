//! Writers at desks: an engine hears of one that ends, whatever the reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use gtp_store::{BlockSource, DiscardSink, Have, Pattern, RelPath, SyntheticSource};
use gtp_sys::wake::Poller;

use super::*;

/// A destination whose program has a fault where blocks are written, and that says when it is let
/// go of.
struct Faulty(DiscardSink, Arc<AtomicBool>);

impl Drop for Faulty {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
    }
}

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

/// A writer at a desk, what the engine hears of it, and whether its destination is free.
fn writer() -> (WriteJobs, Receiver<Notice>, Arc<AtomicBool>, Poller) {
    let source = SyntheticSource::file(RelPath::new("x").unwrap(), 1, Pattern::Zeros);
    let (poller, (notices_in, heard)) = (Poller::new().unwrap(), channel());
    let notices = Notices::new(notices_in, poller.waker());
    let free = Arc::new(AtomicBool::new(false));
    let sink = Faulty(DiscardSink::new(Arc::clone(source.manifest())), Arc::clone(&free));
    let jobs = at_desk(Crew::of_process())(7, Box::new(sink), notices).unwrap();
    (jobs, heard, free, poller)
}

#[test]
fn the_engine_hears_of_a_writer_that_panics() {
    let (jobs, heard, free, _poller) = writer();
    jobs.send(WriteJob::Block { file: 0, block: 0, first_unit: 0, bytes: Vec::new() });
    let heard = heard.recv().unwrap();
    assert!(matches!(heard, Notice::Written(7, Written::Failed(_))), "it was another notice");
    assert!(free.load(Ordering::Relaxed));
}

#[test]
fn the_destination_is_free_when_a_writer_has_said_that_it_has_ended() {
    for _ in 0..100 {
        let (jobs, heard, free, _poller) = writer();
        jobs.send(WriteJob::Suspend);
        let heard = heard.recv().unwrap();
        assert!(matches!(heard, Notice::Written(7, Written::Suspended)), "it was another notice");
        assert!(free.load(Ordering::Relaxed));
    }
}
