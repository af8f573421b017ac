//! `gtp cp` from behind one login to behind another one: two real sshd's, and far ends that lie.
//!
//! What needs the network to be blocked has three namespaces, and needs root; the rest is on
//! loopback, with two sshd's whose logins have homes of their own.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use common::hosts::{FAR_ENDS, Triangle};
use common::sshd::Sshd;
use common::{World, events, require_root, size_of, wait_for};
use rustix::process::{Pid, Signal, kill_process};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two hosts that ssh logs in to, as `a` and `b`, and where gtp runs.
struct Two {
    a: Sshd,
    b: Sshd,
    world: World,
    hosts: Option<Triangle>,
}

impl Two {
    /// On loopback.
    fn new() -> Two {
        Two::of(Sshd::with_gtp(), Sshd::with_gtp(), None)
    }

    /// Each in a network of its own.
    fn apart() -> Two {
        let hosts = Triangle::new();
        let sshd = |number: usize| {
            Sshd::with_gtp_at((FAR_ENDS[number], 22), |sshd| hosts.far(number, &sshd))
        };
        let (a, b) = (sshd(0), sshd(1));
        Two::of(a, b, Some(hosts))
    }

    fn of(a: Sshd, b: Sshd, hosts: Option<Triangle>) -> Two {
        let world = World::new();
        let mut config = String::new();
        for (sshd, name) in [(&a, "a"), (&b, "b")] {
            let own = std::fs::read_to_string(sshd.world.path("ssh.conf")).unwrap();
            config += &own.replace("Host far", &format!("Host {name}"));
        }
        std::fs::write(world.path("ssh.conf"), config).unwrap();
        Two { a, b, world, hosts }
    }

    fn ssh(&self) -> String {
        format!("ssh -F {}", self.world.path("ssh.conf").display())
    }

