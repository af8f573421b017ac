//! Lines that wait to be written by a thread of their own.
//!
//! A server must not wait for the reader of its output: a pipe that is not emptied would stop it.
//! Lines wait here up to a bound in bytes; further ones are dropped, and their number is reported
//! where they are missing, as soon as there is room. Lines that cannot be written, because the disk
//! is full, count as well. What the lines are about is unknown here.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of lines that wait at most; a pipe takes 64 KiB besides.
const WAITING_MOST: usize = 256 * 1024;

/// Longest line, in bytes; a longer one is cut. Nothing that a server says comes near.
const LINE_MOST: usize = 16 * 1024;

/// A line that waits.
struct Line {
    text: Vec<u8>,
    /// Lines that were dropped before it.
    dropped: u64,
}

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
    lines: VecDeque<Line>,
    bytes: usize,
    /// Lines dropped behind those that wait.
    dropped: u64,
    /// The thread is writing what it took.
    writing: bool,
}

impl Lines {
    /// Starts the thread. `missing` words how many lines were dropped, with its line end. `failed`
    /// hears why a line could not be written, unless its reader is gone.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn to(
        out: impl Write + Send + 'static,
        missing: fn(u64) -> String,
        failed: impl Fn(io::Error) + Send + 'static,
    ) -> io::Result<Lines> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("gtp-lines".into());
        thread.spawn(move || write(&theirs, out, missing, failed))?;
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
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.lines.push_back(Line { text: line, dropped });
        self.shared.changed.notify_all();
    }

    /// Waits until all is written, but no longer than `patience`.
    pub fn drain(&self, patience: Duration) {
        let waiting = self.shared.lock();
        let busy = |waiting: &mut Waiting| waiting.writing || waiting.has_something();
        // Whether it is written or time is up makes no difference to a process that ends.
        drop(self.shared.changed.wait_timeout_while(waiting, patience, busy));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next line, or only how many were dropped if none was kept after them.
    fn next(&self) -> Line {
        let mut waiting = self.lock();
        waiting.writing = false;
        self.changed.notify_all();
        loop {
            if waiting.has_something() {
                waiting.writing = true;
                let next = waiting.lines.pop_front();
                waiting.bytes -= next.as_ref().map_or(0, |line| line.text.len());
                let dropped = &mut waiting.dropped;
                return next.unwrap_or_else(|| Line {
                    text: Vec::new(),
                    dropped: std::mem::take(dropped),
                });
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Waiting {
    fn has_something(&self) -> bool {
        !self.lines.is_empty() || self.dropped > 0
    }
}

/// Writes lines for as long as the process lives.
fn write(
    shared: &Shared,
    mut out: impl Write,
    missing: fn(u64) -> String,
    failed: impl Fn(io::Error),
) {
    // Lines that could not be written, and whether one was cut in the middle.
    let (mut lost, mut is_torn) = (0, false);
    loop {
        let Line { text, dropped } = shared.next();
        lost += dropped;
        let torn = if is_torn { "\n" } else { "" };
        let report = if lost > 0 { format!("{torn}{}", missing(lost)) } else { String::new() };
        let reported = whole(&mut out, report.as_bytes());
        if reported.is_ok() {
            (lost, is_torn) = (0, false);
        }
        let written = reported.and_then(|()| whole(&mut out, &text));
        if let Err((cut, error)) = written {
            lost += u64::from(!text.is_empty());
            is_torn |= cut;
            match error.kind() {
                // If the reader is gone, there is no one to tell. One that has stopped reads later
                // how many lines it missed.
                io::ErrorKind::BrokenPipe | io::ErrorKind::WouldBlock => {}
                _ => failed(error),
            }
        }
    }
}

/// Writes all of a text; if that fails, also says whether a part of it was written.
fn whole(out: &mut impl Write, text: &[u8]) -> Result<(), (bool, io::Error)> {
    let mut left = text;
    while !left.is_empty() {
        match out.write(left) {
            Ok(0) => return Err((left.len() < text.len(), io::ErrorKind::WriteZero.into())),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((left.len() < text.len(), error)),
        }
    }
    out.flush().map_err(|error| (false, error))
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

    fn unexpected(error: io::Error) {
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_stuck_reader_costs_bounded_memory_no_time_and_hears_how_much_it_missed() {
        let (permit, permits) = channel();
        let (read, heard) = channel();
        let missing = |n| format!("{n} missing\n");
        let lines = Lines::to(Slow { permits, read }, missing, unexpected).unwrap();
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
        let mut all: Vec<_> = heard.try_iter().collect();
        let last = all.pop().unwrap();
        assert_eq!(last, format!("{} missing\n", 100_000 - kept).into_bytes());
        assert!(all.iter().all(|text| *text == line) && all.len() as u64 == kept);
    }

    #[test]
    fn what_is_missing_is_said_where_it_is_missing() {
        let (permit, permits) = channel();
        let (read, heard) = channel();
        let missing = |n| format!("{n} missing\n");
        let lines = Lines::to(Slow { permits, read }, missing, unexpected).unwrap();
        let long = [b"x".repeat(LINE_MOST - 1), b"\n".to_vec()].concat();
        lines.push(b"first\n");
        while !lines.shared.lock().writing {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            lines.push(&long);
        }
        // It reads one line on, and there is room for another one.
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        while lines.shared.lock().lines.len() == WAITING_MOST / LINE_MOST {
            std::thread::yield_now();
        }
        lines.push(b"last\n");
        for _ in 0..30 {
            permit.send(()).unwrap();
        }
        lines.drain(Duration::from_secs(30));
        let all: Vec<_> = heard.try_iter().collect();
        let short: Vec<_> = all.iter().filter(|text| text.len() < 100).collect();
        assert_eq!(short, [&b"first\n"[..], b"4 missing\n", b"last\n"]);
        assert_eq!(all.last().unwrap(), b"last\n");
    }

    /// A disk that is full for a while.
    struct Full {
        room: Receiver<bool>,
        read: Sender<Vec<u8>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.room.recv() {
                Ok(true) => {
                    self.read.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?
                }
                Ok(false) => return Err(io::ErrorKind::StorageFull.into()),
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_lost_are_counted_in_the_stream_and_remembered_as_a_failure() {
        let (tell, room) = channel();
        let (read, heard) = channel();
        let (fail, failed) = channel();
        let missing = |n| format!("{n} missing\n");
        let told = move |error: io::Error| fail.send(error.kind()).unwrap();
        let lines = Lines::to(Full { room, read }, missing, told).unwrap();
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            lines.push(line.as_bytes());
        }
        // "b" fails, and then the report of it.
        for room in [true, false, false, true, true] {
            tell.send(room).unwrap();
        }
        lines.drain(Duration::from_secs(30));
        let all: Vec<_> = heard.try_iter().collect();
        assert_eq!(all, [&b"a\n"[..], b"2 missing\n", b"d\n"]);
        assert_eq!(failed.try_iter().collect::<Vec<_>>(), [io::ErrorKind::StorageFull; 2]);
    }

    #[test]
    fn a_line_without_measure_is_cut() {
        let (permit, permits) = channel();
        let (read, heard) = channel();
        let lines = Lines::to(Slow { permits, read }, |_| String::new(), unexpected).unwrap();
        lines.push(&b"x".repeat(LINE_MOST + 1));
        permit.send(()).unwrap();
        let line = heard.recv().unwrap();
        assert_eq!((line.len(), line.last()), (LINE_MOST, Some(&b'\n')));
    }
}
