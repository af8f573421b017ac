//! Why a transfer failed, in words and as one of the kinds that a script can tell apart.
//!
//! Whatever goes wrong below (control channel, engine, storage) becomes a [`Failure`] here, once;
//! above it only the kind is looked at, and its exit code.

use std::{fmt, io};

use gtp_store::{SinkError, SourceError};
use gtp_sys::descriptors::are_used_up;

use crate::control::ControlError;
use crate::identity::IdentityError;
use crate::identity::place::is_denied;
use crate::messages::{self, Reason};
use crate::trust::TrustError;

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// None of the others.
    Other,
    /// The request makes no sense.
    Usage,
    /// Nothing is at the source.
    Missing,
    /// The destination cannot be written, or something may not be read or written.
    Destination,
    /// The same may work later.
    Temporary,
    /// Nobody answers at the address; that may be otherwise later.
    Unreachable,
    /// Content is not what it is said to be, or sources disagree.
    Integrity,
    /// Keys or versions do not fit.
    Authentication,
    /// It is none of the hours in which the key may come; the words say when they begin. A session
    /// that ends with its hours ends with [`FailureKind::Authentication`] for its client.
    OutsideHours,
    /// It would go beyond a quota. Servers say so of their sessions; the client has
    /// [`FailureKind::Destination`].
    Quota,
    /// The key may no longer do this. Servers say so of their sessions; the client has
    /// [`FailureKind::Authentication`].
    Revoked,
    /// The time that the user allowed is over.
    TimeLimit,
    /// No datagram gets through.
    NoUdpPath,
    /// A part was done.
    Partial,
    /// The user stopped it.
    Interrupted,
}

impl FailureKind {
    /// All of them.
    pub const ALL: [FailureKind; 15] = [
        FailureKind::Other,
        FailureKind::Usage,
        FailureKind::Missing,
        FailureKind::Destination,
        FailureKind::Temporary,
        FailureKind::Unreachable,
        FailureKind::Integrity,
        FailureKind::Authentication,
        FailureKind::OutsideHours,
        FailureKind::Quota,
        FailureKind::Revoked,
        FailureKind::TimeLimit,
        FailureKind::NoUdpPath,
        FailureKind::Partial,
        FailureKind::Interrupted,
    ];

    /// The exit code of a command that ends so.
    pub const fn exit_code(self) -> u8 {
        match self {
            FailureKind::Other => 1,
            FailureKind::Usage => 2,
            FailureKind::Missing => 3,
            FailureKind::Destination | FailureKind::Quota => 4,
            FailureKind::Temporary | FailureKind::Unreachable => 5,
            FailureKind::Integrity => 6,
            FailureKind::Authentication | FailureKind::OutsideHours | FailureKind::Revoked => 7,
            FailureKind::TimeLimit => 10,
            FailureKind::NoUdpPath => 11,
            FailureKind::Partial => 12,
            FailureKind::Interrupted => 130,
        }
    }

