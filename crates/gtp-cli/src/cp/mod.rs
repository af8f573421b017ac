//! `gtp cp`: copies to and from where ssh logs in, and between two such hosts, with nothing set up
//! there but the program.
//!
//! ssh starts a far end, and both ends exchange over its pipe the keys that they made for this one
//! command ([`hello`]); then the copy is a `get` or a `put` like any other, and the far end goes
//! when ssh does. No list of keys or hosts is read or written. Slashes mean what they mean to
//! rsync.

mod between;
mod calling;
mod far_end;
mod follow;
pub mod hello;
mod messages;
pub mod near;
pub mod operand;
mod own;
pub mod paths;
mod program;
mod reach;
mod script;
mod send;
mod several;
mod through;
mod tunnel;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueHint};
use gtp::{Failure, FailureKind, Get, Host, Outcome, Stopper, Transfer, Url};
use tokio::time::timeout;

pub use calling::{Call, call_and_ask, call_by, call_far_end};
pub use far_end::{FarEndArgs, run as run_far_end};
pub use reach::url;

use crate::args::TransferArgs;
use crate::hosts::Mirrors;
use crate::output;
use crate::show::Shower;
use crate::signals::Signals;
use crate::verbs::put::{check_input, described, is_input, local_sources};
use crate::verbs::transfer::{Ends, Options, control, watch_with};
use crate::verbs::{host, other, runtime, start_client};
use hello::{Ability, Object, Ready, Want};
use near::FarEnd;
use operand::{Login, Operand, Remote};
use reach::addresses;

/// Options of `cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Sources, then the destination. Each is a path of this machine, [user@]host:path for one
    /// behind an ssh login, or gtp://host[:port]/path. A directory goes beneath the destination;
    /// written with a slash at its end, its content does. - is standard input or output. From one
    /// login to another the data go directly, or through here if the two cannot reach each other
    #[arg(required = true, value_name = "SRC|DST", value_hint = ValueHint::Hostname)]
    pub words: Vec<OsString>,
    /// A further destination, which gets the same at the same time: [user@]host:path, or
    /// gtp://host[:port]/path. May be given several times; all sources are then on this machine
    #[arg(long, value_name = "DST", value_hint = ValueHint::Hostname)]
    pub also: Vec<OsString>,
    /// With --also: have the servers give what they get on to each other, so that each block is
    /// sent from here about once. They must run with --third-party; a login is sent everything
    #[arg(long, env = "GTP_RELAY", value_parser = BoolishValueParser::new())]
    pub relay: bool,
    #[command(flatten)]
    pub way: WayArgs,
    #[command(flatten)]
    pub transfer: TransferArgs,
    /// What the configuration file says of the addresses' hosts
    #[arg(skip)]
    pub mirrors_of: Mirrors,
}

/// How a far end is reached.
#[derive(Debug, Clone, Args)]
pub struct WayArgs {
    /// The program that logs in, with its arguments between spaces, as in "ssh -p 2222"
    #[arg(long, value_name = "PROGRAM", default_value = "ssh", env = "GTP_SSH",
        value_hint = ValueHint::CommandString)]
    pub ssh: String,
    /// If the far end has no gtp of this release, put this program there, as
    /// ~/.cache/gtp/VERSION/gtp
    #[arg(long)]
    pub install: bool,
    /// The port, or the first and the last one, that the far end that listens may use for TCP and
    /// UDP; any free one if not said
    #[arg(long, value_name = "P|P-Q", env = "GTP_PORT", value_parser = ports)]
    pub port: Option<(u16, u16)>,
    /// Give up a login that sends nothing for this long (gtp ssh: plain ssh takes over). Time in
    /// which ssh asks for a password or about a key does not count
    #[arg(long, value_name = "TIME", default_value = "60s", env = "GTP_LOGIN_LIMIT",
        value_parser = crate::words::span, allow_hyphen_values = true)]
    pub login_limit: Duration,
}

/// Reads one port or a range of them.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first > 0 && first <= last => Ok((first, last)),
        _ => Err("expected a port, as in 4810, or a range, as in 4810-4820".into()),
    }
}

/// What is to come from behind one login.
#[derive(Debug, PartialEq, Eq)]
struct Sources {
    login: Login,
    paths: Vec<String>,
}

