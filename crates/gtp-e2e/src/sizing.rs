//! What a server needs for its clients: memory, processor time, descriptors, and the rate that
//! comes of it, for 1 to 500 clients and objects of 1 to 10,000 files.
//!
//! Everything runs on one machine over loopback, so rates are of both ends together and depend on
//! what else the machine does; each row says the load. Memory, descriptors and processor time are
//! the server's alone. Rows are taken while all clients move, none of them at its beginning or end.
//! docs/SCALE.md has the constants that come of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_link::Rng;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::product::{Server, pass, program};
use crate::running::Running;
use crate::usage::Usage;

/// Clients at once.
const CLIENTS: [usize; 4] = [1, 16, 128, 500];
/// Files of an object.
const FILES: [usize; 2] = [1, 10_000];
/// Bytes of an object at most, and of all that clients could get together: more than they can in
/// the time, and less than a disk has.
const OBJECT_MOST: usize = 1 << 30;
const ALL_MOST: usize = 16 << 30;
/// What a client is limited to where its session is to cost little for its bytes.
const SLOW: &str = "400kbit";
/// How long clients may take until all of them move.
const GATHERS: Duration = Duration::from_secs(120);
/// How long is measured, with a look at the server each second.
const SECONDS: u32 = 10;

/// How fast clients go.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// As fast as the machine lets them.
    Free,
    /// At [`SLOW`].
    Slow,
}

/// Runs the case once: a row for each number of clients and files, and one of the constants.
///
/// # Errors
/// If a process cannot be started or the server does not answer.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for files in FILES {
        for clients in CLIENTS {
            rows.push(measured(tools, clients, files, Pace::Free)?);
        }
    }
    for clients in [128, 500] {
        rows.push(measured(tools, clients, 1, Pace::Slow)?);
    }
    rows.push(constants(&rows));
    Ok(rows)
}

fn measured(tools: &Tools, clients: usize, files: usize, pace: Pace) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    make_object(at, clients, files)?;
    make_keys(tools, at, clients)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut server = serve(tools, at, port)?;
    let idle = server.usage()?;
    let all = (0..clients).map(|number| get(tools, at, &server, (number, pace)));
    let running = all.collect::<Result<Vec<Running>>>()?;
    let moving = gather(port, clients)?;
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
    Ok(json!({
        "case": "sizing", "clients": clients, "files": files, "slow": pace == Pace::Slow,
        "moving": moving, "seconds": seconds, "gigabytes": gigabytes,
        "cpu_seconds": cpu, "cpu_seconds_per_gigabyte": cpu / gigabytes,
        "memory_bytes": most(|usage| usage.memory),
        "descriptors": most(|usage| usage.descriptors as u64),
        "threads": most(|usage| usage.threads),
        "gigabits_per_second": gigabytes * 8.0 / seconds, "load": load()?,
        "idle": idle.to_json(), "missed": missed,
    }))
}

/// The constants of docs/SCALE.md, from the rows.
fn constants(rows: &[Value]) -> Value {
    let row = |clients: usize, files: usize, slow: bool| {
        let is = |row: &&Value| {
            row["clients"] == clients && row["files"] == files && row["slow"] == slow
        };
        rows.iter().find(is)
    };
    let number = |row: Option<&Value>, field: &str| row.and_then(|row| row[field].as_f64());
    let slope = |field: &str, files: usize| {
        let [few, many] = [16, 500].map(|clients| number(row(clients, files, false), field));
        Some((many? - few?) / (500.0 - 16.0))
    };
    let memory = slope("memory_bytes", 1);
    let with_files = slope("memory_bytes", 10_000);
    let per_gigabyte = number(row(16, 1, false), "cpu_seconds_per_gigabyte");
    let slow = row(500, 1, true);
    let per_client = || {
        let (cpu, seconds) = (number(slow, "cpu_seconds")?, number(slow, "seconds")?);
        let bytes = number(slow, "gigabytes")? * per_gigabyte?;
        Some((cpu - bytes) / seconds / 500.0)
    };
    json!({
        "case": "sizing", "constants": true,
        "memory_bytes_idle": rows.first().map(|row| row["idle"]["memory_bytes"].clone()),
        "memory_bytes_per_client": memory,
        "memory_bytes_per_client_and_file":
            with_files.zip(memory).map(|(with, without)| (with - without) / 10_000.0),
        "cpu_seconds_per_gigabyte": per_gigabyte,
        "cpu_seconds_per_client_and_second": per_client(),
        "descriptors_idle": rows.first().map(|row| row["idle"]["descriptors"].clone()),
        "descriptors_per_client": slope("descriptors", 1),
    })
}

