//! The words of the command line.
//!
//! Most options can also come from the environment (`GTP_` and their name in capitals, as `env`
//! says) or, but for those that `config` keeps out of it, from the user's configuration file, whose
//! values stand in for the built-in defaults here, so that the one parser decides: flag, then
//! environment, then file, then default.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use gtp::in_step::After;
use gtp::{Exports, Fingerprint, Law, PathUse, Rate, Reach, RouterSpec, Url, Value};

use crate::bench::BenchArgs;
use crate::candidates::CandidatesArgs;
use crate::cp::{CpArgs, FarEndArgs};
use crate::daemon::{self, SessionsArgs, SetArgs, Which};
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::hosts::Mirrors;
use crate::keys::{Groups, KeysArgs};
use crate::log::LogFormat;
use crate::origins::Origins;
use crate::plan::PlanArgs;
use crate::probe::ProbeArgs;
use crate::run::{PumpCommand, RunArgs};
use crate::ssh::SshArgs;
use crate::sync::SyncArgs;
use crate::top::TopArgs;
use crate::{config, loopback, output, words};

/// Move bulk data over UDP at explicit, max-min fair rates.
#[derive(Debug, Parser)]
#[command(
    name = "gtp",
    version,
    max_term_width = 100,
    after_help = "Rates carry a unit: 700Mbit, 1.5Gbit, 80MB, 80MiB (per second).\n\
                  Addresses are gtp://host[:port]/path; the port is 4810 unless named.\n\
                  Exit codes: 0 done, 1 other, 2 usage, 3 source missing, 4 destination or \
                  permission, 5 temporary, 6 integrity, 7 authentication or version, 10 time \
                  limit, 11 no UDP path, 12 partly done, 13 doctor found something, 130 \
                  interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Let others fetch from a directory, and perhaps write to it
    #[command(after_help = crate::keys::LINES)]
    Serve(ServeArgs),
    /// Fetch files or directories, each from one or several servers
    #[command(override_usage = "gtp get [OPTIONS] <URL>... <DEST>")]
    Get(GetArgs),
    /// Send files or directories to servers that run `serve --writable`
    #[command(override_usage = "gtp put [OPTIONS] <PATH>... <URL>...")]
    Put(PutArgs),
    /// Copy to or from where ssh logs in, or between two such hosts, with nothing set up there
    #[command(override_usage = "gtp cp [OPTIONS] <SRC>... <DST>")]
    Cp(CpArgs),
    /// Move files and directories between servers as a plan says: many to many, and nothing through
    /// this host
    #[command(after_help = "A plan that has a fault is refused whole, with exit code 2 and every \
                            fault. docs/PLAN.md describes the file.")]
    Plan(PlanArgs),
    /// Make a directory like another one, here or there: only what differs travels
    #[command(override_usage = "gtp sync [OPTIONS] <SRC> <DST>")]
    Sync(Box<SyncArgs>),
    /// Run a command where ssh logs in, with its input and output over GTP: an `ssh` for programs
    /// that move data
    #[command(override_usage = "gtp ssh [OPTIONS] [SSH OPTIONS] HOST COMMAND...")]
    Ssh(Box<SshArgs>),
    /// What `cp` starts at the far end
    #[command(hide = true)]
    FarEnd(FarEndArgs),
    /// List what a server has at an address
    Ls(LsArgs),
    /// Print this host's identity, made at first use
    Id(IdArgs),
    /// Show and change the list of keys that a server on this machine lets in
    Keys(KeysArgs),
    /// Run a program whose connections use GTP where the other host has it too
    Run(RunArgs),
    /// The process that speaks GTP for programs under `run`, which start it
    Pump(PumpCommand),
    /// Send standard input as a stream, or receive one to standard output
    Stream(StreamArgs),
    /// Send datagrams at a constant rate to a server, back, or both: loss, delay, reordering
    Probe(ProbeArgs),
    /// Put an emulated network between processes on this machine
    Emulate(EmulateArgs),
    /// Share out a link on the way among the sessions of all hosts that ask
    Router(RouterArgs),
    /// Five senders to one receiver on this machine: a table, and a page with the rates over time
    Demo(DemoArgs),
    /// Measure a path from memory to memory, or a disk
    Bench(BenchArgs),
    /// List the sessions of all processes that share this machine's capacity
    Sessions(SessionsArgs),
    /// The same, live on a terminal
    Top(TopArgs),
    /// Change a session of a running process
    Set(SetArgs),
    /// Find what makes transfers slow or fail here and on the way to a server, and what mends it
    #[command(after_help = "Exit code 13 if there is a warning or a fault, 0 if there is none.")]
    Doctor(DoctorArgs),
    /// Print every setting with its value and where that came from
    Config(ConfigArgs),
    /// What the completion scripts ask
    #[command(hide = true)]
    Candidates(CandidatesArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write manual pages into a directory
    Man {
        /// The directory; made if it is not there.
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// Capacities of this host.
#[derive(Debug, Clone, Args)]
pub struct HostArgs {
    /// Capacity for what this host receives; found by measuring if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_IN", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub capacity_in: Option<Rate>,
    /// Capacity for what this host sends; found by measuring if not said
    #[arg(long, value_name = "RATE", env = "GTP_CAPACITY_OUT", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub capacity_out: Option<Rate>,
    /// Fixed control interval, such as 20ms; follows the round-trip time if not said
    #[arg(long, value_name = "TIME", env = "GTP_INTERVAL", value_parser = words::interval,
        allow_hyphen_values = true)]
    pub interval: Option<Duration>,
    /// The daemon that shares this machine's capacity among processes: auto (if one runs), start
    /// (start one of this user's if none runs), off, or the path of its socket. With a daemon its
    /// capacity counts; if not said, a process that is given capacities keeps to them alone
    #[arg(long, value_name = "WHICH", env = "GTP_DAEMON", value_parser = daemon::which)]
    pub daemon: Option<Which>,
    /// A router on the way that shares out a link (gtp router): its address, and what differs from
    /// the usual: link=N (its first), far (this host is on the other side of the link), key=FILE
    /// (router-key in the configuration directory), peers=RANGE (all). Ranges are joined by +. May
    /// be repeated
    #[arg(long, value_name = "ADDR[,WORD...]", env = "GTP_ROUTER", value_delimiter = ';',
        value_parser = crate::routers::router)]
    pub router: Vec<RouterSpec>,
}

