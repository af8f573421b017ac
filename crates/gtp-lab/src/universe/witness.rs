//! What the packets of a world bear witness of: when each source sent, and what came back to it.
//!
//! Shares are shares of sending: what a link loses was sent (thesis, VI.2.A). And a source that
//! hears nothing for 200 ms must slow down, however good its grant (docs/PROTOCOL.md, M56): where a
//! world's bursts of loss swallow all feedback for that long, the protocol is right to be slow.
//! That it was the links that were silent, and not the sink, is read off the packets too.

use gtp_alloc::{Span, Time};
use gtp_proto::limits::{INTERVAL_MAX, LEASE_MIN};
use gtp_sim::trace::{PacketTrace, What};

use crate::scenario::model::Scenario;

/// What is known of one session's packets.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    /// When data packets were sent, in order.
    pub sent: Vec<Time>,
    /// When a source sent something else, and its IP bytes, in order.
    said: Vec<(Time, u64)>,
    /// When data packets were lost, in order.
    pub lost: Vec<Time>,
    /// When the sink sent feedback, in order.
    told: Vec<Time>,
    /// What feedback reached the source, in the order in which it did.
    heard: Vec<Heard>,
}

/// Feedback that reached the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    /// When the sink sent it.
    told: Time,
    at: Time,
}

/// A time over which a source heard nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since when it had to be slower.
    pub from: Time,
    /// When it heard again.
    pub to: Time,
}

impl Silence {
    /// Whether the source had to let go of a part of its share at least, which was others' then
    /// (docs/CLAIMS.md): a lease lasts for four intervals, each half a round trip `trip`.
    pub fn outlasts_lease(&self, trip: Span) -> bool {
        let lease = (trip * 2).min(INTERVAL_MAX * 4).max(LEASE_MIN);
        self.to.since(self.from) + LEASE_MIN > lease
    }
}

/// What a packet is to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Other,
    Data(usize),
    /// Of this session, sent at this time.
    Feedback(usize, Time),
}

/// IP bytes of the shortest feedback; a request is as long only if it names seven ranges.
const FEEDBACK_LEAST: u64 = 126;

/// A sink that speaks each interval, the longest being 100 ms, speaks this often even if its timer
/// is late by half.
const SPEAKS: Span = Span::from_millis(150);

/// All sessions' witnesses.
pub fn witnesses(scenario: &Scenario, trace: &PacketTrace) -> Vec<Witness> {
    let mut all = vec![Witness::default(); scenario.sessions.len()];
    // Packets and copies are named by numbers from 1 on.
    let mut roles = vec![Role::Other];
    let mut note = |packet: u64, role: Role| {
        let place = packet as usize;
        if roles.len() <= place {
            roles.resize(place + 1, Role::Other);
        }
        let known = roles[place];
        if role != Role::Other {
            roles[place] = role;
        }
        known
    };
    for record in &trace.records {
        match record.what {
            What::Sent => {
                let k = record.place as usize / 2;
                let Some(session) = scenario.sessions.get(k) else { continue };
                let to_sink = record.place % 2 == 1;
                let whole = record.size.0 > u64::from(session.unit);
                if to_sink && whole {
                    all[k].sent.push(record.at);
                    note(record.packet, Role::Data(k));
                } else if to_sink {
                    all[k].said.push((record.at, record.size.0));
                } else if !whole && record.size.0 >= FEEDBACK_LEAST {
                    all[k].told.push(record.at);
                    note(record.packet, Role::Feedback(k, record.at));
                }
            }
            What::Copied { of } => {
                // A copy of feedback is as good; one of data replaces nothing.
                if let Role::Feedback(k, told) = note(of, Role::Other) {
                    note(record.packet, Role::Feedback(k, told));
                }
            }
            What::Dropped(_) | What::TurnedAway => {
                if let Role::Data(k) = note(record.packet, Role::Other) {
                    all[k].lost.push(record.at);
                }
            }
            What::Delivered => {
                if let Role::Feedback(k, told) = note(record.packet, Role::Other) {
                    all[k].heard.push(Heard { told, at: record.at });
                }
            }
            What::Accepted { .. } | What::Moved { .. } | What::Arrived | What::Refused => {}
        }
    }
    all
}

impl Witness {
    /// One of these data packets alone.
    #[cfg(test)]
    pub fn sending(sent: Vec<Time>) -> Witness {
        Witness { sent, ..Witness::default() }
    }

    /// Times over which the source had to be slower because links lost all that the sink told it.
    /// A sink that itself was silent excuses nothing.
    pub fn silences(&self, end: Time) -> Vec<Silence> {
        let ends = self.heard.iter().skip(1).copied().chain([Heard { told: end, at: end }]);
        (self.heard.iter().zip(ends))
            .filter(|(last, next)| next.at.since(last.at) > LEASE_MIN)
            .filter(|(last, next)| self.spoke_in_vain(last.told, next.told))
            .map(|(last, next)| Silence { from: last.at + LEASE_MIN, to: next.at })
            .collect()
    }