/// What is to be copied.
enum Plan {
    /// From behind logins.
    Pull { from: Vec<Sources>, to: PathBuf },
    /// To behind a login.
    Push { from: Vec<PathBuf>, to: Remote },
    /// From servers.
    Get { urls: Vec<String>, to: PathBuf },
    /// From this machine, from behind logins and from servers to this machine.
    Gather { local: Vec<PathBuf>, from: Vec<Sources>, urls: Vec<String>, to: PathBuf },
    /// To a server.
    Put { from: Vec<PathBuf>, url: String },
    /// From behind logins to behind another one.
    Between { from: Vec<Sources>, to: Remote },
    /// From elsewhere to elsewhere, through here.
    Through { from: Vec<Operand>, to: Operand },
}

/// Where things go that come from behind logins.
enum To<'a> {
    /// To this machine.
    Here(&'a Path),
    /// To behind a login.
    Behind(&'a Remote),
}

pub fn run(args: CpArgs) -> Result<ExitCode, Failure> {
    let plan = plan(&args.words)?;
    if !args.also.is_empty() {
        let (from, to) = several::targets(plan, &args.also)?;
        return several::run(&args, from, to);
    }
    if args.relay {
        return Err(usage(
            "--relay needs several destinations (--also): one has nobody to give to",
        ));
    }
    // Before ssh asks for a password.
    control(&args.transfer)?;
    let mut ends = Ends::default();
    if matches!(&plan, Plan::Push { from, .. } | Plan::Put { from, .. } if is_input(from)) {
        check_input(&args.transfer)?;
    }
    let to_stdout = matches!(&plan, Plan::Pull { to, .. } | Plan::Get { to, .. } if is_stream(to));
    if to_stdout {
        // Before anybody is asked for anything.
        output::Data::open()?;
    }
    let shower = Shower::new(&args.transfer, to_stdout)?;
    let runtime = runtime()?;
    let signals = runtime.block_on(async { Signals::take().map_err(other) })?;
    let mut copy = Copy { shower, args, ends: &mut ends, signals };
    let done = runtime.block_on(async {
        match plan {
            Plan::Pull { from, to } => copy.bring_all(from, &To::Here(&to)).await,
            Plan::Push { from, to } => copy.push(from, &to).await,
            Plan::Get { urls, to } => copy.get(&urls, urls.len() > 1, &to).await,
            Plan::Gather { local, from, urls, to } => {
                copy.gather_here(&local, &from, &urls, &to).await
            }
            Plan::Put { from, url } => copy.put(from, url).await,
            Plan::Between { from, to } => copy.bring_all(from, &To::Behind(&to)).await,
            Plan::Through { from, to } => copy.through(from, to).await,
        }
    });
    // A read of standard input that waits must not keep the process.
    runtime.shutdown_background();
    let Copy { shower, .. } = copy;
    done.map(|()| ends.code(1, &shower))
}

fn plan(words: &[OsString]) -> Result<Plan, Failure> {
    let Some((to, from @ [_, ..])) = words.split_last() else {
        return Err(usage("a destination is needed after the source, as in: gtp cp host:data ."));
    };
    let from = from.iter().map(|word| Operand::of(word)).collect::<Result<Vec<_>, _>>()?;
    let to = Operand::of(to)?;
    let (mut local, mut remote, mut urls) = (Vec::new(), Vec::new(), Vec::new());
    for operand in &from {
        match operand {
            Operand::Local(path) => local.push(path.clone()),
            Operand::Remote(there) => remote.push(there.clone()),
            Operand::Address(url) => urls.push(url.clone()),
        }
    }
    match (to, &local[..], &remote[..], &urls[..]) {
        (Operand::Local(to), [], [_, ..], []) => Ok(Plan::Pull { from: by_login(remote), to }),
        (Operand::Local(to), [], [], [_, ..]) => Ok(Plan::Get { urls, to }),
        (Operand::Local(_), [_, ..], [], []) => Err(usage("nothing is remote here; cp does that")),
        (Operand::Remote(to), [_, ..], [], []) => {
            Ok(Plan::Push { from: local_sources(local)?, to })
        }
        (Operand::Address(url), [_, ..], [], []) => {
            Ok(Plan::Put { from: local_sources(local)?, url })
        }
        (Operand::Remote(to), [], [_, ..], []) => Ok(Plan::Between { from: by_login(remote), to }),
        (Operand::Local(to), ..) => {
            refuse_input(&local)?;
            Ok(Plan::Gather { local, from: by_login(remote), urls, to })
        }
        (to @ (Operand::Remote(_) | Operand::Address(_)), ..) => {
            refuse_input(&local)?;
            Ok(Plan::Through { from, to })
        }
    }
}

/// Refuses standard input among other sources.
fn refuse_input(local: &[PathBuf]) -> Result<(), Failure> {
    match local.iter().any(|path| is_stream(path)) {
        true => Err(usage("standard input is a source on its own")),
        false => Ok(()),
    }
}

/// Sources by login, each in the order in which it was written first.
fn by_login(remote: Vec<Remote>) -> Vec<Sources> {
    let mut all: Vec<Sources> = Vec::new();
    for Remote { login, path } in remote {
        match all.iter_mut().find(|sources| sources.login == login) {
            Some(sources) => sources.paths.push(path),
            None => all.push(Sources { login, paths: vec![path] }),
        }
    }
    all
}

fn usage(text: &str) -> Failure {
    Failure::new(FailureKind::Usage, text)
}

fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Whether sources go beneath the destination although it may have no slash at its end: several do,
/// and so does a directory that is named without one.
fn go_beneath(from: &[PathBuf]) -> bool {
    let is_whole = |path: &PathBuf| {
        let text = path.as_os_str().as_bytes();
        let ends = matches!(text.rsplit(|&b| b == b'/').next(), None | Some(b"" | b"." | b".."));
        !ends && path.is_dir()
    };
    from.len() > 1 || !is_input(from) && from.iter().any(is_whole)
}

/// A command under way.
struct Copy<'a> {
    args: CpArgs,
    shower: Shower,
    ends: &'a mut Ends,
    /// One set for all parts of the command, so that none is lost between them.
    signals: Signals,
}