/// Which servers are believed.
#[derive(Debug, Clone, Args)]
pub struct TrustArgs {
    /// Believe only servers with this key (SHA256:…); may be repeated
    #[arg(long, value_name = "FP", env = "GTP_FINGERPRINT", value_delimiter = ',')]
    pub fingerprint: Vec<Fingerprint>,
    /// Trust servers that were never met, and remember their keys
    #[arg(long, env = "GTP_ACCEPT_NEW", value_parser = BoolishValueParser::new())]
    pub accept_new: bool,
}

/// The control law of a transfer's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Control {
    /// Both hosts share out what they have and grant each session its part: the usual one
    Grant,
    /// The end-node law: each host shares out by what its sessions move, in steps (--alpha, --beta)
    Endnode,
    /// GTP 2004: the receiving host alone
    Gtp2004,
    /// RBUDP: the sending host, always at --rate
    Rbudp,
    /// SABUL: the sending host, from --rate on
    Sabul,
    /// Tsunami: the sending host, at most at --rate
    Tsunami,
}

/// The steps of the thesis's end-node law (its Algorithm 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub struct StepArgs {
    /// With --control endnode: the step towards the target rate in each control interval, as a
    /// part of the way there, 0.01 to 0.5 [default: 0.1]. The first session's steps hold for all of
    /// a host
    #[arg(long, value_name = "PART", value_parser = words::step, allow_hyphen_values = true)]
    pub alpha: Option<f64>,
    /// With --control endnode: the least step, as a part of the largest session's, 0.01 to 0.5
    /// [default: 0.2]
    #[arg(long, value_name = "PART", value_parser = words::step, allow_hyphen_values = true)]
    pub beta: Option<f64>,
}

impl StepArgs {
    /// Whether none is given.
    pub fn is_empty(self) -> bool {
        self == StepArgs::default()
    }

    /// The law with these steps, or with the thesis's where none is given.
    pub fn law(self) -> Law {
        let (alpha, beta) = (self.alpha.unwrap_or(ALPHA), self.beta.unwrap_or(BETA));
        Law::EndNode { alpha, beta }
    }
}

/// The thesis's parameters (its section IX.2).
const ALPHA: f64 = 0.1;
const BETA: f64 = 0.2;

