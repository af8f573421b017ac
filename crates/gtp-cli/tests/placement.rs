//! Where `get` and `put` put things: README's table, found by trying every case of it.
//!
//! Each case is run twice, and again with its first attempt killed. Every run must end with the
//! same exit code and leave the same files, without part files or journals.

mod common;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{Serving, World, bytes, size_of, wait_for, writable};

/// What is sent: the file `f`, and the directory `t` with one file in it.
const SOURCES: [(&str, &str); 7] =
    [("f", "d"), ("f", "d/"), ("t", "d"), ("t", "d/"), ("t/", "d"), ("t/", "d/"), ("f t", "d/")];

/// What is there before.
#[derive(Clone, Copy, PartialEq)]
enum There {
    Nothing,
    File,
    Directory,
    LinkToFile,
    LinkToDirectory,
}

const THERE: [There; 5] =
    [There::Nothing, There::File, There::Directory, There::LinkToFile, There::LinkToDirectory];

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Get,
    Put,
}

#[test]
fn readme_says_where_get_and_put_put_things_and_the_second_time_is_like_the_first() {
    let [got, put] = std::thread::scope(|scope| {
        let tried = [Verb::Get, Verb::Put].map(|verb| scope.spawn(move || Trial::new(verb).all()));
        tried.map(|trial| trial.join().unwrap())
    });
    let cell = |(get, put): (&String, &String)| match get == put {
        true => get.clone(),
        false => format!("`get` {get}; `put` {put}"),
    };
    let rows =
        SOURCES.iter().zip(got.iter().zip(&put)).map(|((source, destination), (get, put))| {
            let cells: Vec<_> = get.iter().zip(put).map(cell).collect();
            format!("| `{source}` → `{destination}` | {} |", cells.join(" | "))
        });
    let rows: Vec<_> = rows.collect();
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    for row in &rows {
        assert!(readme.contains(row), "README lacks a row of\n{}", rows.join("\n"));
    }
}

/// All cases of one verb, each in a directory of its own.
struct Trial {
    verb: Verb,
    world: World,
    server: Serving,
}

impl Trial {
    fn new(verb: Verb) -> Trial {
        let world = World::new();
        let server = match verb {
            Verb::Get => {
                let server = world.serve("server", &["--public"]);
                world.expect(0, &["ls", &server.url(""), "--accept-new"]);
                server
            }
            Verb::Put => writable(&world, &[]),
        };
        let from = world.path(if verb == Verb::Get { "export" } else { "from" });
        std::fs::create_dir_all(from.join("t")).unwrap();
        for name in ["f", "t/x"] {
            std::fs::write(from.join(name), bytes(SIZE, name.len() as u64)).unwrap();
        }
        Trial { verb, world, server }
    }

    fn all(&self) -> Vec<Vec<String>> {
        let row = |&(source, destination): &(&str, &str)| {
            THERE.iter().map(|&there| self.case(source, destination, there)).collect()
        };
        SOURCES.iter().map(row).collect()
    }

    /// What comes out, as a cell of the table.
    fn case(&self, source: &str, destination: &str, there: There) -> String {
        let what = format!("{source} to {destination}");
        let place = what.replace('/', "_").replace(' ', "-");
        let name = |attempt: &str| format!("{attempt}-{}-{place}", there as u8);
        let [once, twice, killed] = ["once", "twice", "killed"].map(name).map(|name| {
            let dir = self.place(&name);
            prepare(&dir, there);
            (name, dir)
        });
        let first = self.run(source, &format!("{}/{destination}", once.0), &once.1);
        self.run(source, &format!("{}/{destination}", twice.0), &twice.1);
        let second = self.run(source, &format!("{}/{destination}", twice.0), &twice.1);
        assert_eq!(first, second, "{what}, again");
        if !first.starts_with(|c: char| c.is_ascii_digit()) {
            self.kill_one(source, &format!("{}/{destination}", killed.0), &killed.1);
            let resumed = self.run(source, &format!("{}/{destination}", killed.0), &killed.1);
            assert_eq!(first, resumed, "{what}, after an attempt that was killed");
        }
        first
    }

    /// Where a case happens on the receiving side.
    fn place(&self, name: &str) -> PathBuf {
        let dir = match self.verb {
            Verb::Get => self.world.path(name),
            Verb::Put => self.world.path("export").join(name),
        };
        std::fs::create_dir(&dir).unwrap();
        dir
    }

    fn arguments(&self, sources: &str, destination: &str) -> Vec<String> {
        let sources = sources.split(' ');
        match self.verb {
            Verb::Get => {
                let urls = sources.map(|source| self.server.url(source));
                ["get".into()].into_iter().chain(urls).chain([destination.into()]).collect()
            }
            Verb::Put => {
                let paths = sources.map(|source| format!("from/{source}"));
                let url = self.server.url(destination);
                ["put".into()].into_iter().chain(paths).chain([url]).collect()
            }
        }
    }

    /// Runs it to its end; the files that have come, or the exit code.
    fn run(&self, sources: &str, destination: &str, dir: &Path) -> String {
        let arguments = self.arguments(sources, destination);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let output = self.world.run("client", &arguments);
        let found = found(dir);
        match output.status.code().unwrap() {
            0 => found.join(" "),
            code => {
                assert!(found.is_empty(), "{arguments:?} failed with {code} and left {found:?}");
                format!("{code}")
            }
        }
    }

    /// Runs it until something is there, and kills it.
    fn kill_one(&self, sources: &str, destination: &str, dir: &Path) {
        let mut arguments = self.arguments(sources, destination);
        arguments.extend(["--max-rate", "20Mbit"].map(String::from));
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let mut command = self.world.gtp("client", &arguments);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        wait_for("a journaled block", || journaled(dir));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Long enough for an attempt to be killed in the middle of it.
const SIZE: usize = 1_300_000;

fn prepare(dir: &Path, there: There) {
    let d = dir.join("d");
    std::fs::write(dir.join("file"), b"older").unwrap();
    std::fs::create_dir(dir.join("dir")).unwrap();
    match there {
        There::Nothing => {}
        There::File => std::fs::write(d, b"older").unwrap(),
        There::Directory => std::fs::create_dir(d).unwrap(),
        There::LinkToFile => symlink("file", d).unwrap(),
        There::LinkToDirectory => symlink("dir", d).unwrap(),
    }
}

/// Which of the places that things can go to have them.
fn found(dir: &Path) -> Vec<String> {
    let places = ["d", "d/f", "d/x", "d/t/x", "d/d/f", "d/d/x", "d/t/t/x", "f", "t/x", "x"];
    let whole = |place: &str| size_of(&dir.join(place)) == SIZE as u64;
    let found = places.iter().filter(|place| whole(place)).map(|place| format!("`{place}`"));
    let found: Vec<_> = found.collect();
    let left = leftovers(dir);
    assert!(left.is_empty(), "{left:?} is left in {}", dir.display());
    found
}

fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            left.extend(leftovers(&path));
        } else if entry.file_name().to_string_lossy().contains(".gtp-") {
            left.push(path);
        }
    }
    left
}

/// Whether a journal beneath has more than the names that it begins with.
fn journaled(dir: &Path) -> bool {
    let journals = leftovers(dir);
    let journal = journals.iter().find(|path| path.to_string_lossy().ends_with("gtp-journal"));
    journal.is_some_and(|journal| size_of(journal) > 200)
}
