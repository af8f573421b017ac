//! The worker that reads a source session's object.
//!
//! One thread per session owns the [`BlockSource`](gtp_store::BlockSource), loads the blocks that
//! it is told to, in that order, and computes roots. It ends when nobody can give it work.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use gtp_proto::FlowId;
use gtp_store::{Kind, SourceError, Value};
use tokio::sync::oneshot;

use super::command::{Notice, Notices, Object};

/// What a reader is asked.
pub(super) enum ReadJob {
    /// Load a block into this buffer.
    Load { file: u32, block: u64, first_unit: u64, buffer: Vec<u8> },
    /// Compute the roots of files.
    Roots(Range<u32>, oneshot::Sender<Result<Vec<Value>, SourceError>>),
}

/// What a reader answers to [`ReadJob::Load`].
pub(super) enum Loaded {
    /// The block that begins with this unit.
    Block { first_unit: u64, content_and_trailer: Vec<u8> },
    /// Reading failed.
    Failed { error: SourceError },
}

/// The way to a reader.
#[derive(Clone)]
pub(super) struct ReadJobs(Sender<ReadJob>);

impl ReadJobs {
    /// Queues a job. A reader that is gone drops it, which its answer's receiver notices.
    pub fn send(&self, job: ReadJob) {
        let _ = self.0.send(job);
    }
}

/// Starts the reader of a session. Should the system give no thread, the session hears of it as a
/// failure to read.
pub(super) fn spawn(flow: FlowId, object: Object, notices: Notices) -> ReadJobs {
    let (jobs_in, jobs) = channel();
    let own = notices.clone();
    let thread = std::thread::Builder::new().name("gtp-reader".into());
    if let Err(source) = thread.spawn(move || read(flow, object, &jobs, &own)) {
        let error = SourceError::Read { path: "the object".into(), source };
        notices.send(Notice::Loaded(flow, Loaded::Failed { error }));
    }
    ReadJobs(jobs_in)
}

/// The reader has ended, which it does on its own only when it cannot go on.
pub(super) fn gone() -> SourceError {
    let source = io::Error::other("the reader has ended");
    SourceError::Read { path: "the object".into(), source }
}

fn read(flow: FlowId, mut object: Object, jobs: &Receiver<ReadJob>, notices: &Notices) {
    for job in jobs {
        match job {
            ReadJob::Load { file, block, first_unit, mut buffer } => {
                let loaded = match object.load_block(file, block, &mut buffer) {
                    Ok(()) => Loaded::Block { first_unit, content_and_trailer: buffer },
                    Err(error) => Loaded::Failed { error },
                };
                notices.send(Notice::Loaded(flow, loaded));
            }
            ReadJob::Roots(files, answer) => {
                let values = roots(&mut object, files, || answer.is_closed());
                // Whoever asked may have gone; then nobody misses the answer.
                let _ = answer.send(values);
            }
        }
    }
}

/// The roots of `files`, or of the first of them if meanwhile nobody waits for them any more.
fn roots(
    object: &mut Object,
    files: Range<u32>,
    unwanted: impl Fn() -> bool,
) -> Result<Vec<Value>, SourceError> {
    let manifest = object.manifest().clone();
    let mut values = Vec::new();
    for file in files {
        if unwanted() {
            break;
        }
        let kind = manifest.entries.get(file as usize).map(|entry| entry.kind);
        values.push(match kind {
            Some(Kind::Dir) => [0; 32],
            Some(Kind::File) | None => object.file_root(file)?,
        });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use gtp_store::{Export, FileSource};

    use super::*;

    #[test]
    fn hashing_stops_at_the_next_file_when_nobody_waits() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let scanned = Export::open(dir.path()).unwrap().scan(None).unwrap();
        let mut object: Object = Box::new(FileSource::new(scanned));
        let all = object.manifest().entries.len() as u32;
        assert_eq!(roots(&mut object, 0..all, || false).unwrap().len(), all as usize);
        let looks = Cell::new(0);
        let leaves = || looks.replace(looks.get() + 1) == 2;
        assert_eq!(roots(&mut object, 0..all, leaves).unwrap().len(), 2);
    }
}
