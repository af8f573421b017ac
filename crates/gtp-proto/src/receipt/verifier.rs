//! Receipts as a source verifies them.
//!
//! A source believes a receipt only for its proof. This module must not know what a source does
//! with what is proven.

use core::ops::Range;

use gtp_alloc::Bytes;
use gtp_ranges::RangeSet;

use crate::limits::RECEIPT_SPAN;
use crate::proof::{Eight, ProofKey};
use crate::session::Discard;
use crate::wire::Receipt;

/// What a verified receipt proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    /// The packet numbers that the receipt covers.
    pub span: Range<u64>,
    /// How many of these packets arrived.
    pub packets: u64,
    /// How many were lost, hellos left out: those that try how long a packet may be are meant to
    /// be lost, and the first ones may have gone by a way that was given up.
    pub lost: u64,
    /// IP bytes that arrived.
    pub bytes: Bytes,
}

/// Ranges of packet numbers without a receipt that a source remembers. Of 32 feedbacks in a row,
/// every other one may come late.
pub(super) const MISSED_PIECES: usize = 16;

/// Verifies receipts at the source.
#[derive(Debug)]
pub(crate) struct ReceiptVerifier {
    key: ProofKey,
    /// The proofs that packets carry now.
    sending: Eight,
    pub(super) next: u64,
    /// Packet numbers below `next` that no receipt has covered, because it was lost or overtaken.
    /// Only the highest ranges are kept.
    pub(super) missed: RangeSet,
    /// Packet numbers of datagrams that carry no proof: the few of opening and closing.
    pub(super) plain: RangeSet,
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
        let mut lost = receipt.span.end - receipt.span.start - packets;
        for pn in self.plain.within(receipt.span.clone()).flatten() {
            match receipt.gaps.iter().any(|gap| gap.contains(&pn)) {
                true => lost -= 1,
                false => sum = sum.wrapping_sub(u32::from(self.key.tag(pn))),
            }
        }
        if sum != receipt.sum {
            return Err(Discard::Violation("a receipt without proof"));
        }
        let bytes = Bytes(receipt.bytes.min(packets.saturating_mul(longest.0)));
        Ok(Proven { span: receipt.span.clone(), packets, lost, bytes })
    }
}
