//! The verdict on an entry: what each check found, and what follows from all of them.
//!
//! Every check that is not met and not explained is a failure. A difference from the paper counts
//! as explained only if the entry says why, the claim is indeed false, and the check that
//! establishes the cause holds: a reason that no longer applies is a failure like any other.

use super::compute::{Computed, compute};
use super::criterion::{holds, number, words};
use super::entry::{Check, Entry, Kind, Whose};
use crate::series::median;

/// What is to be thought of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All that the paper states was found.
    Pass,
    /// Some of it is not so, and why is known and checked.
    Differs,
    /// Something was not found, or could not be computed.
    Fail,
    /// It cannot be judged yet; what could be checked of it holds.
    Waiting,
    /// It states nothing that could be checked.
    NotApplicable,
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Differs => "differs",
            Verdict::Fail => "fail",
            Verdict::Waiting => "waiting",
            Verdict::NotApplicable => "not applicable",
        }
    }
}

/// What one check found.
pub struct Finding {
    /// The claim in words.
    pub says: String,
    /// The quantity's name.
    pub of: String,
    /// What must be true.
    pub wanted: String,
    /// What was found.
    pub found: String,
    /// Whether the criterion holds.
    pub holds: bool,
    /// Why it does not, if the entry knows.
    pub differs: Option<String>,
    /// Whether that is as the entry expects it.
    pub fine: bool,
    /// Why the tolerance is what it is.
    pub why: String,
    /// Whether it is the printed claim, our reading of it, or evidence for a cause.
    pub whose: Whose,
}

/// An entry with everything that was found about it.
pub struct Judged {
    /// The entry.
    pub entry: Entry,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// The checks, in the entry's order.
    pub findings: Vec<Finding>,
    /// Why nothing could be computed.
    pub error: Option<String>,
    /// What was computed.
    pub computed: Computed,
}

/// Computes and judges an entry.
pub fn judge(entry: Entry) -> Judged {
    if entry.kind == Kind::Nothing {
        let verdict = match entry.not_applicable {
            Some(_) => Verdict::NotApplicable,
            None => Verdict::Waiting,
        };
        let computed = Computed::default();
        return Judged { entry, verdict, findings: Vec::new(), error: None, computed };
    }
    let (computed, error) = match compute(&entry) {
        Ok(computed) => (computed, None),
        Err(why) => (Computed::default(), Some(why)),
    };
    let findings: Vec<Finding> = match error {
        None => entry.check.iter().map(|check| find(check, &computed)).collect(),
        Some(_) => Vec::new(),
    };
    let verdict = conclude(&entry, &findings);
    Judged { entry, verdict, findings, error, computed }
}

fn find(check: &Check, computed: &Computed) -> Finding {
    let outcome = match computed.quantities.get(&check.of) {
        Some(numbers) => {
            holds(&check.must, numbers, &computed.quantities).map(|holds| (holds, list(numbers)))
        }
        None => Err(format!("there is no quantity `{}`", check.of)),
    };
    let is_error = outcome.is_err();
    let (holds, found) = outcome.unwrap_or_else(|why| (false, why));
    Finding {
        says: check.says.clone(),
        of: check.of.clone(),
        wanted: words(&check.must),
        found,
        holds,
        // What establishes a cause has to hold, whatever it says of itself.
        fine: !is_error && holds != (check.differs.is_some() && check.whose != Whose::Cause),
        differs: check.differs.clone(),
        why: check.why.clone(),
        whose: check.whose,
    }
}

fn conclude(entry: &Entry, findings: &[Finding]) -> Verdict {
    if findings.is_empty() || findings.iter().any(|finding| !finding.fine) {
        Verdict::Fail
    } else if entry.waiting.is_some() {
        Verdict::Waiting
    } else if findings.iter().any(|finding| finding.differs.is_some()) {
        Verdict::Differs
    } else {
        Verdict::Pass
    }
}

/// At most this many numbers of a list are shown; of a longer one, how they lie.
const SHOWN: usize = 12;

