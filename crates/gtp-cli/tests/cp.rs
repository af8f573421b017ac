//! `gtp cp` from and to where a real sshd logs in, and against far ends that lie. Each test has an
//! sshd of its own, whose logins have a home of their own; on loopback but for one, which needs
//! root.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::hosts::{FAR, Hosts, To};
use common::ports::free_port;
use common::sshd::{Sshd, find};
use common::{World, events, require_root, wait_for};
use gtp_emu::{Emulator, NetSpec};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

impl Sshd {
    /// `gtp cp` by this sshd's own way of logging in.
    fn cp(&self, words: &[&str]) -> Command {
        self.gtp("cp", words)
    }

    #[track_caller]
    fn expect(&self, code: i32, words: &[&str]) -> Output {
        let output = self.cp(words).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
        output
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.world.path(name)).unwrap_or_default()
    }

    /// What becomes of a fetch from a far end that is this script.
    #[track_caller]
    fn lied_to(&self, code: i32, script: &str) -> String {
        let mut command = self.cp(&["far:a", "out", "--retry-for", "1s"]);
        let output = command.env("GTP_SSH", self.instead(script)).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{script}: {said}");
        let is_harmless = |c: char| c == '\n' || !c.is_control();
        assert!(said.chars().all(is_harmless), "{:?}", said);
        assert!(!self.world.path("out").exists(), "{script}");
        said
    }
}

