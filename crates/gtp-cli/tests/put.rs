//! `gtp put` against `gtp serve --writable`: what arrives, under which name, and that the same
//! command does the same again.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use common::{World, bytes, events, require_root, size_of, wait_for, writable};

#[test]
fn forty_small_puts_in_a_row_each_need_one_attempt() {
    let world = World::new();
    let server = writable(&world, &[]);
    std::fs::write(world.path("h"), "hi\n").unwrap();
    for round in 0..40 {
        let output = world.expect(0, &["put", "h", &server.url(""), "--json"]);
        let retries = events(&output).iter().filter(|line| line["event"] == "retry").count();
        assert_eq!(retries, 0, "round {round}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "round {round}");
    }
    assert_eq!(std::fs::read(world.path("export/h")).unwrap(), b"hi\n");
}

#[test]
fn a_put_that_may_not_wait_ends_well_when_its_bytes_are_there() {
    let world = World::new();
    let server = writable(&world, &[]);
    for size in [0, 1, 300_000, 3_000_000] {
        let content = bytes(size, 5);
        std::fs::write(world.path("h"), &content).unwrap();
        let name = format!("h{size}");
        world.expect(0, &["put", "h", &server.url(&name), "--retry-for", "1s"]);
        assert!(std::fs::read(world.path("export").join(&name)).unwrap() == content);
    }
}

#[test]
fn a_link_arrives_under_the_name_that_was_given_with_the_content_that_it_leads_to() {
    let world = World::new();
    let server = writable(&world, &[]);
    std::fs::create_dir(world.path("t")).unwrap();
    std::fs::write(world.path("t/f1"), b"content").unwrap();
    symlink("t/f1", world.path("lf")).unwrap();
    symlink("t", world.path("ld")).unwrap();
    let read = |path: &str| std::fs::read(world.path("export").join(path)).unwrap();
    world.expect(0, &["put", "lf", &server.url("")]);
    assert_eq!(read("lf"), b"content");
    world.expect(0, &["put", "ld", "./t/../lf", &server.url("in/")]);
    assert_eq!((read("in/ld/f1"), read("in/lf")), (b"content".to_vec(), b"content".to_vec()));
    world.expect(0, &["put", "ld/", &server.url("content")]);
    world.expect(0, &["put", "t/.", &server.url("dotted/")]);
    assert_eq!((read("content/f1"), read("dotted/f1")), (b"content".to_vec(), b"content".to_vec()));
    world.expect(3, &["put", "lf/", &server.url("")]);
    let mut names: Vec<_> = std::fs::read_dir(world.path("export")).unwrap().flatten().collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    let names: Vec<_> = names.iter().map(|name| name.file_name()).collect();
    assert_eq!(names, ["content", "dotted", "in", "lf"]);
}

#[test]
fn a_private_directory_and_its_time_arrive_whatever_the_words() {
    let world = World::new();
    let (server, mode) = (writable(&world, &[]), |mode| PermissionsExt::from_mode(mode));
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_580_000_000);
    for root in ["", "export/"] {
        let at = |name: &str| world.path(&format!("{root}{name}"));
        std::fs::create_dir_all(at("tree/sub")).unwrap();
        std::fs::write(at("tree/sub/x"), b"x").unwrap();
        for dir in ["tree/sub", "tree"] {
            std::fs::set_permissions(at(dir), mode(0o750)).unwrap();
            std::fs::File::open(at(dir)).unwrap().set_modified(time).unwrap();
        }
    }
    let same = |path: &str| {
        for dir in [path.to_owned(), format!("{path}/sub")] {
            let found = world.path(&dir).metadata().unwrap();
            assert_eq!((found.mode() & 0o777, found.mtime()), (0o750, 1_580_000_000), "{dir}");
        }
    };
    for (put, arrives) in [("in/", "in/tree"), ("t", "t"), ("u/", "u/tree")] {
        for _ in 0..2 {
            world.expect(0, &["put", "tree", &server.url(put)]);
            same(&format!("export/{arrives}"));
        }
    }
    std::fs::create_dir(world.path("dots")).unwrap();
    for (get, arrives) in [("d", "d"), ("e/", "e/tree"), ("dots/.", "dots/tree")] {
        for _ in 0..2 {
            world.expect(0, &["get", &server.url("tree"), get]);
            same(arrives);
        }
    }
    world.expect(0, &["get", &server.url("tree/"), "content"]);
    same("content");
}

