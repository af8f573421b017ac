//! What can go wrong on the control channel, in the words in which the user should hear it.
//!
//! Each kind knows its exit code and whether trying again may help, so that nobody has to read
//! words to decide. It knows nothing of how the channel works.

use gtp_sys::descriptors::are_used_up;
use rustls::{AlertDescription, Error as TlsError};
use tokio::io;

use super::reach::Obstacle;
use crate::identity::place::is_denied;
use crate::messages::{Malformed, Message, PeerText, Reason, Refused};
use crate::trust::{HostAddress, HostRefused, TrustError};

/// Why a control channel was not made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// None of the host's addresses answers, or they cannot be looked up now.
    #[error("cannot reach {host}: {why}")]
    Unreachable {
        /// The server.
        host: HostAddress,
        /// What is in the way.
        why: Obstacle,
    },
    /// The address names no host; another try would not change that.
    #[error("cannot reach {host}: {why}")]
    NoSuchHost {
        /// The server.
        host: HostAddress,
        /// What is wrong with the name.
        why: String,
    },
    /// Something took longer than it may.
    #[error("timed out waiting for {0}")]
    TimedOut(&'static str),
    /// What answers is not GTP.
    #[error("the peer does not speak GTP: {0}")]
    NotGtp(String),
    /// It may be GTP, but not of a version that both know.
    #[error("no common version: {0}")]
    Version(String),
    /// The server's key is not trusted: unknown, changed, or not the one given.
    #[error(transparent)]
    Host(Box<HostRefused>),
    /// The list of known hosts cannot be used.
    #[error(transparent)]
    Trust(Box<TrustError>),
    /// The peer could not prove to hold its key.
    #[error("the peer does not hold the key that it shows: {0}")]
    NotProved(String),
    /// The other end does not trust this host's key.
    #[error("the peer does not accept this host's key")]
    KeyRefused,
    /// The server does not let this client do that.
    #[error("not authorised: {0}")]
    NotAuthorised(PeerText),
    /// The server lets this client do that at other hours.
    #[error("not authorised: {0}")]
    OutsideHours(PeerText),
    /// The server refuses for another reason.
    #[error("refused by the server: {text}")]
    Refused {
        /// The kind of reason.
        reason: Reason,
        /// The server's words.
        text: PeerText,
    },
    /// Bytes that are no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A message that must not come now, or that breaks what was agreed.
    #[error("unexpected: {0}")]
    Unexpected(String),
    /// The peer has ended the channel in the regular way.
    #[error("the peer has closed the control channel")]
    Closed,
    /// The connection broke.
    #[error("the control channel broke: {0}")]
    Lost(io::Error),
}

impl ControlError {
    /// The exit code of a command that ends for this reason; see [`Reason::exit_code`].
    pub fn exit_code(&self) -> u8 {
        match self {
            ControlError::Unreachable { .. }
            | ControlError::TimedOut(_)
            | ControlError::Closed
            | ControlError::Lost(_) => 5,
            ControlError::NotGtp(_)
            | ControlError::Version(_)
            | ControlError::Host(_)
            | ControlError::NotProved(_)
            | ControlError::KeyRefused
            | ControlError::NotAuthorised(_)
            | ControlError::OutsideHours(_) => 7,
            ControlError::Trust(error) => match &**error {
                TrustError::File { source, .. } if are_used_up(source) => 5,
                TrustError::File { source, .. } if is_denied(source) => 4,
                TrustError::File { .. } => 1,
                TrustError::Exposed(_) | TrustError::Line { .. } | TrustError::Refused(_) => 7,
            },
            ControlError::Refused { reason, .. } => reason.exit_code(),
            ControlError::NoSuchHost { .. } => 2,
            ControlError::Malformed(_) | ControlError::Unexpected(_) => 1,
        }
    }

    /// Whether the same may work a little later.
    pub fn is_temporary(&self) -> bool {
        self.exit_code() == 5
    }

    pub(super) fn unexpected(message: &Message) -> ControlError {
        ControlError::Unexpected(format!("message {}", message.name()))
    }

    pub(super) fn of_refusal(refused: Refused) -> ControlError {
        let Refused { reason, text, outside_hours } = refused;
        match reason {
            Reason::NotAuthorised if outside_hours == Some(true) => {
                ControlError::OutsideHours(text)
            }
            Reason::NotAuthorised => ControlError::NotAuthorised(text),
            Reason::Version => ControlError::Version(text.to_string()),
            Reason::Other
            | Reason::Missing
            | Reason::Permission
            | Reason::Destination
            | Reason::Busy
            | Reason::Stopping
            | Reason::Changed
            | Reason::Unreadable
            | Reason::Integrity
            | Reason::Limit
            | Reason::Unexpected
            | Reason::TimedOut
            | Reason::NoUdpPath => ControlError::Refused { reason, text },
        }
    }

    /// What a failed handshake means.
    pub(super) fn of_handshake(failure: io::Error) -> ControlError {
        let tls = failure.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match tls {
            None => ControlError::Lost(failure),
            Some(
                TlsError::NoApplicationProtocol
                | TlsError::AlertReceived(AlertDescription::NoApplicationProtocol),
            ) => ControlError::Version("one end speaks gtp/1, the other does not".into()),
            Some(TlsError::AlertReceived(AlertDescription::AccessDenied)) => {
                ControlError::KeyRefused
            }
            Some(error @ TlsError::InvalidCertificate(_)) => {
                ControlError::NotProved(error.to_string())
            }
            Some(error) => ControlError::NotGtp(error.to_string()),
        }
    }
}

impl From<HostRefused> for ControlError {
    fn from(refused: HostRefused) -> ControlError {
        ControlError::Host(Box::new(refused))
    }
}

impl From<TrustError> for ControlError {
    fn from(error: TrustError) -> ControlError {
        match error {
            TrustError::Refused(refused) => ControlError::Host(refused),
            other
            @ (TrustError::File { .. } | TrustError::Exposed(_) | TrustError::Line { .. }) => {
                ControlError::Trust(Box::new(other))
            }
        }
    }
}