/// A control law on which both ends agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Agreed {
    /// Both hosts share out what they have and grant each session its part: the usual one
    Grant,
    /// The end-node law: shares by what sessions move, in steps (alpha 0.1, beta 0.2)
    Endnode,
}

/// The control law of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StreamControl {
    /// Both hosts share out what they have and grant each session its part: the usual one
    Grant,
    /// The end-node law: shares by what sessions move, in steps (--alpha, --beta). The end that
    /// listens must say so too
    Endnode,
    /// LambdaStream: the receiving end alone. The end that listens must say so too
    Lambdastream,
}

/// A control law that a server takes part in only if told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Allowed {
    /// The end-node law: shares by what sessions move, in steps
    Endnode,
    /// GTP 2004
    Gtp2004,
    /// RBUDP
    Rbudp,
    /// SABUL
    Sabul,
    /// Tsunami
    Tsunami,
}

/// When progress is shown to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal
    Auto,
    /// On a terminal; else a line every five seconds
    Always,
    /// Never
    Never,
}

/// Whether data go by UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Udp {
    /// Where it gets through; else the control connection, which is TCP, carries them
    Auto,
    /// By UDP or not at all (exit code 11)
    Only,
    /// Over the control connection from the start, and by UDP once that is found to get through
    Off,
}

/// What `get` and `put` have in common.
#[derive(Debug, Clone, Args)]
pub struct TransferArgs {
    #[command(flatten)]
    pub host: HostArgs,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// Control law. All but grant are for comparison, and the server must allow them (serve
    /// --allow-control); all but grant and endnode leave the rate to one end, and are less kind to
    /// others
    #[arg(long, value_enum, default_value = "grant", env = "GTP_CONTROL")]
    pub control: Control,
    #[command(flatten)]
    pub steps: StepArgs,
    /// The rate that rbudp, sabul and tsunami need
    #[arg(long, value_name = "RATE", value_parser = words::rate, allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Limit of each session's rate
    #[arg(long, value_name = "RATE", env = "GTP_MAX_RATE", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    #[command(flatten)]
    pub path: PathArgs,
    /// Weight against other sessions at both hosts, 0.001 to 1000; `low`, the least, gives way to
    /// everybody else on the path as well
    #[arg(
        long, value_name = "W", default_value = "1", env = "GTP_WEIGHT",
        value_parser = words::weight, allow_hyphen_values = true
    )]
    pub weight: f64,
    /// Go on this long without progress. If the source is - (standard input), this holds only until
    /// the stream begins, because gtp cannot read it twice
    #[arg(
        long, value_name = "TIME", default_value = RETRY_FOR, env = "GTP_RETRY_FOR",
        value_parser = words::span, allow_hyphen_values = true
    )]
    pub retry_for: Duration,
    /// Whether data go by UDP
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", env = "GTP_UDP")]
    pub udp: Udp,
    /// Stop after this time, with exit code 10; what is complete is kept
    #[arg(long, value_name = "TIME", env = "GTP_TIME_LIMIT", value_parser = words::span,
        allow_hyphen_values = true)]
    pub time_limit: Option<Duration>,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// When to show progress
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", env = "GTP_PROGRESS")]
    pub progress: When,
    /// Write a sample of every session, ten a second, into this file as JSON lines
    #[arg(long, value_name = "FILE", env = "GTP_TRACE", value_hint = ValueHint::FilePath)]
    pub trace: Option<PathBuf>,
}

/// How sessions use the path between the hosts. What both ends allow holds.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PathArgs {
    /// Count as N TCP flows (1 to 8) when a session competes with other traffic; the other end's
    /// number is the limit
    #[arg(
        long, value_name = "N", env = "GTP_PATH_FLOWS",
        value_parser = clap::value_parser!(u8).range(1..=i64::from(PathUse::FLOWS_MAX))
    )]
    pub path_flows: Option<u8>,
    /// Send what both hosts allow, whatever the path loses. Both ends must be started with this.
    /// Only for paths that nobody else uses: others get nothing. --path-flows comes before it
    #[arg(long, env = "GTP_NO_PATH_BOUND", value_parser = BoolishValueParser::new())]
    pub no_path_bound: bool,
}

