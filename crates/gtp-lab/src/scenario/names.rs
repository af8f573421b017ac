//! Names of one kind of thing, and patterns that stand for several.
//!
//! Names are unique within their kind. A name that does not exist is answered with the one that
//! looks most like it, or with all there are.

use std::collections::HashMap;

use super::read::{At, listed, nearest};
use super::tree::{Complaint, Place};

/// Names in the order of their things.
#[derive(Debug, Default)]
pub struct Names {
    kind: &'static str,
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    /// Adds the next thing's name.
    ///
    /// # Errors
    /// If it is taken, or is no plain name.
    pub fn add(&mut self, kind: &'static str, name: &str, at: &Place) -> Result<(), Complaint> {
        self.kind = kind;
        let plain = |c: char| !c.is_control() && !"*?[]{},\"".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            let message = format!(
                "{name:?} cannot be a name: up to {NAME_MAX} bytes without * ? [ ] {{ }} , or \
                 quotes"
            );
            return Err(Complaint::new(at, message));
        }
        if self.places.insert(name.to_owned(), self.names.len()).is_some() {
            return Err(Complaint::new(at, format!("a second {kind} of the name {name:?}")));
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    /// The place of the thing of this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn place(&self, name: &At<String>) -> Result<usize, Complaint> {
        self.places.get(&name.value).copied().ok_or_else(|| self.missing(name))
    }

    /// The places of the things of these names.
    ///
    /// # Errors
    /// If there is none for one.
    pub fn places(&self, names: &[At<String>]) -> Result<Vec<usize>, Complaint> {
        names.iter().map(|name| self.place(name)).collect()
    }

    /// The places of all things that a name stands for; `*` stands for any text.
    ///
    /// # Errors
    /// If there is none.
    pub fn matching(&self, pattern: &At<String>) -> Result<Vec<usize>, Complaint> {
        if !pattern.value.contains('*') {
            return Ok(vec![self.place(pattern)?]);
        }
        let found: Vec<usize> = (self.names.iter().enumerate())
            .filter(|(_, name)| fits(name, &pattern.value))
            .map(|(place, _)| place)
            .collect();
        if found.is_empty() { Err(self.missing(pattern)) } else { Ok(found) }
    }

    fn missing(&self, name: &At<String>) -> Complaint {
        let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let kind = if self.kind.is_empty() { "such thing" } else { self.kind };
        let hint = match nearest(&name.value, &known) {
            Some(near) => format!("did you mean {near:?}?"),
            None if known.is_empty() => "there are none".to_owned(),
            None if known.len() > SHOWN_MAX => format!("there are {} others", known.len()),
            None => format!("there are {}", listed(&known, "and")),
        };
        Complaint::new(&name.place, format!("no {kind} {:?}: {hint}", name.value))
    }
}

/// Longest name.
const NAME_MAX: usize = 100;
/// Names listed in a complaint.
const SHOWN_MAX: usize = 12;

/// Whether a name fits a pattern in which `*` stands for any text: the pieces between the stars
/// come one after another, the first at the start and the last at the end.
fn fits(name: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: &str) -> At<String> {
        At { value: value.to_owned(), place: Place::default() }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let mut names = Names::default();
        for name in ["src1", "src2", "dst1", "src12"] {
            names.add("host", name, &Place::default()).expect("new");
        }
        let found = |pattern| names.matching(&at(pattern)).expect("some");
        assert_eq!(found("src*"), [0, 1, 3]);
        assert_eq!(found("*1"), [0, 2]);
        assert_eq!(found("s*1*"), [0, 3]);
        assert_eq!(found("*"), [0, 1, 2, 3]);
        assert_eq!(found("src2"), [1]);
        assert!(names.matching(&at("x*")).is_err());
    }

    #[test]
    fn a_missing_name_is_answered_with_the_nearest() {
        let mut names = Names::default();
        names.add("link", "access", &Place::default()).expect("new");
        let said = names.place(&at("acess")).expect_err("none").message;
        assert_eq!(said, "no link \"acess\": did you mean \"access\"?");
        let said = names.place(&at("core")).expect_err("none").message;
        assert_eq!(said, "no link \"core\": there are access");
        assert!(names.add("link", "access", &Place::default()).is_err());
        assert!(names.add("link", "a*", &Place::default()).is_err());
    }
}
