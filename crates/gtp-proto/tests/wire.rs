//! The wire format: what is encoded comes back, and nothing else is taken.
#![allow(clippy::single_range_in_vec_init, reason = "lists of one range are what is tested")]

use std::ops::Range;

use gtp_alloc::Rate;
use gtp_proto::ecn::EcnCounts;
use gtp_proto::limits::{GAPS_PER_FEEDBACK, LOSS_MAP_BYTES, MAX_UNITS, RANGES_PER_REQUEST};
use gtp_proto::report::LimitedBy;
use gtp_proto::wire::{
    Control, DATA_HEAD_LEN, DataHead, Feedback, HEADER_LEN, Header, Hello, Kind, MAX_CONTROL_BODY,
    Receipt, Request, Status, Wanted, WireError, loss_map_ranges,
};
use proptest::prelude::*;

const KINDS: [Kind; 7] = [
    Kind::Data,
    Kind::Hello,
    Kind::HelloAck,
    Kind::Feedback,
    Kind::Request,
    Kind::Status,
    Kind::Close,
];

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(KINDS.to_vec())
}

fn limited_by() -> impl Strategy<Value = LimitedBy> {
    proptest::sample::select(vec![
        LimitedBy::Source,
        LimitedBy::Sink,
        LimitedBy::Demand,
        LimitedBy::Path,
        LimitedBy::Disk,
        LimitedBy::Router,
    ])
}

fn rate() -> impl Strategy<Value = Rate> {
    any::<u64>().prop_map(Rate::from_bps)
}

/// Ascending, disjoint, non-empty ranges from `start` on.
fn ascending(start: u64, steps: &[(u16, u16)]) -> Vec<Range<u64>> {
    let mut at = start;
    let step = |&(gap, len): &(u16, u16)| {
        let from = at + u64::from(gap);
        at = from + 1 + u64::from(len);
        from..at
    };
    steps.iter().map(step).collect()
}

fn steps(most: usize) -> impl Strategy<Value = Vec<(u16, u16)>> {
    proptest::collection::vec(any::<(u16, u16)>(), 0..=most)
}

fn receipt() -> impl Strategy<Value = Receipt> {
    (0..1_u64 << 62, steps(GAPS_PER_FEEDBACK), 0..1_u32 << 20, any::<(u32, u64, u32)>()).prop_map(
        |(start, steps, beyond, (sum, bytes, arrived_at))| {
            let gaps = ascending(start, &steps);
            let end = gaps.last().map_or(start, |g| g.end) + u64::from(beyond);
            Receipt { span: start..end, gaps, sum, bytes, arrived_at }
        },
    )
}

fn weight() -> impl Strategy<Value = Option<f32>> {
    proptest::option::of(f32::MIN_POSITIVE..=f32::MAX)
}

