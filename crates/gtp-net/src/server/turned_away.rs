//! Decides which refused connections are reported, so that a flood does not fill a log.
//!
//! Each neighbourhood is reported once a minute, with the number of refusals in between. The table
//! has a fixed size; all neighbourhoods beyond it count as one. Every refusal is counted: one that
//! is not reported now is part of the next report. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;

use gtp_alloc::{Span, Time};

use super::occupancy::Neighbourhood;

/// When refusals of each neighbourhood were last reported.
#[derive(Default)]
pub(super) struct TurnedAway {
    told: HashMap<Neighbourhood, Told>,
    /// Unreported refusals of forgotten neighbourhoods.
    forgotten: u64,
}

struct Told {
    at: Option<Time>,
    /// Refusals since then.
    more: u64,
}

/// Time between two reports on the same neighbourhood.
const TELL_SPAN: Span = Span::from_secs(60);

/// Neighbourhoods that are told apart: 64 KiB. Beyond them all others count as one.
const NEIGHBOURHOODS: usize = 1_024;

impl TurnedAway {
    /// Notes a refusal. If it is to be reported now, returns the number of unreported ones before.
    pub fn note(&mut self, from: IpAddr, now: Time) -> Option<u64> {
        let mut whose = Neighbourhood::of(from);
        if self.told.len() >= NEIGHBOURHOODS && !self.told.contains_key(&whose) {
            self.forget(now);
            if self.told.len() >= NEIGHBOURHOODS {
                whose = Neighbourhood::Others;
            }
        }
        let told = self.told.entry(whose).or_insert(Told { at: None, more: 0 });
        if told.at.is_some_and(|at| now.since(at) < TELL_SPAN) {
            told.more += 1;
            return None;
        }
        told.at = Some(now);
        Some(std::mem::take(&mut told.more) + std::mem::take(&mut self.forgotten))
    }

    /// Makes room in the table; unreported refusals count with the next report.
    fn forget(&mut self, now: Time) {
        let forgotten = &mut self.forgotten;
        self.told.retain(|_, told| {
            let recent = told.at.is_some_and(|at| now.since(at) < TELL_SPAN);
            if !recent {
                *forgotten += told.more;
            }
            recent
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_flood_is_told_once_a_minute_for_each_neighbourhood_with_its_number() {
        let mut turned_away = TurnedAway::default();
        let (start, minute) = (Time::ZERO, Span::from_secs(60));
        let from = |n: u64| IpAddr::V6(Ipv6Addr::from(0x2001_0db8_u128 << 96 | u128::from(n)));
        assert_eq!(turned_away.note(from(0), start), Some(0));
        for n in 1..100 {
            assert_eq!(turned_away.note(from(n), start), None);
        }
        assert_eq!(turned_away.note("10.0.0.1".parse().unwrap(), start), Some(0));
        assert_eq!(turned_away.note(from(100), start + minute), Some(99));
        assert_eq!(turned_away.note(from(101), start + minute), None);
        let prefix = |n: u32| IpAddr::V6(Ipv6Addr::from(u128::from(n) << 64));
        let told = (1..100_000).filter(|&n| turned_away.note(prefix(n), start + minute).is_some());
        assert!(told.count() <= NEIGHBOURHOODS);
        assert!(turned_away.told.len() <= NEIGHBOURHOODS + 1);
    }

    #[test]
    fn nobody_who_was_turned_away_is_lost_when_neighbourhoods_are_forgotten() {
        let mut turned_away = TurnedAway::default();
        let (start, minute) = (Time::ZERO, Span::from_secs(60));
        let prefix = |n: u32| IpAddr::V6(Ipv6Addr::from(u128::from(n) << 64));
        for n in 0..1_024 {
            assert_eq!(turned_away.note(prefix(n), start), Some(0));
            assert_eq!(turned_away.note(prefix(n), start), None);
        }
        // The prefix of zeros, where the loopback address is, is not one of all others.
        assert_eq!(turned_away.note(prefix(2_000), start), Some(0));
        assert_eq!(turned_away.note(prefix(2_001), start), None);
        assert_eq!(turned_away.note(prefix(2_001), start + minute), Some(1_024 + 1));
        assert_eq!(turned_away.note(prefix(2_002), start + minute), Some(0));
    }
}
