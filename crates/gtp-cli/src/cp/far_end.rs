//! `gtp far-end`: what `gtp cp` starts at the far end of an ssh login.
//!
//! It serves one client, whose key it is told over standard input, and shows a key made for this
//! alone; neither is written anywhere. It lives as long as its standard input is open and the near
//! end shows signs of life, and leaves nothing behind.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use gtp::replica::Replica;
use gtp::{
    Alone, Confines, Failure, FailureKind, Fingerprint, Host, Identity, Listen, PathUse, RelPath,
    RunningServer, Server, Voucher,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::follow::{Ask, tell_changes};
use super::hello::{
    self, ADDRESSES_MAX, Ability, Alike, Answer, Failed, LINE_MAX, Object, Ready, Receive, Request,
    Want,
};
use super::paths::{self, Asked, Found, to_make_alike, to_read, to_write};
use super::send;
use super::tunnel::{BARE, Frame, Links, NoFrame};
use crate::args::HostArgs;
use crate::output;
use crate::ssh::far::{self, Wanted};
use crate::sync::{BACKUPS_MEET, real};
use crate::verbs::{host, other, runtime};

/// Options of `far-end`.
#[derive(Debug, Args)]
pub struct FarEndArgs {
    #[command(flatten)]
    pub host: HostArgs,
}

/// What comes from the near end.
pub enum Heard {
    /// Its request.
    Request(Result<Request, Failure>),
    /// A sign of life, and what is said of links.
    More(Vec<u8>),
}

pub fn run(args: FarEndArgs) -> Result<ExitCode, Failure> {
    output::never_wait().map_err(other)?;
    let (tell, heard) = mpsc::channel(1);
    let listening = std::thread::Builder::new().name("gtp-near-end".into());
    listening.spawn(move || listen(std::io::stdin().lock(), &tell)).map_err(other)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(serve(&args, heard));
    // A write to a pipe that nobody reads may never end, and must not keep this process.
    runtime.shutdown_background();
    ended
}

/// Passes on what comes, until the end. Blocks.
fn listen(mut from: impl Read, tell: &mpsc::Sender<Heard>) {
    let (mut line, mut chunk) = (Vec::new(), [0; 4_096]);
    let mut is_asked = false;
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let mut heard = Heard::More(chunk[..count].to_vec());
        if !is_asked {
            line.extend_from_slice(&chunk[..count]);
            let end = line.iter().position(|&b| b == b'\n');
            if end.is_none() && line.len() <= LINE_MAX {
                continue;
            }
            is_asked = true;
            let end = end.unwrap_or(line.len());
            let request = hello::request(&line[..end]);
            // What follows at once is of the link without TLS.
            line.drain(..line.len().min(end + 1));
            let request = Heard::Request(request.map_err(|bad| {
                let kind = match bad {
                    hello::Bad::Version(_) => FailureKind::Authentication,
                    _ => FailureKind::Other,
                };
                Failure::new(kind, format!("the near end does not speak as gtp does: {bad}"))
            }));
            if tell.blocking_send(request).is_err() {
                return;
            }
            heard = Heard::More(std::mem::take(&mut line));
        }
        if tell.blocking_send(heard).is_err() {
            return;
        }
    }
}

async fn serve(args: &FarEndArgs, mut heard: mpsc::Receiver<Heard>) -> Result<ExitCode, Failure> {
    let asked = timeout(SILENCE_SPAN, heard.recv()).await;
    let Ok(Some(Heard::Request(request))) = asked else { return Ok(ExitCode::FAILURE) };
    let served = match request {
        Ok(request) => serve_request(args, &request, heard).await,
        Err(failure) => Err(failure),
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    match served {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            let code = ExitCode::from(failure.exit_code());
            let (kind, text) = (failure.kind.as_str().to_owned(), failure.text);
            say(&Answer::Failed(Failed { version, kind, text }))?;
            Ok(code)
        }
    }
}

async fn serve_request(
    args: &FarEndArgs,
    request: &Request,
    heard: mpsc::Receiver<Heard>,
) -> Result<(), Failure> {
    check_release(request)?;
    // What runs gets the limit of descriptors that this process was started with.
    if let Want::Run(subsystem) = &request.want {
        return run_command(args, request, subsystem.as_deref(), heard).await;
    }
    gtp_sys::descriptors::raise_limit();
    if let Want::Send(paths) = &request.want {
        return send::run(args, paths, heard).await;
    }
    let (_host, server, ready, root) = open(args, request).await?;
    let place = Place::of(request, &ready);
    let watchable = match (&request.want, &ready.found[..]) {
        (Want::Read(_), [one]) => Some(root.join(&one.path)),
        _ => None,
    };
    say(&Answer::Ready(ready))?;
    attend(server, (place, watchable), heard).await;
    Ok(())
}

