//! Drawn cases: problem and answer in one table, solved and compared.
//!
//! In `tests/cases/maxmin/*.txt`, a table has sinks as columns and sources as rows, each with its
//! capacity behind a colon. A cell lists the expected rates of the sessions from that source to
//! that sink, separated by commas, or holds a dot for none. `rate<demand` and `rate*weight` add
//! what differs from the usual. Besides tables there may be `node name:capacity …` and
//! `path name … : cell` for sessions over any list of resources, and `sum x` for all rates
//! together. Numbers may be fractions. `#` starts a comment.

use gtp_alloc::fairness::check_max_min;
use gtp_alloc::maxmin::{Network, Session, solve};
use std::path::Path;

#[derive(Default)]
struct Case {
    names: Vec<String>,
    capacity: Vec<f64>,
    /// The sinks of the table being read.
    columns: Vec<u32>,
    sessions: Vec<(Vec<u32>, Expected)>,
    sum: Option<f64>,
}

struct Expected {
    rate: f64,
    demand: f64,
    weight: f64,
}

fn number(text: &str) -> f64 {
    let part = |t: &str| t.parse::<f64>().unwrap_or_else(|_| panic!("{t:?} is not a number"));
    text.split_once('/').map_or_else(|| part(text), |(above, below)| part(above) / part(below))
}

/// `rate`, `rate<demand`, `rate*weight` or `rate*weight<demand`.
fn expected(cell: &str) -> Expected {
    let (cell, demand) =
        cell.split_once('<').map_or((cell, f64::INFINITY), |(c, d)| (c, number(d)));
    let (rate, weight) = cell.split_once('*').map_or((cell, 1.0), |(r, w)| (r, number(w)));
    Expected { rate: number(rate), demand, weight }
}

impl Case {
    fn read(text: &str) -> Case {
        let mut case = Case::default();
        for line in text.lines().map(|l| l.split('#').next().unwrap().trim_end()) {
            let mut words = line.split_whitespace();
            match words.next() {
                None => {}
                Some("node") => {
                    for word in words {
                        case.node(word);
                    }
                }
                Some("sum") => case.sum = words.next().map(number),
                Some("path") => {
                    let (path, cell) = line[4..].split_once(" : ").expect("path … : cell");
                    let find = |w: &str| case.names.iter().position(|n| n == w).expect("a node");
                    let path = path.split_whitespace().map(|w| find(w) as u32).collect();
                    case.cell(path, cell);
                }
                Some(_) if line.starts_with(' ') => {
                    case.columns = line.split_whitespace().map(|w| case.node(w)).collect();
                }
                Some(source) => {
                    let source = case.node(source);
                    for (column, cell) in words.enumerate() {
                        case.cell(vec![source, case.columns[column]], cell);
                    }
                }
            }
        }
        case
    }

    fn node(&mut self, word: &str) -> u32 {
        let (name, capacity) = word.split_once(':').expect("name:capacity");
        self.names.push(name.to_owned());
        self.capacity.push(number(capacity));
        self.names.len() as u32 - 1
    }

    fn cell(&mut self, uses: Vec<u32>, cell: &str) {
        for one in cell.split(',').map(str::trim).filter(|one| *one != ".") {
            self.sessions.push((uses.clone(), expected(one)));
        }
    }

    fn check(&self, name: &str) {
        let mut network = Network::new(self.capacity.clone()).unwrap();
        for (uses, s) in &self.sessions {
            network.add(Session { uses, weight: s.weight, demand: s.demand }).unwrap();
        }
        let rates = solve(&network);
        let near = |x: f64, y: f64| (x - y).abs() <= 1e-13 * y;
        for (rate, (uses, s)) in rates.iter().zip(&self.sessions) {
            let path: Vec<&str> = uses.iter().map(|&v| &*self.names[v as usize]).collect();
            assert!(near(*rate, s.rate), "{name}: {path:?} gets {rate}, expected {}", s.rate);
        }
        if let Some(sum) = self.sum {
            let total = rates.iter().sum();
            assert!(near(total, sum), "{name}: {total} in all, expected {sum}");
        }
        assert_eq!(check_max_min(&network, &rates, 1e-12), Ok(()), "{name}");
    }
}

#[test]
fn every_drawn_case_is_solved_as_drawn() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/maxmin");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case = Case::read(&std::fs::read_to_string(&path).unwrap());
        assert!(!case.sessions.is_empty(), "{} has no sessions", path.display());
        case.check(&path.file_name().unwrap().to_string_lossy());
        count += 1;
    }
    assert!(count >= 8, "{count} cases found");
}
