//! What the command has to do with the machine's daemon: which one, what it shows, what it is told.
//!
//! The daemon shares one capacity among all processes of the machine; here it is only found and
//! asked. A machine without one is no error: each process then allocates for itself.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::BoolishValueParser;
use clap::{ArgGroup, Args, ValueEnum};
use gtp::{Bond, Failure, FailureKind, Rate, Sharing};
use gtp_share::{
    Change, HistoryView, HostView, KeyView, Of, PathView, Places, Policy, SERVERS, SessionView,
    client, make_user_dir, places, user_place,
};

use crate::args::HostArgs;
use crate::{output, words};

/// Which daemon to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The host's or the user's, if one runs.
    Auto,
    /// The same; if none runs, one of the user's is started.
    Start,
    /// None.
    Off,
    /// The one that listens here.
    At(PathBuf),
}

impl Which {
    /// The word by which it is asked for, in any directory.
    ///
    /// # Errors
    /// When there is no working directory.
    pub fn word(&self) -> std::io::Result<std::ffi::OsString> {
        Ok(match self {
            Which::Auto => "auto".into(),
            Which::Start => "start".into(),
            Which::Off => "off".into(),
            Which::At(path) => std::path::absolute(path)?.into(),
        })
    }
}

/// Options of `sessions`.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// The daemon's socket, or that of a server's --status
    #[arg(long, value_name = "WHICH", env = "GTP_DAEMON", value_parser = which)]
    pub daemon: Option<Which>,
    /// The socket of the user's pump, which knows what programs under `gtp run` do over TCP
    #[arg(long, value_name = "PATH", env = "GTP_PUMP")]
    pub pump: Option<PathBuf>,
    /// One JSON object a line on standard output, the host first
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `set`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("change").required(true).multiple(true)
    .args(["weight", "max_rate", "guarantee", "policy"])))]
pub struct SetArgs {
    /// The session, as `gtp sessions` lists it
    pub session: u32,
    /// Its weight among the sessions of its transfer, which has their mean among transfers
    #[arg(long, value_name = "W", value_parser = words::weight, allow_hyphen_values = true)]
    pub weight: Option<f64>,
    /// Its limit; `off` lifts it
    #[arg(long, value_name = "RATE", value_parser = limit, allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    /// Means all sessions of its transfer together: for --max-rate and --guarantee
    #[arg(long, conflicts_with_all = ["weight", "policy"])]
    pub transfer: bool,
    /// What its transfer is served first, as far as it wants it, whatever others want; `off` lifts
    /// it; for root and the daemon's own user
    #[arg(long, value_name = "RATE", value_parser = guarantee, allow_hyphen_values = true,
        requires = "transfer")]
    pub guarantee: Option<Rate>,
    /// When it gets something
    #[arg(long, value_enum)]
    pub policy: Option<PolicyArg>,
    /// The daemon's socket
    #[arg(long, value_name = "WHICH", env = "GTP_DAEMON", value_parser = which)]
    pub daemon: Option<Which>,
}

/// When a session gets something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// With all others
    Normal,
    /// Only what all normal sessions of this machine leave
    Low,
}

/// Reads which daemon is meant.
pub fn which(text: &str) -> Result<Which, String> {
    match text {
        "auto" => Ok(Which::Auto),
        "start" => Ok(Which::Start),
        "off" => Ok(Which::Off),
        path if path.contains('/') => Ok(Which::At(path.into())),
        _ => Err("a daemon is auto, start, off or the path of a socket".into()),
    }
}

fn limit(text: &str) -> Result<Rate, String> {
    if text == "off" { Ok(Rate::UNLIMITED) } else { words::rate(text) }
}

fn guarantee(text: &str) -> Result<Rate, String> {
    if text == "off" { Ok(Rate::ZERO) } else { words::rate(text) }
}

