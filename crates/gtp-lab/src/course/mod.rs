//! A run of a scenario: an engine's world is built from it, run, and read off.
//!
//! Both levels give the same [`Outcome`], so that tables, figures and files do not care which one
//! ran. What should be comes from the exact solver and never from the run.

mod judge;
mod packets;
mod peers;
mod rates;
mod routers;
mod wanted;
mod ways;

pub use peers::slowest;

use gtp_alloc::Span;
use gtp_sim::packet::World;
use gtp_sim::trace::PacketTrace;

use crate::refusal::Refusal;
use crate::scenario::model::{Level, Scenario};

pub use judge::{Judged, Phase};
pub use routers::{Crossing, NOBODY, Standing};

/// What a run was like. Series have one entry for each of `times`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Ends of the bins, in seconds from the start.
    pub times: Vec<f64>,
    /// Sessions that were watched, in the scenario's order: all of a packet-level run.
    pub sessions: Vec<Course>,
    /// Links, of a packet-level run.
    pub links: Vec<LinkCourse>,
    /// Packets of each background flow that were sent, and that arrived, of a packet-level run.
    pub backgrounds: Vec<(u64, u64)>,
    /// Norm of the difference to the max-min rates, in bit/s.
    pub distance: Vec<f64>,
    /// Norm of the max-min rates, in bit/s.
    pub goal: Vec<f64>,
    /// Jain's index of what sessions had of their shares.
    pub jain: Vec<f64>,
    /// Largest load of any source and of any sink in the bin, over its capacity: of a rate-level
    /// run.
    pub loads: Option<(Vec<f64>, Vec<f64>)>,
    /// Times between changes, with what was wanted and got.
    pub phases: Vec<Phase>,
    /// Hash over everything that happened.
    pub hash: u64,
    /// Events worked off.
    pub events: u64,
    /// Data packets that arrived, and that were lost; zero of a rate-level run.
    pub packets: (u64, u64),
    /// What the reader should know about this run.
    pub notes: Vec<String>,
}

/// One session's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Its number in the scenario.
    pub number: usize,
    /// When it started and when it ended, or the run did, in seconds.
    pub life: (f64, f64),
    /// Rate at which its data arrived in each bin, in bit/s; at the rate level, at which it was
    /// sent at the bin's end.
    pub rate: Vec<f64>,
    /// What it should have had, in bit/s: levels, each from its time on; NaN where it was
    /// not there.
    pub wanted: Vec<(f64, f64)>,
    /// Data packets that arrived.
    pub arrived: u64,
    /// Data packets that were lost.
    pub lost: u64,
    /// Payload bytes that arrived, each once.
    pub payload: u64,
    /// Mean smoothed round-trip time, in seconds.
    pub rtt: f64,
    /// The sink's last grant and the source's last bound by the path, in bit/s; the latter is
    /// infinite where no bottleneck was seen.
    pub bounds: (f64, f64),
    /// How it ended.
    pub ending: String,
}

/// One link's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkCourse {
    /// Its name.
    pub name: String,
    /// Time that what waits at each bin's end takes at the link's rate, in seconds.
    pub queue: Vec<f64>,
    /// The same for the least that waits within each bin.
    pub queue_least: Vec<f64>,
    /// Packets dropped in each bin.
    pub drops: Vec<u64>,
    /// Bytes carried in each bin.
    pub carried: Vec<u64>,
    /// Packets offered.
    pub offered: u64,
    /// Packets dropped for lack of room, and lost on the wire or while it was down.
    pub dropped: (u64, u64),
    /// Part of the time that it was sending.
    pub busy: f64,
    /// Longest wait, in seconds.
    pub wait_max: f64,
}

/// Told how far a run is, from 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(f64);

/// Runs a scenario.
///
/// # Errors
/// If the scenario cannot be run, with what to change.
pub fn run(scenario: &Scenario, progress: Progress<'_>) -> Result<Outcome, Refusal> {
    match scenario.level {
        Level::Packet => packets::run(scenario, progress),
        Level::Rate => rates::run(scenario, progress),
    }
}

