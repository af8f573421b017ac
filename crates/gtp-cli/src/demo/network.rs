//! The network between the sources and the sink, emulated in a thread of this process.
//!
//! Each path has half its round-trip time each way; on the way to the sink all of them pass one
//! shared link, the sink's access link. What it is told comes in a network file like any other.

use std::fmt::Write as _;
use std::net::SocketAddr;

use gtp::{Failure, FailureKind};
use gtp_emu::{Emulator, Handle, NetSpec};

use super::plan::{ACCESS, Each, NAMES, QUEUE, RTT_MS, SESSIONS};
use super::record::Sample;

/// The emulated network.
#[derive(Debug)]
pub struct Paths {
    emulator: Handle,
    /// Where the sink finds each source.
    pub entrances: Each<SocketAddr>,
}

impl Paths {
    /// Starts the paths to these sources.
    ///
    /// # Errors
    /// When the emulator cannot start.
    pub fn start(sources: &Each<SocketAddr>) -> Result<Paths, Failure> {
        let spec = NetSpec::parse(&network_file(sources)).map_err(other)?;
        let emulator = Emulator::relay(&spec).map_err(other)?;
        let mut entrances = *sources;
        for (name, entrance) in NAMES.iter().zip(&mut entrances) {
            *entrance = emulator.listen(name).ok_or_else(|| other("a path is missing"))?;
        }
        Ok(Paths { emulator, entrances })
    }

    /// The counters now; what the protocol says is not in them.
    ///
    /// # Errors
    /// When the emulator has stopped.
    pub fn look(&self) -> Result<Sample, Failure> {
        let snapshot = self.emulator.stats().map_err(other)?;
        let access = snapshot.links.first();
        Ok(Sample {
            t: snapshot.t,
            carried: std::array::from_fn(|k| {
                snapshot.paths.get(k).map_or(0, |path| path.down.out_bytes)
            }),
            offered_packets: access.map_or(0, |link| link.offered_packets),
            dropped_packets: access.map_or(0, |link| link.dropped_queue),
            waited_byte_s: access.map_or(0.0, |link| link.queue_byte_seconds),
            said: [None; SESSIONS],
        })
    }

    /// How late the emulator sent, in seconds: median and 99th percentile.
    ///
    /// # Errors
    /// When the emulator has stopped.
    pub fn lateness(&self) -> Result<(f64, f64), Failure> {
        let error = self.emulator.stats().map_err(other)?.timing_error;
        Ok((error.p50_s, error.p99_s))
    }
}

/// The network as a file; the shared link comes first.
fn network_file(sources: &Each<SocketAddr>) -> String {
    let mut text = format!(
        "[[link]]\nname = \"access\"\nrate = \"{}bit\"\nqueue = \"{}ms\"\n",
        ACCESS.as_bps(),
        QUEUE.as_millis()
    );
    for (k, name) in NAMES.iter().enumerate() {
        let one_way_us = RTT_MS[k] * 1_000 / 2;
        let target = sources[k];
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[link]]\nname = \"to-{name}\"\ndelay = \"{one_way_us}us\"\n\
             [[link]]\nname = \"from-{name}\"\ndelay = \"{one_way_us}us\"\n\
             [[path]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n\
             up = [\"to-{name}\"]\ndown = [\"from-{name}\", \"access\"]\n"
        );
    }
    text
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, format!("the emulated network: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::{Rate, Span};

    #[test]
    fn all_paths_share_the_access_link_towards_the_sink_only() {
        let nowhere: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        let spec = NetSpec::parse(&network_file(&[nowhere; SESSIONS])).expect("a good file");
        let access = spec.link("access").expect("the shared link");
        assert_eq!((access, spec.links[access].spec.rate), (0, Rate::from_mbps(700)));
        for (k, path) in spec.paths.iter().enumerate() {
            assert!(path.down.contains(&access) && !path.up.contains(&access));
            let delays = path.up.iter().chain(&path.down).map(|&l| spec.links[l].spec.delay);
            let rtt = delays.fold(Span::ZERO, |sum, delay| sum + delay);
            assert_eq!(rtt, Span::from_millis(RTT_MS[k]));
        }
    }
}