/// How this process takes part in sharing the machine's capacity, if it does.
pub fn sharing(args: &HostArgs) -> Option<Sharing> {
    let own = args.capacity_in.is_some() || args.capacity_out.is_some();
    let which = match &args.daemon {
        None if own => return None,
        None => Which::Auto,
        Some(which) => which.clone(),
    };
    let program = std::env::args().take(2).collect::<Vec<_>>().join(" ");
    if own && matches!(which, Which::Auto | Which::At(_)) {
        tracing::warn!("where a daemon runs its capacities count, and this process's own do not");
    }
    let (places, bond, start) = match which {
        Which::Off => return None,
        Which::Auto => (Places::Usual, Bond::Found, None),
        Which::Start => (Places::Usual, Bond::Found, starter(args)),
        Which::At(path) => (Places::Named(path), Bond::Named, None),
    };
    Some(Sharing { places, bond, program, start })
}

/// The command that starts a daemon of the user's: the program beside this one, with the
/// capacities that this process was given.
fn starter(args: &HostArgs) -> Option<Vec<OsString>> {
    let program = std::env::current_exe().ok()?.with_file_name("gtpd");
    let mut command: Vec<OsString> = vec![program.into(), "--socket".into()];
    let made = make_user_dir().and_then(|_| user_place());
    let place = made.inspect_err(|error| tracing::warn!(%error, "no daemon can be started"));
    command.push(place.ok()?.into());
    command.extend(["--exit-when-idle".into(), "60s".into()]);
    let capacities = [("--capacity-in", args.capacity_in), ("--capacity-out", args.capacity_out)];
    for (option, rate) in capacities {
        if let Some(rate) = rate {
            command.extend([option.into(), format!("{}bit", rate.as_bps()).into()]);
        }
    }
    Some(command)
}

