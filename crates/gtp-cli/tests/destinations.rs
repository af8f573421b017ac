//! Destinations as they are: read-only directories, file systems and sandboxes that refuse calls,
//! a umask, a standard output that is closed or full. Data arrive, or it is said that they do not.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use common::{Serving, World, bytes, events, require_root};
use seccompiler::{SeccompAction, SeccompFilter};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A user without rights.
const NOBODY: u32 = 65_534;

/// The command as a user without rights, who owns the directory `nobody`.
fn unprivileged(world: &World, args: &[&str]) -> Command {
    let own = world.gtp("nobody/config", args);
    let home = world.path("nobody");
    if !is_root() {
        fs::create_dir_all(home).unwrap();
        return own;
    }
    let copy = world.path("gtp");
    if !copy.exists() {
        fs::set_permissions(world.path(""), Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&home).unwrap();
        chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        // By another process: a child that another thread forks must not hold it open for writing.
        assert!(Command::new("cp").arg(own.get_program()).arg(&copy).status().unwrap().success());
    }
    let mut command = Command::new(copy);
    let config = world.path("nobody/config");
    command.env_clear().env("GTP_CONFIG_DIR", config).current_dir(world.path(""));
    command.args(args).stdin(Stdio::null()).uid(NOBODY).gid(NOBODY);
    command
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, bits: u32) {
    fs::set_permissions(path, Permissions::from_mode(bits)).unwrap();
}

#[test]
fn a_second_run_writes_beneath_directories_that_are_closed_to_their_owner_and_closes_them_again() {
    let world = World::new();
    let tree = world.path("export/tree");
    let write = |round: u8| {
        for dir in ["ro", "zero/sub", "open"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
            fs::write(tree.join(dir).join("f"), vec![round; 700_000]).unwrap();
        }
        fs::write(tree.join("read-only"), vec![round; usize::from(round)]).unwrap();
    };
    write(1);
    set_mode(&tree.join("read-only"), 0o444);
    set_mode(&tree.join("ro"), 0o555);
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let args = ["get", &url, "nobody/all", "--accept-new"];
    let first = unprivileged(&world, &args).output().unwrap();
    assert_eq!(first.status.code(), Some(0), "{}", said(&first));
    let all = world.path("nobody/all");
    assert_eq!((mode(&all.join("ro")), mode(&all.join("read-only"))), (0o555, 0o444));
    for (round, bits) in [(2, 0), (3, 0o500), (4, 0o300)] {
        set_mode(&tree.join("ro"), 0o755);
        set_mode(&tree.join("read-only"), 0o644);
        write(round);
        set_mode(&tree.join("ro"), 0o555);
        set_mode(&tree.join("read-only"), 0o444);
        set_mode(&all.join("zero"), bits);
        let again = unprivileged(&world, &args).output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{round}: {}", said(&again));
        assert_eq!(mode(&all.join("ro")), 0o555);
        set_mode(&all.join("zero"), 0o700);
        for file in ["ro/f", "zero/sub/f", "open/f", "read-only"] {
            assert_eq!(fs::read(all.join(file)).unwrap()[0], round, "{file}");
        }
    }
    set_mode(&all.join("ro"), 0o755);
}

#[test]
fn what_belongs_to_others_is_named_and_the_rest_is_written() {
    if !require_root() {
        return;
    }
    let world = World::new();
    for file in ["theirs/f", "mine/f", "top"] {
        world.export(&format!("tree/{file}"), 300_000);
    }
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let args = ["get", &url, "nobody/all", "--accept-new"];
    assert_eq!(unprivileged(&world, &args).status().unwrap().code(), Some(0));
    let all = world.path("nobody/all");
    chown(all.join("theirs"), Some(0), Some(0)).unwrap();
    for file in ["theirs/f", "mine/f", "top"] {
        world.export(&format!("tree/{file}"), 400_000);
    }
    let again = unprivileged(&world, &args).output().unwrap();
    assert_eq!(again.status.code(), Some(12), "{}", said(&again));
    assert!(said(&again).contains("theirs/f"), "{}", said(&again));
    for (file, size) in [("theirs/f", 300_000), ("mine/f", 400_000), ("top", 400_000)] {
        assert_eq!(fs::metadata(all.join(file)).unwrap().len(), size, "{file}");
    }
    assert!(!all.join(".gtp-journal").exists());
}

