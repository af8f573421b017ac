//! In which steps the destination keeps times.
//!
//! Where it cuts them (FAT to two seconds, some ext2 to one), a file that was given its source's
//! time comes back with an earlier one, and would be moved again in each run. So a time there is
//! compared with what the destination makes of the source's. Only if a step that is known would
//! explain a difference, a directory is made there, given a time with many digits, and removed.

use std::collections::HashMap;

use gtp::replica::{Asked, Deed, Dress, Node, NodeKind, Seen};
use gtp::{Failure, Host, Mtime, RelPath, TimeStep};

use super::side::Side;

/// Returns whether times of these trees differ that would be the same if the destination cut them.
pub fn may_be_cut(source: &[Node], there: &[Node]) -> bool {
    doubtful(source, there).iter().any(|&pair| TimeStep::known().any(|step| explains(step, pair)))
}

/// Returns the finest step that explains these differences, and is one that all times there could
/// have been kept in; nothing is tried.
pub fn guessed(source: &[Node], there: &[Node]) -> TimeStep {
    let pairs = doubtful(source, there);
    let fits = |step: &TimeStep| {
        there.iter().all(|node| step.of(node.mtime) == node.mtime)
            && pairs.iter().any(|&pair| explains(*step, pair))
    };
    TimeStep::known().find(fits).unwrap_or(TimeStep::EXACT)
}

/// Finds the step out. `there` is what the destination holds. A destination at which that cannot be
/// done counts as exact. Directories that earlier runs made for this and were killed before they
/// could remove them are removed as well.
///
/// # Errors
/// A [`Failure`] if it is not known how far the steps went.
pub async fn probed(to: &Side, host: &Host, there: &[Node]) -> Result<TimeStep, Failure> {
    let name = format!("{PROBE}{:016x}", gtp_sys::entropy::u64());
    let (Some(set), Ok(name)) = (TimeStep::probe(), RelPath::new(&name)) else {
        return Ok(TimeStep::EXACT);
    };
    let path = Some(name.clone());
    let make = Deed::MakeDir { path: path.clone() };
    let faults = to.carry_out(host, vec![make, dated(path, Some(set))]).await?;
    let kept = match faults.is_empty() {
        true => to.survey(host, Asked::default(), Some(&name)).await.map(Some),
        false => Ok(None),
    };
    // The directory that held it is left as it was.
    let own = there.iter().find(|node| node.path.is_none()).map(|node| node.mtime);
    let left = there.iter().filter(|node| is_left(node)).filter_map(|node| node.path.clone());
    let remove = left.chain([name.clone()]).map(|path| Deed::Remove { path, seen: Seen::Dir });
    to.carry_out(host, remove.chain([dated(None, own)]).collect()).await?;
    let kept = kept?.and_then(|survey| {
        survey.nodes.iter().find(|node| node.path.as_ref() == Some(&name)).map(|node| node.mtime)
    });
    Ok(kept.map_or(TimeStep::EXACT, |kept| TimeStep::between(set, kept)))
}

/// How the name of a directory begins that is made to find the step out; random digits follow.
const PROBE: &str = ".gtp-times-";

/// Whether this is such a directory of an earlier run. One that holds something stays.
fn is_left(node: &Node) -> bool {
    let digits = node.name().strip_prefix(PROBE);
    node.is_dir()
        && digits.is_some_and(|digits| {
            digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
}

fn dated(path: Option<RelPath>, mtime: Option<Mtime>) -> Deed {
    Deed::Dress(Dress { path, mtime, ..Dress::default() })
}

/// Pairs of times, of the source's and of the destination's, that differ by little where nothing
/// else tells the two apart.
fn doubtful(source: &[Node], there: &[Node]) -> Vec<(Mtime, Mtime)> {
    let there: HashMap<&str, &Node> = there.iter().map(|node| (node.name(), node)).collect();
    let pair = |node: &Node| {
        let other = there.get(node.name())?;
        let is_alike = match (&node.kind, &other.kind) {
            (NodeKind::File, NodeKind::File) => node.size == other.size,
            (one, other) => one == other,
        };
        (is_alike && node.mtime != other.mtime).then_some((node.mtime, other.mtime))
    };
    source.iter().filter_map(pair).collect()
}

fn explains(step: TimeStep, (source, there): (Mtime, Mtime)) -> bool {
    step.of(source) == there
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, secs: i64, nanos: u32) -> Node {
        Node {
            path: RelPath::new(name).ok(),
            kind: NodeKind::File,
            size: 1,
            mode: 0o644,
            mtime: Mtime::new(secs, nanos).unwrap(),
            uid: 0,
            gid: 0,
            same: None,
            hash: None,
            xattrs: Vec::new(),
        }
    }

    #[test]
    fn a_cut_is_looked_for_only_where_it_would_explain_a_difference() {
        let source = [file("a", 7, 500), file("b", 9, 0)];
        assert!(may_be_cut(&source, &[file("a", 7, 0)]));
        assert!(may_be_cut(&source, &[file("b", 8, 0)]), "FAT");
        for there in [file("a", 7, 500), file("a", 8, 0), file("a", 5, 0), file("c", 7, 0)] {
            assert!(!may_be_cut(&source, std::slice::from_ref(&there)), "{there:?}");
        }
        assert!(!may_be_cut(&source, &[Node { size: 2, ..file("a", 7, 0) }]));
    }

    #[test]
    fn what_a_killed_run_has_left_is_known_by_its_name() {
        let dir = |name: &str| Node { kind: NodeKind::Dir, ..file(name, 7, 0) };
        assert!(is_left(&dir(".gtp-times-0123456789abcdef")));
        assert!(!is_left(&file(".gtp-times-0123456789abcdef", 7, 0)));
        for other in [".gtp-times-", ".gtp-times-0123456789abcdex", "d/.gtp-times-0123456789abcdef"]
        {
            assert!(!is_left(&dir(other)), "{other}");
        }
    }

    #[test]
    fn a_guess_is_the_finest_step_that_all_times_there_could_have_been_kept_in() {
        let source = [file("a", 7, 500), file("b", 9, 0)];
        let second = guessed(&source, &[file("a", 7, 0), file("b", 9, 0)]);
        assert_eq!(second.of(source[0].mtime), Mtime::new(7, 0).unwrap());
        assert_eq!(second.of(source[1].mtime), source[1].mtime);
        let exact = guessed(&source, &[file("a", 7, 0), file("b", 9, 1)]);
        assert_eq!(exact, TimeStep::EXACT, "somebody's whole second");
    }
}
