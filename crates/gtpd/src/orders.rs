//! Orders to a running daemon from outside its loop: to end, or to use other capacities.
//!
//! Orders come from another thread, which waits for signals. A byte on a socket pair ends the
//! loop's wait, and a queue holds the order itself. What a signal means is unknown here.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};

use gtp_alloc::Rate;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To end, and to tell all processes.
    End,
    /// To use these capacities from now on.
    Capacities {
        /// For what it sends.
        out: Rate,
        /// For what it receives.
        in_: Rate,
    },
}

/// The end that gives orders.
#[derive(Debug)]
pub struct Commander {
    bell: UnixStream,
    queue: Sender<Order>,
}

/// The daemon's end.
#[derive(Debug)]
pub struct Orders {
    bell: UnixStream,
    queue: Receiver<Order>,
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
    Ok((Commander { bell: near, queue: sender }, Orders { bell: far, queue: receiver }))
}

impl Commander {
    /// Gives an order; a daemon that has ended takes none.
    pub fn give(&mut self, order: Order) {
        if self.queue.send(order).is_ok() {
            // If the socket is full the bell has been rung.
            let _ = self.bell.write(b"!");
        }
    }
}

impl Orders {
    /// The next order, if there is one.
    pub(crate) fn next(&mut self) -> Option<Order> {
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