    fn cp(&self, words: &[&str]) -> Command {
        let mut command = self.world.gtp("client", &[&["cp"], words].concat());
        command.env("GTP_SSH", self.ssh()).env("PATH", "/usr/bin:/bin").env("GTP_DAEMON", "off");
        match &self.hosts {
            Some(hosts) => hosts.near(&command),
            None => command,
        }
    }

    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) -> Output {
        let output = self.cp(words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
        self.expect_nobody();
        output
    }

    #[track_caller]
    fn expect_nobody(&self) {
        wait_for("the end of the far ends", || self.a.far_ends() + self.b.far_ends() == 0);
    }

    /// What is at the destination.
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.b.home(name)).unwrap_or_default()
    }

    /// Starts a copy of a large file, slowly, and waits until a part of it is there.
    fn begin(&self) -> (Vec<u8>, std::process::Child) {
        let content = self.a.file("large", 12 << 20);
        let mut command = self.cp(&["a:large", "b:got", "--max-rate", "16Mbit", "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("a part of it", || size_of(&self.b.home("got.gtp-part")) > 0);
        (content, child)
    }

    /// Repeats the copy; returns how many bytes were there already.
    #[track_caller]
    fn resume(&self, content: &[u8]) -> u64 {
        let again = self.expect(0, &["a:large", "b:got", "--json"]);
        assert!(self.read("got") == content);
        events(&again).pop().unwrap()["resumed_bytes"].as_u64().unwrap()
    }

    /// A program in place of ssh: for one login a script, for the other ssh.
    fn instead(&self, login: &str, script: &str) -> String {
        let ssh = self.ssh();
        let own = format!("case \"$1\" in {login}) {script} ;; *) exec {ssh} \"$@\" ;; esac");
        self.a.instead(&own)
    }

    #[track_caller]
    fn lied_to(&self, code: i32, login: &str, script: &str) -> String {
        let mut command = self.cp(&["a:x", "b:y", "--retry-for", "1s", "--json"]);
        let output = command.env("GTP_SSH", self.instead(login, script)).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{script}: {said}");
        let is_harmless = |c: char| c == '\n' || !c.is_control();
        assert!(said.chars().all(is_harmless), "{said:?}");
        assert!(self.read("y").is_empty(), "{script}");
        self.expect_nobody();
        said
    }
}

fn kill(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[test]
fn files_trees_and_patterns_go_from_one_login_to_another_with_their_names() {
    let two = Two::new();
    let (file, deep) = (two.a.file("t/f", 3_000_000), two.a.file("t/deep/x", 70_000));
    two.expect(0, &["a:t/f", "b:named"]);
    two.expect(0, &["a:t", "b:into/"]);
    two.expect(0, &["a:t/", "b:flat"]);
    assert!(two.read("named") == file && two.read("into/t/f") == file);
    assert!(two.read("into/t/deep/x") == deep && two.read("flat/deep/x") == deep);
    // All matches of a pattern, and several paths, are one transfer.
    let one = two.a.file("logs/1.gz", 1_000);
    two.a.file("logs/2.gz", 2_000);
    two.a.file("logs/.3.gz", 3_000);
    let several = two.expect(0, &["a:logs/*.gz", "a:t/f", "b:all/", "--json"]);
    let done = events(&several).into_iter().filter(|event| event["event"] == "done");
    assert_eq!(done.map(|done| done["files_written"].clone()).collect::<Vec<_>>(), [3]);
    assert!(two.read("all/1.gz") == one && two.read("all/f") == file);
    assert!(!two.b.home("all/.3.gz").exists());
    // Again: nothing is sent.
    let again = events(&two.expect(0, &["a:t", "b:into/", "--json"])).pop().unwrap();
    assert_eq!((&again["files_written"], &again["files_unchanged"]), (&0.into(), &2.into()));
    // Only what was copied is left at either end, and no key anywhere.
    let mut left: Vec<_> = std::fs::read_dir(two.a.home("")).unwrap().flatten().collect();
    left.retain(|entry| ![".cache", "t", "logs"].iter().any(|name| entry.file_name() == *name));
    assert!(left.is_empty() && !two.world.path("client").exists(), "{left:?}");
}

/// A far end of a release that does not know how a path may be used: it does not say that it does,
/// and ends when it is told of it.
const OLDER: &str = r#"#!/usr/bin/env python3
import os, subprocess, sys, threading
child = subprocess.Popen([REAL, *sys.argv[1:]], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, bufsize=0)
def orders():
    while piece := os.read(0, 65536):
        if b'path_use' in piece:
            print('unknown field', file=sys.stderr)
            child.kill()
        child.stdin.write(piece)
    child.stdin.close()
threading.Thread(target=orders, daemon=True).start()
while line := child.stdout.readline():
    os.write(1, line.replace(b'+path', b''))
    if b'sends' in line:
        break
while piece := os.read(child.stdout.fileno(), 65536):
    os.write(1, piece)
sys.exit(child.wait())
"#;

#[test]
fn a_far_end_that_does_not_know_the_use_of_paths_sends_without_it_and_that_is_said() {
    let two = Two::new();
    let older = two.a.world.path("older");
    let real = format!("{:?}", env!("CARGO_BIN_EXE_gtp"));
    std::fs::write(&older, OLDER.replace("REAL", &real)).unwrap();
    std::fs::set_permissions(&older, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::remove_file(two.a.cached()).unwrap();
    two.a.cache(&older);
    let content = two.a.file("x", 300_000);
    let told = said(&two.expect(0, &["--path-flows", "4", "a:x", "b:got"]));
    assert!(told.contains("a: gtp there is too old for --path-flows"), "{told}");
    assert!(two.read("got") == content);
    let plain = said(&two.expect(0, &["a:x", "b:again"]));
    assert!(!plain.contains("too old"), "{plain}");
}

#[test]
fn sources_of_several_logins_go_to_one_destination_and_one_that_fails_keeps_back_no_other() {
    let two = Two::new();
    let (x, y) = (two.a.file("x", 10_000), two.b.file("y", 20_000));
    two.expect(0, &["a:x", "b:y", "b:got/"]);
    assert!(two.read("got/x") == x && two.read("got/y") == y);
    let partly = said(&two.expect(12, &["a:none", "b:y", "b:again/"]));
    assert!(partly.contains("none: no such file"), "{partly}");
    assert!(two.read("again/y") == y);
    let partly = said(&two.expect(12, &["a:none", "a:x", "a:no*", "b:third"]));
    assert!(partly.contains("none: no such file") && partly.contains("no*: "), "{partly}");
    assert!(two.read("third/x") == x, "beneath the destination, as if all were there");
    two.expect(3, &["a:none", "a:lost", "b:fourth"]);
    let missing = said(&two.expect(3, &["a:none", "b:out"]));
    assert!(missing.contains("a: none: no such file or directory"), "{missing}");
    let no_place = said(&two.expect(4, &["a:x", "b:none/deep/x"]));
    assert!(no_place.contains("b: none/deep/x"), "{no_place}");
    two.expect(5, &["a:x", "nobody@b:out"]);
}

#[test]
fn between_two_hosts_the_data_take_the_direct_way_and_not_the_one_through_here() {
    if !require_root() {
        return;
    }
    let two = Two::apart();
    let content = two.a.file("large", 20_000_000);
    let copied = two.expect(0, &["a:large", "b:got", "--json"]);
    assert!(two.read("got") == content);
    assert!(!said(&copied).contains("through here"), "{}", said(&copied));
    let events = events(&copied);
    assert!(events.iter().all(|event| event["event"] != "carrier"), "{events:?}");
    assert!(events.iter().any(|event| event["event"] == "progress"), "{events:?}");
    let done = events.last().unwrap();
    assert_eq!((&done["event"], &done["bytes"]), (&"done".into(), &20_000_000.into()));
    let hosts = two.hosts.as_ref().unwrap();
    assert!(hosts.came_near(0) + hosts.came_near(1) < 1_000_000, "the data came through here");
}

#[test]
fn where_the_two_cannot_reach_each_other_the_data_go_through_here_and_one_line_says_so() {
    if !require_root() {
        return;
    }
    let two = Two::apart();
    two.hosts.as_ref().unwrap().part();
    let (f, x) = (two.a.file("t/f", 6_000_000), two.a.file("t/deep/x", 70_000));
    let copied = two.expect(0, &["a:t", "b:"]);
    assert!(two.read("t/f") == f && two.read("t/deep/x") == x);
    let words = "gtp: a cannot reach b: the data go through here, which is slower";
    assert_eq!(said(&copied).trim(), words);
    assert!(two.hosts.as_ref().unwrap().came_near(0) > 6_000_000);
    let insisted = two.expect(11, &["a:t", "b:second", "--udp", "only"]);
    assert!(said(&insisted).contains("--port"), "{}", said(&insisted));
}

#[test]
fn either_far_end_may_be_killed_the_other_one_goes_and_the_copy_can_be_repeated() {
    for is_sender in [true, false] {
        let two = Two::new();
        let (content, running) = two.begin();
        let sshd = if is_sender { &two.a } else { &two.b };
        for id in sshd.far_end_ids() {
            kill(id, Signal::KILL);
        }
        let ended = running.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(5), "{is_sender}: {}", said(&ended));
        let name = if is_sender { "a: ssh " } else { "b: ssh " };
        let text = said(&ended);
        assert!(text.contains(name) && text.contains("repeat the command"), "{text}");
        two.expect_nobody();
        // A receiver that is killed may not have noted what it has.
        let resumed = two.resume(&content);
        assert!(resumed > 0 || !is_sender);
    }
}

#[test]
fn an_interrupt_ends_both_far_ends_and_what_is_complete_is_kept() {
    for (signal, code) in [(Signal::INT, Some(130)), (Signal::KILL, None)] {
        let two = Two::new();
        let (content, running) = two.begin();
        kill(running.id() as i32, signal);
        let ended = running.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), code, "{}", said(&ended));
        two.expect_nobody();
        assert!(two.resume(&content) > 0);
    }
    let two = Two::new();
    two.a.file("large", 12 << 20);
    let words = ["a:large", "b:got", "--max-rate", "16Mbit", "--time-limit", "1s"];
    two.expect(10, &words);
}

