//! `gtp-lab maxmin`: exact max-min fair rates of the network in a JSON file.
//!
//! Names are turned into indices, the library solves, indices are turned back. Whatever would
//! make the answer ambiguous is refused by name: twice the same resource or session, a resource
//! that is not listed, a field that is not known.

use crate::refusal::Refusal;
use clap::Args;
use gtp_alloc::maxmin::{Network, NetworkError, Session, WEIGHT_MAX, WEIGHT_MIN, solve};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The largest input read: some four hundred million sessions of forty bytes each, so that a
/// mistaken argument ends in a sentence and not in a machine without memory.
const INPUT_MAX: u64 = 16 << 30;

/// Arguments of `gtp-lab maxmin`.
#[derive(Args)]
#[command(after_help = "\
Input:   {\"capacity\":{\"a\":1e9,\"b\":7e8},
          \"sessions\":[{\"id\":\"s1\",\"uses\":[\"a\",\"b\"],\"demand\":2e8,\"weight\":1}]}
Output:  {\"rates\":{\"s1\":200000000.0}}

Rates, capacities and demands are in bit/s. demand may be null or left out (no limit), weight
may be left out (1). Exit codes: 0 done, 2 bad input, 3 no such file, 1 anything else.")]
pub struct Maxmin {
    /// The network's JSON file, or `-` for standard input
    network: PathBuf,
}

/// Reads, solves, prints.
pub fn run(arguments: &Maxmin) -> Result<(), Refusal> {
    let text = read(&arguments.network)?;
    let input: Input = serde_json::from_slice(&text).map_err(|e| {
        Refusal::Input(format!("{}: not a network: {e}", arguments.network.display()))
    })?;
    let network = build(&input)?;
    let rates = solve(&network);
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write(&mut out, &input.sessions, &rates).and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Refusal::Other(format!("cannot write the rates: {e}"))),
        Ok(()) => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    let failed = |e: io::Error| {
        let why = format!("cannot read {}: {e}", path.display());
        if e.kind() == io::ErrorKind::NotFound {
            Refusal::Missing(why)
        } else {
            Refusal::Other(why)
        }
    };
    let mut text = Vec::new();
    let taken = if path == Path::new("-") {
        io::stdin().lock().take(INPUT_MAX + 1).read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|f| f.take(INPUT_MAX + 1).read_to_end(&mut text))
    };
    if taken.map_err(failed)? as u64 > INPUT_MAX {
        return Err(Refusal::Input(format!("{}: larger than 16 GiB", path.display())));
    }
    Ok(text)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input<'a> {
    #[serde(borrow)]
    capacity: Capacities<'a>,
    #[serde(borrow)]
    sessions: Vec<Asked<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Name<'a>,
    #[serde(borrow)]
    uses: Vec<Name<'a>>,
    #[serde(default)]
    demand: Option<f64>,
    #[serde(default = "one")]
    weight: f64,
}

fn one() -> f64 {
    1.0
}

/// A string, borrowed from the input unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The capacity object as it is written, repetitions included: a plain map would hide them.
struct Capacities<'a>(Vec<(Name<'a>, f64)>);

impl<'de: 'a, 'a> Deserialize<'de> for Capacities<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vec<(Name<'de>, f64)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of resource names and capacities in bit/s")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Entries).map(Capacities)
    }
}

fn build(input: &Input<'_>) -> Result<Network, Refusal> {
    let mut index = HashMap::with_capacity(input.capacity.0.len());
    for (at, (name, _)) in input.capacity.0.iter().enumerate() {
        if index.insert(&*name.0, at as u32).is_some() {
            return Err(Refusal::Input(format!(
                "resource {:?} has two capacities: remove one",
                name.0
            )));
        }
    }
    let capacity = input.capacity.0.iter().map(|(_, c)| *c).collect();
    let mut network = Network::new(capacity).map_err(|e| explain(e, input, ""))?;
    let mut seen = HashSet::with_capacity(input.sessions.len());
    let mut uses = Vec::new();
    for session in &input.sessions {
        let id = &*session.id.0;
        if !seen.insert(id) {
            return Err(Refusal::Input(format!("two sessions have the id {id:?}: rename one")));
        }
        uses.clear();
        for name in &session.uses {
            uses.push(*index.get(&*name.0).ok_or_else(|| {
                Refusal::Input(format!(
                    "session {id:?} uses {:?}, which has no capacity: add it to \"capacity\"",
                    name.0
                ))
            })?);
        }
        let demand = session.demand.unwrap_or(f64::INFINITY);
        network
            .add(Session { uses: &uses, weight: session.weight, demand })
            .map_err(|e| explain(e, input, id))?;
    }
    Ok(network)
}

/// The library's refusal in the input's own names, with what to do.
fn explain(error: NetworkError, input: &Input<'_>, id: &str) -> Refusal {
    let resource = |r: u32| &*input.capacity.0[r as usize].0.0;
    Refusal::Input(match error {
        NetworkError::Capacity { resource: r } => format!(
            "resource {:?} has capacity {}: give bit/s, zero or more, at most 1e30",
            resource(r),
            input.capacity.0[r as usize].1
        ),
        NetworkError::Weight { .. } => format!(
            "session {id:?} has a weight outside {WEIGHT_MIN:.2e}..={WEIGHT_MAX}: only ratios of \
             weights matter, so scale all of them"
        ),
        NetworkError::Demand { .. } => {
            format!("session {id:?} has a negative demand: give bit/s, or null if it has no limit")
        }
        NetworkError::UnknownResource { resource: r, .. } => {
            format!("session {id:?} uses resource number {r}, which does not exist")
        }
        NetworkError::DuplicateResource { resource: r, .. } => {
            format!("session {id:?} uses {:?} twice: name it once", resource(r))
        }
        NetworkError::Unbounded { .. } => {
            format!("session {id:?} uses nothing and has no demand: give it one or the other")
        }
        NetworkError::TooLarge => {
            "more than 4294967294 resources or uses in all: split the network".to_owned()
        }
    })
}

/// One object in the input's order, written as it goes: a map would sort and copy it.
fn write(out: &mut impl Write, sessions: &[Asked<'_>], rates: &[f64]) -> io::Result<()> {
    out.write_all(b"{\"rates\":{")?;
    for (at, (session, rate)) in sessions.iter().zip(rates).enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *out, &session.id.0)?;
        out.write_all(b":")?;
        serde_json::to_writer(&mut *out, rate)?;
    }
    out.write_all(b"}}\n")
}
