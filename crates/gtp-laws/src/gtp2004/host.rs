//! Both levels of GTP 2004 for one host: the agent, and a flow controller for each session.
//!
//! Departures, where a host looks at its flows now and then, and not at each packet:
//! - H1 a round (G, 4.1) ends with the first look after a round trip.
//! - H2 a flow joins (4.4) when its round trip is known; until then its rate is zero. How long
//!   its packets are may be known later still.
//! - H3 a round trip shorter than [`LOOK`] counts as so much where intervals are concerned: what
//!   comes of a burst within a millisecond says nothing of a rate.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::{Rate, Span, Time};

use super::agent::{Agent, FlowId, Skew};
use super::law::Single;
use crate::{Arriving, Counts, SinkLaw};

/// The host of sinks that GTP 2004 controls.
#[derive(Debug)]
pub struct Host {
    agent: Agent,
    flows: BTreeMap<u32, Flow>,
}

#[derive(Debug)]
struct Flow {
    id: FlowId,
    single: Single,
    counted: Counts,
    /// When its round ends.
    round: Time,
}

impl Host {
    /// A host that receives `capacity` at most (`C_r`).
    pub fn new(capacity: Rate) -> Host {
        let agent = Agent::new(capacity, Skew::Compensated).counting_each(LOOK);
        Host { agent, flows: BTreeMap::new() }
    }

    /// Flows that are not among `sessions` have ended.
    fn forget(&mut self, sessions: &[Arriving]) {
        let agent = &mut self.agent;
        self.flows.retain(|id, flow| {
            let stays = sessions.iter().any(|session| session.id == *id);
            if !stays {
                agent.leave(flow.id);
            }
            stays
        });
    }

    fn hear(&mut self, now: Time, session: &Arriving) {
        match self.flows.get_mut(&session.id) {
            None if session.rtt.as_nanos() == 0 => {} // H2.
            None => {
                let id = self.agent.join(now, session.rtt, session.most, session.packet);
                let (single, round) = (Single::default(), now + session.rtt);
                let flow = Flow { id, single, counted: session.counts, round };
                self.agent.note_counts(now, id, &session.counts, session.counts);
                self.flows.insert(session.id, flow);
            }
            Some(flow) => {
                self.agent.set_path(flow.id, session.rtt, session.packet);
                if self.agent.set_cap(now, flow.id, session.most) {
                    flow.single.join_anew();
                }
                self.agent.note_counts(now, flow.id, &session.counts, session.counts);
            }
        }
    }
}

impl SinkLaw for Host {
    fn decide(&mut self, now: Time, sessions: &[Arriving], rates: &mut Vec<Rate>) {
        self.forget(sessions);
        for session in sessions {
            self.hear(now, session);
        }
        self.agent.handle_timeout(now);
        rates.clear();
        for session in sessions {
            let Some(flow) = self.flows.get_mut(&session.id) else {
                rates.push(Rate::ZERO);
                continue;
            };
            flow.single.follow(self.agent.target(now, flow.id));
            if flow.round <= now {
                let round = session.counts.since(&flow.counted);
                flow.counted = session.counts;
                flow.round = now + session.rtt;
                flow.single.end_round((round.sent() > 0).then(|| round.loss()));
            }
            rates.push(Rate::from_f64(flow.single.request()));
        }
    }

    fn set_capacity(&mut self, capacity: Rate) {
        self.agent.set_capacity(capacity);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = |flow: &Flow| {
            self.agent.poll_timeout(flow.id).map_or(flow.round, |at| at.min(flow.round))
        };
        self.flows.values().map(due).min()
    }
}

/// H3: as often as a host looks at its flows, about.
const LOOK: Span = Span::from_millis(20);

#[cfg(test)]
mod tests {
    use gtp_alloc::Bytes;

    use super::*;

    const PACKET: Bytes = Bytes(1_500);

    /// Sessions whose packets all come, at what they are granted, over ways of these lengths.
    struct Course {
        host: Host,
        now: Time,
        sessions: Vec<Arriving>,
        rates: Vec<Rate>,
    }

    impl Course {
        fn new(capacity: Rate) -> Course {
            let (sessions, rates) = (Vec::new(), Vec::new());
            Course { host: Host::new(capacity), now: Time::ZERO, sessions, rates }
        }

