//! A grid of round trips and random losses over one bottleneck, GTP and others.
//!
//! A transport that reads loss as congestion, or time as distance, shows it here. What crosses the
//! bottleneck is read off the emulated link for everybody. GTP's goodput is the payload that came
//! and had not come before: blocks that a start leaves incomplete are completed later, so what is
//! put in place in a while may be more than crosses the link meanwhile. A row in which goodput is
//! more than the link can have carried says so. GTP runs twice, with the sink's capacity stated as
//! the bottleneck's rate and without.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cases::{Sink, Tools, goodput, plan, transfer, with_sources};
use crate::lab::{Branch, Lab, Shape, sink_address};
use crate::machine::LargeBuffers;
use crate::record::{Record, route};
use crate::running::Running;
use crate::tcp;

/// The bottleneck: the sink's access link.
const BOTTLENECK: u64 = 500_000_000;
/// Round trips in milliseconds.
const ROUND_TRIPS: [f64; 5] = [1.0, 20.0, 60.0, 150.0, 300.0];
/// Random losses in percent.
const LOSSES: [f64; 5] = [0.0, 0.01, 0.1, 1.0, 2.0];
/// The nine cells in which others run too.
const OTHERS: ([f64; 3], [f64; 3]) = ([1.0, 60.0, 300.0], [0.0, 0.1, 2.0]);
/// Seconds after the start between which rates are taken: a start over 300 ms whose rate is not
/// stated, and the repair of what it lost, were seen to take five.
const STEADY: (f64, f64) = (8.0, 16.0);
/// The part of a data packet that is payload: 1,400 of 1,477 bytes.
const PAYLOAD: f64 = 1_400.0 / 1_477.0;
/// What a sink says of itself may be this many seconds old: two of its samples.
const LATE: f64 = 0.2;
/// Seconds that a program of others may take until its first data.
const READY: f64 = 20.0;
/// So many bytes are data, and no handshake.
const FIRST: f64 = 65_536.0;

/// Bytes of buffer that a socket of the others may have: two bandwidth-delay products and more.
const BUFFER: u64 = 64 << 20;

/// One cell.
#[derive(Clone, Copy)]
struct Cell {
    rtt_ms: f64,
    loss_percent: f64,
}

impl Cell {
    fn shape(self) -> Shape {
        let loss = format!("{}%", self.loss_percent);
        Shape {
            access: (format!("{}Mbit", BOTTLENECK / 1_000_000), "100ms".into()),
            middle: None,
            branches: vec![Branch { loss, ..Branch::rtt(self.rtt_ms) }],
        }
    }

    /// A laboratory in which TCP has room for its windows.
    fn lab_for_others(self) -> Result<Lab> {
        let lab = Lab::open(&self.shape(), &std::env::current_exe()?)?;
        for host in ["src0", "sink"] {
            lab.room_for_tcp(host, BUFFER)?;
        }
        Ok(lab)
    }

    /// A row of the results.
    fn row(self, protocol: &str, record: &Record, began: f64, taken: Option<Taken>) -> Value {
        let (from, to) = steady(began);
        let rate = record.rate(&route(0), from, to);
        let (offered, dropped) = record.drops("access", from, to);
        let most = BOTTLENECK as f64 * (1.0 - self.loss_percent / 100.0);
        json!({"case": "grid", "protocol": protocol, "rtt_ms": self.rtt_ms,
            "loss_percent": self.loss_percent,
            "rate_Mbit": rate / 1e6,
            "goodput_Mbit": taken.map(|t| t.payload / 1e6),
            "goodput_of_most": taken.map(|t| t.payload / most),
            "in_place_Mbit": taken.map(|t| t.in_place / 1e6),
            "missed": taken.and_then(|t| t.impossible(rate)).into_iter().collect::<Vec<_>>(),
            "queue_loss": dropped as f64 / offered.max(1) as f64})
    }
}

/// When rates are taken in a run that began then.
fn steady(began: f64) -> (f64, f64) {
    (began + STEADY.0, began + STEADY.1)
}

