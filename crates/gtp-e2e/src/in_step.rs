//! Frames in step: four sources to one sink, and one source to four sinks, beside kernel TCP.
//!
//! Every source has a frame each 50 ms. What counts is whether the parts of a frame (or the one
//! frame at all sinks) are shown within one frame of each other. Two figures say so: how far apart
//! they came, and how many were there at one time that is agreed before, which is how long a sink
//! holds a frame. TCP's ends number their frames and skip those for which they are late, as `gtp
//! stream` does; both transports are judged by the same functions. A machine that cannot carry
//! frames of 2 MB is asked for smaller ones by the case's name: `frames-group-500` has 500 kB.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gtp_sys::clock::unix_time;
use serde_json::{Value, json};
use socket2::SockRef;

use crate::cases::Tools;
use crate::lab::{Lab, namespace};

/// Round trips of the four ways, in ms.
const ROUND_TRIPS: [f64; 4] = [1.0, 20.0, 60.0, 140.0];
const LOSS: &str = "0.1%";
/// Bytes of a frame, or of a part, that the claim asks for.
const ASKED: u64 = 2_000_000;
const EVERY_MS: u64 = 50;
/// The same in seconds.
const FRAME_S: f64 = 0.05;
/// Frames of a run: twenty-two seconds.
const COUNT: u64 = START + JUDGED;
/// Frames that are not judged: two seconds, in which rates rise.
const START: u64 = 40;
/// Frames that are.
const JUDGED: u64 = 400;
/// How long after it was due a frame is shown: the farthest way, a frame's length, one repair, and
/// 90 ms.
const HELD_MS: u64 = 400;
/// Frames that a source which is late still sends, as `gtp stream` does.
const CATCH_UP: u64 = 2;
const PORT: u16 = 5_901;
/// A run that takes longer than this beyond its frames has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// When parts came, in seconds after they were due: by number, then by place.
type Came = BTreeMap<u64, Vec<Option<f64>>>;

/// What a case measures of its frames.
struct Seen {
    came: Came,
    /// Frames shown in step: whole, and at all sinks within one frame.
    in_step: BTreeSet<u64>,
    /// Why parts are missing, by cause, summed over all ends.
    causes: BTreeMap<String, u64>,
}

/// A row for each shape and transport.
///
/// # Errors
/// If the name is none of this case, or a network or a process cannot be started.
pub fn run(name: &str, tools: &Tools) -> Result<Vec<Value>> {
    let kilobytes = name.strip_prefix("frames-group").and_then(|rest| rest.strip_prefix('-'));
    let bytes = match kilobytes {
        None if name == "frames-group" => ASKED,
        None => bail!("no case {name}"),
        Some(kilobytes) => kilobytes.parse::<u64>().context("kilobytes")? * 1_000,
    };
    let mut rows = Vec::new();
    for shape in [Shape::FourToOne, Shape::OneToFour] {
        rows.push(row(shape, "gtp", bytes, &by_gtp(tools, shape, bytes)?)?);
        for law in ["cubic", "bbr"] {
            rows.push(row(shape, law, bytes, &by_tcp(tools, shape, bytes, law)?)?);
        }
    }
    Ok(rows)
}

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    FourToOne,
    OneToFour,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::FourToOne => "4 to 1",
            Shape::OneToFour => "1 to 4",
        }
    }

    fn sinks(self) -> Vec<String> {
        match self {
            Shape::FourToOne => vec!["hub".into()],
            Shape::OneToFour => (0..ROUND_TRIPS.len()).map(|i| format!("end{i}")).collect(),
        }
    }

    fn sources(self) -> Vec<String> {
        match self {
            Shape::FourToOne => Shape::OneToFour.sinks(),
            Shape::OneToFour => Shape::FourToOne.sinks(),
        }
    }
}

