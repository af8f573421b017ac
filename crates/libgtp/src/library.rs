//! What the calls do, in values: sockets made, bound, connected, listened on and accepted.
//!
//! One library per process, made at the first socket. A listening descriptor is one end of a pair
//! on which connections arrive as descriptors. Nothing here sees a pointer.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp_stream::{
    Bond, Connect, Failure, FailureKind, Host, Line, Listen, Listening, Rate, Sharing, Stream,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::fault::{Errno, keep_reason, of_failure};
use crate::pump::{adopt, carry};
use crate::socket::{Family, Socket, State, Terms};

/// A rest after a caller could not be taken in.
const ADMIT_PAUSE: Duration = Duration::from_millis(100);
/// What a process that ends waits for the peers of its connections to have received.
const FAREWELL: Duration = Duration::from_secs(30);
/// What it waits for the end of a connection whose peer has received all.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Everything.
pub struct Library {
    runtime: Runtime,
    host: Host,
    sockets: Mutex<HashMap<RawFd, Arc<Socket>>>,
    /// Connections on their way to `accept`, by a number that travels with their descriptor.
    arrived: Mutex<HashMap<u64, Arc<Socket>>>,
    numbers: AtomicU64,
    lines: Mutex<Vec<Line>>,
}

/// An option of this library's own level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    MaxRate(Rate),
    Weight(f64),
    Window(u32),
    CapacityIn(Rate),
    CapacityOut(Rate),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(failure: &Failure) -> Errno {
    keep_reason(&failure.text);
    of_failure(failure)
}

impl Library {
    /// Starts the threads, none of which takes a signal: those are the program's.
    pub fn start() -> Result<Library, Errno> {
        let _unheard = crate::border::Unheard::begin();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("gtp-control")
            .on_thread_start(|| std::mem::forget(crate::border::Unheard::begin()))
            .enable_all()
            .build()?;
        let program = std::env::args().next().unwrap_or_default();
        let (places, bond) = (gtp_share::Places::Usual, Bond::Found);
        let sharing = Sharing { places, bond, program, start: None };
        let host = Host::builder().share(sharing).start().map_err(|failure| failed(&failure))?;
        Ok(Library {
            runtime,
            host,
            sockets: Mutex::default(),
            arrived: Mutex::default(),
            numbers: AtomicU64::new(1),
            lines: Mutex::default(),
        })
    }

    /// The socket of a descriptor that this library gave out, in this process.
    pub fn find(&self, fd: RawFd) -> Result<Arc<Socket>, Errno> {
        lock(&self.sockets).get(&fd).cloned().ok_or(Errno(libc::ENOTSOCK))
    }

    /// A new socket.
    pub fn socket(&self, family: Family, flags: SocketFlags) -> Result<RawFd, Errno> {
        let (near, far) = pair(flags)?;
        let fd = near.into_raw_fd();
        self.adopt(fd, Arc::new(Socket::new(family, State::Fresh { far, bound: None })));
        Ok(fd)
    }

    /// A further descriptor of a socket.
    pub fn adopt(&self, fd: RawFd, socket: Arc<Socket>) {
        lock(&self.sockets).insert(fd, socket);
    }

    /// The descriptor is about to be closed.
    pub fn forget(&self, fd: RawFd) {
        lock(&self.sockets).remove(&fd);
    }

    /// Says where a socket shall listen.
    pub fn bind(&self, fd: RawFd, at: SocketAddr) -> Result<(), Errno> {
        let socket = self.find(fd)?;
        if !socket.family.takes(at) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        match &mut *lock(&socket.state) {
            State::Fresh { bound, .. } if bound.is_none() => *bound = Some(at),
            State::Fresh { .. } | State::Busy | State::Listening { .. } => {
                return Err(Errno(libc::EINVAL));
            }
            State::Connected { .. } => return Err(Errno(libc::EISCONN)),
        }
        Ok(())
    }

