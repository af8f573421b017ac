//! GTP 2004 over links: shares, probing, transitions, and tables 2 to 5 as orderings.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Jitter, LinkSpec, Order};
use gtp_path::{End, Side, World, bdp, bottleneck, jain, wire};
use gtp_peers::rate::gtp2004::agent::{Agent, Shared, Skew};
use gtp_peers::rate::gtp2004::{Sink, Source, Terms};
use gtp_peers::rate::{Transfer, rbudp, udt};
use proptest::prelude::*;

const GIGA: Rate = Rate::from_mbps(1_000);

/// Senders on links of their own, which meet at the receiver's link.
struct Star {
    world: World,
    switch: usize,
}

impl Star {
    fn new(port: LinkSpec) -> Star {
        let mut world = World::new();
        let switch = world.link(port);
        Star { world, switch }
    }

    /// A gigabit port with a queue of one bandwidth-delay product.
    fn gigabit(longest: Span) -> Star {
        Star::new(bottleneck(GIGA, Span::ZERO, bdp(GIGA, longest)))
    }

    fn add(&mut self, after: Span, rtt: Span, pair: (Box<dyn End>, Box<dyn End>)) -> usize {
        // Hosts do not keep their pace to the nanosecond; senders in step would fill and find the
        // queue full in the same order for ever.
        let jitter = Jitter { span: Span::from_micros(50), order: Order::Kept };
        let access = LinkSpec { jitter, ..bottleneck(GIGA, rtt / 2, Bytes(u64::MAX)) };
        let there = self.world.link(access);
        let back = self.world.link(wire(rtt / 2));
        self.world.flow(after, pair.0, pair.1, &[there, self.switch], &[back])
    }

    fn shares(&self, flows: &[usize], from: f64, to: f64) -> Vec<f64> {
        flows.iter().map(|flow| self.world.wire_rate(*flow, from, to) / 1e6).collect()
    }
}

fn gtp(transfer: Transfer, agent: &Shared) -> (Box<dyn End>, Box<dyn End>) {
    let source = Source::new(transfer, Rate::UNLIMITED);
    (Box::new(source), Box::new(Sink::new(transfer, Terms::of(GIGA), agent.clone())))
}

fn rbudp_at(transfer: Transfer, rate: Rate) -> (Box<dyn End>, Box<dyn End>) {
    (Box::new(rbudp::Sender::new(transfer, rate)), Box::new(rbudp::Receiver::new(transfer)))
}

/// What G's tables call SABUL is UDT 1.0.
fn udt_one(transfer: Transfer, seed: u64) -> (Box<dyn End>, Box<dyn End>) {
    let sender = udt::Sender::new(transfer, udt::law::Version::One, 25_600, seed);
    (Box::new(sender), Box::new(udt::Receiver::new(transfer)))
}

#[test]
fn flows_that_join_share_equally_at_once_whatever_their_round_trip() {
    let agent = Agent::shared(GIGA, Skew::Compensated);
    let mut star = Star::gigabit(Span::from_millis(80));
    let flows = [(0, 20), (2, 40), (3, 60), (4, 80)].map(|(at, rtt)| {
        star.add(Span::from_secs(at), Span::from_millis(rtt), gtp(Transfer::ENDLESS, &agent))
    });
    star.world.run_for(Span::from_secs(10));
    // Half a second after each join (Figure 7).
    for (n, from) in [(1, 0.5), (2, 2.5), (3, 3.5), (4, 4.5)] {
        for rate in star.shares(&flows[..n], from, from + 0.5) {
            assert!((rate * n as f64 / 1000.0 - 1.0).abs() < 0.03, "{n}: {rate}");
        }
    }
    let rates = star.shares(&flows, 6.0, 10.0);
    assert!(jain(&rates) >= 0.999 && rates.iter().sum::<f64>() >= 970.0, "{rates:?}");
    let switch = star.switch;
    assert!((star.world.lost(switch) as f64) < 1e-4 * star.world.seen(switch) as f64);
}

#[test]
fn what_a_limited_source_leaves_is_probed_for_and_found() {
    let agent = Agent::shared(GIGA, Skew::Compensated);
    let mut star = Star::gigabit(Span::from_millis(40));
    let flows = [(0, 20), (2, 40)].map(|(at, rtt)| {
        star.add(Span::from_secs(at), Span::from_millis(rtt), gtp(Transfer::ENDLESS, &agent))
    });
    let limit = Some(Rate::from_mbps(300));
    star.world.demand_at(Span::from_secs(2), flows[1], Side::Sender, limit);
    star.world.run_for(Span::from_secs(10));
    // Figure 9, three seconds after the join; 694, 688 and 676 in turn.
    for second in [5.0, 7.0, 9.0] {
        let rates = star.shares(&flows, second, second + 1.0);
        assert!((670.0..705.0).contains(&rates[0]), "{rates:?}");
        assert!((rates[1] / 300.0 - 1.0).abs() < 0.02, "{rates:?}");
    }
}

