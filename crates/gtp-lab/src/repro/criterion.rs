//! Criteria: what must be true of a quantity, in the few forms that the papers' results have.
//!
//! A quantity is a list of numbers (over runs, sessions or cases); a criterion holds if every
//! number satisfies it. An empty list and a number that is none are errors: a measurement that did
//! not take place is neither as claimed nor otherwise. Knows nothing of where quantities come from.

use super::formula::{Quantities, evaluate};
use serde::Deserialize;

/// What must be true of a quantity.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Criterion {
    /// Each number equals its reference within a part of it, or within an absolute distance.
    Equals {
        /// The reference.
        value: Reference,
        /// The allowed distance as a part of the reference.
        #[serde(default)]
        within: f64,
        /// The allowed distance in the quantity's own unit, where that is larger.
        #[serde(default)]
        within_abs: f64,
    },
    /// Each number lies between two others, both included.
    Between {
        /// The lower end.
        low: Reference,
        /// The upper end.
        high: Reference,
    },
    /// Each number is at least its reference.
    AtLeast {
        /// The reference.
        value: Reference,
    },
    /// Each number is at most its reference.
    AtMost {
        /// The reference.
        value: Reference,
    },
    /// Each number is less than its reference.
    Below {
        /// The reference.
        value: Reference,
    },
    /// Each number is greater than the one before it.
    Rises,
    /// Each number is less than the one before it.
    Falls,
    /// At least so many of the numbers are at most the reference.
    Most {
        /// How many.
        at_least: usize,
        /// The reference.
        at_most: f64,
    },
    /// No number is above the one before it until one is at most `until`; from there on all are
    /// at most `then`, and there is such a one.
    Descends {
        /// The end of the descent.
        until: f64,
        /// What is allowed after it.
        then: f64,
    },
}

/// What a quantity is compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Reference {
    /// One number for all.
    Number(f64),
    /// A number for each.
    List(Vec<f64>),
    /// A formula of other quantities.
    Formula(String),
}

impl Reference {
    fn values(&self, quantities: &Quantities) -> Result<Vec<f64>, String> {
        match self {
            Reference::Number(x) => Ok(vec![*x]),
            Reference::List(list) => Ok(list.clone()),
            Reference::Formula(formula) => evaluate(formula, quantities),
        }
    }
}

/// Whether the criterion holds of these numbers.
///
/// # Errors
/// A sentence, if nothing was measured, or if the reference cannot be computed, is no number or has
/// another length.
pub fn holds(
    criterion: &Criterion,
    numbers: &[f64],
    quantities: &Quantities,
) -> Result<bool, String> {
    if numbers.is_empty() || numbers.iter().any(|x| x.is_nan()) {
        return Err("nothing was measured".to_owned());
    }
    let each = |reference: &Reference, test: &dyn Fn(f64, f64) -> bool| {
        let values = reference.values(quantities)?;
        if values.is_empty() || values.iter().any(|x| x.is_nan()) {
            return Err("the reference is no number".to_owned());
        }
        if values.len() != 1 && values.len() != numbers.len() {
            return Err(format!("{} numbers against {}", numbers.len(), values.len()));
        }
        let reference = |i: usize| if values.len() == 1 { values[0] } else { values[i] };
        Ok(numbers.iter().enumerate().all(|(i, x)| test(*x, reference(i))))
    };
    match criterion {
        Criterion::Equals { value, within, within_abs } => {
            each(value, &|x, y| x == y || (x - y).abs() <= (within * y.abs()).max(*within_abs))
        }
        Criterion::Between { low, high } => {
            Ok(each(low, &|x, y| x >= y)? && each(high, &|x, y| x <= y)?)
        }
        Criterion::AtLeast { value } => each(value, &|x, y| x >= y),
        Criterion::AtMost { value } => each(value, &|x, y| x <= y),
        Criterion::Below { value } => each(value, &|x, y| x < y),
        Criterion::Rises => Ok(numbers.len() > 1 && numbers.windows(2).all(|w| w[0] < w[1])),
        Criterion::Falls => Ok(numbers.len() > 1 && numbers.windows(2).all(|w| w[0] > w[1])),
        Criterion::Most { at_least, at_most } => {
            Ok(numbers.iter().filter(|x| *x <= at_most).count() >= *at_least)
        }
        Criterion::Descends { until, then } => Ok(descends(numbers, *until, *then)),
    }
}

fn descends(numbers: &[f64], until: f64, then: f64) -> bool {
    let Some(end) = numbers.iter().position(|x| *x <= until) else { return false };
    numbers[..=end].windows(2).all(|w| w[1] <= w[0]) && numbers[end..].iter().all(|x| *x <= then)
}

