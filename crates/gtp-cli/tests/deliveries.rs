//! Trees of which one file cannot be delivered: the others arrive, that one is named, and the
//! command ends with code 12; and what is told of a file is true when it is told.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Serving, World, bytes, size_of, wait_for};
use serde_json::Value;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A writable server for this world's client.
fn writable(world: &World, more: &[&str]) -> Serving {
    world.list_client();
    world.serve("server", &[&["--writable"], more].concat())
}

/// Runs `work` while a log grows all the time.
fn while_it_grows<T>(log: &Path, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let mut file = File::options().append(true).create(true).open(log).unwrap();
    file.write_all(&bytes(700_000, 1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                writeln!(file, "one more line").unwrap();
                std::thread::yield_now();
            }
        });
        let worked = work();
        over.store(true, Ordering::Relaxed);
        worked
    })
}

#[test]
fn a_log_that_grows_arrives_as_listed_and_is_named_and_all_other_files_arrive() {
    let world = World::new();
    let server = writable(&world, &[]);
    for (n, side) in ["export/tree", "mine"].iter().enumerate() {
        let tree = world.path(side);
        fs::create_dir(&tree).unwrap();
        for file in 0..300 {
            fs::write(tree.join(format!("{file}")), bytes(2_000, file)).unwrap();
        }
        let (url, root) = (server.url("tree"), server.url(""));
        let (args, out) = match n {
            0 => (vec!["get", &url, "out", "--accept-new"], "out"),
            _ => (vec!["put", "mine", &root, "--accept-new"], "export/mine"),
        };
        let log = tree.join("a.log");
        let output = while_it_grows(&log, || world.run("client", &args));
        assert_eq!(output.status.code(), Some(12), "{}", said(&output));
        assert!(said(&output).contains("a.log"), "{}", said(&output));
        assert_eq!(fs::read_dir(world.path(out)).unwrap().count(), 301);
        let (whole, part) =
            (fs::read(log).unwrap(), fs::read(world.path(out).join("a.log")).unwrap());
        assert!(part.len() >= 700_000 && whole.starts_with(&part), "{}", part.len());
        let again = world.expect(0, &args);
        assert_eq!(said(&again), "", "the log stands still now");
        assert!(fs::read(world.path(out).join("a.log")).unwrap() == whole);
    }
}

type Mishap = (&'static str, fn(&Path, &Path), bool);

/// What can happen to a file, with another one at hand that is as long, and whether its old content
/// can still be read by who has it open.
const MISHAPS: [Mishap; 5] = [
    ("removed", |path, _| fs::remove_file(path).unwrap(), true),
    ("cut", |path, _| File::options().write(true).open(path).unwrap().set_len(3).unwrap(), false),
    ("rewritten", |path, other| assert!(fs::copy(other, path).is_ok()), false),
    ("replaced", |path, other| fs::rename(other, path).unwrap(), true),
    (
        "made a directory",
        |path, _| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
        true,
    ),
];

/// Bytes of the file that has a mishap, and of each other one.
const BIG: usize = 8_000_000;
const SMALL: usize = 900_000;

const NAMES: [&str; 5] = ["a", "b", "c", "m", "z"];

#[test]
fn a_file_that_is_lost_while_it_is_fetched_is_named_and_all_others_arrive() {
    for mishap in MISHAPS {
        mishap_in_the_midst("get", "a", mishap);
        mishap_in_the_midst("get", "z", mishap);
    }
}

#[test]
fn a_file_that_is_lost_while_it_is_sent_is_named_and_all_others_arrive() {
    for mishap in MISHAPS {
        mishap_in_the_midst("put", "a", mishap);
        mishap_in_the_midst("put", "z", mishap);
    }
}

/// Moves a tree slowly, lets something happen to a file of it (the first, which is being read, or
/// the last, which is not yet), and looks at what arrived.
fn mishap_in_the_midst(verb: &str, victim: &str, (what, happen, readable): Mishap) {
    let world = World::new();
    let server = writable(&world, &["--max-rate", "80Mbit"]);
    let source = if verb == "get" { "export/tree" } else { "mine" };
    fs::create_dir(world.path(source)).unwrap();
    for name in NAMES {
        let size = if name == victim { BIG } else { SMALL };
        fs::write(world.path(source).join(name), bytes(size, 3)).unwrap();
    }
    let other = world.path("other");
    fs::write(&other, bytes(BIG, 9)).unwrap();
    let (url, root) = (server.url("tree"), server.url(""));
    let (words, out) = match verb {
        "get" => ([verb, &url, "out"], "out"),
        _ => ([verb, "mine", &root], "export/mine"),
    };
    let args = [&words[..], &["--accept-new", "--max-rate", "80Mbit"]].concat();
    let run = world.gtp("client", &args).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("data", || size_of(&world.path(out).join("a.gtp-part")) > 0);
    happen(&world.path(source).join(victim), &other);
    let output = run.wait_with_output().unwrap();
    let what = format!("{verb} {what} {victim}: {}", said(&output));
    let whole = readable && victim == "a";
    assert_eq!(output.status.code(), Some(if whole { 0 } else { 12 }), "{what}");
    assert!(whole || said(&output).contains(&format!("{victim}: ")), "{what}");
    let mut left: Vec<_> = fs::read_dir(world.path(out))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let arrived: Vec<_> = NAMES.into_iter().filter(|name| whole || *name != victim).collect();
    assert_eq!(left, arrived, "{what}");
    for name in arrived {
        let size = if name == victim { BIG } else { SMALL };
        assert!(fs::read(world.path(out).join(name)).unwrap() == bytes(size, 3), "{what}");
    }
}

#[test]
fn a_file_has_its_name_when_it_is_said_to_be_done_and_every_file_is_said_once() {
    let world = World::new();
    for file in 0..2_000 {
        world.export(&format!("small/{file}"), file % 7 * 100);
    }
    mixed_tree(&world.path("export/mixed"));
    let server = world.serve("server", &["--public"]);
    for (tree, files) in [("small", 2_000), ("mixed", 301)] {
        let args = ["get", &server.url(tree), tree, "--accept-new", "--json"];
        let mut get = world.gtp("client", &args).stdout(Stdio::piped()).spawn().unwrap();
        let (mut done, mut early) = (Vec::new(), 0);
        for line in BufReader::new(get.stdout.take().unwrap()).lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if event["event"] == "file_done" {
                assert!(event["blake3"].is_string(), "{event}");
                let path = event["path"].as_str().unwrap();
                early += usize::from(!world.path(tree).join(path).exists());
                done.push(path.to_owned());
            }
        }
        assert_eq!(get.wait().unwrap().code(), Some(0));
        let said = done.len();
        done.sort();
        done.dedup();
        assert_eq!((said, done.len(), early), (files, files, 0), "{tree}");
    }
}

/// Files of one block before and after one of many.
fn mixed_tree(tree: &Path) {
    fs::create_dir_all(tree).unwrap();
    for file in 0..150 {
        fs::write(tree.join(format!("a{file}")), bytes(1 + file * 601, 5)).unwrap();
        fs::write(tree.join(format!("z{file}")), bytes(1 + file * 601, 6)).unwrap();
    }
    fs::write(tree.join("m"), bytes(3 << 20, 7)).unwrap();
}
