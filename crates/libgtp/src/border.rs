//! The border to C: pointers become values, results become return values and `errno`, and no panic
//! crosses. The only module with `unsafe`, and nothing but that.
//!
//! A forked child has a copy of this process's memory and none of its threads. A page that the
//! kernel wipes in a child says which process made the library; in any other there is none, and a
//! new one can be made. The copy of the old one is never looked at again, so no key and no packet
//! number is used twice.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use gtp_stream::Rate;
use libc::{fd_set, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};
use rustix::net::SocketFlags;

use crate::fault::{Errno, reason};
use crate::library::{Library, Setting, Waits};
use crate::socket::Family;

/// The library of the process that made it.
static LIBRARY: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());
/// A page whose first byte is 1 in the process that made the library, and 0 in its children.
static PAGE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// The library, if this process has made one.
fn here() -> Option<&'static Library> {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the page, once there, is mapped for the life of the process; one byte is read that
    // only this process writes, before the library is published.
    if page.is_null() || unsafe { page.read_volatile() } != 1 {
        return None;
    }
    // SAFETY: null, or from `Box::leak` in this process, since the page is not wiped.
    unsafe { LIBRARY.load(Ordering::Acquire).as_ref() }
}

/// The library of a descriptor that must be from it.
fn owner() -> Result<&'static Library, Errno> {
    let page = PAGE.load(Ordering::Acquire);
    here().ok_or(Errno(if page.is_null() { libc::ENOTSOCK } else { libc::ECONNABORTED }))
}

/// The library, made now if there is none.
fn ensured() -> Result<&'static Library, Errno> {
    if let Some(library) = here() {
        return Ok(library);
    }
    // What another process left is not this one's.
    LIBRARY.store(ptr::null_mut(), Ordering::Release);
    mark_process()?;
    let made = Box::into_raw(Box::new(Library::start()?));
    let order = (Ordering::AcqRel, Ordering::Acquire);
    if LIBRARY.compare_exchange(ptr::null_mut(), made, order.0, order.1).is_err() {
        // SAFETY: from `Box::into_raw` above, and published nowhere.
        drop(unsafe { Box::from_raw(made) });
    }
    here().ok_or(Errno(libc::EIO))
}

/// Marks the page as this process's, and maps it at the first call.
fn mark_process() -> Result<(), Errno> {
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: a new private mapping of the kernel's choice touches nothing that exists.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), PAGE_SIZE, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(last_error());
        }
        // SAFETY: the mapping above, whole.
        if unsafe { libc::madvise(mapped, PAGE_SIZE, libc::MADV_WIPEONFORK) } != 0 {
            return Err(last_error());
        }
        page = mapped.cast();
        PAGE.store(page, Ordering::Release);
        // SAFETY: both functions live as long as the process, take nothing and never unwind.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_child));
            libc::atexit(at_exit);
        }
    }
    // SAFETY: mapped above or by an earlier call, for writing, for the life of the process.
    unsafe { page.write_volatile(1) };
    Ok(())
}

/// A child has no library.
extern "C" fn in_child() {
    LIBRARY.store(ptr::null_mut(), Ordering::Release);
}

/// The process ends: what was written is delivered first.
extern "C" fn at_exit() {
    // A panic here has nobody to be told to.
    let _ = catch_unwind(|| {
        if let Some(library) = here() {
            flush();
            // What this thread had of its own is gone by now; another waits for it.
            let waiting = std::thread::Builder::new().spawn(|| library.farewell());
            let _ = waiting.map(std::thread::JoinHandle::join);
        }
    });
}