/// What a sink took in, in bit/s.
#[derive(Clone, Copy)]
struct Taken {
    /// Payload that came and was not here.
    payload: f64,
    /// Verified blocks.
    in_place: f64,
}

impl Taken {
    /// Of the first transfer between two times.
    fn of(lines: &[(f64, Value)], (from, to): (f64, f64)) -> Taken {
        let payload = (payload_at(lines, to) - payload_at(lines, from)) * 8.0 / (to - from);
        Taken { payload, in_place: goodput(lines, 0, from, to) }
    }

    /// Says so if a link that carried so many bit/s of IP bytes cannot have brought the payload.
    fn impossible(self, rate: f64) -> Option<String> {
        let late = BOTTLENECK as f64 * LATE / (STEADY.1 - STEADY.0);
        let most = (rate + late) * PAYLOAD;
        let what = || format!("goodput of {:.1} from {:.1} Mbit/s", self.payload / 1e6, rate / 1e6);
        (self.payload > most).then(what)
    }
}

/// Payload bytes that had come by `t` and were not here, in proportion between two samples.
fn payload_at(lines: &[(f64, Value)], t: f64) -> f64 {
    let samples = lines.iter().filter(|(_, v)| v["event"] == "sample" && v["transfer"] == 0);
    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
    let payload = |v: &Value| {
        let sources = v["sources"].as_array().into_iter().flatten();
        sources.map(|s| number(&s["wire"]) * PAYLOAD - number(&s["duplicate"])).sum::<f64>()
    };
    let mut last = None;
    for (at, sample) in samples {
        let here = (*at, payload(sample));
        match last.replace(here) {
            _ if *at < t => {}
            Some((before, was)) => return was + (here.1 - was) * (t - before) / (at - before),
            None => return 0.0,
        }
    }
    last.map_or(0.0, |(_, payload)| payload)
}

/// The round trips that a name asks for: all if it is the case's, one if that stands behind it, as
/// in `grid-300`; none if it is another's.
pub(crate) fn round_trips(case: &str, name: &str) -> Option<Vec<f64>> {
    let rest = name.strip_prefix(case)?;
    if rest.is_empty() {
        return Some(ROUND_TRIPS.to_vec());
    }
    let one = rest.strip_prefix('-')?.parse().ok()?;
    ROUND_TRIPS.contains(&one).then(|| vec![one])
}

fn cells(round_trips: &[f64]) -> impl Iterator<Item = Cell> {
    round_trips.iter().flat_map(|&rtt_ms| {
        LOSSES.into_iter().map(move |loss_percent| Cell { rtt_ms, loss_percent })
    })
}

/// GTP in all cells of these round trips, with the bottleneck's rate stated and not stated.
///
/// # Errors
/// If the network or a process cannot be started.
pub fn gtp(tools: &Tools, round_trips: &[f64]) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for cell in cells(round_trips) {
        for (protocol, stated) in [("gtp", Some(BOTTLENECK)), ("gtp-unstated", None)] {
            let (lab, prints) = with_sources(&cell.shape(), tools, &[])?;
            let mut plan = plan(vec![transfer(0, &prints, 0.0, STEADY.1 + 0.5)]);
            plan.capacity_in = stated;
            let sink = Sink::start(&lab, tools, &plan)?;
            let began = sink.began;
            let lines = sink.finish()?;
            let record = Record(lab.close()?);
            let taken = Taken::of(&lines, steady(began));
            rows.push(cell.row(protocol, &record, began, Some(taken)));
        }
    }
    Ok(rows)
}

