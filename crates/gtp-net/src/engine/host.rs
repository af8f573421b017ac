//! The handles through which the rest of the process speaks to the engine.
//!
//! A [`Host`] starts the engines' threads and names everything that is opened on them; the handles
//! send commands and receive events. None of them waits for an engine, and when the last of them
//! is gone the engines say farewell to their peers and end.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use gtp_alloc::Rate;
use gtp_proto::wire::Header;
use gtp_proto::{Agent, FlowId};
use gtp_store::{SourceError, Value};
use gtp_sys::Clock;
use gtp_sys::steer::{self, ByWord};
use gtp_sys::udp::{BufferAdvice, UdpSocket};
use gtp_sys::wake::Poller;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::api::{
    Allowances, Brings, Drops, HostConfig, SessionOpen, SocketId, SourceEvent, SourceOpen,
    SourceProgress, TransferEvent, TransferOpen, TransferProgress,
};
use super::calls::{Calls, Counters};
use super::carrier::Carrier;
use super::command::{CarrierNotice, NewSource, NewTransfer, Notice, Notices, TransferId};
use super::council::{Council, Decider};
use super::crew::Crew;
use super::driver::{self, Deciders, Routing, SilentRouters};
use super::keeper::{Keeper, Sharing, StartError};
use super::mates::{Place, session_of};
use super::reader::{Loaded, ReadJob, ReadJobs, Reader};
use super::run::{self, Outfit};
use super::standing::{Shown, Stands};
use super::transfer::RelayNotice;
use super::turns::Party;
use super::writer;
use crate::messages::Arrivals;
use crate::router::RouterOpen;

/// One host: its sockets, its capacity in both directions, and the engines that serve them. Clones
/// are the same host, at the same one of its engines: what is opened through this value is that
/// engine's, and so are the sockets, sessions and transfers that belong together.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    engine: usize,
    /// Where it was chosen for something that is to be opened: counted until the last clone is
    /// gone.
    _chosen: Option<Arc<Chosen>>,
}

struct Shared {
    engines: Vec<Engine>,
    /// Which engine is asked first for room.
    turn: AtomicUsize,
    /// The kernel gives all that comes to a common port to the first engine.
    unsteered: AtomicBool,
    names: AtomicU32,
    sessions: Mutex<VecDeque<u32>>,
    /// Out and in.
    capacities: Mutex<[Rate; 2]>,
    clock: Clock,
    drops: Arc<Drops>,
    /// The threads for files, once they are needed.
    crew: Mutex<Option<Arc<Crew>>>,
    /// They look for the machine's daemon until they are dropped.
    _keepers: Vec<Keeper>,
}

/// One engine's thread, from outside.
struct Engine {
    notices: Notices,
    shown: Arc<Shown>,
    calls: Arc<Counters>,
    /// How many have chosen it.
    chosen: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// That an engine was chosen.
struct Chosen(Arc<AtomicUsize>);

impl Chosen {
    fn new(count: &Arc<AtomicUsize>) -> Chosen {
        count.fetch_add(1, Ordering::Relaxed);
        Chosen(count.clone())
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An engine's letter box before there is an engine, with the ends that it gets itself.
struct Post {
    poller: Poller,
    inbox: mpsc::Receiver<Notice>,
    notices: Notices,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.notices.send(Notice::Shutdown);
    }
}

impl Host {
    /// Starts the engines' threads.
    ///
    /// # Errors
    /// When the system gives no thread or no descriptor.
    pub fn start(config: HostConfig) -> io::Result<Host> {
        Host::launch(config, |_| Ok(Vec::new()))
    }

    /// Starts a host that shares the machine's capacity with other processes through its daemon:
    /// while there is one, its capacity counts and not this host's own. Where there is none the
    /// host allocates for itself, unless the daemon was named: then it does not start.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_shared(config: HostConfig, sharing: Sharing) -> Result<Host, StartError> {
        Host::launch(config, |boxes| Keeper::start(sharing, boxes))
    }

