//! `gtp put`: sends files and directories to a server.
//!
//! All paths travel as one object, so that many small ones cost no round trip each. What the server
//! has already it does not ask for. Standard input, named `-`, travels as a stream.

use std::path::PathBuf;
use std::process::ExitCode;

use gtp::{Failure, FailureKind, Put, Url};

use super::transfer::{Ends, Options, watch};
use crate::args::{PutArgs, RETRY_FOR, TransferArgs};
use crate::output;
use crate::show::Shower;

pub fn run(args: PutArgs) -> Result<ExitCode, Failure> {
    let usage = |text: String| Failure::new(FailureKind::Usage, text);
    let Some((url, paths @ [_, ..])) = args.paths_and_url.split_last() else {
        return Err(usage("an address is needed after the path, as in: gtp put PATH URL".into()));
    };
    let url: Url = url.to_string_lossy().parse().map_err(|e| usage(format!("{e}")))?;
    let common = &args.transfer;
    let paths = local_sources(paths.iter().map(PathBuf::from).collect())?;
    if is_input(&paths) {
        check_input(common)?;
    }
    let put = described(paths, url).with_trust(common).with_options(common)?;
    let runtime = super::runtime()?;
    let mut ends = Ends::default();
    let mut shower = Shower::new(common, false)?;
    let done = runtime.block_on(async {
        let host = super::start_client(super::host(&common.host))?;
        let ended = watch(&host, put.start(&host)?, common, &mut shower).await;
        ends.take(ended, &mut shower);
        Ok::<_, Failure>(())
    });
    // A read of standard input that waits must not keep the process.
    runtime.shutdown_background();
    done.map(|()| ends.code(1, &shower))
}

/// The sources of a command: paths, or standard input alone.
///
/// # Errors
/// [`FailureKind::Usage`] for standard input beside others.
pub fn local_sources(from: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if from.len() > 1 && from.iter().any(|path| path.as_os_str() == INPUT) {
        let text = "standard input is a source on its own; write a file named - as ./-";
        return Err(Failure::new(FailureKind::Usage, text));
    }
    Ok(from)
}

/// Whether the source is standard input.
pub fn is_input(from: &[PathBuf]) -> bool {
    matches!(from, [path] if path.as_os_str() == INPUT)
}

/// Checks that standard input is there, and says which option does not hold for all of it.
///
/// # Errors
/// [`FailureKind::Usage`] if it is closed.
pub fn check_input(args: &TransferArgs) -> Result<(), Failure> {
    output::check_input()?;
    if crate::words::span(RETRY_FOR) != Ok(args.retry_for) {
        output::aside(
            "gtp: standard input can be sent only once, so --retry-for holds until the stream \
             begins",
        );
    }
    Ok(())
}

/// What sends these sources to an address.
pub fn described(from: Vec<PathBuf>, url: Url) -> Put {
    if is_input(&from) { Put::from_reader(tokio::io::stdin(), url) } else { Put::new(from, url) }
}

/// What stands for standard input.
const INPUT: &str = "-";
