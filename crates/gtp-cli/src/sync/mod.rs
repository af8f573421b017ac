//! `gtp sync`: makes a directory like another one, here or there.
//!
//! Both trees are surveyed, a pure function decides what is to be done ([`plan`]), the files that
//! differ are moved as `get` and `put` move them, and the rest is done step by step. The end that
//! runs the command decides; a far end only says what it holds, and carries out single steps.

mod args;
mod backup;
mod filter;
mod gitignore;
mod globs;
mod ignored;
mod limit;
mod plan;
mod side;
mod small;
mod timeline;
mod times;
mod watch;
mod watched;
mod work;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gtp::replica::NodeKind;
use gtp::tree::{EarlySurvey, OwnTree, Pieces};
use gtp::{Failure, FailureKind, Fingerprint, Host, RelPath, Url};
use tokio::io::DuplexStream;
use tokio::sync::{oneshot, watch as told};

pub use args::SyncArgs;
pub use side::{BACKUPS_MEET, real};
pub use watch::LONGEST_WAIT;
pub use watched::Watched;

use crate::cp::hello::{Ready, Want};
use crate::cp::near::FarEnd;
use crate::cp::operand::{Operand, Remote};
use crate::cp::paths::is_content;
use crate::cp::{self, paths};
use crate::verbs::{host, runtime, start_client, transfer};
use filter::Filter;
use limit::within;
use side::{Here, Part, Side, There, backups_at_server, own_name, refuse_backups, refuse_nested};
use timeline::Timeline;
use work::Work;

/// Runs the command.
///
/// # Errors
/// A [`Failure`] if nothing, or not all, could be tried.
pub fn run(args: SyncArgs) -> Result<ExitCode, Failure> {
    transfer::control(&args.transfer)?;
    let filter = args.names()?;
    let [from, to] = &args.words[..] else {
        return Err(usage("two places are needed, as in: gtp sync data/ host:data"));
    };
    let (from, to) = (Operand::of(from)?, Operand::of(to)?);
    args.backups()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        match args.watch {
            true => watch::run(&args, &filter, from, to).await,
            false => once(&args, filter, from, to).await,
        }
    });
    // A look at a large tree that nobody waits for any more must not keep the process.
    runtime.shutdown_background();
    ended
}

async fn once(
    args: &SyncArgs,
    filter: Filter,
    from: Operand,
    to: Operand,
) -> Result<ExitCode, Failure> {
    let timeline = Timeline::begin();
    let ends = Ends::find(args, from, to).await?;
    if let Err(failure) = ends.refuse_backups(args) {
        ends.close().await;
        return Err(failure);
    }
    timeline.done("both ends are there");
    let work = Work::new(args, filter, &ends, timeline).run();
    let given = &args.transfer.host;
    let ended = within(args.bwlimit.as_ref(), &ends.host, given, work).await;
    ends.close().await;
    timeline.done("all is closed");
    ended
}

/// Both trees, this host, and the far end that ssh has started.
struct Ends {
    source: Side,
    destination: Side,
    host: Host,
    far: Option<FarEnd>,
    single: Single,
    /// Set when a copy between directories here is to end.
    stop: Arc<AtomicBool>,
}

/// Whether a single file or link is followed.
enum Single {
    /// No: a tree is.
    No,
    /// That of the first name, which gets the second one.
    Named(Names),
    /// If a file turns out to be at the source's path, it goes into this directory.
    Into(Names, Box<Side>),
    /// A file is at the destination's path, so the destination is the directory that holds it. Only
    /// a file can take its place.
    Over(Names),
}

/// What a single file is called.
struct Names {
    /// In the source's directory.
    source: RelPath,
    /// In the destination's.
    destination: RelPath,
}

impl Names {
    fn same(name: RelPath) -> Names {
        Names { source: name.clone(), destination: name }
    }
}

