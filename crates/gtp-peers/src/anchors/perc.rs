//! Explicit grants by links, after PERC: Jose, Yan, Alizadeh, Varghese, McKeown and Katti, "High
//! speed networks need proactive congestion control", HotNets 2015.
//!
//! | rule | where |
//! |---|---|
//! | a control packet brings a link what the rest of the way allows, the limit | [`Claim`] |
//! | a link takes limits for demands and shares its capacity max-min | [`Link`], [`rate_for`] |
//! | the packet returns the least of what links gave: the source's rate | [`Least`], `Source` |
//!
//! The one idea: links compute rates from messages alone, before any queue or loss could tell. A
//! link whose own rate is the least of the way hears the second least, so that it does not take its
//! own answer for somebody else's limit; with that the rates are max-min over any network, and a
//! level of bottlenecks after the other is right for good. In rounds, one control packet of each
//! session in each, a level takes four at most, as the tests find on drawn networks: what was said
//! before leaves the packets in two, and what is right gets through in two.
//!
//! Departures: the original's packet has a field for each link of the way; of all of them a link
//! needs the least of the others, for which the two least and the place of the least are enough,
//! whatever the length of the way. Its sessions say when they end; here a link forgets whom it has
//! not heard of for a second. State per session, as the original in its exact form. All of a link
//! is given away, and control packets pass beside what is: a queue that a join has filled stays,
//! and grows slowly.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gtp_alloc::{Bytes, Rate, Time};

use crate::advertised::{FORGOTTEN, Message, SESSIONS_MAX, rate_for};
use crate::{Admission, Body, Packet, Router};

/// The two least rates of a way, and at which place of it the least is; place zero is the
/// session itself with what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    rate: Rate,
    at: u8,
    second: Rate,
}

impl Least {
    fn of(demand: Rate) -> Least {
        Least { rate: demand, at: 0, second: Rate::UNLIMITED }
    }

    /// What the way allows.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    fn add(&mut self, at: u8, rate: Rate) {
        if rate < self.rate {
            *self = Least { rate, at, second: self.rate };
        } else {
            self.second = self.second.min(rate);
        }
    }

    /// The least of all places but this one.
    fn without(&self, at: u8) -> Rate {
        if self.at == at { self.second } else { self.rate }
    }
}

/// What a control packet carries past the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    session: u32,
    /// Links passed so far. A way of more links than this can count has its last ones at one place.
    passed: u8,
    /// What the packet before brought back.
    said: Least,
    /// What this one was told so far.
    seen: Least,
}

impl Claim {
    /// A claim of a session that wants `demand`, and was told this before, if it was told anything.
    #[must_use]
    pub fn new(session: u32, demand: Rate, said: Option<Least>) -> Claim {
        let own = Least::of(demand);
        let mut said = said.unwrap_or(own);
        // A demand that fell is known at once.
        said.add(0, demand);
        Claim { session, passed: 0, said, seen: own }
    }

    /// What it was told so far.
    #[must_use]
    pub fn least(&self) -> Least {
        self.seen
    }
}

/// What a link knows of a session.
#[derive(Clone, Copy, Debug)]
struct Known {
    limit: Rate,
    heard: Time,
}

/// The controller of one link.
#[derive(Clone, Debug, Default)]
pub struct Link {
    capacity: Rate,
    sessions: BTreeMap<u32, Known>,
}

impl Link {
    /// A link that waits for its capacity.
    #[must_use]
    pub fn new() -> Link {
        Link::default()
    }

    /// What the link gives to whom nothing else limits.
    #[must_use]
    pub fn rate(&self) -> Rate {
        let limits: Vec<Rate> = self.sessions.values().map(|known| known.limit).collect();
        rate_for(self.capacity, &limits)
    }

    fn pass(&mut self, now: Time, claim: &mut Claim) {
        claim.passed = claim.passed.saturating_add(1);
        self.sessions.retain(|_, known| now.since(known.heard) < FORGOTTEN);
        if self.sessions.len() < SESSIONS_MAX || self.sessions.contains_key(&claim.session) {
            // Links before this one have news that is newer than the last round's.
            let limit = claim.said.without(claim.passed).min(claim.seen.rate);
            self.sessions.insert(claim.session, Known { limit, heard: now });
        }
        claim.seen.add(claim.passed, self.rate());
    }
}

impl Router for Link {
    fn set_capacity(&mut self, _now: Time, capacity: Rate) {
        self.capacity = capacity;
    }

