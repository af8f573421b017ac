//! The hosts that ssh's configuration names.
//!
//! Only lines that name hosts or include other files are read; what else they say is ssh's own
//! business. A file that cannot be read names nothing.

use std::path::{Path, PathBuf};

/// Names behind `Host` in the user's file, or in the one that the program is given by `-F`, and in
/// the files that it includes. Patterns are left out.
pub fn hosts(ssh: &str) -> Vec<String> {
    let mut words = ssh.split_whitespace();
    let given = words.by_ref().find(|word| *word == "-F").and_then(|_| words.next());
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ssh"));
    let file = match given {
        Some(given) => PathBuf::from(given),
        None => match &home {
            Some(home) => home.join("config"),
            None => return Vec::new(),
        },
    };
    let mut found = Vec::new();
    read(&file, &home.unwrap_or_default(), DEPTH, &mut found);
    found
}

/// Includes within each other, as in OpenSSH.
const DEPTH: usize = 16;

fn read(file: &Path, home: &Path, depth: usize, found: &mut Vec<String>) {
    let Ok(text) = std::fs::read_to_string(file) else { return };
    for (key, values) in text.lines().filter_map(setting) {
        match &*key {
            "host" => {
                let is_name = |word: &&str| !word.contains(['*', '?', '!']);
                found.extend(values.iter().copied().filter(is_name).map(str::to_owned));
            }
            "include" if depth > 0 => {
                for value in values {
                    included(value, home).iter().for_each(|at| read(at, home, depth - 1, found));
                }
            }
            _ => {}
        }
    }
}

/// The files that a pattern behind `Include` stands for.
fn included(pattern: &str, home: &Path) -> Vec<PathBuf> {
    let pattern = match pattern.strip_prefix("~/") {
        Some(rest) => home.parent().unwrap_or(home).join(rest),
        None => home.join(pattern),
    };
    let files = pattern.to_str().and_then(|pattern| glob::glob(pattern).ok());
    files.into_iter().flatten().flatten().collect()
}

/// The keyword of a line, in small letters, and its values.
fn setting(line: &str) -> Option<(String, Vec<&str>)> {
    let line = line.trim();
    let end = line.find(|c: char| c.is_whitespace() || c == '=')?;
    let values = line[end..].trim_start_matches(|c: char| c.is_whitespace() || c == '=');
    let values = values.split_whitespace().map(|word| word.trim_matches('"'));
    Some((line[..end].to_ascii_lowercase(), values.take_while(|w| !w.starts_with('#')).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_through_includes_and_patterns_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("config"), "# Host no\nHost a b *.c !d # x\n HostName h\nhost=\"e\"\n")
            .unwrap();
        let more = format!("Include {}\nInclude {}\nHost f\n", at("conf*").display(), "none");
        std::fs::write(at("main"), more).unwrap();
        std::fs::write(at("circle"), format!("Include {}\nHost g\n", at("circle").display()))
            .unwrap();
        let from = |name: &str| hosts(&format!("ssh -p 22 -F {}", at(name).display()));
        assert_eq!(from("main"), ["a", "b", "e", "f"]);
        assert_eq!(from("circle").len(), DEPTH + 1);
        assert!(from("none").is_empty());
    }
}
