//! `gtp get`, `ls` and `put` against `gtp serve`, as a user meets them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{World, bytes, events, size_of, tcp_only, wait_for};
use serde_json::Value;

#[test]
fn a_file_arrives_with_its_bytes_time_and_hash() {
    let world = World::new();
    let content = world.export("a.bin", 3_000_001);
    let server = world.serve("server", &["--public"]);
    let output = world.expect(0, &["get", &server.url("a.bin"), "out", "--accept-new", "--json"]);
    assert_eq!(std::fs::read(world.path("out")).unwrap(), content);
    let time = |path: &str| std::fs::metadata(world.path(path)).unwrap().modified().unwrap();
    assert_eq!(time("out"), time("export/a.bin"));
    let lines = events(&output);
    let names: Vec<_> = lines.iter().map(|l| l["event"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"started"));
    assert_eq!(names.last(), Some(&"done"));
    let done = lines.last().unwrap();
    assert_eq!(done["blake3"], blake3::hash(&content).to_hex().as_str());
    assert_eq!(done["bytes"], 3_000_001);
    assert_eq!(done["sources"][0]["url"], server.url("a.bin"));
    for key in ["seconds", "goodput", "loss_ratio", "retransmitted_bytes"] {
        assert!(done[key].is_number(), "{key}");
    }
    let progress = lines.iter().find(|l| l["event"] == "progress").unwrap();
    for key in ["bytes", "total", "rate", "loss_ratio"] {
        assert!(progress[key].is_number(), "{key}");
    }
    let words = ["source", "sink", "demand", "path", "disk"];
    assert!(words.contains(&progress["limited_by"].as_str().unwrap()));
    assert!(progress["sources"].is_array() && progress.get("granted").is_some());
    let file = lines.iter().find(|l| l["event"] == "file_done").unwrap();
    assert_eq!(file["path"], "a.bin");
}

#[test]
fn a_directory_arrives_whole_and_is_not_fetched_again() {
    let world = World::new();
    world.export("tree/one", 10);
    world.export("tree/sub/two", 700_000);
    world.export("tree/empty", 0);
    std::fs::create_dir(world.path("export/tree/nothing")).unwrap();
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    world.expect(0, &["get", &url, "out", "--accept-new"]);
    for name in ["one", "sub/two", "empty"] {
        let read = |root: &str| std::fs::read(world.path(root).join(name)).unwrap();
        assert_eq!(read("out"), read("export/tree"), "{name}");
    }
    assert!(world.path("out/nothing").is_dir());
    let again = world.expect(0, &["get", &url, "out", "--json"]);
    let done = events(&again).pop().unwrap();
    assert_eq!((&done["files_written"], &done["received_bytes"]), (&0.into(), &0.into()));
}

#[test]
fn an_empty_and_a_sparse_file_arrive() {
    let world = World::new();
    world.export("empty", 0);
    let sparse = std::fs::File::create(world.path("export/sparse")).unwrap();
    sparse.set_len(5_000_000).unwrap();
    let server = world.serve("server", &["--public"]);
    world.expect(0, &["get", &server.url("empty"), "e", "--accept-new"]);
    assert_eq!(std::fs::read(world.path("e")).unwrap(), b"");
    world.expect(0, &["get", &server.url("sparse"), "s"]);
    assert!(std::fs::read(world.path("s")).unwrap() == vec![0; 5_000_000]);
}

#[test]
fn data_go_to_standard_output_in_order() {
    let world = World::new();
    let content = world.export("a", 2_000_000);
    let server = world.serve("server", &["--public"]);
    let output = world.expect(0, &["get", &server.url("a"), "-", "--accept-new"]);
    assert!(output.stdout == content);
    world.expect(2, &["get", &server.url("a"), "-", "--json"]);
}

#[test]
fn several_mirrors_bring_one_file() {
    let world = World::new();
    let content = world.export("a", 20_000_000);
    std::fs::create_dir_all(world.path("second/deep")).unwrap();
    std::fs::copy(world.path("export/a"), world.path("second/deep/copy")).unwrap();
    let one = world.serve("server", &["--public", "--max-rate", "200Mbit"]);
    let two = world.serve_dir("other", "second", &["--public", "--max-rate", "200Mbit"]);
    let (url, mirror) = (one.url("a"), two.url("deep/copy"));
    let args = ["get", &url, "out", "--mirror", &mirror, "--accept-new", "--json"];
    let output = world.expect(0, &args);
    assert!(std::fs::read(world.path("out")).unwrap() == content);
    let done = events(&output).pop().unwrap();
    for source in 0..2 {
        assert!(done["sources"][source]["bytes"].as_u64().unwrap() > 0, "source {source}");
    }
}

