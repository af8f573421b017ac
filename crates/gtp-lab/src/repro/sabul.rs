//! SABUL's model and lemmas as an entry asks for them.
//!
//! The paper's deterministic model (its section III) with connections of the entry's, and each
//! lemma tried on random parameters: how often what it concludes is not so, under its printed
//! hypotheses and under those that it needs. Packets are in `sabul_packets`. Nothing here judges.

use super::aecp::{Found, put};
use super::formula::Quantities;
use super::law::unit;
use gtp_link::Rng;
use gtp_peers::rate::sabul::law::{self, PR0, PR1, Parameters};
use gtp_peers::rate::sabul::model::{
    self, Connection, LENGTH, Mode, Model, Round, increase_rounds, satisfies_lemma_7,
};
use serde::Deserialize;

/// Something about SABUL's equations that an entry wants computed. `name` stands before its
/// quantities.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Sabul {
    /// Eqs. 1, 2, 3 and 5 at random against the print: the largest difference of the gap (`_off`)
    /// and of the rate (`_rate_off`), as parts.
    Equations { name: String, cases: usize, seed: u64 },
    /// A lemma tried; quantities by lemma, see [`lemma`].
    Lemma { name: String, number: u8, cases: usize, seed: u64 },
    /// The model: mean rates in Mbit/s (`_rates`) and mean loss of rounds (`_loss`) by connection,
    /// and how often its mode changed (`_changes`), over `ticks` after `skip`; with two connections
    /// the last ratio of their gaps (`_ratio`).
    Model {
        name: String,
        service_mbps: f64,
        #[serde(default)]
        packets: f64,
        connections: Vec<Sender>,
        #[serde(default)]
        skip: u64,
        ticks: u64,
        #[serde(default)]
        sight: Sight,
    },
    /// Fig. 2: ratio of the two gaps at its points A, B and C (`_a`, `_b`, `_c`): the start, the
    /// last before the gaps grow, the first after it; and at the ends of all later overloads
    /// (`_later`, at most 100). The path in us (`_x`, `_y`).
    Plane { name: String, service_mbps: f64, connections: Vec<Sender>, ticks: u64 },
}

impl Sabul {
    /// How many random inputs are tried, where some are.
    pub fn cases(&self) -> Option<usize> {
        match self {
            Sabul::Equations { cases, .. } | Sabul::Lemma { cases, .. } => Some(*cases),
            Sabul::Model { .. } | Sabul::Plane { .. } => None,
        }
    }
}

/// A connection of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    #[serde(default)]
    parameters: Set,
    #[serde(default = "gigabit")]
    interface_mbps: f64,
    mbps: f64,
    /// Length of its round in ticks.
    #[serde(default = "one")]
    round: u64,
}

fn gigabit() -> f64 {
    1_000.0
}

fn one() -> u64 {
    1
}

/// The paper's two sets of parameters.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// The protocol's defaults.
    #[default]
    Pr0,
    /// Those after Lemma 7.
    Pr1,
}

impl Set {
    /// Its numbers.
    pub fn parameters(self) -> Parameters {
        match self {
            Set::Pr0 => PR0,
            Set::Pr1 => PR1,
        }
    }
}

/// What a round of several ticks sees of its loss.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// All of it.
    #[default]
    Round,
    /// That of its last tick.
    Last,
}

/// Ticks that an entry may ask for.
const TICKS_MAX: u64 = 10_000_000;

