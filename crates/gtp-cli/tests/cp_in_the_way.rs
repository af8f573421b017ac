//! `gtp cp` where something is in the way: translators of addresses, a jump host, a host key that
//! is new or another one, login shells of all kinds, and far ends that cannot take the program.
//! Each copy arrives, or a message and an exit code say why not.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::hosts::{FAR, Hosts, ROW, Row, To};
use common::sshd::Sshd;
use common::{events, require_root, wait_for};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn expect(code: i32, mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", said(&output));
    output
}

/// A file from the far end and back, by what makes a command run where the near end is.
#[track_caller]
fn both_ways(sshd: &Sshd, near: impl Fn(&Command) -> Command, told: &str) {
    let content = sshd.file("data", 3_000_000);
    for words in [["far:data", "got"], ["got", "far:back"]] {
        let copied = expect(0, near(&sshd.gtp("cp", &words)));
        let is_slow = said(&copied).contains("carries the data, which is slower");
        assert!(said(&copied).contains(told), "{}", said(&copied));
        assert_eq!(is_slow, !told.is_empty(), "{}", said(&copied));
    }
    assert!(std::fs::read(sshd.world.path("got")).unwrap() == content);
    assert!(std::fs::read(sshd.home("back")).unwrap() == content);
    wait_for("the end of the far ends", || sshd.far_ends() == 0);
}

const BY_TCP: &str = "the control connection carries the data, which is slower";
const BY_SSH: &str = "ssh carries the data, which is slower";

#[test]
fn whichever_way_udp_is_blocked_tcp_carries_a_copy_from_and_to_a_login() {
    if !require_root() {
        return;
    }
    for blocked in [&[To::Far][..], &[To::Near], &[To::Near, To::Far]] {
        let hosts = Hosts::new();
        let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
        blocked.iter().for_each(|&to| hosts.block(to, "ipproto udp"));
        both_ways(&sshd, |command| hosts.near(command), BY_TCP);
    }
}

#[test]
fn udp_that_dies_in_the_midst_of_a_copy_from_a_login_is_replaced_by_tcp() {
    if !require_root() {
        return;
    }
    let hosts = Hosts::new();
    let sshd = Sshd::with_gtp_at((FAR, 22), |sshd| hosts.far(&sshd));
    let content = sshd.file("large", 12_000_000);
    let words = ["far:large", "got", "--max-rate", "16Mbit", "--json"];
    let mut running = hosts.near(&sshd.gtp("cp", &words));
    let running = running.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let running = running.spawn().unwrap();
    let part = sshd.world.path("got.gtp-part");
    wait_for("a part of the file", || common::size_of(&part) > 0);
    hosts.block(To::Near, "ipproto udp");
    hosts.block(To::Far, "ipproto udp");
    let copied = running.wait_with_output().unwrap();
    assert_eq!(copied.status.code(), Some(0), "{}", said(&copied));
    assert!(said(&copied).contains(BY_TCP), "{}", said(&copied));
    let by = events(&copied).into_iter().filter(|event| event["event"] == "carrier").count();
    assert_eq!(by, 1, "{}", said(&copied));
    assert!(std::fs::read(sshd.world.path("got")).unwrap() == content);
}

#[test]
fn a_near_end_behind_a_translator_of_addresses_copies_by_udp_both_ways() {
    if !require_root() {
        return;
    }
    let row = Row::new();
    row.near_is_behind_nat();
    let sshd = Sshd::with_gtp_at((ROW[3], 22), |sshd| row.far(&sshd));
    both_ways(&sshd, |command| row.near(command), "");
}

#[test]
fn of_a_far_end_behind_a_translator_that_leads_ssh_alone_to_it_ssh_carries_the_data() {
    if !require_root() {
        return;
    }
    let row = Row::new();
    row.far_is_behind_nat();
    let sshd = Sshd::with_gtp_at((ROW[3], 22), |sshd| row.far(&sshd));
    // From outside it has the translator's address.
    let config = sshd.world.path("ssh.conf");
    let text = std::fs::read_to_string(&config).unwrap().replace(ROW[3], ROW[1]);
    std::fs::write(&config, text).unwrap();
    both_ways(&sshd, |command| row.near(command), BY_SSH);
}