#[test]
fn files_and_trees_are_the_same_at_the_other_end_whichever_way_they_go() {
    let sshd = Sshd::with_gtp();
    let file = sshd.file("data/run 42's.h5", 3_000_000);
    let deep = sshd.file("data/deep/x", 70_000);
    sshd.expect(0, &["far:data/run 42's.h5", "one"]);
    assert!(sshd.read("one") == file);
    // A directory goes beneath, its content with a slash; both are made if need be.
    sshd.expect(0, &["far:data", "into"]);
    sshd.expect(0, &["far:~/data/", "content"]);
    assert!(sshd.read("into/data/deep/x") == deep && sshd.read("content/deep/x") == deep);
    assert!(sshd.read("into/data/run 42's.h5") == file);
    // And back.
    sshd.expect(0, &["into/data", "one", "far:back/"]);
    sshd.expect(0, &["into/data/", "far:flat"]);
    sshd.expect(0, &["one", "far:named"]);
    let there = |name: &str| std::fs::read(sshd.home(name)).unwrap_or_default();
    assert!(there("back/data/deep/x") == deep && there("back/one") == file);
    assert!(there("flat/deep/x") == deep && there("named") == file);
    // Again: nothing changes, and nothing is sent.
    let again = sshd.expect(0, &["far:data", "into", "--json"]);
    let done = events(&again).pop().unwrap();
    assert_eq!((&done["event"], &done["files_written"]), (&"done".into(), &0.into()));
    let streamed = sshd.expect(0, &["far:named", "-"]);
    assert!(streamed.stdout == file);
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

#[test]
fn sources_of_several_logins_come_in_one_command_and_one_that_fails_keeps_back_no_other() {
    let sshd = Sshd::with_gtp();
    let (a, b) = (sshd.file("a", 10_000), sshd.file("b", 20_000));
    let other = format!("{}@far", common::sshd::user());
    let words = ["far:a", &format!("{other}:b"), "far:x/", "got"];
    sshd.file("x/c", 5);
    sshd.expect(0, &words);
    assert!(sshd.read("got/a") == a && sshd.read("got/b") == b && sshd.read("got/c").len() == 5);
    // One login fails, and one file of the other.
    let partly = said(&sshd.expect(12, &["nobody@far:a", "far:b", "again"]));
    assert!(partly.contains("nobody@far"), "{partly}");
    assert!(sshd.read("again/b") == b);
    let partly = said(&sshd.expect(12, &["far:none", &format!("{other}:b"), "third"]));
    assert!(partly.contains("none: no such file"), "{partly}");
    assert!(sshd.read("third/b") == b);
    let streamed = sshd.expect(2, &["far:a", &format!("{other}:b"), "-"]);
    assert!(streamed.stdout.is_empty());
}

#[test]
fn patterns_and_links_are_followed_at_the_far_end_and_odd_names_are_no_commands() {
    let sshd = Sshd::with_gtp();
    let (a, b) = (sshd.file("logs/a.gz", 1_000), sshd.file("logs/b b.gz", 2_000));
    sshd.file("logs/c.txt", 10);
    let odd = sshd.file("$(touch x);'`\"\\ &!*", 500);
    std::os::unix::fs::symlink("logs", sshd.home("current")).unwrap();
    sshd.expect(0, &["far:logs/*.gz", "got"]);
    assert!(sshd.read("got/a.gz") == a && sshd.read("got/b b.gz") == b);
    assert!(!sshd.world.path("got/c.txt").exists());
    sshd.expect(0, &["far:current", "got"]);
    assert!(sshd.read("got/current/a.gz") == a);
    sshd.expect(0, &["far:$(touch x);'`\"\\ &!*", "odd"]);
    assert!(sshd.read("odd") == odd && !sshd.home("x").exists());
    std::os::unix::fs::symlink("logs", sshd.home("put")).unwrap();
    sshd.expect(0, &["odd", "far:put"]);
    assert!(std::fs::read(sshd.home("logs/odd")).unwrap() == odd);
}

#[test]
fn what_lies_in_one_directory_comes_in_one_transfer_and_what_lies_elsewhere_beside_it() {
    let sshd = Sshd::with_gtp();
    let names = ["-a.h5", "b b.h5", "c'c.h5", "d.h5/deep"];
    let contents = names.map(|name| sshd.file(&format!("data/{name}"), 50_000 + name.len()));
    sshd.file("data/other", 10);
    let fetched = sshd.expect(0, &["far:data/*.h5", "got", "--json"]);
    let done = events(&fetched).into_iter().filter(|event| event["event"] == "done");
    let done: Vec<_> = done.collect();
    assert_eq!((done.len(), &done[0]["files_written"]), (1, &4.into()), "{done:?}");
    for (name, content) in names.iter().zip(&contents) {
        assert!(sshd.read(&format!("got/{name}")) == *content, "{name}");
    }
    assert!(!sshd.world.path("got/other").exists());
    // A directory that is there keeps its mode, and again nothing is written.
    let mode = || std::fs::metadata(sshd.world.path("got")).unwrap().permissions().mode();
    let before = mode();
    std::fs::set_permissions(sshd.home("data"), PermissionsExt::from_mode(0o700)).unwrap();
    let again =
        sshd.expect(0, &["far:data/-a.h5", "far:data/b b.h5", "far:data/d.h5", "got", "--json"]);
    assert_eq!(events(&again).pop().unwrap()["files_written"], 0);
    assert_eq!(mode(), before);
    // What is elsewhere, or has another name there, comes beside it.
    let apart = sshd.file("else/where", 700);
    std::os::unix::fs::symlink("other", sshd.home("data/link")).unwrap();
    sshd.expect(0, &["far:data/-a.h5", "far:data/link", "far:else/where", "far:data/c*", "mixed"]);
    assert!(sshd.read("mixed/where") == apart && sshd.read("mixed/link").len() == 10);
    assert!(sshd.read("mixed/-a.h5") == contents[0] && sshd.read("mixed/c'c.h5") == contents[2]);
    sshd.expect(3, &["far:data/*.h6", "none"]);
    sshd.expect(2, &["far:data/*.h5", "-"]);
}

#[test]
fn what_is_not_there_or_may_not_be_made_has_the_exit_codes_of_get_and_put() {
    let sshd = Sshd::with_gtp();
    std::fs::write(sshd.world.path("here"), "here").unwrap();
    let missing = said(&sshd.expect(3, &["far:none", "out"]));
    assert!(missing.contains("none: no such file or directory"), "{missing}");
    sshd.expect(3, &["far:none*", "out"]);
    let content = sshd.file("data/a.h5", 500);
    let partly = said(&sshd.expect(12, &["far:none", "far:data/a.h5", "far:none*", "some"]));
    assert!(partly.contains("far:none: nothing") && partly.contains("far:none*: "), "{partly}");
    assert_eq!(sshd.read("some/a.h5"), content);
    sshd.expect(3, &["far:none", "far:none*", "out"]);
    let partly = said(&sshd.expect(12, &["lost", "here", "far:sent"]));
    assert!(partly.contains("lost: no such file"), "{partly}");
    assert_eq!(sshd.read("home/sent/here"), sshd.read("here"));
    sshd.expect(2, &["far:~nobody/x", "out"]);
    sshd.expect(4, &["here", "far:none/here"]);
    sshd.expect(3, &["not-here", "far:x"]);
    sshd.expect(3, &["far:a", "far:b"]);
    // Nobody logs in: ssh says why itself.
    let refused =
        said(&sshd.expect(5, &["--ssh", "ssh -o BatchMode=yes -p 1", "127.0.0.1:a", "b"]));
    assert!(refused.contains("Connection refused") && refused.contains("code 255"), "{refused}");
    let absent = said(&sshd.expect(1, &["--ssh", "no-such-program", "far:a", "b"]));
    assert!(absent.contains("no-such-program"), "{absent}");
}

#[test]
fn a_login_shell_that_prints_a_banner_does_no_harm() {
    let sshd =
        Sshd::start("ForceCommand printf 'Welcome\\nto all'; eval \"$SSH_ORIGINAL_COMMAND\"\n")
            .and_gtp();
    let content = sshd.file("a", 10_000);
    sshd.expect(0, &["far:a", "got"]);
    assert!(sshd.read("got") == content);
}

#[test]
fn without_gtp_there_it_says_what_would_install_it_and_installs_it_if_asked() {
    let sshd = Sshd::start("");
    let content = sshd.file("a", 10_000);
    let absent = said(&sshd.expect(5, &["far:a", "got"]));
    assert!(absent.contains("--install") && absent.contains("scp "), "{absent}");
    assert!(!sshd.home(".cache").exists());
    std::fs::write(sshd.world.path("sent"), "x").unwrap();
    sshd.expect(0, &["--install", "sent", "far:"]);
    let mode = std::fs::metadata(sshd.home("sent")).unwrap().permissions().mode();
    let usual = std::fs::metadata(sshd.world.path("sent")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, usual & 0o777, "what is sent is no more private than else");
    sshd.expect(0, &["far:a", "got"]);
    assert!(sshd.read("got") == content);
    let own = std::fs::read(env!("CARGO_BIN_EXE_gtp")).unwrap();
    assert!(std::fs::read(sshd.cached()).unwrap() == own, "it is this very program");
    let mode = std::fs::metadata(sshd.cached()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    let beside = sshd.cached().parent().unwrap().read_dir().unwrap().count();
    assert_eq!(beside, 1, "nothing else is left");
    let in_home = sshd.world.path("home").read_dir().unwrap().count();
    assert_eq!(in_home, 3, "only .cache and the files");
    // It is found from now on, and not sent again.
    let again = sshd.expect(0, &["--install", "far:a", "got"]);
    assert!(!said(&again).contains("installing"), "{}", said(&again));
    sshd.expect(0, &["far:a", "got2"]);
}

#[test]
fn the_far_end_goes_when_ssh_is_killed_and_the_command_says_so_and_can_be_repeated() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("large", 8 << 20);
    let pid = sshd.world.path("ssh.pid");
    let script = format!(
        "echo $$ > {}; exec ssh -F {} \"$@\"",
        pid.display(),
        sshd.world.path("ssh.conf").display()
    );
    let mut command = sshd.cp(&["far:large", "got", "--max-rate", "8Mbit", "--json"]);
    command.env("GTP_SSH", sshd.instead(&script)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    let part = sshd.world.path("got.gtp-part");
    wait_for("a part of the file", || common::size_of(&part) > 0);
    let ssh: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let ssh = rustix::process::Pid::from_raw(ssh).unwrap();
    rustix::process::kill_process(ssh, rustix::process::Signal::KILL).unwrap();
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(5), "{}", said(&ended));
    assert!(said(&ended).contains("repeat the command"), "{}", said(&ended));
    wait_for("the end of the far end", || sshd.far_ends() == 0);
    sshd.expect(0, &["far:large", "got"]);
    assert!(sshd.read("got") == content);
}

#[test]
fn a_killed_client_leaves_no_far_end_and_nothing_but_its_part() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("large", 8 << 20);
    let mut command = sshd.cp(&["far:large", "got", "--max-rate", "8Mbit"]);
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    let part = sshd.world.path("got.gtp-part");
    wait_for("a part of the file", || common::size_of(&part) > 0);
    assert_eq!(sshd.far_ends(), 1);
    running.kill().unwrap();
    running.wait().unwrap();
    wait_for("the end of the far end", || sshd.far_ends() == 0);
    let mut left: Vec<_> = sshd.world.path("home").read_dir().unwrap().flatten().collect();
    left.retain(|entry| entry.file_name() != ".cache" && entry.file_name() != "large");
    assert!(left.is_empty(), "{left:?}");
    sshd.expect(0, &["far:large", "got"]);
    assert!(sshd.read("got") == content);
}

