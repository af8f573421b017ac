//! Honest receipts, forged ones, and replayed packets.

use core::ops::Range;
use std::collections::BTreeSet;
use std::vec::Vec;

use proptest::prelude::*;

use gtp_alloc::{Bytes, Span, Time};

use super::builder::{PARTS_WAITING, WAITS_MOST};
use super::verifier::MISSED_PIECES;
use super::*;
use crate::ecn::Codepoint;
use crate::limits::{GAPS_PER_FEEDBACK, RECEIPT_SPAN};
use crate::proof::ProofKey;
use crate::wire::Receipt;

const LONGEST: Bytes = Bytes(1_477);

fn verifier() -> ReceiptVerifier {
    ReceiptVerifier::new(ProofKey::new([3; 16]))
}

/// A sink that returns receipts, as a session does.
#[derive(Default)]
struct Sink {
    arrivals: Arrivals,
    builder: ReceiptBuilder,
    receipts: Vec<Receipt>,
    /// The time, and how late packets may be.
    now: Time,
    late: Span,
}

impl Sink {
    fn take(&mut self, pn: u64, proof: Option<u16>) -> Result<(), Discard> {
        self.arrivals.accept(pn)?;
        if let Some(proof) = proof {
            let ecn = Codepoint::NotEct;
            self.builder.add(self.now, &Counted { pn, proof, bytes: LONGEST, ecn });
        }
        if self.builder.is_full(&self.arrivals) {
            self.builder.end_part(self.now, &self.arrivals, None, true);
        }
        while self.builder.due_at(self.late).is_some_and(|at| at <= self.now) {
            self.finish();
        }
        Ok(())
    }

    fn end(&mut self) {
        self.builder.end_part(self.now, &self.arrivals, None, false);
        self.finish();
    }

    fn finish(&mut self) {
        let Finished { receipt, missing, .. } =
            self.builder.finish(self.now, &self.arrivals, self.late);
        let gaps: u64 = receipt.gaps.iter().map(|g| g.end - g.start).sum();
        assert_eq!(gaps, missing);
        self.receipts.push(receipt);
    }
}

/// The receipt of packets `0..n` of which those in `lost` are missing.
fn honest(source: &mut ReceiptVerifier, n: u64, lost: &[u64]) -> Receipt {
    let mut sink = Sink::default();
    for pn in (0..n).filter(|pn| !lost.contains(pn)) {
        sink.take(pn, Some(source.tag(pn))).unwrap();
    }
    sink.end();
    sink.receipts.remove(0)
}

/// The span of the receipt that ends now, and how many packets are missing in it.
fn ended(sink: &mut Sink) -> (Range<u64>, u64) {
    sink.end();
    let receipt = sink.receipts.last().unwrap();
    (receipt.span.clone(), receipt.gaps.iter().map(|g| g.end - g.start).sum())
}

fn is_violation(outcome: &Result<Option<Proven>, Discard>) -> bool {
    matches!(outcome, Err(Discard::Violation(_)))
}

/// Ten receipts of ten packets each, number 13 being lost.
fn ten_receipts(source: &mut ReceiptVerifier) -> Vec<Receipt> {
    let mut sink = Sink::default();
    for pn in (0..100).filter(|pn| *pn != 13) {
        sink.take(pn, Some(source.tag(pn))).unwrap();
        if pn % 10 == 9 {
            sink.end();
        }
    }
    sink.receipts
}

#[test]
fn receipts_are_proved_once_each_in_whatever_order_they_come() {
    let mut source = verifier();
    let receipts = ten_receipts(&mut source);
    for n in [0, 2, 5, 4, 1, 9, 8, 3, 7, 6] {
        let proven = source.verify(&receipts[n], 100, LONGEST).unwrap().expect("a proof");
        let packets = if n == 1 { 9 } else { 10 };
        assert_eq!((proven.span, proven.packets), (receipts[n].span.clone(), packets));
        assert_eq!(source.verify(&receipts[n], 100, LONGEST), Ok(None), "{n} once");
    }
    assert!(source.missed.is_empty() && source.next == 100);
}

#[test]
fn an_empty_receipt_takes_no_other_ones_place() {
    let mut source = verifier();
    let receipts = ten_receipts(&mut source);
    source.verify(&receipts[0], 100, LONGEST).unwrap().expect("a proof");
    let empty = Receipt { span: 20..20, gaps: Vec::new(), sum: 0, bytes: 0, arrived_at: 0 };
    assert_eq!(source.verify(&empty, 100, LONGEST), Ok(None));
    source.verify(&receipts[1], 100, LONGEST).unwrap().expect("a proof");
}

