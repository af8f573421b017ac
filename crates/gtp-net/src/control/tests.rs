//! The channel over loopback and over streams in memory, with honest and with other peers.

use std::fs;
use std::future::{Future, pending};

use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::*;
use crate::crypto::{Opener, Sealer, Suite};
use crate::messages::{
    Entry, EntryKind, Law, Malformed, Page, SuiteList, UnitChoice, Verb, frame_limit,
};
use crate::trust::{
    AuthorizedKeys, ClientTrust, HostRefused, KnownHosts, Strangers, TrustError, UnknownHosts,
};

type Accepted = Result<(ControlChannel, Open), ControlError>;

fn an_open() -> Open {
    Open {
        version: VERSION,
        verb: Verb::Get { path: b"file".to_vec() },
        suites: SuiteList(Suite::by_preference().map(Suite::code).to_vec()),
        law: Law::Grant,
        weight_milli: 1000,
        unit_payload_max: 1400,
        client_session: 7,
        interval_us: None,
        path: None,
        ticket: None,
        relay: None,
    }
}

fn an_opened() -> Opened {
    Opened {
        version: VERSION,
        server_session: 9,
        suite: Suite::ChaCha20Poly1305.code(),
        unit_payload: 1400,
        udp_port: 4810,
        object: Some(EntryKind::File),
        entries_total: 1,
        content_bytes: 5,
        weight_milli: 1000,
        interval_us: 20_000,
        path: None,
        law: None,
        by_ticket: None,
        relays: None,
        time_s: None,
    }
}

fn a_page(entries: usize) -> Message {
    let (kind, mode) = (EntryKind::File, 0o644);
    let path = vec![b'x'; 200];
    let entry = Entry { path, kind, size: 0, mode, mtime_s: 0, mtime_ns: 0 };
    Message::ManifestPage(Page { entries: vec![entry; entries] })
}

fn pinned(server: &Identity) -> Arc<HostTrust> {
    Arc::new(HostTrust::Pinned(vec![server.fingerprint()]))
}

/// A listener on the loopback that accepts once, and its address.
async fn accept_once(
    config: Arc<ServerConfig>,
) -> (HostAddress, impl Future<Output = Accepted> + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = async move {
        let (stream, _) = listener.accept().await.unwrap();
        ControlChannel::accept(stream, &config).await
    };
    (HostAddress::new("127.0.0.1", port).unwrap(), accepting)
}

/// Connects a client to a server over loopback and sends its `Open` if it gets so far; what both
/// ends see. The client's channel stays open until the server is done.
async fn meet(
    config: Arc<ServerConfig>,
    client: &Identity,
    trust: Arc<HostTrust>,
) -> (Result<ControlChannel, ControlError>, Accepted) {
    let (host, accepting) = accept_once(config).await;
    let connecting = async {
        let mut channel = ControlChannel::connect(&host, client, &trust).await?;
        channel.send(&Message::Open(an_open())).await?;
        Ok(channel)
    };
    tokio::join!(connecting, accepting)
}

fn ends() -> Ends {
    let local = "127.0.0.1:1".parse().unwrap();
    Ends { local, remote: local }
}

/// Two ends in memory, after the first message; for tests that turn the clock.
async fn pair_in_memory() -> (ControlChannel<DuplexStream>, ControlChannel<DuplexStream>) {
    let (server, client) = (Identity::generate(), Identity::generate());
    let (near, far) = duplex(64 * 1024);
    let config = tls::server_config(&server);
    let host = HostAddress::new("localhost", 1).unwrap();
    let trust = pinned(&server);
    let connecting = async {
        let mut channel = ControlChannel::client(near, ends(), &host, &client, &trust).await?;
        channel.send(&Message::Open(an_open())).await?;
        Ok::<_, ControlError>(channel)
    };
    let (client, server) = tokio::join!(connecting, ControlChannel::server(far, ends(), &config));
    (client.unwrap(), server.unwrap().0)
}

