//! Sources that change, disks that fail, links that lie in the way, senders that die: the message,
//! the exit code, and what is left. Some of these need root for a small file system or another
//! user; without it they say that they were skipped, or fail where GTP_REQUIRE_ROOT=1 is set.

mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Serving, World, bytes, events, require_root, size_of, wait_for};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fetches a slow 12 MB file, does something to the source in the midst, and returns the end.
fn disturbed(world: &World, disturb: impl FnOnce(&Path)) -> (Serving, Output) {
    world.export("a", 12_000_000);
    let server = world.serve("server", &["--public", "--max-rate", "40Mbit"]);
    let url = server.url("a");
    let args = ["get", &url, "out", "--accept-new"];
    let get = world.gtp("client", &args).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("data", || size_of(&world.path("out.gtp-journal")) > 400);
    disturb(&world.path("export/a"));
    (server, get.wait_with_output().unwrap())
}

#[test]
fn a_source_that_shrinks_or_grows_while_it_is_sent_is_code_5_and_comes_whole_the_next_time() {
    for size in [5_000_000, 12_000_000 + 5] {
        let world = World::new();
        let new = bytes(size, 77);
        let (server, output) = disturbed(&world, |source| fs::write(source, &new).unwrap());
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        assert!(said(&output).contains("changed"), "{}", said(&output));
        assert!(!world.path("out").exists());
        world.expect(0, &["get", &server.url("a"), "out"]);
        assert!(fs::read(world.path("out")).unwrap() == new);
    }
}

#[test]
fn a_source_rewritten_with_the_same_size_never_arrives_as_a_mixture() {
    let world = World::new();
    let new = bytes(12_000_000, 78);
    let (server, output) = disturbed(&world, |source| fs::write(source, &new).unwrap());
    // Whether a retry begins anew with the new content depends on how far the first attempt was.
    let code = output.status.code();
    assert!([Some(0), Some(5)].contains(&code), "{code:?}: {}", said(&output));
    assert!(!said(&output).is_empty(), "what happened is said");
    assert_eq!(world.path("out").exists(), code == Some(0));
    if code == Some(0) {
        assert!(fs::read(world.path("out")).unwrap() == new, "what arrived is the new content");
    }
    world.expect(0, &["get", &server.url("a"), "out"]);
    assert!(fs::read(world.path("out")).unwrap() == new);
}

/// A file whose content a thread changes everywhere, several times in the least time that a fetch
/// of 12 MB at 40 Mbit/s takes; its length stays.
struct Restless {
    rests: Sender<()>,
    thread: JoinHandle<()>,
}

impl Restless {
    fn new(path: PathBuf) -> Restless {
        let (rests, told) = channel();
        let thread = thread::spawn(move || {
            let file = File::options().write(true).open(path).unwrap();
            let size = file.metadata().unwrap().len();
            for round in 0u64.. {
                for at in (0..size).step_by(65_536) {
                    file.write_all_at(&round.to_le_bytes(), at).unwrap();
                }
                if told.recv_timeout(Duration::from_millis(700)).is_ok() {
                    return;
                }
            }
        });
        Restless { rests, thread }
    }

    /// Returns when the last change is made.
    fn rest(self) {
        self.rests.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

/// Fetches a file that changes until all of it has been fetched anew `most` times. Returns the exit
/// code, and how often it was fetched anew.
fn fetched_while_restless(world: &World, url: &str, most: usize) -> (Option<i32>, usize) {
    let mut source = Some(Restless::new(world.path("export/a")));
    let args = ["get", url, "out", "--accept-new", "--json"];
    let mut get = world.gtp("client", &args).stdout(Stdio::piped()).spawn().unwrap();
    let mut renewals = 0;
    for line in BufReader::new(get.stdout.take().unwrap()).lines() {
        renewals += usize::from(line.unwrap().contains("\"renewed\""));
        if renewals >= most {
            source.take().into_iter().for_each(Restless::rest);
        }
    }
    source.into_iter().for_each(Restless::rest);
    (get.wait().unwrap().code(), renewals)
}

#[test]
fn a_source_that_comes_to_rest_arrives_as_it_was_last_and_one_that_never_rests_is_code_5() {
    for most in [1, usize::MAX] {
        let world = World::new();
        world.export("a", 12_000_000);
        let server = world.serve("server", &["--public", "--max-rate", "40Mbit"]);
        let (code, renewals) = fetched_while_restless(&world, &server.url("a"), most);
        // A machine on which no try gets anywhere, or on which the test reads late that all is
        // fetched anew, lets the source rest too late.
        let codes = match renewals {
            1 | 2 if most == 1 => [0, 0],
            3 if most == 1 => [0, 5],
            _ => [5, 5],
        };
        assert!(codes.map(Some).contains(&code), "{most}: {renewals}, {code:?}");
        assert_eq!(world.path("out").exists(), code == Some(0));
        world.expect(0, &["get", &server.url("a"), "out"]);
        let read = |name: &str| fs::read(world.path(name)).unwrap();
        assert!(read("out") == read("export/a"), "what arrives is the last content");
    }
}

#[test]
fn a_source_removed_while_it_is_sent_ends_in_words() {
    let world = World::new();
    let (_server, output) = disturbed(&world, |source| fs::remove_file(source).unwrap());
    // What is open can be read to its end; what is not found any more is missing.
    let code = output.status.code();
    assert!([Some(0), Some(3), Some(5)].contains(&code), "{code:?}: {}", said(&output));
    assert_eq!(world.path("out").exists(), code == Some(0));
    assert!(code == Some(0) || said(&output).contains("/a"), "{}", said(&output));
}

/// A small file system, gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf, options: &str) -> Disk {
        fs::create_dir(&at).unwrap();
        let disk = Disk(at);
        disk.run(&["-t", "tmpfs", "-o", options, "tmpfs"]);
        disk
    }

