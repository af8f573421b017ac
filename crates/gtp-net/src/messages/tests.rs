//! What goes in comes out, and what should not go in does not.

use proptest::prelude::*;

use super::*;

fn text() -> impl Strategy<Value = PeerText> {
    ".{0,400}".prop_map(PeerText::new)
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![
        path().prop_map(|path| Verb::Get { path }),
        path().prop_map(|path| Verb::Put { path }),
        path().prop_map(|path| Verb::List { path }),
        path().prop_map(|path| Verb::Fetch { path }),
        (path(), any::<[u8; 16]>()).prop_map(|(path, transfer)| Verb::Relay { path, transfer }),
        (path(), any::<bool>()).prop_map(|(path, changes)| Verb::Tree { path, changes }),
        (
            proptest::collection::vec(any::<u8>(), 0..=SERVICE_MAX),
            any::<u32>(),
            STREAM_WINDOW,
            delivery()
        )
            .prop_map(|(service, down_session, window, delivery)| Verb::Stream {
                service,
                down_session,
                window,
                delivery
            }),
    ]
}

fn delivery() -> impl Strategy<Value = Option<Delivery>> {
    prop_oneof![Just(None), Just(Some(Delivery::Frames)), Just(Some(Delivery::FramesOnce))]
}

fn law() -> impl Strategy<Value = Law> {
    let part = || (1..=1000_u32).prop_map(|n| f64::from(n) / 1000.0);
    prop_oneof![
        Just(Law::Grant),
        (part(), part()).prop_map(|(alpha, beta)| Law::EndNode { alpha, beta }),
        Just(Law::Gtp2004),
        ALONE_RATE.prop_map(|rate| Law::Rbudp { rate }),
        ALONE_RATE.prop_map(|rate| Law::Sabul { rate }),
        ALONE_RATE.prop_map(|rate| Law::Tsunami { rate }),
        (ALONE_RATE, ALONE_RATE).prop_map(|(link, rate)| Law::LambdaStream { link, rate }),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (path(), any::<bool>(), 0..=CONTENT_MAX, 0..=0o7777_u32, any::<i64>(), 0..1_000_000_000_u32)
        .prop_map(|(path, is_file, size, mode, mtime_s, mtime_ns)| {
            let kind = if is_file { EntryKind::File } else { EntryKind::Directory };
            let size = if is_file { size } else { 0 };
            Entry { path, kind, size, mode, mtime_s, mtime_ns }
        })
}

fn page() -> impl Strategy<Value = Page> {
    proptest::collection::vec(entry(), 1..20).prop_map(|entries| Page { entries })
}

fn end() -> impl Strategy<Value = PagesEnd> {
    (0..=ENTRIES_MAX, 0..=CONTENT_MAX)
        .prop_map(|(entries_total, content_bytes)| PagesEnd { entries_total, content_bytes })
}

fn open() -> impl Strategy<Value = Open> {
    let suites = proptest::collection::vec(any::<u8>(), 1..=SUITES_MAX).prop_map(SuiteList);
    let (weight, unit) = (WEIGHT_MILLI, UNIT_PAYLOAD);
    let interval = proptest::option::of(INTERVAL_US);
    let ticket = proptest::option::of(proptest::collection::vec(any::<u8>(), 1..300));
    let ends = (any::<u32>(), interval, any::<Option<u8>>(), ticket, any::<Option<bool>>());
    (any::<u32>(), verb(), suites, law(), weight, unit, ends).prop_map(
        |(version, verb, suites, law, weight_milli, unit_payload_max, ends)| Open {
            version,
            verb,
            suites,
            law,
            weight_milli,
            unit_payload_max,
            client_session: ends.0,
            interval_us: ends.1,
            path: ends.2,
            ticket: ends.3,
            relay: ends.4,
        },
    )
}

fn opened() -> impl Strategy<Value = Opened> {
    let ids = (any::<u32>(), any::<u32>(), any::<u8>(), UNIT_PAYLOAD, 1..=u16::MAX);
    let object =
        proptest::option::of(prop_oneof![Just(EntryKind::File), Just(EntryKind::Directory)]);
    let said = proptest::option::of(law());
    let clock = any::<Option<u64>>();
    (ids, object, end(), WEIGHT_MILLI, INTERVAL_US, said, any::<Option<u8>>(), clock).prop_map(
        |(
            (version, server_session, suite, unit, udp_port),
            object,
            end,
            weight,
            interval,
            law,
            path,
            time_s,
        )| {
            Opened {
                version,
                server_session,
                suite,
                unit_payload: unit,
                udp_port,
                object,
                entries_total: end.entries_total,
                content_bytes: end.content_bytes,
                weight_milli: weight,
                interval_us: interval,
                path,
                law,
                by_ticket: law.map(|_| true),
                relays: time_s.map(|bps| Relays { in_bps: Some(bps), out_bps: None }),
                time_s,
            }
        },
    )
}

fn roots() -> impl Strategy<Value = RootsPage> {
    (0..=ENTRIES_MAX, proptest::collection::vec(any::<[u8; 32]>(), 1..50))
        .prop_map(|(first_file, roots)| RootsPage { first_file, roots: Roots(roots) })
}

fn message() -> impl Strategy<Value = Message> {
    let reason = || (0..=14_u8).prop_map(Reason::from_code);
    prop_oneof![
        open().prop_map(Message::Open),
        opened().prop_map(Message::Opened),
        (reason(), text(), any::<Option<bool>>()).prop_map(|(reason, text, outside_hours)| {
            Message::Refused(Refused { reason, text, outside_hours })
        }),
        page().prop_map(Message::ManifestPage),
        page().prop_map(Message::ListingPage),
        end().prop_map(Message::ManifestEnd),
        end().prop_map(Message::ListingEnd),
        UNIT_PAYLOAD.prop_map(|unit_payload| Message::UnitChoice(UnitChoice { unit_payload })),
        (0..=ENTRIES_MAX, 1..=ROOTS_PER_PAGE as u32).prop_map(|(first_file, files)| {
            Message::RootsWanted(RootsWanted { first_file, files })
        }),
        roots().prop_map(Message::Roots),
        (end(), any::<bool>()).prop_map(|(e, whole)| Message::Done(Done {
            files: e.entries_total,
            content_bytes: e.content_bytes,
            brought_bytes: (!whole).then_some(e.content_bytes / 2),
        })),
        (reason(), text(), proptest::option::of(path()))
            .prop_map(|(reason, text, path)| Message::Fault(Fault { reason, text, path })),
        Just(Message::Cancel),
        Just(Message::Keepalive),
        end().prop_map(|e| Message::Ready(Ready {
            resumed_bytes: e.content_bytes,
            files_unchanged: e.entries_total
        })),
        (any::<u32>(), STREAM_WINDOW, delivery()).prop_map(|(down_session, window, delivery)| {
            Message::Connected(Connected { down_session, window, delivery })
        }),
        (0..=STREAM_UNITS_MOST, 0..=STREAM_UNITS_MOST)
            .prop_map(|(a, b)| Message::Ended(Ended { units: a.max(b), frames: a.min(b) })),
        Just(Message::ArrivalsWanted),
        any::<Option<u16>>().prop_map(|port| Message::Carry(Carry { port })),
        Just(Message::Unheard),
        prop_oneof![Just(Arrivals::None), Just(Arrivals::Some), Just(Arrivals::Unread)]
            .prop_map(|arrivals| Message::ArrivalsSeen(ArrivalsSeen { arrivals })),
        of_tree(),
        of_fetch(),
        of_relay(),
    ]
}

fn of_fetch() -> impl Strategy<Value = Message> {
    let ticket = proptest::collection::vec(any::<u8>(), 1..300);
    let source = ("[a-z.]{1,40}", ticket).prop_map(|(host, ticket)| FetchSource { host, ticket });
    let sources = proptest::collection::vec(source, 1..=FETCH_SOURCES_MAX);
    let bytes = || 0..=CONTENT_MAX;
    let first = proptest::option::of(text());
    prop_oneof![
        (sources, any::<u32>()).prop_map(|(sources, patience_ms)| {
            Message::FetchFrom(FetchFrom { sources, patience_ms })
        }),
        (bytes(), bytes(), bytes(), bytes()).prop_map(
            |(bytes, total, resumed_bytes, rechecked)| {
                Message::FetchSeen(FetchSeen { bytes, total, resumed_bytes, rechecked })
            }
        ),
        (bytes(), bytes(), 0..=ENTRIES_MAX, first).prop_map(|(a, b, files, first_left_out)| {
            Message::Fetched(Fetched {
                bytes: a.max(b),
                resumed_bytes: a.min(b),
                files_written: files,
                files_unchanged: files,
                left_out: files,
                first_left_out,
            })
        }),
    ]
}

fn block_ranges() -> impl Strategy<Value = BlockRanges> {
    proptest::collection::vec(1..100_u64, 0..40).prop_map(|steps| {
        let mut at = 0;
        let mut next = |step| {
            at += step;
            at
        };
        let ranges = steps.chunks_exact(2).map(|pair| next(pair[0])..next(pair[1]));
        BlockRanges(ranges.collect())
    })
}

fn of_relay() -> impl Strategy<Value = Message> {
    let number = || 0..RELAY_SINKS_MAX;
    let ticket = proptest::collection::vec(any::<u8>(), 1..300);
    let values = proptest::collection::vec(any::<[u8; 32]>(), 1..50);
    prop_oneof![
        (any::<[u8; 16]>(), number())
            .prop_map(|(transfer, number)| Message::RelayJoin(RelayJoin { transfer, number })),
        (number(), "[a-z.]{1,40}", ticket).prop_map(|(number, host, ticket)| {
            Message::RelayPeer(RelayPeer { number, host, ticket })
        }),
        block_ranges().prop_map(|blocks| Message::RelayGive(RelayGive { blocks })),
        (0..1_000_u64, values).prop_map(|(first, values)| {
            Message::RelayValues(RelayValues { first, values: Roots(values) })
        }),
        (block_ranges(), any::<Option<u64>>(), proptest::option::of(block_ranges())).prop_map(
            |(blocks, reached, kept)| Message::RelayHave(RelayHave { blocks, reached, kept })
        ),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Moment { seconds, nanos })
}

fn xattrs() -> impl Strategy<Value = Vec<TreeXattr>> {
    let one = ("[a-z.]{1,40}", path()).prop_map(|(name, value)| TreeXattr { name, value });
    proptest::collection::vec(one, 0..4)
}

fn node() -> impl Strategy<Value = TreeNode> {
    let kind = prop_oneof![
        Just(NodeKind::File),
        Just(NodeKind::Directory),
        Just(NodeKind::Link),
        Just(NodeKind::Special)
    ];
    let numbers = (0..=CONTENT_MAX, 0..=0o7777_u32, moment(), any::<u32>(), any::<u32>());
    let more = (proptest::option::of(any::<u64>()), proptest::option::of(any::<[u8; 32]>()));
    (path(), kind, numbers, more, xattrs()).prop_map(
        |(path, kind, (size, mode, mtime, uid, gid), (same, hash), xattrs)| {
            let target = (kind == NodeKind::Link).then(|| b"../x".to_vec());
            let hash = hash.map(|hash| Roots(vec![hash]));
            TreeNode { path, kind, size, mode, mtime, uid, gid, target, same, hash, xattrs }
        },
    )
}

fn seen() -> impl Strategy<Value = TreeSeen> {
    (0..=CONTENT_MAX, proptest::option::of(moment())).prop_map(|(size, mtime)| TreeSeen {
        kind: NodeKind::File,
        size,
        mtime,
    })
}

fn deed() -> impl Strategy<Value = TreeDeed> {
    let list = || proptest::option::of(xattrs().prop_map(|all| XattrList { all }));
    let mode = proptest::option::of(0..=0o777_u32);
    let owner = proptest::option::of(any::<(u32, u32)>());
    let dress = (path(), mode, proptest::option::of(moment()), owner, list(), list());
    prop_oneof![
        path().prop_map(|path| TreeDeed::MakeDir { path }),
        (path(), seen()).prop_map(|(path, seen)| TreeDeed::Remove { path, seen }),
        (path(), seen(), path()).prop_map(|(path, seen, to)| TreeDeed::Move { path, seen, to }),
        path().prop_map(|path| TreeDeed::Link { path, target: b"x".to_vec() }),
        (path(), path()).prop_map(|(path, to)| TreeDeed::HardLink { path, to }),
        (path(), path(), any::<bool>()).prop_map(|(path, to, copied)| TreeDeed::Keep {
            path,
            to,
            copied
        }),
        path().prop_map(|path| TreeDeed::Dig { path }),
        (path(), proptest::collection::vec(any::<u8>(), 0..200), 0..=0o777_u32, moment()).prop_map(
            |(path, content, mode, mtime)| TreeDeed::Write { path, content, mode, mtime }
        ),
        patch(),
        dress.prop_map(|(path, mode, mtime, owner, xattrs, acls)| {
            let (uid, gid) = (owner.map(|o| o.0), owner.map(|o| o.1));
            TreeDeed::Dress { path, mode, mtime, uid, gid, xattrs, acls }
        }),
    ]
}

fn patch() -> impl Strategy<Value = TreeDeed> {
    let rest = proptest::collection::vec(any::<u8>(), 0..200);
    let size = 0..=SMALL_MAX as u32;
    let about = (0..=0o777_u32, moment(), any::<[u8; 16]>());
    (path(), seen(), any::<u64>(), rest, size, about).prop_map(
        |(path, seen, kept, rest, size, (mode, mtime, hash))| {
            let hash = hash.to_vec();
            TreeDeed::Patch { path, seen, kept, rest, size, hash, mode, mtime }
        },
    )
}

fn own_pieces() -> impl Strategy<Value = OwnPieces> {
    let sums = proptest::collection::vec(any::<[u8; 8]>(), 0..=64);
    (0..=SMALL_MAX as u32, sums).prop_map(|(size, sums)| OwnPieces { size, sums: sums.concat() })
}

fn sums() -> impl Strategy<Value = TreeSums> {
    (any::<[u8; 32]>(), proptest::collection::vec(any::<[u8; 8]>(), 0..20))
        .prop_map(|(key, sums)| TreeSums { key: key.to_vec(), sums: sums.concat() })
}

fn tree_page() -> impl Strategy<Value = TreePage> {
    let alike = (any::<u32>(), proptest::collection::vec(any::<u64>(), 0..4), any::<[u32; 2]>())
        .prop_map(|(number, same, [uid, gid])| TreeAlike {
            before: 1,
            number,
            same,
            owners: vec![TreeOwner { uid, gid }],
        });
    let alike = proptest::collection::vec(alike, 1..4).prop_map(|dirs| AlikeList { dirs });
    (proptest::collection::vec(node(), 1..5), proptest::option::of(alike))
        .prop_map(|(nodes, alike)| TreePage { nodes, alike })
}

fn contents_wanted() -> impl Strategy<Value = Message> {
    let file = (path(), seen(), proptest::option::of(own_pieces()))
        .prop_map(|(path, seen, own)| SmallFile { path, seen, own });
    (proptest::collection::vec(file, 1..5), any::<(bool, Option<[u8; 32]>)>()).prop_map(
        |(files, (settled, key))| {
            let key = key.map(|key| key.to_vec());
            Message::ContentsWanted(ContentsWanted { files, settled, key })
        },
    )
}

fn contents() -> impl Strategy<Value = Message> {
    let file = any::<(Option<[u8; 9]>, Option<[u8; 16]>, Option<u64>)>().prop_map(
        |(content, sums, kept)| SmallContent {
            content: content.map(|bytes| bytes.to_vec()),
            sums: sums.map(|bytes| bytes.to_vec()),
            kept,
        },
    );
    proptest::collection::vec(file, 1..5).prop_map(|files| Message::Contents(Contents { files }))
}

fn of_tree() -> impl Strategy<Value = Message> {
    let faults =
        (0..DEEDS_PER_PAGE as u32, text()).prop_map(|(index, text)| DeedFault { index, text });
    let lacks =
        (text(), 1..=DEEDS_PER_PAGE as u32).prop_map(|(what, number)| Lack { what, number });
    let lacks = proptest::collection::vec(lacks, 1..=LACKS_MAX).prop_map(|kinds| Lacks { kinds });
    let values = proptest::collection::vec(any::<[u8; 32]>(), 0..50);
    prop_oneof![
        (any::<(bool, bool, bool, Option<bool>)>(), proptest::option::of(sums())).prop_map(
            |((hashes, xattrs, acls, packs), sums)| {
                let only = packs.map(|_| b"name".to_vec());
                Message::TreeWanted(TreeWanted { hashes, xattrs, acls, packs, sums, only })
            }
        ),
        tree_page().prop_map(Message::TreePage),
        tree_page().prop_map(|page| Message::TreePacked(Packed(page))),
        (0..=ENTRIES_MAX, any::<(bool, bool, Option<u32>, Option<bool>)>()).prop_map(
            |(nodes_total, (is_there, may_own, small_max, alone))| {
                let (patches, packs) = (alone, alone);
                let end =
                    TreeEnd { nodes_total, is_there, may_own, small_max, alone, patches, packs };
                Message::TreeEnd(end)
            }
        ),
        proptest::collection::vec(deed(), 1..5).prop_map(|deeds| Message::Deeds(Deeds { deeds })),
        proptest::collection::vec(deed(), 1..5)
            .prop_map(|deeds| Message::DeedsPacked(Packed(Deeds { deeds }))),
        (proptest::collection::vec(faults, 0..5), proptest::option::of(lacks))
            .prop_map(|(faults, lacks)| Message::DeedsDone(DeedsDone { faults, lacks })),
        contents_wanted(),
        contents(),
        (path(), 0..=CONTENT_MAX, 0..=CONTENT_MAX).prop_map(|(path, size, first)| {
            Message::BlocksWanted(BlocksWanted { path, size, first })
        }),
        (path(), 0..=CONTENT_MAX, values).prop_map(|(path, first, values)| {
            Message::BlockValues(BlockValues { path, first, values: Roots(values) })
        }),
    ]
}

fn a_file(path: &[u8]) -> Entry {
    let (kind, mode) = (EntryKind::File, 0o644);
    Entry { path: path.to_vec(), kind, size: 1, mode, mtime_s: 0, mtime_ns: 0 }
}

fn an_open() -> Open {
    Open {
        version: VERSION,
        verb: Verb::Get { path: b"a".to_vec() },
        suites: SuiteList(vec![1]),
        law: Law::Grant,
        weight_milli: 1000,
        unit_payload_max: 1400,
        client_session: 1,
        interval_us: None,
        path: None,
        ticket: None,
        relay: None,
    }
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was(message in message()) {
        let frame = message.to_frame().unwrap();
        let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
        prop_assert_eq!(length as usize, frame.len() - LENGTH_BYTES);
        prop_assert_eq!(Message::parse(&frame[LENGTH_BYTES..]), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_are_an_error_or_a_message_that_encodes(
        kind in 0..40_u8,
        body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(message) = Message::parse(&[&[kind], &body[..]].concat()) {
            prop_assert!(message.to_frame().is_ok());
        }
    }

    #[test]
    fn damaged_and_cut_messages_are_an_error_or_a_valid_message(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = message.to_frame().unwrap().split_off(LENGTH_BYTES);
        let at = at.index(frame.len());
        prop_assert!(Message::parse(&frame[..at]).is_err());
        frame[at] = byte;
        if let Ok(message) = Message::parse(&frame) {
            prop_assert!(message.to_frame().is_ok());
        }
    }

    #[test]
    fn nothing_printable_moves_a_cursor(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        prop_assert!(!printable(&bytes).chars().any(char::is_control));
    }
}

#[test]
fn fields_of_later_versions_are_skipped() {
    let mut frame = Message::Open(an_open()).to_frame().unwrap().split_off(LENGTH_BYTES);
    assert_eq!(frame[1], 0xA7, "a map of the seven fields that are there");
    frame[1] = 0xA9;
    frame.extend_from_slice(&[0x18, 200, 0x82, 0x01, 0x9F, 0x61, b'x', 0xFF]);
    frame.extend_from_slice(&[0x18, 201, 0xF5]);
    assert_eq!(Message::parse(&frame), Ok(Message::Open(an_open())));
    let keepalive = [12, 0xA1, 0x00, 0x01];
    assert_eq!(Message::parse(&keepalive), Ok(Message::Keepalive));
}

#[test]
fn unknown_message_types_and_empty_frames_are_refused() {
    for kind in [0, DATAGRAM, 99, 255] {
        assert_eq!(Message::parse(&[kind, 0xA0]), Err(Malformed::UnknownType(kind)));
        assert_eq!(frame_limit(kind), Err(Malformed::UnknownType(kind)));
    }
    assert!(matches!(Message::parse(&[]), Err(Malformed::Length { length: 0, .. })));
}

#[test]
fn unknown_verbs_and_laws_are_refused() {
    let mut frame = Message::Open(an_open()).to_frame().unwrap().split_off(LENGTH_BYTES);
    let verb = frame.windows(3).position(|w| w == [0x82, 0x00, 0x81]).unwrap();
    frame[verb + 1] = 9;
    assert!(matches!(Message::parse(&frame), Err(Malformed::Body { message: "Open", .. })));
}

#[test]
fn a_missing_field_and_bytes_behind_the_message_are_refused() {
    assert!(matches!(Message::parse(&[6, 0xA0]), Err(Malformed::Body { .. })));
    assert!(matches!(Message::parse(&[12, 0xA0, 0x00]), Err(Malformed::Body { .. })));
}

#[test]
fn frames_longer_than_their_message_may_be_are_refused() {
    let long = vec![12; FRAME_MAX + 1];
    let refused = Malformed::Length { length: long.len() as u64, limit: FRAME_MAX };
    assert_eq!(Message::parse(&long), Err(refused));
    assert!(Message::parse(&vec![4; PAGE_FRAME_MAX + 1]).is_err());
}

#[test]
fn numbers_out_of_range_are_refused_both_ways() {
    let bad: [fn(&mut Open); 13] = [
        |o| o.weight_milli = 0,
        |o| o.weight_milli = 1_000_001,
        |o| o.unit_payload_max = 1_179,
        |o| o.unit_payload_max = u16::MAX,
        |o| o.interval_us = Some(0),
        |o| o.suites = SuiteList(vec![]),
        |o| o.suites = SuiteList(vec![1; SUITES_MAX + 1]),
        |o| o.law = Law::EndNode { alpha: f64::NAN, beta: 0.2 },
        |o| o.law = Law::EndNode { alpha: 0.1, beta: f64::INFINITY },
        |o| o.verb = Verb::Get { path: vec![b'a'; PATH_MAX + 1] },
        |o| o.verb = Verb::Fetch { path: vec![b'a'; PATH_MAX + 1] },
        |o| o.ticket = Some(Vec::new()),
        |o| o.ticket = Some(vec![0; TICKET_MAX + 1]),
    ];
    for spoil in bad {
        let mut open = an_open();
        spoil(&mut open);
        let message = Message::Open(open);
        assert!(matches!(message.to_frame(), Err(Malformed::OutOfRange(_))), "{message:?}");
        let mut frame = vec![message.kind()];
        message.encode_body(&mut frame);
        assert!(matches!(Message::parse(&frame), Err(Malformed::OutOfRange(_))), "{message:?}");
    }
}

#[test]
fn a_directory_with_a_size_is_refused() {
    let mut entry = a_file(b"d");
    entry.kind = EntryKind::Directory;
    let page = Message::ManifestPage(Page { entries: vec![entry] });
    assert_eq!(page.to_frame(), Err(Malformed::OutOfRange("size of a directory")));
}

#[test]
fn a_list_that_claims_more_entries_than_are_there_takes_no_memory_for_them() {
    for claim in [&[0x99_u8, 0x10, 0x00][..], &[0x9B, 0xFF, 0, 0, 0, 0, 0, 0, 0], &[0x9F]] {
        let frame = [&[4, 0xA1, 0x00], claim].concat();
        assert!(matches!(Message::parse(&frame), Err(Malformed::Body { .. })));
    }
    for claim in [&[0x5B_u8, 0x7F, 0, 0, 0, 0, 0, 0, 0][..], &[0x5A, 0xFF, 0xFF, 0xFF, 0xFF]] {
        let frame = [&[8, 0xA2, 0x00, 0x00, 0x01], claim].concat();
        assert!(matches!(Message::parse(&frame), Err(Malformed::Body { .. })));
    }
}

/// What is read of a message of this type whose body is these bytes, packed.
fn packed(kind: u8, plain: &[u8]) -> Result<Message, Malformed> {
    let mut frame = vec![kind];
    let bytes = miniz_oxide::deflate::compress_to_vec(plain, 9);
    let mut encoder = minicbor::Encoder::new(&mut frame);
    encoder.map(1).unwrap().u8(0).unwrap().bytes(&bytes).unwrap();
    Message::parse(&frame)
}

#[test]
fn a_packed_page_that_is_no_page_or_too_long_a_one_is_refused_without_being_unpacked_to_its_end() {
    let packed = |plain: &[u8]| packed(30, plain);
    let nodes = vec![a_node(b"a"), a_node(b"b")];
    let whole = TreePage { nodes, alike: None };
    let page = minicbor::to_vec(whole.clone()).unwrap();
    assert_eq!(packed(&page), Ok(Message::TreePacked(Packed(whole))));
    let with_more = [&page[..], &[0]].concat();
    let empty = minicbor::to_vec(TreePage { nodes: Vec::new(), alike: None }).unwrap();
    for plain in [&with_more[..], &empty, b"", &vec![0; PACKED_PAGE_MAX + 1], &vec![0; 64 << 20]] {
        assert!(packed(plain).is_err(), "{} bytes", plain.len());
    }
    let not_deflated = [&[30, 0xa1, 0, 0x42][..], &[0xff, 0xff]].concat();
    assert!(Message::parse(&not_deflated).is_err());
}

#[test]
fn packed_steps_that_are_too_long_or_none_are_refused() {
    let packed = |plain: &[u8]| packed(33, plain);
    let steps = |path: &str| Deeds { deeds: vec![TreeDeed::Dig { path: path.into() }] };
    let plain = |steps: Deeds| minicbor::to_vec(steps).unwrap();
    assert_eq!(packed(&plain(steps("a"))), Ok(Message::DeedsPacked(Packed(steps("a")))));
    let none = plain(Deeds { deeds: Vec::new() });
    let long = plain(steps(&"a".repeat(PATH_MAX + 1)));
    for plain in [&none[..], &long, b"", &vec![0; PACKED_PAGE_MAX + 1], &vec![0; 64 << 20]] {
        assert!(packed(plain).is_err(), "{} bytes", plain.len());
    }
}

#[test]
fn sums_and_directories_that_are_alike_are_refused_where_they_do_not_fit() {
    let wanted = |key: usize, sums: usize| {
        let sums = Some(TreeSums { key: vec![0; key], sums: vec![0; sums] });
        let none = (false, false, false, None);
        let (hashes, xattrs, acls, packs) = none;
        Message::TreeWanted(TreeWanted { hashes, xattrs, acls, packs, sums, only: None })
            .to_frame()
            .is_ok()
    };
    assert!(wanted(32, 0) && wanted(32, 8 * TREE_SUMS_MAX));
    assert!(!wanted(31, 8) && !wanted(32, 9) && !wanted(32, 8 * TREE_SUMS_MAX + 8));
    let page = |before: &[u32], owners: usize| {
        let alike = |&before| TreeAlike {
            before,
            number: 0,
            same: Vec::new(),
            owners: vec![TreeOwner { uid: 0, gid: 0 }; owners],
        };
        let alike = Some(AlikeList { dirs: before.iter().map(alike).collect() });
        Message::TreePage(TreePage { nodes: vec![a_node(b"a")], alike }).to_frame().is_ok()
    };
    assert!(page(&[0, 1, 1], 1));
    assert!(!page(&[], 1), "no directory");
    assert!(!page(&[1, 0], 1) && !page(&[2], 1), "no place in the page");
    assert!(!page(&[0], 0) && !page(&[0], ENTRIES_PER_PAGE + 1), "owners");
}

fn a_node(path: &[u8]) -> TreeNode {
    TreeNode {
        path: path.to_vec(),
        kind: NodeKind::File,
        size: 1,
        mode: 0o644,
        mtime: Moment { seconds: 1, nanos: 2 },
        uid: 0,
        gid: 0,
        target: None,
        same: None,
        hash: None,
        xattrs: Vec::new(),
    }
}

#[test]
fn deep_nesting_in_an_unknown_field_ends_in_an_error_not_in_a_full_stack() {
    for nest in [0x81, 0x9F, 0xBF, 0xC1] {
        let mut frame = vec![12, 0xA1, 0x18, 200];
        frame.resize(FRAME_MAX, nest);
        assert!(matches!(Message::parse(&frame), Err(Malformed::Body { .. })));
    }
}

#[test]
fn roots_of_a_wrong_length_are_refused() {
    let mut frame = vec![8, 0xA2, 0x00, 0x00, 0x01, 0x58, 33];
    frame.extend_from_slice(&[0; 33]);
    assert!(matches!(Message::parse(&frame), Err(Malformed::Body { .. })));
}

#[test]
fn pages_hold_all_entries_in_order_and_each_may_be_sent() {
    let long = |n: usize| a_file(&vec![b'x'; n % (PATH_MAX + 1)]);
    let rows: [Vec<Entry>; 4] = [
        vec![],
        (0..10_000).map(|n| a_file(n.to_string().as_bytes())).collect(),
        (0..1_000).map(|_| long(PATH_MAX)).collect(),
        (0..9_000).map(|n| long(n * 7)).collect(),
    ];
    for row in rows {
        let pages: Vec<Page> = Pages::new(row.clone()).collect();
        for page in &pages {
            assert!(Message::ManifestPage(page.clone()).to_frame().is_ok());
        }
        let back: Vec<Entry> = pages.into_iter().flat_map(|page| page.entries).collect();
        assert_eq!(back, row);
    }
}

#[test]
fn text_from_a_peer_is_shown_without_control_characters_and_cut() {
    let text = PeerText::new("red \x1b[31m\u{202e}gpj.exe\r\nit's \"ü\"\u{9b}2J");
    let shown = text.to_string();
    assert_eq!(shown, "red \\u{1b}[31m\\u{202e}gpj.exe\\r\\nit's \"ü\"\\u{9b}2J");
    assert_eq!(printable(b"a\xff\x00b\\"), "a\\xff\\0b\\\\");
    assert!(PeerText::new("ü".repeat(TEXT_MAX)).check().is_ok());
    let text = PeerText("x".repeat(TEXT_MAX + 1));
    let long = Refused { reason: Reason::Busy, text, outside_hours: None };
    assert!(Message::Refused(long).to_frame().is_err());
}

#[test]
fn reasons_keep_their_codes_and_unknown_ones_are_other() {
    for code in 0..=14 {
        assert_eq!(Reason::from_code(code).code(), code);
    }
    assert_eq!(Reason::from_code(200), Reason::Other);
    assert_eq!(Reason::Missing.exit_code(), 3);
    assert_eq!(Reason::NotAuthorised.exit_code(), 7);
}

#[test]
#[allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.
fn ranges_of_blocks_that_touch_are_empty_or_lie_beyond_the_last_block_are_refused() {
    let have = |ranges: &[std::ops::Range<u64>]| {
        let blocks = BlockRanges(ranges.to_vec());
        Message::RelayHave(RelayHave { blocks, reached: None, kept: None }).to_frame()
    };
    assert!(have(&[0..1, 2..3]).is_ok() && have(&[]).is_ok());
    for bad in [&[0..2, 2..3][..], &[3..4, 0..1], &[5..5], &[0..RELAY_BLOCKS_MAX + 1]] {
        assert!(have(bad).is_err(), "{bad:?}");
    }
    let most = |count| (0..count).map(|n| 2 * n..2 * n + 1).collect::<Vec<_>>();
    assert!(have(&most(RELAY_RANGES_MAX as u64)).is_ok());
    assert!(have(&most(RELAY_RANGES_MAX as u64 + 1)).is_err());
    // Pairs that are said to be many more than there are bytes take no memory.
    let lies = [44, 0xA1, 0x00, 0x9B, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
    assert!(matches!(Message::parse(&lies), Err(Malformed::Body { .. })));
}