/// Computes one of them.
///
/// # Errors
/// A sentence, if a number is senseless.
pub fn run(wanted: &Sabul, quantities: &mut Quantities) -> Result<(), String> {
    let (name, found) = match wanted {
        Sabul::Equations { name, cases, seed } => (name, equations(*cases, *seed)),
        Sabul::Lemma { name, number, cases, seed } => (name, lemma(*number, *cases, *seed)?),
        Sabul::Model { name, service_mbps, packets, connections, skip, ticks, sight } => {
            let mut model = network(*service_mbps, *packets, connections)?;
            model.sight = match sight {
                Sight::Round => model::Sight::Round,
                Sight::Last => model::Sight::Last,
            };
            if skip.saturating_add(*ticks) > TICKS_MAX {
                return Err(format!("at most {TICKS_MAX} ticks"));
            }
            (name, course(&mut model, *skip, *ticks))
        }
        Sabul::Plane { name, service_mbps, connections, ticks } => {
            let mut model = network(*service_mbps, 0.0, connections)?;
            (name, plane(&mut model, (*ticks).min(TICKS_MAX))?)
        }
    };
    put(name, found, quantities)
}

/// A bottleneck with these connections; its tick is 0.2 s.
///
/// # Errors
/// A sentence, if a rate is none.
pub fn network(service: f64, packets: f64, senders: &[Sender]) -> Result<Model, String> {
    let rates = senders.iter().flat_map(|s| [s.mbps, s.interface_mbps]).chain([service]);
    if senders.is_empty() || rates.into_iter().any(|x| !(x > 0.0 && x.is_finite())) {
        return Err("connections are one or more, and rates above zero".to_owned());
    }
    let mut model = Model::new(service * 1e6, packets.max(0.0), TICK);
    for s in senders {
        let (interface, rate) = (s.interface_mbps * 1e6, s.mbps * 1e6);
        let connection =
            Connection::new(s.parameters.parameters(), interface, rate, LENGTH, s.round);
        model.connections.push(connection);
    }
    Ok(model)
}

const TICK: f64 = 0.2;
const GIGA: f64 = 1e9;

fn course(model: &mut Model, skip: u64, ticks: u64) -> Found {
    let n = model.connections.len();
    let (mut rates, mut losses) = (vec![0.0; n], vec![0.0; n]);
    let (mut rounds, mut changes) = (vec![0.0; n], vec![0.0; n]);
    let mut modes = vec![None; n];
    for tick in 0..skip + ticks {
        let counts = tick >= skip;
        if counts {
            for (sum, c) in rates.iter_mut().zip(&model.connections) {
                *sum += c.rate(model.length) / 1e6 / ticks as f64;
            }
        }
        for Round { connection: k, loss, mode, .. } in model.step() {
            if counts {
                losses[k] += loss;
                rounds[k] += 1.0;
                changes[k] += f64::from(u8::from(modes[k].is_some_and(|last| last != mode)));
            }
            modes[k] = Some(mode);
        }
    }
    let loss = losses.iter().zip(&rounds).map(|(sum, n)| sum / n).collect();
    let mut found = vec![("rates", rates), ("loss", loss), ("changes", changes)];
    if let [a, b] = &model.connections[..] {
        found.push(("ratio", vec![b.gap / a.gap]));
    }
    found
}

fn plane(model: &mut Model, ticks: u64) -> Result<Found, String> {
    if model.connections.len() != 2 {
        return Err("Fig. 2 is of two connections".to_owned());
    }
    let path = model.phase_plane(ticks);
    let ratio = |n: usize| path[n].1 / path[n].0;
    let turns: Vec<usize> = (0..path.len() - 1)
        .filter(|n| path[n + 1].0 > path[*n].0 && (*n == 0 || path[*n].0 <= path[n - 1].0))
        .collect();
    let b = *turns.first().ok_or("the gaps never grow")?;
    let us = |gap: fn(&(f64, f64)) -> f64| path.iter().take(POINTS_MAX).map(gap).collect();
    Ok(vec![
        ("a", vec![ratio(0)]),
        ("b", vec![ratio(b)]),
        ("c", vec![ratio(b + 1)]),
        ("later", turns.iter().skip(1).take(100).map(|n| ratio(n + 1)).collect()),
        ("end", vec![ratio(path.len() - 1)]),
        ("x", us(|(x, _)| x * 1e6)),
        ("y", us(|(_, y)| y * 1e6)),
    ])
}

/// So many points of a path are shown.
const POINTS_MAX: usize = 2_000;