/// What the link without TLS leads to.
struct Place {
    /// The near end's key.
    key: Fingerprint,
    /// Where it is; all that is exported if `None`.
    at: Option<RelPath>,
}

impl Place {
    /// What was found, if that is one thing that the near end itself may look at.
    fn of(request: &Request, ready: &Ready) -> Option<Place> {
        let [one] = &ready.found[..] else { return None };
        let key = match &request.want {
            Want::Read(_) | Want::Tree(_) | Want::Alike(_) => request.key,
            Want::Write(_) | Want::Receive(_) | Want::Run(_) | Want::Send(_) => return None,
        };
        let at = (!one.path.is_empty()).then(|| RelPath::new(&one.path)).transpose();
        Some(Place { key, at: at.ok()? })
    }
}

fn check_release(request: &Request) -> Result<(), Failure> {
    let (near, own) = (&request.version, env!("CARGO_PKG_VERSION"));
    if hello::are_compatible(near, own) {
        return Ok(());
    }
    let text = format!("gtp {own} is there, and gtp {near} asks it");
    Err(Failure::new(FailureKind::Authentication, text))
}

/// Runs a command for the near end, once.
async fn run_command(
    args: &FarEndArgs,
    request: &Request,
    subsystem: Option<&str>,
    mut heard: mpsc::Receiver<Heard>,
) -> Result<(), Failure> {
    let wanted = match subsystem {
        None => Wanted::Command,
        Some(name) => Wanted::Program(far::subsystem(name).ok_or_else(|| {
            let text = "the program of this subsystem is at none of its usual places there";
            Failure::new(FailureKind::Missing, text)
        })?),
    };
    let identity = Identity::generate();
    let key = identity.fingerprint();
    let host = host(&args.host).identity(identity).start()?;
    let listen = async |at| Listen::new().only(request.key).at(at).start(&host).await;
    let listening = listen_on(request.ports, listen).await?;
    let (version, port) = (env!("CARGO_PKG_VERSION").to_owned(), listening.address().port());
    say(&Answer::Ready(Ready { version, key, addresses: addresses(), port, found: Vec::new() }))?;
    let near_end =
        async { while let Ok(Some(Heard::More(_))) = timeout(SILENCE_SPAN, heard.recv()).await {} };
    far::serve(listening, wanted, near_end).await;
    Ok(())
}

/// Serves until the near end is gone, or silent for too long, or has ended its session over the
/// link without TLS in order.
async fn attend(
    mut server: RunningServer,
    (place, watchable): (Option<Place>, Option<PathBuf>),
    mut heard: mpsc::Receiver<Heard>,
) {
    let (links, writing) = Links::over(tokio::io::stdout());
    // A task of its own: if nobody reads the pipe any more it ends, and the near end is still
    // listened to until it is gone.
    let writing = tokio::spawn(writing);
    let mut ends = LinkEnds {
        port: server.address().port(),
        voucher: server.voucher(),
        place,
        watchable,
        following: None,
        is_served: false,
        served: None,
        answers: None,
    };
    // What happens the near end knows itself.
    let own_end = async { while server.next_event().await.is_some() {} };
    tokio::select! {
        () = ends.attend(&mut heard, &links) => {}
        () = own_end => {}
    }
    if let Some(following) = &ends.following {
        following.abort();
    }
    // A near end that has ended its session needs nothing more, so no other session has to end.
    if !ends.is_served {
        server.stop().await;
    }
    // The last answer may still be on its way to the pipe.
    if let Some(answers) = ends.answers.take() {
        let answered = async {
            // Their ends are all that matters, however they came.
            let _ = answers.await;
            links.close();
            drop(links);
            let _ = writing.await;
        };
        // A near end that is gone takes no answer.
        let _ = timeout(ANSWER_SPAN, answered).await;
    }
}

/// What links lead to.
struct LinkEnds {
    /// The server's port.
    port: u16,
    voucher: Voucher,
    /// What the link without TLS leads to, once.
    place: Option<Place>,
    /// The directory or file that the near end may have watched, once.
    watchable: Option<PathBuf>,
    /// Tells of its changes.
    following: Option<JoinHandle<()>>,
    /// Whether the near end has ended its session over that link.
    is_served: bool,
    /// Told when the near end has ended its session over that link.
    served: Option<oneshot::Receiver<()>>,
    /// Moves what is answered over that link into the pipe.
    answers: Option<JoinHandle<()>>,
}

