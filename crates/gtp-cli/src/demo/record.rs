//! What was seen while the demo ran: counters with their times, and nothing made of them yet.
//!
//! All times are seconds on the emulator's clock, and the bytes of a session are those that the
//! emulator brought to the sink on its path: the protocol's word about itself is kept apart, in
//! [`Said`]. Written beside the page as it is, so that anyone can check the analysis.

use serde::Serialize;

use super::plan::Each;

/// One look at everything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// When.
    pub t: f64,
    /// IP bytes that have left each path towards the sink.
    pub carried: Each<u64>,
    /// Packets that came to the shared link so far.
    pub offered_packets: u64,
    /// Of them, those that found its queue full.
    pub dropped_packets: u64,
    /// Integral of the bytes that waited there, in byte seconds.
    pub waited_byte_s: f64,
    /// What the protocol says of each session.
    pub said: Each<Option<Said>>,
}

/// What the protocol says of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Said {
    /// What it is granted, in bit/s.
    pub granted: f64,
    /// What keeps it from going faster.
    pub limited_by: &'static str,
}

/// When a session was asked for and when it was over, by the clock of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Asked {
    /// The request.
    pub from: f64,
    /// The end of the transfer, or of what was seen of it.
    pub to: f64,
}

/// A session's file, as it arrived.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Arrival {
    /// Content bytes.
    pub bytes: u64,
    /// Seconds from the request to the end.
    pub seconds: f64,
    /// Data packets lost of those sent, as the session counted them.
    pub loss_ratio: f64,
    /// Payload bytes that came more than once.
    pub duplicate_bytes: u64,
    /// BLAKE3 of what the transfer verified block by block.
    pub blake3: String,
    /// Whether the file on disk, read again, has the hash of the one that was served.
    pub verified: bool,
}

impl Arrival {
    /// File bytes per time, in bit/s.
    pub fn goodput(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }
}

/// The emulator's word about itself, and what else went on.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Conditions {
    /// Processors.
    pub processors: usize,
    /// Processes that wanted one, as a mean over the minute before the start.
    pub load_before: f64,
    /// The share of their time in which the processors had nothing to do while sessions ran; none
    /// where nobody counts.
    pub idle: Option<f64>,
    /// How late the emulator sent half of the packets at most, in seconds.
    pub late_p50: f64,
    /// The same for all but one in a hundred.
    pub late_p99: f64,
}

impl Conditions {
    /// What to tell people if the machine, and not the network, may have set the rates.
    pub fn warning(&self) -> Option<String> {
        let idle = self.idle.filter(|&idle| idle < IDLE_ENOUGH)?;
        Some(format!(
            "The processors were idle for only {:.0} % of the time: sessions, servers, emulator \
             and other work waited for each other, and rates below a share may be this machine's \
             doing.",
            idle * 100.0
        ))
    }
}

/// Below this share of idle time something always waits for a processor.
const IDLE_ENOUGH: f64 = 0.1;

/// The whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// Seconds from one start to the next.
    pub step: f64,
    /// Everything that was counted, in the order of time.
    pub samples: Vec<Sample>,
    /// The sessions that came one after another.
    pub asked: Each<Asked>,
    /// Their files.
    pub arrivals: Each<Arrival>,
    /// The transfer from all sources at once.
    pub gather: Asked,
    /// Its file.
    pub gather_arrival: Arrival,
    /// Content bytes that each source brought to it.
    pub gather_bytes: Each<u64>,
    /// Circumstances.
    pub conditions: Conditions,
}

impl Record {
    /// Whether every file arrived as it was served.
    pub fn verified(&self) -> bool {
        self.gather_arrival.verified && self.arrivals.iter().all(|arrival| arrival.verified)
    }
}
