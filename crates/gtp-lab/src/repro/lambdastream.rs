//! LambdaStream's equations on random inputs, beside a second reading of the print.
//!
//! The queue of equation 1 is a modelled link; equations 2, 4 and 8 to 10 are held against what
//! they are derived from. Where the print is wrong, what it says is a number of its own.

use super::formula::Quantities;
use super::law::unit;
use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_link::{Link, LinkSpec, Rng, Verdict};
use gtp_peers::rate::lambdastream::law::{Differentiation, K1, Loss, RateControl, average_delay};
use serde::Deserialize;

/// A property of LambdaStream's equations.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Equation {
    /// Eq. 1: packets come faster than a queue gives them away. `wait_falls`, how often a packet
    /// waited less than the one before; `stretch_off`, the largest difference of the ratio of
    /// receiving over sending gaps from that of the rates; `wait_off` and `printed_wait_off`, of
    /// the wait from `q / r_o` and from the printed `q r_o`, as parts of the wait.
    Queue,
    /// Eq. 2: `delay_off`, the largest difference of the average delay from time over numbers.
    Delay,
    /// Eqs. 5 to 10: `outside`, how often the rate after a turn was not between the last two;
    /// `share_of_bound`, the least and the largest part of its bound that a turn takes;
    /// `shrinks`, the largest ratio of a step to the one before in the same direction.
    Turn,
    /// 4.2.2: `up_off`, `light_off` and `serious_off`, the largest differences of the first steps
    /// from the print, with `floor(L/s) + 1` flows; `printed_cut`, the part by which the print cuts
    /// the rate of one to four flows that share the link equally, and `cut`, what is cut here.
    First,
    /// 4.1: `judged_wrong`, how often a loss was judged otherwise than the print does; `counted`,
    /// the part of losses that counted; and `cut`, what a loss that counts takes of the rate.
    Losses,
}

/// Tries an equation on `cases` random inputs.
pub fn run(equation: Equation, cases: usize, seed: u64, quantities: &mut Quantities) {
    let mut rng = Rng::new(seed);
    let found = match equation {
        Equation::Queue => queue(cases, &mut rng),
        Equation::Delay => delay(cases, &mut rng),
        Equation::Turn => turn(cases, &mut rng),
        Equation::First => first(cases, &mut rng),
        Equation::Losses => losses(cases, &mut rng),
    };
    quantities.insert("cases".to_owned(), vec![cases as f64]);
    quantities.extend(found.into_iter().map(|(name, value)| (name.to_owned(), value)));
}

