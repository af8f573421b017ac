//! Patterns of names, and lists of them in which the strongest that matches is found.
//!
//! A pattern is matched part by part against the set of places at which it may stand in the text,
//! so the work is at most its length times the text's, whatever it is; nothing is tried twice. In a
//! list, patterns that are plain names, plain paths or the end of a name are found by hash, and of
//! the others most are passed over for their first or last bytes. Work is counted in steps, because
//! patterns and names may both be a stranger's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The last component of a path.
    Name,
    /// The whole path.
    Path,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// This byte.
    Byte(u8),
    /// Any byte but a slash.
    One,
    /// Any bytes but slashes.
    Any,
    /// Any bytes.
    All,
    /// One of these bytes.
    Class(Box<Class>),
    /// Any number of directories, each with its slash.
    Dirs,
    /// Everything that is left, one byte at least.
    Rest,
}

/// Bytes for any of which a part may stand, one bit each: however long they are written down, to
/// look one up is one step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Class([u64; 4]);

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// The bytes with which a text must begin.
    head: Vec<u8>,
    /// What is between both; empty if the pattern is a plain text.
    parts: Vec<Part>,
    /// The bytes with which it must end.
    tail: Vec<u8>,
}

/// Patterns, each with a rank of its own, that may be for directories alone.
#[derive(Debug, Clone, Default)]
pub struct Globs {
    names: HashMap<Vec<u8>, Ranks>,
    paths: HashMap<Vec<u8>, Ranks>,
    /// Ends of names behind a `*`, and their lengths.
    ends: HashMap<Vec<u8>, Ranks>,
    lengths: BTreeSet<usize>,
    others: BTreeMap<u32, Other>,
}

/// Steps of comparing texts with patterns.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Those that were taken.
    pub taken: u64,
    /// Those that may be.
    pub most: u64,
}

impl Steps {
    /// Any number may be taken.
    pub fn unbounded() -> Steps {
        Steps { taken: 0, most: u64::MAX }
    }

    /// Whether more were taken than may be.
    pub fn are_too_many(&self) -> bool {
        self.taken > self.most
    }
}

impl Class {
    /// Adds the bytes from the first to the last one, if that is not before the first.
    pub fn add(&mut self, from: u8, to: u8) {
        for (word, first) in self.0.iter_mut().zip([0, 64, 128, 192]) {
            let (from, to) = (from.max(first), to.min(first + 63));
            if from <= to {
                *word |= (u64::MAX >> (63 - (to - from))) << (from - first);
            }
        }
    }

    /// The part that stands for one of these bytes or, `negated`, for one of all others. It stands
    /// for no slash.
    pub fn part(mut self, negated: bool) -> Part {
        if negated {
            self.0 = self.0.map(|word| !word);
        }
        let (word, bit) = Class::place(b'/');
        self.0[word] &= !bit;
        Part::Class(Box::new(self))
    }

    fn has(&self, byte: u8) -> bool {
        let (word, bit) = Class::place(byte);
        self.0[word] & bit != 0
    }

    /// The word in which a byte has its bit, and that bit.
    fn place(byte: u8) -> (usize, u64) {
        (usize::from(byte / 64), 1 << (byte % 64))
    }
}

/// Bytes that are hashed, compared or cleared in about the time of a step.
const BYTES_OF_STEP: usize = 16;

/// The highest ranks of equal patterns.
#[derive(Debug, Clone, Copy, Default)]
struct Ranks {
    of_all: Option<u32>,
    of_dirs: Option<u32>,
}

#[derive(Debug, Clone)]
struct Other {
    glob: Glob,
    of: Of,
    dirs_only: bool,
}

impl Globs {
    /// Adds a pattern. No other one may have its rank.
    pub fn add(&mut self, (of, parts): (Of, Vec<Part>), dirs_only: bool, rank: u32) {
        let glob = Glob::new(parts);
        let map = match (of, &glob.parts[..]) {
            (Of::Name, []) => Some((&mut self.names, glob.head.clone())),
            (Of::Path, []) => Some((&mut self.paths, glob.head.clone())),
            (Of::Name, [Part::Any]) if glob.head.is_empty() => {
                self.lengths.insert(glob.tail.len());
                Some((&mut self.ends, glob.tail.clone()))
            }
            (Of::Name | Of::Path, _) => None,
        };
        match map {
            Some((map, key)) => map.entry(key).or_default().add(dirs_only, rank),
            None => drop(self.others.insert(rank, Other { glob, of, dirs_only })),
        }
    }

