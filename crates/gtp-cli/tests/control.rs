//! Control laws by which one end decides alone, as a user meets them: each moves a file over an
//! emulated path that is narrow and loses packets, verified as usual; and no server takes part in
//! one that it was not told to allow.

mod common;

use std::process::Output;

use common::relay::Relay;
use common::{Serving, World, events};

const SIZE: usize = 6_000_000;

/// A path of 60 Mbit/s, 20 ms and 1 % of loss to a server.
fn path_to(world: &World, server: &Serving) -> Relay {
    let links = "[[link]]\nname = \"narrow\"\nrate = \"60Mbit\"\nqueue = \"20ms\"\n\
                 [[link]]\nname = \"far\"\ndelay = \"10ms\"\nloss = \"1%\"\n\
                 [[link]]\nname = \"back\"\ndelay = \"10ms\"";
    Relay::to(world, server, links, "up = [\"back\"]\ndown = [\"narrow\", \"far\"]")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Each law with what it needs to be told.
const LAWS: [&[&str]; 4] = [
    &["--control", "gtp2004", "--capacity-in", "50Mbit"],
    &["--control", "rbudp", "--rate", "70Mbit"],
    &["--control", "sabul", "--rate", "30Mbit"],
    &["--control", "tsunami", "--rate", "70Mbit"],
];

#[test]
fn each_law_of_one_end_brings_a_file_verified_over_a_narrow_path_that_loses_packets() {
    let world = World::new();
    let content = world.export("a", SIZE);
    let all = "gtp2004,rbudp,sabul,tsunami";
    let server = world.serve("server", &["--public", "--allow-control", all]);
    let path = path_to(&world, &server);
    for law in LAWS {
        let url = path.url("a");
        let mut args = vec!["get", &url, "out", "--accept-new", "--json", "--replace"];
        args.extend(law);
        let output = world.expect(0, &args);
        assert!(std::fs::read(world.path("out")).unwrap() == content, "{law:?}");
        let done = events(&output).pop().unwrap();
        assert_eq!(done["event"], "done", "{law:?}");
        assert_eq!(done["blake3"], blake3::hash(&content).to_hex().as_str(), "{law:?}");
        // One in a hundred is lost on this path whatever the law.
        assert!(done["loss_ratio"].as_f64().unwrap() > 0.0, "{law:?}");
        std::fs::remove_file(world.path("out")).unwrap();
    }
}

#[test]
fn a_file_is_sent_by_each_law_of_one_end_too() {
    let world = World::new();
    let content = world.export("a", SIZE);
    let id = world.run("client", &["id"]);
    let key = String::from_utf8(id.stdout).unwrap();
    std::fs::write(world.path("keys"), key).unwrap();
    let options =
        ["--writable", "--authorized-keys", "keys", "--capacity-in", "50Mbit", "--allow-control"];
    let all = "gtp2004,rbudp,sabul,tsunami";
    let server = world.serve("server", &[&options[..], &[all]].concat());
    let path = path_to(&world, &server);
    for (n, law) in LAWS.iter().enumerate() {
        let name = format!("sent-{n}");
        let url = path.url(&name);
        let mut args = vec!["put", "export/a", &url, "--accept-new"];
        args.extend(*law);
        world.expect(0, &args);
        assert!(std::fs::read(world.path("export").join(name)).unwrap() == content, "{law:?}");
    }
}

#[test]
fn a_server_takes_no_part_in_a_law_of_one_end_that_it_was_not_told_to_allow() {
    let world = World::new();
    world.export("a", 1_000);
    let server = world.serve("server", &["--public", "--allow-control", "sabul"]);
    let url = server.url("a");
    for (law, name) in LAWS.iter().zip(["gtp2004", "rbudp", "sabul", "tsunami"]) {
        let mut args = vec!["get", &url, "out", "--accept-new"];
        args.extend(*law);
        let code = if name == "sabul" { 0 } else { 4 };
        let output = world.expect(code, &args);
        if code != 0 {
            let words = format!("control law {name} (--allow-control {name})");
            assert!(said(&output).contains(&words), "{}", said(&output));
            assert!(!world.path("out").exists(), "nothing came by another law");
        } else {
            std::fs::remove_file(world.path("out")).unwrap();
        }
    }
}

#[test]
fn a_server_shares_by_sessions_only_if_it_was_told_to() {
    let world = World::new();
    world.export("a", 1_000);
    let server = world.serve("server", &["--public"]);
    let url = server.url("a");
    let args = ["get", &url, "out", "--accept-new", "--control", "endnode"];
    let output = world.expect(4, &args);
    let words = "control law endnode (--allow-control endnode)";
    assert!(said(&output).contains(words), "{}", said(&output));
    assert!(!world.path("out").exists(), "nothing came by another law");
    let server = world.serve("other", &["--public", "--allow-control", "endnode"]);
    let url = server.url("a");
    world.expect(0, &["get", &url, "out", "--accept-new", "--control", "endnode"]);
}

#[test]
fn a_rate_is_asked_for_where_a_law_needs_one_and_refused_where_it_does_not() {
    let world = World::new();
    for law in ["rbudp", "sabul", "tsunami"] {
        let output = world.expect(2, &["get", "gtp://127.0.0.1:9/a", "out", "--control", law]);
        assert!(said(&output).contains("--rate RATE"), "{}", said(&output));
    }
    for law in ["grant", "endnode", "gtp2004"] {
        let args = ["get", "gtp://127.0.0.1:9/a", "out", "--control", law, "--rate", "10Mbit"];
        let output = world.expect(2, &args);
        assert!(said(&output).contains("--max-rate"), "{}", said(&output));
    }
    let beyond = ["get", "gtp://127.0.0.1:9/a", "out", "--control", "rbudp", "--rate", "1kbit"];
    assert!(said(&world.expect(2, &beyond)).contains("12000"));
}

#[test]
fn steps_are_for_the_end_node_law_alone_and_within_what_hosts_believe() {
    let world = World::new();
    for law in ["grant", "gtp2004"] {
        let args = ["get", "gtp://127.0.0.1:9/a", "out", "--control", law, "--alpha", "0.2"];
        let output = world.expect(2, &args);
        assert!(said(&output).contains("--control endnode"), "{}", said(&output));
    }
    for step in ["0.001", "0.6", "-1", "NaN", "x"] {
        let args = ["get", "gtp://127.0.0.1:9/a", "out", "--control", "endnode", "--beta", step];
        let output = world.expect(2, &args);
        assert!(said(&output).contains("0.01 to 0.5"), "{}", said(&output));
    }
}
