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

/// The core's name of a control law that travelled, with steps as far as a peer is believed.
pub(crate) fn core_law(law: messages::Law) -> Law {
    match law {
        messages::Law::Grant => Law::Grant,
        messages::Law::EndNode { alpha, beta } => Law::EndNode { alpha, beta }.believed(),
    }
}

/// The wire's name of a control law.
pub(crate) fn wire_law(law: Law) -> messages::Law {
    match law {
        Law::Grant => messages::Law::Grant,
        Law::EndNode { alpha, beta } => messages::Law::EndNode { alpha, beta },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_end_node_law_are_not_taken_at_a_peers_word() {
        let hostile = messages::Law::EndNode { alpha: 1.0, beta: 1e-12 };
        assert_eq!(core_law(hostile), Law::EndNode { alpha: 0.5, beta: 0.01 });
    }
}
