//! One file of patterns in git's way.
//!
//! The last pattern that matches decides. One with a slash within it is matched against the whole
//! path from the file's directory, one without against a name at any depth. `*`, `?` and `[…]`
//! match no slash; `**/`, `/**/` and `/**` stand for any number of directories.

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
pub struct Patterns(Vec<Pattern>);

#[derive(Debug, Clone)]
struct Pattern {
    says: Says,
    dirs_only: bool,
    parts: Vec<Part>,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// Any byte but a slash.
    One,
    /// Any bytes but slashes.
    Any,
    /// One of these bytes, or none of them; never a slash.
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// Any number of directories, each with its slash.
    Dirs,
    /// Everything that is left, one byte at least.
    Rest,
}

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
        let (says, rest) = match line.strip_prefix('!') {
            Some(rest) => (Says::Keep, rest),
            None => (Says::LeaveOut, line),
        };
        let (dirs_only, rest) = match rest.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let whole = rest.strip_prefix('/').unwrap_or(rest);
        let mut parts = match rest.contains('/') {
            true => Vec::new(),
            false => vec![Part::Dirs],
        };
        let read = read(whole.as_bytes(), &mut parts);
        read.map_err(|why| format!("{}: {why}", gtp_text::of_text(line)))?;
        self.0.push(Pattern { says, dirs_only, parts });
        Ok(())
    }

    /// What the file says of a path beneath its directory; `None` if no pattern matches.
    pub fn say(&self, path: &str, is_dir: bool) -> Option<Says> {
        let matches =
            |pattern: &&Pattern| (is_dir || !pattern.dirs_only) && pattern.matches(path.as_bytes());
        self.0.iter().rev().find(matches).map(|pattern| pattern.says)
    }
}

impl Pattern {
    /// Whether it describes a text. Takes time in proportion to the product of both.
    fn matches(&self, text: &[u8]) -> bool {
        // For each place in the text, whether the pattern so far ends there.
        let mut ends = vec![false; text.len() + 1];
        ends[0] = true;
        for part in &self.parts {
            ends = part.step(&ends, text);
        }
        ends[text.len()]
    }
}

impl Part {
    /// Where the pattern ends with this part, if it ends there without it.
    fn step(&self, ends: &[bool], text: &[u8]) -> Vec<bool> {
        let mut next = vec![false; ends.len()];
        let mut is_open = false;
        for (place, &here) in ends.iter().enumerate() {
            let byte = text.get(place).copied();
            match self {
                Part::Any => {
                    is_open |= here;
                    next[place] = is_open;
                    is_open &= byte != Some(b'/');
                }
                Part::Dirs => {
                    let is_after_dirs = is_open && place > 0 && text[place - 1] == b'/';
                    is_open |= here;
                    next[place] = here || is_after_dirs;
                }
                Part::Rest => {
                    next[place] = is_open;
                    is_open |= here;
                }
                Part::Byte(_) | Part::One | Part::Class { .. } => {
                    if byte.is_some_and(|byte| here && self.fits(byte)) {
                        next[place + 1] = true;
                    }
                }
            }
        }
        next
    }

    /// Whether a part that stands for one byte stands for this one.
    fn fits(&self, byte: u8) -> bool {
        match self {
            Part::Byte(own) => *own == byte,
            Part::One => byte != b'/',
            Part::Class { negated, ranges } => {
                let is_in = ranges.iter().any(|&(from, to)| (from..=to).contains(&byte));
                byte != b'/' && is_in != *negated
            }
            Part::Any | Part::Dirs | Part::Rest => false,
        }
    }
}

/// Reads the parts of a pattern.
fn read(pattern: &[u8], parts: &mut Vec<Part>) -> Result<(), &'static str> {
    let mut at = 0;
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
    Ok(())
}

/// Reads a class, with its brackets; its length as well.
fn class(text: &[u8]) -> Result<(usize, Part), &'static str> {
    let negated = matches!(text.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(negated);
    let (mut at, mut ranges) = (first, Vec::new());
    loop {
        let (from, length) = member(&text[at.min(text.len())..])?;
        if from == b']' && length == 1 && at > first {
            return Ok((at + 1, Part::Class { negated, ranges }));
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
        ranges.push((from, to));
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
        patterns.say(path.trim_end_matches('/'), path.ends_with('/')) == Some(Says::LeaveOut)
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
    fn what_is_no_pattern_is_refused() {
        for line in ["a\\", "[a", "[", "[b-a]", "[!", "[a-"] {
            assert!(Patterns::default().add(line).is_err(), "{line}");
        }
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
            prop_assert_eq!(own.say(&path, is_dir), other, "{:?} {}", lines, path);
        }

        #[test]
        fn any_line_ends_and_is_read_or_refused(line: String, path in "[a-z/.]{0,20}") {
            let mut patterns = Patterns::default();
            if patterns.add(&line).is_ok() {
                patterns.say(&path, false);
            }
        }
    }
}
