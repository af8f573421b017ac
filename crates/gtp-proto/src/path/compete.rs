//! Competing: what a TCP would send, beside others that keep the queue full.
//!
//! From time to time it is asked again whose queue it is: a rival may have left, and two sessions
//! that both compete would keep a queue for nobody.

use gtp_alloc::{Rate, Span, Time};

use super::measures::{RANDOM_MOST, Verdict};
use super::retry::Retry;
use super::sample::Conditions;
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
/// Losses at less than this part of the rate at which they seemed to begin are chance after all.
const FAR_BELOW: f64 = 0.75;

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
    /// Whether losses were found to begin at that rate, and that is why it competes.
    limit: bool,
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
        self.begin_competing(now, window, rtt, false, given);
    }

    /// The same; `limit` if it does because losses were found to begin at the window's rate.
    pub(super) fn begin_competing(
        &mut self,
        now: Time,
        window: Window,
        rtt: Span,
        limit: bool,
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
            Compete { window, asked_at, ask_every, calm_since, began, limit, packets, lost, retry };
        self.state = State::Compete(compete);
        self.set_bound(window.rate(rtt), given);
    }

    /// The rival is still there.
    pub(super) fn go_on_competing(&mut self, now: Time, back: Compete, given: &Conditions) {
        let ask_every = (back.ask_every * 3 / 2).min(ASK_EVERY_MOST);
        self.state = State::Compete(Compete { asked_at: now, ask_every, ..back });
        self.set_bound(back.window.rate(given.rtt), given);
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
            self.resume(v.carried.min(self.bound), given);
            return;
        }
        if compete.limit && self.retry_limit(&mut compete, now, v, fresh, given) {
            return;
        }
        if v.excess && fresh {
            if self.may_be_chance(&compete, now, v) {
                self.doubt(&compete, now, v, given);
                return;
            }
            compete.window.handle_loss(now);
            compete.limit = compete.limit && self.lower_limit(now, v.carried);
            self.changed_pn = given.next_pn;
        } else if !v.excess {
            compete.window.handle_arrived(now, v.arrived, rtt);
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
        if compete.limit {
            let loss = compete.lost as f64 / compete.packets.max(1) as f64;
            self.measures.note_random(now, loss, compete.packets);
            self.lift(given);
        } else {
            self.probe(now, v, v.loss(), given);
        }
    }

    /// Whether a queue has stayed away for so long that it is not worth competing for.
    fn is_calm(&self, compete: &mut Compete, now: Time, v: &Verdict, given: &Conditions) -> bool {
        if v.queued || v.excess {
            compete.calm_since = None;
            compete.limit &= !v.queued;
            return false;
        }
        let since = *compete.calm_since.get_or_insert(now);
        let long = now.since(since) > (given.rtt * CALM_ROUNDS).max(CALM);
        long && compete.window.is_beyond()
    }

    /// The most that the window may send: what both ends would give, and no more than a limit.
    fn most(&self, compete: &Compete, given: &Conditions) -> Rate {
        let aim = Rate::from_f64(LIFT * given.aim.as_f64());
        let limit = self.limit.filter(|_| compete.limit);
        limit.map_or(aim, |limit| aim.min(limit.keeps_to()))
    }

    /// Whether losses come far below the rate at which they led to competing, and without a queue.
    fn may_be_chance(&mut self, compete: &Compete, now: Time, v: &Verdict) -> bool {
        let below = v.carried < compete.began.scale(FAR_BELOW);
        !v.dropped && below && v.loss() < RANDOM_MOST && !self.measures.had_queue(now)
    }
}

impl Compete {
    /// There is a queue: it is worth competing, and not because of a limit.
    pub(super) fn note_queue(&mut self) {
        (self.calm_since, self.limit) = (None, false);
    }

    /// Whether it is time to ask whose queue it is: after a cut, which asks less of a session, or
    /// when there was none for long.
    fn is_to_ask(&self, now: Time, v: &Verdict) -> bool {
        let cut_at = self.window.cut_at();
        let waits = if cut_at == now { self.ask_every } else { self.ask_every * 2 };
        let apart = cut_at == now || now.since(cut_at) >= self.ask_every;
        v.delay > ASKABLE && apart && now.since(self.asked_at) >= waits
    }
}
