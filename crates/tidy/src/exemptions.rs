//! The judge: breaches against the named exemptions.
//!
//! An exemption names a rule, a file, an item for rules about items, the exact size and a reason.
//! A size that has shrunk fails as surely as one that has grown, so that an exemption can only
//! follow the code downwards; one that covers nothing any more must go.

use crate::breach::{Breach, Rule};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A named permission to break a rule by a stated amount.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Exemption {
    /// The rule's name.
    pub rule: String,
    /// The file.
    pub path: String,
    /// The item, for rules about items.
    #[serde(default)]
    pub item: String,
    /// The exact size: lines for a ceiling, places for a ban.
    pub size: usize,
    /// Why the rule is wrong here.
    pub reason: String,
}

/// The file's shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    exempt: Vec<Exemption>,
}

/// What an exemption covers: rule, path, item.
type Place = (Rule, String, String);

/// Reads the exemptions file.
///
/// # Errors
/// A sentence: not TOML, an unknown rule, a missing reason, or two entries for one place.
pub fn parse(text: &str) -> Result<Vec<(Rule, Exemption)>, String> {
    let document: Document = toml::from_str(text).map_err(|e| format!("exemptions: {e}"))?;
    let mut list: Vec<(Rule, Exemption)> = Vec::new();
    for entry in document.exempt {
        let name = format!("{} {} {}", entry.rule, entry.path, entry.item);
        let rule = Rule::exemptable(&entry.rule)
            .ok_or_else(|| format!("exemption {name}: no such rule, or none may be exempted"))?;
        if entry.reason.trim().is_empty() {
            return Err(format!("exemption {name}: a reason is needed"));
        }
        if list.iter().any(|(r, e)| *r == rule && e.path == entry.path && e.item == entry.item) {
            return Err(format!("exemption {name}: named twice"));
        }
        list.push((rule, entry));
    }
    Ok(list)
}

/// Breaches that no exemption covers, and exemptions that do not fit, as sentences.
#[must_use]
pub fn judge(breaches: &[Breach], exemptions: &[(Rule, Exemption)]) -> Vec<String> {
    let groups = grouped(breaches);
    let mut complaints = Vec::new();
    for (place, group) in &groups {
        let size: usize = group.iter().map(|breach| breach.size).sum();
        let exemption = exemptions.iter().find(|(rule, e)| covers(*rule, e, place));
        let excess = match exemption {
            Some((_, e)) if e.size == size => continue,
            Some((_, e)) if e.size > size => {
                complaints.push(format!("{}: larger than needed, now {size}", title(e)));
                continue;
            }
            Some((_, e)) => format!(" (exempted: {}, found: {size})", e.size),
            None => String::new(),
        };
        complaints.extend(group.iter().map(|breach| breach.sentence() + &excess));
    }
    for (rule, exemption) in exemptions {
        if !groups.keys().any(|place| covers(*rule, exemption, place)) {
            complaints.push(format!("{}: no longer needed", title(exemption)));
        }
    }
    complaints
}

/// An entry for each place that may be exempted and is not tidy, for a person to argue.
#[must_use]
pub fn propose(breaches: &[Breach]) -> Vec<String> {
    let groups = grouped(breaches);
    let may = groups.iter().filter(|((rule, ..), _)| rule.is_exemptable());
    may.map(|((rule, path, item), group)| {
        let size: usize = group.iter().map(|breach| breach.size).sum();
        let mut lines = vec!["[[exempt]]".to_owned()];
        lines.push(format!("rule = \"{}\"", rule.name()));
        lines.push(format!("path = \"{path}\""));
        if !item.is_empty() {
            lines.push(format!("item = \"{item}\""));
        }
        lines.push(format!("size = {size}"));
        lines.push("reason = \"\"\n".to_owned());
        lines.join("\n")
    })
    .collect()
}

/// Breaches by place, in a fixed order.
fn grouped(breaches: &[Breach]) -> BTreeMap<Place, Vec<&Breach>> {
    let mut groups: BTreeMap<Place, Vec<&Breach>> = BTreeMap::new();
    for breach in breaches {
        let place = (breach.rule, breach.path.clone(), breach.item.clone());
        groups.entry(place).or_default().push(breach);
    }
    groups
}

/// Whether an exemption is about a place.
fn covers(rule: Rule, exemption: &Exemption, place: &Place) -> bool {
    rule == place.0 && exemption.path == place.1 && exemption.item == place.2
}

/// How messages name an exemption.
fn title(exemption: &Exemption) -> String {
    let Exemption { rule, path, item, size, .. } = exemption;
    let item = if item.is_empty() { String::new() } else { format!(" `{item}`") };
    format!("exemption {rule} {path}{item} (size {size})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"
[[exempt]]
rule = "function"
path = "a.rs"
item = "b"
size = 90
reason = "r"
"#;

    fn breach(size: usize) -> Breach {
        let item = "b".to_owned();
        Breach { item, size, ..Breach::at(Rule::Function, "a.rs", 1, "long") }
    }

    fn complaints(breaches: &[Breach]) -> usize {
        judge(breaches, &parse(ENTRY).expect("a good entry")).len()
    }

    #[test]
    fn an_exemption_must_fit_exactly() {
        assert_eq!(complaints(&[breach(90)]), 0);
        assert_eq!(complaints(&[breach(91)]), 1);
        assert_eq!(complaints(&[breach(89)]), 1);
        assert_eq!(complaints(&[]), 1);
    }

    #[test]
    fn an_exemption_covers_its_own_item_only() {
        let other = Breach { item: "c".to_owned(), ..breach(90) };
        assert_eq!(complaints(&[breach(90), other]), 1);
    }

    #[test]
    fn places_of_one_ban_in_one_file_are_counted_together() {
        let entry = ENTRY.replace("function", "panic").replace("90", "2").replace("\"b\"", "\"\"");
        let list = parse(&entry).expect("a good entry");
        let place = Breach::at(Rule::Panic, "a.rs", 1, "x");
        assert!(judge(&[place.clone(), place.clone()], &list).is_empty());
        assert_eq!(judge(&[place.clone(), place.clone(), place], &list).len(), 3);
    }

    #[test]
    fn an_entry_needs_a_known_rule_and_a_reason() {
        assert!(parse(&ENTRY.replace("function", "layer")).is_err());
        assert!(parse(&ENTRY.replace("\"r\"", "\" \"")).is_err());
        assert!(parse(&format!("{ENTRY}{ENTRY}")).is_err());
    }

    #[test]
    fn a_proposal_lacks_only_its_reason() {
        let text = propose(&[breach(90)]).concat();
        assert!(parse(&text).is_err());
        let argued = text.replace("reason = \"\"", "reason = \"r\"");
        assert_eq!(parse(&argued), parse(ENTRY));
    }
}