/// The criterion in words.
pub fn words(criterion: &Criterion) -> String {
    let list = |values: &[f64]| values.iter().map(|x| number(*x)).collect::<Vec<_>>().join(", ");
    let show = |reference: &Reference| match reference {
        Reference::Number(x) => number(*x),
        Reference::List(values) => list(values),
        Reference::Formula(formula) => formula.clone(),
    };
    match criterion {
        Criterion::Equals { value, within, within_abs } => {
            let mut text = format!("= {}", show(value));
            if *within > 0.0 {
                text += &format!(" ± {} %", number(within * 100.0));
            }
            if *within_abs > 0.0 {
                text += &format!(" ± {}", number(*within_abs));
            }
            text
        }
        Criterion::Between { low, high } => format!("{} … {}", show(low), show(high)),
        Criterion::AtLeast { value } => format!("≥ {}", show(value)),
        Criterion::AtMost { value } => format!("≤ {}", show(value)),
        Criterion::Below { value } => format!("< {}", show(value)),
        Criterion::Rises => "rises strictly".to_owned(),
        Criterion::Falls => "falls strictly".to_owned(),
        Criterion::Most { at_least, at_most } => {
            format!("at least {at_least} are ≤ {}", number(*at_most))
        }
        Criterion::Descends { until, then } => {
            format!("never rises until ≤ {}, then ≤ {}", number(*until), number(*then))
        }
    }
}

/// A number in as many digits as a reader needs.
pub fn number(x: f64) -> String {
    let size = x.abs();
    if x == 0.0 || x.is_infinite() || x.is_nan() {
        return format!("{x}");
    }
    let text = if !(1e-4..1e7).contains(&size) {
        return format!("{x:.3e}");
    } else if size >= 100.0 {
        format!("{x:.2}")
    } else if size >= 1.0 {
        format!("{x:.3}")
    } else {
        format!("{x:.5}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(criterion: &str, numbers: &[f64]) -> Result<bool, String> {
        let criterion: Criterion = toml::from_str(criterion).expect("a criterion");
        let quantities = [("bound".to_owned(), vec![5.0])].into_iter().collect();
        holds(&criterion, numbers, &quantities)
    }

    fn check(criterion: &str, numbers: &[f64]) -> bool {
        outcome(criterion, numbers).expect("comparable")
    }

    /// Each kind with what satisfies it and what breaks it.
    #[test]
    fn every_kind_of_criterion_can_hold_and_can_break() {
        let cases: &[(&str, &[f64], &[f64])] = &[
            ("is = 'equals'\nvalue = 4", &[4.0, 4.0], &[4.0, 4.000_000_1]),
            ("is = 'equals'\nvalue = 4\nwithin = 0.01", &[4.039], &[4.041]),
            ("is = 'equals'\nvalue = 0\nwithin_abs = 0.5", &[0.5], &[-0.6]),
            ("is = 'equals'\nvalue = [1, 2]", &[1.0, 2.0], &[2.0, 1.0]),
            ("is = 'equals'\nvalue = '2 * bound'", &[10.0], &[5.0]),
            ("is = 'between'\nlow = 1\nhigh = 2", &[1.0, 2.0], &[0.999]),
            ("is = 'between'\nlow = 1\nhigh = 2", &[1.5], &[2.001]),
            ("is = 'at-least'\nvalue = 1", &[1.0], &[0.999]),
            ("is = 'at-most'\nvalue = 'bound'", &[5.0], &[5.001]),
            ("is = 'below'\nvalue = 5", &[4.999], &[5.0]),
            ("is = 'rises'", &[1.0, 2.0, 3.0], &[1.0, 1.0]),
            ("is = 'falls'", &[3.0, 2.0], &[2.0, 3.0]),
            ("is = 'most'\nat_least = 2\nat_most = 1", &[1.0, 9.0, 0.5], &[1.0, 9.0]),
            ("is = 'descends'\nuntil = 1\nthen = 2", &[4.0, 1.0, 2.0], &[4.0, 5.0, 1.0]),
            ("is = 'descends'\nuntil = 1\nthen = 2", &[4.0, 4.0, 0.5], &[4.0, 1.0, 3.0]),
            ("is = 'descends'\nuntil = 1\nthen = 2", &[0.9], &[4.0, 3.0]),
        ];
        for (criterion, good, bad) in cases {
            assert!(check(criterion, good), "{criterion} of {good:?}");
            assert!(!check(criterion, bad), "{criterion} of {bad:?}");
            assert!(outcome(criterion, &[]).is_err(), "{criterion} of nothing");
            assert!(outcome(criterion, &[f64::NAN]).is_err(), "{criterion} of no number");
        }
    }

    #[test]
    fn an_order_needs_two() {
        assert!(!check("is = 'rises'", &[1.0]));
        assert!(!check("is = 'falls'", &[1.0]));
    }

    #[test]
    fn what_cannot_be_compared_is_an_error() {
        let unequal = Criterion::AtMost { value: Reference::List(vec![1.0, 2.0]) };
        assert!(holds(&unequal, &[1.0], &Quantities::new()).is_err());
        let unknown = Criterion::AtMost { value: Reference::Formula("x".to_owned()) };
        assert!(holds(&unknown, &[1.0], &Quantities::new()).is_err());
        let none = Criterion::AtMost { value: Reference::List(vec![]) };
        assert!(holds(&none, &[1.0], &Quantities::new()).is_err());
        let no_number =
            Criterion::Equals { value: Reference::Number(f64::NAN), within: 1.0, within_abs: 1.0 };
        assert!(holds(&no_number, &[1.0], &Quantities::new()).is_err());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(186.666_666), "186.67");
        assert_eq!(number(8.5e8), "8.500e8");
        assert_eq!(number(-3.0), "-3");
    }
}
