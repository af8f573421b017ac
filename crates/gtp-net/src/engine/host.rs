//! The handles through which the rest of the process speaks to the engine.
//!
//! A [`Host`] starts the engine's thread and names everything that is opened on it; the handles
//! send commands and receive events. None of them waits for the engine, and when the last of them
//! is gone the engine says farewell to its peers and ends.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use gtp_alloc::Rate;
use gtp_proto::FlowId;
use gtp_store::{SourceError, Value};
use gtp_sys::Clock;
use gtp_sys::udp::UdpSocket;
use gtp_sys::wake::Poller;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::api::{
    Drops, HostConfig, SessionOpen, SocketId, SourceEvent, SourceOpen, SourceProgress,
    TransferEvent, TransferOpen, TransferProgress,
};
use super::calls::{Calls, Counters};
use super::command::{NewSource, NewTransfer, Notice, Notices, TransferId};
use super::keeper::{Keeper, Sharing};
use super::reader::{self, ReadJob, ReadJobs};
use super::run;

/// One host: its sockets, its capacity in both directions, and the engine that serves them.
/// Clones are the same host.
#[derive(Clone)]
pub struct Host(Arc<Shared>);

struct Shared {
    notices: Notices,
    names: AtomicU32,
    sessions: Mutex<VecDeque<u32>>,
    capacity_in: Mutex<Rate>,
    clock: Clock,
    drops: Arc<Drops>,
    calls: Arc<Counters>,
    /// Looks for the machine's daemon until it is dropped.
    _keeper: Option<Keeper>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.notices.send(Notice::Shutdown);
    }
}

impl Host {
    /// Starts the engine's thread.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start(config: HostConfig) -> io::Result<Host> {
        Host::launch(config, None)
    }

    /// The same, sharing the machine's capacity with other processes through its daemon: while
    /// there is one, its capacity counts and not this host's own. Without one the host allocates
    /// for itself, and says so in its log.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn start_shared(config: HostConfig, sharing: Sharing) -> io::Result<Host> {
        Host::launch(config, Some(sharing))
    }

    fn launch(config: HostConfig, sharing: Option<Sharing>) -> io::Result<Host> {
        let poller = Poller::new()?;
        let (queue, inbox) = mpsc::channel();
        let notices = Notices::new(queue, poller.waker());
        let (drops, calls) = (Arc::new(Drops::default()), Arc::new(Counters::default()));
        let counted = (drops.clone(), calls.clone());
        run::spawn(config, poller, inbox, notices.clone(), counted)?;
        let keeper = sharing.map(|sharing| Keeper::start(sharing, notices.clone())).transpose()?;
        Ok(Host(Arc::new(Shared {
            notices,
            names: AtomicU32::new(1),
            sessions: Mutex::new(VecDeque::new()),
            capacity_in: Mutex::new(config.capacity_in),
            clock: Clock::start(),
            drops,
            calls,
            _keeper: keeper,
        })))
    }

    /// Opens a UDP socket and returns its name and the address that it got.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn bind_udp(&self, addr: SocketAddr) -> io::Result<(SocketId, SocketAddr)> {
        let socket = UdpSocket::bind(addr)?;
        if let Some(advice) = socket.buffer_advice() {
            tracing::warn!("{advice}");
        }
        let local = socket.local_addr();
        let id = SocketId(self.name());
        self.0.notices.send(Notice::AddSocket(id, socket));
        Ok((id, local))
    }

    /// A random session id, none of those given out lately.
    pub fn new_session_id(&self) -> u32 {
        let mut given = self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let id = gtp_sys::entropy::u64() as u32;
            if given.contains(&id) {
                continue;
            }
            if given.len() == SESSION_IDS_REMEMBERED {
                given.pop_front();
            }
            given.push_back(id);
            return id;
        }
    }

    /// Opens a session that sends. It ends when the handle is dropped.
    pub fn open_source(&self, open: SourceOpen) -> SourceHandle {
        let flow = self.name();
        let (events_in, events) = unbounded_channel();
        let progress = Arc::new(Mutex::new(SourceProgress::new(&open.session.label)));
        let manifest = open.source.manifest().clone();
        let lender = open.source.lender();
        let jobs = reader::spawn(flow, open.source, self.0.notices.clone());
        self.0.notices.send(Notice::OpenSource(Box::new(NewSource {
            flow,
            session: open.session,
            jobs: jobs.clone(),
            lender,
            manifest,
            events: events_in,
            progress: progress.clone(),
        })));
        SourceHandle { flow, host: self.clone(), events, progress, jobs }
    }

    /// Opens a transfer, yet without sessions. It is suspended when the handle is dropped.
    pub fn open_transfer(&self, open: TransferOpen) -> TransferHandle {
        let transfer = self.name();
        let (events_in, events) = unbounded_channel();
        let progress = Arc::new(Mutex::new(TransferProgress::default()));
        self.0.notices.send(Notice::OpenTransfer(Box::new(NewTransfer {
            transfer,
            open,
            events: events_in,
            progress: progress.clone(),
        })));
        TransferHandle { transfer, host: self.clone(), events, progress }
    }

    /// Changes the host's capacities; `None` leaves one as it is.
    pub fn set_capacity(&self, out: Option<Rate>, in_: Option<Rate>) {
        if let Some(rate) = in_ {
            *self.0.capacity_in.lock().unwrap_or_else(PoisonError::into_inner) = rate;
        }
        self.0.notices.send(Notice::SetCapacity { out, in_ });
    }

    /// What this host can receive by its own account; unlimited if nobody knows it.
    pub fn capacity_in(&self) -> Rate {
        *self.0.capacity_in.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's clock.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Counters of the datagrams that came to nothing.
    pub fn drops(&self) -> &Drops {
        &self.0.drops
    }

    /// What the engine's thread asked of the kernel so far.
    pub fn calls(&self) -> Calls {
        self.0.calls.read()
    }

    /// The engine's letter box.
    pub(super) fn notices(&self) -> &Notices {
        &self.0.notices
    }

    /// A number that nothing else on this host has.
    pub(super) fn name(&self) -> u32 {
        self.0.names.fetch_add(1, Ordering::Relaxed)
    }
}

