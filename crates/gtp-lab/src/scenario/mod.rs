//! Scenario files: what a network is, what is done on it, and what is to be varied.
//!
//! A file is TOML and is read strictly. It becomes a tree of values that know their places; a sweep
//! changes some of them; the reader turns the tree into plain values or says, with line and
//! column, what it found and what it expected. `docs/SIMULATOR.md` describes the format.

mod drawn;
pub mod model;
mod names;
mod network;
pub mod protocol;
mod read;
mod routers;
mod sweep;
mod traces;
mod traffic;
mod tree;
mod units;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use gtp_alloc::Span;
use gtp_alloc::endnode::{CapAtTarget, Params};

use crate::refusal::Refusal;
use drawn::Lots;
use model::{LawName, Level, Output, PathBound, Scenario};
use network::Network;
use read::Table;
use traces::Traces;
use tree::{Complaint, Entry, Files, Node, Truth, Value};

pub use sweep::{Case, Swept};

/// A scenario file that was read but not yet turned into a scenario.
#[derive(Clone, Debug)]
pub struct Document {
    files: Files,
    tree: Node,
    traces: Traces,
}

/// What the command line says in place of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Another level.
    pub level: Option<Level>,
    /// Another seed.
    pub seed: Option<u64>,
}

/// The number and the unit of a swept value, if it is a number.
pub fn number_of(value: &str) -> Option<(f64, &str)> {
    units::split(value).ok().map(|(number, unit)| (number.as_f64(), unit))
}

/// Entries of all combinations of a sweep together: each is read twice, about a minute in all.
const SWEPT_MAX: usize = 20_000_000;
/// Largest scenario file.
const FILE_MAX: u64 = 16 << 20;

impl Document {
    /// Reads a file and the network file that it names, if it names one.
    ///
    /// # Errors
    /// If a file is missing, too large or no TOML.
    pub fn open(path: &Path) -> Result<Document, Refusal> {
        let mut files = Files::default();
        let file = files.add(path.display().to_string(), text(path, FILE_MAX)?);
        let mut paths = vec![path.to_path_buf()];
        let refuse = |files: &Files, c: Complaint| Refusal::Input(files.explain(&c));
        let mut tree = files.tree(file).map_err(|c| refuse(&files, c))?;
        if let Some(included) = included(&tree, path).map_err(|c| refuse(&files, c))? {
            let file = files.add(included.display().to_string(), text(&included, FILE_MAX)?);
            let network = files.tree(file).map_err(|c| refuse(&files, c))?;
            if network.value.as_table().is_some_and(<[Entry]>::is_empty) {
                let message = "the file is empty: expected a network's [[link]]s, [[host]]s and \
                               [[route]]s";
                return Err(refuse(&files, Complaint::new(&network.place, message)));
            }
            join(&mut tree, network);
            paths.push(included);
        }
        let traces = Traces::open(&tree, &paths).map_err(|c| refuse(&files, c))?;
        Ok(Document { files, tree, traces })
    }

    /// Reads a scenario from a text that is shown under this name; it can name no network file
    /// and no trace.
    ///
    /// # Errors
    /// If it is no TOML.
    pub fn parse(name: &str, text: &str) -> Result<Document, Refusal> {
        let mut files = Files::default();
        let file = files.add(name.to_owned(), text.to_owned());
        match files.tree(file) {
            Ok(tree) => Ok(Document { files, tree, traces: Traces::default() }),
            Err(complaint) => Err(Refusal::Input(files.explain(&complaint))),
        }
    }

    /// The text of the named file.
    pub fn source(&self) -> &str {
        self.files.text(0)
    }