/// The network: `hub`, and `end0` to `end3`, each behind a way of its own that loses packets both
/// ways.
pub fn network_file() -> String {
    let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
    let mut host = |name: &str| {
        text.push_str(&format!(
            "[[host]]\nname = \"{name}\"\nnamespace = \"{}\"\naddress = [\"{}/24\"]\n",
            namespace(name),
            address(name)
        ));
    };
    host("hub");
    (0..ROUND_TRIPS.len()).for_each(|i| host(&format!("end{i}")));
    for (i, round_trip) in ROUND_TRIPS.iter().enumerate() {
        let half = round_trip / 2.0;
        for (name, from, to) in [("in", "end", "hub"), ("out", "hub", "end")] {
            let number = |host: &str| match host {
                "hub" => host.to_owned(),
                _ => format!("{host}{i}"),
            };
            text.push_str(&format!(
                "[[link]]\nname = \"{name}{i}\"\ndelay = \"{half}ms\"\nloss = \"{LOSS}\"\n\
                 [[route]]\nfrom = \"{}\"\nto = \"{}\"\nlinks = [\"{name}{i}\"]\n",
                number(from),
                number(to)
            ));
        }
    }
    text
}

/// A host's address.
pub fn address(host: &str) -> String {
    match host.strip_prefix("end") {
        Some(number) => format!("10.79.0.1{number}"),
        None => "10.79.0.1".into(),
    }
}