#[test]
fn an_overtaken_receipt_is_held_to_its_proof() {
    let mut source = verifier();
    let receipts = ten_receipts(&mut source);
    source.verify(&receipts[3], 100, LONGEST).unwrap().expect("a proof");
    let mut forged = receipts[1].clone();
    forged.sum = forged.sum.wrapping_add(1);
    assert!(is_violation(&source.verify(&forged, 100, LONGEST)));
    let mut wide = receipts[2].clone();
    wide.span.end += 1;
    assert_eq!(source.verify(&wide, 100, LONGEST), Ok(None), "30 is proven");
}

#[test]
fn what_is_remembered_of_missed_receipts_is_bounded() {
    let mut source = verifier();
    for n in 0..1_000u64 {
        let pn = 2 * n + 1;
        let sum = u32::from(source.tag(pn));
        let receipt =
            Receipt { span: pn..pn + 1, gaps: Vec::new(), sum, bytes: 100, arrived_at: 0 };
        source.verify(&receipt, 10_000, LONGEST).unwrap().expect("a proof");
        assert!(source.missed.pieces() <= MISSED_PIECES);
    }
}

#[test]
fn an_honest_receipt_proves_what_arrived() {
    let mut source = verifier();
    let receipt = honest(&mut source, 1_000, &[3, 4, 700]);
    assert_eq!(receipt.gaps, [3..5, 700..701]);
    let proven = source.verify(&receipt, 1_000, LONGEST).unwrap().unwrap();
    assert_eq!(proven, Proven { span: 0..1_000, packets: 997, lost: 3, bytes: Bytes(997 * 1_477) });
}

#[test]
fn to_claim_a_lost_packet_is_a_violation() {
    let mut source = verifier();
    let mut receipt = honest(&mut source, 100, &[50]);
    receipt.gaps.clear();
    assert!(is_violation(&source.verify(&receipt, 100, LONGEST)));
}

#[test]
fn guessing_the_proof_of_a_lost_packet_succeeds_once_in_65536() {
    let mut source = verifier();
    let receipt = honest(&mut source, 100, &[50]);
    let good = (0..=u32::from(u16::MAX)).filter(|guess| {
        let sum = receipt.sum.wrapping_add(*guess);
        let forged = Receipt { gaps: Vec::new(), sum, ..receipt.clone() };
        verifier().verify(&forged, 100, LONGEST).is_ok()
    });
    assert_eq!(good.count(), 1);
}

#[test]
fn to_claim_a_packet_never_sent_is_a_violation() {
    let mut source = verifier();
    let receipt = honest(&mut source, 100, &[]);
    assert!(is_violation(&source.verify(&receipt, 99, LONGEST)));
}

#[test]
fn a_span_too_long_to_check_is_a_violation_before_any_work() {
    let mut source = verifier();
    let span = 0..RECEIPT_SPAN + 1;
    let receipt = Receipt { span, ..Receipt::default() };
    assert!(is_violation(&source.verify(&receipt, u64::MAX, LONGEST)));
}

#[test]
fn a_repeated_receipt_and_an_empty_one_prove_nothing() {
    let mut source = verifier();
    let receipt = honest(&mut source, 100, &[]);
    assert!(source.verify(&receipt, 200, LONGEST).unwrap().is_some());
    assert_eq!(source.verify(&receipt, 200, LONGEST), Ok(None));
    let empty = Receipt { span: 150..150, ..Receipt::default() };
    assert_eq!(source.verify(&empty, 200, LONGEST), Ok(None));
}

#[test]
fn claimed_bytes_are_cut_to_what_the_packets_can_hold() {
    let mut source = verifier();
    let receipt = Receipt { bytes: u64::MAX, ..honest(&mut source, 10, &[2]) };
    let proven = source.verify(&receipt, 10, LONGEST).unwrap().unwrap();
    assert_eq!(proven.bytes, Bytes(9 * LONGEST.0));
}

#[test]
fn packets_without_proof_count_as_neither_claimed_nor_missing() {
    let mut source = verifier();
    let mut sink = Sink::default();
    for pn in 0..20 {
        let plain = pn % 7 == 0;
        if plain {
            source.mark_plain(pn);
        }
        if pn != 14 {
            sink.take(pn, (!plain).then(|| source.tag(pn))).unwrap();
        }
    }
    sink.end();
    assert!(source.verify(&sink.receipts[0], 20, LONGEST).unwrap().is_some());
    assert_eq!(source.plain.len(), 0, "what is settled is forgotten");
}

