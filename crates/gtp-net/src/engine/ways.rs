//! By which way a session's datagrams go: by UDP, or by its carrier where UDP does not get through.
//!
//! The initiator decides. It takes the carrier when nothing has come for a while, or when its peer
//! says that it hears nothing, and tries UDP again now and then: it sends a datagram a second time
//! there, so that a try that fails loses nothing. The responder answers by the way that its peer
//! uses, and answers a try with a copy in the same manner. Where it knows the initiator's port it
//! knocks there now and then: datagrams that say nothing open a firewall on its side for the next
//! try, and prove nothing. The datagrams that prove the way for
//! content are long ones, since a path may carry short ones only. Pure arithmetic over what came.

use gtp_alloc::{Span, Time};

use super::api::{SocketId, Way};

/// A session's carrier, and whether it is in use.
#[derive(Debug)]
pub(super) struct Carriage {
    pub id: SocketId,
    end: End,
    /// Whether content comes from the peer, and does not go there.
    receives: bool,
    in_use: bool,
    /// When the next copy may go by UDP, and at an initiator how long after the one before.
    try_at: Time,
    pause: Span,
    /// UDP was tried since it was given up: what comes by it now answers that, and was not sent
    /// before.
    tried: bool,
    /// What came before the carrier was taken, or the last copy made, was numbered up to this: by
    /// UDP it may be late or replayed, and shows nothing.
    stale: Option<u64>,
    /// A responder has heard a try and owes it a copy.
    owes: bool,
    /// When a responder knocks next, if it does.
    knock_at: Option<Time>,
    /// Datagrams by UDP, each newer than all before, since one came by the carrier.
    newer_by_udp: u32,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Initiator,
    Responder,
}

/// A datagram that opened under the session's key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub way: Way,
    pub number: u64,
    /// It is newer than all before.
    pub newest: bool,
    /// Its bytes.
    pub length: usize,
}

/// A datagram as long as this shows that those with content get through: the shortest unit.
const LONG: usize = 1_180;

/// The first try comes this long after UDP was given up. Each later one waits twice as long.
const TRY_FIRST: Span = Span::from_secs(5);
/// The longest wait between two tries.
const TRY_LAST: Span = Span::from_secs(30);
/// So many datagrams by UDP, one newer than the other and none by the carrier between them: the
/// initiator has moved. A try is one.
const MOVED: u32 = 3;

impl Carriage {
    /// A carrier that an initiator uses from now on, and a responder once its peer does.
    pub fn new(id: SocketId, end: End, receives: bool, now: Time) -> Carriage {
        Carriage {
            id,
            end,
            receives,
            in_use: end == End::Initiator,
            try_at: if end == End::Initiator { now + TRY_FIRST } else { now },
            pause: TRY_FIRST,
            tried: false,
            stale: None,
            owes: false,
            knock_at: None,
            newer_by_udp: 0,
        }
    }

    /// A responder knocks from `now` on.
    pub fn begin_to_knock(&mut self, now: Time) {
        if self.end == End::Responder {
            self.knock_at = Some(now);
        }
    }

    /// Whether it is time to knock; if so, the next knock is due some seconds later.
    pub fn knocks(&mut self, now: Time) -> bool {
        let is_due = self.in_use && self.knock_at.is_some_and(|at| at <= now);
        if is_due {
            self.knock_at = Some(now + TRY_FIRST);
        }
        is_due
    }

    /// Whether datagrams leave by it.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// UDP does not get through, says an initiator's silence or its peer.
    pub fn take(&mut self, now: Time) {
        if self.end == End::Initiator && !self.in_use {
            (self.in_use, self.tried) = (true, false);
            (self.try_at, self.pause) = (now + TRY_FIRST, TRY_FIRST);
        }
    }