#[test]
fn a_flow_that_ends_leaves_its_share_to_the_others() {
    let agent = Agent::shared(GIGA, Skew::Compensated);
    let mut star = Star::gigabit(Span::from_millis(40));
    let short = Transfer::of(Bytes(150_000_000));
    let flows = [Transfer::ENDLESS, short]
        .map(|transfer| star.add(Span::ZERO, Span::from_millis(40), gtp(transfer, &agent)));
    star.world.run_for(Span::from_secs(8));
    let end = star.world.duration(flows[1]).expect("it ends");
    assert!((end - 2.6).abs() < 0.2, "{end}");
    // The estimate takes the share at once, 4.2 then lets it go 2, 4 and 8 % ahead of the rate.
    let rates = star.shares(&flows, end + 4.0, end + 5.0);
    assert!(rates[0] > 970.0 && rates[1] == 0.0, "{rates:?}");
}

#[test]
fn timed_changes_reach_the_receiver_together_and_untimed_ones_overload_it() {
    let most_queued = |skew| {
        let agent = Agent::shared(GIGA, skew);
        let mut star = Star::gigabit(Span::from_millis(500));
        for (at, rtt) in [(0, 50), (1, 5)] {
            let pair = gtp(Transfer::ENDLESS, &agent);
            star.add(Span::from_secs(at), Span::from_millis(rtt), pair);
        }
        let (mut most, switch) = (0, star.switch);
        star.world.watch(Span::from_secs(3), Span::from_millis(5), |w| {
            most = most.max(w.queued(switch).0);
        });
        most as f64
    };
    // In units of what passes in a longest round trip: an overload of 2 % for one of them is 0.02.
    let product = bdp(GIGA, Span::from_millis(50)).0 as f64;
    assert!(most_queued(Skew::Compensated) / product <= 0.02);
    // Half as much again for the 45 ms between the round trips.
    let untimed = most_queued(Skew::Ignored) / product;
    assert!((0.4..0.5).contains(&untimed), "{untimed}");
}

#[test]
fn two_flows_of_unlike_round_trips_are_equal_from_the_join_on() {
    let agent = Agent::shared(GIGA, Skew::Compensated);
    let mut star = Star::gigabit(Span::from_millis(50));
    let flows = [(0, 25), (2, 50)].map(|(at, rtt)| {
        star.add(Span::from_secs(at), Span::from_millis(rtt), gtp(Transfer::ENDLESS, &agent))
    });
    star.world.run_for(Span::from_secs(8));
    // Figure 11, the simulated curve.
    assert!(jain(&star.shares(&flows, 2.5, 8.0)) >= 0.995);
}

#[test]
fn one_to_eight_flows_keep_the_receiver_full() {
    for n in [1, 2, 5, 8] {
        let agent = Agent::shared(GIGA, Skew::Compensated);
        let mut star = Star::gigabit(Span::from_millis(25));
        let flow = |_| {
            let pair = gtp(Transfer::ENDLESS, &agent);
            star.add(Span::ZERO, Span::from_millis(25), pair)
        };
        let flows: Vec<usize> = (0..n).map(flow).collect();
        star.world.run_for(Span::from_secs(3));
        let (rates, switch) = (star.shares(&flows, 1.0, 3.0), star.switch);
        let loss = star.world.lost(switch) as f64 / star.world.seen(switch) as f64;
        // Figure 12: at least 85 % of what one has, and no more than 3 % lost.
        assert!(rates.iter().sum::<f64>() >= 850.0 && loss <= 0.03, "{n}: {rates:?} {loss}");
    }
}

/// Rates in Mbit/s, loss ratio at the port, and Jain's index of flows that began at `start`.
fn outcome(star: &mut Star, flows: &[usize], from: f64, to: f64) -> (Vec<f64>, f64) {
    star.world.run_for(Span::from_secs_f64(to));
    let rates = flows.iter().map(|flow| star.world.goodput(*flow, from, to) / 1e6).collect();
    let loss = star.world.lost(star.switch) as f64 / star.world.seen(star.switch) as f64;
    (rates, loss)
}

type Maker<'a> = Box<dyn Fn(u64) -> (Box<dyn End>, Box<dyn End>) + 'a>;

/// RBUDP at full rate, UDT 1.0 and GTP.
fn rivals(agent: &Shared) -> [(&'static str, Maker<'_>); 3] {
    [
        ("rbudp", Box::new(|_| rbudp_at(Transfer::ENDLESS, GIGA))),
        ("sabul", Box::new(|seed| udt_one(Transfer::ENDLESS, seed))),
        ("gtp", Box::new(|_| gtp(Transfer::ENDLESS, agent))),
    ]
}

/// What a protocol came to: rates in Mbit/s, loss at the port.
struct Row {
    rates: Vec<f64>,
    loss: f64,
}