    fn launch<E: From<io::Error>>(
        config: HostConfig,
        keep: impl FnOnce(Vec<Notices>) -> Result<Vec<Keeper>, E>,
    ) -> Result<Host, E> {
        let clock = Clock::start();
        let posts = (0..config.engines.max(1)).map(|_| Post::new());
        let posts = posts.collect::<io::Result<Vec<Post>>>()?;
        let deciders = deciders(driver::agents(clock.now(), config), &posts);
        let places = Place::all(posts.iter().map(|post| post.notices.clone()), config.memory);
        let drops = Arc::new(Drops::default());
        let mut engines = Vec::new();
        for ((post, place), deciders) in posts.into_iter().zip(places).zip(deciders) {
            let Post { poller, inbox, notices } = post;
            let (own, calls) = (notices.clone(), Arc::new(Counters::default()));
            let (drops, counted) = (drops.clone(), calls.clone());
            let shown = Arc::new(Shown::default());
            let seen = shown.clone();
            let outfit =
                Outfit { config, poller, inbox, notices, place, deciders, drops, calls, shown };
            engines.push(Engine::new(own, counted, seen, run::spawn(outfit)?));
        }
        let boxes = engines.iter().map(|engine| engine.notices.clone()).collect();
        let keepers = keep(boxes)?;
        let shared = Arc::new(Shared {
            engines,
            turn: AtomicUsize::new(0),
            unsteered: AtomicBool::new(false),
            names: AtomicU32::new(1),
            sessions: Mutex::new(VecDeque::new()),
            capacities: Mutex::new([config.capacity_out, config.capacity_in]),
            clock,
            drops,
            crew: Mutex::new(None),
            _keepers: keepers,
        });
        Ok(Host { shared, engine: 0, _chosen: None })
    }

    /// What this process is to the machine's daemon; of several engines, the first one's.
    pub fn stands(&self) -> Stands {
        self.shared.engines.first().map_or(Stands::Alone, |engine| engine.shown.stands())
    }

    /// Whether whoever shares out the capacity knows the groups of clients; of several engines, the
    /// first one's. A daemon of an earlier release does not.
    pub fn counts_groups(&self) -> bool {
        self.shared.engines.first().is_none_or(|engine| engine.shown.counts_groups())
    }

    /// The same host at that of its engines which fewest have chosen and still hold.
    #[must_use]
    pub fn least_busy(&self) -> Host {
        let engines = &self.shared.engines;
        let count = match self.shared.unsteered.load(Ordering::Relaxed) {
            true => 1,
            false => engines.len(),
        };
        let first = self.shared.turn.fetch_add(1, Ordering::Relaxed) % count;
        let running = |at: &usize| !engines[*at].thread.is_finished();
        let chosen = |at: &usize| engines[*at].chosen.load(Ordering::Relaxed);
        let all = (first..count).chain(0..first).filter(running);
        let engine = all.min_by_key(chosen).unwrap_or(0);
        let chosen = Some(Arc::new(Chosen::new(&engines[engine].chosen)));
        Host { shared: self.shared.clone(), engine, _chosen: chosen }
    }

    /// The same host at each of its engines in turn.
    pub fn at_each_engine(&self) -> impl Iterator<Item = Host> {
        let shared = self.shared.clone();
        (0..shared.engines.len()).map(move |engine| Host {
            shared: shared.clone(),
            engine,
            _chosen: None,
        })
    }

    /// Opens a UDP socket of this engine and returns its name and the address that it got.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub fn bind_udp(&self, addr: SocketAddr) -> io::Result<(SocketId, SocketAddr)> {
        let socket = UdpSocket::bind(addr)?;
        let (id, local) = (SocketId(self.name()), socket.local_addr());
        advise(&socket);
        self.notices().send(Notice::AddSocket(id, socket));
        Ok((id, local))
    }

