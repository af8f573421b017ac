//! A token-bucket policer: it lets packets pass at a rate with bursts, and drops the others.
//!
//! Tokens are bits. They come in at the policer's rate and fill a bucket of a fixed size; a packet
//! passes if the bucket holds as many tokens as the packet has bits, and takes them out. Nothing
//! ever waits, so a sender sees no delay before a loss. This is the single-rate meter of RFC 2697
//! with an excess burst size of zero: green packets pass, red ones are dropped. The arithmetic is
//! exact: a token is counted in 10⁻⁹ parts, so that no rate and no time rounds.

use gtp_alloc::{Bytes, Time};

use crate::spec::Policer;

/// The bucket of one policer; it begins full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    policer: Policer,
    /// Billionths of a bit in the bucket at `since`.
    level: u128,
    since: Time,
}

impl Tokens {
    pub fn new(policer: Policer) -> Tokens {
        Tokens { policer, level: parts(policer.bucket), since: Time::ZERO }
    }

    /// Whether a packet of `size` passes at `now`; if so, its tokens are gone.
    pub fn pass(&mut self, now: Time, size: Bytes) -> bool {
        // A rate in bits per second times nanoseconds gives billionths of a bit.
        let span = u128::from(now.since(self.since).as_nanos());
        let came = u128::from(self.policer.rate.as_bps()) * span;
        self.level = self.level.saturating_add(came).min(parts(self.policer.bucket));
        self.since = self.since.max(now);
        match self.level.checked_sub(parts(size)) {
            Some(rest) => {
                self.level = rest;
                true
            }
            None => false,
        }
    }
}

/// The tokens of so many bytes, in billionths of a bit.
fn parts(bytes: Bytes) -> u128 {
    u128::from(bytes.0) * 8 * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use gtp_alloc::{Rate, Span};

    use super::*;
    use crate::{Link, LinkSpec, Reason, Verdict};

    fn policed(mbps: u64, bucket: u64) -> LinkSpec {
        let policer = Policer { rate: Rate::from_mbps(mbps), bucket: Bytes(bucket) };
        LinkSpec { policer: Some(policer), ..LinkSpec::default() }
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn a_full_bucket_passes_its_size_at_once_and_then_a_packet_for_each_packet_time() {
        // 8 Mbit/s are a byte in a microsecond.
        let mut link = Link::new(policed(8, 10_000), 1);
        let passes = |verdict| matches!(verdict, Verdict::Deliver { .. });
        let burst = (0..20).filter(|_| passes(link.enqueue(at(0), Bytes(1_000)))).count();
        assert_eq!(burst, 10);
        assert_eq!(link.enqueue(at(999), Bytes(1_000)), Verdict::Drop(Reason::Policer));
        assert!(passes(link.enqueue(at(1_000), Bytes(1_000))));
        assert_eq!(link.enqueue(at(1_999), Bytes(1_000)), Verdict::Drop(Reason::Policer));
        assert_eq!((link.stats().carried.packets, link.stats().drops.policer.packets), (11, 12));
    }

    #[test]
    fn a_long_rest_fills_the_bucket_and_no_further() {
        let policer = Policer { rate: Rate::from_bps(u64::MAX - 1), bucket: Bytes(3_000) };
        let mut tokens = Tokens::new(policer);
        assert!(tokens.pass(Time::from_nanos(u64::MAX - 1), Bytes(3_000)));
        assert!(!tokens.pass(Time::from_nanos(u64::MAX - 1), Bytes(1)));
        let mut slow = Tokens::new(Policer { rate: Rate::from_bps(1), bucket: Bytes(3_000) });
        assert!(slow.pass(at(0), Bytes(3_000)));
        assert!(!slow.pass(Time::from_nanos(7_999_999_999), Bytes(1)));
        assert!(slow.pass(Time::from_nanos(8_000_000_000), Bytes(1)));
    }

    #[test]
    fn what_a_policer_drops_never_waits_and_takes_no_tokens() {
        let mut link = Link::new(policed(8, 1_500), 1);
        let first = link.enqueue(at(0), Bytes(1_500));
        let Verdict::Deliver { transit, .. } = first else { panic!("{first:?}") };
        assert_eq!(transit.at, at(0));
        for micros in 0..500 {
            let dropped = link.enqueue(at(micros), Bytes(1_500));
            assert_eq!(dropped, Verdict::Drop(Reason::Policer));
            assert_eq!(link.queued(at(micros)), Bytes::ZERO);
        }
        // A small one passes as soon as there is enough for it.
        assert!(matches!(link.enqueue(at(500), Bytes(500)), Verdict::Deliver { .. }));
    }

    #[test]
    fn over_any_time_no_more_passes_than_the_rate_and_one_bucket() {
        let seed = 7;
        let mut rng = crate::Rng::new(seed);
        let mut link = Link::new(policed(100, 12_500), 1);
        let (mut now, mut passed) = (Time::ZERO, alloc::vec::Vec::new());
        for _ in 0..20_000 {
            now += Span::from_nanos(rng.below(100_000));
            let size = Bytes(64 + rng.below(1_437));
            if let Verdict::Deliver { .. } = link.enqueue(now, size) {
                passed.push((now, size));
            }
        }
        for first in (0..passed.len()).step_by(37) {
            let mut sum = Bytes::ZERO;
            for &(at, size) in &passed[first..] {
                sum += size;
                let span = at.since(passed[first].0);
                let most = Rate::from_mbps(100).bytes_in(span) + Bytes(12_500 + 1);
                assert!(sum <= most, "{sum:?} in {span:?}, seed {seed}");
            }
        }
        let used = passed.iter().fold(Bytes::ZERO, |sum, (_, size)| sum + *size);
        let rate = Rate::from_mbps(100).bytes_in(now.since(Time::ZERO));
        assert!(used.0 * 100 > rate.0 * 97, "{used:?} of {rate:?}, seed {seed}");
    }

    #[test]
    fn a_full_queue_behind_a_policer_drops_for_itself() {
        let spec = LinkSpec { rate: Rate::from_mbps(8), queue: Bytes(1_000), ..policed(8, 3_000) };
        let mut link = Link::new(spec, 1);
        let verdicts: alloc::vec::Vec<_> =
            (0..4).map(|_| link.enqueue(at(0), Bytes(1_000))).collect();
        assert!(matches!(verdicts[1], Verdict::Deliver { .. }));
        assert_eq!(verdicts[2..], [Verdict::Drop(Reason::Queue), Verdict::Drop(Reason::Policer)]);
    }
}
