//! `gtp ssh` by a real sshd, by itself and under the programs that it is made for.
//!
//! Each test has an sshd of its own. What `gtp ssh` does is compared with what plain ssh does with
//! the same words.

mod common;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::hosts::{FAR, Hosts, To};
use common::sshd::Sshd;
use common::{bytes, require_root, wait_for};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `gtp ssh` says when plain ssh takes over.
const PLAIN: &str = "gtp: plain ssh runs this: ";

impl Sshd {
    /// A file for programs that read or write one.
    fn content(&self, name: &str, size: usize) -> (PathBuf, Vec<u8>) {
        let (path, content) = (self.world.path(name), bytes(size, name.len() as u64));
        std::fs::write(&path, &content).unwrap();
        (path, content)
    }

    fn config(&self) -> String {
        self.world.path("ssh.conf").display().to_string()
    }

    /// Plain ssh with these words.
    fn plain(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(["-F", &self.config()]).args(words).stdin(Stdio::null());
        command
    }

    /// A program in the environment that `gtp ssh` is to have when that program starts it.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("GTP_DAEMON", "off").env("GTP_CONFIG_DIR", self.world.path("client"));
        command.current_dir(self.world.path("")).stdin(Stdio::null());
        command
    }

    /// `gtp ssh` as a command line for programs that split it at spaces.
    fn remote_shell(&self) -> String {
        format!("{} ssh -F {}", env!("CARGO_BIN_EXE_gtp"), self.config())
    }

    /// A program that ignores nothing and is `gtp ssh`: for programs that take a path.
    fn as_one_program(&self) -> PathBuf {
        let path = self.world.path("gtp-ssh");
        if !path.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gtp"), &path).unwrap();
        }
        path
    }

    fn count(&self, name: &str) -> usize {
        std::fs::read(self.home(name))
            .map_or(0, |told| told.iter().filter(|&&b| b == b'\n').count())
    }
}

/// What came over GTP came without a word about plain ssh.
#[track_caller]
fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {} {}", output.status, said(&output));
    assert!(!said(&output).contains(PLAIN), "{}", said(&output));
    output
}

fn feed(command: &mut Command, input: Vec<u8>) -> Output {
    let piped = || Stdio::piped();
    let mut child = command.stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || to.write_all(&input));
    let output = child.wait_with_output().unwrap();
    // A command need not read all.
    let _ = feeding.join().unwrap();
    output
}

#[test]
fn exit_codes_and_both_outputs_are_those_of_plain_ssh_byte_for_byte() {
    let sshd = Sshd::with_gtp();
    let all_bytes =
        "i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done";
    for script in [
        "exit 0",
        "exit 7",
        "exit 255",
        "kill -9 $$",
        "kill -TERM $$",
        "no-such-program",
        "echo out; echo error >&2; exit 3",
        all_bytes,
        &format!("{{ {all_bytes}; }} >&2"),
        "cat; pwd; umask; ulimit -n",
        "echo \"$HOME|$SHELL|$0|${SSH_CONNECTION%% *}|$LOGNAME|$-\"",
        "printf '%s\\n' 'two  spaces' \"a'b\" $((1+1))",
    ] {
        let plain = sshd.plain(&["far", script]).output().unwrap();
        let ours = sshd.gtp("ssh", &["far", script]).output().unwrap();
        assert_eq!(ours.status.code(), plain.status.code(), "{script}: {}", said(&ours));
        assert!(ours.stdout == plain.stdout, "{script}: {:?} {:?}", ours.stdout, plain.stdout);
        assert_eq!(said(&ours), said(&plain), "{script}");
    }
    let words = [
        "-l",
        &common::sshd::user(),
        "-o",
        "BatchMode=yes",
        "-T",
        "far",
        "-q",
        "--",
        "echo",
        "a  b",
        "-n",
    ];
    let plain = sshd.plain(&words).output().unwrap();
    assert!(succeeded(&mut sshd.gtp("ssh", &words)).stdout == plain.stdout);
}