impl PathArgs {
    /// The same for the library.
    pub fn path_use(self) -> PathUse {
        let flows = self.path_flows.and_then(NonZeroU8::new);
        // One of them may come from the environment: the more cautious holds.
        match (flows, self.no_path_bound) {
            (Some(flows), _) => PathUse::Bounded(flows),
            (None, true) => PathUse::Unbounded,
            (None, false) => PathUse::ONE_FLOW,
        }
    }
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory, or the file, to export; without it, the exports that the configuration file
    /// names ([export.NAME]). Its groups ([group.NAME]) count for both
    #[arg(value_hint = ValueHint::AnyPath)]
    pub dir: Option<PathBuf>,
    /// What the configuration file names: exports and groups.
    #[arg(skip)]
    pub exports: Option<Exports>,
    /// Where the values come from.
    #[arg(skip)]
    pub origins: Origins,
    /// Where to listen, TCP and UDP; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:4810", env = "GTP_LISTEN",
        value_parser = words::listen)]
    pub listen: String,
    /// Let anyone read; otherwise only keys in `authorized_keys`
    #[arg(long, env = "GTP_PUBLIC", value_parser = BoolishValueParser::new())]
    pub public: bool,
    /// Let authorized keys write
    #[arg(long, env = "GTP_WRITABLE", value_parser = BoolishValueParser::new())]
    pub writable: bool,
    /// The list of keys, in place of the one in the configuration directory
    #[arg(
        long, value_name = "FILE", env = "GTP_AUTHORIZED_KEYS", value_hint = ValueHint::FilePath
    )]
    pub authorized_keys: Option<PathBuf>,
    /// Limit of each session's rate
    #[arg(long, value_name = "RATE", env = "GTP_MAX_RATE", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    #[command(flatten)]
    pub path: PathArgs,
    /// Control laws that clients may ask for beside grant. By endnode sessions share this host
    /// whosever they are, without weights and guarantees; by the others one end decides alone,
    /// which is less kind to others on the same path. May be repeated
    #[arg(long, value_name = "LAW", value_enum, env = "GTP_ALLOW_CONTROL", value_delimiter = ',')]
    pub allow_control: Vec<Allowed>,
    /// Threads that move data, over which clients are spread; half of the processors, 8 at most,
    /// if not said
    #[arg(long, value_name = "N", env = "GTP_ENGINES", value_parser = words::engines)]
    pub engines: Option<usize>,
    #[command(flatten)]
    pub host: HostArgs,
    /// Serve numbers for Prometheus at /metrics on this loopback address
    #[arg(long, value_name = "ADDR:PORT", env = "GTP_METRICS", value_parser = loopback::address)]
    pub metrics: Option<SocketAddr>,
    /// Let `gtp sessions` and `gtp top` of this user and of root see its sessions at this socket,
    /// without a daemon too (--daemon PATH)
    #[arg(long, value_name = "PATH", env = "GTP_STATUS", value_hint = ValueHint::FilePath)]
    pub status: Option<PathBuf>,
    /// At the first SIGTERM or SIGINT take no more clients, and let transfers go on for this long
    #[arg(long, value_name = "TIME", env = "GTP_DRAIN", value_parser = words::span,
        allow_hyphen_values = true)]
    pub drain: Option<Duration>,
    /// How each line on standard error is written
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", env = "GTP_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What the log says beside the server's own lines: error, warn, info, debug or trace, also by
    /// source (`warn,gtp_net=debug`); warnings if not said
    #[arg(long, value_name = "FILTER", env = "GTP_LOG", value_parser = crate::log::kept_filter)]
    pub log: Option<String>,
    /// Append a record of each session, change and refusal to this file, as JSON lines; it is
    /// opened again on a hangup
    #[arg(long, value_name = "FILE", env = "GTP_AUDIT", value_hint = ValueHint::FilePath)]
    pub audit: Option<PathBuf>,
    /// Fetch from other servers for clients that may write and ask for it (gtp plan), but only at
    /// these addresses: a range such as 10.1.0.0/16 or 192.0.2.7:4811, port 4810 if none is named.
    /// May be repeated
    #[arg(long, value_name = "RANGE", env = "GTP_THIRD_PARTY", value_delimiter = ',')]
    pub third_party: Vec<Reach>,
    /// One JSON object a line on standard output; the first says address and fingerprint
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Addresses, then the destination: a file, a directory, or - for standard output. A file
    /// goes into an existing directory under its own name; a directory's content goes into the
    /// destination (into DEST/NAME if that is written with a slash or a dot at its end)
    #[arg(required = true, value_name = "URL|DEST", value_hint = ValueHint::Hostname)]
    pub urls_and_dest: Vec<String>,
    /// A further server that has the same file or directory; may be repeated
    #[arg(long, value_name = "URL", env = "GTP_MIRROR", value_delimiter = ',')]
    pub mirror: Vec<Url>,
    /// The BLAKE3 hash that the file must have
    #[arg(long, value_name = "HASH", env = "GTP_BLAKE3", value_parser = words::hash)]
    pub blake3: Option<Value>,
    /// Fetch files that are there with the same size and time all the same
    #[arg(long, env = "GTP_REPLACE", value_parser = BoolishValueParser::new())]
    pub replace: bool,
    #[command(flatten)]
    pub transfer: TransferArgs,
    /// What the configuration file says of the addresses' hosts
    #[arg(skip)]
    pub mirrors_of: Mirrors,
}

