//! Axes, lines, steps and areas as SVG text.
//!
//! A frame maps time and value to places on the page; everything else is a path through it.
//! Nothing here knows what is drawn. Colours are classes, so that the theme decides them.

use std::fmt::Write as _;

/// A rectangle of the page with its two scales.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
    /// Times at the left and the right edge.
    pub time: (f64, f64),
    /// Value at the upper edge; the lower one is zero.
    pub top: f64,
}

impl Frame {
    /// Where a time is.
    pub fn px(&self, t: f64) -> f64 {
        self.x + (t - self.time.0) / (self.time.1 - self.time.0).max(1e-9) * self.w
    }

    /// Where a value is; values outside are at the edge.
    pub fn py(&self, v: f64) -> f64 {
        self.y + self.h * (1.0 - (v / self.top).clamp(0.0, 1.0))
    }

    /// Lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.h
    }

    /// A line through points; a point that is not there breaks it.
    pub fn line(&self, points: impl IntoIterator<Item = (f64, Option<f64>)>) -> String {
        let (mut path, mut down) = (String::new(), false);
        for (t, v) in points {
            if let Some(v) = v {
                let verb = if down { 'L' } else { 'M' };
                put(&mut path, verb, self.px(t), self.py(v));
            }
            down = v.is_some();
        }
        path
    }

    /// A line of steps: `(from, to, value)`.
    pub fn steps(&self, steps: impl IntoIterator<Item = (f64, f64, f64)>) -> String {
        let (mut path, mut last) = (String::new(), None);
        for (from, to, v) in steps {
            let verb = if last == Some(from) { 'L' } else { 'M' };
            put(&mut path, verb, self.px(from), self.py(v));
            put(&mut path, 'L', self.px(to), self.py(v));
            last = Some(to);
        }
        path
    }

    /// The area between two lines over the same times: `(time, lower, upper)`.
    pub fn area(&self, points: &[(f64, f64, f64)]) -> String {
        let mut path = String::new();
        for (n, (t, _, upper)) in points.iter().enumerate() {
            put(&mut path, if n == 0 { 'M' } else { 'L' }, self.px(*t), self.py(*upper));
        }
        for (t, lower, _) in points.iter().rev() {
            put(&mut path, 'L', self.px(*t), self.py(*lower));
        }
        if !path.is_empty() {
            path.push('Z');
        }
        path
    }

    /// Grid lines with their values, every `every` up to the top.
    pub fn value_axis(&self, every: f64, title: &str) -> String {
        let mut svg = String::new();
        let count = (self.top / every + 1e-6) as usize;
        for n in 0..=count {
            let v = n as f64 * every;
            let (x, y) = (self.x, self.py(v));
            let right = self.x + self.w;
            let _ = write!(svg, r#"<path class="grid" d="M{x:.1} {y:.1}H{right:.1}"/>"#);
            svg += &text("tick end", x - 8.0, y + 4.0, &number(v));
        }
        if !title.is_empty() {
            svg += &text("title", self.x, self.y - 10.0, title);
        }
        svg
    }

    /// Seconds along the lower edge, counted from `zero`.
    pub fn time_axis(&self, zero: f64, every: f64) -> String {
        let mut svg = String::new();
        let first = ((self.time.0 - zero) / every).ceil() as i64;
        let last = ((self.time.1 - zero) / every).floor() as i64;
        for n in first..=last {
            let (x, y) = (self.px(zero + n as f64 * every), self.bottom());
            let unit = if n == last { " s" } else { "" };
            let _ = write!(svg, r#"<path class="axis" d="M{x:.1} {y:.1}v5"/>"#);
            let seconds = number(n as f64 * every);
            svg += &text("tick middle", x, y + 19.0, &format!("{seconds}{unit}"));
        }
        let right = self.x + self.w;
        let _ = write!(
            svg,
            r#"<path class="axis" d="M{:.1} {:.1}H{right:.1}"/>"#,
            self.x,
            self.bottom()
        );
        svg
    }
}

fn put(path: &mut String, verb: char, x: f64, y: f64) {
    // Writing to a string cannot fail.
    let _ = write!(path, "{verb}{x:.1} {y:.1}");
}

/// A text at a place.
pub fn text(class: &str, x: f64, y: f64, words: &str) -> String {
    let words = escaped(words);
    format!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{words}</text>"#)
}

/// A rectangle with round corners.
pub fn rect(class: &str, (x, y): (f64, f64), (w, h): (f64, f64), round: f64) -> String {
    let (place, size) =
        (format!(r#"x="{x:.1}" y="{y:.1}""#), format!(r#"width="{w:.1}" height="{h:.1}""#));
    format!(r#"<rect class="{class}" {place} {size} rx="{round}"/>"#)
}

/// A number without needless decimals.
pub fn number(v: f64) -> String {
    let text = format!("{v:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A distance of grid lines that gives about `lines` of them up to `top`.
pub fn grid_step(top: f64, lines: f64) -> f64 {
    let rough = (top / lines).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|&s| s >= rough).unwrap_or(rough)
}

/// Text without the characters that mean something to HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { x: 10.0, y: 20.0, w: 100.0, h: 50.0, time: (0.0, 10.0), top: 5.0 };

    #[test]
    fn a_line_is_broken_where_there_is_no_value() {
        let points = [(0.0, Some(0.0)), (5.0, None), (10.0, Some(5.0))];
        assert_eq!(FRAME.line(points), "M10.0 70.0M110.0 20.0");
    }

    #[test]
    fn steps_that_touch_are_one_line() {
        let steps = [(0.0, 5.0, 5.0), (5.0, 10.0, 2.5)];
        assert_eq!(FRAME.steps(steps), "M10.0 20.0L60.0 20.0L60.0 45.0L110.0 45.0");
    }

    #[test]
    fn grid_steps_are_round() {
        assert_eq!(grid_step(700.0, 7.0), 100.0);
        assert_eq!(grid_step(0.9, 3.0), 0.5);
        assert_eq!((number(0.5), number(100.0)), ("0.5".to_owned(), "100".to_owned()));
    }

    #[test]
    fn values_outside_stay_inside_the_frame() {
        assert_eq!((FRAME.py(99.0), FRAME.py(-1.0)), (20.0, 70.0));
    }
}
