//! The pump: one per user, between programs' sockets and GTP.
//!
//! It answers programs, which ask for connections or say that they listen, and callers, whom it
//! passes on to programs that do. Only ports on which a program under `gtp run` listens can be
//! called. It ends when no program has been there for a while.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gtp::{Caller, Connect, Failure, FailureKind, Host, Listen, Reason, Stream};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::carry::{carry, pair};
use super::door::Door;
use super::listeners::{Listener, Listeners, live};
use super::talk::{Question, Terms, answer, hear};
use super::{PORT, PumpCommand, detach, place};
use crate::output::aside;
use crate::signals::Signals;
use crate::verbs::other;

/// A host that does not answer on the pumps' port within this has no GTP.
const CALL_SPAN: Duration = Duration::from_secs(3);
/// A path that is not open for datagrams within this is none.
const PATH_SPAN: Duration = Duration::from_secs(5);
/// A host without GTP is not asked again for so long.
const WITHOUT_SPAN: Duration = Duration::from_secs(30);
/// A program that listens answers within this.
const PROGRAM_SPAN: Duration = Duration::from_secs(5);
/// A rest after a program could not be taken in, for want of descriptors most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Idleness is looked for this often.
const LOOK_SPAN: Duration = Duration::from_secs(1);

struct Pump {
    host: Host,
    /// The port of others' pumps.
    port: u16,
    /// Where programs listen.
    listening: Mutex<Listeners>,
    /// Hosts that had no GTP lately.
    without: Mutex<HashSet<IpAddr>>,
    /// As many as there are connections and programs, and one.
    busy: Arc<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the pump until it is idle, or stopped.
pub fn run(command: PumpCommand) -> Result<ExitCode, Failure> {
    if command.detach {
        return detach::detach();
    }
    if command.detached {
        detach::leave_session();
    }
    // Each connection takes two descriptors and each program one.
    detach::raise_descriptors();
    let runtime = crate::verbs::runtime()?;
    runtime.block_on(serve(command))
}

async fn serve(command: PumpCommand) -> Result<ExitCode, Failure> {
    let args = command.pump;
    let socket = place::socket(args.socket.as_deref())?;
    let mut door = match Door::open(&socket).await {
        Ok(door) => door,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && command.detached => {
            return detach::say(detach::THERE).map(|()| ExitCode::SUCCESS);
        }
        Err(error) => {
            return Err(other(format!("cannot listen at {}: {error}", socket.display())));
        }
    };
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
    let pump = Arc::new(Pump {
        host,
        port,
        listening: Mutex::default(),
        without: Mutex::default(),
        busy: Arc::new(()),
    });
    detach::say(detach::READY)?;
    pump.work(&mut door, &mut callers, args.exit_when_idle).await?;
    // What is left is a file that leads nowhere; a new pump finds that out.
    let _ = door.close();
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
        door: &mut Door,
        callers: &mut gtp::Listening,
        most_idle: Duration,
    ) -> Result<(), Failure> {
        let mut signals = Signals::take().map_err(other)?;
        let mut look = tokio::time::interval(LOOK_SPAN);
        look.tick().await; // The first look is now.
        let mut idle = Duration::ZERO;
        loop {
            tokio::select! {
                program = door.next() => match program {
                    Ok(program) => {
                        idle = Duration::ZERO;
                        look.reset(); // The next look is a whole span from now.
                        tokio::spawn(Arc::clone(self).attend(program));
                    }
                    Err(error) => {
                        aside(format_args!("a program could not be heard: {error}"));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
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
                        let Some(late) = door.close().map_err(other)? else { return Ok(()) };
                        idle = Duration::ZERO;
                        look.reset(); // The next look is a whole span from now.
                        tokio::spawn(Arc::clone(self).attend(late));
                    }
                }
                () = signals.next() => return Ok(()),
            }
        }
    }

    /// Whether there are programs, connections, or sockets on which programs listen.
    fn is_busy(&self) -> bool {
        let mut listening = lock(&self.listening);
        if !listening.is_empty() {
            listening.keep(&live());
        }
        Arc::strong_count(&self.busy) > 1 || !listening.is_empty()
    }

    /// Answers one program's question.
    async fn attend(self: Arc<Pump>, mut program: UnixStream) {
        let _busy = Arc::clone(&self.busy);
        match hear(&mut program).await {
            Some(Question::Connect(to, terms)) => self.connect(&program, to, terms).await,
            Some(Question::Within(to)) => connect_within(&program, to).await,
            Some(Question::Listen(listener)) => self.stand_for(&program, listener).await,
            // Nothing is ever said; its end is the program's.
            Some(Question::Stay) => drop(program.read(&mut [0; 1]).await),
            None => {}
        }
    }