impl Ends {
    async fn find(args: &SyncArgs, from: Operand, to: Operand) -> Result<Ends, Failure> {
        let alone = || start_client(host(&args.transfer.host));
        if let (Operand::Address(_), Some(_)) = (&to, args.backups_outside()?) {
            return Err(backups_at_server());
        }
        if let Operand::Local(path) = &from
            && let Some((source, name)) = Here::single(path)?
        {
            return Ends::of_file(args, source, name, to).await;
        }
        match (from, to) {
            (Operand::Local(from), Operand::Local(to)) => {
                let source = Here::source(&from)?;
                let name = own_name(text(from.as_os_str())?)?;
                let destination = Here::destination(&to, name.as_deref())?;
                refuse_nested(&source, &destination)?;
                Ends::of((Side::Here(source), Side::Here(destination)), alone()?, None)
            }
            (Operand::Local(from), Operand::Address(url)) => {
                let source = Here::source(&from)?;
                let url = beneath(&url, own_name(text(from.as_os_str())?)?)?;
                let destination = there(url, None, args, args.part_of_destination());
                Ends::of((Side::Here(source), destination), alone()?, None)
            }
            (Operand::Address(url), Operand::Local(to)) => {
                let name = name_at(&url)?;
                let (destination, single) = landing(&to, name.as_deref())?;
                let source = there(beneath(&url, None)?, None, args, Part::Looked);
                let ends = Ends::of((source, Side::Here(destination)), alone()?, None)?;
                Ok(Ends { single, ..ends })
            }
            (Operand::Local(from), Operand::Remote(to)) => {
                let source = Here::source(&from)?;
                let name = own_name(text(from.as_os_str())?)?;
                Ends::push(args, source, &to, name).await
            }
            (Operand::Remote(from), Operand::Local(to)) => Ends::pull(args, &from, &to).await,
            (
                Operand::Remote(_) | Operand::Address(_),
                Operand::Remote(_) | Operand::Address(_),
            ) => Err(usage("one of both places must be on this machine")),
        }
    }

    /// Takes what is at a source's path now, which may be another directory or file than before.
    ///
    /// # Errors
    /// A [`Failure`] if it is not there, or a file has taken a directory's place or the other way.
    fn look_anew(&mut self, source: &Path) -> Result<(), Failure> {
        let here = match (Here::single(source)?, &self.single) {
            (Some((holder, _)), Single::Named(_)) => holder,
            (None, Single::Named(_)) if source.symlink_metadata().is_err() => {
                let shown = gtp_text::of_text(&source.to_string_lossy());
                return Err(Failure::new(FailureKind::Missing, format!("{shown}: is not there")));
            }
            // Both ends are found anew after a failure that passes.
            (None, Single::Named(_)) | (Some(_), _) => {
                let text = "a file has taken the place of a directory, or the other way";
                return Err(Failure::new(FailureKind::Temporary, text));
            }
            (None, _) => Here::source(source)?,
        };
        self.source = Side::Here(here);
        Ok(())
    }

    /// Refuses a directory of backups that is no place for them.
    fn refuse_backups(&self, args: &SyncArgs) -> Result<(), Failure> {
        match args.backups_outside()? {
            Some(dir) => {
                let alone = matches!(self.single, Single::Named(_));
                refuse_backups((&self.source, alone), &self.destination, &dir)
            }
            None => Ok(()),
        }
    }

    /// Ends what was begun with servers and the far end.
    async fn close(self) {
        let Ends { source, destination, far, .. } = self;
        tokio::join!(source.close(), destination.close(), async {
            if let Some(far) = far {
                far.close().await;
            }
        });
    }

    #[expect(clippy::unnecessary_wraps, reason = "each way of finding both ends is fallible")]
    fn of(sides: (Side, Side), host: Host, far: Option<FarEnd>) -> Result<Ends, Failure> {
        let stop = Arc::default();
        let single = Single::No;
        Ok(Ends { source: sides.0, destination: sides.1, host, far, single, stop })
    }

    /// The ends of a file or link of this name in `source`. It goes into a directory under its own
    /// name, or gets the last part of the destination's path as its name.
    async fn of_file(
        args: &SyncArgs,
        source: Here,
        name: RelPath,
        to: Operand,
    ) -> Result<Ends, Failure> {
        if args.files_from.is_some() {
            return Err(usage("--files-from needs a directory as SRC"));
        }
        let source = Side::Here(source);
        let alone = || start_client(host(&args.transfer.host));
        let (ends, called) = match to {
            Operand::Local(to) => {
                let (destination, called) = match is_place(&to) {
                    true => (Here::destination(&to, None)?, None),
                    false => Here::holder(&to).map(|(holder, name)| (holder, Some(name)))?,
                };
                (Ends::of((source, Side::Here(destination)), alone()?, None)?, called)
            }
            Operand::Address(url) => {
                let host = alone()?;
                let (destination, called) = server_place(args, &host, &url).await?;
                (Ends::of((source, destination), host, None)?, called)
            }
            Operand::Remote(to) => {
                let (destination, called, host, far) = login_place(args, to).await?;
                (Ends::of((source, destination), host, Some(far))?, called)
            }
        };
        let destination = called.unwrap_or_else(|| name.clone());
        Ok(Ends { single: Single::Named(Names { source: name, destination }), ..ends })
    }

