//! The options of `gtpd`, each with its environment variable, and what may not be said together.
//!
//! A settings file has the same names, and its values are judged by these very options. Where the
//! file is read, and what of it counts while the daemon runs, is unknown here.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Parser, ValueEnum};
use gtp::{Rate, Span};
use gtp_emu::units_text;
use gtpd::EndNodeSessions;

use crate::log::{self, LogFormat};
use crate::loopback;
use crate::origins::Origins;

/// Share this machine's capacity fairly among all its GTP processes.
#[derive(Clone, Debug, Parser)]
#[command(name = "gtpd", version, max_term_width = 100)]
pub struct Options {
    /// Take settings from this file, read again on a hangup: long options in TOML, such as
    /// capacity-in = "9Gbit"; options and the environment come before it
    #[arg(long, value_name = "FILE", env = "GTPD_CONFIG", value_parser = file())]
    pub config: Option<PathBuf>,
    /// Where processes find it; for root /run/gtp/gtpd.sock, else gtp/gtpd.sock in
    /// XDG_RUNTIME_DIR, /run/user/UID or /tmp/gtp-UID
    #[arg(long, value_name = "PATH", env = "GTPD_SOCKET", conflicts_with = "socket_on_stdin")]
    pub socket: Option<PathBuf>,
    /// Standard input is the listening socket (systemd's StandardInput=socket)
    #[arg(long, env = "GTPD_SOCKET_ON_STDIN")]
    pub socket_on_stdin: bool,
    /// Capacity for what this machine receives; 90 % of the network card's if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_IN", value_parser = rate)]
    pub capacity_in: Option<Rate>,
    /// Capacity for what this machine sends; 90 % of the network card's if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_OUT", value_parser = rate)]
    pub capacity_out: Option<Rate>,
    /// Fixed control interval, such as 20ms; follows the round-trip times if not said
    #[arg(long, value_name = "TIME", env = "GTPD_INTERVAL", value_parser = interval)]
    pub interval: Option<Span>,
    /// Weight of a user's sessions together, against other users'; may be repeated
    #[arg(long, value_name = "UID=W", env = "GTPD_USER_WEIGHT", value_delimiter = ',',
        value_parser = user)]
    pub user_weight: Vec<(u32, f64)>,
    /// The most that a user's sessions together may have in each direction; may be repeated
    #[arg(long, value_name = "UID=RATE", env = "GTPD_USER_MAX", value_delimiter = ',',
        value_parser = user_rate)]
    pub user_max: Vec<(u32, Rate)>,
    /// What a user's sessions together are served first in each direction, as far as they want it;
    /// may be repeated
    #[arg(long, value_name = "UID=RATE", env = "GTPD_USER_GUARANTEE", value_delimiter = ',',
        value_parser = user_rate)]
    pub user_guarantee: Vec<(u32, Rate)>,
    /// How sessions under the end-node law (--control endnode) are shared out
    #[arg(long, value_name = "LAW", value_enum, default_value = "grant", env = "GTPD_LAW")]
    pub law: EndNodeLaw,
    /// End when no process has been there for this long
    #[arg(long, value_name = "TIME", env = "GTPD_EXIT_WHEN_IDLE", value_parser = span)]
    pub exit_when_idle: Option<Span>,
    /// Serve numbers for Prometheus at /metrics on this loopback address; off if not said
    #[arg(long, value_name = "ADDR:PORT", env = "GTPD_METRICS", value_parser = loopback::address)]
    pub metrics: Option<SocketAddr>,
    /// Show the live rates to a browser at this loopback address; off if not said
    #[arg(long, value_name = "ADDR:PORT", env = "GTPD_WEB", value_parser = loopback::address)]
    pub web: Option<SocketAddr>,
    /// Leave traffic on this network interface that is not GTP's its place
    #[arg(long, value_name = "NAME", env = "GTPD_INTERFACE")]
    pub interface: Option<String>,
    /// How each line on standard error is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", env = "GTP_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What is written beside the daemon's own lines: error, warn, info, debug or trace, also by
    /// source; warnings if not said
    #[arg(long, value_name = "FILTER", env = "GTP_LOG", value_parser = log::kept_filter)]
    pub log: Option<String>,
    /// Always leave this much to other traffic, in each direction
    #[arg(long, value_name = "RATE", env = "GTPD_RESERVE", value_parser = rate)]
    pub reserve: Option<Rate>,
    /// Look whether these settings can be used, say what would be shared, and end
    #[arg(long)]
    pub check: bool,
    /// Print the manual page
    #[arg(long, hide = true)]
    pub man_page: bool,
}

