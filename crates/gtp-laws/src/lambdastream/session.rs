//! LambdaStream where packets leave in bursts, and a grant carries the rate that is asked for.
//!
//! [`Trains`] is the source's part: a packet's number says whether it is in a train (L4).
//! [`Listener`] is the sink's: it gives the [`Judge`] one packet for each burst, the first, because
//! packets that left at one time have no gaps. The number of a grant is the number of a rate.
//!
//! Departures: the round trip is the session's own, and L5 and L6, notification of losses, are the
//! session's repairs. A group of a train in which fewer than two bursts begin says nothing.

use gtp_alloc::led::{Came, Next, SessionLaw};
use gtp_alloc::{Bytes, Rate, Span, Time};

use super::{Arrived, GROUP, Judge, LEAST_EPOCH, PERIOD, TRAIN, train_rate};
use crate::{Counts, SourceLaw};

/// L4: the train's group that packet `number` is in, from one on; none: zero.
fn group(number: u64) -> u64 {
    let place = number % PERIOD;
    if place < TRAIN { place / GROUP + 1 } else { 0 }
}

/// The source's part: what is granted, and trains.
#[derive(Clone, Copy, Debug)]
pub struct Trains {
    link: f64,
}

impl Trains {
    /// Trains on a link of `link` (`L`).
    pub fn new(link: Rate) -> Trains {
        Trains { link: link.as_f64() }
    }
}

impl SourceLaw for Trains {
    fn handle_counts(&mut self, _now: Time, _counts: &Counts, _packet: Bytes) {}

    /// It follows grants alone.
    fn rate(&self, _packet: Bytes) -> Rate {
        Rate::ZERO
    }

    fn rate_of(&self, next: &Next) -> Rate {
        match group(next.number) {
            0 => next.granted,
            _ if next.granted == Rate::ZERO => Rate::ZERO,
            group => Rate::from_f64(train_rate(next.granted.as_f64(), group - 1, self.link)),
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// The first packet of those that left at one time.
#[derive(Clone, Copy, Debug)]
struct Mark {
    sent_at: u32,
    sent: Time,
    number: u64,
    /// Packets that came since, this one included.
    came: u64,
}

/// The sink's part.
#[derive(Clone, Debug)]
pub struct Listener {
    link: Rate,
    initial: Rate,
    /// Once it is known how long packets are.
    judge: Option<Judge>,
    mark: Option<Mark>,
    grants: Grants,
    rtt: Span,
    epoch: Option<Time>,
}

/// Which grant is the answer to the rate asked for last.
#[derive(Clone, Copy, Debug, Default)]
struct Grants {
    newest: u32,
    /// The number of the rate asked for, and of the grant that was newest then.
    asked: (u64, u32),
    answer: Option<u32>,
    /// Looks at the newest grant since.
    looks: u32,
}

impl Grants {
    /// The number of the rate that packets left at which obey this grant.
    fn rate(&self, grant: u32) -> u64 {
        match self.answer {
            Some(answer) if grant >= answer => self.asked.0,
            Some(_) | None => self.asked.0.saturating_sub(1),
        }
    }

    fn ask(&mut self, rate: u64) {
        if rate != self.asked.0 {
            *self =
                Grants { newest: self.newest, asked: (rate, self.newest), answer: None, looks: 0 };
        }
    }

    /// The newest grant is this. One that stays while a rate is asked for is the answer too: the
    /// session has a limit.
    fn hear(&mut self, number: u32) {
        self.newest = number;
        self.looks += 1;
        if self.answer.is_none() && (number > self.asked.1 || self.looks > 2) {
            self.answer = Some(number);
        }
    }
}

impl Listener {
    /// A sink on a link of `link` (`L`), whose first rate is `initial`.
    pub fn new(link: Rate, initial: Rate) -> Listener {
        let (grants, rtt) = (Grants { answer: Some(0), ..Grants::default() }, Span::ZERO);
        Listener { link, initial, judge: None, mark: None, grants, rtt, epoch: None }
    }

    /// What it knows of the path, once a packet has come.
    pub fn judge(&self) -> Option<&Judge> {
        self.judge.as_ref()
    }
}

impl SessionLaw for Listener {
    fn handle_packet(&mut self, now: Time, packet: &Came) {
        let (link, initial) = (self.link, self.initial);
        let judge =
            self.judge.get_or_insert_with(|| Judge::new(link, initial, packet.packet).of_bursts());
        self.epoch.get_or_insert(now + LEAST_EPOCH);
        self.rtt = packet.rtt;
        let Came { number, sent_at, .. } = *packet;
        let first = Mark { sent_at, sent: Time::ZERO, number, came: 0 };
        let mark = self.mark.get_or_insert(first);
        let later = sent_at.wrapping_sub(mark.sent_at);
        if later == 0 || later > u32::MAX / 2 || number <= mark.number {
            mark.came += 1; // Of the same time, or late.
            return;
        }
        let sent = mark.sent + Span::from_micros(later.into());
        let (passed, came) = (number - mark.number, mark.came);
        self.mark = Some(Mark { sent_at, sent, number, came: 1 });
        let lost = passed.saturating_sub(came);
        let (rate, group) = (self.grants.rate(packet.grant), group(number));
        judge.note(now, &Arrived { ordinal: number, sent, rate, group, came, lost });
        self.grants.ask(judge.number());
    }

    fn handle_grant(&mut self, number: u32) {
        self.grants.hear(number);
    }

    fn handle_timeout(&mut self, now: Time) {
        let (Some(due), Some(judge)) = (self.epoch, &mut self.judge) else { return };
        if due > now {
            return;
        }
        if self.rtt > Span::ZERO {
            judge.set_rtt(self.rtt);
        }
        judge.end_epoch(now);
        self.grants.ask(judge.number());
        self.epoch = Some(judge.next_epoch(now));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.epoch
    }

    fn wish(&self) -> Rate {
        self.judge.as_ref().map_or(self.initial, Judge::rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trains_rise_by_a_tenth_of_the_link_from_group_to_group_and_only_where_something_is_granted()
    {
        let law = Trains::new(Rate::from_mbps(1_000));
        let rate = |number, granted| {
            let granted = Rate::from_mbps(granted);
            law.rate_of(&Next { number, packet: Bytes(1_500), granted })
        };
        let found = [0, 49, 50, 299, 300, 7_999, 8_050].map(|number| rate(number, 400));
        let expected = [400, 400, 500, 900, 400, 400, 500].map(Rate::from_mbps);
        assert_eq!(found, expected);
        assert_eq!(rate(50, 0), Rate::ZERO);
    }

    #[test]
    fn a_grant_is_the_answer_when_it_is_newer_or_stays() {
        let mut grants = Grants { answer: Some(0), ..Grants::default() };
        grants.hear(1);
        assert_eq!(grants.rate(1), 0);
        grants.ask(1);
        grants.hear(1);
        assert_eq!(grants.rate(1), 0, "not yet answered");
        grants.hear(2);
        assert_eq!((grants.rate(1), grants.rate(2)), (0, 1));
        grants.ask(2);
        (0..3).for_each(|_| grants.hear(2));
        assert_eq!(grants.rate(2), 2, "nothing newer will come");
    }
}
