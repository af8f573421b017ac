//! Competing: what a TCP would send, beside others that keep the queue full.
//!
//! From time to time it is asked again whose queue it is: a rival may have left, and two sessions
//! that both compete would keep a queue for nobody.

use gtp_alloc::{Rate, Span, Time};

use super::measures::{RANDOM_MOST, RANDOM_SURE, Verdict};
use super::retry::Retry;
use super::sample::{Conditions, Sample};
use super::window::Window;
use super::{LIFT, PathBound, State};

/// The first wait between two questions, and the longest.
const ASK_EVERY: Span = Span::from_secs(4);
const ASK_EVERY_MOST: Span = Span::from_secs(16);
/// A shorter queue may be gone by chance.
const ASKABLE: Span = Span::from_millis(20);
/// Without queue and loss for so long, there is nobody to compete with.
const CALM: Span = Span::from_secs(1);
const CALM_ROUNDS: u64 = 16;
/// Losses that came whatever was sent have stopped if there are none for so long.
const STOPPED_ROUNDS: u64 = 4;
/// Losses at less than this part of the rate at which they seemed to begin are chance after all.
const FAR_BELOW: f64 = 0.75;
/// The same where more is lost than is usually random: such losses may come from many sessions, and
/// shrink once each competes.
const VERY_FAR_BELOW: f64 = 0.25;

/// Why a session competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody else keeps the queue full, or fills it as often as the session itself.
    Rival,
    /// Losses were found to begin at the rate at which it began to compete.
    Limit,
    /// More was lost than may be random, without a queue and whatever it sent, while this arrived.
    /// It ends with the losses, for nothing else spoke of a rival.
    Losses(Rate),
}

/// A session that competes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compete {
    pub window: Window,
    asked_at: Time,
    ask_every: Span,
    /// Since when there was neither a queue nor a loss that chance does not explain.
    pub calm_since: Option<Time>,
    /// The rate at which it began to compete.
    began: Rate,
    why: Why,
    /// Packets since then without a queue, and how many of them were lost.
    packets: u64,
    /// See `packets`.
    lost: u64,
    /// Whether losses still begin at that rate, while it is tested.
    pub retry: Option<Retry>,
}

impl PathBound {
    /// Begins to compete with `window` over a path of `rtt` with its queue.
    pub(super) fn compete_with(
        &mut self,
        now: Time,
        window: Window,
        rtt: Span,
        given: &Conditions,
    ) {
        self.begin_competing(now, window, rtt, Why::Rival, given);
    }

    /// Begins to compete for this reason.
    pub(super) fn begin_competing(
        &mut self,
        now: Time,
        window: Window,
        rtt: Span,
        why: Why,
        given: &Conditions,
    ) {
        if given.yields {
            self.give_way(now, window.rate(rtt), given);
            return;
        }
        let (asked_at, ask_every, calm_since, began) = (now, ASK_EVERY, None, window.rate(rtt));
        let (packets, lost) = (0, 0);
        let retry = None;
        let compete =
            Compete { window, asked_at, ask_every, calm_since, began, why, packets, lost, retry };
        self.state = State::Compete(compete);
        self.set_bound(window.rate(rtt), given);
    }

    /// The rival is still there.
    pub(super) fn go_on_competing(&mut self, now: Time, back: Compete, given: &Conditions) {
        let ask_every = (back.ask_every * 3 / 2).min(ASK_EVERY_MOST);
        self.state = State::Compete(Compete { asked_at: now, ask_every, ..back });
        self.set_bound(back.window.rate(given.rtt), given);
    }

    /// A receipt while it competes moves the window on, as an acknowledgement moves a TCP's. It
    /// grows by what arrives of what left after the last cut, and its rate follows the queue.
    pub(super) fn clock_window(&mut self, now: Time, sample: &Sample, given: &Conditions) {
        let State::Compete(mut compete) = self.state else { return };
        if compete.retry.is_some() {
            return;
        }
        let rtt = given.rtt_least + sample.delay;
        if sample.first_pn >= self.changed_pn {
            compete.window.handle_arrived(now, sample.arrived.0 as f64, rtt);
        }
        compete.window.keep_to(self.most(&compete, given), rtt);
        self.bound = self.floored(compete.window.rate(rtt), given.rtt);
        self.state = State::Compete(compete);
    }

    /// A sample while it competes; `fresh` if it shows the path after the last cut.
    pub(super) fn compete(
        &mut self,
        mut compete: Compete,
        now: Time,
        v: &Verdict,
        fresh: bool,
        given: &Conditions,
    ) {
        let rtt = given.rtt_least + v.delay;
        if given.yields {
            self.give_way(now, v.carried.min(self.bound), given);
            return;
        }
        if !v.queued {
            (compete.packets, compete.lost) = (compete.packets + v.packets, compete.lost + v.lost);
        }
        if self.is_calm(&mut compete, now, v, given) {
            self.shares.unsettle();
            match compete.why {
                Why::Losses(level) => self.resume(level, given),
                Why::Rival | Why::Limit => self.resume(v.carried.min(self.bound), given),
            }
            return;
        }
        if compete.why == Why::Limit && self.retry_limit(&mut compete, now, v, fresh, given) {
            return;
        }
        if v.unusual && fresh {
            if self.may_be_chance(&compete, now, v) {
                self.doubt(&compete, now, v, given);
                return;
            }
            compete.window.handle_loss(now);
            if compete.why == Why::Limit && !self.lower_limit(now, v.carried) {
                compete.has_rival();
            }
            self.changed_pn = given.next_pn;
        }
        compete.window.keep_to(self.most(&compete, given), rtt);
        self.bound = self.floored(compete.window.rate(rtt), given.rtt);
        self.state = State::Compete(compete);
        if compete.is_to_ask(now, v) {
            let v = Verdict { carried: self.bound.min(v.carried), ..*v };
            self.ask(now, &v, Some(compete), given);
        }
    }

