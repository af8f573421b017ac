//! `gtp emulate`: an emulated network between processes on this machine.
//!
//! The emulator does the work and prints nothing; here are its file, its signals and its words.
//! The first signal ends it cleanly, with its last counters.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gtp::{Failure, FailureKind, Span};
use gtp_emu::{Face, NetSpec, Progress, RunOptions, SpecError};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::args::EmulateArgs;
use crate::output;
use crate::show::json as out;
use crate::signals::Signals;

pub fn run(args: EmulateArgs) -> Result<ExitCode, Failure> {
    let face = if args.tun { Face::Tun } else { Face::Relay };
    let spec = NetSpec::read(&args.network)
        .and_then(|spec| spec.serves(face).map(|()| spec))
        .map_err(|error| refused(&args.network, &error))?;
    let runtime = super::runtime()?;
    let stop = Arc::new(AtomicBool::new(false));
    obey(&runtime, &stop)?;
    let options = RunOptions {
        face,
        stats_every: args.stats.map(|every| Span::from_nanos(every.as_nanos() as u64)),
    };
    let tell = |progress: Progress<'_>| match progress {
        Progress::Started(paths) if args.json => {
            let paths: serde_json::Map<_, _> =
                paths.iter().map(|(name, at)| (name.clone(), json!(at.to_string()))).collect();
            out::line(&json!({ "event": "listening", "paths": paths }));
        }
        Progress::Started(paths) => {
            for (name, at) in paths {
                output::aside(format_args!("{name}: {at}"));
            }
        }
        Progress::Stats { snapshot, interval } => {
            let text = if args.json { snapshot.to_json() } else { interval.to_json() };
            // Whether anybody reads counters changes nothing for the packets.
            let _ = output::json(text);
        }
    };
    let last = gtp_emu::run(&spec, options, &stop, tell).map_err(super::other)?;
    if args.json {
        output::json(last.to_json())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the first signal set `stop`, and the second end this process.
fn obey(runtime: &Runtime, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let mut signals = {
        let _inside = runtime.enter();
        Signals::take().map_err(super::other)?
    };
    let told = Arc::clone(stop);
    runtime.spawn(async move {
        signals.next().await;
        told.store(true, Ordering::Relaxed);
        signals.next().await;
        std::process::exit(130);
    });
    Ok(())
}

/// A network file that cannot be used is bad usage; every message names the file.
fn refused(network: &Path, error: &SpecError) -> Failure {
    let text = match error {
        SpecError::Read { .. } => error.to_string(),
        SpecError::Form(_) | SpecError::Sense { .. } | SpecError::Lacks(_) => {
            format!("{}: {error}", network.display())
        }
    };
    Failure::new(FailureKind::Usage, text)
}