    /// The word for it in machine output.
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureKind::Other => "other",
            FailureKind::Usage => "usage",
            FailureKind::Missing => "missing",
            FailureKind::Destination => "destination",
            FailureKind::Temporary => "temporary",
            FailureKind::Unreachable => "unreachable",
            FailureKind::Integrity => "integrity",
            FailureKind::Authentication => "authentication",
            FailureKind::OutsideHours => "outside_hours",
            FailureKind::Quota => "quota",
            FailureKind::Revoked => "revoked",
            FailureKind::TimeLimit => "time_limit",
            FailureKind::NoUdpPath => "no_udp_path",
            FailureKind::Partial => "partial",
            FailureKind::Interrupted => "interrupted",
        }
    }

    /// What it is when a list of keys cannot be used. What the system says of a file says nothing
    /// of keys.
    pub(crate) fn of_trust(error: &TrustError) -> FailureKind {
        match error {
            TrustError::File { source, .. } => FailureKind::of_key_file(source),
            TrustError::Exposed(_) | TrustError::Line { .. } | TrustError::Refused(_) => {
                FailureKind::Authentication
            }
        }
    }

    fn of_key_file(error: &io::Error) -> FailureKind {
        match error {
            error if are_used_up(error) => FailureKind::Temporary,
            error if is_denied(error) => FailureKind::Destination,
            _ => FailureKind::Other,
        }
    }

    fn of_reason(reason: Reason) -> FailureKind {
        match reason {
            Reason::Missing => FailureKind::Missing,
            Reason::Permission | Reason::Destination => FailureKind::Destination,
            Reason::Busy | Reason::Stopping | Reason::Changed => FailureKind::Temporary,
            Reason::Integrity => FailureKind::Integrity,
            Reason::NotAuthorised | Reason::Version => FailureKind::Authentication,
            Reason::TimedOut => FailureKind::Temporary,
            Reason::NoUdpPath => FailureKind::NoUdpPath,
            Reason::Other | Reason::Unreadable | Reason::Limit | Reason::Unexpected => {
                FailureKind::Other
            }
        }
    }
}

/// Why a transfer failed. Its text is harmless to a terminal, whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The same for people, in one line or a few.
    pub text: String,
}