/// Runs a packet-level scenario and lets `look` see every step of every packet; the end of session
/// k's source has number 2k there, that of its sink 2k + 1.
///
/// # Errors
/// If the scenario cannot be run, with what to change.
pub fn run_watched<T>(
    scenario: &Scenario,
    look: impl FnOnce(&PacketTrace) -> T,
) -> Result<(Outcome, T), Refusal> {
    packets::run_watched(scenario, look)
}

/// A packet-level run with all that was watched of it.
pub struct Watched {
    /// What came of it.
    pub outcome: Outcome,
    /// Series of sessions and links.
    pub trace: gtp_sim::trace::Trace,
    /// For each session its bound by the path in bit/s, from each time on in seconds; infinite
    /// while there is none.
    pub bounds: Vec<Vec<(f64, f64)>>,
    /// For each session how often its timer had rung, from each time on; of rivals that have one.
    pub timeouts: Vec<Vec<(f64, f64)>>,
    /// By the end of each bin in seconds, how many packets of all sessions had arrived, and how
    /// many had been lost.
    pub counts: Vec<(f64, f64, f64)>,
}

/// Looks at a world at the end of each bin, and may change something.
pub type Warden<'a> = &'a mut dyn FnMut(&mut World) -> Result<(), Refusal>;

/// Runs a scenario at the packet level, with its series.
///
/// # Errors
/// If the scenario cannot be run, with what to change, or what the warden says.
pub fn watched(scenario: &Scenario, warden: Warden<'_>) -> Result<Watched, Refusal> {
    packets::watched(scenario, warden)
}

/// Round-trip time of each session's way when nothing waits on it, jitter apart.
///
/// # Errors
/// If a session has no way.
pub fn round_trips(scenario: &Scenario) -> Result<Vec<Span>, Refusal> {
    let (ways, _) = ways::find(scenario)?;
    Ok(ways.iter().map(|way| way.rtt(scenario)).collect())
}

/// What these sessions should get at one time, in bit/s, in their order.
///
/// # Errors
/// If a session has no way.
pub fn shares(scenario: &Scenario, at: Span, active: &[usize]) -> Result<Vec<f64>, Refusal> {
    let (ways, _) = ways::find(scenario)?;
    Ok(wanted::allocation(scenario, &ways, at, active))
}

/// What a session uses on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The links from source to sink.
    pub links: Vec<usize>,
    /// The links of routers that are asked for it.
    pub crossed: Vec<Crossing>,
}

/// What each session uses on its way.
///
/// # Errors
/// If a session has no way.
pub fn uses(scenario: &Scenario) -> Result<Vec<Uses>, Refusal> {
    let (ways, _) = ways::find(scenario)?;
    let all = ways.iter().enumerate().map(|(k, way)| Uses {
        links: way.forth.to_vec(),
        crossed: routers::crossings(scenario, k, way).collect(),
    });
    Ok(all.collect())
}

/// What the replay of a run by the laws of nature came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// All packets were looked at and none did the impossible: how many.
    Lawful(String),
    /// Nothing was looked at: why, and what to do.
    TooLong(String),
}

/// Runs a packet-level scenario with a trace of its packets and replays it by the laws of nature.
///
/// # Errors
/// If the scenario cannot be run, or a packet did the impossible.
pub fn verified(scenario: &Scenario) -> Result<Replayed, Refusal> {
    packets::verified(scenario)
}

/// Runs a scenario twice, side by side, and says where the runs part; `None`: nowhere.
///
/// # Errors
/// If the scenario cannot be run.
pub fn divergence(scenario: &Scenario) -> Result<Option<String>, Refusal> {
    match scenario.level {
        Level::Packet => packets::divergence(scenario),
        Level::Rate => rates::divergence(scenario),
    }
}

/// A span in seconds.
fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