    /// An authentic datagram has come.
    pub fn hear(&mut self, came: Came) {
        let fresh = Some(came.number) > self.stale;
        match (self.end, came.way) {
            (End::Initiator, Way::Udp) => {
                let proves = fresh && self.tried && (!self.receives || came.length >= LONG);
                self.in_use &= !proves;
            }
            (End::Initiator, Way::Control) => {}
            (End::Responder, Way::Udp) => {
                self.owes |= self.in_use && fresh;
                if came.newest {
                    self.newer_by_udp += 1;
                    self.in_use &= self.newer_by_udp < MOVED;
                }
            }
            (End::Responder, Way::Control) if came.newest => {
                if !self.in_use {
                    (self.stale, self.owes) = (Some(came.number), false);
                }
                (self.in_use, self.newer_by_udp) = (true, 0);
            }
            (End::Responder, Way::Control) => {}
        }
    }

    /// Whether a copy of what leaves next should go by UDP, its longest datagram being so long.
    pub fn wants_copy(&self, now: Time, longest: usize) -> bool {
        self.in_use
            && (self.receives || longest >= LONG)
            && self.try_at <= now
            && (self.end == End::Initiator || self.owes)
    }

    /// The copy is made, while `newest` is the highest number that has come.
    pub fn copied(&mut self, now: Time, newest: Option<u64>) {
        (self.owes, self.tried, self.stale) = (false, true, newest);
        if self.end == End::Initiator {
            self.pause = (self.pause * 2).min(TRY_LAST);
        }
        self.try_at = now + self.pause;
    }
}

/// How long nothing has come from the peer.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When it was last looked at.
    looked: Option<Time>,
    /// Silence counts from here.
    since: Time,
    heard: bool,
    /// When this thread was last found to have stood still.
    stalled: Option<Time>,
}

/// Before the first answer silence counts after so long: four rounds of hellos.
const SILENT_FIRST: Span = Span::from_millis(2_500);
/// After that an end that is there speaks ten times a second.
const SILENT: Span = Span::from_secs(2);
/// A thread that was not let run for so long has missed what came.
const STALL: Span = Span::from_secs(1);

impl Watch {
    /// An authentic datagram has come.
    pub fn hear(&mut self, now: Time) {
        (self.since, self.heard) = (now, true);
    }

    /// Whether this thread has stood still lately: what is said of that time was said of this end.
    pub fn has_stalled(&self, now: Time) -> bool {
        let is_recent = |at: Time| now.since(at) < SILENT;
        self.looked.is_none_or(|at| now.since(at) > STALL) || self.stalled.is_some_and(is_recent)
    }