fn equations(cases: usize, seed: u64) -> Found {
    let mut rng = Rng::new(seed);
    let (mut off, mut rate_off) = (0.0_f64, 0.0_f64);
    for n in 0..cases {
        let p = parameters(&mut rng);
        let gap = 1e-7 * libm::pow(1e4, unit(&mut rng));
        let loss = if n % 10 == 0 { p.target } else { unit(&mut rng) * 3.0 * p.target };
        let print = if loss > p.target {
            gap * (1.0 + p.k1 * (loss - p.target)) + p.c // eq. 1
        } else if loss < p.target {
            gap * (1.0 + p.k2 * (loss - p.target)) // eq. 2
        } else {
            gap + p.d // eq. 3
        };
        off = off.max((law::next_gap(gap, loss, &p) / print - 1.0).abs());
        let print = LENGTH / (LENGTH / GIGA + gap); // eq. 5
        rate_off = rate_off.max((law::sending_rate(gap, LENGTH, GIGA) / print - 1.0).abs());
    }
    vec![("off", vec![off]), ("rate_off", vec![rate_off])]
}

/// Tries a lemma on random parameters with an interface of 1 Gbit/s. A count is of cases.
///
/// - 1: `printed_negative`, with `k2 alpha > 1`: a round without loss makes the gap negative;
///   with `0 < k2 alpha < 1`: `falling`, a rate or loss is below the one before; `beyond`, the
///   rate passes `mu/(1 - alpha)` by more than one step; `short`, it never gets there.
/// - 2: `rising`, a rate or loss is not below the one before; `endless`; `limit_off`, how far the
///   rate of a decrease kept up by force is from `L/(L/C + c/(k1 alpha))` in the worst case, as a
///   part; `least_limit`, the lowest of these in Mbit/s.
/// - 3 to 5, with `k2 > C/(C - mu)`: `tried`; `locked`, modes stop changing; `longer`, an increase
///   is longer than the bound of Lemma 4's proof from the lowest rate; the same with `strict_` of
///   those with `k2 (1 - alpha - mu/C) > 1`, and `strict_fullest`, their longest as a part of the
///   bound; `decreases_longer`, a decrease is longer than the first; `decreases_longer_from_top`,
///   the same where the first begins at the interface's rate.
/// - 6: `decreasing`, there is a decrease.
/// - 7: `tried`, the conditions hold; `at_target`, the mean loss does not exceed the target;
///   `least`, the least mean, of whose case `least_low` is the mean loss of rounds below the
///   target and `least_next` the least loss of a round behind one of these; all three in targets.
/// - 8: `apart`, two equal connections have neither equal gaps after 20,000 rounds nor gaps nearer
///   to each other than after 10,000; `farthest`, the largest ratio of such gaps; `strict_` as
///   above.
fn lemma(number: u8, cases: usize, seed: u64) -> Result<Found, String> {
    let mut rng = Rng::new(seed);
    let try_all: fn(&mut Rng, usize) -> Found = match number {
        1 => lemma_1,
        2 => lemma_2,
        3..=5 => lemmas_3_to_5,
        6 => lemma_6,
        7 => lemma_7,
        8 => lemma_8,
        0 | 9.. => return Err(format!("there is no Lemma {number}")),
    };
    let mut found = try_all(&mut rng, cases);
    found.push(("cases", vec![cases as f64]));
    Ok(found)
}

/// Parameters with `0 < k2 alpha < 1`.
fn parameters(rng: &mut Rng) -> Parameters {
    let mut between = |low: f64, high: f64| low + (high - low) * unit(rng);
    let target = between(1e-4, 0.02);
    let k2 = between(0.001, 0.9) / target;
    Parameters { k1: between(1e-3, 0.5), k2, c: between(0.01e-6, 2e-6), target, ..PR0 }
}

