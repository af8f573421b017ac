//! `gtp sync --watch`: a source here that changes, a directory or a single file.
//!
//! Sources at other machines are watched in the tests of `sync_far`. What a watch says on standard
//! error is waited for, so that no test depends on how long a round takes.

mod common;

use std::io::BufRead;
use std::process::Stdio;

use common::trees::{ended, interrupted, write};
use common::{World, wait_for, writable};

#[test]
fn a_watched_source_is_synced_at_each_change_also_after_the_server_was_away() {
    let world = World::new();
    write(&world.path("tree/a"), b"a");
    let server = writable(&world, &[]);
    let port = server.port;
    let words = ["sync", "--watch", "--delete", "--retry-for", "1s", "tree/", &server.url("t")];
    let mut child = world.gtp("client", &words).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut tells = |what: &str| {
        told.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect("it goes on")
    };
    assert!(tells("1 file of").contains("moved"));
    assert_eq!(std::fs::read(world.path("export/t/a")).unwrap(), b"a");
    write(&world.path("tree/d/b"), b"b");
    std::fs::remove_file(world.path("tree/a")).unwrap();
    tells("1 name deleted");
    assert!(world.path("export/t/d/b").exists() && !world.path("export/t/a").exists());
    drop(server);
    write(&world.path("tree/d/c"), b"c");
    tells("tried again in 1 second");
    let server = world.serve("server", &["--writable", "--listen", &format!("127.0.0.1:{port}")]);
    tells("1 file of");
    assert!(world.path("export/t/d/c").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(server);
    let words = ["sync", "--watch", "nowhere/", "there"];
    ended(3, &words, world.gtp("client", &words));
}

fn watching(world: &World, words: &[&str]) -> (std::process::Child, impl FnMut(&str) -> String) {
    let mut command = world.gtp("client", &[&["sync", "--watch"], words].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let tells = move |what: &str| {
        told.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect("it goes on")
    };
    (child, tells)
}

#[test]
fn a_watch_goes_on_with_another_directory_of_the_name_and_tries_again_what_failed_in_part() {
    let world = World::new();
    write(&world.path("tree/a"), b"a");
    write(&world.path("next/b"), b"b");
    let (child, mut tells) = watching(&world, &["--delete", "--backup", "tree/", "there"]);
    tells("1 file of");
    std::fs::rename(world.path("tree"), world.path("old")).unwrap();
    std::fs::rename(world.path("next"), world.path("tree")).unwrap();
    tells("watched anew");
    tells("1 file of");
    assert!(world.path("there/b").exists() && !world.path("there/a").exists());
    // Changes of the new directory are heard of.
    write(&world.path("tree/a~"), b"a name that the backup of a has");
    write(&world.path("tree/a"), b"a again");
    tells("2 files of");
    write(&world.path("tree/a"), b"another a");
    tells("cannot be kept");
    tells("tried again in 1 second");
    tells("tried again in 2 seconds");
    std::fs::remove_file(world.path("there/a")).unwrap();
    tells("1 file of");
    assert_eq!(std::fs::read(world.path("there/a")).unwrap(), b"another a");
    interrupted(child);
}

#[test]
fn a_single_file_is_watched_also_when_another_takes_its_name_or_it_is_missing_for_a_while() {
    let world = World::new();
    write(&world.path("dir/log"), b"one");
    let (child, mut tells) = watching(&world, &["dir/log", "there"]);
    tells("1 file of");
    // What stands beside it begins no round: the next one is that of the file.
    write(&world.path("dir/other"), b"other");
    write(&world.path("dir/log"), b"two, longer");
    tells("1 file of");
    assert_eq!(std::fs::read(world.path("there")).unwrap(), b"two, longer");
    write(&world.path("dir/new"), b"three, as an editor writes it");
    std::fs::rename(world.path("dir/new"), world.path("dir/log")).unwrap();
    tells("1 file of");
    assert_eq!(std::fs::read(world.path("there")).unwrap(), b"three, as an editor writes it");
    std::fs::remove_file(world.path("dir/log")).unwrap();
    tells("is not there");
    tells("tried again in 1 second");
    assert!(world.path("there").exists());
    write(&world.path("dir/log"), b"four");
    tells("1 file of");
    assert_eq!(std::fs::read(world.path("there")).unwrap(), b"four");
    assert!(!world.path("other").exists());
    interrupted(child);
}

#[test]
fn an_interrupt_ends_a_watch_in_the_middle_of_a_copy_between_directories() {
    let world = World::new();
    write(&world.path("tree/large"), b"");
    let large = std::fs::File::options().write(true).open(world.path("tree/large")).unwrap();
    large.set_len(8 << 30).unwrap();
    let (child, _tells) = watching(&world, &["tree/", "there"]);
    wait_for("the copy", || world.path("there/large.gtp-part").exists());
    interrupted(child);
    assert!(!world.path("there/large").exists(), "it was not copied to its end");
}
