//! Whether the daemon that shares this machine's capacity is there, answers, and has this program's
//! version.
//!
//! It is joined for a moment, as a process that moves nothing. Without a daemon all is well, unless
//! processes are told to use it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gtp_share::client::{Missed, Past, attach};
use gtp_share::places;

use super::finding::Finding;
use crate::daemon::Which;
use crate::shell;

const CHECK: &str = "daemon";

/// Joins the daemon for a moment, as a process that moves nothing.
pub fn check(which: Option<&Which>) -> Finding {
    let (named, places) = match which {
        Some(Which::Off) => return Finding::ok(CHECK, "not used: each process shares for itself"),
        Some(Which::At(path)) => (Named::Yes, vec![path.clone()]),
        Some(Which::Auto | Which::Start) | None => (Named::No, places()),
    };
    let asked = places.into_iter().map(|place| {
        let missed = attach(&place, 1, "gtp doctor", Past::None).err();
        (place, missed)
    });
    judge(named, &asked.collect::<Vec<_>>())
}

/// Whether the user has said which daemon is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Yes,
    No,
}

/// Judges what came of each place, the first one first; the first daemon that is there counts.
fn judge(named: Named, asked: &[(PathBuf, Option<Missed>)]) -> Finding {
    let is_there =
        |(_, missed): &&(PathBuf, Option<Missed>)| !matches!(missed, Some(Missed::Absent(_)));
    match asked.iter().find(is_there) {
        Some((place, None)) => Finding::ok(CHECK, format!("it runs at {}", place.display())),
        Some((place, Some(missed))) => judge_missed(place, missed),
        None => judge_absent(named, asked),
    }
}

fn judge_missed(place: &Path, missed: &Missed) -> Finding {
    let at = place.display();
    match missed {
        Missed::Full(why) => {
            Finding::warning(CHECK, format!("the one at {at} has no room: {why}"), "gtp sessions")
        }
        Missed::Silent(why) => {
            let found = format!("the one at {at} does not answer: {why}");
            Finding::fault(CHECK, found, "systemctl restart gtpd    # or end it, and start gtpd")
        }
        Missed::OtherVersion(why) => {
            let mend = "systemctl restart gtpd    # after both programs are of one release";
            Finding::fault(CHECK, format!("the one at {at} has another version: {why}"), mend)
        }
        Missed::Barred(why) => {
            let found = format!("the one at {at} is not to be used by this user: {why}");
            Finding::warning(
                CHECK,
                found,
                format!("ls -l {}    # or: --daemon off", shell::path(place)),
            )
        }
        Missed::Absent(why) => Finding::ok(CHECK, format!("none at {at}: {why}")),
    }
}

fn judge_absent(named: Named, asked: &[(PathBuf, Option<Missed>)]) -> Finding {
    let gone = asked.iter().find(|(_, missed)| {
        matches!(missed, Some(Missed::Absent(error)) if error.kind() != ErrorKind::NotFound)
    });
    match (named, gone.or(asked.first())) {
        (Named::Yes, Some((place, _))) => {
            let at = place.display();
            let found = format!("none runs at {at}, which processes here are told to use");
            Finding::fault(CHECK, found, format!("gtpd --socket {}", shell::path(place)))
        }
        (Named::No, Some((place, _))) if gone.is_some() => {
            let found = format!("one was at {} and has gone", place.display());
            Finding::warning(CHECK, found, "systemctl restart gtpd    # or: gtpd")
        }
        _ => Finding::ok(CHECK, "none runs: each process allocates for itself"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn each_state_of_a_daemon_has_its_row() {
        let absent = || Missed::Absent(io::ErrorKind::NotFound.into());
        let gone = || Missed::Absent(io::ErrorKind::ConnectionRefused.into());
        let silent = || Missed::Silent(io::ErrorKind::TimedOut.into());
        let other = || Missed::OtherVersion("it has version 3".into());
        let cases: [(Named, Vec<Option<Missed>>, Verdict, &str); 8] = [
            (Named::No, vec![Some(absent()), Some(absent())], Verdict::Ok, "none runs"),
            (Named::No, vec![Some(absent()), None], Verdict::Ok, "it runs at /1"),
            (Named::No, vec![Some(absent()), Some(gone())], Verdict::Warning, "has gone"),
            (Named::Yes, vec![Some(absent())], Verdict::Fault, "are told to use"),
            (Named::Yes, vec![Some(gone())], Verdict::Fault, "are told to use"),
            (Named::No, vec![Some(silent()), None], Verdict::Fault, "does not answer"),
            (Named::No, vec![Some(other())], Verdict::Fault, "another version"),
            (Named::No, vec![Some(Missed::Full("no".into()))], Verdict::Warning, "no room"),
        ];
        for (named, missed, verdict, says) in cases {
            let places = missed.into_iter().enumerate();
            let asked: Vec<_> =
                places.map(|(n, missed)| (PathBuf::from(format!("/{n}")), missed)).collect();
            let found = judge(named, &asked);
            assert_eq!(found.verdict, verdict, "{asked:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
    }

    #[test]
    fn the_line_that_starts_a_daemon_takes_a_path_with_a_blank_as_one_word() {
        let asked = [("/run/a b".into(), Some(Missed::Absent(io::ErrorKind::NotFound.into())))];
        assert_eq!(judge(Named::Yes, &asked).mend.unwrap(), "gtpd --socket '/run/a b'");
    }
}
