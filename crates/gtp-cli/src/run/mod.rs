//! `gtp run` and `gtp pump`: unmodified programs that speak GTP to each other.
//!
//! `gtp run` puts a small library before the program's C library and becomes the program. What
//! that library needs, a **pump** does, one per user: it holds keys and sessions, connects, is
//! called, and carries bytes between the kernel's sockets, which programs hold, and GTP. So a
//! program may fork, exec and end as it likes, and what it wrote is delivered all the same. A pump
//! in the background has a **keeper**, which starts it again where it is killed.

mod carry;
mod detach;
mod elf;
mod endpoint;
mod fallbacks;
mod hook;
mod keeper;
mod listeners;
mod place;
mod program;
mod pump;
mod remains;
mod sockets;
mod talk;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use gtp::Rate;

use crate::args::{HostArgs, TrustArgs};
use crate::words;

pub use fallbacks::{ask as fallbacks, table};
pub use program::run;
pub use pump::run as pump;

/// The port, TCP and UDP, on which pumps are called.
pub const PORT: u16 = 4811;

/// Options of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Refuse connections to hosts that have no GTP, in place of TCP
    #[arg(long, env = "GTP_REQUIRE", value_parser = BoolishValueParser::new())]
    pub require: bool,
    /// Weight against other sessions at both hosts
    #[arg(
        long, value_name = "W", default_value = "1", env = "GTP_WEIGHT",
        value_parser = words::weight, allow_hyphen_values = true
    )]
    pub weight: f64,
    /// Limit of each connection's rate, in each direction
    #[arg(long, value_name = "RATE", env = "GTP_MAX_RATE", value_parser = words::rate,
        allow_hyphen_values = true)]
    pub max_rate: Option<Rate>,
    #[command(flatten)]
    pub trust: TrustArgs,
    /// The library that is put before the program's C library, if it is not where it was installed
    #[arg(long, value_name = "FILE", env = "GTP_PRELOAD")]
    pub preload: Option<PathBuf>,
    #[command(flatten)]
    pub pump: PumpArgs,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true,
        value_names = ["PROGRAM", "ARGUMENT"])]
    pub program: Vec<OsString>,
}

/// Options of `pump`.
#[derive(Debug, Clone, Args)]
pub struct PumpCommand {
    #[command(flatten)]
    pub pump: PumpArgs,
    /// Go on in the background, and return once a pump is there
    #[arg(long)]
    pub detach: bool,
    /// What the keeper of a pump in the background is told
    #[arg(long, hide = true)]
    pub detached: bool,
    /// What a pump is told that has a keeper: what remains of the one before it
    #[arg(long, hide = true, value_name = "DESCRIPTORS")]
    pub kept: Option<String>,
}

/// Options of the pump; `run` passes them on to one that it starts.
#[derive(Debug, Clone, Args)]
pub struct PumpArgs {
    /// Where programs find the pump of this user
    #[arg(long = "pump", value_name = "PATH", env = "GTP_PUMP")]
    pub socket: Option<PathBuf>,
    /// Where the pump is called, TCP and UDP, and the port at which others' pumps are
    #[arg(
        long = "pump-listen",
        value_name = "ADDR:PORT",
        default_value = "[::]:4811",
        env = "GTP_PUMP_LISTEN",
        value_parser = crate::words::listen
    )]
    pub listen: String,
    /// Let anyone call programs that listen; otherwise only keys in `authorized_keys`
    #[arg(long, env = "GTP_PUBLIC", value_parser = BoolishValueParser::new())]
    pub public: bool,
    /// The list of keys, in place of the one in the configuration directory
    #[arg(long, value_name = "FILE", env = "GTP_AUTHORIZED_KEYS")]
    pub authorized_keys: Option<PathBuf>,
    /// A pump ends when it has had nothing to do for so long
    #[arg(long = "pump-idle", value_name = "TIME", default_value = "60s", env = "GTP_PUMP_IDLE",
        value_parser = words::span, allow_hyphen_values = true)]
    pub exit_when_idle: Duration,
    #[command(flatten)]
    pub host: HostArgs,
}
