//! What a key has of a server's rates: options of `gtp keys add`, and what `list` and `test` say.
//!
//! A line's own words are shown by `list`; `test` says what comes of them and of the key's groups
//! at this hour. How they combine is decided where servers share out, and not here.

use std::fmt;

use clap::Args;
use gtp::{
    AuthorizedKeys, Exports, Fingerprint, KeyPart, KeyShare, KeyTerms, LocalTime, Rate, Setting,
    ShareChange,
};
use serde_json::{Value, json};

use super::Groups;
use crate::words;

/// What a key is to have, of `add`.
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// What the key may send, and receive, with all its sessions together, as in 50Mbit; `-` lifts
    /// the limit. Otherwise a listed key keeps its own
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    rate: Option<Setting<Rate>>,
    /// Its weight among all clients, 0.001 to 1000, or `low`; `-` for what its groups give it, or 1
    #[arg(long, value_name = "WEIGHT", value_parser = weight, allow_hyphen_values = true)]
    weight: Option<Setting<f64>>,
    /// What it is served first, whatever the others do, as in 10Mbit; `-` for nothing of its own
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    guarantee: Option<Setting<Rate>>,
}

impl ShareArgs {
    pub fn change(&self) -> ShareChange {
        ShareChange {
            rate: self.rate.unwrap_or_default(),
            weight: self.weight.unwrap_or_default(),
            guarantee: self.guarantee.unwrap_or_default(),
        }
    }
}

fn rate(text: &str) -> Result<Setting<Rate>, String> {
    match text {
        "-" => Ok(Setting::Lifted),
        text => words::rate(text).map(Setting::Now),
    }
}

fn weight(text: &str) -> Result<Setting<f64>, String> {
    match text {
        "-" => Ok(Setting::Lifted),
        text => words::weight(text).map(Setting::Now),
    }
}

/// What a line says, in words; `None` if it says nothing.
pub fn of_line(share: KeyShare) -> Option<String> {
    let KeyShare { rate, weight, guarantee } = share;
    let said = [
        rate.map(|rate| format!("rate {}", words::say_rate(rate))),
        weight.map(|weight| format!("weight {weight}")),
        guarantee.map(|least| format!("guarantee {}", words::say_rate(least))),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(", "))
}

/// Adds to the record of a line what programs are told of it, in bit/s.
pub fn add_line(record: &mut Value, share: KeyShare) {
    record["rate"] = share.rate.map(Rate::as_bps).into();
    record["weight"] = share.weight.into();
    record["guarantee"] = share.guarantee.map(Rate::as_bps).into();
}

/// What a key has by its lines and its groups at one moment.
pub struct Shares<'g>(KeyTerms<'g>);

impl<'g> Shares<'g> {
    /// What a key of this list has; `none` are the rules where the configuration has none.
    pub fn of(
        keys: &AuthorizedKeys,
        key: &Fingerprint,
        (groups, none): (&'g Groups, &'g Exports),
        now: &LocalTime,
    ) -> Shares<'g> {
        Shares(groups.rules.as_ref().unwrap_or(none).terms_of(keys, key, now))
    }

    /// Adds to a record of the key what programs are told of it, in bit/s.
    pub fn add_to(&self, record: &mut Value) {
        let limit = |rate: Rate| (!rate.is_unlimited()).then(|| rate.as_bps());
        let KeyTerms { rate, weight, part } = &self.0;
        let mut share = json!({
            "rate": limit(*rate), "weight": weight, "guarantee": null, "group": null,
            "group_total_rate": null, "group_guarantee": null,
        });
        match part {
            KeyPart::None => {}
            KeyPart::Own(least) => share["guarantee"] = least.min(rate).as_bps().into(),
            KeyPart::Group { name, share: all } => {
                share["group"] = (*name).into();
                share["group_total_rate"] = limit(all.total_rate).into();
                share["group_guarantee"] = all.guarantee.as_bps().into();
            }
        }
        record["share"] = share;
    }
}

/// A part of a sentence about the key; empty if it shares as everybody does.
impl fmt::Display for Shares<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyTerms { rate, weight, part } = &self.0;
        let say = |rate: &Rate| words::say_rate(*rate);
        let mut said = Vec::new();
        if !rate.is_unlimited() {
            said.push(format!("{} at most with all its sessions, each way", say(rate)));
        }
        if *weight != 1.0 {
            said.push(format!("a weight of {weight}"));
        }
        match part {
            KeyPart::None => {}
            KeyPart::Own(least) => said.push(format!("{} served first", say(least.min(rate)))),
            KeyPart::Group { name, share } => {
                if !share.total_rate.is_unlimited() {
                    said.push(format!("{} with all of group {name}", say(&share.total_rate)));
                }
                if share.guarantee > Rate::ZERO {
                    said.push(format!("{} served first to group {name}", say(&share.guarantee)));
                }
            }
        }
        match said.is_empty() {
            true => Ok(()),
            false => write!(f, "; it has {}", said.join(", ")),
        }
    }
}
