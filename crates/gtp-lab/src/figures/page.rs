//! The HTML page.
//!
//! It writes what it is given, in order, and adds nothing of its own: style, script and the
//! numbers for the pointer stand in the page itself.

use std::fmt::Write as _;

use super::draw::{self, Medium};
use super::escaped;
use super::matrix::matrix;
use super::thin::thinned;
use crate::series::{Figure, Page, Part, Scale, Series, Style, Table, Tone};
use serde::Serialize;

/// A page as one HTML file.
pub fn html(page: &Page) -> String {
    let title = escaped(&page.title);
    let mut html = String::with_capacity(256 << 10);
    html += "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let _ = write!(html, "<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n");
    let _ = writeln!(html, "<header><div><h1>{title}</h1>");
    if !page.lead.is_empty() {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escaped(&page.lead));
    }
    html += "</div>\n<button id=\"theme\" type=\"button\">light / dark</button></header>\n";
    tiles(&mut html, page);
    let points = POINTS_MAX / page.figures().map(|f| f.series.len()).sum::<usize>().max(1);
    for part in &page.parts {
        match part {
            Part::Heading(words) => {
                let _ = writeln!(html, "<h2 id=\"{}\">{}</h2>", anchor(words), escaped(words));
            }
            Part::Text(words) => {
                let _ = writeln!(html, "<p>{}</p>", escaped(words));
            }
            Part::Listing(words) => {
                let _ = writeln!(html, "<pre>{}</pre>", escaped(words));
            }
            Part::Figure(shown) => figure(&mut html, shown, points.clamp(200, 2_000)),
            Part::Table(shown) => table(&mut html, shown),
            Part::Matrix(shown) => matrix(&mut html, shown),
        }
    }
    let _ = write!(html, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    html
}

/// Points of all curves that a page carries for its script: some ten megabytes.
const POINTS_MAX: usize = 500_000;

fn tiles(html: &mut String, page: &Page) {
    if page.tiles.is_empty() {
        return;
    }
    *html += "<section class=\"tiles\">\n";
    for tile in &page.tiles {
        let (value, text) = (escaped(&tile.value.text), escaped(&tile.text));
        let class = class(tile.value.tone);
        let _ = writeln!(
            html,
            "<div class=\"tile\"><b class=\"{class}\">{value}</b><span>{text}</span></div>"
        );
    }
    *html += "</section>\n";
}

fn table(html: &mut String, table: &Table) {
    if !table.title.is_empty() {
        let _ = writeln!(html, "<h3>{}</h3>", escaped(&table.title));
    }
    let kinds: Vec<&str> = (0..table.head.len()).map(|column| kind(table, column)).collect();
    *html += "<div class=\"scroll\"><table><thead><tr>";
    for (head, kind) in table.head.iter().zip(&kinds) {
        let _ = write!(html, "<th class=\"{kind}\">{}</th>", escaped(head));
    }
    *html += "</tr></thead><tbody>\n";
    for row in &table.rows {
        *html += "<tr>";
        for (cell, kind) in row.iter().zip(&kinds) {
            let text = match cell.leads_to.as_str() {
                "" => escaped(&cell.text),
                to => format!("<a href=\"#{}\">{}</a>", anchor(to), escaped(&cell.text)),
            };
            let _ = write!(html, "<td class=\"{kind} {}\">{text}</td>", class(cell.tone));
        }
        *html += "</tr>\n";
    }
    *html += "</tbody></table></div>\n";
    if !table.note.is_empty() {
        let _ = writeln!(html, "<p class=\"soft\">{}</p>", escaped(&table.note));
    }
}

/// Columns with longer texts are broken into lines.
const SHORT: usize = 30;

/// How a column is set: numbers to the right, words to the left, sentences in lines.
fn kind(table: &Table, column: usize) -> &'static str {
    let texts = || table.rows.iter().filter_map(|row| row.get(column)).map(|cell| &cell.text);
    let is_word = |text: &String| text.starts_with(char::is_alphabetic);
    if texts().any(|text| text.chars().count() > SHORT) {
        "sentence"
    } else if texts().any(is_word) && texts().all(|text| text.is_empty() || is_word(text)) {
        "words"
    } else {
        ""
    }
}