    /// The same for one port of all engines, of which each gets the datagrams for its sessions; the
    /// name holds at every engine.
    ///
    /// # Errors
    /// As there.
    pub fn bind_udp_everywhere(&self, addr: SocketAddr) -> io::Result<(SocketId, SocketAddr)> {
        let engines = &self.shared.engines;
        let at = Header::SESSION_AT as u32;
        let sockets = steer::bind(addr, ByWord { at, sockets: engines.len() as u32 })?;
        if sockets.len() < engines.len() {
            tracing::warn!("this kernel gives all datagrams of a port to one engine: one is used");
            self.shared.unsteered.store(true, Ordering::Relaxed);
        }
        let (id, mut local) = (SocketId(self.name()), addr);
        sockets.first().into_iter().for_each(advise);
        for (engine, socket) in engines.iter().zip(sockets) {
            local = socket.local_addr();
            engine.notices.send(Notice::AddSocket(id, socket));
        }
        Ok((id, local))
    }

    /// Takes over a bound socket for all engines: the first one gets all datagrams, and others are
    /// not used.
    ///
    /// # Errors
    /// When it is not a UDP socket, or the kernel lacks what is needed.
    pub fn take_udp(&self, socket: std::net::UdpSocket) -> io::Result<(SocketId, SocketAddr)> {
        socket.set_nonblocking(true)?;
        let socket = UdpSocket::from_std(socket)?;
        let (id, local) = (SocketId(self.name()), socket.local_addr());
        self.shared.unsteered.store(true, Ordering::Relaxed);
        advise(&socket);
        if let Some(engine) = self.shared.engines.first() {
            engine.notices.send(Notice::AddSocket(id, socket));
        }
        Ok((id, local))
    }

