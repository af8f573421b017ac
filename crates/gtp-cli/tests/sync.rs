//! `gtp sync` from and to where a real sshd logs in, to and from a server, and between directories.
//! What a tree is like is compared with rsync's own eyes where that matters.

mod common;

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::sshd::Sshd;
use common::trees::{
    are_kept, attribute, differences, ended, lines, outdate, plant, said, summary, write,
};
use common::{World, bytes, events, wait_for, writable};

impl Sshd {
    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) -> Output {
        ended(code, words, self.gtp("sync", words))
    }
}

/// `gtp sync` between directories of a world.
#[track_caller]
fn sync(world: &World, code: i32, words: &[&str]) -> Output {
    ended(code, words, world.gtp("client", &[&["sync"], words].concat()))
}

#[test]
fn a_tree_is_the_same_for_rsync_at_the_other_end_of_ssh_both_ways_and_a_second_run_moves_nothing() {
    let far = Sshd::with_gtp();
    plant(&far.world.path("tree"));
    far.expect(0, &["-aH", "tree", "far:there/"]);
    assert!(!far.home("there").exists() || far.home("there/tree").exists());
    assert_eq!(differences(&far.world.path("tree"), &far.home("there/tree")), "");
    far.expect(0, &["-aH", "far:there/tree/", "back"]);
    assert_eq!(differences(&far.world.path("tree"), &far.world.path("back")), "");
    for words in [["-aH", "tree", "far:there/"], ["-aH", "far:there/tree/", "back"]] {
        let again = far.expect(0, &[&words[..], &["--json"]].concat());
        let end = summary(&again);
        let none = (&end["changes"], &end["moved_bytes"], &end["files"]);
        assert_eq!(none, (&0.into(), &0.into(), &0.into()), "{end}");
        let again = far.expect(0, &words);
        assert!(said(&again).contains("nothing to do"), "{}", said(&again));
    }
}

/// A far end that runs here after a login of so many seconds. Only its answer is changed, by `sed`.
fn far_end(far: &Sshd, seconds: u32, expression: &str) -> String {
    let gtp = env!("CARGO_BIN_EXE_gtp");
    let home = far.world.path("home");
    let ssh = "export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'";
    let lines = format!(
        "while read -r line; do case $line in \
         *ready*) printf '%s\\n' \"$line\" | sed '{expression}'; break;; \
         *) printf '%s\\n' \"$line\";; esac; done"
    );
    format!(
        "sleep {seconds}; export HOME='{}'; {ssh}; '{gtp}' far-end | {{ {lines}; exec cat; }}",
        home.display()
    )
}

#[test]
fn a_far_end_is_surveyed_over_sshs_own_pipe_however_long_the_login_takes() {
    let far = Sshd::with_gtp();
    plant(&far.world.path("tree"));
    let words = ["-an", "--retry-for", "3s", "tree/", "far:t"];
    let looked = |seconds, expression: &str| {
        let mut command = far.gtp("sync", &words);
        command.env("GTP_SSH", far.instead(&far_end(&far, seconds, expression)));
        command
    };
    // Over TLS nobody believes a far end that has another key than it says.
    let other_key = "s/SHA256:....../SHA256:AAAAAA/";
    ended(7, &words, looked(0, &format!("{other_key};s/+[a-z.]*//")));
    for seconds in [0, 5] {
        let told = lines(&ended(0, &words, looked(seconds, other_key)));
        assert!(told.contains(&">f+++++++++ d/x".to_owned()), "{told:?}");
    }
}

/// The near end says the first of its session before it knows this, so the far end has read it.
#[test]
fn a_far_end_that_does_not_name_the_link_without_tls_is_surveyed_over_tls() {
    let far = Sshd::start("");
    let gtp = env!("CARGO_BIN_EXE_gtp");
    let older = far.world.path("older");
    // It takes the link and does not say so; what it answers there is dropped.
    let script = format!("#!/bin/sh\n{gtp} \"$@\" | sed -u 's/+[a-z.]*//'\n");
    std::fs::write(&older, script).unwrap();
    std::fs::set_permissions(&older, PermissionsExt::from_mode(0o755)).unwrap();
    far.cache(&older);
    plant(&far.world.path("tree"));
    far.expect(0, &["-aH", "tree/", "far:t"]);
    assert_eq!(differences(&far.world.path("tree"), &far.home("t")), "");
    write(&far.world.path("tree/d/x"), b"other");
    far.expect(0, &["-aH", "tree/", "far:t"]);
    assert_eq!(differences(&far.world.path("tree"), &far.home("t")), "");
    far.expect(0, &["-aH", "far:t/", "back"]);
    assert_eq!(differences(&far.home("t"), &far.world.path("back")), "");
}

