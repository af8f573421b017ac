//! GTP 2004's tables 2 to 5 for real: its law and its rivals' over one data path, beside TCP.
//!
//! The paper's links carry a gigabit; here all is a fifth of that, which a small machine emulates
//! without being the limit itself, and the queue holds a bandwidth-delay product of the longest
//! path. What is compared are orderings, and each is a field of the last row. The paper's "SABUL"
//! is a release whose law was UDT's already; here SABUL runs its paper's law.
//!
//! What the paper is silent on: RBUDP, SABUL and Tsunami are told 95 % of the link, in table 3 a
//! third of that each, since three processes behind one card cannot send more than it; in tables 4
//! and 5 each sender is told all of the link. GTP's sink states 95 % of it. TCP has windows of
//! 32 KiB.

use anyhow::{Context, Result};
use gtp_alloc::fairness::jain_index;
use serde_json::{Value, json};

use crate::cases::{Sink, Tools, goodput, with_sources};
use crate::lab::{Branch, Lab, Shape, source_address};
use crate::plan::{Plan, Transfer};
use crate::record::{Record, route};
use crate::tcp;

/// The shared link, in bit/s.
const LINK: f64 = 200e6;
/// What is told of it.
const TOLD: f64 = 0.95 * LINK;
/// Seconds of a run, and those from which and up to which it is measured.
const LASTS: f64 = 12.0;
const FROM: f64 = 3.0;
const TO: f64 = 11.5;

/// One table's setting.
struct Table {
    number: u32,
    branches: Vec<Branch>,
    /// Which source each flow comes from.
    flows: Vec<usize>,
    /// What each flow is told, where its law wants a rate.
    told: f64,
    laws: &'static [&'static str],
}

/// What came of one law in one table.
struct Found {
    law: &'static str,
    rates: Vec<f64>,
    loss: f64,
}