    async fn push(
        args: &SyncArgs,
        source: Here,
        to: &Remote,
        name: Option<String>,
    ) -> Result<Ends, Failure> {
        // While ssh logs in.
        let own = source.begin_survey(args.asked());
        let part = args.part_of_destination();
        let want = args.want(&to.path, name.as_deref().unwrap_or_default(), false)?;
        let ask = |here: &Host, pipe, answered| {
            early(here, pipe, args, (named(&name), part), own, answered)
        };
        let (host, far, ready, early) =
            cp::call_and_ask(&args.way, &args.transfer, (&to.login, want), ask)
                .await
                .map_err(|failure| args.of_old_far_end(failure))?;
        let place = found_place(&ready);
        let parts = |place: &str| {
            let parts = [place, name.as_deref().unwrap_or_default()];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
        };
        let url = place.and_then(|place| cp::url(&to.login, &ready, &parts(place), true));
        match url {
            Ok(url) => {
                let destination = there(url, Some((ready.key, Some(early))), args, part);
                Ends::of((Side::Here(source), destination), host, Some(far))
            }
            Err(failure) => {
                far.close().await;
                Err(failure)
            }
        }
    }

    async fn pull(args: &SyncArgs, from: &Remote, to: &Path) -> Result<Ends, Failure> {
        let name = own_name(&from.path)?;
        let (destination, single) = landing(to, name.as_deref())?;
        let own = match single {
            // Of the directory that holds a file only that is of interest.
            Single::Over(_) => oneshot::channel().1,
            Single::No | Single::Named(_) | Single::Into(..) => {
                destination.begin_survey(args.asked())
            }
        };
        // As content, so that a link to a directory is followed where the user named it.
        let want = Want::Read(vec![from.path.clone()]);
        let ask = |here: &Host, pipe, answered| {
            early(here, pipe, args, ("", Part::Looked), own, answered)
        };
        let (host, far, ready, early) =
            cp::call_and_ask(&args.way, &args.transfer, (&from.login, want), ask).await?;
        let url = match &ready.found[..] {
            [object] if paths::is_content(&from.path) || object.name == *named(&name) => {
                // An empty path would stand for all that is exported.
                match object.path.is_empty() && name.is_some() {
                    true => Err(Failure::new(FailureKind::Other, "the far end found another tree")),
                    false => cp::url(&from.login, &ready, &object.path, true),
                }
            }
            [_] => Err(Failure::new(FailureKind::Other, "the far end found another tree")),
            _ => Err(usage("one directory can be followed, and this is a pattern of several")),
        };
        match url {
            Ok(url) => {
                let early = Some((ready.key, Some(early)));
                let source = there(url, early, args, Part::Looked);
                let ends = Ends::of((source, Side::Here(destination)), host, Some(far))?;
                Ok(Ends { single, ..ends })
            }
            Err(failure) => {
                far.close().await;
                Err(failure)
            }
        }
    }
}

fn named(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}

/// Asks a far end for its survey before it has answered, once `own` has come.
fn early(
    here: &Host,
    pipe: DuplexStream,
    args: &SyncArgs,
    (path, part): (&str, Part),
    own: oneshot::Receiver<OwnTree>,
    answered: told::Receiver<bool>,
) -> Result<EarlySurvey, Failure> {
    let terms = (part.purpose(), args.transfer.retry_for);
    let own = first_of(own, answer(answered.clone()));
    let pieces = match part {
        Part::Changed => args.pieces(),
        Part::Looked => Pieces::Unasked,
    };
    EarlySurvey::begin(here, pipe, path, terms, (args.asked(), pieces), own, answer(answered))
}

/// Waits until a far end has answered, or will not.
async fn answer(mut answered: told::Receiver<bool>) {
    // Without an answer, the pipe to it ends.
    let _ = answered.wait_for(|&is_answered| is_answered).await;
}

/// A tree here, if it is surveyed before the far end has answered. After that both had better be
/// surveyed at the same time.
async fn first_of(
    own: oneshot::Receiver<OwnTree>,
    answered: impl Future<Output = ()>,
) -> Option<OwnTree> {
    tokio::select! {
        biased;
        own = own => own.ok(),
        () = answered => None,
    }
}

/// Whether a path here takes things beneath it.
fn is_place(path: &Path) -> bool {
    path.is_dir() || is_content(&path.to_string_lossy())
}

/// Where something of this name goes here while it is not known whether it is a directory; without
/// a name it is one's content.
fn landing(to: &Path, name: Option<&str>) -> Result<(Here, Single), Failure> {
    let Some(name) = name else { return Ok((Here::destination(to, None)?, Single::No)) };
    let source = RelPath::new(name).map_err(|why| usage(&why.to_string()))?;
    if is_place(to) {
        let place = Side::Here(Here::destination(to, None)?);
        let single = Single::Into(Names::same(source), Box::new(place));
        return Ok((Here::destination(to, Some(name))?, single));
    }
    let (holder, destination) = Here::holder(to)?;
    let names = Names { source, destination };
    match to.symlink_metadata() {
        Ok(_) => Ok((holder, Single::Over(names))),
        Err(_) => {
            let single = Single::Into(names, Box::new(Side::Here(holder)));
            Ok((Here::destination(to, Some(name))?, single))
        }
    }
}

