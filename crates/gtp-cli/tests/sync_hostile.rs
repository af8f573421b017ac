//! `gtp sync` with a server that lies about its tree: the command fails, and nothing is written,
//! neither where it points to nor in the destination.

mod common;

use std::process::Output;

use common::World;
use gtp_e2e::false_trees::{Lie, all_lies, serve, too_long_content, tree};

/// Runs `gtp sync` with a liar's address in place of `LIAR`.
fn lied_to(world: &World, what: &Lie, words: &[&str]) -> Output {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(serve(listener, what.clone()));
    let url = format!("gtp://127.0.0.1:{port}/t/");
    let known = world.path("client/known_hosts");
    if known.exists() {
        std::fs::remove_file(known).unwrap();
    }
    let words: Vec<&str> = words.iter().map(|w| if *w == "LIAR" { &*url } else { *w }).collect();
    world.run("client", &[&["sync", "--accept-new", "--retry-for", "5s"], &words[..]].concat())
}

#[test]
fn a_source_that_lies_about_its_tree_gets_nothing_written_anywhere() {
    let world = World::new();
    std::fs::create_dir(world.path("outside")).unwrap();
    std::fs::create_dir(world.path("there")).unwrap();
    std::fs::write(world.path("there/mine"), b"mine").unwrap();
    for (what, lie) in all_lies() {
        let output = lied_to(&world, &lie, &["LIAR", "there", "--delete", "--force"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("no panic, no signal");
        assert!(code != 0 && !said.contains("panicked"), "{what}: {code}: {said}");
        let names = |dir: &str| std::fs::read_dir(world.path(dir)).unwrap().count();
        assert_eq!((names("outside"), names("there")), (0, 1), "{what}: {said}");
        assert_eq!(std::fs::read(world.path("there/mine")).unwrap(), b"mine", "{what}");
    }
}

#[test]
fn content_that_is_longer_than_its_file_is_not_kept_and_ends_the_sync() {
    let world = World::new();
    std::fs::create_dir(world.path("there")).unwrap();
    let output = lied_to(&world, &too_long_content(), &["LIAR", "there", "--ignore-files"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("lengths differ") && !said.contains("panicked"), "{said}");
    assert!(!matches!(output.status.code(), None | Some(0 | 12)), "{output:?}");
}

#[test]
fn a_destination_that_lies_about_its_tree_is_asked_to_change_nothing_and_the_source_stays() {
    let world = World::new();
    std::fs::create_dir(world.path("tree")).unwrap();
    std::fs::write(world.path("tree/mine"), b"mine").unwrap();
    for (what, lie) in all_lies() {
        let output = lied_to(&world, &lie, &["tree/", "LIAR", "--delete"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().expect("no panic, no signal");
        assert!(code != 0 && !said.contains("panicked"), "{what}: {code}: {said}");
        assert_eq!(std::fs::read(world.path("tree/mine")).unwrap(), b"mine", "{what}");
    }
}

#[test]
fn a_link_of_the_source_that_leads_out_of_the_destination_is_made_as_a_link_and_not_followed() {
    let world = World::new();
    std::fs::create_dir(world.path("outside")).unwrap();
    std::fs::create_dir(world.path("there")).unwrap();
    let told = tree(&["l@"]);
    let output = lied_to(&world, &told, &["LIAR", "there"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let link = std::fs::read_link(world.path("there/l")).unwrap();
    assert_eq!(link, std::path::Path::new("../outside"));
    // A later survey that calls the same name a directory replaces the link; nothing goes through.
    let told = tree(&["l/", "l/d/"]);
    let output = lied_to(&world, &told, &["LIAR", "there"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(world.path("there/l/d").is_dir() && world.path("there/l").read_link().is_err());
    assert_eq!(std::fs::read_dir(world.path("outside")).unwrap().count(), 0);
}
