//! The `gtpd` command: runs the daemon that shares this machine's capacity among its processes.
//!
//! It needs no privileges and no configuration: capacities are given, or nine tenths of what the
//! network card says (thesis, X.3.D). Here options become a value; the rest is the daemon's.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

mod lines;
mod log;
mod manager;
mod patient;
mod refused;

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};
use gtp::{Rate, Span};
use gtp_emu::units_text;
use gtpd::{
    Census, Claim, ClaimError, Commander, Daemon, DaemonConfig, EndNodeSessions, HubConfig, Order,
};
use manager::{Manager, Serving};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Share this machine's capacity fairly among all its GTP processes.
#[derive(Debug, Parser)]
#[command(name = "gtpd", version, max_term_width = 100)]
struct Options {
    /// Where processes find it; for root /run/gtp/gtpd.sock, else gtp/gtpd.sock in
    /// XDG_RUNTIME_DIR, /run/user/UID or /tmp/gtp-UID
    #[arg(long, value_name = "PATH", env = "GTPD_SOCKET", conflicts_with = "socket_on_stdin")]
    socket: Option<PathBuf>,
    /// Standard input is the listening socket (systemd's StandardInput=socket)
    #[arg(long)]
    socket_on_stdin: bool,
    /// Capacity for what this machine receives; 90 % of the network card's if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_IN", value_parser = rate)]
    capacity_in: Option<Rate>,
    /// Capacity for what this machine sends; 90 % of the network card's if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_OUT", value_parser = rate)]
    capacity_out: Option<Rate>,
    /// Fixed control interval, such as 20ms; follows the round-trip times if not said
    #[arg(long, value_name = "TIME", env = "GTP_INTERVAL", value_parser = interval)]
    interval: Option<Span>,
    /// Weight of a user's sessions together, against other users'; may be repeated
    #[arg(long, value_name = "UID=W", value_parser = user)]
    user_weight: Vec<(u32, f64)>,
    /// The most that a user's sessions together may have in each direction; may be repeated
    #[arg(long, value_name = "UID=RATE", value_parser = user_rate)]
    user_max: Vec<(u32, Rate)>,
    /// What a user's sessions together are served first in each direction, as far as they want it;
    /// may be repeated
    #[arg(long, value_name = "UID=RATE", value_parser = user_rate)]
    user_guarantee: Vec<(u32, Rate)>,
    /// How sessions under the thesis's end-node law (--control endnode) are shared out
    #[arg(long, value_name = "LAW", value_enum, default_value = "grant", env = "GTPD_LAW")]
    law: EndNodeLaw,
    /// End when no process has been there for this long
    #[arg(long, value_name = "TIME", value_parser = span)]
    exit_when_idle: Option<Span>,
    /// Serve numbers for Prometheus at /metrics on this loopback address; off if not said
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Show the live rates to a browser at this loopback address; off if not said
    #[arg(long, value_name = "ADDR:PORT")]
    web: Option<SocketAddr>,
    /// Leave traffic on this network interface that is not GTP's its place
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// How each line on standard error is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", env = "GTP_LOG_FORMAT")]
    log_format: log::LogFormat,
    /// Always leave this much to other traffic, in each direction
    #[arg(long, value_name = "RATE", value_parser = rate)]
    reserve: Option<Rate>,
    /// Print the manual page
    #[arg(long, hide = true)]
    man_page: bool,
}

/// The law by which sessions under the end-node law are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EndNodeLaw {
    /// As all others: each counts as one that wants a tenth more than it moves
    Grant,
    /// Their own (Algorithms 2 and 3). They have no weights, and may overload this machine while
    /// their rates settle
    Endnode,
}

impl EndNodeLaw {
    fn end_node(self) -> EndNodeSessions {
        match self {
            EndNodeLaw::Grant => EndNodeSessions::ByGrants,
            EndNodeLaw::Endnode => EndNodeSessions::ByTheirLaw,
        }
    }
}

/// The source of the daemon's own lines, which are few, and written without being asked for.
const OWN: &str = "gtpd";

/// The exit code for words that cannot be.
const USAGE: u8 = 2;

