//! AECP's equations as an entry asks for them: the fluid of eq. 6, the discrete law, the header.
//!
//! An entry gives the numbers, this file integrates or tries, and what comes out are quantities.
//! Rates are in packets per second and times in seconds, as in the paper. Nothing here knows what
//! the paper claims; packets are in `aecp_packets`.

use super::formula::Quantities;
use super::law::unit;
use gtp_alloc::Span;
use gtp_link::Rng;
use gtp_peers::aecp::fluid::{self, Fluid};
use gtp_peers::aecp::theory::Loop;
use gtp_peers::aecp::{Factor, Gains, Header, next_factor, next_rate};
use serde::Deserialize;

/// Something about AECP's equations that an entry wants computed. `name` stands before its
/// quantities. Where a variant reads quantities, they are lists of one length, or of one number
/// that stands for all; with a `case`, those with it and `_` before their names, where there are
/// any.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Aecp {
    /// From `capacity`, `flows`, `initial` and `theta`: when flows that begin together first use
    /// that share (`_time`), and how high the factor has been by then, as a part of `C/N`
    /// (`_factor`).
    Efficiency {
        name: String,
        #[serde(default)]
        case: String,
    },
    /// From `capacity`, `flows`, `initial` and `epsilon`: how long a flow that joins others at rest
    /// needs for that share of theirs (`_time`).
    Fairness {
        name: String,
        #[serde(default)]
        case: String,
    },
    /// From `capacity`, `flows` and `delay`: how far a rate is from its share in the last ten of
    /// `seconds`, as a part of it, after it began at nine tenths (`_swing`); and the longest delay
    /// that the loop of eq. 38 bears (`_margin`).
    Swing {
        name: String,
        #[serde(default)]
        case: String,
        seconds: f64,
    },
    /// From `capacity`, `flows`, `factor` and `initial`: after `seconds` from there, the worst
    /// deviation of a rate (`_off`) and of the factor (`_factor_off`) from `C/N`, as a part of it,
    /// and the queue in packets (`_queue`). Every other flow begins at the capacity instead.
    Rest {
        name: String,
        #[serde(default)]
        case: String,
        seconds: f64,
    },
    /// Links and flows of the entry's: rates at the end (`_rates`), and for each span between two
    /// flows' beginnings the longest queue of any link (`_longest`).
    Network { name: String, capacity: Vec<f64>, factor: f64, flows: Vec<Flow>, seconds: f64 },
    /// Eq. 1 with `growth` and `capacity` from `initial`, beside a window that grows by one a round
    /// and is halved at `capacity`: both curves (`_curve`, `_window`), the population at which the
    /// growth is fastest (`_steepest`), how often the window falls (`_falls`).
    Logistic { name: String, growth: f64, capacity: f64, initial: f64, seconds: f64 },
    /// Eq. 48 and 49 at random: the largest difference from the print (`_source_off`,
    /// `_router_off`), how often the print goes past the factor (`_printed_past`) and the law does
    /// (`_past`), of round-trip times up to `rtt_ms`.
    Law { name: String, cases: usize, seed: u64, rtt_ms: u64 },
    /// All 2^16 codes of the header's field: how many come back changed from the header or as a
    /// number (`_changed`), and its length (`_bytes`).
    Header { name: String },
}

impl Aecp {
    /// How many random inputs are tried, where some are.
    pub fn cases(&self) -> Option<usize> {
        match self {
            Aecp::Law { cases, .. } => Some(*cases),
            Aecp::Efficiency { .. }
            | Aecp::Fairness { .. }
            | Aecp::Swing { .. }
            | Aecp::Rest { .. }
            | Aecp::Network { .. }
            | Aecp::Logistic { .. }
            | Aecp::Header { .. } => None,
        }
    }
}

/// A flow of `Aecp::Network`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Links, from one.
    route: Vec<usize>,
    /// How old the factor is that it sees.
    #[serde(default)]
    delay: f64,
    /// Its first rate.
    rate: f64,
    /// When it begins.
    #[serde(default)]
    start: f64,
}

