//! An emulator as the command line runs it.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp_alloc::Span;
use gtp_emu::{Face, NetSpec, Progress, RunOptions, run};

#[test]
fn it_tells_where_it_listens_then_its_intervals_and_stops_when_told() {
    let spec = NetSpec::parse(
        "[[link]]\nname = \"l\"\nrate = \"10Mbit\"\n\
         [[path]]\nname = \"p\"\nlisten = \"127.0.0.1:0\"\ntarget = \"127.0.0.1:9\"\n\
         up = [\"l\"]\ndown = []",
    )
    .expect("a good file");
    let (stop, mut intervals) = (AtomicBool::new(false), 0);
    let options = RunOptions { face: Face::Relay, stats_every: Some(Span::from_millis(20)) };
    let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let last = run(&spec, options, &stop, |progress| match progress {
        Progress::Started(paths) => {
            assert_eq!(paths[0].0, "p");
            client.send_to(b"one", paths[0].1).expect("sent");
        }
        Progress::Stats { snapshot, interval } => {
            intervals += 1;
            assert!(interval.to_json().starts_with("{\"event\":\"interval\",\"t\":"));
            if snapshot.links[0].carried_packets == 1 {
                stop.store(true, Ordering::Relaxed);
            }
        }
    })
    .expect("it runs");
    assert!(intervals > 0);
    assert_eq!(last.links[0].carried_bytes, 31);
    assert!(last.to_json().contains("\"timing_error\":{\"packets\":1,"));
}

#[test]
fn a_network_without_paths_or_routes_is_refused() {
    let spec = NetSpec::parse("[[link]]\nname = \"l\"").expect("a good file");
    for face in [Face::Relay, Face::Tun] {
        let options = RunOptions { face, stats_every: None };
        let error = run(&spec, options, &AtomicBool::new(false), |_| {}).expect_err("refused");
        assert!(error.to_string().contains("[["), "{error}");
    }
}