/// Frames over `gtp stream --group`.
fn by_gtp(tools: &Tools, shape: Shape, bytes: u64) -> Result<Seen> {
    let lab = Lab::open_file(&network_file(), &tools.gtp)?;
    let sinks: Vec<Listening> = shape
        .sinks()
        .iter()
        .map(|host| Listening::start(&lab, tools, shape, host, bytes))
        .collect::<Result<_>>()?;
    let mut sources = Vec::new();
    for (i, host) in shape.sources().iter().enumerate() {
        let zeros = Command::new("head")
            .args(["-c", &(bytes * COUNT).to_string(), "/dev/zero"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut zeros = Ending(zeros);
        let mut source = lab.command(host, &tools.gtp);
        source.args(["stream", "send", "--accept-new", "--unreliable", "--repair-once"]);
        source.args(["--frames", &format!("{bytes}B")]);
        match shape {
            Shape::FourToOne => {
                source.args(["--group", "4", "--part", &(i + 1).to_string()]);
            }
            Shape::OneToFour => {
                let after = format!("{HELD_MS}ms");
                source.args(["--group", "1", "--frame-every", &format!("{EVERY_MS}ms")]);
                source.args(["--release-after", &after]);
            }
        }
        source.args(shape.sinks().iter().map(|sink| format!("gtp://{}:4810/", address(sink))));
        source.arg("--frame-report").arg(lab.dir.path().join(format!("{host}-sent.json")));
        source.stdin(zeros.0.stdout.take().context("no zeros")?).stdout(Stdio::null());
        source.stderr(std::fs::File::create(lab.dir.path().join(format!("{host}.log")))?);
        sources.push((Ending(source.spawn()?), zeros, host.clone()));
    }
    for (source, _zeros, host) in &mut sources {
        let log = lab.dir.path().join(format!("{host}.log"));
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(source.ended()?, "{host} did not send all: {}", said());
    }
    let reports = sinks.into_iter().map(Listening::report).collect::<Result<Vec<Value>>>()?;
    let mut seen = match shape {
        Shape::FourToOne => of_one_report(&reports[0])?,
        Shape::OneToFour => of_four_reports(&reports)?,
    };
    for part in reports.iter().filter_map(|report| report["parts"].as_array()).flatten() {
        for cause in ["late", "lost", "crowded"] {
            *seen.causes.entry(cause.into()).or_default() += part[cause].as_u64().unwrap_or(0);
        }
    }
    for host in shape.sources() {
        let sent = std::fs::read(lab.dir.path().join(format!("{host}-sent.json")))?;
        let sent: Value = serde_json::from_slice(&sent)?;
        let skipped = sent["frames_skipped"].as_u64().unwrap_or(0);
        *seen.causes.entry("skipped".into()).or_default() += skipped;
        for sink in sent["sinks"].as_array().into_iter().flatten() {
            let dropped = sink["dropped"].as_u64().unwrap_or(0);
            *seen.causes.entry("dropped".into()).or_default() += dropped;
        }
    }
    lab.close()?;
    Ok(seen)
}

/// A receiver of `gtp stream`.
struct Listening {
    process: Ending,
    report: PathBuf,
}

impl Listening {
    fn start(lab: &Lab, tools: &Tools, shape: Shape, host: &str, bytes: u64) -> Result<Listening> {
        let report = lab.dir.path().join(format!("{host}-report.json"));
        let mut receiver = lab.command(host, &tools.gtp);
        receiver.args(["stream", "receive", "--public", "--listen", "0.0.0.0:4810"]);
        receiver.args(["--unreliable", "--frames", &format!("{bytes}B")]);
        receiver.arg("--frame-report").arg(&report);
        match shape {
            Shape::FourToOne => {
                receiver.args(["--group", "4", "--frame-every", &format!("{EVERY_MS}ms")]);
                receiver.args(["--deadline", &format!("{HELD_MS}ms")]);
            }
            Shape::OneToFour => {
                receiver.args(["--group", "1", "--deadline", "1s"]);
            }
        }
        let mut child = receiver.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().context("no words")?);
        let mut line = String::new();
        while !line.contains("elsewhere:") {
            line.clear();
            ensure!(said.read_line(&mut line)? > 0, "{host} does not listen");
        }
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(Listening { process: Ending(child), report })
    }

    fn report(mut self) -> Result<Value> {
        ensure!(self.process.ended()?, "a receiver failed");
        Ok(serde_json::from_slice(&std::fs::read(&self.report)?)?)
    }
}

/// What a sink of four sources saw. When parts came is told of a frame as a whole: the first at
/// zero, the last so much after.
fn of_one_report(report: &Value) -> Result<Seen> {
    let frames = report["frames"].as_array().context("no frames")?;
    let mut seen = Seen { came: Came::new(), in_step: BTreeSet::new(), causes: BTreeMap::new() };
    for frame in frames {
        let number = frame[0].as_u64().context("no number")?;
        let (skew, is_whole) = (frame[2].as_f64().context("no skew")?, frame[3] == true);
        if is_whole {
            seen.came.insert(number, vec![Some(0.0), Some(skew)]);
            seen.in_step.insert(number);
        }
    }
    Ok(seen)
}

/// What four sinks of one source saw: when each released a frame, by the wall clock of this
/// machine, which all of them share.
fn of_four_reports(reports: &[Value]) -> Result<Seen> {
    let mut seen = Seen { came: Came::new(), in_step: BTreeSet::new(), causes: BTreeMap::new() };
    for (place, report) in reports.iter().enumerate() {
        let first = report["first_unix_s"].as_f64().context("nothing was released")?;
        for frame in report["frames"].as_array().context("no frames")? {
            let number = frame[0].as_u64().context("no number")?;
            let at = frame[1].as_f64().context("no time")?;
            note(&mut seen.came, number, place, reports.len(), first + at);
        }
    }
    let is_within = |parts: &[Option<f64>]| apart(parts).is_some_and(|apart| apart <= FRAME_S);
    seen.in_step =
        seen.came.iter().filter(|(_, parts)| is_within(parts)).map(|(&number, _)| number).collect();
    Ok(seen)
}

fn note(came: &mut Came, number: u64, place: usize, places: usize, at: f64) {
    let parts = came.entry(number).or_insert_with(|| vec![None; places]);
    parts[place] = Some(at);
}

/// How far apart the parts of a frame are; none if some are missing.
fn apart(parts: &[Option<f64>]) -> Option<f64> {
    let all: Vec<f64> = parts.iter().copied().collect::<Option<Vec<f64>>>()?;
    let (first, last) = all
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &at| (low.min(at), high.max(at)));
    Some(last - first)
}