#[test]
fn obstacles_at_some_names_of_a_tree_are_named_and_the_rest_arrives_in_both_directions() {
    let world = World::new();
    let names = ["dir-here", "link-here", "fifo-here", "good", "under/x", "under/y"];
    for name in names {
        world.export(&format!("tree/{name}"), 300_000);
        fs::create_dir_all(world.path("mine/under")).unwrap();
        fs::write(world.path("mine").join(name), bytes(300_000, 4)).unwrap();
    }
    world.list_client();
    let server = world.serve("server", &["--writable"]);
    for out in ["out", "export/mine"] {
        let path = |name: &str| world.path(out).join(name);
        fs::create_dir_all(path("dir-here")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("link-here")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo-here"), rustix::fs::Mode::RUSR).unwrap();
        fs::write(path("under"), "a file").unwrap();
        let (url, root) = (server.url("tree"), server.url(""));
        let args = match out {
            "out" => ["get", &url, out, "--accept-new"],
            _ => ["put", "mine", &root, "--accept-new"],
        };
        let output = world.expect(12, &args);
        for name in ["dir-here", "link-here", "fifo-here", "under"] {
            assert!(said(&output).contains(name), "{out} {name}: {}", said(&output));
        }
        assert_eq!(fs::metadata(path("good")).unwrap().len(), 300_000);
        assert!(path("dir-here").is_dir() && path("link-here").is_symlink());
        assert_eq!(fs::read(path("under")).unwrap(), b"a file");
    }
}

#[test]
fn modes_of_a_source_are_held_to_the_umask_and_lose_their_special_bits() {
    let world = World::new();
    for (name, bits) in [("a", 0o4755), ("b", 0o666), ("c", 0o777), ("d", 0)] {
        world.export(&format!("tree/{name}"), 10);
        set_mode(&world.path(&format!("export/tree/{name}")), bits);
    }
    if !is_root() {
        set_mode(&world.path("export/tree/d"), 0o400);
    }
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let get = world.gtp("client", &["get", &url, "out", "--accept-new"]);
    let masked = through_shell("umask 027; exec \"$@\"", get).output().unwrap();
    assert_eq!(masked.status.code(), Some(0), "{}", said(&masked));
    for (name, bits) in [("a", 0o750), ("b", 0o640), ("c", 0o750)] {
        assert_eq!(mode(&world.path("out").join(name)), bits, "{name}");
    }
}

/// Runs a command by a shell's script, which finds it in its arguments.
fn through_shell(script: &str, command: Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
    shell.env_clear().stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    if let Some(dir) = command.get_current_dir() {
        shell.current_dir(dir);
    }
    shell
}

#[test]
fn data_that_standard_output_does_not_take_are_a_failure_and_no_success() {
    let world = World::new();
    world.export("a", 300_000);
    let server = world.serve("server", &["--public"]);
    let url = server.url("a");
    world.expect(0, &["ls", &url, "--accept-new"]);
    let run = |script: &str, args: &[&str]| {
        let output = through_shell(script, world.gtp("client", args)).output().unwrap();
        (output.status.code(), said(&output))
    };
    let refusing = ["exec \"$@\" >&-", "exec \"$@\" > /dev/full", "exec \"$@\" 1< /dev/null"];
    for script in refusing {
        for args in [
            &["get", &url, "-"][..],
            &["ls", &url],
            &["ls", &url, "--json"],
            &["id"],
            &["--version"],
        ] {
            let (code, said) = run(script, args);
            assert_eq!(code, Some(4), "{script} {args:?}: {said}");
            let why = said.contains("standard output") || said.contains("no space");
            assert!(why, "{script} {args:?}: {said}");
        }
        let out = format!("out{}", script.len());
        let (code, said) = run(script, &["get", &url, &out, "--json"]);
        assert_eq!(code, Some(4), "{script}: {said}");
        assert_eq!(fs::metadata(world.path(&out)).unwrap().len(), 300_000, "the work is done");
    }
    assert_eq!(run("exec \"$@\" > /dev/null", &["get", &url, "-"]).0, Some(0));
    let listen = ["stream", "receive", "--listen", "127.0.0.1:0", "--public"];
    let (code, said) = run("exec \"$@\" >&-", &listen);
    assert_eq!((code, said.contains("standard output")), (Some(4), true), "{said}");
    let (code, said) = run("exec \"$@\" <&-", &["stream", "send", "--listen", "127.0.0.1:0"]);
    assert_eq!((code, said.contains("standard input")), (Some(3), true), "{said}");
}

/// Calls that data do not need, and how file systems and sandboxes refuse them.
const CALLS: [(&str, i64); 12] = [
    ("flock", libc::SYS_flock),
    ("fchmod", libc::SYS_fchmod),
    ("fchmodat", libc::SYS_fchmodat),
    ("utimensat", libc::SYS_utimensat),
    ("fallocate", libc::SYS_fallocate),
    ("fsync", libc::SYS_fsync),
    ("syncfs", libc::SYS_syncfs),
    ("fadvise64", libc::SYS_fadvise64),
    ("ftruncate", libc::SYS_ftruncate),
    ("faccessat", libc::SYS_faccessat),
    ("renameat2", libc::SYS_renameat2),
    ("statx", libc::SYS_statx),
];

const REFUSALS: [(&str, i32); 7] = [
    ("ENOSYS", libc::ENOSYS),
    ("EPERM", libc::EPERM),
    ("EACCES", libc::EACCES),
    ("EINVAL", libc::EINVAL),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EROFS", libc::EROFS),
    ("EXDEV", libc::EXDEV),
];

/// What [`refusing_wrapper`] is to refuse.
const REFUSE: &str = "GTP_TEST_REFUSE";

/// Not a test but a program: becomes the command in its environment, with one call refused.
#[test]
fn refusing_wrapper() {
    let Ok(order) = std::env::var(REFUSE) else { return };
    let mut words = order.split('\n');
    let number = |word: Option<&str>| word.unwrap().parse::<i64>().unwrap();
    let (call, errno) = (number(words.next()), number(words.next()));
    let rules = BTreeMap::from([(call, Vec::new())]);
    let refused = SeccompAction::Errno(u32::try_from(errno).unwrap());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_remove(REFUSE);
    seccompiler::apply_filter(&program).unwrap();
    panic!("{}", command.exec());
}

/// The command under a filter that refuses one call with one error.
fn refusing(command: Command, call: i64, errno: i32) -> Command {
    let mut order = format!("{call}\n{errno}\n{}", command.get_program().to_str().unwrap());
    for word in command.get_args() {
        order.push('\n');
        order.push_str(word.to_str().unwrap());
    }
    let mut wrapper = Command::new(std::env::current_exe().unwrap());
    wrapper.args(["--exact", "refusing_wrapper", "--nocapture"]).env_clear();
    for (name, value) in command.get_envs() {
        wrapper.env(name, value.unwrap());
    }
    wrapper.current_dir(command.get_current_dir().unwrap()).env(REFUSE, order);
    wrapper.stdin(Stdio::null());
    wrapper
}

/// Every call with every refusal, shared out to a few threads.
fn each_refusal(check: impl Fn(&str, i64, i32) + Sync) {
    let mut all = Vec::new();
    for (call, number) in CALLS {
        for (error, errno) in REFUSALS {
            all.push((format!("{call} {error}"), number, errno));
        }
    }
    all.push(("flock ENOLCK".to_owned(), libc::SYS_flock, libc::ENOLCK));
    all.push(("fchmod EIO".to_owned(), libc::SYS_fchmod, libc::EIO));
    all.push(("utimensat ENOTTY".to_owned(), libc::SYS_utimensat, libc::ENOTTY));
    let left = Mutex::new(all);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((what, call, errno)) = left.lock().unwrap().pop() else { return };
                    check(&what, call, errno);
                }
            });
        }
    });
}

