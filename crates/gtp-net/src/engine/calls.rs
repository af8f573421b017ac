//! How often the engine's thread enters the kernel.
//!
//! A data path is fast when it does so for batches and not for packets. That is a property that
//! can be counted, whatever the machine is doing otherwise, so it is.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// System calls of engines' threads, and messages to them, since their host began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// To send: one for a run of packets with segmentation offload, else one a packet.
    pub send: u64,
    /// To receive: each takes what is there, mostly at most 380 KiB.
    pub receive: u64,
    /// To wait: for datagrams, for the time to send, for other threads. One that a bell ends has
    /// the bell read as well, which is not counted.
    pub wait: u64,
    /// To see how full a receive buffer is.
    pub look: u64,
    /// Messages taken from other threads: blocks loaded, blocks written, commands. A socket
    /// that is added is none.
    pub message: u64,
}

impl Calls {
    /// All that are counted: no more than there are, as the reading of bells is not.
    pub fn system(&self) -> u64 {
        self.send + self.receive + self.wait + self.look
    }
}

impl Add for Calls {
    type Output = Calls;

    fn add(self, other: Calls) -> Calls {
        Calls {
            send: self.send + other.send,
            receive: self.receive + other.receive,
            wait: self.wait + other.wait,
            look: self.look + other.look,
            message: self.message + other.message,
        }
    }
}

impl Sub for Calls {
    type Output = Calls;

    fn sub(self, before: Calls) -> Calls {
        Calls {
            send: self.send - before.send,
            receive: self.receive - before.receive,
            wait: self.wait - before.wait,
            look: self.look - before.look,
            message: self.message - before.message,
        }
    }
}

/// Written by the engine's thread alone, read by anyone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub send: Counter,
    pub receive: Counter,
    pub wait: Counter,
    pub look: Counter,
    pub message: Counter,
}

/// One of them.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// One more. With one writer it needs no locked instruction.
    pub fn count(&self) {
        self.0.store(self.read() + 1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub fn read(&self) -> Calls {
        Calls {
            send: self.send.read(),
            receive: self.receive.read(),
            wait: self.wait.read(),
            look: self.look.read(),
            message: self.message.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_between_two_readings_is_their_difference() {
        let counters = Counters::default();
        counters.send.count();
        let before = counters.read();
        counters.send.count();
        counters.look.count();
        counters.message.count();
        let between = counters.read() - before;
        assert_eq!(between, Calls { send: 1, look: 1, message: 1, ..Calls::default() });
        assert_eq!(between.system(), 2, "a message is none");
    }
}
