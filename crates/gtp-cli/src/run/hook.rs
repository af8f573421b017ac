//! Connects a program's own socket to the pump.
//!
//! The program passes the socket that it wants connected, and the pump connects that same socket to
//! itself. So the socket stays as the program made it: with its options, in every epoll set, under
//! each of its descriptors and in every process that has it. The pump's end has an address that
//! nothing else on this host uses, by which the preloaded library recognises it.
//!
//! A non-blocking socket stays in progress for as long as the pump needs: it connects to a listener
//! with a full queue. To complete the connection, the pump connects from that address to the
//! socket, which TCP takes for one connection (RFC 9293, 3.5: simultaneous open). To refuse it, the
//! pump closes the listener.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use gtp_sys::pump::ADDRESS as HERE;
use gtp_sys::tcp;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, bind, connect, getsockname, ipproto, listen,
    shutdown, socket_with, sockopt,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::sockets::{Connected, Readings};

/// Time for a connection within this host; if it takes longer, a firewall rule blocks it.
const HOOK_SPAN: Duration = Duration::from_secs(2);

/// A TCP socket that a program has passed to the pump.
#[derive(Debug)]
pub struct Shown {
    socket: OwnedFd,
    /// The kernel's number of the socket.
    pub inode: u64,
    is_v6: bool,
    /// Whether the socket is non-blocking.
    pub is_nonblocking: bool,
}

impl Shown {
    /// Reads the socket's state from the kernel.
    ///
    /// # Errors
    /// `INVAL` if it is not a TCP socket; else the kernel's error.
    pub fn of(socket: OwnedFd) -> rustix::io::Result<Shown> {
        let is_tcp = sockopt::socket_type(&socket)? == SocketType::STREAM
            && sockopt::socket_protocol(&socket)? == Some(ipproto::TCP);
        let is_v6 = match sockopt::socket_domain(&socket)? {
            AddressFamily::INET if is_tcp => false,
            AddressFamily::INET6 if is_tcp => true,
            _ => return Err(Errno::INVAL),
        };
        let inode = rustix::fs::fstat(&socket)?.st_ino;
        let is_nonblocking = rustix::fs::fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
        Ok(Shown { socket, inode, is_v6, is_nonblocking })
    }

    /// Whether it is free to be connected.
    pub fn is_free(&self) -> bool {
        tcp::is_free(&self.socket).unwrap_or(false)
    }

    /// Whether it is in this process's network namespace; true where the kernel does not say.
    pub fn is_of_this_network(&self) -> bool {
        let own = new(AddressFamily::INET, SocketFlags::CLOEXEC);
        own.is_ok_and(|own| tcp::network(own) == tcp::network(&self.socket))
    }

    /// The kernel's answer to a `connect` on this socket, which is not free.
    ///
    /// # Errors
    /// That answer, mostly.
    pub async fn connect_again(&self) -> io::Result<()> {
        // If it is free meanwhile, nobody is at that port.
        let (socket, nobody) = (self.socket.try_clone()?, SocketAddr::new(HERE.into(), 1));
        let nobody = self.spelled(nobody);
        let connecting = tokio::task::spawn_blocking(move || connect(&socket, &nobody));
        Ok(connecting.await.map_err(io::Error::other)??)
    }

    /// Connects it to an address of this host, within `most`: the program waits meanwhile.
    ///
    /// # Errors
    /// What the kernel says, for the program; `TIMEDOUT` where nobody has answered.
    pub async fn connect_within(self, to: SocketAddr, most: Duration) -> io::Result<()> {
        let cleared = tcp::let_reach_itself(&self.socket)?;
        let (socket, to) = (self.socket.try_clone()?, self.spelled(to));
        let connecting = tokio::task::spawn_blocking(move || connect(&socket, &to));
        let connected = match timeout(most, connecting).await {
            Ok(connected) => connected.map_err(io::Error::other)?,
            Err(_) => {
                // The call above is woken, and the socket is free again.
                let _ = shutdown(&self.socket, Shutdown::Both);
                Err(Errno::TIMEDOUT)
            }
        };
        if !matches!(connected, Ok(()) | Err(Errno::INPROGRESS)) {
            cleared.restore(&self.socket);
        }
        Ok(connected?)
    }

