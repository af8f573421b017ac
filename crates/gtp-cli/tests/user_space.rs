//! File systems in user space as destinations and sources: they ignore calls without a word, number
//! files anew, count time in coarse steps and take two names for one. What arrives is complete all
//! the same, what cannot arrive is named, and the same command does nothing the second time.
//!
//! Mounting needs root; without it these tests say that they were skipped.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use common::sshd::Sshd;
use common::trees::ended;
use common::{World, events, require_root, size_of, wait_for};

/// A mounted file system, gone when dropped.
struct Mount(PathBuf);

impl Mount {
    /// Runs a program that mounts something at `at`, the last of its arguments.
    fn by(program: &str, args: &[&str], at: PathBuf) -> Mount {
        fs::create_dir(&at).unwrap();
        let mounted = Command::new(program).args(args).arg(&at).output();
        let mounted = mounted.unwrap_or_else(|e| panic!("{program} (scripts/setup test): {e}"));
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success(), "{program}: {said}");
        Mount(at)
    }

    /// A file system that ignores case and permissions, and counts in steps of a tenth of a
    /// microsecond.
    fn ntfs(world: &World) -> Mount {
        Mount::new_ntfs(world, "lowntfs-3g", "ignore_case")
    }

    /// An empty NTFS of 32 MiB, which `program` mounts with this option.
    fn new_ntfs(world: &World, program: &str, option: &str) -> Mount {
        let image = world.path("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let made = Command::new("mkntfs").args(["-F", "-Q", "-q"]).arg(&image).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Mount::by(program, &["-o", option, image.to_str().unwrap()], world.path("disk"))
    }

    /// A file system that numbers files anew whenever the kernel has forgotten them.
    fn merged(world: &World) -> Mount {
        fs::create_dir(world.path("branch")).unwrap();
        let branch = world.path("branch");
        Mount::by("mergerfs", &[branch.to_str().unwrap()], world.path("disk"))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a server that a failed test leaves may still have something open there.
        if !Command::new("umount").arg("-l").arg(&self.0).status().is_ok_and(|s| s.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The summary of a command that was run with `--json`.
fn done(output: &Output) -> (u64, u64) {
    let done = events(output).into_iter().find(|event| event["event"] == "done").unwrap();
    (done["files_written"].as_u64().unwrap(), done["files_unchanged"].as_u64().unwrap())
}

/// A tree of some files with a time in the past that needs all its digits.
fn export(world: &World, names: &[&str]) {
    for name in names {
        world.export(&format!("tree/{name}"), 3_000 + name.len());
        let file = File::options().write(true).open(world.path("export/tree").join(name)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_577_836_801, 123_456_789);
        file.set_modified(time).unwrap();
    }
}

/// A file system whose process is stopped: whoever asks it waits until it goes on.
struct Hung {
    process: std::process::Child,
    at: PathBuf,
}

impl Hung {
    /// Shows what is in `below` at `at`, and stops.
    fn mount(below: PathBuf, at: PathBuf) -> Hung {
        fs::create_dir(&at).unwrap();
        let process = Command::new("bindfs").arg("-f").args([&below, &at]).spawn().unwrap();
        let hung = Hung { process, at };
        let dir = fs::metadata(&below).unwrap();
        wait_for("the mount", || fs::metadata(&hung.at).is_ok_and(|at| at.dev() != dir.dev()));
        hung.signal(Signal::STOP);
        hung
    }

    fn signal(&self, signal: Signal) {
        let process = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(process, signal).unwrap();
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_whose_list_of_keys_is_on_a_file_system_that_hangs_says_so_and_does_not_start() {
    if !require_root() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("below")).unwrap();
    fs::write(world.path("below/keys"), "").unwrap();
    let _hung = Hung::mount(world.path("below"), world.path("disk"));
    for verb in [&["serve", "export"][..], &["stream", "receive"]] {
        let more = ["--authorized-keys", "disk/keys", "--listen", "127.0.0.1:0"];
        let mut server = world.gtp("server", &[verb, &more].concat());
        let mut server = server.stderr(Stdio::piped()).spawn().unwrap();
        wait_for("its end", || server.try_wait().unwrap().is_some());
        let output = server.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        assert!(said(&output).contains("disk/keys: the list of keys could not be read"));
    }
}

#[test]
fn a_file_system_that_ignores_a_change_of_one_time_keeps_both() {
    if !require_root() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("below")).unwrap();
    let _disk = Mount::by("bindfs", &[world.path("below").to_str().unwrap()], world.path("disk"));
    export(&world, &["a", "b", "d/c"]);
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let args = ["get", &url, "disk/out", "--json", "--accept-new"];
    assert_eq!(done(&world.expect(0, &args)), (3, 0));
    assert_eq!(fs::metadata(world.path("disk/out/d/c")).unwrap().mtime(), 1_577_836_801);
    assert_eq!(done(&world.expect(0, &args)), (0, 3));
}

#[test]
fn coarse_times_are_known_again_and_lost_permissions_are_said() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let _disk = Mount::ntfs(&world);
    export(&world, &["a", "b", "d/c"]);
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let args = ["get", &url, "disk/out", "--json", "--accept-new"];
    let first = world.expect(0, &args);
    assert_eq!(done(&first), (3, 0));
    assert!(String::from_utf8_lossy(&first.stdout).contains("keeps no permissions"));
    assert_eq!(fs::metadata(world.path("disk/out/a")).unwrap().mtime_nsec(), 123_456_700);
    assert_eq!(done(&world.expect(0, &args)), (0, 3));
    let newer = File::options().write(true).open(world.path("export/tree/a")).unwrap();
    newer.set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_577_836_801, 123_456_600)).unwrap();
    assert_eq!(done(&world.expect(0, &args)), (1, 2), "one step earlier is another time");
}

