//! This very program, to be put at a far end that has none.
//!
//! It is read as a whole before ssh is started, so that its length and its hash can stand in the
//! script that takes it at the far end.

use gtp::Failure;
use ring::digest::{SHA256, digest};

use super::script;
use crate::verbs::other;

/// The program's file.
pub struct Program {
    bytes: Vec<u8>,
}

impl Program {
    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read any more.
    pub fn read() -> Result<Program, Failure> {
        let read = std::fs::read("/proc/self/exe");
        let bytes = read.map_err(|error| other(format!("cannot read this program: {error}")))?;
        Ok(Program { bytes })
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The script that installs it.
    pub fn script(&self) -> String {
        let system = rustix::system::uname();
        let name = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let system = format!("{} {}", name(system.sysname()), name(system.machine()));
        let hash = digest(&SHA256, &self.bytes);
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        script::install(&system, self.length(), &hash)
    }
}