#[test]
fn through_a_jump_host_that_passes_on_nothing_else_ssh_carries_the_data() {
    if !require_root() {
        return;
    }
    let row = Row::new();
    let sshd = Sshd::with_gtp_at((ROW[3], 2222), |sshd| row.far(&sshd));
    let jump = Sshd::start_at((ROW[1], 22), "", |sshd| row.middle(&sshd));
    let read = |sshd: &Sshd| std::fs::read_to_string(sshd.world.path("ssh.conf")).unwrap();
    let config =
        format!("{}ProxyJump jump\n{}", read(&sshd), read(&jump).replace("Host far", "Host jump"));
    std::fs::write(sshd.world.path("ssh.conf"), config).unwrap();
    both_ways(&sshd, |command| row.near(command), BY_SSH);
}

/// What a login is configured to do about host keys, in place of believing any.
fn careful(sshd: &Sshd, known: &str, checking: &str) {
    std::fs::write(sshd.world.path("known"), known).unwrap();
    let config = sshd.world.path("ssh.conf");
    let text = std::fs::read_to_string(&config).unwrap();
    let text =
        text.replace("StrictHostKeyChecking no", &format!("StrictHostKeyChecking {checking}"));
    std::fs::write(&config, text.replace("LogLevel ERROR\n", "")).unwrap();
}

#[test]
fn a_host_key_that_is_unknown_or_another_one_is_sshs_to_refuse_and_its_words_are_shown() {
    let sshd = Sshd::with_gtp();
    sshd.file("a", 1_000);
    careful(&sshd, "", "yes");
    let unknown = expect(5, sshd.gtp("cp", &["far:a", "got"]));
    assert!(said(&unknown).contains("Host key verification failed"), "{}", said(&unknown));
    assert!(said(&unknown).contains("ssh failed"), "{}", said(&unknown));
    // The user's key in place of the host's.
    let key = std::fs::read_to_string(sshd.world.path("user.pub")).unwrap();
    let config = std::fs::read_to_string(sshd.world.path("ssh.conf")).unwrap();
    let port = config.lines().find_map(|line| line.strip_prefix("Port ")).unwrap();
    careful(&sshd, &format!("[127.0.0.1]:{port} {key}"), "yes");
    let changed = expect(5, sshd.gtp("cp", &["far:a", "got"]));
    assert!(
        said(&changed).contains("REMOTE HOST IDENTIFICATION HAS CHANGED"),
        "{}",
        said(&changed)
    );
    assert!(!sshd.world.path("got").exists());
}

#[test]
fn ssh_asks_on_the_terminal_about_a_host_key_and_the_copy_goes_on_with_the_answer() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("a", 10_000);
    careful(&sshd, "", "ask");
    let config = sshd.world.path("ssh.conf");
    let text = std::fs::read_to_string(&config).unwrap().replace("BatchMode yes\n", "");
    std::fs::write(&config, text).unwrap();
    // A terminal, on which the question is answered once it has come.
    let script = "import os, pty, sys\n\
        said = b''\n\
        def read(fd):\n\
        \x20   global said\n\
        \x20   data = os.read(fd, 1024)\n\
        \x20   said += data\n\
        \x20   if b'continue connecting' in said:\n\
        \x20       said = b''\n\
        \x20       os.write(fd, b'yes\\n')\n\
        \x20   return data\n\
        sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))\n";
    let copy = sshd.gtp("cp", &["far:a", "got"]);
    let mut terminal = Command::new("python3");
    terminal.args(["-c", script]).arg(copy.get_program()).args(copy.get_args());
    terminal.env_clear();
    terminal.envs(copy.get_envs().filter_map(|(name, value)| Some((name, value?))));
    terminal.current_dir(copy.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    let copied = terminal.output().unwrap();
    let shown = String::from_utf8_lossy(&copied.stdout).into_owned();
    assert!(copied.status.success(), "{shown} {}", said(&copied));
    assert!(shown.contains("continue connecting"), "{shown}");
    assert!(std::fs::read(sshd.world.path("got")).unwrap() == content);
}

#[test]
fn login_shells_of_all_kinds_start_the_far_end_and_one_that_lets_nobody_in_is_told_of() {
    for shell in ["sh", "bash", "dash", "zsh", "csh", "tcsh", "fish"] {
        let Some(path) = installed(shell) else {
            eprintln!("skipped: no {shell}");
            continue;
        };
        let line = format!("ForceCommand exec {path} -c \"$SSH_ORIGINAL_COMMAND\"\n");
        let sshd = Sshd::start(&line).and_gtp();
        let content = sshd.file("it's data", 10_000);
        expect(0, sshd.gtp("cp", &["far:it's data", "got"]));
        assert!(std::fs::read(sshd.world.path("got")).unwrap() == content, "{shell}");
        // One that puts the program there as well.
        let bare = Sshd::start(&line);
        expect(0, bare.gtp("cp", &["--install", "/etc/hostname", "far:sent"]));
        assert!(bare.home("sent").exists() && bare.cached().exists(), "{shell}");
    }
    let sshd = Sshd::start("ForceCommand /usr/sbin/nologin\n").and_gtp();
    sshd.file("a", 1_000);
    let refused = expect(5, sshd.gtp("cp", &["far:a", "got"]));
    assert!(said(&refused).contains("not available"), "{}", said(&refused));
    assert!(said(&refused).contains("ended with code 1"), "{}", said(&refused));
}

