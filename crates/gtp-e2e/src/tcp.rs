//! Kernel TCP over the same links, by iperf3.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::{Lab, sink_address};
use crate::running::Running;

/// Starts iperf3 servers on the sink, one per source.
///
/// # Errors
/// If iperf3 is missing.
pub fn listen(lab: &mut Lab, sources: usize) -> Result<()> {
    for i in 0..sources {
        let port = (5201 + i).to_string();
        lab.start("sink", "iperf3", &["-s", "-p", &port]).context("apt-get install iperf3")?;
    }
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// Sends UDP datagrams of 1,400 bytes from source `i` at a constant rate of so many Mbit/s.
///
/// # Errors
/// If it cannot start.
pub(crate) fn constant(lab: &Lab, i: usize, mbit: u32, seconds: f64) -> Result<Running> {
    let port = (5201 + i).to_string();
    let mut command = lab.command(&format!("src{i}"), std::path::Path::new("iperf3"));
    command.args(["-c", &sink_address(), "-p", &port, "-u", "-l", "1400"]);
    command.args(["-b", &format!("{mbit}M"), "-t", &format!("{seconds:.0}")]);
    Running::start("iperf3", command.stdout(Stdio::null()).stderr(Stdio::piped()))
}

/// Runs one connection from source `i` for `seconds` under `law`; returns a handle to wait for.
///
/// # Errors
/// If it cannot start.
pub(crate) fn send(lab: &Lab, i: usize, law: &str, seconds: f64) -> Result<Running> {
    let port = (5201 + i).to_string();
    let mut command = lab.command(&format!("src{i}"), std::path::Path::new("iperf3"));
    command.args(["-c", &sink_address(), "-p", &port, "-C", law]);
    command.args(["-t", &format!("{seconds:.0}")]);
    Running::start("iperf3", command.stdout(Stdio::null()).stderr(Stdio::piped()))
}

/// Runs so many connections from source `i` for `seconds`, each with windows of 32 KiB.
///
/// # Errors
/// If it cannot start.
pub(crate) fn send_narrow(lab: &Lab, i: usize, parallel: usize, seconds: f64) -> Result<Running> {
    send_within(lab, i, "16K", parallel, seconds)
}

/// The same with so much buffer at either end, which the kernel doubles.
///
/// # Errors
/// If it cannot start.
pub(crate) fn send_within(
    lab: &Lab,
    i: usize,
    buffer: &str,
    parallel: usize,
    seconds: f64,
) -> Result<Running> {
    let port = (5201 + i).to_string();
    let mut command = lab.command(&format!("src{i}"), std::path::Path::new("iperf3"));
    command.args(["-c", &sink_address(), "-p", &port, "-w", buffer]);
    command.args(["-P", &parallel.to_string(), "-t", &format!("{seconds:.0}")]);
    Running::start("iperf3", command.stdout(Stdio::null()).stderr(Stdio::piped()))
}
