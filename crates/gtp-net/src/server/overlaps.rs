//! Exports of which one lies within another, where a quota is to count what is in them.
//!
//! Each export is counted alone: what is written by the name of one does not count for the other,
//! though it is there as well. So the operator is told. This module decides from values; it opens
//! nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Two exports of which one lies within the other, or at the same place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap<'n> {
    pub inner: &'n str,
    pub outer: &'n str,
}

/// Finds for each export the nearest one that it lies in, where either is among those for which a
/// quota counts. The paths have no links in them.
pub(super) fn overlaps<'n>(
    paths: &'n BTreeMap<String, PathBuf>,
    counted: &BTreeSet<String>,
) -> Vec<Overlap<'n>> {
    let within = |(inner, path): (&'n String, &'n PathBuf)| {
        let is_outer = |&(outer, above): &(&'n String, &'n PathBuf)| {
            // Of two at one place, one is told.
            let is_above = path.starts_with(above) && (path != above || outer < inner);
            is_above && (counted.contains(inner) || counted.contains(outer))
        };
        let outer = paths.iter().filter(is_outer).max_by_key(|(_, above)| above.as_os_str().len());
        outer.map(|(outer, _)| Overlap { inner, outer })
    };
    paths.iter().filter_map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(exports: &[(&str, &str)], counted: &[&str]) -> Vec<(String, String)> {
        let paths = exports.iter().map(|(name, path)| ((*name).to_owned(), path.into())).collect();
        let counted = counted.iter().map(|&name| name.to_owned()).collect();
        let all = overlaps(&paths, &counted);
        all.iter().map(|all| (all.inner.to_owned(), all.outer.to_owned())).collect()
    }

    #[test]
    fn an_export_within_another_one_is_told_where_either_has_a_quota() {
        let exports = [("all", "/srv"), ("home", "/srv/home"), ("a", "/srv/home/a"), ("b", "/b")];
        let pair = |inner: &str, outer: &str| (inner.to_owned(), outer.to_owned());
        assert_eq!(told(&exports, &["home"]), [pair("a", "home"), pair("home", "all")]);
        assert_eq!(told(&exports, &["all"]), [pair("a", "all"), pair("home", "all")]);
        assert_eq!(told(&exports, &["b"]), []);
    }

    #[test]
    fn exports_of_one_directory_overlap_and_those_whose_names_only_begin_alike_do_not() {
        let one = [("x", "/srv/x"), ("y", "/srv/x"), ("z", "/srv/xz")];
        assert_eq!(told(&one, &["x"]), [("y".to_owned(), "x".to_owned())]);
        assert_eq!(told(&one, &["y", "z"]), [("y".to_owned(), "x".to_owned())]);
    }
}
