//! A figure as SVG.
//!
//! One drawing, two media: on paper every colour and size stands at its element, so that any
//! program that reads SVG shows the same; on a page colours are the page's variables, which know
//! light and dark. The same figure gives the same bytes.

use std::fmt::Write as _;

use super::escaped;
use super::scale::{Origin, Ruler, number};
use super::thin::thinned;
use crate::series::{Figure, Scale, Series, Style};

/// What is drawn upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A file for a paper: black on white, legend inside.
    Paper,
    /// A page, whose script and style know the drawing's classes; its legend is the page's.
    Screen,
}

/// The colours of curves on paper: those of Okabe and Ito (2008), which people with any kind of
/// colour vision can tell apart, the yellow replaced by grey and the pale ones darkened so that
/// thin lines are seen on white.
pub const COLOURS: [&str; 8] =
    ["#0072b2", "#d98a00", "#009e73", "#c2559d", "#d1490f", "#3f9fd8", "#000000", "#7a7a7a"];

/// The colours' dash patterns when the eight have been used once, twice, …
pub const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// Draws a figure.
pub fn svg(figure: &Figure, medium: Medium) -> String {
    let legend = match medium {
        Medium::Paper => legend_rows(figure),
        Medium::Screen => Vec::new(),
    };
    let height = HEIGHT + 18.0 * legend.len() as f64;
    let drawing = Drawing::new(figure, medium);
    let mut svg = opening(figure, medium, height);
    drawing.grid(&mut svg);
    drawing.marks(&mut svg);
    let _ = write!(
        svg,
        "<clipPath id=\"clip-{}\"><rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/>\
         </clipPath>\n<g class=\"curves\" clip-path=\"url(#clip-{0})\">\n",
        figure.id,
        WIDTH - LEFT - RIGHT,
        HEIGHT - TOP - BOTTOM,
    );
    for (place, series) in figure.series.iter().enumerate() {
        drawing.series(&mut svg, place, series);
    }
    svg += "</g>\n";
    drawing.titles(&mut svg);
    drawing.legend(&mut svg, &legend);
    svg += "</svg>\n";
    svg
}

/// Width of every drawing; sizes are those of a figure over one and a half columns.
pub const WIDTH: f64 = 760.0;
/// Height without the legend.
pub const HEIGHT: f64 = 400.0;
/// Where the plot begins.
pub const LEFT: f64 = 72.0;
/// Room to its right.
pub const RIGHT: f64 = 22.0;
/// Where it begins from above.
pub const TOP: f64 = 40.0;
/// Room below it, for ticks and label.
pub const BOTTOM: f64 = 52.0;
/// Points of a curve that are drawn: two for each dot of a good printer over the width.
const POINTS_MAX: usize = 3_000;

fn opening(figure: &Figure, medium: Medium, height: f64) -> String {
    let title = escaped(&figure.title);
    match medium {
        Medium::Paper => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Helvetica, Arial, 'Liberation Sans', \
             sans-serif\" font-size=\"13\" fill=\"#000000\">\n<title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        ),
        Medium::Screen => format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" \
             tabindex=\"0\">\n"
        ),
    }
}

/// Names of the curves in rows that fit the width; a curve without a name is not in it.
fn legend_rows(figure: &Figure) -> Vec<Vec<(usize, f64)>> {
    let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut x = f64::INFINITY;
    for (place, series) in figure.series.iter().enumerate().take(LEGEND_MAX) {
        if series.name.is_empty() {
            continue;
        }
        let room = 44.0 + 7.0 * series.name.chars().count() as f64;
        if x + room > WIDTH - RIGHT || rows.is_empty() {
            rows.push(Vec::new());
            x = LEFT;
        }
        if let Some(row) = rows.last_mut() {
            row.push((place, x));
        }
        x += room;
    }
    rows
}

/// Curves named in a paper's legend; nobody tells more apart.
const LEGEND_MAX: usize = 24;

/// A figure with its rulers.
struct Drawing<'a> {
    figure: &'a Figure,
    medium: Medium,
    x: Ruler,
    y: Ruler,
}