/// Options of `put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Files and directories, then the address. Several need a directory there: end the address
    /// with a slash. - is standard input, and the address then names a file. With several addresses
    /// each server gets the same, at once, and the files are read once
    #[arg(required = true, value_name = "PATH|URL", value_hint = ValueHint::Hostname)]
    pub paths_and_url: Vec<PathBuf>,
    /// With several addresses: have their servers give what they get on to each other, so that each
    /// block is sent from here about once. They must run with --third-party
    #[arg(long, env = "GTP_RELAY", value_parser = BoolishValueParser::new())]
    pub relay: bool,
    #[command(flatten)]
    pub transfer: TransferArgs,
}

/// Options of `stream`.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// Which way
    #[arg(value_enum)]
    pub way: Way,
    /// The other end, if it listens; without it this end does. What is sent may go to several
    #[arg(value_name = "URL", value_hint = ValueHint::Hostname)]
    pub urls: Vec<Url>,
    /// Where to listen, TCP and UDP, for one caller, or for the sources of a group
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:4810", env = "GTP_LISTEN",
        value_parser = words::listen)]
    pub listen: String,
    /// Let anyone call; otherwise only keys in `authorized_keys`
    #[arg(long, env = "GTP_PUBLIC", value_parser = BoolishValueParser::new())]
    pub public: bool,
    /// The list of keys, in place of the one in the configuration directory
    #[arg(
        long, value_name = "FILE", env = "GTP_AUTHORIZED_KEYS", value_hint = ValueHint::FilePath
    )]
    pub authorized_keys: Option<PathBuf>,
    /// Control law
    #[arg(long, value_enum, default_value = "grant", env = "GTP_CONTROL")]
    pub control: StreamControl,
    #[command(flatten)]
    pub steps: StepArgs,
    /// The rate of the link on the way, which lambdastream needs at the end that calls
    #[arg(long, value_name = "RATE", env = "GTP_LINK", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub link: Option<Rate>,
    /// The rate that lambdastream begins at; the link's if not said
    #[arg(long, value_name = "RATE", env = "GTP_RATE", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub rate: Option<Rate>,
    /// Note when each frame of so many bytes can be read, and say at the end how evenly they came;
    /// when sending: say one frame each --frame-every
    #[arg(long, value_name = "SIZE", value_parser = words::frame)]
    pub frames: Option<u64>,
    /// Read one frame of standard input each such time; as fast as the stream takes them if not
    /// said. When receiving from several sources (--group): the time of all of them
    #[arg(long, value_name = "TIME", value_parser = words::span, requires = "frames",
        allow_hyphen_values = true)]
    pub frame_every: Option<Duration>,
    /// Write how evenly frames came, and when each did, into this file as JSON; in a group: which
    /// were released when, and what became of each source's parts, or of each listener
    #[arg(long, value_name = "FILE", requires = "frames", value_hint = ValueHint::FilePath)]
    pub frame_report: Option<PathBuf>,
    /// Send each frame whole or not at all: what is lost on the way stays lost, and the receiver
    /// tells which frames did not come. Both ends must say so
    #[arg(long, requires = "frames")]
    pub unreliable: bool,
    /// Of what is lost, send each packet again once
    #[arg(long, requires = "unreliable")]
    pub repair_once: bool,
    #[command(flatten)]
    pub group: GroupArgs,
    /// Limit of the stream's rate
    #[arg(long, value_name = "RATE", env = "GTP_MAX_RATE", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    /// Weight against other sessions at both hosts, 0.001 to 1000; `low`, the least, gives way to
    /// everybody else on the path as well
    #[arg(
        long, value_name = "W", default_value = "1", env = "GTP_WEIGHT",
        value_parser = words::weight, allow_hyphen_values = true
    )]
    pub weight: f64,
    /// Whether data go by UDP, at the end that calls
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto", env = "GTP_UDP")]
    pub udp: Udp,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    pub host: HostArgs,
}

