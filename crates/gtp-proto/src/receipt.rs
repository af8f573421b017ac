//! Which packet numbers arrived: replay protection at the receiver of any datagram, receipts from
//! sink to source, and their verification.
//!
//! A source believes a receipt only for its proof. This module must not know what a source does
//! with what is proven.

use alloc::vec::Vec;
use core::ops::Range;

use gtp_alloc::{Bytes, Time};
use gtp_ranges::RangeSet;

use crate::limits::{GAPS_PER_FEEDBACK, GAPS_REMEMBERED, PN_AHEAD, RECEIPT_SPAN};
use crate::proof::{Eight, ProofKey};
use crate::session::Discard;
use crate::wire::Receipt;

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

    fn forget_oldest(&mut self) {
        while self.gaps.pieces() > GAPS_REMEMBERED {
            let Some(oldest) = self.gaps.iter().next() else { return };
            self.gaps.remove(oldest);
        }
    }
}

/// Collects the receipts that a sink returns. Each covers the packet numbers after the last one's.
#[derive(Debug, Default)]
pub(crate) struct ReceiptBuilder {
    start: u64,
    sum: u32,
    bytes: u64,
    packets: u64,
    last_arrival: Option<Time>,
    /// [`Arrivals::opened`] when the receipt began.
    opened: u64,
}

impl ReceiptBuilder {
    /// Whether packet `pn` belongs to this receipt, or came later than the one that called it
    /// missing.
    #[inline]
    pub fn covers(&self, pn: u64) -> bool {
        pn >= self.start
    }

    /// Counts a packet that [`Arrivals`] accepted, and that came at `now`.
    #[inline]
    pub fn add(&mut self, now: Time, pn: u64, proof: u16, bytes: Bytes) {
        if !self.covers(pn) {
            return;
        }
        self.sum = self.sum.wrapping_add(u32::from(proof));
        self.bytes += bytes.0;
        self.packets += 1;
        self.last_arrival = self.last_arrival.max(Some(now));
    }

    /// Whether the next packet could bring more gaps than a feedback datagram holds, so that the
    /// receipt must end now: what it cannot name as missing it would claim.
    #[inline]
    pub fn is_full(&self, arrivals: &Arrivals) -> bool {
        let gaps_at_most = arrivals.opened - self.opened;
        let packets = arrivals.next - self.start;
        gaps_at_most >= GAPS_PER_FEEDBACK as u64 || packets >= PN_AHEAD
    }

    /// Ends the receipt, and says how many packets are missing in it.
    pub fn finish(&mut self, arrivals: &Arrivals) -> (Receipt, u64) {
        let gaps: Vec<_> = arrivals.gaps.within(self.start..arrivals.next).collect();
        debug_assert!(gaps.len() <= GAPS_PER_FEEDBACK, "a full receipt ends at once");
        let missing = gaps.iter().map(|g| g.end - g.start).sum();
        let receipt = Receipt {
            span: self.start..arrivals.next,
            gaps,
            sum: self.sum,
            bytes: self.bytes,
            arrived_at: self.last_arrival.unwrap_or(Time::ZERO).as_wire_micros(),
        };
        *self = ReceiptBuilder {
            start: arrivals.next,
            opened: arrivals.opened,
            ..ReceiptBuilder::default()
        };
        (receipt, missing)
    }

    /// IP bytes of the receipt so far, and packets.
    pub fn counted(&self) -> (Bytes, u64) {
        (Bytes(self.bytes), self.packets)
    }
}

/// What a verified receipt proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    /// The packet numbers that the receipt covers.
    pub span: core::ops::Range<u64>,
    /// How many of these packets arrived.
    pub packets: u64,
    /// IP bytes that arrived.
    pub bytes: Bytes,
}

/// Ranges of packet numbers without a receipt that a source remembers. Of 32 feedbacks in a row,
/// every other one may come late.
const MISSED_PIECES: usize = 16;

/// Verifies receipts at the source.
#[derive(Debug)]
pub(crate) struct ReceiptVerifier {
    key: ProofKey,
    /// The proofs that packets carry now.
    sending: Eight,
    next: u64,
    /// Packet numbers below `next` that no receipt has covered, because it was lost or overtaken.
    /// Only the highest ranges are kept.
    missed: RangeSet,
    /// Packet numbers of datagrams that carry no proof: the few of opening and closing.
    plain: RangeSet,
}

impl ReceiptVerifier {
    pub fn new(key: ProofKey) -> ReceiptVerifier {
        ReceiptVerifier {
            sending: Eight::of(&key, 0),
            key,
            next: 0,
            missed: RangeSet::new(),
            plain: RangeSet::new(),
        }
    }

    /// The proof that packet `pn` carries.
    #[inline]
    pub fn tag(&mut self, pn: u64) -> u16 {
        if !self.sending.has(pn) {
            self.sending = Eight::of(&self.key, pn);
        }
        self.sending.tag(pn)
    }

    /// Packet `pn` carries no proof.
    pub fn mark_plain(&mut self, pn: u64) {
        self.plain.insert(pn..pn + 1);
    }

    /// Checks `receipt` against what was sent: packet numbers below `sent`, none longer than
    /// `longest`. Receipts may come in any order, because networks reorder packets, but each packet
    /// number is proven once: a receipt that covers one which an earlier receipt covered proves
    /// nothing, and `None` is returned.
    pub fn verify(
        &mut self,
        receipt: &Receipt,
        sent: u64,
        longest: Bytes,
    ) -> Result<Option<Proven>, Discard> {
        let span = receipt.span.clone();
        if span.end > sent {
            return Err(Discard::Violation("a receipt for packets that were never sent"));
        }
        let new = span.start >= self.next;
        if span.is_empty() || !new && !self.has_missed(&span) {
            return Ok(None);
        }
        let proven = self.prove(receipt, longest)?;
        self.plain.remove(span.clone());
        if new {
            self.missed.insert(self.next..span.start);
            self.next = span.end;
            self.forget_oldest();
        } else {
            self.missed.remove(span);
        }
        Ok(Some(proven))
    }

    /// Whether the numbers of `span` are remembered as exactly one range without a receipt.
    fn has_missed(&self, span: &Range<u64>) -> bool {
        self.missed.within(span.clone()).next().is_some_and(|piece| piece == *span)
    }

    fn forget_oldest(&mut self) {
        while self.missed.pieces() > MISSED_PIECES {
            let Some(oldest) = self.missed.iter().next() else { return };
            self.plain.remove(oldest.clone());
            self.missed.remove(oldest);
        }
    }

    fn prove(&self, receipt: &Receipt, longest: Bytes) -> Result<Proven, Discard> {
        if receipt.span.end - receipt.span.start > RECEIPT_SPAN {
            return Err(Discard::Violation("a receipt for more packets than can be under way"));
        }
        let mut sum = self.key.sum(receipt.span.clone());
        let mut packets = receipt.span.end - receipt.span.start;
        for gap in &receipt.gaps {
            sum = sum.wrapping_sub(self.key.sum(gap.clone()));
            packets -= gap.end - gap.start;
        }
        for pn in self.plain.within(receipt.span.clone()).flatten() {
            if !receipt.gaps.iter().any(|gap| gap.contains(&pn)) {
                sum = sum.wrapping_sub(u32::from(self.key.tag(pn)));
            }
        }
        if sum != receipt.sum {
            return Err(Discard::Violation("a receipt without proof"));
        }
        let bytes = Bytes(receipt.bytes.min(packets.saturating_mul(longest.0)));
        Ok(Proven { span: receipt.span.clone(), packets, bytes })
    }
}

#[cfg(test)]
mod tests;
