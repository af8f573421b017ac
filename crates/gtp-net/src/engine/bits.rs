//! ECN bits as the core and as sockets name them, and what the log says of them.
//!
//! The core must not know sockets, and sockets must not know the core, so each names the bits in
//! its own way. This module turns one into the other. It decides nothing.

use gtp_proto::Codepoint;
use gtp_proto::ecn::EcnState;
use gtp_sys::udp::EcnCodepoint;

/// The bits with which a datagram came.
pub(super) fn heard(bits: Option<EcnCodepoint>) -> Codepoint {
    match bits {
        None => Codepoint::NotEct,
        Some(EcnCodepoint::Ect0) => Codepoint::Ect0,
        Some(EcnCodepoint::Ect1) => Codepoint::Ect1,
        Some(EcnCodepoint::Ce) => Codepoint::Ce,
    }
}

/// The bits with which a datagram is to leave.
pub(super) fn said(bits: Codepoint) -> Option<EcnCodepoint> {
    match bits {
        Codepoint::NotEct => None,
        Codepoint::Ect0 => Some(EcnCodepoint::Ect0),
        Codepoint::Ect1 => Some(EcnCodepoint::Ect1),
        Codepoint::Ce => Some(EcnCodepoint::Ce),
    }
}

/// Writes to the log whether a session uses ECN, if that is not what was `told` last.
pub(super) fn tell(session: &str, told: &mut EcnState, state: EcnState) {
    if std::mem::replace(told, state) == state {
        return;
    }
    match state {
        EcnState::Failed(why) => {
            tracing::debug!(session, why = why.as_str(), "the path cannot be used with ECN");
        }
        EcnState::Off | EcnState::Testing | EcnState::On => {
            tracing::debug!(session, ecn = state.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        use Codepoint::{Ce, Ect0, Ect1, NotEct};
        for bits in [NotEct, Ect0, Ect1, Ce] {
            assert_eq!(heard(said(bits)), bits);
        }
    }
}
