//! Words about clocks, which both ends of a connection say again and again.
//!
//! Each word says what the speaker's clock shows and what the hearer's showed when it was last
//! heard. Words are small and are said only while nothing else waits, so that they do not wait
//! themselves. This knows no connection but the writer that it is given.

use std::io;
use std::time::Duration;

use gtp_alloc::Time;
use gtp_proto::in_step::{Begun, PeerClock, Word};
use gtp_sys::clock::Clock;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::stream::FrameWriter;

/// The time between two words at the start, until the group has begun and clocks are known.
pub const QUICK: Duration = Duration::from_millis(50);

/// After that, one word in so many of those: four in a second.
const CALM: u64 = 5;

/// Ticks without a word after which one is said although others wait: 2 s. It comes late and tells
/// little, but clocks that nobody compares move apart.
const SILENT_MOST: u64 = 40;

/// Exchanges from which on the peer's clock counts as known.
const KNOWN: u64 = 4;

/// One end of the exchange.
#[derive(Debug)]
pub struct Pulse {
    clock: Clock,
    peer: PeerClock,
    /// What the peer last said that its clock showed, and when that was heard.
    heard: Option<(u64, u64)>,
    ticks: u64,
    /// The tick of the last word.
    spoken: u64,
}

impl Pulse {
    /// Nothing was said.
    pub fn new(clock: Clock) -> Pulse {
        Pulse { clock, peer: PeerClock::new(), heard: None, ticks: 0, spoken: 0 }
    }

    /// The times at which [`Pulse::tell`] is to be called.
    pub fn ticks() -> Interval {
        let mut ticks = interval(QUICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// A word of the peer's came at `came`.
    pub fn hear(&mut self, came: Time, said: u64, heard: Option<(u64, u64)>) {
        if let Some((asked, then)) = heard {
            self.peer.handle_echo(came, asked, then, said);
        }
        self.heard = Some((said, came.as_nanos()));
    }

    /// Says a word, if one is due and nothing else waits, or none was said for long.
    ///
    /// # Errors
    /// As the stream broke.
    pub fn tell(&mut self, writer: &FrameWriter, begun: Begun) -> io::Result<()> {
        let tick = self.ticks;
        self.ticks += 1;
        let is_calm = self.is_known() && begun != Begun::No;
        if is_calm && !tick.is_multiple_of(CALM) {
            return Ok(());
        }
        let mut word = Vec::new();
        let said = self.clock.now().as_nanos();
        Word::Clock { said, heard: self.heard, begun }.write(&mut word);
        let is_overdue = tick.saturating_sub(self.spoken) >= SILENT_MOST;
        let waiting_most = if is_overdue { usize::MAX } else { 0 };
        if writer.offer_at_once(&word, waiting_most)? {
            self.spoken = tick;
        }
        Ok(())
    }

    /// The peer's clock.
    pub fn peer(&self) -> &PeerClock {
        &self.peer
    }

    /// Whether enough was exchanged to go by the peer's clock.
    pub fn is_known(&self) -> bool {
        self.peer.exchanges() >= KNOWN
    }
}
