//! Tab in real shells: hosts, and paths behind the login of a real sshd on loopback.

mod common;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::sshd::{Sshd, find};
use common::{wait_for, writable};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A shell on a terminal, in a directory of its own.
struct Typed {
    keys: File,
    child: Child,
    line: PathBuf,
}

impl Drop for Typed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Key that has the shell write the line that is being typed into the file `line`.
const TELL: &[u8] = b"\x14";
/// Key that empties the line.
const EMPTY: &[u8] = b"\x15";

/// Starts a shell with the completion script of gtp, and waits for its prompt.
fn shell(sshd: &Sshd, name: &str) -> Typed {
    let world = &sshd.world;
    let script = sshd.gtp("completions", &[name]).output().unwrap();
    assert!(script.status.success());
    std::fs::write(world.path("script"), script.stdout).unwrap();
    let (line, ready) = (world.path("line"), world.path("ready"));
    let setup = SETUPS.iter().find(|(shell, _)| *shell == name).unwrap().1;
    std::fs::create_dir_all(world.path("bin")).unwrap();
    let gtp = world.path("bin/gtp");
    let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gtp"), gtp);
    std::fs::write(world.path("rc"), setup.replace("DIR/", &world.path("").display().to_string()))
        .unwrap();
    // The terminal is to be the shell's own.
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(find(name));
    match name {
        "bash" => command.args(["--noprofile", "--rcfile"]).arg(world.path("rc")).arg("-i"),
        "zsh" => {
            std::fs::rename(world.path("rc"), world.path(".zshrc")).unwrap();
            command.args(["-d", "-i"])
        }
        _ => command
            .args(["--private", "--init-command"])
            .arg(format!("source {}", world.path("rc").display())),
    };
    let keys = on_terminal(sshd, &mut command);
    let child = command.spawn().unwrap();
    let shell = Typed { keys, child, line };
    wait_for(&format!("a prompt of {name}"), || ready.exists());
    shell
}

/// What each shell reads first. The file `ready` is written when there is a prompt.
const SETUPS: [(&str, &str); 3] = [
    (
        "bash",
        "source DIR/script\nstty kill undef\n\
         tell() { printf %s \"$READLINE_LINE\" > DIR/new; mv DIR/new DIR/line; }\n\
         bind -x '\"\\C-t\": tell'\nbind 'set completion-query-items 0'\n\
         bind 'set page-completions off'\n\
         PROMPT_COMMAND=': > DIR/ready'\n",
    ),
    (
        "zsh",
        "fpath=(DIR/functions $fpath)\nmkdir -p DIR/functions; cp DIR/script DIR/functions/_gtp\n\
         autoload -Uz compinit; compinit -u -d DIR/dump\nsetopt no_auto_menu\n\
         tell() { print -rn -- \"$BUFFER\" > DIR/new; mv DIR/new DIR/line; }\n\
         zle -N tell; bindkey '^T' tell; bindkey '^U' kill-whole-line\n\
         precmd() { : > DIR/ready }\n",
    ),
    (
        "fish",
        "source DIR/script\nfunction tell; commandline > DIR/new; mv DIR/new DIR/line; end\n\
         bind \\ct tell\nbind \\cu kill-whole-line\n\
         function fish_prompt; echo > DIR/ready; echo '> '; end\n",
    ),
];

/// Puts a command on a terminal of its own; returns the typist's side.
fn on_terminal(sshd: &Sshd, command: &mut Command) -> File {
    let world = &sshd.world;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.path("bin").display());
    let ssh = format!("ssh -F {}", world.path("ssh.conf").display());
    command.env_clear().env("PATH", path).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env("GTP_SSH", ssh).env("GTP_CONFIG_DIR", world.path("client"));
    command.env("HOME", world.path("typist")).env("ZDOTDIR", world.path(""));
    command.current_dir(world.path("here"));
    command.stdin(slave()).stdout(slave()).stderr(slave());
    let keys = File::from(master);
    let mut shown = keys.try_clone().unwrap();
    // A terminal that nobody reads would stop the shell.
    std::thread::spawn(move || std::io::copy(&mut shown, &mut std::io::sink()));
    keys
}

impl Typed {
    /// Types a line and Tab at its end, and again where a login took too long for a shell, until
    /// the shell has made this of it.
    fn becomes(&mut self, typed: &str, made: &str) {
        let mut line = self.completed(typed);
        for _ in 0..AGAIN {
            if line != typed || line == made {
                break;
            }
            line = self.completed(typed);
        }
        assert_eq!(line, made, "{typed:?}");
    }

