//! `gtp sync` with a source at another machine: single files, ignore files and a watch; and small
//! files, which travel in steps.
//!
//! A real sshd logs in to this machine; of servers there is one beside it.

mod common;

use std::io::BufRead;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Output, Stdio};

use common::sshd::Sshd;
use common::trees::{
    are_kept, attribute, differences, ended, interrupted, outdate, plant, said, summary, write,
};
use common::{bytes, events, wait_for, writable};

impl Sshd {
    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) -> Output {
        ended(code, words, self.gtp("sync", words))
    }
}

#[test]
fn a_single_file_goes_into_a_directory_whichever_way_and_nothing_beside_it_is_touched() {
    let far = Sshd::with_gtp();
    let server = writable(&far.world, &[]);
    let name = "the file";
    let sources = [far.world.path("src"), far.home("src"), far.world.path("export/src")];
    let mut content = bytes(1_500_000, 1);
    let put = |content: &[u8]| {
        for source in &sources {
            write(&source.join(name), content);
            write(&source.join("beside"), b"beside");
            std::fs::set_permissions(source.join(name), PermissionsExt::from_mode(0o640)).unwrap();
            attribute(&source.join(name), &format!("{} bytes", content.len()));
        }
    };
    let (near, at_login, at_server) =
        ("src/the file", "far:src/the file", server.url("src/the%20file"));
    let (to_server, export) = (server.url("to/"), far.world.path("export/to"));
    let ways = [
        (near, "here/", far.world.path("here")),
        (near, "far:there/", far.home("there")),
        (near, &to_server, export),
        (at_login, "from far/", far.world.path("from far")),
        (&at_server, "from server/", far.world.path("from server")),
    ];
    for number in 0..3 {
        put(&content);
        for (from, to, destination) in &ways {
            let words = ["-aX", "--delete", "--json", from, to];
            let end = summary(&far.expect(0, &words));
            assert_eq!(end["files"], 1, "{from} {to}: {end}");
            let moved = end["moved_bytes"].as_u64().unwrap();
            let there = destination.join(name);
            assert!(std::fs::read(&there).unwrap() == content, "{from} {to}");
            let (one, other) = (sources[0].join(name).metadata(), there.metadata());
            assert_eq!(one.unwrap().mode(), other.unwrap().mode(), "{from} {to}");
            assert_eq!(summary(&far.expect(0, &words))["changes"], 0, "{from} {to}");
            if number == 1 {
                // One block of six has changed.
                assert!(*from == near && *to == "here/" || moved < 600_000, "{from} {to}: {moved}");
            }
            write(&destination.join("mine"), b"mine");
            std::fs::set_permissions(destination, PermissionsExt::from_mode(0o711)).unwrap();
            assert!(!destination.join("beside").exists(), "{from} {to}");
        }
        for (_, _, destination) in &ways {
            let mode = destination.metadata().unwrap().mode();
            assert!(destination.join("mine").exists() && mode & 0o777 == 0o711);
        }
        match number {
            0 => content[700_000] ^= 1,
            _ => content.truncate(10_000),
        }
    }
    far.expect(3, &["src/none", "here/"]);
}

#[test]
fn a_single_file_takes_the_last_part_of_the_destination_as_its_name_whichever_way() {
    let far = Sshd::with_gtp();
    let server = writable(&far.world, &[]);
    let (own, other) = ("a b", "c d");
    let sources = [far.world.path("src"), far.home("src"), far.world.path("export/src")];
    let dirs = ["here", "from far", "from server"].map(|dir| far.world.path(dir));
    let [here, from_far, from_server] = dirs;
    let (there, export) = (far.home("there"), far.world.path("export/to"));
    for dir in [&here, &from_far, &from_server, &there, &export] {
        write(&dir.join("beside"), b"mine");
    }
    let (at_server, to_server) = (server.url("src/a%20b"), server.url("to/c%20d"));
    let ways = [
        ("src/a b", "here/c d", here),
        ("src/a b", "far:there/c d", there),
        ("src/a b", &to_server, export),
        ("far:src/a b", "from far/c d", from_far),
        (&at_server, "from server/c d", from_server),
    ];
    // A small file travels in steps, a large one in a transfer, of a later version only one block.
    let mut content = b"small".to_vec();
    for number in 0..4 {
        match number {
            0 => {}
            1 => content = bytes(1_500_000, 1),
            2 => content[700_000] ^= 1,
            _ => content.truncate(20_000),
        }
        for source in &sources {
            write(&source.join(own), &content);
        }
        for (from, to, dir) in &ways {
            let words = ["--delete", "--json", from, to];
            let end = summary(&far.expect(0, &words));
            assert_eq!((&end["files"], &end["deleted"]), (&1.into(), &0.into()), "{from} {to}");
            assert!(std::fs::read(dir.join(other)).unwrap() == content, "{from} {to}");
            assert!(!dir.join(own).exists() && dir.join("beside").exists(), "{from} {to}");
            let moved = end["moved_bytes"].as_u64().unwrap();
            assert!(number != 2 || *to == "here/c d" || moved < 600_000, "{to}: {moved}");
            assert_eq!(summary(&far.expect(0, &words))["changes"], 0, "{from} {to}");
        }
    }
    // The patterns are for the name at the source.
    far.expect(0, &["--delete", "--exclude", own, "src/a b", "here/c d"]);
    far.expect(0, &["--exclude", other, "--itemize-changes", "src/a b", "here/new"]);
    assert!(["here/c d", "here/new"].iter().all(|name| far.world.path(name).exists()));
}

