//! `gtp serve`: lets others fetch from a directory, and perhaps write to it.
//!
//! Programs read standard output, whose first line says where it listens; people read standard
//! error, with a line for each begin and end of a session as long as these are few. A reader of
//! either stream cannot hold the server up. The audit, if there is one, has every session.

mod audit;
mod difference;
mod judge;
mod metrics;
mod ration;
mod reload;
mod served;
mod sockets;
mod status;
mod teller;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use gtp::{
    AUTHORIZED_KEYS_FILE, Alone, Asked, ExportRule, Failure, FailureKind, GroupRule, Host,
    RunningServer, Server, ServerEvent, Sockets, Who,
};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Interval, Sleep, interval, sleep};
use tracing::{error, info, warn};

use crate::args::{Allowed, ServeArgs};
use crate::log::SERVER;
use crate::manager::Manager;
use crate::output::{self, aside};
use crate::show::json as out;
use crate::signals::{ServerSignals, Wish};
use audit::Audit;
pub use judge::of_files as judge_files;
use metrics::Metrics;
use served::Served;
use status::Status;
use teller::Teller;

pub fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    // Before there are threads: the environment says which descriptors are meant.
    let sockets = sockets::given()?;
    let runtime = super::runtime()?;
    runtime.block_on(serve(args, sockets))
}

async fn serve(args: ServeArgs, sockets: Option<Sockets>) -> Result<ExitCode, Failure> {
    output::never_wait().map_err(super::other)?;
    let mut signals = ServerSignals::take().map_err(super::other)?;
    let mut service = Service::start(args, sockets).await?;
    while service.step(&mut signals).await.is_continue() {}
    service.end(signals).await
}

/// A server that runs, and all who hear of what it does.
struct Service {
    args: ServeArgs,
    host: Host,
    running: RunningServer,
    teller: Teller,
    audit: Option<Audit>,
    metrics: Option<Metrics>,
    /// Where its sessions are to be seen, for as long as this is kept.
    _status: Option<Status>,
    manager: Manager,
    /// What it does, in words, for the manager.
    doing: watch::Sender<&'static str>,
    /// Questions whether this loop goes on.
    asked: Asked,
    sum_up: Interval,
    /// When it ends whatever goes on, once it takes no more clients.
    ends: Option<Pin<Box<Sleep>>>,
}

impl Service {
    async fn start(args: ServeArgs, sockets: Option<Sockets>) -> Result<Service, Failure> {
        let description = server(&args)?;
        let origins = &args.origins;
        let blamed = |setting| move |failure| judge::blamed(origins, setting, failure);
        let audit = args.audit.as_deref().map(Audit::open).transpose().map_err(blamed("audit"))?;
        let engines = match (&sockets, args.engines) {
            (None, engines) => engines.unwrap_or_else(gtp::default_engines),
            (Some(_), Some(2..)) => {
                warn!(target: SERVER, "one engine is used: the sockets were opened elsewhere");
                1
            }
            (Some(_), Some(_) | None) => 1,
        };
        let host = super::host(&args.host).engines(engines).start()?;
        let running = match sockets {
            None => {
                let started = description.start(&host).await;
                started.map_err(|failure| judge::of_start(origins, failure))?
            }
            Some(sockets) => {
                say_unused_listen(&args);
                description.start_on(&host, sockets).await?
            }
        };
        if args.path.no_path_bound {
            let words = "clients may ask for transfers without a path bound; other traffic may get \
                         nothing";
            warn!(target: SERVER, "{words}");
        }
        if let Some(zone) = gtp::unknown_zone() {
            let words = "this machine does not know the time zone that TZ names (its tables are in \
                         /usr/share/zoneinfo); hours go by UTC";
            warn!(target: SERVER, zone = %gtp_text::of_message(&zone), "{words}");
        }
        let metrics = args.metrics.map(|at| Metrics::serve(at, &running)).transpose();
        let metrics = metrics.map_err(blamed("metrics"))?;
        let _status = args.status.as_deref().and_then(|at| Status::serve(at, &host, &running));
        announce(&args, &running);
        let (teller, manager) = (Teller::new(&args), Manager::of_process());
        manager.ready();
        let (doing, is_doing) = watch::channel("serves");
        let (served, asked) = Served::of(&running, is_doing);
        tokio::spawn(manager.clone().hear(served));
        Ok(Service {
            args,
            host,
            running,
            teller,
            audit,
            metrics,
            _status,
            manager,
            doing,
            asked,
            sum_up: interval(SUM_UP_SPAN),
            ends: None,
        })
    }

