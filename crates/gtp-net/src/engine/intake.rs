//! What this process can take in, found out while it does.
//!
//! A host whose capacity nobody knows is the bottleneck when its own receive buffers fill up. That
//! is seen here before anything is lost, and unlike a loss it cannot be the network's doing. Then
//! no more is shared out than what was taken in lately, less a little, so that all its sessions
//! come down together and in their shares. From there the limit rises until it happens again, or is
//! no limit any more. The first limit was measured while all were still starting and is too low, so
//! it rises fast; once trouble has come as it rose, slowly. Of whatever limit, what is taken in
//! while a buffer stands recovers it at once. Pure arithmetic over what the sockets said.

use std::collections::VecDeque;

use gtp_alloc::{Bytes, Rate, Span, Time};

/// The limit that this process's own speed puts on what it receives.
#[derive(Debug)]
pub(super) struct Intake {
    /// What it keeps up with; unlimited while nothing has been amiss.
    limit: Rate,
    /// What the largest receive buffer of a socket holds of datagrams.
    room: Bytes,
    /// In so many looks in a row the buffer was never empty.
    stood_for: usize,
    /// Of a buffer that is to be drained.
    ebb: Ebb,
    began: Time,
    /// What happened since `began`.
    look: Look,
    /// The least part of the fullest buffer that was filled since `began`, after all was read that
    /// one turn reads.
    standing: f64,
    /// Standing in the look before.
    stood: f64,
    /// What the host was told last.
    told: Rate,
    /// The last looks.
    looks: VecDeque<Look>,
    /// What was done about the last trouble shows by then.
    patient_until: Time,
    /// The last trouble.
    troubled_at: Time,
    search: Search,
}

/// How far the limit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// It comes from the first trouble, when senders and this process were all just starting, or
    /// there is none: what was taken in then, or has been since while something stood, is a
    /// beginning.
    Begun,
    /// It has risen since.
    Rising,
    /// Trouble came as it rose: this is about what this process keeps up with.
    Over,
}

/// How a buffer that is to be drained falls.
#[derive(Clone, Copy, Debug)]
struct Ebb {
    /// The least part of it that stood.
    lowest: f64,
    /// When it fell to that.
    since: Time,
}

impl Ebb {
    /// Nothing is to be drained.
    fn none(now: Time) -> Ebb {
        Ebb { lowest: f64::INFINITY, since: now }
    }

    /// So much of it stands now.
    fn follow(&mut self, standing: f64, now: Time) {
        if standing < self.lowest - FALLS {
            *self = Ebb { lowest: standing, since: now };
        }
    }

    /// Whether it has not fallen for so long.
    fn rests(&self, now: Time, long: Span) -> bool {
        now.since(self.since) > long
    }
}

/// What one look saw.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    span: Span,
    /// Of datagrams that a session's key opened.
    bytes: Bytes,
    /// Of all others, as booked.
    junk: Bytes,
}

/// What came and was not for any session here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Junk {
    bytes: Bytes,
    /// With what the kernel books for each datagram besides: empty ones fill a buffer, too.
    booked: Bytes,
}

/// What the kernel books for a datagram besides its bytes, about.
const BOOKED: u64 = 768;

impl Junk {
    /// Counts one datagram of so many bytes.
    pub fn add(&mut self, length: Bytes) {
        self.bytes += length;
        self.booked += Bytes(length.0 + BOOKED);
    }

    /// What came since `before`.
    pub fn since(&self, before: Junk) -> Junk {
        let bytes = Bytes(self.bytes.0 - before.bytes.0);
        Junk { bytes, booked: Bytes(self.booked.0 - before.booked.0) }
    }
}

