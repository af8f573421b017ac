//! What the library knows of each descriptor that it gave out.
//!
//! The kernel keeps the bytes and who waits for them; here is only what the kernel cannot know: the
//! peer, the terms, and why a connection broke.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use gtp_stream::Rate;

use crate::fault::Errno;

/// One socket. Descriptors that were duplicated share it.
#[derive(Debug)]
pub struct Socket {
    pub state: Mutex<State>,
    pub terms: Mutex<Terms>,
    /// The error that reading, or `SO_ERROR`, shows; zero for none.
    broken: AtomicI32,
}

/// Where a socket is in its life.
#[derive(Debug)]
pub enum State {
    /// Made. The other end of its pair, and where it shall listen.
    Fresh { far: OwnedFd, bound: Option<SocketAddr> },
    /// It waits for a connection, or for callers; or the connection failed.
    Busy,
    /// It listens here.
    Listening { at: SocketAddr },
    /// It has a peer.
    Connected { peer: SocketAddr },
}

/// What was set for what the socket will become.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub max_rate: Rate,
    pub weight: f64,
    pub window: Option<u32>,
}

impl Socket {
    pub fn new(state: State) -> Socket {
        let terms = Terms { max_rate: Rate::UNLIMITED, weight: 1.0, window: None };
        Socket { state: Mutex::new(state), terms: Mutex::new(terms), broken: AtomicI32::new(0) }
    }

    /// The connection broke; the first reason stays.
    pub fn fail(&self, errno: i32) {
        let _ = self.broken.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Why it broke, if it did.
    pub fn broken(&self) -> Option<Errno> {
        Some(self.broken.load(Ordering::Acquire)).filter(|&errno| errno != 0).map(Errno)
    }

    /// The same, once.
    pub fn take_broken(&self) -> i32 {
        self.broken.swap(0, Ordering::AcqRel)
    }
}