/// `gtp sessions`.
///
/// # Errors
/// When there is neither a daemon nor a pump, or the daemon does not answer.
pub fn sessions(args: &SessionsArgs) -> Result<ExitCode, Failure> {
    // A pump that hangs, or is another's, keeps nobody from the sessions.
    let fallbacks = crate::run::fallbacks(args.pump.as_deref()).unwrap_or_else(|failure| {
        output::aside(&failure.text);
        None
    });
    match ask_sessions(&args.daemon) {
        Ok((host, sessions)) => say_sessions(args, &host, &sessions)?,
        // The pump has something to say all the same.
        Err(failure) if failure.kind == FailureKind::Temporary && fallbacks.is_some() => {
            output::aside(&failure.text);
        }
        Err(failure) => return Err(failure),
    }
    let fallbacks = fallbacks.unwrap_or_default();
    if args.json {
        fallbacks.iter().try_for_each(|one| output::json(json(one)?))?;
    } else {
        crate::run::table(&fallbacks).into_iter().try_for_each(output::line)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say_sessions(
    args: &SessionsArgs,
    host: &HostView,
    sessions: &[SessionView],
) -> Result<(), Failure> {
    if !args.json {
        return table(host, sessions).into_iter().try_for_each(output::line);
    }
    output::json(json(host)?)?;
    sessions.iter().try_for_each(|session| output::json(json(session)?))
}

/// `gtp set`.
///
/// # Errors
/// When there is no daemon, no such session, or it is another user's.
pub fn set(args: &SetArgs) -> Result<ExitCode, Failure> {
    let limit = args.max_rate.map(|rate| if rate.is_unlimited() { 0 } else { rate.as_bps() });
    let policy = args.policy.map(|policy| match policy {
        PolicyArg::Normal => Policy::Normal,
        PolicyArg::Low => Policy::Low,
    });
    let change = Change {
        of: if args.transfer { Of::Transfer } else { Of::Session },
        guarantee: args.guarantee.map(Rate::as_bps),
        weight: args.weight,
        max_rate: limit,
        policy,
    };
    if let Some(note) = first(&args.daemon, |path| client::set(path, args.session, change))? {
        output::aside(note);
    }
    Ok(ExitCode::SUCCESS)
}

/// The host and its sessions, as the first daemon that is there sees them. Where none runs and none
/// was named, what the servers say that the system's manager runs.
///
/// # Errors
/// When there is no daemon and no such server, or it does not answer.
pub fn ask_sessions(daemon: &Option<Which>) -> Result<(HostView, Vec<SessionView>), Failure> {
    let asked = first(daemon, client::sessions);
    match daemon {
        None | Some(Which::Auto | Which::Start) => asked.or_else(|failure| {
            let servers = SERVERS.iter().filter_map(|at| client::sessions(at.as_ref()).ok());
            together(servers).ok_or(failure)
        }),
        Some(Which::Off | Which::At(_)) => asked,
    }
}

/// What several servers say, as of one host; nothing if there are none.
fn together(
    servers: impl Iterator<Item = (HostView, Vec<SessionView>)>,
) -> Option<(HostView, Vec<SessionView>)> {
    let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
    servers.reduce(|(one, mut all), (other, sessions)| {
        let host = HostView {
            capacity_out: sum(one.capacity_out, other.capacity_out),
            capacity_in: sum(one.capacity_in, other.capacity_in),
            used_out: one.used_out.saturating_add(other.used_out),
            used_in: one.used_in.saturating_add(other.used_in),
            guaranteed: one.guaranteed.saturating_add(other.guaranteed),
            processes: one.processes.saturating_add(other.processes),
            sessions: one.sessions.saturating_add(other.sessions),
        };
        all.extend(sessions);
        (host, all)
    })
}

/// Asks the daemon what users moved in the last hour.
///
/// # Errors
/// As [`ask_sessions`]; and if it is of an earlier release.
pub fn ask_history(daemon: &Option<Which>) -> Result<Vec<HistoryView>, Failure> {
    first(daemon, client::history)
}

/// Asks the daemon what clients of servers moved in the last hour, by their keys. One of an earlier
/// release does not know, and then nothing is told.
///
/// # Errors
/// As [`ask_sessions`].
pub fn ask_keys(daemon: &Option<Which>) -> Result<Vec<KeyView>, Failure> {
    first(daemon, |path| {
        client::keys(path).or_else(|error| match error.kind() {
            io::ErrorKind::Other => Ok(Vec::new()),
            _ => Err(error),
        })
    })
}

/// Asks the first daemon that is there.
fn first<T>(
    daemon: &Option<Which>,
    ask: impl Fn(&std::path::Path) -> io::Result<T>,
) -> Result<T, Failure> {
    let places = match daemon.clone().unwrap_or(Which::Auto) {
        Which::At(path) => vec![path],
        Which::Auto | Which::Start => places(),
        Which::Off => Vec::new(),
    };
    first_of(&places, ask)
}

/// Asks the first of several that can be reached; if none can, the first trouble is told.
fn first_of<T>(
    places: &[PathBuf],
    ask: impl Fn(&std::path::Path) -> io::Result<T>,
) -> Result<T, Failure> {
    let mut trouble = None;
    for place in places {
        match ask(place) {
            Ok(answer) => return Ok(answer),
            Err(e) => match e.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {}
                io::ErrorKind::PermissionDenied | io::ErrorKind::WouldBlock => {
                    trouble.get_or_insert(format!("{}: {e}", place.display()));
                }
                io::ErrorKind::TimedOut | io::ErrorKind::ConnectionReset => {
                    let text = format!("{}: {e}", place.display());
                    return Err(Failure::new(FailureKind::Temporary, text));
                }
                io::ErrorKind::InvalidData => {
                    return Err(Failure::new(
                        FailureKind::Other,
                        format!("{}: {e}", place.display()),
                    ));
                }
                // A daemon is there: what it refuses is not another's to do.
                _ => return Err(Failure::new(FailureKind::Other, e.to_string())),
            },
        }
    }
    if let Some(text) = trouble {
        return Err(Failure::new(FailureKind::Other, text));
    }
    let text = "No gtpd runs here; start it: gtpd (or have transfers start it: --daemon start). \
                Without it each process allocates for itself, or keeps to its part of what a \
                daemon shared out that has just gone, or that it was told to use. A server that \
                was started with --status SOCKET shows its sessions all the same: name the \
                socket here, --daemon SOCKET";
    Err(Failure::new(FailureKind::Temporary, text))
}

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(crate::verbs::other)
}

