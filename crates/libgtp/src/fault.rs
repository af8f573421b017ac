//! Failures as error numbers.
//!
//! A C program sees a number where others see words; the words of the last failure that has some
//! are kept for whoever asks. Which number stands for what is decided here alone.

use std::cell::RefCell;
use std::ffi::CString;
use std::io;

use gtp_stream::{Failure, FailureKind};

/// An error number, as in `errno.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

thread_local! {
    static REASON: RefCell<CString> = RefCell::default();
}

/// Keeps the words for the last failure of this thread, for `g_reason`.
pub fn keep_reason(text: &str) {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    REASON.with(|reason| *reason.borrow_mut() = text);
}

/// The words for the last failure of this thread; valid until its next one.
pub fn reason() -> *const std::ffi::c_char {
    REASON.with(|reason| reason.borrow().as_ptr())
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or_else(|| of_kind(error.kind())))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Errno {
        Errno(errno.raw_os_error())
    }
}

/// The number for an error of a stream.
pub fn of_kind(kind: io::ErrorKind) -> i32 {
    match kind {
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::HostUnreachable => libc::EHOSTUNREACH,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::ConnectionAborted => libc::ECONNABORTED,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        _ => libc::ECONNRESET,
    }
}

/// The number for a connection, or a listener, that did not come about.
pub fn of_failure(failure: &Failure) -> Errno {
    Errno(match failure.kind {
        FailureKind::NoUdpPath => libc::EHOSTUNREACH,
        FailureKind::Authentication | FailureKind::OutsideHours | FailureKind::Revoked => {
            libc::EACCES
        }
        FailureKind::Missing | FailureKind::Temporary | FailureKind::Unreachable => {
            libc::ECONNREFUSED
        }
        FailureKind::TimeLimit => libc::ETIMEDOUT,
        FailureKind::Usage => libc::EINVAL,
        FailureKind::Destination | FailureKind::Quota => libc::EACCES,
        FailureKind::Interrupted => libc::EINTR,
        FailureKind::Other | FailureKind::Integrity | FailureKind::Partial => libc::EPROTO,
    })
}