#[test]
fn what_changed_is_moved_and_what_is_gone_is_deleted_at_a_far_end_and_here() {
    let far = Sshd::with_gtp();
    plant(&far.world.path("tree"));
    far.expect(0, &["tree/", "far:t"]);
    write(&far.world.path("tree/d/x"), b"other");
    std::fs::remove_file(far.world.path("tree/a")).unwrap();
    std::fs::remove_dir_all(far.world.path("tree/d/e")).unwrap();
    let told = far.expect(0, &["-n", "tree/", "far:t", "--delete"]);
    let dry = lines(&told);
    assert!(dry.contains(&"*deleting   d/e/large".to_owned()), "{dry:?}");
    assert!(dry.contains(&">f.st...... d/x".to_owned()), "{dry:?}");
    assert!(far.home("t/d/e/large").exists(), "a dry run does nothing");
    far.expect(0, &["tree/", "far:t"]);
    assert!(far.home("t/d/e/large").exists(), "without --delete nothing is deleted");
    far.expect(0, &["tree/", "far:t", "--delete"]);
    assert_eq!(differences(&far.world.path("tree"), &far.home("t")), "");
    // And here.
    far.expect(0, &["far:t/", "mine"]);
    std::fs::remove_dir_all(far.home("t/d")).unwrap();
    far.expect(0, &["far:t/", "mine", "--delete-before"]);
    assert_eq!(differences(&far.home("t"), &far.world.path("mine")), "");
}

#[test]
fn a_server_lets_those_delete_who_may_write_and_nobody_else() {
    let world = World::new();
    plant(&world.path("tree"));
    let server = writable(&world, &[]);
    sync(&world, 0, &["-H", "tree/", &server.url("t")]);
    assert_eq!(differences(&world.path("tree"), &world.path("export/t")), "");
    sync(&world, 0, &["-H", &server.url("t/"), "back"]);
    assert_eq!(differences(&world.path("tree"), &world.path("back")), "");
    std::fs::remove_file(world.path("tree/a")).unwrap();
    drop(server);
    let key = String::from_utf8(world.expect(0, &["id"]).stdout).unwrap();
    let list = world.path("server/authorized_keys");
    std::fs::write(&list, format!("{} read\n", key.trim())).unwrap();
    let server = world.serve("server", &["--writable"]);
    let words = ["-H", "tree/", &server.url("t"), "--delete", "--accept-new"];
    sync(&world, 7, &words);
    assert!(world.path("export/t/a").exists());
    drop(server);
    std::fs::write(&list, format!("{} write,read\n", key.trim())).unwrap();
    let server = world.serve("server", &[]);
    sync(&world, 4, &["-H", "tree/", &server.url("t"), "--delete", "--accept-new"]);
    assert!(world.path("export/t/a").exists(), "this server only reads");
}

#[test]
fn a_source_that_has_become_empty_deletes_nothing_without_force() {
    let world = World::new();
    plant(&world.path("there"));
    std::fs::create_dir(world.path("tree")).unwrap();
    let output = sync(&world, 12, &["tree/", "there", "--delete"]);
    assert!(said(&output).contains("--force"), "{}", said(&output));
    assert!(world.path("there/d/e/large").exists());
    sync(&world, 0, &["tree/", "there", "--delete", "--force"]);
    assert_eq!(std::fs::read_dir(world.path("there")).unwrap().count(), 0);
}

#[test]
fn no_more_than_max_delete_is_deleted_nor_replaced_by_something_of_another_kind() {
    let world = World::new();
    plant(&world.path("there"));
    write(&world.path("tree/a/now/a/directory"), b"x");
    let output = sync(&world, 12, &["tree/", "there", "--delete", "--max-delete", "2"]);
    assert!(said(&output).contains("--max-delete"), "{}", said(&output));
    assert!(world.path("there/a").is_file() && world.path("there/d/e/large").exists());
    sync(&world, 0, &["tree/", "there", "--delete", "--max-delete", "100"]);
    assert_eq!(differences(&world.path("tree"), &world.path("there")), "");
}