    /// Connects it to the pump; returns the pump's end.
    ///
    /// # Errors
    /// When the kernel refuses, for example for a socket that is bound to another family.
    pub async fn join(&self) -> io::Result<TcpStream> {
        let cleared = tcp::let_reach_itself(&self.socket)?;
        let mut failed = Errno::ADDRNOTAVAIL.into();
        for here in self.places() {
            match self.join_at(here).await {
                Ok(joined) => return Ok(joined),
                Err(error) => failed = error,
            }
        }
        // It goes over TCP as its program made it.
        cleared.restore(&self.socket);
        Err(failed)
    }

    async fn join_at(&self, here: IpAddr) -> io::Result<TcpStream> {
        let listener = TcpListener::bind((here, 0)).await?;
        let (socket, at) = (self.socket.try_clone()?, self.spelled(listener.local_addr()?));
        let connecting = tokio::task::spawn_blocking(move || connect(&socket, &at));
        let joined = timeout(HOOK_SPAN, async {
            match connecting.await.map_err(io::Error::other)? {
                Ok(()) | Err(Errno::INPROGRESS) => accept_only(&listener, self.at()?).await,
                Err(error) => Err(error.into()),
            }
        });
        match joined.await {
            Ok(joined) => self.joined(joined?),
            Err(_) => {
                // Whoever waits in the call above is woken, and the socket is free again.
                let _ = shutdown(&self.socket, Shutdown::Both);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Sets what both ends have from now on.
    fn joined(&self, near: TcpStream) -> io::Result<TcpStream> {
        // Whether small writes wait is decided where they leave this host.
        near.set_nodelay(true)?;
        sockopt::set_tcp_nodelay(&self.socket, true)?;
        Ok(near)
    }

    /// Where it can be connected to: most IPv6 sockets speak IPv4 as well.
    fn places(&self) -> impl Iterator<Item = IpAddr> {
        let last = self.is_v6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
        std::iter::once(IpAddr::V4(HERE)).chain(last)
    }

    /// An address in the form of this socket's family.
    fn spelled(&self, at: SocketAddr) -> SocketAddr {
        match at.ip() {
            IpAddr::V4(v4) if self.is_v6 => (v4.to_ipv6_mapped(), at.port()).into(),
            IpAddr::V4(_) | IpAddr::V6(_) => at,
        }
    }

    /// Its own address.
    fn at(&self) -> io::Result<SocketAddr> {
        let at = SocketAddr::try_from(getsockname(&self.socket)?)?;
        Ok(SocketAddr::new(at.ip().to_canonical(), at.port()))
    }
}

/// Accepts the caller from this address, and no other.
async fn accept_only(listener: &TcpListener, from: SocketAddr) -> io::Result<TcpStream> {
    loop {
        let (near, caller) = listener.accept().await?;
        if caller == from {
            return Ok(near);
        }
    }
}

fn new(family: AddressFamily, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, flags, None)
}

/// A program's socket that is under way to the pump for as long as this lives. The pump does not
/// hold the socket itself: if its program closes it, it is closed, and leaves its epoll sets.
#[derive(Debug)]
pub struct UnderWay {
    /// The kernel's number of the program's socket.
    inode: u64,
    /// The socket's own address.
    from: SocketAddr,
    /// It listens and never accepts.
    full: OwnedFd,
    /// The connection that fills its queue.
    _filler: OwnedFd,
    family: AddressFamily,
    here: SocketAddr,
}

impl UnderWay {
    /// Starts the connection of a non-blocking socket.
    ///
    /// # Errors
    /// If the kernel refuses: the socket, free as before, and the reason.
    pub fn begin(shown: Shown) -> Result<UnderWay, (Shown, io::Error)> {
        let cleared = match tcp::let_reach_itself(&shown.socket) {
            Ok(cleared) => cleared,
            Err(error) => return Err((shown, error)),
        };
        let begun = full().and_then(|begun| {
            match connect(&shown.socket, &shown.spelled(begun.2)) {
                Err(Errno::INPROGRESS) => {}
                Ok(()) => return Err(io::ErrorKind::Other.into()),
                Err(error) => return Err(error.into()),
            }
            // Whether small writes wait is decided where they leave this host.
            sockopt::set_tcp_nodelay(&shown.socket, true)?;
            Ok((begun, shown.at()?))
        });
        let ((full, filler, here), from) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                cleared.restore(&shown.socket);
                return Err((shown, error));
            }
        };
        let family = AddressFamily::INET;
        Ok(UnderWay { inode: shown.inode, from, full, _filler: filler, family, here })
    }

