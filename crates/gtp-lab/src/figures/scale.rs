//! Axes: where they end, where their ticks are, and where a value comes to lie.
//!
//! Ends are rounded outwards to ticks, so that the same points give the same picture and no curve
//! runs along an edge. Pure arithmetic on what is to be shown.

use crate::series::{Axis, Scale};

/// An axis laid along a stretch of the drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruler {
    scale: Scale,
    /// Values at its two ends.
    pub range: (f64, f64),
    /// Places of these ends in the drawing.
    pub span: (f64, f64),
    /// Values that are marked.
    pub ticks: Vec<f64>,
}

/// Where an axis of values begins when nothing is below zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At zero.
    Zero,
    /// At the least value.
    Least,
}

impl Ruler {
    /// Lays `axis` over the values along `span`, with about `wanted` ticks.
    pub fn new(
        axis: &Axis,
        origin: Origin,
        values: impl Iterator<Item = f64>,
        span: (f64, f64),
        wanted: f64,
    ) -> Ruler {
        let shown = |v: &f64| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0);
        let (low, high) = values
            .filter(shown)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let found = if low <= high { (low, high) } else { (1.0, 1.0) };
        match axis.scale {
            Scale::Linear => linear(axis.range, origin, found, span, wanted),
            Scale::Log => log(axis.range, found, span),
        }
    }

    /// Where a value lies; `None` if the axis cannot show it.
    pub fn place(&self, v: f64) -> Option<f64> {
        let part = |v: f64, (low, high): (f64, f64)| (v - low) / (high - low);
        let along = match self.scale {
            Scale::Linear => part(v, self.range),
            Scale::Log if v > 0.0 => part(v.log10(), (self.range.0.log10(), self.range.1.log10())),
            Scale::Log => return None,
        };
        let at = self.span.0 + along * (self.span.1 - self.span.0);
        at.is_finite().then_some(at)
    }
}

fn linear(
    asked: Option<(f64, f64)>,
    origin: Origin,
    found: (f64, f64),
    span: (f64, f64),
    wanted: f64,
) -> Ruler {
    let (mut low, mut high) = asked.unwrap_or(found);
    if asked.is_none() {
        low = if origin == Origin::Zero { low.min(0.0) } else { low };
        high = if origin == Origin::Zero { high.max(0.0) } else { high };
    }
    if high - low <= 1e-12 * high.abs().max(low.abs()) {
        high = low + if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
    }
    let step = tick_step((high - low) / wanted);
    if asked.is_none() && origin == Origin::Zero {
        high = ((high / step) - 1e-9).ceil() * step;
        low = ((low / step) + 1e-9).floor() * step;
    }
    let first = ((low / step) - 1e-9).ceil() as i64;
    let last = ((high / step) + 1e-9).floor() as i64;
    let ticks = (first..=last.min(first + 50)).map(|n| n as f64 * step).collect();
    Ruler { scale: Scale::Linear, range: (low, high), span, ticks }
}

fn log(asked: Option<(f64, f64)>, found: (f64, f64), span: (f64, f64)) -> Ruler {
    let (low, high) = asked.filter(|(low, high)| *low > 0.0 && low < high).unwrap_or_else(|| {
        let low = (found.0.log10() + 1e-9).floor();
        let high = (found.1.log10() - 1e-9).ceil().max(low + 1.0);
        (10f64.powf(low), 10f64.powf(high))
    });
    let first = (low.log10() - 1e-9).ceil() as i64;
    let last = (high.log10() + 1e-9).floor() as i64;
    let every = ((last - first) / 8 + 1) as usize;
    let ticks = (first..=last).step_by(every).map(|n| 10f64.powi(n as i32)).collect();
    Ruler { scale: Scale::Log, range: (low, high), span, ticks }
}

/// The least of 1, 2, 5 times a power of ten that is not below `rough`.
fn tick_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let fits = |s: &f64| *s >= rough * (1.0 - 1e-9);
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(fits).unwrap_or(rough)
}

/// A number as a person would write it: six digits at most, no needless zeros.
pub fn number(v: f64) -> String {
    if v == 0.0 || !v.is_finite() {
        return if v == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    let magnitude = v.abs().log10().floor() as i32;
    if !(-5..15).contains(&magnitude) {
        return format!("{v:.2e}");
    }
    let places = (5 - magnitude).clamp(0, 9) as usize;
    let text = format!("{v:.places$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.replace('-', "\u{2212}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruler(axis: Axis, values: &[f64]) -> Ruler {
        Ruler::new(&axis, Origin::Zero, values.iter().copied(), (0.0, 100.0), 5.0)
    }

    #[test]
    fn an_axis_of_values_starts_at_zero_and_ends_on_a_tick() {
        let r = ruler(Axis::linear(""), &[37.0, 630.0]);
        assert_eq!((r.range, r.ticks.len()), ((0.0, 800.0), 5));
        assert_eq!(r.place(400.0), Some(50.0));
    }

    #[test]
    fn a_log_axis_ends_on_powers_of_ten_and_leaves_zero_out() {
        let r = ruler(Axis::log(""), &[0.0, 0.03, 25.0]);
        assert_eq!(r.ticks.len(), 5);
        assert_eq!(r.place(0.0), None);
        assert!((r.place(1.0).unwrap_or(0.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn no_values_and_equal_values_still_give_an_axis() {
        for values in [&[][..], &[0.0], &[5.0, 5.0], &[f64::NAN, f64::INFINITY]] {
            for axis in [Axis::linear(""), Axis::log("")] {
                let r = ruler(axis, values);
                assert!(r.range.0 < r.range.1 && !r.ticks.is_empty(), "{values:?}: {r:?}");
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let said = [0.0, 700.0, 0.5, 1.0 / 3.0, 123456.7, -2.5, 1e-9].map(number);
        assert_eq!(said, ["0", "700", "0.5", "0.333333", "123457", "\u{2212}2.5", "1.00e-9"]);
    }
}
