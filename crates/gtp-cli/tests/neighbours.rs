//! Attackers at a public server: what it takes for them stays bounded, and honest clients go on.
//!
//! The attackers are those of `gtp-measure run neighbours`, which measures what they cost. Here a
//! few of them attack for as long as an honest transfer lasts, and only outcomes count.

use std::path::Path;

use gtp_e2e::cases::Tools;
use gtp_e2e::neighbours::{self, Kind, LINES_MOST, MEMORY_MOST};

/// What the honest client fetches: half a second of the server's capacity.
const BYTES: usize = 6 << 20;
/// Lines that may come at once: a burst that the server allows, and those of its end.
const BURST: f64 = 20.0;

#[track_caller]
fn holds(kind: Kind, attackers: usize) {
    let gtp = Path::new(env!("CARGO_BIN_EXE_gtp")).to_owned();
    let tools = Tools { own: gtp.clone(), gtp };
    let held = neighbours::hold(&tools, kind, attackers, BYTES).unwrap();
    assert!(held.memory <= MEMORY_MOST, "{held:?}");
    let lines_most = BURST + LINES_MOST * held.lasted.as_secs_f64();
    assert!(held.lines as f64 <= lines_most, "{held:?}");
    let (came, entered) = held.visits;
    assert!(came > 0 && entered == came, "{held:?}");
}

#[test]
fn sessions_that_are_opened_and_left_keep_nobody_out() {
    holds(Kind::Leave, 8);
}

#[test]
fn sessions_that_are_held_and_move_nothing_keep_nobody_out() {
    holds(Kind::Squat, 16);
}

#[test]
fn sessions_that_grant_a_trickle_and_offer_all_keep_nobody_out() {
    holds(Kind::Trickle, 8);
}

#[test]
fn datagrams_of_no_session_keep_nobody_out() {
    holds(Kind::Flood, 8);
}

#[test]
fn random_bytes_over_tcp_and_udp_fill_neither_memory_nor_log() {
    holds(Kind::Garbage, 8);
}

#[test]
fn keep_alives_without_end_keep_nobody_out() {
    holds(Kind::KeepAlive, 4);
}
