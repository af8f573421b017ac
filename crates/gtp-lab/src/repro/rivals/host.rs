//! A receiving host whose processor is shared by what arrives and what is read.
//!
//! Each packet that arrives takes work at once, before anything is read (an interrupt); what is
//! left of the processor reads. So beyond what it can take the host reads the less the more
//! comes, which Mogul and Ramakrishnan (1997) call receive livelock. A packet that finds the
//! socket's buffer full is lost after its interrupt was paid. It knows no protocol.

use gtp_alloc::{Bytes, Rate, Time};
use gtp_peers::{Admission, Packet, Router};
use serde::Deserialize;

/// A host as an entry describes it.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The most that it can take without loss.
    mbps: f64,
    /// Work on a packet's arrival, as a multiple of the work of reading it.
    #[serde(default)]
    arrival: f64,
    /// What may wait to be read, as long as nothing else comes.
    buffer_kb: f64,
}

impl Host {
    /// Whether its fields can be.
    pub fn is_sensible(&self) -> bool {
        let above = |x: f64| x > 0.0 && x.is_finite();
        above(self.mbps) && above(self.buffer_kb) && self.arrival >= 0.0
    }

    /// Its processor, with nothing to do.
    pub fn processor(self) -> Processor {
        let reading = 8.0 / (self.mbps * 1e6 * (1.0 + self.arrival));
        let arriving = self.arrival * reading;
        Processor {
            reading,
            arriving,
            room: self.buffer_kb * 1e3 * reading,
            at: Time::ZERO,
            work: 0.0,
        }
    }
}

/// The processor: what it still has to do, in seconds.
pub struct Processor {
    /// Seconds for each byte.
    reading: f64,
    arriving: f64,
    room: f64,
    at: Time,
    work: f64,
}

impl Router for Processor {
    fn set_capacity(&mut self, _: Time, _: Rate) {}

    fn handle_arrival(&mut self, now: Time, _: Bytes, packet: &mut Packet) -> Admission {
        let passed = now.since(self.at).as_secs_f64();
        self.at = now;
        let size = packet.size.0 as f64;
        self.work = (self.work - passed).max(0.0) + self.arriving * size;
        if self.work + self.reading * size > self.room {
            return Admission::Drop;
        }
        self.work += self.reading * size;
        Admission::Pass
    }

    fn handle_departure(&mut self, _: Time, _: Bytes, _: &mut Packet) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_alloc::Span;
    use gtp_peers::{Body, Note};

    /// What is read of `mbps` in a second, in Mbit/s, by a host that can take 100.
    fn read(mbps: f64, arrival: f64) -> f64 {
        let mut processor = Host { mbps: 100.0, arrival, buffer_kb: 64.0 }.processor();
        let size = Bytes(1_000);
        let count = (mbps * 125.0) as u64;
        let passes = (0..count).filter(|n| {
            let now = Time::ZERO + Span::from_secs_f64(*n as f64 / count as f64);
            let mut packet = Packet { size, body: Body::Empty, note: Note::None };
            processor.handle_arrival(now, size, &mut packet) == Admission::Pass
        });
        passes.count() as f64 / 125.0
    }

    #[test]
    fn the_more_comes_the_less_is_read_if_arriving_is_work() {
        for arrival in [0.0, 2.0] {
            assert!((read(99.0, arrival) - 99.0).abs() < 0.1);
        }
        assert!((read(120.0, 0.0) - 100.0).abs() < 1.5, "{}", read(120.0, 0.0));
        // 3 * 100 - 2 * 120.
        assert!((read(120.0, 2.0) - 60.0).abs() < 1.5, "{}", read(120.0, 2.0));
    }
}