    /// A random session id of this engine, none of those given out lately.
    pub fn new_session_id(&self) -> u32 {
        let engines = self.shared.engines.len();
        let mut given = self.shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let id = session_of(gtp_sys::entropy::u64() as u32, self.engine, engines);
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

    /// Opens a session that sends. It ends when the handle is dropped. Should the system give no
    /// threads to read with, the handle hears of a fault.
    pub fn open_source(&self, open: SourceOpen) -> SourceHandle {
        self.open_source_read_by(open, self.crew())
    }

    /// The threads for files, which this host keeps from its first session on.
    fn crew(&self) -> io::Result<Arc<Crew>> {
        let mut own = self.shared.crew.lock().unwrap_or_else(PoisonError::into_inner);
        let crew = own.take().map_or_else(Crew::of_process, Ok)?;
        Ok(Arc::clone(own.insert(crew)))
    }

    fn open_source_read_by(&self, open: SourceOpen, crew: io::Result<Arc<Crew>>) -> SourceHandle {
        let flow = self.name();
        let (events_in, events) = unbounded_channel();
        let progress = Arc::new(Mutex::new(SourceProgress::new(&open.session.label)));
        let manifest = open.source.manifest().clone();
        let lender = open.source.lender();
        let party = Party::of(open.session.principal, open.session.peer.ip());
        let (jobs, error) = match crew {
            Ok(crew) => {
                let reader = Reader::new(flow, open.source, party, self.notices().clone());
                (reader.at_desk(&crew), None)
            }
            Err(error) => (ReadJobs::unread(), Some(error)),
        };
        self.notices().send(Notice::OpenSource(Box::new(NewSource {
            flow,
            session: open.session,
            jobs: jobs.clone(),
            lender,
            manifest,
            events: events_in,
            progress: progress.clone(),
        })));
        if let Some(source) = error {
            // The engine knows the session by now.
            let error = SourceError::Read { path: "the object".into(), source };
            self.notices().send(Notice::Loaded(flow, Loaded::Failed { error }));
        }
        SourceHandle { flow, host: self.clone(), events, progress, jobs }
    }

    /// Opens a transfer, yet without sessions. It is suspended when the handle is dropped.
    pub fn open_transfer(&self, open: TransferOpen) -> TransferHandle {
        let transfer = self.name();
        let (events_in, events) = unbounded_channel();
        let progress = Arc::new(Mutex::new(TransferProgress::default()));
        self.notices().send(Notice::OpenTransfer(Box::new(NewTransfer {
            transfer,
            open,
            writer: writer::at_desk(self.crew()),
            events: events_in,
            progress: progress.clone(),
        })));
        TransferHandle { transfer, host: self.clone(), events, progress }
    }

    /// Changes the host's capacities; `None` leaves one as it is.
    pub fn set_capacity(&self, out: Option<Rate>, in_: Option<Rate>) {
        // Held to the end, so that all engines hear of changes in the same order.
        let mut known = self.shared.capacities.lock().unwrap_or_else(PoisonError::into_inner);
        *known = [out.unwrap_or(known[0]), in_.unwrap_or(known[1])];
        for engine in &self.shared.engines {
            engine.notices.send(Notice::SetCapacity { out, in_ });
        }
    }

    /// Changes what clients have here together, from the next interval on and for sessions that run
    /// as well. A client that is not named keeps what its sessions were opened with.
    pub fn allow(&self, allowances: Allowances) {
        let allowances = Arc::new(allowances);
        for engine in &self.shared.engines {
            engine.notices.send(Notice::Allow(Arc::clone(&allowances)));
        }
    }

    /// Asks these routers for sessions that begin from now on.
    ///
    /// # Errors
    /// When no socket is to be had.
    pub fn ask_routers(&self, opens: &[RouterOpen]) -> io::Result<()> {
        let silent = SilentRouters::none(opens.len());
        for engine in &self.shared.engines {
            let routing = Routing::new(self.shared.clock.now(), opens.to_vec(), silent.clone());
            let sockets = routing.addresses().map(connected).collect::<io::Result<Vec<_>>>()?;
            engine.notices.send(Notice::AskRouters(Box::new(routing), sockets));
        }
        Ok(())
    }

    /// Waits until each engine's thread has gone through its loop once more. Returns whether all of
    /// them have; an engine that has ended cannot. Safe to cancel.
    pub async fn turn_over(&self) -> bool {
        let ask = |engine: &Engine| {
            let (answer_in, answer) = oneshot::channel();
            engine.notices.send(Notice::Beat(answer_in));
            answer
        };
        let answers: Vec<oneshot::Receiver<()>> = self.shared.engines.iter().map(ask).collect();
        for answer in answers {
            if answer.await.is_err() {
                return false;
            }
        }
        true
    }

    /// What this host can receive by its own account; unlimited if nobody knows it.
    pub fn capacity_in(&self) -> Rate {
        self.capacities()[1]
    }

    /// What this host can send and receive by its own account; unlimited where nobody knows it.
    pub fn capacities(&self) -> [Rate; 2] {
        *self.shared.capacities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engines' clock.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Counters of the datagrams that came to nothing.
    pub fn drops(&self) -> &Drops {
        &self.shared.drops
    }

    /// What the engines' threads asked of the kernel so far.
    pub fn calls(&self) -> Calls {
        let calls = self.shared.engines.iter().map(|engine| engine.calls.read());
        calls.fold(Calls::default(), |sum, calls| sum + calls)
    }

    /// The same of this engine alone.
    pub fn engine_calls(&self) -> Calls {
        self.engine().calls.read()
    }

    fn engine(&self) -> &Engine {
        &self.shared.engines[self.engine]
    }

    /// The engine's letter box.
    pub(super) fn notices(&self) -> &Notices {
        &self.engine().notices
    }

    /// A number that nothing else on this host has.
    pub(super) fn name(&self) -> u32 {
        self.shared.names.fetch_add(1, Ordering::Relaxed)
    }
}

pub(super) fn carrier(host: &Host, session: (FlowId, SocketAddr)) -> Carrier {
    Carrier::open(SocketId(host.name()), session, host.notices().clone(), host.clock())
}

/// Asks an engine what has come of a session's datagrams.
pub(super) fn arrivals(
    host: &Host,
    flow: FlowId,
) -> impl Future<Output = Option<Arrivals>> + Send + 'static {
    let (answer_in, answer) = oneshot::channel();
    host.notices().send(Notice::Arrivals(flow, answer_in));
    async move { answer.await.ok() }
}

/// Says how a session or a transfer is doing, and keeps neither of them.
#[derive(Clone)]
pub struct Watch<P>(pub(super) Arc<Mutex<P>>);

impl<P: Clone> Watch<P> {
    /// How it is doing, at most 50 ms old; after its end, how it had done.
    pub fn progress(&self) -> P {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// Returns a view of how the session is doing, which stays valid after the handle is gone.
    pub fn watch(&self) -> Watch<SourceProgress> {
        Watch(Arc::clone(&self.progress))
    }

    /// Ends the session, and returns how it has done to its end. `within` this time: an engine that
    /// is behind may leave the last 50 ms out.
    pub async fn ended(&self, within: Duration) -> SourceProgress {
        self.close();
        // The engine answers after it has ended the session.
        let _ = tokio::time::timeout(within, self.arrivals()).await;
        self.progress()
    }

    /// What has come of the session's datagrams, once the engine has read all that were there when
    /// this was called. `None`: the engine has ended.
    pub fn arrivals(&self) -> impl Future<Output = Option<Arrivals>> + Send + 'static {
        arrivals(&self.host, self.flow)
    }

