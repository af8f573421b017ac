//! A program that nobody here wrote, under `gtp run` and as it is, over the same lossy path.
//!
//! One iperf3 server listens under `gtp run`, which leaves it open to TCP. It is sent to over TCP,
//! with each of two laws, and over GTP, for as long each. What counts is what the server says it
//! has received.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::{CAPACITY, Tools, one_branch};
use crate::lab::{Lab, sink_address};
use crate::record::{Record, route};
use crate::running::Running;

/// Seconds of each run.
const SECONDS: &str = "10";
/// Seconds of a run that are looked at on the link, where bytes are those of IP.
const STEADY: (f64, f64) = (3.0, 9.5);
const PORT: &str = "5999";

/// Runs the case; a row for each way.
///
/// # Errors
/// If the network or a process cannot be started, or iperf3 fails.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    let lab = Lab::open(&one_branch("100ms", "0.1%"), &tools.gtp)?;
    for host in ["sink", "src0"] {
        let up = lab.command(host, Path::new("ip")).args(["link", "set", "lo", "up"]).status()?;
        ensure!(up.success(), "{host} has no loopback");
    }
    let mut server = under_gtp(&lab, tools, "sink");
    server.arg("--capacity-in").arg(format!("{CAPACITY:.0}bit"));
    server.args(["--", "iperf3", "-s", "-p", PORT, "--forceflush"]);
    let mut server = Running::start("the server", server.stdout(Stdio::piped()))?;
    let mut lines = BufReader::new(server.child.stdout.take().context("no output")?).lines();
    while !lines.next().context("the server ended")??.contains("listening") {}
    // Nobody reads on; what it prints has room in the pipe.
    let mut rows = Vec::new();
    for law in ["cubic", "bbr"] {
        let mut client = lab.command("src0", Path::new("iperf3"));
        client.args(sending()).args(["-C", law]);
        rows.push((lab.now(), row(law, client)?));
    }
    let mut client = under_gtp(&lab, tools, "src0");
    client.args(["--require", "--capacity-out", "700Mbit", "--", "iperf3"]).args(sending());
    rows.push((lab.now(), row("gtp", client)?));
    drop(server);
    let record = Record(lab.close()?);
    let steady = |(began, mut row): (f64, Value)| {
        let rate = record.rate(&route(0), began + STEADY.0, began + STEADY.1);
        row["link_of_capacity_steady"] = (rate / CAPACITY).into();
        row
    };
    Ok(rows.into_iter().map(steady).collect())
}

/// `gtp run` on a host, with a pump of the host's own.
fn under_gtp(lab: &Lab, tools: &Tools, host: &str) -> Command {
    let mut command = lab.command(host, &tools.gtp);
    command.arg("run").arg("--pump").arg(lab.dir.path().join(format!("{host}.sock")));
    command.env("GTP_DAEMON", "off").env("GTP_PUBLIC", "1").env("GTP_ACCEPT_NEW", "1");
    command.env("GTP_PUMP_IDLE", "2s");
    command
}

fn sending() -> Vec<String> {
    ["-c", &sink_address(), "-p", PORT, "-t", SECONDS, "-J"].map(str::to_owned).to_vec()
}

fn row(over: &str, mut client: Command) -> Result<Value> {
    let ended = client.output().context("apt-get install iperf3")?;
    let said: Value = serde_json::from_slice(&ended.stdout).context("iperf3 says no JSON")?;
    let received = said["end"]["sum_received"]["bits_per_second"].as_f64();
    let received = received.with_context(|| said["error"].to_string())?;
    let each = said["intervals"].as_array().context("no intervals")?;
    let sent = each.iter().filter_map(|one| one["sum"]["bits_per_second"].as_f64());
    Ok(json!({
        "case": "sockets",
        "over": over,
        "received_Mbit": received / 1e6,
        "of_capacity": received / CAPACITY,
        "sent_each_second_Mbit": sent.map(|rate| (rate / 1e6).round()).collect::<Vec<_>>(),
    }))
}
