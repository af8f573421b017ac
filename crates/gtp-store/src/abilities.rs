//! What a file system can do beside holding data.
//!
//! Some file systems and sandboxes refuse locks, modes, times or syncing, each with an error of its
//! own. Data arrive without them, so a refusal is noted, reported once for the whole destination,
//! and not fatal. An error that may mean lost data is never excused.
//!
//! This is a record and a table: it makes no call and knows no path.

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;

/// Something that a destination may be unable to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ability {
    /// To keep another transfer away from a file.
    Locks,
    /// To give a file or directory its permissions.
    Modes,
    /// To give a file or directory its time of modification.
    Times,
    /// To give it any time: some know no years beyond 2038, or none before 1980.
    AllTimes,
    /// To wait until data survive a loss of power.
    Syncing,
}

impl Ability {
    /// What its lack means for the user.
    fn words(self) -> &'static str {
        match self {
            Ability::Locks => "takes no locks (do not run two transfers into it at once)",
            Ability::Modes => "keeps no permissions",
            Ability::Times => "keeps no times (a second run fetches every file again)",
            Ability::AllTimes => {
                "keeps times of some years only (a second run fetches the other files again)"
            }
            Ability::Syncing => "cannot be told to write to the disk at once",
        }
    }
}

/// What a destination was found to be unable to do.
#[derive(Debug, Default)]
pub(crate) struct Lacks {
    found: BTreeSet<Ability>,
    told: bool,
}

impl Lacks {
    /// Excuses an error of a call that data do not need.
    ///
    /// # Errors
    /// The same error if it does not mean that the call is refused as such.
    pub(crate) fn excuse(&mut self, ability: Ability, error: Errno) -> Result<(), Errno> {
        let excused = match ability {
            Ability::Locks => is_refusal(error) || error == Errno::NOLCK || error == Errno::IO,
            Ability::Modes | Ability::Times | Ability::AllTimes => {
                is_refusal(error) || error == Errno::IO
            }
            // Here an error of input and output means that what was written is lost.
            Ability::Syncing => is_refusal(error),
        };
        if !excused {
            return Err(error);
        }
        tracing::debug!(?ability, %error, "the destination refuses a call");
        self.note(ability);
        Ok(())
    }

    /// Notes that the destination lacks something, although it refused nothing.
    pub(crate) fn note(&mut self, ability: Ability) {
        self.found.insert(ability);
    }

    /// One sentence about everything that is missing; `None` after the first time.
    pub(crate) fn warning(&mut self) -> Option<String> {
        if self.found.is_empty() || std::mem::replace(&mut self.told, true) {
            return None;
        }
        let words: Vec<&str> = self.found.iter().map(|ability| ability.words()).collect();
        Some(format!("the destination {}", words.join(", ")))
    }
}

/// Whether an error means that a file system or a sandbox does not do this at all.
pub(crate) fn is_refusal(error: Errno) -> bool {
    let refusals = [
        Errno::NOSYS,
        Errno::PERM,
        Errno::ACCESS,
        Errno::INVAL,
        Errno::OPNOTSUPP,
        Errno::NOTTY,
        Errno::ROFS,
        Errno::XDEV,
        Errno::BADF,
    ];
    refusals.contains(&error)
}

/// As [`is_refusal`], of an error that the standard library has wrapped: whether a call that
/// data do not need may be skipped.
pub fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| is_refusal(Errno::from_raw_os_error(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_excused_and_told_once_and_errors_that_lose_data_are_not() {
        let mut lacks = Lacks::default();
        assert_eq!(lacks.warning(), None);
        for ability in [Ability::Locks, Ability::Modes, Ability::Times, Ability::Syncing] {
            for error in [Errno::NOSYS, Errno::PERM, Errno::INVAL, Errno::OPNOTSUPP] {
                assert_eq!(lacks.excuse(ability, error), Ok(()));
            }
            for error in [Errno::NOSPC, Errno::DQUOT, Errno::NOENT] {
                assert_eq!(lacks.excuse(ability, error), Err(error));
            }
        }
        assert_eq!(lacks.excuse(Ability::Syncing, Errno::IO), Err(Errno::IO));
        let warning = lacks.warning().unwrap();
        assert!(warning.contains("locks") && warning.contains("times"), "{warning}");
        assert_eq!(lacks.warning(), None);
    }
}