        fn join(&mut self, id: u32, rtt: Span) {
            let (counts, most) = (Counts::default(), Rate::UNLIMITED);
            self.sessions.push(Arriving { id, counts, packet: PACKET, rtt, most });
            self.rates.push(Rate::ZERO);
        }

        /// Looks each 10 ms; of what is sent beyond `carries` in all, the excess is lost.
        fn run(&mut self, span: Span, carries: Rate) {
            let look = Span::from_millis(10);
            let until = self.now + span;
            while self.now < until {
                let sum: f64 = self.rates.iter().map(|rate| rate.as_f64()).sum();
                let part = (carries.as_f64() / sum.max(1.0)).min(1.0);
                for (session, rate) in self.sessions.iter_mut().zip(&self.rates) {
                    let sent = rate.bytes_in(look).0 / PACKET.0;
                    let came = (sent as f64 * part) as u64;
                    session.counts.received += came;
                    session.counts.lost += sent - came;
                }
                self.now += look;
                self.host.decide(self.now, &self.sessions, &mut self.rates);
            }
        }
    }

    #[test]
    fn flows_share_equally_whatever_their_round_trips_and_one_that_is_left_gets_all() {
        let capacity = Rate::from_mbps(600);
        let mut course = Course::new(capacity);
        course.join(7, Span::from_millis(20));
        course.run(Span::from_secs(1), capacity);
        assert_eq!(course.rates, [capacity]);
        course.join(9, Span::from_millis(80));
        course.run(Span::from_secs(3), capacity);
        for rate in &course.rates {
            assert!((rate.as_f64() - 300e6).abs() < 15e6, "{:?}", course.rates);
        }
        course.sessions.remove(0);
        course.rates.remove(0);
        // 4.2 lets a share that is not used at once go again: 3 or 4 % are won in each interval.
        course.run(Span::from_secs(5), capacity);
        assert!(course.rates[0].as_f64() > 0.97 * 600e6, "{:?}", course.rates);
    }

    #[test]
    fn a_flow_whose_packets_turn_out_longer_than_they_seemed_has_its_share() {
        let capacity = Rate::from_mbps(190);
        let mut course = Course::new(capacity);
        course.join(1, Span::from_millis(58));
        course.join(2, Span::from_millis(58));
        course.sessions[1].packet = Bytes(78);
        course.host.decide(course.now, &course.sessions, &mut course.rates);
        course.sessions[1].packet = PACKET;
        course.run(Span::from_secs(2), capacity);
        for rate in &course.rates {
            assert!((rate.as_f64() - 95e6).abs() < 5e6, "{:?}", course.rates);
        }
    }

    #[test]
    fn bursts_over_a_short_way_are_not_taken_for_rates() {
        let capacity = Rate::from_mbps(190);
        let mut course = Course::new(capacity);
        course.join(1, Span::from_micros(800));
        // A host that stands still: what is sent in 8 ms comes at once, and nothing in between.
        for look in 0..4_000u64 {
            course.now += Span::from_millis(1);
            if look % 8 == 0 {
                let sent = course.rates[0].bytes_in(Span::from_millis(8));
                course.sessions[0].counts.received += sent.0 / PACKET.0;
            }
            course.host.decide(course.now, &course.sessions, &mut course.rates);
        }
        assert!(course.rates[0].as_f64() > 0.9 * 190e6, "{:?}", course.rates);
    }

    #[test]
    fn a_flow_without_a_round_trip_waits_and_one_with_a_narrow_way_leaves_the_rest() {
        let mut course = Course::new(Rate::from_mbps(600));
        course.join(1, Span::ZERO);
        course.run(Span::from_millis(100), Rate::from_mbps(600));
        assert_eq!(course.rates, [Rate::ZERO]);
        course.sessions[0].rtt = Span::from_millis(20);
        course.join(2, Span::from_millis(20));
        course.sessions[1].most = Rate::from_mbps(100);
        course.run(Span::from_secs(4), Rate::from_mbps(600));
        assert!(course.rates[1] <= Rate::from_mbps(100));
        assert!(course.rates[0].as_f64() > 450e6, "{:?}", course.rates);
    }

    #[test]
    fn losses_lower_the_rate_to_about_what_the_way_carries() {
        let mut course = Course::new(Rate::from_mbps(600));
        course.join(1, Span::from_millis(20));
        course.run(Span::from_secs(5), Rate::from_mbps(400));
        let rate = course.rates[0].as_f64();
        assert!(rate > 340e6 && rate < 460e6, "{rate}");
    }
}
