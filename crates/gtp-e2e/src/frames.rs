//! Frames over a long path: how evenly a stream's come, beside kernel TCP's.
//!
//! LambdaStream's setting at a fifth of its rate: 200 Mbit/s and 110 ms, frames of 2 MB sent as
//! fast as each transport takes them. The figure is how far the interval between two frames is from
//! the median interval. All transports are judged by the same function, from when the last byte of
//! each frame could be read, after the first two seconds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_alloc::{Span, Time};
use gtp_laws::frames::{Evenness, Frames, jitter};
use serde_json::{Value, json};
use socket2::SockRef;

use crate::cases::Tools;
use crate::lab::{Branch, Lab, Shape, sink_address};

/// Bytes of a frame.
const FRAME: u64 = 2_000_000;
/// Frames of a run: about twenty seconds.
const COUNT: u64 = 240;
/// After so long TCP begins no other frame: under loss it takes minutes for all.
const LASTS: Duration = Duration::from_secs(40);
/// Seconds that are not judged.
const START: f64 = 2.0;
const PORT: u16 = 5_900;

/// A row for each transport, under this loss.
///
/// # Errors
/// If a network or a process cannot be started.
pub fn rows(loss: &str, tools: &Tools) -> Result<Vec<Value>> {
    let led = by_stream(tools, loss, "lambdastream", &["--link", "200Mbit"])?;
    let mut rows = vec![
        row("gtp grant", loss, &by_stream(tools, loss, "grant", &[])?),
        row("gtp lambdastream", loss, &led),
    ];
    for law in ["cubic", "bbr"] {
        rows.push(row(law, loss, &by_tcp(tools, loss, law)?));
    }
    Ok(rows)
}

fn lab(tools: &Tools, loss: &str) -> Result<Lab> {
    let branch = Branch { loss: loss.into(), ..Branch::rtt(110.0) };
    let access = ("200Mbit".into(), "110ms".into());
    Lab::open(&Shape { access, middle: None, branches: vec![branch] }, &tools.gtp)
}

/// When each frame could be read, in seconds, from `gtp stream` under this law, whose sender has
/// these options too.
fn by_stream(tools: &Tools, loss: &str, law: &str, options: &[&str]) -> Result<Vec<f64>> {
    let lab = lab(tools, loss)?;
    let report = lab.dir.path().join("frames.json");
    let size = format!("{FRAME}B");
    let mut receiver = lab.command("sink", &tools.gtp);
    receiver.args(["stream", "receive", "--public", "--listen", "0.0.0.0:4810"]);
    receiver.args(["--capacity-in", "190Mbit", "--frames", &size, "--control", law]);
    receiver.arg("--frame-report").arg(&report);
    let mut receiver = receiver.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let said = receiver.stderr.take().context("no words")?;
    wait_for_listener(said)?;
    let mut zeros = Command::new("head");
    zeros.args(["-c", &(FRAME * COUNT).to_string(), "/dev/zero"]);
    let mut zeros = zeros.stdout(Stdio::piped()).spawn()?;
    let input = zeros.stdout.take().context("no zeros")?;
    let mut sender = lab.command("src0", &tools.gtp);
    let url = format!("gtp://{}:4810/", sink_address());
    sender.args(["stream", "send", &url, "--accept-new", "--control", law]).args(options);
    let sent = sender.stdin(input).stdout(Stdio::null()).output();
    // Neither outlives a run that failed.
    let _ = zeros.kill();
    let _ = zeros.wait();
    if !sent.as_ref().is_ok_and(|sent| sent.status.success()) {
        let _ = receiver.kill(); // Nobody will call it.
    }
    let _ = receiver.wait();
    let sent = sent?;
    let words = String::from_utf8_lossy(&sent.stderr);
    ensure!(sent.status.success(), "the stream was not sent: {words}");
    let told: Value = serde_json::from_slice(&std::fs::read(&report)?)?;
    let at = told["at_s"].as_array().context("no times")?;
    Ok(at.iter().filter_map(Value::as_f64).collect())
}

/// Reads until it says that it listens; what it says then is read and dropped.
pub(crate) fn wait_for_listener(mut said: impl Read + Send + 'static) -> Result<()> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"--fingerprint") {
        ensure!(
            said.read(&mut byte)? == 1,
            "it does not listen: {}",
            String::from_utf8_lossy(&text)
        );
        text.push(byte[0]);
    }
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Ok(())
}