/// A look takes so long: a buffer that is large enough for the rate fills in several.
const LOOK: Span = Span::from_millis(5);
/// So many looks are remembered: a fifth of a second.
const REMEMBERED: usize = 40;
/// A turn reads up to 768 KiB.
const SHOWS: Bytes = Bytes(1 << 20);
/// A buffer that takes longer to be half full would hold up all that comes by as much before
/// anything is done: it is left to the path's bound.
const SOON: Span = Span::from_millis(250);
/// Rates are means over so many: shorter ones show how fast a heap is cleared after a pause.
const MEAN_OVER: usize = 4;
/// In so many looks in a row a buffer that is never empty is one that stands.
const LONG: usize = 2 * MEAN_OVER;
/// A buffer that is never less full than this during a look is in trouble: bookkeeping alone may
/// show a quarter.
const STANDING_MOST: f64 = 0.5;
/// What strangers send must not slow anybody down: with more junk than this nothing is done.
const JUNK_MOST: f64 = 0.02;
/// Of what was taken in, this part is shared out: the rest empties the buffer.
const KEPT: f64 = 0.93;
/// Just after trouble the limit rises by this part in a second.
const RISE: f64 = 0.04;
/// After each such span without trouble the limit rises twice as fast.
const DOUBLES: Span = Span::from_millis(500);
/// The limit rises by this part in a second at most.
const RISE_MOST: f64 = 0.64;
/// After the first trouble it rises by this part in a second while the buffer is as good as empty:
/// in a tenth of a second it becomes a third too much, 10 MB at 5 Gbit/s of the 16 that half a
/// buffer of 32 MB holds.
const SEARCH: f64 = 3.0;
/// The first limit rises that fast while it is no more than so many times what arrives: answers
/// take a round trip.
const AHEAD: f64 = 1.4;
/// A buffer is as good as empty below this.
const EMPTY: f64 = 0.1;
/// A limit so far above what arrives is none.
const LIFTED: f64 = 2.0;
/// A process that was not let run for a while is not to give up.
const LEAST: Rate = Rate::from_mbps(10);
/// Below this a buffer that is never empty may show no more than bookkeeping.
const DRAINED: f64 = 0.3;
/// A buffer that is less full by this part falls.
const FALLS: f64 = 0.01;
/// What stands above that is emptied within this and [`INTERVALS`] control intervals: it loses what
/// comes during the next pause, and what waits in it is cold when it is read.
const DRAIN: Span = Span::from_millis(20);
/// A buffer that has not fallen for so many times as long rests, and that is trouble: under a right
/// limit it would be empty after one, and what is kept back only makes up for one that is too high.
const RESTS: u64 = 2;
/// Not more than this part of the limit is kept back for that: what comes stays so much that no
/// limit seems far above it.
const DRAIN_MOST: f64 = 0.3;
/// A limit is told anew when it has fallen or risen so much.
const NEWS: (f64, f64) = (0.98, 1.005);
/// While a buffer empties, a limit is told anew when it has changed so much: all sessions are told
/// each time.
const DRAIN_NEWS: (f64, f64) = (0.95, 1.05);
/// Before more is done, what was done gets this time and [`INTERVALS`] control intervals.
const PATIENCE: Span = Span::from_millis(60);
/// Twice a round trip.
const INTERVALS: u64 = 4;

impl Intake {
    /// No limit yet.
    pub fn new(now: Time) -> Intake {
        Intake {
            limit: Rate::UNLIMITED,
            room: Bytes::ZERO,
            stood_for: 0,
            ebb: Ebb::none(now),
            began: now,
            look: Look::default(),
            standing: f64::INFINITY,
            stood: 0.0,
            told: Rate::UNLIMITED,
            looks: VecDeque::with_capacity(REMEMBERED),
            patient_until: now,
            troubled_at: now,
            search: Search::Begun,
        }
    }

    /// A socket is there whose receive buffer holds so many bytes of datagrams.
    pub fn handle_socket(&mut self, receive_buffer: Bytes) {
        self.room = self.room.max(receive_buffer);
    }

    /// Whether it would act on a receive buffer of this size that fills up: a small one is emptied
    /// by every turn and shows nothing, and one that is large for what comes shows it late.
    pub fn guards(&self, receive_buffer: Bytes) -> bool {
        let soon = Bytes(receive_buffer.0 / 2) <= self.best().bytes_in(SOON);
        receive_buffer >= SHOWS && soon && self.is_clean()
    }

    /// One read of a socket took in `bytes`, of which `junk` were not for any session here.
    pub fn handle_read(&mut self, bytes: Bytes, junk: Junk) {
        self.look.bytes += Bytes(bytes.0.saturating_sub(junk.bytes.0));
        self.look.junk += junk.booked;
    }

    /// Each socket had its turn, and this part of the fullest one's buffer is filled still.
    pub fn handle_turn(&mut self, filled: f64) {
        self.standing = self.standing.min(filled);
    }

