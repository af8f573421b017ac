//! The router between real namespaces. These tests need root: without it they say that they were
//! skipped, or fail if GTP_REQUIRE_ROOT=1.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use gtp_emu::{Change, Emulator, Handle, NetSpec};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the test can run.
fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let required = std::env::var("GTP_REQUIRE_ROOT").is_ok_and(|v| v == "1");
    assert!(root || !required, "{test} needs root, and GTP_REQUIRE_ROOT=1 asks for it");
    if !root {
        println!("{test}: skipped, it needs root");
    }
    root
}

/// A namespace's name that no other test or process has.
fn namespace(test: &str, host: &str) -> String {
    format!("gtp-{test}-{host}-{}", std::process::id())
}

/// Two hosts a and b with a link each way.
fn router(test: &str, there: &str, back: &str) -> Handle {
    let (a, b) = (namespace(test, "a"), namespace(test, "b"));
    let text = format!(
        r#"
        [[link]]
        name = "there"
        {there}
        [[link]]
        name = "back"
        {back}
        [[host]]
        name = "a"
        namespace = "{a}"
        address = ["10.77.0.1/24", "fd77::1/64"]
        [[host]]
        name = "b"
        namespace = "{b}"
        address = ["10.77.0.2/24", "fd77::2/64"]
        [[route]]
        from = "a"
        to = "b"
        links = ["there"]
        [[route]]
        from = "b"
        to = "a"
        links = ["back"]
        "#
    );
    Emulator::router(&NetSpec::parse(&text).expect("a good file")).expect("the router starts")
}

/// Runs something in a namespace.
fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace");
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("entering it");
            work()
        });
        thread.join().expect("the work in the namespace")
    })
}

fn udp(namespace: &str, address: &str) -> UdpSocket {
    let socket = inside(namespace, || UdpSocket::bind(address).expect("a socket"));
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

#[test]
fn packets_of_both_families_cross_with_the_links_delay() {
    if !root("packets_of_both_families_cross_with_the_links_delay") {
        return;
    }
    let handle = router("delay", "delay = \"20ms\"", "delay = \"30ms\"");
    let (a, b) = (namespace("delay", "a"), namespace("delay", "b"));
    for (from, to) in [("10.77.0.1:0", "10.77.0.2:7000"), ("[fd77::1]:0", "[fd77::2]:7000")] {
        let (near, far) = (udp(&a, from), udp(&b, to));
        let start = Instant::now();
        near.send_to(b"hello", to).unwrap();
        let mut buffer = [0; 16];
        let (n, client) = far.recv_from(&mut buffer).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
        far.send_to(&buffer[..n], client).unwrap();
        assert_eq!(near.recv(&mut buffer).unwrap(), 5);
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
    let stats = handle.stop().unwrap();
    let carried = |link: usize| stats.links[link].carried_bytes;
    assert!(carried(0) >= 2 * 5 + 28 + 48 && carried(1) >= 2 * 5 + 28 + 48, "{stats:?}");
}

#[test]
fn kernel_tcp_crosses_at_the_links_rate() {
    if !root("kernel_tcp_crosses_at_the_links_rate") {
        return;
    }
    let link = "rate = \"100Mbit\"\ndelay = \"5ms\"\nqueue = \"20ms\"";
    let handle = router("tcp", link, link);
    let (a, b) = (namespace("tcp", "a"), namespace("tcp", "b"));
    let listener = inside(&b, || TcpListener::bind("10.77.0.2:7001").unwrap());
    let total = 12_500_000;
    let server = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).unwrap();
        heard.len()
    });
    let start = Instant::now();
    let mut client = inside(&a, || TcpStream::connect("10.77.0.2:7001").unwrap());
    client.write_all(&vec![5; total]).unwrap();
    drop(client);
    assert_eq!(server.join().unwrap(), total);
    // One second's worth of bytes at 100 Mbit/s, without the headers.
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(1), "faster than the link: {took:?}");
    let stats = handle.stop().unwrap();
    assert!(stats.links[0].carried_bytes > total as u64);
    assert_eq!(stats.links[0].dropped_mtu, 0);
}

#[test]
fn a_cut_link_stops_everything_and_namespaces_go_away_at_the_end() {
    if !root("a_cut_link_stops_everything_and_namespaces_go_away_at_the_end") {
        return;
    }
    let handle = router("cut", "", "");
    let (a, b) = (namespace("cut", "a"), namespace("cut", "b"));
    let (near, far) = (udp(&a, "10.77.0.1:0"), udp(&b, "10.77.0.2:7002"));
    handle.set_link("there", Change::DOWN).unwrap();
    near.send_to(b"lost", "10.77.0.2:7002").unwrap();
    let end = Instant::now() + PATIENCE;
    while handle.stats().unwrap().links[0].dropped_down == 0 && Instant::now() < end {
        thread::yield_now();
    }
    handle.set_link("there", Change::UP).unwrap();
    near.send_to(b"found", "10.77.0.2:7002").unwrap();
    let mut buffer = [0; 16];
    let n = far.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"found");
    handle.stop().unwrap();
    assert!(!std::path::Path::new("/run/netns").join(&a).exists());
    assert!(!std::path::Path::new("/run/netns").join(&b).exists());
}

#[test]
fn packets_without_a_route_are_counted_apart_from_those_that_no_host_takes() {
    if !root("packets_without_a_route_are_counted_apart_from_those_that_no_host_takes") {
        return;
    }
    let handle = router("stray", "", "");
    let near = udp(&namespace("stray", "a"), "10.77.0.1:0");
    near.send_to(b"lost", "10.77.0.9:7003").unwrap();
    let end = Instant::now() + PATIENCE;
    while handle.stats().unwrap().unrouted_packets == 0 && Instant::now() < end {
        thread::yield_now();
    }
    let stats = handle.stop().unwrap();
    assert!(stats.unrouted_packets > 0);
    assert_eq!((stats.failed_packets, stats.refused_packets), (0, 0));
}