    /// The highest rank of the patterns that match a path. Adds to `steps` what that took; what is
    /// returned means nothing once they are too many.
    pub fn find(&self, path: &str, is_dir: bool, steps: &mut Steps) -> Option<u32> {
        let path = path.as_bytes();
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        steps.taken += of_bytes(path.len());
        let of_name = self.names.get(name).and_then(|ranks| ranks.best(is_dir));
        let of_path = self.paths.get(path).and_then(|ranks| ranks.best(is_dir));
        let best = of_name.max(of_path).max(self.find_end(name, is_dir, steps));
        let from = best.map_or(0, |rank| rank.saturating_add(1));
        let matches = |other: &Other, steps: &mut Steps| {
            let text = if other.of == Of::Name { name } else { path };
            (is_dir || !other.dirs_only) && other.glob.matches(text, steps)
        };
        for (rank, other) in self.others.range(from..).rev() {
            steps.taken += 1;
            if steps.are_too_many() {
                return None;
            }
            if matches(other, steps) {
                return Some(*rank);
            }
        }
        best
    }

    /// The same of patterns that are the end of a name.
    fn find_end(&self, name: &[u8], is_dir: bool, steps: &mut Steps) -> Option<u32> {
        let mut best = None;
        for &length in self.lengths.range(..=name.len()) {
            steps.taken += of_bytes(length);
            let ranks = self.ends.get(&name[name.len() - length..]);
            best = best.max(ranks.and_then(|ranks| ranks.best(is_dir)));
        }
        best
    }
}

impl Ranks {
    fn add(&mut self, dirs_only: bool, rank: u32) {
        let own = if dirs_only { &mut self.of_dirs } else { &mut self.of_all };
        *own = (*own).max(Some(rank));
    }

    fn best(&self, is_dir: bool) -> Option<u32> {
        match is_dir {
            true => self.of_all.max(self.of_dirs),
            false => self.of_all,
        }
    }
}

impl Glob {
    /// A pattern of these parts.
    pub fn new(mut parts: Vec<Part>) -> Glob {
        let byte = |part: &Part| if let Part::Byte(byte) = part { Some(*byte) } else { None };
        let head: Vec<u8> = parts.iter().map_while(byte).collect();
        parts.drain(..head.len());
        let mut tail: Vec<u8> = parts.iter().rev().map_while(byte).collect();
        parts.truncate(parts.len() - tail.len());
        tail.reverse();
        Glob { head, parts, tail }
    }

    /// Whether it describes a text. Adds to `steps` what that took: at most the product of the
    /// pattern's length and the text's with its end, and a step for 16 bytes of each.
    pub fn matches(&self, text: &[u8], steps: &mut Steps) -> bool {
        steps.taken += ((self.head.len() + self.tail.len()) / BYTES_OF_STEP) as u64;
        let middle = text.strip_prefix(&*self.head);
        let Some(text) = middle.and_then(|text| text.strip_suffix(&*self.tail)) else {
            return false;
        };
        if self.parts.is_empty() {
            return text.is_empty();
        }
        let mut places = Places::new(text, steps);
        for part in &self.parts {
            if !places.take(part, steps) {
                return false;
            }
        }
        places.is_at_end()
    }
}

/// Steps of hashing so many bytes.
fn of_bytes(number: usize) -> u64 {
    1 + (number / BYTES_OF_STEP) as u64
}

/// The places in a text at which a pattern may stand.
struct Places<'a> {
    text: &'a [u8],
    /// Of each place, whether it is one of them.
    are: Vec<bool>,
    /// The first and the last of them.
    first: usize,
    last: usize,
}