    fn handle_arrival(&mut self, now: Time, _queued: Bytes, packet: &mut Packet) -> Admission {
        if let Body::Explicit(Message::Control { claim, .. }) = &mut packet.body {
            self.pass(now, claim);
        }
        Admission::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchors::central;
    use gtp_alloc::Span;
    use gtp_alloc::maxmin::{Network, Session};
    use proptest::prelude::*;

    const NOW: Time = Time::ZERO;

    fn link(capacity: Rate) -> Link {
        let mut link = Link::new();
        link.set_capacity(NOW, capacity);
        link
    }

    /// A control packet of `session` over these links.
    fn round(
        links: &mut [Link],
        way: &[usize],
        session: u32,
        demand: Rate,
        said: Option<Least>,
    ) -> Least {
        let mut claim = Claim::new(session, demand, said);
        for l in way {
            links[*l].pass(NOW, &mut claim);
        }
        claim.least()
    }

    #[test]
    fn a_link_does_not_take_its_own_answer_for_another_links_limit() {
        let mut links = [100, 40].map(|mbps| link(Rate::from_mbps(mbps)));
        let mut said = [None; 2];
        for _ in 0..4 {
            said[0] = Some(round(&mut links, &[0, 1], 0, Rate::UNLIMITED, said[0]));
            said[1] = Some(round(&mut links, &[0], 1, Rate::UNLIMITED, said[1]));
        }
        let rates = said.map(|least| least.map(|least| least.rate()));
        assert_eq!(rates, [Some(Rate::from_mbps(40)), Some(Rate::from_mbps(60))]);
        // The other wants less from now on: the first is still held by the second link only.
        for _ in 0..4 {
            said[1] = Some(round(&mut links, &[0], 1, Rate::from_mbps(10), said[1]));
            said[0] = Some(round(&mut links, &[0, 1], 0, Rate::UNLIMITED, said[0]));
        }
        let rates = said.map(|least| least.map(|least| least.rate()));
        assert_eq!(rates, [Some(Rate::from_mbps(40)), Some(Rate::from_mbps(10))]);
        assert_eq!(links[0].rate(), Rate::from_mbps(90));
    }

    #[test]
    fn a_session_that_is_silent_for_a_second_is_forgotten() {
        let mut link = link(Rate::from_mbps(100));
        link.pass(NOW, &mut Claim::new(1, Rate::UNLIMITED, None));
        let mut other = Claim::new(2, Rate::UNLIMITED, None);
        link.pass(NOW + Span::from_millis(999), &mut other);
        assert_eq!(other.least().rate(), Rate::from_mbps(50));
        let mut other = Claim::new(2, Rate::UNLIMITED, None);
        link.pass(NOW + Span::from_millis(1_000), &mut other);
        assert_eq!(other.least().rate(), Rate::from_mbps(100));
    }

    /// Different rates to this part of each are one level. Links round to whole bits per second,
    /// and a level inherits what those before it have lost so: some bits at the fifth. Of drawn
    /// gigabits that is a thousandth of this part.
    const ALIKE: f64 = 1e-6;

    /// What is drawn, in gigabits per second.
    fn gigabits(drawn: u64) -> Rate {
        Rate::from_mbps(1_000 * drawn)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn rates_are_max_min_after_four_rounds_for_each_level(
            capacities in prop::collection::vec(10_u64..1_000, 1..8),
            drawn in prop::collection::vec((any::<u64>(), 1_u64..1_200), 1..16),
        ) {
            let capacities: Vec<Rate> = capacities.into_iter().map(gigabits).collect();
            let mut links: Vec<Link> = capacities.iter().map(|rate| link(*rate)).collect();
            let known = capacities.iter().map(|rate| rate.as_f64()).collect();
            let mut network = Network::new(known).expect("capacities");
            let mut sessions = Vec::new();
            for (bits, demand) in drawn {
                let mut way: Vec<usize> = (0..links.len()).filter(|l| bits >> l & 1 == 1).collect();
                if way.is_empty() {
                    way.push(bits as usize % links.len());
                }
                // Three of four want all they can have.
                let wants = if bits >> 62 == 0 { gigabits(demand) } else { Rate::UNLIMITED };
                let demand = if wants.is_unlimited() { f64::INFINITY } else { wants.as_f64() };
                let uses: Vec<u32> = way.iter().map(|l| *l as u32).collect();
                network.add(Session { uses: &uses, weight: 1.0, demand }).expect("a session");
                sessions.push((way, wants, None));
            }
            let exact = central(&network);
            let mut levels: Vec<f64> = exact.iter().map(|rate| rate.as_f64()).collect();
            levels.sort_by(f64::total_cmp);
            levels.dedup_by(|b, a| *b <= *a * (1.0 + ALIKE));
            for _ in 0..4 * levels.len() {
                for (n, (way, wants, said)) in sessions.iter_mut().enumerate() {
                    *said = Some(round(&mut links, way, n as u32, *wants, *said));
                }
            }
            for ((_, _, said), exact) in sessions.iter().zip(&exact) {
                let rate = said.expect("a round").rate();
                let off = (rate.as_f64() / exact.as_f64() - 1.0).abs();
                prop_assert!(off < ALIKE, "{rate} of {exact}, {} levels", levels.len());
            }
        }
    }
}