/// Computes one of them.
///
/// # Errors
/// A sentence, if a number is missing or senseless.
pub fn run(wanted: &Aecp, quantities: &mut Quantities) -> Result<(), String> {
    let found = match wanted {
        Aecp::Efficiency { name, case } => (name, efficiency(case, quantities)?),
        Aecp::Fairness { name, case } => (name, fairness(case, quantities)?),
        Aecp::Swing { name, case, seconds } => (name, swing(case, quantities, *seconds)?),
        Aecp::Rest { name, case, seconds } => (name, rest(case, quantities, *seconds)?),
        Aecp::Network { name, capacity, factor, flows, seconds } => {
            (name, network(capacity, *factor, flows, *seconds)?)
        }
        Aecp::Logistic { name, growth, capacity, initial, seconds } => {
            (name, logistic(*growth, *capacity, *initial, *seconds))
        }
        Aecp::Law { name, cases, seed, rtt_ms } => (name, law(*cases, *seed, *rtt_ms)),
        Aecp::Header { name } => (name, header()),
    };
    put(found.0, found.1, quantities)
}

/// Puts what was found among the quantities, each with `name` and `_` before its own.
///
/// # Errors
/// If one of the name is there already.
pub fn put(
    name: &str,
    found: Vec<(&str, Vec<f64>)>,
    quantities: &mut Quantities,
) -> Result<(), String> {
    for (own, numbers) in found {
        let whole = format!("{name}_{own}");
        if quantities.insert(whole.clone(), numbers).is_some() {
            return Err(format!("`{whole}` is computed twice"));
        }
    }
    Ok(())
}