#[tokio::test]
async fn two_hosts_prove_their_keys_and_share_data_keys() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let (near, far) = meet(tls::server_config(&server), &client, pinned(&server)).await;
    let (mut near, (mut far, open)) = (near.unwrap(), far.unwrap());
    assert_eq!(open, an_open());
    assert_eq!((near.peer(), far.peer()), (server.fingerprint(), client.fingerprint()));
    assert_eq!(near.ends().local, far.ends().remote);
    assert_eq!(near.ends().remote, far.ends().local);

    let (near_keys, far_keys) = (near.data_secrets(9, 7).unwrap(), far.data_secrets(9, 7).unwrap());
    let ways = [(near_keys.send, far_keys.receive), (far_keys.send, near_keys.receive)];
    let mut tags = Vec::new();
    for (send, receive) in ways {
        let mut datagram = b"content".to_vec();
        let tag = Sealer::new(Suite::Aes128Gcm, send).seal_in_place(0, b"h", &mut datagram);
        datagram.extend(tag);
        tags.push(tag);
        let mut opener = Opener::new(Suite::Aes128Gcm, receive);
        assert_eq!(opener.open_in_place(0, b"h", &mut datagram), Ok(&mut { *b"content" }[..]));
    }
    assert_ne!(tags[0], tags[1], "each direction has its own key");
    assert!(near.data_secrets(9, 7).is_err(), "a session's keys are given out once");
    assert!(near.data_secrets(9, 8).is_ok());
}

#[tokio::test]
async fn messages_go_both_ways_and_the_end_is_seen() {
    let (mut near, mut far) = pair_in_memory().await;
    let choice = Message::UnitChoice(UnitChoice { unit_payload: 1300 });
    near.send(&Message::Keepalive).await.unwrap();
    near.send(&choice).await.unwrap();
    assert_eq!(far.recv().await.unwrap(), choice, "keepalives are not passed on");
    let (mut sender, mut receiver) = far.into_split();
    let page = a_page(4096);
    let (sent, received) = tokio::join!(sender.send(&page), near.recv());
    sent.unwrap();
    assert_eq!(received.unwrap(), page);
    tokio::join!(near.close(), async {
        assert!(matches!(receiver.recv().await, Err(ControlError::Closed)));
        sender.finish().await;
    });
}

#[tokio::test]
async fn the_answer_to_open_is_checked_against_the_question() {
    for (spoil, fits) in [
        ((|_| {}) as fn(&mut Opened), true),
        (|o| o.suite = 77, false),
        (|o| o.unit_payload = 1401, false),
        (|o| o.weight_milli = 1_001, false),
        (|o| o.version = VERSION + 1, false),
        (|o| o.version = 1, true),
        (|o| o.version = 0, false),
        (|o| o.weight_milli = 1, true),
    ] {
        let (mut near, mut far) = pair_in_memory().await;
        let mut answer = an_opened();
        spoil(&mut answer);
        let answering = async {
            assert_eq!(far.recv().await.unwrap(), Message::Open(an_open()));
            far.send(&Message::Opened(answer)).await.unwrap();
        };
        let (opened, ()) = tokio::join!(near.open(an_open()), answering);
        assert_eq!(opened.is_ok(), fits);
    }
}

#[tokio::test]
async fn both_ends_use_the_older_of_their_revisions() {
    for (theirs, expected) in
        [(1, Revision::First), (VERSION, Revision::NEWEST), (VERSION + 1, Revision::NEWEST)]
    {
        let (server, client) = (Identity::generate(), Identity::generate());
        let (host, accepting) = accept_once(tls::server_config(&server)).await;
        let connecting = async {
            let trust = pinned(&server);
            let mut channel = ControlChannel::connect(&host, &client, &trust).await.unwrap();
            let opened = channel.open(Open { version: theirs, ..an_open() }).await.unwrap();
            (opened.version, channel.revision())
        };
        let answering = async {
            let (mut channel, _) = accepting.await.unwrap();
            let version = channel.revision().number();
            channel.send(&Message::Opened(Opened { version, ..an_opened() })).await.unwrap();
            channel.revision()
        };
        let ((said, near), far) = tokio::join!(connecting, answering);
        assert_eq!((said, near, far), (expected.number(), expected, expected));
    }
}

