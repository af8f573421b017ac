//! What a server needs for its clients: memory, processor time, descriptors, and the rate that
//! comes of it, for 1 to 500 clients and objects of 1 to 10,000 files.
//!
//! Everything runs on one machine over loopback, so rates are of both ends together and depend on
//! what else the machine does; each row says the load. Memory, descriptors and processor time are
//! the server's alone. Rows are taken while all clients move, none of them at its beginning or end.
//! Clients give way to the server (nice): a hundred and more of them would leave it no processor.
//! docs/SCALE.md has the constants that come of it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::numbers::{free_port, page, sum};
use crate::product::{Server, pass, program};
use crate::running::Running;
use crate::usage::Usage;

/// Clients at once.
const CLIENTS: [usize; 4] = [1, 16, 128, 500];
/// Files of an object.
const FILES: [usize; 2] = [1, 10_000];
/// Bytes of a file that is fetched alone: more than one client can get in the time. It is a hole,
/// and goes to `/dev/null`, so that no disk takes part.
const FILE_BYTES: u64 = 64 << 30;
/// Bytes of an object of many files: more than a client gets at its limit, and files that are not
/// so small that their directories are what is measured.
const OBJECT_BYTES: usize = 1 << 30;
/// How long clients may take until all of them move, at most.
const GATHERS: Duration = Duration::from_secs(100);
/// The same for all rows together. Measuring and clearing away come on top, some 15 s a row.
const ALL_GATHER: Duration = Duration::from_secs(240);
/// Clients that have been started and do not move yet, at most: a server has few places for
/// connections of one address that have not said what they want.
const BEGINNING_MOST: usize = 32;
/// How long is measured, with a look at the server each second.
const SECONDS: u32 = 10;

/// How fast clients go.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// As fast as the machine lets them.
    Free,
    /// A part of [`TOGETHER_MBIT`] each, so that none is done before all have been measured.
    Part,
    /// So slowly that a session costs little for its bytes.
    Slow,
}

/// What clients of [`Pace::Part`] are limited to together, and one alone, in Mbit/s.
const TOGETHER_MBIT: f64 = 1_000.0;
const ALONE_MBIT: f64 = 200.0;
/// What a client of [`Pace::Slow`] is limited to, in Mbit/s.
const SLOW_MBIT: f64 = 0.4;

impl Pace {
    /// The limit of each of so many clients, in Mbit/s; `None` is none.
    fn limit_mbit(self, clients: usize) -> Option<f64> {
        match self {
            Pace::Free => None,
            Pace::Part => Some(ALONE_MBIT.min(TOGETHER_MBIT / clients as f64)),
            Pace::Slow => Some(SLOW_MBIT),
        }
    }
}

/// What a row is of.
#[derive(Clone, Copy)]
struct Scale {
    clients: usize,
    files: usize,
    pace: Pace,
}

/// Runs the case once: a row for each number of clients and files, and one of the constants.
/// `GTP_SIZING_MOST` leaves out rows of more clients, and then the constants that need them.
///
/// # Errors
/// If a process cannot be started or the server does not answer.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    let free = FILES.into_iter().flat_map(|files| {
        let pace = if files == 1 { Pace::Free } else { Pace::Part };
        CLIENTS.map(|clients| Scale { clients, files, pace })
    });
    let slow = [128, 500].map(|clients| Scale { clients, files: 1, pace: Pace::Slow });
    let most = std::env::var("GTP_SIZING_MOST").ok();
    let most = most.map_or(Ok(usize::MAX), |most| most.parse()).context("GTP_SIZING_MOST")?;
    let scales = free.chain(slow).filter(|scale| scale.clients <= most);
    let mut rows = measured_all(tools, &scales.collect::<Vec<_>>())?;
    rows.push(constants(&rows));
    Ok(rows)
}

/// A row for each of these.
fn measured_all(tools: &Tools, scales: &[Scale]) -> Result<Vec<Value>> {
    let keys = tempfile::tempdir()?;
    let most = scales.iter().map(|scale| scale.clients).max().unwrap_or(0);
    make_keys(tools, keys.path(), most)?;
    let mut left = ALL_GATHER;
    let mut rows = Vec::new();
    for (at, scale) in scales.iter().enumerate() {
        // Rows of few clients take little of it, so that there is much for those of many.
        let may_take = if at + 1 == scales.len() { left } else { left / 2 }.min(GATHERS);
        let (row, took) = measured(tools, keys.path(), *scale, may_take)?;
        left = left.saturating_sub(took);
        rows.push(row);
    }
    Ok(rows)
}

