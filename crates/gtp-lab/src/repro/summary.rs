//! One table over all protocols: which is efficient, fair, low in loss and independent of the
//! round-trip time (the thesis's Table II.1 asks it of the rivals in words).
//!
//! Every protocol runs the same two scenarios: two sessions of equal round trips, the second of
//! which joins late, and two of unequal ones. What is measured is printed, and beside it whether it
//! is within the bound that this file names. Nothing is known of any paper's verdict.

use crate::course::{self, Outcome};
use crate::refusal::Refusal;
use crate::scenario::{Document, Overrides};
use crate::series::{Cell, Page, Part, Table, Tone};

/// A protocol as scenario files write it: keys of its sessions, of the link, and its law.
struct Contender {
    name: &'static str,
    session: &'static str,
    link: &'static str,
    law: &'static str,
}

/// One that speaks at both ends and asks nothing of the link.
const fn ends(name: &'static str, session: &'static str) -> Contender {
    Contender { name, session, link: "", law: "grant" }
}

/// One with a controller at the link.
const fn routed(name: &'static str, session: &'static str, link: &'static str) -> Contender {
    Contender { name, session, link, law: "grant" }
}

/// All of them, in the order of the table. A rate that a user has to give is the link's: nobody
/// knows of another user.
const ALL: [Contender; 29] = [
    ends("GTP", "protocol = 'gtp'"),
    Contender { name: "GTP, end-node law", session: "protocol = 'gtp'", link: "", law: "endnode" },
    ends("TCP Reno", "protocol = 'reno'"),
    ends("TCP SACK", "protocol = 'sack'"),
    ends("HighSpeed TCP", "protocol = 'highspeed'"),
    ends("Scalable TCP", "protocol = 'scalable'"),
    ends("BIC", "protocol = 'bic'"),
    ends("H-TCP", "protocol = 'htcp'"),
    ends("Vegas", "protocol = 'vegas'"),
    ends("FAST", "protocol = 'fast'"),
    ends("CUBIC", "protocol = 'cubic'"),
    ends("BBR", "protocol = 'bbr'"),
    routed("XCP", "protocol = 'xcp'", "router = 'xcp'"),
    routed("endpointXCP", "protocol = 'xcp'", "router = 'xcp-node'"),
    routed("VCP", "protocol = 'vcp'", "router = 'vcp'"),
    routed("AECP", "protocol = 'aecp'", "router = 'aecp'"),
    routed("advertised rate", "protocol = 'advertised'", "router = 'advertised'"),
    routed("links' grants (PERC)", "protocol = 'perc'", "router = 'perc'"),
    routed("sink's meter (EyeQ)", "protocol = 'advertised'", "router = 'meter'"),
    routed(
        "slices (Vlink)",
        "protocol = 'advertised'",
        "router = 'slice'\nrouter_capacity = 'RATE'",
    ),
    ends("GTP of 2004", "protocol = 'gtp2004'"),
    ends("LambdaStream", "protocol = 'lambdastream'"),
    ends("UDT 4", "protocol = 'udt'"),
    ends("SABUL 2", "protocol = 'sabul-2'"),
    ends("SABUL, paper", "protocol = 'sabul'"),
    ends("RBUDP", "protocol = 'rbudp'\nrate = 'RATE'"),
    ends("Tsunami", "protocol = 'tsunami'\nrate = 'RATE'"),
    ends("NETBLT", "protocol = 'netblt'\nrate = 'RATE'"),
    routed("SACK over RED", "protocol = 'sack'", "router = 'red'"),
];

/// The network that all share.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The link's rate.
    pub mbps: u32,
    /// How long each run is; the second half counts.
    pub seconds: u32,
}

/// A product of 333 packets, so that a sawtooth of Reno takes 10 to 20 s, and two minutes of it.
pub const USUAL: Stage = Stage { mbps: 100, seconds: 120 };

/// Round trips, in milliseconds, of the two sessions: alike, and not.
const ALIKE: [u32; 2] = [40, 40];
const APART: [u32; 2] = [20, 120];
/// What waits before the link at most, as time at its rate.
const QUEUE_MS: u32 = 40;
/// What the sink states, as a part of the link: GTP's sessions alone know it.
const STATED: f64 = 0.95;