impl Places<'_> {
    fn new<'a>(text: &'a [u8], steps: &mut Steps) -> Places<'a> {
        steps.taken += (text.len() / BYTES_OF_STEP) as u64;
        let mut are = vec![false; text.len() + 1];
        are[0] = true;
        Places { text, are, first: 0, last: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.are[self.text.len()]
    }

    /// Goes on by a part; whether any place is left.
    fn take(&mut self, part: &Part, steps: &mut Steps) -> bool {
        let end = match part {
            Part::Byte(_) | Part::One | Part::Class(_) => self.take_byte(part),
            Part::Any => self.open(|open, here, _| (open || here, open || here), Some(b'/')),
            Part::All => self.open(|open, here, _| (open || here, open || here), None),
            Part::Dirs => self.open(
                |open, here, before| (here || open && before == Some(b'/'), open || here),
                None,
            ),
            Part::Rest => self.open(|open, here, _| (open, open || here), None),
        };
        steps.taken += (end + 1 - self.first) as u64;
        self.last = end;
        while self.first < self.last && !self.are[self.first] {
            self.first += 1;
        }
        while self.first < self.last && !self.are[self.last] {
            self.last -= 1;
        }
        self.are[self.first]
    }

    /// Goes on by a part that stands for one byte. Returns the last place that was looked at.
    fn take_byte(&mut self, part: &Part) -> usize {
        for place in (self.first..=self.last).rev() {
            if let Some(&byte) = self.text.get(place) {
                self.are[place + 1] = self.are[place] && part.fits(byte);
            }
        }
        self.are[self.first] = false;
        (self.last + 1).min(self.text.len())
    }

    /// Goes on by a part that stands for any number of bytes: `of` says of each place, from whether
    /// the part has begun before, whether it may begin here, and the byte before, whether it may
    /// end here, and whether it has begun now. Returns the last place that was looked at.
    fn open(
        &mut self,
        of: impl Fn(bool, bool, Option<u8>) -> (bool, bool),
        stops_at: Option<u8>,
    ) -> usize {
        let mut is_open = false;
        let mut before = None;
        for place in self.first..=self.text.len() {
            (self.are[place], is_open) = of(is_open, self.are[place], before);
            before = self.text.get(place).copied();
            is_open &= stops_at.is_none() || before != stops_at;
            if !is_open && place >= self.last {
                return place;
            }
        }
        self.text.len()
    }
}

