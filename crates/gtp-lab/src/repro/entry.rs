//! One entry: what a paper states, how it is computed here, and what must be true of the result.
//!
//! An entry is data: `repro/<paper>/<id>/entry.toml`. Its folder's name is its id. Everything that
//! is not understood is refused, so that a misspelt check cannot pass by being ignored. The types
//! here say what an entry may hold; computing and judging are elsewhere.

use super::aecp::Aecp;
use super::aecp_packets::Packets;
use super::case::{Links, Scenario, Spread};
use super::criterion::Criterion;
use super::exact::Exact;
use super::gtp2004::Rule;
use super::hops::Hops;
use super::lambdastream::Equation;
use super::law::Property;
use super::lightpaths::Lightpaths;
use super::measure::Measure;
use super::played::Played;
use super::real::Real;
use super::rivals::Rivals;
use super::sabul::Sabul;
use super::sabul_packets::Row;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An entry as its file states it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The folder's name.
    #[serde(skip)]
    pub id: String,
    /// Where it is.
    #[serde(skip)]
    pub folder: PathBuf,
    /// What it is about.
    pub title: String,
    /// Section, figure or table of the paper.
    pub place: String,
    /// What the paper states, in our words.
    pub claim: String,
    /// How the numbers come about.
    pub kind: Kind,
    /// Why what holds of it here cannot speak for the paper: it was put in.
    pub by_construction: Option<String>,
    /// How firm the paper is about it.
    pub firmness: Firmness,
    /// What the paper leaves open and how it was filled, or where it contradicts itself.
    #[serde(default)]
    pub note: String,
    /// Whether the tests run it.
    #[serde(default)]
    pub cost: Cost,
    /// Numbers that formulas may name.
    #[serde(default)]
    pub given: BTreeMap<String, Numbers>,
    /// Networks whose exact allocation is wanted.
    #[serde(default)]
    pub network: Vec<Solve>,
    /// Properties tried on many random inputs.
    #[serde(default)]
    pub law: Vec<Tried<Property>>,
    /// Properties of exact allocations tried on many random networks.
    #[serde(default)]
    pub exact: Vec<Tried<Exact>>,
    /// Rules of GTP 2004 tried on many random inputs.
    #[serde(default)]
    pub gtp2004: Vec<Tried<Rule>>,
    /// Equations of LambdaStream tried on many random inputs.
    #[serde(default)]
    pub lambdastream: Vec<Tried<Equation>>,
    /// Networks of rivals to be simulated.
    #[serde(default)]
    pub rivals: Vec<Rivals>,
    /// What AECP's equations lead to.
    #[serde(default)]
    pub aecp: Vec<Aecp>,
    /// AECP's networks, packet by packet.
    #[serde(default)]
    pub aecp_packets: Vec<Packets>,
    /// What SABUL's equations and its model lead to.
    #[serde(default)]
    pub sabul: Vec<Sabul>,
    /// Light paths shared out by the end-node law.
    #[serde(default)]
    pub lightpaths: Vec<Lightpaths>,
    /// Networks whose links run the end-node law.
    #[serde(default)]
    pub hops: Vec<Hops>,
    /// Rows of SABUL's tables, packet by packet.
    #[serde(default)]
    pub sabul_packets: Vec<Row>,
    /// Networks to be simulated, each perhaps with several runs.
    #[serde(default)]
    pub scenario: Vec<Scenario>,
    /// Scenario files beside the entry, to be run.
    #[serde(default)]
    pub played: Vec<Played>,
    /// What is read off the runs.
    #[serde(default)]
    pub measure: Vec<Measure>,
    /// `name = formula` over everything above, in this order.
    #[serde(default)]
    pub compute: Vec<String>,
    /// What must be true.
    #[serde(default)]
    pub check: Vec<Check>,
    /// Quantities to be shown beside the thesis's law: what the grant law makes of the same.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Tables that its page shows.
    #[serde(default)]
    pub table: Vec<super::table::Tabled>,
    /// Which curves its page shows.
    #[serde(default)]
    pub plot: Vec<Plot>,
    /// The paper measured a real program; here the same network is simulated.
    pub real: Option<Real>,
    /// What is missing for the rest of the entry.
    pub waiting: Option<Waiting>,
    /// There is nothing to compute, and never will be.
    pub not_applicable: Option<NotApplicable>,
}

