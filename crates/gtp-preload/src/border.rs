//! The calls that stand before the C library's: all that is `unsafe`.
//!
//! Each first looks whether it is for us at all, and passes on what is not. No panic crosses: one
//! that happened is as if the pump had not answered.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{size_of, transmute};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{sockaddr, socklen_t};

use crate::ask::{Answer, connection, listening, tell};

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

/// A variable of the environment, which programs change rarely and early.
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
    let option = |name| {
        let (mut value, mut length): (c_int, _) = (0, size_of::<c_int>() as socklen_t);
        let place = (&raw mut value).cast();
        // SAFETY: `place` has room for `length` bytes.
        let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, place, &mut length) };
        (got == 0).then_some(value)
    };
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

/// Whether GTP is for this address: another host's, unless this one's own was asked for.
fn is_elsewhere(to: SocketAddr) -> bool {
    let here = to.ip().is_loopback() || to.ip().is_unspecified();
    to.port() != 0 && (!here || variable(c"GTP_RUN_LOOPBACK").is_some())
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
        let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let kept = status & (libc::O_NONBLOCK | libc::O_ASYNC);
        libc::dup3(with.as_raw_fd(), fd, cloexec) >= 0 && libc::fcntl(fd, libc::F_SETFL, kept) >= 0
    }
}

/// What the pump made of a connection; `None`: it is not for us, or not over GTP.
fn over_gtp(fd: c_int, to: SocketAddr) -> Option<Result<(), c_int>> {
    let place = variable(c"GTP_RUN_SOCKET")?;
    let only = variable(c"GTP_RUN_REQUIRE").is_some();
    let terms = variable(c"GTP_RUN_TERMS").unwrap_or_default();
    let socket = identity(fd);
    let answer = connection(&place, &terms, to);
    if identity(fd) != socket {
        return Some(Err(libc::ECONNABORTED)); // It was closed meanwhile, and may be another's.
    }
    match answer {
        Answer::Connected(with) if replace(fd, &with) => Some(Ok(())),
        Answer::Connected(_) => Some(Err(libc::EBADF)),
        Answer::Refused(number, why) => {
            tell(&format!("{to}: {why}"));
            Some(Err(number))
        }
        Answer::Without(why) if only => {
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
    let asked = || match to.filter(|to| is_elsewhere(*to)) {
        Some(to) if is_stream(fd) => over_gtp(fd, to),
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

/// Tells the pump where a descriptor listens. That connection stays open for the program's life,
/// and is how the pump knows that it lives.
fn announce(fd: c_int) {
    let Some(place) = variable(c"GTP_RUN_SOCKET") else { return };
    let mut bytes = [0_u64; 16];
    let mut length = size_of::<libc::sockaddr_storage>() as socklen_t;
    let address: *mut sockaddr = bytes.as_mut_ptr().cast();
    // SAFETY: `address` has room for `length` bytes, as long as any address is.
    if unsafe { libc::getsockname(fd, address, &mut length) } != 0 {
        return;
    }
    // SAFETY: the kernel has written so many bytes.
    let Some(at) = (unsafe { read_address(address, length) }) else { return };
    if at.ip().is_loopback() && variable(c"GTP_RUN_LOOPBACK").is_none() {
        return; // It is for this host alone.
    }
    match listening(&place, at) {
        Some(open) => drop(open.into_raw_fd()),
        None => tell(&format!("{at}: the pump does not answer; over TCP only")),
    }
}