impl Copy<'_> {
    /// Copies from one login after the other. One that fails does not keep the next from being
    /// tried, unless the user has stopped the command.
    async fn bring_all(&mut self, from: Vec<Sources>, to: &To<'_>) -> Result<(), Failure> {
        let number: usize = from.iter().map(|sources| sources.paths.len()).sum();
        if let [one] = &from[..] {
            return self.bring(one, number > 1, to).await.map(|_| ());
        }
        self.bring_each(&from, to).await;
        Ok(())
    }

    /// The same for several logins, from which everything goes beneath the destination; says
    /// whether to go on.
    async fn bring_each(&mut self, from: &[Sources], to: &To<'_>) -> bool {
        for sources in from {
            let goes_on = match self.bring(sources, true, to).await {
                Ok(goes_on) => goes_on,
                Err(failure) => self.ends.take(Err(failure), &mut self.shower),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Copies from here, then from logins, and then from servers. One that fails does not keep the
    /// next from being tried, unless the user has stopped the command.
    async fn gather_here(
        &mut self,
        local: &[PathBuf],
        from: &[Sources],
        urls: &[String],
        to: &Path,
    ) -> Result<(), Failure> {
        if is_stream(to) {
            return Err(usage("standard output takes one file"));
        }
        let goes_on = self.copy_own(local, to).await;
        if goes_on && self.bring_each(from, &To::Here(to)).await {
            self.get(urls, true, to).await?;
        }
        Ok(())
    }

    async fn bring(
        &mut self,
        sources: &Sources,
        several: bool,
        to: &To<'_>,
    ) -> Result<bool, Failure> {
        match to {
            To::Here(path) => self.pull(sources, several, path).await,
            To::Behind(remote) => self.between(sources, several, remote).await,
        }
    }

    /// Copies from one login; says whether to go on with the next. With `several` everything goes
    /// beneath the destination.
    async fn pull(
        &mut self,
        Sources { login, paths }: &Sources,
        several: bool,
        to: &Path,
    ) -> Result<bool, Failure> {
        let (here, mut far, ready) = self.call(login, Want::Read(paths.clone())).await?;
        match check_complete(login, paths, &ready.found) {
            Ok(missing) => {
                for failure in missing {
                    self.ends.take(Err(failure), &mut self.shower);
                }
            }
            Err(failure) => {
                far.close().await;
                return Err(failure);
            }
        }
        let several = several || ready.found.len() > 1;
        let mut goes_on = true;
        for get in self.describe_all(login, &ready, (paths, several), to) {
            let ended = match get.and_then(|get| get.start(&here)) {
                Ok(transfer) => self.watch(&here, transfer, Some((login, &mut far))).await,
                Err(failure) => Err(failure),
            };
            let failed = ended.is_err();
            goes_on = self.ends.take(ended, &mut self.shower);
            if !goes_on || failed && far.is_gone() {
                break;
            }
        }
        far.close().await;
        Ok(goes_on)
    }

    async fn push(&mut self, from: Vec<PathBuf>, to: &Remote) -> Result<(), Failure> {
        let login = &to.login;
        let want = Want::Write(to.path.clone());
        let (here, mut far, ready) = self.call(login, want).await?;
        let ended = async {
            let [place] = &ready.found[..] else {
                return Err(Failure::new(FailureKind::Other, "the far end found no place"));
            };
            if is_input(&from) && place.name.is_empty() {
                return Err(usage(&format!(
                    "{login}:{} is a directory there: write the name of the file behind it",
                    to.path
                )));
            }
            let is_dir = go_beneath(&from) || paths::is_content(&to.path);
            let url = url(login, &ready, &place.path, is_dir)?;
            let put = described(from, url).fingerprint(ready.key);
            let put = put.with_options(&self.args.transfer)?;
            let transfer = put.start(&here)?;
            self.watch(&here, transfer, Some((login, &mut far))).await
        };
        let ended = ended.await;
        self.ends.take(ended, &mut self.shower);
        far.close().await;
        Ok(())
    }

    async fn get(&mut self, urls: &[String], several: bool, to: &Path) -> Result<(), Failure> {
        let here = start_client(host(&self.args.transfer.host))?;
        for text in urls {
            let url = text.parse::<Url>().map_err(|bad| usage(&bad.to_string()))?;
            let mirrors = self.args.mirrors_of.get(&url).into_iter().flatten();
            let get = mirrors.cloned().fold(Get::new(url.clone()), Get::mirror);
            let get = destination(get, to, several)?;
            let get = get.with_trust(&self.args.transfer).with_options(&self.args.transfer)?;
            let transfer = get.start(&here);
            let ended = match transfer {
                Ok(transfer) => self.watch(&here, transfer, None).await,
                Err(failure) => Err(failure),
            };
            if !self.ends.take(ended, &mut self.shower) {
                break;
            }
        }
        Ok(())
    }

    async fn put(&mut self, from: Vec<PathBuf>, mut url: String) -> Result<(), Failure> {
        if go_beneath(&from) && !url.ends_with('/') {
            url.push('/');
        }
        let url = url.parse::<Url>().map_err(|bad| usage(&bad.to_string()))?;
        let common = &self.args.transfer;
        let put = described(from, url).with_trust(common).with_options(common)?;
        let here = start_client(host(&self.args.transfer.host))?;
        let transfer = put.start(&here)?;
        let ended = self.watch(&here, transfer, None).await;
        self.ends.take(ended, &mut self.shower);
        Ok(())
    }

    /// Starts the far end, and this one with a key for it alone.
    async fn call(&mut self, login: &Login, want: Want) -> Result<(Host, FarEnd, Ready), Failure> {
        let calling = call_far_end(&self.args.way, &self.args.transfer, login, want);
        unless_stopped(&mut self.signals, calling).await
    }

    /// What is to be fetched from a far end, in transfers: what lies in one directory there comes
    /// in one.
    fn describe_all(
        &self,
        login: &Login,
        ready: &Ready,
        (paths, several): (&[String], bool),
        to: &Path,
    ) -> Vec<Result<Get, Failure>> {
        let is_bundle = Ability::Bundle.is_of(&ready.version) && !is_stream(to);
        let (together, others) = match is_bundle {
            true => hello::part(paths, &ready.found),
            false => (Vec::new(), ready.found.iter().collect()),
        };
        let bundle = (!together.is_empty())
            .then(|| self.describe_bundle(login, ready, (paths, &together), to));
        let each = others.into_iter();
        let each = each.map(|object| self.describe(login, ready, object, (paths, several), to));
        bundle.into_iter().chain(each).collect()
    }

    /// What fetches several objects as one, if they are what was asked for.
    fn describe_bundle(
        &self,
        login: &Login,
        ready: &Ready,
        (paths, objects): (&[String], &[&Object]),
        to: &Path,
    ) -> Result<Get, Failure> {
        for object in objects {
            let path = paths.get(object.index).ok_or_else(|| unasked(login, object))?;
            if !paths::asks_for(path, &object.name) {
                return Err(unasked(login, object));
            }
        }
        let names = objects.iter().map(|object| object.name.clone());
        let get = Get::new(url(login, ready, "", true)?).only(names);
        destination(get, to, true)?.fingerprint(ready.key).with_options(&self.args.transfer)
    }

    /// What is to be fetched from a far end, if it is what was asked for.
    fn describe(
        &self,
        login: &Login,
        ready: &Ready,
        object: &Object,
        (paths, several): (&[String], bool),
        to: &Path,
    ) -> Result<Get, Failure> {
        let path = paths.get(object.index).ok_or_else(|| unasked(login, object))?;
        let is_content = paths::is_content(path);
        let mut get = Get::new(url(login, ready, &object.path, is_content)?);
        if !is_content {
            // An empty path would stand for the content of what is exported.
            if object.path.is_empty() || !paths::asks_for(path, &object.name) {
                return Err(unasked(login, object));
            }
            get = get.named(&object.name)?;
        }
        let get = destination(get, to, several)?.fingerprint(ready.key);
        get.with_options(&self.args.transfer)
    }

    /// Shows a transfer to its end, which comes soon if the far end goes.
    async fn watch(
        &mut self,
        here: &Host,
        transfer: Transfer,
        far: Option<(&Login, &mut FarEnd)>,
    ) -> Result<Outcome, Failure> {
        let stopper = transfer.stopper();
        let (args, shower) = (&self.args.transfer, &mut self.shower);
        let watching = watch_with(&mut self.signals, here, transfer, args, shower);
        let Some((login, far)) = far else { return watching.await };
        while_there(watching, &stopper, login, far).await
    }
}

/// Waits for the end of a transfer to or from a far end, or for that of the far end.
pub async fn while_there(
    watching: impl Future<Output = Result<Outcome, Failure>>,
    stopper: &Stopper,
    login: &Login,
    far: &mut FarEnd,
) -> Result<Outcome, Failure> {
    let mut watching = std::pin::pin!(watching);
    let how = tokio::select! {
        ended = &mut watching => return ended.map_err(with_advice),
        how = far.gone() => how,
    };
    last_words(watching, stopper).await.map_err(|failure| {
        if !failure.is_temporary() {
            return failure;
        }
        let text = format!(
            "{login}: ssh {how}, and the far end is gone; what is complete is kept, repeat the \
             command to go on"
        );
        Failure::new(FailureKind::Temporary, text)
    })
}

/// Waits for the end of a call, or for the user's wish to stop. Dropped, a call ends its ssh.
async fn unless_stopped<T>(
    signals: &mut Signals,
    calling: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut calling = std::pin::pin!(calling);
    tokio::select! {
        biased;
        () = signals.next() => {}
        called = &mut calling => return called,
    }
    // An ssh that asks for a password hears the terminal's signal too, and must not be killed
    // before it has put the terminal back as it was.
    tokio::select! {
        () = signals.next() => {}
        _ = timeout(LAST_WORDS_SPAN, calling) => {}
    }
    Err(Failure::new(FailureKind::Interrupted, "stopped before the far end had answered"))
}

/// Where an object goes: a path, or standard output.
fn destination(get: Get, to: &Path, several: bool) -> Result<Get, Failure> {
    if is_stream(to) {
        if several {
            return Err(usage("standard output takes one file"));
        }
        return Ok(get.to_writer_called(output::NAME, output::Data::open()?));
    }
    let mut to = to.as_os_str().to_owned();
    if several && !to.as_bytes().ends_with(b"/") {
        to.push("/");
    }
    Ok(get.directories_go_beneath().to(to))
}

/// Checks that a far end offers what was asked for. Returns what is missing: of several paths,
/// those at which the far end has found nothing that may be read.
fn check_complete(
    login: &Login,
    paths: &[String],
    found: &[Object],
) -> Result<Vec<Failure>, Failure> {
    let mut missing = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let of_path = found.iter().filter(|object| object.index == index).count();
        let is_pattern = path.contains(['*', '?', '[']);
        let path = gtp_text::of_text(path);
        if of_path == 0 && !found.is_empty() {
            let text = format!("{login}:{path}: nothing is there that can be read");
            missing.push(Failure::new(FailureKind::Missing, text));
        } else if of_path == 0 || of_path > 1 && !is_pattern {
            let text = format!("{login}: it offers {of_path} objects for {path}");
            return Err(Failure::new(FailureKind::Other, text));
        }
    }
    Ok(missing)
}

/// How a transfer ends whose far end is gone. What the far end said last may still be under way.
pub async fn last_words(
    mut watching: Pin<&mut impl Future<Output = Result<Outcome, Failure>>>,
    stopper: &Stopper,
) -> Result<Outcome, Failure> {
    match timeout(LAST_WORDS_SPAN, &mut watching).await {
        Ok(ended) => ended,
        Err(_) => {
            stopper.stop(FailureKind::Temporary);
            watching.await
        }
    }
}

fn unasked(login: &Login, object: &Object) -> Failure {
    let name = gtp_text::of_text(&object.name);
    Failure::new(FailureKind::Other, format!("{login}: it sends {name:?}, which nobody asked for"))
}

/// What helps if no datagram gets through to a far end.
fn with_advice(failure: Failure) -> Failure {
    if failure.kind != FailureKind::NoUdpPath {
        return failure;
    }
    let text = format!(
        "{failure}. Name a port that is open there with --port, or let TCP and ssh carry the data: \
         --udp auto"
    );
    Failure::new(failure.kind, text)
}

/// Time for what the far end has said before it went.
const LAST_WORDS_SPAN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(words: &[&str]) -> Result<Plan, Failure> {
        plan(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_mean_one_plan_and_what_is_not_there_yet_is_a_usage_error_that_says_so() {
        for words in [&["x", "a:y", "."][..], &["gtp://h/x", "y", "."], &["gtp://h/x", "a:y", "."]]
        {
            assert!(matches!(planned(words), Ok(Plan::Gather { .. })), "{words:?}");
        }
        for words in [&["a:x"][..], &["x", "y"], &["-", "x", "a:y"], &["-", "a:y", "."]] {
            assert_eq!(planned(words).err().unwrap().kind, FailureKind::Usage, "{words:?}");
        }
        assert!(matches!(planned(&["h:a", "h:b", "."]), Ok(Plan::Pull { .. })));
        let Ok(Plan::Pull { from, .. }) = planned(&["a:x", "b:y", "a:z", "."]) else {
            panic!("sources of two logins");
        };
        let paths: Vec<_> = from.iter().map(|sources| sources.paths.join(" ")).collect();
        assert_eq!(paths, ["x z", "y"]);
        let Ok(Plan::Between { from, .. }) = planned(&["a:x", "c:z", "b:y"]) else {
            panic!("sources and a destination behind logins");
        };
        assert_eq!(from.len(), 2);
        assert!(matches!(planned(&["a", "h:b"]), Ok(Plan::Push { .. })));
        for words in [
            &["a:x", "gtp://h/y"][..],
            &["gtp://h/x", "a:y"],
            &["gtp://h/x", "gtp://i/y"],
            &["x", "a:y", "b:z"],
        ] {
            assert!(matches!(planned(words), Ok(Plan::Through { .. })), "{words:?}");
        }
        assert!(matches!(planned(&["-", "h:b"]), Ok(Plan::Push { .. })));
        assert!(matches!(planned(&["-", "gtp://h/b"]), Ok(Plan::Put { .. })));
        assert!(matches!(planned(&["gtp://h/a", "."]), Ok(Plan::Get { .. })));
        assert!(matches!(planned(&["a", "gtp://h/"]), Ok(Plan::Put { .. })));
    }

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!((ports("4810"), ports("1-2")), (Ok((4810, 4810)), Ok((1, 2))));
        for text in ["", "0", "2-1", "1-", "x", "70000"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }
}
