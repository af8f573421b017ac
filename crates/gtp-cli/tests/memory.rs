//! What a server keeps of clients that have gone: next to nothing.

mod common;

use std::process::Stdio;

use common::{Serving, World, wait_for};

/// Clients at a time, and how often so many come.
const AT_A_TIME: usize = 8;
const ROUNDS: usize = 4;
/// Bytes of what each fetches: sessions of this length hold megabytes of it.
const SIZE: usize = 8 << 20;

/// Kilobytes that a server may have more after its first clients than before: what is made once,
/// and small pieces.
const KEPT_KB: u64 = 8 << 10;

/// A number from the status of the server's process.
fn status(server: &Serving, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let said = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    said.split_whitespace().next().unwrap().parse().unwrap()
}

/// Fetches the file by so many clients at once.
fn fetch(world: &World, server: &Serving, round: usize) {
    let gets: Vec<_> = (0..AT_A_TIME)
        .map(|n| {
            let to = format!("copy{round}-{n}");
            let args = ["get", &server.url("file"), &to, "--fingerprint", &server.fingerprint];
            let mut command = world.gtp("client", &args);
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for get in gets {
        let output = get.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_memory_of_a_server_is_the_systems_again_once_its_clients_have_gone() {
    let world = World::new();
    world.export("file", SIZE);
    let server = world.serve("server", &["--public"]);
    let before = status(&server, "RssAnon:");
    for round in 0..ROUNDS {
        fetch(&world, &server, round);
    }
    let kept = || status(&server, "RssAnon:").saturating_sub(before);
    wait_for("that little is kept", || kept() < KEPT_KB);
}
