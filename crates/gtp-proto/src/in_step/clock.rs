//! The peer's clock, as this end sees it.
//!
//! Both ends say what their clocks show, and what the other's showed when it was last heard (NTP's
//! four times, RFC 5905, section 8). The exchange with the shortest round trip among the last ones
//! is believed, because nothing waited in a queue then. What remains is half of the difference
//! between the two ways, which nobody can see from the two ends.

use gtp_alloc::{Span, Time};

/// Exchanges that are remembered: 16 s of four in a second, in which two clocks that differ by
/// 50 millionths move 0.8 ms apart.
const REMEMBERED: usize = 64;

/// A round trip beyond this is none: the peer echoes what was never said, or slept. Half of it is
/// how far a peer can put its clock off, and so how long it can hold a group's begin up.
const ROUND_TRIP_MOST: Span = Span::from_secs(2);

/// One exchange.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// How far the peer's clock is before this end's, in nanoseconds.
    ahead_ns: i64,
    round_trip: Span,
}

/// How the peer's clock stands to this end's.
#[derive(Clone, Copy, Debug)]
pub struct PeerClock {
    exchanges: [Option<Exchange>; REMEMBERED],
    count: u64,
}

impl Default for PeerClock {
    fn default() -> PeerClock {
        PeerClock::new()
    }
}

impl PeerClock {
    /// Nothing is known.
    pub fn new() -> PeerClock {
        PeerClock { exchanges: [None; REMEMBERED], count: 0 }
    }

    /// The peer said at `said` of its clock that at `heard` of it it had heard what this end said
    /// at `asked` of this end's clock; that was heard here at `now`. What cannot be is passed over.
    pub fn handle_echo(&mut self, now: Time, asked: u64, heard: u64, said: u64) {
        let (Some(away), Some(held)) = (now.as_nanos().checked_sub(asked), said.checked_sub(heard))
        else {
            return;
        };
        let Some(round_trip) = away.checked_sub(held).map(Span::from_nanos) else { return };
        let there = i128::from(heard) - i128::from(asked);
        let back = i128::from(said) - i128::from(now.as_nanos());
        let Ok(ahead_ns) = i64::try_from((there + back) / 2) else { return };
        if round_trip <= ROUND_TRIP_MOST {
            let place = (self.count % REMEMBERED as u64) as usize;
            self.exchanges[place] = Some(Exchange { ahead_ns, round_trip });
            self.count += 1;
        }
    }

    /// Exchanges so far.
    pub fn exchanges(&self) -> u64 {
        self.count
    }

    /// The shortest round trip among the last exchanges; half of it bounds the error.
    pub fn round_trip(&self) -> Option<Span> {
        self.best().map(|best| best.round_trip)
    }

    /// What this end's clock shows when the peer's shows this; `None` before anything is known.
    pub fn own(&self, peer_ns: u64) -> Option<Time> {
        let own = i128::from(peer_ns) - i128::from(self.best()?.ahead_ns);
        Some(Time::from_nanos(clamped(own)))
    }

    /// What the peer's clock shows when this end's shows this; `None` before anything is known.
    pub fn peer(&self, own: Time) -> Option<u64> {
        Some(clamped(i128::from(own.as_nanos()) + i128::from(self.best()?.ahead_ns)))
    }

    fn best(&self) -> Option<Exchange> {
        self.exchanges.iter().flatten().min_by_key(|exchange| exchange.round_trip).copied()
    }
}

fn clamped(nanos: i128) -> u64 {
    nanos.clamp(0, i128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exchange with a peer whose clock is `ahead` before this end's, over these two ways.
    fn exchange(clock: &mut PeerClock, asked: u64, ahead: u64, there: u64, back: u64) {
        let heard = asked + there + ahead;
        let said = heard + 7;
        clock.handle_echo(Time::from_nanos(said - ahead + back), asked, heard, said);
    }

    #[test]
    fn the_exchange_that_waited_least_is_believed() {
        let mut clock = PeerClock::new();
        assert_eq!(clock.own(5), None);
        exchange(&mut clock, 1_000, 1_000_000, 500, 9_000);
        exchange(&mut clock, 2_000, 1_000_000, 500, 500);
        exchange(&mut clock, 3_000, 1_000_000, 4_000, 500);
        assert_eq!(clock.round_trip(), Some(Span::from_nanos(1_000)));
        assert_eq!(clock.own(1_002_000), Some(Time::from_nanos(2_000)));
        assert_eq!(clock.peer(Time::from_nanos(2_000)), Some(1_002_000));
    }

    #[test]
    fn ways_that_differ_move_the_clock_by_half_of_their_difference() {
        let mut clock = PeerClock::new();
        exchange(&mut clock, 1_000, 0, 100, 300);
        let own = clock.own(10_000).expect("known").as_nanos();
        assert_eq!(10_000_u64.abs_diff(own), 100);
    }

    #[test]
    fn an_old_exchange_is_forgotten() {
        let mut clock = PeerClock::new();
        exchange(&mut clock, 1_000, 50, 1, 1);
        for asked in 0..REMEMBERED as u64 {
            exchange(&mut clock, 2_000 + asked, 90, 10, 10);
        }
        assert_eq!(clock.peer(Time::ZERO), Some(90));
    }

    #[test]
    fn what_cannot_be_is_passed_over() {
        let mut clock = PeerClock::new();
        let now = Time::from_nanos(1_000);
        for (asked, heard, said) in
            [(2_000, 5, 6), (0, 9, 3), (900, 0, 500), (u64::MAX, 0, 0), (0, 0, u64::MAX)]
        {
            clock.handle_echo(now, asked, heard, said);
        }
        assert_eq!(clock.exchanges(), 0);
        clock.handle_echo(now, 900, u64::MAX, u64::MAX);
        assert_eq!(clock.own(0), None, "no clock is five hundred years ahead");
    }
}
