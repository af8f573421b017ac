//! The verdict on an entry: what each check found, and what follows from all of them.
//!
//! Every check that is not met is a failure, unless the entry says that its claim is false here. A
//! difference counts as explained only if the entry says why, the claim is indeed false, and the
//! check that establishes the cause holds: a reason that no longer applies is a failure like any
//! other. One difference that nobody can explain makes the whole entry unexplained.

use super::compute::{Computed, compute};
use super::criterion::{holds, number, words};
use super::entry::{Check, Entry, Kind, Whose};
use super::formula::Quantities;
use super::real::{self, Measured};
use crate::series::median;

/// What is to be thought of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// All that the paper states was found.
    Pass,
    /// All of it was found, and some of that was put in, so that it could not be otherwise.
    ByConstruction,
    /// Some of it is not so, and why is known and checked.
    Differs,
    /// Some of it is not so, and nobody knows why.
    Unexplained,
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
            Verdict::ByConstruction => "by construction",
            Verdict::Differs => "differs",
            Verdict::Unexplained => "unexplained",
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
    /// What the entry says of a claim that is false here.
    pub difference: Option<Difference>,
    /// Whether that is as the entry expects it.
    pub fine: bool,
    /// Why the tolerance is what it is.
    pub why: String,
    /// Whether it is the printed claim, our reading of it, or evidence for a cause.
    pub whose: Whose,
}

/// Why a claim of a paper is false here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// For this reason, which another check establishes.
    Explained(String),
    /// Nobody knows; this is what is known.
    Unexplained(String),
}

impl Difference {
    fn of(check: &Check) -> Option<Difference> {
        let explained = check.differs.clone().map(Difference::Explained);
        explained.or_else(|| check.unexplained.clone().map(Difference::Unexplained))
    }

    /// What is said of it.
    pub fn text(&self) -> &str {
        let (Difference::Explained(text) | Difference::Unexplained(text)) = self;
        text
    }

    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Difference::Explained(_) => Verdict::Differs.word(),
            Difference::Unexplained(_) => Verdict::Unexplained.word(),
        }
    }
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
    /// What was found through real sockets, where that is judged.
    pub real: Option<Measured>,
}

impl Judged {
    /// Whether the simulated or the real run failed.
    pub fn failed(&self) -> bool {
        let real = self.real.as_ref().is_some_and(|real| real.verdict == Verdict::Fail);
        self.verdict == Verdict::Fail || real
    }
}

/// Computes and judges an entry.
pub fn judge(entry: Entry) -> Judged {
    let real = real::judge(&entry);
    if entry.kind == Kind::Nothing {
        let verdict = match entry.not_applicable {
            Some(_) => Verdict::NotApplicable,
            None => Verdict::Waiting,
        };
        let computed = Computed::default();
        return Judged { entry, verdict, findings: Vec::new(), error: None, computed, real };
    }
    let (computed, error) = match compute(&entry) {
        Ok(computed) => (computed, None),
        Err(why) => (Computed::default(), Some(why)),
    };
    let findings: Vec<Finding> = match error {
        None => findings(&entry.check, &computed.quantities),
        Some(_) => Vec::new(),
    };
    let verdict = conclude(&entry, &findings);
    Judged { entry, verdict, findings, error, computed, real }
}

/// What each check finds.
pub fn findings(checks: &[Check], quantities: &Quantities) -> Vec<Finding> {
    checks.iter().map(|check| find(check, quantities)).collect()
}

fn find(check: &Check, quantities: &Quantities) -> Finding {
    let outcome = match quantities.get(&check.of) {
        Some(numbers) => {
            holds(&check.must, numbers, quantities).map(|holds| (holds, list(numbers)))
        }
        None => Err(format!("there is no quantity `{}`", check.of)),
    };
    let is_error = outcome.is_err();
    let difference = Difference::of(check);
    let (holds, found) = outcome.unwrap_or_else(|why| (false, why));
    Finding {
        says: check.says.clone(),
        of: check.of.clone(),
        wanted: words(&check.must),
        found,
        holds,
        // What establishes a cause has to hold, whatever it says of itself.
        fine: !is_error && holds != (difference.is_some() && check.whose != Whose::Cause),
        difference,
        why: check.why.clone(),
        whose: check.whose,
    }
}

fn conclude(entry: &Entry, findings: &[Finding]) -> Verdict {
    match of_findings(findings) {
        Verdict::Fail => Verdict::Fail,
        _ if entry.waiting.is_some() => Verdict::Waiting,
        Verdict::Pass if entry.by_construction.is_some() => Verdict::ByConstruction,
        verdict => verdict,
    }
}

/// What follows from all that was found.
pub fn of_findings(findings: &[Finding]) -> Verdict {
    let differences = || findings.iter().filter_map(|finding| finding.difference.as_ref());
    if findings.is_empty() || findings.iter().any(|finding| !finding.fine) {
        Verdict::Fail
    } else if differences().any(|one| matches!(one, Difference::Unexplained(_))) {
        Verdict::Unexplained
    } else if differences().next().is_some() {
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
    fn one_difference_that_nobody_can_explain_makes_the_entry_unexplained() {
        let unexplained = check(3, "unexplained = 'seen, not understood'");
        let explained = check(3, "differs = 'misprint'") + &check(2, "whose = 'cause'");
        assert_eq!(verdict(&unexplained), Verdict::Unexplained);
        assert_eq!(verdict(&(explained + &unexplained)), Verdict::Unexplained);
        assert_eq!(verdict(&(check(3, "") + &unexplained)), Verdict::Fail);
        assert_eq!(verdict(&check(2, "unexplained = 'it is there now'")), Verdict::Fail);
    }

    #[test]
    fn what_was_put_in_does_not_pass() {
        let put_in = |checks: &str| {
            let text = format!(
                "title = 't'\nplace = 'p'\nclaim = 'c'\nkind = 'formula'\nfirmness = 'exact'\n\
                 by_construction = 'w'\ncompute = ['x = 2']\n{checks}"
            );
            judge(parse("id", &text).expect("an entry")).verdict
        };
        assert_eq!(put_in(&check(2, "")), Verdict::ByConstruction);
        assert_eq!(put_in(&check(3, "")), Verdict::Fail);
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
        assert!(!find(&entry.check[0], &computed.quantities).fine);
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