#[test]
fn a_single_file_replaces_a_link_as_rsync_does_and_needs_the_directory_that_holds_its_name() {
    let far = Sshd::with_gtp();
    let server = writable(&far.world, &[]);
    write(&far.world.path("file"), b"file");
    write(&far.world.path("tree/x"), b"x");
    write(&far.home("file"), b"file");
    write(&far.home("tree/x"), b"x");
    for root in [far.world.path(""), far.home(""), far.world.path("export")] {
        write(&root.join("target"), b"target");
        symlink("target", root.join("link")).unwrap();
        std::fs::create_dir_all(root.join("dir")).unwrap();
        symlink("dir", root.join("to dir")).unwrap();
    }
    for to in ["none/new", "far:none/new", &server.url("none/new")] {
        far.expect(4, &["file", to]);
    }
    for from in ["tree", "far:tree"] {
        far.expect(4, &[from, "file"]);
    }
    assert_eq!(std::fs::read(far.world.path("file")).unwrap(), b"file");
    for (from, to, root) in [
        ("file", "", far.world.path("")),
        ("file", "far:", far.home("")),
        ("far:file", "", far.world.path("")),
    ] {
        far.expect(0, &[from, &format!("{to}link")]);
        let about = root.join("link").symlink_metadata().unwrap();
        assert!(about.is_file(), "{from} {to}: the link itself is replaced");
        assert_eq!(std::fs::read(root.join("target")).unwrap(), b"target", "{from} {to}");
        std::fs::remove_file(root.join("link")).unwrap();
        symlink("target", root.join("link")).unwrap();
        far.expect(0, &[from, &format!("{to}to dir")]);
        assert!(root.join("dir/file").exists(), "{from} {to}");
        std::fs::remove_file(root.join("dir/file")).unwrap();
    }
    for link in ["link", "to%20dir"] {
        let output = far.expect(2, &["file", &server.url(link)]);
        assert!(said(&output).contains("is a link at the server"), "{}", said(&output));
    }
}

#[test]
fn backups_go_outside_the_destination_at_a_login_and_never_at_a_server() {
    let far = Sshd::with_gtp();
    let server = writable(&far.world, &[]);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let elsewhere = memory.path().join("old/versions");
    let tree = far.world.path("tree");
    // The last is of another file system.
    let places = [
        ("tree/", "far:t", "../old/1".to_owned(), far.home("t"), far.home("old/1")),
        ("tree", "far:under", "../old".to_owned(), far.home("under/tree"), far.home("under/old")),
        ("tree/", "far:u", elsewhere.display().to_string(), far.home("u"), elsewhere.clone()),
    ];
    std::fs::create_dir(far.home("under")).unwrap();
    for (from, to, dir, there, at) in &places {
        plant(&tree);
        far.expect(0, &["-aHX", from, to]);
        let modified = outdate(&tree, there);
        let words = ["-aHX", "--delete", "--backup-dir", dir, from, to];
        far.expect(0, &words);
        assert_eq!(differences(&tree, there), "", "{dir}");
        are_kept(at, modified);
        let again = far.expect(0, &words);
        assert!(said(&again).contains("nothing to do"), "{dir}: {}", said(&again));
        std::fs::remove_dir_all(&tree).unwrap();
    }
    // A single file, whose tree is the directory that holds it.
    for content in ["old", "newer"] {
        write(&far.world.path("f"), content);
        far.expect(0, &["--backup-dir", "../old/2", "f", "far:t/g"]);
    }
    assert_eq!(std::fs::read(far.home("old/2/g")).unwrap(), b"old");
    // What cannot be kept is not replaced, and a place that is one of the trees is none.
    write(&far.home("file"), b"no directory");
    write(&far.world.path("f"), b"newest");
    far.expect(12, &["--backup-dir", "../file", "f", "far:t/g"]);
    assert_eq!(std::fs::read(far.home("t/g")).unwrap(), b"newer");
    for dir in ["..", "../t", "/"] {
        far.expect(2, &["--backup-dir", dir, "f", "far:t/g"]);
    }
    let refused = far.expect(2, &["--backup-dir", "../old", "f", &server.url("g")]);
    assert!(said(&refused).contains("in DST alone"), "{}", said(&refused));
}

