//! OpenSSH servers of these tests: their configuration, their keys, and one that gtp logs in to.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::ports::free_port;
use super::{World, bytes, wait_for};

/// The configuration of a server, with `PORT`, `ADDRESS` and `DIR/` to be replaced.
pub const CONFIG: &str = "Port PORT
ListenAddress ADDRESS
HostKey DIR/host
AuthorizedKeysFile DIR/user.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
";

/// Makes the keys of the server and of its user, and the directory that OpenSSH wants.
pub fn prepare(dir: &Path) {
    for key in ["host", "user"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
        assert!(keygen.status().expect("ssh-keygen is needed").success());
    }
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
}

/// The name of the user who runs the tests.
pub fn user() -> String {
    let user = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(user.stdout).unwrap().trim().to_owned()
}

const SSH: &str = "Host far
HostName ADDRESS
Port PORT
User NAME
IdentityFile DIR/user
IdentitiesOnly yes
UserKnownHostsFile DIR/known
StrictHostKeyChecking no
LogLevel ERROR
BatchMode yes
";

/// This machine as a host that ssh logs in to, whose logins have a home of their own.
pub struct Sshd {
    pub world: World,
    child: Child,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a program is, also for users whose path leaves out those of administrators.
pub fn find(program: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|at| at.is_file());
    found.unwrap_or_else(|| panic!("{program} is needed: scripts/setup test"))
}

impl Sshd {
    /// On loopback; `more` is for its configuration.
    pub fn start(more: &str) -> Sshd {
        Sshd::start_at(("127.0.0.1", free_port()), more, |sshd| sshd)
    }

    /// On this address; `at` makes of the command that starts it one that does so elsewhere.
    pub fn start_at(
        (address, port): (&str, u16),
        more: &str,
        at: impl Fn(Command) -> Command,
    ) -> Sshd {
        let world = World::new();
        std::fs::create_dir_all(world.path("home")).unwrap();
        prepare(&world.path(""));
        let user = user();
        let dir = world.path("").display().to_string();
        let write = |name: &str, text: &str| {
            let text = text.replace("DIR/", &dir).replace("PORT", &port.to_string());
            let text = text.replace("ADDRESS", address);
            std::fs::write(world.path(name), text.replace("NAME", &user)).unwrap();
        };
        write("sshd.conf", &format!("{}SetEnv HOME=DIR/home\n{more}", CONFIG));
        write("ssh.conf", SSH);
        let log = std::fs::File::create(world.path("sshd.log")).unwrap();
        let mut command = at(Command::new(find("sshd")));
        command.args(["-D", "-e", "-f"]).arg(world.path("sshd.conf")).stderr(log);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let log = || std::fs::read_to_string(world.path("sshd.log")).unwrap();
        wait_for("an sshd", || log().contains("Server listening on"));
        Sshd { world, child }
    }

    /// On loopback, with the program where a far end looks for it.
    pub fn with_gtp() -> Sshd {
        Sshd::start("").and_gtp()
    }

    /// The same on this address; `at` is as for [`Sshd::start_at`].
    pub fn with_gtp_at(address: (&str, u16), at: impl Fn(Command) -> Command) -> Sshd {
        Sshd::start_at(address, "", at).and_gtp()
    }

    /// Puts this program where a far end looks for it.
    pub fn and_gtp(self) -> Sshd {
        self.cache(Path::new(env!("CARGO_BIN_EXE_gtp")));
        self
    }

    pub fn cached(&self) -> PathBuf {
        self.home(&format!(".cache/gtp/{}/gtp", env!("CARGO_PKG_VERSION")))
    }

    /// Puts a program into the far end's cache.
    pub fn cache(&self, program: &Path) {
        let at = self.cached();
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(program, at).unwrap();
    }

    pub fn home(&self, name: &str) -> PathBuf {
        self.world.path("home").join(name)
    }

    /// A command of gtp by this sshd's own way of logging in.
    pub fn gtp(&self, verb: &str, words: &[&str]) -> Command {
        let mut command = self.world.gtp("client", &[&[verb], words].concat());
        let ssh = format!("ssh -F {}", self.world.path("ssh.conf").display());
        command.env("GTP_SSH", ssh).env("PATH", "/usr/bin:/bin").env("GTP_DAEMON", "off");
        command
    }

    /// Writes a file of the login's home and returns its content.
    pub fn file(&self, name: &str, size: usize) -> Vec<u8> {
        let content = bytes(size, name.len() as u64);
        let path = self.home(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &content).unwrap();
        content
    }

    /// Far ends that run from this sshd's cache.
    pub fn far_ends(&self) -> usize {
        self.far_end_ids().len()
    }

    /// Their process ids.
    pub fn far_end_ids(&self) -> Vec<i32> {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let home = format!("HOME={}", self.world.path("home").display());
        let is_far_end = |dir: &Path| {
            let line = std::fs::read(dir.join("cmdline")).unwrap_or_default();
            let environment = std::fs::read(dir.join("environ")).unwrap_or_default();
            let has_home = environment.split(|&b| b == 0).any(|word| word == home.as_bytes());
            has_home && line.split(|&b| b == 0).any(|word| word == b"far-end")
        };
        let far_ends = processes.filter(|entry| is_far_end(&entry.path()));
        far_ends.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// A program that stands for ssh: a script for `sh`.
    pub fn instead(&self, script: &str) -> String {
        let path = self.world.path("instead");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}