    /// Whether the sink went on speaking between two of its feedbacks that were heard one after the
    /// other: what it said there did not arrive, or only after what it said later.
    fn spoke_in_vain(&self, last: Time, next: Time) -> bool {
        let first = self.told.partition_point(|at| *at <= last);
        let between: Vec<Time> =
            self.told[first..].iter().copied().take_while(|at| *at < next).collect();
        let mut times = vec![last];
        times.extend(&between);
        times.push(next);
        !between.is_empty() && times.windows(2).all(|pair| pair[1].since(pair[0]) <= SPEAKS)
    }

    /// Data packets sent within `(end - window, end]`.
    pub fn sent_within(&self, window: Span, end: Time) -> usize {
        within(&self.sent, window, end)
    }

    /// IP bytes that the source sent within `(end - window, end]` beside its data.
    pub fn said_within(&self, window: Span, end: Time) -> u64 {
        let upto = |at: Time| self.said.partition_point(|(sent, _)| *sent <= at);
        let all = &self.said[upto(end.saturating_sub(window))..upto(end)];
        all.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The most data packets sent within `window` at any time after `from`.
    pub fn most_within(&self, window: Span, from: Time) -> usize {
        let late = &self.sent[self.sent.partition_point(|at| *at <= from)..];
        let upto = |end: &Time| within(late, window, *end);
        late.iter().map(upto).max().unwrap_or(0)
    }

    /// Data packets lost within `(end - window, end]`.
    pub fn lost_within(&self, window: Span, end: Time) -> usize {
        within(&self.lost, window, end)
    }
}

fn within(times: &[Time], window: Span, end: Time) -> usize {
    let begin = Time::from_nanos(end.as_nanos().saturating_sub(window.as_nanos()));
    times.partition_point(|at| *at <= end) - times.partition_point(|at| *at <= begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    /// Feedback told each 50 ms from 0 to `end`, of which these are heard, 40 ms later.
    fn heard(end: u64, heard: &[u64]) -> Witness {
        Witness {
            told: (0..=end / 50).map(|n| ms(50 * n)).collect(),
            heard: heard.iter().map(|n| Heard { told: ms(*n), at: ms(n + 40) }).collect(),
            ..Witness::default()
        }
    }

    #[test]
    fn silence_of_the_links_excuses_and_silence_of_the_sink_does_not() {
        let mut witness = heard(450, &[0, 50, 400, 450]);
        assert_eq!(witness.silences(ms(500)), [Silence { from: ms(290), to: ms(440) }]);
        witness.told.retain(|at| *at <= ms(150) || *at >= ms(350));
        assert_eq!(witness.silences(ms(500)), []);
        witness.told.retain(|at| *at <= ms(50) || *at >= ms(400));
        assert_eq!(witness.silences(ms(500)), []);
    }

    #[test]
    fn a_silence_may_last_to_the_end_and_a_short_one_is_none() {
        assert_eq!(heard(300, &[0, 50, 200, 250, 300]).silences(ms(350)), []);
        let witness = heard(1_000, &[0, 50]);
        assert_eq!(witness.silences(ms(1_000)), [Silence { from: ms(290), to: ms(1_000) }]);
        assert_eq!(heard(1_000, &[]).silences(ms(1_000)), []);
    }

    #[test]
    fn a_lease_outlasts_a_silence_of_less_than_two_round_trips() {
        let silence = Silence { from: ms(290), to: ms(440) };
        for (trip, outlasts) in [(80, true), (170, true), (180, false), (900, false)] {
            assert_eq!(silence.outlasts_lease(Span::from_millis(trip)), outlasts, "{trip} ms");
        }
    }

    #[test]
    fn a_sink_that_falls_silent_after_what_was_lost_excuses_nothing() {
        let mut witness = heard(1_000, &[0, 50, 1_000]);
        witness.told.retain(|at| *at <= ms(500) || *at >= ms(1_000));
        assert_eq!(witness.silences(ms(1_040)), []);
    }

    #[test]
    fn packets_are_counted_within_their_window() {
        let sent: Vec<Time> = (0..100).map(|n| ms(10 * n)).collect();
        let witness = Witness { sent, ..Witness::default() };
        assert_eq!(witness.sent_within(Span::from_millis(500), ms(900)), 50);
        assert_eq!(witness.sent_within(Span::from_millis(100), ms(200)), 10);
        assert_eq!(witness.most_within(Span::from_millis(500), ms(300)), 50);
        assert_eq!(witness.most_within(Span::from_millis(500), ms(900)), 9);
        let said = vec![(ms(100), 7), (ms(150), 100), (ms(200), 50), (ms(201), 9)];
        let witness = Witness { said, ..Witness::default() };
        assert_eq!(witness.said_within(Span::from_millis(100), ms(200)), 150);
    }
}
