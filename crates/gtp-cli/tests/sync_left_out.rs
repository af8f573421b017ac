//! What `gtp sync` leaves out, and what it takes for alike.

mod common;

use std::path::Path;
use std::process::Command;

use common::sshd::Sshd;
use common::trees::{ended, lines, said, write};
use common::{World, require_root, writable};

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

#[test]
fn a_destination_that_keeps_times_to_the_second_is_alike_after_one_run_in_every_direction() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let id = world.expect(0, &["id"]);
    for name in ["a", "d/b", "d/e/c"] {
        write(&world.path("export").join(name), name);
    }
    write(&world.path("server/authorized_keys"), id.stdout);
    std::fs::create_dir(world.path("coarse")).unwrap();
    let script = "\
        set -ex; truncate -s 8M image; mkfs.ext2 -q -I 128 image > /dev/null\n\
        mount -o loop image coarse\n\
        mkdir -p coarse/there coarse/here/.gtp-times-0123456789abcdef\n\
        serve() { exec env GTP_CONFIG_DIR=server gtp serve $1 --json --writable \\\n\
        --listen 127.0.0.1:0; }\n\
        serve export > from.json & from=$!\n\
        serve coarse > to.json & to=$!\n\
        trap 'kill $from $to' EXIT\n\
        port() { while ! grep -q listening $1; do sleep 0.05; done\n\
        sed 's/.*127.0.0.1:\\([0-9]*\\).*/\\1/;q' $1; }\n\
        from_url=gtp://127.0.0.1:$(port from.json)/ to_url=gtp://127.0.0.1:$(port to.json)/put\n\
        for run in 1 2; do\n\
        gtp sync -i export/ coarse/here >> told.$run 2>> said.$run\n\
        gtp sync -i $from_url coarse/fetched >> told.$run 2>> said.$run\n\
        gtp sync -i export/ $to_url >> told.$run 2>> said.$run\n\
        done\n\
        gtp sync -n export/ coarse/here\n\
        gtp sync -n export/ $to_url\n\
        printf new > export/d/b; touch -d 2001-01-01 export/d/b\n\
        gtp sync -i export/ coarse/here\n\
        cat coarse/here/d/b; echo\n\
        touch -d 2100-01-01 export/d/b\n\
        gtp get $from_url coarse/got 2> warned\n\
        find coarse -name '.gtp*'";
    let programs = Path::new(env!("CARGO_BIN_EXE_gtp")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script]).current_dir(world.path("")).env("PATH", path);
    shell.env("GTP_CONFIG_DIR", world.path("client")).env("GTP_ACCEPT_NEW", "true");
    let output = ended(0, &["unshare"], shell);
    assert_eq!(lines(&output), [">f..t...... d/b", "new"]);
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert!(read("warned").contains("keeps times of some years only"), "{}", read("warned"));
    assert_eq!(read("told.1").matches(">f+++").count(), 9);
    assert_eq!(read("told.2"), "", "{}", read("said.2"));
    assert_eq!(read("said.2").matches("nothing to do").count(), 3);
}
