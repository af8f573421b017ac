//! The walls between crates: who may depend on whom, and what the pure crates may contain.
//!
//! The table below is the architecture. Pure crates at the bottom, two worlds (the emulator's
//! and the network's) that do not know each other, thin shells on top; only the end-to-end tests
//! see both. A crate that is not in the table fails until someone decides where it belongs.

use crate::breach::{Breach, Rule};
use crate::source::{Source, crate_of};
use crate::tree::File;

/// What one crate may depend on.
struct Layer {
    name: &'static str,
    /// Crates of this workspace.
    inside: &'static [&'static str],
    /// Crates from elsewhere.
    outside: Outside,
}

/// Which foreign crates a layer may use.
enum Outside {
    /// These only: the crate is pure, `no_std` and free of `unsafe`.
    Only(&'static [&'static str]),
    /// Any that review accepts.
    Reviewed,
}

/// The architecture, bottom up.
const LAYERS: [Layer; 24] = [
    pure("gtp-alloc", &[], &["libm"]),
    pure("gtp-ranges", &[], &[]),
    pure("gtp-text", &[], &["icu_properties"]),
    pure("gtp-proto", &["gtp-alloc", "gtp-ranges"], &["libm", "siphasher"]),
    pure("gtp-link", &["gtp-alloc"], &["libm"]),
    pure("gtp-laws", &["gtp-alloc"], &["libm"]),
    pure("gtp-peers", &["gtp-alloc", "gtp-laws", "gtp-ranges"], &["libm"]),
    pure("gtp-path", &["gtp-alloc", "gtp-link", "gtp-peers"], &["libm"]),
    open("gtp-sim", &["gtp-alloc", "gtp-proto", "gtp-link", "gtp-peers"]),
    open("gtp-sys", &["gtp-alloc"]),
    open("gtp-emu", &["gtp-alloc", "gtp-link", "gtp-sys", "gtp-text"]),
    open("gtp-store", &["gtp-alloc", "gtp-ranges", "gtp-text"]),
    open("gtp-share", &["gtp-alloc", "gtp-proto", "gtp-sys", "gtp-text"]),
    open("gtpd", &["gtp-alloc", "gtp-proto", "gtp-share", "gtp-sys"]),
    open(
        "gtp-net",
        &["gtp-alloc", "gtp-laws", "gtp-proto", "gtp-share", "gtp-sys", "gtp-store", "gtp-text"],
    ),
    open("gtp", &["gtp-alloc", "gtp-laws", "gtp-net", "gtp-store"]),
    open("libgtp", &["gtp", "gtp-share"]),
    open("gtp-preload", &["gtp-alloc", "gtp-sys"]),
    open("gtp-bench", &["gtp-alloc", "gtp-proto", "gtp-sys", "gtp-store", "gtp-net"]),
    open(
        "gtp-counts",
        &[
            "gtp-alloc",
            "gtp-proto",
            "gtp-link",
            "gtp-peers",
            "gtp-share",
            "gtp-sim",
            "gtp-store",
            "gtp-net",
            "gtpd",
        ],
    ),
    open(
        "gtp-cli",
        &[
            "gtp-alloc",
            "gtp-bench",
            "gtp",
            "gtp-emu",
            "gtp-preload",
            "gtp-share",
            "gtp-sys",
            "gtp-text",
            "gtpd",
        ],
    ),
    open(
        "gtp-lab",
        &["gtp-alloc", "gtp-proto", "gtp-link", "gtp-path", "gtp-peers", "gtp-sim", "gtp-text"],
    ),
    open(
        "gtp-e2e",
        &[
            "gtp-alloc",
            "gtp-ranges",
            "gtp-proto",
            "gtp-link",
            "gtp-sim",
            "gtp-sys",
            "gtp-emu",
            "gtp-store",
            "gtp-share",
            "gtpd",
            "gtp-net",
            "gtp",
            "gtp-cli",
            "gtp-lab",
            "gtp-laws",
        ],
    ),
    open("tidy", &[]),
];

/// Crates of which the first one's tests run the second: both ends of the pages that a process and
/// its host's daemon share, held against each other in virtual time; and the binaries under the
/// attackers of the measurements.
const TESTED_TOGETHER: [(&str, &str); 2] = [("gtp-net", "gtpd"), ("gtp-cli", "gtp-e2e")];

const fn pure(
    name: &'static str,
    inside: &'static [&'static str],
    outside: &'static [&'static str],
) -> Layer {
    Layer { name, inside, outside: Outside::Only(outside) }
}