impl Found {
    fn sum(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// One of the tables: a row for each law, and one with the orderings.
///
/// # Errors
/// If a network or a process cannot be started.
pub fn table(number: u32, tools: &Tools) -> Result<Vec<Value>> {
    let all = settings();
    let table = all.iter().find(|table| table.number == number).context("no such table")?;
    let found = table.laws.iter().map(|law| table.run(tools, law));
    let found = found.collect::<Result<Vec<Found>>>()?;
    let mut rows: Vec<Value> = found.iter().map(|f| table.row(f)).collect();
    rows.push(table.orderings(&found));
    Ok(rows)
}

fn settings() -> Vec<Table> {
    const ALL: &[&str] = &["tcp", "rbudp", "sabul", "tsunami", "gtp2004", "grant"];
    const EMULATED: &[&str] = &["rbudp", "rbudp-half", "sabul", "tsunami", "gtp2004", "grant"];
    let lossy = |rtt| Branch { loss: "1%".into(), ..Branch::rtt(rtt) };
    let clean = |rtts: &[f64]| rtts.iter().map(|&rtt| Branch::rtt(rtt)).collect::<Vec<_>>();
    let table = |number, branches, flows, told, laws| Table { number, branches, flows, told, laws };
    vec![
        table(2, clean(&[58.0]), vec![0], TOLD, ALL),
        table(3, clean(&[58.0]), vec![0, 0, 0], TOLD / 3.0, ALL),
        table(4, clean(&[58.0, 58.0, 0.5]), vec![0, 1, 2], LINK, ALL),
        table(5, vec![lossy(25.0), lossy(50.0)], vec![0, 1], LINK, EMULATED),
    ]
}

impl Table {
    fn run(&self, tools: &Tools, law: &'static str) -> Result<Found> {
        let link = format!("{LINK}bit");
        let shape =
            Shape { access: (link, "58ms".into()), middle: None, branches: self.branches.clone() };
        if law == "tcp" { self.run_tcp(tools, &shape) } else { self.run_law(tools, &shape, law) }
    }

    fn run_tcp(&self, tools: &Tools, shape: &Shape) -> Result<Found> {
        let mut lab = Lab::open(shape, &tools.gtp)?;
        tcp::listen(&mut lab, self.branches.len())?;
        let zero = lab.now();
        let sources = 0..self.branches.len();
        let parallel = |i: usize| self.flows.iter().filter(|&&from| from == i).count();
        let flows = sources.clone().map(|i| tcp::send_narrow(&lab, i, parallel(i), LASTS));
        for mut flow in flows.collect::<Result<Vec<_>>>()? {
            flow.wait()?;
        }
        let record = Record(lab.close()?);
        let rates = sources.map(|i| record.rate(&route(i), zero + FROM, zero + TO)).collect();
        let (offered, dropped) = record.drops("access", zero + FROM, zero + TO);
        Ok(Found { law: "tcp", rates, loss: dropped as f64 / offered.max(1) as f64 })
    }

    fn run_law(&self, tools: &Tools, shape: &Shape, law: &'static str) -> Result<Found> {
        let interface = format!("{LINK}bit");
        let allowed = "gtp2004,rbudp,sabul,tsunami";
        let options = ["--allow-control", allowed, "--capacity-out", &interface];
        let options = options.map(str::to_owned).to_vec();
        let (lab, prints) = with_sources(shape, tools, &vec![options; self.branches.len()])?;
        let transfers = self.flows.iter().map(|&i| Transfer {
            sources: vec![(format!("gtp://{}/big", source_address(i)), prints[i].clone())],
            start: 0.0,
            stop: LASTS,
            dest: None,
            slow: None,
        });
        let alone = match law {
            "grant" => None,
            "rbudp-half" => Some(("rbudp".to_owned(), (self.told / 2.0) as u64)),
            other => Some((other.to_owned(), self.told as u64)),
        };
        let plan = Plan {
            capacity_in: Some(TOLD as u64),
            interval_ms: None,
            end_node: None,
            alone,
            transfers: transfers.collect(),
        };
        let sink = Sink::start(&lab, tools, &plan)?;
        let began = sink.began;
        let lines = sink.finish()?;
        drop(lab);
        let flows = 0..self.flows.len() as u64;
        let rate = |i| goodput(&lines, i, began + FROM, began + TO);
        let losses: Vec<f64> = flows.clone().map(|i| last_loss(&lines, i)).collect();
        let loss = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        Ok(Found { law, rates: flows.map(rate).collect(), loss })
    }

    fn row(&self, found: &Found) -> Value {
        let rates: Vec<f64> = found.rates.iter().map(|rate| rate / 1e6).collect();
        json!({"case": "gtp2004", "table": self.number, "law": found.law,
            "rates_Mbit": rates, "sum_Mbit": found.sum() / 1e6, "of_link": found.sum() / LINK,
            "loss": found.loss, "jain": jain_index(&found.rates)})
    }

    /// What the paper finds, and whether it is found here.
    fn orderings(&self, found: &[Found]) -> Value {
        let of = |law: &str| found.iter().find(|f| f.law == law);
        let loss = |law| of(law).map_or(f64::NAN, |f| f.loss);
        let sum = |law| of(law).map_or(f64::NAN, Found::sum);
        let fair = |law| of(law).map_or(f64::NAN, |f| jain_index(&f.rates));
        let mut row = json!({"case": "gtp2004", "table": self.number, "orderings": true});
        let mut say = |what: &str, holds: bool| row[what] = holds.into();
        match self.number {
            2 | 3 => {
                let rated = ["rbudp", "sabul", "gtp2004"];
                let least = rated.map(sum).into_iter().fold(f64::INFINITY, f64::min);
                say("rate-based laws take 85 % of the link", least >= 0.85 * LINK);
                say("TCP with a small window takes least", sum("tcp") < 0.5 * least);
                say("GTP loses 0.2 % at most", loss("gtp2004") <= 0.002);
                say("RBUDP loses most", loss("rbudp") >= loss("sabul").max(loss("gtp2004")));
            }
            4 => {
                say("GTP loses less than SABUL", loss("gtp2004") < loss("sabul"));
                say("SABUL loses less than RBUDP", loss("sabul") < loss("rbudp"));
                say("RBUDP loses 40 % or more", loss("rbudp") >= 0.4);
                say("GTP loses 0.2 % at most", loss("gtp2004") <= 0.002);
                say("GTP takes 85 % of the link", sum("gtp2004") >= 0.85 * LINK);
                say("GTP is fair (Jain 0.98)", fair("gtp2004") >= 0.98);
                say("SABUL is not (0.95)", fair("sabul") < 0.95);
            }
            _ => {
                say("GTP's sum is the largest of the paper's", {
                    sum("gtp2004") > sum("rbudp-half").max(sum("rbudp")).max(sum("sabul"))
                });
                say("RBUDP at half its rate brings more", sum("rbudp-half") > sum("rbudp"));
                say("RBUDP brings more than SABUL", sum("rbudp") > sum("sabul"));
                say("GTP loses least", {
                    loss("gtp2004") <= loss("rbudp-half").min(loss("rbudp")).min(loss("sabul"))
                });
                say("GTP is fair (Jain 0.99)", fair("gtp2004") >= 0.99);
            }
        }
        row
    }
}

/// What a transfer's session lost of all that was sent, by its last word.
fn last_loss(lines: &[(f64, Value)], transfer: u64) -> f64 {
    let mine = lines.iter().filter(|(_, v)| v["event"] == "sample" && v["transfer"] == transfer);
    mine.filter_map(|(_, v)| v["sources"][0]["loss"].as_f64()).next_back().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(law: &'static str, rates: &[f64], loss: f64) -> Found {
        Found { law, rates: rates.iter().map(|r| r * 1e6).collect(), loss }
    }

    #[test]
    fn each_table_has_its_flows_from_sources_that_it_has() {
        for table in settings() {
            assert!(table.flows.iter().all(|&from| from < table.branches.len()));
            assert!(table.laws.contains(&"gtp2004"));
        }
    }

    #[test]
    fn an_ordering_that_is_not_found_is_said_to_be_none() {
        let table = &settings()[2];
        let papers = [
            found("rbudp", &[40.0, 20.0, 30.0], 0.53),
            found("sabul", &[100.0, 10.0, 60.0], 0.09),
            found("gtp2004", &[60.0, 60.0, 58.0], 0.0006),
        ];
        let row = table.orderings(&papers);
        let fields = row.as_object().unwrap().iter().filter(|(_, v)| v.is_boolean());
        assert!(fields.clone().all(|(_, v)| v == &Value::Bool(true)), "{row}");
        let other = [
            found("rbudp", &[40.0, 20.0, 30.0], 0.3),
            found("sabul", &[60.0, 60.0, 60.0], 0.4),
            found("gtp2004", &[100.0, 10.0, 50.0], 0.5),
        ];
        let row = table.orderings(&other);
        let fields = row.as_object().unwrap().iter().filter(|(_, v)| v == &&Value::Bool(true));
        assert_eq!(fields.count(), 1, "only that these are orderings: {row}");
    }
}