/// Kernel TCP in nine cells, and the programs of `bench/peers` that are in the directory which
/// `GTP_PEERS` names, with buffers for two bandwidth-delay products and more. `GTP_PROTOCOLS` may
/// name some of them, with commas between; all others are then left out.
///
/// # Errors
/// As [`gtp`], and if none of those that were named is there.
pub fn others(round_trips: &[f64]) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let _large = LargeBuffers::of(BUFFER)?;
    let named = std::env::var("GTP_PROTOCOLS").ok();
    let wanted = |name: &str| is_among(named.as_deref(), name);
    let foreigners = foreigners();
    for cell in cells(round_trips) {
        if !OTHERS.0.contains(&cell.rtt_ms) || !OTHERS.1.contains(&cell.loss_percent) {
            continue;
        }
        for law in ["cubic", "bbr"].into_iter().filter(|law| wanted(law)) {
            rows.push(of_tcp(cell, law)?);
        }
        for foreign in foreigners.iter().filter(|foreign| wanted(&foreign.name)) {
            rows.push(of_foreign(cell, foreign)?);
        }
    }
    ensure!(!rows.is_empty(), "GTP_PROTOCOLS: none of them is there");
    Ok(rows)
}

/// Whether a list of names has this one; no list has all.
fn is_among(named: Option<&str>, name: &str) -> bool {
    named.is_none_or(|named| named.split(',').any(|one| one == name))
}

/// A row; it says in `failed` if the connection broke.
fn of_tcp(cell: Cell, law: &str) -> Result<Value> {
    let mut lab = cell.lab_for_others()?;
    tcp::listen(&mut lab, 1)?;
    let began = lab.now();
    let ended = tcp::send(&lab, 0, law, STEADY.1 + 0.5)?.finish();
    let mut row = cell.row(law, &Record(lab.close()?), began, None);
    if let Err(error) = ended {
        row["failed"] = format!("{error:#}").into();
    }
    Ok(row)
}

/// A row, whose time begins with the first data: a program makes its content before that, and SRT
/// asks for the round trip. It says in `failed` if the sender was gone before its time: its content
/// does not end within it.
fn of_foreign(cell: Cell, foreign: &Foreign) -> Result<Value> {
    let lab = cell.lab_for_others()?;
    let mut receiver = foreign.start(&lab, "sink", "receive")?;
    let out = receiver.child.stdout.take().context("no output")?;
    BufReader::new(out).read_line(&mut String::new())?; // That it is ready.
    let started = lab.now();
    let mut sender = foreign.start(&lab, "src0", "send")?;
    let mut began = lab.now();
    while carried(&lab)? < FIRST && began < started + READY {
        std::thread::sleep(Duration::from_millis(10));
        began = lab.now();
    }
    std::thread::sleep(Duration::from_secs_f64(STEADY.1 + 0.5));
    let gone = sender.child.try_wait()?;
    drop((sender, receiver));
    let why = std::fs::read_to_string(foreign.log(&lab, "src0")).unwrap_or_default();
    let mut row = cell.row(&foreign.name, &Record(lab.close()?), began, None);
    if let Some(status) = gone {
        row["failed"] = format!("{status}: {}", why.trim()).into();
    }
    Ok(row)
}

/// IP bytes that have crossed the network until now.
fn carried(lab: &Lab) -> Result<f64> {
    Ok(Record(vec![(0.0, lab.emulator().stats()?)]).bytes_at(&route(0), 0.0))
}

/// A pair of programs: `PROGRAM receive|send ADDRESS:PORT OPTIONS`.
struct Foreign {
    name: String,
    program: PathBuf,
    options: Vec<String>,
}

/// One GiB: more than crosses the bottleneck until the last rate is taken.
const CONTENT: &str = "1073741824";

