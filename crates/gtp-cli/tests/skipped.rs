//! How many files are whole while a transfer runs, and what it says at its end of what it skipped.

mod common;

use common::{World, events};
use serde_json::{Value, json};

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A tree with files, two links and a pipe.
fn tree(world: &World, dir: &str) {
    let dir = world.path(dir);
    std::fs::create_dir_all(&dir).unwrap();
    for number in 0..6 {
        std::fs::write(dir.join(format!("file{number}")), vec![number; 300_000]).unwrap();
    }
    std::fs::write(dir.join("empty"), "").unwrap();
    for link in ["l1", "l2"] {
        std::os::unix::fs::symlink("file0", dir.join(link)).unwrap();
    }
    let pipe = dir.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
}

const LINE: &str = "gtp: 3 skipped: 2 symbolic links, 1 special file\n";

/// Checks what programs hear: files that become whole one by one, and what was skipped.
fn check(lines: &[Value]) {
    let of = |event: &'static str| lines.iter().filter(move |line| line["event"] == event);
    let done = of("done").next().unwrap_or_else(|| panic!("no end in {lines:?}"));
    assert_eq!(done["skipped"], 3, "{done}");
    assert_eq!(done["skipped_for"], json!({"symbolic_link": 2, "special_file": 1}));
    let counted: Vec<u64> =
        of("progress").map(|line| line["files_done"].as_u64().unwrap()).collect();
    assert!(of("progress").all(|line| line["files"] == 7), "{lines:?}");
    assert!(counted.is_sorted() && counted.iter().all(|done| *done <= 7), "{counted:?}");
    assert_eq!(counted.last(), Some(&7), "{counted:?}");
}

/// The client's command delivers the tree, tells how many files are whole and sums up the rest.
fn sums_up(world: &World, ends: &[&str]) {
    let args = [ends, &["--accept-new", "--json", "--max-rate", "8Mbit"]].concat();
    let done = world.run("client", &args);
    assert_eq!(done.status.code(), Some(12), "{}", said(&done));
    assert!(said(&done).ends_with(LINE), "{}", said(&done));
    check(&events(&done));
}

#[test]
fn a_get_tells_how_many_files_are_whole_and_sums_up_what_it_skipped() {
    let world = World::new();
    tree(&world, "export/tree");
    let server = world.serve("server", &[]);
    world.list_client();
    sums_up(&world, &["get", &server.url("tree/"), "got"]);
}

#[test]
fn a_put_tells_how_many_files_are_whole_and_sums_up_what_it_skipped() {
    let world = World::new();
    tree(&world, "tree");
    std::fs::create_dir_all(world.path("export")).unwrap();
    let server = world.serve("server", &["--writable"]);
    world.list_client();
    sums_up(&world, &["put", "tree/", &server.url("new/")]);
}

#[test]
fn several_objects_are_summed_up_together_as_well() {
    let world = World::new();
    tree(&world, "export/a");
    tree(&world, "export/b");
    let server = world.serve("server", &[]);
    world.list_client();
    let (a, b) = (server.url("a"), server.url("b"));
    let got = world.run("client", &["get", &a, &b, "got/", "--accept-new", "--json"]);
    let all = "gtp: in all, 6 skipped: 4 symbolic links, 2 special files\n";
    assert!(said(&got).ends_with(all), "{}", said(&got));
    let events = events(&got);
    let ended = events.last().unwrap();
    assert_eq!((&ended["event"], &ended["skipped"]), (&json!("ended"), &json!(6)), "{ended}");
}

#[test]
fn the_last_line_of_a_sync_counts_what_it_skipped() {
    let world = World::new();
    tree(&world, "tree");
    let synced = world.run("client", &["sync", "tree/", "copy"]);
    assert_eq!(synced.status.code(), Some(12), "{}", said(&synced));
    assert!(said(&synced).ends_with("deleted; 1 skipped: 1 special file\n"), "{}", said(&synced));
    let again = world.run("client", &["sync", "tree/", "copy"]);
    let words = "gtp: nothing to do but for 1 skipped: 1 special file\n";
    assert!(said(&again).ends_with(words), "{}", said(&again));
    let json = world.run("client", &["sync", "tree/", "copy", "--json"]);
    let events = events(&json);
    let last = events.last().unwrap();
    assert_eq!((&last["skipped"], &last["left_out"]), (&json!(1), &json!(1)), "{last}");
    let progress = world.run("client", &["sync", "tree/", "copy2", "--json"]);
    assert_eq!(progress.status.code(), Some(12), "{}", said(&progress));
}
