//! The window of RFC 9438 (CUBIC), as a rate: what a session sends beside others that fill the
//! queue.
//!
//! A TCP keeps to such a window, so a session that keeps to it too gets what one TCP gets. It grows
//! with what arrives and is cut at a loss. This module knows bytes and times; it must not know why
//! the session competes.

use core::num::NonZeroU8;

use gtp_alloc::{Rate, Span, Time};

/// Bytes of a segment, in which the RFC counts.
const SEGMENT: f64 = 1_500.0;
/// C of RFC 9438, section 5, in segments per cubic second.
const C: f64 = 0.4;
/// Beta of RFC 9438, section 4.6.
const BETA: f64 = 0.7;
/// Beta where successive cuts fall at one rate: nobody else is there, and a deep cut would only
/// leave the path idle. It still leaves room for a newcomer.
const BETA_SETTLED: f64 = 0.92;
/// After this number of cuts in a row at one window, nobody else is there.
const SETTLES: u32 = 3;
/// After a cut at which windows have settled, the window stays as it is for so long. Where nobody
/// else is, each attempt to get more costs a few packets and brings nothing.
const HOLDS: Span = Span::from_millis(1_500);
/// Two windows are one if they differ by less than this part.
const MOVES: f64 = 0.02;
/// Growth over a round trip before the first loss, as a part of the window. Slow start doubles it;
/// a session that competes already knows what it had.
const YOUNG: f64 = 0.125;
/// The most windows that one sample counts for. Part of a sample after a cut was sent before it.
const ROUNDS_MOST: f64 = 2.0;
/// The window never falls below so many segments.
const LEAST: f64 = 4.0;

/// The window of each flow that the session stands for, in bytes. All of them are alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    flows: f64,
    w: f64,
    w_max: f64,
    /// The window of the Reno-friendly region.
    w_est: f64,
    /// Seconds from the last cut until the window is `w_max` again.
    k: f64,
    cut_at: Time,
    /// Until then it does not grow.
    held_until: Time,
    /// No loss was seen yet.
    young: bool,
    /// The window at the last cut, and how often in a row it was about that.
    at_cut: (f64, u32),
}

impl Window {
    /// Windows of `flows` that were not cut yet and hold together what `rate` sends over `rtt`.
    pub fn young(now: Time, rate: Rate, rtt: Span, flows: NonZeroU8) -> Window {
        let flows = f64::from(flows.get());
        let w = (rate.as_f64() / 8.0 * rtt.as_secs_f64() / flows).max(LEAST * SEGMENT);
        let (w_max, w_est, at_cut) = (w, w, (w, 0));
        Window { flows, w, w_max, w_est, k: 0.0, cut_at: now, held_until: now, young: true, at_cut }
    }

    /// The same if it is known that losses begin here, and nobody else was seen.
    pub fn at_limit(self) -> Window {
        Window { at_cut: (self.w, SETTLES - 1), ..self }
    }

    /// The same after a cut to this part of it.
    pub fn cut_to(self, now: Time, part: f64) -> Window {
        let w = (self.w * part).max(LEAST * SEGMENT);
        let k = libm::cbrt((self.w_max - w).max(0.0) / SEGMENT / C);
        Window { w, w_est: w, k, cut_at: now, held_until: now, young: false, ..self }
    }

    /// A loss at `now`.
    pub fn handle_loss(&mut self, now: Time) {
        let (before, times) = self.at_cut;
        let alike = (self.w - before).abs() < MOVES * before;
        self.at_cut = (self.w, if alike { times + 1 } else { 0 });
        let settled = self.at_cut.1 >= SETTLES;
        // Fast convergence, RFC 9438, section 4.7.
        let yields = self.w < self.w_max && !settled;
        let yielded = 1.0 - (1.0 - BETA) / 2.0 / self.flows;
        self.w_max = if yields { self.w * yielded } else { self.w };
        // A loss cuts one flow's window.
        let left = if settled { BETA_SETTLED } else { BETA };
        *self = self.cut_to(now, 1.0 - (1.0 - left) / self.flows);
        if settled {
            self.held_until = now + HOLDS;
        }
    }

    /// `arrived` bytes came without loss, over a path of `rtt` with its queue.
    pub fn handle_arrived(&mut self, now: Time, arrived: f64, rtt: Span) {
        let rounds = (arrived / self.flows / self.w).min(ROUNDS_MOST);
        let part = rounds.min(1.0);
        if self.young {
            self.w += YOUNG * part * self.w;
            return;
        }
        if now < self.held_until {
            return;
        }
        let t = now.since(self.held_until).as_secs_f64() + rtt.as_secs_f64() - self.k;
        let curve = C * t * t * t * SEGMENT + self.w_max;
        // Alpha of RFC 9438, section 4.3.
        let alpha = if self.w_est < self.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_est += alpha * SEGMENT * rounds;
        let target = curve.clamp(self.w, 1.5 * self.w);
        self.w = (self.w + (target - self.w) * part).max(self.w_est);
    }

