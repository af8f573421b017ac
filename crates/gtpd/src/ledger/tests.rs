//! What the ledger counts of drawn sessions, at exact times.
//!
//! Sessions are made by hand and never posted: that what processes post comes to the ledger, and
//! once, the tests of the product see.

use prometheus_client::encoding::text::encode;

use super::*;
use crate::server::tests::posted;

fn seat(now: Time, side: Side, wire_bytes: u64) -> Seat {
    Seat::new(now, 1, 0, Posted { side, ..posted(wire_bytes) })
}

fn page(ledger: &Ledger) -> String {
    let (mut all, mut text) = (Registry::default(), String::new());
    ledger.register(&mut all);
    encode(&mut text, &all).unwrap();
    text
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

#[test]
fn a_session_counts_from_when_it_is_seen_once_and_time_goes_to_what_limits_it_then() {
    let (mut ledger, most) = (Ledger::new(), Rate::from_mbps(80));
    let mut seat = seat(at(10), Side::Source, 500);
    let mut go_on = |to: u64, wire_bytes, by| {
        (seat.posted.wire_bytes, seat.posted.limited_by) = (wire_bytes, by);
        ledger.count(at(to), 7, &mut seat, most);
    };
    go_on(11, 1_500, LimitedBy::Path);
    go_on(12, 2_500, LimitedBy::Path);
    go_on(15, 2_500, LimitedBy::Disk);
    (seat.posted.packets, seat.posted.lost) = (3, 1);
    ledger.end(at(20), 7, &mut seat, (End::ProcessGone, most));
    let page = page(&ledger);
    let own = "uid=\"7\",direction=\"out\",role=\"client\"";
    for line in [
        format!("gtp_wire_bytes_total{{{own}}} 2000"),
        format!("gtp_lost_bytes_total{{{own}}} 625"),
        format!("gtp_limited_seconds_total{{{own},by=\"path\"}} 2.0"),
        format!("gtp_limited_seconds_total{{{own},by=\"disk\"}} 8.0"),
        format!("gtp_sessions_ended_total{{{own},end=\"process_gone\"}} 1"),
        "gtp_session_seconds_sum{direction=\"out\"} 10.0".to_owned(),
        "gtp_session_bits_per_second_sum{direction=\"out\"} 1600.0".to_owned(),
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line}: {page}");
    }
}

#[test]
fn users_beyond_the_bound_count_together_and_nobody_moves_more_than_the_host_can() {
    let mut ledger = Ledger::new();
    for uid in 0..3 * USERS_MOST as u32 {
        let mut liar = seat(at(1), Side::Sink, 0);
        liar.posted.wire_bytes = u64::MAX;
        ledger.end(at(2), uid, &mut liar, (End::Closed, Rate::from_mbps(80)));
    }
    let page = page(&ledger);
    let lines = page.lines().filter(|line| line.starts_with("gtp_wire_bytes_total{"));
    assert_eq!(lines.count(), USERS_MOST + 1);
    // A second's worth, and what may be late.
    let of_one = "gtp_wire_bytes_total{uid=\"7\",direction=\"in\",role=\"client\"} 20000000";
    assert!(page.contains(of_one), "{page}");
    assert!(page.contains("uid=\"other\""));
}
