//! Datagrams with all that the kernel says of them: where to, how long each is, when they came,
//! and their ECN bits.
//!
//! The kernel writes that behind each other into a buffer for each read, and leaves out what has no
//! room, the ECN bits first. `quinn-udp` gives it 96 bytes; datagrams that were glued together and
//! bear a time stamp need more, so reading is done here. What a datagram means is not known here.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta};

/// Room for what is said of one read: a time stamp (32 bytes), a length (24), an IPv6 address (40),
/// and ECN bits of both versions (24 each), with 48 to spare.
const CONTROL: usize = 192;

/// Such room, aligned as the kernel's headers are.
#[repr(align(8))]
struct Control(#[expect(dead_code, reason = "the kernel writes it")] [u8; CONTROL]);

/// Receives into as many buffers as there are datagrams, or glued ones, and writes to `metas` what
/// is known of each. Returns how many were filled. The socket must not block, and must have been
/// prepared by `quinn-udp`.
///
/// # Errors
/// `WouldBlock` if nothing is there; what the kernel reports of the socket otherwise.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    metas: &mut [RecvMeta],
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<libc::sockaddr_storage>::uninit() }; BATCH_SIZE];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_SIZE];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_SIZE];
    let count = buffers.len().min(metas.len()).min(BATCH_SIZE);
    for (n, buffer) in buffers.iter_mut().enumerate().take(count) {
        headers[n].write(header(buffer, &mut names[n], &mut controls[n]));
    }
    let filled = read(socket, &mut headers[..count])?;
    for ((meta, header), name) in metas.iter_mut().zip(&headers).zip(&names).take(filled) {
        // SAFETY: each of the first `count` headers was written above.
        let header = unsafe { header.assume_init_ref() };
        *meta = meta_of(header, name)?;
    }
    Ok(filled)
}

/// A header that has the kernel write to these places.
fn header(
    buffer: &mut IoSliceMut<'_>,
    name: &mut MaybeUninit<libc::sockaddr_storage>,
    control: &mut MaybeUninit<Control>,
) -> libc::mmsghdr {
    // SAFETY: a header of zeros is valid: no name, no buffers, no room.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = name.as_mut_ptr().cast();
    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_hdr.msg_iov = (&raw mut *buffer).cast(); // The standard library's promise.
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = control.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = CONTROL as _;
    header
}

/// Reads as many datagrams as there are headers at most.
fn read(socket: BorrowedFd<'_>, headers: &mut [MaybeUninit<libc::mmsghdr>]) -> io::Result<usize> {
    let (at, count) = (headers.as_mut_ptr().cast(), headers.len() as libc::c_uint);
    loop {
        // SAFETY: the descriptor is borrowed and so open. Each header names a name, a buffer and a
        // control buffer that live until this returns, with their lengths.
        let read =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), at, count, 0, std::ptr::null_mut()) };
        if let Ok(read) = usize::try_from(read) {
            return Ok(read);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What the kernel has said of a read.
fn meta_of(
    header: &libc::mmsghdr,
    name: &MaybeUninit<libc::sockaddr_storage>,
) -> io::Result<RecvMeta> {
    let mut meta = RecvMeta::default();
    (meta.len, meta.stride) = (header.msg_len as usize, header.msg_len as usize);
    meta.addr = address(name, header.msg_hdr.msg_namelen)?;
    // SAFETY: the kernel has filled the control buffer as far as the header says.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&header.msg_hdr) };
    // SAFETY: a pointer that is not null points to a whole control header in that buffer.
    while let Some(control) = unsafe { next.as_ref() } {
        take(control, &mut meta);
        // SAFETY: `next` points into the control buffer of this header.
        next = unsafe { libc::CMSG_NXTHDR(&header.msg_hdr, next) };
    }
    Ok(meta)
}

/// Takes one word of the kernel.
fn take(control: &libc::cmsghdr, meta: &mut RecvMeta) {
    let bits = |tos: u8| EcnCodepoint::from_bits(tos);
    match (control.cmsg_level, control.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            meta.ecn = said::<u8>(control).and_then(bits);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            meta.ecn = said::<libc::c_int>(control).and_then(|class| bits(class as u8));
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let to = said::<libc::in_pktinfo>(control);
            let octets = to.map(|to| to.ipi_addr.s_addr.to_ne_bytes());
            meta.dst_ip = octets.map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let to = said::<libc::in6_pktinfo>(control);
            meta.dst_ip = to.map(|to| IpAddr::V6(Ipv6Addr::from(to.ipi6_addr.s6_addr)));
        }
        (libc::SOL_UDP, libc::UDP_GRO) => {
            let length = said::<libc::c_int>(control).and_then(|len| usize::try_from(len).ok());
            meta.stride = length.unwrap_or(meta.len);
        }
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
            meta.timestamp = said::<libc::timespec>(control).map(|at| {
                let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
                Duration::new(seconds, u32::try_from(at.tv_nsec).unwrap_or(0))
            });
        }
        _ => {}
    }
}

/// What stands behind a control header, if it is as long as this type.
fn said<T: Plain>(control: &libc::cmsghdr) -> Option<T> {
    // SAFETY: pure arithmetic.
    let whole = unsafe { libc::CMSG_LEN(size_of::<T>() as libc::c_uint) } as usize;
    if control.cmsg_len < whole {
        return None;
    }
    // SAFETY: the kernel has written as many bytes behind the header as its length says, which is
    // enough for a `T`, and every pattern of bits is one.
    Some(unsafe { libc::CMSG_DATA(control).cast::<T>().read_unaligned() })
}

/// A type of which every pattern of bits is a value.
trait Plain: Copy {}

impl Plain for u8 {}
impl Plain for libc::c_int {}
impl Plain for libc::in_pktinfo {}
impl Plain for libc::in6_pktinfo {}
impl Plain for libc::timespec {}

/// The sender's address.
fn address(
    name: &MaybeUninit<libc::sockaddr_storage>,
    len: libc::socklen_t,
) -> io::Result<SocketAddr> {
    let len = len as usize;
    // SAFETY: the kernel writes the family with any name; of no name this is not read.
    let family = (len >= size_of::<libc::sa_family_t>())
        .then(|| unsafe { (&raw const (*name.as_ptr()).ss_family).read() });
    match family.map(libc::c_int::from) {
        Some(libc::AF_INET) if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the kernel has written a whole address of this family.
            let name = unsafe { name.as_ptr().cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(name.sin_port))))
        }
        Some(libc::AF_INET6) if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the kernel has written a whole address of this family.
            let name = unsafe { name.as_ptr().cast::<libc::sockaddr_in6>().read() };
            let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), name.sin6_port);
            let (flow, scope) = (name.sin6_flowinfo, name.sin6_scope_id);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(port), flow, scope)))
        }
        Some(_) | None => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}