/// How long a daemon that may follow one that died grants nothing: its processes look for it
/// every 50 ms.
const GRACE: Span = Span::from_millis(250);

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            refused::print(error);
            return ExitCode::from(USAGE);
        }
        Err(asked) => asked.exit(),
    };
    if options.man_page {
        let page = clap_mangen::Man::new(Options::command());
        return match page.render(&mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if let Err(why) = check(&options) {
        refused::print(Options::command().error(ErrorKind::ValueValidation, why));
        return ExitCode::from(USAGE);
    }
    let wanted = std::env::var("GTP_LOG").ok();
    // Its options stay in force until it is started again.
    drop(log::of_service(OWN, options.log_format, wanted.as_deref()));
    // Without it a limit of file sizes ends the process, as it does elsewhere.
    let _ = gtp_sys::signals::survive_file_limit();
    gtp_sys::descriptors::raise_limit();
    let enough = gtp_sys::descriptors::check_limit();
    let ended = enough.and_then(|()| log::never_wait());
    let ended = ended.map_err(anyhow::Error::from).and_then(|()| run(options));
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    };
    log::drain();
    code
}

/// Refuses options that contradict each other, or name what is not there.
fn check(options: &Options) -> Result<(), String> {
    if let Some(name) = &options.interface
        && !gtp_sys::nic::is_there(name)
    {
        return Err(format!("--interface {name}: this machine has no such network interface"));
    }
    for (name, capacity) in
        [("capacity-in", options.capacity_in), ("capacity-out", options.capacity_out)]
    {
        if let (Some(reserve), Some(capacity)) = (options.reserve, capacity)
            && reserve >= capacity
        {
            return Err(format!("--reserve leaves nothing of --{name}"));
        }
    }
    once("user-weight", options.user_weight.iter().map(|(user, _)| *user))?;
    once("user-max", options.user_max.iter().map(|(user, _)| *user))?;
    once("user-guarantee", options.user_guarantee.iter().map(|(user, _)| *user))?;
    for (user, least) in &options.user_guarantee {
        if options.user_max.iter().any(|(other, most)| other == user && most < least) {
            return Err(format!("--user-guarantee of user {user} is more than --user-max"));
        }
    }
    Ok(())
}

/// Refuses an option that is given twice for one user.
fn once(name: &str, users: impl Iterator<Item = u32>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for user in users {
        if !seen.insert(user) {
            return Err(format!("--{name} is given twice for user {user}"));
        }
    }
    Ok(())
}

fn run(options: Options) -> anyhow::Result<()> {
    let claim = claim(&options)?;
    let given = [options.capacity_out, options.capacity_in];
    let at = match (&options.socket, options.socket_on_stdin) {
        (_, true) => "the socket on standard input".to_owned(),
        (Some(path), false) => path.display().to_string(),
        (None, false) => default_place()?.display().to_string(),
    };
    let config = config(options);
    let daemon = Daemon::new(claim, &config).context("--metrics or --web")?;
    let capacities = [config.hub.capacity_out, config.hub.capacity_in];
    tracing::info!(target: OWN, "shares {} at {at}", said(capacities));
    let (commander, orders) = gtpd::orders()?;
    let manager = Manager::of_process();
    supervise(commander, given, manager.clone())?;
    manager.ready();
    let ended = daemon.obeying(orders).run();
    manager.stopping(Duration::ZERO);
    Ok(ended?)
}

/// Claims the socket that was named, or that a manager has opened, or the usual one.
fn claim(options: &Options) -> anyhow::Result<Claim> {
    if options.socket_on_stdin {
        let claimed = Claim::from_manager(io::stdin());
        return claimed.map_err(plain).context("standard input is no listening socket");
    }
    let path = match &options.socket {
        Some(path) => path.clone(),
        None => default_place().context("no place for the socket; name one with --socket")?,
    };
    match Claim::at(&path) {
        Ok(claim) => Ok(claim),
        Err(ClaimError::Taken) => bail!("{}: a daemon runs there already", path.display()),
        Err(error @ ClaimError::Io(_)) => {
            Err(plain(error)).with_context(|| path.display().to_string())
        }
    }
}

/// What the daemon is told.
fn config(options: Options) -> DaemonConfig {
    DaemonConfig {
        hub: HubConfig {
            capacity_out: options.capacity_out.unwrap_or_else(gtp::default_capacity),
            capacity_in: options.capacity_in.unwrap_or_else(gtp::default_capacity),
            interval: options.interval,
            grace: GRACE,
            users: options.user_weight.into_iter().collect(),
            most: options.user_max.into_iter().collect(),
            least: options.user_guarantee.into_iter().collect(),
            end_node: options.law.end_node(),
        },
        idle_end: options.exit_when_idle,
        metrics: options.metrics,
        web: options.web,
        interface: options.interface,
        reserve: options.reserve.unwrap_or(Rate::ZERO),
    }
}