/// The law by which sessions under the end-node law are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EndNodeLaw {
    /// As all others: each counts as one that wants a tenth more than it moves
    Grant,
    /// Their own (Algorithms 2 and 3). They have no weights, and may overload this machine while
    /// their rates settle
    Endnode,
}

impl EndNodeLaw {
    /// The same as the daemon is told it.
    pub fn end_node(self) -> EndNodeSessions {
        match self {
            EndNodeLaw::Grant => EndNodeSessions::ByGrants,
            EndNodeLaw::Endnode => EndNodeSessions::ByTheirLaw,
        }
    }
}

impl Options {
    /// The file of settings, if one is named.
    pub fn file(&self) -> Option<&Path> {
        self.config.as_deref().filter(|path| !path.as_os_str().is_empty())
    }
}

/// Refuses options that contradict each other, or name what is not there.
///
/// # Errors
/// Which, in words, with the place of each in the file.
pub fn check(options: &Options, origins: &Origins) -> Result<(), String> {
    if let Some(name) = &options.interface
        && !gtp_sys::nic::is_there(name)
    {
        let name = gtp_text::of_message(name);
        let why = format!("this machine has no network interface `{name}`");
        return Err(origins.blame("interface", why));
    }
    for (name, capacity) in
        [("capacity-in", options.capacity_in), ("capacity-out", options.capacity_out)]
    {
        if let (Some(reserve), Some(capacity)) = (options.reserve, capacity)
            && reserve >= capacity
        {
            let capacity = origins.name_and_line(name);
            return Err(origins.sentence("reserve", format!(" leaves nothing of {capacity}")));
        }
    }
    if options.metrics.is_some_and(|at| at.port() > 0 && options.web == Some(at)) {
        let metrics = origins.name_and_line("metrics");
        return Err(origins.sentence("web", format!(" is the address of {metrics}")));
    }
    check_users(options, origins)
}

/// The same of what is said of users.
fn check_users(options: &Options, origins: &Origins) -> Result<(), String> {
    let Options { user_weight, user_max, user_guarantee, .. } = options;
    let once = |name, mut users: Box<dyn Iterator<Item = u32> + '_>| {
        let mut seen = HashSet::new();
        match users.find(|user| !seen.insert(*user)) {
            Some(user) => Err(origins.sentence(name, format!(" names user {user} twice"))),
            None => Ok(()),
        }
    };
    once("user-weight", Box::new(user_weight.iter().map(|(user, _)| *user)))?;
    once("user-max", Box::new(user_max.iter().map(|(user, _)| *user)))?;
    once("user-guarantee", Box::new(user_guarantee.iter().map(|(user, _)| *user)))?;
    for (user, least) in user_guarantee {
        if user_max.iter().any(|(other, most)| other == user && most < least) {
            let most = origins.name_and_line("user-max");
            let rest = format!(" of user {user} is more than {most}");
            return Err(origins.sentence("user-guarantee", rest));
        }
    }
    Ok(())
}

/// Any path; an empty one, as a unit's drop-in may give it, names none.
fn file() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_has_an_environment_variable_of_its_own() {
        let command = Options::command();
        let is_setting = |arg: &&clap::Arg| !["man_page", "check"].contains(&arg.get_id().as_str());
        let options = command.get_arguments().filter(is_setting);
        let mut seen = HashSet::new();
        for option in options {
            let variable = option.get_env().unwrap_or_else(|| panic!("{}", option.get_id()));
            assert!(seen.insert(variable.to_owned()), "{variable:?}");
        }
        assert!(seen.len() > 12, "{seen:?}");
    }

    #[test]
    fn several_users_stand_in_one_text_with_commas() {
        let words = ["gtpd", "--user-weight", "7=2,8=0.5", "--user-weight", "9=3"];
        let options = Options::try_parse_from(words).unwrap();
        assert_eq!(options.user_weight, [(7, 2.0), (8, 0.5), (9, 3.0)]);
    }
}
