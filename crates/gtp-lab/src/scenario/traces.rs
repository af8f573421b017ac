//! The files of traces that a scenario's links name.
//!
//! They are read once, when the scenario's file is opened, each beside the file that names it, so
//! that the reader of scenarios touches no files. A trace that a sweep puts in is not among them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gtp_link::Trace;

use super::text;
use super::tree::{Complaint, Node, Value};

/// Traces by the number of the file that names them, and the name there.
#[derive(Clone, Debug, Default)]
pub struct Traces(BTreeMap<(usize, String), Trace>);

/// Different traces that one scenario may name.
const TRACES_MAX: usize = 64;

impl Traces {
    /// Reads the traces of all links of a tree, whose files are `paths`.
    ///
    /// # Errors
    /// If one cannot be read, or is refused.
    pub fn open(tree: &Node, paths: &[PathBuf]) -> Result<Traces, Complaint> {
        let mut traces = Traces::default();
        for node in named(tree) {
            let Value::Text(name) = &node.value else { continue };
            let key = (node.place.file, name.clone());
            if traces.0.contains_key(&key) {
                continue;
            }
            if traces.0.len() >= TRACES_MAX {
                let message = format!("more than {TRACES_MAX} traces");
                return Err(Complaint::new(&node.place, message));
            }
            let path = paths.get(key.0).map(|path| path.with_file_name(name)).unwrap_or_default();
            let refused = |why: String| Complaint::new(&node.place, why);
            let text = text(&path, Trace::FILE_MAX).map_err(|e| refused(e.to_string()))?;
            let trace = Trace::read(&text);
            let trace = trace.map_err(|e| refused(format!("{}: {e}", path.display())))?;
            traces.0.insert(key, trace);
        }
        Ok(traces)
    }

    /// Returns the trace of this name, as the file of this number has it.
    pub fn get(&self, file: usize, name: &str) -> Option<&Trace> {
        self.0.get(&(file, name.to_owned()))
    }
}

/// What stands at `trace` in the tables of links.
fn named(tree: &Node) -> impl Iterator<Item = &Node> {
    let links = match at(tree, "link").map(|node| &node.value) {
        Some(Value::List(links)) => links.as_slice(),
        Some(_) | None => &[],
    };
    links.iter().filter_map(|link| at(link, "trace"))
}

/// What stands at a key of a table.
fn at<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let Value::Table(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
}
