//! Formulas as entries write them: numbers, names, `+ - * / ^`, parentheses and a few functions.
//!
//! A value is a list of numbers; a list of one stands for as many equal ones as its partner needs,
//! so that one formula computes a whole row of a table. Names are whatever was given or computed
//! before. Knows nothing of entries and their checks.

use std::collections::BTreeMap;

/// Named lists of numbers: what an entry gives and what is computed from it.
pub type Quantities = BTreeMap<String, Vec<f64>>;

/// Parentheses deeper than this are refused; no formula of a paper comes near.
const DEPTH_MAX: usize = 32;

/// Computes `name = formula` and adds it to the quantities.
///
/// # Errors
/// A sentence that says what is wrong with the assignment.
pub fn assign(assignment: &str, quantities: &mut Quantities) -> Result<(), String> {
    let (name, formula) =
        assignment.split_once('=').ok_or_else(|| format!("`{assignment}` is not `name = …`"))?;
    let name = name.trim();
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(format!("`{name}` is not a name of letters, digits and `_`"));
    }
    if quantities.contains_key(name) {
        return Err(format!("`{name}` is computed twice"));
    }
    let value = evaluate(formula, quantities).map_err(|why| format!("`{assignment}`: {why}"))?;
    quantities.insert(name.to_owned(), value);
    Ok(())
}

/// The value of a formula.
///
/// # Errors
/// A sentence that says where the formula cannot be understood or computed.
pub fn evaluate(formula: &str, quantities: &Quantities) -> Result<Vec<f64>, String> {
    let mut reader = Reader { rest: formula.trim(), quantities, depth: 0 };
    let value = reader.sum()?;
    if reader.rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("not understood: `{}`", reader.rest))
    }
}

/// A recursive descent over the text that is left.
struct Reader<'a> {
    rest: &'a str,
    quantities: &'a Quantities,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn sum(&mut self) -> Result<Vec<f64>, String> {
        let mut value = self.product()?;
        while let Some(sign) = self.one_of("+-") {
            let other = self.product()?;
            value = both(&value, &other, |x, y| if sign == '+' { x + y } else { x - y })?;
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Vec<f64>, String> {
        let mut value = self.power()?;
        while let Some(sign) = self.one_of("*/") {
            let other = self.power()?;
            value = both(&value, &other, |x, y| if sign == '*' { x * y } else { x / y })?;
        }
        Ok(value)
    }

    fn power(&mut self) -> Result<Vec<f64>, String> {
        if self.one_of("-").is_some() {
            return Ok(self.power()?.into_iter().map(|x| -x).collect());
        }
        let base = self.operand()?;
        match self.one_of("^") {
            Some(_) => both(&base, &self.power()?, libm::pow),
            None => Ok(base),
        }
    }

    fn operand(&mut self) -> Result<Vec<f64>, String> {
        if self.one_of("(").is_some() {
            return self.inside();
        }
        let word = self.word();
        if word.is_empty() {
            return Err(format!("a number or a name is missing before `{}`", self.rest));
        }
        if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Ok(vec![word.parse().map_err(|_| format!("`{word}` is not a number"))?]);
        }
        if self.one_of("(").is_some() {
            let value = self.inside()?;
            return apply(word, value);
        }
        self.quantities.get(word).cloned().ok_or_else(|| format!("`{word}` is not known"))
    }

    /// What stands in parentheses, after the opening one.
    fn inside(&mut self) -> Result<Vec<f64>, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} parentheses in one another"));
        }
        let value = self.sum()?;
        self.depth -= 1;
        self.one_of(")").ok_or_else(|| format!("`)` is missing before `{}`", self.rest))?;
        Ok(value)
    }

    /// The next character if it is one of these.
    fn one_of(&mut self, choice: &str) -> Option<char> {
        self.rest = self.rest.trim_start();
        let next = self.rest.chars().next().filter(|c| choice.contains(*c))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    /// The number or name that comes next; empty if neither does.
    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let is_number = self.rest.starts_with(|c: char| c.is_ascii_digit());
        let mut before = ' ';
        let belongs = |c: char| {
            // The sign of an exponent belongs to its number.
            let sign = is_number && matches!(before, 'e' | 'E') && matches!(c, '+' | '-');
            before = c;
            c.is_ascii_alphanumeric() || c == '_' || c == '.' || sign
        };
        let mut belongs = belongs;
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
}