#[test]
fn a_source_that_is_only_partly_read_deletes_nothing() {
    let world = World::new();
    plant(&world.path("tree"));
    // Root may open any directory, so the command then runs as another user.
    sync(&world, 0, &["tree/", "there"]);
    write(&world.path("there/more"), b"x");
    let closed = world.path("tree/d");
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        let script = format!(
            "mount -t tmpfs -o mode=0 none {0} && exec setpriv --reuid 65534 \
            --clear-groups --regid 65534 {1} sync tree/ there --delete",
            closed.display(),
            env!("CARGO_BIN_EXE_gtp")
        );
        let open = |path: &Path| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        };
        open(&world.path(""));
        open(&world.path("there"));
        std::fs::create_dir(world.path("nobody")).unwrap();
        std::fs::set_permissions(world.path("nobody"), PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(world.path("nobody"), Some(65_534), Some(65_534)).unwrap();
        command.args(["-m", "sh", "-c", &script]).current_dir(world.path(""));
        command.env("GTP_CONFIG_DIR", world.path("nobody")).env("GTP_DAEMON", "off");
        let output = ended(12, &["unshare"], command);
        assert!(said(&output).contains("nothing is deleted"), "{}", said(&output));
    } else {
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o0)).unwrap();
        let output = sync(&world, 12, &["tree/", "there", "--delete"]);
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(said(&output).contains("nothing is deleted"), "{}", said(&output));
    }
    assert!(world.path("there/more").exists() && world.path("there/d/e/large").exists());
}

#[test]
fn trees_that_are_the_same_or_hold_one_another_are_refused() {
    let world = World::new();
    plant(&world.path("tree"));
    symlink("tree", world.path("alias")).unwrap();
    for words in [
        ["tree/", "tree"],
        ["tree/", "alias"],
        ["tree/d/", "tree"],
        ["tree/", "tree/d"],
        ["tree/", "tree/new"],
        ["tree", "."],
    ] {
        sync(&world, 2, &words);
    }
    sync(&world, 2, &["far:a", "gtp://x/y"]);
    sync(&world, 3, &["none/", "there"]);
}

#[test]
fn content_is_compared_by_hash_where_that_is_asked_for() {
    let far = Sshd::with_gtp();
    plant(&far.world.path("tree"));
    far.expect(0, &["-H", "tree/", "far:t"]);
    let at = far.home("t/d/x");
    let time = at.metadata().unwrap().modified().unwrap();
    let mut content = std::fs::read(&at).unwrap();
    content[7] ^= 1;
    std::fs::write(&at, &content).unwrap();
    std::fs::File::open(&at).unwrap().set_modified(time).unwrap();
    far.expect(0, &["-H", "tree/", "far:t"]);
    assert_eq!(std::fs::read(&at).unwrap(), content, "size and time are the same");
    let told = far.expect(0, &["-Hni", "--checksum", "tree/", "far:t"]);
    assert_eq!(lines(&told), [">fc........ d/x"]);
    far.expect(0, &["-H", "--checksum", "tree/", "far:t"]);
    assert_eq!(differences(&far.world.path("tree"), &far.home("t")), "");
    far.expect(0, &["-H", "--checksum", "far:t/", "back"]);
    assert_eq!(differences(&far.world.path("tree"), &far.world.path("back")), "");
}

#[test]
fn names_that_are_left_out_are_neither_moved_nor_deleted() {
    let world = World::new();
    plant(&world.path("tree"));
    write(&world.path("tree/cache/x"), b"x");
    write(&world.path("tree/d/x.tmp"), b"x");
    write(&world.path("there/d/mine.tmp"), b"x");
    write(&world.path("there/gone/mine.tmp"), b"x");
    let words = ["-H", "tree/", "there", "--delete", "--exclude", "cache/", "--exclude", "*.tmp"];
    sync(&world, 0, &words);
    assert!(!world.path("there/cache").exists() && !world.path("there/d/x.tmp").exists());
    assert!(world.path("there/d/mine.tmp").exists() && world.path("there/gone/mine.tmp").exists());
    assert!(world.path("there/d/e/large").exists());
    std::fs::write(world.path("list"), "d/x\nprivate\n").unwrap();
    sync(&world, 0, &["tree/", "some", "--files-from", "list"]);
    let names: Vec<_> = std::fs::read_dir(world.path("some")).unwrap().flatten().collect();
    assert_eq!(names.len(), 2);
    assert!(world.path("some/d/x").exists() && !world.path("some/d/e").exists());
}