#[tokio::test]
async fn a_client_that_shows_a_ticket_stays_only_where_the_server_says_that_it_goes_by_it() {
    for (shown, by_ticket, stays) in [
        (true, None, false),
        (true, Some(false), false),
        (true, Some(true), true),
        (false, Some(true), false),
        (false, None, true),
    ] {
        let (server, client) = (Identity::generate(), Identity::generate());
        let (host, accepting) = accept_once(tls::server_config(&server)).await;
        let connecting = async {
            let trust = pinned(&server);
            let mut channel = ControlChannel::connect(&host, &client, &trust).await.unwrap();
            let ticket = shown.then(|| vec![0; 10]);
            channel.open(Open { ticket, ..an_open() }).await.map(|_| ())
        };
        let answering = async {
            let (mut channel, _) = accepting.await.unwrap();
            channel.send(&Message::Opened(Opened { by_ticket, ..an_opened() })).await.unwrap();
        };
        let (opened, ()) = tokio::join!(connecting, answering);
        assert_eq!(opened.is_ok(), stays, "{shown} {by_ticket:?}: {opened:?}");
    }
}

#[tokio::test]
async fn a_client_that_is_not_listed_hears_so() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let (host, accepting) = accept_once(tls::server_config(&server)).await;
    let trust = ClientTrust { keys: AuthorizedKeys::default(), strangers: Strangers::Refused };
    let serving = tokio::spawn(async move {
        let (channel, _) = accepting.await.unwrap();
        let peer = channel.peer();
        assert!(!trust.access(&peer).read);
        channel.refuse(Reason::NotAuthorised, format!("\x1b[1m{peer} is not listed")).await;
    });
    let mut channel = ControlChannel::connect(&host, &client, &pinned(&server)).await.unwrap();
    let refused = channel.open(an_open()).await.unwrap_err();
    assert!(matches!(refused, ControlError::NotAuthorised(_)));
    assert_eq!(refused.exit_code(), 7);
    let said = format!("not authorised: \\u{{1b}}[1m{} is not listed", client.fingerprint());
    assert_eq!(refused.to_string(), said);
    channel.close().await;
    serving.await.unwrap();
}

#[tokio::test]
async fn an_unknown_host_is_refused_with_its_fingerprint_and_learns_no_key() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let dir = tempfile::tempdir().unwrap();
    let hosts = KnownHosts::load(&dir.path().join("known_hosts")).unwrap();
    let trust = HostTrust::Known { hosts, unknown: UnknownHosts::Refuse };
    let (near, far) = meet(tls::server_config(&server), &client, Arc::new(trust)).await;
    let refused = near.unwrap_err();
    assert_eq!(refused.exit_code(), 7);
    let ControlError::Host(why) = refused else { panic!("{refused}") };
    assert!(matches!(*why, HostRefused::Unknown { fingerprint, .. }
        if fingerprint == server.fingerprint()));
    assert!(matches!(far, Err(ControlError::KeyRefused)));
}

#[tokio::test]
async fn a_new_host_is_remembered_if_accepted_and_a_changed_key_is_refused_then() {
    let client = Identity::generate();
    let (server, impostor) = (Identity::generate(), Identity::generate());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("known_hosts");
    let trust = || {
        let hosts = KnownHosts::load(&path).unwrap();
        Arc::new(HostTrust::Known { hosts, unknown: UnknownHosts::Accept })
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = HostAddress::new("127.0.0.1", listener.local_addr().unwrap().port()).unwrap();
    for (identity, known) in [(&server, true), (&server, true), (&impostor, false)] {
        let config = tls::server_config(identity);
        let accepting = async {
            let (stream, _) = listener.accept().await.unwrap();
            ControlChannel::accept(stream, &config).await
        };
        let trust = trust();
        let connecting = async {
            let mut channel = ControlChannel::connect(&host, &client, &trust).await?;
            channel.send(&Message::Open(an_open())).await?;
            Ok::<_, ControlError>(channel)
        };
        let (near, far) = tokio::join!(connecting, accepting);
        assert_eq!((near.is_ok(), far.is_ok()), (known, known));
        if let Err(refused) = near {
            let ControlError::Host(why) = refused else { panic!("{refused}") };
            assert!(matches!(*why, HostRefused::Changed { line: 1, .. }), "{why}");
        }
    }
    let listed = fs::read_to_string(&path).unwrap();
    assert_eq!(listed, format!("{host} {}\n", server.fingerprint()));
}

#[tokio::test]
async fn a_host_that_cannot_be_remembered_is_an_error() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("known_hosts");
    let hosts = KnownHosts::load(&path).unwrap();
    fs::write(&path, "nonsense\n").unwrap();
    let trust = Arc::new(HostTrust::Known { hosts, unknown: UnknownHosts::Accept });
    let (near, _) = meet(tls::server_config(&server), &client, trust).await;
    let ControlError::Trust(why) = near.unwrap_err() else { panic!() };
    assert!(matches!(*why, TrustError::Line { line: 1, .. }));
}

