//! Names that a peer may say.
//!
//! A [`RelPath`] is a relative path that can only point beneath the directory it is used in, fits
//! the file system, prints safely, and cannot collide with the files that a transfer keeps beside
//! its destination. Everything else is refused with a reason.
//!
//! Decided: names are UTF-8 without control characters. A file system may hold others; a scan
//! lists them as skipped rather than inventing an encoding that two hosts could read differently.
//! Characters that only mislead a terminal (such as bidirectional overrides) are allowed in a
//! name and escaped wherever it is displayed.

use std::fmt;

/// The longest component in bytes (`NAME_MAX` of Linux file systems).
pub const MAX_COMPONENT: usize = 255;

/// The longest path in bytes (`PATH_MAX` of Linux).
pub const MAX_PATH: usize = 4096;

/// The most components in a path: bounds the directories open during one walk.
pub const MAX_DEPTH: usize = 255;

/// What an unfinished file's name ends in.
pub(crate) const PART_SUFFIX: &str = ".gtp-part";

/// What a resume journal's name ends in.
pub(crate) const JOURNAL_SUFFIX: &str = ".gtp-journal";

/// A validated relative path, `/` between its components.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Box<str>);

/// Why a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The path has no byte.
    #[error("the name is empty")]
    Empty,
    /// The path starts at the root of the file system.
    #[error("the name is absolute")]
    Absolute,
    /// A component has no byte: `a//b`, `a/`.
    #[error("the name has an empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("the name has a '.' or '..' component")]
    Dots,
    /// The path holds a control character (NUL, newline, escape, C1 controls, …).
    #[error("the name has a control character")]
    Control,
    /// The path is not UTF-8.
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// A component is longer than [`MAX_COMPONENT`] bytes.
    #[error("a component of the name is longer than {MAX_COMPONENT} bytes")]
    LongComponent,
    /// The path is longer than [`MAX_PATH`] bytes.
    #[error("the name is longer than {MAX_PATH} bytes")]
    LongPath,
    /// The path has more than [`MAX_DEPTH`] components.
    #[error("the name has more than {MAX_DEPTH} components")]
    Deep,
    /// A component ends in `.gtp-part` or `.gtp-journal`, which name files of a transfer.
    #[error("the name ends in .gtp-part or .gtp-journal, which transfers keep for themselves")]
    Reserved,
}

impl RelPath {
    /// Accepts a path that obeys every rule of this module.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn new(path: &str) -> Result<RelPath, NameError> {
        if path.is_empty() {
            return Err(NameError::Empty);
        }
        if path.len() > MAX_PATH {
            return Err(NameError::LongPath);
        }
        if path.starts_with('/') {
            return Err(NameError::Absolute);
        }
        if path.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        let mut depth = 0;
        for component in path.split('/') {
            check_component(component)?;
            depth += 1;
        }
        if depth > MAX_DEPTH {
            return Err(NameError::Deep);
        }
        Ok(RelPath(path.into()))
    }

    /// Accepts the bytes of a path, as a peer or a file system gives them.
    ///
    /// # Errors
    /// As [`RelPath::new`], and [`NameError::NotUtf8`].
    pub fn from_bytes(path: &[u8]) -> Result<RelPath, NameError> {
        if path.len() > MAX_PATH {
            return Err(NameError::LongPath);
        }
        RelPath::new(std::str::from_utf8(path).map_err(|_| NameError::NotUtf8)?)
    }

    /// This path with one more component.
    ///
    /// # Errors
    /// As [`RelPath::new`].
    pub fn join(&self, component: &str) -> Result<RelPath, NameError> {
        RelPath::new(&format!("{}/{component}", self.0))
    }

    /// The path as text. Not for display: use `Display`, which escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its components, in order; at least one.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The path of the directory that holds it; `None` when it has one component.
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    /// Its last component.
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escaped(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A name as it may be printed: see [`gtp_text::of_text`].
pub fn escaped(name: &str) -> String {
    gtp_text::of_text(name)
}

fn check_component(component: &str) -> Result<(), NameError> {
    if component.is_empty() {
        return Err(NameError::EmptyComponent);
    }
    if component == "." || component == ".." {
        return Err(NameError::Dots);
    }
    if component.len() > MAX_COMPONENT {
        return Err(NameError::LongComponent);
    }
    if component.ends_with(PART_SUFFIX) || component.ends_with(JOURNAL_SUFFIX) {
        return Err(NameError::Reserved);
    }
    Ok(())
}

/// The name that a transfer gives to a file of its own beside `name`: the name with the suffix,
/// or, where that would be too long, a shortened name made unique by its hash.
pub(crate) fn beside(name: &str, suffix: &str) -> String {
    if name.len() + suffix.len() <= MAX_COMPONENT {
        return format!("{name}{suffix}");
    }
    let digest = blake3::hash(name.as_bytes()).to_hex();
    let mut cut = MAX_COMPONENT - suffix.len() - 1 - KEPT_DIGITS;
    while !name.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}~{}{suffix}", &name[..cut], &digest[..KEPT_DIGITS])
}

