//! What a server has and cannot send, and an export that moves under it: named at both ends, with
//! one exit code, and never passed over in silence.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use common::{World, events};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tree with a file and one of each kind that does not travel.
fn mixed(world: &World, at: &str) {
    let dir = world.path(at);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("good"), b"content").unwrap();
    symlink("good", dir.join("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), rustix::fs::Mode::RUSR).unwrap();
    let _bound = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    fs::write(dir.join("x.gtp-part"), b"x").unwrap();
}

const NOT_CARRIED: [&str; 4] = ["link", "fifo", "socket", "x.gtp-part"];

#[test]
fn every_kind_of_thing_that_does_not_travel_is_named_by_get_put_and_ls_and_is_code_12() {
    let world = World::new();
    mixed(&world, "export/tree");
    mixed(&world, "mine");
    world.list_client();
    let server = world.serve("server", &["--writable"]);
    let tree = server.url("tree");
    let got = world.expect(12, &["get", &tree, "out", "--accept-new"]);
    let put = world.expect(12, &["put", "mine", &server.url("")]);
    let listed = world.expect(12, &["ls", &tree]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in NOT_CARRIED {
        assert!(said(&got).contains(name) && said(&put).contains(name), "{name}");
        assert!(listed.contains(name), "{name}: {listed}");
    }
    for place in ["out", "export/mine"] {
        assert_eq!(fs::read_dir(world.path(place)).unwrap().count(), 1, "{place}");
        assert_eq!(fs::read(world.path(place).join("good")).unwrap(), b"content");
    }
    let machine = events(&world.expect(12, &["ls", &tree, "--json"]));
    assert_eq!(machine.iter().filter(|event| event["event"] == "skipped").count(), 4);
}

#[test]
fn more_left_out_than_is_named_is_counted() {
    let world = World::new();
    fs::create_dir(world.path("export/tree")).unwrap();
    for n in 0..1_203 {
        symlink("nowhere", world.path(&format!("export/tree/{n}"))).unwrap();
    }
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let got = world.expect(12, &["get", &url, "out", "--accept-new"]);
    assert!(said(&got).contains("204 more"), "999 are named, and the rest is counted");
    let listed = world.expect(12, &["ls", &url]);
    assert!(String::from_utf8(listed.stdout).unwrap().contains("204 more"));
}

#[test]
fn an_export_that_is_switched_or_removed_under_a_running_server_is_noticed_at_the_next_session() {
    let world = World::new();
    for (dir, content) in [("one", "first"), ("two", "second")] {
        fs::create_dir(world.path(dir)).unwrap();
        fs::write(world.path(dir).join("file"), content).unwrap();
    }
    symlink("one", world.path("current")).unwrap();
    let server = world.serve_dir("server", "current", &["--public"]);
    let fetch = |code, content: &str| {
        let got = world.expect(code, &["get", &server.url("file"), "-", "--accept-new"]);
        assert_eq!(String::from_utf8(got.stdout).unwrap(), content);
    };
    fetch(0, "first");
    symlink("two", world.path("next")).unwrap();
    fs::rename(world.path("next"), world.path("current")).unwrap();
    fetch(0, "second");
    fs::remove_file(world.path("current")).unwrap();
    let listed = world.expect(5, &["ls", &server.url("")]);
    assert!(said(&listed).contains("not there at present"), "{}", said(&listed));
    let got = world.expect(5, &["get", &server.url("file"), "-", "--retry-for", "1s"]);
    assert!(said(&got).contains("not there at present"), "{}", said(&got));
    let synced = world.expect(5, &["sync", &server.url(""), "out", "--retry-for", "1s"]);
    assert!(said(&synced).contains("not there at present"), "{}", said(&synced));
    fs::create_dir(world.path("current")).unwrap();
    fs::write(world.path("current/file"), "third").unwrap();
    fetch(0, "third");
}

#[test]
fn a_put_to_an_export_that_was_removed_says_so_and_arrives_once_it_is_back() {
    let world = World::new();
    let server = common::writable(&world, &[]);
    fs::write(world.path("mine"), "content").unwrap();
    fs::rename(world.path("export"), world.path("away")).unwrap();
    for to in ["", "new", "dir/new"] {
        let put = world.expect(5, &["put", "mine", &server.url(to), "--retry-for", "1s"]);
        assert!(said(&put).contains("not there at present"), "{to}: {}", said(&put));
    }
    fs::rename(world.path("away"), world.path("export")).unwrap();
    world.expect(0, &["put", "mine", &server.url("")]);
    assert_eq!(fs::read(world.path("export/mine")).unwrap(), b"content");
}