/// A row, and how long its clients took to gather.
fn measured(
    tools: &Tools,
    keys: &Path,
    scale: Scale,
    may_take: Duration,
) -> Result<(Value, Duration)> {
    let Scale { clients, files, pace } = scale;
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    make_object(at, files)?;
    let port = free_port()?;
    let mut server = serve(tools, (at, keys), port)?;
    let idle = server.usage()?;
    let start = |number| get(tools, (at, keys), &server, (number, scale));
    let gathering = Instant::now();
    let (running, moving) = gather(port, clients, start, gathering + may_take)?;
    let took = gathering.elapsed();
    let (before, cpu, began) = (moved(port)?, server.processor_seconds()?, Instant::now());
    let mut readings = Vec::new();
    for _ in 0..SECONDS {
        pass(Duration::from_secs(1));
        readings.push(server.usage()?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let (gigabytes, cpu) = ((moved(port)? - before) / 1e9, server.processor_seconds()? - cpu);
    drop(running);
    let most = |field: fn(&Usage) -> u64| readings.iter().map(field).max().unwrap_or(0);
    let missed: Vec<String> = (moving < clients)
        .then(|| format!("{moving} of {clients} clients move an object of {files} files"))
        .into_iter()
        .collect();
    let row = json!({
        "case": "sizing", "clients": clients, "files": files, "slow": pace == Pace::Slow,
        "limit_mbit_of_each": pace.limit_mbit(clients),
        "moving": moving, "gathered_s": took.as_secs_f64(),
        "seconds": seconds, "gigabytes": gigabytes,
        "cpu_seconds": cpu, "cpu_seconds_per_gigabyte": cpu / gigabytes,
        "memory_bytes": most(|usage| usage.memory),
        "descriptors": most(|usage| usage.descriptors as u64),
        "threads": most(|usage| usage.threads),
        "gigabits_per_second": gigabytes * 8.0 / seconds, "load": load()?,
        "idle": idle.to_json(), "missed": missed,
    });
    Ok((row, took))
}

/// The constants of docs/SCALE.md, from the rows. None is from the rows of 500 clients: where these
/// share the server's processors, they move little and say what they wait for.
fn constants(rows: &[Value]) -> Value {
    let field = |clients: usize, files: usize, slow: bool, field: &str| {
        let is = |row: &&Value| {
            row["clients"] == clients && row["files"] == files && row["slow"] == slow
        };
        rows.iter().find(is)?[field].as_f64()
    };
    let idle = rows.first().map(|row| &row["idle"]);
    let memory = |clients: usize, slow: bool| {
        let idle = idle?["memory_bytes"].as_f64()?;
        Some((field(clients, 1, slow, "memory_bytes")? - idle) / clients as f64)
    };
    let descriptors = |files: usize| {
        let [few, many] = [16, 128].map(|clients| field(clients, files, false, "descriptors"));
        Some((many? - few?) / (128.0 - 16.0))
    };
    let per_gigabyte = field(16, 1, false, "cpu_seconds_per_gigabyte");
    let per_client = || {
        let slow = |name: &str| field(128, 1, true, name);
        let bytes = slow("gigabytes")? * per_gigabyte?;
        Some((slow("cpu_seconds")? - bytes) / slow("seconds")? / 128.0)
    };
    json!({
        "case": "sizing", "constants": true,
        "memory_bytes_idle": idle.map(|idle| idle["memory_bytes"].clone()),
        "memory_bytes_per_fast_client": memory(16, false),
        "memory_bytes_per_slow_client": memory(128, true),
        "cpu_seconds_per_gigabyte": per_gigabyte,
        "cpu_seconds_per_client_and_second": per_client(),
        "descriptors_idle": idle.map(|idle| idle["descriptors"].clone()),
        "descriptors_per_client": descriptors(1),
        "descriptors_per_client_of_many_files": descriptors(10_000),
    })
}

/// An object of so many files, `served/object`: a file, or a directory.
fn make_object(at: &Path, files: usize) -> Result<()> {
    let served = at.join("served");
    fs::create_dir(&served)?;
    if files == 1 {
        return Ok(fs::File::create(served.join("object"))?.set_len(FILE_BYTES)?);
    }
    let each = OBJECT_BYTES / files;
    let mut rng = Rng::new(7);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    let content: Vec<u8> = words.flatten().take(each + 8 * files).collect();
    fs::create_dir(served.join("object"))?;
    for number in 0..files {
        let from = number * 8;
        fs::write(served.join(format!("object/{number}")), &content[from..from + each])?;
    }
    Ok(())
}

/// A key for each client, which the server lists.
fn make_keys(tools: &Tools, at: &Path, clients: usize) -> Result<()> {
    fs::create_dir(at.join("server"))?;
    let mut keys = Vec::new();
    for number in 0..clients {
        let key = program(tools, &at.join(format!("client{number}")), "gtp").arg("id").output()?;
        ensure!(key.status.success(), "gtp id: {}", String::from_utf8_lossy(&key.stderr));
        keys.extend(key.stdout);
    }
    Ok(fs::write(at.join("server/authorized_keys"), keys)?)
}

fn serve(tools: &Tools, (at, keys): (&Path, &Path), metrics: u16) -> Result<Server> {
    let gtp = program(tools, at, "gtp");
    let mut serve = Command::new("sh");
    serve.args(["-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\""]);
    serve.arg(gtp.get_program()).arg("serve").arg(at.join("served"));
    serve.args(["--json", "--listen", "127.0.0.1:0", "--daemon", "off"]);
    serve.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
    serve.env("GTP_CONFIG_DIR", keys.join("server")).stdin(Stdio::null());
    Server::start(serve, at.join("serve.log"))
}

fn get(
    tools: &Tools,
    (at, keys): (&Path, &Path),
    server: &Server,
    (number, scale): (usize, Scale),
) -> Result<Running> {
    let Scale { clients, files, pace } = scale;
    let config = keys.join(format!("client{number}"));
    let gtp = program(tools, &config, "gtp");
    let mut get = Command::new("nice");
    get.args(["-n", "10"]).arg(gtp.get_program()).stdin(Stdio::null());
    get.env("GTP_CONFIG_DIR", config);
    get.arg("get").arg(format!("gtp://{}/object", server.address));
    match files {
        1 => get.arg("/dev/null"),
        _ => get.arg(at.join(format!("out{number}"))),
    };
    get.args(["--fingerprint", &server.fingerprint, "--daemon", "off"]);
    if let Some(limit) = pace.limit_mbit(clients) {
        get.args(["--max-rate", &format!("{limit:.1}Mbit")]);
    }
    get.stdout(Stdio::null()).stderr(Stdio::null());
    Running::start("a client", &mut get)
}

/// Starts clients, few at a time, until all of them move or it is `end`. Returns them, and how many
/// move.
fn gather(
    metrics: u16,
    clients: usize,
    start: impl Fn(usize) -> Result<Running>,
    end: Instant,
) -> Result<(Vec<Running>, usize)> {
    let mut started = Vec::with_capacity(clients);
    loop {
        let moving = moving(metrics)?;
        if moving >= clients || Instant::now() > end {
            // What is granted first is not what they come to.
            pass(Duration::from_secs(2));
            return Ok((started, self::moving(metrics)?));
        }
        let may_start = clients.min(moving + BEGINNING_MOST);
        while started.len() < may_start {
            started.push(start(started.len())?);
        }
        pass(Duration::from_millis(100));
    }
}

/// How many clients move.
fn moving(metrics: u16) -> Result<usize> {
    Ok(sum(&page(metrics)?, "running_sessions", &[]) as usize)
}

/// Bytes of content that clients have proved to have.
fn moved(metrics: u16) -> Result<f64> {
    Ok(sum(&page(metrics)?, "content_bytes_total", &[]))
}

/// Processes that wanted a processor in the last minute, on average.
fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    text.split(' ').next().and_then(|word| word.parse().ok()).context("/proc/loadavg")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_come_of_rows_of_16_and_128_clients() {
        let row = |clients: u64, files: u64, slow: bool, memory: u64| {
            json!({"clients": clients, "files": files, "slow": slow, "memory_bytes": memory,
                "descriptors": 10 + 2 * clients + files / 1_000 * clients, "cpu_seconds": 2.0,
                "seconds": 10.0, "gigabytes": 0.5, "cpu_seconds_per_gigabyte": 2.0,
                "idle": {"memory_bytes": 7_000, "descriptors": 9}})
        };
        let rows = [
            row(16, 1, false, 167_000),
            row(128, 1, false, 0),
            row(16, 10_000, false, 0),
            row(128, 10_000, false, 0),
            row(128, 1, true, 135_000),
        ];
        let constants = constants(&rows);
        let number = |field: &str| constants[field].as_f64().unwrap();
        assert_eq!(number("memory_bytes_per_fast_client"), 10_000.0);
        assert_eq!(number("memory_bytes_per_slow_client"), 1_000.0);
        assert_eq!(number("descriptors_per_client"), 2.0);
        assert_eq!(number("descriptors_per_client_of_many_files"), 12.0);
        assert_eq!(number("cpu_seconds_per_client_and_second"), (2.0 - 1.0) / 10.0 / 128.0);
        assert_eq!(constants["descriptors_idle"], 9);
    }

    #[test]
    fn the_calculator_says_what_the_document_shows() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let document = fs::read_to_string(root.join("docs/SCALE.md")).unwrap();
        let shown = document.split("$ scripts/size-server ").nth(1).unwrap();
        let (arguments, rest) = shown.split_once('\n').unwrap();
        let mut calculator = Command::new(root.join("scripts/size-server"));
        let said = calculator.args(arguments.split(' ')).output().unwrap();
        let words = String::from_utf8(said.stdout).unwrap();
        assert!(rest.starts_with(&format!("{words}```")), "{words}{rest}");
    }
}
