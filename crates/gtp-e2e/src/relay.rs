//! One source and several sinks that give blocks on to each other: how often each block leaves the
//! source, how long it takes beside the best possible time, and what a relay costs that is killed.
//!
//! A file goes to five sinks of different capacities by one `gtp put --relay`, once with all of
//! them, and once with a sink that is killed when it has two fifths of the file. Nothing
//! but the hosts' own capacities limits. The best possible time is computed here from these, and
//! compared with what the command itself says.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use gtp_net::client::wire_bytes;
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::lab::{Lab, namespace};
use crate::sinks::{SINKS, SIZE, SOURCE, address};

/// The sink that is killed.
const KILLED: usize = 3;
/// What of the file that sink has then.
const KILLED_AT: f64 = 0.4;
/// How often each block may leave the source.
const SENT_MOST: f64 = 1.1;
/// The longest time, as a multiple of the best possible one.
const TIME_MOST: f64 = 1.15;
/// How much longer the others may take where a sink is killed, as a part of their time.
const COST_MOST: f64 = 0.05;

/// The network file: every host is 20 ms from every other.
fn network() -> String {
    let mut text = format!(
        "[emulator]\nmemory = \"1GiB\"\n[[link]]\nname = \"way\"\ndelay = \"10ms\"\n\
         [[host]]\nname = \"src\"\nnamespace = \"{}\"\naddress = [\"10.77.0.10/24\"]\n",
        namespace("src")
    );
    let mut names = vec!["src".to_owned()];
    for n in 0..SINKS.len() {
        let (name, address) = (format!("s{n}"), address(n));
        text += &format!(
            "[[host]]\nname = \"{name}\"\nnamespace = \"{}\"\naddress = [\"{address}/24\"]\n",
            namespace(&name)
        );
        names.push(name);
    }
    for from in &names {
        for to in names.iter().filter(|to| *to != from) {
            text += &format!("[[route]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [\"way\"]\n");
        }
    }
    text
}

/// The least time in which all sinks can have the file, in seconds: the slowest one must receive
/// it, the source must send it once, and all together must send what all receive.
fn best_seconds() -> f64 {
    let bits = wire_bytes(SIZE) as f64 * 8.0 / 1e6;
    let slowest = SINKS.iter().copied().min().unwrap_or(1);
    let all: u32 = SINKS.iter().sum::<u32>() + SOURCE;
    let bounds = [
        bits / f64::from(slowest),
        bits / f64::from(SOURCE),
        bits * SINKS.len() as f64 / f64::from(all),
    ];
    bounds.into_iter().fold(0.0, f64::max)
}

/// One run, in which a sink is killed or not: what the command told.
fn put(tools: &Tools, killed: Option<usize>) -> Result<Vec<Value>> {
    let mut lab = Lab::open_file(&network(), &tools.gtp)?;
    let id = lab.command("src", &tools.gtp).arg("id").output()?.stdout;
    let mut urls = Vec::new();
    for (n, rate) in SINKS.iter().enumerate() {
        let (name, data) = (format!("s{n}"), lab.dir.path().join(format!("data{n}")));
        fs::create_dir(&data)?;
        let config = lab.config(&format!("{name}-4810"));
        fs::create_dir_all(&config)?;
        fs::write(config.join("authorized_keys"), &id)?;
        let capacity = format!("{rate}Mbit");
        let capacities = ["--capacity-in", &capacity, "--capacity-out", &capacity];
        let relays = ["--writable", "--daemon", "off", "--third-party", "10.77.0.0/24"];
        lab.serve(&name, &data, &[&relays[..], &capacities].concat())?;
        urls.push(format!("gtp://{}:4810/file", address(n)));
    }
    let file = lab.dir.path().join("file");
    crate::plans::write(&file, SIZE)?;
    let mut put = lab.command("src", &tools.gtp);
    put.arg("put").arg(&file).args(&urls).args(["--relay", "--json", "--accept-new"]);
    put.args(["--daemon", "off", "--retry-for", "5s"]);
    put.args(["--capacity-out", &format!("{SOURCE}Mbit")]);
    let mut put = put.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(put.stdout.take().context("no output")?).lines();
    let (mut told, mut to_kill) = (Vec::new(), killed);
    for line in lines {
        let line: Value = serde_json::from_str(&line?)?;
        let part = line["bytes"].as_f64().unwrap_or(0.0) / SIZE as f64;
        if line["event"] == "progress"
            && part >= KILLED_AT
            && let Some(sink) = to_kill.take_if(|sink| line["sink"] == *urls[*sink])
        {
            lab.kill(sink);
        }
        told.push(line);
    }
    let code = put.wait()?.code();
    ensure!(code == Some(if killed.is_some() { 12 } else { 0 }), "the put ended with {code:?}");
    for n in (0..SINKS.len()).filter(|n| Some(*n) != killed) {
        let arrived = lab.dir.path().join(format!("data{n}/file"));
        let is_same = std::process::Command::new("cmp").arg(&file).arg(&arrived).status()?;
        ensure!(is_same.success(), "sink {n} has something else");
    }
    Ok(told)
}