    /// Keeps the window to what `rate` sends over `rtt`: what hosts do not give is not asked for.
    pub fn keep_to(&mut self, rate: Rate, rtt: Span) {
        let most = rate.as_f64() / 8.0 * rtt.as_secs_f64() / self.flows;
        self.w = self.w.min(most.max(LEAST * SEGMENT));
        self.w_est = self.w_est.min(self.w);
    }

    /// Whether it has grown beyond what it was before its last cut: what the path carries has not
    /// been found.
    pub fn is_beyond(&self) -> bool {
        self.young || self.w > 1.1 * self.at_cut.0
    }

    /// When it was cut last.
    pub fn cut_at(&self) -> Time {
        self.cut_at
    }

    /// What all flows send over a path of `rtt` with its queue.
    pub fn rate(&self, rtt: Span) -> Rate {
        Rate::from_f64(self.flows * self.w * 8.0 / rtt.as_secs_f64().max(1e-4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(40);

    /// A window of 100 Mbit/s that is cut once.
    fn cut() -> Window {
        let mut window = Window::young(Time::ZERO, Rate::from_mbps(100), RTT, NonZeroU8::MIN);
        window.handle_loss(Time::ZERO);
        window
    }

    #[test]
    fn a_loss_leaves_seven_tenths_and_the_curve_leads_back_in_k_seconds() {
        let mut window = cut();
        assert!((window.rate(RTT).as_f64() / 70e6 - 1.0).abs() < 1e-6);
        // RFC 9438, figure 2: K is the cube root of (W_max - cwnd) / C, in segments.
        let k = libm::cbrt(0.3 * 500_000.0 / SEGMENT / C);
        let mut now = Time::ZERO;
        while now.since(Time::ZERO).as_secs_f64() < k {
            now += RTT;
            window.handle_arrived(now, window.w, RTT);
        }
        let back = window.rate(RTT).as_f64() / 100e6;
        assert!((0.98..1.02).contains(&back), "{back}");
        assert!(!window.is_beyond());
    }

    #[test]
    fn cuts_at_one_rate_become_shallow_and_one_at_another_is_deep_again() {
        let mut window = cut();
        for _ in 0..SETTLES {
            window.w = 500_000.0;
            window.handle_loss(Time::ZERO);
        }
        assert!((window.w / 500_000.0 - BETA_SETTLED).abs() < 1e-9, "{}", window.w);
        window.w = 400_000.0;
        window.handle_loss(Time::ZERO);
        assert!((window.w / 400_000.0 - BETA).abs() < 1e-9, "{}", window.w);
    }

    #[test]
    fn several_flows_grow_by_as_much_together_and_lose_a_part_of_one_at_a_cut() {
        let four = NonZeroU8::new(4).unwrap();
        let mut window = Window::young(Time::ZERO, Rate::from_mbps(100), RTT, four);
        let mut alone = Window::young(Time::ZERO, Rate::from_mbps(25), RTT, NonZeroU8::MIN);
        window.handle_loss(Time::ZERO);
        assert!((window.rate(RTT).as_f64() / 92.5e6 - 1.0).abs() < 1e-6);
        alone = alone.cut_to(Time::ZERO, 0.925);
        // A second loss before the window is back makes room: still it is one flow's room.
        window.handle_loss(Time::ZERO);
        assert!(window.w < window.w_max, "{window:?}");
        window = Window { w: alone.w, w_max: alone.w_max, ..window }.cut_to(Time::ZERO, 1.0);
        let mut now = Time::ZERO;
        for _ in 0..50 {
            now += RTT;
            window.handle_arrived(now, 4.0 * window.w, RTT);
            alone.handle_arrived(now, alone.w, RTT);
        }
        assert!((window.rate(RTT).as_f64() / alone.rate(RTT).as_f64() / 4.0 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_young_window_grows_by_an_eighth_each_round_trip() {
        let mut window = Window::young(Time::ZERO, Rate::from_mbps(8), RTT, NonZeroU8::MIN);
        window.handle_arrived(Time::ZERO, window.w, RTT);
        assert!((window.rate(RTT).as_f64() / 9e6 - 1.0).abs() < 1e-6);
        assert!(window.is_beyond());
    }
}
