//! One source to several sinks on hosts of their own: each sink gets its max-min share of the
//! source's capacity, and a slow one delays no other.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::hosts::{Star, rim};
use common::{Serving, World, bytes, events, require_root};

/// What each sink's host receives, in Mbit/s, where the source's host sends 24. With all of them at
/// work the max-min share of the first one is 4, and of the others 5.
const SINKS: [u32; 5] = [4, 8, 12, 12, 12];
const SOURCE: &str = "24Mbit";

/// The share of each sink while all are at work, in Mbit/s.
const SHARES: [f64; 5] = [4.0, 5.0, 5.0, 5.0, 5.0];

/// How far a mean rate on the wire may be from the share: it covers the start and the end of the
/// transfer, in which the session is not at its rate yet or any more.
const BOUND: f64 = 0.15;

/// Eight seconds at 5 Mbit/s.
const BYTES: usize = 5_000_000;

fn serve(world: &World, star: &Star, number: usize) -> Serving {
    let dir = format!("s{number}");
    fs::create_dir(world.path(&dir)).unwrap();
    let listen = format!("{}:4810", rim(number));
    let capacity = format!("{}Mbit", SINKS[number]);
    let args = ["serve", &dir, "--json", "--writable", "--listen", &listen];
    let mut serve = world.gtp("server", &args);
    serve.args(["--daemon", "off", "--capacity-in", &capacity]);
    Serving::start(star.rim(number, &serve))
}

#[test]
fn each_of_five_sinks_gets_its_max_min_share_and_the_slow_one_delays_nobody() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.list_client();
    let star = Star::new(SINKS.len());
    let _servers: Vec<Serving> = (0..SINKS.len()).map(|n| serve(&world, &star, n)).collect();
    let content = bytes(BYTES, 5);
    fs::write(world.path("f"), &content).unwrap();
    let urls: Vec<String> = (0..SINKS.len()).map(|n| format!("gtp://{}:4810/f", rim(n))).collect();
    let mut put: Command = world.gtp("client", &["put", "f", "--json", "--accept-new"]);
    put.args(&urls).args(["--daemon", "off", "--capacity-out", SOURCE]);
    let output = star.hub(&put).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told = events(&output);
    let done = |n: usize| {
        let is_it =
            |event: &&serde_json::Value| event["event"] == "done" && event["sink"] == urls[n];
        told.iter().find(is_it).unwrap()
    };
    for (n, share) in SHARES.iter().enumerate() {
        assert!(fs::read(world.path(&format!("s{n}/f"))).unwrap() == content, "sink {n}");
        let rate = done(n)["sources"][0]["mean_rate"].as_f64().unwrap() / 1e6;
        let off = (rate - share).abs() / share;
        assert!(off < BOUND, "sink {n}: {rate:.1} Mbit/s, and its share is {share}");
    }
    let seconds = |n: usize| done(n)["seconds"].as_f64().unwrap();
    for n in 1..SINKS.len() {
        assert!(seconds(n) < 0.95 * seconds(0), "sink {n}: {} s, {} s", seconds(n), seconds(0));
    }
    assert_eq!(done(0)["limited_by"], "sink");
}
