//! What a running daemon is told and asked from outside its loop: to end, to go by other settings,
//! and how it is doing.
//!
//! It comes from another thread, which waits for signals. A byte on a socket pair ends the loop's
//! wait, and a queue holds the rest. An answer shows that the loop goes on. What a signal means is
//! unknown here.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::server::DaemonConfig;

/// An order.
#[derive(Clone, Debug)]
pub enum Order {
    /// To end, and to tell all processes.
    End,
    /// To go by these settings from now on, as far as a daemon that runs can: capacities, reserve,
    /// interface, what users have, and the idle time. The others stay as they were at its start.
    Settings(Box<DaemonConfig>),
}

/// Who has come to a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Processes that are attached.
    pub processes: u32,
    /// Their sessions.
    pub sessions: u32,
}

/// What is in the queue.
pub(crate) enum Said {
    Order(Order),
    Question(Box<dyn FnOnce(Census) + Send>),
}

/// The end that gives orders. Clones give them to the same daemon.
#[derive(Clone, Debug)]
pub struct Commander {
    bell: Arc<UnixStream>,
    queue: Sender<Said>,
}

/// The daemon's end.
#[derive(Debug)]
pub struct Orders {
    bell: UnixStream,
    queue: Receiver<Said>,
}

/// Both ends.
///
/// # Errors
/// When the system gives no descriptor.
pub fn orders() -> io::Result<(Commander, Orders)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let (sender, receiver) = channel();
    Ok((Commander { bell: Arc::new(near), queue: sender }, Orders { bell: far, queue: receiver }))
}

impl Commander {
    /// Gives an order; a daemon that has ended takes none.
    pub fn give(&mut self, order: Order) {
        self.say(Said::Order(order));
    }

    /// Asks who is there. The answer comes from the daemon's loop, in its next turn; a daemon that
    /// has ended drops it.
    pub fn ask(&mut self, answer: impl FnOnce(Census) + Send + 'static) {
        self.say(Said::Question(Box::new(answer)));
    }

    fn say(&mut self, said: Said) {
        if self.queue.send(said).is_ok() {
            // If the socket is full the bell has been rung.
            let _ = (&*self.bell).write(b"!");
        }
    }
}

impl Orders {
    /// The next of what was said, if there is something.
    pub(crate) fn next(&mut self) -> Option<Said> {
        let mut bells = [0; 64];
        // What was rung for is in the queue.
        let _ = self.bell.read(&mut bells);
        self.queue.try_recv().ok()
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