    /// The socket's number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Completes the connection; returns the pump's end.
    ///
    /// # Errors
    /// When its owner has closed it meanwhile.
    pub async fn arrive(self, sockets: &Readings<Connected>) -> io::Result<TcpStream> {
        // Its port may be another program's by now.
        if !sockets.asks(self.inode).await? {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let near = new(self.family, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        share_port(&near)?;
        bind(&near, &self.here)?;
        match connect(&near, &self.from) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let near = TcpStream::from_std(near.into())?;
        match timeout(HOOK_SPAN, near.writable()).await {
            Ok(writable) => writable?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        if let Some(error) = near.take_error()? {
            return Err(error);
        }
        drop(self.full); // Not before: it would be refused there.
        near.set_nodelay(true)?;
        Ok(near)
    }
}

/// A listener with a full queue, the connection that fills it, and its address.
fn full() -> io::Result<(OwnedFd, OwnedFd, SocketAddr)> {
    let full = new(AddressFamily::INET, SocketFlags::CLOEXEC)?;
    share_port(&full)?;
    bind(&full, &SocketAddr::from((HERE, 0)))?;
    listen(&full, 0)?;
    let here = SocketAddr::try_from(getsockname(&full)?)?;
    let filler = new(AddressFamily::INET, SocketFlags::CLOEXEC)?;
    connect(&filler, &here)?;
    Ok((full, filler, here))
}

/// Lets two sockets of this user share a port: one that listens, and one that connects.
fn share_port(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_socket_reuseaddr(socket, true)?;
    sockopt::set_socket_reuseport(socket, true)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn shown(family: AddressFamily, flags: SocketFlags) -> (OwnedFd, Shown) {
        let socket = new(family, flags | SocketFlags::CLOEXEC).unwrap();
        let shown = Shown::of(socket.try_clone().unwrap()).unwrap();
        assert!(shown.is_free() && shown.is_of_this_network());
        (socket, shown)
    }

    fn events(socket: &OwnedFd, wait: Timespec) -> PollFlags {
        let mut polled = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
        poll(&mut polled, Some(&wait)).unwrap();
        polled[0].revents()
    }

    async fn again(shown: &Shown) -> Option<Errno> {
        Errno::from_io_error(&shown.connect_again().await.unwrap_err())
    }

    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    const SOON: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

    async fn speaks(program: OwnedFd, mut near: TcpStream) {
        let mut program = std::net::TcpStream::from(program);
        program.set_nonblocking(false).unwrap();
        program.write_all(b"there").unwrap();
        near.write_all(b"back").await.unwrap();
        let mut heard = [0; 5];
        near.read_exact(&mut heard).await.unwrap();
        let mut answered = [0; 4];
        program.read_exact(&mut answered).unwrap();
        assert_eq!((&heard, &answered), (b"there", b"back"));
        drop(program);
        assert_eq!(near.read(&mut heard).await.unwrap(), 0, "nobody else holds it");
    }

    #[tokio::test]
    async fn a_programs_own_socket_leads_to_the_pump() {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let (program, shown) = shown(family, SocketFlags::empty());
            let near = shown.join().await.unwrap();
            assert_eq!(again(&shown).await, Some(Errno::ISCONN));
            drop(shown);
            speaks(program, near).await;
        }
    }

    #[tokio::test]
    async fn one_that_speaks_no_ipv4_leads_to_it_as_well() {
        let (program, shown) = shown(AddressFamily::INET6, SocketFlags::empty());
        sockopt::set_ipv6_v6only(&program, true).unwrap();
        let near = shown.join().await.unwrap();
        drop(shown);
        speaks(program, near).await;
    }

    #[tokio::test]
    async fn one_that_does_not_wait_is_under_way_until_it_arrives() {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let (program, shown) = shown(family, SocketFlags::NONBLOCK);
            let under_way = UnderWay::begin(shown).unwrap();
            assert_eq!(events(&program, NOW), PollFlags::empty());
            let second = Shown::of(program.try_clone().unwrap()).unwrap();
            assert_eq!(again(&second).await, Some(Errno::ALREADY));
            drop(second);
            let near = under_way.arrive(&Readings::of_connected()).await.unwrap();
            assert_eq!(events(&program, SOON), PollFlags::OUT);
            speaks(program, near).await;
        }
    }

    #[tokio::test]
    async fn one_that_cannot_arrive_is_refused() {
        let (program, shown) = shown(AddressFamily::INET, SocketFlags::NONBLOCK);
        let under_way = UnderWay::begin(shown).unwrap();
        assert_eq!(events(&program, NOW), PollFlags::empty());
        drop(under_way);
        assert!(events(&program, SOON).contains(PollFlags::ERR));
        assert_eq!(sockopt::socket_error(&program).unwrap(), Err(Errno::CONNREFUSED));
    }

    #[tokio::test]
    async fn one_that_was_closed_under_way_does_not_arrive() {
        let (program, shown) = shown(AddressFamily::INET, SocketFlags::NONBLOCK);
        let under_way = UnderWay::begin(shown).unwrap();
        drop(program);
        let gone = under_way.arrive(&Readings::of_connected()).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotConnected);
    }