/// The same from one TCP connection under this law.
fn by_tcp(tools: &Tools, loss: &str, law: &str) -> Result<Vec<f64>> {
    let lab = lab(tools, loss)?;
    for host in ["src0", "sink"] {
        lab.room_for_tcp(host, 32 << 20)?;
    }
    let mut receiver = lab.command("sink", &tools.own);
    let mut receiver = receiver.arg("frames-in").stdout(Stdio::piped()).spawn()?;
    let mut told = BufReader::new(receiver.stdout.take().context("no output")?);
    told.read_line(&mut String::new())?; // It listens.
    let sent = lab.command("src0", &tools.own).args(["frames-out", law]).status();
    if !sent.as_ref().is_ok_and(std::process::ExitStatus::success) {
        let _ = receiver.kill(); // Nobody will call it.
    }
    let mut at = String::new();
    told.read_to_string(&mut at)?;
    let _ = receiver.wait();
    ensure!(sent?.success(), "nothing was sent");
    Ok(serde_json::from_str(&at)?)
}

/// Takes a connection and prints when each frame could be read.
///
/// # Errors
/// If it cannot listen, or reading fails.
pub fn receive() -> Result<()> {
    let listener = TcpListener::bind((sink_address().as_str(), PORT))?;
    gtp_lab::say!("listening");
    let (mut stream, _) = listener.accept()?;
    let began = Instant::now();
    let mut frames = Frames::of(FRAME);
    let (mut chunk, mut read) = (vec![0; 256 << 10], 0);
    loop {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        read += count as u64;
        frames.note(Time::from_nanos(began.elapsed().as_nanos() as u64), read);
    }
    let at: Vec<f64> = frames.times().iter().map(|t| t.as_nanos() as f64 / 1e9).collect();
    gtp_lab::say!("{}", json!(at));
    Ok(())
}

/// Sends all frames over a connection to the sink under this law of the kernel's, as fast as it
/// takes them, for forty seconds at most.
///
/// # Errors
/// If there is nobody, the kernel has no such law, or writing fails.
pub fn send(law: &str) -> Result<()> {
    let mut stream = TcpStream::connect((sink_address().as_str(), PORT))?;
    let chosen = SockRef::from(&stream).set_tcp_congestion(law.as_bytes());
    chosen.with_context(|| format!("the kernel has no {law}"))?;
    let (frame, began) = (vec![0; FRAME as usize], Instant::now());
    for _ in (0..COUNT).take_while(|_| began.elapsed() < LASTS) {
        stream.write_all(&frame)?;
    }
    Ok(())
}

fn row(transport: &str, loss: &str, at: &[f64]) -> Value {
    let from = at.first().map_or(0.0, |first| first + START);
    let late: Vec<Time> =
        at.iter().filter(|&&t| t >= from).map(|t| Time::from_nanos((t * 1e9) as u64)).collect();
    let intervals: Vec<Span> = late.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    let even = Evenness::of(&intervals);
    let ms = |span: Option<Span>| span.map(|span| span.as_secs_f64() * 1e3);
    let lasted: f64 = intervals.iter().map(|i| i.as_secs_f64()).sum();
    json!({"case": "frames", "transport": transport, "loss": loss, "frames": at.len(),
        "rate_Mbit": intervals.len() as f64 * FRAME as f64 * 8.0 / lasted / 1e6,
        "interval_median_ms": ms(even.map(|e| e.interval)),
        "deviation_median_ms": ms(even.map(|e| e.deviation)),
        "deviation_p99_ms": ms(even.map(|e| e.deviation_p99)),
        "jitter_ms": jitter(&intervals) * 1e3})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_not_judged() {
        // A frame a second for two seconds, then ten a second.
        let mut at = vec![0.0, 1.0];
        at.extend((0..50).map(|n| 2.0 + f64::from(n) / 10.0));
        let row = row("any", "0%", &at);
        assert_eq!(row["frames"], 52);
        assert!((row["interval_median_ms"].as_f64().unwrap() - 100.0).abs() < 1e-3);
        assert!(row["deviation_p99_ms"].as_f64().unwrap() < 1e-3);
        assert!((row["rate_Mbit"].as_f64().unwrap() - 160.0).abs() < 0.1);
    }
}
