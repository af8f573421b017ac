//! From an entry to its quantities, and the curves that go with them.
//!
//! Networks are solved, properties tried, scenarios run under the thesis's law and under the grant
//! law, measures read, and last the formulas computed, each by its own file. Nothing here judges.

use super::case::{Case, Scenario};
use super::entry::{Entry, Kind, Solve};
use super::formula::{Quantities, assign};
use super::measure::{Measure, Trajectory};
use super::rivals::Course;
use super::{aecp, aecp_packets, hops, lightpaths, sabul, sabul_packets};
use super::{exact, gtp2004, lambdastream, law, packet, rate};
use crate::series::Figure;
use gtp_link::Rng;

/// Which law the nodes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// The thesis's, as printed.
    EndNode,
    /// The project's default.
    Grant,
}

/// The runs of one scenario under one law.
pub struct Runs {
    /// The scenario's name.
    pub name: String,
    /// Which law.
    pub law: Law,
    /// One trajectory for each run.
    pub runs: Vec<Trajectory>,
}

/// Everything that an entry's judgement and page rest on.
#[derive(Default)]
pub struct Computed {
    /// Named lists of numbers.
    pub quantities: Quantities,
    /// What was simulated.
    pub runs: Vec<Runs>,
    /// What was simulated of rivals.
    pub courses: Vec<Course>,
    /// Curves of AECP's and SABUL's runs.
    pub figures: Vec<Figure>,
}

/// Computes an entry.
///
/// # Errors
/// A sentence that says what could not be computed.
pub fn compute(entry: &Entry) -> Result<Computed, String> {
    let mut computed = Computed::default();
    let quantities = &mut computed.quantities;
    for (name, numbers) in &entry.given {
        quantities.insert(name.clone(), numbers.list());
    }
    entry.network.iter().try_for_each(|network| solve(network, quantities))?;
    for tried in &entry.law {
        law::run(tried.property, tried.cases, tried.seed, quantities);
    }
    for tried in &entry.exact {
        exact::run(tried.property, tried.cases, tried.seed, quantities);
    }
    for tried in &entry.gtp2004 {
        gtp2004::run(tried.property, tried.cases, tried.seed, quantities)?;
    }
    for tried in &entry.lambdastream {
        lambdastream::run(tried.property, tried.cases, tried.seed, quantities);
    }
    for rivals in &entry.rivals {
        computed.courses.extend(rivals.run(quantities)?);
    }
    let figures = &mut computed.figures;
    entry.aecp.iter().try_for_each(|wanted| aecp::run(wanted, quantities))?;
    for packets in &entry.aecp_packets {
        aecp_packets::run(&entry.id, packets, quantities, figures)?;
    }
    entry.sabul.iter().try_for_each(|wanted| sabul::run(wanted, quantities))?;
    for row in &entry.sabul_packets {
        sabul_packets::run(&entry.id, row, quantities, figures)?;
    }
    entry.lightpaths.iter().try_for_each(|wanted| lightpaths::run(wanted, quantities))?;
    entry.hops.iter().try_for_each(|wanted| hops::run(wanted, quantities))?;
    for scenario in &entry.scenario {
        let cases = scenario.expand()?;
        draws(scenario, &cases, quantities);
        for law in [Law::EndNode, Law::Grant] {
            let runs = simulate(entry.kind, &cases, law)?;
            computed.runs.push(Runs { name: scenario.name.clone(), law, runs });
        }
    }
    for played in &entry.played {
        computed.runs.extend(played.run(&entry.folder)?);
    }
    for measure in &entry.measure {
        read(measure, &computed.runs, quantities)?;
    }
    entry.compute.iter().try_for_each(|assignment| assign(assignment, quantities))?;
    Ok(computed)
}

