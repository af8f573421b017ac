//! C programs against the header and the library: one ported by a prefix, one that forks, and the
//! header's words against the code's.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const CALLS: [&str; 20] = [
    "socket",
    "bind",
    "listen",
    "accept",
    "connect",
    "send",
    "recv",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "close",
    "shutdown",
    "setsockopt",
    "getsockopt",
    "getsockname",
    "poll",
    "select",
    "fcntl",
    "sendfile",
];

fn source(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Where cargo has put the library: beside the tests, or above them.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let beside = test.parent().unwrap();
    [beside, beside.parent().unwrap()]
        .into_iter()
        .map(|dir| dir.join("libgtp_c.so"))
        .find(|file| file.exists())
        .expect("the library is built")
}

/// Puts the prefix before each call, and nothing else.
fn ported(plain: &str) -> String {
    let mut ported = plain.to_owned();
    for call in CALLS {
        let mut out = String::new();
        let mut rest = &ported[..];
        while let Some(at) = rest.find(&format!("{call}(")) {
            let before = rest[..at].chars().next_back();
            let whole = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            out.push_str(&rest[..at]);
            out.push_str(if whole { "g_" } else { "" });
            out.push_str(call);
            rest = &rest[at + call.len()..];
        }
        out.push_str(rest);
        ported = out;
    }
    ported
}

struct World {
    dir: TempDir,
    /// For the C compiler.
    options: &'static [&'static str],
}

/// The C side watched by its compiler: what it does wrong with memory, or what C does not define,
/// ends the program. The heap is watched on both sides of the border.
const SANITIZED: &[&str] = &["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

impl World {
    /// Once with programs as they are, and once with programs that are watched.
    fn each(claim: impl Fn(&World)) {
        claim(&World::new(&[]));
        claim(&World::new(SANITIZED));
    }

    fn new(options: &'static [&'static str]) -> World {
        let dir = tempfile::tempdir().unwrap();
        // As it is installed: by the name that is linked against, and the one that is loaded.
        for name in ["libgtp.so", "libgtp.so.0"] {
            std::os::unix::fs::symlink(library(), dir.path().join(name)).unwrap();
        }
        World { dir, options }
    }

    fn compile(&self, name: &str, text: &str, gtp: Gtp) -> PathBuf {
        let (file, program) =
            (self.dir.path().join(format!("{name}.c")), self.dir.path().join(name));
        std::fs::write(&file, text).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-O1"]).args(self.options);
        cc.arg("-o").arg(&program).arg(&file);
        if gtp == Gtp::Linked {
            let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
            cc.arg("-I").arg(&include).arg("-include").arg(include.join("gtp.h"));
            cc.arg("-L").arg(self.dir.path()).arg("-lgtp");
            cc.arg(format!("-Wl,-rpath,{}", self.dir.path().display()));
        }
        let out = cc.output().expect("a C compiler, cc, is needed");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        program
    }

    /// A program with a configuration of its own, that anybody may call and that trusts anybody.
    fn command(&self, program: &Path, who: &str) -> Command {
        let mut command = Command::new(program);
        command.env("GTP_CONFIG_DIR", self.dir.path().join(who));
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command.env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
        command
    }

    /// Starts the echo server; also says its port.
    fn server(&self, program: &Path) -> (Child, String) {
        let mut server = self.command(program, "server").stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
        (server, port.trim().to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gtp {
    Linked,
    Absent,
}

fn echo(world: &World, program: &Path, later: &[&str]) {
    let (mut server, port) = world.server(program);
    let mut client = world.command(program, "client");
    client.arg(&port).args(later).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let said: Vec<u8> =
        (0..3_000_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 9) as u8).collect();
    let mut to = client.stdin.take().unwrap();
    let words = said.clone();
    let writing = std::thread::spawn(move || to.write_all(&words).unwrap());
    let mut heard = Vec::new();
    client.stdout.take().unwrap().read_to_end(&mut heard).unwrap();
    writing.join().unwrap();
    assert!(client.wait().unwrap().success() && server.wait().unwrap().success());
    assert!(heard == said, "{} of {}", heard.len(), said.len());
}

#[test]
fn a_program_of_plain_sockets_speaks_gtp_once_its_calls_have_a_prefix() {
    World::each(|world| {
        let plain = source("tests/echo.c");
        echo(world, &world.compile("plain", &plain, Gtp::Absent), &[]);
        let program = world.compile("ported", &ported(&plain), Gtp::Linked);
        echo(world, &program, &[]);
        echo(world, &program, &["later"]);
    });
}

#[test]
fn messages_of_several_pieces_are_as_over_tcp_and_ancillary_data_do_not_travel() {
    World::each(|world| {
        let [tcp, gtp] = [Gtp::Absent, Gtp::Linked].map(|gtp| {
            let of = |name: &str| source(&format!("tests/{name}.c"));
            let compile = |name: &str| match gtp {
                Gtp::Linked => world.compile(&format!("ported-{name}"), &ported(&of(name)), gtp),
                Gtp::Absent => world.compile(&format!("plain-{name}"), &of(name), gtp),
            };
            let (echo, messages) = (compile("echo"), compile("messages"));
            let (mut server, port) = world.server(&echo);
            let out = world.command(&messages, "client").arg(&port).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            assert!(server.wait().unwrap().success());
            String::from_utf8(out.stdout).unwrap()
        });
        assert_eq!(tcp, gtp);
        assert!(gtp.contains("came 7: one two, control 0"), "{gtp}");
        assert!(gtp.contains("came 5: three, address 0"), "{gtp}");
    });
}

#[test]
fn connecting_where_nobody_listens_is_refused_at_once_and_later() {
    World::each(|world| {
        let program = world.compile("ported", &ported(&source("tests/echo.c")), Gtp::Linked);
        // Nobody has the port that was a listener's until now.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for later in [&[][..], &["later"]] {
            let mut client = world.command(&program, "client");
            let out = client.arg(port.to_string()).args(later).output().unwrap();
            assert_eq!(out.status.code(), Some(1));
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.contains("Connection refused"), "{said}");
        }
    });
}

