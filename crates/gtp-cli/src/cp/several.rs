//! A copy from this machine to several places at once: behind logins, at servers, or both.
//!
//! Logins are called one after the other, since ssh may ask on the terminal. All transfers then run
//! side by side on one host, with one key. A login that fails counts as a failed sink.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use gtp::{Failure, FailureKind, Host, Identity, Url};

use super::calling::{Call, introduce};
use super::operand::{Operand, Remote};
use super::{CpArgs, Plan, go_beneath, paths, unless_stopped, url, usage};
use crate::cp::hello::Want;
use crate::signals::Signals;
use crate::verbs::put::{is_same, refuse_input, relaying};
use crate::verbs::several::{Sink, To, send};
use crate::verbs::{host, other, runtime, start_client};

/// A destination.
pub enum Target {
    Server(Url),
    Behind(Remote),
}

/// What is copied, and all places that it goes to.
///
/// # Errors
/// [`FailureKind::Usage`] if a source is not here, or a destination is; for one that is named
/// twice; and for too many.
pub fn targets(plan: Plan, also: &[OsString]) -> Result<(Vec<PathBuf>, Vec<Target>), Failure> {
    let (from, first) = match plan {
        Plan::Push { from, to } => (from, Target::Behind(to)),
        Plan::Put { from, url } => (from.clone(), server(&from, url)?),
        Plan::Pull { .. }
        | Plan::Get { .. }
        | Plan::Gather { .. }
        | Plan::Between { .. }
        | Plan::Through { .. } => {
            let text = "--also sends what is on this machine to other machines: all sources are \
                        paths here, and no destination is";
            return Err(usage(text));
        }
    };
    refuse_input(&from)?;
    let mut all = vec![first];
    for word in also {
        let target = match Operand::of(word)? {
            Operand::Address(url) => server(&from, url)?,
            Operand::Remote(remote) => Target::Behind(remote),
            Operand::Local(path) => {
                let path = gtp_text::of_text(&path.to_string_lossy());
                return Err(usage(&format!("--also {path}: that is on this machine")));
            }
        };
        if all.iter().any(|known| known.is(&target)) {
            return Err(usage(&format!("{target}: this destination is named twice")));
        }
        all.push(target);
    }
    if all.len() > gtp::SINKS_MOST {
        let (named, most) = (all.len(), gtp::SINKS_MOST);
        return Err(usage(&format!("{named} destinations; one command takes {most} at most")));
    }
    Ok((from, all))
}

fn server(from: &[PathBuf], mut text: String) -> Result<Target, Failure> {
    if go_beneath(from) && !text.ends_with('/') {
        text.push('/');
    }
    text.parse().map(Target::Server).map_err(|bad: gtp::BadUrl| usage(&bad.to_string()))
}

impl Target {
    fn is(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Server(one), Target::Server(other)) => is_same(one, other),
            (Target::Behind(one), Target::Behind(other)) => one == other,
            (Target::Server(_), Target::Behind(_)) | (Target::Behind(_), Target::Server(_)) => {
                false
            }
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Server(url) => url.fmt(f),
            Target::Behind(Remote { login, path }) => {
                write!(f, "{login}:{}", gtp_text::of_text(path))
            }
        }
    }
}

/// Copies these paths to all targets.
///
/// # Errors
/// If nothing was started.
pub fn run(args: &CpArgs, from: Vec<PathBuf>, to: Vec<Target>) -> Result<ExitCode, Failure> {
    // Before ssh asks for a password.
    let relaying = relaying(args.relay, &args.transfer)?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut signals = Signals::take().map_err(other)?;
        let here = here(args, &to)?;
        let mut sinks: Vec<Sink> = Vec::new();
        for target in to {
            let sink = match target {
                Target::Server(url) => Sink::at(url),
                Target::Behind(remote) => {
                    let shown = Target::Behind(remote.clone()).to_string();
                    let calling = call(args, &here, (&from, &sinks), remote);
                    let to = unless_stopped(&mut signals, calling).await;
                    if to.as_ref().is_err_and(|f| f.kind == FailureKind::Interrupted) {
                        return to.map(|_| ExitCode::SUCCESS);
                    }
                    Sink { shown, to }
                }
            };
            sinks.push(sink);
        }
        send(&here, from, (sinks, relaying), &args.transfer, &mut signals).await
    });
    runtime.shutdown_background();
    done
}

/// This host: with the key that servers know if one is asked, else with one for this command alone.
fn here(args: &CpArgs, to: &[Target]) -> Result<Host, Failure> {
    let builder = host(&args.transfer.host);
    match to.iter().any(|target| matches!(target, Target::Server(_))) {
        true => start_client(builder),
        false => builder.identity(Identity::generate()).start(),
    }
}

/// Starts the far end behind a login; says where it is. `sinks` are those before it.
async fn call(
    args: &CpArgs,
    here: &Host,
    (from, sinks): (&[PathBuf], &[Sink]),
    Remote { login, path }: Remote,
) -> Result<To, Failure> {
    let call = Call { way: &args.way, host: &args.transfer.host, options: &[] };
    let request = call.prepare_on(here.clone(), Want::Write(path.clone())).request;
    let (far, ready) = call.dial(&login, &request, None).await?;
    let is_dir = go_beneath(from) || paths::is_content(&path);
    let place = match &ready.found[..] {
        [place] => url(&login, &ready, &place.path, is_dir),
        _ => Err(Failure::new(FailureKind::Other, "the far end found no place")),
    };
    let place = place.and_then(|url| unlike(url, sinks));
    let known = match &place {
        Ok(_) => introduce(here, &login, (&far, &ready)).await,
        Err(_) => Ok(()),
    };
    match known.and(place) {
        Ok(url) => Ok(To { url, key: Some(ready.key), far: Some((login, far)) }),
        Err(failure) => {
            far.close().await;
            Err(failure)
        }
    }
}

/// Refuses a far end whose name and port are those of an earlier sink: one of the two would be
/// looked for where the other is.
fn unlike(url: Url, earlier: &[Sink]) -> Result<Url, Failure> {
    let is_alike =
        |sink: &&Sink| sink.to.as_ref().is_ok_and(|known| known.url.host() == url.host());
    match earlier.iter().find(is_alike) {
        None => Ok(url),
        Some(known) => {
            let text = format!(
                "{} has the same name and port; give a range of ports with --port P-Q",
                known.shown
            );
            Err(Failure::new(FailureKind::Temporary, text))
        }
    }
}