/// The bounds: of the link's rate that arrives, of Jain's index, of packets lost, and of the rate
/// of the slower session over that of the faster.
const EFFICIENT: f64 = 0.9;
const FAIR: f64 = 0.95;
const LOW_LOSS: f64 = 1e-3;
const INDEPENDENT: f64 = 0.8;

/// What two runs of one protocol showed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    name: &'static str,
    /// What arrived in the second half, over the link's rate: round trips alike.
    filled: f64,
    /// Jain's index then.
    jain: f64,
    /// Packets lost at the link over those offered, in the whole run.
    lost: f64,
    /// The slower session's rate over the faster's, round trips apart: that with the longer one is
    /// the first of the pair.
    ratio: f64,
}

/// Runs all and makes the page.
///
/// # Errors
/// If a scenario is refused, which is a fault of this file.
pub fn run(stage: Stage, mut told: impl FnMut(String)) -> Result<Page, Refusal> {
    let mut rows = Vec::new();
    for contender in &ALL {
        let row = measure(contender, stage)?;
        told(line(&row));
        rows.push(row);
    }
    Ok(page(&rows, stage))
}

fn measure(contender: &Contender, stage: Stage) -> Result<Row, Refusal> {
    let (alike, apart) = (play(contender, stage, ALIKE)?, play(contender, stage, APART)?);
    let rates = alike.late_rates();
    let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|x| x * x).sum::<f64>());
    let link = &alike.0.links[0];
    let far = apart.late_rates();
    Ok(Row {
        name: contender.name,
        filled: sum / (f64::from(stage.mbps) * 1e6),
        jain: sum * sum / (2.0 * squares.max(f64::MIN_POSITIVE)),
        lost: link.dropped.0 as f64 / (link.offered as f64).max(1.0),
        ratio: far[0].min(far[1]) / far[0].max(far[1]).max(f64::MIN_POSITIVE),
    })
}

/// A run that is over.
struct Played(Outcome);

impl Played {
    /// Mean rates of the two sessions in the second half, in bit/s.
    fn late_rates(&self) -> [f64; 2] {
        [0, 1].map(|k| {
            let rate = &self.0.sessions[k].rate;
            let late = &rate[rate.len() / 2..];
            late.iter().sum::<f64>() / late.len().max(1) as f64
        })
    }
}

fn play(contender: &Contender, stage: Stage, rtts: [u32; 2]) -> Result<Played, Refusal> {
    let text = scenario(contender, stage, rtts);
    let scenario = Document::parse(contender.name, &text)?.scenario(Overrides::default())?;
    course::run(&scenario, &mut |_| {}).map(Played)
}

/// The scenario of one run.
fn scenario(contender: &Contender, stage: Stage, rtts: [u32; 2]) -> String {
    let Stage { mbps, seconds } = stage;
    let Contender { session, link, law, .. } = contender;
    let [keys, link] = [session, link].map(|keys| keys.replace("RATE", &format!("{mbps}Mbit")));
    let stated = (f64::from(mbps) * STATED * 1e3) as u64;
    let mut text = format!(
        "duration = '{seconds}s'\nlaw = '{law}'\n\
         [output]\nevery = '50ms'\n\
         [[host]]\nname = 'src'\ncount = 2\n\
         [[host]]\nname = 'dst'\ncapacity_in = '{stated}kbit'\n\
         [[link]]\nname = 'neck'\nrate = '{mbps}Mbit'\ndelay = '1ms'\n\
         queue = '{QUEUE_MS}ms'\n{link}\n\
         [[link]]\nname = 'back'\ndelay = '1ms'\n\
         [[route]]\nfrom = 'src*'\nto = 'dst'\nlinks = ['neck']\n\
         [[route]]\nfrom = 'dst'\nto = 'src*'\nlinks = ['back']\n"
    );
    for (k, rtt) in rtts.into_iter().enumerate() {
        let (source, start) = (k + 1, k as u32 * seconds / 12);
        let wire = rtt / 2 - 1;
        text += &format!(
            "[[session]]\nname = 'flow{source}'\nsource = 'src{source}'\nsink = 'dst'\n\
             start = '{start}s'\nwire = '{wire}ms'\n{keys}\n"
        );
    }
    text
}