    fn run(&self, args: &[&str]) {
        let mount = Command::new("mount").args(args).arg(&self.0).status().unwrap();
        assert!(mount.success(), "mount {args:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !Command::new("umount").arg(&self.0).status().is_ok_and(|s| s.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_is_code_4_and_what_came_is_kept_until_there_is_room() {
    if !require_root() {
        return;
    }
    let world = World::new();
    for n in 0..6 {
        world.export(&format!("tree/{n}"), 2_000_000);
    }
    let server = world.serve("server", &["--public"]);
    let disk = Disk::mount(world.path("disk"), "size=5m");
    let url = server.url("tree");
    let output = world.expect(4, &["get", &url, "disk/out", "--accept-new"]);
    assert!(said(&output).to_lowercase().contains("space"), "{}", said(&output));
    disk.run(&["-o", "remount,size=50m"]);
    let again = world.expect(0, &["get", &url, "disk/out", "--json"]);
    for n in 0..6 {
        let read = |root: &str| fs::read(world.path(root).join(n.to_string())).unwrap();
        assert!(read("disk/out") == read("export/tree"), "{n}");
    }
    println!("resumed {}", events(&again).pop().unwrap()["resumed_bytes"]);
}

#[test]
fn a_read_only_disk_is_code_4() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    let _disk = Disk::mount(world.path("disk"), "size=1m,ro");
    let output = world.expect(4, &["get", &server.url("a"), "disk/a", "--accept-new"]);
    assert!(said(&output).to_lowercase().contains("read-only"), "{}", said(&output));
}

/// A user without rights, and a place for its configuration.
const NOBODY: u32 = 65_534;

fn home_of_nobody(world: &World) {
    fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(world.path("nobody")).unwrap();
    chown(world.path("nobody"), Some(NOBODY), Some(NOBODY)).unwrap();
}

/// A copy of the command where nobody may run it.
fn as_nobody(world: &World, args: &[&str]) -> Command {
    let own = world.gtp("nobody", args);
    let copy = world.path("gtp");
    if !copy.exists() {
        // By another process: while this one had it open for writing, a child that another thread
        // forks meanwhile would hold it so too, and nobody could run it ("text file busy").
        let copied = Command::new("cp").arg(own.get_program()).arg(&copy).status().unwrap();
        assert!(copied.success());
    }
    let mut command = Command::new(copy);
    command.env_clear().env("GTP_CONFIG_DIR", world.path("nobody")).current_dir(world.path(""));
    command.args(args).stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn a_directory_that_may_not_be_written_is_code_4() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("a", 10);
    home_of_nobody(&world);
    fs::create_dir(world.path("forbidden")).unwrap();
    let server = world.serve("server", &["--public"]);
    let args = ["get", &server.url("a"), "forbidden/a", "--accept-new"];
    let output = as_nobody(&world, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("forbidden"), "{}", said(&output));
    assert_eq!(fs::read_dir(world.path("forbidden")).unwrap().count(), 0);
}

/// A process that is killed while it writes into a directory that is closed even to its owner, and
/// into one that it makes: the same command gives both the modes that they are to have.
#[test]
fn a_get_that_is_killed_leaves_no_mode_that_the_next_run_does_not_put_right() {
    if !require_root() {
        return;
    }
    let world = World::new();
    home_of_nobody(&world);
    let mode = |name: &str| fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
    let close = |name: &str| {
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o555)).unwrap();
    };
    world.export("tree/closed/deep/a", 10);
    close("export/tree/closed/deep");
    close("export/tree/closed");
    let server = world.serve("server", &["--public", "--max-rate", "40Mbit"]);
    let url = server.url("tree");
    let args = ["get", &url, "nobody/out", "--accept-new"];
    let first = as_nobody(&world, &args).output().unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    world.export("tree/closed/deep/b", 12_000_000);
    world.export("tree/made/c", 10);
    close("export/tree/made");
    let mut get = as_nobody(&world, &args).spawn().unwrap();
    wait_for("data", || size_of(&world.path("nobody/out/.gtp-journal")) > 600);
    get.kill().unwrap();
    get.wait().unwrap();
    let modes = ["closed", "closed/deep", "made"].map(|dir| mode(&format!("nobody/out/{dir}")));
    assert_eq!(modes, [0o755, 0o755, 0o700], "what was killed had opened two and made another");
    let again = as_nobody(&world, &args).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", said(&again));
    let modes = ["closed", "closed/deep", "made"].map(|dir| mode(&format!("nobody/out/{dir}")));
    assert_eq!(modes, [0o555; 3]);
    assert_eq!(size_of(&world.path("nobody/out/closed/deep/b")), 12_000_000);
    assert!(!world.path("nobody/out/.gtp-journal").exists());
}