    /// Whether it is time for a look.
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.began) >= LOOK
    }

    /// Ends a look. Returns the limit where it is news: at most so much may be shared out.
    /// `interval` is the control interval in force.
    pub fn look(&mut self, now: Time, interval: Span) -> Option<Rate> {
        let passed = now.since(self.began);
        if passed > LOOK * REMEMBERED as u64 {
            // Nothing happened for long, or this process stood still: neither is a rate.
            self.looks.clear();
            (self.stood, self.stood_for, self.ebb) = (0.0, 0, Ebb::none(now));
            self.begin(now);
            return None;
        }
        if self.looks.len() == REMEMBERED {
            self.looks.pop_front();
        }
        self.looks.push_back(Look { span: passed, ..self.look });
        tracing::trace!(
            passed_us = passed.as_micros(),
            taken = %self.look.bytes.per(passed),
            standing = self.standing(),
            limit = %self.limit,
            told = %self.told,
            search = ?self.search,
        );
        self.follow_ebb(now);
        let empties = DRAIN + interval * INTERVALS;
        if self.is_troubled() || self.ebb.rests(now, empties * RESTS) {
            self.troubled_at = now;
            if self.patient_until <= now {
                if self.search == Search::Rising {
                    self.search = Search::Over;
                }
                self.limit = self.limit.min(self.kept_up_with()).scale(KEPT).max(LEAST);
                self.ebb = Ebb { lowest: self.standing(), since: now };
                self.patient_until = now + PATIENCE + interval * INTERVALS;
            }
        } else {
            self.rise(now, passed.min(LOOK * MEAN_OVER as u64), interval);
        }
        self.stood = self.standing();
        self.stood_for = if self.stood > 0.0 { self.stood_for + 1 } else { 0 };
        self.recover();
        self.begin(now);
        self.news(self.drain(empties))
    }

    /// While something stands this process reads as fast as it can: what it takes in then, it keeps
    /// up with, also where somebody else had its processor when the limit was found.
    fn recover(&mut self) {
        if self.stood_for < MEAN_OVER || !self.is_clean() {
            return;
        }
        let lately = self.best_from(self.looks.len().saturating_sub(MEAN_OVER));
        self.limit = self.limit.max(lately.scale(KEPT));
    }

    /// By how much less than the limit is shared out so that the buffer empties within a span;
    /// [`DRAIN_MOST`] of it at most.
    fn drain(&self, within: Span) -> Rate {
        if self.limit.is_unlimited() || !self.is_clean() {
            return Rate::ZERO;
        }
        let over = (self.stood - DRAINED).max(0.0) * self.room.0 as f64;
        Bytes(over as u64).per(within).min(self.limit.scale(DRAIN_MOST))
    }

    fn begin(&mut self, now: Time) {
        (self.began, self.look, self.standing) = (now, Look::default(), f64::INFINITY);
    }

    /// The limit less `drain`, if that fell or rose by so much that it is worth new grants.
    fn news(&mut self, drain: Rate) -> Option<Rate> {
        let limit = self.limit.saturating_sub(drain).max(LEAST);
        let lifted = limit.is_unlimited() != self.told.is_unlimited();
        let (fall, rise) = if drain > Rate::ZERO { DRAIN_NEWS } else { NEWS };
        let moved = limit < self.told.scale(fall) || limit > self.told.scale(rise);
        (lifted || moved).then(|| {
            self.told = limit;
            limit
        })
    }

    /// A buffer is filling up, or has, for two looks in a row, by what sessions brought. One that
    /// is emptying is being helped already.
    fn is_troubled(&self) -> bool {
        let full = |standing: f64| standing > STANDING_MOST;
        self.is_clean()
            && full(self.stood)
            && full(self.standing())
            && self.standing() >= self.stood
    }

    /// Notes how far a buffer that is to be drained has fallen.
    fn follow_ebb(&mut self, now: Time) {
        if self.limit.is_unlimited() || self.standing() <= DRAINED || !self.is_clean() {
            self.ebb = Ebb::none(now);
        } else {
            self.ebb.follow(self.standing(), now);
        }
    }

    /// Whether what came lately came for sessions: only then is anything done about it.
    pub fn is_clean(&self) -> bool {
        let junk: u64 = self.looks.iter().map(|look| look.junk.0).sum();
        let bytes: u64 = self.looks.iter().map(|look| look.bytes.0).sum();
        junk as f64 <= JUNK_MOST * bytes as f64
    }

    /// What stood in the fullest buffer throughout this look; nothing in one that was emptied.
    fn standing(&self) -> f64 {
        if self.standing.is_finite() { self.standing } else { 0.0 }
    }

    /// The best rate of those looks that are remembered.
    fn best(&self) -> Rate {
        self.best_from(0)
    }

    /// The best rate since its buffer was last empty, if that was long enough ago to tell: what has
    /// just come is taken in faster than what has stood.
    fn kept_up_with(&self) -> Rate {
        let since = self.looks.len().saturating_sub(self.stood_for);
        self.best_from(if self.stood_for < LONG { 0 } else { since })
    }

    /// The best mean of looks in a row, from one of those that are remembered on.
    fn best_from(&self, first: usize) -> Rate {
        let mean = |from: usize| {
            let looks = || self.looks.iter().skip(from).take(MEAN_OVER);
            let bytes = looks().map(|look| look.bytes.0).sum();
            let nanos = looks().map(|look| look.span.as_nanos()).sum();
            Bytes(bytes).per(Span::from_nanos(nanos))
        };
        let last = self.looks.len().saturating_sub(MEAN_OVER).max(first);
        (first..=last).map(mean).max().unwrap_or(Rate::ZERO)
    }

    fn rise(&mut self, now: Time, passed: Span, interval: Span) {
        let most = if self.search == Search::Over { DRAINED } else { EMPTY };
        let stands = self.is_clean() && self.standing() > most;
        let shows = now >= self.troubled_at + interval * INTERVALS;
        if self.limit.is_unlimited() || stands || !shows {
            return;
        }
        let calm = now.since(self.troubled_at).as_secs_f64() / DOUBLES.as_secs_f64();
        let rise = match self.search {
            Search::Begun | Search::Rising if self.limit < self.best().scale(AHEAD) => SEARCH,
            Search::Begun | Search::Rising | Search::Over => (RISE * calm.exp2()).min(RISE_MOST),
        };
        if self.search == Search::Begun {
            self.search = Search::Rising;
        }
        self.limit = self.limit.scale(1.0 + rise * passed.as_secs_f64());
        if self.limit > self.best().scale(LIFTED) {
            (self.limit, self.search) = (Rate::UNLIMITED, Search::Begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use gtp_proto::limits::{INTERVAL_MAX, INTERVAL_MIN};

    use super::*;

    /// A sink that looks every 5 ms.
    struct Sink {
        intake: Intake,
        now: Time,
        limit: Rate,
        interval: Span,
    }

    impl Sink {
        fn new() -> Sink {
            let now = Time::ZERO;
            let mut intake = Intake::new(now);
            intake.handle_socket(Bytes(2 * BUFFER));
            Sink { intake, now, limit: Rate::UNLIMITED, interval: INTERVAL_MIN }
        }

        /// A look that took in so many Mbit/s and left this part of the buffer full.
        fn look(&mut self, mbps: u64, filled: f64) -> Rate {
            self.look_with_junk(mbps, 0, filled)
        }

        fn look_with_junk(&mut self, mbps: u64, junk: u64, filled: f64) -> Rate {
            let bytes = |mbps| Rate::from_mbps(mbps).bytes_in(LOOK);
            let booked = Junk { bytes: bytes(junk), booked: bytes(junk) };
            self.intake.handle_read(bytes(mbps + junk), booked);
            self.intake.handle_turn(filled);
            self.now += LOOK;
            assert!(self.intake.is_due(self.now));
            self.limit = self.intake.look(self.now, self.interval).unwrap_or(self.limit);
            self.limit
        }

        /// What arrives now is what was shared out.
        fn shared_out(&self) -> u64 {
            self.limit.as_bps() / 1_000_000
        }
    }

    #[test]
    fn a_buffer_that_stays_full_brings_the_limit_below_what_was_taken_in() {
        let mut sink = Sink::new();
        for _ in 0..MEAN_OVER {
            assert!(sink.look(5_000, 0.4).is_unlimited(), "that may be bookkeeping");
        }
        assert!(sink.look(4_000, 0.6).is_unlimited(), "that may be one pause");
        let shared_out = sink.look(4_000, 0.6);
        let kept_up_with = Rate::from_mbps(5_000).scale(KEPT);
        assert_eq!(sink.intake.limit, kept_up_with);
        assert!(shared_out < kept_up_with, "what stands there is emptied, too");
    }

    #[test]
    fn one_look_that_clears_a_heap_is_no_rate() {
        let mut sink = Sink::new();
        for mbps in [0, 5_000, 5_000, 10_000, 5_000, 0] {
            sink.look(mbps, 0.0);
        }
        sink.look(5_000, 0.6);
        sink.look(5_000, 0.6);
        assert_eq!(sink.intake.limit, Rate::from_mbps(6_250).scale(KEPT));
    }

    #[test]
    fn what_strangers_send_lowers_nothing_however_full_it_makes_the_buffer() {
        let mut sink = Sink::new();
        for _ in 0..200 {
            assert!(sink.look_with_junk(1_000, 30, 1.0).is_unlimited());
        }
        for _ in 0..REMEMBERED {
            sink.look_with_junk(1_000, 10, 1.0);
        }
        assert!(!sink.limit.is_unlimited(), "a few strays do not hide that it is full");
    }

    #[test]
    fn what_strangers_send_does_not_keep_a_first_limit_from_rising() {
        let mut sink = Sink::new();
        sink.look(1_000, 0.9);
        let first = sink.look(1_000, 0.9);
        for _ in 0..2 * REMEMBERED {
            sink.look_with_junk(sink.shared_out().min(5_000), 300, 0.3);
        }
        assert!(sink.limit > first.scale(1.2), "{:?}", sink.limit);
    }

    #[test]
    fn only_a_buffer_that_shows_soon_what_is_wrong_is_guarded() {
        let mut sink = Sink::new();
        sink.look(600, 0.0);
        assert!(sink.intake.guards(Bytes(32 << 20)));
        assert!(!sink.intake.guards(Bytes(64 << 20)), "half of it is half a second's");
        assert!(!sink.intake.guards(Bytes(512 << 10)), "a turn empties it");
        sink.look_with_junk(600, 60, 0.0);
        assert!(!sink.intake.guards(Bytes(32 << 20)), "nothing is done about strangers");
    }

    #[test]
    fn empty_datagrams_are_weighed_and_take_nothing_from_what_sessions_brought() {
        let mut junk = Junk::default();
        (0..1_000).for_each(|_| junk.add(Bytes::ZERO));
        let mut sink = Sink::new();
        sink.intake.handle_read(Bytes(1_000_000), junk.since(Junk::default()));
        assert_eq!(sink.look(0, 0.0), Rate::UNLIMITED);
        assert!(!sink.intake.is_clean());
        assert_eq!(sink.intake.best(), Bytes(1_000_000).per(LOOK));
    }

    #[test]
    fn a_full_buffer_before_a_pause_and_one_after_it_are_not_two_in_a_row() {
        let mut sink = Sink::new();
        sink.look(5_000, 0.6);
        sink.now += Span::from_secs(1);
        sink.look(5_000, 0.6);
        assert!(sink.look(5_000, 0.6).is_unlimited());
        assert!(!sink.look(5_000, 0.6).is_unlimited());
    }

    #[test]
    fn a_pause_is_no_long_calm_in_which_a_limit_rises() {
        let mut sink = settled();
        let before = sink.intake.limit;
        sink.now += Span::from_secs(3_600);
        for _ in 0..3 {
            sink.look(sink.shared_out(), 0.0);
        }
        let after = sink.intake.limit;
        assert!(!after.is_unlimited() && after < before.scale(1.05), "{before:?} {after:?}");
    }

    #[test]
    fn what_was_done_gets_time_to_show_and_a_buffer_that_empties_is_let_be() {
        let mut sink = Sink::new();
        sink.look(5_000, 0.9);
        let first = sink.look(5_000, 0.9);
        assert_eq!(sink.look(5_000, 0.95), first, "two round trips have not passed");
        for emptier in 1..40 {
            let filled = 0.95 - 0.01 * f64::from(emptier);
            assert!(sink.look(4_650, filled) >= first, "it is emptying");
        }
        sink.look(4_650, 0.8);
        assert!(sink.look(4_650, 0.8) < first, "it is full again");
    }

    /// A sink whose buffer holds 16 MB of content (of 32 with the kernel's bookkeeping), to which
    /// sources send what it shared out four looks ago.
    struct Buffered {
        sink: Sink,
        capacity: u64,
        backlog: u64,
        taken: u64,
        lost: u64,
        on_the_way: VecDeque<u64>,
    }

    const BUFFER: u64 = 16 << 20;

    impl Buffered {
        /// Its buffer is full to so many percent, and so much is on the way for each of some looks.
        fn new(sink: Sink, capacity: u64, percent: u64, (mbps, looks): (u64, usize)) -> Buffered {
            let (backlog, on_the_way) = (BUFFER * percent / 100, vec![mbps; looks].into());
            Buffered { sink, capacity, backlog, taken: 0, lost: 0, on_the_way }
        }

        /// Sources that could send twice what the sink takes in find it at half of its speed.
        fn found_at_half_speed(capacity: u64) -> Buffered {
            let mut sink = Sink::new();
            sink.look(capacity / 2, 0.9);
            sink.look(capacity / 2, 0.9);
            Buffered::new(sink, capacity, 90, (2 * capacity, 4))
        }

        /// The same over a round trip of so many looks.
        fn over(capacity: u64, round_trip: usize) -> Buffered {
            let on_the_way = vec![2 * capacity; round_trip].into();
            let mut host = Buffered { on_the_way, ..Buffered::found_at_half_speed(capacity) };
            host.sink.interval = (LOOK * round_trip as u64 / 2).clamp(INTERVAL_MIN, INTERVAL_MAX);
            host
        }

        fn run(&mut self, looks: u32) {
            let bytes = |mbps| Rate::from_mbps(mbps).bytes_in(LOOK).0;
            for _ in 0..looks {
                let shared_out = self.sink.shared_out().min(2 * self.capacity);
                self.on_the_way.push_back(shared_out);
                let came = self.on_the_way.pop_front().unwrap_or(0);
                let there = self.backlog + bytes(came);
                let taken = there.min(bytes(self.capacity));
                self.backlog = (there - taken).min(BUFFER);
                self.taken += taken;
                self.lost += there - taken - self.backlog;
                let mbps = taken * 8 / (LOOK.as_nanos() / 1_000);
                self.sink.look(mbps, self.backlog as f64 / BUFFER as f64);
            }
        }
    }

    #[test]
    fn a_buffer_that_fills_is_drained_though_more_was_taken_in_at_best_than_is_now() {
        for round_trip in [1, 2, 4, 8] {
            // For 20 ms it took in an eighth more than it ever will again.
            let mut sink = Sink::new();
            (0..MEAN_OVER).for_each(|_| _ = sink.look(5_600, 0.4));
            (0..2).for_each(|_| _ = sink.look(5_000, 0.6));
            assert!(sink.intake.limit > Rate::from_mbps(5_000));
            let mut host = Buffered::new(sink, 5_000, 60, (5_200, round_trip));
            let mut looks = 0;
            while host.backlog > BUFFER * 36 / 100 {
                host.run(1);
                looks += 1;
                assert!(looks < 60, "{round_trip}: {}", host.backlog);
            }
            assert_eq!(host.lost, 0, "{round_trip}");
        }
    }

    #[test]
    fn what_was_taken_in_as_all_were_starting_is_soon_no_limit_any_more() {
        for capacity in [200, 1_000, 5_000, 10_000] {
            let mut host = Buffered::found_at_half_speed(capacity);
            host.run(4); // What was on its way may be lost.
            let (before, begun) = ((host.lost, host.taken), host.sink.now);
            while host.sink.intake.limit < Rate::from_mbps(capacity).scale(KEPT) {
                host.run(1);
                let passed = host.sink.now.since(begun);
                assert!(passed < Span::from_millis(100), "{capacity}: {:?}", host.sink.limit);
            }
            while host.sink.now.since(begun) < Span::from_secs(4) {
                host.run(1);
            }
            let could = Rate::from_mbps(capacity).bytes_in(host.sink.now.since(begun)).0;
            let share = (host.taken - before.1) as f64 / could as f64;
            assert_eq!(host.lost, before.0, "{capacity}");
            assert!(share > 0.95, "{capacity}: {share}");
        }
    }

    #[test]
    fn a_round_trip_that_is_long_is_waited_for_and_not_taken_for_the_end_of_the_limit() {
        for round_trip in [20, 40, 60] {
            let mut host = Buffered::over(5_000, round_trip);
            let mut lifts = 0;
            for _ in 0..4_000 {
                let limited = !host.sink.limit.is_unlimited();
                host.run(1);
                lifts += u32::from(limited && host.sink.limit.is_unlimited());
            }
            assert_eq!(lifts, 0, "over {round_trip} looks");
            assert_eq!(host.sink.intake.search, Search::Over);
        }
    }

    /// A sink that has found out that it takes in 5 Gbit/s.
    fn settled() -> Sink {
        let mut host = Buffered::found_at_half_speed(5_000);
        while host.sink.intake.search != Search::Over {
            host.run(1);
        }
        host.sink
    }

    #[test]
    fn a_host_that_becomes_slower_is_followed_down_and_up_again_ever_faster() {
        let mut sink = settled();
        // Somebody else takes half of the processor.
        let begun = sink.now;
        while sink.intake.limit > Rate::from_mbps(2_500) {
            let arrives = sink.shared_out();
            sink.look(arrives.min(2_500), if arrives > 2_500 { 0.9 } else { 0.0 });
            assert!(sink.now.since(begun) < Span::from_millis(800), "{:?}", sink.intake.limit);
        }
        let mut gained = [0.0; 3];
        for second in &mut gained {
            let low = sink.intake.limit.as_f64();
            for _ in 0..200 {
                sink.look(sink.shared_out(), 0.0);
            }
            *second = sink.intake.limit.as_f64() / low - 1.0;
        }
        let [first, second, third] = gained;
        assert!((0.05..0.15).contains(&first) && second > 2.0 * first, "{gained:?}");
        assert!(third < 0.95, "doubling in a second is a ramp, not a search: {gained:?}");
    }

    #[test]
    fn a_buffer_does_not_rest_at_what_is_kept_back_to_empty_it() {
        for round_trip in [1, 2, 4, 8] {
            let mut sink = settled();
            sink.intake.limit = Rate::from_mbps(5_300);
            let mut host = Buffered::new(sink, 5_000, 40, (5_300, round_trip));
            let begun = host.sink.now;
            while host.backlog > BUFFER * 3 / 10 {
                host.run(1);
                let passed = host.sink.now.since(begun);
                assert!(passed < Span::from_millis(600), "{round_trip}: {:?}", host.sink.limit);
            }
        }
    }

    #[test]
    fn a_buffer_rests_when_it_has_not_fallen_for_long_whatever_it_did_between() {
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let long = Span::from_millis(10);
        let mut ebb = Ebb::none(at(0));
        ebb.follow(0.5, at(5));
        ebb.follow(0.6, at(10));
        ebb.follow(0.5 - FALLS / 2.0, at(12));
        assert!(!ebb.rests(at(15), long) && ebb.rests(at(16), long));
        ebb.follow(0.4, at(16));
        assert!(!ebb.rests(at(26), long) && ebb.rests(at(27), long));
    }

    #[test]
    fn a_first_limit_that_a_pause_made_is_forgotten_while_the_buffer_is_emptied() {
        let mut sink = Sink::new();
        sink.look(2_500, 0.9);
        assert!(sink.look(2_500, 0.9) < Rate::from_mbps(2_500));
        for emptier in 1..=MEAN_OVER as u32 {
            sink.look(5_000, 0.9 - 0.02 * f64::from(emptier));
        }
        assert!(sink.intake.limit >= Rate::from_mbps(5_000).scale(KEPT), "{:?}", sink.intake.limit);
    }

    #[test]
    fn a_host_that_was_slower_for_a_while_is_at_its_speed_again_once_it_empties_its_buffer() {
        let mut sink = settled();
        let before = sink.intake.limit;
        // Somebody else takes half of the processor, and gives it back.
        let mut backlog = 0;
        while sink.intake.limit > before.scale(0.6) {
            backlog += 1;
            sink.look(2_500, 0.01 * f64::from(backlog));
        }
        for emptier in 1..=MEAN_OVER as u32 {
            sink.look(5_000, 0.01 * f64::from(backlog - emptier));
        }
        assert!(sink.intake.limit >= Rate::from_mbps(5_000).scale(KEPT), "{:?}", sink.intake.limit);
    }

    #[test]
    fn a_limit_far_above_what_arrives_is_lifted_and_a_stall_does_not_end_everything() {
        let mut sink = Sink::new();
        sink.look(0, 1.0);
        assert_eq!(sink.look(0, 1.0), LEAST);
        for _ in 0..REMEMBERED {
            sink.look(1, 0.0);
        }
        assert!(sink.limit.is_unlimited());
    }
}