/// Seconds until each sink was done; nothing for one that was killed.
fn seconds(told: &[Value]) -> Vec<Option<f64>> {
    let done = |sink: usize| {
        let url = format!("gtp://{}:4810/file", address(sink));
        told.iter().find(|line| line["event"] == "done" && line["sink"] == url)
    };
    (0..SINKS.len()).map(|sink| done(sink).and_then(|line| line["seconds"].as_f64())).collect()
}

fn last(seconds: &[Option<f64>]) -> f64 {
    seconds.iter().flatten().copied().fold(0.0, f64::max)
}

/// How often each block has left the source.
fn times_sent(told: &[Value]) -> Result<f64> {
    let relay = &told.last().context("nothing was said")?["relay"];
    Ok(relay["sent_wire_bytes"].as_f64().context("no count")? / wire_bytes(SIZE) as f64)
}

/// One file to five sinks that relay, without and with one that is killed.
///
/// # Errors
/// If the network or a process cannot be started, the command fails, or a file is not the same.
pub fn run(tools: &Tools) -> Result<Vec<Value>> {
    let best = best_seconds();
    let whole = put(tools, None)?;
    let said = whole.last().context("nothing was said")?["relay"]["best_seconds"].as_f64();
    let (times, sent) = (seconds(&whole), times_sent(&whole)?);
    let mut missed = Vec::new();
    if sent > SENT_MOST {
        missed.push(format!("each block leaves the source {sent:.3} times"));
    }
    if last(&times) > TIME_MOST * best {
        missed.push(format!("{:.3} times the best possible time", last(&times) / best));
    }
    if said.is_none_or(|said| (said / best - 1.0).abs() > 0.001) {
        missed.push(format!("the command says that {said:?} s is the best possible time"));
    }
    let first = json!({
        "case": "relay",
        "sent": sent,
        "seconds": times,
        "best_seconds": best,
        "times_the_best": last(&times) / best,
        "missed": missed,
    });
    let with = put(tools, Some(KILLED))?;
    let (after, sent) = (seconds(&with), times_sent(&with)?);
    let alike: Vec<_> = times.iter().zip(&after).filter(|(_, after)| after.is_some()).collect();
    let before: Vec<_> = alike.iter().map(|(before, _)| **before).collect();
    let cost = last(&after) / last(&before) - 1.0;
    let missed = (cost > COST_MOST).then(|| format!("a lost relay costs {:.1} %", 100.0 * cost));
    let second = json!({
        "case": "relay-killed",
        "sent": sent,
        "seconds": after,
        "cost": cost,
        "missed": missed.into_iter().collect::<Vec<_>>(),
    });
    Ok(vec![first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_sink_limits_what_is_possible() {
        let best = best_seconds();
        assert!((90.0..91.5).contains(&best), "{best}");
    }
}