/// A session that sends. Dropping it closes the session.
pub struct SourceHandle {
    flow: FlowId,
    host: Host,
    events: UnboundedReceiver<SourceEvent>,
    progress: Arc<Mutex<SourceProgress>>,
    jobs: ReadJobs,
}

impl SourceHandle {
    /// The next event; `None` after the last one. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<SourceEvent> {
        self.events.recv().await
    }

    /// How the session is doing, at most 50 ms old.
    pub fn progress(&self) -> SourceProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the session. The object stays open for [`SourceHandle::roots`].
    pub fn close(&self) {
        self.host.0.notices.send(Notice::CloseSource(self.flow));
    }

    /// The BLAKE3 hashes of the files at these places in the manifest, computed on the session's
    /// reader; 32 zeros stand for a directory. Works after the session's end too.
    ///
    /// # Errors
    /// What reading says.
    pub fn roots(
        &self,
        files: Range<u32>,
    ) -> impl Future<Output = Result<Vec<Value>, SourceError>> + Send + 'static {
        let (answer_in, answer) = oneshot::channel();
        self.jobs.send(ReadJob::Roots(files, answer_in));
        async move { answer.await.unwrap_or_else(|_| Err(reader::gone())) }
    }
}

impl Drop for SourceHandle {
    fn drop(&mut self) {
        self.close();
    }
}

/// An object that is being received. Dropping it suspends the transfer.
pub struct TransferHandle {
    transfer: TransferId,
    host: Host,
    events: UnboundedReceiver<TransferEvent>,
    progress: Arc<Mutex<TransferProgress>>,
}

impl TransferHandle {
    /// Adds a session that brings parts of the object, and names it.
    pub fn add_session(&self, open: SessionOpen) -> FlowId {
        let flow = self.host.name();
        self.send(Notice::AddSession(self.transfer, flow, Box::new(open)));
        flow
    }

    /// Ends a session; what it has not brought is asked of the others.
    pub fn remove_session(&self, flow: FlowId) {
        self.send(Notice::RemoveSession(self.transfer, flow));
    }

    /// The next event; `None` after the last one. Safe to cancel.
    pub async fn next_event(&mut self) -> Option<TransferEvent> {
        self.events.recv().await
    }

    /// How the transfer is doing, at most 50 ms old.
    pub fn progress(&self) -> TransferProgress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finishes files, each against the root that it must have, or unchecked with `None`. After
    /// [`TransferEvent::AllBlocks`] every file with content that has not had its
    /// [`TransferEvent::FileDone`] must be named once, in one call or in several.
    pub fn finish_files(&self, expected: Vec<(u32, Option<Value>)>) {
        self.send(Notice::FinishFiles(self.transfer, expected));
    }

    /// Ends the transfer; what is complete is kept for a resume.
    pub fn suspend(&self) {
        self.send(Notice::Suspend(self.transfer));
    }

    fn send(&self, notice: Notice) {
        self.host.0.notices.send(notice);
    }
}

impl Drop for TransferHandle {
    fn drop(&mut self) {
        self.suspend();
    }
}

/// Session ids that are not given out again at once: more than sessions that a host ever has open.
const SESSION_IDS_REMEMBERED: usize = 4_096;

/// What a host may use if nobody says: nine tenths of its network card's speed (thesis, X.3.D),
/// or no limit where the system does not know that.
pub fn default_capacity() -> Rate {
    const SHARE: f64 = 0.9;
    gtp_sys::nic::default_route_speed().map_or(Rate::UNLIMITED, |speed| speed.scale(SHARE))
}