#[test]
fn the_environment_is_the_one_that_a_login_has() {
    let sshd = Sshd::with_gtp();
    let names = |output: Output| {
        let text = String::from_utf8(output.stdout).unwrap();
        let sorts_out = |line: &&str| !line.starts_with("SSH_") && !line.starts_with("_=");
        let mut lines: Vec<_> = text.lines().filter(sorts_out).map(str::to_owned).collect();
        lines.sort();
        (lines, text.matches("SSH_CLIENT=").count(), text.matches("SSH_CONNECTION=").count())
    };
    let plain = names(sshd.plain(&["far", "env"]).output().unwrap());
    assert_eq!(names(succeeded(&mut sshd.gtp("ssh", &["far", "env"]))), plain);
}

#[test]
fn large_input_comes_back_whole_and_the_end_of_input_is_told_while_output_goes_on() {
    let sshd = Sshd::with_gtp();
    let content = bytes(20_000_000, 3);
    let echoed = feed(&mut sshd.gtp("ssh", &["far", "cat"]), content.clone());
    assert!(echoed.status.success() && echoed.stdout == content, "{}", said(&echoed));
    let counted = feed(&mut sshd.gtp("ssh", &["far", "wc -c; sleep 1; echo after"]), content);
    assert_eq!(counted.stdout, b"20000000\nafter\n");
    // With -n it is empty, whatever there is.
    let empty = feed(&mut sshd.gtp("ssh", &["-n", "far", "wc -c"]), vec![1; 10]);
    assert_eq!(empty.stdout, b"0\n");
    // Input that nobody reads holds up nothing.
    let unread =
        feed(&mut sshd.gtp("ssh", &["far", "exec <&-; sleep 1; echo done"]), bytes(50_000_000, 1));
    assert_eq!(unread.stdout, b"done\n", "{}", said(&unread));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_a_pipe_does() {
    let sshd = Sshd::with_gtp();
    let mut command = sshd.gtp("ssh", &["far", "yes; echo yes: $? >> $HOME/told"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    wait_for("the end of gtp ssh", || child.try_wait().unwrap().is_some());
    wait_for("the end of the command", || sshd.count("told") == 1);
}

#[test]
fn outputs_are_carried_while_they_come_and_a_command_left_in_the_background_keeps_them_open() {
    let sshd = Sshd::with_gtp();
    let mut command =
        sshd.gtp("ssh", &["far", "echo first; read x; echo $x; (sleep 1; echo late) &"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 6];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    child.stdin.as_mut().unwrap().write_all(b"second\n").unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "second\nlate\n");
    assert!(child.wait().unwrap().success());
}

/// A command that says what it is told, and that it has ended.
fn long_command(sshd: &Sshd) -> Child {
    let script = "trap 'echo hangup >> $HOME/told; exit' HUP; echo ready; sleep 1000 & wait";
    let mut command = sshd.gtp("ssh", &["far", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    child
}

#[test]
fn the_command_is_hung_up_when_the_near_end_is_killed_or_interrupted() {
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::INT] {
        let sshd = Sshd::with_gtp();
        let child = long_command(&sshd);
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        if signal == rustix::process::Signal::INT {
            assert_eq!(ended.status.code(), Some(255), "{}", said(&ended));
        }
        wait_for("a hangup", || sshd.count("told") == 1);
    }
}

#[test]
fn what_a_command_has_left_in_the_background_is_hung_up_and_then_told_to_end() {
    let sshd = Sshd::with_gtp();
    // The shell that the far end waits for has ended when this one says so.
    let job = "trap 'echo hangup >> $HOME/told' HUP; trap 'echo end >> $HOME/told; exit' TERM; \
               while kill -0 $$ 2>/dev/null; do :; done; echo ready; \
               while :; do sleep 1000 & wait; done";
    let mut command = sshd.gtp("ssh", &["far", &format!("({job}) &")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("both signals", || sshd.count("told") == 2);
    assert_eq!(std::fs::read_to_string(sshd.home("told")).unwrap(), "hangup\nend\n");
}

#[test]
fn where_there_is_no_gtp_plain_ssh_runs_the_command_once_and_that_is_said_in_one_line() {
    let command = "echo ran >> $HOME/told; cat; echo error >&2; exit 9";
    let forced = "case $SSH_ORIGINAL_COMMAND in *gtp-hello*) echo no; exit 1;; esac; \
                  eval \"$SSH_ORIGINAL_COMMAND\"";
    let without = Sshd::start("");
    let foreign = Sshd::start("");
    foreign.cache(Path::new("/bin/echo"));
    let forced = Sshd::start(&format!("ForceCommand {forced}\n"));
    for sshd in [without, foreign, forced] {
        let ours = feed(&mut sshd.gtp("ssh", &["far", command]), b"given".to_vec());
        assert_eq!((ours.status.code(), &ours.stdout[..]), (Some(9), &b"given"[..]));
        let told = said(&ours);
        assert_eq!(told.matches(PLAIN).count(), 1, "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.ends_with("error\n"), "{told}");
        assert_eq!(sshd.count("told"), 1);
    }
}

#[test]
fn a_forced_command_that_never_answers_is_left_to_plain_ssh_after_the_limit() {
    let sshd = Sshd::start("ForceCommand cat >> $HOME/inbox; echo kept\n");
    let mut command = sshd.gtp("ssh", &["far", "keep"]);
    let ours = feed(command.env("GTP_LOGIN_LIMIT", "1s"), b"given".to_vec());
    assert_eq!((ours.status.code(), &ours.stdout[..]), (Some(0), &b"kept\n"[..]));
    let told = said(&ours);
    assert!(told.contains(PLAIN) && told.contains("no answer for 1 s"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    let kept = std::fs::read_to_string(sshd.home("inbox")).unwrap();
    assert!(kept.ends_with("given") && kept.lines().count() == 2, "{kept}");
}

#[test]
fn a_login_that_fails_is_not_tried_twice_and_a_login_without_a_shell_fails_as_with_ssh() {
    let sshd = Sshd::with_gtp();
    let refused = sshd.gtp("ssh", &["-p", "1", "far", "true"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(255));
    assert_eq!(said(&refused).matches("Connection refused").count(), 1, "{}", said(&refused));
    let sshd = Sshd::start("ForceCommand /usr/sbin/nologin\n");
    let plain = sshd.plain(&["far", "true"]).output().unwrap();
    let ours = sshd.gtp("ssh", &["far", "true"]).output().unwrap();
    assert_eq!((ours.status.code(), &ours.stdout), (plain.status.code(), &plain.stdout));
    assert!(said(&ours).contains(PLAIN), "{}", said(&ours));
}

#[test]
fn where_udp_is_blocked_tcp_carries_a_command_and_where_all_is_but_ssh_plain_ssh_runs_it_once() {
    if !require_root() {
        return;
    }
    for is_all in [false, true] {
        let told = if is_all { PLAIN } else { "the control connection carries the data" };
        let hosts = Hosts::new();
        let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
        match is_all {
            false => hosts.block(To::Far, "ipproto udp"),
            true => hosts.leave_open(22),
        }
        let began = Instant::now();
        let command = sshd.gtp("ssh", &["far", "echo ran >> $HOME/told; echo out; exit 4"]);
        let ours = hosts.near(&command).output().unwrap();
        assert_eq!((ours.status.code(), &ours.stdout[..]), (Some(4), &b"out\n"[..]));
        assert_eq!(said(&ours).matches(told).count(), 1, "{}", said(&ours));
        assert_eq!(said(&ours).lines().count(), 1, "{}", said(&ours));
        assert_eq!(sshd.count("told"), 1);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

#[test]
fn what_is_ssh_s_alone_goes_to_ssh() {
    let sshd = Sshd::with_gtp();
    let version = sshd.gtp("ssh", &["-V"]).output().unwrap();
    assert!(version.status.success() && said(&version).contains("OpenSSH"), "{}", said(&version));
    let config = sshd.gtp("ssh", &["-G", "far"]).output().unwrap();
    assert!(String::from_utf8(config.stdout).unwrap().contains("port "));
    let terminal = sshd.gtp("ssh", &["-tt", "far", "tty; exit 5"]).output().unwrap();
    assert_eq!(terminal.status.code(), Some(5));
    assert!(said(&terminal).contains("terminal"), "{}", said(&terminal));
    // A login shell, which reads what comes.
    let shell = feed(&mut sshd.gtp("ssh", &["far"]), b"echo shell; exit 6\n".to_vec());
    assert_eq!((shell.status.code(), &shell.stdout[..]), (Some(6), &b"shell\n"[..]));
    let usage = sshd.gtp("ssh", &[]).output().unwrap();
    assert_eq!(usage.status.code(), Some(255));
}

#[test]
fn after_the_end_of_options_no_word_is_an_option_of_ssh_s() {
    let sshd = Sshd::with_gtp();
    let touched = sshd.world.path("touched");
    let proxy = format!("-oProxyCommand=touch {}", touched.display());
    for words in [["--", &proxy, "y"], ["--", "-x@far", "y"]] {
        let plain = sshd.plain(&words).output().unwrap();
        let ours = sshd.gtp("ssh", &words).output().unwrap();
        assert_eq!(ours.status.code(), plain.status.code(), "{words:?}: {}", said(&ours));
        assert!(said(&ours).ends_with(&said(&plain)), "{words:?}: {}", said(&ours));
        assert_eq!(said(&ours).matches(PLAIN).count(), 1, "{}", said(&ours));
        assert!(!touched.exists(), "{words:?}");
    }
    for words in [&["--", "far", "echo", "-x", "--", "y"][..], &["--", "far", "-x", "y"]] {
        let plain = sshd.plain(words).output().unwrap();
        let ours = sshd.gtp("ssh", words).output().unwrap();
        assert_eq!((ours.status.code(), &ours.stdout), (plain.status.code(), &plain.stdout));
        assert_eq!(said(&ours), said(&plain), "{words:?}");
    }
}

#[test]
fn rsync_copies_both_ways_through_it() {
    let sshd = Sshd::with_gtp();
    let tree = sshd.world.path("tree");
    std::fs::create_dir_all(tree.join("deep")).unwrap();
    sshd.content("tree/large", 3_000_000);
    sshd.content("tree/deep/small file", 10);
    std::os::unix::fs::symlink("deep", tree.join("link")).unwrap();
    let shell = sshd.remote_shell();
    let rsync = |from: &str, to: &str| {
        succeeded(sshd.program("rsync").args(["-a", "-e", &shell, from, to]));
    };
    let there = format!("far:{}", sshd.home("there").display());
    rsync("tree/", &there);
    rsync(&format!("{there}/"), "back");
    let mut same = sshd.program("diff");
    succeeded(same.args(["-r", "--no-dereference", "tree", "back"]));
    let changes = sshd.program("rsync").args(["-aci", "-e", &shell, "tree/", &there]).output();
    assert!(changes.unwrap().stdout.is_empty());
}

#[test]
fn git_pushes_and_clones_through_it_with_and_without_being_told_which_ssh_it_is() {
    let sshd = Sshd::with_gtp();
    let git = |words: &[&str]| {
        let mut command = sshd.program("git");
        command.args([
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@x",
            "-c",
            "init.defaultBranch=main",
        ]);
        command.env("GIT_SSH_COMMAND", sshd.remote_shell()).args(words);
        command
    };
    succeeded(&mut git(&["init", "-q", "work"]));
    sshd.content("work/file", 300_000);
    succeeded(&mut git(&["-C", "work", "add", "file"]));
    succeeded(&mut git(&["-C", "work", "commit", "-q", "-m", "first"]));
    succeeded(&mut git(&["init", "-q", "--bare", sshd.home("repo").to_str().unwrap()]));
    let repository = format!("far:{}", sshd.home("repo").display());
    succeeded(&mut git(&["-C", "work", "push", "-q", &repository, "HEAD:main"]));
    succeeded(&mut git(&["clone", "-q", &repository, "cloned"]));
    succeeded(git(&["clone", "-q", &repository, "again"]).env("GIT_SSH_VARIANT", "ssh"));
    for clone in ["cloned/file", "again/file"] {
        let same = std::fs::read(sshd.world.path(clone)).unwrap();
        assert!(same == std::fs::read(sshd.world.path("work/file")).unwrap());
    }
}

#[test]
fn sftp_and_scp_move_files_through_it() {
    let sshd = Sshd::with_gtp();
    let (_, content) = sshd.content("file", 2_000_000);
    let (ssh, config) = (sshd.as_one_program(), sshd.config());
    let sftp = ["-q", "-F", &config, "-S", ssh.to_str().unwrap(), "-b", "batch", "far"];
    let there = format!("put file {0}\nget {0} back\n", sshd.home("there").display());
    std::fs::write(sshd.world.path("batch"), there).unwrap();
    succeeded(sshd.program("sftp").args(sftp));
    assert!(std::fs::read(sshd.world.path("back")).unwrap() == content);
    let target = format!("far:{}", sshd.home("copied").display());
    succeeded(sshd.program("scp").args([
        "-F",
        &config,
        "-S",
        ssh.to_str().unwrap(),
        "file",
        &target,
    ]));
    assert!(std::fs::read(sshd.home("copied")).unwrap() == content);
    // A subsystem that is not at a usual place is plain ssh's.
    let unknown = sshd.gtp("ssh", &["-s", "far", "netconf"]).output().unwrap();
    assert!(!unknown.status.success() && said(&unknown).contains(PLAIN), "{}", said(&unknown));
}

#[test]
fn borg_and_restic_keep_and_give_back_what_they_were_given() {
    let sshd = Sshd::with_gtp();
    let (_, content) = sshd.content("file", 1_000_000);
    let there = |name: &str| sshd.home(name).display().to_string();
    let borg = |words: &[&str]| {
        let mut command = sshd.program("borg");
        command.env("BORG_RSH", sshd.remote_shell()).env("BORG_BASE_DIR", sshd.world.path("borg"));
        succeeded(command.args(words));
    };
    let repository = format!("far:{}", there("borg"));
    borg(&["init", "-e", "none", &repository]);
    borg(&["create", &format!("{repository}::one"), "file"]);
    std::fs::create_dir(sshd.world.path("restored")).unwrap();
    let mut extract = sshd.program("borg");
    extract.env("BORG_RSH", sshd.remote_shell()).env("BORG_BASE_DIR", sshd.world.path("borg"));
    extract.current_dir(sshd.world.path("restored"));
    succeeded(extract.args(["extract", &format!("{repository}::one")]));
    assert!(std::fs::read(sshd.world.path("restored/file")).unwrap() == content);

    let sftp = format!("sftp.command={} far -s sftp", sshd.remote_shell());
    let restic = |words: &[&str]| {
        let mut command = sshd.program("restic");
        let repository = format!("sftp:far:{}", there("restic"));
        command.env("RESTIC_PASSWORD", "x").env("RESTIC_CACHE_DIR", sshd.world.path("cache"));
        succeeded(command.args(["-r", &repository, "-o", &sftp]).args(words));
    };
    restic(&["init"]);
    restic(&["backup", "file"]);
    restic(&["restore", "latest", "--target", "restic"]);
    let mut found = Command::new("find");
    found.arg(sshd.world.path("restic")).args(["-name", "file"]);
    let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
    assert!(std::fs::read(found.trim()).unwrap() == content);
}

#[test]
fn tar_through_a_pipe_arrives_whole() {
    let sshd = Sshd::with_gtp();
    let (_, content) = sshd.content("file", 5_000_000);
    let mut script = sshd.program("sh");
    let line = format!(
        "tar -cf - file | {} far 'tar -xf - -C {}'",
        sshd.remote_shell(),
        sshd.home("").display()
    );
    succeeded(script.args(["-c", &line]));
    assert!(std::fs::read(sshd.home("file")).unwrap() == content);
}
