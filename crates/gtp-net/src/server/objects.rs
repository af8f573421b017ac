//! What a session writes, by its final paths: for whoever reads of the session later.
//!
//! A request names a place, and the listing says what comes there: one file, a tree, or several of
//! them beneath a directory. A tree is named, not what is in it. Names are the client's and
//! hostile, so their number and length are bounded. What is done with them is unknown here.

use gtp_store::{Manifest, RootKind, escaped};

/// The objects that a session writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Their final paths as clients know them, escaped for display. Empty while the listing is not
    /// known, and for sessions that write nothing or change a tree by steps.
    pub paths: Vec<String>,
    /// How many there are beside those.
    pub more: u64,
}

/// Objects of one session that are named.
const NAMED_MOST: usize = 16;

/// Bytes of all names of one session, as far as there are several: one is always named, as its
/// request is.
const BYTES_MOST: usize = 4_096;

impl Objects {
    /// The objects of a listing that goes to this path, escaped for display. A directory that says
    /// its own mode is the object itself; else what lies directly beneath the path are the objects.
    pub(super) fn of(path: &str, manifest: &Manifest) -> Objects {
        if manifest.root_kind == RootKind::File || manifest.own.is_some() {
            return Objects { paths: vec![path.to_owned()], more: 0 };
        }
        // Each directory on the way to an entry is listed, so these are all.
        let names = manifest.entries.iter().map(|entry| entry.path.as_str());
        let (mut objects, mut bytes) = (Objects::default(), 0);
        for name in names.filter(|name| !name.contains('/')) {
            if objects.more > 0 || objects.paths.len() == NAMED_MOST {
                objects.more += 1;
                continue;
            }
            let name = beneath(path, &escaped(name));
            bytes += name.len();
            match bytes <= BYTES_MOST || objects.paths.is_empty() {
                true => objects.paths.push(name),
                false => objects.more += 1,
            }
        }
        objects
    }
}

fn beneath(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

#[cfg(test)]
mod tests;
