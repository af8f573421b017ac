//! Standard input and output as source and destination of `gtp cp`, `put` and `get`, behind a login
//! and at a server: what ends well arrives whole, and of what does not nothing is left.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use common::sshd::Sshd;
use common::{World, bytes, wait_for};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command with this standard input.
fn feed(mut command: Command, input: &[u8]) -> Output {
    let mut child = start(&mut command);
    let mut to = child.stdin.take().unwrap();
    let input = input.to_vec();
    // One that has failed reads no more.
    let feeding = std::thread::spawn(move || drop(to.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    output
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[track_caller]
fn expect(code: i32, output: &Output) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
}

/// Names in a directory that do not belong to the far end's program.
fn names(dir: &Path) -> Vec<String> {
    let names = dir.read_dir().unwrap().flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name != ".cache").collect()
}

#[test]
fn what_is_piped_in_is_a_file_behind_a_login_and_comes_out_of_a_pipe_again() {
    let sshd = Sshd::with_gtp();
    for (size, name) in [(0, "empty"), (1, "one"), (9_000_000, "large file's")] {
        let content = bytes(size, 5);
        let target = format!("far:{name}");
        let sent = feed(sshd.gtp("cp", &["-", &target]), &content);
        expect(0, &sent);
        assert!(std::fs::read(sshd.home(name)).unwrap() == content, "{name}");
        let back = sshd.gtp("cp", &[&target, "-"]).output().unwrap();
        expect(0, &back);
        assert!(back.stdout == content, "{name}");
    }
    assert_eq!(names(&sshd.world.path("home")).len(), 3, "nothing else is left");
    // A file that is there is replaced, and one in a directory has its name there.
    // A directory of the name - here changes nothing about that.
    std::fs::create_dir(sshd.home("dir")).unwrap();
    std::fs::create_dir(sshd.world.path("-")).unwrap();
    for target in ["far:one", "far:dir/new"] {
        expect(0, &feed(sshd.gtp("cp", &["-", target]), b"again"));
    }
    assert_eq!(std::fs::read(sshd.home("one")).unwrap(), b"again");
    assert_eq!(std::fs::read(sshd.home("dir/new")).unwrap(), b"again");
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

#[test]
fn put_and_cp_send_what_is_piped_in_to_a_server_and_tell_programs_of_it() {
    let world = World::new();
    let server = common::writable(&world, &[]);
    let content = bytes(3_000_000, 8);
    for (verb, name) in [("put", "a"), ("cp", "b")] {
        let command = world.gtp("client", &[verb, "-", &server.url(name), "--json"]);
        let sent = feed(command, &content);
        expect(0, &sent);
        assert!(std::fs::read(world.path("export").join(name)).unwrap() == content);
        let done = common::events(&sent).pop().unwrap();
        let told = (&done["event"], &done["bytes"], &done["files_written"]);
        assert_eq!(told, (&"done".into(), &3_000_000.into(), &1.into()));
    }
    let back = world.expect(0, &["get", &server.url("a"), "-"]);
    assert!(back.stdout == content);
}

#[test]
fn where_a_stream_cannot_become_a_file_it_is_refused_and_nothing_is_left() {
    let sshd = Sshd::with_gtp();
    std::fs::create_dir(sshd.home("dir")).unwrap();
    let refused = |code, words: &[&str]| {
        let output = feed(sshd.gtp("cp", words), &bytes(100_000, 1));
        expect(code, &output);
        said(&output)
    };
    assert!(refused(2, &["-", "far:dir"]).contains("the name of the file"));
    refused(2, &["-", "far:dir/"]);
    refused(2, &["-", "dir", "far:x"]);
    refused(4, &["-", "far:none/x"]);
    refused(2, &["-", "far:x", "--control", "rbudp", "--rate", "1Mbit"]);
    assert_eq!(names(&sshd.world.path("home")), ["dir"]);
    assert!(names(&sshd.home("dir")).is_empty());
    let world = World::new();
    let inbox = common::writable(&world, &[]);
    std::fs::create_dir(world.path("export/dir")).unwrap();
    std::os::unix::fs::symlink("dir", world.path("export/link")).unwrap();
    for (code, path) in [(4, "dir"), (2, "dir/"), (4, "none/x"), (4, "link/x"), (3, "dir/../x")] {
        let output = feed(world.gtp("client", &["put", "-", &inbox.url(path)]), b"x");
        expect(code, &output);
    }
    // One that only reads takes none, and says why.
    let server = world.serve("server2", &["--public"]);
    let url = server.url("x");
    let output = feed(world.gtp("client", &["put", "-", &url, "--accept-new"]), b"x");
    expect(4, &output);
    assert!(said(&output).contains("only reads"), "{}", said(&output));
    assert!(names(&world.path("export/dir")).is_empty());
}

/// A command that has sent a part of a stream to `home/x`, and its standard input.
fn begun(sshd: &Sshd, words: &[&str]) -> (Child, ChildStdin) {
    let mut child = start(&mut sshd.gtp("cp", words));
    let mut input = child.stdin.take().unwrap();
    input.write_all(&bytes(1_000_000, 3)).unwrap();
    let has_come = || {
        let home = sshd.world.path("home");
        let parts = names(&home).into_iter().filter(|name| name.ends_with(".gtp-part"));
        parts.map(|part| common::size_of(&home.join(part))).sum::<u64>() >= 1_000_000
    };
    wait_for("what was sent", has_come);
    (child, input)
}

#[test]
fn an_end_that_dies_before_the_stream_has_ended_leaves_what_was_there() {
    let sshd = Sshd::with_gtp();
    std::fs::write(sshd.home("x"), "old").unwrap();
    let is_as_before = || {
        let is_old = std::fs::read(sshd.home("x")).is_ok_and(|content| content == b"old");
        assert!(is_old, "a part has taken the file's place");
        names(&sshd.world.path("home")) == ["x"]
    };
    // The near end is killed.
    let (mut child, input) = begun(&sshd, &["-", "far:x"]);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the end of the part", is_as_before);
    drop(input);
    // It is interrupted.
    let (child, input) = begun(&sshd, &["-", "far:x"]);
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    expect(130, &child.wait_with_output().unwrap());
    wait_for("the end of the part", is_as_before);
    drop(input);
    // The far end is killed: then its part file stays, and the file does not come about.
    let (child, input) = begun(&sshd, &["-", "far:x"]);
    for id in sshd.far_end_ids() {
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
    expect(5, &child.wait_with_output().unwrap());
    drop(input);
    assert_eq!(std::fs::read(sshd.home("x")).unwrap(), b"old");
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

#[test]
fn what_retry_for_means_for_a_stream_is_said_where_it_is_asked_for() {
    let sshd = Sshd::with_gtp();
    for (options, is_said) in [(&["--retry-for", "300s"][..], true), (&[], false)] {
        let output = feed(sshd.gtp("cp", &[options, &["-", "far:x"]].concat()), b"x");
        expect(0, &output);
        let told = said(&output).contains("--retry-for holds until the stream begins");
        assert_eq!(told, is_said, "{options:?}: {}", said(&output));
    }
}

#[test]
fn an_input_that_cannot_be_read_leaves_nothing() {
    let sshd = Sshd::with_gtp();
    let mut command = sshd.gtp("cp", &["-", "far:x"]);
    // Reading a directory fails.
    let unreadable = std::fs::File::open(sshd.world.path("")).unwrap();
    let output = command.stdin(unreadable).output().unwrap();
    expect(3, &output);
    assert!(said(&output).contains("cannot be read"), "{}", said(&output));
    assert!(names(&sshd.world.path("home")).is_empty());
}

#[test]
fn a_full_disk_at_the_far_end_ends_the_stream_with_its_reason() {
    if !common::require_root() {
        return;
    }
    let sshd = Sshd::with_gtp();
    std::fs::create_dir(sshd.home("small")).unwrap();
    let small = sshd.home("small");
    let mount = |words: &[&str]| {
        assert!(Command::new("mount").args(words).arg(&small).status().unwrap().success());
    };
    mount(&["-t", "tmpfs", "-o", "size=1m", "none"]);
    let output = feed(sshd.gtp("cp", &["-", "far:small/x"]), &bytes(60_000_000, 4));
    let left = names(&small);
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
    expect(4, &output);
    assert!(said(&output).contains("No space left"), "{}", said(&output));
    assert!(left.is_empty(), "{left:?}");
}
