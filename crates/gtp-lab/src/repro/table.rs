//! Tables of an entry's page: quantities side by side, a row for each thing compared.
//!
//! A column is a quantity, or several one after another, with a number for each row; a reader
//! compares what checks cannot say in one number. What is missing is said to be, never left out.

use super::formula::Quantities;
use crate::series::{Cell, Part, Table};
use serde::Deserialize;

/// A table as an entry describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tabled {
    /// Its heading.
    pub title: String,
    /// A sentence below it.
    #[serde(default)]
    pub note: String,
    /// What stands before each row.
    pub rows: Vec<String>,
    /// Its columns.
    pub column: Vec<Column>,
}

/// A column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Its heading.
    pub says: String,
    /// The quantities whose numbers stand below each other, a number for each row in all.
    pub of: Vec<String>,
    /// Digits behind the point.
    #[serde(default = "two")]
    pub digits: usize,
    /// By what numbers are multiplied: 100 for per cent.
    #[serde(default = "one")]
    pub times: f64,
}

fn two() -> usize {
    2
}

fn one() -> f64 {
    1.0
}

/// The tables of an entry as parts of its page.
pub fn parts(tables: &[Tabled], quantities: &Quantities) -> Vec<Part> {
    tables.iter().map(|table| Part::Table(made(table, quantities))).collect()
}

fn made(table: &Tabled, quantities: &Quantities) -> Table {
    let columns: Vec<Vec<Cell>> = table.column.iter().map(|c| cells(c, quantities)).collect();
    let row = |(n, name): (usize, &String)| {
        let cell = |column: &Vec<Cell>| {
            column.get(n).cloned().unwrap_or_else(|| Cell::from("not computed".to_owned()))
        };
        std::iter::once(Cell::leading(name.clone())).chain(columns.iter().map(cell)).collect()
    };
    let heads = table.column.iter().map(|column| column.says.clone());
    Table {
        title: table.title.clone(),
        head: std::iter::once(String::new()).chain(heads).collect(),
        rows: table.rows.iter().enumerate().map(row).collect(),
        note: table.note.clone(),
    }
}

fn cells(column: &Column, quantities: &Quantities) -> Vec<Cell> {
    let numbers = column.of.iter().flat_map(|name| quantities.get(name).into_iter().flatten());
    numbers.map(|x| Cell::from(format!("{:.*}", column.digits, x * column.times))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_several_quantities_stand_below_each_other_and_what_lacks_is_said() {
        let text = "title = 't'\nrows = ['a', 'b', 'c']\n\
                    [[column]]\nsays = 'use'\nof = ['x', 'y']\ntimes = 100\ndigits = 0";
        let table: Tabled = toml::from_str(text).expect("a table");
        let mut quantities = Quantities::default();
        quantities.insert("x".to_owned(), vec![0.5]);
        quantities.insert("y".to_owned(), vec![0.25]);
        let made = made(&table, &quantities);
        let cells: Vec<Cell> = made.rows.iter().map(|row| row[1].clone()).collect();
        let wanted = ["50", "25", "not computed"].map(|text| Cell::from(text.to_owned()));
        assert_eq!(cells, wanted);
        assert_eq!(made.head, ["", "use"]);
    }
}
