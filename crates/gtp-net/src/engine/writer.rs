//! The worker that writes a transfer's blocks.
//!
//! One thread per transfer owns the [`BlockSink`], takes jobs in order and answers each. It makes
//! what was written durable at least every 50 ms. After a failure, or when nobody can give it work
//! any more, it keeps for a resume what can be kept, and ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_proto::RangeSet;
use gtp_store::{BlockSink, Finished, LOST, Refused, SinkError, Value, Window, empty_root};
use gtp_sys::Clock;

use super::command::{Notice, Notices, TransferId};

/// What a writer is asked.
pub(super) enum WriteJob {
    /// Check and keep a block.
    Block { file: u32, block: u64, first_unit: u64, bytes: Vec<u8> },
    /// Do without this file, which no source can give.
    GiveUp(u32),
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
    /// A file has its name.
    Named { file: u32, root: Option<Value> },
    /// An entry will not come; so many of its blocks were missing. The destination refuses it, or
    /// no source can give it.
    GivenUp { file: u32, missing: u64, why: Option<SinkError> },
    /// The destination holds data but cannot do everything else that it should.
    Warning(String),
    /// The blocks of a file are each good and together not the file; the sink has dropped them.
    WrongRoot { file: u32, error: SinkError },
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
    /// Roots of finished files that have no name yet.
    unnamed: HashMap<u32, Option<Value>>,
    /// Files whose end has been answered. Whoever asks for the end of a file may not have heard
    /// yet that it is finished, and asks again.
    ended: RangeSet,
}

/// Whether the writer goes on.
enum Next {
    Job,
    End,
}

impl Writer {
    fn new(transfer: TransferId, sink: Box<dyn BlockSink>, notices: Notices) -> Writer {
        let unnamed = HashMap::new();
        let clock = Clock::start();
        let ended = RangeSet::new();
        let mut writer =
            Writer { transfer, sink, notices, clock, dirty_since: None, unnamed, ended };
        writer.tell_refused();
        writer
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
        self.tell_named();
        self.answer(Written::Failed(error));
    }

    fn work(&mut self, job: WriteJob) -> Result<Next, SinkError> {
        match job {
            WriteJob::Block { file, block, first_unit, mut bytes } => {
                let len = bytes.len();
                let outcome = self.sink.take_block(file, block, &mut bytes)?;
                self.tell_refused();
                self.dirty_since.get_or_insert_with(|| self.clock.now());
                let window = self.sink.window();
                self.answer(Written::Block { first_unit, len, spare: bytes, outcome, window });
            }
            WriteJob::Files(files) => {
                for (file, expected) in files {
                    self.finish_file(file, expected)?;
                }
            }
            WriteJob::GiveUp(file) => self.give_up(file)?,
            WriteJob::Finish => {
                let finished = self.sink.finish()?;
                self.tell_refused();
                self.tell_named();
                self.answer(Written::Finished(finished));
                return Ok(Next::End);
            }
            WriteJob::Suspend => {
                self.sink.suspend()?;
                self.tell_named();
                self.answer(Written::Suspended);
                return Ok(Next::End);
            }
        }
        Ok(Next::Job)
    }

    fn finish_file(&mut self, file: u32, expected: Option<Value>) -> Result<(), SinkError> {
        if expected == Some(LOST) {
            return self.give_up(file);
        }
        let root = match self.sink.finish_file(file, expected) {
            Ok(root) => root,
            Err(error @ SinkError::RootMismatch { .. }) if self.sink.begins_anew(file) => {
                self.answer(Written::WrongRoot { file, error });
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.answer(Written::File { file, root });
        self.tell_refused();
        if self.ends(file) {
            if self.sink.is_named_later(file) {
                self.unnamed.insert(file, root);
            } else {
                self.answer(Written::Named { file, root });
            }
        }
        self.tell_named();
        Ok(())
    }

    /// Notes that a file has ended; says whether that is news.
    fn ends(&mut self, file: u32) -> bool {
        self.ended.insert_one(u64::from(file))
    }

    fn give_up(&mut self, file: u32) -> Result<(), SinkError> {
        if let Some(missing) = self.sink.give_up(file)? {
            self.ends(file);
            self.answer(Written::GivenUp { file, missing, why: None });
        }
        Ok(())
    }

    /// Tells what the destination refuses.
    fn tell_refused(&mut self) {
        for Refused { file, missing, error } in self.sink.take_refused() {
            self.ends(file);
            self.unnamed.remove(&file);
            self.answer(Written::GivenUp { file, missing, why: Some(error) });
        }
    }

    /// Tells which files have got their names, and what the destination cannot do.
    fn tell_named(&mut self) {
        if let Some(text) = self.sink.take_warning() {
            self.answer(Written::Warning(text));
        }
        for file in self.sink.take_named() {
            // Nobody waits for an empty file to be finished.
            let root = self.unnamed.remove(&file).unwrap_or_else(|| Some(empty_root()));
            self.answer(Written::Named { file, root });
        }
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
