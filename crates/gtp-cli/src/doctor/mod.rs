//! `gtp doctor`: what makes transfers slow or fail here and on the way to a server, and the line
//! that mends it.
//!
//! Each check is a file: what it reads, and apart from that a decision on plain values. Rows are
//! printed as they are found. Nothing is changed anywhere; what is written to try a disk is
//! removed.

mod buffers;
mod clock;
mod daemon;
mod descriptors;
mod disk;
mod far;
mod finding;
mod memory;
mod mtu;
mod offload;
mod version;

use std::process::ExitCode;

use clap::Args;
use clap::builder::BoolishValueParser;
use gtp::{Failure, Url};

use crate::args::TrustArgs;
use crate::daemon::Which;
use finding::{Finding, Verdict};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// An object of a server: the way there is looked at too, and the object is fetched and dropped
    pub url: Option<Url>,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// The daemon that processes here are told to use; looked for in the usual places if not said
    #[arg(long, value_name = "WHICH", env = "GTP_DAEMON", value_parser = crate::daemon::which)]
    pub daemon: Option<Which>,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// The exit code if any row is a warning or a fault.
const SOMETHING_IS_WRONG: u8 = 13;

/// Looks at everything, and prints a row for each.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let mut worst = Verdict::Ok;
    let checks: [&dyn Fn() -> Finding; 9] = [
        &version::check,
        &buffers::check,
        &offload::check,
        &mtu::check,
        &clock::check,
        &descriptors::check,
        &memory::check,
        &disk::check,
        &|| daemon::check(args.daemon.as_ref()),
    ];
    for check in checks {
        let finding = check();
        finding.say(args.json)?;
        worst = worst.max(finding.verdict);
    }
    if let Some(url) = &args.url {
        let mut say = |finding: Finding| {
            worst = worst.max(finding.verdict);
            finding.say(args.json)
        };
        crate::verbs::runtime()?.block_on(far::check(args, url, &mut say))?;
    }
    Ok(exit_code(worst))
}

fn exit_code(worst: Verdict) -> ExitCode {
    match worst {
        Verdict::Ok => ExitCode::SUCCESS,
        Verdict::Warning | Verdict::Fault => ExitCode::from(SOMETHING_IS_WRONG),
    }
}
