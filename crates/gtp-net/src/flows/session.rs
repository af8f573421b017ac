//! From what the control channel agreed on to what the engine is asked for.
//!
//! The wire and the core have words of their own for the same things, because neither may know the
//! other. Here, and only here, they are translated.

use gtp_proto::Law;

use crate::control::DataSecrets;
use crate::crypto::Suite;
use crate::engine::SessionKeys;
use crate::messages;

/// Keys of a session, for this end.
pub(crate) fn keys(suite: Suite, secrets: DataSecrets) -> SessionKeys {
    SessionKeys { suite, seal: secrets.send, open: secrets.receive }
}

/// The core's name of a control law that travelled.
pub(crate) fn core_law(law: messages::Law) -> Law {
    match law {
        messages::Law::Grant => Law::Grant,
        messages::Law::EndNode { alpha, beta } => Law::EndNode { alpha, beta },
    }
}

/// The wire's name of a control law.
pub(crate) fn wire_law(law: Law) -> messages::Law {
    match law {
        Law::Grant => messages::Law::Grant,
        Law::EndNode { alpha, beta } => messages::Law::EndNode { alpha, beta },
    }
}