    /// Gives the session another way besides UDP: the control connection, which comes from `peer`.
    pub fn carrier(&self, peer: SocketAddr) -> Carrier {
        carrier(&self.host, (self.flow, peer))
    }

    /// The peer says that it hears no datagram.
    pub fn unheard(&self) {
        self.host.notices().send(Notice::Carrier(CarrierNotice::Unheard(self.flow)));
    }

    /// Ends the session. The object stays open for [`SourceHandle::roots`].
    pub fn close(&self) {
        self.host.notices().send(Notice::CloseSource(self.flow));
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
        async move { answer.await.unwrap_or_else(|_| Err(super::reader::gone())) }
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

    /// Adds a session that brings only the blocks that [`TransferHandle::offer`] names.
    pub fn add_part_session(&self, open: SessionOpen, brings: Brings) -> FlowId {
        let flow = self.host.name();
        self.send(Notice::Relay(self.transfer, RelayNotice::Limit(flow, brings)));
        self.send(Notice::AddSession(self.transfer, flow, Box::new(open)));
        flow
    }

    /// A session has these blocks, counted through the object ([`gtp_store::BlockRow`]), beside
    /// those that were named before.
    pub fn offer(&self, flow: FlowId, blocks: Vec<Range<u64>>) {
        self.send(Notice::Relay(self.transfer, RelayNotice::Offer(flow, blocks)));
    }

    /// The values of blocks from this number on, as the object's own source has said them.
    pub fn must_have(&self, first: u64, values: Vec<Value>) {
        self.send(Notice::Relay(self.transfer, RelayNotice::Values(first, values)));
    }

    /// What has come of a session's datagrams, as [`SourceHandle::arrivals`].
    pub fn arrivals(
        &self,
        flow: FlowId,
    ) -> impl Future<Output = Option<Arrivals>> + Send + 'static {
        arrivals(&self.host, flow)
    }

    /// Gives a session another way besides UDP: the control connection, which comes from `peer`.
    pub fn carrier(&self, flow: FlowId, peer: SocketAddr) -> Carrier {
        carrier(&self.host, (flow, peer))
    }