#[test]
fn another_program_that_is_called_gtp_is_told_of_and_passed_over() {
    let sshd = Sshd::start("");
    let content = sshd.file("a", 1_000);
    sshd.cache(Path::new("/bin/echo"));
    let foreign = said(&sshd.expect(5, &["far:a", "got"]));
    assert!(
        foreign.contains("another one than this") && foreign.contains("--install"),
        "{foreign}"
    );
    let own = sshd.home(".local/bin");
    std::fs::create_dir_all(&own).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gtp"), own.join("gtp")).unwrap();
    sshd.expect(0, &["far:a", "got"]);
    assert!(sshd.read("got") == content);
}

#[test]
fn far_ends_that_lie_are_refused_in_words_that_do_nothing_to_a_terminal() {
    let sshd = Sshd::with_gtp();
    let far = |json: &str| format!("echo 'gtp-hello/1 {json}'; cat >/dev/null");
    let garbage = sshd.lied_to(5, "printf 'what\\033[31m is this\\n'; exit 7");
    assert!(garbage.contains("what\\u{1b}[31m is this") && garbage.contains('7'), "{garbage}");
    sshd.lied_to(5, "exit 0");
    let escapes = sshd.lied_to(5, "printf '\\033]0;x\\007\\033[2J\\n' >&2; exit 255");
    assert!(escapes.contains("\\u{1b}[2J"), "{escapes}");
    sshd.lied_to(1, "cat /dev/zero");
    sshd.lied_to(1, "yes");
    sshd.lied_to(1, "printf 'gtp-hello/1 '; cat /dev/zero");
    sshd.lied_to(1, &far("{\"ready\":{}}"));
    let other = sshd.lied_to(7, "echo 'gtp-hello/9 {}'; cat >/dev/null");
    assert!(other.contains("gtp-hello/9") && other.contains("gtp-hello/1"), "{other}");
    let failed = "{\"failed\":{\"version\":\"9.8.7\",\"kind\":\"other\",\"text\":\"x\"}}";
    let versions = sshd.lied_to(7, &far(failed));
    assert!(versions.contains("9.8.7") && versions.contains(env!("CARGO_PKG_VERSION")));
    let text =
        "{\"failed\":{\"version\":\"VERSION\",\"kind\":\"missing\",\"text\":\"\\u001b[2J\"}}";
    let shown = sshd.lied_to(3, &far(&text.replace("VERSION", env!("CARGO_PKG_VERSION"))));
    assert!(shown.contains("\\u{1b}[2J"), "{shown}");
}