#[test]
fn a_source_that_may_not_be_read_is_code_4_alone_and_code_12_within_a_tree() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.export("tree/open", 10);
    world.export("tree/closed", 10);
    let closed = world.path("export/tree/closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    home_of_nobody(&world);
    let args = ["serve", "export", "--public", "--json", "--listen", "127.0.0.1:0"];
    let server = Serving::start(as_nobody(&world, &args));
    let output = world.expect(4, &["get", &server.url("tree/closed"), "x", "--accept-new"]);
    assert!(said(&output).contains("closed"), "{}", said(&output));
    let output = world.expect(12, &["get", &server.url("tree"), "out"]);
    assert!(said(&output).contains("closed"), "{}", said(&output));
    assert_eq!(size_of(&world.path("out/open")), 10);
    assert!(!world.path("out/closed").exists() && !world.path("x").exists());
}

#[test]
fn links_planted_in_a_destination_lead_nowhere() {
    let world = World::new();
    world.export("tree/sub/x", 700_000);
    world.export("tree/y", 10);
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    for planted in ["sub", "y", "y.gtp-part", ".gtp-journal"] {
        let out = format!("out-{planted}");
        fs::create_dir(world.path(&out)).unwrap();
        fs::create_dir(world.path(&format!("outside-{planted}"))).unwrap();
        let target = world.path(&format!("outside-{planted}")).join("target");
        symlink(
            if planted == "sub" { target.parent().unwrap() } else { &target },
            world.path(&out).join(planted),
        )
        .unwrap();
        let output = world.run("client", &["get", &url, &out, "--accept-new"]);
        let code = output.status.code();
        assert!(
            [Some(0), Some(4), Some(12)].contains(&code),
            "{planted}: {code:?} {}",
            said(&output)
        );
        let outside = fs::read_dir(target.parent().unwrap()).unwrap().count();
        assert_eq!(outside, 0, "{planted} led outside");
    }
    let output = world.expect(12, &["get", &url, "out-sub"]);
    assert!(said(&output).contains("sub"), "{}", said(&output));
}

#[test]
fn names_that_cannot_travel_are_named_and_the_rest_arrives() {
    let world = World::new();
    world.export("tree/good", 10);
    let bad: [&[u8]; 3] = [b"new\nline", b"esc\x1b[2J", b"latin\xe9"];
    for name in bad {
        let name = std::ffi::OsStr::from_bytes(name);
        fs::write(world.path("export/tree").join(name), b"x").unwrap();
    }
    let server = world.serve("server", &["--public"]);
    let output = world.expect(12, &["get", &server.url("tree"), "out", "--accept-new"]);
    assert!(!output.stderr.contains(&0x1b), "{}", said(&output));
    assert!(said(&output).contains("line"), "{}", said(&output));
    assert_eq!(fs::read_dir(world.path("out")).unwrap().count(), 1);
    assert_eq!(size_of(&world.path("out/good")), 10);
}

/// A writable server for this world's client.
fn writable(world: &World, more: &[&str]) -> Serving {
    world.list_client();
    world.serve("server", &[&["--writable", "--max-rate", "80Mbit"], more].concat())
}