#[test]
fn links_in_the_destination_are_never_written_through() {
    let world = World::new();
    plant(&world.path("tree"));
    write(&world.path("outside/x"), b"keep");
    write(&world.path("outside/e/large"), b"keep");
    std::fs::create_dir(world.path("there")).unwrap();
    symlink("../outside", world.path("there/d")).unwrap();
    symlink("../outside/x", world.path("there/a")).unwrap();
    write(&world.path("outside/more"), b"keep");
    sync(&world, 0, &["-H", "tree/", "there", "--delete"]);
    assert_eq!(differences(&world.path("tree"), &world.path("there")), "");
    for kept in ["outside/x", "outside/e/large", "outside/more"] {
        assert_eq!(std::fs::read(world.path(kept)).unwrap(), b"keep");
    }
}

#[test]
fn attributes_lists_and_holes_are_kept_where_that_is_asked_for() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    plant(&tree);
    attribute(&tree.join("d/x"), "of a file");
    attribute(&tree.join("d"), "of a directory");
    let image = std::fs::File::create(tree.join("image")).unwrap();
    image.set_len(8 << 20).unwrap();
    (&image).write_all(b"begin").unwrap();
    far.expect(0, &["-aHAXS", "tree/", "far:t"]);
    assert_eq!(differences(&tree, &far.home("t")), "");
    let there = far.home("t/image").metadata().unwrap();
    assert!(there.blocks() * 512 < 1 << 20, "{} blocks", there.blocks());
    attribute(&tree.join("d/x"), "changed");
    let told = far.expect(0, &["-aHAXSi", "tree/", "far:t"]);
    assert_eq!(lines(&told), [".f........x d/x"]);
    assert_eq!(differences(&tree, &far.home("t")), "");
}

#[test]
fn a_large_file_that_changed_a_little_travels_in_its_changed_blocks_alone() {
    let far = Sshd::with_gtp();
    let image = far.world.path("tree/image");
    let mut content = bytes(64 << 20, 3);
    write(&image, &content);
    far.expect(0, &["tree/", "far:t"]);
    far.expect(0, &["far:t/", "back"]);
    let mut change = |n: usize| {
        for block in [17, 101, 200] {
            content[block * 262_144 + n] ^= 0xff;
        }
        content.extend_from_slice(b"and more");
        content.clone()
    };
    let moved = |output: &Output| {
        let done = events(output).into_iter().find(|event| event["event"] == "done").unwrap();
        done["received_bytes"].as_u64().unwrap()
    };
    let now = change(5);
    write(&image, &now);
    let output = far.expect(0, &["tree/", "far:t", "--json"]);
    assert!(std::fs::read(far.home("t/image")).unwrap() == now);
    assert!(moved(&output) < 2 << 20, "{} bytes on the wire", moved(&output));
    let output = far.expect(0, &["far:t/", "back", "--json"]);
    assert!(std::fs::read(far.world.path("back/image")).unwrap() == now);
    assert!(moved(&output) < 2 << 20, "{} bytes on the wire", moved(&output));
    // The whole of it, where that is asked for.
    write(&image, change(9));
    let output = far.expect(0, &["tree/", "far:t", "--json", "--whole-file"]);
    assert!(moved(&output) > 64 << 20, "{} bytes on the wire", moved(&output));
}

