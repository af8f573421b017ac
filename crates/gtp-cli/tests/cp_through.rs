//! Copies between a login and a server, from one server to another, and of several kinds of
//! sources: they go through this machine, which says so and keeps nothing once all has arrived.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::sshd::Sshd;
use common::{Serving, wait_for, writable};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A login, and a server that lets this world's client write.
struct Both {
    sshd: Sshd,
    server: Serving,
}

const TOLD: &str = "the data go through here";

impl Both {
    fn new() -> Both {
        let sshd = Sshd::with_gtp();
        let server = writable(&sshd.world, &[]);
        Both { sshd, server }
    }

    fn cp(&self, words: &[&str]) -> Command {
        let mut command = self.sshd.gtp("cp", words);
        command.env("XDG_CACHE_HOME", self.sshd.world.path("cache"));
        command
    }

    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) -> Output {
        let output = self.cp(words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
        output
    }

    fn exported(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.sshd.world.path("export").join(name)).unwrap_or_default()
    }

    fn at_home(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.sshd.home(name)).unwrap_or_default()
    }

    /// Whether anything waits here to be sent on.
    fn has_leftovers(&self) -> bool {
        let passing = self.sshd.world.path("cache/gtp/passing");
        passing.read_dir().is_ok_and(|mut entries| entries.next().is_some())
    }
}

#[test]
fn files_and_trees_go_from_a_login_to_a_server_and_back_with_rsyncs_slashes() {
    let both = Both::new();
    let a = both.sshd.file("data/a", 300_000);
    let deep = both.sshd.file("data/deep/b b", 70_000);
    let copied = both.expect(0, &["far:data/a", &both.server.url("named")]);
    assert!(both.exported("named") == a);
    assert_eq!(said(&copied).matches(TOLD).count(), 1, "{}", said(&copied));
    both.expect(0, &["far:data", &both.server.url("into/")]);
    both.expect(0, &["far:data/", &both.server.url("flat")]);
    both.expect(0, &["far:data/*", &both.server.url("each/")]);
    for dir in ["into/data", "flat", "each"] {
        assert!(both.exported(&format!("{dir}/a")) == a, "{dir}");
        assert!(both.exported(&format!("{dir}/deep/b b")) == deep, "{dir}");
    }
    both.expect(0, &[&both.server.url("into/data"), "far:back"]);
    both.expect(0, &[&both.server.url("named"), "far:one"]);
    assert!(both.at_home("back/data/deep/b b") == deep && both.at_home("one") == a);
    assert!(!both.has_leftovers(), "nothing waits here any more");
    wait_for("the end of the far ends", || both.sshd.far_ends() == 0);
}

#[test]
fn servers_logins_and_files_of_this_machine_are_sources_of_one_copy() {
    let both = Both::new();
    let (x, y) = (both.sshd.world.export("x", 50_000), both.sshd.file("y", 60_000));
    std::fs::write(both.sshd.world.path("z"), "here").unwrap();
    both.expect(0, &[&both.server.url("x"), "far:y", "z", &both.server.url("all/")]);
    assert!(both.exported("all/x") == x && both.exported("all/y") == y);
    assert_eq!(both.exported("all/z"), b"here");
    both.expect(0, &["z", &both.server.url("x"), "far:all/"]);
    both.expect(0, &["z", "far:y", "far:all/"]);
    assert!(both.at_home("all/x") == x && both.at_home("all/y") == y);
    both.expect(0, &[&both.server.url("x"), &both.server.url("copy")]);
    assert!(both.exported("copy") == x);
    both.expect(2, &["-", "far:y", &both.server.url("none")]);
    let gathered = both.expect(0, &[&both.server.url("x"), "far:y", "gathered"]);
    assert!(!said(&gathered).contains(TOLD), "{}", said(&gathered));
    for (name, content) in [("x", &x), ("y", &y)] {
        let there = std::fs::read(both.sshd.world.path("gathered").join(name)).unwrap();
        assert!(there == *content, "{name}");
    }
    both.expect(12, &["far:none", &both.server.url("x"), "some/"]);
    assert!(both.sshd.world.path("some/x").exists());
    both.expect(2, &[&both.server.url("x"), "far:y", "-"]);
    assert!(!both.has_leftovers());
}