    /// The peer of a session says that it hears no datagram.
    pub fn unheard(&self, flow: FlowId) {
        self.send(Notice::Carrier(CarrierNotice::Unheard(flow)));
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

    /// Returns a view of how the transfer is doing, which stays valid after the handle is gone.
    pub fn watch(&self) -> Watch<TransferProgress> {
        Watch(Arc::clone(&self.progress))
    }

    /// Finishes files, each against the root that it must have, or unchecked with `None`. After
    /// [`TransferEvent::AllBlocks`] every file with content that has not had its
    /// [`TransferEvent::FileDone`] must be named once, in one call or in several.
    pub fn finish_files(&self, expected: Vec<(u32, Option<Value>)>) {
        self.send(Notice::FinishFiles(self.transfer, expected));
    }

    /// Fetches a file anew, all of it, after [`TransferEvent::WrongRoot`].
    pub fn begin_anew(&self, file: u32) {
        self.send(Notice::BeginAnew(self.transfer, file));
    }

    /// Ends the transfer; what is complete is kept for a resume.
    pub fn suspend(&self) {
        self.send(Notice::Suspend(self.transfer));
    }

    fn send(&self, notice: Notice) {
        self.host.notices().send(notice);
    }
}

impl Drop for TransferHandle {
    fn drop(&mut self) {
        self.suspend();
    }
}

impl Engine {
    fn new(
        notices: Notices,
        calls: Arc<Counters>,
        shown: Arc<Shown>,
        thread: JoinHandle<()>,
    ) -> Engine {
        Engine { notices, calls, shown, chosen: Arc::default(), thread }
    }
}

impl Post {
    fn new() -> io::Result<Post> {
        let poller = Poller::new()?;
        let (queue, inbox) = mpsc::channel();
        let notices = Notices::new(queue, poller.waker());
        Ok(Post { poller, inbox, notices })
    }
}

/// Who decides for each engine: for one alone its own agents, for several common ones.
fn deciders([out, in_]: [Agent; 2], posts: &[Post]) -> Vec<Deciders> {
    if posts.len() == 1 {
        return vec![Deciders { out: Decider::own(out), in_: Decider::own(in_) }];
    }
    let wakers = || posts.iter().map(|post| post.poller.waker());
    let seats = Council::seats(out, wakers()).into_iter().zip(Council::seats(in_, wakers()));
    let common = |(out, in_)| Deciders { out: Decider::Common(out), in_: Decider::Common(in_) };
    seats.map(common).collect()
}

/// A socket of any port to this address.
pub(super) fn connected(to: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

/// Says what to do about a socket's buffers.
fn advise(socket: &UdpSocket) {
    match socket.buffer_advice() {
        Some(BufferAdvice::Needed(text)) => tracing::warn!("{text}"),
        Some(BufferAdvice::Better(text)) => tracing::info!("{text}"),
        None => {}
    }
}

/// Session ids that are not given out again at once: more than sessions that a host ever has open.
const SESSION_IDS_REMEMBERED: usize = 4_096;

/// How many engines a host has if nobody says: one for two of the machine's processors, the other
/// being for readers and writers of files, and 8 at most.
pub fn default_engines() -> usize {
    const MOST: usize = 8;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, MOST)
}

/// What a host may use if nobody says: nine tenths of its network card's speed (thesis, X.3.D),
/// or no limit where the system does not know that.
pub fn default_capacity() -> Rate {
    const SHARE: f64 = 0.9;
    gtp_sys::nic::default_route_speed().map_or(Rate::UNLIMITED, |speed| speed.scale(SHARE))
}

#[cfg(test)]
mod tests {
    use gtp_alloc::Bytes;
    use gtp_proto::{PathUse, Revision, Role, Weights};
    use gtp_store::{Pattern, RelPath, SyntheticSource};

    use super::*;
    use crate::crypto::{Suite, TrafficSecret};
    use crate::engine::api::SessionKeys;
    use crate::engine::law::Law;

    #[tokio::test]
    async fn a_session_whose_reader_gets_no_thread_hears_of_a_fault() {
        let config = HostConfig {
            capacity_out: Rate::UNLIMITED,
            capacity_in: Rate::UNLIMITED,
            interval: None,
            memory: Bytes(1 << 20),
            engines: 1,
        };
        let host = Host::start(config).unwrap();
        let (socket, peer) = host.bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
        let secret = || TrafficSecret::new([1; 32]);
        let session = SessionOpen {
            socket,
            peer,
            local_session: 1,
            peer_session: 2,
            keys: SessionKeys { suite: Suite::Aes128Gcm, seal: secret(), open: secret() },
            revision: Revision::NEWEST,
            role: Role::Responder,
            law: Law::Grant,
            weights: Weights { own: 1.0, peer: 1.0 },
            path: PathUse::default(),
            max_rate: Rate::UNLIMITED,
            principal: 0,
            allowance: crate::engine::Allowance::default(),
            label: String::new(),
        };
        let name = RelPath::new("x").unwrap();
        let source = Box::new(SyntheticSource::file(name, 1, Pattern::Zeros));
        let open = SourceOpen { session, source };
        let no_thread = Err(io::ErrorKind::WouldBlock.into());
        let mut handle = host.open_source_read_by(open, no_thread);
        let said = handle.next_event().await;
        assert!(matches!(said, Some(SourceEvent::Fault(SourceError::Read { .. }))), "{said:?}");
    }
}
