//! SABUL's tables I and II over links, and what the model says of them.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_link::{Jitter, LinkSpec, Order};
use gtp_path::{World, bdp, bottleneck, wire};
use gtp_peers::rate::sabul::law::{Excess, PR0, PR1, Parameters};
use gtp_peers::rate::sabul::model::{Connection, LENGTH, Model};
use gtp_peers::rate::sabul::{Law, Receiver, Sender};
use gtp_peers::rate::{Transfer, rbudp};

const GIGA: Rate = Rate::from_mbps(1_000);

/// A connection of a table: round trip and interval in ms, first rate in Mbit/s.
struct Case {
    rtt: f64,
    initial: u64,
    interval: u64,
    parameters: Parameters,
}

fn case(rtt: f64, initial: u64, interval: u64) -> Case {
    Case { rtt, initial, interval, parameters: PR0 }
}

/// Mean sending rates in Mbit/s between two times in seconds, and the rates each 200 ms, over a
/// gigabit link with a queue of one BDP of the longest round trip (at least 100 packets), beside
/// constant traffic of `background` Mbit/s.
fn run(cases: &[Case], background: u64, from: f64, to: f64) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mut world = World::new();
    let longest = cases.iter().map(|c| c.rtt).fold(0.0, f64::max) / 1e3;
    let queue = bdp(GIGA, Span::from_secs_f64(longest)).max(Bytes(150_000));
    let port = world.link(bottleneck(GIGA, Span::ZERO, queue));
    let mut flows = Vec::new();
    for c in cases {
        let way = Span::from_secs_f64(c.rtt / 2e3);
        // Hosts do not keep their pace to the nanosecond.
        let jitter = Jitter { span: Span::from_micros(20), order: Order::Kept };
        let there = world.link(LinkSpec { jitter, ..wire(way) });
        let back = world.link(wire(way));
        let law = Law::Paper { parameters: c.parameters, interface: GIGA, excess: Excess::Never };
        let sender = Sender::new(Transfer::ENDLESS, law, Rate::from_mbps(c.initial));
        let receiver = Receiver::new(Transfer::ENDLESS, Span::from_millis(c.interval));
        let ends = (Box::new(sender), Box::new(receiver));
        flows.push(world.flow(Span::ZERO, ends.0, ends.1, &[there, port], &[back]));
    }
    if background > 0 {
        let sender = rbudp::Sender::new(Transfer::ENDLESS, Rate::from_mbps(background));
        let receiver = rbudp::Receiver::new(Transfer::ENDLESS);
        world.flow(Span::ZERO, Box::new(sender), Box::new(receiver), &[port], &[]);
    }
    let mut series = vec![Vec::new(); flows.len()];
    world.watch(Span::from_secs_f64(to), Span::from_millis(200), |w| {
        for (rates, flow) in series.iter_mut().zip(&flows) {
            if w.elapsed() > from {
                rates.push(w.sent(*flow).rate.as_f64() / 1e6);
            }
        }
    });
    (series.iter().map(|r| r.iter().sum::<f64>() / r.len() as f64).collect(), series)
}

/// The same in the model: the senders' mean rates from the start on.
fn modelled(cases: &[Case], background: u64, to: f64) -> Vec<f64> {
    let longest = cases.iter().map(|c| c.rtt).fold(0.0, f64::max);
    let packets = (longest * 1e6 / LENGTH).max(100.0);
    let mut model = Model::new((1_000 - background) as f64 * 1e6, packets, 0.2);
    for c in cases {
        let (rate, round) = (c.initial as f64 * 1e6, c.interval / 200);
        model.connections.push(Connection::new(c.parameters, 1e9, rate, LENGTH, round));
    }
    model.mean_rates((to / 0.2) as u64).iter().map(|rate| rate / 1e6).collect()
}

#[test]
fn packets_follow_the_model() {
    let pr1 = |rtt, initial| Case { parameters: PR1, ..case(rtt, initial, 200) };
    for (cases, background) in [
        (vec![case(57.5, 280, 200), case(23.3, 360, 200)], 0),
        (vec![case(57.0, 382, 200), case(23.0, 288, 400)], 0),
        (vec![case(57.5, 300, 200), pr1(81.0, 120)], 420),
    ] {
        let (rates, _) = run(&cases, background, 0.0, 25.0);
        let model = modelled(&cases, background, 25.0);
        for (packets, model) in rates.iter().zip(&model) {
            // The model's queue and feedback are the packets' without their round trip.
            assert!((packets / model - 1.0).abs() < 0.06, "{packets} {model}");
        }
    }
}

#[test]
fn drop_tail_keeps_senders_in_step() {
    let cases = [case(57.5, 450, 200), case(57.5, 460, 200)];
    let (_, series) = run(&cases, 0, 5.0, 30.0);
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (a, b) = (mean(&series[0]), mean(&series[1]));
    let along = |x: &[f64], y: &[f64], a: f64, b: f64| {
        x.iter().zip(y).map(|(x, y)| (x - a) * (y - b)).sum::<f64>()
    };
    let (x, y) = (&series[0], &series[1]);
    let correlation = along(x, y, a, b) / (along(x, x, a, a) * along(y, y, b, b)).sqrt();
    assert!(correlation > 0.5, "{correlation}");
}