/// A small tree with what the calls are for: a large file with a hole, an empty one, directories.
fn small_tree(at: &Path) {
    fs::create_dir_all(at.join("sub")).unwrap();
    let mut holed = bytes(600_000, 1);
    holed[262_144..524_288].fill(0);
    fs::write(at.join("holed"), holed).unwrap();
    fs::write(at.join("sub/empty"), b"").unwrap();
    for n in 0..5 {
        fs::write(at.join(format!("sub/{n}")), bytes(2_000, n)).unwrap();
    }
}

fn assert_same(a: &Path, b: &Path, what: &str) {
    for name in ["holed", "sub/empty", "sub/0", "sub/1", "sub/2", "sub/3", "sub/4"] {
        assert!(
            fs::read(a.join(name)).unwrap() == fs::read(b.join(name)).unwrap(),
            "{what} {name}"
        );
    }
}

#[test]
fn a_fetch_arrives_whatever_call_is_refused_that_data_do_not_need_and_warns_once() {
    let world = World::new();
    small_tree(&world.path("export/tree"));
    let server = world.serve("server", &["--public"]);
    let url = server.url("tree");
    let key = &server.fingerprint;
    each_refusal(|what, call, errno| {
        let (client, out) = (format!("client {what}"), format!("out {what}"));
        let get = world.gtp(&client, &["get", &url, &out, "--fingerprint", key]);
        let output = refusing(get, call, errno).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{what}: {}", said(&output));
        assert_same(&world.path("export/tree"), &world.path(&out), what);
        let warnings = said(&output).matches("gtp: the destination").count();
        let lacks =
            ["flock", "fchmod", "utimensat", "fsync"].iter().any(|call| what.starts_with(call));
        assert_eq!(warnings, usize::from(lacks), "{what}: {}", said(&output));
        let left: Vec<_> = fs::read_dir(world.path(&out)).unwrap().collect();
        assert_eq!(left.len(), 2, "{what}: {left:?}");
    });
}

