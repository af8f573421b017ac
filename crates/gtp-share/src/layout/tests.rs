//! Every value that pages carry survives its way into words and back.
//!
//! Words that no process of this release writes are read as something harmless. These tests must
//! not need shared memory.

use super::*;
use proptest::prelude::*;

fn posted() -> Posted {
    Posted {
        id: 17,
        side: Side::Sink,
        report: Report {
            weight: 2.0,
            peer_weight: 0.25,
            law: Law::EndNode { alpha: 0.1, beta: 0.2 },
            phase: Phase::Closing,
            peer_offer: Rate::UNLIMITED,
            demand: Rate::from_mbps(3),
            firm: Rate::from_bps(1_000 << COARSE_BITS),
            party: 0,
            owner: gtp_proto::Owner::NOBODY,
            measured: Rate::from_mbps(2),
            echoed: 5,
            rtt: Span::from_millis(50),
            counts: Counts::default(),
            packet: Bytes::ZERO,
        },
        principal: u64::MAX,
        transfer: 3,
        held: Outstanding { number: 9, rate: Rate::from_mbps(1), committed: Rate::from_mbps(4) },
        limited_by: LimitedBy::Disk,
        path: PostedPath::default(),
        packets: 1 << 33,
        lost: 1_000,
        wire_bytes: 1 << 40,
        label: Label::new("gtp://host.example/long/path/ä"),
        terms: Terms::NONE,
    }
}

fn terms() -> Terms {
    let (least, most) = (Rate::from_mbps(5), Rate::from_mbps(9));
    Terms { weight: 2.5, each: Rate::from_mbps(7), group: 3, least, most }
}

#[test]
fn terms_of_a_served_client_come_back_and_change_while_its_session_lives() {
    let label = Label::new("192.0.2.1:9").of_client("anna", "lab,two");
    let first = Posted { label, terms: terms(), ..posted() };
    assert_eq!(Posted::decode_with_terms(&first.encode_with_terms()), Some(first));
    let parts = [label.printable(), label.name(), label.groups()];
    assert_eq!(parts, ["192.0.2.1:9", "anna", "lab,two"]);
    let terms = Terms { weight: 0.5, group: 4, ..terms() };
    let next = Posted { terms, label: label.of_client("anna", "two"), ..first };
    let mut known = first;
    assert_eq!(known.update_with_terms(&next.encode_with_terms()), Update::Done);
    assert_eq!(known, next);
    // A host's own session has none, and its label keeps its length.
    let own = Posted { principal: 0, label: Label::new(&"x".repeat(96)), ..first };
    let read = Posted::decode_with_terms(&own.encode_with_terms()).unwrap();
    assert_eq!((read.label, read.terms), (own.label, Terms::NONE));
}

#[test]
fn who_knows_no_terms_sees_where_a_served_client_is() {
    let address = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";
    let label = Label::new(address).of_client(&"ä".repeat(50), "lab");
    let posted = Posted { label, terms: terms(), ..posted() };
    let read = Posted::decode(&posted.encode()).unwrap();
    assert_eq!(read.label.printable(), address);
    assert_eq!(read.label.name(), "ä".repeat(8), "as far as there is room");
}

#[test]
fn a_served_session_is_named_by_its_client_and_its_path_and_a_stranger_by_where_he_is() {
    let of = |client: &str, path: &str| Label::new(&served(client.parse().unwrap(), path));
    let label = of("192.0.2.1:41234", "home/runs/2026/run42.h5");
    assert_eq!(label.printable(), "192.0.2.1:41234 home/runs/2026/run42.h5");
    assert_eq!(label.beside_terms(), label);
    let named = label.of_client("anna", "lab,two");
    let parts = [named.printable(), named.name(), named.groups()];
    assert_eq!(parts, ["home/runs/2026/run42.h5", "anna", "lab,two"]);
    let long = format!("home/{}run42.h5", "directory/".repeat(400));
    let label = of("[2001:db8:1111:2222:3333:4444:5555:6666]:65535", &long);
    let named = label.of_client(&"n".repeat(60), "lab");
    let path = named.printable();
    assert!(path.starts_with("home/…") && path.ends_with("/run42.h5"), "{path}");
    assert_eq!((path.len(), named.name().len()), (PATH_LEAST, SHORT_LABEL_BYTES - PATH_LEAST - 1));
    let beside = label.beside_terms().printable();
    assert!(beside.starts_with("[2001:db8:1111") && beside.ends_with("run42.h5"), "{beside}");
    assert!(beside.len() <= SHORT_LABEL_BYTES, "{beside}");
    // The name of a client's own session may have a space, too.
    let own = Label::new("gtp://host/my file");
    assert_eq!(own.beside_terms(), own);
    assert_eq!(own.of_client("anna", "").printable(), "gtp://host/my file");
    // It is on the page as it was meant, and nothing of it is taken for terms.
    let posted = Posted { label: label.beside_terms(), terms: terms(), ..posted() };
    assert_eq!(Posted::decode_with_terms(&posted.encode_with_terms()), Some(posted));
}

