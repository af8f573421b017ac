//! A server that lies on the control channel, against the real client: every lie ends in words,
//! with its kind of failure, and with nothing written that should not be.

mod hostile;

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gtp_alloc::Rate;
use gtp_net::client::{Event, Terms};

use gtp_net::control::ControlChannel;
use gtp_net::crypto::Suite;
use gtp_net::engine::{SessionKeys, SessionOpen, SourceHandle, SourceOpen};
use gtp_net::flows::{Failure, FailureKind, Law};
use gtp_net::messages::{
    self, Arrivals, ArrivalsSeen, ENTRIES_MAX, ENTRIES_PER_PAGE, EntryKind, Fault, Message, Open,
    Opened, Page, PagesEnd, PeerText, Reason, Roots, RootsPage,
};
use gtp_net::tls::server_config;
use gtp_net::trust::HostTrust;
use gtp_proto::{PathUse, Revision, Role};
use gtp_store::{BlockSource, Framed, Pattern, RelPath, SourceError, SyntheticSource};
use hostile::{Client, Liar, Raw, an_opened, entry, file, framed, host, listing, unchecked};
use tokio::sync::mpsc;

/// Lets a client fetch from a liar; how that ends.
async fn lied_to(client: &Client, script: impl AsyncFn(&mut Raw, &Open)) -> Failure {
    let liar = Liar::new().await;
    let lying = async {
        loop {
            let (mut raw, open) = liar.meet().await;
            script(&mut raw, &open).await;
            raw.linger().await;
        }
    };
    tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.expect_err("a lie is no object"),
        () = lying => unreachable!("a liar never ends"),
    }
}

#[tokio::test]
async fn names_that_point_elsewhere_or_mislead_are_refused() {
    let long = [b'x'; 256];
    let deep = b"d/".repeat(255).iter().copied().chain([b'x']).collect::<Vec<u8>>();
    let names: [(&[u8], &str); 19] = [
        (b"..", "'.' or '..'"),
        (b"../x", "'.' or '..'"),
        (b"a/../../x", "'.' or '..'"),
        (b"a/..", "'.' or '..'"),
        (b".", "'.' or '..'"),
        (b"./x", "'.' or '..'"),
        (b"/etc/passwd", "absolute"),
        (b"//x", "absolute"),
        (b"", "empty"),
        (b"a//b", "empty component"),
        (b"a/", "empty component"),
        (b"a\0b", "control character"),
        (b"a\nb", "control character"),
        (b"\x1b[2J", "control character"),
        (b"\xc2\x9b2J", "control character"),
        (b"\xff\xfe", "UTF-8"),
        (&long, "longer than 255"),
        (&deep, "components"),
        (b"x.gtp-journal", "gtp-journal"),
    ];
    let client = Client::new();
    for (name, why) in names {
        let failure = lied_to(&client, async |raw, open| {
            raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
            raw.send(&listing(vec![file(name)])).await;
        })
        .await;
        assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Other, 1), "{failure}");
        assert!(failure.text.starts_with("the listing is refused: "), "{failure}");
        assert!(failure.text.contains(why), "{failure}");
        assert!(!failure.text.contains(char::is_control), "{:?}", failure.text);
        assert!(client.is_untouched(), "{name:?}");
    }
}

