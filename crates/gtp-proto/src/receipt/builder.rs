//! Receipts as a sink makes them.
//!
//! Where networks reorder packets, a number that is missing when an interval ends may belong to a
//! packet that is about to arrive. So what an interval brought waits as a part of a receipt until
//! that is decided. This module must not know what a receipt proves.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Span, Time};

use super::Arrivals;
use crate::ecn::{Codepoint, EcnCounts};
use crate::limits::{GAPS_PER_FEEDBACK, PN_AHEAD, RECEIPT_SPAN, RECEIPTS_WAITING};
use crate::wire::Receipt;

/// A receipt waits for late packets no longer than this, however late packets may be: a source that
/// hears late also reacts late.
pub(super) const WAITS_MOST: Span = Span::from_millis(30);
/// If more parts wait than this, the oldest does not wait any longer.
pub(super) const PARTS_WAITING: usize = 16;

/// A part has no more gaps than this when it ends: late packets may split some while it waits.
const PART_GAPS: u64 = GAPS_PER_FEEDBACK as u64 * 3 / 4;

/// What arrived of a row of packet numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sum: u32,
    bytes: u64,
    packets: u64,
    last_arrival: Option<Time>,
    /// It has no more gaps than this.
    gaps_at_most: u64,
    delays: Option<Delays>,
    ecn: EcnCounts,
}

/// The least and the greatest queueing delay of some packets, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delays {
    pub least: u32,
    /// See `least`.
    pub most: u32,
}

impl Delays {
    fn and(self, next: Delays) -> Delays {
        Delays { least: self.least.min(next.least), most: self.most.max(next.most) }
    }
}

/// A part that has ended. It waits, because some of its packets may only be late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    part: Part,
    /// One above the largest packet number seen when it ended.
    end: u64,
    ended_at: Time,
    /// Whether it ended before its interval, and waits for no other feedback.
    is_full: bool,
}

/// Collects the receipts that a sink returns. Each covers the packet numbers after the last one's:
/// the parts that do not wait any longer.
#[derive(Debug, Default)]
pub(crate) struct ReceiptBuilder {
    start: u64,
    pub(super) ended: VecDeque<Ended>,
    /// The first packet number of the present part.
    present_start: u64,
    present: Part,
    /// [`Arrivals::opened`] when the present part began, or had no gaps.
    opened: u64,
    /// The ECN bits of the packets in all receipts so far.
    ecn: EcnCounts,
}

/// A packet that came, as a receipt counts it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Its number.
    pub pn: u64,
    /// Its proof of receipt.
    pub proof: u16,
    /// Its IP bytes if it is data, else none.
    pub bytes: Bytes,
    /// Its ECN bits.
    pub ecn: Codepoint,
}

impl Part {
    #[inline]
    fn add(&mut self, now: Time, packet: &Counted) {
        self.sum = self.sum.wrapping_add(u32::from(packet.proof));
        self.bytes += packet.bytes.0;
        self.packets += 1;
        self.ecn.add(packet.ecn);
        self.last_arrival = self.last_arrival.max(Some(now));
    }

    fn and(self, next: Part) -> Part {
        Part {
            sum: self.sum.wrapping_add(next.sum),
            bytes: self.bytes + next.bytes,
            packets: self.packets + next.packets,
            last_arrival: self.last_arrival.max(next.last_arrival),
            gaps_at_most: self.gaps_at_most + next.gaps_at_most,
            delays: match (self.delays, next.delays) {
                (Some(first), Some(second)) => Some(first.and(second)),
                (first, second) => first.or(second),
            },
            ecn: self.ecn.and(next.ecn),
        }
    }

    /// Whether one gap more could be too many for a feedback datagram: what it cannot name as
    /// missing it would claim.
    fn is_full(&self) -> bool {
        self.gaps_at_most >= GAPS_PER_FEEDBACK as u64
    }
}

/// A receipt, and what else is known of its packets.
#[derive(Debug)]
pub(crate) struct Finished {
    pub receipt: Receipt,
    /// How many packets are missing in it.
    pub missing: u64,
    /// The delays of those that arrived, if any did.
    pub delays: Option<Delays>,
    /// The ECN bits of the packets in this receipt and in all before it.
    pub ecn: EcnCounts,
}

impl ReceiptBuilder {
    /// Whether packet `pn` belongs to the present part or a later one.
    #[inline]
    fn is_present(&self, pn: u64) -> bool {
        pn >= self.present_start
    }

    /// Counts a packet that [`Arrivals`] accepted, and that came at `now`. One that came later than
    /// the receipt that called it missing does not count.
    #[inline]
    pub fn add(&mut self, now: Time, packet: &Counted) {
        if self.is_present(packet.pn) {
            self.present.add(now, packet);
        } else if packet.pn >= self.start {
            self.add_late(now, packet);
        }
    }