#[test]
fn a_place_for_old_versions_that_is_the_directory_of_a_fetched_file_is_refused() {
    let far = Sshd::with_gtp();
    write(&far.home("f"), b"newer");
    write(&far.world.path("d/f"), b"old");
    for dir in ["../d", ".."] {
        far.expect(2, &["--backup-dir", dir, "far:f", "d/"]);
        assert_eq!(std::fs::read(far.world.path("d/f")).unwrap(), b"old", "{dir}");
    }
    far.expect(0, &["--backup-dir", "../old", "far:f", "d/"]);
    assert_eq!(std::fs::read(far.world.path("d/f")).unwrap(), b"newer");
    assert_eq!(std::fs::read(far.world.path("old/f")).unwrap(), b"old");
}

#[test]
fn ignore_files_of_a_source_at_a_far_end_or_a_server_hold_here() {
    let far = Sshd::with_gtp();
    let tree = far.home("t");
    write(&tree.join(".gitignore"), "*.o\nbuild/\n");
    write(&tree.join("a.c"), b"c");
    write(&tree.join("a.o"), b"o");
    write(&tree.join("keep/.gtpignore"), "!b.o\n");
    write(&tree.join("keep/b.o"), b"b");
    write(&far.world.path("back/mine.o"), b"mine");
    write(&far.world.path("back/gone"), b"gone");
    std::fs::rename(far.world.path("export"), far.world.path("empty")).unwrap();
    symlink(far.world.path("home"), far.world.path("export")).unwrap();
    let server = far.world.serve("server", &["--public"]);
    for from in ["far:t/", &server.url("t/")] {
        write(&far.world.path("back/gone"), b"gone");
        far.expect(0, &["--ignore-files", "--delete", "--accept-new", from, "back"]);
        for there in ["a.c", ".gitignore", "keep/b.o", "mine.o"] {
            assert!(far.world.path("back").join(there).exists(), "{there} of {from}");
        }
        for absent in ["a.o", "gone"] {
            assert!(!far.world.path("back").join(absent).exists(), "{absent} of {from}");
        }
    }
    // A file that cannot be told says nothing of what it leaves out.
    write(&tree.join(".gitignore"), vec![b'#'; 70_000]);
    write(&far.world.path("back/more"), b"more");
    let output = far.expect(12, &["--ignore-files", "--delete", "far:t/", "back"]);
    assert!(said(&output).contains("nothing is deleted"), "{}", said(&output));
    assert!(far.world.path("back/more").exists());
}