    /// What the shell makes of a line with Tab at its end.
    fn completed(&mut self, typed: &str) -> String {
        self.keys.write_all(EMPTY).unwrap();
        self.keys.write_all(typed.as_bytes()).unwrap();
        self.keys.write_all(b"\t").unwrap();
        self.keys.write_all(TELL).unwrap();
        wait_for(&format!("the line after {typed:?}"), || self.line.exists());
        let line = std::fs::read_to_string(&self.line).unwrap();
        std::fs::remove_file(&self.line).unwrap();
        // A shell may escape a percent sign, and reads both alike.
        line.replace("\\%", "%").trim_end_matches('\n').to_owned()
    }
}

/// How often Tab is pressed again on a busy machine.
const AGAIN: u32 = 5;

/// An sshd with files that are hard to write, and a directory here with others.
fn world() -> Sshd {
    let sshd = Sshd::start("");
    let data = ["data/run 42.h5", "data/run 43.h5", "data/it's/x"];
    for name in data.into_iter().chain(["my $HOME/a", "unique", "z;y", "w!x"]) {
        sshd.file(name, 1);
    }
    let world = &sshd.world;
    std::fs::create_dir_all(world.path("client")).unwrap();
    std::fs::create_dir_all(world.path("typist")).unwrap();
    std::fs::create_dir_all(world.path("here")).unwrap();
    std::fs::write(world.path("here/local file"), "x").unwrap();
    std::fs::write(world.path("client/config.toml"), "[host.lab]\naddress = \"far\"\n").unwrap();
    sshd
}

#[test]
fn bash_completes_hosts_and_what_is_behind_their_logins() {
    let sshd = world();
    let mut bash = shell(&sshd, "bash");
    for (typed, made) in [
        ("gtp cp la", "gtp cp lab:"),
        ("gtp cp fa", "gtp cp far:"),
        ("gtp get gtp://l", "gtp get gtp://lab/"),
        ("gtp cp lab:un", "gtp cp lab:unique "),
        ("gtp cp far:da", "gtp cp far:data/"),
        ("gtp cp far:data/r", "gtp cp far:data/run\\ 4"),
        ("gtp cp 'far:data/r", "gtp cp 'far:data/run 4"),
        ("gtp cp far:\"data/r", "gtp cp far:\"data/run 4"),
        ("gtp cp far:data/run\\ 43", "gtp cp far:data/run\\ 43.h5 "),
        ("gtp cp far:'data/run 43", "gtp cp far:'data/run 43.h5' "),
        ("gtp cp far:data/i", "gtp cp far:data/it\\'s/"),
        ("gtp cp far:m", "gtp cp far:my\\ \\$HOME/"),
        ("gtp cp far:my\\ \\$HOME/", "gtp cp far:my\\ \\$HOME/a "),
        ("gtp cp \"far:my", "gtp cp \"far:my \\$HOME/\""),
        ("gtp cp far:z", "gtp cp far:z\\;y "),
        ("gtp cp far:w", "gtp cp far:w\\!x "),
        ("gtp cp 'far:w", "gtp cp 'far:w!x' "),
        ("gtp cp \"far:w", "gtp cp \"far:w"),
        ("gtp cp far:~/un", "gtp cp far:~/unique "),
        ("gtp cp far:unique lab:un", "gtp cp far:unique lab:unique "),
        ("gtp cp --json far:un", "gtp cp --json far:unique "),
        ("gtp cp lo", "gtp cp local\\ file "),
        ("gtp cp far:none", "gtp cp far:none"),
        ("gtp cp --trace fa", "gtp cp --trace fa"),
        ("gtp ssh fa", "gtp ssh far "),
        ("gtp comple", "gtp completions "),
    ] {
        bash.becomes(typed, made);
    }
}

#[test]
fn zsh_completes_hosts_and_what_is_behind_their_logins() {
    let sshd = world();
    let mut zsh = shell(&sshd, "zsh");
    for (typed, made) in [
        ("gtp cp la", "gtp cp lab:"),
        ("gtp cp lab:un", "gtp cp lab:unique "),
        ("gtp cp far:da", "gtp cp far:data/"),
        ("gtp cp far:data/r", "gtp cp far:data/run\\ 4"),
        ("gtp cp far:data/run\\ 43", "gtp cp far:data/run\\ 43.h5 "),
        ("gtp cp far:data/i", "gtp cp far:data/it\\'s/"),
        ("gtp cp far:m", "gtp cp far:my\\ \\$HOME/"),
        ("gtp cp lo", "gtp cp local\\ file "),
        ("gtp sync far:my\\ \\$HOME/", "gtp sync far:my\\ \\$HOME/a "),
        ("gtp get gtp://l", "gtp get gtp://lab/"),
        ("gtp ssh fa", "gtp ssh far "),
        ("gtp cp far:none", "gtp cp far:none"),
    ] {
        zsh.becomes(typed, made);
    }
}

