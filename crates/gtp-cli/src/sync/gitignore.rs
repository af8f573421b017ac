//! One file of patterns in git's way.
//!
//! The last pattern that matches decides. One with a slash within it is matched against the whole
//! path from the file's directory, one without against a name at any depth. `*`, `?` and `[…]`
//! match no slash; `**/`, `/**/` and `/**` stand for any number of directories.

use super::globs::{Class, Globs, Of, Part, Steps};

/// What a file says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// It is left out.
    LeaveOut,
    /// It takes part, whatever a weaker file says.
    Keep,
}

/// The patterns of one file.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// What each says.
    says: Vec<Says>,
    /// Each under its position: the last one that matches decides.
    globs: Globs,
}

/// Longest pattern in bytes: a path is no longer.
pub const LENGTH_MAX: usize = 4_096;

/// Most patterns of one file.
pub const PATTERNS_MAX: usize = 65_536;

impl Patterns {
    /// Takes in a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.len() > LENGTH_MAX {
            let begin: String = line.chars().take(SHOWN_MAX).collect();
            let begin = gtp_text::of_text(&begin);
            return Err(format!("{begin}…: a pattern longer than {LENGTH_MAX} bytes"));
        }
        if self.says.len() >= PATTERNS_MAX {
            return Err(too_many());
        }
        let (says, rest) = match line.strip_prefix('!') {
            Some(rest) => (Says::Keep, rest),
            None => (Says::LeaveOut, line),
        };
        let (dirs_only, rest) = match rest.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let of = if rest.contains('/') { Of::Path } else { Of::Name };
        let whole = rest.strip_prefix('/').unwrap_or(rest);
        let parts = read(whole.as_bytes());
        let parts = parts.map_err(|why| format!("{}: {why}", gtp_text::of_text(line)))?;
        let rank = u32::try_from(self.says.len()).map_err(|_| too_many())?;
        self.says.push(says);
        self.globs.add((of, parts), dirs_only, rank);
        Ok(())
    }

    /// What the file says of a path beneath its directory; `None` if no pattern matches. Adds to
    /// `steps` what that took.
    pub fn say(&self, path: &str, is_dir: bool, steps: &mut Steps) -> Option<Says> {
        let last = self.globs.find(path, is_dir, steps)?;
        self.says.get(last as usize).copied()
    }
}

fn too_many() -> String {
    format!("more than {PATTERNS_MAX} patterns")
}

/// Characters of a pattern that is too long that are shown.
const SHOWN_MAX: usize = 40;

/// Reads the parts of a pattern.
fn read(pattern: &[u8]) -> Result<Vec<Part>, &'static str> {
    let (mut at, mut parts) = (0, Vec::new());
    while let Some(&byte) = pattern.get(at) {
        let rest = &pattern[at..];
        let begins = at == 0 || pattern[at - 1] == b'/';
        let (length, part) = match rest {
            [b'*', b'*', b'/', ..] if begins => (3, Part::Dirs),
            [b'*', b'*'] if begins => (2, Part::Rest),
            [b'*', ..] => (1, Part::Any),
            [b'?', ..] => (1, Part::One),
            [b'\\'] => return Err("nothing follows the backslash"),
            [b'\\', literal, ..] => (2, Part::Byte(*literal)),
            [b'[', ..] => class(rest)?,
            _ => (1, Part::Byte(byte)),
        };
        parts.push(part);
        at += length;
    }
    Ok(parts)
}

/// Reads a class, with its brackets; its length as well.
fn class(text: &[u8]) -> Result<(usize, Part), &'static str> {
    let negated = matches!(text.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(negated);
    let (mut at, mut class) = (first, Class::default());
    loop {
        let (from, length) = member(&text[at.min(text.len())..])?;
        if from == b']' && length == 1 && at > first {
            return Ok((at + 1, class.part(negated)));
        }
        at += length;
        let to = match text.get(at..) {
            Some([b'-', end, ..]) if *end != b']' => {
                let (to, length) = member(&text[at + 1..])?;
                at += 1 + length;
                to
            }
            _ => from,
        };
        if to < from {
            return Err("a range ends before it begins");
        }
        class.add(from, to);
    }
}

/// A byte of a class, and how many it takes.
fn member(text: &[u8]) -> Result<(u8, usize), &'static str> {
    match text {
        [b'\\', literal, ..] => Ok((*literal, 2)),
        [byte, ..] => Ok((*byte, 1)),
        [] => Err("a bracket is not closed"),
    }
}

#[cfg(test)]
mod tests {
    use ignore::Match;
    use ignore::gitignore::GitignoreBuilder;
    use proptest::prelude::*;

    use super::*;