    /// Connects. With `waits` it returns when that is done, else it is under way. A socket whose
    /// connection did not come about can be connected again.
    pub fn connect(&'static self, fd: RawFd, to: SocketAddr, waits: Waits) -> Result<(), Errno> {
        let socket = self.find(fd)?;
        if !socket.family.takes(to) {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let (far, bound) = take_fresh(&socket)?;
        socket.take_broken(); // That was another connection's.
        let guard = self.runtime.enter();
        let far = adopt(far)?;
        drop(guard);
        let held = match waits {
            Waits::Here => None,
            Waits::Elsewhere => Some(Held::fill(fd)?),
        };
        let (told_in, told) = std::sync::mpsc::channel();
        let fresh = Fresh { far, bound, held };
        self.runtime.spawn(connecting(self, Arc::clone(&socket), fresh, to, told_in));
        match waits {
            Waits::Elsewhere => Err(Errno(libc::EINPROGRESS)),
            Waits::Here => match told.recv().map_err(|_| Errno(libc::EIO))? {
                Ok(()) => Ok(()),
                Err(failure) => {
                    socket.take_broken();
                    Err(failed(&failure))
                }
            },
        }
    }

    fn remember(&self, line: Line) {
        let mut lines = lock(&self.lines);
        lines.retain(|line| !line.standing().over);
        lines.push(line);
    }

    /// Listens; the descriptor becomes one on which connections arrive.
    pub fn listen(&'static self, fd: RawFd) -> Result<OwnedFd, Errno> {
        let socket = self.find(fd)?;
        let (_far, bound) = take_fresh(&socket)?;
        let at = bound.unwrap_or_else(|| SocketAddr::from(([0; 16], 0)));
        let terms = *lock(&socket.terms);
        let mut listen = Listen::new().at(at.to_string()).max_rate(terms.max_rate);
        if let Some(window) = terms.window {
            listen = listen.window(window);
        }
        if std::env::var_os("GTP_PUBLIC").is_some_and(|value| value == "1") {
            listen = listen.anyone();
        }
        let started = {
            // The listener starts threads of its own from this one.
            let _unheard = crate::border::Unheard::begin();
            self.runtime.block_on(listen.start(&self.host))
        };
        let listening = started.map_err(|failure| {
            keep_reason(&failure.text);
            // Without keys nobody can be let in; else it is nearly always an address in use.
            let is_locked = failure.kind == FailureKind::Authentication;
            Errno(if is_locked { libc::EACCES } else { libc::EADDRINUSE })
        })?;
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (near, far) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        *lock(&socket.state) = State::Listening { at: listening.address() };
        self.runtime.spawn(self.admit(socket.family, listening, far));
        Ok(near)
    }

    /// Passes callers on, until nobody accepts any more.
    async fn admit(&'static self, family: Family, mut listening: Listening, far: OwnedFd) {
        let Ok(far) = adopt(far) else { return };
        loop {
            let caller = tokio::select! {
                caller = listening.next() => caller,
                _ = far.readable() => return, // Nothing is ever sent that way but the end.
            };
            let Some(caller) = caller else { return };
            let local = caller.local();
            let Ok(stream) = caller.accept() else { continue };
            let connected = State::Connected { peer: stream.line().remote(), local: Some(local) };
            match self.pass_on(&far, stream, Socket::new(family, connected)).await {
                Ok(()) => {}
                Err(Errno(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN)) => return,
                // No descriptors, most likely: this caller is turned away, others are not.
                Err(_) => tokio::time::sleep(ADMIT_PAUSE).await,
            }
        }
    }

    /// Gives a connection a descriptor, and sends that to whoever accepts.
    async fn pass_on(
        &'static self,
        to: &UnixStream,
        stream: Stream,
        socket: Socket,
    ) -> Result<(), Errno> {
        let (near, far) = pair(SocketFlags::CLOEXEC)?;
        let far = adopt(far)?;
        self.remember(stream.line().clone());
        let socket = Arc::new(socket);
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        lock(&self.arrived).insert(number, Arc::clone(&socket));
        tokio::spawn(carry(far, stream, socket));
        let send = || Ok(send_descriptor(to.as_fd(), number, near.as_fd())?);
        let sent = to.async_io(Interest::WRITABLE, send).await;
        if sent.is_err() {
            lock(&self.arrived).remove(&number);
        }
        Ok(sent?)
    }

    /// Takes a connection from a descriptor that listens, which may wait, as the kernel does.
    pub fn accept(&self, fd: RawFd, from: BorrowedFd<'_>) -> Result<(RawFd, SocketAddr), Errno> {
        match &*lock(&self.find(fd)?.state) {
            State::Listening { .. } => {}
            State::Fresh { .. } | State::Busy | State::Connected { .. } => {
                return Err(Errno(libc::EINVAL));
            }
        }
        let (number, near) = receive_descriptor(from)?;
        let socket = lock(&self.arrived).remove(&number).ok_or(Errno(libc::ECONNABORTED))?;
        let peer = peer_of(&socket)?;
        let fd = near.into_raw_fd();
        self.adopt(fd, socket);
        Ok((fd, peer))
    }

    /// The address of a socket's peer.
    pub fn peer(&self, fd: RawFd) -> Result<SocketAddr, Errno> {
        peer_of(&*self.find(fd)?)
    }

    /// The address that a socket listens on, or will.
    pub fn local(&self, fd: RawFd) -> Result<SocketAddr, Errno> {
        let socket = self.find(fd)?;
        let at = match &*lock(&socket.state) {
            State::Listening { at } => *at,
            State::Fresh { bound: Some(at), .. } => *at,
            State::Connected { local: Some(at), .. } => *at,
            State::Fresh { bound: None, .. }
            | State::Busy
            | State::Connected { local: None, .. } => SocketAddr::from(([0; 4], 0)),
        };
        Ok(socket.family.spelled(at))
    }

    /// Sets an option.
    pub fn set(&self, fd: RawFd, setting: Setting) -> Result<(), Errno> {
        let socket = self.find(fd)?;
        let mut terms = lock(&socket.terms);
        match setting {
            Setting::MaxRate(rate) => terms.max_rate = rate,
            Setting::Weight(weight) => terms.weight = weight,
            Setting::Window(window) => terms.window = Some(window),
            Setting::CapacityIn(rate) => self.host.set_capacity(None, Some(rate)),
            Setting::CapacityOut(rate) => self.host.set_capacity(Some(rate), None),
        }
        Ok(())
    }

    /// Whether bytes can be passed over a descriptor; one that was duplicated without this library
    /// is the kernel's matter.
    ///
    /// # Errors
    /// `ENOTCONN` where there is no connection; once, why one that was asked for did not come.
    pub fn passes(&self, fd: RawFd) -> Result<(), Errno> {
        let Ok(socket) = self.find(fd) else { return Ok(()) };
        match &*lock(&socket.state) {
            State::Connected { .. } | State::Busy => Ok(()),
            State::Fresh { .. } | State::Listening { .. } => match socket.take_broken() {
                0 => Err(Errno(libc::ENOTCONN)),
                why => Err(Errno(why)),
            },
        }
    }

    /// The process ends: what was written is delivered first, as the kernel would do for TCP.
    pub fn farewell(&self) {
        let open: Vec<RawFd> = lock(&self.sockets).keys().copied().collect();
        for fd in open {
            let Ok(socket) = self.find(fd) else { continue };
            if let State::Connected { .. } = &*lock(&socket.state) {
                crate::border::end_writing(fd);
            }
        }
        let lines = std::mem::take(&mut *lock(&self.lines));
        let all = async {
            for line in lines {
                line.delivered().await;
                // The peer may be about to say its own end, and should hear that it was heard.
                let _ = tokio::time::timeout(LAST_WORD, line.over()).await;
            }
        };
        self.runtime.block_on(async {
            // Whoever does not take it in this time does without.
            let _ = tokio::time::timeout(FAREWELL, all).await;
        });
    }
}

/// Who waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Whoever asked for it.
    Here,
    /// Nobody: the descriptor can be written to when it is there.
    Elsewhere,
}

