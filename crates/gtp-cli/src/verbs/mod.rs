//! One file for each verb.
//!
//! A verb gets its options and returns an exit code or a failure; here failures become words and
//! codes, in one place.

mod completions;
mod emulate;
mod frames;
mod get;
mod id;
mod ls;
mod man;
pub mod put;
mod router;
mod serve;
mod settings;
pub mod several;
mod spread;
mod step;
pub mod stream;
pub mod transfer;
pub mod unhurried;

use std::process::ExitCode;
use std::time::Duration;

use gtp::{Failure, FailureKind, Host, HostBuilder, Span};
use tokio::runtime::{Builder, Runtime};

use crate::args::{HostArgs, TransferArgs, Verb};
use crate::log::SERVER;
use crate::output;
use crate::show::json;

/// Does what was asked and says how it ended.
pub fn run(verb: Verb) -> ExitCode {
    let is_sync = matches!(&verb, Verb::Sync(args) if args.transfer.json);
    let says_json = is_sync
        || matches!(
            &verb,
            Verb::Serve(crate::args::ServeArgs { json: true, .. })
                | Verb::Get(crate::args::GetArgs { transfer: TransferArgs { json: true, .. }, .. })
                | Verb::Put(crate::args::PutArgs { transfer: TransferArgs { json: true, .. }, .. })
                | Verb::Cp(crate::cp::CpArgs { transfer: TransferArgs { json: true, .. }, .. })
                | Verb::Ls(crate::args::LsArgs { json: true, .. })
                | Verb::Plan(crate::plan::PlanArgs { json: true, .. })
                | Verb::Probe(crate::probe::ProbeArgs { json: true, .. })
        );
    let is_service = matches!(verb, Verb::Serve(_));
    // What is started gets the limit that this process was started with: programs may use
    // `select`.
    if !matches!(verb, Verb::Run(_) | Verb::Ssh(_) | Verb::FarEnd(_)) {
        gtp_sys::descriptors::raise_limit();
    }
    let ended = check_descriptors(&verb).and_then(|()| obey(verb));
    match ended {
        Ok(code) => code,
        Err(failure) => {
            if says_json {
                json::failed(&failure);
            }
            match is_service {
                true => tracing::error!(target: SERVER, "{failure}"),
                false => say_failure(&failure),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Refuses to move data with so few descriptors that something would wait for ever.
fn check_descriptors(verb: &Verb) -> Result<(), Failure> {
    let moves = matches!(
        verb,
        Verb::Serve(_)
            | Verb::Get(_)
            | Verb::Put(_)
            | Verb::Cp(_)
            | Verb::Sync(_)
            | Verb::Plan(_)
            | Verb::Ls(_)
            | Verb::FarEnd(_)
            | Verb::Pump(_)
            | Verb::Stream(_)
            | Verb::Probe(_)
            | Verb::Bench(_)
    );
    if moves { gtp_sys::descriptors::check_limit().map_err(other) } else { Ok(()) }
}

/// Runs the verb.
fn obey(verb: Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Serve(args) => serve::run(args),
        Verb::Get(args) => get::run(args),
        Verb::Put(args) => put::run(args),
        Verb::Cp(args) => crate::cp::run(args),
        Verb::Plan(args) => crate::plan::run(&args),
        Verb::Sync(args) => crate::sync::run(*args),
        Verb::Ssh(args) => crate::ssh::run(*args),
        Verb::FarEnd(args) => crate::cp::run_far_end(args),
        Verb::Ls(args) => ls::run(args),
        Verb::Id(args) => id::run(args),
        Verb::Keys(args) => crate::keys::run(args),
        Verb::Run(args) => crate::run::run(args),
        Verb::Pump(args) => crate::run::pump(args),
        Verb::Stream(args) => stream::run(args),
        Verb::Probe(args) => crate::probe::run(args),
        Verb::Emulate(args) => emulate::run(args),
        Verb::Router(args) => router::run(args),
        Verb::Demo(args) => crate::demo::run(&args, transfer::agreed(args.control)),
        Verb::Bench(args) => crate::bench::run(args),
        Verb::Sessions(args) => crate::daemon::sessions(&args),
        Verb::Top(args) => crate::top::run(&args),
        Verb::Set(args) => crate::daemon::set(&args),
        Verb::Doctor(args) => crate::doctor::run(&args),
        Verb::Config(args) => settings::run(args),
        Verb::Candidates(args) => crate::candidates::run(&args),
        Verb::Completions { shell } => completions::run(shell),
        Verb::Man { dir } => man::run(&dir),
    }
}

/// Tells people of a failure.
pub fn say_failure(failure: &Failure) {
    output::aside(format_args!("gtp: {failure}"));
}

/// The code of a command that has done its work. Output that could not be written beside it makes
/// it fail.
pub fn done() -> ExitCode {
    let Some(failure) = output::lost() else { return ExitCode::SUCCESS };
    say_failure(&failure);
    ExitCode::from(failure.exit_code())
}

/// A failure of this process's own surroundings.
pub fn other(error: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Other, error.to_string())
}

/// A host as the options describe it.
pub fn host(args: &HostArgs) -> HostBuilder {
    let mut builder = Host::builder();
    if let Some(rate) = args.capacity_in {
        builder = builder.capacity_in(rate);
    }
    if let Some(rate) = args.capacity_out {
        builder = builder.capacity_out(rate);
    }
    if let Some(interval) = args.interval {
        builder = builder.interval(Span::from_nanos(interval.as_nanos() as u64));
    }
    for router in &args.router {
        builder = builder.router(router.clone());
    }
    match crate::daemon::sharing(args) {
        Some(sharing) => builder.share(sharing),
        None => builder,
    }
}

/// Starts a host that only calls servers: where no key can be kept, it has one in memory, and one
/// line says so.
///
/// # Errors
/// As [`HostBuilder::start`].
pub fn start_client(builder: HostBuilder) -> Result<Host, Failure> {
    let host = builder.or_in_memory().start()?;
    if let Some(why) = host.unkept() {
        output::aside(format_args!(
            "gtp: warning: this host's key is for this command alone: {why}"
        ));
    }
    Ok(host)
}

/// What async verbs run on. Threads for what blocks, such as opening files, come as they are needed
/// and end after [`IDLE`].
pub fn runtime() -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).thread_keep_alive(IDLE).enable_all().build().map_err(other)
}

/// Short, so that a process has the same number of threads whatever its sessions, but for a second
/// after they began.
const IDLE: Duration = Duration::from_secs(1);