    #[tokio::test]
    async fn one_that_was_closed_under_way_leaves_its_epoll_set_and_its_port_is_not_taken_for_it() {
        let (program, shown) = shown(AddressFamily::INET, SocketFlags::NONBLOCK);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let flags = epoll::EventFlags::OUT | epoll::EventFlags::IN;
        epoll::add(&set, &program, epoll::EventData::new_u64(1), flags).unwrap();
        let under_way = UnderWay::begin(shown).unwrap();
        drop(program);
        // Another program takes the port and would be called in its place.
        let other = TcpListener::bind(under_way.from).await.unwrap();
        assert!(under_way.arrive(&Readings::of_connected()).await.is_err());
        let mut events = [epoll::Event { flags, data: epoll::EventData::new_u64(0) }; 2];
        assert_eq!(epoll::wait(&set, &mut events, Some(&NOW)).unwrap(), 0, "it is closed");
        let called = timeout(Duration::ZERO, other.accept()).await;
        assert!(called.is_err(), "nobody has called the other program");
    }

    #[tokio::test]
    async fn one_that_nobody_answers_within_this_host_is_given_up_and_is_as_before() {
        let (full, _filler, here) = full().unwrap();
        let (program, shown) = shown(AddressFamily::INET, SocketFlags::empty());
        let gone = shown.connect_within(here, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(Errno::from_io_error(&gone), Some(Errno::TIMEDOUT));
        assert!(tcp::is_free(&program).unwrap());
        drop(full);
    }

    #[test]
    fn what_is_no_socket_of_tcp_is_not_taken() {
        let others: [OwnedFd; 3] = [
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            std::os::unix::net::UnixStream::pair().unwrap().0.into(),
            std::fs::File::open("/dev/null").unwrap().into(),
        ];
        for other in others {
            assert!(Shown::of(other).is_err());
        }
    }
}