#[test]
fn mirrors_of_different_objects_are_refused_by_name() {
    let world = World::new();
    world.export("a", 600_000);
    world.export("b", 600_001);
    std::fs::write(world.path("export/c"), bytes(600_000, 9)).unwrap();
    let server = world.serve("server", &["--public"]);
    let (a, b, c) = (server.url("a"), server.url("b"), server.url("c"));
    for other in [&b, &c] {
        let output = world.expect(6, &["get", &a, "out", "--mirror", other, "--accept-new"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&a) && said.contains(other.as_str()), "{said}");
        assert!(!world.path("out").exists());
    }
}

#[test]
fn what_mirrors_disagree_about_is_refused_again_when_it_is_all_here() {
    let world = World::new();
    let other = world.path("second");
    std::fs::create_dir_all(other.join("t")).unwrap();
    for (name, size) in [("t/large", 900_000), ("t/small", 1_000), ("file", 600_000)] {
        world.export(name, size);
        std::fs::write(other.join(name), bytes(size, 77)).unwrap();
    }
    let one = world.serve("server", &["--public"]);
    let two = world.serve_dir("other", "second", &["--public"]);
    for name in ["file", "t"] {
        let (a, b, out) = (one.url(name), two.url(name), format!("out-{name}"));
        for _ in 0..3 {
            let output = world.expect(6, &["get", &a, &out, "--mirror", &b, "--accept-new"]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(&a) && said.contains(&b), "{said}");
            for path in [&out, &format!("{out}/large"), &format!("{out}/small")] {
                assert!(!world.path(path).is_file(), "{path}");
            }
        }
    }
}

#[test]
fn a_given_hash_is_checked_of_files_that_are_there_and_of_empty_ones_too() {
    let world = World::new();
    let content = world.export("a", 600_000);
    world.export("empty", 0);
    let server = world.serve("server", &["--public"]);
    let (a, empty) = (server.url("a"), server.url("empty"));
    let (right, wrong) = (blake3::hash(&content).to_hex(), blake3::hash(b"x").to_hex());
    world.expect(0, &["get", &a, "out", "--accept-new"]);
    let time = std::fs::metadata(world.path("out")).unwrap().modified().unwrap();
    std::fs::write(world.path("out"), bytes(600_000, 5)).unwrap();
    let open = std::fs::File::options().write(true).open(world.path("out")).unwrap();
    open.set_modified(time).unwrap();
    world.expect(6, &["get", &a, "out", "--blake3", &wrong]);
    world.expect(0, &["get", &a, "out", "--blake3", &right]);
    assert!(std::fs::read(world.path("out")).unwrap() == content);
    let again = world.expect(0, &["get", &a, "out", "--blake3", &right, "--json"]);
    assert_eq!(events(&again).pop().unwrap()["received_bytes"], 0);
    world.expect(6, &["get", &empty, "none", "--blake3", &right]);
    world.expect(0, &["get", &empty, "none", "--blake3", &blake3::hash(b"").to_hex()]);
}

#[test]
fn whatever_hash_a_file_does_not_have_it_is_refused_as_damaged() {
    let world = World::new();
    world.export("a", 600_000);
    let server = world.serve("server", &["--public"]);
    let a = server.url("a");
    let others = ["0".repeat(64), "f".repeat(64), blake3::hash(b"x").to_hex().to_string()];
    for hash in &others {
        for to in ["out", "/dev/null", "-"] {
            let output = world.expect(6, &["get", &a, to, "--blake3", hash, "--accept-new"]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("hash"), "{to} {said}");
            assert!(!world.path("out").exists());
        }
    }
}