#[test]
fn a_hello_that_does_not_arrive_is_no_loss() {
    let (mut source, mut sink) = (verifier(), Sink::default());
    for pn in 0..10 {
        if pn < 4 {
            source.mark_plain(pn);
        }
        if ![1, 3, 7].contains(&pn) {
            sink.take(pn, (pn >= 4).then(|| source.tag(pn))).unwrap();
        }
    }
    sink.end();
    let proven = source.verify(&sink.receipts[0], 10, LONGEST).unwrap().unwrap();
    assert_eq!((proven.packets, proven.lost), (7, 1));
}

#[test]
fn a_packet_number_too_far_ahead_is_refused_and_changes_nothing() {
    let mut arrivals = Arrivals::default();
    assert_eq!(arrivals.accept(PN_AHEAD + 1), Err(Discard::TooFarAhead));
    assert_eq!(arrivals.accept(u64::MAX), Err(Discard::TooFarAhead));
    assert_eq!(arrivals.accept(PN_AHEAD), Ok(()));
    assert_eq!(arrivals.accept(0), Ok(()));
}

#[test]
fn the_memory_of_gaps_is_bounded_and_what_is_forgotten_counts_as_replayed() {
    let mut arrivals = Arrivals::default();
    for i in 0..40_000_u64 {
        arrivals.accept(2 * i + 1).unwrap();
    }
    assert_eq!(arrivals.gaps.pieces(), GAPS_REMEMBERED);
    assert_eq!(arrivals.accept(0), Err(Discard::Replayed));
    assert_eq!(arrivals.accept(2 * 39_999), Ok(()));
}

#[test]
fn heavy_loss_ends_receipts_early_rather_than_claiming_what_is_missing() {
    let mut source = verifier();
    let mut sink = Sink::default();
    for pn in (0..10_000_u64).filter(|pn| pn % 3 != 0) {
        sink.take(pn, Some(source.tag(pn))).unwrap();
    }
    sink.end();
    assert!(sink.receipts.len() > 20);
    for receipt in &sink.receipts {
        assert!(receipt.gaps.len() <= GAPS_PER_FEEDBACK);
        assert!(source.verify(receipt, 10_000, LONGEST).unwrap().is_some());
    }
}

#[test]
fn a_packet_that_is_late_when_an_interval_ends_is_not_called_missing() {
    let mut source = verifier();
    let mut sink = Sink { late: Span::from_millis(2), ..Sink::default() };
    for pn in [0, 1, 2, 3, 5] {
        sink.take(pn, Some(source.tag(pn))).unwrap();
    }
    assert_eq!(ended(&mut sink), (0..0, 0), "4 may be late");
    sink.now += Span::from_millis(1);
    sink.take(4, Some(source.tag(4))).unwrap();
    assert_eq!(ended(&mut sink), (0..6, 0));
    for receipt in &sink.receipts {
        assert!(source.verify(receipt, 6, LONGEST).is_ok());
    }
}

#[test]
fn a_packet_that_stays_away_for_longer_than_packets_are_late_is_called_missing() {
    let mut source = verifier();
    let mut sink = Sink { late: Span::from_millis(2), ..Sink::default() };
    for interval in 0..4 {
        for pn in (interval * 10..interval * 10 + 10).filter(|pn| pn % 10 != 4) {
            sink.take(pn, Some(source.tag(pn))).unwrap();
        }
        let before = (interval.max(1) - 1) * 10;
        assert_eq!(ended(&mut sink), (before..interval * 10, interval.min(1)));
        sink.now += Span::from_millis(10);
    }
    assert_eq!(ended(&mut sink), (30..40, 1), "also when nothing more comes");
}

#[test]
fn a_receipt_waits_no_longer_than_its_limit_and_not_at_all_for_what_is_complete() {
    let mut source = verifier();
    let mut sink = Sink { late: Span::from_secs(9), ..Sink::default() };
    sink.take(0, Some(source.tag(0))).unwrap();
    assert_eq!(ended(&mut sink), (0..1, 0));
    sink.take(2, Some(source.tag(2))).unwrap();
    assert_eq!(ended(&mut sink), (1..1, 0));
    sink.now += WAITS_MOST;
    assert_eq!(ended(&mut sink), (1..3, 1));
    for pn in 2..40 {
        sink.take(2 * pn, Some(source.tag(2 * pn))).unwrap();
        sink.end();
    }
    assert_eq!(sink.builder.ended.len(), PARTS_WAITING);
}