    /// Whether the peer has been silent for too long; silence counts anew then. Looks come several
    /// times a second.
    pub fn is_silent(&mut self, now: Time) -> bool {
        let looked = self.looked.replace(now);
        if looked.is_none_or(|at| now.since(at) > STALL) {
            (self.since, self.stalled) = (now, Some(now));
        }
        let most = if self.heard { SILENT } else { SILENT_FIRST };
        let silent = now.since(self.since) >= most;
        if silent {
            self.since = now;
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn came(way: Way, number: u64, newest: bool) -> Came {
        Came { way, number, newest, length: LONG }
    }

    #[test]
    fn an_initiator_tries_udp_with_copies_ever_more_rarely_and_moves_when_a_long_answer_comes() {
        let mut carriage = Carriage::new(SocketId(1), End::Initiator, true, ms(0));
        carriage.hear(came(Way::Udp, 1, true));
        assert!(carriage.is_in_use(), "it was sent before");
        let mut tries = Vec::new();
        for now in (0..120_000).step_by(10) {
            if carriage.wants_copy(ms(now), LONG) {
                carriage.copied(ms(now), Some(9));
                tries.push(now / 1_000);
            }
        }
        assert_eq!(tries, [5, 15, 35, 65, 95]);
        carriage.hear(Came { length: LONG - 1, ..came(Way::Udp, 10, true) });
        assert!(carriage.is_in_use(), "a short answer proves nothing for content");
        carriage.hear(came(Way::Udp, 9, false));
        assert!(carriage.is_in_use(), "it was there before the try: late, or replayed");
        carriage.hear(came(Way::Udp, 10, false));
        assert!(!carriage.is_in_use() && !carriage.wants_copy(ms(1_000_000), LONG));
        carriage.take(ms(200_000));
        assert!(carriage.is_in_use() && !carriage.wants_copy(ms(204_999), LONG));
        assert!(carriage.wants_copy(ms(205_000), LONG));
    }

    #[test]
    fn a_responder_answers_each_try_once_and_moves_when_its_peer_has() {
        let mut carriage = Carriage::new(SocketId(1), End::Responder, false, ms(0));
        assert!(!carriage.is_in_use(), "its peer may still speak by UDP");
        carriage.hear(came(Way::Control, 5, true));
        assert!(carriage.is_in_use() && !carriage.wants_copy(ms(9), LONG));
        carriage.hear(came(Way::Udp, 4, false));
        assert!(!carriage.wants_copy(ms(9), LONG), "it was sent before the carrier was taken");
        carriage.hear(came(Way::Control, 7, true));
        carriage.hear(came(Way::Udp, 7, false));
        assert!(carriage.wants_copy(ms(9), LONG) && !carriage.wants_copy(ms(9), LONG - 1));
        carriage.copied(ms(9), Some(7));
        assert!(carriage.is_in_use() && !carriage.wants_copy(ms(9), LONG));
        for number in [10, 12, 14] {
            carriage.hear(came(Way::Udp, number, true));
            carriage.hear(came(Way::Control, number + 1, true));
        }
        assert!(carriage.is_in_use(), "tries between others");
        for number in 20..20 + u64::from(MOVED) {
            assert!(carriage.is_in_use());
            carriage.hear(came(Way::Udp, number, true));
        }
        assert!(!carriage.is_in_use());
        carriage.hear(came(Way::Control, 16, false));
        assert!(!carriage.is_in_use(), "an old one comes late");
        carriage.hear(came(Way::Control, 30, true));
        assert!(carriage.is_in_use());
    }

    #[test]
    fn a_responder_knocks_every_five_seconds_while_it_is_carried_and_an_initiator_never() {
        let mut carriage = Carriage::new(SocketId(1), End::Responder, false, ms(0));
        carriage.begin_to_knock(ms(0));
        assert!(!carriage.knocks(ms(0)), "its peer may still speak by UDP");
        carriage.hear(came(Way::Control, 1, true));
        let knocks = |carriage: &mut Carriage| {
            let times = (0..16_000).step_by(10).filter(|&now| carriage.knocks(ms(now)));
            times.map(|now| now / 1_000).collect::<Vec<_>>()
        };
        assert_eq!(knocks(&mut carriage), [0, 5, 10, 15]);
        assert!(!carriage.wants_copy(ms(20_000), LONG), "a knock is no copy");
        let mut initiator = Carriage::new(SocketId(1), End::Initiator, true, ms(0));
        initiator.begin_to_knock(ms(0));
        assert!(knocks(&mut initiator).is_empty());
    }

    #[test]
    fn replays_and_floods_by_udp_have_a_responder_make_one_copy_for_a_try() {
        let mut carriage = Carriage::new(SocketId(1), End::Responder, false, ms(0));
        carriage.hear(came(Way::Control, 1, true));
        let mut copies = Vec::new();
        for now in (0..12_000).step_by(10) {
            let number = if now < 6_000 { 2 } else { 2 + now };
            carriage.hear(came(Way::Udp, number, false));
            if carriage.wants_copy(ms(now), LONG) {
                carriage.copied(ms(now), Some(number));
                copies.push(now);
            }
        }
        assert_eq!(copies, [0, 6_000, 11_000], "the replays of 2 are owed nothing");
    }

    #[test]
    fn silence_counts_from_what_came_last_and_a_thread_that_stood_still_has_missed_it() {
        let mut watch = Watch::default();
        let silent = |watch: &mut Watch, from: u64, to: u64| {
            (from..=to).step_by(100).filter(|&now| watch.is_silent(ms(now))).collect::<Vec<_>>()
        };
        assert_eq!(silent(&mut watch, 0, 5_200), [2_500, 5_000]);
        watch.hear(ms(5_200));
        assert_eq!(silent(&mut watch, 5_300, 9_300), [7_200, 9_200]);
        assert_eq!(silent(&mut watch, 20_000, 22_100), [22_000], "it stood still for ten seconds");
    }
}