/// Which of the four bounds hold.
fn holds(row: &Row) -> [bool; 4] {
    [row.filled >= EFFICIENT, row.jain >= FAIR, row.lost <= LOW_LOSS, row.ratio >= INDEPENDENT]
}

/// What stands in the four columns.
fn numbers(row: &Row) -> [String; 4] {
    [
        format!("{:.1} %", 100.0 * row.filled),
        format!("{:.3}", row.jain),
        format!("{:.3} %", 100.0 * row.lost),
        format!("{:.2}", row.ratio),
    ]
}

fn line(row: &Row) -> String {
    let marks = holds(row).map(|holds| if holds { "yes" } else { "no " });
    let cells = numbers(row).into_iter().zip(marks);
    let cells: String = cells.map(|(number, mark)| format!(" {number:>9} {mark}")).collect();
    format!("{:<18}{cells}", row.name)
}

fn page(rows: &[Row], stage: Stage) -> Page {
    let row = |row: &Row| {
        let cells = numbers(row).into_iter().zip(holds(row)).map(|(number, holds)| {
            let (word, tone) = if holds { ("yes", Tone::Good) } else { ("no", Tone::Bad) };
            Cell::toned(format!("{word}, {number}"), tone)
        });
        std::iter::once(Cell::leading(row.name)).chain(cells).collect()
    };
    let Stage { mbps, seconds } = stage;
    let table = Table {
        title: "All protocols".to_owned(),
        head: ["Protocol", "Efficient", "Fair", "Low in loss", "Independent of the round trip"]
            .map(str::to_owned)
            .into(),
        rows: rows.iter().map(row).collect(),
        note: format!(
            "Efficient: {:.0} % of the link's rate or more arrive; fair: Jain's index is {FAIR} \
             or more; both in the second half of a run with round trips of {} ms. Low in loss: at \
             most {:.1} % of all packets of that run are lost at the link. Independent: with round \
             trips of {} and {} ms the slower session has {:.0} % or more of the faster one's \
             rate. Nothing is drawn at random: of two blasts at the link's own rate one may find \
             the queue full each time.",
            100.0 * EFFICIENT,
            ALIKE[0],
            100.0 * LOW_LOSS,
            APART[0],
            APART[1],
            100.0 * INDEPENDENT,
        ),
    };
    Page {
        title: "Which protocol is efficient, fair, low in loss, independent of round trips"
            .to_owned(),
        lead: format!(
            "Two endless sessions over one link of {mbps} Mbit/s whose queue holds {QUEUE_MS} ms, \
             {seconds} s long; the second one joins after a twelfth. Each row is two runs of the \
             packet level. GTP is told {:.0} % of the link as its sink's capacity; where a user \
             has to give a rate, it is the link's.",
            100.0 * STATED
        ),
        tiles: Vec::new(),
        parts: vec![Part::Table(table)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Stage = Stage { mbps: 20, seconds: 24 };

    fn found(name: &str) -> Row {
        let contender = ALL.iter().find(|contender| contender.name == name).expect("a contender");
        measure(contender, SMALL).expect("a run")
    }

    #[test]
    fn every_contender_is_a_scenario_that_is_accepted() {
        for contender in &ALL {
            let text = scenario(contender, SMALL, APART);
            let document = Document::parse(contender.name, &text).expect("TOML");
            assert!(document.scenario(Overrides::default()).is_ok(), "{}: {text}", contender.name);
        }
    }

    #[test]
    fn gtp_holds_all_four_bounds_and_a_blast_at_the_links_rate_loses() {
        assert_eq!(holds(&found("GTP")), [true; 4]);
        let blast = found("RBUDP");
        assert!(blast.lost > 0.3, "two at the link's rate lose nearly half: {blast:?}");
        assert!(blast.filled > 0.98);
    }

    #[test]
    fn links_that_grant_are_efficient_fair_and_blind_to_round_trips() {
        let perc = found("links' grants (PERC)");
        assert_eq!(holds(&perc), [true; 4], "{perc:?}");
    }

    #[test]
    fn reno_depends_on_its_round_trip() {
        let reno = found("TCP Reno");
        assert!(reno.ratio < 0.6 && reno.filled > 0.9, "{reno:?}");
    }
}