#[test]
fn a_killed_get_resumes_to_identical_bytes() {
    let world = World::new();
    let content = world.export("a", 30_000_000);
    let server = world.serve("server", &["--public", "--max-rate", "100Mbit"]);
    let url = server.url("a");
    world.expect(0, &["ls", &url, "--accept-new"]);
    let mut args = vec!["get", &url, "out", "--json"];
    for kill in 1..4u64 {
        let mut child = world.gtp("client", &args).stdout(Stdio::null()).spawn().unwrap();
        let journal = world.path("out.gtp-journal");
        wait_for("the journal", || size_of(&journal) > 600 * kill || child_is_over(&mut child));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    args.extend(["--max-rate", "10Gbit"]);
    let output = world.expect(0, &args);
    assert!(std::fs::read(world.path("out")).unwrap() == content);
    let done = events(&output).pop().unwrap();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    let left: Vec<_> = std::fs::read_dir(world.path("")).unwrap().flatten().collect();
    assert!(left.iter().all(|f| !f.file_name().to_string_lossy().contains("gtp-")), "{left:?}");
}

fn child_is_over(child: &mut std::process::Child) -> bool {
    child.try_wait().unwrap().is_some()
}

#[test]
fn a_server_that_is_restarted_is_met_again() {
    let world = World::new();
    let content = world.export("a", 30_000_000);
    let slow = ["--public", "--no-path-bound", "--max-rate", "100Mbit"];
    let mut server = world.serve("server", &slow);
    let (url, port) = (server.url("a"), server.port);
    let args = ["get", &url, "out", "--accept-new", "--no-path-bound", "--json"];
    let child = world.gtp("client", &args).stdout(Stdio::piped()).spawn().unwrap();
    let part = world.path("out.gtp-part");
    wait_for("data", || size_of(&part) > 0);
    server.kill();
    let listen = format!("127.0.0.1:{port}");
    let _server = world.serve("server", &["--public", "--no-path-bound", "--listen", &listen]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(std::fs::read(world.path("out")).unwrap() == content);
    assert!(events(&output).iter().any(|l| l["event"] == "retry"));
    assert_eq!(common::warnings(&output, "nothing bounds this transfer"), 1);
}

#[test]
fn without_a_udp_path_that_was_insisted_on_it_says_so_within_seconds() {
    let world = World::new();
    world.export("a", 1_000);
    let server = world.serve("server", &["--public"]);
    let port = tcp_only(server.port);
    let url = format!("gtp://127.0.0.1:{port}/a");
    let begun = std::time::Instant::now();
    let output = world.expect(11, &["get", &url, "out", "--accept-new", "--udp", "only"]);
    assert!(begun.elapsed().as_secs_f64() < 6.5, "{:?}", begun.elapsed());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("UDP port {port}")), "{said}");
}

#[test]
fn a_time_limit_ends_with_its_own_code_and_keeps_what_came() {
    let world = World::new();
    world.export("a", 30_000_000);
    let server = world.serve("server", &["--public", "--max-rate", "20Mbit"]);
    let url = server.url("a");
    world.expect(10, &["get", &url, "out", "--accept-new", "--time-limit", "1500ms"]);
    assert!(world.path("out.gtp-part").exists());
}

#[test]
fn some_of_several_objects_is_partial_success() {
    let world = World::new();
    world.export("a", 10);
    std::fs::create_dir(world.path("into")).unwrap();
    let server = world.serve("server", &["--public"]);
    let (a, b) = (server.url("a"), server.url("nothing"));
    world.expect(12, &["get", &a, &b, "into", "--accept-new"]);
    assert_eq!(size_of(&world.path("into/a")), 10);
}

#[test]
fn the_last_event_of_several_objects_says_how_the_command_ends() {
    let world = World::new();
    world.export("a", 10);
    world.export("b", 10);
    std::fs::create_dir(world.path("into")).unwrap();
    let server = world.serve("server", &["--public"]);
    let (a, b, none) = (server.url("a"), server.url("b"), server.url("nothing"));
    for (urls, code, done) in
        [([&a, &none, &b], 12, 2), ([&a, &b, &a], 0, 3), ([&none, &none, &none], 3, 0)]
    {
        let args = ["get", urls[0], urls[1], urls[2], "into", "--accept-new", "--json"];
        let last = events(&world.expect(code, &args)).pop().unwrap();
        assert_eq!(last["event"], "ended");
        assert_eq!((&last["exit_code"], &last["done"]), (&code.into(), &done.into()), "{last}");
        assert_eq!(last["objects"], 3);
    }
    let refused = world.expect(4, &["get", &a, &b, "absent", "--json"]);
    let last = events(&refused).pop().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"error".into(), &4.into()));
}

