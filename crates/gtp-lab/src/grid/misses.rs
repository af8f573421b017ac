//! Known misses: claims that do not hold yet, with how far each is off.
//!
//! They stand in a committed file, one to a line. A miss that is not there, or worse than what is
//! there, fails; a smaller one, or one that is gone, is said. Competing flows are chaotic, so that
//! any change of the protocol moves what they miss a little: worse is by more than a quarter, and
//! ten times counts as no less than a hundred times. Nobody edits the file: `--accept` writes it
//! from what was measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Cell, Claim};

/// What a claim is: the test, its cell, and its name.
pub type Key = (String, String, String);

/// Misses by claim: the factor by which each is off, in hundredths, and what was said of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Misses(BTreeMap<Key, (u64, String)>);

/// How a claim stands against what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds, and no miss was known.
    Holds,
    /// It holds, and the file knows a miss.
    HoldsNow,
    /// As it is known.
    Known,
    /// A smaller miss than is known.
    Better,
    /// A larger miss than is known.
    Worse,
    /// A miss that is not known.
    New,
}

impl Standing {
    /// Whether the grid fails by it.
    pub fn fails(self) -> bool {
        matches!(self, Standing::Worse | Standing::New)
    }

    /// Whether the claim holds.
    pub fn holds(self) -> bool {
        matches!(self, Standing::Holds | Standing::HoldsNow)
    }
}

impl Misses {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first line that is not one of such a file, by its number.
    pub fn read(text: &str) -> Result<Misses, String> {
        let mut misses = BTreeMap::new();
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
        for (line, number) in lines {
            let words: Vec<&str> = line.split('\t').collect();
            let [test, cell, claim, miss, said] = words[..] else {
                return Err(format!("line {number} has not five columns: {line:?}"));
            };
            let miss = hundredths(miss).ok_or_else(|| {
                format!("line {number}: {miss:?} is no factor from 1.00 to 10.00")
            })?;
            let key = (test.to_owned(), cell.to_owned(), claim.to_owned());
            misses.insert(key, (miss, said.to_owned()));
        }
        Ok(Misses(misses))
    }

    /// How a claim stands.
    pub fn standing(&self, test: &str, cell: Cell, claim: &Claim) -> Standing {
        let known = self.0.get(&key(test, cell, claim)).map(|(miss, _)| *miss);
        let miss = rounded(claim.miss());
        match (known, claim.holds()) {
            (None, true) => Standing::Holds,
            (Some(_), true) => Standing::HoldsNow,
            (None, false) => Standing::New,
            (Some(known), false) if 4 * miss > 5 * known => Standing::Worse,
            (Some(known), false) if 5 * miss < 4 * known => Standing::Better,
            (Some(_), false) => Standing::Known,
        }
    }

    /// Puts what was measured of a test on a cell in the place of what was known of it.
    pub fn accept(&mut self, test: &str, cell: Cell, claims: &[Claim]) {
        let name = cell.to_string();
        self.0.retain(|(of, at, _), _| (of.as_str(), at.as_str()) != (test, name.as_str()));
        for claim in claims.iter().filter(|claim| !claim.holds()) {
            let entry = (rounded(claim.miss()), claim.to_string());
            self.0.insert(key(test, cell, claim), entry);
        }
    }

    /// The file's text.
    pub fn written(&self) -> String {
        let mut text = HEAD.to_owned();
        for ((test, cell, claim), (miss, said)) in &self.0 {
            let (whole, part) = (miss / 100, miss % 100);
            let _ = writeln!(text, "{test}\t{cell}\t{claim}\t{whole}.{part:02}\t{said}");
        }
        text
    }
}

const HEAD: &str = "\
# Claims of `gtp-lab grid path` that do not hold, written by its --accept. Columns: test; cell
# (Mbit/s, round-trip time in ms, queue); claim; by what factor it is missed, 10 at most; what
# was measured in the worst of the starts.
";

fn key(test: &str, cell: Cell, claim: &Claim) -> Key {
    (test.to_owned(), cell.to_string(), claim.name.to_owned())
}

/// A factor in hundredths, upwards.
fn rounded(miss: f64) -> u64 {
    (miss.min(MISS_MOST) * 100.0).ceil() as u64
}

/// A miss by more than this factor counts as by this.
const MISS_MOST: f64 = 10.0;

fn hundredths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
    let miss = whole.checked_mul(100)?.checked_add(part)?;
    (part < 100 && (100..=rounded(MISS_MOST)).contains(&miss)).then_some(miss)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell::read("100/40/1").expect("a cell")
    }

    #[test]
    fn a_worse_or_unknown_miss_fails_and_a_better_one_is_said() {
        let mut misses = Misses::default();
        let slow = Claim::least("use", 0.48, 0.96);
        assert_eq!(misses.standing("alone", cell(), &slow), Standing::New);
        misses.accept("alone", cell(), std::slice::from_ref(&slow));
        assert_eq!(misses.standing("alone", cell(), &slow), Standing::Known);
        let use_of = |value| Claim::least("use", value, 0.96);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.47)), Standing::Known);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.38)), Standing::Worse);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.65)), Standing::Better);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.97)), Standing::HoldsNow);
        assert_eq!(misses.standing("alone", cell(), &use_of(f64::NAN)), Standing::Worse);
        assert_eq!(misses.standing("start", cell(), &use_of(0.97)), Standing::Holds);
        assert!(Standing::Worse.fails() && Standing::New.fails() && !Standing::Better.fails());
        misses.accept("alone", cell(), &[use_of(0.001)]);
        assert_eq!(misses.standing("alone", cell(), &use_of(f64::NAN)), Standing::Known);
        misses.accept("alone", cell(), &[use_of(0.97)]);
        assert_eq!(misses, Misses::default());
    }

    #[test]
    fn a_written_file_reads_back_and_a_broken_one_is_named_by_its_line() {
        let mut misses = Misses::default();
        let claims = [Claim::most("loss", 0.004, 0.001), Claim::least("use", f64::NAN, 0.96)];
        misses.accept("alone", cell(), &claims);
        let text = misses.written();
        assert!(
            text.contains("alone\t100/40/1\tloss\t4.00\tloss 0.004 (at most 0.001)\n"),
            "{text}"
        );
        assert_eq!(Misses::read(&text), Ok(misses));
        assert!(Misses::read("# x\nalone 100").expect_err("refused").contains("line 2"));
        let refused = Misses::read("a\tb\tc\t1,2\td").expect_err("refused");
        assert!(refused.contains("1,2"), "{refused}");
    }
}
