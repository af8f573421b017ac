//! What `gtp sync` leaves out.

mod common;

use common::sshd::Sshd;
use common::trees::{ended, said, write};
use common::{World, writable};

#[test]
fn names_that_transfers_keep_for_themselves_are_named_and_the_code_is_12_in_every_direction() {
    let world = World::new();
    let tree = world.path("export/tree");
    write(&tree.join("ok"), b"ok");
    write(&tree.join("data.gtp-part"), b"mine");
    write(&tree.join("d/x.gtp-journal"), b"mine");
    write(&tree.join("dir.gtp-part/inside"), b"mine");
    let server = writable(&world, &[]);
    let (from, to) = (server.url("tree/"), server.url("copy"));
    for words in [["export/tree/", "here"], [&from, "fetched"], ["export/tree/", &to]] {
        for options in [&["-n"][..], &[], &["--delete"]] {
            let command = world.gtp("client", &[&["sync"], options, &words].concat());
            let told = said(&ended(12, &words, command));
            for name in ["data.gtp-part: ", "d/x.gtp-journal: ", "dir.gtp-part: "] {
                assert!(told.contains(name), "{words:?} {options:?}: {told}");
            }
            assert!(!told.contains("alike"), "{told}");
        }
    }
    for place in ["here", "fetched", "export/copy"] {
        assert!(world.path(place).join("ok").exists());
    }
    let patterns = ["sync", "--exclude", "*.gtp-*", "export/tree/", "here"];
    ended(0, &patterns, world.gtp("client", &patterns));
}

#[test]
fn parts_that_are_left_at_the_destination_are_kept_and_are_no_trouble() {
    let far = Sshd::with_gtp();
    write(&far.world.path("tree/ok"), b"ok");
    write(&far.home("t/old.gtp-part"), b"left");
    for _ in 0..2 {
        let words = ["--delete", "tree/", "far:t"];
        ended(0, &words, far.gtp("sync", &words));
    }
    assert!(far.home("t/old.gtp-part").exists());
}
