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

use super::globs::{Class, Globs, Of, Part, Steps};
use super::ignored::Ignored;
use super::plan::ancestors;

/// Rules in their order.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of each rule, whether it takes in.
    rules: Vec<bool>,
    /// The patterns of the rules, the first with the highest rank.
    globs: Globs,
    /// Paths that take part, with all beneath them; all if `None`.
    only: Option<HashSet<String>>,
    /// The directories above them.
    leading: HashSet<String>,
    /// What files in the source leave out, where no rule decides.
    ignored: Ignored,
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
        let only: HashSet<String> = paths.into_iter().map(clean).collect();
        let above = only.iter().flat_map(|path| ancestors(path).skip(1));
        self.leading = above.map(str::to_owned).collect();
        self.only = Some(only);
    }

    /// Leaves out what these say where no rule decides.
    pub fn ignore(&mut self, ignored: Ignored) {
        self.ignored = ignored;
    }

    /// Checks that what [`Filter::ignore`] was given has judged all names.
    ///
    /// # Errors
    /// As [`Ignored::check`].
    pub fn check(&self) -> Result<(), Failure> {
        self.ignored.check()
    }

    fn add(&mut self, includes: bool, pattern: &str) {
        let dirs_only = pattern.ends_with('/') && pattern.len() > 1;
        let bare = pattern.trim_end_matches('/');
        let is_anchored = bare.starts_with('/');
        let bare = bare.trim_start_matches('/');
        let has_slash = bare.contains('/') || bare.contains("**");
        let mut parts = parts(bare.as_bytes());
        let of = if is_anchored || has_slash { Of::Path } else { Of::Name };
        if of == Of::Path && !is_anchored {
            parts.insert(0, Part::Dirs);
        }
        let rank = u32::MAX - u32::try_from(self.rules.len()).unwrap_or(u32::MAX);
        self.globs.add((of, parts), dirs_only, rank);
        self.rules.push(includes);
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
            return listed || is_dir && self.leading.contains(path);
        }
        true
    }

    /// Whether a name takes part by itself.
    fn takes(&self, path: &str, is_dir: bool) -> bool {
        if !self.is_listed(path, is_dir) {
            return false;
        }
        // Rules are the user's own, so nothing bounds the steps.
        let first = self.globs.find(path, is_dir, &mut Steps::unbounded());
        match first.and_then(|rank| self.rules.get((u32::MAX - rank) as usize)) {
            Some(includes) => *includes,
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

/// The parts of a pattern.
fn parts(mut pattern: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    while !pattern.is_empty() {
        let (length, part) = match pattern {
            [b'*', b'*', ..] => (2, Part::All),
            [b'*', ..] => (1, Part::Any),
            [b'?', ..] => (1, Part::One),
            [b'\\', literal, ..] => (2, Part::Byte(*literal)),
            [b'[', rest @ ..] => class(rest).unwrap_or((1, Part::Byte(b'['))),
            [literal, ..] => (1, Part::Byte(*literal)),
            [] => break,
        };
        parts.push(part);
        pattern = &pattern[length..];
    }
    parts
}

/// A class behind its opening bracket, and its length with both brackets; `None` if it has no end.
fn class(rest: &[u8]) -> Option<(usize, Part)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let body = &rest[usize::from(negated)..];
    let end = body.iter().skip(1).position(|&b| b == b']')? + 1;
    let (mut members, mut class) = (&body[..end], Class::default());
    while let [from, others @ ..] = members {
        match others {
            [b'-', to, others @ ..] => {
                class.add(*from, *to);
                members = others;
            }
            others => {
                class.add(*from, *from);
                members = others;
            }
        }
    }
    Some((usize::from(negated) + end + 2, class.part(negated)))
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

    use super::super::globs::Glob;
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
            let matches = |pattern: &[u8]| {
                Glob::new(parts(pattern)).matches(text.as_bytes(), &mut Steps::unbounded())
            };
            matches(&pattern);
            prop_assert!(matches(text.as_bytes()));
        }
    }
}
