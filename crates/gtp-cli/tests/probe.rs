//! `gtp probe`, as a user meets it: what the emulated path does to datagrams is what it says.

mod common;

use common::relay::Relay;
use common::{World, events};
use serde_json::Value;

/// A probe with these options, over a path of these links.
fn probe(links: &str, ways: &str, serve: &[&str], args: &[&str]) -> Value {
    let world = World::new();
    let server = world.serve("server", &[&["--public"], serve].concat());
    let path = Relay::to(&world, &server, links, ways);
    let url = path.url("");
    let all = [&["probe", &url, "--accept-new", "--json"], args].concat();
    events(&world.expect(0, &all)).pop().unwrap()
}

fn number(way: &Value, field: &str) -> f64 {
    way[field].as_f64().unwrap_or_else(|| panic!("{field} in {way}"))
}

#[test]
fn a_clean_path_brings_every_datagram_of_both_ends_at_the_rate_that_was_asked_for() {
    let links = "[[link]]\nname = \"there\"\ndelay = \"20ms\"\n[[link]]\nname = \"back\"\n\
                 delay = \"5ms\"";
    let ways = "up = [\"there\"]\ndown = [\"back\"]";
    let said = probe(links, ways, &[], &["--both", "--rate", "8Mbit", "--seconds", "2"]);
    for (way, least) in [(&said["up"], 0.020), (&said["down"], 0.005)] {
        assert_eq!((&way["sent"], &way["loss_ratio"]), (&way["received"], &0.0.into()), "{way}");
        let due = 8e6 * 2.0 / (8.0 * number(way, "datagram_bytes"));
        let sent = number(way, "sent") + number(way, "held_up");
        assert!((sent - due).abs() < 2.0, "{sent} of {due}: {way}");
        // Both ends have one clock.
        let delay = number(way, "delay_least_s");
        assert!((least..least + 0.015).contains(&delay), "{way}");
    }
    let rtt = number(&said, "rtt_s");
    assert!(rtt >= 0.025, "{rtt}");
}

#[test]
fn losses_and_delays_of_one_direction_are_told_of_that_direction_alone() {
    let links = "[[link]]\nname = \"there\"\ndelay = \"5ms\"\nloss = \"5%\"\n\
                 [[link]]\nname = \"back\"\ndelay = \"5ms\"\njitter = \"20ms\"\n\
                 jitter_order = \"free\"";
    let ways = "up = [\"there\"]\ndown = [\"back\"]";
    let said = probe(links, ways, &[], &["--both", "--rate", "4Mbit", "--seconds", "3"]);
    let (up, down) = (&said["up"], &said["down"]);
    assert!((0.02..0.09).contains(&number(up, "loss_ratio")), "{up}");
    assert_eq!(up["overtaken"], 0, "{up}");
    assert!(number(down, "overtaken") > 0.0, "{down}");
    assert!(number(down, "delay_above_p95_s") > 0.010, "{down}");
    assert!(number(down, "loss_ratio") < 0.02, "{down}");
}

#[test]
fn a_probe_never_exceeds_what_the_far_end_permits_and_says_what_it_held_back() {
    let links = "[[link]]\nname = \"there\"\ndelay = \"5ms\"";
    let ways = "up = [\"there\"]\ndown = [\"there\"]";
    let permits = ["--capacity-in", "2Mbit", "--capacity-out", "2Mbit"];
    let said = probe(links, ways, &permits, &["--both", "--rate", "10Mbit", "--seconds", "2"]);
    for way in [&said["up"], &said["down"]] {
        assert!(number(way, "sent_bps") < 2.2e6, "{way}");
        assert!(number(way, "held_up") > number(way, "sent"), "{way}");
    }
    assert_eq!(said["up"]["limited_by"], "sink");
}

#[test]
fn who_may_not_read_a_place_may_not_probe_it() {
    let world = World::new();
    std::fs::write(world.path("keys"), "").unwrap();
    let server = world.serve("server", &["--authorized-keys", "keys"]);
    let url = server.url("");
    world.expect(7, &["probe", &url, "--accept-new", "--seconds", "0.1"]);
}

#[test]
fn people_read_what_was_sent_lost_and_delayed() {
    let world = World::new();
    let server = world.serve("server", &["--public"]);
    let url = server.url("");
    let args = ["probe", &url, "--accept-new", "--down", "--rate", "1Mbit", "--seconds", "0.5"];
    let said = String::from_utf8(world.expect(0, &args).stdout).unwrap();
    for words in ["from the server: 50 datagrams of 1257 bytes", "lost: 0 (0.000 %)", "jitter"] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    assert!(!said.contains("to the server"), "{said}");
}
