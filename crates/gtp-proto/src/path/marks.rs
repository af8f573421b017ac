//! ECN marks: a queue on the path marks packets instead of dropping them (RFC 3168).
//!
//! A mark means what a drop by a queue means, and is answered in the same way, once for all that
//! left before the answer took effect. So a marked sample counts as one with a queue, whatever its
//! delay: it ends a start, is stepped back from, and makes a session ask whose queue it is. A
//! session that is marked again within some seconds shares that queue, and competes; then its
//! window is cut for marks as for losses. RFC 8511 allows a gentler cut; it is not used, because
//! TCPs beside it whose packets are dropped cut by as much. Marks are no losses, and no sample with
//! marks raises the bound.

use gtp_alloc::{Rate, Time};

use super::compete::{Compete, Why};
use super::cruise::REMEMBERS;
use super::measures::Verdict;
use super::sample::Conditions;
use super::{PathBound, State};

impl PathBound {
    /// A sample with marks; `fresh` if it shows the present rate.
    pub(super) fn hear_marked(&mut self, now: Time, v: &Verdict, fresh: bool, given: &Conditions) {
        let most = self.bound;
        match self.state {
            State::Compete(compete) if !given.yields => {
                self.cut_for_marks(compete, now, v, fresh, given);
            }
            State::Cruise(_) if fresh => self.step_back_from_marks(now, v, given),
            // The test asks whether losses are a queue's, and here one is.
            State::Probe(_) if fresh => self.compete_after_loss(now, v, Why::Rival, given),
            State::Yield(_) if !given.yields => self.meet_rival(now, most, given),
            // Only samples without marks end the guard.
            State::Held(_) => {}
            State::Start(_)
            | State::Cruise(_)
            | State::Ask(_)
            | State::Compete(_)
            | State::Probe(_)
            | State::Yield(_) => self.hear(now, v, fresh, given),
        }
        self.keep_below(most);
    }

    /// What has just been marked does not raise the bound. A start has none, and follows what is
    /// proven.
    pub(super) fn keep_below(&mut self, most: Rate) {
        if !matches!(self.state, State::Start(_)) {
            self.bound = self.bound.min(most);
        }
    }

    /// Answers marks at the present rate, in cruise. If marks or losses in a queue came shortly
    /// before, somebody else keeps the queue full.
    fn step_back_from_marks(&mut self, now: Time, v: &Verdict, given: &Conditions) {
        if self.shares.note_loss(now, given.rtt) {
            self.shares.rival_until = now + REMEMBERS;
            self.compete_after_loss(now, v, Why::Rival, given);
        } else {
            self.hear(now, v, true, given);
        }
    }

