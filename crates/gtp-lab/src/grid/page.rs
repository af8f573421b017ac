//! The grid as one page: a table of tests, a matrix of small pictures for each, and all misses.
//!
//! It decides nothing: verdicts come with what it shows. Green holds, amber is a known miss, red is
//! a miss that is new or larger than known.

use std::fmt::Write as _;

use gtp_lab::series::{Cell as Text, Matrix, Page, Part, Picture, Square, Table, Tile, Tone};

use super::misses::Standing;
use super::{Cell, Claim, Curves, Queue, RATES, RTTS, Who, claim};

/// A test as the page shows it.
pub struct Shown {
    /// Its name.
    pub name: String,
    /// A sentence that says what it plays.
    pub about: String,
    /// The cells on which it was played.
    pub cells: Vec<Judged>,
}

/// A test on one cell, judged.
pub struct Judged {
    /// The cell on which it was played.
    pub cell: Cell,
    /// Its claims and how each stands.
    pub claims: Vec<(Claim, Standing)>,
    /// The same claims of others in GTP's place; none if they were not played.
    pub beside: [(Who, Vec<Claim>); 2],
    /// The course of a run of everybody who was played.
    pub pictures: Vec<(Who, Curves)>,
}

/// Whose figures stand beside GTP's.
pub const BESIDE: [Who; 2] = [Who::Cubic, Who::Bbr3];

impl Judged {
    /// Returns what somebody else has in GTP's place, as each of [`BESIDE`], of the claim of this
    /// name.
    fn beside(&self, name: &str) -> [String; 2] {
        self.beside.each_ref().map(|(_, claims)| {
            let claim = claims.iter().find(|claim| claim.name == name);
            claim.map_or_else(|| "-".to_owned(), |claim| claim::short(claim.value))
        })
    }

    /// Returns its colour: good if all claims hold, odd if every miss is known, bad if one is new
    /// or worse than known.
    pub fn tone(&self) -> Tone {
        if self.claims.iter().any(|(_, standing)| standing.fails()) {
            Tone::Bad
        } else if self.claims.iter().all(|(_, standing)| standing.holds()) {
            Tone::Good
        } else {
            Tone::Odd
        }
    }
}

/// Makes the page of all tests.
pub fn page(title: &str, shown: &[Shown]) -> Page {
    let mut parts = vec![Part::Table(overview(shown))];
    for test in shown.iter().filter(|test| !test.cells.is_empty()) {
        parts.push(Part::Heading(format!("{}: {}", test.name, counted(test))));
        parts.push(Part::Text(test.about.clone()));
        parts.push(Part::Matrix(matrix(test)));
        let misses = misses(test);
        if !misses.rows.is_empty() {
            parts.push(Part::Table(misses));
        }
    }
    Page { title: title.to_owned(), lead: LEAD.to_owned(), tiles: tiles(shown), parts }
}

const LEAD: &str = "Each square is a bottleneck: its rate, round-trip time and queue (ten \
    packets, or parts of a bandwidth-delay product). Its pictures show, from above, GTP, and in \
    GTP's place a CUBIC and a BBR of version 1 and of version 3: what was played in that place, \
    and pale what all others had together, over time, up to the bottleneck's rate. Point at a \
    square to read its claims, and what a CUBIC and a BBR of version 3 have there. The worst of \
    all starts counts; a picture is of the first.";

fn count(test: &Shown, tone: Tone) -> usize {
    test.cells.iter().filter(|judged| judged.tone() == tone).count()
}

fn counted(test: &Shown) -> String {
    format!("{} of {} cells hold", count(test, Tone::Good), test.cells.len())
}

fn tiles(shown: &[Shown]) -> Vec<Tile> {
    let sum = |tone| shown.iter().map(|test| count(test, tone)).sum::<usize>();
    let tile = |tone, text: &str| Tile {
        value: Text::toned(sum(tone).to_string(), tone),
        text: text.to_owned(),
    };
    vec![
        tile(Tone::Good, "cells hold"),
        tile(Tone::Odd, "known misses, none worse"),
        tile(Tone::Bad, "new or worse misses"),
    ]
}

fn overview(shown: &[Shown]) -> Table {
    let head = ["test", "what is played", "cells", "hold", "known misses", "new or worse"];
    let row = |test: &Shown| {
        let number = |tone| match count(test, tone) {
            0 => Text::from("0"),
            n => Text::toned(n.to_string(), tone),
        };
        let name = match test.cells.len() {
            0 => Text::from(test.name.as_str()),
            _ => Text::leading(test.name.as_str()),
        };
        vec![
            name,
            test.about.as_str().into(),
            test.cells.len().to_string().into(),
            number(Tone::Good),
            number(Tone::Odd),
            number(Tone::Bad),
        ]
    };
    Table {
        head: head.map(str::to_owned).into(),
        rows: shown.iter().map(row).collect(),
        ..Table::default()
    }
}

fn matrix(test: &Shown) -> Matrix {
    let columns = RTTS.iter().flat_map(|rtt| Queue::ALL.map(|queue| (*rtt, queue)));
    let columns: Vec<(u64, Queue)> = columns.collect();
    let square = |mbps, rtt_ms, queue| {
        let cell = Cell { mbps, rtt_ms, queue };
        test.cells.iter().find(|judged| judged.cell == cell).map(square)
    };
    let row = |mbps: u64| {
        let squares = columns.iter().map(|&(rtt, queue)| square(mbps, rtt, queue)).collect();
        (format!("{mbps} Mbit/s"), squares)
    };
    Matrix {
        groups: RTTS.iter().map(|rtt| (format!("{rtt} ms"), Queue::ALL.len())).collect(),
        columns: columns.iter().map(|(_, queue)| queue.name().to_owned()).collect(),
        rows: RATES.iter().map(|&mbps| row(mbps)).collect(),
    }
}

fn square(judged: &Judged) -> Square {
    let mut text = judged.cell.to_string();
    for (claim, standing) in &judged.claims {
        let [cubic, bbr3] = judged.beside(claim.name);
        let _ = write!(text, "\n{claim}: {}; cubic {cubic}, bbr3 {bbr3}", word(*standing));
    }
    let picture = |(who, curves): &(Who, Curves)| Picture {
        name: who.name().to_owned(),
        curves: vec![curves.others.clone(), curves.ours.clone()],
    };
    Square { tone: judged.tone(), text, pictures: judged.pictures.iter().map(picture).collect() }
}

fn misses(test: &Shown) -> Table {
    let mut rows = Vec::new();
    for judged in &test.cells {
        for (claim, standing) in judged.claims.iter().filter(|(claim, _)| !claim.holds()) {
            let tone = if standing.fails() { Tone::Bad } else { Tone::Odd };
            let [cubic, bbr3] = judged.beside(claim.name);
            rows.push(vec![
                judged.cell.to_string().into(),
                claim.to_string().into(),
                cubic.into(),
                bbr3.into(),
                Text::toned(word(*standing), tone),
            ]);
        }
    }
    let head = ["cell", "claim", "cubic", "bbr3", "standing"].map(str::to_owned).into();
    Table { title: "Misses".to_owned(), head, rows, note: String::new() }
}

/// Says in words how a claim stands.
pub fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Holds => "holds",
        Standing::HoldsNow => "holds now",
        Standing::Known => "a known miss",
        Standing::Better => "a smaller miss than known",
        Standing::Worse => "a larger miss than known",
        Standing::New => "a new miss",
    }
}
