//! How a server's sessions are listed for who looks at it.
//!
//! These tests must not know how a list travels.

use std::net::SocketAddr;
use std::sync::Arc;

use gtp::{Identity, Moved, Request};

use super::*;

fn running(whose: Whose, name: Option<&str>, path: &str, pace: Option<Pace>) -> Running {
    let request = Request {
        key: Identity::generate().fingerprint(),
        name: name.map(str::to_owned),
        verb: "get",
        path: path.to_owned(),
    };
    let client = SocketAddr::from(([192, 0, 2, 1], 9));
    let groups = vec![Arc::from("lab"), Arc::from("two")];
    let visit = Arc::new(Visit { id: 7, client, whose, request, export: None, groups });
    let moved = Moved { wire_bytes: 9, loss_ratio: 0.5, ..Moved::default() };
    Running { visit, moved, pace }
}

#[test]
fn a_listed_client_is_named_with_its_groups_and_a_stranger_by_its_address() {
    let pace = Pace {
        rate: Rate::from_bps(4),
        granted: Rate::from_bps(5),
        limited_by: LimitedBy::Sink,
        rtt: Span::from_millis(1),
        ..idle("get")
    };
    let listed = running(Whose::Listed, Some("anna"), "lab/run42.h5", Some(pace));
    let (host, sessions) = list([Rate::UNLIMITED, Rate::from_bps(6)], &[listed]);
    assert_eq!((host.capacity_out, host.capacity_in), (None, Some(6)));
    assert_eq!((host.used_out, host.used_in, host.sessions), (4, 0, 1));
    let of = &sessions[0];
    assert_eq!((of.serves().as_str(), of.moves()), ("anna [lab,two]", "lab/run42.h5"));
    assert_eq!((of.measured, of.granted, of.rtt_us, of.loss_ratio), (4, Some(5), 1_000, 0.5));
    assert_eq!(gtp_share::limit::of_session(of), "the client");
    let stranger = view(&running(Whose::Stranger, None, "lab/run42.h5", None));
    assert_eq!((stranger.serves().as_str(), stranger.moves()), ("192.0.2.1:9", "lab/run42.h5"));
    assert_eq!((stranger.measured, stranger.limited_by.as_str()), (0, "demand"));
    let nameless = running(Whose::Listed, None, "", None);
    let key = nameless.visit.request.key.to_string();
    let said = view(&nameless);
    assert!(key.starts_with(&said.client.unwrap().name[..20]) && said.label == "/");
}

#[test]
fn what_clients_name_is_cut_and_turns_no_writing_round() {
    let long = "\u{202e}ä".repeat(4_000);
    let said = view(&running(Whose::Listed, Some(&long), &long, None));
    let client = said.client.unwrap();
    for text in [&said.label, &client.name, &client.groups] {
        assert!(text.len() <= gtp_share::LABEL_BYTES && !text.contains('\u{202e}'), "{text}");
    }
    assert!(said.label.contains('ä'), "{}", said.label);
}