fn installed(shell: &str) -> Option<String> {
    let paths = ["/bin", "/usr/bin"].map(|dir| format!("{dir}/{shell}"));
    paths.into_iter().find(|path| Path::new(path).exists())
}

#[test]
fn a_far_end_of_another_architecture_gets_no_program_and_its_system_is_named() {
    let sshd =
        Sshd::start("ForceCommand export PATH=DIR/bin:$PATH; eval \"$SSH_ORIGINAL_COMMAND\"\n");
    sshd.file("a", 1_000);
    std::fs::create_dir(sshd.world.path("bin")).unwrap();
    let uname = sshd.world.path("bin/uname");
    std::fs::write(&uname, "#!/bin/sh\necho Linux riscv64\n").unwrap();
    std::fs::set_permissions(&uname, PermissionsExt::from_mode(0o755)).unwrap();
    let unfit = expect(5, sshd.gtp("cp", &["--install", "far:a", "got"]));
    assert!(said(&unfit).contains("does not run there"), "{}", said(&unfit));
    assert!(said(&unfit).contains("Linux riscv64"), "{}", said(&unfit));
    assert!(!sshd.home(".cache").exists(), "nothing was put there");
    let absent = expect(5, sshd.gtp("cp", &["far:a", "got"]));
    assert!(said(&absent).contains("Linux riscv64"), "{}", said(&absent));
}

/// Has a file system of this kind where a far end keeps programs, as long as `then` runs.
fn mounted(sshd: &Sshd, options: &str, then: impl FnOnce()) {
    let cache = sshd.home(".cache");
    std::fs::create_dir(&cache).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&cache);
    assert!(mount.status().unwrap().success());
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(then));
    assert!(Command::new("umount").arg(&cache).status().unwrap().success());
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn where_there_is_no_space_or_no_right_to_run_it_the_program_is_not_left_there() {
    if !require_root() {
        return;
    }
    for (options, told) in [("size=1m", "the disk"), ("noexec", "does not run there")] {
        let sshd = Sshd::start("");
        sshd.file("a", 1_000);
        mounted(&sshd, options, || {
            let refused = expect(5, sshd.gtp("cp", &["--install", "far:a", "got"]));
            assert!(said(&refused).contains(told), "{options}: {}", said(&refused));
            let left = sshd.cached().parent().unwrap().read_dir().unwrap().count();
            assert_eq!(left, 0, "{options}");
        });
    }
}

