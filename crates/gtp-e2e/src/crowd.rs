//! More clients than a server has room for, all at once, on a busy machine.
//!
//! One `gtp serve` on loopback may have 1,024 descriptors open. Five hundred clients with listed
//! keys fetch a file at the same moment, with and without other processes that take all the
//! processor time they get. Each client must have the file, or have been told to come later: a
//! server that is slow is no firewall.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::product::{Server, program};
use crate::running::Running;

/// Clients at once.
const CLIENTS: usize = 500;
/// Descriptors that the server may have open.
const DESCRIPTORS: u32 = 1_024;
/// Length of the file, in bytes.
const LENGTH: usize = 4_000_000;
/// Processes of other work in the second row.
const OTHERS: usize = 4;
/// The exit code of a client that was told to come later for as long as it tried.
const LATER: i32 = 5;

/// Runs the case once: a row without other work, and one beside it.
///
/// # Errors
/// If a process cannot be started.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    [0, OTHERS].into_iter().map(|others| crowd(tools, others)).collect()
}

fn crowd(tools: &Tools, others: usize) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    let content = make(tools, at)?;
    let server = serve(tools, at)?;
    let _others = (0..others).map(|_| busy()).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|number| fetch(tools, at, &server, number));
    let clients = clients.collect::<Result<Vec<Child>>>()?;
    let (mut ends, mut served) = (BTreeMap::<String, usize>::new(), 0);
    let mut missed = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        let output = client.wait_with_output()?;
        let code = output.status.code();
        *ends.entry(code.map_or("killed".into(), |code| code.to_string())).or_default() += 1;
        let whole = || std::fs::read(at.join(format!("out{number}"))).is_ok_and(|is| is == content);
        match code {
            Some(0) if whole() => served += 1,
            Some(LATER) => {}
            _ => {
                let words = String::from_utf8_lossy(&output.stderr);
                let last = words.lines().last().unwrap_or("nothing");
                missed.push(format!("client {number}: {code:?}: {last}"));
            }
        }
    }
    Ok(json!({"case": "crowd", "clients": CLIENTS, "other_processes": others, "served": served,
        "ends_by_code": ends, "seconds": began.elapsed().as_secs_f64(), "missed": missed}))
}

/// Makes the file that is served, and a key for each client, which the server lists.
fn make(tools: &Tools, at: &Path) -> Result<Vec<u8>> {
    std::fs::create_dir(at.join("served"))?;
    std::fs::create_dir(at.join("server"))?;
    let mut rng = Rng::new(7);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    let content: Vec<u8> = words.flatten().take(LENGTH).collect();
    std::fs::write(at.join("served/file"), &content)?;
    let mut keys = Vec::new();
    for number in 0..CLIENTS {
        let key = program(tools, &at.join(format!("client{number}")), "gtp").arg("id").output()?;
        ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
        keys.extend(key.stdout);
    }
    std::fs::write(at.join("server/authorized_keys"), keys)?;
    Ok(content)
}

fn serve(tools: &Tools, at: &Path) -> Result<Server> {
    let gtp = program(tools, at, "gtp");
    let mut serve = Command::new("sh");
    serve.args(["-c", &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"")]);
    serve.arg(gtp.get_program()).arg("serve").arg(at.join("served"));
    serve.args(["--json", "--listen", "127.0.0.1:0", "--daemon", "off"]);
    serve.env("GTP_CONFIG_DIR", at.join("server")).stdin(Stdio::null());
    Server::start(serve, at.join("serve.log"))
}

fn fetch(tools: &Tools, at: &Path, server: &Server, number: usize) -> Result<Child> {
    let mut get = program(tools, &at.join(format!("client{number}")), "gtp");
    get.arg("get").arg(format!("gtp://{}/file", server.address));
    get.arg(at.join(format!("out{number}")));
    get.args(["--fingerprint", &server.fingerprint, "--daemon", "off"]);
    // What it says lies in a pipe until it has ended: a few hundred bytes for each attempt.
    get.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("a client does not start")
}

/// A process that takes all the processor time that it gets.
fn busy() -> Result<Running> {
    Running::start("other work", Command::new("sh").args(["-c", "while :; do :; done"]))
}