#[test]
fn after_an_interruption_what_is_complete_does_not_come_again() {
    let world = World::new();
    for n in 0..20 {
        write(&world.path(&format!("export/t/{n}")), bytes(1 << 20, n));
    }
    let server = world.serve("server", &["--public"]);
    let url = server.url("t/");
    let words = [&url, "mine", "--accept-new", "--json", "--max-rate", "30Mbit"];
    let mut child = world.gtp("client", &[&["sync"], &words[..]].concat());
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let done = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().contains("gtp-");
    let complete = || match std::fs::read_dir(world.path("mine")) {
        Ok(all) => all.flatten().filter(done).count(),
        Err(_) => 0,
    };
    wait_for("the first complete files", || complete() > 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = complete();
    assert!(before < 20, "it was interrupted");
    let again = sync(&world, 0, &[&url, "mine", "--json"]);
    let end = summary(&again);
    assert_eq!(end["files"], 20 - before, "{end}");
    assert_eq!(differences(&world.path("export/t"), &world.path("mine")), "");
}

#[test]
fn a_file_that_changes_while_it_is_moved_is_named() {
    let world = World::new();
    write(&world.path("export/t/a"), bytes(8 << 20, 1));
    write(&world.path("export/t/b"), bytes(8 << 20, 2));
    let server = world.serve("server", &["--public"]);
    let url = server.url("t/");
    let words = [&url, "mine", "--accept-new", "--max-rate", "40Mbit", "--json"];
    let mut command = world.gtp("client", &[&["sync"], &words[..]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the transfer", || world.path("mine/a.gtp-part").exists());
    std::fs::write(world.path("export/t/b"), b"another").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(12), "{}", said(&output));
    assert!(said(&output).contains("b: "), "{}", said(&output));
    assert!(std::fs::read(world.path("mine/a")).unwrap() == bytes(8 << 20, 1));
    sync(&world, 0, &[&url, "mine"]);
    assert_eq!(differences(&world.path("export/t"), &world.path("mine")), "");
}

#[test]
fn what_would_be_overwritten_or_deleted_is_kept_in_the_backup_directory_and_stays_there() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    plant(&tree);
    write(&tree.join("gone/deep"), b"gone");
    far.expect(0, &["-H", "tree/", "far:t"]);
    far.expect(0, &["-H", "far:t/", "mine"]);
    let large = std::fs::read(tree.join("d/e/large")).unwrap();
    std::fs::remove_dir_all(tree.join("gone")).unwrap();
    write(&tree.join("d/x"), b"new");
    let mut changed = large.clone();
    changed[1_000_000] ^= 1;
    write(&tree.join("d/e/large"), &changed);
    std::fs::remove_file(tree.join("d/link")).unwrap();
    symlink("elsewhere", tree.join("d/link")).unwrap();
    let words = ["--delete", "--backup-dir", "old/1"];
    let places = [("far:t", far.home("t")), ("mine", far.world.path("mine"))];
    for (to, at) in &places {
        far.expect(0, &[&["-H", "tree/", to], &words[..]].concat());
        assert_eq!(std::fs::read(at.join("old/1/d/x")).unwrap(), bytes(300, 2), "{to}");
        assert!(std::fs::read(at.join("old/1/d/e/large")).unwrap() == large, "{to}");
        assert_eq!(std::fs::read(at.join("old/1/gone/deep")).unwrap(), b"gone", "{to}");
        assert_eq!(
            std::fs::read_link(at.join("old/1/d/link")).unwrap(),
            Path::new("../../outside")
        );
        assert!(
            !at.join("gone").exists() && std::fs::read(at.join("d/e/large")).unwrap() == changed
        );
        // Backups are no part of the tree: they are neither differences nor deleted.
        let again = far.expect(0, &[&["-H", "tree/", to], &words[..]].concat());
        assert!(said(&again).contains("nothing to do"), "{to}: {}", said(&again));
        std::fs::rename(at.join("old"), at.with_extension("old")).unwrap();
        far.expect(0, &["-H", "tree/", to]);
        assert_eq!(differences(&tree, at), "", "{to}");
    }
}

#[test]
fn backups_beside_their_names_are_not_deleted_and_the_content_of_hard_links_is_kept_too() {
    let world = World::new();
    plant(&world.path("tree"));
    sync(&world, 0, &["-H", "tree/", "there"]);
    write(&world.path("tree/a"), b"new a");
    std::fs::remove_file(world.path("tree/d/x")).unwrap();
    sync(&world, 0, &["-H", "tree/", "there", "--delete", "--backup"]);
    assert_eq!(std::fs::read(world.path("there/a~")).unwrap(), b"a");
    assert_eq!(std::fs::read(world.path("there/b~")).unwrap(), b"a");
    assert_eq!(std::fs::read(world.path("there/b")).unwrap(), b"new a");
    assert_eq!(std::fs::read(world.path("there/d/x~")).unwrap(), bytes(300, 2));
    std::fs::remove_dir_all(world.path("tree/d")).unwrap();
    sync(&world, 0, &["-H", "tree/", "there", "--delete", "--backup"]);
    assert!(world.path("there/d/x~").exists() && world.path("there/d/e/large~").exists());
    assert!(!world.path("there/d/e/large").exists());
}

#[test]
fn a_backup_directory_outside_the_destination_takes_what_would_be_lost_on_any_file_system() {
    let world = World::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let elsewhere = memory.path().join("old");
    let outside = elsewhere.to_str().unwrap();
    let (tree, there) = (world.path("tree"), world.path("there"));
    for (dir, at) in [("../old/1", world.path("old/1")), (outside, elsewhere.clone())] {
        plant(&tree);
        sync(&world, 0, &["-aHX", "--delete", "--force", "tree/", "there"]);
        let modified = outdate(&tree, &there);
        let words = ["-aHX", "--delete", "--backup-dir", dir, "tree/", "there"];
        sync(&world, 0, &words);
        assert_eq!(differences(&tree, &there), "", "{dir}");
        are_kept(&at, modified);
        let again = sync(&world, 0, &words);
        assert!(said(&again).contains("nothing to do"), "{dir}: {}", said(&again));
        std::fs::remove_dir_all(&tree).unwrap();
    }
    // What cannot be kept stays.
    plant(&tree);
    std::fs::write(world.path("file"), b"no directory").unwrap();
    write(&there.join("mine"), b"mine");
    let output = sync(&world, 12, &["tree/", "there", "--delete", "--backup-dir", "../file"]);
    assert!(there.join("mine").exists(), "{}", said(&output));
    for dir in ["../tree/old", "..", "/"] {
        sync(&world, 2, &["tree/", "there", "--backup-dir", dir]);
    }
    sync(&world, 2, &["tree/", "gtp://127.0.0.1:1/x", "--backup-dir", "/old"]);
}

#[test]
fn the_backup_of_a_single_file_may_go_beneath_the_directory_that_holds_it_but_not_onto_it() {
    let world = World::new();
    write(&world.path("tree/a"), b"newer");
    write(&world.path("there/a"), b"old");
    sync(&world, 2, &["tree/a", "there/", "--backup-dir", "../tree"]);
    assert_eq!(std::fs::read(world.path("tree/a")).unwrap(), b"newer");
    sync(&world, 0, &["tree/a", "there/", "--backup-dir", "../tree/old"]);
    assert_eq!(std::fs::read(world.path("tree/old/a")).unwrap(), b"old");
    assert_eq!(std::fs::read(world.path("there/a")).unwrap(), b"newer");
}

#[test]
fn what_cannot_be_kept_is_not_overwritten_and_backups_never_leave_the_destination_by_a_link() {
    let world = World::new();
    write(&world.path("tree/a"), b"new");
    write(&world.path("there/a"), b"a");
    write(&world.path("there/gone"), b"gone");
    std::fs::create_dir(world.path("outside")).unwrap();
    symlink("../outside", world.path("there/old")).unwrap();
    write(&world.path("tree/link"), b"no link");
    write(&world.path("tree/dir/x"), b"x");
    for name in ["link", "dir"] {
        symlink("../outside/x", world.path("there").join(name)).unwrap();
    }
    let words = ["tree/", "there", "--delete", "--backup-dir", "old"];
    let output = sync(&world, 12, &words);
    for name in ["link", "dir"] {
        let kept = std::fs::read_link(world.path("there").join(name)).unwrap();
        assert_eq!(kept, Path::new("../outside/x"), "{}", said(&output));
    }
    assert_eq!(std::fs::read(world.path("there/a")).unwrap(), b"a", "{}", said(&output));
    assert_eq!(std::fs::read(world.path("there/gone")).unwrap(), b"gone");
    assert_eq!(std::fs::read_dir(world.path("outside")).unwrap().count(), 0);
}

#[test]
fn a_backup_never_takes_a_name_that_the_source_has() {
    let world = World::new();
    for (name, content) in [("a", "new"), ("a~", "its own"), ("b~", "of b"), ("c", "new")] {
        write(&world.path("tree").join(name), content);
    }
    for (name, content) in [("a", "old a"), ("a~", "its own"), ("b", "old b"), ("c", "old c")] {
        write(&world.path("there").join(name), content);
    }
    let there = |name: &str| std::fs::read_to_string(world.path("there").join(name)).unwrap();
    for words in [&["--backup"][..], &["--backup", "--delete"], &["--backup", "--delete"]] {
        let output = sync(&world, 12, &[&["tree/", "there"], words].concat());
        assert!(said(&output).contains("a: cannot be kept"), "{}", said(&output));
        for (name, content) in [
            ("a", "old a"),
            ("a~", "its own"),
            ("b", "old b"),
            ("b~", "of b"),
            ("c", "new"),
            ("c~", "old c"),
        ] {
            assert_eq!(there(name), content, "{name} {words:?}");
        }
    }
}

#[test]
fn nothing_is_deleted_if_an_ignore_file_cannot_be_read_or_is_wrong() {
    let world = World::new();
    write(&world.path("tree/a"), b"a");
    let long = vec![b'#'; (1 << 20) + 1];
    for bad in [&b"\xff\n"[..], b"[z-a]\n", &long] {
        write(&world.path("tree/.gitignore"), bad);
        write(&world.path("there/mine.o"), b"mine");
        symlink("mine.o", world.path("there/a")).unwrap();
        let output = sync(&world, 12, &["--ignore-files", "--delete", "tree/", "there"]);
        assert!(said(&output).contains("nothing is deleted"), "{}", said(&output));
        assert!(world.path("there/mine.o").exists() && world.path("there/a").is_symlink());
        std::fs::remove_file(world.path("there/a")).unwrap();
    }
}

#[test]
fn ignore_files_of_the_source_leave_out_names_at_both_ends_and_protect_them() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    write(&tree.join(".gitignore"), "*.o\nbuild/\n");
    write(&tree.join("a.c"), b"c");
    write(&tree.join("a.o"), b"o");
    write(&tree.join("build/out"), b"out");
    write(&tree.join("keep/.gtpignore"), "!b.o\n");
    write(&tree.join("keep/b.o"), b"b");
    write(&far.home("t/mine.o"), b"mine");
    write(&far.home("t/build/mine"), b"mine");
    write(&far.home("t/gone"), b"gone");
    let words = ["--ignore-files", "--delete", "tree/", "far:t"];
    far.expect(0, &words);
    for there in ["a.c", ".gitignore", "keep/b.o", "mine.o", "build/mine"] {
        assert!(far.home("t").join(there).exists(), "{there}");
    }
    for absent in ["a.o", "build/out", "gone"] {
        assert!(!far.home("t").join(absent).exists(), "{absent}");
    }
    // An option decides before any file does.
    far.expect(0, &[&["--include", "a.o"], &words[..]].concat());
    assert!(far.home("t/a.o").exists());
    far.expect(0, &["--ignore-files", "--delete-excluded", "tree/", "far:t"]);
    for absent in ["mine.o", "build", "a.o"] {
        assert!(!far.home("t").join(absent).exists(), "{absent}");
    }
}

