//! The calls that stand before the C library's: all that is `unsafe`.
//!
//! Each first looks whether it is for us at all, and passes on what is not. No panic crosses: one
//! that happened is as if the pump had not answered.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, size_of, transmute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use gtp_sys::pump;
use libc::{sockaddr, socklen_t};

use crate::ask::{Answer, connection, listening, peer, source_for, stay, tell, within};
use crate::peers;

/// What `gtp run` has said, as it was when the program began: what the program does to its
/// environment later changes nothing.
struct Settings {
    /// Where the pump is.
    socket: String,
    terms: String,
    /// Only GTP will do, and the kernel lets this process connect nowhere itself.
    only: bool,
    /// Connections within the host go over GTP as well.
    loopback: bool,
}

/// `None` in it: this program is not under `gtp run`.
static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

fn settings() -> Option<&'static Settings> {
    let read = || {
        let socket = variable(c"GTP_RUN_SOCKET")?;
        let terms = variable(c"GTP_RUN_TERMS").unwrap_or_default();
        let only = variable(c"GTP_RUN_REQUIRE").is_some();
        let loopback = variable(c"GTP_RUN_LOOPBACK").is_some();
        Some(Settings { socket, terms, only, loopback })
    };
    SETTINGS.get_or_init(read).as_ref()
}

/// Run by the loader before the program.
extern "C" fn begin() {
    // What went wrong here shows where a connection is asked for.
    let _ = catch_unwind(|| {
        for call in Call::ALL {
            call.real();
        }
        if let Some(open) = settings().and_then(|settings| stay(&settings.socket)) {
            let _ = open.into_raw_fd(); // It is open as long as the program lives.
        }
    });
}

// SAFETY: the loader takes this section for a list of functions without arguments of use here.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// # Safety
/// As `connect(2)`.
type Connect = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
/// # Safety
/// As `listen(2)`.
type Listen = unsafe extern "C" fn(c_int, c_int) -> c_int;

/// The C library's own calls, which are looked up once: that takes a lock.
static REAL: [AtomicPtr<c_void>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// Calls that stand before the C library's.
#[derive(Clone, Copy)]
enum Call {
    Connect,
    Listen,
    PeerName,
    OwnName,
}

impl Call {
    const ALL: [Call; 4] = [Call::Connect, Call::Listen, Call::PeerName, Call::OwnName];

    fn name(self) -> &'static CStr {
        match self {
            Call::Connect => c"connect",
            Call::Listen => c"listen",
            Call::PeerName => c"getpeername",
            Call::OwnName => c"getsockname",
        }
    }

    /// The C library's own; null if it has none.
    fn real(self) -> *mut c_void {
        let known = REAL[self as usize].load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero; looking a symbol up changes nothing.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name().as_ptr()) };
        REAL[self as usize].store(found, Ordering::Release);
        found
    }
}

fn real_connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let symbol = Call::Connect.real();
    if symbol.is_null() {
        return -1;
    }
    // SAFETY: the C library's `connect` has this type; arguments go on as they came.
    unsafe { transmute::<*mut c_void, Connect>(symbol)(fd, address, length) }
}

fn real_listen(fd: c_int, backlog: c_int) -> c_int {
    let symbol = Call::Listen.real();
    if symbol.is_null() {
        return -1;
    }
    // SAFETY: the C library's `listen` has this type; arguments go on as they came.
    unsafe { transmute::<*mut c_void, Listen>(symbol)(fd, backlog) }
}

/// A variable of the environment.
fn variable(name: &CStr) -> Option<String> {
    // SAFETY: the name ends with a zero; what is returned is copied before anything else runs here.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so a string that ends with a zero.
    unsafe { CStr::from_ptr(value) }.to_str().ok().map(str::to_owned)
}

/// Writes to the program's standard error. One that is full or closed has nobody to be told.
pub fn write_error(text: &str) {
    // SAFETY: so many bytes are readable there.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

fn set_errno(number: c_int) {
    // SAFETY: the C library gives a valid pointer to this thread's number.
    unsafe { *libc::__errno_location() = number };
}

/// Whether the other end of a Unix socket is this user's own.
pub fn is_own(socket: &OwnedFd) -> bool {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as socklen_t;
    let place = (&raw mut found).cast();
    let fd = socket.as_raw_fd();
    // SAFETY: `place` has room for `length` bytes.
    let got =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut length) };
    // SAFETY: it takes nothing and does not fail.
    got == 0 && found.uid == unsafe { libc::geteuid() }
}

