//! LambdaStream's Figure 3 through real sockets: the ratio of gaps below and above what is free.
//!
//! A process sends datagrams of 1,500 bytes at a constant rate, in bursts as the product's do, each
//! with its number and the time at which its burst left. Another reads them and gives them to the
//! law's own judge, which says the mean ratio of receiving over sending gaps. The link carries 190
//! Mbit/s, a fifth of the paper's, and its queue holds more than a run can put into it. No session
//! of the product is involved: the law that it runs is asked about datagrams at rates that the law
//! itself would not keep.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_alloc::{Bytes, Rate, Time};
use gtp_laws::lambdastream::{Arrived, Judge};
use serde_json::{Value, json};
use socket2::SockRef;

use crate::cases::Tools;
use crate::lab::{Branch, Lab, Shape, sink_address};
use crate::product::pass;
use crate::running::Running;

/// What the link carries, and what it is told to be, in bit/s.
const LINK: f64 = 190e6;
const TOLD: f64 = 200e6;
/// A fifth of the entry's rates, in bit/s.
const RATES: [f64; 11] =
    [40e6, 80e6, 120e6, 160e6, 180e6, 184e6, 200e6, 210e6, 220e6, 240e6, 300e6];
/// Seconds of a run: at the highest rate the queue takes in less than it holds.
const LASTS: f64 = 0.5;
/// Bytes of a datagram, without and with IP and UDP.
const PAYLOAD: usize = 1_472;
const PACKET: usize = 1_500;
const BITS: f64 = PACKET as f64 * 8.0;
/// Datagrams leave in bursts so far apart, as the product's do.
const BURST: Duration = Duration::from_millis(1);
const PORT: u16 = 5_901;
/// So long the reader waits for the next datagram, and for the first.
const LAST: Duration = Duration::from_secs(2);

/// A row for each rate.
///
/// # Errors
/// If the network or a process cannot be started, or nothing came.
pub(crate) fn run(tools: &Tools) -> Result<Vec<Value>> {
    let access = (format!("{LINK:.0}bit"), "350ms".to_owned());
    let shape = Shape { access, middle: None, branches: vec![Branch::rtt(110.0)] };
    RATES.iter().map(|&rate| at(tools, &shape, rate)).collect()
}

fn at(tools: &Tools, shape: &Shape, rate: f64) -> Result<Value> {
    let lab = Lab::open(shape, &tools.gtp)?;
    let mut reader = lab.command("sink", &tools.own);
    reader.args(["gaps-in", &rate.to_string()]).stdout(Stdio::piped());
    let mut reader = Running::start("the reader", &mut reader)?;
    let mut told = BufReader::new(reader.child.stdout.take().context("no output")?);
    told.read_line(&mut String::new())?; // It listens.
    let mut sender = lab.command("src0", &tools.own);
    sender.args(["gaps-out", &rate.to_string()]).stderr(Stdio::piped());
    Running::start("the sender", &mut sender)?.finish()?;
    let mut said = String::new();
    told.read_to_string(&mut said)?;
    reader.finish()?;
    let mut row: Value = serde_json::from_str(&said).context("the reader said nothing")?;
    row["case"] = "lambda-3".into();
    row["asked_Mbit"] = (rate / 1e6).into();
    lab.close()?;
    Ok(row)
}

/// Sends at this rate for as long as a run takes.
///
/// # Errors
/// If a socket fails.
pub fn send(rate: f64) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect((sink_address().as_str(), PORT))?;
    let (mut datagram, began, mut number) = ([0; PAYLOAD], Instant::now(), 0_u64);
    while number < (LASTS * rate / BITS) as u64 {
        let now = began.elapsed();
        // All of a burst leave at one time, as far as the law is told.
        let due = (now.as_secs_f64() * rate / BITS) as u64;
        while number < due {
            datagram[..8].copy_from_slice(&number.to_le_bytes());
            datagram[8..16].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
            socket.send(&datagram)?;
            number += 1;
        }
        pass((now + BURST).saturating_sub(began.elapsed()));
    }
    Ok(())
}

/// Reads until nothing more comes, and prints what the law makes of it, told that the sender
/// began at `rate`.
///
/// # Errors
/// If a socket fails, or nothing came.
pub fn receive(rate: f64) -> Result<()> {
    let socket = UdpSocket::bind((sink_address().as_str(), PORT))?;
    socket.set_read_timeout(Some(LAST))?;
    SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    gtp_lab::say!("listening");
    let (mut datagram, mut came, began) = ([0; PAYLOAD], Vec::new(), Instant::now());
    while let Ok(PAYLOAD) = socket.recv(&mut datagram) {
        let word = |at: usize| datagram[at..at + 8].try_into().map(u64::from_le_bytes);
        came.push((began.elapsed().as_nanos() as u64, word(0)?, word(8)?));
    }
    ensure!(!came.is_empty(), "nothing came");
    gtp_lab::say!("{}", judged(rate, &came));
    Ok(())
}

/// What the law makes of datagrams: when each came, its number, and when it left, in nanoseconds.
fn judged(rate: f64, came: &[(u64, u64, u64)]) -> Value {
    let (told, first) = (Rate::from_f64(TOLD), Rate::from_f64(rate));
    let mut judge = Judge::new(told, first, Bytes(PACKET as u64)).of_bursts();
    let (mut next, mut lost, mut burst): (u64, u64, Option<(u64, u64)>) = (0, 0, None);
    for &(at, ordinal, sent) in came {
        lost += ordinal.saturating_sub(next);
        next = ordinal + 1;
        // The first of each burst counts: those that left at one time have no gaps.
        if let Some((time, count)) = &mut burst
            && *time == sent
        {
            *count += 1;
            continue;
        }
        let count = burst.replace((sent, 1)).map_or(1, |(_, count)| count);
        let (rate, sent) = (judge.number(), Time::from_nanos(sent));
        let packet = Arrived { ordinal, sent, rate, group: 0, came: count, lost: 0 };
        judge.note(Time::from_nanos(at), &packet);
    }
    // One epoch of all: the rate stays as it is, whatever the law would ask for.
    judge.end_epoch(Time::from_nanos(came.last().map_or(0, |last| last.0)));
    let sent = came.last().map_or(0.0, |last| last.2 as f64 / 1e9);
    json!({"ratio": judge.ratio(), "sent_Mbit": next as f64 * BITS / 1e6 / sent, "lost": lost})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_gaps() {
        // Bursts of ten leave 1 ms apart; packets come 110 us apart, and one is lost.
        let packet = |n: u64| (n * 110_000, n, n / 10 * 1_000_000);
        let came: Vec<_> = (0..500).filter(|n| *n != 77).map(packet).collect();
        let found = judged(120e6, &came);
        assert!((found["ratio"].as_f64().unwrap() - 1.1).abs() < 0.001, "{found}");
        assert_eq!(found["lost"], 1);
    }
}
