//! What must hold of a cell, and how far a measured value is off.
//!
//! A claim is a value, a limit and a sense. Its miss is a factor: 1 is just right, 2 is twice what
//! is allowed or half of what is asked for. So misses of different claims compare, and a known
//! one can be held against a new one.

use std::fmt;

use super::Figures;

/// On which side of the limit a value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// It must be at most the limit.
    Most,
    /// It must be at least the limit.
    Least,
}

/// A claim about what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// A word or two for what is claimed.
    pub name: &'static str,
    /// The value that was measured in the worst run.
    pub value: f64,
    /// The limit that it is held against.
    pub limit: f64,
    /// The side of the limit on which it must be.
    pub sense: Sense,
}

impl Claim {
    /// Claims that a value does not exceed a limit above zero.
    pub fn most(name: &'static str, value: f64, limit: f64) -> Claim {
        Claim { name, value, limit, sense: Sense::Most }
    }

    /// Claims that a value reaches a limit.
    pub fn least(name: &'static str, value: f64, limit: f64) -> Claim {
        Claim { name, value, limit, sense: Sense::Least }
    }

    /// Returns the factor by which it is missed, 1 or less where it holds. It is infinite if
    /// nothing was measured.
    pub fn miss(&self) -> f64 {
        let factor = match self.sense {
            Sense::Most => self.value / self.limit,
            Sense::Least => self.limit / self.value.max(0.0),
        };
        if factor.is_nan() { f64::INFINITY } else { factor }
    }

    /// Tells whether it holds.
    pub fn holds(&self) -> bool {
        self.miss() <= 1.0
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sense = match self.sense {
            Sense::Most => "at most",
            Sense::Least => "at least",
        };
        let (value, limit) = (short(self.value), short(self.limit));
        write!(f, "{} {value} ({sense} {limit})", self.name)
    }
}

/// Claims that a figure reaches a limit in all runs. The worst run counts.
///
/// # Panics
/// If there is no run.
pub fn least(
    name: &'static str,
    runs: &[Figures],
    figure: impl Fn(&Figures) -> f64,
    limit: f64,
) -> Claim {
    worst_of(runs.iter().map(|run| Claim::least(name, figure(run), limit)))
}

/// Claims that a figure does not exceed a limit above zero in any run. The worst run counts.
///
/// # Panics
/// If there is no run.
pub fn most(
    name: &'static str,
    runs: &[Figures],
    figure: impl Fn(&Figures) -> f64,
    limit: f64,
) -> Claim {
    worst_of(runs.iter().map(|run| Claim::most(name, figure(run), limit)))
}

/// Claims that `ours` is within a factor of two of what one CUBIC has, and that `rival` keeps at
/// least half of what a CUBIC leaves it.
///
/// # Panics
/// If there is no run.
pub fn fair_shares(runs: &[Figures], one: f64, left: f64) -> Vec<Claim> {
    vec![
        least("share", runs, scaled("ours", 1.0 / one), 0.5),
        most("share taken", runs, scaled("ours", 1.0 / one), 2.0),
        least("rival keeps", runs, scaled("rival", 1.0 / left), 0.5),
    ]
}

/// Returns a reader of a figure by its name.
pub fn figure(name: &'static str) -> impl Fn(&Figures) -> f64 {
    scaled(name, 1.0)
}

/// Returns a reader of a figure by its name, times a factor.
pub fn scaled(name: &'static str, factor: f64) -> impl Fn(&Figures) -> f64 {
    move |run| factor * value(run, name)
}

/// Returns a figure of a run. It is not a number if the run has none of this name.
pub fn value(run: &Figures, name: &str) -> f64 {
    run.get(name).copied().unwrap_or(f64::NAN)
}

/// Returns the mean of a figure over runs. It is not a number if there is no run.
pub fn mean_of(runs: &[Figures], name: &str) -> f64 {
    runs.iter().map(|run| value(run, name)).sum::<f64>() / runs.len() as f64
}

/// Returns the worst of some claims of the same name, one for each run.
///
/// # Panics
/// If there is none.
pub fn worst_of(claims: impl IntoIterator<Item = Claim>) -> Claim {
    let worst = claims.into_iter().max_by(|a, b| a.miss().total_cmp(&b.miss()));
    worst.expect("a claim is made of one run at least")
}

/// Writes a number with three digits.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let digits = if value == 0.0 { 0.0 } else { libm::floor(libm::log10(value.abs())) };
    let places = (2.0 - digits).clamp(0.0, 6.0) as usize;
    let text = format!("{value:.places$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_a_factor_whatever_the_sense() {
        assert_eq!(Claim::most("loss", 0.02, 0.01).miss(), 2.0);
        assert_eq!(Claim::least("use", 0.48, 0.96).miss(), 2.0);
        assert!(Claim::least("use", 0.97, 0.96).holds());
        assert!(!Claim::least("use", f64::NAN, 0.96).holds());
        assert!(!Claim::most("loss", f64::NAN, 0.96).holds());
        assert!(!Claim::least("use", 0.0, 0.96).holds());
        let worst = worst_of([0.9, 0.5, 0.99].map(|value| Claim::least("use", value, 0.96)));
        assert_eq!(worst.value, 0.5);
    }

    #[test]
    fn numbers_are_written_with_three_digits() {
        let cases = [(0.0, "0"), (0.0012345, "0.00123"), (1.0, "1"), (12.345, "12.3")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(98_765.0), "98765");
        assert_eq!(short(f64::INFINITY), "none");
    }
}