/// What leads to a heading: its text up to a colon, without what an address may not hold.
fn anchor(heading: &str) -> String {
    let name = heading.split(": ").next().unwrap_or(heading);
    name.chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

fn figure(html: &mut String, figure: &Figure, points: usize) {
    let id = escaped(&figure.id);
    let _ = write!(html, "<figure class=\"figure\" id=\"{id}\">\n<div class=\"plot\">\n");
    *html += &draw::svg(figure, Medium::Screen);
    *html += "<div class=\"tip\"></div></div>\n<ul class=\"legend\">\n";
    for (place, series) in figure.series.iter().enumerate() {
        if !series.name.is_empty() {
            legend_item(html, place, series);
        }
    }
    *html += "</ul>\n";
    if !figure.note.is_empty() {
        let _ = writeln!(html, "<figcaption>{}</figcaption>", escaped(&figure.note));
    }
    // Plain numbers and texts: the writer has nothing to refuse. `</` could end the script.
    let json = serde_json::to_string(&Numbers::of(figure, points)).unwrap_or_default();
    let json = json.replace("</", "<\\/");
    let _ = write!(html, "<script type=\"application/json\">{json}</script>\n</figure>\n");
}

fn legend_item(html: &mut String, place: usize, series: &Series) {
    let colour = series.colour.unwrap_or(place) % draw::COLOURS.len();
    let round = series.colour.unwrap_or(place) / draw::COLOURS.len();
    let kind = match series.style {
        Style::Line | Style::Step => draw::DASHES[round % draw::DASHES.len()],
        Style::Wanted => "5 4",
        Style::Points | Style::Bars => "",
    };
    let way = if series.style == Style::Points { "M13 6h0" } else { "M0 6H26" };
    let width = if series.style == Style::Points { 7 } else { 3 };
    let _ = writeln!(
        html,
        "<li><button type=\"button\" data-place=\"{place}\" aria-pressed=\"true\">\
         <svg viewBox=\"0 0 26 12\" aria-hidden=\"true\"><path d=\"{way}\" fill=\"none\" \
         style=\"stroke:var(--s{colour})\" stroke-width=\"{width}\" stroke-linecap=\"{}\" \
         stroke-dasharray=\"{kind}\"/></svg>{}</button></li>",
        if series.style == Style::Points { "round" } else { "butt" },
        escaped(&series.name),
    );
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Good => "good",
        Tone::Odd => "odd",
        Tone::Bad => "bad",
    }
}

/// A figure's numbers for the script.
#[derive(Serialize)]
struct Numbers<'a> {
    /// Width, height, and the room that the plot leaves free: left, right, top, bottom.
    frame: [f64; 6],
    x: AxisNumbers<'a>,
    y: AxisNumbers<'a>,
    marks: Vec<(f64, &'a str)>,
    series: Vec<Curve<'a>>,
}

#[derive(Serialize)]
struct AxisNumbers<'a> {
    label: &'a str,
    log: bool,
    range: Option<(f64, f64)>,
}

#[derive(Serialize)]
struct Curve<'a> {
    name: &'a str,
    unit: &'a str,
    style: &'static str,
    colour: usize,
    x: Vec<Short>,
    y: Vec<Option<Short>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    band: Vec<(Short, Short, Short)>,
}

/// A number with seven digits, which is more than a screen can show.
#[derive(Clone, Copy)]
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let short = format!("{:.6e}", self.0).parse().unwrap_or(self.0);
        serializer.serialize_f64(short)
    }
}

impl<'a> Numbers<'a> {
    fn of(figure: &'a Figure, points: usize) -> Numbers<'a> {
        let axis = |axis: &'a crate::series::Axis| AxisNumbers {
            label: &axis.label,
            log: axis.scale == Scale::Log,
            range: axis.range,
        };
        Numbers {
            frame: [draw::WIDTH, draw::HEIGHT, draw::LEFT, draw::RIGHT, draw::TOP, draw::BOTTOM],
            x: axis(&figure.x),
            y: axis(&figure.y),
            marks: figure.marks.iter().map(|(at, word)| (*at, word.as_str())).collect(),
            series: (0..).zip(&figure.series).map(|(n, s)| Curve::of(n, s, points)).collect(),
        }
    }
}

impl<'a> Curve<'a> {
    fn of(place: usize, series: &'a Series, most: usize) -> Curve<'a> {
        let points = thinned(&series.points, most);
        let every = series.band.len() / most + 1;
        Curve {
            name: &series.name,
            unit: &series.unit,
            style: match series.style {
                Style::Line => "line",
                Style::Step => "step",
                Style::Wanted => "wanted",
                Style::Points => "points",
                Style::Bars => "bars",
            },
            colour: series.colour.unwrap_or(place),
            x: points.iter().map(|p| Short(p.0)).collect(),
            y: points.iter().map(|p| p.1.is_finite().then_some(Short(p.1))).collect(),
            band: series
                .band
                .iter()
                .step_by(every)
                .map(|b| (Short(b.0), Short(b.1), Short(b.2)))
                .collect(),
        }
    }
}

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
