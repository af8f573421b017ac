//! Tables for terminals of any width: columns are chosen by rank, and figures are never cut.
//!
//! A column of figures is as wide as its widest cell; one of text takes what is left, and says
//! with a mark where it is cut. This file knows no session and no user.

use console::{measure_text_width, truncate_str};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::widgets::{Row, Table};

/// A column of a table.
pub struct Column<T> {
    /// Those of lower rank come first when there is not room for all.
    rank: u8,
    title: String,
    least: u16,
    kind: Kind,
    says: Box<dyn Fn(&T) -> String>,
}

/// How a column takes its width.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is shown whole or not at all.
    Figure,
    /// It takes what is left, the least at least, and is cut.
    Text,
}

impl<T> Column<T> {
    /// A column whose cells are never cut; it keeps this width while they are shorter.
    pub fn figure(
        rank: u8,
        title: &str,
        least: u16,
        says: impl Fn(&T) -> String + 'static,
    ) -> Column<T> {
        Column::new((rank, title, least), Kind::Figure, says)
    }

    /// A column that takes what others leave, so much at least.
    pub fn text(
        rank: u8,
        title: &str,
        least: u16,
        says: impl Fn(&T) -> String + 'static,
    ) -> Column<T> {
        Column::new((rank, title, least), Kind::Text, says)
    }

    fn new(
        (rank, title, least): (u8, &str, u16),
        kind: Kind,
        says: impl Fn(&T) -> String + 'static,
    ) -> Column<T> {
        Column { rank, title: title.to_owned(), least, kind, says: Box::new(says) }
    }

    /// The width without which it is not shown.
    fn width(&self, rows: &[T]) -> u16 {
        let cells = rows.iter().map(|row| measure_text_width(&(self.says)(row)));
        let widest = match self.kind {
            Kind::Figure => cells.max().unwrap_or(0).max(measure_text_width(&self.title)),
            Kind::Text => 0,
        };
        u16::try_from(widest).unwrap_or(u16::MAX).max(self.least)
    }
}

/// The width that these columns need side by side.
pub fn needed<T>(columns: &[Column<T>], rows: &[T]) -> u16 {
    let widths = columns.iter().map(|column| column.width(rows));
    widths.fold(0, |sum: u16, width| sum.saturating_add(width).saturating_add(GAP)) - GAP
}

/// The columns that have room, in their order, with their widths. Where even the first has none it
/// is shown alone.
fn chosen<'a, T>(columns: &'a [Column<T>], rows: &[T], room: u16) -> Vec<(&'a Column<T>, u16)> {
    let widths: Vec<u16> = columns.iter().map(|column| column.width(rows)).collect();
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|&at| columns[at].rank);
    let mut taken = Vec::new();
    let mut left = room;
    // The first that has no room is the last that is looked at, so that a wider terminal shows all
    // that a narrower one does.
    for at in by_rank {
        let takes = widths[at].saturating_add(if taken.is_empty() { 0 } else { GAP });
        if takes > left && !taken.is_empty() {
            break;
        }
        left = left.saturating_sub(takes);
        taken.push(at);
    }
    taken.sort_unstable();
    let wide = |at: usize| match columns[at].kind {
        Kind::Figure => widths[at],
        Kind::Text => widths[at] + std::mem::take(&mut left),
    };
    let widths: Vec<u16> = taken.iter().copied().map(wide).collect();
    taken.into_iter().map(|at| &columns[at]).zip(widths).collect()
}

/// Draws the rows from this one on, in the columns that have room.
pub fn draw_table<T>(
    frame: &mut Frame<'_>,
    area: Rect,
    columns: &[Column<T>],
    rows: &[T],
    first: usize,
) {
    let chosen = chosen(columns, rows, area.width);
    let widths = chosen.iter().map(|(_, width)| Constraint::Length(*width));
    let cell = |row: &T, column: &Column<T>, width: u16| {
        truncate_str(&(column.says)(row), width.into(), "…").into_owned()
    };
    let lines = rows.iter().skip(first).map(|row| {
        Row::new(chosen.iter().map(|(column, width)| cell(row, column, *width)).collect::<Vec<_>>())
    });
    let header = Row::new(chosen.iter().map(|(column, _)| column.title.as_str()));
    let header = header.style(Style::new().add_modifier(Modifier::REVERSED));
    let table = Table::new(lines, widths).header(header).column_spacing(GAP);
    frame.render_widget(table, area);
}

/// A text in lines of so many columns at most, broken between words; a longer word is cut.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        let word = truncate_str(word, columns, "…");
        if line.is_empty() {
            line.push_str(&word);
        } else if measure_text_width(line) + 1 + measure_text_width(&word) <= columns {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word.into_owned());
        }
    }
    lines
}

/// Between two columns.
const GAP: u16 = 1;