#[test]
fn a_far_end_that_has_begun_and_says_nothing_is_given_up_after_half_a_minute() {
    let sshd = Sshd::with_gtp();
    let began = Instant::now();
    let silent = sshd.lied_to(5, "echo 'gtp-hello/1 found'; cat >/dev/null");
    assert!(silent.contains("was started there, and has not answered"), "{silent}");
    assert!((30..50).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// A far end that runs here, and what `sed` makes of its answer.
fn changed(expression: &str) -> String {
    let gtp = env!("CARGO_BIN_EXE_gtp");
    format!(
        "export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'; '{gtp}' far-end | sed -u '{expression}'"
    )
}

#[test]
fn a_far_end_with_another_key_or_another_file_than_asked_for_is_refused() {
    let sshd = Sshd::with_gtp();
    sshd.file("a", 1_000);
    let home = format!("export HOME='{}'; ", sshd.world.path("home").display());
    let lied_to =
        |code, expression: &str| sshd.lied_to(code, &(home.clone() + &changed(expression)));
    let stranger = lied_to(7, "s/SHA256:....../SHA256:AAAAAA/");
    assert!(stranger.contains("not the one given"), "{stranger}");
    // Another file, and all that is exported, in place of the file.
    for other in ["s/\"name\":\"a\"/\"name\":\".bashrc\"/", "s/\"path\":\"a\"/\"path\":\"\"/"] {
        let unasked = lied_to(1, other);
        assert!(unasked.contains("nobody asked for"), "{unasked}");
    }
    let less = lied_to(1, "s/\"found\":.*]/\"found\":[]/");
    assert!(less.contains("0 objects"), "{less}");
}

#[test]
fn blocked_ports_are_told_of_with_exit_code_11_and_what_helps() {
    let sshd = Sshd::with_gtp();
    sshd.file("a", 1_000);
    let home = format!("export HOME='{}'; ", sshd.world.path("home").display());
    // Nothing listens where the far end is said to.
    let closed = format!("s/\"port\":[0-9]*/\"port\":{}/", free_port());
    let blocked = sshd.lied_to(11, &(home.clone() + &changed(&closed)));
    assert!(blocked.contains("--port") && blocked.contains("127.0.0.1"), "{blocked}");
    // TCP gets there, and no datagram does.
    let port = free_port();
    let forwarded = common::tcp_only(port);
    let other = format!("s/\"port\":{port}/\"port\":{forwarded}/");
    let mut command = sshd.cp(&["far:a", "out", "--port", &port.to_string(), "--udp", "only"]);
    let began = Instant::now();
    let blocked = command.env("GTP_SSH", sshd.instead(&(home + &changed(&other)))).output();
    let blocked = blocked.unwrap();
    assert_eq!(blocked.status.code(), Some(11), "{}", said(&blocked));
    assert!(said(&blocked).contains("--port"), "{}", said(&blocked));
    assert!(began.elapsed().as_secs() < 15, "{:?}", began.elapsed());
}

#[test]
fn where_only_the_port_of_ssh_is_open_ssh_carries_the_data_both_ways() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
    let (a, b) = (sshd.file("t/a", 3_000_000), sshd.file("t/b", 70_000));
    hosts.leave_open(22);
    let run = |words: &[&str]| hosts.near(&sshd.cp(words)).output().unwrap();
    for words in [&["far:t/a", "far:t/b", "got"][..], &["got/a", "got/b", "far:back/"]] {
        let copied = run(words);
        assert_eq!(copied.status.code(), Some(0), "{words:?}: {}", said(&copied));
        let told = "no port of far gets through but ssh's: ssh carries the data, which is slower";
        assert!(said(&copied).contains(told), "{}", said(&copied));
        assert!(!said(&copied).contains("the control connection"), "{}", said(&copied));
    }
    assert!(sshd.read("got/a") == a && sshd.read("got/b") == b);
    assert!(std::fs::read(sshd.home("back/a")).unwrap() == a);
    let insisted = run(&["far:t/a", "out", "--udp", "only"]);
    assert_eq!(insisted.status.code(), Some(11), "{}", said(&insisted));
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

#[test]
fn where_a_firewall_lets_in_ssh_alone_the_far_end_sends_first_and_udp_is_taken_from_ssh() {
    if !require_root() {
        return;
    }
    for near_too in [false, true] {
        let hosts = Hosts::new();
        let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
        hosts.answers_only(To::Far, Some(22));
        if near_too {
            hosts.answers_only(To::Near, None);
        }
        let content = sshd.file("large", 16_000_000);
        for words in [["far:large", "got"], ["got", "far:back"]] {
            let words = [&words[..], &["--max-rate", "10Mbit", "--json"]].concat();
            let copied = hosts.near(&sshd.cp(&words)).output().unwrap();
            assert_eq!(copied.status.code(), Some(0), "{words:?}: {}", said(&copied));
            let by = events(&copied).into_iter().filter(|event| event["event"] == "carrier");
            let by: Vec<_> = by.map(|event| event["carrier"].clone()).collect();
            assert_eq!(by, ["tcp", "udp"], "{near_too}: {words:?}: {}", said(&copied));
            assert!(said(&copied).contains("ssh carries the data"), "{}", said(&copied));
            assert!(said(&copied).contains("UDP gets through to far"), "{}", said(&copied));
        }
        assert!(sshd.read("got") == content);
        assert!(std::fs::read(sshd.home("back")).unwrap() == content);
    }
}

#[test]
fn pipes_lose_nothing_and_nothing_goes_over_them_twice() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
    let content = sshd.file("large", 60_000_000);
    hosts.leave_open(22);
    for words in [["far:large", "got"], ["got", "far:back"]] {
        let copied = hosts.near(&sshd.cp(&[&words[..], &["--json"]].concat())).output().unwrap();
        assert_eq!(copied.status.code(), Some(0), "{words:?}: {}", said(&copied));
        let done = events(&copied).pop().unwrap();
        let lost = (&done["loss_ratio"], &done["retransmitted_bytes"]);
        assert_eq!(lost, (&0.0.into(), &0.into()), "{words:?}: {done}");
    }
    assert!(std::fs::read(sshd.home("back")).unwrap() == content);
}

/// A far end that runs here, and says that it is at another port: only its answer is changed.
fn elsewhere(port: u16) -> String {
    let gtp = env!("CARGO_BIN_EXE_gtp");
    let ssh = "export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'";
    let change = format!("sed 's/\"port\":[0-9]*/\"port\":{port}/'");
    let lines = format!(
        "while read -r line; do case $line in \
         *ready*) printf '%s\\n' \"$line\" | {change}; break;; \
         *) printf '%s\\n' \"$line\";; esac; done"
    );
    format!("{ssh}; '{gtp}' far-end | {{ {lines}; exec cat; }}")
}

#[test]
fn where_something_else_takes_the_connection_ssh_carries_the_data() {
    // One says nothing, one says something else, one hangs up.
    for answer in [None, Some(&b"220 service ready\r\n"[..]), Some(&b""[..])] {
        let sshd = Sshd::with_gtp();
        let content = sshd.file("a", 300_000);
        let other = TcpListener::bind("[::]:0").unwrap();
        let port = other.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in other.incoming().map_while(Result::ok) {
                match answer {
                    None | Some(&[_, ..]) => {
                        // Whoever has called may be gone.
                        let _ = stream.write_all(answer.unwrap_or_default());
                        kept.push(stream);
                    }
                    Some(&[]) => drop(stream),
                }
            }
        });
        let home = format!("export HOME='{}'; ", sshd.world.path("home").display());
        let mut command = sshd.cp(&["far:a", "got"]);
        command.env("GTP_SSH", sshd.instead(&(home + &elsewhere(port))));
        let copied = command.output().unwrap();
        assert_eq!(copied.status.code(), Some(0), "{answer:?}: {}", said(&copied));
        assert!(said(&copied).contains("ssh carries the data"), "{answer:?}: {}", said(&copied));
        assert!(sshd.read("got") == content);
    }
}

