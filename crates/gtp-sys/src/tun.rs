//! TUN devices: whole IP packets in and out of a network namespace.
//!
//! What the namespace's kernel routes to the device is read here, and what is written here arrives
//! there as if from a wire. The device lives as long as its descriptor. It offers no offloads, so
//! that the kernel cuts everything into packets of the device's size before they get here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An open TUN device.
#[derive(Debug)]
pub struct Tun {
    device: OwnedFd,
}

impl Tun {
    /// Makes a TUN device of this name in a network namespace, given by its file (such as
    /// `/run/netns/a`), or in the caller's own. It has no address and is down.
    ///
    /// # Errors
    /// If the name is too long or taken, the namespace cannot be entered, or the privilege
    /// (`CAP_NET_ADMIN`, and `CAP_SYS_ADMIN` for another namespace) is missing.
    pub fn open(name: &str, namespace: Option<&Path>) -> io::Result<Tun> {
        let Some(namespace) = namespace else { return open_here(name) };
        let namespace = File::open(namespace)?;
        // A namespace is entered by a thread for good: so it is one that ends afterwards.
        let opened = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), kind)?;
                open_here(name)
            });
            inside.join()
        });
        opened.unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    }

    /// Reads one packet; returns its length, or `None` if none waits.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.device, packet) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// If the kernel does not take it: the device is down, or the packet is none.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.device, packet)?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// The kernel's `struct ifreq` as this request uses it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_SIZE],
    flags: u16,
    rest: [u8; 22],
}

fn open_here(name: &str) -> io::Result<Tun> {
    if name.is_empty() || name.len() >= NAME_SIZE || name.bytes().any(|b| b == 0 || b == b'/') {
        let message = format!("{name:?} is not an interface's name of 1 to 15 bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let mut request =
        InterfaceRequest { name: [0; NAME_SIZE], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq`, of which `InterfaceRequest` has size
    // and layout (asserted below); it lives on this stack until the call has returned, and the
    // kernel keeps no pointer to it.
    unsafe { ioctl(&device, Updater::<TUNSETIFF, InterfaceRequest>::new(&mut request))? };
    Ok(Tun { device })
}

/// The kernel's `IFNAMSIZ`.
const NAME_SIZE: usize = 16;
/// `TUNSETIFF` of linux/if_tun.h.
const TUNSETIFF: Opcode = opcode::write::<i32>(b'T', 202);
/// A device for IP packets.
const IFF_TUN: u16 = 0x0001;
/// No header before each packet.
const IFF_NO_PI: u16 = 0x1000;
/// The size of the kernel's `struct ifreq` on 64-bit machines; larger than on 32-bit ones.
const _: () = assert!(size_of::<InterfaceRequest>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_would_cut_are_refused() {
        for name in ["", "sixteen-bytes-xx", "a/b", "a\0b"] {
            let error = open_here(name).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