/// Passes signals on to the daemon, and tells the system's manager of it, on a thread of its own.
fn supervise(
    commander: Commander,
    given: [Option<Rate>; 2],
    manager: Manager,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listening = {
        let _inside = runtime.enter();
        Signals::take()?
    };
    let asking = Asking(commander.clone());
    let thread = std::thread::Builder::new().name("gtpd-signals".into());
    thread.spawn(move || {
        runtime.spawn(manager.clone().hear(asking));
        runtime.block_on(listening.pass_on(commander, given, &manager));
    })?;
    Ok(())
}

/// Asks the daemon's loop how it is doing.
struct Asking(Commander);

impl Serving for Asking {
    async fn beat(&mut self) -> Option<String> {
        let (answer_in, answer) = tokio::sync::oneshot::channel();
        // Whoever asked may have gone.
        self.0.ask(|census| {
            let _ = answer_in.send(census);
        });
        let Census { processes, sessions } = answer.await.ok()?;
        let processes = gtp_text::count(processes.into(), "process");
        let sessions = gtp_text::count(sessions.into(), "session");
        Some(format!("shares capacity among {processes}; {sessions}"))
    }
}

/// The signals that the daemon obeys.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes them over from their default.
    fn take() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Passes them on as orders, where these capacities were given, out and in.
    async fn pass_on(
        mut self,
        mut commander: Commander,
        given: [Option<Rate>; 2],
        manager: &Manager,
    ) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = self.hang_up.recv() => {
                    manager.reloading();
                    let [out, in_] = read_again(given);
                    commander.give(Order::Capacities { out, in_ });
                    manager.ready();
                }
            }
        }
        commander.give(Order::End);
    }
}

/// What can be read again while the daemon runs: the network card's speed, where no capacity was
/// given.
fn read_again(given: [Option<Rate>; 2]) -> [Rate; 2] {
    let now = given.map(|rate| rate.unwrap_or_else(gtp::default_capacity));
    tracing::info!(
        target: OWN,
        "hang-up: the capacities are {}; the options of the start stay in force",
        said(now)
    );
    now
}

/// Capacities out and in, in words.
fn said(capacities: [Rate; 2]) -> String {
    let [out, in_] = capacities.map(|rate| match rate.is_unlimited() {
        true => "unlimited".to_owned(),
        false => format!("{:.1} Mbit/s", rate.as_f64() / 1e6),
    });
    format!("{out} out and {in_} in")
}

fn plain(error: ClaimError) -> io::Error {
    match error {
        ClaimError::Taken => io::Error::other("a daemon runs there already"),
        ClaimError::Io(error) => error,
    }
}

/// The host's place for root, a user's own for others.
fn default_place() -> io::Result<PathBuf> {
    let of_the_host = gtp_share::places().into_iter().next();
    match of_the_host.filter(|_| rustix::process::geteuid().is_root()) {
        Some(place) => Ok(place),
        None => {
            gtp_share::make_user_dir()?;
            gtp_share::user_place()
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    units_text::parse_rate(text).map_err(|e| e.to_string())
}

fn span(text: &str) -> Result<Span, String> {
    units_text::parse_span(text).map_err(|e| e.to_string())
}

fn interval(text: &str) -> Result<Span, String> {
    let interval = span(text)?;
    if (Span::from_millis(1)..=Span::from_secs(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("a control interval is from 1ms to 1s".into())
    }
}

fn user(text: &str) -> Result<(u32, f64), String> {
    let bad = || "it is written UID=W, with a weight from 0.001 to 1000".to_owned();
    let (uid, weight) = text.split_once('=').ok_or_else(bad)?;
    let weight: f64 = weight.parse().map_err(|_| bad())?;
    if !(0.001..=1000.0).contains(&weight) {
        return Err(bad());
    }
    Ok((uid.parse().map_err(|_| bad())?, weight))
}

fn user_rate(text: &str) -> Result<(u32, Rate), String> {
    let bad = || "it is written UID=RATE, such as 1000=200Mbit".to_owned();
    let (uid, most) = text.split_once('=').ok_or_else(bad)?;
    Ok((uid.parse().map_err(|_| bad())?, rate(most)?))
}