#[test]
fn a_slow_put_into_the_root_keeps_no_other_object_out() {
    let world = World::new();
    let server = writable(&world, &[]);
    for (name, size) in [("slow", 30_000_000), ("other", 1_000)] {
        std::fs::write(world.path(name), bytes(size, 3)).unwrap();
    }
    let slow = ["put", "slow", &server.url(""), "--max-rate", "5Mbit"];
    let mut putting = world.gtp("client", &slow).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the slow one", || size_of(&world.path("export/slow.gtp-journal")) > 0);
    let output = world.expect(0, &["put", "other", &server.url(""), "--json"]);
    assert!(events(&output).iter().all(|line| line["event"] != "retry"));
    let again = world.expect(5, &["put", "slow", &server.url(""), "--retry-for", "1s"]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.contains("the server's /slow: another transfer is writing here"), "{said}");
    putting.kill().unwrap();
    putting.wait().unwrap();
}

#[test]
fn a_directory_goes_on_at_its_first_place_when_the_server_is_restarted() {
    let world = World::new();
    let mut server = writable(&world, &[]);
    std::fs::create_dir(world.path("tree")).unwrap();
    std::fs::write(world.path("tree/big"), bytes(4_000_000, 8)).unwrap();
    let put = ["put", "tree", &server.url("t"), "--max-rate", "20Mbit", "--json"];
    let putting = world.gtp("client", &put).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("blocks", || size_of(&world.path("export/t/.gtp-journal")) > 200);
    server.kill();
    let listen = format!("127.0.0.1:{}", server.port);
    let _server = world.serve("server", &["--writable", "--listen", &listen]);
    let output = putting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(events(&output).iter().any(|line| line["event"] == "retry"));
    let content = std::fs::read(world.path("export/t/big")).unwrap();
    assert!(content == bytes(4_000_000, 8));
    assert_eq!(std::fs::read_dir(world.path("export/t")).unwrap().count(), 1);
}