#[test]
fn many_late_packets_fill_no_receipt() {
    let mut source = verifier();
    let mut sink = Sink { late: Span::from_millis(2), ..Sink::default() };
    // Each pair of packets comes in the other order: a gap opens and closes.
    for pn in (0..4_000).map(|n| n ^ 1) {
        sink.now += Span::from_micros(10);
        sink.take(pn, Some(source.tag(pn))).unwrap();
    }
    sink.now += Span::from_millis(2);
    sink.end();
    assert_eq!(sink.receipts.last().unwrap().span.end, 4_000);
    for receipt in &sink.receipts {
        assert!(receipt.gaps.is_empty(), "{receipt:?}");
        assert!(source.verify(receipt, 4_000, LONGEST).is_ok());
    }
}

#[test]
fn a_part_that_late_packets_split_too_often_is_never_sent() {
    let mut source = verifier();
    let mut sink = Sink { late: Span::from_millis(5), ..Sink::default() };
    sink.take(0, Some(source.tag(0))).unwrap();
    sink.take(600, Some(source.tag(600))).unwrap();
    assert_eq!(ended(&mut sink), (0..0, 0));
    for pn in (2..600).step_by(2) {
        sink.take(pn, Some(source.tag(pn))).unwrap();
    }
    sink.now += sink.late;
    sink.take(601, Some(source.tag(601))).unwrap();
    assert_eq!(ended(&mut sink), (601..601, 0));
    assert_eq!(ended(&mut sink), (601..602, 0));
    for receipt in &sink.receipts {
        assert!(source.verify(receipt, 602, LONGEST).is_ok());
    }
}

proptest! {
    #[test]
    fn every_number_is_accepted_exactly_once(
        numbers in proptest::collection::vec(0..300_u64, 0..600),
    ) {
        let (mut arrivals, mut seen) = (Arrivals::default(), BTreeSet::new());
        for pn in numbers {
            let fresh = seen.insert(pn);
            let expected = if fresh { Ok(()) } else { Err(Discard::Replayed) };
            prop_assert_eq!(arrivals.accept(pn), expected);
        }
    }

    #[test]
    fn receipts_of_any_course_of_loss_copies_and_reordering_verify(
        fates in proptest::collection::vec((0..10_u8, 0..40_u64, 0..30_u8), 1..800),
        waits in 0..50_u64,
    ) {
        let mut source = verifier();
        let sent = fates.len() as u64;
        let mut arriving: Vec<(u64, u64)> = Vec::new();
        for (pn, (fate, late, _)) in (0_u64..).zip(&fates) {
            match fate {
                0..3 => {}
                3 => arriving.extend([(pn, pn), (pn + late, pn)]),
                4 => arriving.push((pn + late, pn)),
                _ => arriving.push((pn, pn)),
            }
        }
        arriving.sort_unstable();
        // Packet `pn` leaves in millisecond `pn`.
        let mut sink = Sink { late: Span::from_millis(waits), ..Sink::default() };
        for ((at, pn), (_, _, end)) in arriving.iter().zip(fates.iter().cycle()) {
            sink.now = Time::ZERO + Span::from_millis(*at);
            let _ = sink.take(*pn, Some(source.tag(*pn)));
            if *end == 0 {
                sink.end();
            }
        }
        sink.end();
        sink.now += WAITS_MOST;
        sink.end();
        let mut next = 0;
        for (i, receipt) in sink.receipts.iter().enumerate() {
            prop_assert_eq!(receipt.span.start, next);
            next = receipt.span.end;
            if i % 5 == 2 {
                continue; // This one is lost on its way.
            }
            let proven = source.verify(receipt, sent, LONGEST);
            prop_assert!(proven.is_ok(), "{proven:?}");
        }
        prop_assert_eq!(next, sink.arrivals.upcoming());
    }

    #[test]
    fn a_sum_of_proofs_is_the_sum_of_the_proofs(
        key: [u8; 16], start in 0..1_u64 << 60, len in 0..300_u64,
    ) {
        let key = ProofKey::new(key);
        let one_by_one = (start..start + len)
            .fold(0_u32, |sum, pn| sum.wrapping_add(u32::from(key.tag(pn))));
        prop_assert_eq!(key.sum(start..start + len), one_by_one);
    }
}
