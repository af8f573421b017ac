//! Known misses: claims that do not hold yet, with how far each is off.
//!
//! They stand in a committed file, one to a line. A miss that is not in the file fails, and so does
//! one that is worse than its entry; a smaller one, or one that is gone, is reported. Runs are
//! deterministic, so that worse has no slack beyond the rounding of the file. Nobody edits the
//! file: `--accept` writes it from what was measured.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::{Cell, Claim};

/// The key of a claim: its test, its cell and its name.
pub type Key = (String, String, String);

/// The known misses. Each has the factor by which its claim is off, and the claim in words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Misses(BTreeMap<Key, (Factor, String)>);

/// The factor by which a claim is missed, as the file writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Factor {
    /// So many hundredths, rounded up.
    Hundredths(u64),
    /// Nothing was measured, or nothing of what is asked for was there.
    Endless,
}

/// How a claim stands against what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It holds, and no miss is known.
    Holds,
    /// It holds, and the file knows a miss.
    HoldsNow,
    /// It is missed as is known.
    Known,
    /// It is missed by less than is known.
    Better,
    /// It is missed by more than is known.
    Worse,
    /// It is missed, and no miss is known.
    New,
}

impl Standing {
    /// Tells whether the grid fails by it.
    pub fn fails(self) -> bool {
        matches!(self, Standing::Worse | Standing::New)
    }

    /// Tells whether the claim holds.
    pub fn holds(self) -> bool {
        matches!(self, Standing::Holds | Standing::HoldsNow)
    }
}

impl Misses {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// A sentence that names the first line that is not one of such a file, by its number.
    pub fn read(text: &str) -> Result<Misses, String> {
        let mut misses = BTreeMap::new();
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
        for (line, number) in lines {
            let words: Vec<&str> = line.split('\t').collect();
            let [test, cell, claim, miss, said] = words[..] else {
                return Err(format!("line {number} has not five columns: {line:?}"));
            };
            let miss = Factor::read(miss).ok_or_else(|| {
                format!("line {number}: {miss:?} is no factor from 1.00 on, nor \"inf\"")
            })?;
            let key = (test.to_owned(), cell.to_owned(), claim.to_owned());
            misses.insert(key, (miss, said.to_owned()));
        }
        Ok(Misses(misses))
    }

    /// Returns how a claim stands.
    pub fn standing(&self, test: &str, cell: Cell, claim: &Claim) -> Standing {
        let known = self.0.get(&key(test, cell, claim)).map(|(miss, _)| *miss);
        let miss = Factor::of(claim);
        match (known, claim.holds()) {
            (None, true) => Standing::Holds,
            (Some(_), true) => Standing::HoldsNow,
            (None, false) => Standing::New,
            (Some(known), false) if miss > known => Standing::Worse,
            (Some(known), false) if miss < known => Standing::Better,
            (Some(_), false) => Standing::Known,
        }
    }

    /// Puts what was measured of a test on a cell in the place of what was known of it.
    pub fn accept(&mut self, test: &str, cell: Cell, claims: &[Claim]) {
        let name = cell.to_string();
        self.0.retain(|(of, at, _), _| (of.as_str(), at.as_str()) != (test, name.as_str()));
        for claim in claims.iter().filter(|claim| !claim.holds()) {
            let entry = (Factor::of(claim), claim.to_string());
            self.0.insert(key(test, cell, claim), entry);
        }
    }

    /// Returns the text of the file.
    pub fn written(&self) -> String {
        let mut text = HEAD.to_owned();
        for ((test, cell, claim), (miss, said)) in &self.0 {
            let _ = writeln!(text, "{test}\t{cell}\t{claim}\t{miss}\t{said}");
        }
        text
    }
}

const HEAD: &str = "\
# Claims of `gtp-lab grid path` that do not hold, written by its --accept. Columns: test; cell
# (Mbit/s, round-trip time in ms, queue); claim; by what factor it is missed, rounded
# up, or inf; what was measured in the worst of the starts.
";

fn key(test: &str, cell: Cell, claim: &Claim) -> Key {
    (test.to_owned(), cell.to_string(), claim.name.to_owned())
}

impl Factor {
    fn of(claim: &Claim) -> Factor {
        let miss = claim.miss();
        if miss.is_finite() {
            Factor::Hundredths((miss * 100.0).ceil() as u64)
        } else {
            Factor::Endless
        }
    }

    /// Reads a factor as `Display` writes it.
    fn read(text: &str) -> Option<Factor> {
        if text == ENDLESS {
            return Some(Factor::Endless);
        }
        let (whole, part) = text.split_once('.')?;
        let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
        let miss = whole.checked_mul(100)?.checked_add(part)?;
        (part < 100 && miss >= 100).then_some(Factor::Hundredths(miss))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factor::Hundredths(miss) => write!(f, "{}.{:02}", miss / 100, miss % 100),
            Factor::Endless => f.write_str(ENDLESS),
        }
    }
}

/// The word for a factor without end.
const ENDLESS: &str = "inf";

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
        assert_eq!(misses.standing("alone", cell(), &use_of(0.479)), Standing::Worse);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.483)), Standing::Better);
        assert_eq!(misses.standing("alone", cell(), &use_of(0.97)), Standing::HoldsNow);
        assert_eq!(misses.standing("alone", cell(), &use_of(f64::NAN)), Standing::Worse);
        assert_eq!(misses.standing("start", cell(), &use_of(0.97)), Standing::Holds);
        assert!(Standing::Worse.fails() && Standing::New.fails() && !Standing::Better.fails());
        misses.accept("alone", cell(), &[use_of(0.97)]);
        assert_eq!(misses, Misses::default());
    }

    #[test]
    fn a_great_miss_fails_when_it_grows_and_no_number_is_worse_than_any() {
        let mut misses = Misses::default();
        let loss = |value| Claim::most("loss", value, 0.001);
        misses.accept("alone", cell(), &[loss(0.3)]);
        assert_eq!(misses.standing("alone", cell(), &loss(0.3)), Standing::Known);
        assert_eq!(misses.standing("alone", cell(), &loss(0.301)), Standing::Worse);
        assert_eq!(misses.standing("alone", cell(), &loss(f64::NAN)), Standing::Worse);
        misses.accept("alone", cell(), &[loss(f64::NAN)]);
        assert_eq!(misses.standing("alone", cell(), &loss(f64::NAN)), Standing::Known);
        assert_eq!(misses.standing("alone", cell(), &loss(0.9)), Standing::Better);
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
        assert!(text.contains("alone\t100/40/1\tuse\tinf\tuse none (at least 0.96)\n"), "{text}");
        assert_eq!(Misses::read(&text), Ok(misses));
        assert!(Misses::read("# x\nalone 100").expect_err("refused").contains("line 2"));
        let refused = Misses::read("a\tb\tc\t1,2\td").expect_err("refused");
        assert!(refused.contains("1,2"), "{refused}");
    }
}
