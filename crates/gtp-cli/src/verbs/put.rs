//! `gtp put`: sends files and directories to a server.
//!
//! All paths travel as one object, so that many small ones cost no round trip each. What the server
//! has already it does not ask for. Standard input, named `-`, travels as a stream. With several
//! addresses each server gets the same.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use gtp::{Failure, FailureKind, Law, Put, Relaying, Url};

use super::several::{Sink, send};
use super::transfer::{Ends, Options, control, watch};
use crate::args::{PutArgs, RETRY_FOR, TransferArgs};
use crate::output;
use crate::show::Shower;
use crate::signals::Signals;

pub fn run(args: PutArgs) -> Result<ExitCode, Failure> {
    let (paths, urls) = parted(&args.paths_and_url)?;
    let common = &args.transfer;
    let paths = local_sources(paths)?;
    let Ok([url]) = <[Url; 1]>::try_from(urls.clone()) else {
        return run_several(paths, urls, common, args.relay);
    };
    if args.relay {
        return Err(usage("--relay needs several addresses: one has nobody to give to".into()));
    }
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

fn run_several(
    paths: Vec<PathBuf>,
    urls: Vec<Url>,
    common: &TransferArgs,
    relay: bool,
) -> Result<ExitCode, Failure> {
    refuse_input(&paths)?;
    let relaying = relaying(relay, common)?;
    let runtime = super::runtime()?;
    let done = runtime.block_on(async {
        let host = super::start_client(super::host(&common.host))?;
        let mut signals = Signals::take().map_err(super::other)?;
        let sinks = urls.into_iter().map(Sink::at).collect();
        send(&host, paths, (sinks, relaying), common, &mut signals).await
    });
    // A walk through a large tree must not keep the process.
    runtime.shutdown_background();
    done
}

/// Whether destinations are asked to relay.
///
/// # Errors
/// [`FailureKind::Usage`] if they are and the law is another than theirs, or an option is wrong.
pub fn relaying(relay: bool, common: &TransferArgs) -> Result<Relaying, Failure> {
    let law = control(common)?;
    if !relay {
        return Ok(Relaying::Off);
    }
    if law != Law::Grant {
        return Err(usage("--relay needs --control grant".into()));
    }
    Ok(Relaying::On)
}

/// The paths and the addresses of a command. Addresses come last.
///
/// # Errors
/// [`FailureKind::Usage`] if one of either is missing, an address stands among the paths, or one is
/// named twice.
fn parted(words: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<Url>), Failure> {
    let is_address = |word: &PathBuf| word.as_os_str().as_bytes().starts_with(ADDRESS);
    let paths = words.iter().rposition(|word| !is_address(word)).map_or(0, |last| last + 1);
    let (paths, addresses) = match words.split_at(paths) {
        ([], _) => {
            return Err(usage(
                "a path is needed before the address, as in: gtp put PATH URL".into(),
            ));
        }
        ([_], []) => {
            let text = "an address is needed after the path, as in: gtp put PATH URL";
            return Err(usage(text.into()));
        }
        // This says what it is not.
        ([paths @ .., last], []) => (paths, std::slice::from_ref(last)),
        parts => parts,
    };
    let url =
        |word: &PathBuf| word.to_string_lossy().parse::<Url>().map_err(|e| usage(format!("{e}")));
    let urls = addresses.iter().map(url).collect::<Result<Vec<Url>, _>>()?;
    if let Some(address) = paths.iter().find(|word| is_address(word)) {
        let text = format!(
            "{}: an address stands before a path; destinations come last, and each is an address",
            address.display()
        );
        return Err(usage(text));
    }
    for (at, url) in urls.iter().enumerate() {
        if urls[..at].iter().any(|other| is_same(other, url)) {
            return Err(usage(format!("{url}: this destination is named twice")));
        }
    }
    Ok((paths.to_vec(), urls))
}

/// Whether two addresses name the same place.
pub fn is_same(one: &Url, other: &Url) -> bool {
    let place = |url: &Url| (url.host().clone(), url.path().to_vec(), url.names_directory());
    place(one) == place(other)
}

fn usage(text: String) -> Failure {
    Failure::new(FailureKind::Usage, text)
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

/// Refuses standard input as the source for several destinations.
///
/// # Errors
/// [`FailureKind::Usage`].
pub fn refuse_input(from: &[PathBuf]) -> Result<(), Failure> {
    if !is_input(from) {
        return Ok(());
    }
    let text = "standard input is read once, so it goes to one destination; write it to a file \
                first, and send that";
    Err(usage(text.into()))
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

/// What an address begins with. A file that is called so is written as `./gtp:/…`.
const ADDRESS: &[u8] = b"gtp://";

/// What stands for standard input.
const INPUT: &str = "-";