#[test]
fn the_far_end_listens_on_the_port_that_was_named_and_another_user_of_it_is_told_of() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("a", 1_000);
    let port = free_port();
    let fetched = sshd.expect(0, &["far:a", "got", "--json", "--port", &port.to_string()]);
    assert!(sshd.read("got") == content);
    let url = events(&fetched).pop().unwrap()["sources"][0]["url"].clone();
    assert_eq!(url, format!("gtp://far:{port}/a"));
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    sshd.expect(5, &["far:a", "got2", "--port", &port]);
}

#[test]
fn the_same_verb_copies_from_and_to_servers_with_the_same_slashes() {
    let world = World::new();
    let x = world.export("d/x", 1_000);
    let server = world.serve("server", &["--public"]);
    let copied = ["cp", &server.url("d"), "got", "--accept-new"];
    world.expect(0, &copied);
    assert!(std::fs::read(world.path("got/d/x")).unwrap() == x);
    world.expect(0, &["cp", &server.url("d/"), "flat"]);
    assert!(std::fs::read(world.path("flat/x")).unwrap() == x);
    let inbox = common::writable(&world, &[]);
    world.expect(0, &["cp", "got/d", &inbox.url("new")]);
    assert!(std::fs::read(world.path("export/new/d/x")).unwrap() == x);
}

