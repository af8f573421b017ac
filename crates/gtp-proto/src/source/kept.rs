//! What keeps a session to what its path carries.
//!
//! The session's world says so, because it knows what carries the datagrams. This module must not
//! know how a path is measured.

use core::num::NonZeroU8;

/// How a session uses its path, as both ends have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// It keeps to what the path carries. Where it competes with others for a queue, it takes what
    /// so many TCP flows would.
    Bounded(NonZeroU8),
    /// After the ramp it sends what both ends allow, whatever the path shows. Use it only on a path
    /// of one's own.
    Unbounded,
}

impl PathUse {
    /// The most TCP flows that a session may stand for.
    pub const FLOWS_MAX: u8 = 8;

    /// The path bounds the session, which stands for one flow.
    pub const ONE_FLOW: PathUse = PathUse::Bounded(NonZeroU8::MIN);

    /// What both ends agree on: the more cautious of the two.
    pub fn agreed(self, other: PathUse) -> PathUse {
        match (self, other) {
            (PathUse::Unbounded, other) | (other, PathUse::Unbounded) => other,
            (PathUse::Bounded(one), PathUse::Bounded(two)) => PathUse::Bounded(one.min(two)),
        }
    }

    /// How it is written in a message: absent if the path bounds the session, which stands for one
    /// flow; 2 to 8 if it stands for so many; 0 if the path does not bound it.
    pub fn code(self) -> Option<u8> {
        match self {
            PathUse::Bounded(flows) => Some(flows.get()).filter(|flows| *flows > 1),
            PathUse::Unbounded => Some(0),
        }
    }

    /// What [`PathUse::code`] has written. A larger number counts as the most flows that there may
    /// be.
    pub fn of_code(code: Option<u8>) -> PathUse {
        match code.map(|flows| NonZeroU8::new(flows.min(PathUse::FLOWS_MAX))) {
            None => PathUse::ONE_FLOW,
            Some(Some(flows)) => PathUse::Bounded(flows),
            Some(None) => PathUse::Unbounded,
        }
    }

    /// What keeps a session to its path whose datagrams go by UDP.
    pub fn kept(self) -> Kept {
        match self {
            PathUse::Bounded(_) => Kept::ByPathBound,
            PathUse::Unbounded => Kept::ByNothing,
        }
    }

    /// The TCP flows that it stands for where it competes.
    pub(crate) fn flows(self) -> NonZeroU8 {
        match self {
            PathUse::Bounded(flows) => flows,
            PathUse::Unbounded => NonZeroU8::MIN,
        }
    }
}

impl Default for PathUse {
    fn default() -> PathUse {
        PathUse::ONE_FLOW
    }
}

/// What keeps a session to what its path carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// Its own path bound.
    #[default]
    ByPathBound,
    /// What carries its datagrams, which pushes back and has a congestion control of its own: see
    /// [`Supplied::NoRoom`](super::Supplied::NoRoom).
    ByCarrier,
    /// Nothing: after the ramp it sends what both ends allow, whatever the path shows. Only on a
    /// path that is its own is this harmless.
    ByNothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = PathUse> {
        (0..=PathUse::FLOWS_MAX).map(|code| PathUse::of_code(Some(code)))
    }

    #[test]
    fn what_both_ends_agree_on_is_never_bolder_than_either() {
        let boldness = |uses: PathUse| match uses {
            PathUse::Bounded(flows) => u8::from(flows),
            PathUse::Unbounded => u8::MAX,
        };
        for (one, two) in all().flat_map(|one| all().map(move |two| (one, two))) {
            let least = boldness(one).min(boldness(two));
            assert_eq!(boldness(one.agreed(two)), least, "{one:?} {two:?}");
        }
    }

    #[test]
    fn a_use_reads_back_and_a_number_that_is_too_large_counts_as_the_largest() {
        for uses in all() {
            assert_eq!(PathUse::of_code(uses.code()), uses);
        }
        assert_eq!(PathUse::of_code(Some(9)), PathUse::of_code(Some(PathUse::FLOWS_MAX)));
        assert_eq!(PathUse::of_code(None), PathUse::ONE_FLOW);
    }
}
