//! The commands that README shows, each run twice: both times with the exit code that README
//! states, and with the same files afterwards.
//!
//! README's hosts and directories stand for ones of this test; [`World::here`] is the table. A
//! command that is neither run nor named in [`ELSEWHERE`] fails the test.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Serving;

/// Commands that other parts of the project run, and what runs them.
const ELSEWHERE: [(&str, &str); 3] = [
    ("make demo", "tests/demo.rs, and .ci/run by make test"),
    ("make test", ".ci/run"),
    ("make install", "it builds everything optimised, into the home directory"),
];

/// The commands in the shell blocks of a document, without their comments.
fn commands(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in document.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            let command = line.split(" #").next().unwrap_or_default().trim();
            if !command.is_empty() && !command.starts_with('#') {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

struct World {
    world: common::World,
    /// Hosts A, C and D serve; B takes.
    hosts: [(&'static str, Serving); 4],
}

impl World {
    fn new() -> World {
        let world = common::World::new();
        for host in ["A", "C", "D"] {
            for (name, size) in [("run42.h5", 700_000), ("copies/run42.h5", 700_000)] {
                let path = world.path(host).join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, common::bytes(size, 42)).unwrap();
            }
            std::fs::create_dir_all(world.path(host).join("run42/deeper")).unwrap();
            std::fs::write(world.path(host).join("run42/deeper/x"), common::bytes(9_000, 7))
                .unwrap();
        }
        for directory in ["B", "work/notes", "client", "server", "home"] {
            std::fs::create_dir_all(world.path(directory)).unwrap();
        }
        std::fs::write(world.path("work/notes/today"), b"all is well").unwrap();
        let id = world.run("client", &["id"]).stdout;
        std::fs::write(world.path("server/authorized_keys"), id).unwrap();
        let serve =
            |host: &'static str, more: &[&str]| (host, world.serve_dir("server", host, more));
        let hosts =
            [serve("A", &[]), serve("C", &[]), serve("D", &[]), serve("B", &["--writable"])];
        World { world, hosts }
    }

    /// A command of README as it is here: the table of what stands for what.
    fn here(&self, command: &str) -> String {
        let mut here = command.to_owned();
        for (host, serving) in &self.hosts {
            let address = format!("gtp://127.0.0.1:{}/", serving.port);
            here = here.replace(&format!("gtp://{host}/"), &address);
        }
        let path = |name: &str| self.world.path(name).display().to_string();
        let id = self.world.run("client", &["id"]).stdout;
        here.replace("/data/export", &path("A"))
            .replace("/data/inbox", &path("B"))
            .replace("~/.config/gtp", &path("home/.config/gtp"))
            .replace("SHA256:…", String::from_utf8(id).unwrap().trim())
    }

    /// Runs a command as a shell would, in the client's directory, and returns its exit code and
    /// what it said.
    fn run(&self, command: &str) -> (Option<i32>, String) {
        let gtp = PathBuf::from(env!("CARGO_BIN_EXE_gtp"));
        let mut path = gtp.parent().unwrap().as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().env("PATH", path).env("HOME", self.world.path("home"));
        shell.env("GTP_CONFIG_DIR", self.world.path("client"));
        shell.current_dir(self.world.path("work")).args(["-c", command]);
        let output = shell.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Every file of the client and of the host that takes, with its content.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for directory in ["work", "B"] {
            add_files(&self.world.path(directory), &mut files);
        }
        files
    }
}

fn add_files(directory: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_files(&path, files),
            false => {
                files.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
}

#[test]
fn every_command_of_readme_has_the_same_result_when_it_is_run_again() {
    let readme = include_str!("../../../README.md");
    let commands = commands(readme);
    assert!(commands.len() >= 10, "{commands:?}");
    let world = World::new();
    let (mut fetched, mut served) = (0, 0);
    for command in &commands {
        if ELSEWHERE.iter().any(|(known, _)| command == known) {
            continue;
        }
        let here = world.here(command);
        if here.starts_with("gtp serve ") {
            // It serves until it is ended: the second one begins as the first one did.
            for _ in 0..2 {
                let words: Vec<&str> = here.split_whitespace().skip(1).collect();
                let mut serve = world.world.gtp("server", &words);
                serve.args(["--json", "--listen", "127.0.0.1:0"]);
                drop(Serving::start(serve));
            }
            served += 1;
            continue;
        }
        let first = world.run(&here);
        let after_first = world.files();
        let second = world.run(&here);
        assert_eq!((first.0, second.0), (Some(0), Some(0)), "{command}: {first:?}, {second:?}");
        let changed = world.files();
        assert!(after_first.keys().eq(changed.keys()), "{command}: {:?}", changed.keys());
        assert!(after_first == changed, "{command} changes what it has made");
        fetched += 1;
    }
    assert!(fetched >= 6 && served >= 3, "{fetched} and {served}: {commands:?}");
    let arrived = world.files();
    for path in ["work/run42.h5", "work/run42/deeper/x", "B/run42.h5", "B/today"] {
        assert!(arrived.contains_key(&world.world.path(path)), "{path}: {:?}", arrived.keys());
    }
}

#[test]
fn the_other_documents_show_no_command_that_is_never_run() {
    for document in
        [include_str!("../../../docs/DAEMON.md"), include_str!("../../../docs/SOCKETS.md")]
    {
        assert_eq!(commands(document), Vec::<String>::new(), "run these twice as well");
    }
}
