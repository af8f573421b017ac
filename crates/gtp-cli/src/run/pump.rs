//! The pump: one per user, between programs' sockets and GTP.
//!
//! It answers programs, which ask for connections or say that they listen, and callers, whom it
//! passes on to programs that do. Only ports on which a program under `gtp run` listens can be
//! called. It ends when no program has been there for a while. One that may itself not connect does
//! not begin: it must never be restricted by whoever started it.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp::{Caller, Connect, Failure, FailureKind, Host, Listen, Reason, Stream, Udp};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::carry::carry;
use super::endpoint::Endpoint;
use super::fallbacks::{self, Fallbacks};
use super::hook::{Shown, UnderWay};
use super::listeners::{Listener, Listeners};
use super::remains::Remains;
use super::sockets::{Connected, Listening, Reading, Readings};
use super::talk::{Heard, Question, Terms, answer, hear};
use super::{PORT, PumpCommand, detach, keeper, place};
use crate::accepting;
use crate::output::aside;
use crate::signals::Signals;
use crate::verbs::other;

/// A host that does not answer on the pumps' port within this has no GTP.
const CALL_SPAN: Duration = Duration::from_secs(3);
/// A connection whose datagrams nobody answers finds out why within this, unless this host has no
/// processor for it.
const PATH_SPAN: Duration = Duration::from_secs(10);
/// A host without GTP is not asked again for so long.
const WITHOUT_SPAN: Duration = Duration::from_secs(30);
/// A program that was reached over GTP is taken to be there for so long.
const WITH_SPAN: Duration = Duration::from_secs(600);
/// Programs of which that is remembered.
const WITH_MOST: usize = 4_096;
/// A program that listens answers within this.
const PROGRAM_SPAN: Duration = Duration::from_secs(5);
/// A connection within this host is made within this, less than the program waits for its answer.
const WITHIN_SPAN: Duration = Duration::from_secs(20);
/// Idleness is looked for this often, and which programs listen still.
const LOOK_SPAN: Duration = Duration::from_secs(1);

struct Pump {
    host: Host,
    /// The port of others' pumps.
    port: u16,
    /// Where programs listen.
    listening: Mutex<Listeners>,
    /// What the kernel says of sockets that listen, and of those that are connected.
    listeners: Readings<Listening>,
    connected: Readings<Connected>,
    /// Where programs listen, for the pump after this one, and the programs.
    remains: Remains,
    /// What was to be over GTP and is not.
    fallbacks: Mutex<Fallbacks>,
    /// Hosts that had no GTP lately.
    without: Mutex<HashSet<IpAddr>>,
    /// Programs that were reached over GTP lately.
    with: Mutex<HashSet<SocketAddr>>,
    /// Where programs' sockets are connected to, by the kernel's number of each.
    peers: Mutex<HashMap<u64, SocketAddr>>,
    /// As many as there are connections and questions, and one.
    busy: Arc<()>,
}

/// A program that asks for a connection.
struct Asker<'a> {
    program: &'a UnixStream,
    pid: i32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the pump until it is idle, or stopped.
pub fn run(command: PumpCommand) -> Result<ExitCode, Failure> {
    place::check_pump()?;
    if command.detach {
        return detach::detach(&command.pump);
    }
    if command.detached {
        return keeper::keep(&command.pump);
    }
    // What this one starts, such as a daemon, is no part of it.
    gtp_sys::descriptors::pass_none_on().map_err(other)?;
    // Each connection takes two descriptors and each program one.
    detach::raise_descriptors();
    let runtime = crate::verbs::runtime()?;
    runtime.block_on(serve(command))
}

/// What a pump begins with: its endpoint, and what remains of the one before it.
async fn begin(command: &PumpCommand) -> Result<(Endpoint, Remains), Failure> {
    let socket = place::socket(command.pump.socket.as_deref())?;
    let endpoint = match command.kept {
        None => Endpoint::open(&socket).await,
        // Its standard input.
        Some(_) => {
            let open = std::io::stdin().as_fd().try_clone_to_owned();
            open.and_then(|open| Endpoint::of_keeper(&socket, open))
        }
    };
    let endpoint = endpoint
        .map_err(|error| other(format!("cannot listen at {}: {error}", socket.display())))?;
    let remains = match &command.kept {
        None => Remains::new(),
        Some(word) => Remains::adopt(word),
    };
    Ok((endpoint, remains.map_err(other)?))
}