/// A frame of a message, as `printf` writes it.
fn frame(message: &str) -> String {
    let (high, low) = (message.len() / 256, message.len() % 256);
    format!("printf 'M\\0\\0\\0\\0\\{high:03o}\\{low:03o}%s' '{message}'")
}

#[test]
fn a_far_end_that_lies_about_the_transfer_is_refused_in_harmless_words() {
    let two = Two::new();
    two.a.file("x", 1_000);
    let key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let version = env!("CARGO_PKG_VERSION");
    let sends = |then: &str| {
        let json = format!("{{\"sends\":{{\"version\":\"{version}\",\"key\":\"{key}\"}}}}");
        format!("echo 'gtp-hello/1 {json}'; {then}; cat >/dev/null")
    };
    two.lied_to(1, "a", &sends(&frame("{\"done\":{}}")));
    two.lied_to(1, "a", &sends(&frame("nonsense")));
    let garbage = two.lied_to(1, "a", &sends("echo nonsense"));
    assert!(garbage.contains("no report"), "{garbage}");
    let failed = "{\"failed\":{\"kind\":\"missing\",\"text\":\"\\u001b[2J\"}}";
    let shown = two.lied_to(3, "a", &sends(&frame(failed)));
    assert!(shown.contains("u{1b}[2J"), "{shown}");
    // One that answers another question.
    let failed = format!(
        "{{\"ready\":{{\"version\":\"{version}\",\"key\":\"{key}\",\
        \"addresses\":[],\"port\":1,\"found\":[]}}}}"
    );
    two.lied_to(1, "a", &format!("echo 'gtp-hello/1 {failed}'; cat >/dev/null"));
}