/// A case of `C > mu/(1 - alpha)`: parameters, `mu` and a first rate below it, in bit/s.
fn case(rng: &mut Rng) -> (Parameters, f64, f64) {
    let p = parameters(rng);
    let mu = GIGA * (0.05 + 0.85 * unit(rng));
    (p, mu, mu * (0.01 + 0.98 * unit(rng)))
}

fn single(p: Parameters, interface: f64, mu: f64, rate: f64, packets: f64) -> Model {
    let mut model = Model::new(mu, packets, TICK);
    model.connections.push(Connection::new(p, interface, rate, LENGTH, 1));
    model
}

fn lemma_1(rng: &mut Rng, cases: usize) -> Found {
    let [mut negative, mut falling, mut beyond, mut short] = [0.0; 4];
    for _ in 0..cases {
        let (p, mu, from) = case(rng);
        let printed = Parameters { k2: (1.0 + unit(rng)) / p.target, ..p };
        negative += is(law::next_gap(law::gap_of(from, LENGTH, GIGA), 0.0, &printed) < 0.0);
        let (mut model, limit) = (single(p, GIGA, mu, from, 0.0), mu / (1.0 - p.target));
        let (mut rate, mut loss, mut there) = (0.0_f64, 0.0_f64, false);
        for _ in 0..ROUNDS_MAX {
            let round = model.step()[0];
            there = (round.rate / limit - 1.0).abs() < 1e-9 || round.mode != Mode::Increase;
            if there {
                // From below the limit a gap shrinks by k2 alpha at the most.
                let step = law::gap_of(rate.min(limit), LENGTH, GIGA) * (1.0 - p.k2 * p.target);
                let most = law::sending_rate(step, LENGTH, GIGA).max(limit);
                beyond += is(round.rate > most * (1.0 + 1e-9));
                break;
            }
            if round.rate <= rate || round.loss < loss {
                falling += 1.0;
                break;
            }
            (rate, loss) = (round.rate, round.loss);
        }
        // It comes ever nearer, in steps of its distance: a thousandth counts as there.
        short += is(!there && rate < limit * (1.0 - 1e-3));
    }
    vec![
        ("printed_negative", vec![negative]),
        ("falling", vec![falling]),
        ("beyond", vec![beyond]),
        ("short", vec![short]),
    ]
}

/// More rounds of one mode are not waited for.
const ROUNDS_MAX: usize = 100_000;

fn is(broken: bool) -> f64 {
    f64::from(u8::from(broken))
}

fn lemma_2(rng: &mut Rng, cases: usize) -> Found {
    let [mut rising, mut endless, mut limit_off] = [0.0; 3];
    let mut least = f64::INFINITY;
    for _ in 0..cases {
        let (p, mu, _) = case(rng);
        let mut model = single(p, GIGA, mu, GIGA, 0.0);
        let (mut rate, mut loss, mut ended) = (f64::INFINITY, 1.0, false);
        for _ in 0..ROUNDS_MAX {
            let round = model.step()[0];
            ended = round.mode != Mode::Decrease;
            if round.rate >= rate || round.loss >= loss {
                rising += 1.0;
            }
            if ended || round.rate >= rate {
                break;
            }
            (rate, loss) = (round.rate, round.loss);
        }
        endless += is(!ended);
        // Eq. 1 without loss, kept up by force.
        let mut gap = law::gap_of(mu, LENGTH, GIGA);
        for _ in 0..40 * ROUNDS_MAX {
            let next = gap * (1.0 - p.k1 * p.target) + p.c;
            let still = (next / gap - 1.0).abs() < 1e-13;
            gap = next;
            if still {
                break;
            }
        }
        let limit = law::sending_rate(p.c / (p.k1 * p.target), LENGTH, GIGA);
        let reached = law::sending_rate(gap, LENGTH, GIGA);
        limit_off = f64::max(limit_off, (reached / limit - 1.0).abs());
        least = least.min(reached / 1e6);
    }
    vec![
        ("rising", vec![rising]),
        ("endless", vec![endless]),
        ("limit_off", vec![limit_off]),
        ("least_limit", vec![least]),
    ]
}

