//! `gtp bench`: what a path carries from memory to memory, and what a disk takes and gives.
//!
//! The words of the command and the words of its answers; what is measured, and how, is
//! `gtp-bench`'s. Standard output has a table for people, or one JSON object a line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand, ValueHint};
use gtp::{Failure, FailureKind, Fingerprint, Rate, Span, Url};
use gtp_bench::{
    Calls, Capacities, DiskFigures, Ends, Fetch, NetFigures, Serve, Served, Server, Strangers,
};
use gtp_emu::units_text;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::output::{self, aside};
use crate::signals::Signals;
use crate::{limit, words};

/// What is to be measured.
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Give content from memory to whoever measures; ends with Ctrl-C
    Serve(ServeArgs),
    /// Fetch what `gtp bench serve` gives, into memory, and compare every byte
    Net(NetArgs),
    /// Write and read in a directory, plainly and as transfers do
    Disk(DiskArgs),
}

/// What one end may use.
#[derive(Debug, Args)]
struct CapacityArgs {
    /// Capacity for what this host receives; found by measuring if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_IN", value_parser = words::rate,
        allow_hyphen_values = true)]
    capacity_in: Option<Rate>,
    /// Capacity for what this host sends; found by measuring if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_OUT", value_parser = words::rate,
        allow_hyphen_values = true)]
    capacity_out: Option<Rate>,
    /// Fixed control interval, such as 20ms; follows the round-trip time if not said
    #[arg(long, value_name = "TIME", env = "GTP_INTERVAL", value_parser = words::interval,
        allow_hyphen_values = true)]
    interval: Option<Duration>,
    /// Threads that move data, over which sessions are spread; half of the processors, 8 at most,
    /// if not said
    #[arg(long, value_name = "N", env = "GTP_ENGINES", value_parser = words::engines)]
    engines: Option<usize>,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Where to listen, TCP and UDP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:4810", env = "GTP_LISTEN")]
    listen: SocketAddr,
    /// Distinct content, held in memory at both ends
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    size: u64,
    /// How often the content is moved in one run
    #[arg(long, value_name = "N", default_value = "4")]
    times: u32,
    #[command(flatten)]
    capacity: CapacityArgs,
    /// One JSON object a line on standard output; the first says address and fingerprint
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

#[derive(Debug, Args)]
struct NetArgs {
    /// The server, gtp://HOST[:PORT]; several that give the same send into this host together
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Url>,
    /// How many sessions bring the content from each server
    #[arg(long, value_name = "N", default_value = "1")]
    sessions: usize,
    /// Memory that the content may take here: a server that offers more is refused
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = size)]
    size_most: u64,
    /// Believe only a server with this key (SHA256:…)
    #[arg(long, value_name = "FP", env = "GTP_FINGERPRINT", value_delimiter = ',')]
    fingerprint: Vec<Fingerprint>,
    /// Trust a server that was never met, and remember its key
    #[arg(long, env = "GTP_ACCEPT_NEW", value_parser = BoolishValueParser::new())]
    accept_new: bool,
    #[command(flatten)]
    capacity: CapacityArgs,
    /// One JSON object on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

#[derive(Debug, Args)]
struct DiskArgs {
    /// A directory of the file system that is to be measured; files are made there and removed
    #[arg(value_hint = ValueHint::DirPath)]
    dir: PathBuf,
    /// Bytes that each measurement moves
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    size: u64,
    /// One JSON object on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    json: bool,
}

/// Measures what is asked.
pub fn run(args: BenchArgs) -> Result<ExitCode, Failure> {
    match args.what {
        What::Serve(args) => crate::verbs::runtime()?.block_on(serve(args)),
        What::Net(args) => crate::verbs::runtime()?.block_on(net(args)),
        What::Disk(args) => crate::verbs::runtime()?.block_on(disk(args)),
    }
}