/// The time of day in UTC, some seconds from now.
fn in_seconds(more: i64) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let day = (now.as_secs() as i64 + more).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", day / 3_600, day / 60 % 60, day % 60)
}

#[test]
fn a_limit_by_the_time_of_day_changes_the_rate_of_a_session_that_runs() {
    let far = Sshd::with_gtp();
    write(&far.world.path("tree/large"), bytes(12 << 20, 1));
    // At 200 KiB a second it would take a minute.
    let table = format!("{},200K {},off", in_seconds(-60), in_seconds(6));
    let began = std::time::Instant::now();
    let mut command = far.gtp("sync", &["--bwlimit", &table, "tree/", "far:t"]);
    let output = command.env("TZ", "UTC").output().unwrap();
    let took = began.elapsed().as_secs_f64();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!((4.0..40.0).contains(&took), "{took} s");
    assert!(std::fs::read(far.home("t/large")).unwrap() == bytes(12 << 20, 1));
    far.expect(2, &["--bwlimit", "8:00,1M", "tree/", "far:t"]);
}

#[test]
fn access_control_lists_are_kept_where_that_is_asked_for_and_changed_ones_are_seen() {
    let far = Sshd::with_gtp();
    let tree = far.world.path("tree");
    plant(&tree);
    // Version 2, then entries of tag, permissions and id: the owner, user 12, the group, the mask
    // and others.
    let list = |of_user: u8| {
        let mut bytes = vec![2, 0, 0, 0];
        let none = u32::MAX;
        for (tag, bits, id) in
            [(1_u16, 6, none), (2, of_user, 12), (4, 4, none), (16, 7, none), (32, 0, none)]
        {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(bits).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    };
    let set = |path: &str, name: &str, of_user: u8| {
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(tree.join(path), name, &list(of_user), flags);
        set.expect("the file system of these tests has access control lists");
    };
    set("d/x", "system.posix_acl_access", 5);
    set("d", "system.posix_acl_default", 7);
    far.expect(0, &["-aHA", "tree/", "far:t"]);
    assert_eq!(differences(&tree, &far.home("t")), "");
    set("d/x", "system.posix_acl_access", 1);
    let told = far.expect(0, &["-aHAi", "tree/", "far:t"]);
    assert_eq!(lines(&told), [".f.......a. d/x"]);
    assert_eq!(differences(&tree, &far.home("t")), "");
    far.expect(0, &["-aHA", "far:t/", "back"]);
    assert_eq!(differences(&tree, &far.world.path("back")), "");
    // Without -A they are none of the command's business.
    set("d/x", "system.posix_acl_access", 4);
    let told = far.expect(0, &["-aHi", "tree/", "far:t"]);
    assert_eq!(lines(&told), [""; 0]);
}

#[test]
fn of_a_disk_image_whose_hundredth_block_changed_a_thirtieth_travels_at_most() {
    let far = Sshd::with_gtp();
    let megabytes = if std::env::var_os("GTP_LONG").is_some() { 4_096 } else { 128 };
    let at = far.world.path("tree/image");
    std::fs::create_dir(at.parent().unwrap()).unwrap();
    let mut image = std::fs::File::create(&at).unwrap();
    let part = bytes(1 << 20, 3);
    for _ in 0..megabytes {
        image.write_all(&part).unwrap();
    }
    far.expect(0, &["tree/", "far:t"]);
    far.expect(0, &["far:t/", "back"]);
    let blocks = megabytes * 4;
    for n in 0..blocks / 100 {
        let block = n * 100 + n % 7;
        std::os::unix::fs::FileExt::write_all_at(&image, b"changed", block << 18 | 77).unwrap();
    }
    drop(image);
    for words in [["tree/", "far:t"], ["far:t/", "back"]] {
        let output = far.expect(0, &[&words[..], &["--json"]].concat());
        let moved = summary(&output)["moved_bytes"].as_u64().unwrap();
        // With the values of all blocks, which travel beside the packets that carry data.
        let wire = moved + blocks * 32;
        assert!(wire < (megabytes << 20) * 3 / 100, "{words:?}: {wire} bytes of {megabytes} MiB");
    }
    for copy in [far.home("t/image"), far.world.path("back/image")] {
        let same = Command::new("cmp").arg(&at).arg(&copy).status().unwrap();
        assert!(same.success(), "{}", copy.display());
    }
}

#[test]
fn modes_are_set_where_there_is_no_proc() {
    if !common::require_root() {
        return;
    }
    let world = World::new();
    let mode =
        |path: &str| std::fs::metadata(world.path(path)).unwrap().permissions().mode() & 0o7777;
    std::fs::create_dir_all(world.path("s/d")).unwrap();
    for (name, bits) in [("f", 0o604), ("d/g", 0o600), ("d", 0o711)] {
        let path = world.path("s").join(name);
        if name != "d" {
            std::fs::write(&path, b"x").unwrap();
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).unwrap();
    }
    let gtp = world.gtp("client", &["sync", "s/", "out"]);
    let mut hidden = Command::new("unshare");
    hidden.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""]);
    hidden.arg(gtp.get_program()).args(gtp.get_args()).current_dir(world.path("."));
    let output = hidden.env("GTP_CONFIG_DIR", world.path("client")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((mode("out/f"), mode("out/d/g"), mode("out/d")), (0o604, 0o600, 0o711));
}
