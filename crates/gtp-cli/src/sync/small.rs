//! Small files that travel as steps of the session about the tree.
//!
//! They do if nothing else is to be moved: to open a session with datagrams takes longer than they
//! do.

use std::collections::{HashMap, HashSet};

use gtp::replica::{Deed, Dress, Seen};
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
    mode: u32,
    mtime: Mtime,
}

/// The files of a plan, if all of them are small: `longest` bytes at most.
pub fn all_small(plan: &Plan, longest: u64) -> Vec<Small> {
    let are_small = plan.files.values().all(|size| *size <= longest);
    // Holes are made in files that are there, whose times are set after that.
    match are_small && plan.bytes() <= TOGETHER_MAX && plan.dug.is_empty() {
        true => small_files(plan),
        false => Vec::new(),
    }
}

impl Small {
    /// The file as it was surveyed.
    pub fn as_seen(&self) -> (RelPath, Seen) {
        (self.path.clone(), self.seen)
    }
}

/// The files of a plan with all that a step says of them.
fn small_files(plan: &Plan) -> Vec<Small> {
    let dressed = plan.dressed.iter().filter_map(|deed| {
        let Deed::Dress(dress) = deed else { return None };
        Some((deed.name(), (dress.mode?, dress.mtime?)))
    });
    let dressed: HashMap<&str, (u32, Mtime)> = dressed.collect();
    let small = plan.files.iter().filter_map(|(path, size)| {
        let (mode, mtime) = *dressed.get(path.as_str())?;
        let seen = Seen::File { size: *size, mtime };
        Some(Small { path: RelPath::new(path).ok()?, seen, mode, mtime })
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

/// Whether attributes are to be set that a step which writes a file does not set.
fn has_more(dress: &Dress) -> bool {
    dress.owner.is_some() || dress.xattrs.is_some() || dress.acls.is_some()
}

/// The most bytes of all files that travel so. A connection that has just begun to send carries
/// them in ten round trips or so.
const TOGETHER_MAX: u64 = 4 << 20;