/// Two hosts, `near` and `far`, with a round trip of 20 ms between them.
fn network(near: &str, far: &str) -> NetSpec {
    let mut text = String::new();
    for name in ["there", "back"] {
        text += &format!("[[link]]\nname = \"{name}\"\nrate = \"1Gbit\"\ndelay = \"10ms\"\n");
    }
    for (host, address) in [(near, "10.84.0.1/24"), (far, "10.84.0.2/24")] {
        text += &format!(
            "[[host]]\nname = \"{host}\"\nnamespace = \"{host}\"\naddress = \"{address}\"\n"
        );
    }
    for (from, to, link) in [(near, far, "there"), (far, near, "back")] {
        text += &format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [\"{link}\"]\n");
    }
    NetSpec::parse(&text).unwrap()
}

#[test]
fn over_a_round_trip_of_20_ms_the_first_byte_comes_within_2_s_of_a_login() {
    if !require_root() {
        return;
    }
    let host = |name: &str| format!("gtp-cp-{name}-{}", std::process::id());
    let (near, far) = (host("near"), host("far"));
    let router = Emulator::router(&network(&near, &far)).unwrap();
    let at = |host: &str, program: &Path| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host]).arg(program);
        command
    };
    let sshd = |sshd: Command| at(&far, Path::new(sshd.get_program()));
    let sshd = Sshd::with_gtp_at(("10.84.0.2", 22), sshd);
    let content = sshd.file("a", 1_000_000);
    let began = Instant::now();
    let mut login = at(&near, &find("ssh"));
    let login = login.arg("-F").arg(sshd.world.path("ssh.conf")).args(["far", "true"]).output();
    assert!(login.unwrap().status.success());
    let login = began.elapsed();
    let mut copy = at(&near, Path::new(env!("CARGO_BIN_EXE_gtp")));
    copy.args(["cp", "--ssh", &format!("ssh -F {}", sshd.world.path("ssh.conf").display())]);
    copy.args(["far:a", "-"]).env("GTP_CONFIG_DIR", sshd.world.path("client"));
    let began = Instant::now();
    let mut copy = copy.env("GTP_DAEMON", "off").stdout(Stdio::piped()).spawn().unwrap();
    let (mut out, mut read) = (copy.stdout.take().unwrap(), vec![0; 1]);
    out.read_exact(&mut read).unwrap();
    let first = began.elapsed();
    out.read_to_end(&mut read).unwrap();
    assert!(copy.wait().unwrap().success() && read == content);
    println!("login {login:?}, first byte of the copy {first:?}");
    assert!(first < login + Duration::from_secs(2), "{first:?}; a login takes {login:?}");
    drop(sshd);
    router.stop().unwrap();
}