    /// Cuts the window of a session that competes as for a loss: once a round trip, whatever was
    /// lost beside the marks.
    fn cut_for_marks(
        &mut self,
        mut compete: Compete,
        now: Time,
        v: &Verdict,
        fresh: bool,
        given: &Conditions,
    ) {
        compete.has_rival();
        compete.calm_since = None;
        if fresh {
            compete.window.handle_loss(now);
            self.bound = self.floored(compete.window.rate(given.rtt_least + v.delay), given.rtt);
            self.changed_pn = given.next_pn;
        }
        self.state = State::Compete(compete);
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU8;

    use gtp_alloc::{Bytes, Span};
    use proptest::prelude::*;

    use super::super::{Mode, Receipts, Sample};
    use super::*;

    const RTT: Span = Span::from_millis(40);

    /// A session whose receipts cover 50 ms each of what its bound sends, or of 20 Mbit/s.
    struct Session {
        path: PathBound,
        now: Time,
        pn: u64,
    }

    impl Session {
        fn new() -> Session {
            Session { path: PathBound::new(Time::ZERO), now: Time::ZERO, pn: 0 }
        }

        fn given(&self) -> Conditions {
            let (aim, interval) = (Rate::from_mbps(500), Span::from_millis(10));
            Conditions {
                aim,
                granted: aim,
                rtt: RTT,
                rtt_least: RTT,
                interval,
                next_pn: self.pn,
                idles: false,
                yields: false,
                flows: NonZeroU8::MIN,
            }
        }

        /// A receipt that is here once all its packets, and no others, have left.
        fn tell(&mut self, marked: u64, lost: u64, delay: Span) {
            let (sent_in, first_pn) = (Span::from_millis(50), self.pn);
            let sent = self.path.bound().min(Rate::from_mbps(20)).bytes_in(sent_in);
            self.pn += (sent.0 / 1_500).max(1);
            let lost = lost.min(self.pn - first_pn);
            let arrived = Bytes(sent.0 - sent.0 * lost / (self.pn - first_pn));
            let (whole, receipts) =
                (Sample::whole(sent, sent_in, first_pn..self.pn), Receipts::one(lost));
            let sample = Sample { arrived, delay, peak: delay, lost, marked, receipts, ..whole };
            self.now += sent_in;
            let given = self.given();
            self.path.note_proven(self.now, &sample, &given);
            self.path.handle_sample(self.now, sample, &given);
        }

        fn clean(&mut self, receipts: u64) {
            (0..receipts).for_each(|_| self.tell(0, 0, Span::ZERO));
        }

        fn mode(&self) -> Mode {
            self.path.standing().mode
        }
    }

    #[test]
    fn a_mark_ends_a_start_a_second_one_in_cruise_begins_to_compete_and_all_lower_the_bound() {
        let mut session = Session::new();
        session.clean(20);
        assert!(session.path.bound().is_unlimited());
        session.tell(1, 0, Span::ZERO);
        let start = session.path.bound();
        assert_eq!(session.mode(), Mode::Cruise);
        assert!(start < Rate::from_mbps(20), "{start}");
        session.clean(20);
        let cruise = session.path.bound();
        session.tell(1, 0, Span::ZERO);
        assert_eq!(session.mode(), Mode::Cruise);
        assert!(session.path.bound() < cruise.scale(0.96), "{} of {cruise}", session.path.bound());
        session.clean(20);
        let cruise = session.path.bound();
        session.tell(1, 0, Span::ZERO);
        assert_eq!(session.mode(), Mode::Compete);
        assert!(session.path.bound() < cruise.scale(0.75), "{} of {cruise}", session.path.bound());
    }

    #[test]
    fn a_session_that_competes_cuts_its_window_for_marks_as_for_a_loss_and_once_a_round_trip() {
        let after = |marked, lost| {
            let mut session = Session::new();
            session.clean(20);
            for _ in 0..3 {
                session.tell(1, 0, Span::ZERO);
                session.clean(10);
            }
            assert_eq!(session.mode(), Mode::Compete);
            let before = session.path.bound().as_f64();
            session.tell(marked, lost, Span::ZERO);
            (session.path.bound().as_f64() / before, session)
        };
        let (loss, _) = after(0, 20);
        let (mark, mut session) = after(1, 0);
        let (many, _) = after(30, 0);
        assert!((mark - loss).abs() < 0.02 && (many - mark).abs() < 0.02, "{mark} {loss} {many}");
        // What had left before the cut says no more.
        let (bound, pn) = (session.path.bound(), session.pn);
        session.path.changed_pn = pn + 1;
        session.tell(5, 0, Span::ZERO);
        let kept = session.path.bound().as_f64() / bound.as_f64();
        assert!((0.98..=1.0).contains(&kept), "{kept}");
    }

    #[test]
    fn a_mark_while_losses_are_tested_says_that_a_queue_drops_them() {
        let mut session = Session::new();
        session.clean(20);
        while session.mode() != Mode::Probe {
            session.tell(0, 5, Span::ZERO);
        }
        let before = session.path.bound();
        session.tell(1, 0, Span::ZERO);
        assert_eq!(session.mode(), Mode::Compete);
        assert!(session.path.bound() < before.scale(0.75), "{}", session.path.bound());
    }

    proptest! {
        #[test]
        fn no_receipt_with_marks_raises_a_bound(
            course in prop::collection::vec((0..4_u64, 0..30_u64, 0..60_u64), 1..300),
        ) {
            let mut session = Session::new();
            session.clean(10);
            for (marks, lost, delay) in course {
                let (before, mode) = (session.path.bound(), session.mode());
                let marked = marks.saturating_sub(1);
                session.tell(marked, lost.saturating_sub(20), Span::from_millis(delay / 2));
                let raised = session.path.bound() > before;
                let started = mode == Mode::Start;
                prop_assert!(!raised || marked == 0 || started, "{before} {mode:?}");
            }
        }
    }
}
