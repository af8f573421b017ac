//! Waiting: for readable descriptors, for a time, or for a word from another thread.
//!
//! A [`Poller`] belongs to one thread; its [`Waker`]s may be anywhere. Waits end to the
//! nanosecond as far as the kernel's timers go. It knows nothing of what is waited for.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_alloc::Span;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use smallvec::SmallVec;

/// Ends a [`Poller`]'s wait from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    event: OwnedFd,
    /// Rung and not heard yet: ringing again would only cost a system call.
    rung: AtomicBool,
}

impl Waker {
    /// Ends the current wait, or the next one if there is none now.
    pub fn wake(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            // It fails only when the counter is full, and then the bell is rung already.
            let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits on behalf of one thread.
#[derive(Debug)]
pub struct Poller {
    bell: Arc<Bell>,
}

impl Poller {
    /// A poller and its bell.
    ///
    /// # Errors
    /// When the process may not open one more descriptor.
    pub fn new() -> io::Result<Poller> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Poller { bell: Arc::new(Bell { event, rung: AtomicBool::new(false) }) })
    }

    /// A waker of this poller.
    pub fn waker(&self) -> Waker {
        Waker(self.bell.clone())
    }

    /// Waits until one of `readable` can be read from, a waker was used, or `timeout` is over
    /// (`None`: never). Sets `ready[i]` for each descriptor that can be read from, or has failed;
    /// `ready` must be as long as `readable`.
    ///
    /// # Errors
    /// When the kernel is out of memory.
    pub fn wait<'a>(
        &'a self,
        readable: impl IntoIterator<Item = BorrowedFd<'a>>,
        ready: &mut [bool],
        timeout: Option<Span>,
    ) -> io::Result<()> {
        // Mostly a bell and two sockets: a wait takes nothing from the allocator.
        let mut fds: SmallVec<[PollFd<'_>; 8]> = SmallVec::new();
        fds.push(PollFd::new(&self.bell.event, PollFlags::IN));
        fds.extend(readable.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = timeout.map(|span| Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000).min(LONGEST_WAIT_S) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for (ready, fd) in ready.iter_mut().zip(&fds[1..]) {
            *ready = !fd.revents().is_empty();
        }
        if !fds[0].revents().is_empty() {
            let mut count = [0; 8];
            // Only this thread reads it, so what was rung is there.
            let _ = rustix::io::read(&self.bell.event, &mut count);
        }
        // A swap, so that all that was put into queues before a ring is seen after the wait.
        self.bell.rung.swap(false, Ordering::AcqRel);
        Ok(())
    }
}

/// A wait may end early, so that an absurd time needs no special care.
const LONGEST_WAIT_S: u64 = 3_600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_used_before_the_wait_ends_it_and_is_heard_once() {
        let poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        waker.wake();
        poller.wait([], &mut [], None).unwrap();
        waker.wake();
        poller.wait([], &mut [], None).unwrap();
        poller.wait([], &mut [], Some(Span::from_nanos(1))).unwrap();
    }

    #[test]
    fn a_waker_on_another_thread_ends_an_endless_wait() {
        let poller = Poller::new().unwrap();
        let waker = poller.waker();
        let other = std::thread::spawn(move || waker.wake());
        poller.wait([], &mut [], None).unwrap();
        other.join().unwrap();
    }
}