#[test]
fn names_that_are_one_name_at_the_destination_are_left_out_with_all_beneath_them() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let _disk = Mount::ntfs(&world);
    export(&world, &["Dir/f", "dir/f", "dir/g", "Same", "same", "z"]);
    let server = world.serve("server", &["--public"]);
    let output = world.expect(12, &["get", &server.url("tree"), "disk/out", "--accept-new"]);
    for left_out in ["out/dir:", "out/dir/f:", "out/dir/g:", "out/same:"] {
        assert!(said(&output).contains(left_out), "{left_out} in {}", said(&output));
    }
    let read = |name: &str| fs::read(world.path(name)).unwrap();
    for name in ["Dir/f", "Same", "z"] {
        assert!(
            read(&format!("disk/out/{name}")) == read(&format!("export/tree/{name}")),
            "{name}"
        );
    }
    assert!(!world.path("disk/out/dir/g").exists(), "nothing was mixed into the other directory");
}

/// Makes the kernel forget the files that nobody has open.
fn forget_files() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

#[test]
fn files_that_get_other_numbers_meanwhile_are_still_the_same_files() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let _disk = Mount::merged(&world);
    for n in 0..200 {
        world.export(&format!("tree/{n}"), 20_000);
    }
    let mut copy = Command::new("cp");
    copy.args(["-r", "export/tree", "disk/tree"]).current_dir(world.path(""));
    assert!(copy.status().unwrap().success());
    let number = || fs::metadata(world.path("disk/tree/7")).unwrap().ino();
    let before = number();
    forget_files();
    assert_ne!(before, number(), "this file system does not do what the test is about");
    let plain = world.serve("server", &["--public", "--max-rate", "40Mbit"]);
    let merged = world.serve_dir("server", "disk", &["--public", "--max-rate", "40Mbit"]);
    for (server, to) in [(&plain, "disk/out"), (&merged, "out")] {
        let url = server.url("tree");
        let args = ["get", &url, to, "--accept-new"];
        let get = world.gtp("client", &args).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("data", || size_of(&world.path(&format!("{to}/.gtp-journal"))) > 800);
        forget_files();
        let output = get.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(fs::read_dir(world.path(to)).unwrap().count(), 200);
    }
}

#[test]
fn a_name_that_the_file_system_does_not_take_is_said_to_be_that() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let _disk = Mount::new_ntfs(&world, "ntfs-3g", "windows_names");
    // With `.gtp-part` behind it, a name with a dot at its end is taken until it is whole.
    export(&world, &["a", "what?", "dot.", "dir./b"]);
    let server = world.serve("server", &["--public"]);
    let output = world.expect(12, &["get", &server.url("tree"), "disk/out", "--accept-new"]);
    for name in ["what?", "dot.", "dir."] {
        let words = format!("out/{name}: the file system does not take this name");
        assert_eq!(said(&output).matches(&words).count(), 1, "{name}: {}", said(&output));
    }
    assert_eq!(size_of(&world.path("disk/out/a")), 3_001);
    assert_eq!(fs::read_dir(world.path("disk/out")).unwrap().count(), 1, "no part is left");
    let output = world.expect(4, &["get", &server.url("tree/dot."), "disk/"]);
    assert!(said(&output).contains("dot.: the file system does not take"), "{}", said(&output));
}

#[test]
fn backups_where_attributes_and_owners_cannot_be_kept_are_made_and_one_line_names_what_they_lack() {
    if !require_root() {
        return;
    }
    let far = Sshd::with_gtp();
    let world = &far.world;
    fs::create_dir(world.path("below")).unwrap();
    let below = world.path("below");
    let lacks = ["--xattr-none", "--chown-deny", below.to_str().unwrap()];
    let disk = Mount::by("bindfs", &lacks, world.path("disk"));
    for (to, there) in [("there", world.path("there")), ("far:there", far.home("there"))] {
        fs::create_dir_all(&there).unwrap();
        for name in ["a", "b"] {
            world.export(&format!("tree/{name}"), 2_000);
            let there = there.join(name);
            fs::write(&there, name).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&there, "user.note", b"old", flags).unwrap();
            std::os::unix::fs::chown(&there, Some(7), Some(8)).unwrap();
        }
        let old = disk.0.join(to);
        let words = ["-aX", "--backup-dir", old.to_str().unwrap(), "export/tree/", to];
        let told = said(&ended(0, &words, far.gtp("sync", &words)));
        for what in ["extended attributes of 2 backups", "owner and group of 2 backups"] {
            assert_eq!(told.matches(what).count(), 1, "{to}: {told}");
        }
        for name in ["a", "b"] {
            assert_eq!(fs::read(old.join(name)).unwrap(), name.as_bytes());
            assert_eq!(fs::read(there.join(name)).unwrap().len(), 2_000);
        }
    }
}