    #[cold]
    fn add_late(&mut self, now: Time, packet: &Counted) {
        let mut ended = self.ended.iter_mut();
        if let Some(Ended { part, .. }) = ended.find(|ended| packet.pn < ended.end) {
            part.add(now, packet);
            // It may have come in the middle of a gap.
            part.gaps_at_most += 1;
        }
    }

    /// Whether the present part must end now, because it has too many gaps or is too long.
    #[inline]
    pub fn is_full(&mut self, arrivals: &Arrivals) -> bool {
        let packets = arrivals.next - self.present_start;
        let may_be_full = arrivals.opened - self.opened >= PART_GAPS;
        packets >= PN_AHEAD || may_be_full && self.has_many_gaps(arrivals)
    }

    /// Counts the gaps that are left: late packets have closed some. The count is not worth while
    /// again until half as many more may have come.
    #[cold]
    fn has_many_gaps(&mut self, arrivals: &Arrivals) -> bool {
        let gaps = arrivals.gaps.within(self.present_start..arrivals.next).count() as u64;
        self.opened = arrivals.opened - gaps;
        gaps > PART_GAPS / 2
    }

    /// IP bytes that arrived in the present part, and packets.
    pub fn present(&self) -> (Bytes, u64) {
        (Bytes(self.present.bytes), self.present.packets)
    }

    /// Ends the present part at `now`, if there is one, whose packets had these delays. `is_full`
    /// says whether it ends before its interval. If too many parts wait to be sent, the oldest is
    /// never sent.
    pub fn end_part(
        &mut self,
        now: Time,
        arrivals: &Arrivals,
        delays: Option<Delays>,
        is_full: bool,
    ) {
        let (gaps_at_most, end) = (arrivals.opened - self.opened, arrivals.next);
        if end == self.present_start {
            return;
        }
        let part = Part { gaps_at_most, delays, ..core::mem::take(&mut self.present) };
        (self.opened, self.present_start) = (arrivals.opened, end);
        self.ended.push_back(Ended { part, end, ended_at: now, is_full });
        if self.ended.len() > RECEIPTS_WAITING
            && let Some(oldest) = self.ended.pop_front()
        {
            self.start = oldest.end;
        }
    }

    /// When a part that is full should be sent, if packets may be `late` by so much.
    pub fn due_at(&self, late: Span) -> Option<Time> {
        let oldest = self.ended.front().filter(|oldest| oldest.is_full)?;
        Some(if self.waits(oldest) { oldest.ended_at + late.min(WAITS_MOST) } else { Time::ZERO })
    }

    fn waits(&self, oldest: &Ended) -> bool {
        !oldest.part.is_full() && self.ended.len() <= PARTS_WAITING
    }

    /// The receipt of all parts that do not wait any longer at `now`, if packets may be `late` by
    /// so much. Nothing waits if nothing is missing. A part that late packets have split into more
    /// gaps than a feedback holds is never sent.
    pub fn finish(&mut self, now: Time, arrivals: &Arrivals, late: Span) -> Finished {
        let (mut start, late) = (self.start, late.min(WAITS_MOST));
        let complete = arrivals.gaps.within(start..self.present_start).next().is_none();
        let mut whole = Part::default();
        while let Some(oldest) = self.ended.front() {
            let waits = !complete && self.waits(oldest) && now.since(oldest.ended_at) < late;
            let holds = |range| arrivals.gaps.within(range).count() <= GAPS_PER_FEEDBACK;
            let fits = oldest.end - start <= RECEIPT_SPAN && holds(start..oldest.end);
            if waits || self.start > start && !fits {
                break;
            }
            if fits {
                whole = whole.and(oldest.part);
            } else {
                start = oldest.end;
            }
            self.start = oldest.end;
            self.ended.pop_front();
        }
        if let Some(next) = self.ended.front_mut() {
            next.is_full |= now.since(next.ended_at) >= late;
        }
        self.receipt_of(start, whole, arrivals)
    }

    fn receipt_of(&mut self, start: u64, part: Part, arrivals: &Arrivals) -> Finished {
        let gaps: Vec<_> = arrivals.gaps.within(start..self.start).collect();
        debug_assert!(gaps.len() <= GAPS_PER_FEEDBACK, "a full part ends at once");
        let missing = gaps.iter().map(|g| g.end - g.start).sum();
        let receipt = Receipt {
            span: start..self.start,
            gaps,
            sum: part.sum,
            bytes: part.bytes,
            arrived_at: part.last_arrival.unwrap_or(Time::ZERO).as_wire_micros(),
        };
        self.ecn = self.ecn.and(part.ecn);
        Finished { receipt, missing, delays: part.delays, ecn: self.ecn }
    }
}