/// Frames in step: parts of a frame from several sources, or frames at several sinks.
#[derive(Debug, Clone, Args)]
pub struct GroupArgs {
    /// Keep frames in step: each is made of so many parts, one from each source (1 to 64). Both
    /// ends must say so. Parts wait for each other at the receiver; with 1, the receivers of one
    /// sender can show its frames at the same time (--release-after)
    #[arg(long = "group", value_name = "N", requires = "unreliable",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub parts: Option<u16>,
    /// Which part this end sends, 1 to N
    #[arg(long, value_name = "K", requires = "parts",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub part: Option<u16>,
    /// Release a frame without what is missing so long after it was due [default: 500ms]; with one
    /// source: hold it so long at most after it came [default: 10s]
    #[arg(long, value_name = "TIME", requires = "parts", value_parser = words::span,
        allow_hyphen_values = true)]
    pub deadline: Option<Duration>,
    /// Write whole frames only; otherwise a part that is missing is written as zeros
    #[arg(long, requires = "parts")]
    pub whole: bool,
    /// When sending: all receivers release a frame so long after it was read; `auto`: what the
    /// farthest receiver needs. Each releases it as soon as it is whole if not said
    #[arg(long, value_name = "TIME", requires = "parts", value_parser = words::release_after,
        allow_hyphen_values = true)]
    pub release_after: Option<After>,
}

/// Which way a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// From standard input to the other end
    Send,
    /// From the other end to standard output
    Receive,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// The address
    #[arg(value_hint = ValueHint::Hostname)]
    pub url: Url,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `id`.
#[derive(Debug, Args)]
pub struct IdArgs {
    /// One JSON object on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `emulate`.
#[derive(Debug, Args)]
pub struct EmulateArgs {
    /// The network: links, and paths over them
    #[arg(value_hint = ValueHint::FilePath)]
    pub network: PathBuf,
    /// Route whole IP packets between namespaces (root) instead of relaying UDP and TCP
    #[arg(long, env = "GTP_TUN", value_parser = BoolishValueParser::new())]
    pub tun: bool,
    /// Print counters this often
    #[arg(long, value_name = "TIME", env = "GTP_STATS", value_parser = words::span,
        allow_hyphen_values = true)]
    pub stats: Option<Duration>,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Options of `router`.
#[derive(Debug, Args)]
pub struct RouterArgs {
    /// What a link carries that is to be shared out, out and in: 600Mbit, or 600Mbit/1Gbit. State
    /// less than the link's speed: requests, receipts and other traffic need some. May be repeated,
    /// or several are joined by ; up to 8 links, numbered from 1
    #[arg(long, value_name = "RATE[/RATE]", required = true, value_delimiter = ';',
        value_parser = crate::routers::link)]
    pub link: Vec<[Rate; 2]>,
    /// Where to listen, UDP; port 0 takes a free one. Answers leave from the address that was asked
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:4811",
        value_parser = words::listen_or_name)]
    pub listen: String,
    /// The file with the key that hosts share with it; made if it is not there; router-key in the
    /// configuration directory if not said
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// Show what is granted this often
    #[arg(long, value_name = "TIME", env = "GTP_STATS", value_parser = words::span,
        allow_hyphen_values = true)]
    pub stats: Option<Duration>,
    /// Serve numbers for Prometheus at /metrics on this loopback address
    #[arg(long, value_name = "ADDR:PORT", env = "GTP_METRICS", value_parser = loopback::address)]
    pub metrics: Option<SocketAddr>,
    /// One JSON object a line on standard output
    #[arg(long, env = "GTP_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Reads the command line; prints help and errors itself.