fn feedback() -> impl Strategy<Value = Feedback> {
    let optional = (weight(), any::<Option<u32>>(), any::<Option<[u32; 3]>>(), any::<bool>());
    (any::<[u32; 6]>(), (rate(), rate()), receipt(), optional).prop_map(
        |(n, (rate, offer), receipt, (weight, delay_most, ecn, router_binds))| Feedback {
            sent_at: n[0],
            grant: n[1],
            rate,
            offer,
            interval: n[2],
            echo_at: n[3],
            echo_hold: n[4],
            delay: n[5],
            receipt,
            weight,
            delay_most,
            ecn: ecn.map(|[ect0, ect1, ce]| EcnCounts { ect0, ect1, ce }),
            router_binds,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    let work_unit = proptest::option::of(0..MAX_UNITS - 1);
    (any::<(u16, [u32; 7])>(), rate(), limited_by(), work_unit, weight()).prop_map(
        |((proof, n), offer, limited_by, work_unit, weight)| Status {
            proof,
            sent_at: n[0],
            grant: n[1],
            offer,
            requests_next: n[2],
            work_front: n[3],
            repair_front: n[4],
            echo_at: n[5],
            echo_hold: n[6],
            limited_by,
            work_unit,
            weight,
        },
    )
}

fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
    let range = (0..MAX_UNITS - (1 << 32), 1..=u32::MAX).prop_map(|(s, n)| s..s + u64::from(n));
    proptest::collection::vec(range, 1..=RANGES_PER_REQUEST)
}

fn loss_map() -> impl Strategy<Value = Wanted> {
    let bits = proptest::collection::vec(any::<u8>(), 1..=LOSS_MAP_BYTES);
    (0..MAX_UNITS - 8 * LOSS_MAP_BYTES as u64, bits).prop_map(|(first, mut bits)| {
        bits[0] &= 0x7f;
        Wanted::LossMap { first, bits }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let wanted = prop_oneof![
        ranges().prop_map(Wanted::Work),
        ranges().prop_map(Wanted::Repair),
        loss_map(),
        Just(Wanted::Drop),
        Just(Wanted::Begin),
    ];
    (1..=u32::MAX, 1..=u16::MAX, wanted).prop_map(|(number, unit_payload, wanted)| Request {
        number,
        unit_payload,
        wanted,
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    (any::<u32>(), 1..=9_000_u16)
        .prop_map(|(sent_at, unit_payload)| Hello { sent_at, unit_payload })
}

fn control() -> impl Strategy<Value = Control> {
    prop_oneof![
        hello().prop_map(Control::Hello),
        hello().prop_map(Control::HelloAck),
        feedback().prop_map(Control::Feedback),
        request().prop_map(Control::Request),
        status().prop_map(Control::Status),
        Just(Control::Close),
    ]
}

fn encoded(control: &Control) -> Vec<u8> {
    let mut body = Vec::new();
    control.encode(&mut body);
    body
}

proptest! {
    #[test]
    fn headers_come_back(kind in kind(), session: u32, pn: u64) {
        let header = Header { kind, session, pn };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), HEADER_LEN);
        prop_assert_eq!(Header::decode(&bytes), Ok(header));
        for cut in 0..HEADER_LEN {
            prop_assert_eq!(Header::decode(&bytes[..cut]), Err(WireError::Truncated));
        }
    }

    #[test]
    fn data_heads_come_back_with_their_unit(
        n: (u16, u32, u32, u32),
        unit in 0..MAX_UNITS,
        payload in proptest::collection::vec(any::<u8>(), 1..64),
    ) {
        let (proof, sent_at, grant, request) = n;
        let head = DataHead { proof, sent_at, grant, request, unit };
        let mut body = Vec::new();
        head.encode(&mut body);
        prop_assert_eq!(body.len(), DATA_HEAD_LEN);
        for cut in 0..=DATA_HEAD_LEN {
            prop_assert_eq!(DataHead::decode(&body[..cut]), Err(WireError::Truncated));
        }
        body.extend_from_slice(&payload);
        prop_assert_eq!(DataHead::decode(&body), Ok((head, &payload[..])));
    }

    #[test]
    fn control_bodies_come_back(control in control()) {
        let body = encoded(&control);
        prop_assert_eq!(Control::decode(control.kind(), &body), Ok(Some(control)));
    }

    #[test]
    fn every_body_but_hellos_fits_the_smallest_path(control in control()) {
        if !matches!(control, Control::Hello(_) | Control::HelloAck(_)) {
            prop_assert!(encoded(&control).len() <= MAX_CONTROL_BODY);
        }
    }

    #[test]
    fn a_body_cut_anywhere_is_refused_or_is_another_valid_body(control in control()) {
        let body = encoded(&control);
        for cut in 0..body.len() {
            match (&control, Control::decode(control.kind(), &body[..cut])) {
                // Ranges and maps have no length of their own: what is left is whole.
                (Control::Request(_), Ok(Some(Control::Request(left)))) => {
                    let again = encoded(&Control::Request(left));
                    prop_assert_eq!(&again[..], &body[..cut]);
                }
                // A weight, up to three optional fields of 2, 6 and 14 bytes, or both.
                (Control::Feedback(_), Ok(Some(left))) => {
                    let gone = body.len() - cut;
                    prop_assert!(gone.is_multiple_of(2) && gone <= 4 + 2 + 6 + 14, "{}", gone);
                    prop_assert_eq!(&encoded(&left)[..], &body[..cut]);
                }
                // A status has two fields that need not be there, and one optional field.
                (Control::Status(_), Ok(Some(left))) => {
                    prop_assert!([2, 4, 6, 8, 10, 12].contains(&(body.len() - cut)));
                    prop_assert_eq!(&encoded(&left)[..], &body[..cut]);
                }
                (_, decoded) => prop_assert!(decoded.is_err(), "{cut}: {decoded:?}"),
            }
        }
    }

    #[test]
    fn fields_of_later_revisions_are_skipped(
        said in feedback(),
        status in status(),
        tag in 4..=u8::MAX,
        value in proptest::collection::vec(any::<u8>(), 0..16),
    ) {
        let field = [&[tag, value.len() as u8][..], &value].concat();
        let mut said = Feedback { delay_most: said.delay_most.or(Some(7)), ..said };
        said.receipt.gaps.truncate(GAPS_PER_FEEDBACK - 4); // What is newer needs room, too.
        let newer = [encoded(&Control::Feedback(said.clone())), field.clone()].concat();
        prop_assert_eq!(Control::decode(Kind::Feedback, &newer), Ok(Some(Control::Feedback(said))));
        let whole = Status {
            work_unit: status.work_unit.or(Some(MAX_UNITS - 1)),
            weight: status.weight.or(Some(1.0)),
            ..status
        };
        let newer = [encoded(&Control::Status(whole)), field].concat();
        let said = Status { work_unit: status.work_unit, ..whole };
        prop_assert_eq!(Control::decode(Kind::Status, &newer), Ok(Some(Control::Status(said))));
    }

    #[test]
    fn bytes_after_a_body_are_refused(control in control(), more in 1..12_usize) {
        let mut body = encoded(&control);
        body.resize(body.len() + more, 0x55);
        match (&control, Control::decode(control.kind(), &body)) {
            (Control::Request(Request { wanted: Wanted::LossMap { .. }, .. }), Ok(Some(_))) => {}
            (Control::Request(_), Ok(Some(_))) => prop_assert!(more >= 10),
            (Control::Feedback(Feedback { weight: None, .. }), Ok(Some(_))) => {
                prop_assert_eq!(more, 4, "a weight");
            }
            (Control::Status(_), Ok(Some(_))) => prop_assert!([2, 4, 6, 10].contains(&more)),
            (_, decoded) => prop_assert!(decoded.is_err(), "{decoded:?}"),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_what_decodes_comes_back(
        kind in kind(),
        body in proptest::collection::vec(any::<u8>(), 0..1_400),
    ) {
        let _ = DataHead::decode(&body);
        let _ = Header::decode(&body);
        if let Ok(Some(control)) = Control::decode(kind, &body) {
            let again = encoded(&control);
            prop_assert!(again.len() <= body.len(), "only unknown fields are left out");
            prop_assert_eq!(Control::decode(kind, &again), Ok(Some(control)));
        }
    }

    #[test]
    fn loss_maps_name_exactly_their_zero_bits(
        first in 0..1_u64 << 40,
        bits in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut named = Vec::new();
        for range in loss_map_ranges(first, &bits) {
            prop_assert!(range.start < range.end);
            prop_assert!(named.last().is_none_or(|last| last + 1 < range.start), "not joined");
            named.extend(range);
        }
        let zero = |i: &u64| bits[(i / 8) as usize] >> (7 - i % 8) & 1 == 0;
        let zeros: Vec<u64> = (0..8 * bits.len() as u64).filter(zero).map(|i| first + i).collect();
        prop_assert_eq!(named, zeros);
    }
}

#[test]
fn a_data_packet_is_49_bytes_longer_than_its_unit() {
    assert_eq!(gtp_proto::wire::DATA_OVERHEAD, 49);
}

#[test]
fn versions_and_kinds_of_the_future_are_unknown() {
    let known: Vec<u8> = KINDS
        .iter()
        .map(|&kind| {
            let mut bytes = Vec::new();
            Header { kind, session: 0, pn: 0 }.encode(&mut bytes);
            bytes[0]
        })
        .collect();
    assert_eq!(known, [0x10, 0x90, 0x91, 0x92, 0x93, 0x94, 0x95]);
    for first in (0..=255_u8).filter(|b| !known.contains(b)) {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = first;
        assert_eq!(Header::decode(&bytes), Err(WireError::UnknownKind), "{first:#x}");
    }
}

#[test]
fn a_hello_and_its_answer_are_as_long_as_the_data_packet_that_they_stand_for() {
    for unit_payload in [1_180, 1_400, 8_900] {
        let hello = Hello { sent_at: 1, unit_payload };
        for hello in [Control::Hello(hello), Control::HelloAck(hello)] {
            assert_eq!(encoded(&hello).len(), DATA_HEAD_LEN + usize::from(unit_payload));
        }
    }
}

#[test]
fn a_short_hello_that_asks_for_a_long_answer_is_refused() {
    let mut body = encoded(&Control::Hello(Hello { sent_at: 1, unit_payload: 1_180 }));
    body.truncate(100);
    assert_eq!(Control::decode(Kind::Hello, &body), Err(WireError::Truncated));
    let none = [0; DATA_HEAD_LEN];
    assert_eq!(Control::decode(Kind::Hello, &none), Err(WireError::BadField));
}

#[test]
fn padding_of_a_hello_that_is_not_zero_is_refused() {
    let mut body = encoded(&Control::Hello(Hello { sent_at: 1, unit_payload: 1_180 }));
    body[700] = 1;
    assert_eq!(Control::decode(Kind::Hello, &body), Err(WireError::Trailing));
}

fn decoded(request: Request) -> Result<Option<Control>, WireError> {
    Control::decode(Kind::Request, &encoded(&Control::Request(request)))
}

#[test]
fn requests_out_of_bounds_are_refused() {
    let ask = |number, unit_payload, wanted| decoded(Request { number, unit_payload, wanted });
    let bad = Err(WireError::BadField);
    assert_eq!(ask(0, 1_400, Wanted::Drop), bad, "numbers begin with 1");
    assert_eq!(ask(1, 0, Wanted::Drop), bad, "units carry something");
    assert_eq!(ask(1, 1, Wanted::Work(vec![])), bad, "a request asks for something");
    let past = MAX_UNITS - 1..MAX_UNITS + 1;
    assert_eq!(ask(1, 1, Wanted::Work(vec![past])), bad, "beyond the last unit");
    assert!(ask(1, 1, Wanted::Work(vec![MAX_UNITS - 1..MAX_UNITS])).is_ok());
    let many = vec![0..1; RANGES_PER_REQUEST + 1];
    assert!(ask(1, 1, Wanted::Repair(many)).is_err(), "too many ranges");
    let first_here = Wanted::LossMap { first: 5, bits: vec![0x80] };
    assert_eq!(ask(1, 1, first_here), bad, "a map begins with a lost unit");
    let empty = Wanted::LossMap { first: 5, bits: vec![] };
    assert_eq!(ask(1, 1, empty), bad);
    let long = Wanted::LossMap { first: 5, bits: vec![0; LOSS_MAP_BYTES + 1] };
    assert_eq!(ask(1, 1, long), bad);
    let mut empty_range = encoded(&Control::Request(Request {
        number: 1,
        unit_payload: 1,
        wanted: Wanted::Work(vec![7..8]),
    }));
    *empty_range.last_mut().unwrap() = 0;
    assert_eq!(Control::decode(Kind::Request, &empty_range), bad, "empty range");
}

#[test]
fn the_last_units_of_the_longest_row_fit_a_map() {
    let map = |bits: u8| Wanted::LossMap { first: MAX_UNITS - 3, bits: vec![bits] };
    let ask = |wanted| decoded(Request { number: 1, unit_payload: 1, wanted });
    assert!(ask(map(0b0101_1111)).is_ok());
    assert_eq!(ask(map(0b0101_0111)), Err(WireError::BadField));
}

/// Feedback that says nothing but this receipt.
fn bare_feedback(receipt: Receipt) -> Feedback {
    Feedback {
        sent_at: 0,
        grant: 0,
        rate: Rate::ZERO,
        offer: Rate::ZERO,
        interval: 0,
        echo_at: 0,
        echo_hold: 0,
        delay: 0,
        receipt,
        weight: None,
        delay_most: None,
        ecn: None,
        router_binds: false,
    }
}

#[test]
fn receipts_out_of_order_or_out_of_their_span_are_refused() {
    let whole = Receipt { span: 100..200, gaps: vec![], sum: 0, bytes: 0, arrived_at: 0 };
    let refused = |gaps: Vec<Range<u64>>| {
        let receipt = Receipt { gaps, ..whole.clone() };
        let body = encoded(&Control::Feedback(bare_feedback(receipt)));
        Control::decode(Kind::Feedback, &body) == Err(WireError::BadField)
    };
    assert!(!refused(vec![100..101, 199..200]));
    assert!(refused(vec![150..150]), "empty");
    assert!(refused(vec![150..160, 155..170]), "overlapping");
    assert!(refused(vec![150..160, 140..145]), "descending");
    assert!(refused(vec![190..201]), "beyond the span");
    assert!(refused(vec![100..101; GAPS_PER_FEEDBACK + 1]));
    let ends: Vec<Range<u64>> = (0..129).map(|i| 100 + i / 2..101 + i / 2).collect();
    assert!(refused(ends), "too many");
}

#[test]
fn optional_fields_that_are_short_or_out_of_order_are_refused() {
    let feedback = Feedback { weight: Some(1.0), ..bare_feedback(Receipt::default()) };
    let plain = encoded(&Control::Feedback(feedback));
    let decoded = |fields: &[u8]| {
        let body = [&plain, fields].concat();
        match Control::decode(Kind::Feedback, &body)? {
            Some(Control::Feedback(feedback)) => Ok((feedback.delay_most, feedback.ecn)),
            _ => Err(WireError::UnknownKind),
        }
    };
    assert_eq!(decoded(&[1, 4, 0, 0, 0, 9]), Ok((Some(9), None)));
    assert_eq!(decoded(&[1, 5, 0, 0, 0, 9, 77]), Ok((Some(9), None)), "a value may become longer");
    let counts = [2, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1, 0, 3];
    let told = EcnCounts { ect0: 7, ect1: 0, ce: 65_539 };
    assert_eq!(decoded(&counts), Ok((None, Some(told))));
    assert_eq!(decoded(&counts[..13]), Err(WireError::Truncated));
    assert_eq!(decoded(&[1, 3, 0, 0, 9]), Err(WireError::Truncated));
    assert_eq!(decoded(&[1, 4, 0, 0, 0]), Err(WireError::Truncated));
    assert_eq!(decoded(&[1]), Err(WireError::Truncated));
    assert_eq!(decoded(&[1, 4, 0, 0, 0, 9, 1, 4, 0, 0, 0, 9]), Err(WireError::BadField), "twice");
    assert_eq!(decoded(&[9, 0, 1, 4, 0, 0, 0, 9]), Err(WireError::BadField), "not in order");
    assert_eq!(decoded(&[0, 0]), Err(WireError::BadField), "no field has tag 0");
}

#[test]
fn a_weight_that_is_no_positive_number_is_refused() {
    let status = Status {
        proof: 0,
        sent_at: 0,
        grant: 0,
        offer: Rate::ZERO,
        requests_next: 1,
        work_front: 1,
        repair_front: 1,
        echo_at: 0,
        echo_hold: 0,
        limited_by: LimitedBy::Sink,
        work_unit: None,
        weight: Some(1.0),
    };
    let body = encoded(&Control::Status(status));
    let (rest, _) = body.split_last_chunk::<4>().unwrap();
    for weight in [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 2.0] {
        let body = [rest, &weight.to_be_bytes()].concat();
        assert_eq!(Control::decode(Kind::Status, &body), Err(WireError::BadField), "{weight}");
    }
    for cut in 1..4 {
        let short = &body[..body.len() - cut];
        assert_eq!(Control::decode(Kind::Status, short), Err(WireError::Truncated));
    }
}