#[test]
fn sources_of_this_machine_come_into_the_directory_into_which_others_come() {
    let both = Both::new();
    let (x, y) = (both.sshd.world.export("x", 50_000), both.sshd.file("y", 60_000));
    let at = |name: &str| both.sshd.world.path(name);
    std::fs::create_dir_all(at("tree/deep")).unwrap();
    let large = common::bytes(700_000, 7);
    std::fs::write(at("z"), &large).unwrap();
    std::fs::write(at("tree/deep/w"), "w").unwrap();
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::open(at("z")).unwrap().set_modified(past).unwrap();
    let read = |name: &str| std::fs::read(at(name)).unwrap_or_default();
    let words = ["z", "tree", "far:y", &both.server.url("x"), "all/"];
    both.expect(0, &words);
    assert!(read("all/x") == x && read("all/y") == y && read("all/z") == large);
    assert_eq!(read("all/tree/deep/w"), b"w");
    assert_eq!(at("all/z").metadata().unwrap().modified().unwrap(), past);
    let again = both.expect(0, &[&words[..], &["--json"]].concat());
    let done = common::events(&again).into_iter().filter(|event| event["event"] == "done");
    let written: Vec<_> = done.map(|event| event["files_written"].clone()).collect();
    assert_eq!(written, [0, 0, 0, 0]);
    both.expect(0, &["tree/", "far:y", "content"]);
    assert!(read("content/deep/w") == b"w" && read("content/y") == y);
    // One that is not there, or would go into itself, keeps back no other.
    both.expect(12, &["none", "z", "far:y", "some/"]);
    assert!(read("some/z") == large && read("some/y") == y);
    both.expect(12, &["tree", "far:y", "tree/sub"]);
    assert!(read("tree/sub/y") == y && !at("tree/sub/tree").exists());
    both.expect(2, &["z", "far:y", "-"]);
    both.expect(2, &["-", "far:y", "all/"]);
}

#[test]
fn of_several_sources_those_that_are_missing_are_left_out_of_a_copy_through_here() {
    let both = Both::new();
    let y = both.sshd.file("y", 60_000);
    std::fs::write(both.sshd.world.path("z"), "here").unwrap();
    let (none, all) = (both.server.url("none"), both.server.url("all"));
    let partly = said(&both.expect(12, &["far:y", &none, "far:none", "lost", "z", &all]));
    for name in ["server: none: no such file", "far: none: no such file", "lost: no such"] {
        assert!(partly.contains(name), "{name}: {partly}");
    }
    assert!(both.exported("all/y") == y && both.exported("all/z") == b"here");
    both.expect(12, &["far:y", "lost", &both.server.url("beneath")]);
    assert!(both.exported("beneath/y") == y, "as if all were there");
    let content = format!("{none}/");
    let none_at_all = said(&both.expect(3, &["far:none", &none, &content, "lost", "far:never"]));
    assert_eq!(none_at_all.matches("no such file").count(), 4, "{none_at_all}");
    assert!(!both.sshd.home("never").exists() && !both.has_leftovers());
}

