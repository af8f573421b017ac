//! From what the control channel agreed on to what the engine is asked for.
//!
//! The wire and the core have words of their own for the same things, because neither may know the
//! other. Here, and only here, they are translated.

use gtp_alloc::Rate;

use crate::control::DataSecrets;
use crate::crypto::Suite;
use crate::engine::{Law, SessionKeys};
use crate::messages;

/// Keys of a session, for this end.
pub(crate) fn keys(suite: Suite, secrets: DataSecrets) -> SessionKeys {
    SessionKeys { suite, seal: secrets.send, open: secrets.receive }
}

/// The engine's name of a control law that travelled.
pub(crate) fn known_law(law: messages::Law) -> Law {
    match law {
        messages::Law::Grant => Law::Grant,
        messages::Law::EndNode { alpha, beta } => Law::EndNode { alpha, beta },
        messages::Law::Gtp2004 => Law::Gtp2004,
        messages::Law::Rbudp { rate } => Law::Rbudp(Rate::from_bps(rate)),
        messages::Law::Sabul { rate } => Law::Sabul(Rate::from_bps(rate)),
        messages::Law::Tsunami { rate } => Law::Tsunami(Rate::from_bps(rate)),
        messages::Law::LambdaStream { link, rate } => {
            Law::LambdaStream { link: Rate::from_bps(link), first: Rate::from_bps(rate) }
        }
    }
}

/// The wire's name of a control law.
pub(crate) fn wire_law(law: Law) -> messages::Law {
    match law {
        Law::Grant => messages::Law::Grant,
        Law::EndNode { alpha, beta } => messages::Law::EndNode { alpha, beta },
        Law::Gtp2004 => messages::Law::Gtp2004,
        Law::Rbudp(rate) => messages::Law::Rbudp { rate: rate.as_bps() },
        Law::Sabul(rate) => messages::Law::Sabul { rate: rate.as_bps() },
        Law::Tsunami(rate) => messages::Law::Tsunami { rate: rate.as_bps() },
        Law::LambdaStream { link, first } => {
            messages::Law::LambdaStream { link: link.as_bps(), rate: first.as_bps() }
        }
    }
}