/// What people read.
pub fn table(host: &HostView, sessions: &[SessionView]) -> Vec<String> {
    let rate =
        |bps: Option<u64>| bps.map_or("-".to_owned(), |bps| words::say_rate(Rate::from_bps(bps)));
    let mut lines = vec![format!(
        "out {} of {}, in {} of {}; {}, {}",
        words::say_rate(Rate::from_bps(host.used_out)),
        rate(host.capacity_out),
        words::say_rate(Rate::from_bps(host.used_in)),
        rate(host.capacity_in),
        words::count(host.processes.into(), "process"),
        words::count(host.sessions.into(), "session"),
    )];
    let capacities = [host.capacity_out, host.capacity_in].into_iter().flatten();
    if let Some(least) = capacities.min().filter(|&least| least < host.guaranteed) {
        lines.push(format!(
            "guaranteed are {} of {}: cut in one proportion",
            rate(Some(host.guaranteed)),
            rate(Some(least))
        ));
    }
    if sessions.is_empty() {
        return lines;
    }
    let cells = |cells: [&str; 13]| {
        let [id, uid, pid, way, w, demand, granted, measured, limit, loss, rtt, path, label] =
            cells;
        format!(
            "{id:>6} {uid:>6} {pid:>7} {way:9} {w:>7} {demand:>12} {granted:>12} {measured:>12} \
             {limit:18} {loss:>7} {rtt:>8} {path:39} {label}"
        )
    };
    lines.push(cells([
        "ID",
        "USER",
        "PID",
        "DIRECTION",
        "WEIGHT",
        "DEMAND",
        "GRANTED",
        "MEASURED",
        "LIMITED BY",
        "LOSS",
        "RTT",
        "PATH",
        "SESSION",
    ]));
    lines.extend(sessions.iter().map(|s| {
        cells([
            &s.session.to_string(),
            &s.uid.to_string(),
            &s.pid.to_string(),
            &s.direction,
            &format!("{:.3}", s.flat_weight),
            &rate(s.demand),
            &rate(s.granted),
            &words::say_rate(Rate::from_bps(s.measured)),
            &crate::limit::of_session(s),
            &format!("{:.2}%", s.loss_ratio * 100.0),
            &format!("{:.1}ms", s.rtt_us as f64 / 1e3),
            &say_path(s),
            &say_session(s),
        ])
    }));
    lines
}

/// What a session is called: a client that is served by its name and its groups.
pub fn say_session(s: &SessionView) -> String {
    let label = &s.label;
    let served = s.client.as_ref().filter(|client| !client.name.is_empty());
    let label = match served {
        None => label.clone(),
        Some(client) => format!("{}, {label}", client.called()),
    };
    format!("{label} ({})", s.program)
}

/// What the path of a session carries, for how many sessions, and what is done about it; before
/// that, that TCP carries the session's datagrams.
pub fn say_path(session: &SessionView) -> String {
    let tcp = if session.carrier == "tcp" { "tcp " } else { "" };
    format!("{tcp}{}", say_standing(session.path.as_ref()))
}

fn say_standing(path: Option<&PathView>) -> String {
    let Some(path) = path else { return "-".to_owned() };
    let group = path.group.map_or(String::new(), |number| format!("#{number} "));
    let shared = match path.sessions {
        0 | 1 => String::new(),
        many => format!(" for {many}"),
    };
    let flows = match path.flows {
        0 | 1 => String::new(),
        many => format!(" as {many} flows"),
    };
    let ecn = say_ecn(path);
    match path.carries {
        _ if path.is_unbounded() => "unbounded".to_owned(),
        Some(bps) => {
            let carries = words::say_rate(Rate::from_bps(bps));
            format!("{group}{carries}{shared}{flows}, {}{ecn}", path.state)
        }
        None => format!("{group}no limit seen{shared}{ecn}"),
    }
}

