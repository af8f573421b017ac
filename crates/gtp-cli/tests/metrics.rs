//! The numbers of `gtp serve` for Prometheus, against what was moved and what the audit says.

mod common;

use std::collections::BTreeMap;
use std::process::Stdio;

use common::{World, ports::free_port, size_of, wait_for, writable};
use serde_json::Value;

/// The page of a server, as a program asks for it.
fn page(port: u16) -> String {
    let text = common::page(port).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
    text
}

/// The sum of a family's lines that have these labels.
fn sum(page: &str, family: &str, labels: &[&str]) -> u64 {
    let head = format!("gtp_serve_{family}{{");
    let fits = |line: &&str| line.starts_with(&head) && labels.iter().all(|l| line.contains(l));
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    page.lines().filter(fits).map(value).sum()
}

fn audit(world: &World, event: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(world.path("audit")).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn every_byte_and_every_end_of_transfers_that_succeed_fail_and_break_off_counts_once() {
    const SIZE: u64 = 300_000;
    let world = World::new();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let server = writable(&world, &["--metrics", &address, "--audit", "audit"]);
    world.export("a", SIZE as usize);
    world.export("large", 4_000_000);
    std::fs::write(world.path("mine"), common::bytes(SIZE as usize, 3)).unwrap();
    for n in 0..4 {
        world.expect(0, &["get", &server.url("a"), &format!("got{n}")]);
        world.expect(0, &["put", "mine", &server.url(&format!("put{n}"))]);
    }
    for _ in 0..3 {
        world.expect(3, &["get", &server.url("missing"), "x"]);
    }
    for n in 0..2 {
        let out = format!("cut{n}");
        let url = server.url("large");
        let mut get = world.gtp("client", &["get", &url, &out, "--max-rate", "4Mbit"]);
        let mut get = get.stderr(Stdio::null()).spawn().unwrap();
        let part = world.path(&format!("{out}.gtp-part"));
        wait_for("data", || size_of(&part) > 0);
        get.kill().unwrap();
        get.wait().unwrap();
    }
    assert_eq!(
        world.run("stranger", &["ls", &server.url(""), "--accept-new"]).status.code(),
        Some(7)
    );
    // A listing, when the server was met, and 13 transfers.
    wait_for("the ends of all", || audit(&world, "end").len() == 14);
    let is_counted = || sum(&page(port), "sessions_total", &[]) == 14;
    wait_for("the numbers", is_counted);
    let page = page(port);
    assert_eq!(sum(&page, "content_bytes_total", &["verb=\"put\""]), 4 * SIZE);
    assert_eq!(sum(&page, "files_total", &["verb=\"put\""]), 4);
    assert_eq!(sum(&page, "sessions_total", &["verb=\"get\"", "outcome=\"done\""]), 4);
    assert_eq!(sum(&page, "sessions_total", &["outcome=\"missing\""]), 3);
    assert_eq!(sum(&page, "sessions_total", &["verb=\"get\""]), 9);
    assert_eq!(sum(&page, "refused_total", &["why=\"not_allowed\""]), 1);
    assert_eq!(sum(&page, "running_sessions", &[]), 0);
    let mut ends = BTreeMap::<String, [u64; 3]>::new();
    for end in audit(&world, "end") {
        let sums = ends.entry(end["verb"].as_str().unwrap().to_owned()).or_default();
        sums[0] += 1;
        sums[1] += end["bytes"].as_u64().unwrap();
        sums[2] += end["wire_bytes"].as_u64().unwrap();
    }
    assert!(ends["get"][1] >= 4 * SIZE, "{ends:?}");
    for (verb, sums) in ends {
        let verb = format!("verb=\"{verb}\"");
        for (family, of_audit) in
            ["session_seconds_count", "content_bytes_total", "wire_bytes_total"].iter().zip(sums)
        {
            assert_eq!(sum(&page, family, &[&verb]), of_audit, "{family} {verb}: {page}");
        }
    }
}

#[test]
fn numbers_are_served_on_a_loopback_address_alone() {
    let world = World::new();
    let args = ["serve", "export", "--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"];
    let refused = world.run("server", &args);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("name a loopback address"));
}

#[test]
fn bytes_count_while_a_session_runs_and_once_when_it_ends() {
    let world = World::new();
    let port = free_port();
    let server = writable(&world, &["--metrics", &format!("127.0.0.1:{port}")]);
    world.export("large", 2_000_000);
    let url = server.url("large");
    let mut get = world.gtp("client", &["get", &url, "out", "--max-rate", "8Mbit"]);
    let mut get = get.stderr(Stdio::null()).spawn().unwrap();
    let counted = || {
        let page = page(port);
        let content = sum(&page, "content_bytes_total", &["verb=\"get\""]);
        (sum(&page, "running_sessions", &["verb=\"get\""]), content)
    };
    wait_for("bytes of a session that runs", || {
        let (running, content) = counted();
        running == 1 && content > 100_000
    });
    assert!(get.wait().unwrap().success());
    wait_for("its end", || counted().0 == 0);
    wait_for("the rest", || counted().1 >= 2_000_000);
    // Units at the end of files count whole, and nothing counts twice.
    assert!(counted().1 < 2_100_000, "{:?}", counted());
}

#[test]
fn each_file_of_a_put_tree_counts_once_beside_a_file_of_many_blocks() {
    let world = World::new();
    let port = free_port();
    let server = writable(&world, &["--metrics", &format!("127.0.0.1:{port}")]);
    std::fs::create_dir(world.path("mine")).unwrap();
    for file in 0..150 {
        std::fs::write(world.path(&format!("mine/a{file}")), common::bytes(100, file)).unwrap();
        std::fs::write(world.path(&format!("mine/z{file}")), common::bytes(100, file)).unwrap();
    }
    std::fs::write(world.path("mine/m"), common::bytes(3 << 20, 1)).unwrap();
    world.expect(0, &["put", "mine", &server.url("")]);
    let put = ["verb=\"put\""];
    wait_for("its end", || sum(&page(port), "sessions_total", &put) == 1);
    assert_eq!(sum(&page(port), "files_total", &put), 301);
}
