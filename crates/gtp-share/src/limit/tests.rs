//! People read which host it is, whichever way a session goes.
//!
//! These tests must not know how a screen shows the words.

use super::*;

#[test]
fn the_same_limit_is_this_host_at_one_end_and_the_server_at_the_other() {
    let words = |ends: Ends| ALL.map(|by| ends.limit(by));
    let rest = ["a limit or no data", "the path"];
    assert_eq!(
        words(Ends::GET),
        ["the server", "this host", rest[0], rest[1], "this host's disk", "a router's link"]
    );
    assert_eq!(
        words(Ends::PUT),
        ["this host", "the server", rest[0], rest[1], "the server's disk", "a router's link"]
    );
    assert_eq!(Ends::GET.limit_at_length(LimitedBy::Sink), "this host's capacity");
    assert_eq!(Ends::ELSEWHERE.limit(LimitedBy::Disk), "the receiver's disk");
}

#[test]
fn every_word_of_the_core_is_read_back_and_no_other() {
    for by in ALL {
        assert_eq!(read(by.as_str()), Some(by));
    }
    assert_eq!(read("weather"), None);
}