/// Whether this process may connect at all.
async fn must_be_free() -> Result<(), Failure> {
    let forbidden = rustix::io::Errno::ACCESS.raw_os_error();
    let tried = async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        TcpStream::connect(listener.local_addr()?).await
    };
    match tried.await {
        Err(error) if error.raw_os_error() == Some(forbidden) => {
            let text = "no pump can be started beneath `gtp run --require`, where nothing connects \
                by itself: use the one above (no --pump), or start it outside with \
                `gtp pump --detach`";
            Err(Failure::new(FailureKind::Usage, text))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn serve(command: PumpCommand) -> Result<ExitCode, Failure> {
    must_be_free().await?;
    let (mut endpoint, remains) = begin(&command).await?;
    let args = command.pump;
    let host = crate::verbs::host(&args.host).start()?;
    let mut listen = Listen::new().at(&args.listen);
    if args.public {
        listen = listen.anyone();
    }
    if let Some(keys) = &args.authorized_keys {
        listen = listen.authorized_keys(keys);
    }
    let mut callers = listen.start(&host).await?;
    let port = match callers.address().port() {
        own if args.listen.ends_with(":0") => own,
        _ => port_of(&args.listen),
    };
    let mut listening = Listeners::of(remains.listeners());
    let listeners = Readings::of_listening();
    if let Ok(live) = listeners.naming(|| listening.inodes().collect()).await {
        listening.keep(&live);
    }
    remains.note_only(listening.all());
    let pump = Arc::new(Pump {
        host,
        port,
        listening: Mutex::new(listening),
        listeners,
        connected: Readings::of_connected(),
        remains,
        fallbacks: Mutex::default(),
        without: Mutex::default(),
        with: Mutex::default(),
        peers: Mutex::default(),
        busy: Arc::new(()),
    });
    detach::say(detach::READY)?;
    pump.work(&mut endpoint, &mut callers, args.exit_when_idle).await?;
    // What is left is a file that leads nowhere; a new pump finds that out.
    let _ = endpoint.close();
    Ok(ExitCode::SUCCESS)
}

/// The port at the end of an address; the usual one, if there is none.
fn port_of(listen: &str) -> u16 {
    listen.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(PORT)
}

impl Pump {
    /// Works until it has been idle for so long, or is stopped.
    async fn work(
        self: &Arc<Pump>,
        endpoint: &mut Endpoint,
        callers: &mut gtp::Listening,
        most_idle: Duration,
    ) -> Result<(), Failure> {
        let mut signals = Signals::take().map_err(other)?;
        let mut look = tokio::time::interval(LOOK_SPAN);
        look.tick().await; // The first look is now.
        let mut tend = tokio::time::interval(fallbacks::LOOK_SPAN);
        let mut idle = Duration::ZERO;
        loop {
            tokio::select! {
                program = endpoint.next() => match program {
                    Ok(program) => {
                        idle = Duration::ZERO;
                        look.reset(); // The next look is a whole span from now.
                        tokio::spawn(Arc::clone(self).attend(program));
                    }
                    Err(error) => not_heard(&error).await,
                },
                caller = callers.next() => match caller {
                    Some(caller) => {
                        idle = Duration::ZERO;
                        look.reset(); // The next look is a whole span from now.
                        tokio::spawn(Arc::clone(self).pass_on(caller));
                    }
                    None => return Ok(()),
                },
                _ = look.tick() => {
                    idle = if self.is_busy() { Duration::ZERO } else { idle + LOOK_SPAN };
                    if idle >= most_idle {
                        idle = Duration::ZERO;
                        match endpoint.close() {
                            Ok(None) => return Ok(()),
                            Ok(Some(late)) => drop(tokio::spawn(Arc::clone(self).attend(late))),
                            // The caller is heard as soon as that can be.
                            Err(error) => not_heard(&error).await,
                        }
                    }
                }
                _ = tend.tick() => drop(tokio::spawn(Arc::clone(self).look_at_fallbacks())),
                () = signals.next() => return Ok(()),
            }
        }
    }

    /// Whether there are programs, connections or questions, or sockets on which programs listen,
    /// as far as is known. What is known of sockets is as old as the last look.
    fn is_busy(self: &Arc<Pump>) -> bool {
        let listens = !lock(&self.listening).is_empty();
        if listens {
            let pump = Arc::clone(self);
            // What cannot be seen now is seen the next time.
            tokio::spawn(async move { pump.look_at_listeners(None).await.map(drop) });
        }
        Arc::strong_count(&self.busy) > 1 || listens || self.remains.has_programs()
    }

    /// Looks which of those that are known listen still, and whether another one does, and forgets
    /// those that do not.
    ///
    /// # Errors
    /// Where that cannot be seen now; nobody is forgotten then.
    async fn look_at_listeners(&self, other: Option<u64>) -> std::io::Result<Reading<Listening>> {
        let known = || lock(&self.listening).inodes().chain(other).collect();
        let live = self.listeners.naming(known).await?;
        lock(&self.listening).keep(&live);
        Ok(live)
    }

    /// Looks which of what goes over TCP is there. What cannot be seen now is seen the next time.
    async fn look_at_fallbacks(self: Arc<Pump>) {
        if !lock(&self.fallbacks).is_empty()
            && let Ok(connected) = self.connected.anew().await
        {
            lock(&self.fallbacks).look_again(&connected.said);
        }
    }

    /// Answers one program's question.
    async fn attend(self: Arc<Pump>, program: UnixStream) {
        let _busy = Arc::clone(&self.busy);
        let Some(Heard { question, with, pid }) = hear(&program).await else { return };
        let question = match question {
            Ok(question) => question,
            Err(why) => {
                // Whoever is gone need not hear it.
                let _ = answer(&program, &format!("tcp {why}"), None).await;
                return;
            }
        };
        match question {
            Question::Connect(to, terms) => {
                self.connect(&Asker { program: &program, pid }, with, to, terms).await;
            }
            Question::Within(to) => connect_within(&program, with, to).await,
            Question::Peer(socket) => {
                let peer = lock(&self.peers).get(&socket).copied();
                let told = peer.map_or("tcp".to_owned(), |peer| format!("ok {peer}"));
                // Whoever is gone need not hear it.
                let _ = answer(&program, &told, None).await;
            }
            Question::Listen => self.stand_for(&program, with).await,
            Question::Stay => self.let_stay(&program).await,
            Question::Fallbacks => {
                let known = lock(&self.fallbacks).sockets();
                let all = match self.connected.of(known).await {
                    Ok(connected) => lock(&self.fallbacks).lines(&connected),
                    Err(error) => format!("tcp it cannot be seen which are there: {error}"),
                };
                // Whoever is gone need not hear it.
                let _ = answer(&program, &all, None).await;
            }
        }
    }

    /// Callers are passed on to where a program listens, as long as the socket does.
    async fn stand_for(&self, program: &UnixStream, socket: Option<OwnedFd>) {
        let told = match socket.map(Listener::of) {
            None | Some(Err(_)) => "tcp no socket of TCP that listens was shown",
            Some(Ok(listener)) => match self.look_at_listeners(Some(listener.inode)).await {
                Ok(live) if live.said.contains(&listener.inode) => match self.remember(listener) {
                    true => "ok",
                    false => "tcp the pump stands for too many",
                },
                Ok(_) => "tcp the pump is in another network",
                Err(error) => &format!("tcp it cannot be seen which sockets listen: {error}"),
            },
        };
        // A program that is gone need not hear it.
        let _ = answer(program, told, None).await;
    }

    /// Takes note of a listener that was there. `false`: there are too many.
    fn remember(&self, listener: Listener) -> bool {
        let mut listening = lock(&self.listening);
        if self.remains.are_many() {
            self.remains.note_only(listening.all());
        }
        let added = listening.add(listener, self.listeners.now());
        if added {
            self.remains.note(&listener);
        }
        added
    }

    /// Gives a program what a pump stays for.
    async fn let_stay(&self, program: &UnixStream) {
        // One that has nothing of the kind, or is gone, is not waited for.
        let _ = match self.remains.for_a_program() {
            Ok(open) => answer(program, "ok", Some(open)).await,
            Err(error) => answer(program, &format!("tcp {error}"), None).await,
        };
    }

    /// Connects a program's socket, or returns why that is not possible.
    async fn connect(
        self: &Arc<Pump>,
        asker: &Asker<'_>,
        socket: Option<OwnedFd>,
        to: SocketAddr,
        terms: Terms,
    ) {
        let told = match socket.map(Shown::of) {
            None | Some(Err(_)) => {
                answer(asker.program, "tcp no socket of TCP was shown", None).await
            }
            Some(Ok(shown)) if !shown.is_free() => {
                answer(asker.program, &result("done", shown.connect_again().await), None).await
            }
            Some(Ok(shown)) if !shown.is_of_this_network() => {
                let why = "the pump is in another network";
                self.do_without(asker, to, shown.inode, why).await
            }
            Some(Ok(shown)) if shown.is_nonblocking && self.is_with(to) => {
                match UnderWay::begin(shown) {
                    Ok(under_way) => {
                        // Known before the program can ask.
                        lock(&self.peers).insert(under_way.inode(), to);
                        let told = answer(asker.program, "ok", None).await;
                        self.bring(under_way, to, &terms).await;
                        told
                    }
                    Err((shown, _)) => self.connect_now(asker, shown, to, &terms).await,
                }
            }
            Some(Ok(shown)) => self.connect_now(asker, shown, to, &terms).await,
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a program has gone");
        }
    }

    /// Connects a socket while its program waits.
    async fn connect_now(
        self: &Arc<Pump>,
        asker: &Asker<'_>,
        shown: Shown,
        to: SocketAddr,
        terms: &Terms,
    ) -> std::io::Result<()> {
        let inode = shown.inode;
        match self.call(to, terms).await {
            Ok(stream) => match shown.join().await {
                Ok(near) => {
                    drop(shown); // It is the program's alone again.
                    self.note_with(to);
                    // Known before the program can ask.
                    lock(&self.peers).insert(inode, to);
                    let told = answer(asker.program, "ok", None).await;
                    self.carry(inode, to, near, stream).await;
                    told
                }
                Err(error) => {
                    stream.line().abort();
                    let why = format!("the socket cannot be connected to the pump: {error}");
                    self.do_without(asker, to, inode, &why).await
                }
            },
            Err(Without::Gtp(why)) => self.do_without(asker, to, inode, &why).await,
            Err(Without::Anything(why)) => {
                let number = rustix::io::Errno::ACCESS.raw_os_error();
                answer(asker.program, &format!("no {number} {why}"), None).await
            }
        }
    }

    /// Connects a socket whose program does not wait. If GTP is no longer there, the connection is
    /// refused, and the next attempt goes over TCP.
    async fn bring(self: &Arc<Pump>, under_way: UnderWay, to: SocketAddr, terms: &Terms) {
        let inode = under_way.inode();
        let stream = match self.call(to, terms).await {
            Ok(stream) => stream,
            Err(Without::Gtp(why) | Without::Anything(why)) => {
                aside(format_args!("{to}: {why}"));
                lock(&self.with).remove(&to);
                lock(&self.peers).remove(&inode);
                return;
            }
        };
        match under_way.arrive(&self.connected).await {
            Ok(near) => {
                self.note_with(to);
                self.carry(inode, to, near, stream).await;
            }
            Err(error) => {
                tracing::debug!(%error, "a program has gone");
                stream.line().abort();
                lock(&self.peers).remove(&inode);
            }
        }
    }

    /// Carries until both ends are done; meanwhile it is known where the socket leads.
    async fn carry(&self, inode: u64, to: SocketAddr, near: TcpStream, stream: Stream) {
        lock(&self.peers).insert(inode, to);
        carry(near, stream).await;
        lock(&self.peers).remove(&inode);
    }

    /// Tells a program that there is no GTP, and takes note of it.
    async fn do_without(
        &self,
        asker: &Asker<'_>,
        to: SocketAddr,
        socket: u64,
        why: &str,
    ) -> std::io::Result<()> {
        lock(&self.fallbacks).add(asker.pid, to, socket, why);
        answer(asker.program, &format!("tcp {why}"), None).await
    }

    /// Calls another host's pump.
    async fn call(self: &Arc<Pump>, to: SocketAddr, terms: &Terms) -> Result<Stream, Without> {
        if lock(&self.without).contains(&to.ip()) {
            return Err(Without::Gtp("had no GTP a moment ago".into()));
        }
        let mut pump = to;
        pump.set_port(self.port);
        let url = format!("gtp://{pump}/tcp/{}", to.port());
        let url = url.parse().map_err(|error| Without::Gtp(format!("{error}")))?;
        let mut connect = Connect::new(url).weight(terms.weight).max_rate(terms.max_rate);
        // Where UDP does not get through, the program's own TCP does as well as the control
        // connection's.
        connect = connect.udp(Udp::Only);
        for key in &terms.keys {
            connect = connect.fingerprint(*key);
        }
        if terms.accept_new {
            connect = connect.accept_new();
        }
        let failed = match timeout(CALL_SPAN, connect.start(&self.host)).await {
            Ok(Ok(stream)) => return self.with_path(stream).await,
            Ok(Err(failure)) if failure.kind == FailureKind::Unreachable => {
                self.note_without(to.ip());
                Without::Gtp(format!("{} has no GTP", to.ip()))
            }
            Ok(Err(failure)) => Without::of(failure),
            Err(_) => {
                self.note_without(to.ip());
                Without::Gtp(format!("{} does not answer on port {}", to.ip(), self.port))
            }
        };
        Err(failed)
    }

    /// A program that was reached over GTP is taken to be there for a while.
    fn note_with(self: &Arc<Pump>, program: SocketAddr) {
        let mut with = lock(&self.with);
        if with.len() < WITH_MOST && with.insert(program) {
            let pump = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(WITH_SPAN).await;
                lock(&pump.with).remove(&program);
            });
        }
    }

    /// Whether a program is taken to be there, and its host to have GTP. A socket that sets out for
    /// any other would be refused, where it is to go over TCP.
    fn is_with(&self, to: SocketAddr) -> bool {
        lock(&self.with).contains(&to) && !lock(&self.without).contains(&to.ip())
    }

    /// A host without GTP is not asked again for a while.
    fn note_without(self: &Arc<Pump>, host: IpAddr) {
        if lock(&self.without).insert(host) {
            let pump = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(WITHOUT_SPAN).await;
                lock(&pump.without).remove(&host);
            });
        }
    }

    /// A connection over which datagrams get through.
    async fn with_path(&self, stream: Stream) -> Result<Stream, Without> {
        let line = stream.line();
        let why = match timeout(PATH_SPAN, line.opened()).await {
            Ok(true) => return Ok(stream),
            Ok(false) if line.standing().no_path => {
                format!("UDP port {} is not let through", self.port)
            }
            Ok(false) => line.why().unwrap_or("the connection broke").to_owned(),
            Err(_) => format!("this host has found no path in {} s", PATH_SPAN.as_secs()),
        };
        line.abort();
        Err(Without::Gtp(why))
    }

    /// Passes a caller on to the program that listens on the service it asked for.
    async fn pass_on(self: Arc<Pump>, caller: Caller) {
        let _busy = Arc::clone(&self.busy);
        let (from, shown) = (caller.remote(), caller.shown_service());
        let Some(at) = self.find(caller.service(), caller.local()).await else {
            let text = format!("no program under gtp run listens at {shown} here");
            return caller.refuse(Reason::Missing, text).await;
        };
        let near = match timeout(PROGRAM_SPAN, TcpStream::connect(at)).await {
            Ok(Ok(near)) => near,
            Ok(Err(_)) | Err(_) => {
                let text = format!("the program at {shown} does not answer");
                return caller.refuse(Reason::Missing, text).await;
            }
        };
        // Whether small writes wait is decided where they are made.
        let _ = near.set_nodelay(true);
        match caller.accept() {
            Ok(stream) => carry(near, stream).await,
            Err(failure) => aside(format_args!("{from}: {failure}")),
        }
    }

    /// Where the program of a service listens: at the address that was called, on which or on all
    /// of which it listens. It must not take a caller from elsewhere for one of this host.
    async fn find(&self, service: &[u8], called: SocketAddr) -> Option<SocketAddr> {
        let port = std::str::from_utf8(service).ok()?.strip_prefix("tcp/")?.parse().ok()?;
        // Where it cannot be seen who listens, what is known counts.
        let _ = self.look_at_listeners(None).await;
        let listening = lock(&self.listening);
        listening.takes(called.ip(), port).then(|| at_port(called, port))
    }
}