#[tokio::test]
async fn a_host_with_another_key_than_the_given_one_is_refused() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let (near, _) = meet(tls::server_config(&server), &client, pinned(&client)).await;
    let ControlError::Host(why) = near.unwrap_err() else { panic!() };
    assert!(matches!(*why, HostRefused::NotPinned { .. }));
}

#[tokio::test]
async fn a_server_that_shows_a_key_it_does_not_hold_is_not_believed() {
    let (victim, thief, client) =
        (Identity::generate(), Identity::generate(), Identity::generate());
    let shown = victim.certified_key().cert.clone();
    let forged = CertifiedKey::new(shown, Arc::clone(&thief.certified_key().key));
    let mut config = Arc::unwrap_or_clone(tls::server_config(&thief));
    config.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(forged)));
    let (near, _) = meet(Arc::new(config), &client, pinned(&victim)).await;
    let refused = near.unwrap_err();
    assert!(matches!(refused, ControlError::NotProved(_)), "{refused}");
    assert_eq!(refused.exit_code(), 7);
}

/// Runs a handshake of a client with this TLS against an ordinary server; what the server says.
async fn server_meets(config: ClientConfig) -> ControlError {
    let (host, accepting) = accept_once(tls::server_config(&Identity::generate())).await;
    let connecting = async {
        let stream = TcpStream::connect((host.host(), host.port())).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(&Message::Open(an_open()).to_frame().unwrap()).await?;
        stream.read_u8().await
    };
    let (_, far) = tokio::join!(connecting, accepting);
    far.err().unwrap()
}

/// TLS of a client that takes any of our servers.
fn accepting_client(client: &Identity) -> ClientConfig {
    let dir = tempfile::tempdir().unwrap();
    let hosts = KnownHosts::load(&dir.path().join("none")).unwrap();
    let trust = Arc::new(HostTrust::Known { hosts, unknown: UnknownHosts::Accept });
    let host = HostAddress::new("localhost", 1).unwrap();
    Arc::unwrap_or_clone(tls::client_config(client, &host, &trust).0)
}

#[tokio::test]
async fn a_client_that_shows_a_key_it_does_not_hold_is_not_believed() {
    let (victim, thief) = (Identity::generate(), Identity::generate());
    let shown = victim.certified_key().cert.clone();
    let forged = CertifiedKey::new(shown, Arc::clone(&thief.certified_key().key));
    let mut config = accepting_client(&thief);
    config.client_auth_cert_resolver =
        Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(Arc::new(forged)));
    let refused = server_meets(config).await;
    assert!(matches!(refused, ControlError::NotProved(_)), "{refused}");
}

#[tokio::test]
async fn ordinary_tls_clients_without_a_key_are_not_gtp() {
    let ordinary =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
    let refused = server_meets(ordinary).await;
    assert!(matches!(refused, ControlError::NotGtp(_)), "{refused}");
}

#[tokio::test]
async fn another_protocol_name_is_a_version_error_at_both_ends() {
    let (server, client) = (Identity::generate(), Identity::generate());
    for names in [vec![b"gtp/2".to_vec()], vec![b"h2".to_vec(), b"http/1.1".to_vec()]] {
        let mut config = Arc::unwrap_or_clone(tls::server_config(&server));
        config.alpn_protocols = names;
        let (near, far) = meet(Arc::new(config), &client, pinned(&server)).await;
        assert!(matches!(near, Err(ControlError::Version(_))));
        assert!(matches!(far, Err(ControlError::Version(_))));
    }
    let mut config = Arc::unwrap_or_clone(tls::server_config(&server));
    config.alpn_protocols.clear();
    let (near, _) = meet(Arc::new(config), &client, pinned(&server)).await;
    assert!(matches!(near, Err(ControlError::Version(_))), "no name at the server");
    let mut nameless = accepting_client(&client);
    nameless.alpn_protocols.clear();
    let refused = server_meets(nameless).await;
    assert!(matches!(refused, ControlError::Version(_)), "no name at the client: {refused}");
}