/// How the numbers of an entry come about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Arithmetic.
    Formula,
    /// The exact allocation of a network.
    Maxmin,
    /// A property of the law or of the allocation, tried on many random inputs.
    Law,
    /// The rate-level simulation.
    Rate,
    /// The packet-level simulation.
    Packet,
    /// The rivals' own ends, packet by packet, over a shared port.
    Rivals,
    /// Nothing that this program can compute.
    Nothing,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Formula => "formula",
            Kind::Maxmin => "maxmin",
            Kind::Law => "law",
            Kind::Rate => "rate",
            Kind::Packet => "packet",
            Kind::Rivals => "rivals",
            Kind::Nothing => "nothing",
        }
    }
}

/// How firm a paper is about what it states.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Firmness {
    /// Arithmetic or a theorem.
    Exact,
    /// Its text gives numbers.
    Quantitative,
    /// Words only: the numbers of the criterion are our reading.
    Qualitative,
}

/// Whether an entry is cheap enough for the tests.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// A moment, even without optimisation.
    #[default]
    Cheap,
    /// Only for the optimised program.
    Dear,
}

impl Cost {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Cost::Cheap => "cheap",
            Cost::Dear => "dear",
        }
    }
}

/// One number or a row of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Numbers {
    /// One.
    One(f64),
    /// A row.
    Row(Vec<f64>),
}

impl Numbers {
    /// As a list.
    pub fn list(&self) -> Vec<f64> {
        match self {
            Numbers::One(x) => vec![*x],
            Numbers::Row(row) => row.clone(),
        }
    }
}

/// A network to be solved exactly. Gives `<name>_rates` by session, `<name>_sorted` from the
/// highest down, `<name>_highest`, `<name>_sum` and `<name>_off`, the largest error against exact
/// fractions as a part of the capacity.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solve {
    /// Prefix of its quantities.
    pub name: String,
    /// For each source, the sinks of its sessions.
    pub links: Links,
    /// Each node's capacity.
    pub capacity: f64,
    /// Each session's desired rate; unlimited if left out.
    pub demand: Option<Spread>,
    /// How many of the highest rates are wanted by themselves.
    #[serde(default)]
    pub highest: usize,
}

/// A property with how often and from which seed it is tried.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tried<P> {
    /// Which one.
    pub property: P,
    /// How many random inputs.
    pub cases: usize,
    /// Where they come from.
    pub seed: u64,
}

/// Something that must be true.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The claim in words.
    pub says: String,
    /// The quantity it is about.
    pub of: String,
    /// What must be true of the quantity.
    pub must: Criterion,
    /// Whose claim it is.
    #[serde(default)]
    pub whose: Whose,
    /// Why the tolerance is what it is.
    #[serde(default)]
    pub why: String,
    /// Why the claim is not true here. It must indeed be false then, and some check of the entry
    /// must establish the cause.
    pub differs: Option<String>,
    /// What is known of a claim that is not true here though nobody knows why. It must indeed be
    /// false then.
    pub unexplained: Option<String>,
}

/// Whose claim a check is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// What the paper's own premises lead to, or its claim as we read it.
    #[default]
    Ours,
    /// The number or word as printed.
    Printed,
    /// Evidence for the reason of a difference.
    Cause,
}

/// A quantity to be shown under both laws.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// What it is.
    pub says: String,
    /// The quantity of the thesis's law; the grant law's has `grant_` before its name.
    pub of: String,
    /// Its unit.
    #[serde(default)]
    pub unit: String,
}

