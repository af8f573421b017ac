//! What a probe is to be, and the name of the service that says so.
//!
//! A plan travels as the name of a service, since the numbers must arrive and frames may not. Each
//! plan has one name, and only sound ones are read.

use std::ops::RangeInclusive;
use std::time::Duration;

use gtp_alloc::Rate;

use crate::messages::PROBE_SERVICE;

/// Bytes of a frame. The longest fits into one datagram on every path that carries GTP.
pub const FRAME: RangeInclusive<u16> = FRAME_LEAST..=FRAME_MOST;
const FRAME_LEAST: u16 = 32;
const FRAME_MOST: u16 = 1_175;

/// How long a probe counts.
pub const SPAN: RangeInclusive<Duration> =
    Duration::from_millis(SPAN_LEAST_MS)..=Duration::from_millis(SPAN_MOST_MS);
const SPAN_LEAST_MS: u64 = 100;
const SPAN_MOST_MS: u64 = 600_000;

/// The highest rate that can be asked for.
pub const RATE_MOST: Rate = Rate::from_bps(RATE_MOST_BPS);
const RATE_MOST_BPS: u64 = 400_000_000_000;

/// What each end sends, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The rate of the client's datagrams, with their headers; zero: it sends none.
    pub up: Rate,
    /// The same of the server's.
    pub down: Rate,
    /// Bytes of a frame.
    pub frame: u16,
    /// How long frames are counted.
    pub span: Duration,
}

impl Plan {
    /// Whether every number is within its bounds, and something is sent.
    pub fn is_sound(&self) -> bool {
        let rates = [self.up, self.down];
        rates.iter().all(|&rate| rate <= RATE_MOST)
            && rates.iter().any(|&rate| rate > Rate::ZERO)
            && FRAME.contains(&self.frame)
            && SPAN.contains(&self.span)
    }

    /// The name of the service, for a place at the server whose rules hold for the probe.
    pub fn service(&self, path: &[u8]) -> Vec<u8> {
        let Plan { up, down, frame, span } = self;
        let numbers = format!("{},{},{frame},{}:", up.as_bps(), down.as_bps(), span.as_millis());
        [PROBE_SERVICE, numbers.as_bytes(), path].concat()
    }

    /// Reads the name of a service, and the place that it names. `None`: it is no probe, or one
    /// that is not sound.
    pub fn read(service: &[u8]) -> Option<(Plan, &[u8])> {
        let rest = service.strip_prefix(PROBE_SERVICE)?;
        let colon = rest.iter().position(|&byte| byte == b':')?;
        let (numbers, path) = (str::from_utf8(&rest[..colon]).ok()?, &rest[colon + 1..]);
        let mut numbers = numbers.split(',').map(number);
        let mut next = || numbers.next().flatten();
        let (up, down) = (Rate::from_bps(next()?), Rate::from_bps(next()?));
        let (frame, span) = (u16::try_from(next()?).ok()?, Duration::from_millis(next()?));
        let plan = Plan { up, down, frame, span };
        (numbers.next().is_none() && plan.is_sound()).then_some((plan, path))
    }
}

/// A number in its one form: digits, no sign, no leading zero.
fn number(text: &str) -> Option<u64> {
    let one_form = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| one_form)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_sound_plan_comes_back_with_its_place(
            up in 0..=400_000_000_000_u64, down in 0..=400_000_000_000_u64,
            frame in FRAME, millis in 100..=600_000_u64, path in "[a-z:,/]{0,20}",
        ) {
            prop_assume!(up + down > 0);
            let (up, down) = (Rate::from_bps(up), Rate::from_bps(down));
            let plan = Plan { up, down, frame, span: Duration::from_millis(millis) };
            let service = plan.service(path.as_bytes());
            prop_assert_eq!(Plan::read(&service), Some((plan, path.as_bytes())));
        }

        #[test]
        fn what_is_read_is_sound_and_has_one_form(service in "probe:[0-9,:+]{0,24}") {
            if let Some((plan, path)) = Plan::read(service.as_bytes()) {
                prop_assert!(plan.is_sound());
                prop_assert_eq!(plan.service(path), service.as_bytes());
            }
        }
    }

    #[test]
    fn a_plan_outside_its_bounds_is_no_probe() {
        for service in [
            "probe:0,0,1000,1000:",
            "probe:1000000,0,31,1000:",
            "probe:1000000,0,1176,1000:",
            "probe:1000000,0,1000,99:",
            "probe:1000000,0,1000,600001:",
            "probe:400000000001,0,1000,1000:",
            "probe:1000000,0,1000:",
            "probe:1000000,0,1000,1000,1:",
            "probe:01,0,1000,1000:",
            "probe:1000000,0,1000,1000",
            "put:x",
        ] {
            assert_eq!(Plan::read(service.as_bytes()), None, "{service}");
        }
    }
}
