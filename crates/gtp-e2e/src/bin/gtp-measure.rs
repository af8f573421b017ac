//! Measures the product over emulated networks; needs root, iproute2 and, for TCP, iperf3.
//!
//! `gtp-measure run CASE… [--runs 3]` prints one line of JSON per row and run, then the medians.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use gtp_e2e::cases::{self, Tools};
use serde_json::Value;

/// Measure the product over emulated networks.
#[derive(Parser)]
enum Arguments {
    /// Runs cases.
    Run {
        /// Their names; none: all.
        cases: Vec<String>,
        /// How often each.
        #[arg(long, default_value_t = 3)]
        runs: usize,
    },
    /// The sink's process of a case.
    Sink {
        /// What to do.
        plan: PathBuf,
    },
    /// The process of a source that sends by itself.
    Source {
        /// What to do.
        plan: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Run { cases, runs } => run(cases, runs),
        Arguments::Sink { plan } => {
            let plan = serde_json::from_slice(&std::fs::read(plan)?)?;
            tokio::runtime::Runtime::new()?.block_on(gtp_e2e::plan::run(plan))
        }
        Arguments::Source { plan } => {
            let plan = serde_json::from_slice(&std::fs::read(plan)?)?;
            tokio::runtime::Runtime::new()?.block_on(gtp_e2e::produce::run(plan))
        }
    }
}

fn run(cases: Vec<String>, runs: usize) -> Result<()> {
    let own = std::env::current_exe()?;
    let gtp = own.with_file_name("gtp");
    let tools = Tools { gtp, own };
    let names = if cases.is_empty() {
        cases::NAMES.iter().map(|s| (*s).to_owned()).collect()
    } else {
        cases
    };
    for name in names {
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for _ in 0..runs {
            for (i, row) in cases::run(&name, &tools).context(name.clone())?.into_iter().enumerate()
            {
                println!("{row}");
                if rows.len() <= i {
                    rows.push(Vec::new());
                }
                rows[i].push(row);
            }
        }
        for row in &rows {
            println!("median {}", median(row));
        }
    }
    Ok(())
}

/// Field by field: the median of numbers, the first of anything else.
fn median(rows: &[Value]) -> Value {
    let mut fields: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in rows {
        for (key, value) in row.as_object().into_iter().flatten() {
            fields.entry(key.clone()).or_default().push(value.clone());
        }
    }
    let middle = |mut values: Vec<Value>| {
        if values.iter().any(|v| v.as_f64().is_none()) {
            return values.swap_remove(0);
        }
        values.sort_by(|a, b| {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(std::cmp::Ordering::Equal)
        });
        values.swap_remove(values.len() / 2)
    };
    fields.into_iter().map(|(key, values)| (key, middle(values))).collect()
}
