//! The results of runs in a file, so that a grid goes on where it was interrupted.
//!
//! A row is one run: which, a stamp, and what was measured. The stamp says of what the result
//! follows: the scenario and, for GTP, the program itself; for a rival a short run of it, since its
//! laws change more seldom than ours. A row with another stamp is as good as none. A line that was
//! cut off is passed over.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gtp_sim::hash::RunHash;
use serde::{Deserialize, Serialize};

use super::{Curves, Figures};

/// What is kept of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Result {
    /// The figures that were read off it.
    pub figures: Figures,
    /// Its course as a small picture shows it.
    pub curves: Curves,
}

/// A line of the file. A figure that is not a number is `null` there.
#[derive(Serialize, Deserialize)]
struct Row {
    run: String,
    stamp: String,
    figures: std::collections::BTreeMap<String, Option<f64>>,
    curves: Curves,
}

/// The file of kept runs, with what it holds.
pub struct Store {
    rows: Mutex<HashMap<String, (String, Result)>>,
    file: Mutex<File>,
}

impl Store {
    /// Opens a file and reads it. It is made if it does not exist.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Store> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let text = io::read_to_string(&mut file)?;
        let mut rows = HashMap::new();
        for row in text.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok()) {
            let number = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::NAN));
            let figures = row.figures.into_iter().map(number).collect();
            rows.insert(row.run, (row.stamp, Result { figures, curves: row.curves }));
        }
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Store { rows: Mutex::new(rows), file: Mutex::new(file) })
    }

    /// Returns the result of a run, if it is there under this stamp.
    pub fn get(&self, run: &str, stamp: &str) -> Option<Result> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(run).filter(|(of, _)| of == stamp).map(|(_, result)| result.clone())
    }

    /// Keeps the result of a run under a stamp.
    ///
    /// # Errors
    /// The error of the system.
    pub fn put(&self, run: &str, stamp: &str, result: Result) -> io::Result<()> {
        let number =
            |(name, value): (&String, &f64)| (name.clone(), value.is_finite().then_some(*value));
        let row = Row {
            run: run.to_owned(),
            stamp: stamp.to_owned(),
            figures: result.figures.iter().map(number).collect(),
            curves: result.curves.clone(),
        };
        let line = format!("{}\n", serde_json::to_string(&row)?);
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?;
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        rows.insert(row.run, (row.stamp, result));
        Ok(())
    }
}

/// Returns a hash of bytes, for stamps.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = RunHash::new(0);
    hash.mix_bytes(bytes);
    hash.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_again_under_its_stamp_alone_and_after_a_cut() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rows");
        let result = Result {
            figures: [("a".to_owned(), 0.1), ("b".to_owned(), 2.0)].into(),
            curves: Curves { ours: vec![1, 2], others: Vec::new() },
        };
        let store = Store::open(&path).expect("made");
        store.put("one", "x", result.clone()).expect("written");
        let bad = Result { figures: [("a".to_owned(), f64::NAN)].into(), ..Result::default() };
        store.put("two", "x", bad).expect("written");
        drop(store);
        let cut = std::fs::read_to_string(&path).expect("text");
        std::fs::write(&path, format!("{cut}{{\"run\": \"thr")).expect("written");
        let store = Store::open(&path).expect("read");
        assert_eq!(store.get("one", "x"), Some(result.clone()));
        assert_eq!(store.get("one", "y"), None);
        assert!(store.get("two", "x").is_some_and(|two| two.figures["a"].is_nan()));
        store.put("three", "x", result.clone()).expect("written");
        drop(store);
        let again = Store::open(&path).expect("read");
        assert_eq!(again.get("three", "x"), Some(result));
    }
}
