//! Where a key may do what, at a server that exports what the configuration file names.
//!
//! Where the file names no exports the server is told its one directory when it starts, and nothing
//! is known of places here. What a right means is decided where servers judge by it.

use std::fmt;
use std::path::PathBuf;

use gtp::{AuthorizedKeys, Below, Fingerprint, Rights};
use serde_json::{Value, json};

use super::Groups;

/// The exports of the configuration file, and the paths in them, where a key may do something.
pub struct Places {
    /// Nothing where the file names no exports.
    known: Option<Vec<(Below, Rights)>>,
    /// Where the exports are from.
    path: Option<PathBuf>,
}

impl Places {
    /// Those of a key of this list.
    pub fn of(keys: &AuthorizedKeys, key: &Fingerprint, groups: &Groups) -> Places {
        let rules = groups.rules.as_ref().filter(|rules| !rules.exports.is_empty());
        let known = rules.map(|rules| rules.places_of(keys, key));
        Places { known, path: groups.path.clone() }
    }

    /// Whether it may do something somewhere, as far as is known here.
    pub fn are_some(&self) -> bool {
        self.known.as_ref().is_none_or(|places| !places.is_empty())
    }

    /// Adds to a record of the key what programs are told of its places.
    pub fn add_to(&self, record: &mut Value) {
        let place = |(place, rights): &(Below, Rights)| {
            json!({ "place": place.to_string(), "read": rights.read, "write": rights.write,
                "delete": rights.delete })
        };
        let places = self.known.as_ref().map(|all| all.iter().map(place).collect::<Vec<_>>());
        record["places"] = places.into();
    }
}

/// What follows the sentence about the key: a line for each place.
impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(places) = &self.known else { return Ok(()) };
        if places.is_empty() {
            let path = self.path.as_ref().map_or_else(String::new, |p| p.display().to_string());
            return write!(f, "; but nowhere: {path} gives it no right in any export");
        }
        let names: Vec<String> = places.iter().map(|(place, _)| place.to_string()).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        let mut rows = names.iter().zip(places);
        rows.try_for_each(|(name, (_, rights))| write!(f, "\n  {name:<width$}  {}", words(*rights)))
    }
}

/// Rights in the words of the configuration file.
fn words(rights: Rights) -> String {
    let all = [(rights.read, "read"), (rights.write, "write"), (rights.delete, "delete")];
    all.iter().filter(|(has, _)| *has).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
