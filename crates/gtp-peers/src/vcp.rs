//! VCP, Xia, Subramanian, Stoica and Kalyanaraman, SIGCOMM 2005: two bits of load per packet.
//! AECP 2010 compares with it (figures 6, 7, 10, table 1). Constants from the authors' ns-2 code.
//!
//! | rule | where |
//! |---|---|
//! | every 200 ms a link's load is measured and put in one of three ranges | [`Queue`] |
//! | the same as the authors' ns-2 code does it | [`Queue::as_coded`] |
//! | a packet carries the highest range on its path | [`Load`] |
//! | low load: multiplicative increase; high: additive; over: decrease once, wait | [`Law`] |
//! | a round-trip time counts as long as it is: gains are scaled to one of 100 ms | [`Law`] |
//!
//! The one idea: far from full only efficiency matters, near it only fairness, and two bits tell
//! a sender in which of the two it is. A router keeps no state per connection.

use gtp_alloc::Span;

mod law;
mod queue;

pub use law::Law;
pub use queue::{Queue, TARGET};

/// Over what time routers measure load, and the time by which senders count: `t_rho`.
pub const MEASURED_OVER: Span = Span::from_millis(200);

/// The two bits, in the header's place for explicit congestion notification. Ordered by load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Load {
    /// Below 80% of the target: set by the sender.
    #[default]
    Low,
    /// Below the target.
    High,
    /// At the target or above it.
    Over,
}

impl Load {
    /// The range of a load factor, the share of the target that is used. What is not a number
    /// counts as too much.
    #[must_use]
    pub fn of(factor: f64) -> Load {
        if factor < 0.8 {
            Load::Low
        } else if factor < 1.0 {
            Load::High
        } else {
            Load::Over
        }
    }

    /// The two bits. Zero is kept for senders that do not take part.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Load::Low => 1,
            Load::High => 2,
            Load::Over => 3,
        }
    }

    /// What two bits say; `None` for zero and for anything wider.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Load> {
        match bits {
            1 => Some(Load::Low),
            2 => Some(Load::High),
            3 => Some(Load::Over),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eighty_and_a_hundred_per_cent_are_where_the_code_changes() {
        assert_eq!([0.0, 0.799].map(Load::of), [Load::Low; 2]);
        assert_eq!([0.8, 0.999].map(Load::of), [Load::High; 2]);
        assert_eq!([1.0, 7.0, f64::NAN].map(Load::of), [Load::Over; 3]);
    }

    #[test]
    fn bits_and_back() {
        for load in [Load::Low, Load::High, Load::Over] {
            assert_eq!(Load::from_bits(load.bits()), Some(load));
        }
        for bits in [0].into_iter().chain(4..=255) {
            assert_eq!(Load::from_bits(bits), None);
        }
    }
}
