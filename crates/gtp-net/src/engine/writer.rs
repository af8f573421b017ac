//! The worker that writes a transfer's blocks.
//!
//! A clerk of the crew's owns the [`BlockSink`], takes jobs in order and answers each. It makes
//! what was written durable at least every 50 ms. After a failure, or when nobody can give it work
//! any more, it keeps for a resume what can be kept, and ends. Its last answer comes when it has
//! let go of the destination, so that another transfer may write there.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use gtp_alloc::{Span, Time};
use gtp_proto::RangeSet;
use gtp_store::{BlockSink, Finished, LOST, Refused, SinkError, Value, Window, empty_root};
use gtp_sys::Clock;

use super::command::{Notice, Notices, TransferId};
use super::crew::{Clerk, Crew, Inlet, Step};

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

/// The way to a writer. Dropping that to one at a desk suspends the sink.
pub(super) enum WriteJobs {
    /// It has a desk, and the crew's workers do its jobs.
    Apart(Inlet<Writer>),
    /// It has none; its jobs are done here until it ends.
    Here(RefCell<Option<Box<Writer>>>),
}

/// How a writer begins.
pub(super) type Start =
    Box<dyn FnOnce(TransferId, Box<dyn BlockSink>, Notices) -> io::Result<WriteJobs> + Send>;

impl WriteJobs {
    /// Gives the writer a job. A writer that is gone has said why.
    pub fn send(&self, job: WriteJob) {
        match self {
            WriteJobs::Apart(desk) => desk.send(job),
            WriteJobs::Here(writer) => {
                let mut here = writer.borrow_mut();
                let Some(writer) = here.as_mut() else { return };
                let last = match writer.try_to(job) {
                    Ok(Next::Job) => return,
                    Ok(Next::End(last)) => last,
                    Err(error) => writer.fail(error),
                };
                let farewell = writer.farewell(last);
                *here = None;
                farewell();
            }
        }
    }
}

/// Blocks are made durable at least this often.
const CHECKPOINT_EVERY: Span = Span::from_millis(50);

/// The writer has ended on its own, which it does only when it cannot go on.
fn gone() -> SinkError {
    SinkError::Unsuitable("the writer has ended; please report this".to_owned())
}

/// Gives the writer of a transfer its desk, if there is a crew.
///
/// # Errors
/// Why there is none.
pub(super) fn at_desk(crew: io::Result<Arc<Crew>>) -> Start {
    Box::new(move |transfer, sink, notices| {
        let device = sink.device();
        Ok(WriteJobs::Apart(Inlet::open(&crew?, Writer::new(transfer, sink, notices), device)))
    })
}

/// The same without a desk: a job is done, and answered, when it is given. It makes nothing
/// durable in between.
///
/// # Errors
/// None.
pub(super) fn here(
    transfer: TransferId,
    sink: Box<dyn BlockSink>,
    notices: Notices,
) -> io::Result<WriteJobs> {
    Ok(WriteJobs::Here(RefCell::new(Some(Box::new(Writer::new(transfer, sink, notices))))))
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
    /// The last field: the destination is let go of before.
    _alarm: Alarm,
}

/// Has the engine hear of a writer that panics, which is dropped on the way. What is in the
/// journal stays, as after a crash.
struct Alarm {
    transfer: TransferId,
    notices: Notices,
}

/// Whether the writer goes on.
enum Next {
    Job,
    /// It ends, and this is its last answer.
    End(Written),
}

impl Writer {
    fn new(transfer: TransferId, sink: Box<dyn BlockSink>, notices: Notices) -> Writer {
        let unnamed = HashMap::new();
        let clock = Clock::start();
        let ended = RangeSet::new();
        let _alarm = Alarm { transfer, notices: notices.clone() };
        let mut writer =
            Writer { transfer, sink, notices, clock, dirty_since: None, unnamed, ended, _alarm };
        writer.tell_refused();
        writer
    }

    /// Ends for a failure; returns its last answer.
    fn fail(&mut self, error: SinkError) -> Written {
        // The failure itself is what matters; suspending is best effort.
        let _ = self.sink.suspend();
        self.tell_named();
        Written::Failed(error)
    }

    /// Gives the last answer. Until the writer has let go of the destination, no other transfer
    /// may write there, so this is done after that.
    fn farewell(&self, last: Written) -> Box<dyn FnOnce() + Send> {
        let (transfer, notices) = (self.transfer, self.notices.clone());
        Box::new(move || notices.send(Notice::Written(transfer, last)))
    }

    fn try_to(&mut self, job: WriteJob) -> Result<Next, SinkError> {
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
                return Ok(Next::End(Written::Finished(finished)));
            }
            WriteJob::Suspend => {
                self.sink.suspend()?;
                self.tell_named();
                return Ok(Next::End(Written::Suspended));
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

    fn checkpoint_if_due(&mut self) -> Result<Next, SinkError> {
        if self.due().is_some_and(|due| self.clock.now() >= due) {
            self.sink.checkpoint()?;
            self.dirty_since = None;
        }
        Ok(Next::Job)
    }

    /// What follows for its desk.
    fn step(&mut self, done: Result<Next, SinkError>) -> Step {
        let last = match done {
            Ok(Next::Job) => return Step::Go,
            Ok(Next::End(last)) => last,
            Err(error) => self.fail(error),
        };
        Step::End(self.farewell(last))
    }

    fn answer(&self, written: Written) {
        self.notices.send(Notice::Written(self.transfer, written));
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.notices.send(Notice::Written(self.transfer, Written::Failed(gone())));
        }
    }
}

impl Clerk for Writer {
    type Job = WriteJob;

    fn work(&mut self, job: WriteJob) -> Step {
        let done = self.try_to(job).and_then(|next| match next {
            Next::Job => self.checkpoint_if_due(),
            end @ Next::End(_) => Ok(end),
        });
        self.step(done)
    }

    fn tick(&mut self) -> Step {
        let done = self.checkpoint_if_due();
        self.step(done)
    }

    fn due(&self) -> Option<Time> {
        self.dirty_since.map(|since| since + CHECKPOINT_EVERY)
    }

    fn close(&mut self) {
        let _ = self.sink.suspend(); // Nobody is left to hear of a failure.
    }
}