/// A descriptor that cannot be written to until its connection is there: its buffer is made small
/// and filled.
struct Held {
    near: OwnedFd,
    room: usize,
    filled: usize,
}

impl Held {
    fn fill(fd: RawFd) -> Result<Held, Errno> {
        let near = crate::border::duplicate(fd)?;
        let room = sockopt::socket_send_buffer_size(&near)?;
        sockopt::set_socket_send_buffer_size(&near, 1)?;
        let mut filled = 0;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match rustix::net::send(&near, &[0; 512], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::AGAIN) => return Ok(Held { near, room, filled }),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Empties the buffer, which lets the program write.
    fn release(self, far: &UnixStream) -> Result<(), Errno> {
        let mut left = self.filled;
        let mut chunk = [0; 4096];
        while left > 0 {
            let most = left.min(chunk.len());
            match rustix::io::read(far, &mut chunk[..most])? {
                0 => return Err(Errno(libc::EIO)),
                count => left -= count,
            }
        }
        // The kernel keeps twice of what it is told.
        sockopt::set_socket_send_buffer_size(&self.near, self.room / 2)?;
        Ok(())
    }
}

/// What a socket is before it is connected.
struct Fresh {
    far: UnixStream,
    bound: Option<SocketAddr>,
    held: Option<Held>,
}

/// Connects, tells how that went, and carries.
async fn connecting(
    library: &'static Library,
    socket: Arc<Socket>,
    fresh: Fresh,
    to: SocketAddr,
    told: std::sync::mpsc::Sender<Result<(), Failure>>,
) {
    let Fresh { far, bound, held } = fresh;
    let terms = *lock(&socket.terms);
    let connected = match describe(to, terms) {
        Ok(connect) => connect.start(&library.host).await,
        Err(failure) => Err(failure),
    };
    match connected {
        Ok(stream) => {
            library.remember(stream.line().clone());
            become_of(&socket, held, &far, State::Connected { peer: to, local: None });
            // Whoever did not wait does not listen.
            let _ = told.send(Ok(()));
            carry(far, stream, socket).await;
        }
        Err(failure) => {
            socket.fail(of_failure(&failure).0);
            if let Ok(again) = far.as_fd().try_clone_to_owned() {
                become_of(&socket, held, &far, State::Fresh { far: again, bound });
            }
            let _ = told.send(Err(failure));
        }
    }
}

/// Says what a socket is now, and then lets the program write, which may look at once.
fn become_of(socket: &Socket, held: Option<Held>, far: &UnixStream, now: State) {
    let mut state = lock(&socket.state);
    *state = now;
    if held.is_some_and(|held| held.release(far).is_err()) {
        socket.fail(libc::EIO);
    }
}

/// A connection on the terms of a socket and of the environment.
fn describe(to: SocketAddr, terms: Terms) -> Result<Connect, Failure> {
    let usage = |text: String| Failure::new(gtp_stream::FailureKind::Usage, text);
    let to = match to.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, to.port()),
        IpAddr::V6(_) => to,
    };
    let url = format!("gtp://{to}/").parse().map_err(|error| usage(format!("{error}")))?;
    let mut connect = Connect::new(url).max_rate(terms.max_rate).weight(terms.weight);
    if let Some(window) = terms.window {
        connect = connect.window(window);
    }
    if std::env::var_os("GTP_ACCEPT_NEW").is_some_and(|value| value == "1") {
        connect = connect.accept_new();
    }
    for key in std::env::var("GTP_FINGERPRINT").unwrap_or_default().split(',') {
        if !key.is_empty() {
            connect = connect.fingerprint(key.parse().map_err(|error| usage(format!("{error}")))?);
        }
    }
    Ok(connect)
}

