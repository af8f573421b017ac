//! What clients of a server without a daemon have of its capacity: by key, never by session.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};

use common::{Serving, World, bytes};

/// The fingerprint of one end.
fn id(world: &World, end: &str) -> String {
    String::from_utf8(world.run(end, &["id"]).stdout).unwrap().trim().to_owned()
}

/// Starts a server that may send 60 Mbit/s, with one export and these groups.
fn serve(world: &World, groups: &str) -> Serving {
    for dir in ["lab", "server"] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    fs::write(world.path("lab/large"), bytes(64 << 20, 1)).unwrap();
    let (many, one) = (id(world, "many"), id(world, "one"));
    let keys = format!("{many} group=many\n{one} group=one\n");
    fs::write(world.path("server/authorized_keys"), keys).unwrap();
    let lab = world.path("lab").display().to_string();
    let text = format!("[export.lab]\npath = \"{lab}\"\nread = true\n{groups}");
    fs::write(world.path("serve.toml"), text).unwrap();
    let mut command = world.gtp("server", &["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--daemon", "off", "--capacity-out", "60Mbit"]);
    command.env("GTP_CONFIG_FILE", world.path("serve.toml"));
    Serving::start_logged(command, &world.path("log"))
}

/// Begins a transfer that ends after some seconds, into `to`.
fn get(world: &World, server: &Serving, end: &str, to: &str) -> Child {
    let url = server.url("lab/large");
    let mut get = world.gtp(end, &["get", &url, to, "--accept-new", "--time-limit", "6s"]);
    get.args(["--daemon", "off"]).stdout(Stdio::null()).stderr(Stdio::null());
    get.spawn().unwrap()
}

/// Bytes that transfers have written in the same time: those of `many`, and that of `one`.
fn moved(world: &World, server: &Serving, sessions: usize) -> (f64, f64) {
    for end in ["many", "one"] {
        let listed = world.run(end, &["ls", &server.url(""), "--accept-new"]);
        assert!(listed.status.success());
    }
    let to = |n: usize| format!("many-{n}");
    let mut all: Vec<Child> = (0..sessions).map(|n| get(world, server, "many", &to(n))).collect();
    all.push(get(world, server, "one", "alone"));
    all.iter_mut().for_each(|child| assert_eq!(child.wait().unwrap().code(), Some(10)));
    let has = |name: &str| {
        let part = fs::metadata(world.path(&format!("{name}.gtp-part")));
        part.map_or(0, |part| part.blocks() * 512) as f64
    };
    ((0..sessions).map(|n| has(&to(n))).sum(), has("alone"))
}

#[test]
fn a_key_with_sixteen_sessions_gets_what_a_key_with_one_gets() {
    let world = World::new();
    let server = serve(&world, "[group.many]\n[group.one]\n");
    let (many, one) = moved(&world, &server, 16);
    let ratio = many / one;
    assert!((0.5..2.0).contains(&ratio), "{many} to {one}: {ratio}");
}

#[test]
fn a_groups_weight_and_rate_are_of_each_member_with_all_its_sessions() {
    let world = World::new();
    let server = serve(&world, "[group.many]\nweight = 3\n[group.one]\n");
    let (many, one) = moved(&world, &server, 4);
    let ratio = many / one;
    assert!((1.8..4.5).contains(&ratio), "{many} to {one}: {ratio}");
    let world = World::new();
    let server = serve(&world, "[group.many]\nrate = \"12Mbit\"\n[group.one]\n");
    let (many, one) = moved(&world, &server, 4);
    // Six seconds at 12 Mbit/s are 9 MB.
    assert!((3e6..10.5e6).contains(&many) && one > 2.0 * many, "{many} and {one}");
}
