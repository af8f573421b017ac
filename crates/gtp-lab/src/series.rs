//! What is shown: curves, the figures they share, tables, and the page that holds them all.
//!
//! Plain values with no opinion about looks. Engines do not know them: whoever ran something turns
//! its results into these, and `figures` turns these into HTML and SVG. Values are in the unit that
//! the axis states (Mbit/s, not bit/s), so that what is written is what is drawn.

/// The median of ascending values: the middle one, or the mean of the middle two. `None` of none.
pub fn median(ascending: &[f64]) -> Option<f64> {
    let (lower, upper) = (ascending.len().checked_sub(1)? / 2, ascending.len() / 2);
    match (ascending[lower], ascending[upper]) {
        // Also where both are infinite, which have no mean.
        (low, high) if low == high => Some(low),
        (low, high) => Some(low + (high - low) / 2.0),
    }
}

/// How a curve is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Style {
    /// A line from point to point.
    #[default]
    Line,
    /// A level held from its point to the next one.
    Step,
    /// A dashed level: what should be, such as a max-min share.
    Wanted,
    /// Marks without a line.
    Points,
    /// A bar from zero at each point.
    Bars,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Unit of its values, as it is to be printed behind them: `"Mbit/s"`.
    pub unit: String,
    /// `(x, value)`, x ascending: seconds where x is time. A value that is not finite breaks the
    /// line.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub style: Style,
    /// `(x, lower, upper)`: a pale band behind the curve, such as quantiles; empty for none.
    pub band: Vec<(f64, f64, f64)>,
    /// Number of its colour; its place among the figure's series where none is given. A wanted
    /// level takes the colour of the curve that should follow it.
    pub colour: Option<usize>,
}

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, unit: &str, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), unit: unit.to_owned(), points, ..Series::default() }
    }

    /// The same curve in another style.
    #[must_use]
    pub fn styled(self, style: Style) -> Series {
        Series { style, ..self }
    }

    /// The same curve in a colour of this number.
    #[must_use]
    pub fn coloured(self, colour: usize) -> Series {
        Series { colour: Some(colour), ..self }
    }

    /// The same curve with a band behind it.
    #[must_use]
    pub fn banded(self, band: Vec<(f64, f64, f64)>) -> Series {
        Series { band, ..self }
    }
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scale {
    /// Evenly; an axis of values starts at zero unless some are below.
    #[default]
    Linear,
    /// By powers of ten; what is not above zero is left out.
    Log,
}

/// One axis of a figure.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Axis {
    /// What it shows, with its unit: `"Time, s"`.
    pub label: String,
    /// How it runs.
    pub scale: Scale,
    /// Its ends, where they shall not follow from the points.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// An even axis whose ends follow from the points.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear, range: None }
    }

    /// A logarithmic axis whose ends follow from the points.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), scale: Scale::Log, range: None }
    }
}

/// Curves over common axes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Figure {
    /// Short name for files and anchors: small letters, digits and hyphens.
    pub id: String,
    /// What it shows, in a line.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves, in drawing order.
    pub series: Vec<Series>,
    /// Vertical lines with a word each: what happened when.
    pub marks: Vec<(f64, String)>,
    /// How to read it, in a sentence or two below it; may be empty.
    pub note: String,
}

impl Figure {
    /// An empty figure.
    pub fn new(id: &str, title: impl Into<String>, x: Axis, y: Axis) -> Figure {
        Figure { id: id.to_owned(), title: title.into(), x, y, ..Figure::default() }
    }
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing to say about it.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Worth a look.
    Odd,
    /// Not as it should be.
    Bad,
}

/// A text with its tone.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cell {
    /// What stands there.
    pub text: String,
    /// How it is to be taken.
    pub tone: Tone,
    /// The beginning, up to a colon, of the heading to which it leads; empty if to none.
    pub leads_to: String,
}

impl Cell {
    /// A text in this tone.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone, leads_to: String::new() }
    }

    /// A text that leads to the heading that begins with it and a colon.
    pub fn leading(text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell { leads_to: text.clone(), ..Cell::from(text) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

/// A table of texts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// Column headings.
    pub head: Vec<String>,
    /// Rows, as wide as the head.
    pub rows: Vec<Vec<Cell>>,
    /// A sentence below it; may be empty.
    pub note: String,
}

/// A number that is to be seen at once, with what it is.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tile {
    /// The number with its unit.
    pub value: Cell,
    /// What it is.
    pub text: String,
}

/// A matrix of small pictures.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Matrix {
    /// Headings above the columns' own, each over so many of them.
    pub groups: Vec<(String, usize)>,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows by name, as wide as the columns; `None` where there is nothing.
    pub rows: Vec<(String, Vec<Option<Square>>)>,
}

/// One square of a matrix.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Square {
    /// How it is to be taken.
    pub tone: Tone,
    /// What is said of it, in lines.
    pub text: String,
    /// Its pictures, one below the other.
    pub pictures: Vec<Picture>,
}

/// Some curves in few points.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Picture {
    /// Whose they are.
    pub name: String,
    /// Values in thousandths of what fills the height; the last curve is in front.
    pub curves: Vec<Vec<u16>>,
}

/// A piece of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A heading that groups what follows.
    Heading(String),
    /// A paragraph of plain text.
    Text(String),
    /// Text to be shown as it was written, such as a file.
    Listing(String),
    /// Curves.
    Figure(Figure),
    /// A table.
    Table(Table),
    /// A matrix of small pictures.
    Matrix(Matrix),
}

/// One page: everything about one run, one sweep or one report.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// What was done, in a sentence or two; may be empty.
    pub lead: String,
    /// The numbers at its head.
    pub tiles: Vec<Tile>,
    /// Everything else, from top to bottom.
    pub parts: Vec<Part>,
}

impl Page {
    /// Its figures, from top to bottom.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.parts.iter().filter_map(|part| match part {
            Part::Figure(figure) => Some(figure),
            Part::Heading(_)
            | Part::Text(_)
            | Part::Listing(_)
            | Part::Table(_)
            | Part::Matrix(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_lies_between_them() {
        for (ascending, middle) in [
            (&[] as &[f64], None),
            (&[3.0], Some(3.0)),
            (&[1.0, 2.0], Some(1.5)),
            (&[1.0, 2.0, 9.0], Some(2.0)),
            (&[1.0, 2.0, 4.0, 9.0], Some(3.0)),
            (&[1.0, f64::INFINITY], Some(f64::INFINITY)),
            (&[f64::INFINITY; 2], Some(f64::INFINITY)),
        ] {
            assert_eq!(median(ascending), middle);
        }
    }
}