#[tokio::test]
async fn listings_that_collide_or_do_not_add_up_are_refused() {
    use EntryKind::{Directory, File};
    let dir = |path: &[u8]| entry(path, Directory, 0);
    let huge = |path: &[u8]| entry(path, File, 1 << 58);
    let many: Vec<_> = (0..40u8).map(|n| huge(&[b'a' + n / 26, b'a' + n % 26])).collect();
    let set_user = gtp_net::messages::Entry { mode: 0o10_0755, ..file(b"x") };
    let no_time = gtp_net::messages::Entry { mtime_ns: 1_000_000_000, ..file(b"x") };
    let listings: Vec<(EntryKind, Vec<_>, &str)> = vec![
        (Directory, vec![file(b"a"), file(b"a")], "twice"),
        (Directory, vec![file(b"b"), file(b"a")], "not sorted"),
        (Directory, vec![file(b"a"), file(b"a/b")], "not the directory"),
        (Directory, vec![file(b"a/b")], "not the directory"),
        (Directory, vec![dir(b"a"), file(b"a")], "twice"),
        (Directory, vec![entry(b"a", Directory, 1)], "out of range"),
        (Directory, vec![entry(b"a", File, u64::MAX)], "out of range"),
        (Directory, many, "too large"),
        (Directory, vec![set_user], "out of range"),
        (Directory, vec![no_time], "out of range"),
        (Directory, vec![file(&[b'x'; 4_097])], "out of range"),
        (Directory, vec![], "out of range"),
        (File, vec![file(b"a"), file(b"b")], "exactly one file"),
        (File, vec![dir(b"a")], "exactly one file"),
        (File, vec![dir(b"a"), file(b"a/b")], "exactly one file"),
    ];
    let client = Client::new();
    for (kind, entries, why) in listings {
        let failure = lied_to(&client, async |raw, open| {
            raw.say(&Message::Opened(an_opened(open, kind))).await;
            raw.send(&listing(entries.clone())).await;
        })
        .await;
        assert_eq!(failure.kind, FailureKind::Other, "{failure}");
        assert!(failure.text.contains(why), "{failure}, not {why}");
        assert!(client.is_untouched());
    }
    for (entries_total, content_bytes) in [(2, 10), (0, 10), (1, 11), (1, 0)] {
        let failure = lied_to(&client, async |raw, open| {
            raw.say(&Message::Opened(an_opened(open, Directory))).await;
            raw.say(&Message::ManifestPage(Page { entries: vec![file(b"a")] })).await;
            raw.say(&Message::ManifestEnd(PagesEnd { entries_total, content_bytes })).await;
        })
        .await;
        assert!(failure.text.contains("not as long as announced"), "{failure}");
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn a_listing_without_end_is_cut_off_at_the_limit() {
    let client = Client::new();
    let taken = std::cell::Cell::new(0u64);
    let failure = lied_to(&client, async |raw, open| {
        raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
        for page in 0u32.. {
            let name = |n| file(format!("{page:08}-{n:05}").as_bytes());
            let entries = (0..ENTRIES_PER_PAGE).map(name).collect();
            if !raw.say(&Message::ManifestPage(Page { entries })).await {
                return;
            }
            taken.set(taken.get() + 1);
        }
    })
    .await;
    assert_eq!(failure.kind, FailureKind::Other);
    assert!(failure.text.contains("more than 1048576 entries"), "{failure}");
    // What the client did not take lies in the buffers of two sockets.
    let limit = ENTRIES_MAX / ENTRIES_PER_PAGE as u64;
    assert!(taken.get() <= limit + 100, "{} pages", taken.get());
    assert!(client.is_untouched());
}

#[tokio::test]
async fn chatter_and_silence_before_the_listing_end_with_the_clients_patience() {
    let client = Client::new();
    let text = PeerText::new("no");
    let fault = Fault { reason: Reason::Other, text, path: Some(b"x".to_vec()) };
    for endless in [Some(Message::Keepalive), Some(Message::Fault(fault)), None] {
        let begun = Instant::now();
        let failure = lied_to(&client, async |raw, open| {
            raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
            while let Some(message) = &endless
                && raw.say(message).await
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5), "{failure}");
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn a_listing_may_take_longer_than_the_patience_as_long_as_it_goes_on() {
    let mut client = Client::new();
    client.patience = Duration::from_secs(2);
    let failure = lied_to(&client, async |raw, open| {
        raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
        let mut beat = tokio::time::interval(Duration::from_millis(500));
        for name in [b"a", b"b", b"c", b"d", b"e", b"f"] {
            beat.tick().await;
            raw.say(&Message::ManifestPage(Page { entries: vec![file(name)] })).await;
        }
        // The lie comes only here, and is the first reason to end.
        raw.say(&Message::ManifestEnd(PagesEnd { entries_total: 1, content_bytes: 1 })).await;
    })
    .await;
    assert!(failure.text.contains("not as long as announced"), "{failure}");
}

#[tokio::test]
async fn a_search_may_take_longer_than_the_patience_as_long_as_signs_of_it_come() {
    let mut client = Client::new();
    client.patience = Duration::from_secs(2);
    let searching = async |raw: &mut Raw, _: &Open| {
        let mut beat = tokio::time::interval(Duration::from_millis(400));
        for _ in 0..8 {
            beat.tick().await;
            raw.say(&Message::Keepalive).await;
        }
        raw.say(&Message::refused(Reason::Missing, "looked everywhere")).await;
    };
    let failure = lied_to(&client, searching).await;
    assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Missing, 3), "{failure}");
    let liar = Liar::new().await;
    let (url, terms) = (liar.url("x"), client.terms(&liar.identity));
    let failure = tokio::select! {
        listed = gtp_net::client::list(&client.endpoint, &url, &terms) => listed.unwrap_err(),
        () = async {
            let (mut raw, open) = liar.meet().await;
            searching(&mut raw, &open).await;
            raw.linger().await;
            std::future::pending().await
        } => unreachable!("it waits for ever"),
    };
    assert_eq!(failure.kind, FailureKind::Missing, "{failure}");
}

#[tokio::test]
async fn a_server_that_only_keeps_the_connection_is_borne_for_a_bounded_time_when_listing() {
    let client = Client::new();
    let liar = Liar::new().await;
    let patience = Duration::from_millis(300);
    let terms = Terms { patience, ..client.terms(&liar.identity) };
    for opens in [false, true] {
        let begun = Instant::now();
        let url = liar.url("x");
        let failure = tokio::select! {
            listed = gtp_net::client::list(&client.endpoint, &url, &terms) => listed.unwrap_err(),
            () = async {
                let (mut raw, open) = liar.meet().await;
                if opens {
                    raw.say(&Message::Opened(an_opened(&open, EntryKind::Directory))).await;
                    while raw.say(&Message::Keepalive).await {
                        tokio::task::yield_now().await;
                    }
                }
                std::future::pending().await
            } => unreachable!("it waits for ever"),
        };
        assert_eq!(failure.exit_code(), 5, "{failure}");
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_listing_that_is_begun_again_and_again_is_no_progress() {
    let client = Client::new();
    let liar = Liar::new().await;
    let lying = async {
        loop {
            let (mut raw, open) = liar.meet().await;
            raw.say(&Message::Opened(an_opened(&open, EntryKind::Directory))).await;
            raw.say(&Message::ManifestPage(Page { entries: vec![file(b"a")] })).await;
        }
    };
    let failure = tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.unwrap_err(),
        () = lying => unreachable!("a liar never ends"),
    };
    assert_eq!(failure.exit_code(), 5, "{failure}");
    assert!(client.is_untouched());
}

#[tokio::test]
async fn an_answer_that_was_not_on_offer_is_refused() {
    type Change = fn(&mut Opened);
    let changes: [(Change, &str); 10] = [
        (|o| o.suite = 99, "not on offer"),
        (|o| o.law = Some(messages::Law::Gtp2004), "does not confirm the control law"),
        (|o| o.unit_payload = 8_901, "out of range"),
        (|o| o.unit_payload = 1, "out of range"),
        (|o| o.udp_port = 0, "out of range"),
        (|o| o.weight_milli = 0, "out of range"),
        (|o| o.interval_us = 0, "out of range"),
        (|o| o.entries_total = u64::MAX, "out of range"),
        (|o| o.content_bytes = u64::MAX, "out of range"),
        (|o| o.version = 0, "no common version"),
    ];
    let client = Client::new();
    for (change, why) in changes {
        let failure = lied_to(&client, async |raw, open| {
            let mut opened = an_opened(open, EntryKind::File);
            change(&mut opened);
            raw.send(&unchecked(2, &opened)).await;
        })
        .await;
        assert!(failure.text.contains(why), "{failure}, not {why}");
        let version = why == "no common version";
        assert_eq!(failure.exit_code(), if version { 7 } else { 1 }, "{failure}");
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn a_law_of_one_end_that_the_server_does_not_say_again_as_it_was_asked_for_is_not_run() {
    use messages::Law as Said;
    let answers = [
        None,
        Some(Said::Grant),
        Some(Said::Rbudp { rate: 50_000_001 }),
        Some(Said::Tsunami { rate: 50_000_000 }),
    ];
    let mut client = Client::new();
    client.law = Law::Rbudp(Rate::from_mbps(50));
    for law in answers {
        let failure = lied_to(&client, async |raw, open| {
            assert_eq!(open.law, Said::Rbudp { rate: 50_000_000 });
            let opened = Opened { law, ..an_opened(open, EntryKind::File) };
            raw.say(&Message::Opened(opened)).await;
        })
        .await;
        assert!(failure.text.contains("does not confirm the control law"), "{failure}");
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn bytes_that_are_no_message_end_the_session_before_and_after_it_is_open() {
    let bomb = [[0x9A, 0xFF, 0xFF, 0xFF, 0xFF].repeat(3), vec![0x81; 60_000]].concat();
    let claims = [&[0xA1, 0x00, 0x9B][..], &u64::MAX.to_be_bytes()].concat();
    let garbage = [
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        vec![0xFF; 70_000],
        vec![0, 0, 0, 0],
        framed(99, &[0xA0]),
        framed(2, &bomb),
        framed(4, &bomb),
        framed(4, &claims),
        framed(5, &[0xA0]),
        framed(3, &[0xA2, 0, 1, 1, 0x62, 0xFF, 0xFF]),
    ];
    let client = Client::new();
    for bytes in &garbage {
        for after in [false, true] {
            let failure = lied_to(&client, async |raw, open| {
                if after {
                    raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
                }
                raw.send(bytes).await;
            })
            .await;
            assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Other, 1), "{failure}");
            assert!(failure.text.len() < 300, "{failure}");
        }
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn messages_that_must_not_come_then_are_unexpected() {
    let client = Client::new();
    let page = Page { entries: vec![file(b"x")] };
    let messages = [
        Message::ListingPage(page),
        Message::ListingEnd(PagesEnd { entries_total: 0, content_bytes: 0 }),
        Message::Done(gtp_net::messages::Done { files: 1, content_bytes: 1, brought_bytes: None }),
        Message::Roots(RootsPage { first_file: 0, roots: Roots(vec![[0; 32]]) }),
        Message::Cancel,
    ];
    for message in &messages {
        let failure = lied_to(&client, async |raw, open| {
            raw.say(&Message::Opened(an_opened(open, EntryKind::Directory))).await;
            raw.say(message).await;
        })
        .await;
        assert_eq!(failure.kind, FailureKind::Other, "{failure}");
        assert!(failure.text.contains(message.name()), "{failure}");
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn a_refusal_keeps_its_code_and_cannot_write_to_the_terminal() {
    let client = Client::new();
    let kinds = [
        (Reason::Missing, 3),
        (Reason::Permission, 4),
        (Reason::Busy, 5),
        (Reason::NotAuthorised, 7),
        (Reason::Version, 7),
        (Reason::Limit, 1),
    ];
    for (reason, code) in kinds {
        let text = "go\x1b[2J\u{202e}away\n";
        let failure = lied_to(&client, async |raw, _| {
            raw.say(&Message::refused(reason, text)).await;
        })
        .await;
        assert_eq!(failure.exit_code(), code, "{failure}");
        assert!(failure.text.contains(r"go\u{1b}[2J\u{202e}away\n"), "{failure}");
    }
    assert!(client.is_untouched());
}

#[tokio::test]
async fn a_server_cannot_point_the_client_at_somebody_elses_port() {
    let third = UdpSocket::bind("127.0.0.1:0").unwrap();
    third.set_nonblocking(true).unwrap();
    let mut client = Client::new();
    client.patience = hostile::PATIENCE;
    let failure = lied_to(&client, async |raw, open| {
        let port = third.local_addr().unwrap().port();
        let opened = Opened { udp_port: port, ..an_opened(open, EntryKind::File) };
        raw.say(&Message::Opened(opened)).await;
        raw.send(&listing(vec![file(b"x")])).await;
        while let Some(heard) = raw.hear().await {
            if heard == Message::ArrivalsWanted {
                let seen = ArrivalsSeen { arrivals: Arrivals::None };
                raw.say(&Message::ArrivalsSeen(seen)).await;
            }
        }
    })
    .await;
    assert_eq!(failure.exit_code(), 11, "{failure}");
    assert!(third.recv(&mut [0; 2_000]).is_err(), "a datagram went to another port");
}

// --- lies in the midst of data ---

const MIB: u64 = 1 << 20;

/// A server that sends data by the book, with a word of its own on the control channel.
struct Giver {
    channel: ControlChannel,
    source: SourceHandle,
}

/// Opens a session over a liar's port with this source, and lists a file of `claimed` bytes.
async fn give(
    host: &gtp_net::engine::Host,
    liar: &Liar,
    socket: gtp_net::engine::SocketId,
    source: Box<dyn BlockSource>,
    claimed: u64,
) -> Giver {
    let (stream, _) = liar.listener.accept().await.unwrap();
    let config = server_config(&liar.identity);
    let (mut channel, open) = ControlChannel::accept(stream, &config).await.unwrap();
    let number = host.new_session_id();
    let secrets = channel.data_secrets(number, open.client_session).unwrap();
    let opened = Opened { server_session: number, ..an_opened(&open, EntryKind::File) };
    let suite = Suite::from_code(opened.suite).unwrap();
    let session = SessionOpen {
        socket,
        peer: channel.ends().remote,
        local_session: number,
        peer_session: open.client_session,
        keys: SessionKeys { suite, seal: secrets.send, open: secrets.receive },
        revision: Revision::NEWEST,
        role: Role::Responder,
        law: Law::Grant,
        weights: gtp_proto::Weights::ONE,
        path: PathUse::default(),
        max_rate: gtp_alloc::Rate::UNLIMITED,
        principal: 0,
        allowance: gtp_net::engine::Allowance::default(),
        label: "liar".into(),
    };
    let source = host.open_source(SourceOpen { session, source });
    channel.send(&Message::Opened(opened)).await.unwrap();
    let entries = vec![entry(b"x", EntryKind::File, claimed)];
    channel.send(&Message::ManifestPage(Page { entries })).await.unwrap();
    let end = PagesEnd { entries_total: 1, content_bytes: claimed };
    channel.send(&Message::ManifestEnd(end)).await.unwrap();
    Giver { channel, source }
}

fn synthetic(size: u64) -> SyntheticSource {
    SyntheticSource::file(RelPath::new("x").unwrap(), size, Pattern::Random { seed: 5 })
}

/// Lets a client fetch from somebody who gives these sources in turn, and answers questions for
/// roots with `twist` added.
async fn given(
    client: &Client,
    make: impl Fn() -> Box<dyn BlockSource>,
    claimed: u64,
    twist: u8,
) -> Result<gtp_net::client::Outcome, Failure> {
    let (liar, host) = (Liar::new().await, host());
    let (socket, _) = host.bind_udp(liar.address()).unwrap();
    let giving = async {
        loop {
            let Giver { mut channel, source } = give(&host, &liar, socket, make(), claimed).await;
            while let Ok(message) = channel.recv().await {
                if let Message::RootsWanted(wanted) = message {
                    let mut roots = source.roots(0..1).await.unwrap();
                    roots[0][31] ^= twist;
                    let page = RootsPage { first_file: wanted.first_file, roots: Roots(roots) };
                    channel.send(&Message::Roots(page)).await.unwrap();
                }
            }
            source.close();
        }
    };
    tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended,
        () = giving => unreachable!("a liar never ends"),
    }
}

#[tokio::test]
async fn a_false_root_at_the_end_is_an_integrity_failure_and_gives_no_file_its_name() {
    let client = Client::new();
    let honest = || Box::new(synthetic(2 * MIB)) as Box<dyn BlockSource>;
    let failure = given(&client, honest, 2 * MIB, 1).await.unwrap_err();
    assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Integrity, 6), "{failure}");
    assert!(failure.text.contains("gtp://127.0.0.1:"), "it names the source: {failure}");
    assert!(!client.path("out").exists());
    given(&client, honest, 2 * MIB, 0).await.unwrap();
    assert_eq!(std::fs::metadata(client.path("out")).unwrap().len(), 2 * MIB);
}

/// What somebody says when it is asked for the hash of an honest file.
#[derive(Clone, Copy)]
enum Says {
    Nothing,
    TheTruth,
    ALie,
    /// Goes when it is asked first, and says the truth when it is asked again.
    TheTruthInTheEnd,
}

/// Gives an honest file to whoever comes, and says this of its hash.
async fn give_and_say(liar: &Liar, says: Says) {
    give_of(liar, says, 5, 2 * MIB).await;
}

/// The same with the content that a seed stands for, listed with this size.
async fn give_of(liar: &Liar, says: Says, seed: u64, claimed: u64) {
    let host = host();
    let mut leaves = matches!(says, Says::TheTruthInTheEnd);
    let (socket, _) = host.bind_udp(liar.address()).unwrap();
    loop {
        let pattern = Pattern::Random { seed };
        let content = SyntheticSource::file(RelPath::new("x").unwrap(), 2 * MIB, pattern);
        let giver = give(&host, liar, socket, Box::new(content), claimed).await;
        let Giver { mut channel, source } = giver;
        while let Ok(message) = channel.recv().await {
            if let Message::RootsWanted(wanted) = message {
                let mut roots = source.roots(0..1).await.unwrap();
                match says {
                    Says::Nothing => continue,
                    Says::TheTruthInTheEnd if std::mem::take(&mut leaves) => break,
                    Says::TheTruth | Says::TheTruthInTheEnd => {}
                    Says::ALie => roots[0][0] ^= 1,
                }
                let roots = Roots(roots);
                let page = RootsPage { first_file: wanted.first_file, roots };
                channel.send(&Message::Roots(page)).await.unwrap();
            }
        }
        source.close();
    }
}

#[tokio::test]
async fn a_source_that_never_says_its_hashes_is_named_and_the_others_decide() {
    let client = Client::new();
    let (silent, honest) = (Liar::new().await, Liar::new().await);
    let terms = client.terms(&silent.identity);
    let both = vec![silent.identity.fingerprint(), honest.identity.fingerprint()];
    let terms = Terms { trust: Arc::new(HostTrust::Pinned(both)), ..terms };
    let sources = vec![silent.url("x"), honest.url("x")];
    let (events, mut heard) = mpsc::unbounded_channel();
    tokio::select! {
        ended = client.get_all(sources, terms, events) => ended.unwrap(),
        () = give_and_say(&silent, Says::Nothing) => unreachable!("it gives for ever"),
        () = give_and_say(&honest, Says::TheTruth) => unreachable!("it gives for ever"),
    };
    assert_eq!(std::fs::metadata(client.path("out")).unwrap().len(), 2 * MIB);
    let mut dropped = Vec::new();
    while let Ok(event) = heard.try_recv() {
        if let Event::Dropped { url, failure } = event {
            assert!(failure.text.contains("hashes"), "{failure}");
            dropped.push(url);
        }
    }
    assert_eq!(dropped, [silent.url("x").to_string()]);
}

#[tokio::test]
async fn a_lie_said_first_does_not_decide_while_another_source_comes_back_to_answer() {
    let (second, both) = (Says::TheTruthInTheEnd, "hold different content");
    let mut client = Client::new();
    client.patience = hostile::PATIENCE;
    let (liar, honest) = (Liar::new().await, Liar::new().await);
    let keys = vec![liar.identity.fingerprint(), honest.identity.fingerprint()];
    let trust = Arc::new(HostTrust::Pinned(keys));
    let terms = Terms { trust, ..client.terms(&liar.identity) };
    let (events, _heard) = mpsc::unbounded_channel();
    let failure = tokio::select! {
        ended = client.get_all(vec![liar.url("x"), honest.url("x")], terms, events) => {
            ended.unwrap_err()
        }
        () = give_and_say(&liar, Says::ALie) => unreachable!("it gives for ever"),
        () = give_and_say(&honest, second) => unreachable!("it gives for ever"),
    };
    assert_eq!(failure.kind, FailureKind::Integrity, "{failure}");
    assert!(failure.text.contains(both), "{failure}");
    assert!(!client.path("out").exists());
}

/// Fetches from three, of which the first gives, says and lists as told and the others are honest;
/// returns what was heard of the first and of the whole.
async fn one_against_two(says: Says, seed: u64, claimed: u64) -> (Vec<Failure>, Vec<Event>) {
    let mut client = Client::new();
    client.patience = hostile::PATIENCE;
    let [odd, a, b] = [Liar::new().await, Liar::new().await, Liar::new().await];
    let keys = [&odd, &a, &b].map(|one| one.identity.fingerprint()).to_vec();
    let terms = Terms { trust: Arc::new(HostTrust::Pinned(keys)), ..client.terms(&odd.identity) };
    let sources = vec![odd.url("x"), a.url("x"), b.url("x")];
    let (events, mut heard) = mpsc::unbounded_channel();
    tokio::select! {
        ended = client.get_all(sources, terms, events) => ended.unwrap(),
        () = give_of(&odd, says, seed, claimed) => unreachable!("it gives for ever"),
        () = give_and_say(&a, Says::TheTruth) => unreachable!("it gives for ever"),
        () = give_and_say(&b, Says::TheTruth) => unreachable!("it gives for ever"),
    };
    let whole = std::fs::read(client.path("out")).unwrap();
    let root = synthetic(2 * MIB).file_root(0).unwrap();
    assert_eq!(*blake3::hash(&whole).as_bytes(), root);
    let events: Vec<Event> = std::iter::from_fn(|| heard.try_recv().ok()).collect();
    let dropped = events.iter().filter_map(|event| match event {
        Event::Dropped { url, failure } => {
            assert_eq!(*url, odd.url("x").to_string(), "{failure}");
            Some(failure.clone())
        }
        _ => None,
    });
    (dropped.collect(), events)
}

#[tokio::test]
async fn one_of_three_that_lies_about_the_hash_is_named_and_changes_nothing() {
    // Two that agree may end the transfer before the third is heard.
    for _ in 0..20 {
        let (dropped, events) = one_against_two(Says::ALie, 5, 2 * MIB).await;
        let done = |event: &&Event| matches!(event, Event::FileDone { .. });
        assert_eq!(events.iter().filter(done).count(), 1);
        assert!(!events.iter().any(|event| matches!(event, Event::Renewed { .. })), "{events:?}");
        match &dropped[..] {
            [] => {}
            [failure] => return assert_eq!(failure.exit_code(), 6, "{failure}"),
            [_, _, ..] => panic!("{dropped:?}"),
        }
    }
    panic!("the lie was never heard");
}

#[tokio::test]
async fn one_of_three_that_never_says_its_hash_keeps_nobody_waiting() {
    let began = Instant::now();
    one_against_two(Says::Nothing, 5, 2 * MIB).await;
    assert!(began.elapsed() < hostile::PATIENCE / 2);
}

#[tokio::test]
async fn content_that_one_of_three_mixes_in_is_fetched_anew_from_the_others() {
    let (_, events) = one_against_two(Says::TheTruth, 6, 2 * MIB).await;
    let done = |event: &&Event| matches!(event, Event::FileDone { .. });
    assert_eq!(events.iter().filter(done).count(), 1);
}

#[tokio::test]
async fn one_of_three_that_lists_another_size_is_given_up_by_name() {
    let (dropped, _) = one_against_two(Says::TheTruth, 5, 3 * MIB).await;
    let [failure] = &dropped[..] else { panic!("{dropped:?}") };
    assert!(failure.text.contains("does not hold the same object as most"), "{failure}");
}

#[tokio::test]
async fn what_another_object_of_the_same_name_size_and_time_left_is_fetched_anew() {
    let client = Client::new();
    let (foreign, honest) = (Liar::new().await, Liar::new().await);
    let failure = tokio::select! {
        ended = client.get(foreign.url("x"), &foreign.identity) => ended.unwrap_err(),
        () = give_of(&foreign, Says::Nothing, 6, 2 * MIB) => unreachable!("it gives for ever"),
    };
    assert_eq!(failure.exit_code(), 5, "its part stays: {failure}");
    let outcome = tokio::select! {
        ended = client.get(honest.url("x"), &honest.identity) => ended.unwrap(),
        () = give_and_say(&honest, Says::TheTruth) => unreachable!("it gives for ever"),
    };
    assert_eq!((outcome.bytes, outcome.resumed_bytes), (2 * MIB, 0));
    let whole = std::fs::read(client.path("out")).unwrap();
    assert_eq!(outcome.blake3, Some(*blake3::hash(&whole).as_bytes()));
    assert_eq!(outcome.blake3, Some(synthetic(2 * MIB).file_root(0).unwrap()));
}

#[tokio::test]
async fn where_nobody_ever_says_the_hashes_the_end_is_a_temporary_failure() {
    let client = Client::new();
    let silent = Liar::new().await;
    let failure = tokio::select! {
        ended = client.get(silent.url("x"), &silent.identity) => ended.unwrap_err(),
        () = give_and_say(&silent, Says::Nothing) => unreachable!("it gives for ever"),
    };
    assert_eq!((failure.kind, failure.exit_code()), (FailureKind::Temporary, 5), "{failure}");
    assert!(failure.text.contains(&silent.url("x").to_string()), "{failure}");
    assert!(!client.path("out").exists());
}

/// A source whose blocks are damaged.
struct Damaged(SyntheticSource);

impl BlockSource for Damaged {
    fn manifest(&self) -> &std::sync::Arc<gtp_store::Manifest> {
        self.0.manifest()
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        self.0.load_block(file, block, out)?;
        out[9] ^= 1;
        Ok(())
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<[u8; 32], SourceError> {
        self.0.file_root_while(file, wanted)
    }
}

#[tokio::test]
async fn blocks_that_are_always_damaged_end_the_transfer_and_name_the_source() {
    let client = Client::new();
    let damaged = || Box::new(Damaged(synthetic(2 * MIB))) as Box<dyn BlockSource>;
    let failure = given(&client, damaged, 2 * MIB, 0).await.unwrap_err();
    assert_eq!(failure.exit_code(), 6, "{failure}");
    assert!(failure.text.contains("gtp://127.0.0.1:"), "{failure}");
    assert!(!client.path("out").exists());
}

#[tokio::test]
async fn a_file_that_is_not_as_long_as_listed_is_never_taken_for_whole() {
    for (claimed, true_size) in [(3 * MIB, 2 * MIB), (2 * MIB, 3 * MIB)] {
        let client = Client::new();
        let other = || Box::new(synthetic(true_size)) as Box<dyn BlockSource>;
        let failure = given(&client, other, claimed, 0).await.unwrap_err();
        assert_ne!(failure.exit_code(), 0, "{failure}");
        assert!(!failure.text.is_empty());
        assert!(!client.path("out").exists());
    }
}

#[tokio::test]
async fn a_control_channel_that_turns_to_nonsense_in_mid_transfer_ends_it_and_keeps_what_came() {
    const SIZE: u64 = 12 * MIB;
    let client = Client::new();
    let (liar, host) = (Liar::new().await, host());
    let (socket, _) = host.bind_udp(liar.address()).unwrap();
    let giving = async {
        let Giver { mut channel, source } =
            give(&host, &liar, socket, Box::new(synthetic(SIZE)), SIZE).await;
        while source.progress().wire_bytes < SIZE / 2 {
            tokio::task::yield_now().await;
        }
        let opened = Message::Cancel;
        channel
            .send(&Message::ListingEnd(PagesEnd { entries_total: 0, content_bytes: 0 }))
            .await
            .unwrap();
        // It may be gone by now.
        let _ = channel.send(&opened).await;
        while channel.recv().await.is_ok() {}
        source.close();
        std::future::pending::<()>().await;
    };
    let failure = tokio::select! {
        ended = client.get(liar.url("x"), &liar.identity) => ended.unwrap_err(),
        () = giving => unreachable!("it waits for ever"),
    };
    assert_eq!(failure.kind, FailureKind::Other, "{failure}");
    assert!(failure.text.contains("ListingEnd"), "{failure}");
    let honest = || Box::new(synthetic(SIZE)) as Box<dyn BlockSource>;
    let outcome = given(&client, honest, SIZE, 0).await.unwrap();
    assert!(outcome.resumed_bytes >= MIB, "{} bytes were kept", outcome.resumed_bytes);
}