    /// The scenario as it stands, its sweep left aside.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn scenario(&self, overrides: Overrides) -> Result<Scenario, Refusal> {
        self.read(&self.tree, overrides).map_err(|c| Refusal::Input(self.files.explain(&c)))
    }

    /// Puts a value in place of what the file says, by a path as a sweep has it. Text that is a
    /// number or a truth value counts as such.
    ///
    /// # Errors
    /// If the path leads nowhere.
    pub fn set(&mut self, path: &str, text: &str) -> Result<(), Refusal> {
        let put = sweep::set(&mut self.tree, path, text);
        put.map_err(|c| Refusal::Input(self.files.explain(&c)))
    }

    /// What is swept, and the scenario of every combination.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn cases(&self, overrides: Overrides) -> Result<Swept, Refusal> {
        let explain = |c: Complaint| Refusal::Input(self.files.explain(&c));
        let swept = sweep::cases(&self.tree).map_err(explain)?;
        // Whatever a combination makes impossible is said before anything runs.
        let mut entries = 0usize;
        for n in 0..swept.count() {
            let case = swept.case(n);
            let scenario = self.read(&case.tree, overrides).map_err(explain)?;
            entries = entries.saturating_add(scenario.entries());
            if entries > SWEPT_MAX {
                let (said, all) = (n + 1, swept.count());
                let message = format!(
                    "{said} of {all} combinations have more than {SWEPT_MAX} hosts, links, \
                     sessions and events together: sweep fewer values, or a smaller network"
                );
                let place = read::entry(&self.tree, "sweep").map_or(&self.tree.place, |e| &e.place);
                return Err(explain(Complaint::new(place, message)));
            }
        }
        Ok(swept)
    }

    /// The scenario of one combination.
    ///
    /// # Errors
    /// What is wrong, with line and column.
    pub fn case(&self, case: &Case, overrides: Overrides) -> Result<Scenario, Refusal> {
        self.read(&case.tree, overrides).map_err(|c| Refusal::Input(self.files.explain(&c)))
    }

    fn read(&self, tree: &Node, overrides: Overrides) -> Result<Scenario, Complaint> {
        scenario(tree, &self.traces, overrides)
    }
}

fn text(path: &Path, most: u64) -> Result<String, Refusal> {
    let name = path.display();
    let failed = |e: std::io::Error| {
        let why = format!("cannot read {name}: {e}");
        match e.kind() {
            std::io::ErrorKind::NotFound => Refusal::Missing(why),
            _ => Refusal::Other(why),
        }
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        let mib = most >> 20;
        return Err(Refusal::Input(format!("{name}: is larger than {mib} MiB")));
    }
    String::from_utf8(bytes).map_err(|_| Refusal::Input(format!("{name}: not text in UTF-8")))
}

/// The network file that a scenario names, beside the scenario.
fn included(tree: &Node, path: &Path) -> Result<Option<PathBuf>, Complaint> {
    let Some(entry) = read::entry(tree, "network") else { return Ok(None) };
    match &entry.node.value {
        Value::Text(name) => Ok(Some(path.with_file_name(name))),
        other => Err(read::wrong(&entry.node, "network", other, "the name of a network file")),
    }
}

/// Puts a network file's tables before those of the scenario.
fn join(tree: &mut Node, network: Node) {
    let (Value::Table(entries), Value::Table(added)) = (&mut tree.value, network.value) else {
        return;
    };
    for Entry { key, place, node } in added {
        match (entries.iter_mut().find(|entry| entry.key == key), node.value) {
            (Some(entry), Value::List(mut items)) => {
                if let Value::List(own) = &mut entry.node.value {
                    items.append(own);
                    *own = items;
                }
            }
            // The scenario's own word counts.
            (Some(_), _) => {}
            (None, value) => {
                entries.push(Entry { key, place, node: Node { place: node.place, value } });
            }
        }
    }
}