/// Where a file from here goes at a server: the tree, and the name that the file gets if not its
/// own.
async fn server_place(
    args: &SyncArgs,
    host: &Host,
    url: &str,
) -> Result<(Side, Option<RelPath>), Failure> {
    let part = args.part_of_destination();
    let whole = || Ok((there(beneath(url, None)?, None, args, part), None));
    let Some(name) = name_at(url)? else { return whole() };
    let name = RelPath::new(&name).map_err(|why| usage(&why.to_string()))?;
    let (holder, _) = url.rsplit_once('/').unwrap_or((url, ""));
    let holder = There::new(beneath(holder, None)?, None, args.transfer.clone(), part);
    match holder.kind_of(host, &name).await? {
        Some(NodeKind::Dir) => {
            holder.close().await;
            whole()
        }
        // A server follows no link, and what it leads to may be a directory.
        Some(NodeKind::Link(_)) => {
            holder.close().await;
            let text = "is a link at the server; name what it leads to, or remove it";
            Err(usage(text).about(gtp_text::of_text(url)))
        }
        Some(NodeKind::File | NodeKind::Special) | None => {
            Ok((Side::There(Box::new(holder)), Some(name)))
        }
    }
}

/// Where a file from here goes behind a login: the tree, the name that the file gets if not its
/// own, and what serves it.
async fn login_place(
    args: &SyncArgs,
    Remote { login, path }: Remote,
) -> Result<(Side, Option<RelPath>, Host, FarEnd), Failure> {
    let want = args.want(&path, "", true)?;
    let called = cp::call_far_end(&args.way, &args.transfer, &login, want).await;
    let (host, far, ready) = called.map_err(|failure| args.of_old_far_end(failure))?;
    let place = found_place(&ready).and_then(|at| {
        // What is a directory has no name of its own.
        let (at, name) = match ready.found[0].name.is_empty() || is_content(&path) {
            true => (at, None),
            false => at.rsplit_once('/').map_or(("", Some(at)), |(at, name)| (at, Some(name))),
        };
        let name = name.map(RelPath::new).transpose().map_err(|why| usage(&why.to_string()))?;
        Ok((cp::url(&login, &ready, at, true)?, name))
    });
    match place {
        Ok((url, name)) => {
            let part = args.part_of_destination();
            Ok((there(url, Some((ready.key, None)), args, part), name, host, far))
        }
        Err(failure) => {
            far.close().await;
            Err(failure)
        }
    }
}

/// The one place that a far end has found.
fn found_place(ready: &Ready) -> Result<&str, Failure> {
    match &ready.found[..] {
        [place] => Ok(&place.path),
        _ => Err(Failure::new(FailureKind::Other, "the far end found no place")),
    }
}

/// That a file is where a directory was named.
fn is_a_file() -> Failure {
    usage("SRC is a file; a slash at its end stands for the content of a directory")
}

/// A tree at an address; of a far end with its key, and the survey that it was asked for, if it
/// was.
fn there(
    url: Url,
    far: Option<(Fingerprint, Option<EarlySurvey>)>,
    args: &SyncArgs,
    part: Part,
) -> Side {
    Side::There(Box::new(There::new(url, far, args.transfer.clone(), part)))
}

/// The name under which what is at an address goes beneath the destination; `None` if only its
/// content does.
fn name_at(url: &str) -> Result<Option<String>, Failure> {
    let whole = url.parse::<Url>().map_err(|bad| usage(&bad.to_string()))?;
    match whole.name().filter(|_| !is_content(url)) {
        Some(name) => own_name(name),
        None => Ok(None),
    }
}

/// The address of the content of a directory, or of one beneath it.
fn beneath(url: &str, name: Option<String>) -> Result<Url, Failure> {
    let whole = format!("{}/{}", url.trim_end_matches('/'), named(&name));
    let whole = format!("{}/", whole.trim_end_matches('/'));
    whole.parse::<Url>().map_err(|bad| usage(&bad.to_string()))
}

fn text(path: &OsStr) -> Result<&str, Failure> {
    let shown = OsString::from(path);
    path.to_str().ok_or_else(|| {
        usage(&format!("{}: the name is not UTF-8", gtp_text::of_text(&shown.to_string_lossy())))
    })
}

fn usage(text: &str) -> Failure {
    Failure::new(FailureKind::Usage, text)
}
