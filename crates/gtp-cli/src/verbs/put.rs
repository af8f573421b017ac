//! `gtp put`: sends files and directories to a server.
//!
//! All paths travel as one object, so that many small ones cost no round trip each. What the server
//! has already it does not ask for.

use std::process::ExitCode;

use gtp::{Failure, FailureKind, Put, Url};

use super::transfer::{Ends, Options, watch};
use crate::args::PutArgs;
use crate::show::Shower;

pub fn run(args: PutArgs) -> Result<ExitCode, Failure> {
    let usage = |text: String| Failure::new(FailureKind::Usage, text);
    let Some((url, paths @ [_, ..])) = args.paths_and_url.split_last() else {
        return Err(usage("an address is needed after the path, as in: gtp put PATH URL".into()));
    };
    let url: Url = url.to_string_lossy().parse().map_err(|e| usage(format!("{e}")))?;
    let common = &args.transfer;
    let put = Put::new(paths, url).with_trust(common).with_options(common)?;
    let runtime = super::runtime()?;
    let mut ends = Ends::default();
    let mut shower = Shower::new(common, false)?;
    runtime.block_on(async {
        let host = super::host(&common.host).start()?;
        let ended = watch(&host, put.start(&host)?, common, &mut shower).await;
        ends.take(ended, &mut shower);
        Ok::<_, Failure>(())
    })?;
    Ok(ends.code())
}
