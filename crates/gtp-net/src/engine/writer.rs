//! The worker that writes a transfer's blocks.
//!
//! One thread per transfer owns the [`BlockSink`], takes jobs in order and answers each. It makes
//! what was written durable at least every 50 ms. After a failure, or when nobody can give it work
//! any more, it keeps for a resume what can be kept, and ends.

use std::cell::RefCell;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_store::{BlockSink, Finished, SinkError, Value, Window};
use gtp_sys::Clock;

use super::command::{Notice, Notices, TransferId};

/// What a writer is asked.
pub(super) enum WriteJob {
    /// Check and keep a block.
    Block { file: u32, block: u64, first_unit: u64, bytes: Vec<u8> },
    /// Finish these files.
    Files(Vec<(u32, Option<Value>)>),
    /// Finish the object.
    Finish,
    /// Stop, and keep what is complete.
    Suspend,
}

/// What a writer answers.
pub(super) enum Written {
    /// What became of a block of `len` bytes with its trailer; its buffer or another comes back.
    Block {
        first_unit: u64,
        len: usize,
        spare: Vec<u8>,
        outcome: gtp_store::Written,
        window: Window,
    },
    /// A file is finished. No root: it needed nothing.
    File { file: u32, root: Option<Value> },
    /// The object is finished. The writer has ended.
    Finished(Finished),
    /// The writer has ended, as asked.
    Suspended,
    /// The destination failed. The writer has ended.
    Failed(SinkError),
}

/// The way to a writer. Dropping that to a thread suspends the sink.
pub(super) enum WriteJobs {
    /// It has a thread.
    Apart(Sender<WriteJob>),
    /// It has none, until it ends.
    Here(RefCell<Option<Writer>>),
}

/// How a writer begins.
pub(super) type Start = fn(TransferId, Box<dyn BlockSink>, Notices) -> io::Result<WriteJobs>;

impl WriteJobs {
    /// Gives the writer a job. A writer that is gone has said why.
    pub fn send(&self, job: WriteJob) {
        match self {
            WriteJobs::Apart(queue) => {
                let _ = queue.send(job);
            }
            WriteJobs::Here(writer) => {
                let mut here = writer.borrow_mut();
                let Some(writer) = here.as_mut() else { return };
                match writer.work(job) {
                    Ok(Next::Job) => {}
                    Ok(Next::End) => *here = None,
                    Err(error) => {
                        writer.fail(error);
                        *here = None;
                    }
                }
            }
        }
    }
}

/// Blocks are made durable at least this often.
const CHECKPOINT_EVERY: Span = Span::from_millis(50);

/// Starts the writer of a transfer.
///
/// # Errors
/// When the system gives no thread.
pub(super) fn spawn(
    transfer: TransferId,
    sink: Box<dyn BlockSink>,
    notices: Notices,
) -> io::Result<WriteJobs> {
    let (jobs_in, jobs) = channel();
    let writer = Writer::new(transfer, sink, notices);
    std::thread::Builder::new().name("gtp-writer".into()).spawn(move || writer.run(&jobs))?;
    Ok(WriteJobs::Apart(jobs_in))
}

/// The same without a thread: a job is done, and answered, when it is given. It makes nothing
/// durable in between.
///
/// # Errors
/// None.
pub(super) fn here(
    transfer: TransferId,
    sink: Box<dyn BlockSink>,
    notices: Notices,
) -> io::Result<WriteJobs> {
    Ok(WriteJobs::Here(RefCell::new(Some(Writer::new(transfer, sink, notices)))))
}

/// Owns a sink, and does what it is told.
pub(super) struct Writer {
    transfer: TransferId,
    sink: Box<dyn BlockSink>,
    notices: Notices,
    clock: Clock,
    dirty_since: Option<Time>,
}

/// Whether the writer goes on.
enum Next {
    Job,
    End,
}

impl Writer {
    fn new(transfer: TransferId, sink: Box<dyn BlockSink>, notices: Notices) -> Writer {
        Writer { transfer, sink, notices, clock: Clock::start(), dirty_since: None }
    }

    fn run(mut self, jobs: &Receiver<WriteJob>) {
        loop {
            let job = match jobs.recv_timeout(self.patience()) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.sink.suspend(); // Nobody is left to hear of a failure.
                    return;
                }
            };
            let next = match job {
                Some(job) => self.work(job),
                None => Ok(Next::Job),
            };
            let next = match next {
                Ok(Next::Job) => self.checkpoint_if_due(),
                Ok(Next::End) => return,
                Err(error) => Err(error),
            };
            match next {
                Ok(()) => {}
                Err(error) => return self.fail(error),
            }
        }
    }

    fn fail(&mut self, error: SinkError) {
        // The failure itself is what matters; suspending is best effort.
        let _ = self.sink.suspend();
        self.answer(Written::Failed(error));
    }

    fn work(&mut self, job: WriteJob) -> Result<Next, SinkError> {
        match job {
            WriteJob::Block { file, block, first_unit, mut bytes } => {
                let len = bytes.len();
                let outcome = self.sink.take_block(file, block, &mut bytes)?;
                self.dirty_since.get_or_insert_with(|| self.clock.now());
                let window = self.sink.window();
                self.answer(Written::Block { first_unit, len, spare: bytes, outcome, window });
            }
            WriteJob::Files(files) => {
                for (file, expected) in files {
                    let root = self.sink.finish_file(file, expected)?;
                    self.answer(Written::File { file, root });
                }
            }
            WriteJob::Finish => {
                let finished = self.sink.finish()?;
                self.answer(Written::Finished(finished));
                return Ok(Next::End);
            }
            WriteJob::Suspend => {
                self.sink.suspend()?;
                self.answer(Written::Suspended);
                return Ok(Next::End);
            }
        }
        Ok(Next::Job)
    }

    fn checkpoint_if_due(&mut self) -> Result<(), SinkError> {
        let due = |since: Time| self.clock.now().since(since) >= CHECKPOINT_EVERY;
        if self.dirty_since.is_some_and(due) {
            self.sink.checkpoint()?;
            self.dirty_since = None;
        }
        Ok(())
    }

    /// How long to wait for a job.
    fn patience(&self) -> Duration {
        let patience = match self.dirty_since {
            Some(since) => CHECKPOINT_EVERY.saturating_sub(self.clock.now().since(since)),
            None => Span::from_secs(3_600),
        };
        gtp_sys::clock::duration(patience)
    }

    fn answer(&self, written: Written) {
        self.notices.send(Notice::Written(self.transfer, written));
    }
}
