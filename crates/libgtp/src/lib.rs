//! Sockets over GTP for C programs: the calls of `include/gtp.h`.
//!
//! A socket that a program gets is one end of a kernel socket pair; the other end is carried to
//! and from a GTP stream by this library's threads. So blocking, polling, timeouts and
//! half-closing are the kernel's own, and a descriptor can stand in any `poll`. There are three
//! threads, however many sockets: the engine, the control channels, and the look-out for the
//! machine's daemon.
//!
//! `border` is the only module with `unsafe`: it turns pointers into values and panics into
//! errors, and knows nothing else. A forked child has no threads and no keys: its sessions are
//! dead.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod border;
mod fault;
mod library;
mod pump;
mod socket;
