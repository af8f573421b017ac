//! What a program can notice of its sockets: the same cases as they are and under `gtp run`, line
//! by line. Where they differ, docs/SOCKETS.md says so, and says no more than that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SOCKETS.md");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sockets");
/// Around the list of differences in that document: a table, whose first column names cases.
const LIST: [&str; 2] = ["<!-- differences -->", "<!-- end of differences -->"];
/// docs/SOCKETS.md gives this number; if fewer run, a file of cases was missed.
const CASES_LEAST: usize = 230;

/// Outcomes by case.
type Outcomes = BTreeMap<String, String>;

fn outcomes(mut command: Command) -> Outcomes {
    let ran = command.output().unwrap();
    let (out, failed) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {out}{failed}");
    let lines = out.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(case, outcome)| (case.to_owned(), outcome.to_owned())).collect()
}

/// Cases that the document says to differ.
fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let (_, rest) = text.split_once(LIST[0]).expect("a list of differences");
    let (list, _) = rest.split_once(LIST[1]).expect("the end of that list");
    let first = list.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let cells = list.lines().filter_map(|line| line.split('|').nth(1));
    let cases: BTreeSet<String> =
        cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert!(first.count() <= cases.len());
    cases
}

/// The library that is put before others, where cargo has put it.
fn preload() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libgtp_preload.so")
}

fn python() -> Command {
    // The program itself: what `python3` names may be a chain of scripts.
    let names = ["-c", "import sys; print(sys.executable)"];
    let said = Command::new("python3").args(names).output().unwrap().stdout;
    let mut python = Command::new(String::from_utf8(said).unwrap().trim());
    python.arg(Path::new(SOURCES).join("python/cases.py"));
    python
}

fn compiled(dir: &Path) -> Command {
    let program = dir.join("cases");
    let files = std::fs::read_dir(Path::new(SOURCES).join("c")).unwrap();
    let sources = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "c"));
    let options = ["-Wall", "-Werror", "-pthread", "-o"];
    let cc = Command::new("cc").args(options).arg(&program).args(sources).output().unwrap();
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    Command::new(program)
}

/// The same command under `gtp run`, with a pump of its own; nothing of it goes over TCP.
fn under_gtp_run(dir: &Path, plain: &Command) -> Command {
    let preload = preload();
    let mut gtp = Command::new(env!("CARGO_BIN_EXE_gtp"));
    gtp.args(["run", "--require", "--"]).arg(plain.get_program()).args(plain.get_args());
    gtp.env("GTP_CONFIG_DIR", dir.join("config")).env("GTP_PUMP", dir.join("pump.sock"));
    gtp.env("GTP_PRELOAD", preload).env("GTP_DAEMON", "off").env("GTP_PUMP_IDLE", "1s");
    gtp.env("GTP_RUN_LOOPBACK", "1").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
    let port = std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
    gtp.env("GTP_PUMP_LISTEN", format!("[::]:{port}"));
    gtp
}

#[test]
fn programs_see_the_kernels_own_sockets_but_for_what_the_document_lists() {
    let dir = tempfile::tempdir().unwrap();
    let mut differ = BTreeMap::new();
    let mut count = 0;
    for plain in [python(), compiled(dir.path())] {
        let beneath = outcomes(under_gtp_run(dir.path(), &plain));
        let plain = outcomes(plain);
        assert!(plain.keys().eq(beneath.keys()), "{plain:#?}{beneath:#?}");
        count += plain.len();
        differ.extend(plain.into_iter().filter_map(|(case, kernels)| {
            let ours = beneath[&case].clone();
            (ours != kernels).then_some((case, [kernels, ours]))
        }));
    }
    let listed = listed();
    let more: Vec<_> = differ.iter().filter(|(case, _)| !listed.contains(*case)).collect();
    assert!(more.is_empty(), "these differ and are not listed: {more:#?}");
    let less: Vec<_> = listed.iter().filter(|case| !differ.contains_key(*case)).collect();
    assert!(less.is_empty(), "these are listed and do not differ: {less:#?}");
    assert!(count >= CASES_LEAST, "{count} cases");
}

/// Connects within the host over IPv6, and asks five times where that leads.
const ASKS_FIVE_TIMES: &str = "
import socket
heard = socket.create_server(('::1', 0), family=socket.AF_INET6)
client = socket.create_connection(heard.getsockname()[:2])
print({client.getpeername()[:2] == heard.getsockname()[:2] for _ in range(5)})
";

#[test]
fn where_a_connection_within_the_host_leads_is_asked_of_the_pump_once() {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen,
        recv, send, socket,
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("counts.sock");
    let counts = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&counts, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&counts, 8).unwrap();
    // A pump that has connected nothing; it ends when nothing is asked any more.
    let pump = std::thread::spawn(move || {
        let mut asked = Vec::new();
        loop {
            let program = accept(&counts).unwrap();
            let mut question = [0; 200];
            let (count, _) = recv(&program, &mut question[..], RecvFlags::empty()).unwrap();
            let question = String::from_utf8_lossy(&question[..count]).into_owned();
            if question == "over" {
                return asked;
            }
            send(&program, b"tcp", SendFlags::NOSIGNAL).unwrap();
            asked.push(question);
        }
    });
    let mut command = Command::new(python().get_program());
    command.env("LD_PRELOAD", preload()).env("GTP_RUN_SOCKET", &path);
    let ran = command.args(["-c", ASKS_FIVE_TIMES]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "{True}\n", "{ran:?}");
    let over = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::connect(&over, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    send(&over, b"over", SendFlags::NOSIGNAL).unwrap();
    let asked = pump.join().unwrap();
    let peers = asked.iter().filter(|question| question.contains(" peer ")).count();
    assert_eq!(peers, 1, "{asked:?}");
}