#[test]
fn what_was_fetched_waits_for_a_repeated_command_if_it_cannot_be_sent_on() {
    let mut both = Both::new();
    let content = both.sshd.file("large", 3_000_000);
    let url = both.server.url("got");
    both.server.kill();
    both.expect(5, &["far:large", &url, "--retry-for", "1s"]);
    assert!(both.has_leftovers());
    let listen = format!("127.0.0.1:{}", both.server.port);
    both.server = both.sshd.world.serve("server", &["--writable", "--listen", &listen]);
    let again = both.expect(0, &["far:large", &url, "--retry-for", "1s", "--json"]);
    assert!(both.exported("got") == content && !both.has_leftovers());
    let fetched = common::events(&again).into_iter().find(|event| event["event"] == "fetched");
    assert_eq!(fetched.unwrap()["files_unchanged"], 1, "it was not fetched again");
    // What cannot be fetched is not sent on, and the code says why.
    both.expect(3, &["far:none", &both.server.url("none")]);
    assert!(both.exported("none").is_empty());
    // Nor is what the source no longer has.
    both.sshd.file("tree/old", 20_000);
    both.server.kill();
    let url = both.server.url("tree");
    let tree = ["far:tree/", &url, "--retry-for", "1s"];
    both.expect(5, &tree);
    std::fs::rename(both.sshd.home("tree/old"), both.sshd.home("tree/new")).unwrap();
    both.server = both.sshd.world.serve("server", &["--writable", "--listen", &listen]);
    both.expect(0, &tree);
    let exported = both.sshd.world.path("export/tree");
    assert!(exported.join("new").exists() && !exported.join("old").exists());
    // A server's address without a path is all that it exports.
    let all = both.server.url("");
    both.expect(0, &[all.trim_end_matches('/'), "far:whole"]);
    assert!(both.at_home("whole/got") == content);
}

#[test]
fn a_signal_between_two_parts_of_a_copy_stops_it() {
    let both = Both::new();
    both.sshd.world.export("x", 50_000);
    let (script, begun) = (both.sshd.world.path("login"), both.sshd.world.path("begun"));
    std::fs::write(&script, format!("touch '{}'; exec sleep 60", begun.display())).unwrap();
    let ssh = format!("sh {}", script.display());
    let (from, to) = (both.server.url("x"), both.server.url("all/"));
    let mut command = both.cp(&[&from, "far:y", &to, "--ssh", &ssh]);
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for("the second part", || begun.exists());
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
}

#[test]
fn a_source_that_comes_in_part_is_sent_on_and_the_code_says_that_something_is_missing() {
    let both = Both::new();
    let a = both.sshd.file("t/a", 1_000);
    std::os::unix::fs::symlink("a", both.sshd.home("t/link")).unwrap();
    let copied = both.expect(12, &["far:t", &both.server.url("t")]);
    assert!(both.exported("t/t/a") == a && said(&copied).contains("link"), "{}", said(&copied));
    assert!(!both.has_leftovers());
}

#[test]
fn an_interrupted_copy_through_here_stops_and_is_gone_on_with() {
    let both = Both::new();
    let content = both.sshd.file("large", 8 << 20);
    let url = both.server.url("got");
    let words = ["far:large", &url, "--max-rate", "8Mbit"];
    let child = both.cp(&words).stderr(Stdio::null()).spawn().unwrap();
    let part = |dir: &Path| {
        let all = walk(dir);
        let is_part = |path: &&std::path::PathBuf| path.to_string_lossy().ends_with(".gtp-part");
        all.iter().filter(is_part).any(|path| common::size_of(path) > 0)
    };
    let cache = both.sshd.world.path("cache");
    wait_for("a part of the file", || part(&cache));
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    assert!(both.exported("got").is_empty());
    let again = both.expect(0, &["far:large", &url, "--json"]);
    assert!(both.exported("got") == content);
    let ends: Vec<String> = common::events(&again)
        .iter()
        .map(|event| event["event"].as_str().unwrap().to_owned())
        .filter(|event| ["fetched", "done"].contains(&event.as_str()))
        .collect();
    assert_eq!(ends, ["fetched", "done"], "it is done when all is there, and not before");
    let fetched = common::events(&again).into_iter().find(|event| event["event"] == "fetched");
    assert!(fetched.unwrap()["resumed_bytes"].as_u64().unwrap() > 0, "it was fetched anew");
}

/// All files beneath a directory.
fn walk(dir: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = dir.read_dir() else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}