impl Row {
    fn sum(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// A table's row for each of [`rivals`]: endless flows with these round trips in milliseconds.
fn table(rtts: &[f64], port: &LinkSpec) -> [Row; 3] {
    let agent = Agent::shared(GIGA, Skew::Compensated);
    rivals(&agent).map(|(_, make)| row(rtts, port, &make))
}

fn row(rtts: &[f64], port: &LinkSpec, make: &Maker<'_>) -> Row {
    let mut star = Star::new(port.clone());
    let flow = |(i, rtt): (usize, &f64)| {
        star.add(Span::ZERO, Span::from_secs_f64(rtt / 1e3), make(i as u64))
    };
    let flows: Vec<usize> = rtts.iter().enumerate().map(flow).collect();
    let (rates, loss) = outcome(&mut star, &flows, 4.0, 10.0);
    Row { rates, loss }
}

fn switch_port() -> LinkSpec {
    bottleneck(GIGA, Span::ZERO, bdp(GIGA, Span::from_millis(58)))
}

#[test]
fn table_2_alone_each_fills_the_link_without_loss() {
    let rows = table(&[58.0], &switch_port());
    for Row { rates, loss } in &rows {
        assert!(rates[0] >= 850.0 && *loss <= 0.002, "{rates:?} {loss}");
    }
    let best = rows.iter().map(Row::sum).fold(0.0, f64::max);
    assert!(rows.iter().all(|row| row.sum() >= 0.95 * best));
}

#[test]
fn table_3_three_in_parallel_gtp_loses_least_and_rbudp_most() {
    let [rbudp, sabul, gtp] = table(&[58.0; 3], &switch_port());
    assert!(gtp.sum() >= 850.0 && gtp.loss <= 0.001, "{:?} {}", gtp.rates, gtp.loss);
    assert!(gtp.loss < sabul.loss && sabul.loss < rbudp.loss, "{} {}", sabul.loss, rbudp.loss);
    assert!(jain(&gtp.rates) >= 0.95 && jain(&sabul.rates) >= 0.95, "{:?}", sabul.rates);
}

#[test]
fn table_4_converging_flows_only_gtp_is_fair_and_it_loses_twenty_times_less() {
    let [rbudp, sabul, gtp] = table(&[58.0, 58.0, 0.5], &switch_port());
    assert!(gtp.sum() >= 850.0 && gtp.loss <= 0.002, "{:?} {}", gtp.rates, gtp.loss);
    assert!(jain(&gtp.rates) >= 0.98 && jain(&sabul.rates) < 0.95, "{:?}", sabul.rates);
    assert!(gtp.loss * 20.0 <= sabul.loss && sabul.loss < rbudp.loss, "{}", sabul.loss);
    assert!(rbudp.loss >= 0.4, "{}", rbudp.loss);
}

#[test]
fn table_5_a_host_that_takes_less_than_its_link_gtp_is_fair_and_fullest() {
    // The receiving host takes 945 Mbit/s, what a probe found in 5.2; nobody is told.
    let host = bottleneck(Rate::from_mbps(945), Span::ZERO, Bytes(256 * 1_500));
    let [rbudp, sabul, gtp] = table(&[25.0, 50.0], &host);
    let half: Maker = Box::new(|_| rbudp_at(Transfer::ENDLESS, GIGA.scale(0.5)));
    let halves = row(&[25.0, 50.0], &host, &half);
    assert!(gtp.sum() >= 0.999 * halves.sum() && gtp.sum() >= 0.999 * rbudp.sum());
    assert!(rbudp.sum() > sabul.sum(), "{:?}", sabul.rates);
    assert!(jain(&gtp.rates) >= 0.99, "{:?}", gtp.rates);
    // Half rate overloads the host by a nineteenth, 5.5 %; full rate by more than half.
    assert!((0.05..0.06).contains(&halves.loss) && rbudp.loss > 0.5, "{}", halves.loss);
    assert!(gtp.loss < 0.2 * halves.loss, "{}", gtp.loss);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Data, requests or both, of two flows that share an agent: everything arrives.
    #[test]
    fn every_byte_arrives_under_any_pattern_of_loss(
        there in proptest::collection::vec(0..600u64, 0..150),
        back in proptest::collection::vec(0..300u64, 0..100),
        blocks in 1..200u64,
    ) {
        let mut world = World::new();
        let rate = Rate::from_mbps(50);
        let forth = world.link(bottleneck(rate, Span::from_millis(10), Bytes(60_000)));
        let home = world.link(wire(Span::from_millis(10)));
        world.lose(forth, &there);
        world.lose(home, &back);
        let agent = Agent::shared(rate, Skew::Compensated);
        let length = Bytes(blocks * 1_456 - 7);
        let flows = [0, 30].map(|at| {
            let (source, sink) = gtp(Transfer::of(length), &agent);
            world.flow(Span::from_millis(at), source, sink, &[forth], &[home])
        });
        world.run_for(Span::from_secs(200));
        for flow in flows {
            prop_assert!(world.received(flow).done && world.sent(flow).done);
            prop_assert_eq!(world.received(flow).delivered, length);
        }
    }
}