/// Whether what [`beside`] puts before the suffix may have been shortened.
pub(crate) fn is_shortened(name: &str) -> bool {
    let hash = name.rsplit_once('~').map(|(_, hash)| hash);
    hash.is_some_and(|hash| {
        hash.len() == KEPT_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Hexadecimal digits of a long name's hash that its part file keeps: 128 bits.
const KEPT_DIGITS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hostile_name_is_refused_for_its_own_reason() {
        let long = "x".repeat(256);
        let path = "abcdefg/".repeat(512) + "x";
        let deep = "a/".repeat(255) + "a";
        for (name, why) in [
            ("", NameError::Empty),
            ("/etc/passwd", NameError::Absolute),
            ("//x", NameError::Absolute),
            ("a//b", NameError::EmptyComponent),
            ("a/", NameError::EmptyComponent),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            ("../x", NameError::Dots),
            ("a/../../x", NameError::Dots),
            ("a/./b", NameError::Dots),
            ("a/..", NameError::Dots),
            ("a\0b", NameError::Control),
            ("a\nb", NameError::Control),
            ("a\u{1b}[2Jb", NameError::Control),
            ("a\u{7f}", NameError::Control),
            ("a\u{9b}2J", NameError::Control),
            (long.as_str(), NameError::LongComponent),
            (path.as_str(), NameError::LongPath),
            (deep.as_str(), NameError::Deep),
            ("x.gtp-part", NameError::Reserved),
            (".gtp-journal", NameError::Reserved),
            ("x.gtp-part/y", NameError::Reserved),
        ] {
            assert_eq!(RelPath::new(name), Err(why), "{name:?}");
        }
        assert_eq!(RelPath::from_bytes(b"a\xff"), Err(NameError::NotUtf8));
    }

    #[test]
    fn ordinary_and_strange_but_harmless_names_pass() {
        for name in ["a", "a/b/c", "...", "..a", "a b", "-rf", "C:\\x", "naïve/日本", ".hidden"]
        {
            assert_eq!(RelPath::new(name).unwrap().as_str(), name);
        }
        assert!(RelPath::new(&"x".repeat(255)).is_ok());
        assert!(RelPath::new(&("a/".repeat(254) + "a")).is_ok());
    }

    #[test]
    fn display_shows_no_character_that_misleads() {
        let path = RelPath::new("a\u{202e}gpj.exe\\").unwrap();
        assert_eq!(path.to_string(), "a\\u{202e}gpj.exe\\\\");
        assert_eq!(escaped("\x1b[31m\n"), "\\u{1b}[31m\\n");
    }

    #[test]
    fn names_beside_a_long_name_fit_and_stay_distinct() {
        let (a, b) = ("é".repeat(127), "é".repeat(126) + "xy");
        let (pa, pb) = (beside(&a, JOURNAL_SUFFIX), beside(&b, JOURNAL_SUFFIX));
        assert!(pa.len() <= MAX_COMPONENT && pa.ends_with(JOURNAL_SUFFIX) && pa != pb);
        assert_eq!(beside("x", PART_SUFFIX), "x.gtp-part");
    }
}