/// Rounds of a long run.
const LONG: u64 = 20_000;

fn lemmas_3_to_5(rng: &mut Rng, cases: usize) -> Found {
    let [mut tried, mut locked, mut longer, mut decreases, mut from_top] = [0.0; 5];
    let [mut strict_tried, mut strict_locked, mut strict_longer, mut fullest] = [0.0; 4];
    for n in 0..cases {
        let (p, mu, from) = case(rng);
        // The third hypothesis of Lemma 3; every other case is near its edge.
        let edge = GIGA / (GIGA - mu);
        let near = edge * (1.0 + 0.1 * unit(rng).max(1e-3));
        let p = Parameters { k2: if n % 2 == 0 { near } else { p.k2.max(near) }, ..p };
        let packets = 2_000.0 * unit(rng);
        if p.k2 * p.target >= 1.0 {
            continue;
        }
        let strict = is(p.k2 * (1.0 - p.target - mu / GIGA) > 1.0);
        let turns = Turns::of(&mut single(p, GIGA, mu, from, packets), &p, mu);
        tried += 1.0;
        strict_tried += strict;
        locked += is(turns.is_locked());
        longer += is(turns.fullest > 1.0);
        strict_locked += strict * is(turns.is_locked());
        strict_longer += strict * is(turns.fullest > 1.0);
        fullest = f64::max(fullest, strict * turns.fullest);
        decreases += is(turns.decrease_longer);
        let turns = Turns::of(&mut single(p, GIGA, mu, GIGA, packets), &p, mu);
        from_top += is(turns.decrease_longer);
    }
    vec![
        ("tried", vec![tried]),
        ("locked", vec![locked]),
        ("longer", vec![longer]),
        ("strict_tried", vec![strict_tried]),
        ("strict_locked", vec![strict_locked]),
        ("strict_longer", vec![strict_longer]),
        ("strict_fullest", vec![fullest]),
        ("decreases_longer", vec![decreases]),
        ("decreases_longer_from_top", vec![from_top]),
    ]
}

/// How long the modes of a long run lasted, the last of them, which has not ended, included.
struct Turns {
    /// Longest increase as a part of its bound.
    fullest: f64,
    /// The first decrease, in rounds, and whether one was longer.
    first: Option<u64>,
    decrease_longer: bool,
    /// When a mode last changed, and how long one may last from the lowest rate seen.
    changed: u64,
    most: u64,
}

impl Turns {
    fn of(model: &mut Model, p: &Parameters, mu: f64) -> Turns {
        let mut turns =
            Turns { fullest: 0.0, first: None, decrease_longer: false, changed: 0, most: 0 };
        let (mut last, mut run) = (None, 0u64);
        let mut lowest = model.connections[0].rate(LENGTH);
        for n in 0..LONG {
            let round = model.step()[0];
            lowest = lowest.min(model.connections[0].rate(LENGTH));
            if last == Some(round.mode) {
                run += 1;
                continue;
            }
            turns.changed = n;
            let gap = law::gap_of(lowest, LENGTH, GIGA);
            turns.most = increase_rounds(gap, p, GIGA, mu, model.buffer, TICK);
            turns.count(last, run);
            (last, run) = (Some(round.mode), 1);
        }
        // A decrease that has not ended bounds nothing.
        let first = turns.first.unwrap_or(0);
        turns.count(last, run);
        turns.most = turns.most.max(first);
        turns
    }

    /// Counts a mode of so many rounds; during an increase the lowest rate does not change.
    fn count(&mut self, mode: Option<Mode>, rounds: u64) {
        match mode {
            Some(Mode::Increase) => {
                self.fullest = self.fullest.max(rounds as f64 / self.most as f64);
            }
            Some(Mode::Decrease) => {
                self.decrease_longer |= rounds > *self.first.get_or_insert(rounds);
            }
            Some(Mode::Hold) | None => {}
        }
    }