/// A far end that was asked for a tree and has answered, and its pipes.
fn asked_for_a_tree(world: &World) -> (Child, ChildStdin, BufReader<ChildStdout>) {
    let mut far = Command::new(env!("CARGO_BIN_EXE_gtp"));
    far.arg("far-end").env("HOME", world.path(""));
    let mut far = far.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, from) = (far.stdin.take().unwrap(), far.stdout.take().unwrap());
    let (version, key) = (env!("CARGO_PKG_VERSION"), "A".repeat(43));
    let said = format!(r#""version":"{version}","key":"SHA256:{key}","ports":null"#);
    let wanted = format!(r#"gtp-hello/1 {{{said},"want":{{"tree":"t"}}}}"#);
    writeln!(to, "{wanted}").unwrap();
    let mut from = BufReader::new(from);
    let mut answer = String::new();
    while !answer.contains("ready") {
        assert!(from.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
    (far, to, from)
}

#[test]
fn a_far_end_whose_answers_nobody_reads_ends_when_its_input_does() {
    let world = World::new();
    let (mut far, mut to, from) = asked_for_a_tree(&world);
    drop(from);
    // The second link of this number is answered, which fails.
    to.write_all(&b"O\x80\0\0\0\0\0".repeat(2)).unwrap();
    // It still reads its input.
    let writing = std::thread::spawn(move || to.write_all(&vec![b'\n'; 16 << 20]));
    wait_for("the far end's end", || far.try_wait().unwrap().is_some());
    writing.join().unwrap().unwrap();
}

#[test]
fn a_far_end_waits_for_nobody_who_has_connected_and_said_nothing() {
    let world = World::new();
    let (mut far, mut to, _from) = asked_for_a_tree(&world);
    // The link without TLS, and one to the server's port.
    to.write_all(b"O\x80\0\0\0\0\0O\0\0\0\x07\0\0").unwrap();
    let began = Instant::now();
    drop(to);
    wait_for("the far end's end", || far.try_wait().unwrap().is_some());
    // A server gives its sessions five seconds.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