#[test]
fn dev_null_takes_everything_and_other_devices_are_refused() {
    let world = World::new();
    world.export("a", 600_000);
    world.export("t/b", 10);
    let server = world.serve("server", &["--public"]);
    for path in ["a", "t"] {
        world.expect(0, &["get", &server.url(path), "/dev/null", "--accept-new"]);
    }
    let null = std::fs::metadata("/dev/null").unwrap();
    assert!(std::os::unix::fs::FileTypeExt::is_char_device(&null.file_type()));
    let socket = world.path("socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for special in ["/dev/zero", socket.to_str().unwrap()] {
        let output = world.expect(4, &["get", &server.url("a"), special]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is a device, pipe or socket"), "{said}");
    }
}

#[test]
fn what_was_there_before_is_not_counted_as_sent() {
    let world = World::new();
    let server = writable(&world, &[]);
    std::fs::create_dir(world.path("t")).unwrap();
    for (name, size) in [("t/a", 5_000_000), ("t/b", 1_000), ("t/empty", 0)] {
        std::fs::write(world.path(name), bytes(size, 4)).unwrap();
    }
    let put = |resumed: u64, unchanged: u64, written: u64| {
        let output = world.expect(0, &["put", "t", &server.url(""), "--json"]);
        let done = events(&output).pop().unwrap();
        let number = |key: &str| done[key].as_u64().unwrap();
        assert_eq!(number("bytes"), 5_001_000);
        assert_eq!((number("resumed_bytes"), number("files_unchanged")), (resumed, unchanged));
        assert_eq!((number("files_written"), number("goodput") == 0), (written, written == 0));
    };
    put(0, 0, 3);
    put(5_001_000, 3, 0);
    std::fs::write(world.path("t/b"), bytes(1_000, 6)).unwrap();
    put(5_000_000, 2, 1);
}

#[test]
fn a_slash_behind_a_file_is_refused_by_both_and_a_second_get_of_an_object_is_temporary() {
    let world = World::new();
    let server = writable(&world, &[]);
    world.export("f", 3_000_000);
    world.expect(3, &["put", "export/f/", &server.url("g")]);
    world.expect(3, &["get", &server.url("f/"), "g"]);
    assert!(!world.path("g").exists() && !world.path("export/g").exists());
    let slow = ["get", &server.url("f"), "out", "--max-rate", "5Mbit"];
    let mut getting = world.gtp("client", &slow).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the slow one", || size_of(&world.path("out.gtp-journal")) > 0);
    let output = world.expect(5, &["get", &server.url("f"), "out"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("out: another transfer is writing here"), "{said}");
    getting.kill().unwrap();
    getting.wait().unwrap();
}

/// Plants something where a put would make its part: it is left alone, and the sender is told.
fn plant_is_left_alone(what: &str, plant: fn(&Path)) {
    let world = World::new();
    let server = writable(&world, &[]);
    fs::write(world.path("export/victim"), "victim").unwrap();
    fs::create_dir(world.path("tree")).unwrap();
    for name in ["tree/f", "tree/other", "f"] {
        fs::write(world.path(name), "content").unwrap();
    }
    let part = world.path("export/f.gtp-part");
    plant(&part);
    let kind = || fs::symlink_metadata(&part).unwrap().file_type();
    let before = kind();
    let output = world.expect(4, &["put", "f", &server.url("")]);
    let said = String::from_utf8_lossy(&output.stderr);
    let alone = "f.gtp-part: is not a file of ours and is left alone";
    assert!(said.contains(alone), "{what}: {said}");
    // A get of one file ends likewise.
    fs::create_dir(world.path("got")).unwrap();
    fs::write(world.path("got/victim"), "victim").unwrap();
    fs::write(world.path("export/g"), "content").unwrap();
    plant(&world.path("got/g.gtp-part"));
    world.expect(4, &["get", &server.url("g"), "got/"]);
    fs::create_dir(world.path("export/tree")).unwrap();
    fs::write(world.path("export/tree/victim"), "victim").unwrap();
    plant(&world.path("export/tree/f.gtp-part"));
    let output = world.expect(12, &["put", "tree", &server.url("")]);
    let said = String::from_utf8_lossy(&output.stderr);
    let words = "f: what is in the place of its .gtp-part is not ours";
    assert!(said.contains(words), "{what}: {said}");
    assert_eq!(fs::read(world.path("export/tree/other")).unwrap(), b"content");
    assert_eq!(fs::read(world.path("export/victim")).unwrap(), b"victim");
    assert!(kind() == before && !world.path("export/f").exists(), "{what}");
}

#[test]
fn a_put_leaves_links_and_directories_in_the_place_of_a_part_alone() {
    plant_is_left_alone("a link", |part| symlink("victim", part).unwrap());
    plant_is_left_alone("a second name", |part| {
        fs::hard_link(part.with_file_name("victim"), part).unwrap();
    });
    plant_is_left_alone("a directory", |part| fs::create_dir(part).unwrap());
}

#[test]
fn a_put_leaves_another_users_file_in_the_place_of_a_part_alone() {
    if !require_root() {
        return;
    }
    plant_is_left_alone("another's file", |part| {
        fs::write(part, "theirs").unwrap();
        std::os::unix::fs::chown(part, Some(65_534), None).unwrap();
    });
}

#[test]
fn a_put_replaces_its_own_leftovers_of_another_object() {
    let world = World::new();
    let server = writable(&world, &[]);
    fs::write(world.path("f"), "content").unwrap();
    fs::write(world.path("export/f.gtp-part"), "of another object, which is longer").unwrap();
    world.expect(0, &["put", "f", &server.url("")]);
    assert_eq!(fs::read(world.path("export/f")).unwrap(), b"content");
    assert!(!world.path("export/f.gtp-part").exists());
}

#[test]
fn several_objects_that_go_to_no_directory_are_refused_alike_by_put_and_get() {
    let world = World::new();
    world.export("a", 10);
    world.export("b", 10);
    for name in ["x", "y"] {
        std::fs::write(world.path(name), b"x").unwrap();
    }
    let server = common::writable(&world, &[]);
    let (a, b, new) = (server.url("a"), server.url("b"), server.url("new"));
    for args in [["put", "x", "y", &new], ["get", &a, &b, "new"]] {
        let output = world.expect(4, &args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("several objects need a directory"), "{said}");
    }
    assert!(!world.path("new").exists() && !world.path("export/new").exists());
}

#[test]
fn of_several_objects_those_that_are_missing_are_named_and_the_others_arrive_as_with_get() {
    let world = World::new();
    let server = writable(&world, &[]);
    for name in ["a", "b"] {
        fs::write(world.path(name), name).unwrap();
        world.export(name, 10);
    }
    let to = server.url("to/");
    let put = ["put", "a", "gone", "b", &to, "--json"];
    let (from, gone, others) = (server.url("a"), server.url("gone"), server.url("b"));
    let get = ["get", &from, &gone, &others, "got/", "--json"];
    let copied = ["cp", "a", "gone", "b", &server.url("copied"), "--json"];
    let fetched = ["cp", &from, &gone, &others, "fetched", "--json"];
    for (words, place) in
        [(&put[..], "export/to"), (&copied, "export/copied"), (&get, "got"), (&fetched, "fetched")]
    {
        let output = world.expect(12, words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("gone: "), "{words:?}: {said}");
        for name in ["a", "b"] {
            assert!(world.path(place).join(name).is_file(), "{words:?}: {name}");
        }
    }
    for words in [["put", "gone", "lost", &to], ["cp", "gone", "lost", &to]] {
        world.expect(3, &words);
    }
}