impl Failure {
    /// A failure in our own words.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure { kind, text: text.into() }
    }

    /// The same failure with what it is about in front.
    pub fn about(self, what: impl fmt::Display) -> Failure {
        Failure { kind: self.kind, text: format!("{what}: {}", self.text) }
    }

    /// The exit code of a command that ends for this failure.
    pub const fn exit_code(&self) -> u8 {
        self.kind.exit_code()
    }

    /// Whether the same may work a little later, without anybody doing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self.kind, FailureKind::Temporary | FailureKind::Unreachable)
    }

    /// What a fault that the peer sent means here.
    pub(crate) fn of_fault(fault: &messages::Fault) -> Failure {
        Failure::new(FailureKind::of_reason(fault.reason), fault.text.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        let kind = match &error {
            ControlError::Unreachable { .. } => FailureKind::Unreachable,
            ControlError::NoSuchHost { .. } => FailureKind::Usage,
            ControlError::TimedOut(_) | ControlError::Closed | ControlError::Lost(_) => {
                FailureKind::Temporary
            }
            ControlError::NotGtp(_)
            | ControlError::Version(_)
            | ControlError::Host(_)
            | ControlError::NotProved(_)
            | ControlError::KeyRefused
            | ControlError::NotAuthorised(_) => FailureKind::Authentication,
            ControlError::OutsideHours(_) => FailureKind::OutsideHours,
            ControlError::Trust(error) => FailureKind::of_trust(error),
            ControlError::Refused { reason, .. } => FailureKind::of_reason(*reason),
            ControlError::Malformed(_) | ControlError::Unexpected(_) => FailureKind::Other,
        };
        let text = match &error {
            ControlError::Lost(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                "the peer is gone: its connection ended without a farewell".into()
            }
            other => other.to_string(),
        };
        Failure::new(kind, text)
    }
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Failure {
        Failure::new(FailureKind::of_trust(&error), error.to_string())
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Failure {
        let kind = match &error {
            IdentityError::NoConfigDir(_) => FailureKind::Other,
            IdentityError::NotMade { source, .. } | IdentityError::File { source, .. } => {
                FailureKind::of_key_file(source)
            }
            IdentityError::OpenToOthers { .. }
            | IdentityError::Exposed(_)
            | IdentityError::NotAKey { .. } => FailureKind::Authentication,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Failure {
        let kind = match &error {
            SinkError::Destination { fault: gtp_store::Fault::InUse, .. } => FailureKind::Temporary,
            SinkError::Destination { source: Some(e), .. } if are_used_up(e) => {
                FailureKind::Temporary
            }
            SinkError::Destination { .. } | SinkError::Unsuitable(_) => FailureKind::Destination,
            SinkError::RootMismatch { .. } => FailureKind::Integrity,
            SinkError::Stopped => FailureKind::Interrupted,
            SinkError::Incomplete { .. } | SinkError::NotWanted { .. } => FailureKind::Other,
        };
        Failure::new(kind, error.to_string())
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        let kind = match &error {
            SourceError::Missing { .. } | SourceError::Link { .. } => FailureKind::Missing,
            SourceError::Denied { .. } => FailureKind::Destination,
            SourceError::Grew { .. } => FailureKind::Partial,
            SourceError::Changed { .. } | SourceError::NoRoom => FailureKind::Temporary,
            SourceError::Unwanted => FailureKind::Interrupted,
            SourceError::Read { source, .. } if are_used_up(source) => FailureKind::Temporary,
            SourceError::Special { .. }
            | SourceError::NoSuchBlock { .. }
            | SourceError::Listing(_)
            | SourceError::Read { .. } => FailureKind::Other,
        };
        Failure::new(kind, error.to_string())
    }
}

/// What a peer is told about a source that fails here.
pub(crate) fn reason_of_source(error: &SourceError) -> Reason {
    match error {
        SourceError::Missing { .. } | SourceError::Link { .. } => Reason::Missing,
        SourceError::Denied { .. } => Reason::Permission,
        SourceError::Changed { .. } => Reason::Changed,
        SourceError::Grew { .. } => Reason::Other,
        SourceError::NoSuchBlock { .. } => Reason::Unexpected,
        SourceError::Listing(_) => Reason::Limit,
        SourceError::NoRoom => Reason::Busy,
        SourceError::Read { source, .. } if are_used_up(source) => Reason::Busy,
        SourceError::Special { .. } | SourceError::Read { .. } | SourceError::Unwanted => {
            Reason::Unreadable
        }
    }
}

/// What a peer is told about a destination that fails here.
pub(crate) fn reason_of_sink(error: &SinkError) -> Reason {
    match error {
        SinkError::Destination { source: Some(e), .. } if are_used_up(e) => Reason::Busy,
        SinkError::Destination { fault, .. } => match fault {
            gtp_store::Fault::InUse => Reason::Busy,
            gtp_store::Fault::Denied => Reason::Permission,
            gtp_store::Fault::Full
            | gtp_store::Fault::ReadOnly
            | gtp_store::Fault::Missing
            | gtp_store::Fault::Gone
            | gtp_store::Fault::NotADirectory
            | gtp_store::Fault::IsADirectory
            | gtp_store::Fault::Link
            | gtp_store::Fault::Special
            | gtp_store::Fault::Foreign
            | gtp_store::Fault::Twin
            | gtp_store::Fault::Unread
            | gtp_store::Fault::TooLarge
            | gtp_store::Fault::NameTooLong
            | gtp_store::Fault::Unnameable
            | gtp_store::Fault::Other => Reason::Destination,
        },
        SinkError::RootMismatch { .. } => Reason::Integrity,
        SinkError::Unsuitable(_) => Reason::Destination,
        SinkError::Stopped => Reason::Stopping,
        SinkError::Incomplete { .. } | SinkError::NotWanted { .. } => Reason::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_descriptors_is_temporary_at_both_ends_and_another_failure_is_not() {
        let read =
            |errno: rustix::io::Errno| SourceError::Read { path: "a".into(), source: errno.into() };
        for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE] {
            assert_eq!(reason_of_source(&read(errno)), Reason::Busy);
            let failure = Failure::from(read(errno));
            assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5));
            let fault = messages::Fault {
                reason: Reason::Busy,
                text: messages::PeerText::new("x"),
                path: None,
            };
            assert!(Failure::of_fault(&fault).is_temporary());
        }
        assert_eq!(reason_of_source(&read(rustix::io::Errno::IO)), Reason::Unreadable);
        assert_eq!(Failure::from(read(rustix::io::Errno::IO)).kind, FailureKind::Other);
    }
}