#[test]
fn a_symbolic_link_that_is_fetched_is_called_one() {
    let world = World::new();
    world.export("t/a", 10);
    std::os::unix::fs::symlink("a", world.path("export/t/link")).unwrap();
    let server = world.serve("server", &["--public"]);
    let output = world.expect(3, &["get", &server.url("t/link"), "out", "--accept-new"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("t/link: is a symbolic link"), "{said}");
}

#[test]
fn a_name_that_is_left_out_is_escaped_once_by_every_verb() {
    let world = World::new();
    for dir in ["export/t", "mine"] {
        std::fs::create_dir_all(world.path(dir)).unwrap();
        std::fs::write(world.path(dir).join("new\nline"), b"x").unwrap();
        std::fs::write(world.path(dir).join("plain"), b"x").unwrap();
    }
    let server = common::writable(&world, &[]);
    let (tree, root) = (server.url("t"), server.url(""));
    let (sync, to) = (server.url("t/"), server.url("u"));
    for (code, args) in [
        (12, &["ls", &tree][..]),
        (12, &["ls", &tree, "--json"]),
        (12, &["get", &tree, "out"]),
        (12, &["get", &tree, "out2", "--json"]),
        (12, &["put", "mine", &root]),
        (12, &["sync", &sync, "synced"]),
        (12, &["sync", "mine/", &to]),
    ] {
        let output = world.expect(code, args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        // A JSON string escapes the backslash once more.
        let json = args.contains(&"--json");
        let (right, wrong) = match json {
            true => (r"new\\nline", r"new\\\\nline"),
            false => (r"new\nline", r"new\\nline"),
        };
        assert!(said.contains(right) && !said.contains(wrong), "{args:?} {said}");
    }
}

#[test]
fn a_mirror_that_dies_in_the_midst_is_given_up_for_that_and_not_for_what_it_does_not_say() {
    let world = World::new();
    let content = world.export("big", 12_000_000);
    let server = world.serve("server", &["--public"]);
    let mut mirror = world.serve("mirror", &["--public"]);
    let (url, other) = (server.url("big"), mirror.url("big"));
    let words = ["get", &url, "got", "--mirror", &other, "--accept-new", "--json"];
    let mut get = world.gtp("client", &[&words[..], &["--max-rate", "40Mbit"]].concat());
    let mut get = get.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(get.stdout.take().unwrap()).lines();
    let mut dropped = Vec::new();
    for line in lines {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        // Both have brought something by then.
        let sources = event["sources"].as_array().into_iter().flatten();
        if event["event"] == "progress" && sources.filter(|s| s["bytes"] != 0).count() == 2 {
            mirror.kill();
        }
        if event["event"] == "dropped" {
            dropped.push((event["url"].clone(), event["message"].to_string()));
        }
    }
    assert!(get.wait().unwrap().success());
    assert!(std::fs::read(world.path("got")).unwrap() == content);
    let [(lost, why)] = &dropped[..] else { panic!("{dropped:?}") };
    assert_eq!(lost, other.as_str());
    assert!(why.contains("refused") || why.contains("gone"), "{why}");
}

#[test]
fn the_rate_that_is_shown_is_the_one_that_is_granted_and_not_some_bursts_more() {
    let world = World::new();
    world.export("f", 18_000_000);
    let server = world.serve("server", &["--public"]);
    let words = ["get", &server.url("f"), "out", "--accept-new", "--json"];
    let output = world.expect(0, &[&words[..], &["--max-rate", "30Mbit"]].concat());
    let progress = events(&output).into_iter().filter(|event| event["event"] == "progress");
    // At first it may not be known, and at last nothing may be left.
    let steady = progress.filter(|event| (1.0..4.5).contains(&event["seconds"].as_f64().unwrap()));
    let rates: Vec<f64> = steady.map(|event| event["rate"].as_f64().unwrap() / 1e6).collect();
    // A burst more in an interval would be 35.7; a busy machine is given some room.
    assert!(rates.len() >= 5 && rates.iter().all(|&rate| rate < 34.0), "{rates:?}");
    // What a busy machine reads late in one interval counts in the next one.
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    assert!((29.0..31.0).contains(&mean), "{rates:?}");
}
