//! What an acknowledgment or a ring of the timer does to a sender: fast retransmit, fast recovery
//! with and without blocks, slow start after a timeout.
//!
//! A window inflated by duplicates (RFC 5681, 3.2) and a pipe reduced by them are the same
//! inequality: `out < window + duplicates`. The engine keeps the window as it is and takes the
//! duplicates from the pipe, so that the three ways of recovery share one rule for sending.

use gtp_alloc::Time;

use super::{Counting, Recovery, Sender, Timing, Urgent};
use crate::Note;
use crate::tcp::board::Board;
use crate::tcp::flight::Harvest;
use crate::tcp::law::{AckView, Fullness, LossView, Phase};
use crate::tcp::segment::Ack;

/// The sender before an acknowledgment was worked in.
struct Before {
    first: u64,
    pipe: u64,
    lost: u64,
    limit: u64,
    fullness: Fullness,
}

/// What an acknowledgment did to a recovery.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    /// A recovery began or ended: the window is set and does not grow as well.
    Changed,
}

impl Sender {
    pub(super) fn take_ack(&mut self, now: Time, ack: &Ack) {
        if self.phase == Phase::Opening || ack.next > self.board.next() {
            return;
        }
        if ack.echo != Note::None {
            self.law.handle_note(now, &ack.echo, &mut self.window);
        }
        let before = Before {
            first: self.board.first(),
            pipe: self.pipe(),
            lost: self.board.lost(),
            limit: self.limit,
            fullness: self.fullness(),
        };
        self.limit = self.limit.max(ack.limit);
        let harvest = self.take_arrivals(now, ack);
        let acked = self.board.first() - before.first;
        self.count_duplicates(ack, acked, &before);
        let turn = self.turn(now, acked);
        self.set_timer(now, acked);
        let view = self.view(now, acked, &before, harvest);
        self.law.observe(&view, &mut self.window);
        if acked == 0 {
            return;
        }
        let growing = match self.phase {
            Phase::Open | Phase::Timeout => true,
            Phase::Opening | Phase::Recovery => false,
        };
        if growing && turn == Turn::None && view.fullness == Fullness::Full {
            self.law.grow(&view, &mut self.window);
        }
        if self.board.first() >= self.round_end {
            self.round_end = self.board.next();
            self.law.handle_round(&view, &mut self.window);
        }
    }

    /// The timer has rung while segments were out: RFC 5681, 3.1 and RFC 6298, 5.4 to 5.6.
    pub(super) fn time_out(&mut self, now: Time) {
        self.timeouts += 1;
        // A second timeout for the same segment leaves the threshold alone.
        if self.timed_out_at == Some(self.board.first()) {
            self.law.handle_timeout_again(&mut self.window);
        } else {
            self.timed_out_at = Some(self.board.first());
            let loss = self.loss_view(now);
            self.law.handle_timeout(&loss, &mut self.window);
        }
        self.phase = Phase::Timeout;
        self.mark_lost(now, |board, each| board.lose_all(each));
        self.duplicates = 0;
        self.partials = 0;
        self.recover = self.board.next();
        self.urgent = Urgent::Repeat;
        self.paced_at = now;
    }

    fn take_arrivals(&mut self, now: Time, ack: &Ack) -> Harvest {
        let mut harvest = Harvest::default();
        let Sender { board, flight, .. } = self;
        board.acknowledge(ack.next, |n| flight.arrive(now, n, &mut harvest));
        if self.config.recovery == Recovery::Sack {
            for block in ack.blocks.iter().filter(|block| !block.is_empty()) {
                board.take_block(block.clone(), |n| flight.arrive(now, n, &mut harvest));
            }
            board.remember(ack.blocks.clone());
            self.mark_lost(now, |board, each| board.find_lost(THRESHOLD, each));
        }
        harvest
    }

    /// Tells the law of each segment that `find` marks as lost.
    fn mark_lost(&mut self, now: Time, find: impl FnOnce(&mut Board, &mut dyn FnMut(u64))) {
        let Sender { board, flight, law, window, .. } = self;
        find(board, &mut |n| {
            if let Some(lost) = flight.lose(now, n) {
                law.handle_lost(&lost, window);
            }
        });
    }

    /// Without blocks, a duplicate says that some segment has left the path.
    fn count_duplicates(&mut self, ack: &Ack, acked: u64, before: &Before) {
        match self.config.recovery {
            Recovery::Sack => return,
            Recovery::Reno | Recovery::NewReno => {}
        }
        let duplicate = acked == 0
            && ack.next == self.board.first()
            && self.board.outstanding() > 0
            && ack.limit == before.limit;
        match self.phase {
            Phase::Open if acked > 0 => self.duplicates = 0,
            // RFC 6582, 3.2, step 3: deflate by what is acknowledged, less one.
            Phase::Recovery if acked > 0 => {
                self.duplicates = self.duplicates.saturating_sub(acked - 1);
            }
            Phase::Open | Phase::Recovery if duplicate => self.duplicates += 1,
            Phase::Opening | Phase::Open | Phase::Recovery | Phase::Timeout => {}
        }
        self.duplicates = self.duplicates.min(self.board.outstanding().saturating_sub(1));
    }

