//! Writing to a descriptor that may be set not to block, as if it were not.
//!
//! Such a descriptor is often inherited: another process that holds the same pipe or terminal has
//! set it so. When its reader is slow, writing fails there with `EAGAIN`, and nothing is lost. So
//! this waits until there is room, for a bounded time.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often a write is tried, with a second between. A reader that takes nothing for a minute has
/// stopped.
const TRIES: u32 = 60;

/// A writer that waits until its descriptor takes something.
pub struct Patient<W>(pub W);

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_within(&mut self.0, bytes, TRIES)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a part of `bytes`, and tries `tries` times.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] if there was no room all the time; what else writing says.
fn write_within(out: &mut (impl Write + AsFd), bytes: &[u8], tries: u32) -> io::Result<usize> {
    for _ in 0..tries {
        match out.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(out),
            written => return written,
        }
    }
    Err(ErrorKind::WouldBlock.into())
}

/// Waits until there is room, for a second at most.
pub fn wait(out: &impl AsFd) {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    // If it fails, the next attempt to write says why.
    let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&second));
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    /// The ends of a pipe: the one to read from, and the one to write to, which does not block.
    fn pipe() -> (File, File) {
        let (near, far) = std::io::pipe().unwrap();
        fcntl_setfl(&far, OFlags::NONBLOCK).unwrap();
        (File::from(OwnedFd::from(near)), File::from(OwnedFd::from(far)))
    }

    #[test]
    fn nothing_is_lost_on_a_pipe_that_does_not_block_while_its_reader_is_slow() {
        let all: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let (_unread, mut full) = pipe();
        assert_eq!(full.write_all(&all).unwrap_err().kind(), ErrorKind::WouldBlock);
        let (mut near, far) = pipe();
        let reader = std::thread::spawn(move || {
            let mut read = Vec::new();
            near.read_to_end(&mut read).unwrap();
            read
        });
        Patient(far).write_all(&all).unwrap();
        assert!(reader.join().unwrap() == all);
    }

    #[test]
    fn a_reader_that_takes_nothing_is_waited_for_as_long_as_is_said_and_one_that_is_gone_not() {
        let (near, mut far) = pipe();
        while far.write(&[0; 4_096]).is_ok() {}
        let late = write_within(&mut far, b"x", 2).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WouldBlock);
        drop(near);
        let gone = write_within(&mut far, b"x", TRIES).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
    }
}