    /// Waits for what happens next and does what follows; breaks when it is time to end.
    async fn step(&mut self, signals: &mut ServerSignals) -> ControlFlow<()> {
        tokio::select! {
            event = self.running.next_event() => match event {
                Some(event) => self.tell(&event),
                None => return ControlFlow::Break(()),
            },
            wish = signals.next() => return self.obey(wish),
            _ = self.sum_up.tick() => self.look(),
            () = self.asked.answer() => {}
            () = overdue(&mut self.ends) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn tell(&mut self, event: &ServerEvent) {
        if let Some(audit) = &mut self.audit {
            audit.record(event);
        }
        if let Some(metrics) = &self.metrics {
            metrics.count(event);
        }
        self.teller.tell(event);
    }

    fn look(&mut self) {
        self.teller.stands(self.host.stands());
        self.teller.sum_up();
        if let Some(metrics) = &self.metrics {
            metrics.look(&self.host);
            self.audit.iter().for_each(|audit| metrics.count_lost(audit.lost()));
        }
    }

    fn obey(&mut self, wish: Wish) -> ControlFlow<()> {
        match (wish, self.args.drain) {
            (Wish::Reload, _) => {
                self.reload();
                ControlFlow::Continue(())
            }
            (Wish::Stop, Some(span)) if self.ends.is_none() => {
                let seconds = span.as_secs_f64();
                info!(
                    target: SERVER, seconds,
                    "no more clients are taken; running transfers may go on for {seconds} s"
                );
                self.running.drain();
                self.doing.send_replace("takes no more clients");
                self.manager.stopping(span);
                // The server ends before this, if all its sessions do.
                self.ends = Some(Box::pin(sleep(span)));
                ControlFlow::Continue(())
            }
            (Wish::Stop, Some(_)) => give_up(self.audit.take()),
            (Wish::GiveWay, _) => {
                info!(target: SERVER, "another process takes over; clients are told to come again");
                ControlFlow::Break(())
            }
            (Wish::Stop, None) => {
                info!(target: SERVER, "the server ends; clients are told");
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the sessions, and hears of their ends.
    async fn end(self, mut signals: ServerSignals) -> Result<ExitCode, Failure> {
        self.manager.stopping(Duration::ZERO);
        let Service { running, mut teller, mut audit, mut asked, .. } = self;
        let stop_now = async { while signals.next().await != Wish::Stop {} };
        let ending = running.stop_and_hear(|event| {
            if let Some(audit) = &mut audit {
                audit.record(&event);
            }
            teller.tell(&event);
        });
        let go_on = async {
            loop {
                asked.answer().await;
            }
        };
        let is_over = tokio::select! {
            () = ending => true,
            () = stop_now => false,
            () = go_on => false,
        };
        if !is_over {
            give_up(audit);
        }
        teller.sum_up();
        info!(target: SERVER, "the server has ended");
        output::drain();
        match audit.and_then(Audit::close) {
            Some(lost) => Err(lost),
            None => Ok(super::done()),
        }
    }
}

/// Ends the process at once, but for the records of the audit that a disk takes without delay.
fn give_up(audit: Option<Audit>) -> ! {
    if let Some(lost) = audit.and_then(|audit| audit.close_within(GIVE_UP_SPAN)) {
        error!(target: SERVER, "{lost}");
        output::drain();
    }
    std::process::exit(130)
}

/// Waits until a time has come; for ever if there is none.
async fn overdue(at: &mut Option<Pin<Box<Sleep>>>) {
    match at {
        Some(at) => at.await,
        None => std::future::pending().await,
    }
}

/// The server that the options describe.
///
/// # Errors
/// [`FailureKind::Usage`] if they name nothing to export, or a directory and exports.
fn server(args: &ServeArgs) -> Result<Server, Failure> {
    let exports = args.exports.as_ref().filter(|exports| !exports.exports.is_empty());
    let offered = match (&args.dir, exports) {
        (Some(dir), _) => Server::export(dir).groups(groups_beside_directory(args)?),
        (None, Some(exports)) => Server::exports(exports.clone()),
        (None, None) => {
            let text = "say what to export: a directory (gtp serve DIR), or [export.NAME] tables \
                        in the configuration file (`gtp config` says which file that is)";
            return Err(Failure::new(FailureKind::Usage, text));
        }
    };
    Ok(with_settings(offered, args))
}

/// The groups of a server that was told its directory.
///
/// # Errors
/// [`FailureKind::Usage`] if the file names exports: their rules would not hold for the directory.
fn groups_beside_directory(args: &ServeArgs) -> Result<BTreeMap<String, GroupRule>, Failure> {
    let Some(said) = &args.exports else { return Ok(BTreeMap::new()) };
    match said.exports.keys().next() {
        None => Ok(said.groups.clone()),
        Some(export) => {
            let file = args.origins.file().unwrap_or(Path::new("the configuration file"));
            let file = file.display();
            let text = format!(
                "a directory was named, and {file} has exports ([export.{export}]): leave the \
                 directory out to serve these (in a unit: ExecStart=/usr/bin/gtp serve), take \
                 their tables out of the file, or name another file (GTP_CONFIG_FILE)"
            );
            Err(Failure::new(FailureKind::Usage, text))
        }
    }
}

/// The same server with all settings beside what it exports.
fn with_settings(offered: Server, args: &ServeArgs) -> Server {
    let mut server = offered.listen(&args.listen);
    if args.public {
        server = server.public();
    }
    if args.writable {
        server = server.writable();
    }
    if let Some(keys) = &args.authorized_keys {
        server = server.authorized_keys(keys);
    }
    if let Some(rate) = args.max_rate {
        server = server.max_rate(rate);
    }
    server = server.path(args.path.path_use());
    if args.audit.is_some() {
        server = server.tell_changes();
    }
    for range in &args.third_party {
        server = server.third_party(range.clone());
    }
    for law in &args.allow_control {
        server = match law {
            Allowed::Endnode => server.allow_end_node(),
            Allowed::Gtp2004 => server.allow(Alone::Gtp2004),
            Allowed::Rbudp => server.allow(Alone::Rbudp),
            Allowed::Sabul => server.allow(Alone::Sabul),
            Allowed::Tsunami => server.allow(Alone::Tsunami),
        };
    }
    server
}

/// What is served, for people.
fn served_words(args: &ServeArgs) -> String {
    match (&args.dir, &args.exports) {
        (Some(dir), _) => dir.display().to_string(),
        (None, exports) => {
            let names = exports.iter().flat_map(|exports| exports.exports.keys());
            format!("the exports {}", names_of(names))
        }
    }
}

/// Names between commas.
fn names_of<'n>(all: impl Iterator<Item = &'n String>) -> String {
    all.map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Says that the sockets are another's to open, if somebody has said where to listen.
fn say_unused_listen(args: &ServeArgs) {
    if args.origins.is_set("listen") {
        let listen = args.origins.name_and_line("listen");
        info!(
            target: SERVER,
            "{listen} has no effect: the sockets were opened by another process (LISTEN_FDS)"
        );
    }
}

/// Says so if others may write the settings.
fn warn_of_exposed(args: &ServeArgs) {
    if let Some(why) = args.origins.exposed() {
        warn!(target: SERVER, "{why}");
    }
}

/// Says what of the exports is likely meant otherwise.
fn warn_of_exports(args: &ServeArgs) {
    let Some(exports) = &args.exports else { return };
    if args.dir.is_some() {
        let groups = names_of(exports.groups.keys());
        info!(target: SERVER, groups, "keys of these groups have their rates and hours");
        return;
    }
    for name in exports.of_nobody() {
        warn!(
            target: SERVER,
            "[export.{name}] gives nobody a right: say `read`, or name it in a group or a line"
        );
    }
    let writers = |rule: &ExportRule| rule.write != Who::Nobody;
    let in_groups = exports.groups.values().any(|group| !group.grants.write.is_empty());
    if !args.writable && (in_groups || exports.exports.values().any(writers)) {
        warn!(target: SERVER, "nobody may write: the server was started without --writable");
    }
}

fn announce(args: &ServeArgs, running: &RunningServer) {
    let (address, fingerprint) = (running.address(), running.fingerprint());
    if args.json {
        out::line(&json!({
            "event": "listening",
            "addr": address.to_string(),
            "fingerprint": fingerprint.to_string(),
        }));
    }
    let who = match (args.public, args.writable) {
        (true, false) => "anyone may read",
        (true, true) => "anyone may read, authorized keys may write",
        (false, false) => "authorized keys may read",
        (false, true) => "authorized keys may read and write",
    };
    let served = served_words(args);
    info!(target: SERVER, "serving {served} on {address} (TCP and UDP); {who}");
    info!(target: SERVER, "this host's key: {fingerprint}");
    warn_of_exports(args);
    warn_of_exposed(args);
    let anyone = args.public && !args.writable;
    if let Some(list) = missing_list(anyone, args.authorized_keys.as_deref()) {
        warn!(target: SERVER, "{}", words_of_missing(&list));
    }
    let port = address.port();
    info!(
        target: SERVER,
        "elsewhere: gtp get gtp://HOST:{port}/PATH . --fingerprint {fingerprint}"
    );
}

/// The list of keys, if it is needed and not there.
pub(super) fn missing_list(anyone: bool, given: Option<&Path>) -> Option<PathBuf> {
    let usual = || gtp::config_dir().ok().map(|dir| dir.join(AUTHORIZED_KEYS_FILE));
    let list = given.map(Path::to_path_buf).or_else(usual)?;
    (!anyone && !list.exists()).then_some(list)
}

pub(super) fn say_missing(list: &Path) {
    aside(words_of_missing(list));
}

fn words_of_missing(list: &Path) -> String {
    let list = list.display();
    format!("no key is listed yet: put what `gtp id` prints elsewhere into {list}")
}

/// How long a process that ends at once waits for its audit.
const GIVE_UP_SPAN: Duration = Duration::from_millis(500);

/// Time between two lines that sum up what was left out.
const SUM_UP_SPAN: Duration = Duration::from_secs(1);