impl LinkEnds {
    /// Takes in what the near end says, until it says no more or breaks a rule.
    async fn attend(&mut self, heard: &mut mpsc::Receiver<Heard>, links: &Links) {
        let mut come = Vec::new();
        while let Some(bytes) = self.hear(heard).await {
            come.extend_from_slice(&bytes);
            // A near end that is gone takes no answer out of its pipe.
            let taken = timeout(SILENCE_SPAN, self.link_up(&mut come, links)).await;
            if !matches!(taken, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// What comes next; `None` when the near end says no more.
    async fn hear(&mut self, heard: &mut mpsc::Receiver<Heard>) -> Option<Vec<u8>> {
        let served = async {
            let is_served = match &mut self.served {
                Some(served) => served.await.is_ok(),
                None => std::future::pending().await,
            };
            self.served = None;
            if !is_served {
                std::future::pending().await
            }
        };
        tokio::select! {
            heard = timeout(SILENCE_SPAN, heard.recv()) => match heard {
                Ok(Some(Heard::More(bytes))) => Some(bytes),
                Ok(Some(Heard::Request(_)) | None) | Err(_) => None,
            },
            () = served => {
                self.is_served = true;
                None
            }
        }
    }

    /// Takes in what the near end says of links.
    async fn link_up(&mut self, come: &mut Vec<u8>, links: &Links) -> Result<(), NoFrame> {
        while let Some(frame) = Frame::take(come)? {
            match frame {
                Frame::Open(BARE) => self.begin_bare(links).await,
                Frame::Open(number) => {
                    let server = (Ipv4Addr::LOCALHOST, self.port).into();
                    links.connect(number, Some(server)).await;
                }
                Frame::Message(bytes) => self.follow(&bytes, links)?,
                frame @ (Frame::Data(..) | Frame::Taken(..) | Frame::End(_)) => {
                    links.handle(frame)?;
                }
            }
        }
        Ok(())
    }

    /// Does what the near end asks by a message.
    fn follow(&mut self, bytes: &[u8], links: &Links) -> Result<(), NoFrame> {
        match (Ask::decode(bytes), self.watchable.take()) {
            (Some(Ask::Watch), Some(root)) => {
                self.following = Some(tokio::spawn(tell_changes(root, links.clone())));
                Ok(())
            }
            _ => Err(NoFrame),
        }
    }

    /// Has the server take the link without TLS, which may begin once.
    async fn begin_bare(&mut self, links: &Links) {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let place = self.place.take();
        match place.and_then(|place| Some((place, links.add(BARE, near)?))) {
            Some((Place { key, at }, answers)) => {
                self.answers = Some(answers);
                self.served = Some(self.voucher.vouch(far, key, at).await);
            }
            None => links.connect(BARE, None).await,
        }
    }
}

/// Opens what is asked for; the last returned is the directory that is exported.
async fn open(
    args: &FarEndArgs,
    request: &Request,
) -> Result<(Host, RunningServer, Ready, PathBuf), Failure> {
    if let Want::Write(path) | Want::Receive(Receive { path, .. }) = &request.want {
        paths::check_target(&home(), path)?;
    }
    let Found { root, objects } = match &request.want {
        Want::Read(paths) => to_read(&home(), paths)?,
        Want::Write(path) => to_write(&home(), path)?,
        Want::Tree(path) | Want::Alike(Alike { path, .. }) => to_make_alike(&home(), path)?,
        Want::Receive(Receive { path, .. }) => to_write(&home(), path)?,
        Want::Run(_) | Want::Send(_) => return Err(other("that is served by nobody")),
    };
    let mut abilities = Ability::ALWAYS.to_vec();
    let identity = Identity::generate();
    let key = identity.fingerprint();
    let host = host(&args.host).identity(identity).start()?;
    // Whoever asked wrote paths of this machine, and knows nothing of an export.
    let called = format!("the far end's {}/", root.display().to_string().trim_end_matches('/'));
    let mut server = Server::export(root.clone()).called(gtp_text::of_text(&called));
    server = match &request.want {
        Want::Read(_) => server.only_reader(request.key),
        Want::Write(_) => server.only_writer(request.key),
        Want::Receive(receive) => {
            server.only_writer(request.key).confined(confines(receive, &objects))
        }
        Want::Tree(_) | Want::Run(_) | Want::Send(_) => server.only_owner(request.key),
        Want::Alike(alike) => {
            let old_versions = old_versions(alike, &root, objects.first())?;
            server.only_owner(request.key).old_versions(old_versions)
        }
    };
    if let Want::Read(paths) = &request.want {
        let (together, _) = hello::part(paths, &objects);
        if !together.is_empty() {
            server = server.choosing(together.iter().map(|object| object.name.clone()));
            abilities.push(Ability::Bundle);
        }
    }
    // What comes through a link may have its data come from where ssh does; of another far end that
    // is not known.
    if let (false, Some(near)) = (matches!(request.want, Want::Receive(_)), ssh_address(0)) {
        server = server.data_from(near);
    }
    // Both ends belong to one user, whose options at the near end decide.
    server = server.path(PathUse::Unbounded);
    for law in [Alone::Gtp2004, Alone::Rbudp, Alone::Sabul, Alone::Tsunami] {
        server = server.allow(law);
    }
    let listen = async |at| server.clone().listen(at).start(&host).await;
    let running = listen_on(request.ports, listen).await?;
    let version = hello::with_abilities(env!("CARGO_PKG_VERSION"), &abilities);
    let port = running.address().port();
    let ready = Ready { version, key, addresses: addresses(), port, found: objects };
    Ok((host, running, ready, root))
}

/// The directory for a tree's old versions. `root` and `place` are what was found at its path.
/// It is opened here once, and no link that somebody puts there later leads elsewhere.
///
/// # Errors
/// [`FailureKind::Usage`] if that directory lies in the tree or contains it, and
/// [`FailureKind::Destination`] if it cannot be opened.
fn old_versions(alike: &Alike, root: &Path, place: Option<&Object>) -> Result<Replica, Failure> {
    let Alike { path, name, is_file, old_versions } = alike;
    let at = place.map_or(root.to_owned(), |place| root.join(&place.path));
    let is_dir = paths::is_content(path) || place.is_none_or(|place| place.name.is_empty());
    let tree = match (*is_file && !is_dir, &**name) {
        (true, _) => at.parent().unwrap_or(&at).to_owned(),
        (false, "") => at,
        (false, name) => at.join(name),
    };
    let (tree, place) = (real(&tree), real(&tree.join(old_versions)));
    if place.starts_with(&tree) || tree.starts_with(&place) {
        return Err(Failure::new(FailureKind::Usage, BACKUPS_MEET));
    }
    Replica::at_judged(&place).map_err(|error| {
        let shown = gtp_text::of_text(&place.to_string_lossy());
        Failure::new(FailureKind::Destination, format!("{shown}: {error}"))
    })
}

/// What another far end may write: at the place alone, and beneath it what it was asked for.
fn confines(Receive { from, .. }: &Receive, objects: &[Object]) -> Confines {
    let place = objects.first().map(|object| object.path.clone()).unwrap_or_default();
    let asked = Asked::of(from);
    Confines::new(place, move |name: &str| asked.may_be(name))
}

/// The login's home.
pub fn home() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.unwrap_or_else(|| PathBuf::from("/"))
}

/// Listens on the first of the ports that is free.
async fn listen_on<L>(
    ports: Option<(u16, u16)>,
    listen: impl AsyncFn(String) -> Result<L, Failure>,
) -> Result<L, Failure> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut failed = None;
    for port in first..=last {
        match listen(format!("[::]:{port}")).await {
            Ok(listening) => return Ok(listening),
            Err(failure) => failed = Some(failure),
        }
    }
    let errors: Vec<_> = (first..=last).filter_map(why_not).collect();
    let text = why_none((first, last), &errors);
    Err(match failed.filter(|_| text.is_none()) {
        Some(failure) => Failure::new(FailureKind::Temporary, failure.text),
        None => Failure::new(FailureKind::Temporary, text.unwrap_or_default()),
    })
}

/// Why a port cannot be had, for TCP or for UDP.
fn why_not(port: u16) -> Option<ErrorKind> {
    let at = |ip: IpAddr| SocketAddr::new(ip, port);
    let (any, any_v4) = (at(Ipv6Addr::UNSPECIFIED.into()), at(Ipv4Addr::UNSPECIFIED.into()));
    // A machine without IPv6 has ports too.
    let tcp = TcpListener::bind(&[any, any_v4][..]).map(drop);
    let udp = UdpSocket::bind(&[any, any_v4][..]).map(drop);
    tcp.and(udp).err().map(|error| error.kind())
}

/// Why none of these ports can be had, in words; nothing if that is not known by now.
fn why_none((first, last): (u16, u16), errors: &[ErrorKind]) -> Option<String> {
    let which = match first == last {
        true => format!("port {first}"),
        false => format!("each port from {first} to {last}"),
    };
    let taken = errors.contains(&ErrorKind::AddrInUse);
    let forbidden = errors.contains(&ErrorKind::PermissionDenied);
    match (taken, forbidden) {
        (true, false) => Some(format!("{which} is used by another program there")),
        (false, true) => Some(format!("the login may not listen on {which}: it lacks the right")),
        (true, true) => Some(format!(
            "{which} is used by another program there, or the login may not listen on it"
        )),
        (false, false) => None,
    }
}

/// An address of the connection that ssh has: of its client (0), or its server (2).
fn ssh_address(field: usize) -> Option<IpAddr> {
    let ssh = std::env::var("SSH_CONNECTION").unwrap_or_default();
    ssh.split(' ').nth(field)?.parse().ok()
}

/// Where this machine may be reached: first the address that ssh reached.
fn addresses() -> Vec<IpAddr> {
    let reached = ssh_address(2);
    let own = if_addrs::get_if_addrs().unwrap_or_default();
    let own = own.iter().filter(|own| !own.is_loopback()).map(if_addrs::Interface::ip);
    in_order(reached, own)
}

/// Addresses in the order in which they are to be tried. Those that mean something on one link only
/// are left out: the other end may not know the link by the same name.
fn in_order(reached: Option<IpAddr>, own: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut order = Vec::new();
    for address in reached.into_iter().chain(own).map(|address| address.to_canonical()) {
        let is_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if !is_local && !address.is_unspecified() && !order.contains(&address) {
            order.push(address);
        }
    }
    order.truncate(ADDRESSES_MAX);
    order
}

/// Says the answer.
pub fn say(answer: &Answer) -> Result<(), Failure> {
    let mut said = hello::of_answer(answer);
    if said.len() > LINE_MAX {
        let text = "the paths are too many, or too long; name the directory instead".into();
        let (version, kind) = (env!("CARGO_PKG_VERSION").to_owned(), "usage".to_owned());
        said = hello::of_answer(&Answer::Failed(Failed { version, kind, text }));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(said.as_bytes()).and_then(|()| out.flush()).map_err(other)
}

/// Bytes that wait between the link without TLS and the server.
const PIPE_BYTES: usize = 64 << 10;

/// Silence of the near end after which it is taken for gone: six of its signs of life.
pub const SILENCE_SPAN: Duration = Duration::from_secs(90);

/// Time for the last answer to leave.
const ANSWER_SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_ssh_reached_is_the_first_and_each_is_there_once() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = ["10.0.0.1", "fe80::1", "2001:db8::1", "169.254.0.9", "192.0.2.7"].map(ip);
        let order = in_order(Some(ip("::ffff:192.0.2.7")), own.into_iter());
        assert_eq!(order, ["192.0.2.7", "10.0.0.1", "2001:db8::1"].map(ip));
        let many = (0..20).map(|n| IpAddr::from([10, 0, 0, n]));
        assert_eq!(in_order(None, many).len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_port_that_may_not_be_used_is_told_from_one_that_another_program_uses() {
        let why = |errors: &[ErrorKind]| why_none((80, 81), errors).unwrap_or_default();
        assert!(why(&[ErrorKind::AddrInUse, ErrorKind::AddrInUse]).contains("another program"));
        assert!(!why(&[ErrorKind::AddrInUse]).contains("right"));
        assert!(why(&[ErrorKind::PermissionDenied]).contains("lacks the right"));
        let both = why(&[ErrorKind::PermissionDenied, ErrorKind::AddrInUse]);
        assert!(both.contains("another program") && both.contains("may not"), "{both}");
        let taken = TcpListener::bind("[::]:0").unwrap();
        assert_eq!(why_not(taken.local_addr().unwrap().port()), Some(ErrorKind::AddrInUse));
    }

    #[test]
    fn a_request_may_come_in_pieces_and_an_endless_one_is_refused() {
        let (tell, mut heard) = mpsc::channel(8);
        let endless = std::io::repeat(b'x').take(10 * LINE_MAX as u64);
        let listening = std::thread::spawn(move || listen(endless, &tell));
        assert!(matches!(heard.blocking_recv(), Some(Heard::Request(Err(_)))));
        drop(heard);
        listening.join().unwrap();
    }
}
