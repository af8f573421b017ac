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
use gtp_proto::limits::UNIT_ETHERNET;
use gtp_proto::wire::{DATA_HEAD_LEN, HEADER_LEN, TAG_LEN};
use serde_json::{Value, json};

use crate::cases::{Sink, Tools, with_sources};
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
/// Bytes of an IPv4 and a UDP header.
const IP_UDP: usize = 28;

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
        let mut failed = false;
        for flow in flows.collect::<Result<Vec<_>>>()? {
            failed |= flow.finish().is_err();
        }
        let record = Record(lab.close()?);
        let rate = |i| record.rate(&route(i), zero + FROM, zero + TO);
        let rates = sources.map(|i| if failed { f64::NAN } else { rate(i) }).collect();
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
            unbounded: false,
            transfers: transfers.collect(),
        };
        let had = Had::by_plan(lab, tools, &plan, (FROM, TO))?;
        let loss = had.mean_loss();
        Ok(Found { law, rates: had.rates, loss })
    }

    fn row(&self, found: &Found) -> Value {
        let rates: Vec<f64> = found.rates.iter().map(|rate| rate / 1e6).collect();
        json!({"case": "gtp2004", "table": self.number, "law": found.law,
            "rates_Mbit": rates, "sum_Mbit": found.sum() / 1e6, "of_link": found.sum() / LINK,
            "loss": found.loss, "jain": jain_index(&found.rates)})
    }

    /// What the paper finds, and whether it is found here. Of a run that failed nothing is: no
    /// ordering that names it holds.
    fn orderings(&self, found: &[Found]) -> Value {
        let mut row = json!({"case": "gtp2004", "table": self.number, "orderings": true});
        for (what, holds) in self.found_here(found) {
            row[what] = holds.unwrap_or(false).into();
        }
        row
    }

    /// Each ordering, and whether it holds; none if it is about a run that failed.
    fn found_here(&self, found: &[Found]) -> Vec<(&'static str, Option<bool>)> {
        let of = |law: &str| found.iter().find(|f| f.law == law && self.came_about(f));
        let loss = |law| of(law).map(|f| f.loss);
        let sum = |law| of(law).map(Found::sum);
        let fair = |law| of(law).map(|f| jain_index(&f.rates));
        // One way or the other around, of two that there are.
        let less = |a: Option<f64>, b: Option<f64>| Some(a? < b?);
        let no_less = |a: Option<f64>, b: Option<f64>| Some(a? >= b?);
        let most = |all: [Option<f64>; 3]| fold(all, f64::max);
        let least = |all: [Option<f64>; 3]| fold(all, f64::min);
        match self.number {
            2 | 3 => {
                let rated = least(["rbudp", "sabul", "gtp2004"].map(sum));
                let others = fold([loss("sabul"), loss("gtp2004")], f64::max);
                vec![
                    ("rate-based laws take 85 % of the link", no_less(rated, Some(0.85 * LINK))),
                    ("TCP with a small window takes least", {
                        less(sum("tcp"), rated.map(|rated| 0.5 * rated))
                    }),
                    ("GTP loses 0.2 % at most", no_less(Some(0.002), loss("gtp2004"))),
                    ("RBUDP loses most", no_less(loss("rbudp"), others)),
                ]
            }
            4 => vec![
                ("GTP loses less than SABUL", less(loss("gtp2004"), loss("sabul"))),
                ("SABUL loses less than RBUDP", less(loss("sabul"), loss("rbudp"))),
                ("RBUDP loses 40 % or more", no_less(loss("rbudp"), Some(0.4))),
                ("GTP loses 0.2 % at most", no_less(Some(0.002), loss("gtp2004"))),
                ("GTP takes 85 % of the link", no_less(sum("gtp2004"), Some(0.85 * LINK))),
                ("GTP is fair (Jain 0.98)", no_less(fair("gtp2004"), Some(0.98))),
                ("SABUL is not (0.95)", less(fair("sabul"), Some(0.95))),
            ],
            _ => {
                let others = ["rbudp-half", "rbudp", "sabul"];
                vec![
                    ("GTP's sum is the largest of the paper's", {
                        less(most(others.map(sum)), sum("gtp2004"))
                    }),
                    ("RBUDP at half its rate brings more", less(sum("rbudp"), sum("rbudp-half"))),
                    ("RBUDP brings more than SABUL", less(sum("sabul"), sum("rbudp"))),
                    ("GTP loses least", no_less(least(others.map(loss)), loss("gtp2004"))),
                    ("GTP is fair (Jain 0.99)", no_less(fair("gtp2004"), Some(0.99))),
                ]
            }
        }
    }

    /// Whether every flow of a run brought something and its loss is known.
    fn came_about(&self, run: &Found) -> bool {
        let brought = |rate: &f64| rate.is_finite() && *rate > 0.0;
        let all = !run.rates.is_empty() && run.rates.iter().all(brought);
        all && (0.0..=1.0).contains(&run.loss)
    }
}