/// A function of a list, by name.
fn apply(function: &str, value: Vec<f64>) -> Result<Vec<f64>, String> {
    let each = |f: fn(f64) -> f64| Ok(value.iter().map(|x| f(*x)).collect());
    let fold = |f: fn(f64, f64) -> f64| match value.iter().copied().reduce(f) {
        None => Err(format!("`{function}` of nothing")),
        // Of two numbers, `min` and `max` would take the one that is a number.
        Some(_) if value.iter().any(|x| x.is_nan()) => Ok(vec![f64::NAN]),
        Some(x) => Ok(vec![x]),
    };
    match function {
        "sqrt" => each(libm::sqrt),
        "ln" => each(libm::log),
        "log2" => each(libm::log2),
        "exp" => each(libm::exp),
        "abs" => each(libm::fabs),
        "sum" => fold(|x, y| x + y),
        "min" => fold(f64::min),
        "max" => fold(f64::max),
        "count" => Ok(vec![value.len() as f64]),
        "first" => Ok(value.first().copied().into_iter().collect()),
        "last" => Ok(value.last().copied().into_iter().collect()),
        // Each number as a part of the one before it.
        "ratios" => Ok(value.windows(2).map(|pair| pair[1] / pair[0]).collect()),
        _ => Err(format!("there is no function `{function}`")),
    }
}

/// Two lists joined number by number.
fn both(a: &[f64], b: &[f64], f: impl Fn(f64, f64) -> f64) -> Result<Vec<f64>, String> {
    let at = |list: &[f64], i: usize| if list.len() == 1 { list[0] } else { list[i] };
    if a.len() != b.len() && a.len() != 1 && b.len() != 1 {
        return Err(format!("lists of {} and {} numbers", a.len(), b.len()));
    }
    let n = if a.len() == 1 { b.len() } else { a.len() };
    Ok((0..n).map(|i| f(at(a, i), at(b, i))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(formula: &str) -> Result<Vec<f64>, String> {
        let given = [("C".to_owned(), vec![10.0]), ("row".to_owned(), vec![1.0, 2.0, 4.0])];
        evaluate(formula, &given.into_iter().collect())
    }

    #[test]
    fn products_bind_more_than_sums_and_powers_more_than_both() {
        assert_eq!(value("1 + 2 * 3 ^ 2 - 4 / 2"), Ok(vec![17.0]));
        assert_eq!(value("-(1 + 1) ^ 2"), Ok(vec![-4.0]));
        assert_eq!(value("1e-3 * C"), Ok(vec![0.01]));
        assert_eq!(value("C-1"), Ok(vec![9.0]));
        assert_eq!(value("sqrt(4 * 4)"), Ok(vec![4.0]));
    }

    #[test]
    fn a_single_number_meets_every_number_of_a_list() {
        assert_eq!(value("C / row"), Ok(vec![10.0, 5.0, 2.5]));
        assert_eq!(value("sum(row) + last(row)"), Ok(vec![11.0]));
        assert_eq!(value("ratios(row)"), Ok(vec![2.0, 2.0]));
        assert!(value("row + ratios(row)").is_err());
        for fold in ["sum", "min", "max"] {
            assert!(value(&format!("{fold}(ratios(C))")).is_err(), "{fold} of nothing");
            let of_none = value(&format!("{fold}(0 * row / 0)")).expect("a list");
            assert!(of_none[0].is_nan(), "{fold} of no number");
        }
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for bad in
            ["", "1 +", "2 3", "(1", "unknown", "sin(1)", "1..2", "+", "1 $ 2", &"(".repeat(99)]
        {
            assert!(value(bad).is_err(), "{bad}");
        }
        let mut quantities = Quantities::new();
        for bad in ["no assignment", "a b = 1", " = 1"] {
            assert!(assign(bad, &mut quantities).is_err(), "{bad}");
        }
        assert_eq!(assign("a = 1", &mut quantities), Ok(()));
        assert!(assign("a = 2", &mut quantities).is_err(), "computed twice");
    }
}