/// Curves over time, under each law.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Plot {
    /// The rate of each session.
    Rates,
    /// The distance to the max-min rates, as a part of that at the start.
    Distance,
    /// The largest load of any sink.
    Load,
}

/// What an entry waits for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    /// What is missing.
    pub what: String,
    /// Why the entry cannot be judged without it.
    pub why: String,
}

/// Why an entry has nothing to check: an illustration, a definition, a property of machines.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotApplicable {
    /// Why, and where what it shows is found here.
    pub why: String,
}

/// Where entries are, and why they could not be read.
pub fn load(root: &Path, paper: &str) -> Result<Vec<Entry>, String> {
    let folder = root.join(paper);
    let listing =
        std::fs::read_dir(&folder).map_err(|e| format!("cannot read {}: {e}", folder.display()))?;
    let mut folders: Vec<PathBuf> = listing
        .filter_map(Result::ok)
        .map(|item| item.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders.iter().map(|folder| read(folder)).collect()
}

fn read(folder: &Path) -> Result<Entry, String> {
    let path = folder.join("entry.toml");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let id = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut entry = parse(&id, &text).map_err(|why| format!("{}: {why}", path.display()))?;
    entry.folder = folder.to_owned();
    Ok(entry)
}

/// An entry from its file's text.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn parse(id: &str, text: &str) -> Result<Entry, String> {
    let mut entry: Entry = toml::from_str(text).map_err(|e| e.to_string())?;
    entry.id = id.to_owned();
    sensible(&entry)?;
    Ok(entry)
}

/// What no field alone can say.
fn sensible(entry: &Entry) -> Result<(), String> {
    let nothing = entry.kind == Kind::Nothing;
    if nothing && entry.waiting.is_some() == entry.not_applicable.is_some() {
        let text = "computes nothing: it says either what it waits for or why it is not applicable";
        return Err(text.to_owned());
    }
    if !nothing && entry.not_applicable.is_some() {
        return Err("what is computed is applicable".to_owned());
    }
    if nothing != entry.check.is_empty() {
        return Err("an entry has checks, or its kind is `nothing` and it has none".to_owned());
    }
    let tried = entry.law.iter().map(|t| t.cases).chain(entry.exact.iter().map(|t| t.cases));
    let rules = entry.gtp2004.iter().map(|t| t.cases);
    let rules = rules.chain(entry.lambdastream.iter().map(|t| t.cases));
    let equations = entry.aecp.iter().filter_map(Aecp::cases);
    let equations = equations.chain(entry.sabul.iter().filter_map(Sabul::cases));
    if tried.chain(rules).chain(equations).min() == Some(0) {
        return Err("a property that is tried on no case".to_owned());
    }
    differences(&entry.check)?;
    if let Some(real) = &entry.real {
        differences(&real.check)?;
        if !real.check.is_empty() && real.run.is_none() {
            return Err("what is checked of a real run needs the command that runs it".to_owned());
        }
    }
    if !entry.scenario.is_empty() && !matches!(entry.kind, Kind::Rate | Kind::Packet) {
        return Err("scenarios need the kind `rate` or `packet`".to_owned());
    }
    Ok(())
}

/// Refuses differences that could not be told from what holds.
fn differences(checks: &[Check]) -> Result<(), String> {
    // Such a check would be its own cause, and as a difference it has to be false.
    let is_difference = |check: &Check| check.differs.is_some() || check.unexplained.is_some();
    let own_cause = |check: &Check| check.whose == Whose::Cause && is_difference(check);
    if checks.iter().any(own_cause) {
        return Err("a check that establishes a cause cannot be a difference itself".to_owned());
    }
    if checks.iter().any(|check| check.differs.is_some() && check.unexplained.is_some()) {
        return Err("a difference is explained, or it is not".to_owned());
    }
    let differs = checks.iter().any(|check| check.differs.is_some());
    let cause = checks.iter().any(|check| check.whose == Whose::Cause);
    if differs && !cause {
        return Err("a difference needs a check whose = \"cause\" that establishes it".to_owned());
    }
    Ok(())
}
