//! A breach of a rule: where it is, how large, and in whose words.
//!
//! Rules that count (a banned call) report one breach of size 1 per place; rules that measure (a
//! long function) report one breach of the measured size. The judge adds sizes up per rule, file
//! and item, so both kinds fit one exemption format.

/// The rules that the lint knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A crate depends on what its layer must not know, or lacks its compile-time walls.
    Layer,
    /// A clock is read outside the one crate that may.
    Clock,
    /// Entropy is read outside the one crate that may.
    Entropy,
    /// A test waits by sleeping instead of by a condition.
    Sleep,
    /// Unfinished or switched-off work: stubs, skipped tests, notes to self.
    Stub,
    /// A panic that input could reach: `unwrap` or `expect` in code that faces the network.
    Panic,
    /// `unsafe` outside the crates that may, or without its argument.
    Unsafe,
    /// A catch-all arm over an enum of our own.
    Wildcard,
    /// A function longer than its ceiling.
    Function,
    /// A file longer than its ceiling, tests not counted.
    File,
    /// A line longer than its ceiling.
    Line,
    /// A file without its opening essay.
    Essay,
    /// A word that the project must not contain, or untidy text.
    Word,
    /// A large file that does not belong in a source tree.
    Large,
    /// The index of the papers and the code disagree.
    Papers,
}

/// Every rule with its name and whether a named exemption may cover it.
const RULES: [(Rule, &str, Exemptable); 15] = [
    (Rule::Layer, "layer", Exemptable::Never),
    (Rule::Clock, "clock", Exemptable::ByName),
    (Rule::Entropy, "entropy", Exemptable::ByName),
    (Rule::Sleep, "sleep", Exemptable::ByName),
    (Rule::Stub, "stub", Exemptable::Never),
    (Rule::Panic, "panic", Exemptable::ByName),
    (Rule::Unsafe, "unsafe", Exemptable::Never),
    (Rule::Wildcard, "wildcard", Exemptable::ByName),
    (Rule::Function, "function", Exemptable::ByName),
    (Rule::File, "file", Exemptable::ByName),
    (Rule::Line, "line", Exemptable::ByName),
    (Rule::Essay, "essay", Exemptable::Never),
    (Rule::Word, "word", Exemptable::Never),
    (Rule::Large, "large", Exemptable::Never),
    (Rule::Papers, "papers", Exemptable::Never),
];

/// Whether an exemption may name a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exemptable {
    Never,
    ByName,
}

impl Rule {
    /// The rule's name in messages and in the exemptions file.
    #[must_use]
    pub fn name(self) -> &'static str {
        RULES.iter().find(|(rule, ..)| *rule == self).map_or("unnamed", |(_, name, _)| name)
    }

    /// The rule of that name, if an exemption may name it.
    #[must_use]
    pub fn exemptable(name: &str) -> Option<Rule> {
        RULES
            .iter()
            .find(|(_, n, may)| *n == name && *may == Exemptable::ByName)
            .map(|(rule, ..)| *rule)
    }

    /// Whether an exemption may cover this rule.
    #[must_use]
    pub fn is_exemptable(self) -> bool {
        Rule::exemptable(self.name()).is_some()
    }
}

/// One place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// The file, relative to the root, with `/`.
    pub path: String,
    /// The item (a function's name) for rules about items, else empty.
    pub item: String,
    /// The line, from 1; 0 when the breach is about the whole file.
    pub line: usize,
    /// Its size: 1 for a place, the measured value for a measure.
    pub size: usize,
    /// What is wrong, in one clause.
    pub what: String,
}

impl Breach {
    /// A breach of size 1 at a line of a file.
    #[must_use]
    pub fn at(rule: Rule, path: &str, line: usize, what: impl Into<String>) -> Breach {
        Breach {
            rule,
            path: path.to_owned(),
            item: String::new(),
            line,
            size: 1,
            what: what.into(),
        }
    }

    /// The breach as a person reads it.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}:{}: {}: {}", self.path, self.line, self.rule.name(), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_its_own_name() {
        for (i, (rule, name, _)) in RULES.iter().enumerate() {
            assert_eq!(rule.name(), *name);
            assert!(RULES[..i].iter().all(|(_, other, _)| other != name));
        }
    }

    #[test]
    fn layers_and_words_cannot_be_exempted() {
        assert!(!Rule::Layer.is_exemptable());
        assert!(!Rule::Word.is_exemptable());
        assert!(Rule::Function.is_exemptable());
        assert_eq!(Rule::exemptable("stub"), None);
    }
}
