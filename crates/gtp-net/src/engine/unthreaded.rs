//! An engine in its caller's hands: no thread, no sockets, no clock.
//!
//! For counting what a packet costs: everything that an engine's thread does for one but the calls
//! to the kernel happens here, in the same order and by the same code, at the times that the caller
//! names. It is one engine of a host, which sends what is lent to it and writes where it stands, so
//! that a run is a function of what it is given.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use gtp_alloc::Time;
use gtp_proto::{Codepoint, FlowId};
use gtp_sys::udp::{Came, Origin};
use gtp_sys::wake::Poller;
use tokio::sync::mpsc::unbounded_channel;

use super::api::{
    Drops, HostConfig, SessionOpen, SocketId, SourceOpen, SourceProgress, TransferOpen,
};
use super::batch::Batch;
use super::bits;
use super::command::{NewSource, NewTransfer, Notice, Notices};
use super::driver::Driver;
use super::reader::ReadJobs;
use super::run::{Read, take_in};
use super::timing::Timing;
use super::writer;

/// One engine without a thread. What happens to its sessions nobody hears.
pub struct Unthreaded {
    driver: Driver,
    timing: Timing,
    inbox: Receiver<Notice>,
    outgoing: Batch,
    names: FlowId,
    _poller: Poller,
}

/// The socket that all its sessions have.
const SOCKET: SocketId = SocketId(1);

impl Unthreaded {
    /// An engine that begins at `now`.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new(now: Time, config: HostConfig) -> io::Result<Unthreaded> {
        let (queue, inbox) = channel();
        let poller = Poller::new()?;
        let notices = Notices::new(queue, poller.waker());
        Ok(Unthreaded {
            driver: Driver::new(now, config, notices, Arc::new(Drops::default())),
            timing: Timing::new(now),
            inbox,
            outgoing: Batch::default(),
            names: 0,
            _poller: poller,
        })
    }

    /// Opens a session that sends what its source lends; blocks that must be loaded never are.
    pub fn open_source(&mut self, now: Time, open: SourceOpen) {
        let progress = SourceProgress::new(&open.session.label);
        let new = NewSource {
            flow: self.name(),
            session: SessionOpen { socket: SOCKET, ..open.session },
            jobs: ReadJobs::unread(),
            lender: open.source.lender(),
            manifest: open.source.manifest().clone(),
            events: unbounded_channel().0,
            progress: Arc::new(Mutex::new(progress)),
        };
        self.driver.handle_notice(now, Notice::OpenSource(Box::new(new)));
    }

    /// Opens a transfer of one session.
    pub fn open_transfer(&mut self, now: Time, open: TransferOpen, session: SessionOpen) {
        let (transfer, flow) = (self.name(), self.name());
        let new = NewTransfer {
            transfer,
            open,
            writer: Box::new(writer::here),
            events: unbounded_channel().0,
            progress: Arc::default(),
        };
        self.driver.handle_notice(now, Notice::OpenTransfer(Box::new(new)));
        let session = Box::new(SessionOpen { socket: SOCKET, ..session });
        self.driver.handle_notice(now, Notice::AddSession(transfer, flow, session));
    }

    /// At `now` it reads datagrams of `segment` bytes, the last of which may be shorter, that
    /// `came` together with these ECN bits.
    pub fn receive(
        &mut self,
        now: Time,
        (from, came, ecn): (SocketAddr, Time, Codepoint),
        datagrams: &mut [u8],
        segment: usize,
    ) {
        let read = Read { socket: SOCKET, asked: now, now, emptied: true };
        let origin = Origin { from, to: None };
        let came = Came { origin, waited: now.since(came), ecn: bits::said(ecn) };
        let piece = (came, datagrams.chunks_mut(segment.max(1)));
        take_in(&mut self.driver, &mut self.timing, &read, std::iter::once(piece));
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Ok(notice) = self.inbox.try_recv() {
            self.driver.handle_notice(now, notice);
        }
        self.driver.handle_timeout(now);
    }

    /// Makes the next batch that may leave at `now`. `false`: there is none.
    pub fn poll_batch(&mut self, now: Time) -> bool {
        let due = self.driver.poll_batch(now, &mut self.outgoing).is_some();
        if !due {
            self.driver.flush_events(now);
        }
        due
    }

    /// The runs of that batch: datagrams side by side, the length of each but the last, and the ECN
    /// bits of all.
    pub fn runs(&self) -> impl Iterator<Item = (&[u8], usize, Codepoint)> {
        self.outgoing.runs().iter().map(|run| (self.outgoing.bytes(run), run.segment, run.ecn))
    }

    /// When something is due next, if nothing is received before.
    pub fn poll_timeout(&self) -> Time {
        self.driver.poll_timeout()
    }

    fn name(&mut self) -> FlowId {
        self.names += 1;
        self.names
    }
}
