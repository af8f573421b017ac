//! The repository's own lint: what the compiler and clippy cannot know about this project.
//!
//! One idea: every rule is a pure function from text to [`Breach`]es, and one judge compares the
//! breaches with the list of named exemptions, which must fit exactly, so that they only shrink.
//! `cargo test -p tidy` holds the repository to it; `cargo run -p tidy` prints the same findings.
//! It knows the repository's layout and nothing about what the crates do.
#![forbid(unsafe_code)]

pub mod bans;
pub mod breach;
pub mod ceilings;
pub mod essays;
pub mod exemptions;
pub mod items;
pub mod layers;
pub mod mask;
pub mod papers;
pub mod source;
pub mod tree;
pub mod wildcards;
pub mod words;

use std::path::Path;

pub use breach::{Breach, Rule};
use source::Source;

/// Where the named exemptions stand, relative to the repository's root.
pub const EXEMPTIONS: &str = "crates/tidy/exemptions.toml";

/// Checks the whole repository at `root` and returns every breach, before exemptions.
///
/// # Errors
/// A sentence, when the tree cannot be listed.
pub fn breaches(root: &Path) -> Result<Vec<Breach>, String> {
    let files = tree::list(root)?;
    let mut found = Vec::new();
    for file in &files {
        found.extend(words::check_size(&file.path, file.size));
        if let Some(text) = &file.text {
            found.extend(words::check(&file.path, text));
        }
    }
    let sources = Source::read_all(&files);
    let enums = wildcards::enum_names(&sources);
    for source in &sources {
        found.extend(bans::check(source));
        found.extend(ceilings::check(source));
        found.extend(essays::check(source));
        found.extend(wildcards::check(source, &enums));
    }
    found.extend(layers::check(&files, &sources));
    found.extend(papers::check(&files));
    Ok(found)
}

/// Checks the repository at `root` against its exemptions; each returned line is one complaint.
///
/// # Errors
/// A sentence, when the tree or the exemptions cannot be read.
pub fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let text =
        std::fs::read_to_string(root.join(EXEMPTIONS)).map_err(|e| format!("{EXEMPTIONS}: {e}"))?;
    let list = exemptions::parse(&text)?;
    Ok(exemptions::judge(&breaches(root)?, &list))
}
