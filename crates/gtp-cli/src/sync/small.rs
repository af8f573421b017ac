//! Small files that travel as steps of the session about the tree.
//!
//! They do if nothing else is to be moved: to open a session with datagrams takes longer than they
//! do.

use std::collections::{HashMap, HashSet};

use gtp::replica::{Deed, Dress, PIECE, Patch, Seen, patch_hash};
use gtp::tree::{SENT_AT_ONCE, SMALL_TOGETHER_MAX, SmallAsked};
use gtp::{Mtime, RelPath};

use super::plan::Plan;

/// Files that have been made steps.
#[derive(Default)]
pub struct Written {
    /// The steps.
    pub deeds: Vec<Deed>,
    /// Bytes of these files.
    pub bytes: u64,
}

/// A file that may become a step.
pub struct Small {
    path: RelPath,
    seen: Seen,
    /// What was seen of the version that it replaces, if that is still so when the step comes.
    older: Option<Seen>,
    mode: u32,
    mtime: Mtime,
}

/// The files of a plan, if all of them are small: `longest` bytes at most.
pub fn all_small(plan: &Plan, longest: u64) -> Vec<Small> {
    let are_small = plan.files.values().all(|size| *size <= longest);
    // Holes are made in files that are there, whose times are set after that.
    match are_small && plan.bytes() <= SMALL_TOGETHER_MAX && plan.dug.is_empty() {
        true => small_files(plan),
        false => Vec::new(),
    }
}

impl Small {
    /// What is asked of the file where it was surveyed.
    pub fn asked(&self) -> SmallAsked {
        SmallAsked { path: self.path.clone(), seen: self.seen, old: None }
    }

    /// The version that it replaces, as it was surveyed.
    pub fn older(&self) -> Option<(RelPath, Seen)> {
        Some((self.path.clone(), self.older?))
    }

    /// The same if its pieces may save something. A short file is not worth the sums, and an older
    /// version that is much longer is not read: the source alone says how many files there are, and
    /// so it would say how much memory they take here.
    pub fn older_worth_reading(&self) -> Option<(RelPath, Seen)> {
        let (Seen::File { size: new, .. }, Some(Seen::File { size: old, .. })) =
            (self.seen, self.older)
        else {
            return None;
        };
        let piece = PIECE as u64;
        if new > piece && old <= new + piece { self.older() } else { None }
    }
}

/// The files of a plan with all that a step says of them.
fn small_files(plan: &Plan) -> Vec<Small> {
    let dressed = plan.dressed.iter().filter_map(|deed| {
        let Deed::Dress(dress) = deed else { return None };
        Some((deed.name(), (dress.mode?, dress.mtime?)))
    });
    let dressed: HashMap<&str, (u32, Mtime)> = dressed.collect();
    let aged: HashSet<&str> = plan.aged.iter().map(Deed::name).collect();
    let older = |path: &str| {
        let older = plan.replaced.get(path).filter(|_| !aged.contains(path))?;
        Some(Seen::File { size: older.size, mtime: older.mtime })
    };
    let small = plan.files.iter().filter_map(|(path, size)| {
        let (mode, mtime) = *dressed.get(path.as_str())?;
        let seen = Seen::File { size: *size, mtime };
        Some(Small { path: RelPath::new(path).ok()?, seen, older: older(path), mode, mtime })
    });
    small.collect()
}

/// Makes steps of the files of a plan of which the contents were read. The others, which have
/// changed since they were surveyed or so lately that a further change might not show, stay.
pub fn take_out(plan: &mut Plan, small: Vec<Small>, contents: Vec<Option<Vec<u8>>>) -> Written {
    let mut written = Written::default();
    for (Small { path, mode, mtime, .. }, content) in small.into_iter().zip(contents) {
        let Some(content) = content else { continue };
        plan.files.remove(path.as_str());
        plan.replaced.remove(path.as_str());
        written.bytes += content.len() as u64;
        written.deeds.push(Deed::Write { path, content, mode, mtime });
    }
    // Once a file is written, its time is not set again: if the step fails, the old file must not
    // look like the new one.
    let names: HashSet<&str> = written.deeds.iter().map(Deed::name).collect();
    plan.dressed.retain_mut(|deed| {
        let is_written = names.contains(deed.name());
        let Deed::Dress(dress) = deed else { return true };
        if is_written {
            dress.mtime = None;
        }
        !is_written || has_more(dress)
    });
    written
}

/// A file with what was seen of its older version, and its new content.
pub type Renewed<'d> = (RelPath, Seen, &'d [u8]);

/// Of steps that write files, those of which the version that they replace is worth a question,
/// each with its place among the steps. If all content fits into what a connection sends at once,
/// none is.
pub fn worth_a_question<'d>(
    deeds: &'d [Deed],
    older: &HashMap<RelPath, Seen>,
) -> Vec<(usize, Renewed<'d>)> {
    let replacing = deeds.iter().enumerate().filter_map(|(place, deed)| {
        let Deed::Write { path, content, .. } = deed else { return None };
        Some((place, (path.clone(), *older.get(path)?, &content[..])))
    });
    let replacing: Vec<(usize, Renewed<'d>)> = replacing.collect();
    let bytes: usize = replacing.iter().map(|(_, (_, _, content))| content.len()).sum();
    if bytes > SENT_AT_ONCE { replacing } else { Vec::new() }
}

/// Makes a step that patches a file of one that writes it.
pub fn patched(written: &Deed, seen: Seen, patch: Patch) -> Option<Deed> {
    let Deed::Write { path, content, mode, mtime } = written else { return None };
    let (size, hash, mode, mtime) = (content.len(), patch_hash(content), *mode, *mtime);
    let is_shorter = patch.rest.len() + PATCH_BYTES < size;
    is_shorter.then(|| Deed::Patch { path: path.clone(), seen, patch, size, hash, mode, mtime })
}

/// Bytes of content that these steps carry.
pub fn carried(deeds: &[Deed]) -> u64 {
    let bytes = deeds.iter().map(|deed| match deed {
        Deed::Write { content, .. } => content.len(),
        Deed::Patch { patch, .. } => patch.rest.len(),
        Deed::MakeDir { .. }
        | Deed::Remove { .. }
        | Deed::Move { .. }
        | Deed::Link { .. }
        | Deed::HardLink { .. }
        | Deed::Dig { .. }
        | Deed::Keep { .. }
        | Deed::Dress(_) => 0,
    });
    bytes.sum::<usize>() as u64
}

/// Whether attributes are to be set that a step which writes a file does not set.
fn has_more(dress: &Dress) -> bool {
    dress.owner.is_some() || dress.xattrs.is_some() || dress.acls.is_some()
}

/// Bytes by which a step that patches is longer than one that writes as much.
const PATCH_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_is_read_only_if_it_is_hardly_longer_and_the_new_one_is_not_short() {
        let mtime = Mtime::new(0, 0).unwrap();
        let is_read = |new, old| {
            let (seen, older) = (Seen::File { size: new, mtime }, Seen::File { size: old, mtime });
            let path = RelPath::new("a").unwrap();
            let small = Small { path, seen, older: Some(older), mode: 0, mtime };
            small.older_worth_reading().is_some()
        };
        assert!(is_read(1_500, 1_500) && is_read(65_536, 1) && is_read(2_000, 3_000));
        assert!(!is_read(1, 65_536) && !is_read(1_024, 1_024) && !is_read(2_000, 65_536));
    }
}