/// Names and numbers.
pub type Found = Vec<(&'static str, Vec<f64>)>;

/// Rows of given quantities, a list of one number standing for as many as the longest has.
fn rows<const N: usize>(
    names: [&str; N],
    case: &str,
    quantities: &Quantities,
) -> Result<Vec<[f64; N]>, String> {
    let mut lists = Vec::new();
    for name in names {
        let own = quantities.get(&format!("{case}_{name}")).or_else(|| quantities.get(name));
        lists.push(own.ok_or_else(|| format!("`{name}` is not given"))?);
    }
    let most = lists.iter().map(|list| list.len()).max().unwrap_or(0);
    if lists.iter().any(|list| list.len() != 1 && list.len() != most) {
        return Err(format!("{} are not lists of one length", names.join(", ")));
    }
    let at = |list: &[f64], row: usize| if list.len() == 1 { list[0] } else { list[row] };
    Ok((0..most).map(|row| std::array::from_fn(|k| at(lists[k], row))).collect())
}

/// As many flows as a fluid has here at most.
const FLOWS_MAX: f64 = 1_000.0;

fn whole(flows: f64) -> Result<usize, String> {
    let sensible = (1.0..=FLOWS_MAX).contains(&flows) && flows.fract() == 0.0;
    if sensible { Ok(flows as usize) } else { Err(format!("{flows} flows: one to {FLOWS_MAX}")) }
}

fn said(why: fluid::FluidError) -> String {
    why.to_string()
}

/// A fluid of one link.
fn one_link(capacity: f64, factor: f64, step: f64) -> Result<Fluid, String> {
    Fluid::new(Gains::PAPER, &[capacity], factor, step).map_err(said)
}

fn add(fluid: &mut Fluid, rate: f64, delay: f64) -> Result<(), String> {
    fluid.add_flow(fluid::Flow { route: vec![0], delay, rate }).map(|_| ()).map_err(said)
}

fn efficiency(case: &str, quantities: &Quantities) -> Result<Found, String> {
    let (mut times, mut factors) = (Vec::new(), Vec::new());
    for [capacity, flows, initial, theta] in
        rows(["capacity", "flows", "initial", "theta"], case, quantities)?
    {
        let count = whole(flows)?;
        let mut fluid = one_link(capacity, initial, 1e-3)?;
        for _ in 0..count {
            add(&mut fluid, initial, 0.0)?;
        }
        let mut highest = 0.0_f64;
        let time = fluid.run_until(LONGEST, |fluid| {
            highest = highest.max(fluid.factor(0).unwrap_or(f64::NAN));
            fluid.rates().iter().sum::<f64>() >= theta * capacity
        });
        times.push(time.ok_or_else(|| format!("a share of {theta} is not reached"))?);
        factors.push(highest / (capacity / flows));
    }
    Ok(vec![("time", times), ("factor", factors)])
}

fn fairness(case: &str, quantities: &Quantities) -> Result<Found, String> {
    let mut times = Vec::new();
    for [capacity, flows, initial, epsilon] in
        rows(["capacity", "flows", "initial", "epsilon"], case, quantities)?
    {
        let count = whole(flows)?;
        let at_rest = capacity / flows;
        let mut fluid = one_link(capacity, at_rest, 1e-4)?;
        for _ in 0..count {
            add(&mut fluid, at_rest, 0.0)?;
        }
        add(&mut fluid, initial, 0.0)?;
        let fair = |fluid: &Fluid| {
            let rates = fluid.rates();
            rates[count] >= epsilon * rates[0]
        };
        let time = fluid.run_until(LONGEST, fair);
        times.push(time.ok_or_else(|| format!("a share of {epsilon} is not reached"))?);
    }
    Ok(vec![("time", times)])
}

/// After so many seconds nothing is waited for any more.
const LONGEST: f64 = 100.0;

fn swing(case: &str, quantities: &Quantities, seconds: f64) -> Result<Found, String> {
    let mut found = Vec::new();
    for [capacity, flows, delay] in rows(["capacity", "flows", "delay"], case, quantities)? {
        let share = capacity / flows;
        let mut fluid = one_link(capacity, share, STEP)?;
        for _ in 0..whole(flows)? {
            add(&mut fluid, 0.9 * share, delay)?;
        }
        fluid.run_for(seconds - 10.0);
        let mut widest = 0.0_f64;
        for _ in 0..1_000 {
            fluid.run_for(0.01);
            widest = widest.max((fluid.rates()[0] / share - 1.0).abs());
        }
        found.push(widest);
    }
    Ok(vec![("swing", found), ("margin", vec![Loop::new(Gains::PAPER).delay_margin()])])
}

/// Step of fluids whose times are not read to the millisecond.
const STEP: f64 = 5e-3;

fn rest(case: &str, quantities: &Quantities, seconds: f64) -> Result<Found, String> {
    let (mut off, mut factor_off, mut queue) = (Vec::new(), Vec::new(), Vec::new());
    for [capacity, flows, factor, initial] in
        rows(["capacity", "flows", "factor", "initial"], case, quantities)?
    {
        let mut fluid = one_link(capacity, factor, STEP)?;
        for n in 0..whole(flows)? {
            add(&mut fluid, if n % 2 == 0 { initial } else { capacity }, 0.0)?;
        }
        fluid.run_for(seconds);
        let from_share = |rate: f64| (rate * flows / capacity - 1.0).abs();
        off.push(fluid.rates().into_iter().map(from_share).fold(0.0, f64::max));
        factor_off.push(from_share(fluid.factor(0).unwrap_or(f64::NAN)));
        queue.push(fluid.queue(0).unwrap_or(f64::NAN));
    }
    Ok(vec![("off", off), ("factor_off", factor_off), ("queue", queue)])
}

fn network(capacity: &[f64], factor: f64, flows: &[Flow], seconds: f64) -> Result<Found, String> {
    let mut fluid = Fluid::new(Gains::PAPER, capacity, factor, STEP).map_err(said)?;
    let mut longest = Vec::new();
    for (n, flow) in flows.iter().enumerate() {
        let route = flow.route.iter().map(|link| link.wrapping_sub(1)).collect();
        let Flow { delay, rate, .. } = *flow;
        fluid.add_flow(fluid::Flow { route, delay, rate }).map_err(said)?;
        let until = flows.get(n + 1).map_or(seconds, |next| next.start);
        let mut most = 0.0_f64;
        while fluid.time() + STEP / 2.0 < until {
            fluid.advance();
            let queues = (0..capacity.len()).filter_map(|link| fluid.queue(link));
            most = queues.fold(most, f64::max);
        }
        longest.push(most);
    }
    Ok(vec![("rates", fluid.rates()), ("longest", longest)])
}

fn logistic(growth: f64, capacity: f64, initial: f64, seconds: f64) -> Found {
    let slope = |x: f64| growth * x * (1.0 - x / capacity); // eq. 1
    let (mut x, mut window) = (initial, initial);
    let (mut curve, mut windows) = (vec![x], vec![window]);
    let (mut steepest, mut fastest, mut falls) = (x, 0.0, 0.0);
    let rounds = (seconds / ROUND).clamp(0.0, 1e5) as usize;
    for _ in 0..rounds {
        let middle = x + slope(x) * ROUND / 2.0;
        let step = slope(middle) * ROUND;
        if step > fastest {
            (fastest, steepest) = (step, x + step / 2.0);
        }
        x += step;
        curve.push(x);
        if window + 1.0 > capacity {
            window /= 2.0;
            falls += 1.0;
        } else {
            window += 1.0;
        }
        windows.push(window);
    }
    vec![
        ("curve", curve),
        ("window", windows),
        ("steepest", vec![steepest]),
        ("falls", vec![falls]),
    ]
}

/// One round of the AIMD window, and one step of eq. 1.
const ROUND: f64 = 0.05;

fn law(cases: usize, seed: u64, rtt_ms: u64) -> Found {
    let mut rng = Rng::new(seed);
    let (mut source_off, mut router_off) = (0.0_f64, 0.0_f64);
    let (mut past, mut printed_past) = (0.0, 0.0);
    for _ in 0..cases {
        // From one packet a second to a million.
        let mut size = |most: f64| libm::pow(most, unit(&mut rng));
        let (rate, factor, capacity) = (size(1e6), size(1e6), size(1e6));
        let (load, queued) = (size(2e6), size(1e4));
        let rtt = Span::from_micros(1_000 + rng.below(rtt_ms * 1_000));
        let tau = rtt.as_secs_f64();
        // Eq. 48 in the logarithm, with alpha 2 per second.
        let weight = 2.0 * tau;
        let print = (libm::log(rate) * (1.0 - weight) + libm::log(factor) * weight).exp();
        let ours = next_rate(rate, factor, rtt, Gains::PAPER);
        let is_past = |next: f64| (factor - next) * (factor - rate) < -1e-9 * factor * factor;
        past += f64::from(u8::from(is_past(ours)));
        printed_past += f64::from(u8::from(is_past(print)));
        if weight <= 1.0 {
            source_off = source_off.max((ours / print - 1.0).abs());
        }
        // Eq. 49; where the print leaves the bounds the law stays at them.
        let print = factor * (0.1 * (1.0 - (load + (queued - 100.0) / 2.0) / capacity)).exp();
        let ours = next_factor(factor, load, queued, capacity, 0.1, Gains::PAPER);
        router_off = router_off.max((ours / print.min(capacity).max(1.0) - 1.0).abs());
    }
    vec![
        ("source_off", vec![source_off]),
        ("router_off", vec![router_off]),
        ("past", vec![past]),
        ("printed_past", vec![printed_past]),
    ]
}

fn header() -> Found {
    let mut changed = 0.0;
    for code in 0..=u16::MAX {
        let factor = Factor::from_code(code);
        let header = Header { next: 6, factor };
        let number = factor.packets_per_second().map(Factor::from_packets_per_second);
        let back = Header::decode(&header.encode());
        if back != Ok(header) || number.unwrap_or(Factor::UNSET) != factor {
            changed += 1.0;
        }
    }
    let bytes = Header { next: 6, factor: Factor::UNSET }.encode().len() as f64;
    vec![("changed", vec![changed]), ("bytes", vec![bytes])]
}
