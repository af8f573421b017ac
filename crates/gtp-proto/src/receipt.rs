//! Which packet numbers arrived.
//!
//! The receiver of any datagram is protected against replays here. Sinks make receipts of what
//! arrived (`builder`), and sources verify them (`verifier`).

mod builder;
mod verifier;

use core::ops::Range;

use gtp_ranges::RangeSet;

use crate::limits::{GAPS_REMEMBERED, PN_AHEAD};
use crate::session::Discard;

pub(crate) use builder::{Counted, Delays, Finished, ReceiptBuilder};
pub(crate) use verifier::{Proven, ReceiptVerifier};

/// Packet numbers seen from one peer. Remembers gaps rather than a window, so that a packet that
/// is two round trips late at any rate is still told from a replay.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// One above the largest packet number seen.
    next: u64,
    /// Numbers below `next` that have not been seen.
    gaps: RangeSet,
    /// How often a packet may have left one gap more than there was.
    opened: u64,
}

impl Arrivals {
    /// Takes in `pn`, or says why it cannot be new.
    #[inline]
    pub fn accept(&mut self, pn: u64) -> Result<(), Discard> {
        if pn == self.next {
            self.next += 1;
            return Ok(());
        }
        if pn > self.next {
            if pn - self.next > PN_AHEAD {
                return Err(Discard::TooFarAhead);
            }
            if self.gaps.insert(self.next..pn) > 0 {
                self.opened += 1;
            }
            self.next = pn + 1;
            self.forget_oldest();
            return Ok(());
        }
        if !self.gaps.remove_one(pn) {
            return Err(Discard::Replayed);
        }
        self.opened += 1;
        self.forget_oldest();
        Ok(())
    }

    /// One above the largest packet number seen.
    pub fn upcoming(&self) -> u64 {
        self.next
    }

    /// The numbers of `range` that have not been seen.
    pub fn missing(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.gaps.within(range)
    }

    fn forget_oldest(&mut self) {
        while self.gaps.pieces() > GAPS_REMEMBERED {
            let Some(oldest) = self.gaps.iter().next() else { return };
            self.gaps.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests;