// # Safety: as the C library declares them.
unsafe extern "C" {
    static stdin: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// What a thread that reads a stream, and so has it locked, may hold up the end of the process.
const FLUSH: Duration = Duration::from_secs(1);

/// Has C's streams written out, which may be on descriptors of this library: the C library itself
/// does so only after this. Not while a thread reads standard input, which would have to end first.
fn flush() {
    // SAFETY: standard input is a stream as long as the process lives; it is unlocked again here.
    unsafe {
        if ftrylockfile(stdin) != 0 {
            return;
        }
        funlockfile(stdin);
    }
    let (done_in, done) = std::sync::mpsc::channel();
    let flushing = std::thread::Builder::new().spawn(move || {
        // SAFETY: no stream means all of them; the C library locks each.
        unsafe { libc::fflush(ptr::null_mut()) };
        let _ = done_in.send(()); // Nobody may wait any more.
    });
    if flushing.is_ok() {
        let _ = done.recv_timeout(FLUSH); // Either way the process ends.
    }
}

/// As long as this lives, its thread takes no signals, nor do threads that it starts. It must be
/// dropped by the thread that began it.
pub struct Unheard(libc::sigset_t);

impl Unheard {
    pub fn begin() -> Unheard {
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut all = before;
        // SAFETY: both sets are this function's own, and every pattern of bits is one.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Unheard(before.assume_init())
        }
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        // SAFETY: the set that was in force when this began.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

const PAGE_SIZE: usize = 4096;

fn last_error() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn set_errno(Errno(number): Errno) {
    // SAFETY: the C library gives a valid pointer to this thread's number.
    unsafe { *libc::__errno_location() = number };
}

/// Runs a call: its result, or -1 and `errno`. A panic is `EIO`.
fn call<T: From<i8>>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => {
            set_errno(errno);
            T::from(-1)
        }
        Err(_) => {
            set_errno(Errno(libc::EIO));
            T::from(-1)
        }
    }
}

/// What a system call returned.
fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

fn counted(result: ssize_t) -> Result<ssize_t, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

/// Nothing more will be written to a descriptor.
pub fn end_writing(fd: RawFd) {
    // SAFETY: takes numbers only; one that is no socket is an error, which changes nothing.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// A second descriptor of the same socket.
pub fn duplicate(fd: RawFd) -> Result<OwnedFd, Errno> {
    Ok(borrowed(fd)?.try_clone_to_owned()?)
}

fn borrowed<'a>(fd: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: not -1. Whether it is open is the caller's part, as in every socket call; if it is
    // not, the kernel says so.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// An address from C.
///
/// # Safety
/// `address` is null or points to `length` readable bytes.
unsafe fn read_address(address: *const sockaddr, length: socklen_t) -> Result<SocketAddr, Errno> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: at least the family is readable, as just checked; it is the first field of all.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    match c_int::from(family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: so many bytes are readable, and every pattern of them is a valid value.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: so many bytes are readable, and every pattern of them is a valid value.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// An address for C, cut to the room that there is; `room` then says how long it is.
///
/// # Safety
/// Either pointer may be null; else `room` is valid, and `out` points to so many writable bytes.
unsafe fn write_address(address: SocketAddr, out: *mut sockaddr, room: *mut socklen_t) {
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    let length = match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as libc::sa_family_t).to_ne_bytes());
            bytes[2..4].copy_from_slice(&v4.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as libc::sa_family_t).to_ne_bytes());
            bytes[2..4].copy_from_slice(&v6.port().to_be_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            bytes.len()
        }
    };
    if out.is_null() || room.is_null() {
        return;
    }
    // SAFETY: `room` is valid, and so many bytes at `out` are writable, as the caller promises.
    unsafe {
        let fits = length.min(room.read_unaligned() as usize);
        ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), fits);
        room.write_unaligned(length as socklen_t);
    }
}

/// As `socket(2)`: a socket for a byte stream over GTP. `AF_INET` or `AF_INET6`, `SOCK_STREAM`,
/// perhaps with `SOCK_NONBLOCK` and `SOCK_CLOEXEC`.
#[unsafe(no_mangle)]
pub extern "C" fn g_socket(domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
    call(|| {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let family = match domain {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        if kind & !flags != libc::SOCK_STREAM {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let mut wanted = SocketFlags::empty();
        wanted.set(SocketFlags::NONBLOCK, kind & libc::SOCK_NONBLOCK != 0);
        wanted.set(SocketFlags::CLOEXEC, kind & libc::SOCK_CLOEXEC != 0);
        ensured()?.socket(family, wanted)
    })
}

/// As `bind(2)`. That an address is in use shows with [`g_listen`].
///
/// # Safety
/// As `bind(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let at = unsafe { read_address(address, length) }?;
        owner()?.bind(fd, at).map(|()| 0)
    })
}