#[test]
fn a_target_that_is_no_file_and_no_directory_is_refused_by_its_own_path_and_stays() {
    let sshd = Sshd::with_gtp();
    let pipe = sshd.home("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(sshd.home("file"), "kept").unwrap();
    sshd.file("far", 10);
    sshd.world.export("../f", 1_000);
    for (to, why) in [
        ("far:/dev/null", "far: /dev/null: is a device, pipe or socket, and no destination"),
        ("far:/dev/null/", "far: /dev/null/: is a device, pipe or socket, and no destination"),
        ("far:pipe", "far: pipe: is a device, pipe or socket, and no destination"),
        ("far:pipe/x", "far: pipe/x: what should hold it is not a directory"),
        ("far:file/x", "far: file/x: what should hold it is not a directory"),
        ("far:file/", "far: file/: is not a directory, although its path ends in a slash"),
    ] {
        let refused = expect(4, sshd.gtp("cp", &["f", to]));
        assert!(said(&refused).contains(why), "{to}: {}", said(&refused));
    }
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(std::fs::read(sshd.home("file")).unwrap(), b"kept");
    // A refusal that only the copy itself finds names the far end's own path as well.
    std::fs::create_dir(sshd.home("dir")).unwrap();
    std::fs::create_dir(sshd.home("dir/f")).unwrap();
    let refused = expect(4, sshd.gtp("cp", &["f", "far:dir"]));
    let place = format!("the far end's {}", sshd.home("dir/f").display());
    assert!(said(&refused).contains(&place), "{}", said(&refused));
}

#[test]
fn a_login_that_never_answers_is_given_up_after_the_limit_by_cp_in_every_direction_and_by_sync() {
    let sshd = Sshd::start("ForceCommand echo Welcome; exec sleep 1000\n");
    std::fs::create_dir(sshd.world.path("tree")).unwrap();
    let given_up = |verb: &str, words: &[&str], seconds: u32, ssh: Option<&str>| {
        let limit = format!("{seconds}s");
        let mut command = sshd.gtp(verb, &[&["--login-limit", &limit], words].concat());
        command.envs(ssh.map(|ssh| ("GTP_SSH", ssh)));
        let told = said(&expect(5, command));
        assert!(told.contains(&format!("no answer for {seconds} s")), "{words:?}: {told}");
        assert!(told.contains("said: Welcome"), "{words:?}: {told}");
    };
    // A real login has the time that it takes on a busy machine.
    given_up("cp", &["far:a", "got"], 5, None);
    let says_welcome = sshd.instead("echo Welcome; exec sleep 1000");
    for (verb, words) in [
        ("cp", ["far:a", "got"]),
        ("cp", ["tree", "far:"]),
        ("cp", ["far:a", "far:b/"]),
        ("sync", ["far:a", "got/"]),
        ("sync", ["tree", "far:"]),
    ] {
        given_up(verb, &words, 1, Some(&says_welcome));
    }
}

/// A terminal of this test's own, and its name.
fn terminal() -> (std::os::fd::OwnedFd, String) {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::CLOEXEC;
    let terminal = rustix::pty::openpt(flags).unwrap();
    rustix::pty::grantpt(&terminal).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let name = rustix::pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    (terminal, name)
}

/// The same command as a shell starts it that passes on a terminal as descriptor 9.
fn given_terminal(command: &Command, name: &str) -> Command {
    let mut shell = Command::new("sh");
    let script = "exec 9<>\"$1\"; shift; exec \"$@\"";
    shell.args(["-c", script, "sh", name]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    shell.current_dir(command.get_current_dir().unwrap());
    shell
}

/// What a login has besides questions, on a busy machine too; and for how many seconds ssh asks.
const LIMIT: &str = "5s";
const ASKS: u32 = 7;

#[test]
fn a_terminal_that_gtp_was_started_with_is_no_question_of_sshs() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("data", 1_000);
    let (_terminal, name) = terminal();
    let mut silent = sshd.gtp("cp", &["--login-limit", "1s", "far:data", "got"]);
    silent.env("GTP_SSH", sshd.instead("exec sleep 1000"));
    let given_up = expect(5, given_terminal(&silent, &name));
    assert!(said(&given_up).contains("no answer for 1 s"), "{}", said(&given_up));
    // One that is opened is a question, whichever number it gets.
    let log_in = format!("exec ssh -F '{}' \"$@\"", sshd.world.path("ssh.conf").display());
    for number in [3, 9] {
        let ask = format!("exec {number}<>{name}; sleep {ASKS}; exec {number}>&-\n{log_in}");
        let mut asks = sshd.gtp("cp", &["--login-limit", LIMIT, "far:data", "got"]);
        asks.env("GTP_SSH", sshd.instead(&ask));
        expect(0, given_terminal(&asks, &name));
    }
    assert!(std::fs::read(sshd.world.path("got")).unwrap() == content);
}

#[test]
fn the_time_in_which_ssh_asks_on_the_terminal_or_by_a_program_is_not_cut_short() {
    let sshd = Sshd::with_gtp();
    let content = sshd.file("data", 1_000);
    let (_terminal, name) = terminal();
    let askpass = sshd.world.path("askpass");
    std::fs::write(&askpass, format!("#!/bin/sh\nsleep {ASKS}\n")).unwrap();
    std::fs::set_permissions(&askpass, PermissionsExt::from_mode(0o755)).unwrap();
    let log_in = format!("exec ssh -F '{}' \"$@\"", sshd.world.path("ssh.conf").display());
    for asks in
        [format!("exec 3<>{name}; sleep {ASKS}; exec 3>&-"), format!("'{}'", askpass.display())]
    {
        let ssh = sshd.instead(&format!("{asks}\n{log_in}"));
        let mut copy = sshd.gtp("cp", &["--login-limit", LIMIT, "far:data", "got"]);
        copy.env("GTP_SSH", ssh).env("SSH_ASKPASS", &askpass);
        expect(0, copy);
        assert!(std::fs::read(sshd.world.path("got")).unwrap() == content);
    }
    // Without a question the same time is too long.
    let ssh = sshd.instead(&format!("sleep {ASKS}\n{log_in}"));
    let mut copy = sshd.gtp("cp", &["--login-limit", LIMIT, "far:data", "got"]);
    copy.env("GTP_SSH", ssh);
    expect(5, copy);
}