const fn open(name: &'static str, inside: &'static [&'static str]) -> Layer {
    Layer { name, inside, outside: Outside::Reviewed }
}

/// Every breach of the walls in the workspace.
#[must_use]
pub fn check(files: &[File], sources: &[Source]) -> Vec<Breach> {
    let mut found = Vec::new();
    for file in files {
        let name = crate_of(&file.path);
        if !name.is_empty() && file.path == format!("crates/{name}/Cargo.toml") {
            let text = file.text.as_deref().unwrap_or("");
            found.extend(check_manifest(&file.path, name, text));
        }
    }
    found.extend(sources.iter().filter_map(check_root));
    found
}

/// Breaches in one crate's manifest.
fn check_manifest(path: &str, name: &str, text: &str) -> Vec<Breach> {
    let breach = |what: String| Breach::at(Rule::Layer, path, 0, what);
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        return vec![breach(format!("crate `{name}` has no place in the architecture"))];
    };
    let table: toml::Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => return vec![breach(format!("not TOML: {error}"))],
    };
    let products = product_dependencies(&table);
    let wrong = products.iter().filter(|dependency| !allows(layer, dependency));
    let mut found: Vec<_> =
        wrong.map(|dependency| breach(format!("must not depend on `{dependency}`"))).collect();
    // A pure crate's tests may drive the pure crates against each other; little else is opened.
    for dependency in names(table.get("dev-dependencies")) {
        let pure_pair = is_pure(layer) && LAYERS.iter().any(|l| l.name == dependency && is_pure(l));
        let opened = pure_pair || TESTED_TOGETHER.contains(&(name, dependency.as_str()));
        if is_ours(&dependency) && !layer.inside.contains(&dependency.as_str()) && !opened {
            found.push(breach(format!("its tests must not depend on `{dependency}`")));
        }
    }
    found
}

/// Whether a layer may use a crate in its product code.
fn allows(layer: &Layer, dependency: &str) -> bool {
    if is_ours(dependency) {
        return layer.inside.contains(&dependency);
    }
    match layer.outside {
        Outside::Only(list) => list.contains(&dependency),
        Outside::Reviewed => true,
    }
}

/// Whether a name is a crate of this workspace.
fn is_ours(dependency: &str) -> bool {
    dependency.starts_with("gtp-") || LAYERS.iter().any(|layer| layer.name == dependency)
}

/// Whether a layer is one of the pure ones.
fn is_pure(layer: &Layer) -> bool {
    matches!(layer.outside, Outside::Only(_))
}

/// Names of all dependencies that the product is built with, on any target.
fn product_dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut all = Vec::new();
    let kinds = ["dependencies", "build-dependencies"];
    for kind in kinds {
        all.extend(names(manifest.get(kind)));
    }
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    for target in targets.into_iter().flat_map(toml::Table::values) {
        for kind in kinds {
            all.extend(names(target.get(kind)));
        }
    }
    all
}

/// The names in a table of dependencies; a renamed one counts under its real name.
fn names(table: Option<&toml::Value>) -> Vec<String> {
    let Some(table) = table.and_then(toml::Value::as_table) else { return Vec::new() };
    let real = |(name, value): (&String, &toml::Value)| {
        let package = value.get("package").and_then(toml::Value::as_str);
        package.unwrap_or(name).to_owned()
    };
    table.iter().map(real).collect()
}

/// A breach when a pure crate's root lacks its compile-time walls.
fn check_root(source: &Source) -> Option<Breach> {
    let name = source.crate_name();
    let layer = LAYERS.iter().find(|layer| layer.name == name)?;
    if !is_pure(layer) || source.path != format!("crates/{name}/src/lib.rs") {
        return None;
    }
    let missing = ["#![no_std]", "#![forbid(unsafe_code)]"]
        .into_iter()
        .find(|wall| !source.code.lines().any(|line| line.trim() == *wall))?;
    let what = format!("a pure crate states `{missing}` unconditionally");
    Some(Breach::at(Rule::Layer, &source.path, 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> usize {
        check_manifest("Cargo.toml", name, text).len()
    }

    #[test]
    fn the_two_worlds_do_not_know_each_other() {
        assert_eq!(count("gtp-net", "[dependencies]\ngtp-emu.workspace = true\n"), 1);
        assert_eq!(count("gtp-emu", "[dependencies]\ngtp-net.workspace = true\n"), 1);
        assert_eq!(count("gtp-emu", "[dev-dependencies]\ngtp-proto.workspace = true\n"), 1);
        assert_eq!(count("gtp-e2e", "[dependencies]\ngtp-emu = {}\ngtp-net = {}\n"), 0);
    }

    #[test]
    fn files_know_no_network() {
        for world in ["gtp-proto", "gtp-net", "gtp-sys"] {
            assert_eq!(count("gtp-store", &format!("[dependencies]\n{world} = {{}}\n")), 1);
        }
    }

    #[test]
    fn a_pure_crate_uses_listed_crates_only_however_they_are_written() {
        assert_eq!(count("gtp-alloc", "[dependencies]\nlibm.workspace = true\n"), 0);
        assert_eq!(count("gtp-alloc", "[dependencies]\nserde.workspace = true\n"), 1);
        assert_eq!(count("gtp-alloc", "[target.'cfg(unix)'.dependencies]\nlibc = \"0\"\n"), 1);
        let renamed = "[dependencies]\nlibm = { package = \"rand\", version = \"1\" }\n";
        assert_eq!(count("gtp-alloc", renamed), 1);
        assert_eq!(count("gtp-proto", "[dev-dependencies]\ngtp-link = {}\nproptest = {}\n"), 0);
    }

    #[test]
    fn an_unknown_crate_must_be_placed_first() {
        assert_eq!(count("gtp-new", "[dependencies]\n"), 1);
    }

    #[test]
    fn a_pure_crate_states_its_walls_without_conditions() {
        let root = |text: &str| check_root(&Source::new("crates/gtp-link/src/lib.rs", text));
        assert!(root("//! E.\n#![no_std]\n#![forbid(unsafe_code)]\n").is_none());
        assert!(root("#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\n").is_some());
        assert!(root("// #![no_std]\n#![forbid(unsafe_code)]\n").is_some());
    }
}
