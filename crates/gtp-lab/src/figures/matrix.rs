//! A matrix of small pictures: squares with a tone, each with some curves in as few points as show
//! their course. It is for the many runs of a grid, where a figure each would be too much. What a
//! square means is not known here.

use std::fmt::Write as _;

use super::escaped;
use crate::series::{Matrix, Picture, Square, Tone};

/// Width and height of a picture; its curves are in thousandths of its height.
const WIDTH: f64 = 50.0;
const HEIGHT: f64 = 20.0;

/// The matrix as a table of squares.
pub fn matrix(html: &mut String, matrix: &Matrix) {
    *html += "<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>";
    for (name, columns) in &matrix.groups {
        let _ = write!(html, "<th colspan=\"{columns}\">{}</th>", escaped(name));
    }
    *html += "</tr><tr><th></th>";
    for column in &matrix.columns {
        let _ = write!(html, "<th>{}</th>", escaped(column));
    }
    *html += "</tr></thead><tbody>\n";
    for (name, squares) in &matrix.rows {
        let _ = write!(html, "<tr><th>{}</th>", escaped(name));
        for shown in squares {
            match shown {
                Some(shown) => square(html, shown),
                None => *html += "<td></td>",
            }
        }
        *html += "</tr>\n";
    }
    *html += "</tbody></table></div>\n";
}

fn square(html: &mut String, square: &Square) {
    let tone = match square.tone {
        Tone::Plain => "",
        Tone::Good => "square-good",
        Tone::Odd => "square-odd",
        Tone::Bad => "square-bad",
    };
    let text = escaped(&square.text).replace('\n', "&#10;");
    let _ = write!(html, "<td class=\"{tone}\" title=\"{text}\">");
    for shown in &square.pictures {
        picture(html, shown);
    }
    *html += "</td>";
}

fn picture(html: &mut String, picture: &Picture) {
    let _ = write!(
        html,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"{}\">",
        escaped(&picture.name)
    );
    for (place, curve) in picture.curves.iter().enumerate().filter(|(_, c)| c.len() > 1) {
        let class = if place + 1 == picture.curves.len() { "front" } else { "behind" };
        let step = WIDTH / (curve.len() - 1) as f64;
        let point = |(n, &part): (usize, &u16)| {
            // The rate itself lies a little below the upper edge.
            let y = HEIGHT - 1.0 - f64::from(part.min(1_100)) / 1_100.0 * (HEIGHT - 2.0);
            format!("{:.0},{y:.1}", n as f64 * step)
        };
        let points: Vec<String> = curve.iter().enumerate().map(point).collect();
        let _ = write!(html, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }
    *html += "</svg>";
}
