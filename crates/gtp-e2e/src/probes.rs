//! What an emulated link does to datagrams at a constant rate, by `gtp probe`: Iperf's role in the
//! thesis's Table IX.1 and in GTP 2004, 5.2.
//!
//! Both at a fifth of the paper's rates. Each row says what the probe counted, and what the
//! emulator did, which no end of the probe knows: so the tool is measured with the link.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::emulated;
use crate::lab::{Branch, Lab, Shape, sink_address};
use crate::record::Record;

/// Table IX.1: rates in bit/s, how often each, and how long, in seconds.
const RATES: [f64; 3] = [180e6, 170e6, 160e6];
const RUNS: usize = 3;
const LASTS: f64 = 5.0;
/// Its link: what it carries in bit/s, its round trip in milliseconds, and what it loses of its
/// own: about the middle of what the thesis measured.
const LINK: f64 = 200e6;
const ROUND_TRIP: f64 = 50.0;
const LOSS: &str = "0.015%";
/// 5.2: seconds of the probe, and the queue of the port, in milliseconds: so short that it is full
/// before anything counts.
const STREAM: f64 = 20.0;
const QUEUE: f64 = 2.0;
/// No end may be the limit.
const MORE: &str = "400Mbit";

/// Table IX.1: three probes at each rate through a link that loses a little, and one through the
/// same link without that.
///
/// # Errors
/// If the network or a process cannot be started, or a probe fails.
pub(crate) fn table_ix_1(tools: &Tools) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for (loss, rates) in [("0%", &RATES[..1]), (LOSS, &RATES[..])] {
        let access = (format!("{LINK:.0}bit"), "50ms".to_owned());
        let branch = Branch { loss: loss.into(), ..Branch::rtt(ROUND_TRIP) };
        let place = Place::open(tools, &Shape { access, middle: None, branches: vec![branch] })?;
        let runs = if loss == LOSS { RUNS } else { 1 };
        for rate in rates {
            let found = (0..runs).map(|_| place.probe(*rate, LASTS)).collect::<Result<Vec<_>>>()?;
            rows.push(json!({"case": "probe-ix-1", "link_loss": loss,
                "asked_Mbit": rate / 1e6, "received_Mbit": all(&found, "received_Mbit"),
                "loss": all(&found, "loss"), "sent": all(&found, "sent"),
                "lost": all(&found, "lost"), "held_up": all(&found, "held_up"),
                "jitter_ms": all(&found, "jitter_ms")}));
        }
        let (lost, dropped) = place.close()?;
        rows.last_mut().context("no probe")?["emulator_lost"] = (lost + dropped).into();
    }
    Ok(rows)
}

/// 5.2: one stream through what is taken for the paper's emulator, at the rate of the hosts' links.
///
/// # Errors
/// As [`table_ix_1`].
pub(crate) fn stream(tools: &Tools) -> Result<Vec<Value>> {
    let place = Place::open(tools, &emulated::shape(&[60.0], QUEUE))?;
    let mut row = place.probe(emulated::HOSTS, STREAM)?;
    let (lost, dropped) = place.close()?;
    row["case"] = "probe-5-2".into();
    row["emulator_lost"] = (lost + dropped).into();
    Ok(vec![row])
}

fn all(rows: &[Value], of: &str) -> Vec<Value> {
    rows.iter().map(|row| row[of].clone()).collect()
}

/// A network whose sink answers probes.
struct Place<'a> {
    lab: Lab,
    tools: &'a Tools,
    fingerprint: String,
}

impl<'a> Place<'a> {
    fn open(tools: &'a Tools, shape: &Shape) -> Result<Place<'a>> {
        let mut lab = Lab::open(shape, &tools.gtp)?;
        let said = lab.command("src0", &tools.gtp).arg("id").output()?;
        ensure!(said.status.success(), "no key");
        let (keys, data) = (lab.dir.path().join("keys"), lab.dir.path().join("data"));
        std::fs::write(&keys, said.stdout)?;
        std::fs::create_dir(&data)?;
        let keys = keys.display().to_string();
        // Who may write is not held to the rate of those who may not.
        let options = ["--writable", "--authorized-keys", &keys, "--no-path-bound"];
        let options = [&options[..], &["--capacity-in", MORE, "--daemon", "off"]].concat();
        let fingerprint = lab.serve("sink", &data, &options)?;
        Ok(Place { lab, tools, fingerprint })
    }

    /// What a probe from the source says at this rate.
    fn probe(&self, rate: f64, seconds: f64) -> Result<Value> {
        let mut command = self.lab.command("src0", &self.tools.gtp);
        command.args(["probe", &format!("gtp://{}:4810/", sink_address()), "--json"]);
        command.args(["--rate", &format!("{rate:.0}bit"), "--seconds", &seconds.to_string()]);
        command.args(["--fingerprint", &self.fingerprint, "--no-path-bound"]);
        command.args(["--capacity-out", MORE, "--daemon", "off"]).stderr(Stdio::piped());
        let said = command.output()?;
        let words = String::from_utf8_lossy(&said.stderr);
        ensure!(said.status.success(), "the probe failed: {}", words.trim());
        let said: Value = serde_json::from_slice(&said.stdout).context("the probe said nothing")?;
        let up = &said["up"];
        let of = |what: &str| up[what].as_f64().with_context(|| format!("no {what}"));
        Ok(json!({"asked_Mbit": rate / 1e6, "sent_Mbit": of("sent_bps")? / 1e6,
            "received_Mbit": of("received_bps")? / 1e6, "sent": of("sent")?,
            "lost": of("sent")? - of("received")?, "loss": of("loss_ratio")?,
            "held_up": of("held_up")?, "limited_by": up["limited_by"],
            "overtaken": of("overtaken")?, "datagram_bytes": of("datagram_bytes")?,
            "jitter_ms": of("jitter_s")? * 1e3, "rtt_ms": said["rtt_s"].as_f64().map(|s| s * 1e3)}))
    }

    /// Packets that the links lost by chance and that queues dropped, of all that was sent.
    fn close(self) -> Result<(u64, u64)> {
        let record = Record(self.lab.close()?);
        let last = record.0.last().context("nothing was sampled")?;
        let links = last.1.links.iter();
        let forward = links.filter(|link| !link.name.starts_with("back"));
        Ok(forward
            .fold((0, 0), |sum, link| (sum.0 + link.dropped_loss, sum.1 + link.dropped_queue)))
    }
}
