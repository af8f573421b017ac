//! The page of numbers that a server has for Prometheus.
//!
//! It asks for the page and adds up its lines. What the numbers mean is not known here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::product::pass;

/// A port of loopback that nobody uses.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The page that a server has at this port of loopback. A server drops who asks while the machine
/// has no time for either, so it is asked again.
pub(crate) fn page(port: u16) -> Result<String> {
    for _ in 1..TRIES {
        if let Ok(page) = ask(port) {
            return Ok(page);
        }
        pass(PAUSE);
    }
    ask(port)
}

/// How often a page is asked for, and how long it is waited in between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

fn ask(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("no numbers")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The sum of a server's family over all its lines that have these labels.
pub(crate) fn sum(page: &str, family: &str, labels: &[&str]) -> f64 {
    let head = format!("gtp_serve_{family}{{");
    let fits = |line: &&str| line.starts_with(&head) && labels.iter().all(|l| line.contains(l));
    let lines = page.lines().filter(fits);
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}
