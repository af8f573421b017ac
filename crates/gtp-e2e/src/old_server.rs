//! A server of an earlier release, for tests of what programs say of one.
//!
//! It proves its key, agrees on an old revision of the messages, lists one file and sends none of
//! it. This module must not know what the program under test makes of it.

use gtp_net::control::ControlChannel;
use gtp_net::identity::Identity;
use gtp_net::messages::{Entry, EntryKind, Message, Opened, Page, PagesEnd};
use gtp_net::tls::server_config;
use tokio::net::TcpListener;

/// Answers each client in this revision, one client after the other, each until it goes. Never ends
/// while the listener works.
pub async fn serve(listener: TcpListener, version: u32) {
    let config = server_config(&Identity::generate());
    while let Ok((stream, _)) = listener.accept().await {
        let Ok((mut channel, open)) = ControlChannel::accept(stream, &config).await else {
            continue;
        };
        let size = 1_000;
        let opened = Opened {
            version,
            server_session: 1,
            suite: open.suites.0[0],
            unit_payload: open.unit_payload_max,
            udp_port: 1,
            object: Some(EntryKind::File),
            entries_total: 1,
            content_bytes: size,
            weight_milli: open.weight_milli,
            interval_us: 20_000,
            path: None,
            law: None,
            by_ticket: None,
            relays: None,
            time_s: None,
        };
        let path = b"a".to_vec();
        let kind = EntryKind::File;
        let file = Entry { path, kind, size, mode: 0o644, mtime_s: 1_000, mtime_ns: 0 };
        let said = [
            Message::Opened(opened),
            Message::ManifestPage(Page { entries: vec![file] }),
            Message::ManifestEnd(PagesEnd { entries_total: 1, content_bytes: size }),
        ];
        if channel.send_all(said.into_iter()).await.is_ok() {
            while channel.recv().await.is_ok() {}
        }
    }
}