/// The kernel's number of what a descriptor stands for, as long as it is open.
fn identity(fd: c_int) -> Option<u64> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for what the kernel writes.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    Some(unsafe { found.assume_init() }.st_ino)
}

/// The family of a socket of TCP; `None` for all else.
fn family(fd: c_int) -> Option<c_int> {
    let option = |name| number(fd, libc::SOL_SOCKET, name);
    let is_tcp = option(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && matches!(option(libc::SO_PROTOCOL), Some(0 | libc::IPPROTO_TCP));
    let family = option(libc::SO_DOMAIN)?;
    (is_tcp && matches!(family, libc::AF_INET | libc::AF_INET6)).then_some(family)
}

/// Shortest address of IPv6 that the kernel takes: one without a scope (RFC 2133).
const V6_LEAST: usize = 24;

/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<(c_int, SocketAddr)> {
    let length = length as usize;
    let lengths = size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>();
    if address.is_null() || !lengths.contains(&length) {
        return None;
    }
    // SAFETY: at least the family is readable; it is the first field of all.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    let mut bytes = [0_u8; size_of::<libc::sockaddr_in6>()];
    let known = length.min(bytes.len());
    // SAFETY: so many bytes are readable there, and there is room for them here.
    unsafe { std::ptr::copy_nonoverlapping(address.cast(), bytes.as_mut_ptr(), known) };
    match family {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: there are so many bytes, and every pattern of them is a valid value.
            let v4 = unsafe { bytes.as_ptr().cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Some((family, SocketAddr::new(ip.into(), u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 if length >= V6_LEAST => {
            // SAFETY: there are so many bytes, and every pattern of them is a valid value.
            let v6 = unsafe { bytes.as_ptr().cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            let to = match ip.to_ipv4_mapped() {
                Some(v4) => SocketAddr::from((v4, port)),
                None => SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            };
            Some((family, to))
        }
        _ => None,
    }
}

/// Writes an address as a socket of this family spells it, as much of it as there is room for.
///
/// # Safety
/// `address` points to `room` writable bytes, and `length` to a length.
unsafe fn write_address(
    at: SocketAddr,
    family: c_int,
    address: *mut sockaddr,
    room: socklen_t,
    length: *mut socklen_t,
) {
    let mut v4 = MaybeUninit::<libc::sockaddr_in>::zeroed();
    let mut v6 = MaybeUninit::<libc::sockaddr_in6>::zeroed();
    let (from, size): (*const u8, usize) = match (at.ip(), family) {
        (IpAddr::V4(ip), libc::AF_INET) => {
            v4.write(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: at.port().to_be(),
                sin_addr: libc::in_addr { s_addr: ip.to_bits().to_be() },
                sin_zero: [0; 8],
            });
            (v4.as_ptr().cast(), size_of::<libc::sockaddr_in>())
        }
        (ip, _) => {
            let (ip, scope) = match (ip, at) {
                (IpAddr::V6(ip), SocketAddr::V6(v6)) => (ip, v6.scope_id()),
                (IpAddr::V6(ip), SocketAddr::V4(_)) => (ip, 0),
                (IpAddr::V4(ip), _) => (ip.to_ipv6_mapped(), 0),
            };
            v6.write(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: at.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: scope,
            });
            (v6.as_ptr().cast(), size_of::<libc::sockaddr_in6>())
        }
    };
    let copied = size.min(room as usize);
    // SAFETY: `size` bytes are readable at `from`, `room` are writable at `address`, as the caller
    // promises, and `length` is valid.
    unsafe {
        std::ptr::copy_nonoverlapping(from, address.cast::<u8>(), copied);
        length.write_unaligned(size as socklen_t);
    }
}

/// Whether an address is within this host.
fn is_here(to: SocketAddr) -> bool {
    to.ip().is_loopback() || to.ip().is_unspecified() || source_for(to.ip()) == Some(to.ip())
}

/// An option's value, 16 bytes at most.
fn option(fd: c_int, level: c_int, name: c_int) -> Option<([u64; 2], socklen_t)> {
    let mut value = [0_u64; 2];
    let mut length = size_of_val(&value) as socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: `place` has room for `length` bytes.
    let got = unsafe { libc::getsockopt(fd, level, name, place, &mut length) };
    (got == 0).then_some((value, length))
}

fn number(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let (value, length) = option(fd, level, name)?;
    let bytes = value[0].to_ne_bytes();
    let four = [bytes[0], bytes[1], bytes[2], bytes[3]];
    (length as usize == size_of::<c_int>()).then_some(c_int::from_ne_bytes(four))
}

/// Whether a socket is neither connected nor about to be nor listening.
fn is_free(fd: c_int) -> bool {
    // SAFETY: the program connects it, and has not come back from that call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    gtp_sys::tcp::is_free(socket).unwrap_or(true)
}

/// What the pump made of a connection; `None`: it is not for us, or not over GTP.
fn through_pump(fd: c_int, to: SocketAddr) -> Option<Result<(), c_int>> {
    let settings = settings()?;
    let here = to.port() == 0 || is_here(to);
    let over_gtp = to.port() != 0 && (!here || settings.loopback);
    // One that is connected already is the kernel's to answer for, where that is let.
    if !settings.only && (!over_gtp || !is_free(fd)) {
        return None;
    }
    let identity_before = identity(fd);
    // SAFETY: the program connects it, and has not come back from that call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let answer = match over_gtp {
        true => connection(&settings.socket, &settings.terms, to, socket),
        false => within(&settings.socket, to, socket),
    };
    if identity(fd) != identity_before {
        return Some(Err(libc::ECONNABORTED)); // It was closed meanwhile, and may be another's.
    }
    match answer {
        Answer::Connected => {
            if over_gtp {
                peers::note(identity_before?, Some(named(to)));
            }
            Some(if blocks(fd) { Ok(()) } else { Err(libc::EINPROGRESS) })
        }
        Answer::Done => Some(Ok(())),
        Answer::Refused(number, why) => {
            if over_gtp && !why.text().is_empty() {
                tell(format_args!("{to}: {why}"));
            }
            Some(Err(number))
        }
        Answer::Without(why) if settings.only => {
            tell(format_args!("{to}: {why}; refused, since only GTP will do"));
            Some(Err(libc::ECONNREFUSED))
        }
        Answer::Without(why) => {
            tell(format_args!("{to}: {why}; over TCP"));
            None
        }
    }
}

/// Why a socket of this family cannot be connected to an address that is spelled in that one, as
/// the kernel's error.
fn misfit(fd: c_int, own: c_int, spelled: c_int, to: SocketAddr) -> Option<c_int> {
    let only_v6 = || number(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1);
    if own != spelled {
        return Some(if own == libc::AF_INET { libc::EAFNOSUPPORT } else { libc::EINVAL });
    }
    (own == libc::AF_INET6 && to.is_ipv4() && only_v6()).then_some(libc::ENETUNREACH)
}

/// What the kernel calls an address that was asked for.
fn named(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => return to,
    };
    SocketAddr::new(ip, to.port())
}

/// Whether calls on a socket wait.
fn blocks(fd: c_int) -> bool {
    // SAFETY: it takes numbers only.
    unsafe { libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0 }
}

/// One of the two calls that say where a socket is.
///
/// # Safety
/// As `getpeername(2)`.
type Where = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// Which of the two.
#[derive(Clone, Copy)]
enum End {
    Peer,
    Own,
}

impl End {
    /// The C library's own call.
    fn real(self, fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
        let symbol = match self {
            End::Peer => Call::PeerName.real(),
            End::Own => Call::OwnName.real(),
        };
        if symbol.is_null() {
            return -1;
        }
        // SAFETY: both of the C library's calls have this type; arguments go on as they came.
        unsafe { transmute::<*mut c_void, Where>(symbol)(fd, address, length) }
    }

    /// What the kernel says, with the socket's family.
    fn kernels(self, fd: c_int) -> Option<(c_int, SocketAddr)> {
        let mut bytes = [0_u64; 16];
        let mut length = size_of_val(&bytes) as socklen_t;
        let address: *mut sockaddr = bytes.as_mut_ptr().cast();
        if self.real(fd, address, &mut length) != 0 {
            return None;
        }
        // SAFETY: the kernel has written so many bytes.
        unsafe { read_address(address, length) }
    }
}

/// Where a socket that leads to the pump is connected to; `None`: it leads elsewhere.
fn peer_of(fd: c_int) -> Option<SocketAddr> {
    let settings = settings()?;
    let (_, kernels) = End::Peer.kernels(fd)?;
    let is_v6_loopback = kernels.ip() == Ipv6Addr::LOCALHOST;
    if kernels.ip() != pump::ADDRESS && !is_v6_loopback {
        return None;
    }
    let socket = identity(fd)?;
    if let Some(known) = peers::find(socket) {
        return known;
    }
    // Another program has connected it, and this one was given it or is what that one became. Or it
    // leads to a program of this host, and the pump need not be asked again.
    let known = peer(&settings.socket, socket)?;
    peers::note(socket, known);
    known
}

/// The own address of a socket that leads to the pump: the one from which this host would send.
fn own_of(fd: c_int) -> Option<SocketAddr> {
    let (_, own) = End::Own.kernels(fd)?;
    if own.ip() != Ipv4Addr::LOCALHOST && own.ip() != Ipv6Addr::LOCALHOST {
        return None; // It was bound to that one, or does not lead to the pump.
    }
    let to = peer_of(fd)?;
    Some(SocketAddr::new(source_for(to.ip())?, own.port()))
}

/// # Safety
/// As the two calls.
unsafe fn say_where(end: End, fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: as the caller promises, where it is not null.
    let room = if length.is_null() { 0 } else { unsafe { length.read_unaligned() } };
    let done = end.real(fd, address, length);
    if done != 0 {
        return done;
    }
    let found = catch_unwind(|| {
        let family = family(fd)?;
        let at = match end {
            End::Peer => peer_of(fd),
            End::Own => own_of(fd),
        };
        Some((family, at?))
    });
    if let Ok(Some((family, at))) = found {
        // SAFETY: the kernel has taken these, so that they are as the caller promises.
        unsafe { write_address(at, family, address, room, length) };
    }
    done
}

/// As `getpeername(2)`: the address that was asked for.
///
/// # Safety
/// As `getpeername(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { say_where(End::Peer, fd, address, length) }
}

/// As `getsockname(2)`: the address from which this host sends to the peer.
///
/// # Safety
/// As `getsockname(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { say_where(End::Own, fd, address, length) }
}

