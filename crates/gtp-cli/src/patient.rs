//! Writing to a descriptor that may be set not to block, as if it were not.
//!
//! Such a descriptor is often inherited: another process that holds the same pipe or terminal has
//! set it so. When its reader is slow, writing fails there with `EAGAIN`, and nothing is lost. So
//! this waits until there is room, for as long as its caller says.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// A reader that takes nothing in so many tries, with a second between, has stopped.
const A_MINUTE: Option<u32> = Some(60);

/// A writer that waits until its descriptor takes something, for a minute at most.
pub struct Patient<W>(pub W);

impl<W: Write + AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_within(&mut self.0, bytes, A_MINUTE)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes a part of `bytes`. It tries `tries` times, once at least, with a second between at most;
/// for ever without a number.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] if there was no room all the time; what else writing says.
pub fn write_within(
    out: &mut (impl Write + AsFd),
    bytes: &[u8],
    tries: Option<u32>,
) -> io::Result<usize> {
    let mut tried = 0_u32;
    loop {
        match out.write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tried = tried.saturating_add(1);
                if tries.is_some_and(|tries| tried >= tries) {
                    return Err(error);
                }
            }
            written => return written,
        }
        wait(out);
    }
}

/// Waits until there is room, for a second at most. Where the kernel refuses to tell, nothing can
/// be waited for: a second passes, so that trying again costs little.
fn wait(out: &impl AsFd) {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    match poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&second)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(_) => std::thread::sleep(Duration::from_secs(1)),
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use gtp_sys::Clock;
    use rustix::fs::{OFlags, fcntl_setfl};
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

    use super::*;

    /// The ends of a pipe: the one to read from, and the one to write to, which does not block.
    pub fn pipe() -> (File, File) {
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
        let late = write_within(&mut far, b"x", Some(2)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::WouldBlock);
        drop(near);
        let gone = write_within(&mut far, b"x", A_MINUTE).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
    }

    /// Lets nobody on this thread see whether a descriptor is ready.
    fn refuse_to_poll() {
        let calls = [
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll,
            libc::SYS_ppoll,
        ];
        let rules = calls.map(|call| (call, Vec::new())).into();
        let refused = SeccompAction::Errno(u32::try_from(libc::ENOMEM).unwrap());
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
    }

    #[test]
    fn where_it_cannot_be_seen_whether_there_is_room_a_second_passes_between_two_tries() {
        let (_unread, mut far) = pipe();
        while far.write(&[0; 4_096]).is_ok() {}
        let clock = Clock::start();
        let blind = std::thread::spawn(move || {
            refuse_to_poll();
            write_within(&mut far, b"x", Some(3)).unwrap_err().kind()
        });
        assert_eq!(blind.join().unwrap(), ErrorKind::WouldBlock);
        assert!(clock.now() >= gtp_alloc::Time::ZERO + gtp_alloc::Span::from_secs(2));
    }
}
