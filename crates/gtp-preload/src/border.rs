//! The calls that stand before the C library's: all that is `unsafe`.
//!
//! Each first looks whether it is for us at all, and passes on what is not. No panic crosses: one
//! that happened is as if the pump had not answered.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{size_of, transmute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use libc::{sockaddr, socklen_t};

use crate::ask::{Answer, connection, is_of_this_host, listening, stay, tell, within};

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

/// The C library's own call of this name.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero; looking a symbol up changes nothing.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

fn real_connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let symbol = next(c"connect");
    if symbol.is_null() {
        return -1;
    }
    // SAFETY: the C library's `connect` has this type; arguments go on as they came.
    unsafe { transmute::<*mut c_void, Connect>(symbol)(fd, address, length) }
}

fn real_listen(fd: c_int, backlog: c_int) -> c_int {
    let symbol = next(c"listen");
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

/// What a descriptor stands for, as long as it is open.
fn identity(fd: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for what the kernel writes.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    let found = unsafe { found.assume_init() };
    Some((found.st_dev, found.st_ino))
}

/// Whether a descriptor is a stream socket of IP.
fn is_stream(fd: c_int) -> bool {
    let option = |name| number(fd, libc::SOL_SOCKET, name);
    option(libc::SO_TYPE) == Some(libc::SOCK_STREAM)
        && matches!(option(libc::SO_DOMAIN), Some(libc::AF_INET | libc::AF_INET6))
        && matches!(option(libc::SO_PROTOCOL), Some(0 | libc::IPPROTO_TCP))
}

/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Option<SocketAddr> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: at least the family is readable; it is the first field of all.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: so many bytes are readable, and every pattern of them is a valid value.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: so many bytes are readable, and every pattern of them is a valid value.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = IpAddr::from(Ipv6Addr::from(v6.sin6_addr.s6_addr)).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(v6.sin6_port)))
        }
        _ => None,
    }
}

/// Whether an address is within this host.
fn is_here(to: SocketAddr) -> bool {
    to.ip().is_loopback() || to.ip().is_unspecified() || is_of_this_host(to.ip())
}

/// What a program may have set before it connected and finds again after, by level and name. That
/// small writes do not wait is decided by the pump; sizes of buffers are looked at apart.
const OPTIONS: [(c_int, c_int); 11] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];
/// Which buffers have a size that was set, `SO_BUF_LOCK` of the kernel.
const SIZES_SET: c_int = 72;
/// The bits of it, and whose they are.
const SIZES: [(c_int, c_int); 2] = [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)];

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

fn set_option(fd: c_int, (level, name): (c_int, c_int), value: *const c_void, length: socklen_t) {
    // SAFETY: so many bytes are readable at `value`, as every caller here sees to. What one kernel
    // does not know is not set.
    let _ = unsafe { libc::setsockopt(fd, level, name, value, length) };
}

/// Gives a connection the options that a program has set before.
fn keep_options(from: c_int, to: &OwnedFd) {
    let to = to.as_raw_fd();
    for (level, name) in OPTIONS {
        if let Some((value, length)) = option(from, level, name) {
            set_option(to, (level, name), value.as_ptr().cast(), length);
        }
    }
    let set = number(from, libc::SOL_SOCKET, SIZES_SET).unwrap_or(0);
    for (_, name) in SIZES.into_iter().filter(|(bit, _)| set & bit != 0) {
        // The kernel keeps twice of what it is told.
        let size = number(from, libc::SOL_SOCKET, name).unwrap_or(0) / 2;
        let length = size_of::<c_int>() as socklen_t;
        set_option(to, (libc::SOL_SOCKET, name), (&raw const size).cast(), length);
    }
}

/// Puts a connection in a program's descriptor, with the flags that it had.
fn replace(fd: c_int, with: &OwnedFd) -> bool {
    // SAFETY: all of these take numbers only; `fd` is the program's, which it wants connected.
    unsafe {
        let status = libc::fcntl(fd, libc::F_GETFL);
        let flags = libc::fcntl(fd, libc::F_GETFD);
        if status < 0 || flags < 0 {
            return false;
        }
        keep_options(fd, with);
        let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let kept = status & (libc::O_NONBLOCK | libc::O_ASYNC);
        libc::dup3(with.as_raw_fd(), fd, cloexec) >= 0 && libc::fcntl(fd, libc::F_SETFL, kept) >= 0
    }
}

/// What the pump made of a connection; `None`: it is not for us, or not over GTP.
fn through_pump(fd: c_int, to: SocketAddr) -> Option<Result<(), c_int>> {
    let settings = settings()?;
    let here = to.port() == 0 || is_here(to);
    let over_gtp = to.port() != 0 && (!here || settings.loopback);
    if !over_gtp && !settings.only {
        return None;
    }
    let socket = identity(fd);
    let answer = match over_gtp {
        true => {
            let number = socket.map_or(0, |(_, number)| number);
            connection(&settings.socket, &settings.terms, to, number)
        }
        false => within(&settings.socket, to),
    };
    if identity(fd) != socket {
        return Some(Err(libc::ECONNABORTED)); // It was closed meanwhile, and may be another's.
    }
    match answer {
        Answer::Connected(with) if replace(fd, &with) => Some(Ok(())),
        Answer::Connected(_) => Some(Err(libc::EBADF)),
        Answer::Refused(number, why) => {
            if over_gtp {
                tell(&format!("{to}: {why}"));
            }
            Some(Err(number))
        }
        Answer::Without(why) if settings.only => {
            tell(&format!("{to}: {why}; refused, since only GTP will do"));
            Some(Err(libc::ECONNREFUSED))
        }
        Answer::Without(why) => {
            tell(&format!("{to}: {why}; over TCP"));
            None
        }
    }
}

/// As `connect(2)`: over GTP, where it is for another host that has it.
///
/// # Safety
/// As `connect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: as the caller promises.
    let to = unsafe { read_address(address, length) };
    let asked = || match to {
        Some(to) if is_stream(fd) => through_pump(fd, to),
        Some(_) | None => None,
    };
    match catch_unwind(AssertUnwindSafe(asked)).unwrap_or(None) {
        Some(Ok(())) => 0,
        Some(Err(number)) => {
            set_errno(number);
            -1
        }
        None => real_connect(fd, address, length),
    }
}

/// As `listen(2)`; the pump hears of it.
#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let done = real_listen(fd, backlog);
    if done == 0 && is_stream(fd) {
        // What went wrong here is no matter of the program, which listens.
        let _ = catch_unwind(|| announce(fd));
    }
    done
}

/// Tells the pump where a descriptor listens.
fn announce(fd: c_int) {
    let Some(settings) = settings() else { return };
    let mut bytes = [0_u64; 16];
    let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
    let address: *mut sockaddr = bytes.as_mut_ptr().cast();
    // SAFETY: `address` has room for `length` bytes, as long as any address is.
    if unsafe { libc::getsockname(fd, address, &mut length) } != 0 {
        return;
    }
    // SAFETY: the kernel has written so many bytes.
    let Some(at) = (unsafe { read_address(address, length) }) else { return };
    if at.ip().is_loopback() && !settings.loopback {
        return; // It is for this host alone.
    }
    // SAFETY: the program has just made it listen, and has not come back from that call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if let Err(why) = listening(&settings.socket, socket) {
        tell(&format!("{at}: {why}; over TCP only"));
    }
}