#[test]
fn a_path_keeps_its_export_and_its_end_within_any_length() {
    for path in ["home/a/b/c.dat", "ä/öööööö/üü", "nothing-but-a-long-name", "/", ""] {
        for most in 0..=path.len() + 1 {
            let short = shortened(path, most);
            assert!(short.len() <= most, "{most}: {short}");
            let end = short.rsplit('…').next().unwrap();
            assert!(path.ends_with(end) && (short == path) == (path.len() <= most), "{short}");
        }
    }
    assert_eq!(shortened("home/some/where/c.dat", 16), "home/…re/c.dat");
}

#[test]
fn records_come_back_as_they_were() {
    assert_eq!(Posted::decode(&posted().encode()), Some(posted()));
    let granted = Granted {
        id: 17,
        grant: Grant {
            number: 3,
            rate: Rate::from_mbps(7),
            offer: Rate::UNLIMITED,
            weight: 0.125,
            interval: Span::from_millis(20),
        },
    };
    assert_eq!(Granted::decode(&granted.encode()), Some(granted));
}

#[test]
fn what_changes_in_a_session_is_read_from_its_first_words_and_the_rest_stays() {
    let first = posted();
    let report = Report {
        phase: Phase::Open,
        peer_weight: 0.5,
        peer_offer: Rate::from_mbps(9),
        demand: Rate::from_mbps(8),
        firm: Rate::UNLIMITED,
        measured: Rate::from_mbps(7),
        rtt: Span::from_millis(3),
        echoed: 6,
        ..first.report
    };
    let standing = Some(Standing {
        group: 700,
        sessions: 64,
        mode: Mode::Guard,
        carries: Rate::from_bps(5 << COARSE_BITS),
        queue: Queue::Another,
        flows: NonZeroU8::new(8).unwrap(),
        ecn: EcnStanding { state: EcnState::On, marks: 1 << 40 },
    });
    let path = PostedPath::new(standing);
    assert_eq!(path.standing(), standing);
    let (mode, queue) = (Mode::Unbounded, Queue::None);
    let unbounded = standing.map(|path| Standing { mode, queue, ..path });
    assert_eq!(PostedPath::new(unbounded).standing(), unbounded);
    assert!(!path.is_over_tcp() && path.over_tcp().is_over_tcp());
    assert_eq!(path.over_tcp().standing(), standing);
    for why in EcnFailure::ALL {
        let ecn = EcnStanding { state: EcnState::Failed(why), marks: 0 };
        let standing = standing.map(|path| Standing { ecn, ..path });
        assert_eq!(PostedPath::new(standing).standing(), standing);
    }
    let (limited_by, packets, lost, wire_bytes) = (LimitedBy::Path, 1, 2, 3);
    let next = Posted { report, limited_by, path, packets, lost, wire_bytes, ..first };
    let words = next.encode();
    let mut known = first;
    assert_eq!(known.update(words.first_chunk().unwrap()), Update::Done);
    assert_eq!(known, next);
    let another = Posted { id: 18, ..next }.encode();
    assert_eq!(known.update(another.first_chunk().unwrap()), Update::Another);
    assert_eq!(known.update(&[0; LIVE_WORDS]), Update::Gone);
    assert_eq!(known, next);
}

#[test]
fn an_empty_slot_is_no_record() {
    assert_eq!(Posted::decode(&[0; POSTED_WORDS - 1]), None);
    assert_eq!(Granted::decode(&[0; GRANTED_WORDS - 1]), None);
}

#[test]
fn labels_are_cut_between_characters_and_shown_without_controls() {
    let long = "ä".repeat(LABEL_BYTES);
    assert_eq!(Label::new(&long).printable().chars().count(), LABEL_BYTES / 2);
    assert_eq!(Label::new("a\u{1b}[2Jb\u{202e}").printable(), "a?[2Jb?");
}

proptest! {
    #[test]
    fn any_words_decode_to_numbers_in_range_or_to_nothing(
        words in proptest::collection::vec(any::<u64>(), POSTED_WORDS - 1),
        codes in any::<bool>(),
    ) {
        let mut words: [u64; POSTED_WORDS - 1] = words.try_into().unwrap();
        if codes {
            words[0] = words[0] & !0xffff_ffff | 0x0102_0201; // Codes that mean something.
        }
        if let Some(posted) = Posted::decode_with_terms(&words) {
            let Terms { weight, least, most, .. } = posted.terms;
            prop_assert!((0.001..=1000.0).contains(&weight));
            prop_assert!(least <= most && !least.is_unlimited());
            let parts = [posted.label.name(), posted.label.groups()];
            prop_assert!(parts.iter().all(|part| part.chars().all(gtp_text::is_plain)));
            let weight = posted.report.weight;
            prop_assert!((1.0 / WEIGHT_MOST..=WEIGHT_MOST).contains(&weight));
            let peer_weight = posted.report.peer_weight;
            prop_assert!((PEER_WEIGHT_LEAST..=WEIGHT_MOST).contains(&peer_weight));
            prop_assert!(posted.report.rtt <= RTT_MOST);
            prop_assert!(posted.held.committed >= posted.held.rate);
            prop_assert!(posted.path.standing().is_none_or(|path| path.sessions < 1_024));
            prop_assert!(posted.label.printable().chars().all(gtp_text::is_plain));
        } else {
            prop_assert!(!codes);
        }
    }
}