fn foreigners() -> Vec<Foreign> {
    let Some(directory) = std::env::var_os("GTP_PEERS").map(PathBuf::from) else {
        return Vec::new();
    };
    let pair = |name: &str, path: &str, options: &[&str]| Foreign {
        name: name.into(),
        program: directory.join(path),
        options: options.iter().map(|o| (*o).to_owned()).collect(),
    };
    let certificate = |name: &str| format!("{}", std::env::temp_dir().join(name).display());
    let (quinn, s2n) = (certificate("gtp-grid-quinn.der"), certificate("gtp-grid-s2n.der"));
    let quic =
        |file, law| ["--mtu", "1500", "--bytes", CONTENT, "--certificate", file, "--law", law];
    let all = [
        pair("quinn", "release/quinn", &quic(quinn.as_str(), "cubic")),
        pair("quinn-bbr", "release/quinn", &quic(quinn.as_str(), "bbr")),
        pair("s2n-quic", "release/s2n", &quic(s2n.as_str(), "cubic")),
        pair("s2n-quic-bbr", "release/s2n", &quic(s2n.as_str(), "bbr")),
        pair("udt4", "native/udt", &["--mtu", "1500", "--bytes", CONTENT]),
        pair("srt", "native/srt", &["--mtu", "1500", "--bytes", CONTENT]),
    ];
    all.into_iter().filter(|f| f.program.exists()).collect()
}

impl Foreign {
    fn start(&self, lab: &Lab, host: &str, role: &str) -> Result<Running> {
        let mut command = lab.command(host, &self.program);
        command.args([role, &format!("{}:5000", sink_address())]).args(&self.options);
        let log = std::fs::File::create(self.log(lab, host))?;
        let name = self.program.display().to_string();
        Running::start(&name, command.stdout(Stdio::piped()).stderr(log))
    }

    /// What its program says on a host when something goes wrong.
    fn log(&self, lab: &Lab, host: &str) -> PathBuf {
        lab.dir.path().join(format!("{}-{host}.log", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink's samples each 100 ms at 61.5 MB/s of IP bytes, 100 MB of which were not in place
    /// after four seconds and 20 MB after eight.
    fn lines() -> Vec<(f64, Value)> {
        let line = |i: u32| {
            let at = f64::from(i) / 10.0;
            let backlog = 100e6 - 20e6 * (at - 4.0).clamp(0.0, 4.0);
            let wire = 61.5e6 * at;
            let duplicate = 1e6 * at;
            let bytes = (wire * PAYLOAD - duplicate - backlog).max(0.0);
            let sources = json!([{"wire": wire, "duplicate": duplicate}]);
            (at, json!({"event": "sample", "transfer": 0, "bytes": bytes, "sources": sources}))
        };
        (1..=170).map(line).collect()
    }

    #[test]
    fn what_came_before_is_no_goodput() {
        let early = Taken::of(&lines(), (4.05, 12.05));
        assert!(early.in_place > 492e6, "the start's blocks count: {}", early.in_place);
        let payload = 8.0 * (61.5e6 * PAYLOAD - 1e6);
        assert!((early.payload / payload - 1.0).abs() < 1e-9, "{}", early.payload);
        let steady = Taken::of(&lines(), (8.05, 16.05));
        assert!((steady.in_place / payload - 1.0).abs() < 1e-3, "{}", steady.in_place);
    }

    #[test]
    fn more_than_the_link_carried_is_said_to_be_impossible() {
        let taken = |payload| Taken { payload, in_place: payload };
        assert_eq!(taken(483e6 * PAYLOAD).impossible(483e6), None);
        assert!(taken(491e6).impossible(483e6).is_some());
    }

    #[test]
    fn a_list_of_protocols_has_whole_names_and_no_list_has_all() {
        assert!(is_among(None, "quinn"));
        assert!(is_among(Some("srt,quinn-bbr"), "quinn-bbr"));
        assert!(!is_among(Some("srt,quinn-bbr"), "quinn"));
    }

    #[test]
    fn a_name_may_ask_for_one_round_trip() {
        assert_eq!(round_trips("grid", "grid"), Some(ROUND_TRIPS.to_vec()));
        assert_eq!(round_trips("grid", "grid-300"), Some(vec![300.0]));
        assert_eq!(round_trips("grid-others", "grid-others-60"), Some(vec![60.0]));
        for other in ["grid-others", "grid-7", "grid-", "grids", "loss"] {
            assert_eq!(round_trips("grid", other), None, "{other}");
        }
    }
}