#[test]
fn what_failed_in_one_attempt_and_came_in_the_next_is_not_missing_at_the_end() {
    let two = Two::new();
    two.a.file("x", 1_000);
    let key = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";
    let version = env!("CARGO_PKG_VERSION");
    let sends = format!("{{\"sends\":{{\"version\":\"{version}\",\"key\":\"{key}\"}}}}");
    let skipped = "{\"skipped\":{\"kind\":\"partial\",\"text\":\"x: changed\"}}";
    let failure = "{\"kind\":\"temporary\",\"text\":\"the line broke\"}";
    let retry = format!("{{\"retry\":{{\"failure\":{failure},\"after_ms\":10}}}}");
    let numbers = "{\"bytes\":9,\"resumed_bytes\":0,\"rechecked\":0,\"total\":9,\
        \"wire_bytes\":9,\"duplicate_bytes\":0,\"rate\":0,\"granted\":0,\
        \"limited_by\":\"path\",\"loss_ratio\":0.0,\"rtt_us\":0,\"way\":\"udp\",\
        \"alive\":true}";
    for (left_out, code) in [(0, 0), (1, 12)] {
        let done = format!(
            "{{\"done\":{{\"numbers\":{numbers},\"files_written\":1,\"files_unchanged\":0,\
             \"left_out\":{left_out},\"blake3\":null}}}}"
        );
        let said = [skipped, &retry, &done].map(frame).join("; ");
        let script = format!("echo 'gtp-hello/1 {sends}'; {said}; cat >/dev/null");
        let shown = two.lied_to(code, "a", &script);
        assert!(shown.contains("skipped x: changed"), "{shown}");
    }
}

#[test]
fn a_server_with_another_key_than_its_far_end_has_said_gets_nothing() {
    let two = Two::new();
    two.a.file("x", 1_000);
    let lines = "while read -r line; do case $line in *ready*) \
        printf '%s\\n' \"$line\" | sed 's/SHA256:....../SHA256:AAAAAA/'; break;; \
        *) printf '%s\\n' \"$line\";; esac; done; exec cat";
    let ssh = two.ssh();
    let told = two.lied_to(7, "b", &format!("{ssh} \"$@\" | {{ {lines}; }}"));
    assert!(told.contains("not the one given"), "{told}");
}

/// A far end that receives `y` from one that was asked for `x` and shows this client's own key.
struct Receiver {
    child: std::process::Child,
    port: u64,
    key: String,
}

impl Receiver {
    fn start(world: &World) -> Receiver {
        let id = String::from_utf8(world.expect(0, &["id"]).stdout).unwrap();
        let id = id.split_whitespace().next().unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let want = "{\"receive\":{\"path\":\"y\",\"from\":[\"x\"]}}";
        let line = format!(
            "gtp-hello/1 {{\"version\":\"{version}\",\"key\":\"{id}\",\"ports\":null,\
             \"want\":{want}}}\n"
        );
        let mut command = world.gtp("far", &["far-end"]);
        command.env("HOME", world.path("home")).env("GTP_DAEMON", "off");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ready = lines.find_map(|line| Some(line.strip_prefix("gtp-hello/1 ")?.to_owned()));
        let ready: serde_json::Value = serde_json::from_str(&ready.unwrap()).unwrap();
        let (port, key) = (&ready["ready"]["port"], &ready["ready"]["key"]);
        let (port, key) = (port.as_u64().unwrap(), key.as_str().unwrap().to_owned());
        Receiver { child, port, key }
    }
}

#[test]
fn the_far_end_that_receives_lets_the_other_one_write_what_was_asked_for_and_nothing_else() {
    for is_there in [true, false] {
        let world = World::new();
        std::fs::create_dir_all(world.path(if is_there { "home/y" } else { "home" })).unwrap();
        for name in ["x", ".bashrc", "z"] {
            std::fs::write(world.path(name), name).unwrap();
        }
        let mut far = Receiver::start(&world);
        let put = |code, files: &[&str], path: &str| {
            let url = format!("gtp://127.0.0.1:{}/{path}", far.port);
            let words = [&["put"], files, &[&url, "--fingerprint", &far.key]].concat();
            said(&world.expect(code, &words))
        };
        // What is exported is the directory, or the one that will hold it.
        let place = if is_there { "" } else { "y/" };
        let refused = put(4, &[".bashrc"], place);
        assert!(refused.contains(".bashrc: nobody has asked for it"), "{refused}");
        put(4, &["x", "z"], place);
        for path in [if is_there { "y" } else { "" }, ".bashrc", "y/x", "z"] {
            let refused = put(4, &["x"], path);
            assert!(refused.contains("nothing is to be written there"), "{path}: {refused}");
        }
        let names = |dir: &str| std::fs::read_dir(world.path(dir)).unwrap().count();
        assert_eq!(names("home"), usize::from(is_there));
        put(0, &["x"], place);
        assert_eq!((names("home"), names("home/y")), (1, 1));
        assert_eq!(std::fs::read(world.path("home/y/x")).unwrap(), b"x");
        // It ends with its input.
        drop(far.child.stdin.take());
        assert!(far.child.wait().unwrap().success());
    }
}
