//! Why a verb could not do its work, in the words and by the exit codes that scripts rely on.
//!
//! It decides nothing: a verb says what is wrong, this file knows which code that is. The codes are
//! those of the `gtp` command.

use std::fmt;
use std::process::ExitCode;

/// The reason, with what to do about it where the caller can do something.
#[derive(Debug)]
pub enum Refusal {
    /// The input makes no sense: exit code 2, like bad usage.
    Input(String),
    /// The input file is not there: exit code 3.
    Missing(String),
    /// Anything else: exit code 1.
    Other(String),
}

impl Refusal {
    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Refusal::Input(_) => ExitCode::from(2),
            Refusal::Missing(_) => ExitCode::from(3),
            Refusal::Other(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Input(why) | Refusal::Missing(why) | Refusal::Other(why) => f.write_str(why),
        }
    }
}