/// As `listen(2)`; how many may wait is this library's choice.
#[unsafe(no_mangle)]
pub extern "C" fn g_listen(fd: c_int, _backlog: c_int) -> c_int {
    call(|| {
        let library = owner()?;
        // SAFETY: these commands take numbers only.
        let (status, flags) =
            unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
        let (status, flags) = (checked(status)?, checked(flags)?);
        let near = library.listen(fd)?;
        let cloexec = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        let near = near.into_raw_fd();
        // SAFETY: numbers only; `near` is ours, and `fd` is what the program gave us to replace.
        unsafe {
            let replaced = checked(libc::dup3(near, fd, cloexec));
            libc::close(near);
            replaced?;
            checked(libc::fcntl(fd, libc::F_SETFL, status & libc::O_NONBLOCK))?;
        }
        Ok(0)
    })
}

/// As `accept(2)`.
///
/// # Safety
/// As `accept(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    call(|| {
        let (accepted, peer) = owner()?.accept(fd, borrowed(fd)?)?;
        // SAFETY: as the caller promises.
        unsafe { write_address(peer, address, length) };
        Ok(accepted)
    })
}

/// As `connect(2)`.
///
/// # Safety
/// As `connect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let to = unsafe { read_address(address, length) }?;
        // SAFETY: this command takes numbers only.
        let status = checked(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
        let waits = if status & libc::O_NONBLOCK != 0 { Waits::Elsewhere } else { Waits::Here };
        owner()?.connect(fd, to, waits).map(|()| 0)
    })
}

/// As `send(2)`.
///
/// # Safety
/// As `send(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_send(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    call(|| {
        owner()?.passes(fd)?;
        // SAFETY: as the caller promises.
        counted(unsafe { libc::send(fd, bytes, length, flags) })
    })
}

/// As `recv(2)`. A connection that broke is an error and not an end.
///
/// # Safety
/// As `recv(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_recv(
    fd: c_int,
    out: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    call(|| {
        let library = owner()?;
        library.passes(fd)?;
        // SAFETY: as the caller promises.
        let count = counted(unsafe { libc::recv(fd, out, length, flags) })?;
        unless_broken(library, fd, count, length > 0)
    })
}

/// What was received, unless that is the end of a connection that broke. `takes` says whether there
/// was room for a byte.
fn unless_broken(
    library: &Library,
    fd: c_int,
    count: ssize_t,
    takes: bool,
) -> Result<ssize_t, Errno> {
    let is_end = count == 0 && takes;
    match is_end.then(|| library.find(fd).ok().and_then(|socket| socket.broken())).flatten() {
        Some(errno) => Err(errno),
        None => Ok(count),
    }
}

/// As `sendto(2)` on a stream socket: a connected one sends to its peer, whatever address stands
/// there.
///
/// # Safety
/// As `sendto(2)`; the address is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_sendto(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    _to: *const sockaddr,
    _to_length: socklen_t,
) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { g_send(fd, bytes, length, flags) }
}

/// As `recvfrom(2)` on a stream socket: no address is filled in, and its length becomes 0.
///
/// # Safety
/// As `recvfrom(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_recvfrom(
    fd: c_int,
    out: *mut c_void,
    length: size_t,
    flags: c_int,
    _from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as the caller promises.
    let count = unsafe { g_recv(fd, out, length, flags) };
    if count >= 0 && !from_length.is_null() {
        // SAFETY: it points to a length, as the caller promises.
        unsafe { from_length.write(0) };
    }
    count
}