/// Another port of an address; a link-local one keeps its interface.
fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(_) => address,
    }
}

/// A program could not be taken in, for want of descriptors most likely: the pump goes on after a
/// rest.
async fn not_heard(error: &std::io::Error) {
    aside(format_args!("a program could not be heard: {error}"));
    accepting::rest().await;
}

/// Connects the socket of a program that may connect nowhere itself to this host, over TCP.
async fn connect_within(program: &UnixStream, socket: Option<OwnedFd>, to: SocketAddr) {
    let connected = async {
        let shown = Shown::of(socket.ok_or(rustix::io::Errno::BADF)?)?;
        if !is_of_this_host(to.ip()) || !shown.is_of_this_network() {
            return Err(rustix::io::Errno::ACCESS.into());
        }
        if !shown.is_free() {
            return Ok(result("done", shown.connect_again().await));
        }
        Ok::<_, std::io::Error>(result("ok", shown.connect_within(to, WITHIN_SPAN).await))
    };
    let told = connected.await.unwrap_or_else(|error| result("ok", Err(error)));
    // A program that is gone need not hear how it went.
    let _ = answer(program, &told, None).await;
}

/// The result of a system call, for the program that made it. A connection in progress counts as
/// done, since the program knows by itself whether it waits.
fn result(well: &str, done: std::io::Result<()>) -> String {
    let under_way = rustix::io::Errno::INPROGRESS.raw_os_error();
    match done.map_err(|error| error.raw_os_error()) {
        Ok(()) => well.to_owned(),
        Err(Some(number)) if number == under_way => well.to_owned(),
        Err(number) => {
            let refused = rustix::io::Errno::CONNREFUSED.raw_os_error();
            format!("no {}", number.unwrap_or(refused))
        }
    }
}

/// Whether an address is this host's: what is sent there comes from there.
fn is_of_this_host(ip: IpAddr) -> bool {
    let from = || {
        let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let probe = std::net::UdpSocket::bind(any)?;
        probe.connect((ip, 9))?; // Nothing is sent.
        probe.local_addr()
    };
    ip.is_loopback() || ip.is_unspecified() || from().is_ok_and(|from: SocketAddr| from.ip() == ip)
}

/// Why there is no connection over GTP.
enum Without {
    /// The peer has none, so TCP may be tried.
    Gtp(String),
    /// It has, and must not be spoken to.
    Anything(String),
}

impl Without {
    fn of(failure: Failure) -> Without {
        match failure.kind {
            FailureKind::Missing
            | FailureKind::Usage
            | FailureKind::Temporary
            | FailureKind::Unreachable
            | FailureKind::NoUdpPath
            | FailureKind::TimeLimit => Without::Gtp(failure.text),
            FailureKind::Authentication
            | FailureKind::OutsideHours
            | FailureKind::Quota
            | FailureKind::Revoked
            | FailureKind::Other
            | FailureKind::Destination
            | FailureKind::Integrity
            | FailureKind::Partial
            | FailureKind::Interrupted => Without::Anything(failure.text),
        }
    }
}
