//! What is other in one set of named rules than in another, in few words.
//!
//! A reader of the log learns what was added, removed and changed, and of many only the first
//! names. What the rules say is unknown here.

use std::collections::BTreeMap;

/// Names of one kind that are told; more are counted.
const NAMES_MOST: usize = 16;

/// Which names are there anew, which are gone, and which mean something else; `None` if it is the
/// same.
pub fn difference<T: PartialEq>(
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
) -> Option<String> {
    let only = |all: &BTreeMap<String, T>, others: &BTreeMap<String, T>| {
        all.keys().filter(|name| !others.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let changed = new.iter().filter(|(name, rule)| old.get(*name).is_some_and(|was| was != *rule));
    let kinds = [
        ("added", only(new, old)),
        ("removed", only(old, new)),
        ("changed", changed.map(|(name, _)| name.clone()).collect()),
    ];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let told: Vec<String> = kinds.map(|(kind, names)| format!("{kind} {}", few(&names))).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn few(names: &[String]) -> String {
    let (told, more) = names.split_at(names.len().min(NAMES_MOST));
    match more.len() {
        0 => told.join(", "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[(&str, u8)]) -> BTreeMap<String, u8> {
        all.iter().map(|(name, rule)| ((*name).to_owned(), *rule)).collect()
    }

    #[test]
    fn what_came_what_went_and_what_is_other_are_named_and_nothing_else() {
        let old = rules(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let new = rules(&[("b", 1), ("c", 2), ("d", 3), ("e", 1)]);
        let said = difference(&old, &new).unwrap();
        assert_eq!(said, "added e; removed a; changed c, d");
        assert_eq!(difference(&old, &old), None);
    }

    #[test]
    fn no_more_than_sixteen_names_of_a_kind_are_told() {
        let many = (0..90).map(|at| (format!("n{at:02}"), 1)).collect();
        let said = difference(&BTreeMap::new(), &many).unwrap();
        assert!(
            said.starts_with("added n00, n01, ") && said.ends_with("n15 and 74 more"),
            "{said}"
        );
    }
}