/// As `sendmsg(2)` on a stream socket: its pieces are sent. Address and ancillary data mean nothing
/// to a connection, so they are left out.
///
/// # Safety
/// As `sendmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    call(|| {
        owner()?.passes(fd)?;
        // SAFETY: as the caller promises.
        let message = unsafe { pieces_of(message) }?;
        // SAFETY: the pieces are the caller's.
        counted(unsafe { libc::sendmsg(fd, &raw const message, flags) })
    })
}

/// As `recvmsg(2)` on a stream socket: its pieces are filled. There is no address and no ancillary
/// data. A connection that broke is an error and not an end.
///
/// # Safety
/// As `recvmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    call(|| {
        let library = owner()?;
        library.passes(fd)?;
        // SAFETY: as the caller promises.
        let mut pieces = unsafe { pieces_of(message) }?;
        // SAFETY: the pieces are the caller's, and can be written.
        let count = counted(unsafe { libc::recvmsg(fd, &raw mut pieces, flags) })?;
        // SAFETY: the kernel has just read so many pieces there.
        let takes = (0..pieces.msg_iovlen).any(|n| unsafe { (*pieces.msg_iov.add(n)).iov_len } > 0);
        let count = unless_broken(library, fd, count, takes)?;
        // SAFETY: it is no null pointer, as `pieces_of` has seen, and can be written.
        let told = unsafe { &mut *message };
        (told.msg_namelen, told.msg_controllen, told.msg_flags) = (0, 0, pieces.msg_flags);
        Ok(count)
    })
}

/// A message with the same pieces and nothing else.
///
/// # Safety
/// The pointer is null or points to a message.
unsafe fn pieces_of(message: *const msghdr) -> Result<msghdr, Errno> {
    // SAFETY: as the caller promises.
    let said = unsafe { message.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    // SAFETY: null pointers and zeros are a message without anything.
    let mut pieces: msghdr = unsafe { std::mem::zeroed() };
    (pieces.msg_iov, pieces.msg_iovlen) = (said.msg_iov, said.msg_iovlen);
    Ok(pieces)
}

/// As `sendfile(2)`.
///
/// # Safety
/// As `sendfile(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    call(|| {
        owner()?;
        // SAFETY: as the caller promises.
        counted(unsafe { libc::sendfile(out, from, offset, count) })
    })
}

/// As `close(2)`: what was written is delivered all the same.
#[unsafe(no_mangle)]
pub extern "C" fn g_close(fd: c_int) -> c_int {
    call(|| {
        if let Some(library) = here() {
            library.forget(fd);
        }
        // SAFETY: takes a number; that nobody uses it any more is the caller's part.
        checked(unsafe { libc::close(fd) })
    })
}

/// As `shutdown(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn g_shutdown(fd: c_int, how: c_int) -> c_int {
    call(|| {
        owner()?;
        // SAFETY: takes numbers only.
        checked(unsafe { libc::shutdown(fd, how) })
    })
}

/// The level of this library's own options; the numbers are those of the header.
const SOL_GTP: c_int = 0x4754;
const GTP_MAX_RATE: c_int = 1;
const GTP_WEIGHT: c_int = 2;
const GTP_WINDOW: c_int = 3;
const GTP_CAPACITY_IN: c_int = 4;
const GTP_CAPACITY_OUT: c_int = 5;

/// As `setsockopt(2)`: options of `SOL_SOCKET` are the kernel's, those of TCP and IP are taken and
/// mean nothing, those of `SOL_GTP` are set before a socket connects or listens.
///
/// # Safety
/// As `setsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    call(|| {
        let library = owner()?;
        match level {
            // SAFETY: as the caller promises.
            libc::SOL_SOCKET => {
                checked(unsafe { libc::setsockopt(fd, level, name, value, length) })
            }
            libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6 => {
                library.find(fd).map(|_| 0)
            }
            SOL_GTP => {
                let number = match length as usize {
                    // SAFETY: so many bytes are readable, as the caller promises.
                    4 if !value.is_null() => {
                        u64::from(unsafe { value.cast::<u32>().read_unaligned() })
                    }
                    // SAFETY: the same.
                    8 if !value.is_null() => unsafe { value.cast::<u64>().read_unaligned() },
                    _ => return Err(Errno(libc::EINVAL)),
                };
                library.set(fd, setting(name, number)?).map(|()| 0)
            }
            _ => Err(Errno(libc::ENOPROTOOPT)),
        }
    })
}

