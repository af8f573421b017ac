//! RBUDP's law: the rate that its user gives, and nothing else.
//!
//! Source: He, Leigh, Yu and DeFanti, Cluster 2002, as GTP 2004 (5.3.1), SABUL (I) and
//! LambdaStream (1) describe it. It knows nothing of the network, and no loss changes it.

use gtp_alloc::{Bytes, Rate, Time};

use crate::{Counts, SourceLaw};

/// The rate that was typed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fixed(
    /// Bits on links a second.
    pub Rate,
);

impl SourceLaw for Fixed {
    fn handle_counts(&mut self, _now: Time, _counts: &Counts, _packet: Bytes) {}

    fn rate(&self, _packet: Bytes) -> Rate {
        self.0
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_loss_changes_the_rate() {
        let mut law = Fixed(Rate::from_mbps(300));
        law.handle_counts(Time::ZERO, &Counts { received: 1, lost: 99 }, Bytes(1_500));
        assert_eq!(law.rate(Bytes(1_500)), Rate::from_mbps(300));
    }
}