    /// Ends a recovery that is complete, and begins one if losses show.
    fn turn(&mut self, now: Time, acked: u64) -> Turn {
        let mut turn = Turn::None;
        match self.phase {
            Phase::Recovery if acked > 0 => {
                let complete = self.board.first() >= self.recover;
                match self.config.recovery {
                    Recovery::Sack | Recovery::NewReno if complete => self.finish(now),
                    Recovery::Reno => self.finish(now),
                    Recovery::NewReno => {
                        self.partials += 1;
                        self.mark_lost(now, |board, each| board.lose_first(each));
                        self.urgent = Urgent::Repeat;
                    }
                    Recovery::Sack => {}
                }
                if self.phase == Phase::Open {
                    turn = Turn::Changed;
                }
            }
            Phase::Timeout if self.board.first() >= self.recover => self.phase = Phase::Open,
            Phase::Opening | Phase::Open | Phase::Recovery | Phase::Timeout => {}
        }
        if self.phase == Phase::Open && self.loss_shows() {
            self.begin(now);
            turn = Turn::Changed;
        }
        turn
    }

    fn loss_shows(&self) -> bool {
        match self.config.recovery {
            Recovery::Sack => self.board.lost() > 0,
            // RFC 6582, 3.2, step 1: not again for what was out at the last loss. For Reno that is
            // the last timeout only.
            Recovery::Reno | Recovery::NewReno => {
                let settled = self.board.first() > self.recover || self.recover == 0;
                self.duplicates >= THRESHOLD && settled
            }
        }
    }

    fn begin(&mut self, now: Time) {
        self.recoveries += 1;
        self.partials = 0;
        self.phase = Phase::Recovery;
        let loss = self.loss_view(now);
        self.law.handle_loss(&loss, &mut self.window);
        self.urgent = Urgent::Repeat;
        match self.config.recovery {
            Recovery::Sack => self.recover = self.board.next(),
            Recovery::NewReno => {
                self.recover = self.board.next();
                self.mark_lost(now, |board, each| board.lose_first(each));
            }
            Recovery::Reno => self.mark_lost(now, |board, each| board.lose_first(each)),
        }
    }

    fn finish(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.urgent = Urgent::Nothing;
        self.law.handle_recovered(now, &mut self.window);
    }

    fn set_timer(&mut self, now: Time, acked: u64) {
        if acked == 0 {
            return;
        }
        if self.board.outstanding() == 0 {
            self.timer.stop();
        } else if self.partials <= 1 || self.phase != Phase::Recovery {
            // RFC 6582, 4: the impatient variant restarts it at the first partial acknowledgment
            // only.
            self.timer.restart(now);
        }
    }

    fn view(&mut self, now: Time, acked: u64, before: &Before, harvest: Harvest) -> AckView {
        let rtt = match self.config.timing {
            Timing::Once => self.flight.rtt(now, &harvest),
            Timing::Stamps if acked > 0 => self.flight.since_first(now),
            Timing::Stamps => None,
        };
        if let Some(rtt) = rtt {
            self.timer.measure(rtt, self.board.outstanding());
            if self.is_new_measured() {
                self.timer.relax();
            }
        }
        let delivery = self.flight.sample(&harvest, self.timer.least());
        self.flight.advance(self.board.first());
        let credit = match self.config.counting {
            Counting::Acks => 1.0,
            // RFC 3465, 2.2 and 2.3: two in slow start, one after a timeout.
            Counting::Segments => match self.phase {
                Phase::Timeout => acked.min(1) as f64,
                Phase::Open if self.window.in_slow_start() => acked.min(2) as f64,
                Phase::Opening | Phase::Open | Phase::Recovery => acked as f64,
            },
        };
        AckView {
            now,
            phase: self.phase,
            credit,
            acked,
            arrived: harvest.arrived,
            lost: self.board.lost().saturating_sub(before.lost),
            rtt,
            smoothed_rtt: self.timer.smoothed(),
            least_rtt: self.timer.least().unwrap_or_default(),
            pipe_before: before.pipe,
            pipe: self.pipe(),
            first: self.board.first(),
            next: self.board.next(),
            fullness: before.fullness,
            delivered: self.flight.delivered(),
            delivery,
        }
    }

    /// Whether the round trip just measured ends the timer's backing off.
    fn is_new_measured(&self) -> bool {
        match self.config.timing {
            Timing::Once => true,
            // In ns-2 the first segment that is sent after the timer rang, and was not before, has
            // to be acknowledged, unless `ts_resetRTO_` is set.
            Timing::Stamps => self.timeouts == 0 || self.board.first() > self.recover,
        }
    }

    fn loss_view(&self, now: Time) -> LossView {
        LossView {
            now,
            window: self.window.size.min(self.board.outstanding() as f64),
            pipe: self.pipe(),
            next: self.board.next(),
            delivered: self.flight.delivered(),
        }
    }
}

/// Duplicates, or segments arrived above a gap, that show a loss (RFC 5681, 3.2; RFC 6675, 2).
const THRESHOLD: u64 = 3;