#[test]
fn a_source_behind_a_login_is_watched_there_and_again_after_the_far_end_was_killed() {
    let far = Sshd::with_gtp();
    write(&far.home("t/a"), b"a");
    let mut command = far.gtp("sync", &["--watch", "--delete", "far:t/", "here"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut tells = |what: &str| {
        told.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect("it goes on")
    };
    tells("1 file of");
    assert_eq!(std::fs::read(far.world.path("here/a")).unwrap(), b"a");
    write(&far.home("t/d/b"), b"b");
    std::fs::remove_file(far.home("t/a")).unwrap();
    tells("1 name deleted");
    assert!(far.world.path("here/d/b").exists() && !far.world.path("here/a").exists());
    for id in far.far_end_ids() {
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
    tells("tried again in 1 second");
    write(&far.home("t/d/c"), b"c");
    tells("1 file of");
    assert!(far.world.path("here/d/c").exists());
    // The watch of the new far end tells as well.
    write(&far.home("t/d/e"), b"e");
    tells("1 file of");
    interrupted(child);
    wait_for("the end of the far end", || far.far_ends() == 0);
}

#[test]
fn a_single_file_behind_a_login_is_watched_there() {
    let far = Sshd::with_gtp();
    write(&far.home("t/log"), b"one");
    let mut command = far.gtp("sync", &["--watch", "far:t/log", "here"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut tells = |what: &str| {
        told.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect("it goes on")
    };
    tells("1 file of");
    write(&far.home("t/log"), b"two, longer");
    tells("1 file of");
    assert_eq!(std::fs::read(far.world.path("here")).unwrap(), b"two, longer");
    write(&far.home("t/new"), b"three, as an editor writes it");
    std::fs::rename(far.home("t/new"), far.home("t/log")).unwrap();
    tells("1 file of");
    assert_eq!(std::fs::read(far.world.path("here")).unwrap(), b"three, as an editor writes it");
    interrupted(child);
}

#[test]
fn small_files_travel_in_steps_both_ways_unless_something_limits_the_rate() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    plant(&tree);
    let small = ["d/x", "private", "d/e/new", "empty too"];
    let change = |content: &[u8]| {
        for name in small {
            write(&tree.join(name), content);
            // It has not just changed.
            let past = std::time::UNIX_EPOCH
                + std::time::Duration::new(1_100_000_000 + content.len() as u64, 5);
            std::fs::File::open(tree.join(name)).unwrap().set_modified(past).unwrap();
        }
        attribute(&tree.join("d/x"), &format!("of {} bytes", content.len()));
    };
    for words in [["-aHX", "tree/", "far:t"], ["-aHX", "far:t/", "back"]] {
        far.expect(0, &words);
    }
    let copies = [far.home("t"), far.world.path("back")];
    let has_session = |output: &Output| events(output).iter().any(|event| event["event"] == "done");
    for (content, limit, expected) in [
        (&b"first"[..], &[][..], false),
        (b"", &[], false),
        (b"next one", &["--max-rate", "80Mbit"], true),
    ] {
        change(content);
        for (words, copy) in
            [["-aHX", "tree/", "far:t"], ["-aHX", "far:t/", "back"]].iter().zip(&copies)
        {
            let output = far.expect(0, &[&words[..], &["--json"], limit].concat());
            assert_eq!(has_session(&output), expected, "{words:?} {limit:?}");
            let end = summary(&output);
            assert_eq!((&end["files"], &end["bytes"]), (&4.into(), &(4 * content.len()).into()));
            assert_eq!(differences(&tree, copy), "", "{words:?} {limit:?}");
        }
    }
}

#[test]
fn of_small_files_that_have_an_older_version_there_the_changed_parts_travel_both_ways() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    let name = |n: usize| format!("d{}/f{n}", n % 3);
    let settle = |n: usize, second: u64| {
        let past = std::time::UNIX_EPOCH + std::time::Duration::new(1_100_000_000 + second, 5);
        std::fs::File::open(tree.join(name(n))).unwrap().set_modified(past).unwrap();
    };
    let mut contents: Vec<Vec<u8>> = (0..20).map(|n| bytes(500 + 3_000 * n, n as u64)).collect();
    let ways = [["-aX", "tree/", "far:t"], ["-aX", "far:t/", "back"]];
    for round in 0..3 {
        for (n, content) in contents.iter_mut().enumerate() {
            match round {
                0 => {}
                1 => content.extend_from_slice(b"grown"),
                _ => content[0] ^= 1,
            }
            write(&tree.join(name(n)), &content);
            settle(n, round);
        }
        for (words, copy) in ways.iter().zip([far.home("t"), far.world.path("back")]) {
            let end = summary(&far.expect(0, &[&words[..], &["--json"]].concat()));
            assert_eq!(differences(&tree, &copy), "", "{words:?}");
            let (bytes, moved) = (end["bytes"].as_u64(), end["moved_bytes"].as_u64().unwrap());
            assert_eq!(bytes, Some(contents.iter().map(|content| content.len() as u64).sum()));
            match round {
                0 => assert!(Some(moved) >= bytes, "{words:?}: {end}"),
                1 => assert!(moved <= 20 * 5 + 2_000, "{words:?}: {end}"),
                _ => assert!(moved <= 20 * 1_024, "{words:?}: {end}"),
            }
        }
    }
    // Where whole files are asked for, they travel.
    for (n, content) in contents.iter_mut().enumerate() {
        content.extend_from_slice(b"more");
        write(&tree.join(name(n)), &content);
        settle(n, 9);
    }
    let end = summary(&far.expect(0, &["-aX", "-W", "--json", "tree/", "far:t"]));
    assert_eq!(end["moved_bytes"], end["bytes"], "{end}");
}

#[test]
fn a_watched_server_is_compared_again_and_again() {
    let world = common::World::new();
    let server = writable(&world, &[]);
    world.export("t/a", 300);
    let url = server.url("t/");
    let words = ["--watch-every", "100ms", "--delete", &url, "here"];
    let mut command = world.gtp("client", &[&["sync", "--watch"], &words[..]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut tells = |what: &str| {
        told.by_ref().map(Result::unwrap).find(|line| line.contains(what)).expect("it goes on")
    };
    tells("compared every 1");
    tells("1 file of");
    assert!(world.path("here/a").exists());
    let b = world.export("t/b", 300);
    std::fs::remove_file(world.path("export/t/a")).unwrap();
    wait_for("both changes", || {
        std::fs::read(world.path("here/b")).is_ok_and(|there| there == b)
            && !world.path("here/a").exists()
    });
    interrupted(child);
}