/// The same frames over TCP connections under this law.
fn by_tcp(tools: &Tools, shape: Shape, bytes: u64, law: &str) -> Result<Seen> {
    let lab = Lab::open_file(&network_file(), &tools.gtp)?;
    for host in shape.sinks().iter().chain(&shape.sources()) {
        lab.room_for_tcp(host, 64 << 20)?;
    }
    let sources = shape.sources();
    let mut receivers = Vec::new();
    for host in shape.sinks() {
        let mut receiver = lab.command(&host, &tools.own);
        receiver.args(["step-in", &sources.len().to_string()]).stdout(Stdio::piped());
        let mut child = receiver.spawn()?;
        let mut told = BufReader::new(child.stdout.take().context("no output")?);
        told.read_line(&mut String::new())?; // It listens.
        receivers.push((Ending(child), told));
    }
    let began = unix_time() + Duration::from_secs(2);
    let mut senders = Vec::new();
    for (place, host) in sources.iter().enumerate() {
        let plan = Plan {
            law: law.into(),
            bytes,
            place: place as u64,
            began_ms: began.as_millis() as u64,
            to: shape.sinks().iter().map(|sink| address(sink)).collect(),
        };
        let mut sender = lab.command(host, &tools.own);
        sender.arg("step-out").arg(serde_json::to_string(&plan)?);
        senders.push(Ending(sender.spawn()?));
    }
    for sender in &mut senders {
        ensure!(sender.ended()?, "a sender failed");
    }
    let mut came = Came::new();
    let places = ROUND_TRIPS.len();
    for (sink, (mut receiver, mut told)) in receivers.into_iter().enumerate() {
        let mut text = String::new();
        told.read_to_string(&mut text)?;
        ensure!(receiver.ended()?, "a receiver failed");
        let heard: Vec<(u64, u64, f64)> = serde_json::from_str(&text)?;
        for (place, number, at) in heard {
            let place = if shape == Shape::FourToOne { place as usize } else { sink };
            let due = began.as_secs_f64() + (number * EVERY_MS) as f64 / 1e3;
            note(&mut came, number, place, places, at - due);
        }
    }
    lab.close()?;
    let parts = came.values().flatten().flatten().count() as u64;
    let skipped = (places as u64 * COUNT).saturating_sub(parts);
    let held = HELD_MS as f64 / 1e3;
    let in_time = |parts: &[Option<f64>]| parts.iter().all(|at| at.is_some_and(|t| t <= held));
    let in_step =
        came.iter().filter(|(_, parts)| in_time(parts)).map(|(&number, _)| number).collect();
    Ok(Seen { came, in_step, causes: BTreeMap::from([("skipped".into(), skipped)]) })
}

/// What a process sends over TCP.
#[derive(serde::Serialize, serde::Deserialize)]
struct Plan {
    law: String,
    bytes: u64,
    place: u64,
    began_ms: u64,
    to: Vec<String>,
}

/// Takes so many connections, and prints which part of which frame was read when.
///
/// # Errors
/// If it cannot listen, or reading fails.
pub fn receive(connections: usize) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    gtp_lab::say!("listening");
    let mut readers = Vec::new();
    for _ in 0..connections {
        let (stream, _) = listener.accept()?;
        readers.push(std::thread::spawn(move || read(stream)));
    }
    let mut heard = Vec::new();
    for reader in readers {
        heard.extend(reader.join().map_err(|_| anyhow::anyhow!("a reader failed"))??);
    }
    gtp_lab::say!("{}", json!(heard));
    Ok(())
}

/// Frames of one connection: place, number, and the wall clock when the last byte was read.
fn read(mut stream: TcpStream) -> Result<Vec<(u64, u64, f64)>> {
    let (mut heard, mut head, mut chunk) = (Vec::new(), [0; 24], vec![0; 256 << 10]);
    loop {
        match stream.read_exact(&mut head) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(heard),
            read => read?,
        }
        let [place, number, mut left] =
            [0, 8, 16].map(|at| head[at..at + 8].iter().fold(0, |n, &b| n << 8 | u64::from(b)));
        while left > 0 {
            let most = left.min(chunk.len() as u64) as usize;
            let count = stream.read(&mut chunk[..most])?;
            ensure!(count > 0, "a frame was cut off");
            left -= count as u64;
        }
        heard.push((place, number, unix_time().as_secs_f64()));
    }
}

/// Sends frames as planned, over a connection to each sink, each on a thread of its own.
///
/// # Errors
/// If a sink is not there, the kernel has no such law, or writing fails.
pub fn send(plan: &str) -> Result<()> {
    let plan: Plan = serde_json::from_str(plan)?;
    let plan = std::sync::Arc::new(plan);
    let senders: Vec<_> = (0..plan.to.len())
        .map(|sink| {
            let plan = std::sync::Arc::clone(&plan);
            std::thread::spawn(move || write(&plan, sink))
        })
        .collect();
    for sender in senders {
        sender.join().map_err(|_| anyhow::anyhow!("a sender failed"))??;
    }
    Ok(())
}