/// The far end of a socket that is to become something.
fn take_fresh(socket: &Socket) -> Result<(OwnedFd, Option<SocketAddr>), Errno> {
    let mut state = lock(&socket.state);
    match std::mem::replace(&mut *state, State::Busy) {
        State::Fresh { far, bound } => Ok((far, bound)),
        State::Busy => Err(Errno(libc::EALREADY)),
        other @ State::Connected { .. } => {
            *state = other;
            Err(Errno(libc::EISCONN))
        }
        other @ State::Listening { .. } => {
            *state = other;
            Err(Errno(libc::EINVAL))
        }
    }
}

fn peer_of(socket: &Socket) -> Result<SocketAddr, Errno> {
    match &*lock(&socket.state) {
        State::Connected { peer, .. } => Ok(socket.family.spelled(*peer)),
        State::Fresh { .. } | State::Busy | State::Listening { .. } => Err(Errno(libc::ENOTCONN)),
    }
}

fn pair(flags: SocketFlags) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::io::fcntl_setfd(&far, rustix::io::FdFlags::CLOEXEC)?;
    Ok((near, far))
}

fn send_descriptor(
    to: BorrowedFd<'_>,
    number: u64,
    descriptor: BorrowedFd<'_>,
) -> rustix::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let number = number.to_ne_bytes();
    sendmsg(to, &[IoSlice::new(&number)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive_descriptor(from: BorrowedFd<'_>) -> Result<(u64, OwnedFd), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut number = [0; 8];
    let mut slices = [IoSliceMut::new(&mut number)];
    let received = recvmsg(from, &mut slices, &mut ancillary, RecvFlags::empty())?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match descriptor {
        Some(descriptor) if received.bytes == number.len() => {
            Ok((u64::from_ne_bytes(number), descriptor))
        }
        Some(_) | None => Err(Errno(libc::ECONNABORTED)),
    }
}