    fn leaves_out(lines: &[&str], path: &str) -> bool {
        let mut patterns = Patterns::default();
        lines.iter().for_each(|line| patterns.add(line).unwrap());
        patterns.say(path.trim_end_matches('/'), path.ends_with('/'), &mut Steps::unbounded())
            == Some(Says::LeaveOut)
    }

    #[test]
    fn patterns_mean_what_gits_manual_says() {
        for (line, fits, others) in [
            ("*.o", &["a.o", "d/a.o", ".o"][..], &["a.c", "a.o/b"][..]),
            ("/a", &["a", "a/"], &["d/a"]),
            ("d/", &["d/", "e/d/"], &["d", "e/d"]),
            ("d/a", &["d/a"], &["e/d/a"]),
            ("**/a", &["a", "d/a", "d/e/a"], &["ba"]),
            ("**/d/a", &["d/a", "e/d/a"], &["e/a"]),
            ("d/**", &["d/a", "d/e/a"], &["d", "d/"]),
            ("/**", &["a", "d/a"], &[]),
            ("d/**/a", &["d/a", "d/e/a", "d/e/f/a"], &["a", "d/ba"]),
            ("a**b", &["ab", "axb"], &["a/b"]),
            ("a?b", &["axb"], &["a/b", "ab"]),
            ("[a-c]x", &["ax", "cx"], &["dx"]),
            ("[!a]x", &["bx"], &["ax", "/x"]),
            ("[]-]", &["]", "-"], &["a"]),
            ("\\#a", &["#a"], &["a"]),
            ("\\!a", &["!a"], &["a"]),
            ("a\\ ", &["a "], &["a"]),
            ("a  ", &["a"], &["a  "]),
            ("\\*", &["*"], &["a"]),
        ] {
            fits.iter().for_each(|path| assert!(leaves_out(&[line], path), "{line} {path}"));
            others.iter().for_each(|path| assert!(!leaves_out(&[line], path), "{line} {path}"));
        }
        assert!(leaves_out(&["!a", "a"], "a") && !leaves_out(&["a", "!a"], "a"));
        assert!(!leaves_out(&["# a", "", "  "], "# a"));
    }

    #[test]
    fn a_class_is_no_more_work_if_it_is_written_down_longer() {
        for (long, short) in [
            (format!("*[{}]", "b".repeat(4_000)), "*[b]"),
            (format!("*[!{}x]", "a-c".repeat(1_000)), "*[!a-cx]"),
        ] {
            assert_eq!(read(long.as_bytes()), read(short.as_bytes()), "{short}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for line in ["a\\", "[a", "[", "[b-a]", "[!", "[a-"] {
            assert!(Patterns::default().add(line).is_err(), "{line}");
        }
    }

    #[test]
    fn patterns_that_are_too_long_or_too_many_are_refused() {
        let mut patterns = Patterns::default();
        assert_eq!(patterns.add(&"*".repeat(LENGTH_MAX)), Ok(()));
        let refused = patterns.add(&"*".repeat(LENGTH_MAX + 1)).unwrap_err();
        assert!(refused.contains("longer than 4096 bytes") && refused.len() < 100, "{refused}");
        (1..PATTERNS_MAX).for_each(|number| patterns.add(&number.to_string()).unwrap());
        assert_eq!(patterns.add("one"), Err("more than 65536 patterns".into()));
    }

    proptest! {
        #[test]
        fn patterns_say_what_another_reader_of_them_says(
            lines in proptest::collection::vec(
                "!?/?(a|b|\\.o|\\*|\\?|\\*\\*|/|\\[ab\\]|\\[!a\\]|\\[a-c\\]|\\\\\\*){1,6}/?", 1..4),
            path in "[abc*](/?[abco.*]){0,6}",
            is_dir: bool,
        ) {
            let (mut own, mut other) = (Patterns::default(), GitignoreBuilder::new(""));
            // What means nothing to git, each reads in its own way.
            let means = |line: &&String| {
                let bare = line.trim_start_matches('!').trim_matches('/');
                !bare.is_empty() && !line.contains("//") && !line.contains("***")
            };
            for line in lines.iter().filter(means) {
                own.add(line).unwrap();
                other.add_line(None, line).unwrap();
            }
            let other = match other.build().unwrap().matched(&path, is_dir) {
                Match::Ignore(_) => Some(Says::LeaveOut),
                Match::Whitelist(_) => Some(Says::Keep),
                Match::None => None,
            };
            let own = own.say(&path, is_dir, &mut Steps::unbounded());
            prop_assert_eq!(own, other, "{:?} {}", lines, path);
        }

        #[test]
        fn any_line_ends_and_is_read_or_refused(line: String, path in "[a-z/.]{0,20}") {
            let mut patterns = Patterns::default();
            if patterns.add(&line).is_ok() {
                patterns.say(&path, false, &mut Steps::unbounded());
            }
        }
    }
}