#[test]
fn a_put_that_is_killed_goes_on_where_it_was() {
    let world = World::new();
    let content = world.export("../mine", 20_000_000);
    let server = writable(&world, &[]);
    let url = server.url("new");
    let args = ["put", "mine", &url, "--accept-new", "--json"];
    let journal = world.path("export/new.gtp-journal");
    for kill in 1..3 {
        let mut put = world.gtp("client", &args).stdout(Stdio::null()).spawn().unwrap();
        wait_for("blocks", || size_of(&journal) > kill * 49 * 15);
        put.kill().unwrap();
        put.wait().unwrap();
        assert!(!world.path("export/new").exists());
    }
    wait_for("the last attempt", || world.run("client", &args).status.success());
    assert!(fs::read(world.path("export/new")).unwrap() == content);
    assert!(!journal.exists());
}

#[test]
fn a_put_meets_a_server_that_is_restarted_again() {
    let world = World::new();
    let content = world.export("../mine", 20_000_000);
    let mut server = writable(&world, &["--no-path-bound"]);
    let url = server.url("new");
    let args = ["put", "mine", &url, "--accept-new", "--no-path-bound", "--json"];
    let put = world.gtp("client", &args).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("blocks", || size_of(&world.path("export/new.gtp-journal")) > 49 * 15);
    server.kill();
    let listen = format!("127.0.0.1:{}", server.port);
    let _server = writable(&world, &["--no-path-bound", "--listen", &listen]);
    let output = put.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(common::warnings(&output, "nothing bounds this transfer"), 1);
    assert!(fs::read(world.path("export/new")).unwrap() == content);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_ends_neither_end() {
    let world = World::new();
    world.list_client();
    world.export("big", 2_000_000);
    let limited = |end: &str, args: &[&str]| {
        let gtp = world.gtp(end, args);
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("GTP_CONFIG_DIR", world.path(end)).current_dir(world.path(""));
        // In blocks of 512 bytes.
        shell.args(["-c", "ulimit -f 1000; exec \"$@\"", "sh"]).arg(gtp.get_program());
        shell.args(args).stdin(Stdio::null());
        shell
    };
    let listen = ["serve", "export", "--writable", "--json", "--listen", "127.0.0.1:0"];
    let server = Serving::start(limited("server", &listen));
    let (root, big) = (server.url(""), server.url("big"));
    fs::write(world.path("large"), bytes(2_000_000, 1)).unwrap();
    fs::write(world.path("small"), b"x").unwrap();
    let refused = |output: Output| {
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(said(&output).contains("the file is too large here"), "{}", said(&output));
    };
    refused(world.run("client", &["put", "large", &root, "--accept-new"]));
    world.expect(0, &["put", "small", &root]);
    refused(limited("client", &["get", &big, "out"]).output().unwrap());
    let mut to_file = limited("client", &["get", &big, "-"]);
    to_file.stdout(File::create(world.path("stream")).unwrap());
    refused(to_file.output().unwrap());
}

/// A tree of many small files and one that takes some seconds.
fn slow_tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    for file in 0..100 {
        fs::write(at.join(format!("z{file}")), bytes(20_000, file)).unwrap();
        fs::write(at.join(format!("sub/z{file}")), bytes(20_000, file)).unwrap();
    }
    fs::write(at.join("a"), bytes(6_000_000, 7)).unwrap();
}

#[test]
fn a_directory_that_is_removed_or_replaced_while_it_is_filled_is_named_once_and_code_4() {
    let world = World::new();
    world.list_client();
    slow_tree(&world.path("export/tree"));
    slow_tree(&world.path("mine"));
    let server = world.serve("server", &["--writable"]);
    let remove = |dir: &Path| while fs::remove_dir_all(dir).is_err() {};
    let replace = |dir: &Path| {
        remove(dir);
        fs::write(dir, b"x").unwrap();
    };
    let (tree, root, new) = (server.url("tree"), server.url(""), server.url("new"));
    let cases = [
        (["get", &tree, "got"], "got"),
        (["get", &tree, "got/"], "got/tree"),
        (["put", "mine", &root], "export/mine"),
        (["put", "mine", &new], "export/new"),
    ];
    for happens in [&remove as &dyn Fn(&Path), &replace] {
        for (words, place) in &cases {
            let place = world.path(place);
            let args = [&words[..], &["--accept-new", "--max-rate", "30Mbit"]].concat();
            let run = world.gtp("client", &args).stderr(Stdio::piped()).spawn().unwrap();
            wait_for("data", || size_of(&place.join("a.gtp-part")) > 0);
            happens(&place);
            let output = run.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(4), "{args:?} {}", said(&output));
            let told = said(&output);
            let lines = told.lines().filter(|line| line.contains("was removed while"));
            assert_eq!(lines.count(), 1, "{args:?} {told}");
            assert!(!told.contains("does not take this name"), "{args:?} {told}");
            let _ = fs::remove_file(&place);
            let _ = fs::remove_dir_all(world.path("got"));
        }
    }
}