fn setting(name: c_int, number: u64) -> Result<Setting, Errno> {
    let narrow = u32::try_from(number).map_err(|_| Errno(libc::EINVAL));
    Ok(match name {
        GTP_MAX_RATE => Setting::MaxRate(Rate::from_bps(number)),
        GTP_WEIGHT => match narrow? {
            weight @ 1..=1_000_000 => Setting::Weight(f64::from(weight) / 1000.0),
            _ => return Err(Errno(libc::EINVAL)),
        },
        GTP_WINDOW => Setting::Window(narrow?),
        GTP_CAPACITY_IN => Setting::CapacityIn(Rate::from_bps(number)),
        GTP_CAPACITY_OUT => Setting::CapacityOut(Rate::from_bps(number)),
        _ => return Err(Errno(libc::ENOPROTOOPT)),
    })
}

/// As `getsockopt(2)`: `SO_ERROR` is the connection's, other options of `SOL_SOCKET` are the
/// kernel's, those of TCP and IP are one.
///
/// # Safety
/// As `getsockopt(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    call(|| {
        let socket = owner()?.find(fd)?;
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => socket.take_broken(),
            (libc::SOL_SOCKET, _) => {
                // SAFETY: as the caller promises.
                return checked(unsafe { libc::getsockopt(fd, level, name, value, length) });
            }
            (libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => 1,
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        };
        if value.is_null() || length.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let bytes = number.to_ne_bytes();
        // SAFETY: `length` is valid, and so many bytes at `value` are writable, as promised.
        unsafe {
            let fits = bytes.len().min(length.read_unaligned() as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), fits);
            length.write_unaligned(fits as socklen_t);
        }
        Ok(0)
    })
}

/// As `getsockname(2)`: where a socket listens.
///
/// # Safety
/// As `getsockname(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    call(|| {
        let local = owner()?.local(fd)?;
        // SAFETY: as the caller promises.
        unsafe { write_address(local, address, length) };
        Ok(0)
    })
}

/// As `getpeername(2)`.
///
/// # Safety
/// As `getpeername(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    call(|| {
        let peer = owner()?.peer(fd)?;
        // SAFETY: as the caller promises.
        unsafe { write_address(peer, address, length) };
        Ok(0)
    })
}

/// As `poll(2)`, which it is.
///
/// # Safety
/// As `poll(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_poll(fds: *mut pollfd, count: nfds_t, millis: c_int) -> c_int {
    // SAFETY: as the caller promises.
    call(|| checked(unsafe { libc::poll(fds, count, millis) }))
}

/// As `select(2)`, which it is.
///
/// # Safety
/// As `select(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: as the caller promises.
    call(|| checked(unsafe { libc::select(count, read, write, except, timeout) }))
}

/// As `fcntl(2)`; the header's `g_fcntl` calls it. A duplicate is a socket of the library too.
///
/// # Safety
/// As `fcntl(2)`: whether `argument` is a number or an address depends on the command.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn g_fcntl_argument(fd: c_int, command: c_int, argument: c_long) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let result = checked(unsafe { libc::fcntl(fd, command, argument) })?;
        if (command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC)
            && let Some(library) = here()
            && let Ok(socket) = library.find(fd)
        {
            library.adopt(result, socket);
        }
        Ok(result)
    })
}

/// Why the last call of this thread failed that connects or listens, for people; valid until the
/// next one.
#[unsafe(no_mangle)]
pub extern "C" fn g_reason() -> *const c_char {
    reason()
}