///
/// # Errors
/// The exit code to end with: 0 after help, 2 for a usage error.
pub fn parse() -> Result<Verb, ExitCode> {
    let file = config::File::load().map_err(|error| {
        output::aside(format_args!("gtp: {error}"));
        ExitCode::from(2)
    })?;
    let command = file.as_defaults(Cli::command());
    let matches = command.clone().try_get_matches_from(given()).map_err(refused)?;
    let mut verb = Cli::from_arg_matches(&matches).map_err(refused)?.verb;
    with_file(&mut verb, &file, (&command, &matches)).map_err(|why| {
        output::aside(format_args!("gtp: {why}"));
        ExitCode::from(2)
    })?;
    if let Some((name, given)) = matches.subcommand() {
        let passed_over = command.find_subcommand(name).map(|verb| file.passed_over(verb, given));
        for sentence in passed_over.into_iter().flatten() {
            output::aside(format_args!("{sentence}"));
        }
        file.hosts.resolve(&mut verb, given).map_err(|failure| {
            output::aside(format_args!("gtp: {failure}"));
            ExitCode::from(failure.exit_code())
        })?;
    }
    Ok(with_end_of_options(verb))
}

/// Tells a server of the exports that the file names and where its settings come from, and who
/// judges keys of their groups.
///
/// # Errors
/// The line of a value that a service cannot use.
fn with_file(
    verb: &mut Verb,
    file: &config::File,
    (command, matches): (&clap::Command, &clap::ArgMatches),
) -> Result<(), String> {
    let given = matches.subcommand();
    let known = given.and_then(|(name, given)| Some((command.find_subcommand(name)?, given)));
    if let Some((of_verb, given)) = known {
        file.taken(of_verb, given)?;
    }
    if let (Verb::Serve(args), Some((of_verb, given))) = (&mut *verb, known) {
        args.exports.clone_from(&file.exports);
        args.origins = file.origins(of_verb, given);
    }
    if let Verb::Keys(args) = verb {
        args.groups = Groups { path: file.path.clone(), rules: file.exports.clone() };
    }
    Ok(())
}

/// Shows what the parser says in place of a command; returns the exit code.
fn refused(error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return shown(&error);
    }
    let variable = config::blamed_variable(&error);
    crate::refused::print(error);
    if let Some(variable) = variable {
        output::aside(format_args!("The value comes from the environment: {variable}."));
    }
    ExitCode::from(2)
}

/// The words of the command line. A program that is called `gtp-ssh` is `gtp ssh`, for programs
/// that take the path of an ssh and no further word.
fn given() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let is_ssh = |word: &OsString| Path::new(word).file_name().is_some_and(|n| n == "gtp-ssh");
    if words.first().is_some_and(is_ssh) {
        words.insert(1, "ssh".into());
    }
    words
}

/// Gives ssh's words their leading `--` back, which the parser takes for its own. Without it a host
/// that begins with `-` would be an option to ssh.
fn with_end_of_options(mut verb: Verb) -> Verb {
    if let Verb::Ssh(args) = &mut verb {
        let given = given();
        let before = given.len().checked_sub(args.words.len() + 1);
        let end = before.and_then(|at| given.get(at)).filter(|word| *word == "--");
        args.words.splice(..0, end.cloned());
    }
    verb
}

/// Reads the command line and the configuration file again, for a server that runs.
///
/// # Errors
/// A sentence that says what cannot be read, with the line of the file.
pub fn parse_again() -> Result<(Verb, Vec<String>), String> {
    let file = config::File::load()?;
    let mut command = file.as_defaults(Cli::command());
    let words = std::env::args_os();
    let matches = command.try_get_matches_from_mut(words).map_err(|error| error.to_string())?;
    let overridden = matches.subcommand().and_then(|(name, given)| {
        let verb = command.find_subcommand(name)?;
        Some(file.overridden(verb, given))
    });
    let mut verb = Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?.verb;
    with_file(&mut verb, &file, (&command, &matches))?;
    Ok((verb, overridden.unwrap_or_default()))
}

/// Shows what was asked for: help, or the version.
fn shown(asked: &clap::Error) -> ExitCode {
    let text = asked.render();
    let text = match std::io::stdout().is_terminal() {
        true => text.ansi().to_string(),
        false => text.to_string(),
    };
    match output::text_as_it_is(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::aside(format_args!("gtp: {failure}"));
            ExitCode::from(failure.exit_code())
        }
    }
}

/// How long a transfer goes on without progress if nothing else is said.
pub const RETRY_FOR: &str = "60s";
