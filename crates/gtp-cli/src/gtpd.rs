//! The `gtpd` command: runs the daemon that shares this machine's capacity among its processes.
//!
//! It needs no privileges and no configuration: capacities are given, or nine tenths of what the
//! network card says (thesis, X.3.D). Here settings become a value, at the start and at each
//! hangup; the rest is the daemon's.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

mod gtpd_options;
mod gtpd_settings;
mod lines;
mod log;
mod loopback;
mod manager;
mod origins;
mod patient;
mod refused;
mod toml_words;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::CommandFactory;
use gtp::{Rate, Span};
use gtpd::{Census, Claim, ClaimError, Commander, Daemon, DaemonConfig, HubConfig, Order};
use gtpd_options::Options;
use gtpd_settings::Settings;
use manager::{Manager, Serving};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The source of the daemon's own lines, which are few, and written without being asked for.
const OWN: &str = "gtpd";

/// The exit code for words that cannot be.
const USAGE: u8 = 2;

/// How long a daemon that may follow one that died grants nothing: its processes look for it
/// every 50 ms.
const GRACE: Span = Span::from_millis(250);

fn main() -> ExitCode {
    let settings = match gtpd_settings::read(std::env::args_os()) {
        Ok(settings) => settings,
        Err(error) if error.use_stderr() => {
            refused::print(error);
            return ExitCode::from(USAGE);
        }
        Err(asked) => asked.exit(),
    };
    if settings.options.man_page {
        let page = clap_mangen::Man::new(Options::command());
        return match page.render(&mut io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let Options { log_format, log: wanted, .. } = &settings.options;
    let change_log = Box::new(log::of_service(OWN, *log_format, wanted.as_deref()));
    if settings.options.check {
        return say_checked(settings);
    }
    // Without it a limit of file sizes ends the process, as it does elsewhere.
    let _ = gtp_sys::signals::survive_file_limit();
    gtp_sys::descriptors::raise_limit();
    let enough = gtp_sys::descriptors::check_limit();
    let ended = enough.and_then(|()| log::never_wait());
    let ended = ended.map_err(anyhow::Error::from).and_then(|()| run(settings, change_log));
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

fn run(settings: Settings, change_log: log::Change) -> anyhow::Result<()> {
    let claim = claim(&settings.options)?;
    settings.warn();
    let Settings { options, origins, .. } = settings;
    let at = match (&options.socket, options.socket_on_stdin) {
        (_, true) => "the socket on standard input".to_owned(),
        (Some(path), false) => path.display().to_string(),
        (None, false) => default_place()?.display().to_string(),
    };
    let config = config(options.clone());
    let daemon = Daemon::new(claim, &config).map_err(|error| {
        let setting = busy_page(&options);
        anyhow::Error::msg(origins.blame(setting, error))
    })?;
    tracing::info!(target: OWN, "shares {} at {at}", said(&config));
    let (commander, orders) = gtpd::orders()?;
    let manager = Manager::of_process();
    supervise(Reloading { options, change_log }, commander, manager.clone())?;
    manager.ready();
    let ended = daemon.obeying(orders).run();
    manager.stopping(Duration::ZERO);
    ended?;
    tracing::info!(target: OWN, "has ended");
    Ok(())
}

/// Which of the two pages cannot be had, after one could not: the daemon has let go of both.
fn busy_page(options: &Options) -> &'static str {
    let is_free = |at| std::net::TcpListener::bind(at).is_ok();
    if options.metrics.is_none_or(is_free) { "web" } else { "metrics" }
}

/// Says what a daemon with these settings would share; the settings have been judged.
fn say_checked(settings: Settings) -> ExitCode {
    use std::io::Write as _;
    settings.warn();
    let said = said(&config(settings.options));
    let written = writeln!(io::stdout(), "the settings can be used: {said} would be shared");
    log::drain();
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
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
fn supervise(reloading: Reloading, commander: Commander, manager: Manager) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listening = {
        let _inside = runtime.enter();
        Signals::take()?
    };
    let asking = Asking(commander.clone());
    let thread = std::thread::Builder::new().name("gtpd-signals".into());
    thread.spawn(move || {
        runtime.spawn(manager.clone().hear(asking));
        runtime.block_on(listening.pass_on(commander, reloading, &manager));
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

    /// Passes them on as orders.
    async fn pass_on(mut self, mut commander: Commander, reloading: Reloading, manager: &Manager) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => break,
                _ = self.terminate.recv() => break,
                _ = self.hang_up.recv() => {
                    manager.reloading();
                    if let Some(config) = reloading.read_again() {
                        commander.give(Order::Settings(Box::new(config)));
                        // Its answer comes after it has done as it was told.
                        let _ = Asking(commander.clone()).beat().await;
                    }
                    manager.ready();
                }
            }
        }
        commander.give(Order::End);
    }
}

/// What a hangup needs.
struct Reloading {
    /// Of the start: some of them count until the next one.
    options: Options,
    change_log: log::Change,
}

impl Reloading {
    /// Reads the settings again, and the network card's speed where no capacity is given; `None`
    /// if they cannot be used, and everything stays as it was.
    fn read_again(&self) -> Option<DaemonConfig> {
        let settings = match gtpd_settings::read(std::env::args_os()) {
            Ok(settings) => settings,
            Err(error) => {
                let text = error.to_string();
                let why = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                tracing::error!(target: OWN, why, "reload: the settings stay as they were");
                return None;
            }
        };
        (self.change_log)(settings.options.log_format, settings.options.log.as_deref());
        settings.warn();
        let Settings { options, origins, .. } = settings;
        let later = gtpd_settings::later(&self.options, &options).join(", ");
        if !later.is_empty() {
            let settings = later;
            tracing::warn!(
                target: OWN, settings, "reload: these settings count from the next start on"
            );
        }
        let file = origins.file().map(|path| path.display().to_string());
        let config = config(options);
        tracing::info!(
            target: OWN, file, "reload: the settings were read again; shares {}", said(&config)
        );
        Some(config)
    }
}

impl Settings {
    /// Says what of them is likely meant otherwise.
    fn warn(&self) {
        for why in &self.overridden {
            tracing::warn!(target: OWN, why, "a setting of the file has no effect");
        }
        if let Some(why) = self.origins.exposed() {
            tracing::warn!(target: OWN, "{why}");
        }
    }
}

/// Capacities out and in, in words.
fn said(config: &DaemonConfig) -> String {
    let capacities = [config.hub.capacity_out, config.hub.capacity_in];
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