#[tokio::test]
async fn garbage_instead_of_tls_is_not_gtp() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0; 64]]
    {
        let (near, mut far) = duplex(4096);
        far.write_all(garbage).await.unwrap();
        let host = HostAddress::new("localhost", 1).unwrap();
        let me = Identity::generate();
        let trust = pinned(&me);
        let refused = ControlChannel::client(near, ends(), &host, &me, &trust).await.unwrap_err();
        assert!(matches!(refused, ControlError::NotGtp(_)), "{refused}");

        let (near, mut far) = duplex(4096);
        far.write_all(garbage).await.unwrap();
        let config = tls::server_config(&me);
        let refused = ControlChannel::server(near, ends(), &config).await.unwrap_err();
        assert!(matches!(refused, ControlError::NotGtp(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_the_handshake_is_lost_and_may_be_tried_again() {
    let (near, far) = duplex(4096);
    drop(far);
    let me = Identity::generate();
    let host = HostAddress::new("localhost", 1).unwrap();
    let lost = ControlChannel::client(near, ends(), &host, &me, &pinned(&me)).await.unwrap_err();
    assert!(matches!(lost, ControlError::Lost(_)) && lost.is_temporary());
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let host = HostAddress::new("127.0.0.1", port).unwrap();
    let me = Identity::generate();
    let refused = ControlChannel::connect(&host, &me, &pinned(&me)).await.unwrap_err();
    assert!(matches!(refused, ControlError::Unreachable { .. }) && refused.exit_code() == 5);
    assert!(refused.to_string().contains(&host.to_string()));
}

#[tokio::test(start_paused = true)]
async fn whoever_trickles_his_handshake_is_cut_off_after_five_seconds() {
    let config = tls::server_config(&Identity::generate());
    let (near, mut far) = duplex(4096);
    let start = Instant::now();
    let trickling = async {
        // A handshake record of 16,000 bytes, one each 100 ms.
        let head = [0x16, 0x03, 0x01, 0x3E, 0x80, 0x01, 0x00, 0x3E, 0x7C];
        for byte in head.into_iter().chain(std::iter::repeat(0)) {
            if far.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (refused, ()) = tokio::join!(ControlChannel::server(near, ends(), &config), trickling);
    assert!(matches!(refused, Err(ControlError::TimedOut(_))));
    assert!(start.elapsed() <= OPENING_SPAN + Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn whoever_says_nothing_after_the_handshake_is_cut_off_after_five_seconds() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let (near, far) = duplex(64 * 1024);
    let config = tls::server_config(&server);
    let host = HostAddress::new("localhost", 1).unwrap();
    let trust = pinned(&server);
    let start = Instant::now();
    let (near, far) = tokio::join!(
        ControlChannel::client(near, ends(), &host, &client, &trust),
        ControlChannel::server(far, ends(), &config)
    );
    assert!(near.is_ok());
    assert!(matches!(far, Err(ControlError::TimedOut(_))));
    assert_eq!(start.elapsed().as_secs(), OPENING_SPAN.as_secs());
}

#[tokio::test(start_paused = true)]
async fn silence_ends_the_channel_and_keepalives_prevent_it() {
    let (mut near, mut far) = pair_in_memory().await;
    let start = Instant::now();
    let talking = async {
        for _ in 0..10 {
            sleep(KEEPALIVE_SPAN).await;
            near.send(&Message::Keepalive).await.unwrap();
        }
        near
    };
    let (ended, _near) = tokio::join!(far.recv(), talking);
    assert!(matches!(ended, Err(ControlError::TimedOut(_))));
    assert_eq!(start.elapsed().as_secs(), (KEEPALIVE_SPAN * 10 + SILENCE_SPAN).as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_ends_in_time_though_the_wait_is_taken_up_again_and_again() {
    let (mut near, mut far) = pair_in_memory().await;
    let start = Instant::now();
    let trickling = async {
        near.stream.write_all(&[0, 0, 1, 0, 10]).await.unwrap();
        while near.stream.write_all(&[0]).await.is_ok() && near.stream.flush().await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let waiting = async {
        loop {
            tokio::select! {
                ended = far.recv() => break ended,
                () = sleep(Duration::from_millis(300)) => {}
            }
        }
    };
    tokio::select! {
        ended = waiting => assert!(matches!(ended, Err(ControlError::TimedOut(_)))),
        () = trickling => panic!("the peer gave up first"),
    }
    assert!(start.elapsed() <= FRAME_SPAN + Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_abandoned_loses_no_byte() {
    let (mut near, mut far) = pair_in_memory().await;
    let message = Message::fault(Reason::Changed, "x".repeat(50));
    let frame = message.to_frame().unwrap();
    let sending = async {
        for byte in frame {
            near.stream.write_all(&[byte]).await.unwrap();
            near.stream.flush().await.unwrap();
            sleep(Duration::from_millis(100)).await;
        }
    };
    let receiving = async {
        loop {
            tokio::select! {
                got = far.recv() => break got.unwrap(),
                () = sleep(Duration::from_millis(70)) => {}
            }
        }
    };
    let ((), got) = tokio::join!(sending, receiving);
    assert_eq!(got, message);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_does_not_hold_the_sender_for_ever() {
    let (mut near, _far) = pair_in_memory().await;
    let ended = loop {
        if let Err(ended) = near.send(&a_page(4096)).await {
            break ended;
        }
    };
    assert!(matches!(ended, ControlError::TimedOut(_)));
    assert!(matches!(near.send(&Message::Keepalive).await, Err(ControlError::Lost(_))));
}

#[tokio::test]
async fn a_frame_longer_than_allowed_is_refused_at_its_head() {
    for head in [[0xFF, 0xFF, 0xFF, 0xFF, 1], [0, 1, 0, 1, 10], [0, 0, 0, 0, 12]] {
        let (mut near, mut far) = pair_in_memory().await;
        near.stream.write_all(&head).await.unwrap();
        near.stream.flush().await.unwrap();
        let refused = far.recv().await.unwrap_err();
        assert!(matches!(refused, ControlError::Malformed(Malformed::Length { .. })), "{refused}");
    }
}

#[tokio::test]
async fn pages_are_refused_until_they_are_allowed() {
    let page = a_page(4000);
    for (allowed, page_fits) in [(false, false), (true, true)] {
        let (mut near, mut far) = pair_in_memory().await;
        if allowed {
            far.allow_pages();
        }
        let got = tokio::select! {
            got = far.recv() => got,
            // It may fail or wait for ever: the receiver's word is what counts.
            () = async { near.send(&page).await.unwrap_or(()); pending().await } => panic!(),
        };
        assert_eq!(got.is_ok(), page_fits);
        assert!(far.inbox_capacity() <= 2 * frame_limit(4).unwrap());
    }
}

#[tokio::test]
async fn an_unknown_message_and_a_wrong_first_message_are_refused_in_words() {
    let (server, client) = (Identity::generate(), Identity::generate());
    let unknown = [0, 0, 0, 2, 99, 0xA0].to_vec();
    let wrong = Message::Cancel.to_frame().unwrap();
    let old = Message::Open(Open { version: 0, ..an_open() }).to_frame().unwrap();
    for (first, expected) in
        [(unknown, Reason::Unexpected), (wrong, Reason::Unexpected), (old, Reason::Version)]
    {
        let (host, accepting) = accept_once(tls::server_config(&server)).await;
        let connecting = async {
            let trust = pinned(&server);
            let mut channel = ControlChannel::connect(&host, &client, &trust).await.unwrap();
            channel.stream.write_all(&first).await.unwrap();
            channel.stream.flush().await.unwrap();
            let answer = channel.recv().await.unwrap();
            channel.close().await;
            answer
        };
        let (answer, far) = tokio::join!(connecting, accepting);
        assert!(far.is_err());
        let Message::Refused(refused) = answer else { panic!("{answer:?}") };
        assert_eq!(refused.reason, expected, "{}", refused.text);
    }
}

#[tokio::test]
async fn garbage_after_the_handshake_ends_the_channel() {
    for garbage in [vec![0x55; 4096], b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0, 0, 0, 3, 1, 2, 3]]
    {
        let (mut near, mut far) = pair_in_memory().await;
        near.stream.write_all(&garbage).await.unwrap();
        near.stream.flush().await.unwrap();
        assert!(matches!(far.recv().await, Err(ControlError::Malformed(_))));
    }
}

#[tokio::test]
async fn a_connection_cut_in_a_frame_is_lost() {
    let (mut near, mut far) = pair_in_memory().await;
    near.stream.write_all(&[0, 0, 0, 9, 10]).await.unwrap();
    near.stream.flush().await.unwrap();
    drop(near);
    assert!(matches!(far.recv().await, Err(ControlError::Lost(_))));
}

impl<S> ControlChannel<S> {
    fn inbox_capacity(&self) -> usize {
        self.inbox.capacity()
    }
}
