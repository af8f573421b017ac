//! A finding is a row with a verdict, what was found, and the line that mends it.
//!
//! This file only puts rows into words, for people or as JSON. Each check decides by itself whether
//! something is wrong.

use gtp::Failure;
use serde_json::json;

use crate::output;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Everything is as it should be.
    Ok,
    /// It could not be found out.
    Unknown,
    /// Transfers work, and may be slower than need be, or lack something.
    Warning,
    /// Transfers fail.
    Fault,
}

/// One row of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the check.
    pub check: &'static str,
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to type, or to do, to mend it.
    pub mend: Option<String>,
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Warning => "warning",
            Verdict::Fault => "fault",
        }
    }
}

impl Finding {
    /// A finding that all is well.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Ok, found: found.into(), mend: None }
    }

    /// Nothing was found, for this reason.
    pub fn unknown(check: &'static str, why: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Unknown, ..Finding::ok(check, why) }
    }

    /// A finding that something works, but not as well as it could.
    pub fn warning(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        let mend = Some(mend.into());
        Finding { check, verdict: Verdict::Warning, found: found.into(), mend }
    }

    /// A finding that something does not work.
    pub fn fault(
        check: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Finding {
        Finding { verdict: Verdict::Fault, ..Finding::warning(check, found, mend) }
    }

    /// Prints the row, as one JSON object or for people.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn say(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return output::json(json!({
                "event": "finding",
                "check": self.check,
                "verdict": self.verdict.as_str(),
                "found": self.found,
                "mend": self.mend,
            }));
        }
        output::line(format_args!("{:8} {:11} {}", self.verdict.as_str(), self.check, self.found))?;
        match &self.mend {
            Some(mend) => output::line(format_args!("{:20} mend: {mend}", "")),
            None => Ok(()),
        }
    }
}
