//! What a server's numbers, its audit and its log say of a thousand transfers with faults, against
//! what was moved.
//!
//! Transfers are drawn from a seed, twelve at a time. Each has a path of its own, so that a record
//! of the audit belongs to one of them. Some end well, some are killed half-way, some ask for what
//! is not there, does not fit or is not theirs. Every end and every byte must be in the audit once;
//! numbers and log must say the same as the audit.

mod books;
mod transfers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::numbers;
use crate::product::{self, Server, program};
use books::Books;
use transfers::{Kind, Transfer};

/// Transfers of a run unless `GTP_ACCOUNTS_TRANSFERS` says otherwise.
const TRANSFERS: usize = 1_000;
/// Transfers at a time.
const AT_ONCE: usize = 12;
/// Between two looks at the transfers.
const LOOK: Duration = Duration::from_millis(20);
/// How long the server may take to know that its last client is gone, and to write that down.
const SETTLES: Duration = Duration::from_secs(30);

/// Who takes part, each with a key of its own. The server lists the first two.
const CLIENTS: [&str; 3] = ["writer", "reader", "stranger"];

/// The server, and the directory in which everything lies.
pub(crate) struct World {
    tools: Tools,
    directory: tempfile::TempDir,
    server: Server,
    metrics: u16,
}

/// Runs the case once; one row.
///
/// # Errors
/// If a process cannot be started or the server ends before it is told to.
pub fn run(tools: &Tools) -> Result<Value> {
    let most = product::variable("GTP_ACCOUNTS_TRANSFERS")?.unwrap_or(TRANSFERS);
    let seed = product::variable("GTP_ACCOUNTS_SEED")?.unwrap_or(1);
    let world = World::open(tools, most)?;
    let mut rng = Rng::new(seed);
    let mut missed = Vec::new();
    let ended = world.all(most, &mut rng, &mut missed)?;
    let books = world.settled(&ended)?;
    books.judge(&ended, &mut missed);
    let count = |kind: Kind| ended.iter().filter(|ended| ended.kind == kind).count();
    let kinds: serde_json::Map<String, Value> =
        Kind::ALL.iter().map(|&kind| (kind.word().to_owned(), count(kind).into())).collect();
    Ok(json!({"case": "accounts", "seed": seed, "transfers": ended.len(), "kinds": kinds,
        "ends": books.ends.len(), "content_bytes": books.content_bytes(),
        "lines_left_out_of_the_log": books.log.left_out, "missed": missed}))
}

/// What a transfer was, once it is over.
pub(crate) struct Ended {
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    /// Bytes of its content.
    pub(crate) size: u64,
}

impl World {
    fn open(tools: &Tools, transfers: usize) -> Result<World> {
        let directory = tempfile::tempdir()?;
        let place = |name: &str| directory.path().join(name);
        for name in ["data", "full", "got", "server"] {
            fs::create_dir(place(name))?;
        }
        transfers::make_objects(directory.path(), transfers)?;
        let mut list = String::new();
        for (client, rights) in CLIENTS.into_iter().zip(["", " read"]) {
            let id = program(tools, &place(client), "gtp").arg("id").output()?;
            ensure!(id.status.success(), "gtp id: {}", String::from_utf8_lossy(&id.stderr));
            let id = String::from_utf8(id.stdout)?;
            list += &format!("{}{rights} # {client}\n", id.trim());
        }
        fs::write(place("server/authorized_keys"), list)?;
        let export = |name: &str, more: &str| {
            let path = place(name).display().to_string();
            format!("[export.{name}]\npath = \"{path}\"\nread = true\nwrite = true\n{more}")
        };
        let config = export("data", "") + &export("full", "quota = \"1kB\"\n");
        fs::write(place("server/config.toml"), config)?;
        let metrics = numbers::free_port()?;
        let mut serve = program(tools, &place("server"), "gtp");
        serve.args(["serve", "--writable", "--json", "--listen", "127.0.0.1:0"]);
        serve.args(["--daemon", "off", "--log-format", "json"]);
        serve.args(["--metrics", &format!("127.0.0.1:{metrics}"), "--audit"]);
        serve.arg(place("audit"));
        let server = Server::start(serve, place("log"))?;
        Ok(World { tools: tools.clone(), directory, server, metrics })
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn at(&self) -> &Path {
        self.directory.path()
    }

    /// The command of a client.
    fn gtp(&self, client: &str) -> Command {
        program(&self.tools, &self.place(client), "gtp")
    }

    /// All transfers; what one should have done and did not is added to `missed`.
    fn all(&self, most: usize, rng: &mut Rng, missed: &mut Vec<String>) -> Result<Vec<Ended>> {
        let (mut present, mut ended, mut started) = (Vec::<Transfer>::new(), Vec::new(), 0);
        while ended.len() < most {
            while started < most && present.len() < AT_ONCE {
                present.push(Transfer::draw(self, started, rng)?);
                started += 1;
            }
            for transfer in present.extract_if(.., Transfer::is_over) {
                let (end, wrong) = transfer.end(self)?;
                ended.push(end);
                missed.extend(wrong);
            }
            product::pass(LOOK);
        }
        Ok(ended)
    }

    /// What the server has written down, once each session that began has ended and each refusal
    /// is told, or its time is over.
    fn settled(&self, ended: &[Ended]) -> Result<Books> {
        let refused = ended.iter().filter(|ended| ended.kind.is_refused()).count();
        let began = Instant::now();
        loop {
            let books = self.books()?;
            if books.are_whole(refused) || began.elapsed() > SETTLES {
                return Ok(books);
            }
            product::pass(LOOK * 10);
        }
    }

    fn books(&self) -> Result<Books> {
        let audit = fs::read_to_string(self.place("audit")).context("no audit")?;
        Books::read(&audit, &self.server.log()?, numbers::page(self.metrics)?)
    }
}