impl Part {
    /// Whether a part that stands for one byte stands for this one.
    fn fits(&self, byte: u8) -> bool {
        match self {
            Part::Byte(own) => *own == byte,
            Part::One => byte != b'/',
            Part::Class(class) => class.has(byte),
            Part::Any | Part::All | Part::Dirs | Part::Rest => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the parts mean, said in the simplest way.
    fn simple(parts: &[Part], text: &[u8]) -> bool {
        let Some((part, rest)) = parts.split_first() else { return text.is_empty() };
        let mut cuts = 0..=text.len();
        match part {
            Part::Byte(_) | Part::One | Part::Class(_) => {
                text.first().is_some_and(|&byte| part.fits(byte) && simple(rest, &text[1..]))
            }
            Part::Any => cuts.any(|cut| !text[..cut].contains(&b'/') && simple(rest, &text[cut..])),
            Part::All => cuts.any(|cut| simple(rest, &text[cut..])),
            Part::Dirs => {
                cuts.any(|cut| matches!(text[..cut], [] | [.., b'/']) && simple(rest, &text[cut..]))
            }
            Part::Rest => cuts.any(|cut| cut > 0 && simple(rest, &text[cut..])),
        }
    }

    fn part() -> impl Strategy<Value = Part> {
        let class = |negated| {
            let mut class = Class::default();
            class.add(b'a', b'b');
            class.part(negated)
        };
        prop_oneof![
            4 => prop::sample::select(b"ab/".to_vec()).prop_map(Part::Byte),
            1 => Just(Part::One),
            2 => Just(Part::Any),
            1 => Just(Part::All),
            1 => any::<bool>().prop_map(class),
            1 => Just(Part::Dirs),
            1 => Just(Part::Rest),
        ]
    }

    fn parts() -> impl Strategy<Value = Vec<Part>> {
        prop::collection::vec(part(), 0..6)
    }

    proptest! {
        #[test]
        fn a_class_has_the_bytes_of_its_ranges_or_all_others_and_no_slash(
            ranges in prop::collection::vec(any::<(u8, u8)>(), 0..4), negated: bool,
        ) {
            let mut class = Class::default();
            ranges.iter().for_each(|&(from, to)| class.add(from, to));
            let part = class.part(negated);
            for byte in 0..=u8::MAX {
                let is_in = ranges.iter().any(|&(from, to)| (from..=to).contains(&byte));
                prop_assert_eq!(part.fits(byte), byte != b'/' && is_in != negated, "{}", byte);
            }
        }

        #[test]
        fn a_pattern_matches_what_the_simplest_reader_says(
            parts in parts(), text in "[abc/]{0,8}",
        ) {
            let mut steps = Steps::unbounded();
            let own = Glob::new(parts.clone()).matches(text.as_bytes(), &mut steps);
            prop_assert_eq!(own, simple(&parts, text.as_bytes()));
            prop_assert!(steps.taken <= (parts.len() * (text.len() + 1)) as u64);
        }

        #[test]
        fn in_a_list_the_highest_rank_of_all_that_match_is_found(
            list in prop::collection::vec((any::<bool>(), parts(), any::<bool>()), 0..8),
            path in "[abc](/?[abc]){0,4}",
            is_dir: bool,
        ) {
            let of = |is_name| if is_name { Of::Name } else { Of::Path };
            let name = path.rsplit('/').next().unwrap();
            let mut globs = Globs::default();
            let mut best = None;
            for (rank, (is_name, parts, dirs_only)) in list.into_iter().enumerate() {
                let text = if is_name { name } else { &path };
                if simple(&parts, text.as_bytes()) && (is_dir || !dirs_only) {
                    best = Some(rank as u32);
                }
                globs.add((of(is_name), parts), dirs_only, rank as u32);
            }
            prop_assert_eq!(globs.find(&path, is_dir, &mut Steps::unbounded()), best);
        }
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_more_than_the_product_of_both_lengths() {
        let mut parts: Vec<Part> = (0..500).flat_map(|_| [Part::Any, Part::Byte(b'a')]).collect();
        parts.extend([Part::Any, Part::Byte(b'b'), Part::One]);
        let (glob, text) = (Glob::new(parts.clone()), vec![b'a'; 4_000]);
        let mut steps = Steps::unbounded();
        assert!(!glob.matches(&text, &mut steps));
        let most = (parts.len() * (text.len() + 1)) as u64;
        assert!((1..=most).contains(&steps.taken), "{} steps of {most}", steps.taken);
    }

    #[test]
    fn long_texts_and_ends_of_names_are_counted_by_their_bytes() {
        let steps_of = |find: &dyn Fn(&mut Steps)| {
            let mut steps = Steps::unbounded();
            find(&mut steps);
            steps.taken
        };
        let mut globs = Globs::default();
        for length in 1..=200 {
            let end = std::iter::repeat_n(Part::Byte(b'b'), length);
            let parts = std::iter::once(Part::Any).chain(end).collect();
            globs.add((Of::Name, parts), false, length as u32);
        }
        let name = "a".repeat(255);
        let taken = steps_of(&|steps| assert_eq!(globs.find(&name, false, steps), None));
        let hashed: usize = (1..=200).sum();
        assert!(taken >= (hashed / 16) as u64, "{taken} steps for {hashed} bytes");
        // A part that fits nowhere ends the work at once; the places were set up before.
        let glob = Glob::new(vec![Part::One]);
        let taken = steps_of(&|steps| assert!(!glob.matches(&[b'/'; 4_000], steps)));
        assert!(taken >= 4_000 / 16, "{taken}");
    }

    #[test]
    fn plain_names_paths_and_ends_take_a_few_steps_however_many_they_are() {
        let mut globs = Globs::default();
        let bytes = |text: String| text.into_bytes().into_iter().map(Part::Byte);
        for number in 0..30_000 {
            let parts = match number % 3 {
                0 => (Of::Name, bytes(format!("name{number}")).collect()),
                1 => (Of::Path, bytes(format!("a/path{number}")).collect()),
                _ => {
                    let end = bytes(format!(".{number:05}"));
                    (Of::Name, std::iter::once(Part::Any).chain(end).collect())
                }
            };
            globs.add(parts, false, number);
        }
        for (path, rank) in [
            ("d/name29997", Some(29_997)),
            ("a/path1", Some(1)),
            ("d/path1", None),
            ("d/x.29999", Some(29_999)),
            ("d/x.c", None),
        ] {
            let mut steps = Steps::unbounded();
            assert_eq!(globs.find(path, false, &mut steps), rank, "{path}");
            assert!(steps.taken < 10, "{path}: {} steps", steps.taken);
        }
    }
}