#[test]
fn a_server_takes_what_is_sent_and_serves_it_whatever_call_is_refused_that_data_do_not_need() {
    let world = World::new();
    small_tree(&world.path("tree"));
    let id = world.expect(0, &["id"]);
    each_refusal(|what, call, errno| {
        let end = format!("server {what}");
        let export = format!("export {what}");
        fs::create_dir_all(world.path(&end)).unwrap();
        fs::create_dir_all(world.path(&export)).unwrap();
        fs::write(world.path(&end).join("authorized_keys"), &id.stdout).unwrap();
        let args = ["serve", &export, "--writable", "--json", "--listen", "127.0.0.1:0"];
        let server = Serving::start_after(refusing(world.gtp(&end, &args), call, errno));
        let key = &server.fingerprint;
        let put = world.run("client", &["put", "tree", &server.url(""), "--fingerprint", key]);
        assert_eq!(put.status.code(), Some(0), "{what}: {}", said(&put));
        assert_same(&world.path("tree"), &world.path(&export).join("tree"), what);
        let out = format!("out {what}");
        let get = world.run("client", &["get", &server.url("tree"), &out, "--fingerprint", key]);
        assert_eq!(get.status.code(), Some(0), "{what}: {}", said(&get));
        assert_same(&world.path("tree"), &world.path(&out), what);
    });
}

#[test]
fn what_a_destination_lacks_is_an_event_for_programs() {
    let world = World::new();
    world.export("a", 10);
    let server = world.serve("server", &["--public"]);
    let args = ["get", &server.url("a"), "out", "--json", "--accept-new"];
    let get = world.gtp("client", &args);
    let mut output = refusing(get, libc::SYS_utimensat, libc::EPERM).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let json: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    output.stdout = json.join("\n").into_bytes();
    let all = events(&output);
    let warnings: Vec<_> = all.iter().filter(|event| event["event"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "{all:?}");
    assert!(warnings[0]["message"].as_str().unwrap().contains("keeps no times"));
}