/// An object of so many files, `served/object`: a file, or a directory.
fn make_object(at: &Path, clients: usize, files: usize) -> Result<()> {
    let bytes = OBJECT_MOST.min(ALL_MOST / clients);
    let mut rng = Rng::new(7);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    let content: Vec<u8> = words.flatten().take(bytes.min(64 << 20)).collect();
    let served = at.join("served");
    fs::create_dir(&served)?;
    if files == 1 {
        let mut file = fs::File::create(served.join("object"))?;
        let mut left = bytes;
        while left > 0 {
            let part = left.min(content.len());
            file.write_all(&content[..part])?;
            left -= part;
        }
        return Ok(());
    }
    fs::create_dir(served.join("object"))?;
    let each = bytes / files;
    for number in 0..files {
        let from = number * 8 % (content.len() - each);
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

fn serve(tools: &Tools, at: &Path, metrics: u16) -> Result<Server> {
    let gtp = program(tools, at, "gtp");
    let mut serve = Command::new("sh");
    serve.args(["-c", "ulimit -n $(ulimit -Hn); exec \"$0\" \"$@\""]);
    serve.arg(gtp.get_program()).arg("serve").arg(at.join("served"));
    serve.args(["--json", "--listen", "127.0.0.1:0", "--daemon", "off"]);
    serve.args(["--metrics", &format!("127.0.0.1:{metrics}")]);
    serve.env("GTP_CONFIG_DIR", at.join("server")).stdin(Stdio::null());
    Server::start(serve, at.join("serve.log"))
}

fn get(
    tools: &Tools,
    at: &Path,
    server: &Server,
    (number, pace): (usize, Pace),
) -> Result<Running> {
    let mut get = program(tools, &at.join(format!("client{number}")), "gtp");
    get.arg("get").arg(format!("gtp://{}/object", server.address));
    get.arg(at.join(format!("out{number}")));
    get.args(["--fingerprint", &server.fingerprint, "--daemon", "off"]);
    if pace == Pace::Slow {
        get.args(["--max-rate", SLOW]);
    }
    get.stdout(Stdio::null()).stderr(Stdio::null());
    Running::start("a client", &mut get)
}

/// Waits until all clients move; how many do.
fn gather(metrics: u16, clients: usize) -> Result<usize> {
    let end = Instant::now() + GATHERS;
    loop {
        let running = sum(&page(metrics)?, "gtp_serve_running_sessions{") as usize;
        if running >= clients || Instant::now() > end {
            // What is granted first is not what they come to.
            pass(Duration::from_secs(2));
            return Ok(sum(&page(metrics)?, "gtp_serve_running_sessions{") as usize);
        }
        pass(Duration::from_millis(200));
    }
}

/// Bytes of content that clients have proved to have.
fn moved(metrics: u16) -> Result<f64> {
    Ok(sum(&page(metrics)?, "gtp_serve_content_bytes_total{"))
}

/// The numbers of the server.
fn page(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("no numbers")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn sum(page: &str, series: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
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
    fn the_constants_are_slopes_between_few_and_many_clients() {
        let row = |clients: u64, files: u64, slow: bool, memory: u64| {
            json!({"clients": clients, "files": files, "slow": slow, "memory_bytes": memory,
                "descriptors": 10 + 2 * clients, "cpu_seconds": 20.0, "seconds": 10.0,
                "gigabytes": 5.0, "cpu_seconds_per_gigabyte": 2.0,
                "idle": {"memory_bytes": 7, "descriptors": 9}})
        };
        let rows = [
            row(16, 1, false, 16_000),
            row(500, 1, false, 500_000),
            row(16, 10_000, false, 176_000),
            row(500, 10_000, false, 5_500_000),
            row(500, 1, true, 0),
        ];
        let constants = constants(&rows);
        let number = |field: &str| constants[field].as_f64().unwrap();
        assert_eq!(number("memory_bytes_per_client"), 1_000.0);
        assert_eq!(number("memory_bytes_per_client_and_file"), 1.0);
        assert_eq!(number("descriptors_per_client"), 2.0);
        assert_eq!(number("cpu_seconds_per_client_and_second"), (20.0 - 10.0) / 10.0 / 500.0);
        assert_eq!(constants["descriptors_idle"], 9);
    }
}
