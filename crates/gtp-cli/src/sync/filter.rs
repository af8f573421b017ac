//! Which names take part: rules as rsync has them, of which the first that matches decides.
//!
//! A pattern with a slash before its end is compared with the end of the whole path, or from its
//! beginning if the slash comes first; one without is compared with the last component. A slash at
//! the end is for directories alone. `*` and `?` match no slash, `**` does. What is in a directory
//! that is left out is left out.

use std::collections::HashSet;
use std::path::Path;

use gtp::replica::Node;
use gtp::{Failure, FailureKind};

use super::ignored::Ignored;
use super::plan::ancestors;

/// Rules in their order.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    rules: Vec<Rule>,
    /// Paths that take part, with all beneath them; all if `None`.
    only: Option<HashSet<String>>,
    /// What files in the source leave out, where no rule decides.
    ignored: Ignored,
}

#[derive(Debug, Clone)]
struct Rule {
    includes: bool,
    pattern: Vec<u8>,
    dirs_only: bool,
    is_anchored: bool,
    has_slash: bool,
}

/// Nodes that take part, and directories that hold others.
#[derive(Debug, Default)]
pub struct Parted {
    /// What takes part.
    pub nodes: Vec<Node>,
    /// Directories in which something does not.
    pub protected: HashSet<String>,
}

impl Filter {
    /// Adds a rule for a pattern that leaves out.
    pub fn exclude(&mut self, pattern: &str) {
        self.add(false, pattern);
    }

    /// Adds a rule for a pattern that takes in.
    pub fn include(&mut self, pattern: &str) {
        self.add(true, pattern);
    }

    /// Adds a rule as `--filter` has it: `+ PATTERN` or `- PATTERN`.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] for another form.
    pub fn rule(&mut self, text: &str) -> Result<(), Failure> {
        match text.split_once(' ') {
            Some(("-" | "exclude", pattern)) if !pattern.is_empty() => self.exclude(pattern),
            Some(("+" | "include", pattern)) if !pattern.is_empty() => self.include(pattern),
            _ => {
                let text =
                    format!("{text:?} is no filter: expected \"- PATTERN\" or \"+ PATTERN\"");
                return Err(Failure::new(FailureKind::Usage, text));
            }
        }
        Ok(())
    }

    /// Adds the rules of a file: one pattern a line that leaves out, or a filter; empty lines and
    /// those that begin with `#` or `;` are skipped.
    ///
    /// # Errors
    /// [`FailureKind::Usage`] if the file cannot be read.
    pub fn exclude_from(&mut self, file: &Path) -> Result<(), Failure> {
        for line in read(file)?.lines() {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if self.rule(line).is_err() {
                self.exclude(line);
            }
        }
        Ok(())
    }

    /// Lets only these paths take part, with all beneath them.
    pub fn only(&mut self, paths: impl IntoIterator<Item = String>) {
        let clean = |path: String| {
            let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
            parts.collect::<Vec<_>>().join("/")
        };
        self.only = Some(paths.into_iter().map(clean).collect());
    }

    /// Leaves out what these say where no rule decides.
    pub fn ignore(&mut self, ignored: Ignored) {
        self.ignored = ignored;
    }

    fn add(&mut self, includes: bool, pattern: &str) {
        let dirs_only = pattern.ends_with('/') && pattern.len() > 1;
        let bare = pattern.trim_end_matches('/');
        let is_anchored = bare.starts_with('/');
        let bare = bare.trim_start_matches('/');
        let has_slash = bare.contains('/') || bare.contains("**");
        let pattern = bare.as_bytes().to_vec();
        self.rules.push(Rule { includes, pattern, dirs_only, is_anchored, has_slash });
    }

    /// Nodes that are listed, or all if there is no list, whatever rules say of them.
    pub fn listed(&self, mut nodes: Vec<Node>) -> Vec<Node> {
        nodes.retain(|node| node.name().is_empty() || self.is_listed(node.name(), node.is_dir()));
        nodes
    }

    fn is_listed(&self, path: &str, is_dir: bool) -> bool {
        if let Some(only) = &self.only
            && !only.contains("")
        {
            let listed = ancestors(path).any(|part| only.contains(part));
            let leads = is_dir && {
                let prefix = format!("{path}/");
                only.iter().any(|listed| listed.starts_with(&prefix))
            };
            return listed || leads;
        }
        true
    }

