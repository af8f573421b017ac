//! Where in the file exports and groups stand that do not fit together.
//!
//! What must fit, the server's rules say, by names; here each name leads to the key that says it,
//! so that its line can be named. How the file is read is unknown here.

use gtp::{BadExports, Exports, GroupRule, ShareAt, Who};

use super::{EXPORT, GROUP};

/// The keys that lead to what does not fit, and items of lists, by their numbers or as they are.
pub fn place(bad: &BadExports, exports: &Exports) -> Vec<String> {
    match bad {
        BadExports::TooMany { what, there, .. } => too_many(what, *there, exports),
        BadExports::Name(shown) => name(shown, exports),
        BadExports::Path(export) => path([EXPORT, export, "path"]),
        BadExports::NoGroup { export, group } => names_group(export, group, exports),
        BadExports::Guarantee(group) => guarantee(group, exports),
        BadExports::Quota(group) => {
            let quota = exports.groups.get(group).and_then(|rule| rule.quota.bytes);
            path([GROUP, group, if quota.is_some() { "quota" } else { "quota-files" }])
        }
        BadExports::BesideDirectory(export) => path([EXPORT, export]),
        BadExports::NoExport { group, export } => names_export(group, export, exports),
    }
}

fn path<const N: usize>(keys: [&str; N]) -> Vec<String> {
    keys.map(str::to_owned).to_vec()
}

fn too_many(what: &str, there: usize, exports: &Exports) -> Vec<String> {
    let of_group = |key: &str, count: fn(&GroupRule) -> usize| {
        let group = exports.groups.iter().find(|(_, rule)| count(rule) == there);
        group.map_or_else(|| path([GROUP]), |(name, _)| path([GROUP, name, key]))
    };
    match what {
        "exports" => path([EXPORT]),
        "groups" => path([GROUP]),
        _ if what.starts_with("keys") => of_group("keys", |rule| rule.keys.len()),
        _ => of_group("at", |rule| rule.at.len()),
    }
}

fn name(shown: &str, exports: &Exports) -> Vec<String> {
    let is_it = |name: &&String| gtp_text::of_text(name) == shown;
    match (exports.exports.keys().find(is_it), exports.groups.keys().find(is_it)) {
        (Some(name), _) => path([EXPORT, name]),
        (None, Some(name)) => path([GROUP, name]),
        (None, None) => Vec::new(),
    }
}

/// Where an export names a group.
fn names_group(export: &str, group: &str, exports: &Exports) -> Vec<String> {
    let Some(rule) = exports.exports.get(export) else { return path([EXPORT, export]) };
    let names = |who: &Who| match who {
        Who::Groups(names) => names.contains(group),
        Who::Nobody | Who::Everybody => false,
    };
    let all = [("read", &rule.read), ("write", &rule.write), ("delete", &rule.delete)];
    match all.into_iter().find(|(_, who)| names(who)) {
        Some((key, _)) => path([EXPORT, export, key, group]),
        None => path([EXPORT, export]),
    }
}

/// Where a group names an export.
fn names_export(group: &str, export: &str, exports: &Exports) -> Vec<String> {
    let Some(rule) = exports.groups.get(group) else { return path([GROUP, group]) };
    let grants = &rule.grants;
    let all = [("read", &grants.read), ("write", &grants.write), ("delete", &grants.delete)];
    let found = all.into_iter().find_map(|(key, places)| {
        Some((key, places.iter().position(|place| place.export() == export)?))
    });
    match found {
        Some((key, at)) => path([GROUP, group, key, &at.to_string()]),
        None => path([GROUP, group]),
    }
}

/// Where more is guaranteed to a group than it may have: always, or in some hours.
fn guarantee(group: &str, exports: &Exports) -> Vec<String> {
    let Some(rule) = exports.groups.get(group) else { return path([GROUP, group]) };
    let share = rule.share;
    let is_bad = |at: &ShareAt| {
        at.guarantee.unwrap_or(share.guarantee) > at.total_rate.unwrap_or(share.total_rate)
    };
    let bad = rule.at.iter().enumerate().find(|(_, at)| is_bad(at));
    match bad {
        Some((number, at)) if share.guarantee <= share.total_rate => {
            let key = if at.guarantee.is_some() { "guarantee" } else { "total-rate" };
            path([GROUP, group, "at", &number.to_string(), key])
        }
        Some(_) | None => path([GROUP, group, "guarantee"]),
    }
}
