//! What becomes of single files of a transfer: one is whole, has its name, or will not come.
//!
//! The engine says so; here it is noted, and told to whoever started the transfer. Nothing is
//! decided about sources or sessions.

use gtp_store::{Kind, SinkError, Value};

use super::Gather;
use crate::client::progress::Event;
use crate::flows::{Failure, FailureKind};

impl Gather {
    /// A file needs nothing more.
    fn file_over(&mut self, file: u32) {
        let Some(running) = &mut self.running else { return };
        if let Some(unfinished) = running.unfinished.get_mut(file as usize) {
            *unfinished = false;
        }
    }

    /// A file is whole.
    pub(super) fn file_done(&mut self, file: u32) {
        self.file_over(file);
        self.tally.file_done();
    }

    pub(super) fn given_up(&mut self, file: u32, why: Option<SinkError>) {
        self.file_over(file);
        let Some(running) = &mut self.running else { return };
        let Some(entry) = running.manifest.entries.get(file as usize) else { return };
        running.lost_bytes += entry.size;
        running.lost_files += u64::from(entry.kind == Kind::File);
        match why {
            Some(error) => {
                let failure = Failure::new(FailureKind::Partial, error.to_string());
                self.skipped.note(failure, &self.monitor);
            }
            None => self.skipped.lose(&entry.path, &self.monitor),
        }
    }

    pub(super) fn file_named(&mut self, file: u32, root: Option<Value>) {
        let Some(running) = &self.running else { return };
        let Some(entry) = running.manifest.entries.get(file as usize) else { return };
        let path = entry.path.as_str().to_owned();
        self.monitor.tell(Event::FileDone { path, bytes: entry.size, blake3: root });
    }
}