    /// Whether a name takes part by itself.
    fn takes(&self, path: &str, is_dir: bool) -> bool {
        if !self.is_listed(path, is_dir) {
            return false;
        }
        let first = self.rules.iter().find(|rule| rule.matches(path, is_dir));
        match first {
            Some(rule) => rule.includes,
            None => !self.ignored.has(path, is_dir),
        }
    }

    /// Whether a path takes part, whatever it is of.
    pub fn takes_part(&self, path: &str) -> bool {
        self.takes(path, false) && ancestors(path).all(|part| self.takes(part, true))
    }

    /// Parts nodes, sorted or in the order of a walk, into those that take part and others.
    pub fn part(&self, nodes: Vec<Node>) -> Parted {
        let mut parted = Parted::default();
        let mut left_out: HashSet<String> = HashSet::new();
        for node in nodes {
            let path = node.name();
            let holder = path.rsplit_once('/').map_or("", |(holder, _)| holder);
            let takes =
                path.is_empty() || !left_out.contains(holder) && self.takes(path, node.is_dir());
            if takes {
                parted.nodes.push(node);
                continue;
            }
            parted.protected.extend(ancestors(path).skip(1).map(str::to_owned));
            if node.is_dir() {
                left_out.insert(path.to_owned());
            }
        }
        parted
    }
}

impl Rule {
    fn matches(&self, path: &str, is_dir: bool) -> bool {
        if self.dirs_only && !is_dir {
            return false;
        }
        let path = path.as_bytes();
        if self.is_anchored {
            return matches(&self.pattern, path);
        }
        if !self.has_slash {
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
            return matches(&self.pattern, name);
        }
        let starts = path.iter().enumerate().filter(|&(_, &b)| b == b'/').map(|(at, _)| at + 1);
        [0].into_iter().chain(starts).any(|start| matches(&self.pattern, &path[start..]))
    }
}

/// Whether a text is what a pattern describes. Takes time in proportion to the product of both.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // For each place in the text, whether the pattern so far ends there.
    let mut ends = vec![false; text.len() + 1];
    ends[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let (length, step) = step(&pattern[at..]);
        let mut next = vec![false; text.len() + 1];
        match step {
            Step::Any { slashes } => {
                let mut open = false;
                for place in 0..=text.len() {
                    open |= ends[place];
                    next[place] = open;
                    open &= place == text.len() || slashes || text[place] != b'/';
                }
            }
            Step::One(fits) => {
                for place in 0..text.len() {
                    next[place + 1] = ends[place] && fits(text[place]);
                }
            }
        }
        ends = next;
        at += length;
    }
    ends[text.len()]
}

/// Whether one byte fits.
type Fits<'a> = Box<dyn Fn(u8) -> bool + 'a>;

enum Step<'a> {
    Any { slashes: bool },
    One(Fits<'a>),
}

/// The first step of a pattern and its length.
fn step(pattern: &[u8]) -> (usize, Step<'_>) {
    match pattern {
        [b'*', b'*', ..] => (2, Step::Any { slashes: true }),
        [b'*', ..] => (1, Step::Any { slashes: false }),
        [b'?', ..] => (1, Step::One(Box::new(|b| b != b'/'))),
        [b'\\', literal, ..] => (2, Step::One(Box::new(move |b| b == *literal))),
        [b'[', rest @ ..] => match class(rest) {
            Some((length, fits)) => (length + 1, Step::One(fits)),
            None => (1, Step::One(Box::new(|b| b == b'['))),
        },
        [literal, ..] => (1, Step::One(Box::new(move |b| b == *literal))),
        [] => (1, Step::One(Box::new(|_| false))),
    }
}

/// What a class in brackets matches, and its length with the closing one.
fn class(rest: &[u8]) -> Option<(usize, Fits<'_>)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let body = &rest[usize::from(negated)..];
    let end = body.iter().skip(1).position(|&b| b == b']')? + 1;
    let members = &body[..end];
    let fits = move |b: u8| {
        let mut at = 0;
        let mut found = false;
        while at < members.len() {
            match members[at..] {
                [from, b'-', to, ..] => {
                    found |= (from..=to).contains(&b);
                    at += 3;
                }
                [one, ..] => {
                    found |= one == b;
                    at += 1;
                }
                [] => break,
            }
        }
        found != negated && b != b'/'
    };
    Some((usize::from(negated) + end + 1, Box::new(fits)))
}