type Found = Vec<(&'static str, Vec<f64>)>;

fn draw(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * unit(rng)
}

/// The link of the examples.
const L: f64 = 1e9;

fn queue(cases: usize, rng: &mut Rng) -> Found {
    let (mut falls, mut stretch, mut wait_off, mut printed) = (0, 0.0f64, 0.0f64, f64::INFINITY);
    for _ in 0..cases {
        let out = draw(rng, 1e8, 1e9).round();
        let over = draw(rng, 1.05, 3.0);
        let gap = 12_000.0 / (out * over);
        let rate = Rate::from_f64(out);
        let spec = LinkSpec { rate, delay: Span::ZERO, queue: Bytes(1 << 40), ..<_>::default() };
        let mut link = Link::new(spec, 1);
        let mut before: Option<(f64, f64)> = None;
        let (mut first, mut last, packets) = (0.0, 0.0, 400);
        for n in 0..packets {
            let at = Time::ZERO + Span::from_secs_f64(n as f64 * gap);
            let held = link.queued(at).0 as f64;
            let behind = link.busy_until().max(at).since(at).as_secs_f64();
            let Verdict::Deliver { transit, .. } = link.enqueue(at, Bytes(1_500)) else { continue };
            let came = transit.at.since(Time::ZERO).as_secs_f64();
            // q: all bits before this packet, the part of one in service included.
            let (q, wait) = (behind * out, came - at.since(Time::ZERO).as_secs_f64() - 12e3 / out);
            if n == 0 {
                first = came;
            }
            last = came;
            if let Some((_, earlier)) = before {
                falls += usize::from(wait < earlier);
            }
            if wait > 1e-6 && held > 0.0 {
                wait_off = wait_off.max((q / out - wait).abs() / wait);
                printed = printed.min((q * out - wait).abs() / wait);
            }
            before = Some((came, wait));
        }
        let received = (last - first) / f64::from(packets - 1);
        stretch = stretch.max((received / gap / over - 1.0).abs());
    }
    vec![
        ("wait_falls", vec![falls as f64]),
        ("stretch_off", vec![stretch]),
        ("wait_off", vec![wait_off]),
        ("printed_wait_off", vec![printed]),
    ]
}

fn delay(cases: usize, rng: &mut Rng) -> Found {
    let mut off = 0.0f64;
    for _ in 0..cases {
        // Numbers from anywhere in their range, the ends included: they do not wrap in use.
        let before = rng.below(u64::MAX - 10_000);
        let (passed, numbers) = (draw(rng, 1e-6, 1.0), 1 + rng.below(10_000));
        let ours = average_delay(passed, before + numbers, before);
        off = off.max((ours * numbers as f64 / passed - 1.0).abs());
    }
    vec![("delay_off", vec![off])]
}

/// Which way a step goes.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

fn step(control: &mut RateControl, rng: &mut Rng, s: f64, way: Way) -> f64 {
    match way {
        Way::Up => control.update(s, 1.0, draw(rng, 1e7, 5e8)),
        Way::Down => control.update(s, draw(rng, 1.03, 3.0), 0.0),
    }
}

fn turn(cases: usize, rng: &mut Rng) -> Found {
    let (mut outside, mut bound, mut shrinks) = (0, [f64::INFINITY, 0.0f64], 0.0f64);
    for case in 0..cases {
        let (way, back) = if case % 2 == 0 { (Way::Up, Way::Down) } else { (Way::Down, Way::Up) };
        let s = draw(rng, 5e7, 2e9);
        let mut control = RateControl::new(L);
        let one = step(&mut control, rng, s, way);
        let mut again = control.clone();
        if one == s {
            continue;
        }
        let two = step(&mut control, rng, one, back);
        if two != one {
            outside += usize::from(two <= s.min(one) || two >= s.max(one));
            // k of the step back over the bound of eq. 8 or 10, which is the step to s itself.
            let part = (two - one) / (s - one);
            bound = [bound[0].min(part), bound[1].max(part)];
        }
        let further = step(&mut again, rng, one, way);
        if further != one {
            shrinks = shrinks.max(((further / one - 1.0) / (one / s - 1.0)).abs());
        }
    }
    vec![
        ("outside", vec![outside as f64]),
        ("share_of_bound", bound.to_vec()),
        ("shrinks", vec![shrinks]),
    ]
}

fn first(cases: usize, rng: &mut Rng) -> Found {
    let (mut up, mut light, mut serious) = (0.0f64, 0.0f64, 0.0f64);
    for _ in 0..cases {
        let s = draw(rng, 5e7, 2e9);
        let free = draw(rng, 1e7, 5e8);
        let ours = RateControl::new(L).update(s, 1.0, free);
        up = up.max((ours / (s * (1.0 + free / L)) - 1.0).abs());
        let ratio = draw(rng, 1.021, 1.2);
        light = light.max((RateControl::new(L).update(s, ratio, 0.0) * ratio / s - 1.0).abs());
        let ours = RateControl::new(L).update(s, draw(rng, 1.21, 3.0), 0.0);
        let flows = if s > L { 1.0 } else { (L / s).floor() + 1.0 };
        // A cut too small to make is not made.
        if (L / flows / s - 1.0).abs() >= 0.005 {
            serious = serious.max((ours * flows / L - 1.0).abs());
        }
    }
    let equal = [1.0, 2.0, 3.0, 4.0].map(|n| L / n);
    let printed = equal.map(|s| 1.0 - L / (s * (L / s).ceil()));
    let cut = equal.map(|s| 1.0 - RateControl::new(L).update(s, 1.5, 0.0) / s);
    vec![
        ("up_off", vec![up]),
        ("light_off", vec![light]),
        ("serious_off", vec![serious]),
        ("printed_cut", printed.to_vec()),
        ("cut", cut.to_vec()),
    ]
}

fn losses(cases: usize, rng: &mut Rng) -> Found {
    let (mut wrong, mut counted) = (0, 0);
    let (mut law, mut number, mut last) = (Differentiation::default(), 0, None);
    for _ in 0..cases {
        number += 1 + rng.below(200);
        let gap = draw(rng, 5e-6, 1e-4);
        let delay = gap * draw(rng, 0.2, 2.0);
        // 4.1, lines 2 to 8: alpha is a tenth, th a hundred.
        let normal = 0.9 * gap < delay && delay < 1.1 * gap;
        let near = last.is_some_and(|last| number - last < 100);
        let print = if !normal && near { Loss::Counts } else { Loss::Ignored };
        last = Some(number);
        wrong += usize::from(law.judge(number, delay, gap) != print);
        counted += usize::from(print == Loss::Counts);
    }
    vec![
        ("judged_wrong", vec![wrong as f64]),
        ("counted", vec![counted as f64 / cases as f64]),
        ("cut", vec![1.0 - 1.0 / (1.0 + K1)]),
    ]
}
