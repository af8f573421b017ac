//! `gtp-lab replay`: a scenario is run twice and must take the same course, and no packet may do
//! what nature forbids.
//!
//! The first says that nothing but scenario and seed decides; the second, that links do what links
//! can. Both are asked of the engines, not decided here.

use std::path::PathBuf;

use clap::Args;

use super::Level;
use crate::course::{self, Replayed};
use crate::refusal::Refusal;
use crate::scenario::model::{self, Scenario};
use crate::scenario::{Document, Overrides};

/// Arguments of `gtp-lab replay`.
#[derive(Args)]
#[command(after_help = "\
Exit codes: 0 the same twice and lawful, 1 not so, 2 bad scenario, 3 no such file.
A scenario too long to be replayed is a bad one here.")]
pub struct Replay {
    /// The scenario's TOML file
    file: PathBuf,
    /// Simulate every packet, or rates alone, whatever the file says
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Another seed than the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs twice, compares, verifies.
///
/// # Errors
/// If the runs part, a packet does the impossible, or there are too many packets to look at.
pub fn run(arguments: &Replay) -> Result<(), Refusal> {
    let document = Document::open(&arguments.file)?;
    let level = arguments.level.map(Into::into);
    check(&document.scenario(Overrides { level, seed: arguments.seed })?)
}

/// Checks one scenario.
///
/// # Errors
/// If the runs part, a packet does the impossible, or there are too many packets to look at.
pub fn check(scenario: &Scenario) -> Result<(), Refusal> {
    if let Some(place) = course::divergence(scenario)? {
        return Err(Refusal::Other(format!("two runs of the same scenario part at {place}")));
    }
    gtp_lab::say!("two runs took the same course");
    match scenario.level {
        model::Level::Rate => Ok(()),
        model::Level::Packet => match course::verified(scenario)? {
            Replayed::Lawful(said) => {
                gtp_lab::say!("{said}");
                Ok(())
            }
            Replayed::TooLong(why) => Err(Refusal::Input(why)),
        },
    }
}