#[test]
fn fish_completes_hosts_and_what_is_behind_their_logins() {
    let sshd = world();
    let mut fish = shell(&sshd, "fish");
    for (typed, made) in [
        ("gtp cp la", "gtp cp lab:"),
        ("gtp cp lab:un", "gtp cp lab:unique "),
        ("gtp cp far:da", "gtp cp far:data/"),
        ("gtp cp far:data/run\\ 43", "gtp cp far:data/run\\ 43.h5 "),
        ("gtp cp far:data/i", "gtp cp far:data/it\\'s/"),
        ("gtp cp far:m", "gtp cp far:my\\ \\$HOME/"),
        ("gtp cp lo", "gtp cp local\\ file "),
        ("gtp cp far:none", "gtp cp far:none"),
    ] {
        fish.becomes(typed, made);
    }
}

/// What `gtp candidates` prints, and how long it takes.
fn completed(sshd: &Sshd, ssh: &str, word: &str) -> (String, Duration) {
    let begun = Instant::now();
    let mut command = sshd.gtp("candidates", &["cp", word]);
    let output = command.env("GTP_SSH", ssh).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    (String::from_utf8(output.stdout).unwrap(), begun.elapsed())
}

#[test]
fn a_login_that_hangs_asks_or_lies_is_given_up_at_once_and_silently() {
    let sshd = world();
    let silent = sshd.instead("exec sleep 60");
    let (said, took) = completed(&sshd, &silent, "far:da");
    assert!(said.is_empty() && took < Duration::from_secs(6), "{took:?}: {said}");
    let asks =
        sshd.instead("case \" $* \" in *\" BatchMode=yes \"*) exit 255;; esac; exec sleep 60");
    let (said, took) = completed(&sshd, &asks, "far:da");
    assert!(said.is_empty() && took < Duration::from_secs(3), "{took:?}: {said}");
    let lies = sshd.instead(
        "cat >/dev/null; echo gtp-names/1; printf 'a\\033[2Jb\\n../x\\n/etc\\nok\\n'; yes far",
    );
    let (said, took) = completed(&sshd, &lies, "far:da");
    assert!(said.starts_with("far:ok\nfar:far\n") && took < Duration::from_secs(6), "{took:?}");
    assert!(said.chars().all(|c| c == '\n' || !c.is_control()) && said.len() < 4 << 20);
}

#[test]
fn a_directory_of_any_name_is_listed_and_none_is_a_command() {
    let sshd = world();
    for dir in ["$(touch made)", "a'b\"c", "-l", "~", "a\\b", "!x", " s "] {
        sshd.file(&format!("{dir}/inside"), 1);
        let ssh = format!("ssh -F {}", sshd.world.path("ssh.conf").display());
        let word = format!("far:{}/", if dir == "~" { "./~" } else { dir });
        let made = format!("{word}inside\n");
        let is_listed = (0..=AGAIN).any(|_| completed(&sshd, &ssh, &word).0 == made);
        assert!(is_listed, "{dir}: {:?}", completed(&sshd, &ssh, &word));
    }
    assert!(!sshd.home("made").exists());
    let ssh = format!("ssh -F {}", sshd.world.path("ssh.conf").display());
    assert_eq!(completed(&sshd, &ssh, "me@la").0, "me@lab:\n");
    assert!(Path::new(&sshd.home("data")).is_dir());
}

#[test]
fn every_shell_completes_what_is_at_a_server_that_is_known_and_no_other_is_asked() {
    let sshd = world();
    let server = writable(&sshd.world, &[]);
    for name in ["run 42.h5", "deep/x", "deep/y y"] {
        sshd.world.export(name, 1);
    }
    let port = server.port;
    let url = |path: &str| format!("gtp get gtp://127.0.0.1:{port}/{path}");
    for name in ["bash", "zsh", "fish"] {
        let mut shell = shell(&sshd, name);
        for (typed, made) in [
            (url("ru"), url("run%2042.h5 ")),
            (url("de"), url("deep/")),
            (url("deep/y"), url("deep/y%20y ")),
            (url("none"), url("none")),
        ] {
            shell.becomes(&typed, &made);
        }
    }
    std::fs::remove_file(sshd.world.path("client/known_hosts")).unwrap();
    shell(&sshd, "bash").becomes(&url("ru"), &url("ru"));
}