/// Reads a file of rules or names, `-` being standard input.
///
/// # Errors
/// [`FailureKind::Usage`] if it cannot be read as text.
pub fn read(file: &Path) -> Result<String, Failure> {
    let text = match file.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin().lock()),
        false => std::fs::read_to_string(file),
    };
    text.map_err(|error| {
        let shown = gtp_text::of_text(&file.to_string_lossy());
        Failure::new(FailureKind::Usage, format!("{shown}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use gtp::replica::NodeKind;
    use gtp::{Mtime, RelPath};
    use proptest::prelude::*;

    use super::*;

    fn takes(rules: &[&str], path: &str) -> bool {
        let mut filter = Filter::default();
        for rule in rules {
            filter.rule(rule).unwrap();
        }
        let (path, is_dir) = match path.strip_suffix('/') {
            Some(dir) => (dir, true),
            None => (path, false),
        };
        filter.takes(path, is_dir)
    }

    #[test]
    fn patterns_mean_what_they_mean_to_rsync() {
        for (rule, path, left_out) in [
            ("- *.o", "a/b.o", true),
            ("- *.o", "a/b.c", false),
            ("- b", "a/b", true),
            ("- /b", "a/b", false),
            ("- /a/b", "a/b", true),
            ("- b/", "a/b", false),
            ("- b/", "a/b/", true),
            ("- x/y", "a/x/y", true),
            ("- x/*", "a/x/y", true),
            ("- x/*", "a/x/y/z", false),
            ("- x/**", "a/x/y/z", true),
            ("- **/z", "a/x/z", true),
            ("- ?", "ab", false),
            ("- [a-c]x", "bx", true),
            ("- [!a-c]x", "bx", false),
            ("- \\*", "*", true),
            ("- \\*", "x", false),
            ("- [", "[", true),
        ] {
            assert_eq!(takes(&[rule], path), !left_out, "{rule} {path}");
        }
        assert!(takes(&["+ keep.o", "- *.o"], "keep.o"), "the first that matches decides");
        assert!(!takes(&["- *.o", "+ keep.o"], "keep.o"));
        assert!(Filter::default().rule("*.o").is_err() && Filter::default().rule("- ").is_err());
    }

    fn nodes(paths: &[&str]) -> Vec<Node> {
        let node = |path: &&str| Node {
            path: RelPath::new(path.trim_end_matches('/')).ok(),
            kind: if path.ends_with('/') { NodeKind::Dir } else { NodeKind::File },
            size: 0,
            mode: 0o644,
            mtime: Mtime::new(0, 0).unwrap(),
            uid: 0,
            gid: 0,
            same: None,
            hash: None,
            xattrs: Vec::new(),
        };
        paths.iter().map(node).collect()
    }

    #[test]
    fn what_is_in_a_directory_that_is_left_out_is_too_and_protects_those_above() {
        let mut filter = Filter::default();
        filter.exclude("cache/");
        let parted = filter.part(nodes(&["a/", "a/cache/", "a/cache/x", "a/cached", "b"]));
        let names: Vec<&str> = parted.nodes.iter().map(Node::name).collect();
        assert_eq!(names, ["a", "a/cached", "b"]);
        assert!(parted.protected.contains("a"));
    }

    #[test]
    fn only_named_paths_take_part_with_the_way_to_them_and_all_beneath() {
        let mut filter = Filter::default();
        filter.only(["./a/b".to_owned(), "d/".to_owned()]);
        let parted = filter.part(nodes(&["a/", "a/b/", "a/b/c", "a/x", "d/", "d/e", "f"]));
        let names: Vec<&str> = parted.nodes.iter().map(Node::name).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "d", "d/e"]);
    }

    proptest! {
        #[test]
        fn any_pattern_ends_and_a_text_matches_itself(pattern: Vec<u8>, text in "[a-z/.]{0,20}") {
            let _ = matches(&pattern, text.as_bytes());
            prop_assert!(matches(text.as_bytes(), text.as_bytes()));
        }
    }
}