fn write(plan: &Plan, sink: usize) -> Result<()> {
    let mut stream = TcpStream::connect((plan.to[sink].as_str(), PORT))?;
    let chosen = SockRef::from(&stream).set_tcp_congestion(plan.law.as_bytes());
    chosen.with_context(|| format!("the kernel has no {}", plan.law))?;
    let content = vec![0; plan.bytes as usize];
    let mut number = 0;
    while number < COUNT {
        let due = Duration::from_millis(plan.began_ms + number * EVERY_MS);
        std::thread::sleep(due.saturating_sub(unix_time()));
        let head = [plan.place, number, plan.bytes].map(u64::to_be_bytes).concat();
        stream.write_all(&head)?;
        stream.write_all(&content)?;
        // As `gtp stream` does.
        let late = unix_time().saturating_sub(Duration::from_millis(plan.began_ms));
        number = (number + 1).max((late.as_millis() as u64 / EVERY_MS).saturating_sub(CATCH_UP));
    }
    Ok(())
}

fn row(shape: Shape, transport: &str, bytes: u64, seen: &Seen) -> Result<Value> {
    let judged = START..START + JUDGED;
    let came = seen.came.range(judged.clone());
    let mut spans: Vec<f64> = came.filter_map(|(_, parts)| apart(parts)).collect();
    let in_step = seen.in_step.range(judged).count();
    let percent = |frames: usize| frames as f64 / JUDGED as f64 * 100.0;
    spans.sort_by(f64::total_cmp);
    let rank = |percent: usize| {
        let at = (spans.len() * percent).div_ceil(100).checked_sub(1)?;
        Some(spans.get(at)? * 1e3)
    };
    let near = spans.iter().filter(|&&apart| apart <= FRAME_S).count();
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let load: f64 = load.split(' ').next().context("no load")?.parse()?;
    Ok(json!({"case": "frames-group", "shape": shape.name(), "transport": transport,
        "frame_bytes": bytes, "frame_bytes_asked": ASKED, "each_s": 1e3 / EVERY_MS as f64,
        "frames": JUDGED, "everywhere": spans.len(),
        "in_step_percent": percent(in_step), "apart_within_frame_percent": percent(near),
        "apart_median_ms": rank(50), "apart_p99_ms": rank(99), "apart_most_ms": rank(100),
        "held_ms": HELD_MS, "causes": seen.causes, "load": load}))
}

/// A process that ends with its case.
struct Ending(Child);

impl Ending {
    /// Waits until it has ended; says whether well.
    fn ended(&mut self) -> Result<bool> {
        let until = Instant::now() + PATIENCE + Duration::from_millis(COUNT * EVERY_MS);
        while Instant::now() < until {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("a process does not end")
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_in_step_where_all_sinks_release_it_within_one_frame() {
        let sink = |first: f64, frames: Value| json!({"first_unix_s": first, "frames": frames});
        let one = sink(100.0, json!([[50, 0.0, 0.0, true], [51, 0.05, 0.0, true]]));
        let two = sink(
            100.03,
            json!([[50, 0.0, 0.0, true], [51, 0.09, 0.0, true], [52, 0.1, 0.0, true]]),
        );
        let seen = of_four_reports(&[one, two]).unwrap();
        assert_eq!(
            seen.in_step,
            BTreeSet::from([50]),
            "51 is 70 ms apart, and 52 at one sink only"
        );
        let row = row(Shape::OneToFour, "gtp", 1, &seen).unwrap();
        assert_eq!(
            (&row["everywhere"], &row["apart_within_frame_percent"]),
            (&json!(2), &json!(0.25))
        );
    }

    #[test]
    fn a_part_that_is_missing_is_not_in_step() {
        assert_eq!(apart(&[Some(1.0), None]), None);
        assert_eq!(apart(&[Some(1.5), Some(1.0), Some(1.25)]), Some(0.5));
    }
}
