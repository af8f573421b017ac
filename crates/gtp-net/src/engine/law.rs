//! Who decides a session's rate, in the words of those who ask for it.
//!
//! By two laws the hosts at both ends agree on a rate. The others leave it to one end, as the
//! protocols do that the papers compare with; they move the same units over the same path, checked
//! and sealed alike. The laws themselves are elsewhere: here a name becomes what the core runs.

use gtp_alloc::Rate;
use gtp_alloc::led::SessionLaw;
use gtp_laws::SourceLaw;
use gtp_laws::lambdastream::{Listener, Trains};
use gtp_laws::rbudp::Fixed;
use gtp_laws::sabul::Sabul;
use gtp_laws::tsunami::Tsunami;
use gtp_proto::Law as CoreLaw;

/// How a session's rate is decided. Rates count bits on links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Committed grants of both ends.
    Grant,
    /// The thesis's end-node law, at both ends.
    EndNode {
        /// Step towards the target rate, in (0, 1).
        alpha: f64,
        /// Smallest step, as a fraction of the largest, in (0, 1).
        beta: f64,
    },
    /// GTP 2004: the sink's host alone, from its capacity and what it loses.
    Gtp2004,
    /// RBUDP: this rate, whatever is lost.
    Rbudp(Rate),
    /// SABUL's equations 1 to 5 at the source, which begins at this rate.
    Sabul(Rate),
    /// Tsunami at the source, at most at this rate.
    Tsunami(Rate),
    /// LambdaStream at the sink of a stream.
    LambdaStream {
        /// The link's rate.
        link: Rate,
        /// The rate that it begins at.
        first: Rate,
    },
}

/// A law by which one end decides alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// GTP 2004.
    Gtp2004,
    /// RBUDP.
    Rbudp,
    /// SABUL.
    Sabul,
    /// Tsunami.
    Tsunami,
    /// LambdaStream, for streams alone.
    LambdaStream,
}

impl Alone {
    /// All of them.
    pub const ALL: [Alone; 5] =
        [Alone::Gtp2004, Alone::Rbudp, Alone::Sabul, Alone::Tsunami, Alone::LambdaStream];

    /// Its name, as in options.
    pub const fn name(self) -> &'static str {
        match self {
            Alone::Gtp2004 => "gtp2004",
            Alone::Rbudp => "rbudp",
            Alone::Sabul => "sabul",
            Alone::Tsunami => "tsunami",
            Alone::LambdaStream => "lambdastream",
        }
    }
}

impl Law {
    /// Which law of one end it is, if it is one.
    pub fn alone(self) -> Option<Alone> {
        match self {
            Law::Grant | Law::EndNode { .. } => None,
            Law::Gtp2004 => Some(Alone::Gtp2004),
            Law::Rbudp(_) => Some(Alone::Rbudp),
            Law::Sabul(_) => Some(Alone::Sabul),
            Law::Tsunami(_) => Some(Alone::Tsunami),
            Law::LambdaStream { .. } => Some(Alone::LambdaStream),
        }
    }

    /// What the core runs.
    pub(super) fn core(self) -> CoreLaw {
        match self {
            Law::Grant => CoreLaw::Grant,
            Law::EndNode { alpha, beta } => CoreLaw::EndNode { alpha, beta }.believed(),
            Law::Gtp2004 => CoreLaw::SinkAlone,
            Law::Rbudp(_) | Law::Sabul(_) | Law::Tsunami(_) => CoreLaw::SourceAlone,
            Law::LambdaStream { .. } => CoreLaw::SessionAlone,
        }
    }

    /// What a source decides by that decides alone, at an interface of this rate.
    pub(super) fn at_source(self, interface: Rate) -> Option<Box<dyn SourceLaw>> {
        match self {
            Law::Grant | Law::EndNode { .. } | Law::Gtp2004 => None,
            Law::Rbudp(rate) => Some(Box::new(Fixed(rate))),
            Law::Sabul(first) => Some(Box::new(Sabul::new(first, interface))),
            Law::Tsunami(target) => Some(Box::new(Tsunami::new(target))),
            Law::LambdaStream { link, .. } => Some(Box::new(Trains::new(link))),
        }
    }

    /// What the sink of a stream decides by that decides alone.
    pub(super) fn at_sink(self) -> Option<Box<dyn SessionLaw>> {
        match self {
            Law::LambdaStream { link, first } => Some(Box::new(Listener::new(link, first))),
            Law::Grant
            | Law::EndNode { .. }
            | Law::Gtp2004
            | Law::Rbudp(_)
            | Law::Sabul(_)
            | Law::Tsunami(_) => None,
        }
    }

    /// The rate at which a session begins that does not ask the path first, when its sink grants
    /// `granted`: so much is wanted from the start.
    pub(super) fn first_rate(self, granted: Rate) -> Rate {
        match self {
            Law::Grant | Law::EndNode { .. } => Rate::ZERO,
            Law::Gtp2004 | Law::LambdaStream { .. } => granted,
            Law::Rbudp(rate) | Law::Sabul(rate) | Law::Tsunami(rate) => rate.min(granted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_end_node_law_are_not_taken_at_a_peers_word() {
        let hostile = Law::EndNode { alpha: 1.0, beta: 1e-12 };
        assert_eq!(hostile.core(), CoreLaw::EndNode { alpha: 0.5, beta: 0.01 });
    }

    #[test]
    fn a_source_has_a_law_of_its_own_where_it_decides_alone_and_only_there() {
        let rate = Rate::from_mbps(100);
        let laws = [
            Law::Grant,
            Law::EndNode { alpha: 0.1, beta: 0.2 },
            Law::Gtp2004,
            Law::Rbudp(rate),
            Law::Sabul(rate),
            Law::Tsunami(rate),
            Law::LambdaStream { link: rate, first: rate },
        ];
        for law in laws {
            let own = law.at_source(Rate::UNLIMITED);
            let paces = matches!(law.core(), CoreLaw::SourceAlone | CoreLaw::SessionAlone);
            assert_eq!(own.is_some(), paces, "{law:?}");
            assert_eq!(law.at_sink().is_some(), law.core() == CoreLaw::SessionAlone, "{law:?}");
            assert_eq!(law.alone().is_some(), law.core().is_alone(), "{law:?}");
        }
    }
}
