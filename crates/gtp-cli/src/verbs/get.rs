//! `gtp get`: fetches objects, one after the other, each from one or several servers.
//!
//! An address that fails does not keep the others from being fetched; the exit code then says that
//! a part was done. All of them share one host, and so one capacity.

use std::process::ExitCode;

use gtp::{Failure, FailureKind, Get, Url};

use super::transfer::{Ends, Options, control, watch_with};
use crate::args::GetArgs;
use crate::output;
use crate::show::Shower;
use crate::signals::Signals;

pub fn run(args: GetArgs) -> Result<ExitCode, Failure> {
    let usage = |text: String| Failure::new(FailureKind::Usage, text);
    let Some((dest, urls @ [_, ..])) = args.urls_and_dest.split_last() else {
        return Err(usage(
            "a destination is needed after the address, as in: gtp get URL .".into(),
        ));
    };
    let urls: Vec<Url> = urls
        .iter()
        .map(|u| u.parse().map_err(|e| usage(format!("{e}"))))
        .collect::<Result<_, _>>()?;
    if urls.len() > 1 && !args.mirror.is_empty() {
        return Err(usage("--mirror names further sources of one object, not of several".into()));
    }
    if urls.len() > 1 && !dest.ends_with('/') && !std::path::Path::new(dest).is_dir() {
        let text = format!("{dest}: several objects need a directory: end it with a slash");
        return Err(Failure::new(FailureKind::Destination, text));
    }
    if dest == "-" {
        // Before anybody is asked for anything.
        output::Data::open()?;
    }
    control(&args.transfer)?;
    let runtime = super::runtime()?;
    let mut ends = Ends::default();
    let mut shower = Shower::new(&args.transfer, dest == "-")?;
    let (named, several) = (urls.len(), urls.len() > 1);
    runtime.block_on(async {
        let host = super::start_client(super::host(&args.transfer.host))?;
        let mut signals = Signals::take().map_err(super::other)?;
        for url in urls {
            let dest =
                if several { format!("{}/", dest.trim_end_matches('/')) } else { dest.clone() };
            let transfer = describe(&args, url, &dest).and_then(|get| get.start(&host));
            let ended = match transfer {
                Ok(transfer) => {
                    watch_with(&mut signals, &host, transfer, &args.transfer, &mut shower).await
                }
                Err(failure) => Err(failure),
            };
            if !ends.take(ended, &mut shower) {
                break;
            }
        }
        Ok::<_, Failure>(())
    })?;
    Ok(ends.code(named, &shower))
}

fn describe(args: &GetArgs, url: Url, dest: &str) -> Result<Get, Failure> {
    let known = args.mirrors_of.get(&url).into_iter().flatten();
    let mirrors = args.mirror.iter().chain(known).cloned();
    let mut get = mirrors.fold(Get::new(url.clone()), Get::mirror);
    get = match dest {
        "-" => get.to_writer_called(output::NAME, output::Data::open()?),
        path => get.to(path),
    };
    if args.replace {
        get = get.replace_existing();
    }
    if let Some(hash) = args.blake3 {
        get = get.blake3(hash);
    }
    get.with_trust(&args.transfer).with_options(&args.transfer)
}