impl<'a> Drawing<'a> {
    fn new(figure: &'a Figure, medium: Medium) -> Drawing<'a> {
        let all = || figure.series.iter();
        let xs = all().flat_map(|s| s.points.iter().map(|p| p.0).chain(s.band.iter().map(|b| b.0)));
        let ys = all().flat_map(|s| {
            s.points.iter().map(|p| p.1).chain(s.band.iter().flat_map(|b| [b.1, b.2]))
        });
        let x = Ruler::new(&figure.x, Origin::Least, xs, (LEFT, WIDTH - RIGHT), 9.0);
        let y = Ruler::new(&figure.y, Origin::Zero, ys, (HEIGHT - BOTTOM, TOP), 6.0);
        Drawing { figure, medium, x, y }
    }

    /// Grid lines, ticks and frame.
    fn grid(&self, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        *svg += "<g class=\"axes\">\n";
        for &v in &self.y.ticks {
            let Some(y) = self.y.place(v) else { continue };
            let _ = writeln!(svg, "<path {} d=\"M{LEFT} {y:.1}H{right}\"/>", self.pen("grid"));
            self.text(
                svg,
                "tick end",
                (LEFT - 8.0, y + 4.5),
                &tick(v, &self.y, self.figure.y.scale),
            );
        }
        for &v in &self.x.ticks {
            let Some(x) = self.x.place(v) else { continue };
            let _ = writeln!(svg, "<path {} d=\"M{x:.1} {bottom}v5\"/>", self.pen("axis"));
            self.text(
                svg,
                "tick middle",
                (x, bottom + 19.0),
                &tick(v, &self.x, self.figure.x.scale),
            );
        }
        let way = format!("M{LEFT} {TOP}V{bottom}H{right}");
        let _ = writeln!(svg, "<path {} d=\"{way}\"/>\n</g>", self.pen("axis"));
    }

    fn marks(&self, svg: &mut String) {
        *svg += "<g class=\"marks\">\n";
        let mut last = f64::NEG_INFINITY;
        for (at, word) in &self.figure.marks {
            let Some(x) = self.x.place(*at) else { continue };
            if !(LEFT - 0.5..=WIDTH - RIGHT + 0.5).contains(&x) {
                continue;
            }
            let bottom = HEIGHT - BOTTOM;
            let _ = writeln!(svg, "<path {} d=\"M{x:.1} {TOP}V{bottom}\"/>", self.pen("event"));
            // A word that would run into the one before is left to the pointer.
            if x > last + 4.0 {
                self.text(svg, "word", (x + 3.0, TOP + 11.0), word);
                last = x + 6.0 * word.chars().count() as f64;
            }
        }
        *svg += "</g>\n";
    }

    fn titles(&self, svg: &mut String) {
        self.text(svg, "title", (LEFT, 20.0), &self.figure.title);
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        self.text(svg, "label middle", (middle, HEIGHT - 10.0), &self.figure.x.label);
        let (x, y) = (16.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        let label = escaped(&self.figure.y.label);
        let _ = writeln!(
            svg,
            "<text {} transform=\"translate({x} {y}) rotate(-90)\">{label}</text>",
            self.pen("label middle")
        );
    }

    fn legend(&self, svg: &mut String, rows: &[Vec<(usize, f64)>]) {
        for (n, row) in rows.iter().enumerate() {
            let y = HEIGHT + 18.0 * n as f64 + 8.0;
            for &(place, x) in row {
                let series = &self.figure.series[place];
                let pen = self.curve_pen(place, series);
                let way = match series.style {
                    Style::Points => format!("M{} {y}h0", x + 13.0),
                    Style::Line | Style::Step | Style::Wanted | Style::Bars => {
                        format!("M{x} {y}h26")
                    }
                };
                let _ = writeln!(svg, "<path {pen} d=\"{way}\"/>");
                self.text(svg, "word", (x + 32.0, y + 4.5), &series.name);
            }
        }
    }

    fn series(&self, svg: &mut String, place: usize, series: &Series) {
        let _ = writeln!(svg, "<g class=\"curve\" data-place=\"{place}\">");
        let band = self.band(&series.band);
        if !band.is_empty() {
            let colour = self.colour(place, series);
            let _ = writeln!(
                svg,
                "<path style=\"fill:{colour}\" fill-opacity=\"0.18\" stroke=\"none\" d=\"{band}\"/>"
            );
        }
        let points = thinned(&series.points, POINTS_MAX);
        let way = match series.style {
            Style::Line => self.line(&points),
            Style::Step | Style::Wanted => self.steps(&points),
            Style::Points => self.dots(&points),
            Style::Bars => self.bars(&points),
        };
        let _ = writeln!(svg, "<path {} d=\"{way}\"/>\n</g>", self.curve_pen(place, series));
    }

    fn line(&self, points: &[(f64, f64)]) -> String {
        let (mut way, mut down) = (String::new(), false);
        for &(t, v) in points {
            let at = self.at(t, v);
            if let Some((x, y)) = at {
                let _ = write!(way, "{}{x:.1} {y:.1}", if down { 'L' } else { 'M' });
            }
            down = at.is_some();
        }
        way
    }

    fn steps(&self, points: &[(f64, f64)]) -> String {
        let (mut way, mut down) = (String::new(), false);
        for &(t, v) in points {
            match (self.at(t, v), self.x.place(t)) {
                (Some((x, y)), _) if down => {
                    let _ = write!(way, "H{x:.1}V{y:.1}");
                }
                (Some((x, y)), _) => {
                    let _ = write!(way, "M{x:.1} {y:.1}");
                }
                (None, Some(x)) if down => {
                    let _ = write!(way, "H{x:.1}");
                }
                (None, _) => {}
            }
            down = v.is_finite();
        }
        way
    }

    fn dots(&self, points: &[(f64, f64)]) -> String {
        let places = points.iter().filter_map(|&(t, v)| self.at(t, v));
        places.fold(String::new(), |mut way, (x, y)| {
            let _ = write!(way, "M{x:.1} {y:.1}h0");
            way
        })
    }

    fn bars(&self, points: &[(f64, f64)]) -> String {
        let places = points.iter().filter_map(|&(t, v)| self.at(t, v));
        places.fold(String::new(), |mut way, (x, y)| {
            let _ = write!(way, "M{x:.1} {}V{y:.1}", HEIGHT - BOTTOM);
            way
        })
    }

    fn band(&self, band: &[(f64, f64, f64)]) -> String {
        let upper: Vec<_> = band.iter().map(|b| (b.0, b.2)).collect();
        let lower: Vec<_> = band.iter().rev().map(|b| (b.0, b.1)).collect();
        let (upper, lower) = (self.line(&upper), self.line(&lower));
        if upper.is_empty() || lower.is_empty() {
            return String::new();
        }
        format!("{upper}{}Z", lower.replacen('M', "L", 1))
    }

    fn at(&self, t: f64, v: f64) -> Option<(f64, f64)> {
        // Far outside is as good as outside, and keeps the numbers short.
        let near = |p: f64| p.clamp(-1e4, 1e4);
        Some((near(self.x.place(t)?), near(self.y.place(v)?)))
    }

    fn text(&self, svg: &mut String, class: &str, (x, y): (f64, f64), words: &str) {
        let (pen, words) = (self.pen(class), escaped(words));
        let _ = writeln!(svg, "<text {pen} x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
    }

    /// The look of everything that is no curve.
    fn pen(&self, class: &str) -> String {
        if self.medium == Medium::Screen {
            return format!("class=\"{class}\"");
        }
        match class {
            "grid" => "stroke=\"#e2e2e2\" fill=\"none\"",
            "axis" => "stroke=\"#404040\" fill=\"none\"",
            "event" => "stroke=\"#909090\" stroke-dasharray=\"2 4\" fill=\"none\"",
            "title" => "font-size=\"15\" font-weight=\"bold\"",
            "tick end" => "text-anchor=\"end\"",
            "tick middle" | "label middle" => "text-anchor=\"middle\"",
            _ => "font-size=\"12\"",
        }
        .to_owned()
    }

    fn colour(&self, place: usize, series: &Series) -> String {
        let n = series.colour.unwrap_or(place) % COLOURS.len();
        match self.medium {
            Medium::Paper => COLOURS[n].to_owned(),
            Medium::Screen => format!("var(--s{n})"),
        }
    }

    fn curve_pen(&self, place: usize, series: &Series) -> String {
        let colour = self.colour(place, series);
        let round = series.colour.unwrap_or(place) / COLOURS.len();
        let (width, dash, opacity, cap) = match series.style {
            Style::Line | Style::Step => (1.8, DASHES[round % DASHES.len()], 1.0, "butt"),
            Style::Wanted => (1.6, "5 4", 0.75, "butt"),
            Style::Points => (6.0, "", 1.0, "round"),
            Style::Bars => (4.0, "", 0.85, "butt"),
        };
        let mut pen = format!(
            "fill=\"none\" style=\"stroke:{colour}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\" stroke-linecap=\"{cap}\""
        );
        if !dash.is_empty() {
            let _ = write!(pen, " stroke-dasharray=\"{dash}\"");
        }
        if opacity < 1.0 {
            let _ = write!(pen, " stroke-opacity=\"{opacity}\"");
        }
        pen
    }
}

/// What stands at a tick: powers of ten as such where an axis has some that are long.
fn tick(v: f64, ruler: &Ruler, scale: Scale) -> String {
    let plain = scale == Scale::Linear || ruler.range.0 > 0.9e-3 && ruler.range.1 < 1.1e4;
    if plain {
        return number(v);
    }
    let raise = |c: char| match c.to_digit(10) {
        Some(digit) => RAISED[digit as usize],
        None => '⁻',
    };
    let power = v.log10().round() as i64;
    format!("10{}", power.to_string().chars().map(raise).collect::<String>())
}

const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