/// Solves a network and puts its rates among the quantities.
fn solve(network: &Solve, quantities: &mut Quantities) -> Result<(), String> {
    let mut rng = Rng::new(0);
    let links = network.links.resolve(&mut rng)?;
    let sources = links.len() as u32;
    let rows = links.iter().enumerate();
    let uses: Vec<[u32; 2]> = rows
        .flat_map(|(s, row)| row.iter().map(move |r| [s as u32, sources + *r as u32]))
        .collect();
    let owners: Vec<usize> = uses.iter().map(|pair| pair[0] as usize).collect();
    let demand = match &network.demand {
        Some(spread) => spread.resolve(&owners, &mut rng)?,
        None => vec![f64::INFINITY; uses.len()],
    };
    if !(network.capacity > 0.0 && network.capacity.is_finite())
        || demand.iter().any(|d| d.is_nan() || *d < 0.0)
    {
        return Err(format!(
            "network {}: a capacity is above zero, a demand not below",
            network.name
        ));
    }
    let (rates, off) = exact::solved(network.capacity, uses, demand);
    let mut sorted = rates.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut put = |what: &str, value| quantities.insert(format!("{}_{what}", network.name), value);
    put("sum", vec![rates.iter().sum()]);
    put("rates", rates);
    put("highest", sorted.iter().copied().take(network.highest).collect());
    put("sorted", sorted);
    put("off", vec![off]);
    Ok(())
}

/// The ends of everything that was drawn, so that an entry can check its ranges.
fn draws(scenario: &Scenario, cases: &[Case], quantities: &mut Quantities) {
    let mut put = |what: &str, numbers: &mut dyn Iterator<Item = f64>| {
        let (low, high) =
            numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (x.min(l), x.max(h)));
        let prefix = if scenario.name.is_empty() { "" } else { &format!("{}_", scenario.name) };
        quantities.insert(format!("{prefix}drawn_{what}"), vec![low, high]);
    };
    let nodes = || cases.iter().flat_map(|case| &case.nodes);
    let sessions = || cases.iter().flat_map(|case| &case.sessions);
    put("alpha", &mut nodes().map(|node| node.alpha));
    put("beta", &mut nodes().map(|node| node.beta));
    put("interval_ms", &mut nodes().map(|node| node.interval * 1e3));
    put("rtt_ms", &mut sessions().map(|session| session.rtt * 1e3));
    put("capacity_mbps", &mut cases.iter().map(|case| case.capacity / 1e6));
    put("sessions", &mut cases.iter().map(|case| case.sessions.len() as f64));
}

fn simulate(kind: Kind, cases: &[Case], law: Law) -> Result<Vec<Trajectory>, String> {
    let run: fn(&Case, Law) -> Result<Trajectory, String> = match kind {
        Kind::Rate => rate::run,
        Kind::Packet => packet::run,
        Kind::Formula | Kind::Maxmin | Kind::Law | Kind::Rivals | Kind::Nothing => {
            return Err("this kind of entry simulates nothing".to_owned());
        }
    };
    let timed = cases.iter().filter(|case| case.seconds > 0.0);
    timed.map(|case| run(case, law).map_err(|why| format!("{}: {why}", case.label))).collect()
}

/// Reads a measure off the runs of its scenario under both laws.
fn read(measure: &Measure, all: &[Runs], quantities: &mut Quantities) -> Result<(), String> {
    let mut found = false;
    for runs in all.iter().filter(|runs| runs.name == measure.scenario) {
        found = true;
        if runs.runs.is_empty() {
            return Err(format!("`{}`: its scenario has no timed run", measure.name));
        }
        let name = match runs.law {
            Law::EndNode => measure.name.clone(),
            Law::Grant => format!("grant_{}", measure.name),
        };
        let of = |run: &Trajectory| {
            measure.of(run).map_err(|why| format!("`{name}` in {}: {why}", run.label))
        };
        let numbers = match runs.runs.iter().map(of).collect::<Result<Vec<_>, _>>() {
            Ok(numbers) => numbers.concat(),
            // The measures are the checks' and those are about the thesis's law. What the other
            // lacks has no quantity, so that no check of it can be met.
            Err(_) if runs.law == Law::Grant => continue,
            Err(why) => return Err(why),
        };
        if quantities.insert(name, numbers).is_some() {
            return Err(format!("`{}` is measured twice", measure.name));
        }
    }
    if found { Ok(()) } else { Err(format!("`{}` names no scenario", measure.name)) }
}
