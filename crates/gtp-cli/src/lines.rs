//! Lines that wait to be written by a thread of their own.
//!
//! A server must not wait for the reader of its output: a pipe that is not emptied would stop it.
//! Lines wait here up to a bound in bytes; further ones are dropped, and their number is reported
//! when the reader goes on. What the lines are about is unknown here.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of lines that wait at most; a pipe takes 64 KiB besides.
const WAITING_MOST: usize = 256 * 1024;

/// Longest line, in bytes; a longer one is cut. Nothing that a server says comes near.
const LINE_MOST: usize = 16 * 1024;

/// The way to the thread that writes.
#[derive(Clone)]
pub struct Lines {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// The thread is writing what it took.
    writing: bool,
}

impl Lines {
    /// Starts the thread. `missing` words how many lines were dropped, with its line end.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn to(out: impl Write + Send + 'static, missing: fn(u64) -> String) -> io::Result<Lines> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gtp-lines".into());
        thread.spawn(move || write(&theirs, out, missing))?;
        Ok(Lines { shared })
    }

    /// Adds one line, which ends with a line end. It never waits.
    pub fn push(&self, line: &[u8]) {
        let mut line = line.to_vec();
        if line.len() > LINE_MOST {
            line.truncate(LINE_MOST - 1);
            line.push(b'\n');
        }
        let mut waiting = self.shared.lock();
        if waiting.bytes + line.len() > WAITING_MOST {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        self.shared.changed.notify_all();
    }

    /// Waits until all is written, but no longer than `patience`.
    pub fn drain(&self, patience: Duration) {
        let waiting = self.shared.lock();
        let busy = |waiting: &mut Waiting| waiting.writing || !waiting.lines.is_empty();
        // Whether it is written or time is up makes no difference to a process that ends.
        drop(self.shared.changed.wait_timeout_while(waiting, patience, busy));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line, and how many were dropped before it.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut waiting = self.lock();
        waiting.writing = false;
        self.changed.notify_all();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.len();
                waiting.writing = true;
                let dropped = std::mem::take(&mut waiting.dropped);
                return (line, dropped);
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes lines for as long as the process lives.
fn write(shared: &Shared, mut out: impl Write, missing: fn(u64) -> String) {
    loop {
        let (line, dropped) = shared.next();
        // If the reader is gone, there is no one to tell.
        let _ = out.write_all(&line);
        if dropped > 0 {
            let _ = out.write_all(missing(dropped).as_bytes());
        }
        let _ = out.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader that takes one line for each permit, and keeps it.
    struct Slow {
        permits: Receiver<()>,
        read: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.read.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_costs_bounded_memory_no_time_and_hears_how_much_it_missed() {
        let (permit, permits) = channel();
        let (read, heard) = channel();
        let lines = Lines::to(Slow { permits, read }, |n| format!("{n} missing\n")).unwrap();
        let line = [b"x".repeat(1_023), b"\n".to_vec()].concat();
        lines.push(&line);
        while !lines.shared.lock().writing {
            std::thread::yield_now();
        }
        for _ in 1..100_000 {
            lines.push(&line);
        }
        lines.drain(Duration::from_millis(1));
        assert!(lines.shared.lock().bytes <= WAITING_MOST);
        let kept = 100_000 - lines.shared.lock().dropped;
        assert_eq!(kept, 1 + 256);
        for _ in 0..=kept {
            permit.send(()).unwrap();
        }
        lines.drain(Duration::from_secs(30));
        let (all, said): (Vec<_>, Vec<_>) = heard.try_iter().partition(|text| *text == line);
        assert_eq!(all.len() as u64, kept);
        assert_eq!(said, [format!("{} missing\n", 100_000 - kept).into_bytes()]);
    }

    #[test]
    fn a_line_without_measure_is_cut() {
        let (permit, permits) = channel();
        let (read, heard) = channel();
        let lines = Lines::to(Slow { permits, read }, |_| String::new()).unwrap();
        lines.push(&b"x".repeat(LINE_MOST + 1));
        permit.send(()).unwrap();
        let line = heard.recv().unwrap();
        assert_eq!((line.len(), line.last()), (LINE_MOST, Some(&b'\n')));
    }
}