    fn is_locked(&self) -> bool {
        self.changed + self.most + 1 < LONG
    }
}

fn lemma_6(rng: &mut Rng, cases: usize) -> Found {
    let mut decreasing = 0.0;
    for _ in 0..cases {
        let (p, mu, from) = case(rng);
        let interface = mu + (mu / (1.0 - p.target) - mu) * (0.01 + 0.98 * unit(rng));
        let mut model = single(p, interface, mu, from, 0.0);
        decreasing += is((0..LONG).any(|_| model.step()[0].mode != Mode::Increase));
    }
    vec![("decreasing", vec![decreasing])]
}

fn lemma_7(rng: &mut Rng, cases: usize) -> Found {
    let (mut at_target, mut tried) = (0.0, 0.0);
    let mut worst = (f64::INFINITY, None);
    for _ in 0..cases {
        let (p, mu, from) = case(rng);
        // Make the conditions hold where they can: k1 and c below their bounds.
        let k2a = p.k2 * p.target;
        let p = Parameters { k1: k2a * 0.9 * unit(rng).max(1e-4), ..p };
        let room = LENGTH / mu - LENGTH / GIGA;
        let most = ((1.0 + p.k1) * k2a - p.k1) * room;
        let p = Parameters { c: most * unit(rng).max(1e-3), ..p };
        if !satisfies_lemma_7(&p, GIGA, mu) {
            continue;
        }
        tried += 1.0;
        let losses = settled(single(p, GIGA, mu, from, 0.0));
        let mean = losses.iter().sum::<f64>() / losses.len() as f64 / p.target;
        at_target += is(mean <= 1.0);
        if mean < worst.0 {
            worst = (mean, Some((p, mu, from)));
        }
    }
    let mut found = vec![("at_target", vec![at_target]), ("tried", vec![tried])];
    if let (mean, Some((p, mu, from))) = worst {
        let losses = settled(single(p, GIGA, mu, from, 0.0));
        let low = |loss: f64| loss < p.target;
        let lows: Vec<f64> = losses.iter().copied().filter(|loss| low(*loss)).collect();
        let next = losses.windows(2).filter(|pair| low(pair[0])).map(|pair| pair[1]);
        found.extend([
            ("least", vec![mean]),
            ("least_low", vec![lows.iter().sum::<f64>() / lows.len() as f64 / p.target]),
            ("least_next", vec![next.fold(f64::INFINITY, f64::min) / p.target]),
        ]);
    }
    found
}

/// Losses of a long run after another.
fn settled(mut model: Model) -> Vec<f64> {
    (0..LONG).for_each(|_| drop(model.step()));
    (0..LONG).map(|_| model.step()[0].loss).collect()
}

fn lemma_8(rng: &mut Rng, cases: usize) -> Found {
    let [mut apart, mut strict_apart, mut strict_tried, mut farthest] = [0.0; 4];
    for _ in 0..cases {
        let (p, mu, from) = case(rng);
        let strict = is(p.k2 * (1.0 - p.target - mu / GIGA) > 1.0);
        strict_tried += strict;
        let mut model = single(p, GIGA, mu, from, 0.0);
        let other = GIGA * (0.01 + 0.98 * unit(rng));
        model.connections.push(Connection::new(p, GIGA, other, LENGTH, 1));
        let mut run = || {
            (0..LONG / 2).for_each(|_| drop(model.step()));
            libm::fabs(libm::log(model.connections[0].gap / model.connections[1].gap))
        };
        let (before, after) = (run(), run());
        // Neither equal nor on the way to it.
        let stuck = is(after > 1e-3 && after > 0.999 * before);
        apart += stuck;
        strict_apart += strict * stuck;
        farthest = f64::max(farthest, stuck * libm::exp(after));
    }
    vec![
        ("apart", vec![apart]),
        ("farthest", vec![farthest]),
        ("strict_tried", vec![strict_tried]),
        ("strict_apart", vec![strict_apart]),
    ]
}