/// What ECN has brought: how many marks, or that it cannot be used.
fn say_ecn(path: &PathView) -> String {
    match (path.ecn.as_str(), path.marks) {
        ("failed", _) => ", no ECN".to_owned(),
        (_, 0) => String::new(),
        (_, marks) => format!(", {}", words::count(marks, "mark")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_by_what_it_carries_for_whom_and_what_is_done() {
        let mut path = PathView {
            group: Some(3),
            sessions: 1,
            state: "compete".into(),
            carries: Some(48_000_000),
            queue: "another's".into(),
            flows: 1,
            ecn: "on".into(),
            ecn_failure: None,
            marks: 0,
        };
        assert_eq!(say_standing(Some(&path)), "#3 48.0 Mbit/s, compete");
        path.sessions = 2;
        assert_eq!(say_standing(Some(&path)), "#3 48.0 Mbit/s for 2, compete");
        (path.carries, path.group) = (None, None);
        assert_eq!(say_standing(Some(&path)), "no limit seen for 2");
        path.marks = 1;
        assert_eq!(say_standing(Some(&path)), "no limit seen for 2, 1 mark");
        path.ecn = "failed".into();
        assert_eq!(say_standing(Some(&path)), "no limit seen for 2, no ECN");
        assert_eq!(say_standing(None), "-");
        (path.flows, path.carries) = (4, Some(48_000_000));
        assert_eq!(say_standing(Some(&path)), "48.0 Mbit/s for 2 as 4 flows, compete, no ECN");
        path.state = "unbounded".into();
        assert_eq!(say_standing(Some(&path)), "unbounded");
    }

    #[test]
    fn a_daemon_is_a_word_or_a_path() {
        assert_eq!(which("auto"), Ok(Which::Auto));
        assert_eq!(which("/run/x"), Ok(Which::At("/run/x".into())));
        assert!(which("on").is_err());
    }

    #[test]
    fn servers_are_told_together_and_a_capacity_that_one_has_not_is_that_of_none() {
        let of = |capacity_out, used_out| HostView {
            capacity_out,
            capacity_in: Some(1),
            used_out,
            used_in: 2,
            guaranteed: 0,
            processes: 1,
            sessions: 0,
        };
        let (host, _) = together([(of(Some(5), 3), vec![]), (of(None, 4), vec![])].into_iter())
            .expect("there are two");
        assert_eq!((host.capacity_out, host.capacity_in), (None, Some(2)));
        assert_eq!((host.used_out, host.used_in, host.processes), (7, 4, 2));
        assert!(together(std::iter::empty()).is_none());
    }

    #[test]
    fn a_place_that_is_shut_is_passed_by_and_told_only_if_there_is_no_other() {
        let places = ["/shut", "/none", "/open"].map(PathBuf::from);
        let ask = |path: &std::path::Path| match path.to_str() {
            Some("/shut") => Err(io::ErrorKind::PermissionDenied.into()),
            Some("/open") => Ok(7),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        assert_eq!(first_of(&places, ask).unwrap(), 7);
        assert!(first_of(&places[..2], ask).unwrap_err().text.starts_with("/shut: "));
        let refuses = |_: &std::path::Path| -> io::Result<u32> { Err(io::Error::other("no")) };
        assert_eq!(first_of(&places, refuses).unwrap_err().text, "no");
    }

    #[test]
    fn a_process_with_a_capacity_of_its_own_takes_part_only_if_told() {
        let alone = HostArgs {
            capacity_in: Some(Rate::from_mbps(1)),
            capacity_out: None,
            interval: None,
            daemon: None,
            router: Vec::new(),
        };
        assert!(sharing(&alone).is_none());
        assert!(sharing(&HostArgs { daemon: Some(Which::Auto), ..alone.clone() }).is_some());
        assert!(sharing(&HostArgs { capacity_in: None, ..alone.clone() }).is_some());
        assert!(sharing(&HostArgs { daemon: Some(Which::Off), ..alone }).is_none());
    }
}