    /// The losses are hardly a rival's: it is tested whether they are random, or known to be if a
    /// test has led here.
    fn doubt(&mut self, compete: &Compete, now: Time, v: &Verdict, given: &Conditions) {
        if compete.why == Why::Limit {
            let loss = compete.lost as f64 / compete.packets.max(1) as f64;
            self.measures.note_random(now, loss, compete.packets);
            self.lift(given);
        } else {
            self.probe(now, v, v.loss(), given);
            self.goes_back_to(compete.began);
        }
    }

    /// Whether a queue has stayed away for so long that it is not worth competing for.
    fn is_calm(&self, compete: &mut Compete, now: Time, v: &Verdict, given: &Conditions) -> bool {
        if v.queued || v.excess {
            compete.calm_since = None;
            if v.queued {
                compete.has_rival();
            }
            return false;
        }
        let since = *compete.calm_since.get_or_insert(now);
        let for_losses = matches!(compete.why, Why::Losses(_));
        let rounds = if for_losses { STOPPED_ROUNDS } else { CALM_ROUNDS };
        let long = now.since(since) > (given.rtt * rounds).max(CALM);
        long && (compete.window.is_beyond() || for_losses)
    }

    /// The most that the window may send: what both ends would give, and no more than a limit.
    fn most(&self, compete: &Compete, given: &Conditions) -> Rate {
        let aim = Rate::from_f64(LIFT * given.aim.as_f64());
        let limit = self.limit.filter(|_| compete.why == Why::Limit);
        limit.map_or(aim, |limit| aim.min(limit.keeps_to()))
    }

    /// Whether losses come far below the rate at which they led to competing, and without a queue.
    fn may_be_chance(&mut self, compete: &Compete, now: Time, v: &Verdict) -> bool {
        let far = if v.loss() < RANDOM_SURE { FAR_BELOW } else { VERY_FAR_BELOW };
        let below = v.carried < compete.began.scale(far) && v.loss() < RANDOM_MOST;
        !v.dropped && below && !self.measures.had_queue(now)
    }
}

impl Compete {
    /// From now on it competes with a rival, so no limit is tested.
    pub(super) fn has_rival(&mut self) {
        (self.why, self.retry) = (Why::Rival, None);
    }

    /// Whether it is time to ask whose queue it is: after a cut, which asks less of a session, or
    /// when there was none for long.
    fn is_to_ask(&self, now: Time, v: &Verdict) -> bool {
        let cut_at = self.window.cut_at();
        let waits = if cut_at == now { self.ask_every } else { self.ask_every * 2 };
        let apart = cut_at == now || now.since(cut_at) >= self.ask_every;
        // A rival that fills even a short queue soon causes a loss; without one, ask.
        let long = v.delay > ASKABLE || v.queued && now.since(cut_at) >= self.ask_every * 2;
        long && apart && now.since(self.asked_at) >= waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::num::NonZeroU8;
    use gtp_alloc::Bytes;

    const RTT: Span = Span::from_millis(40);
    const GIVEN: Conditions = Conditions {
        aim: Rate::UNLIMITED,
        granted: Rate::UNLIMITED,
        rtt: RTT,
        rtt_least: RTT,
        interval: Span::from_millis(5),
        next_pn: 0,
        idles: false,
        yields: false,
        flows: NonZeroU8::MIN,
    };

    /// A session that competes with a window of what `rate` sends in a round trip, and was cut.
    fn competing(rate: Rate) -> PathBound {
        let mut path = PathBound::new(Time::ZERO);
        let mut window = Window::young(Time::ZERO, rate, RTT, NonZeroU8::MIN);
        window.handle_loss(Time::ZERO);
        path.compete_with(Time::ZERO, window, RTT, &GIVEN);
        path
    }

    /// A receipt of 5 ms of what the path's bound sends, with a queue of this delay.
    fn receipt(path: &PathBound, pn: u64, delay: Span) -> Sample {
        let sent_in = Span::from_millis(5);
        let sent = path.bound().bytes_in(sent_in).max(Bytes(1_500));
        let whole = Sample::whole(sent, sent_in, pn..pn + 1 + sent.0 / 1_500);
        Sample { delay, peak: delay, ..whole }
    }

    #[test]
    fn each_receipt_moves_the_rate_with_the_queue_as_a_window_does() {
        let mut path = competing(Rate::from_mbps(20));
        let rate = |path: &mut PathBound, delay: Span| {
            let sample = receipt(path, 0, delay);
            path.handle_sample(Time::ZERO, sample, &GIVEN);
            path.bound().as_f64()
        };
        let empty = rate(&mut path, Span::ZERO);
        let full = rate(&mut path, RTT);
        assert!((empty / full - 2.0).abs() < 0.1, "{empty} {full}");
    }

    #[test]
    fn a_session_with_few_packets_grows_by_as_much_in_a_second_as_one_with_many() {
        let grown: Vec<f64> = [1, 16]
            .map(|mbps| {
                let (mut path, mut now, mut pn) = (competing(Rate::from_mbps(mbps)), Time::ZERO, 0);
                let before = path.bound().as_f64();
                while now < Time::ZERO + Span::from_secs(1) {
                    now += Span::from_millis(5);
                    let sample = receipt(&path, pn, Span::ZERO);
                    pn = sample.end_pn;
                    path.handle_sample(now, sample, &Conditions { next_pn: pn, ..GIVEN });
                }
                path.bound().as_f64() - before
            })
            .into();
        assert!((0.5..2.0).contains(&(grown[0] / grown[1])), "{grown:?}");
    }
}