    /// Callers are passed on to where a program listens, as long as the socket does.
    async fn stand_for(&self, program: &UnixStream, listener: Listener) {
        let told = match live().contains(&listener.inode) {
            false => "tcp the pump is in another network",
            true if !lock(&self.listening).add(listener) => "tcp the pump stands for too many",
            true => "ok",
        };
        // A program that is gone need not hear it.
        let _ = answer(program, told, None).await;
    }

    /// Connects a program, or says why it must do without.
    async fn connect(self: &Arc<Pump>, program: &UnixStream, to: SocketAddr, terms: Terms) {
        let told = match self.call(to, &terms).await {
            Ok(stream) => match pair().await {
                Ok((ours, theirs)) => {
                    let told = answer(program, "ok", Some(theirs.into())).await;
                    if told.is_ok() {
                        carry(ours, stream).await;
                    } else {
                        stream.line().abort();
                    }
                    told
                }
                Err(error) => {
                    stream.line().abort();
                    answer(program, &format!("tcp {error}"), None).await
                }
            },
            Err(Without::Gtp(why)) => answer(program, &format!("tcp {why}"), None).await,
            Err(Without::Anything(why)) => {
                let number = rustix::io::Errno::ACCESS.raw_os_error();
                answer(program, &format!("no {number} {why}"), None).await
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a program has gone");
        }
    }

    /// Calls another host's pump.
    async fn call(self: &Arc<Pump>, to: SocketAddr, terms: &Terms) -> Result<Stream, Without> {
        if lock(&self.without).contains(&to.ip()) {
            return Err(Without::Gtp("had no GTP a moment ago".into()));
        }
        let pump = SocketAddr::new(to.ip(), self.port);
        let url = format!("gtp://{pump}/tcp/{}", to.port());
        let url = url.parse().map_err(|error| Without::Gtp(format!("{error}")))?;
        let mut connect = Connect::new(url).weight(terms.weight).max_rate(terms.max_rate);
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
        match timeout(PATH_SPAN, stream.line().opened()).await {
            Ok(true) => Ok(stream),
            Ok(false) | Err(_) => {
                stream.line().abort();
                Err(Without::Gtp(format!("UDP port {} is not let through", self.port)))
            }
        }
    }

    /// Passes a caller on to the program that listens where he wants to go.
    async fn pass_on(self: Arc<Pump>, caller: Caller) {
        let _busy = Arc::clone(&self.busy);
        let (from, shown) = (caller.remote(), caller.shown_service());
        let Some(at) = self.find(caller.service(), caller.local().ip()) else {
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
    fn find(&self, service: &[u8], called: IpAddr) -> Option<SocketAddr> {
        let port = std::str::from_utf8(service).ok()?.strip_prefix("tcp/")?.parse().ok()?;
        let mut listening = lock(&self.listening);
        listening.keep(&live());
        listening.takes(called, port).then(|| SocketAddr::new(called.to_canonical(), port))
    }
}

/// Connects a program that may connect nowhere itself to this host, over TCP.
async fn connect_within(program: &UnixStream, to: SocketAddr) {
    let connected = async {
        if !is_of_this_host(to.ip()) {
            return Err(rustix::io::Errno::ACCESS.into());
        }
        let stream = TcpStream::connect(to).await?.into_std()?;
        stream.set_nonblocking(false)?;
        Ok::<_, std::io::Error>(stream)
    };
    // A program that is gone need not hear how it went.
    let _ = match connected.await {
        Ok(stream) => answer(program, "ok", Some(stream.into())).await,
        Err(error) => {
            let refused = rustix::io::Errno::CONNREFUSED.raw_os_error();
            let number = error.raw_os_error().unwrap_or(refused);
            answer(program, &format!("no {number} {error}"), None).await
        }
    };
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
            | FailureKind::Temporary
            | FailureKind::Unreachable
            | FailureKind::NoUdpPath
            | FailureKind::TimeLimit => Without::Gtp(failure.text),
            FailureKind::Authentication
            | FailureKind::Other
            | FailureKind::Usage
            | FailureKind::Destination
            | FailureKind::Integrity
            | FailureKind::Partial
            | FailureKind::Interrupted => Without::Anything(failure.text),
        }
    }
}