/// As `connect(2)`: over GTP, where it is for another host that has it.
///
/// # Safety
/// As `connect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: as the caller promises.
    let to = unsafe { read_address(address, length) };
    let asked = || match (to, family(fd)) {
        (Some((spelled, to)), Some(own)) => match misfit(fd, own, spelled, to) {
            None => through_pump(fd, to),
            // The kernel says so, unless it says before that this process may not connect.
            Some(number) => settings()?.only.then_some(Err(number)),
        },
        (Some(_) | None, _) => None,
    };
    match catch_unwind(AssertUnwindSafe(asked)).unwrap_or(None) {
        Some(Ok(())) => 0,
        Some(Err(number)) => {
            set_errno(number);
            -1
        }
        None => {
            if let Some(socket) = identity(fd) {
                peers::forget(socket); // It may have led to the pump before.
            }
            real_connect(fd, address, length)
        }
    }
}

/// As `listen(2)`; the pump hears of it.
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let done = real_listen(fd, backlog);
    if done == 0 && family(fd).is_some() {
        // What went wrong here is no matter of the program, which listens.
        let _ = catch_unwind(|| announce(fd));
    }
    done
}

/// Tells the pump where a descriptor listens.
fn announce(fd: c_int) {
    let Some(settings) = settings() else { return };
    let Some((_, at)) = End::Own.kernels(fd) else { return };
    if at.ip().is_loopback() && !settings.loopback {
        return; // It is for this host alone.
    }
    // SAFETY: the program has just made it listen, and has not come back from that call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Some(why) = listening(&settings.socket, socket) {
        tell(format_args!("{at}: {why}; over TCP only"));
    }
}