async fn serve(args: ServeArgs) -> Result<ExitCode, Failure> {
    let what = Serve { listen: args.listen, bytes: args.size, times: args.times };
    let mut signals = Signals::take().map_err(crate::verbs::other)?;
    let server = Server::bind(ends(&args.capacity)?, what).await?;
    let (address, fingerprint) = (server.address(), server.fingerprint());
    if args.json {
        output::json(json!({
            "event": "listening",
            "addr": address.to_string(),
            "fingerprint": fingerprint.to_string(),
        }))?;
    }
    aside(format_args!("on {address} (TCP and UDP), for anyone; this host's key: {fingerprint}"));
    let (ended_in, mut ended) = mpsc::unbounded_channel();
    let mut running = std::pin::pin!(server.run(ended_in));
    loop {
        tokio::select! {
            () = &mut running => return Ok(ExitCode::SUCCESS),
            Some(served) = ended.recv() => tell(&args, &served)?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn tell(args: &ServeArgs, served: &Served) -> Result<(), Failure> {
    if args.json {
        return output::json(served_json(served));
    }
    let (moved, how) = (words::say_bytes(served.wire_bytes), ending(served));
    let (client, cpu) = (served.client, served.cpu_s);
    output::line(format_args!("{client}: {moved}, {how}, {cpu:.2} s of processor time"))
}

fn ending(served: &Served) -> &'static str {
    if served.complete { "complete" } else { "broken off" }
}

async fn net(args: NetArgs) -> Result<ExitCode, Failure> {
    let strangers = if args.accept_new { Strangers::Accepted } else { Strangers::Refused };
    let what = Fetch {
        servers: args.urls.iter().map(|url| url.host().clone()).collect(),
        pinned: args.fingerprint,
        strangers,
        sessions: args.sessions,
        size_most: args.size_most,
    };
    let figures = gtp_bench::fetch(&ends(&args.capacity)?, what).await?;
    match args.json {
        true => output::json(net_json(&figures))?,
        false => output::line(net_table(&figures))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The first signal ends it once its files are removed, the second at once.
async fn disk(args: DiskArgs) -> Result<ExitCode, Failure> {
    let mut signals = Signals::take().map_err(crate::verbs::other)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (told, json) = (Arc::clone(&stop), args.json);
    let work = move || gtp_bench::measure_disk(&args.dir, args.size, &told);
    let mut working = tokio::task::spawn_blocking(work);
    let figures = loop {
        tokio::select! {
            figures = &mut working => break figures.map_err(crate::verbs::other)??,
            () = signals.next() => {
                if stop.swap(true, Ordering::Relaxed) {
                    std::process::exit(i32::from(FailureKind::Interrupted.exit_code()));
                }
            }
        }
    };
    match json {
        true => output::json(disk_json(&figures))?,
        false => output::line(disk_table(&figures))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn ends(args: &CapacityArgs) -> Result<Ends, Failure> {
    Ends::start(Capacities {
        outgoing: args.capacity_out,
        incoming: args.capacity_in,
        interval: args.interval.map(|span| Span::from_nanos(span.as_nanos() as u64)),
        engines: args.engines.unwrap_or_else(gtp::default_engines),
    })
}

fn served_json(served: &Served) -> Value {
    json!({
        "event": "served",
        "client": served.client.to_string(),
        "wire_bytes": served.wire_bytes,
        "cpu_s": served.cpu_s,
        "calls": calls_json(served.calls),
        "complete": served.complete,
    })
}

fn net_json(figures: &NetFigures) -> Value {
    json!({
        "event": "net",
        "sessions": figures.session_rates.len(),
        "bytes": figures.bytes,
        "wire_bytes": figures.wire_bytes,
        "seconds": figures.seconds,
        "goodput": bits(figures.bytes, figures.seconds),
        "rate": bits(figures.wire_bytes, figures.seconds),
        "steady_rate": figures.steady.as_f64(),
        "session_rates": figures.session_rates.iter().map(|r| r.as_f64()).collect::<Vec<_>>(),
        "cpu_s": figures.cpu_s,
        "calls": calls_json(figures.calls),
        "duplicate_bytes": figures.duplicate_bytes,
        "loss_ratio": figures.loss_ratio,
        "limited_by": figures.limited_by,
        "verified": true,
    })
}

fn calls_json(calls: Calls) -> Value {
    json!({
        "send": calls.send,
        "receive": calls.receive,
        "wait": calls.wait,
        "look": calls.look,
        "message": calls.message,
    })
}

fn net_table(figures: &NetFigures) -> String {
    let rate = |bytes| words::say_rate(Rate::from_f64(bits(bytes, figures.seconds)));
    let gigabytes = figures.bytes as f64 / 1e9;
    [
        format!("sessions          {}", figures.session_rates.len()),
        format!("moved, compared   {}", words::say_bytes(figures.bytes)),
        format!("time              {:.2} s", figures.seconds),
        format!("goodput           {}", rate(figures.bytes)),
        format!("IP rate           {}", rate(figures.wire_bytes)),
        format!("second half       {}", words::say_rate(figures.steady)),
        format!("processor, here   {:.2} s per GB", figures.cpu_s / gigabytes),
        format!("system calls      {:.0} per MB", figures.calls.system() as f64 / gigabytes / 1e3),
        format!("limited by        {}", limits(figures)),
        format!("lost              {:.4} %", 100.0 * figures.loss_ratio),
        format!("came twice        {}", words::say_bytes(figures.duplicate_bytes)),
    ]
    .join("\n")
}

fn limits(figures: &NetFigures) -> String {
    let say = |(word, part): (&&str, &f64)| {
        let by = limit::read(word).map(|by| limit::Ends::GET.limit(by));
        format!("{} {:.0} %", by.as_deref().unwrap_or(word), 100.0 * part)
    };
    figures.limited_by.iter().map(say).collect::<Vec<_>>().join(", ")
}

fn disk_json(figures: &DiskFigures) -> Value {
    json!({
        "event": "disk",
        "bytes": figures.bytes,
        "plain_write": figures.plain_write * 8.0,
        "store_write": figures.store_write * 8.0,
        "plain_read": figures.plain_read * 8.0,
        "store_read": figures.store_read * 8.0,
    })
}

fn disk_table(figures: &DiskFigures) -> String {
    let row = |name: &str, plain: f64, store: f64| {
        let say = |rate: f64| words::say_rate(Rate::from_f64(rate * 8.0));
        let part = 100.0 * store / plain;
        format!("{name:<6} {:>16} {:>16} {part:>9.0} %", say(plain), say(store))
    };
    [
        format!("{:<6} {:>16} {:>16} {:>11}", "", "plain file", "as transfers do", "ratio"),
        row("write", figures.plain_write, figures.store_write),
        row("read", figures.plain_read, figures.store_read),
    ]
    .join("\n")
}

fn bits(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

/// Reads a size; a bare number is refused with a hint.
fn size(text: &str) -> Result<u64, String> {
    units_text::parse_bytes(text).map(|bytes| bytes.0).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("1GiB").unwrap(), 1 << 30);
        assert_eq!(size("500MB").unwrap(), 500_000_000);
        for wrong in ["", "7", "GiB", "-1MiB", "99999999999999GiB", "1Gbit"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_say_rates_in_bits_per_second_of_what_they_are_named_after() {
        let figures = NetFigures {
            bytes: 1_000_000_000,
            wire_bytes: 1_060_000_000,
            seconds: 4.0,
            cpu_s: 2.0,
            calls: Calls { send: 3_000, receive: 9_000, message: 7, ..Calls::default() },
            duplicate_bytes: 0,
            loss_ratio: 0.001,
            limited_by: [("sink", 0.75), ("path", 0.25)].into(),
            steady: Rate::from_mbps(2_200),
            session_rates: vec![Rate::from_mbps(1_100); 2],
        };
        let said = net_json(&figures);
        assert_eq!((&said["goodput"], &said["rate"]), (&json!(2e9), &json!(2.12e9)));
        assert_eq!((&said["sessions"], &said["verified"]), (&json!(2), &json!(true)));
        assert_eq!(said["session_rates"], json!([1.1e9, 1.1e9]));
        assert_eq!(said["limited_by"], json!({ "path": 0.25, "sink": 0.75 }));
        assert_eq!(said["calls"]["receive"], json!(9_000));
        let table = net_table(&figures);
        assert!(table.contains("12 per MB"), "{table}");
        assert!(table.contains("the path 25 %, this host 75 %"), "{table}");
        assert!(table.contains("2.0 Gbit/s") && table.contains("2.00 s per GB"), "{table}");
        let disk = DiskFigures {
            bytes: 1,
            plain_write: 1e9,
            store_write: 5e8,
            plain_read: 2e9,
            store_read: 1e9,
        };
        assert_eq!(disk_json(&disk)["store_write"], json!(4e9));
        assert!(disk_table(&disk).contains("50 %"));
        assert_eq!(bits(1, 0.0), 0.0);
    }
}