fn scenario(tree: &Node, traces: &Traces, overrides: Overrides) -> Result<Scenario, Complaint> {
    let mut top = Table::of(tree, "the scenario")?;
    for read_elsewhere in ["sweep", "network"] {
        top.node(read_elsewhere);
    }
    let title = top.text("title", "a title")?.map(|t| t.value);
    let about = top.text("about", "a sentence")?.map(|t| t.value);
    let level = top.choice("level", &[("packet", Level::Packet), ("rate", Level::Rate)])?;
    let level = overrides.level.or(level).unwrap_or(Level::Packet);
    let laws = [("grant", LawName::Grant), ("endnode", LawName::EndNode)];
    let law = top.choice("law", &laws)?.unwrap_or(LawName::Grant);
    let bounds = [("on", PathBound::On), ("off", PathBound::Off)];
    let path_bound = top.choice("path_bound", &bounds)?.unwrap_or_default();
    let possible = DURATION_LEAST..=read::DURATION_MOST;
    let duration = top.within("duration", possible, "a time from 1ms to 24h")?;
    let duration = duration.ok_or_else(|| top.lacks("duration", "a time such as 30s"))?;
    let seed = top.integer("seed", 0..=i64::MAX)?.unwrap_or(1) as u64;
    let seed = overrides.seed.unwrap_or(seed);
    let interval = top.interval("interval")?;
    let params = params(&mut top)?;
    let output = output(&mut top, duration)?;
    let mut lots = Lots::new(seed);
    let mut network = Network::default();
    let read = network.read(&mut top, traces, &mut lots);
    // A table with a misspelt head is missed where it is referred to.
    read.map_err(|complaint| top.stray().unwrap_or(complaint))?;
    let sessions = traffic::sessions(&mut top, level, &network, &mut lots);
    let sessions = sessions.map_err(|complaint| top.stray().unwrap_or(complaint))?;
    let backgrounds = traffic::backgrounds(&mut top, &network)?;
    let busy = routers::Busy { sessions: &sessions, backgrounds: &backgrounds, law };
    let routers = routers::routers(&mut top, &network, &busy)?;
    let faults = traffic::faults(&mut top, &network, &routers)?;
    if sessions.is_empty() {
        return Err(top.lacks("session", "at least one table [[session]]"));
    }
    top.finish()?;
    let mut events = network.events;
    events.extend(faults);
    events.sort_by_key(|(at, _)| *at);
    Ok(Scenario {
        title: title.unwrap_or_else(|| "A scenario".to_owned()),
        about: about.unwrap_or_default(),
        level,
        duration,
        seed,
        law,
        path_bound,
        params,
        interval,
        links: network.links,
        nodes: network.nodes,
        routes: network.routes,
        paths: network.paths,
        allocators: routers.entries,
        sessions,
        backgrounds,
        events,
        output,
    })
}

/// The end-node law's parameters.
fn params(top: &mut Table<'_>) -> Result<Params, Complaint> {
    let mut params = Params::DEFAULT;
    let Some(mut table) = top.table("endnode")? else { return Ok(params) };
    params.alpha = table.number("alpha", 0.000_1..=0.999_9)?.unwrap_or(params.alpha);
    params.beta = table.number("beta", 0.000_1..=0.999_9)?.unwrap_or(params.beta);
    params.cap_at_target = match table.truth("cap_at_target")? {
        Some(Truth::False) => CapAtTarget::No,
        Some(Truth::True) | None => CapAtTarget::Yes,
    };
    table.finish()?;
    Ok(params)
}

fn output(top: &mut Table<'_>, duration: Span) -> Result<Output, Complaint> {
    let usual = Span::from_nanos((duration.as_nanos() / 1_000).max(1_000_000));
    let mut output =
        Output { every: usual.min(Span::from_millis(100)), curves: 12, tolerance: 0.05 };
    let Some(mut table) = top.table("output")? else { return Ok(output) };
    if let Some(node) = table.node("every") {
        output.every = every(node, duration)?;
    }
    output.curves = table.integer("curves", 1..=64)?.map_or(output.curves, |n| n as usize);
    output.tolerance = table.number("tolerance", 0.000_01..=1.0)?.unwrap_or(output.tolerance);
    table.finish()?;
    Ok(output)
}

/// The time between two points of a curve.
fn every(node: &Node, duration: Span) -> Result<Span, Complaint> {
    let every: Span = read::quantity(node, "every")?;
    let bins = duration.as_nanos() / every.as_nanos().max(1);
    if (1..=BINS_MAX).contains(&bins) {
        return Ok(every);
    }
    let found = node.value.described();
    let message = format!(
        "`every` is {found}, which gives {bins} points to a curve: 1 to {BINS_MAX} are possible"
    );
    Err(Complaint::new(&node.place, message))
}

const DURATION_LEAST: Span = Span::from_millis(1);
/// Points of a curve: what the packet level's trace holds.
const BINS_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
