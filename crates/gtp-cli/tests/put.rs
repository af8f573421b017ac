//! `gtp put` against `gtp serve --writable`: what arrives, under which name, and that the same
//! command does the same again.

mod common;

use common::{Serving, World, bytes, events};

/// A server that lets the client write, and that the client knows.
fn writable(world: &World, args: &[&str]) -> Serving {
    let id = world.expect(0, &["id"]);
    std::fs::create_dir_all(world.path("server")).unwrap();
    std::fs::write(world.path("server/authorized_keys"), id.stdout).unwrap();
    let server = world.serve("server", &[&["--writable"], args].concat());
    world.expect(0, &["ls", &server.url(""), "--accept-new"]);
    server
}

#[test]
fn forty_small_puts_in_a_row_each_need_one_attempt() {
    let world = World::new();
    let server = writable(&world, &[]);
    std::fs::write(world.path("h"), "hi\n").unwrap();
    for round in 0..40 {
        let output = world.expect(0, &["put", "h", &server.url(""), "--json"]);
        let retries = events(&output).iter().filter(|line| line["event"] == "retry").count();
        assert_eq!(retries, 0, "round {round}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "round {round}");
    }
    assert_eq!(std::fs::read(world.path("export/h")).unwrap(), b"hi\n");
}

#[test]
fn a_put_that_may_not_wait_ends_well_when_its_bytes_are_there() {
    let world = World::new();
    let server = writable(&world, &[]);
    for size in [0, 1, 300_000, 3_000_000] {
        let content = bytes(size, 5);
        std::fs::write(world.path("h"), &content).unwrap();
        let name = format!("h{size}");
        world.expect(0, &["put", "h", &server.url(&name), "--retry-for", "1s"]);
        assert!(std::fs::read(world.path("export").join(&name)).unwrap() == content);
    }
}