/// The largest or smallest of some, if all are there.
fn fold<const N: usize>(all: [Option<f64>; N], of: fn(f64, f64) -> f64) -> Option<f64> {
    all.into_iter().reduce(|a, b| Some(of(a?, b?))).flatten()
}

/// What the transfers of a plan had, in its order.
pub(crate) struct Had {
    /// In bit/s.
    pub(crate) rates: Vec<f64>,
    /// Of all that each sent.
    pub(crate) losses: Vec<f64>,
}

impl Had {
    /// Runs a plan at the sink of a network; rates are between two times, in seconds.
    pub(crate) fn by_plan(
        lab: Lab,
        tools: &Tools,
        plan: &Plan,
        (from, to): (f64, f64),
    ) -> Result<Had> {
        let sink = Sink::start(&lab, tools, plan)?;
        let began = sink.began;
        let lines = sink.finish()?;
        drop(lab);
        let flows = 0..plan.transfers.len() as u64;
        let rate = |i| news(&lines, i, began + from, began + to);
        let losses = flows.clone().map(|i| last_loss(&lines, i)).collect();
        Ok(Had { rates: flows.map(rate).collect(), losses })
    }

    /// The mean loss of all.
    pub(crate) fn mean_loss(&self) -> f64 {
        self.losses.iter().sum::<f64>() / self.losses.len().max(1) as f64
    }
}

/// IP bytes per time of what a transfer had not had before, as packets come: whole blocks come late
/// where much of them is asked for again.
pub(crate) fn news(lines: &[(f64, Value)], transfer: u64, from: f64, to: f64) -> f64 {
    let packet = (UNIT_ETHERNET as usize + HEADER_LEN + DATA_HEAD_LEN + TAG_LEN + IP_UDP) as f64;
    let at = |t: f64| {
        let mine = |v: &Value| v["event"] == "sample" && v["transfer"] == transfer;
        let last = lines.iter().rfind(|(at, v)| *at <= t && mine(v));
        let of = |what: &str| last.and_then(|(_, v)| v["sources"][0][what].as_f64());
        let twice = of("duplicate").unwrap_or(0.0) * packet / f64::from(UNIT_ETHERNET);
        of("wire").unwrap_or(0.0) - twice
    };
    (at(to) - at(from)) * 8.0 / (to - from)
}

/// What a transfer's session lost of all that was sent, by its last word.
pub(crate) fn last_loss(lines: &[(f64, Value)], transfer: u64) -> f64 {
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

    #[test]
    fn no_ordering_holds_about_a_run_that_failed() {
        let good = |table: u32| match table {
            2 | 3 => vec![
                found("tcp", &[4.0], 0.0),
                found("rbudp", &[190.0], 0.1),
                found("sabul", &[185.0], 0.05),
                found("gtp2004", &[180.0], 0.001),
            ],
            4 => vec![
                found("rbudp", &[40.0, 20.0, 30.0], 0.53),
                found("sabul", &[100.0, 10.0, 60.0], 0.09),
                found("gtp2004", &[60.0, 60.0, 58.0], 0.0006),
            ],
            _ => vec![
                found("rbudp-half", &[80.0, 70.0], 0.02),
                found("rbudp", &[70.0, 60.0], 0.3),
                found("sabul", &[60.0, 50.0], 0.1),
                found("gtp2004", &[90.0, 89.0], 0.011),
            ],
        };
        for table in settings() {
            let holding = |runs: &[Found]| {
                let all = table.found_here(runs);
                all.into_iter().filter(|(_, holds)| *holds == Some(true)).count()
            };
            let all = good(table.number);
            assert_eq!(holding(&all), table.found_here(&all).len(), "table {}", table.number);
            for failed in 0..all.len() {
                for (rate, loss) in [(f64::NAN, 0.0), (0.0, 0.0), (100.0, f64::NAN)] {
                    let mut runs = good(table.number);
                    runs[failed].rates.fill(rate * 1e6);
                    runs[failed].loss = loss;
                    let mut missing = good(table.number);
                    missing.remove(failed);
                    assert_eq!(holding(&runs), holding(&missing), "as if it had not been run");
                    assert!(holding(&runs) < holding(&all), "{} {failed}", table.number);
                }
            }
            let nothing: Vec<Found> =
                all.iter().map(|f| Found { law: f.law, rates: Vec::new(), loss: 0.0 }).collect();
            assert_eq!((holding(&nothing), holding(&[])), (0, 0));
        }
    }
}
