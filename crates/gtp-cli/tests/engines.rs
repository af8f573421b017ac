//! A server of several engines, as its clients see it: like one of one.

mod common;

use std::process::Stdio;

use common::World;

#[test]
fn a_server_of_several_engines_gives_and_takes_many_at_once() {
    let world = World::new();
    let content = world.export("big", 8_000_000);
    let args = ["--public", "--writable", "--daemon", "off", "--engines", "3"];
    world.list_client();
    let server = world.serve("server", &args);
    let start = |words: &[&str]| {
        let mut command = world.gtp("client", words);
        command.args(["--daemon", "off", "--fingerprint", &server.fingerprint]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let local = world.path("mine").display().to_string();
    std::fs::write(&local, &content).unwrap();
    let mut children = Vec::new();
    for i in 0..4 {
        children.push(start(&["get", &server.url("big"), &format!("got{i}")]));
        children.push(start(&["put", &local, &server.url(&format!("put{i}"))]));
    }
    for child in children {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
    }
    for i in 0..4 {
        assert!(std::fs::read(world.path(&format!("got{i}"))).unwrap() == content, "got{i}");
        assert!(std::fs::read(world.path(&format!("export/put{i}"))).unwrap() == content, "put{i}");
    }
}

#[test]
fn one_client_with_several_sessions_at_one_server_is_served_by_all_engines() {
    let world = World::new();
    let content = world.export("big", 20_000_000);
    let args = ["--public", "--daemon", "off", "--engines", "2"];
    let server = world.serve("server", &args);
    // Both sessions come from one socket of the client.
    let url = server.url("big");
    let words = ["get", &url, "got", "--mirror", &url, "--daemon", "off", "--fingerprint"];
    let output = world.gtp("client", &words).arg(&server.fingerprint).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(std::fs::read(world.path("got")).unwrap() == content);
}

#[test]
fn a_number_of_engines_that_is_none_is_refused_with_the_range() {
    let world = World::new();
    world.export("big", 1);
    for engines in ["0", "65", "all"] {
        let output = world.expect(2, &["serve", "export", "--engines", engines]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("from 1 to 64"), "{said}");
    }
}