#[test]
fn a_forked_childs_copy_is_dead_and_the_parents_connection_goes_on_to_its_last_byte() {
    World::each(|world| {
        let echo = world.compile("ported", &ported(&source("tests/echo.c")), Gtp::Linked);
        let program = world.compile("forks", &source("tests/fork.c"), Gtp::Linked);
        let (mut server, port) = world.server(&echo);
        let out = world.command(&program, "client").arg(port).output().unwrap();
        let (said, failed) = (out.stdout, String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{failed}");
        assert_eq!((String::from_utf8_lossy(&said), failed), ("again\n".into(), "".into()));
        assert!(server.wait().unwrap().success(), "it got the end and no error");
    });
}

#[test]
fn a_socket_whose_connection_was_refused_can_be_connected_again() {
    World::each(|world| {
        let echo = world.compile("ported", &ported(&source("tests/echo.c")), Gtp::Linked);
        let program = world.compile("again", &source("tests/again.c"), Gtp::Linked);
        // Nobody has the port that was a listener's until now.
        let nobody =
            std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for later in ["at once", "later"] {
            let (mut server, port) = world.server(&echo);
            let mut client = world.command(&program, "client");
            let out = client.args([later, &nobody.to_string(), &port]).output().unwrap();
            let (said, failed) = (out.stdout, String::from_utf8_lossy(&out.stderr));
            assert_eq!((String::from_utf8_lossy(&said), failed), ("heard\n".into(), "".into()));
            assert!(out.status.success() && server.wait().unwrap().success());
        }
    });
}

#[test]
fn addresses_are_spelled_in_a_sockets_family_and_a_break_shows_to_one_that_says_nothing() {
    World::each(|world| {
        let program = world.compile("names", &source("tests/names.c"), Gtp::Linked);
        let out = world.command(&program, "both").output().unwrap();
        let (said, failed) = (out.stdout, String::from_utf8_lossy(&out.stderr));
        assert_eq!((String::from_utf8_lossy(&said), failed), ("named\n".into(), "".into()));
        assert!(out.status.success());
    });
}

#[test]
fn what_was_printed_is_delivered_when_a_program_ends_and_no_reader_holds_the_end_up() {
    World::each(|world| {
        let program = world.compile("ends", &source("tests/ends.c"), Gtp::Linked);
        for reader in ["alone", "beside"] {
            let mut server =
                world.command(&program, "server").stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
            let port = lines.next().unwrap().unwrap();
            let mut client = world.command(&program, "client");
            // With its end, a reader of this would end.
            let mut client = client.args([reader, &port]).stdin(Stdio::piped()).spawn().unwrap();
            let kept = client.stdin.take();
            assert_eq!(lines.next().unwrap().unwrap(), "what was printed last");
            assert!(client.wait().unwrap().success() && server.wait().unwrap().success());
            drop(kept);
        }
    });
}

#[test]
fn signals_are_the_programs_own_and_no_thread_of_the_library_takes_them() {
    World::each(|world| {
        let program = world.compile("ported", &ported(&source("tests/echo.c")), Gtp::Linked);
        let (mut server, _port) = world.server(&program);
        let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
        let mut judged = 0;
        for thread in threads.map(|thread| thread.unwrap()) {
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
            let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
            // INT, USR1, PIPE, ALRM, TERM, CHLD, by their numbers.
            let wanted =
                [2, 10, 13, 14, 15, 17].iter().fold(0, |set, signal| set | 1 << (signal - 1));
            let own = thread.file_name().to_str() == Some(&server.id().to_string());
            assert_eq!(blocked & wanted, if own { 0 } else { wanted }, "{status}");
            judged += 1;
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(judged > 2, "{judged} threads");
    });
}

#[test]
fn a_program_that_is_watched_ends_where_it_is_wrong() {
    let world = World::new(SANITIZED);
    let wrongs = [
        "char *few = malloc(9); few[8 + argc] = 1; int got = few[argc]; free(few); return got;",
        "int most = 2147483647; return most + argc > 0;",
    ];
    for wrong in wrongs {
        let text = format!(
            "#include <stdlib.h>\nint main(int argc, char **argv) {{ (void)argv; {wrong} }}"
        );
        let program = world.compile("wrong", &text, Gtp::Absent);
        let ended = world.command(&program, "nobody").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.contains("wrong"), "{said}");
    }
}

/// Names of functions with how many arguments they take.
fn functions(text: &str, marks: &[&str]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for mark in marks {
        for (at, _) in text.match_indices(mark) {
            let tail = &text[at + mark.len()..];
            let (name, rest) = tail.split_once('(').unwrap();
            let name = name.trim_start_matches('*');
            let called = name.starts_with("g_")
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if called {
                let arguments = rest.split_once(')').unwrap().0;
                let all = arguments.split(',').map(str::trim);
                let count = all.filter(|part| !part.is_empty() && *part != "void").count();
                found.insert(name.to_owned(), count);
            }
        }
    }
    found
}

#[test]
fn header_and_code_name_the_same_functions_and_numbers() {
    let (header, code) = (source("include/gtp.h"), source("src/border.rs"));
    let prototypes = header.split("static inline").next().unwrap();
    let declared = functions(prototypes, &["int ", "ssize_t ", "char *"]);
    let defined = functions(&code, &["extern \"C\" fn "]);
    assert_eq!(declared, defined);
    assert!(declared.len() > 15, "{declared:?}");
    let mut numbers = 0;
    for line in header.lines().filter_map(|line| line.strip_prefix("#define ")) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(value)) = (words.next(), words.next()) else { continue };
        assert!(code.contains(&format!("const {name}: c_int = {value};")), "{name} is {value}");
        numbers += 1;
    }
    assert_eq!(numbers, 6);
}
