//! Who looks at a process that no daemon counts, over real sockets, at times that each test states.
//!
//! A test calls the steps itself. It must not depend on how fast the machine is.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use gtp_share::{Policy, client};

use super::*;

fn listing(dir: &tempfile::TempDir) -> (Listing, PathBuf) {
    let path = dir.path().join("status.sock");
    (Listing::new(Time::ZERO, Lookout::at(&path).unwrap()), path)
}

fn host(sessions: u32) -> HostView {
    HostView {
        capacity_out: Some(5),
        capacity_in: None,
        used_out: 4,
        used_in: 0,
        guaranteed: 0,
        processes: 1,
        sessions,
    }
}

fn session(session: u32) -> SessionView {
    SessionView {
        session,
        uid: 1000,
        pid: 4242,
        program: "gtp serve".into(),
        label: "lab/run42.h5".into(),
        direction: "out".into(),
        weight: 1.0,
        flat_weight: 1.0,
        peer_weight: 1.0,
        max_rate: None,
        transfer_max_rate: None,
        transfer_guarantee: 0,
        policy: Policy::Normal,
        demand: None,
        peer_offer: None,
        granted: None,
        measured: 4,
        limited_by: "sink".into(),
        path: None,
        carrier: "udp".into(),
        loss_ratio: 0.0,
        rtt_us: 1_000,
        wire_bytes: 9,
        client: None,
    }
}

/// Serves until somebody on another thread has been answered.
fn served<T: Send + 'static>(
    listing: &mut Listing,
    sessions: &[SessionView],
    ask: impl FnOnce() -> T + Send + 'static,
) -> T {
    let asking = std::thread::spawn(ask);
    while !asking.is_finished() {
        listing.serve(Time::ZERO, || (host(sessions.len() as u32), sessions.to_vec()));
        std::thread::yield_now();
    }
    asking.join().unwrap()
}

#[test]
fn the_list_is_read_by_the_decoder_of_the_daemons_however_long_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut listing, path) = listing(&dir);
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "another user may connect");
    let all: Vec<SessionView> = (0..2_000).map(session).collect();
    let read = served(&mut listing, &all, move || client::sessions(&path)).unwrap();
    assert_eq!(read, (host(2_000), all));
}

#[test]
fn what_is_the_daemons_is_refused_with_words_that_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let (mut listing, path) = listing(&dir);
    let of = path.clone();
    let set = move || client::set(&of, 1, gtp_share::Change::default()).unwrap_err();
    assert!(served(&mut listing, &[], set).to_string().contains("gtpd"));
    let hour = move || client::history(&path).unwrap_err();
    assert!(served(&mut listing, &[], hour).to_string().contains("gtpd"));
}

#[test]
fn readers_that_say_nothing_make_room_and_are_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let (mut listing, path) = listing(&dir);
    let none = || (host(0), Vec::new());
    let silent: Vec<Connection> = (0..3 * READERS)
        .map(|_| {
            let connection = Connection::open(&path).unwrap();
            listing.serve(Time::ZERO, none);
            connection
        })
        .collect();
    assert_eq!(listing.readers.len(), READERS);
    let read = served(&mut listing, &[session(1)], move || client::sessions(&path)).unwrap();
    assert_eq!(read.1, [session(1)], "they keep others from looking");
    assert!(listing.poll_timeout() <= Time::ZERO + PATIENCE);
    listing.serve(Time::ZERO + PATIENCE, none);
    assert!(listing.readers.is_empty());
    drop(silent);
}

#[test]
fn a_list_is_made_once_for_all_who_ask_within_a_tenth_of_a_second() {
    let dir = tempfile::tempdir().unwrap();
    let (mut listing, path) = listing(&dir);
    let asked = serde_json::to_vec(&Request::Sessions { version: gtp_share::VERSION }).unwrap();
    let mut made = 0;
    for millis in [0, 0, 99, 100] {
        let connection = Connection::open(&path).unwrap();
        connection.send(&asked, &[]).unwrap();
        listing.serve(Time::ZERO + Span::from_millis(millis), || {
            made += 1;
            (host(0), Vec::new())
        });
    }
    assert_eq!(made, 2);
}

#[test]
fn a_place_has_one_process_and_a_socket_that_one_left_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (first, path) = listing(&dir);
    assert!(matches!(Lookout::at(&path), Err(ClaimError::Taken)));
    drop(first);
    assert!(!path.exists(), "it stays behind");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Lookout::at(&path).unwrap();
}

#[test]
fn a_socket_whose_name_was_removed_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut listing, path) = listing(&dir);
    std::fs::remove_file(&path).unwrap();
    listing.serve(Time::ZERO + LOOK, || (host(0), Vec::new()));
    let mode = std::fs::symlink_metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
