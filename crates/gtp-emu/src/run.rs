//! An emulator from start to stop, for a command line.
//!
//! It blocks until it is told to stop, and tells what happens meanwhile; it prints nothing and
//! knows no signal.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gtp_alloc::{Span, Time};
use gtp_sys::Clock;

use crate::Emulator;
use crate::control::{ControlError, Handle};
use crate::spec::NetSpec;
use crate::stats::{Interval, Snapshot};

/// Which face the emulator shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// The relay of UDP and TCP.
    Relay,
    /// The router between namespaces; needs root.
    Tun,
}

/// How to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The face.
    pub face: Face,
    /// How often to tell the counters; never if `None`.
    pub stats_every: Option<Span>,
}

/// What is told while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// Everything is open; the relay's paths with the addresses that they listen on.
    Started(&'a [(String, SocketAddr)]),
    /// An interval has passed.
    Stats {
        /// Counters since the start.
        snapshot: &'a Snapshot,
        /// What happened in the interval.
        interval: &'a Interval,
    },
}

/// Runs an emulator until `stop` is set, telling its progress. Returns the last counters.
///
/// # Errors
/// If it cannot start, or its thread ends by an error.
pub fn run(
    spec: &NetSpec,
    options: RunOptions,
    stop: &AtomicBool,
    mut tell: impl FnMut(Progress<'_>),
) -> io::Result<Snapshot> {
    let handle = match options.face {
        Face::Relay => Emulator::relay(spec)?,
        Face::Tun => Emulator::router(spec)?,
    };
    tell(Progress::Started(&handle.paths));
    let clock = Clock::start();
    let mut last = Snapshot::default();
    let mut next = options.stats_every.map_or(Time::MAX, |every| clock.now() + every);
    while !stop.load(Ordering::Relaxed) && handle.is_running() {
        let rest = next.since(clock.now()).min(STOP_CHECK);
        thread::sleep(Duration::from_nanos(rest.as_nanos()));
        if clock.now() < next {
            continue;
        }
        next += options.stats_every.unwrap_or(Span::MAX);
        match told(&handle, &last, &mut tell) {
            Ok(snapshot) => last = snapshot,
            // Its error comes from `stop`.
            Err(ControlError::Stopped | ControlError::Unknown { .. }) => break,
        }
    }
    handle.stop()
}

fn told(
    handle: &Handle,
    last: &Snapshot,
    tell: &mut impl FnMut(Progress<'_>),
) -> Result<Snapshot, ControlError> {
    let snapshot = handle.stats()?;
    let mut earlier = last.clone();
    if earlier.links.is_empty() {
        earlier.links = snapshot.links.iter().map(|_| crate::stats::LinkRow::default()).collect();
    }
    let interval = snapshot.since(&earlier);
    tell(Progress::Stats { snapshot: &snapshot, interval: &interval });
    Ok(snapshot)
}

/// How long a wish to stop may go unnoticed.
const STOP_CHECK: Span = Span::from_millis(50);
