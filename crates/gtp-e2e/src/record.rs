//! What was sampled off the links, as rates.

use gtp_emu::stats::Snapshot;

/// Samples of a whole laboratory run.
pub struct Record(pub Vec<(f64, Snapshot)>);

impl Record {
    /// IP bytes that had left route `route` at time `t`, interpolated.
    pub fn bytes_at(&self, route: &str, t: f64) -> f64 {
        let value = |s: &Snapshot| {
            s.paths
                .iter()
                .find(|p| p.name == route)
                .map_or(0, |p| p.up.out_bytes + p.down.out_bytes) as f64
        };
        let i = self.0.partition_point(|(at, _)| *at <= t);
        match (i.checked_sub(1).and_then(|i| self.0.get(i)), self.0.get(i)) {
            (Some((a, before)), Some((b, after))) => {
                let (x, y) = (value(before), value(after));
                x + (y - x) * (t - a) / (b - a)
            }
            (Some((_, last)), None) => value(last),
            (None, Some((_, first))) => value(first),
            (None, None) => 0.0,
        }
    }

    /// Mean rate of a route from `from` to `to`, in bit/s of IP bytes.
    pub fn rate(&self, route: &str, from: f64, to: f64) -> f64 {
        (self.bytes_at(route, to) - self.bytes_at(route, from)) * 8.0 / (to - from)
    }

    /// Seconds by which the emulator had sent a packet too late at most until `t`: so much of what
    /// is counted may belong before.
    pub fn lateness(&self, t: f64) -> f64 {
        let past = self.0.iter().take_while(|(at, _)| *at <= t);
        past.last().map_or(0.0, |(_, snapshot)| snapshot.timing_error.max_s)
    }

    /// Whether all looks at the emulator between two times, and the first after them, came within
    /// `apart` seconds of the one before: an emulator that stood still answers late, and what it
    /// then takes in at once had been sent before. A look that was late itself tells nothing.
    pub fn punctual(&self, from: f64, to: f64, apart: f64) -> bool {
        let first = self.0.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let last = self.0.partition_point(|(at, _)| *at < to);
        let looks = self.0.get(first..=last).unwrap_or_default();
        !looks.is_empty() && looks.windows(2).all(|pair| pair[1].0 - pair[0].0 <= apart)
    }

    /// When more than these bytes have left a route after `from`.
    pub fn first_data(&self, route: &str, from: f64, bytes: f64) -> Option<f64> {
        let base = self.bytes_at(route, from);
        self.0.iter().map(|(t, _)| *t).find(|&t| t > from && self.bytes_at(route, t) > base + bytes)
    }

    /// When all but these last bytes had left a route; `None` if it never carried more than them.
    pub fn last_data(&self, route: &str, bytes: f64) -> Option<f64> {
        let goal = self.bytes_at(route, f64::INFINITY) - bytes;
        self.0.iter().map(|(t, _)| *t).find(|&t| goal > 0.0 && self.bytes_at(route, t) >= goal)
    }

    /// Seconds after `from` from which on every route is within `band` of its share, in windows of
    /// `window` seconds, until `to`.
    pub fn settled(
        &self,
        shares: &[(String, f64)],
        from: f64,
        to: f64,
        band: f64,
        window: f64,
    ) -> f64 {
        let mut last = from;
        let mut t = from;
        while t + window <= to {
            if self.is_off(shares, t, window, band) {
                last = t + window;
            }
            t += window / 4.0;
        }
        last - from
    }

    /// Seconds after `from` from which on every route is within `band` of its share for `hold`
    /// seconds, in windows of `window`; not a number if that never was before `to`.
    pub fn reached(
        &self,
        shares: &[(String, f64)],
        (from, to): (f64, f64),
        band: f64,
        window: f64,
        hold: f64,
    ) -> f64 {
        let mut since = from;
        let mut t = from;
        while t + window <= to {
            if self.is_off(shares, t, window, band) {
                since = t + window / 4.0;
            } else if t + window - since >= hold {
                return since + window - from;
            }
            t += window / 4.0;
        }
        f64::NAN
    }

    /// The part of the windows between two times in which some route is outside its band.
    pub fn outside(
        &self,
        shares: &[(String, f64)],
        (from, to): (f64, f64),
        band: f64,
        window: f64,
    ) -> f64 {
        let windows = ((to - from) / window).floor().max(1.0) as usize;
        let off = |i: &usize| self.is_off(shares, from + *i as f64 * window, window, band);
        (0..windows).filter(off).count() as f64 / windows as f64
    }

    fn is_off(&self, shares: &[(String, f64)], t: f64, window: f64, band: f64) -> bool {
        shares
            .iter()
            .any(|(route, share)| (self.rate(route, t, t + window) - share).abs() > band * share)
    }

    /// Mean rate at which a link was offered bytes of IP between two times, in bit/s.
    pub fn offered(&self, link: &str, from: f64, to: f64) -> f64 {
        let value = |t: f64| {
            let i = self.0.partition_point(|(at, _)| *at <= t).saturating_sub(1);
            let row = self.0.get(i).and_then(|(_, s)| s.links.iter().find(|l| l.name == link));
            row.map_or(0, |row| row.offered_bytes) as f64
        };
        (value(to) - value(from)) * 8.0 / (to - from)
    }

    /// Packets offered to a link and dropped by its queue between two times.
    pub fn drops(&self, link: &str, from: f64, to: f64) -> (u64, u64) {
        let value = |t: f64| {
            let i = self.0.partition_point(|(at, _)| *at <= t).saturating_sub(1);
            let link = self.0.get(i).and_then(|(_, s)| s.links.iter().find(|l| l.name == link));
            link.map_or((0, 0), |l| (l.offered_packets, l.dropped_queue))
        };
        let ((a, b), (c, d)) = (value(from), value(to));
        (c - a, d - b)
    }
}

/// The name of the route from source `i` to the sink.
pub fn route(i: usize) -> String {
    format!("src{i}-sink")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(at: &[f64]) -> Record {
        Record(at.iter().map(|t| (*t, Snapshot::default())).collect())
    }

    #[test]
    fn an_emulator_that_was_not_looked_at_for_long_was_not_punctual() {
        let record = looks(&[0.0, 0.01, 0.02, 0.06, 0.07, 0.08]);
        assert!(record.punctual(0.0, 0.02, 0.02) && record.punctual(0.06, 0.08, 0.02));
        assert!(!record.punctual(0.01, 0.03, 0.02) && !record.punctual(0.05, 0.07, 0.02));
        assert!(!record.punctual(0.07, 0.2, 0.02), "nobody looked");
    }
}