/// A list of numbers as it is shown.
pub fn list(numbers: &[f64]) -> String {
    if numbers.len() <= SHOWN {
        return numbers.iter().map(|x| number(*x)).collect::<Vec<_>>().join(", ");
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (n, last) = (sorted.len(), sorted.len() - 1);
    let middle = median(&sorted).unwrap_or(f64::NAN);
    let [low, mid, high] = [sorted[0], middle, sorted[last]].map(number);
    format!("{n} numbers, {low} … {high}, median {mid}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::entry::parse;

    fn verdict(checks: &str) -> Verdict {
        let text = format!(
            "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'formula'\nfirmness = 'exact'\n\
             compute = ['x = 2']\n{checks}"
        );
        judge(parse("id", &text).expect("an entry")).verdict
    }

    fn check(value: u32, more: &str) -> String {
        let must = format!("must = {{ is = 'equals', value = {value} }}");
        format!("[[check]]\nsays = 's'\nof = 'x'\n{must}\n{more}\n")
    }

    #[test]
    fn a_claim_that_holds_passes_and_one_that_does_not_fails() {
        assert_eq!(verdict(&check(2, "")), Verdict::Pass);
        assert_eq!(verdict(&check(3, "")), Verdict::Fail);
        assert_eq!(verdict(&(check(2, "") + &check(3, ""))), Verdict::Fail);
    }

    #[test]
    fn a_difference_needs_a_reason_whose_cause_holds() {
        let differs = check(3, "differs = 'misprint'");
        assert_eq!(verdict(&(differs.clone() + &check(2, "whose = 'cause'"))), Verdict::Differs);
        assert_eq!(verdict(&(differs.clone() + &check(4, "whose = 'cause'"))), Verdict::Fail);
        let stale = check(2, "differs = 'misprint'");
        assert_eq!(verdict(&(stale + &check(2, "whose = 'cause'"))), Verdict::Fail);
    }

    #[test]
    fn a_cause_that_does_not_hold_is_not_fine_even_as_a_difference() {
        let text = format!(
            "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'formula'\nfirmness = 'exact'\n{}",
            check(3, "whose = 'cause'\ndiffers = 'misprint'")
        );
        assert!(parse("id", &text).is_err(), "its own cause");
        let mut entry = parse("id", &text.replace("differs = 'misprint'", "")).expect("an entry");
        entry.check[0].differs = Some("misprint".to_owned());
        let mut computed = Computed::default();
        computed.quantities.insert("x".to_owned(), vec![2.0]);
        assert!(!find(&entry.check[0], &computed).fine);
    }

    /// Whatever a difference says: what was never run differs from nothing.
    #[test]
    fn an_invented_difference_over_what_never_ran_fails() {
        let head = "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'rate'\nfirmness = 'exact'\n";
        let rest = "[[measure]]\nname = 'x'\nread = { what = 'overload' }\n\
                    [[check]]\nsays = 's'\nof = 'x'\nmust = { is = 'at-most', value = 1 }\n\
                    differs = 'd'\n\
                    [[check]]\nsays = 's'\nof = 'drawn_alpha'\nwhose = 'cause'\n\
                    must = { is = 'at-most', value = 1 }\n";
        let scenario = "[[scenario]]\nnetwork = { links = [[1]], seconds = 0 }\n";
        let judged = judge(parse("id", &format!("{head}{scenario}{rest}")).expect("an entry"));
        assert_eq!(judged.verdict, Verdict::Fail);
        assert!(judged.error.is_some_and(|why| why.contains("no timed run")));
    }

    #[test]
    fn what_waits_still_fails_if_its_checks_do() {
        let waiting = "[waiting]\nwhat = 'TCP'\nwhy = 'a rival'\n";
        assert_eq!(verdict(&(check(2, "") + waiting)), Verdict::Waiting);
        assert_eq!(verdict(&(check(3, "") + waiting)), Verdict::Fail);
    }

    #[test]
    fn a_quantity_that_is_not_there_fails_even_as_a_difference() {
        let missing = "[[check]]\nsays = 's'\nof = 'y'\nmust = { is = 'rises' }\ndiffers = 'd'\n";
        assert_eq!(verdict(&(missing.to_owned() + &check(2, "whose = 'cause'"))), Verdict::Fail);
    }
}
