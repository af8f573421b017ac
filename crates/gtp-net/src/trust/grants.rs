//! What a key or a group may do beneath which path of which export.
//!
//! A place is an export's name, and perhaps a path beneath it, written as addresses have it:
//! `home/anna`. Grants add up and nothing takes one away. Which exports there are is not known
//! here.

use std::fmt;
use std::str::FromStr;

use gtp_store::RelPath;

/// Bytes of the name of an export or a group.
pub const NAME_MOST: usize = 64;
/// Places that one list of grants may name.
pub const PLACES_MOST: usize = 256;
/// Groups that one line of the list of keys may name.
pub const GROUPS_OF_KEY_MOST: usize = 64;

/// An export, or what is beneath one path in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Below {
    export: String,
    prefix: Option<RelPath>,
}

/// The text names no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place: expected EXPORT or EXPORT/PATH, as in home/anna")]
pub struct BadPlace(String);

/// Whether this may be the name of an export or a group.
pub fn is_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=NAME_MOST).contains(&text.len())
        && text.bytes().all(fits)
        && !text.starts_with(['.', '-'])
        && RelPath::new(text).is_ok()
}

impl FromStr for Below {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Below, BadPlace> {
        let bad = || BadPlace(gtp_text::of_text(text));
        let bare = text.strip_suffix('/').unwrap_or(text);
        let (export, rest) = match bare.split_once('/') {
            Some((export, rest)) => (export, Some(rest)),
            None => (bare, None),
        };
        let prefix = rest.map(RelPath::new).transpose().map_err(|_| bad())?;
        if !is_name(export) {
            return Err(bad());
        }
        Ok(Below { export: export.to_owned(), prefix })
    }
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.prefix {
            Some(prefix) => write!(f, "{}/{prefix}", self.export),
            None => f.write_str(&self.export),
        }
    }
}

impl Below {
    /// The export's name.
    pub fn export(&self) -> &str {
        &self.export
    }

    /// The path beneath the export; `None` is all of it.
    pub fn prefix(&self) -> Option<&RelPath> {
        self.prefix.as_ref()
    }

    /// Whether a path of an export is this place, or beneath it.
    pub fn covers(&self, export: &str, path: Option<&RelPath>) -> bool {
        self.covers_text(export, path.map_or("", RelPath::as_str))
    }

    /// The same for a path on the disk, whose names need not be such that a client can say them;
    /// empty for the export itself.
    pub fn covers_text(&self, export: &str, path: &str) -> bool {
        self.export == export
            && self.prefix.as_ref().is_none_or(|prefix| {
                let rest = path.strip_prefix(prefix.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }

    /// The name directly beneath a path of an export that leads to this place; `None` if the place
    /// is not strictly beneath that path.
    pub fn way(&self, export: &str, path: Option<&RelPath>) -> Option<&str> {
        let prefix = self.prefix.as_ref().filter(|_| self.export == export)?.as_str();
        let rest = match path {
            None => prefix,
            Some(path) => prefix.strip_prefix(path.as_str())?.strip_prefix('/')?,
        };
        rest.split('/').next()
    }
}

/// Places where something may be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// What may be listed and fetched.
    pub read: Vec<Below>,
    /// What may be written. To replace a file is to write it.
    pub write: Vec<Below>,
    /// Where something may be removed or moved away.
    pub delete: Vec<Below>,
}

impl Grants {
    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// All places that are named.
    pub fn all(&self) -> impl Iterator<Item = &Below> {
        self.read.iter().chain(&self.write).chain(&self.delete)
    }

    pub(super) fn add(&mut self, other: &Grants) {
        self.read.extend_from_slice(&other.read);
        self.write.extend_from_slice(&other.write);
        self.delete.extend_from_slice(&other.delete);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<RelPath> {
        (!text.is_empty()).then(|| RelPath::new(text).unwrap())
    }

    #[test]
    fn a_place_covers_itself_and_what_is_beneath_it_and_no_neighbour_of_a_similar_name() {
        let place: Below = "home/anna/".parse().unwrap();
        let covers = |export, at: &str| place.covers(export, path(at).as_ref());
        assert!(covers("home", "anna") && covers("home", "anna/x/y"));
        assert!(!covers("home", "") && !covers("home", "ann") && !covers("home", "annabel"));
        assert!(!covers("hom", "anna") && !covers("homes", "anna"));
        assert!(place.covers_text("home", "anna/x.gtp-part"), "a name that no client can say");
        let whole: Below = "home".parse().unwrap();
        assert!(whole.covers("home", None) && whole.covers("home", path("x").as_ref()));
    }

    #[test]
    fn the_way_to_a_place_is_the_next_name_beneath_each_directory_above_it() {
        let place: Below = "home/a/b".parse().unwrap();
        let way = |export, at: &str| place.way(export, path(at).as_ref());
        assert_eq!((way("home", ""), way("home", "a")), (Some("a"), Some("b")));
        assert_eq!((way("home", "a/b"), way("home", "a/c"), way("other", "")), (None, None, None));
        assert_eq!("home".parse::<Below>().unwrap().way("home", None), None);
    }

    #[test]
    fn what_leads_elsewhere_or_is_no_name_is_no_place() {
        for bad in ["", "/", "/home", "home//a", "home/../etc", ".x", "-x", "ho me", "a/b\n", "é"]
        {
            assert!(bad.parse::<Below>().is_err(), "{bad:?}");
        }
        assert!(!is_name(&"x".repeat(65)) && is_name(&"x".repeat(64)) && is_name("a.b_c-1"));
        assert!(!is_name("x.gtp-part"));
    }
}
