//! AECP, Huang et al., JPDC 2010: rates and routers' pre-allocation factors evolve in turn, each
//! after the logistic model.
//!
//! | rule | paper | where |
//! |---|---|---|
//! | a link's factor grows while the link has room, queue included | eq. 2, 49 | [`Queue`] |
//! | a packet carries the least factor of its path in 3 bytes | eq. 4, 5.1 | [`Header`] |
//! | a source's rate follows the factor, in the logarithm | eq. 3, 48 | [`Law`] |
//! | both in continuous time, with delays and any network | eq. 6 | [`fluid`] |
//! | equilibrium, theorems 1 to 3, the choice of gains | 4 | [`theory`] |
//!
//! The one idea: a router offers every flow the same rate and corrects the offer by what comes of
//! it, so it needs neither the number of flows nor their round-trip times. Rates and factors are
//! in packets per second, as in the paper. A router keeps no state per connection.

mod factor;
pub mod fluid;
mod law;
mod queue;
pub mod theory;

pub use factor::{Factor, HEADER_LEN, Header, HeaderTooShort};
pub use law::{Law, next_rate};
pub use queue::{Config, Queue, next_factor};

/// The gains of both ends of the loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// How fast a source follows the factor, per second.
    pub alpha: f64,
    /// How fast a factor follows the room on its link, per second.
    pub beta: f64,
    /// In what time, in seconds, a queue that is not as wanted is to be mended.
    pub mend: f64,
    /// The queue that is wanted, packets.
    pub queue: f64,
}

impl Gains {
    /// The paper's choice: `alpha` 2 per second by trial, `beta = alpha/2` and `T = 4/alpha` by
    /// eq. 43, `q0` 100 packets (5).
    pub const PAPER: Gains = Gains::of_alpha(2.0);

    /// The gains that belong to an `alpha` by eq. 43.
    #[must_use]
    pub const fn of_alpha(alpha: f64) -> Gains {
        Gains { alpha, beta: alpha / 2.0, mend: 4.0 / alpha, queue: 100.0 }
    }
}
