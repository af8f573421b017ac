//! Rivals over a shared port, as entries describe them: who sends what, and what is read off.
//!
//! Senders on links of their own meet at one port, behind which their receivers are: the shape of
//! every experiment of GTP 2004 and LambdaStream. The network is the small world of the rivals' own
//! tests, so that an entry and a unit test mean the same by a link, a queue and a rate. Nothing
//! here judges, and no entry is known.

mod ends;
mod host;
mod read;
mod run;

use super::formula::Quantities;
use crate::series::{Axis, Figure, Series};
use read::What;
use serde::Deserialize;

pub use run::Course;

/// A network of rivals, perhaps in several versions, and what is read off its runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rivals {
    /// Goes before its quantities' names.
    #[serde(default)]
    pub name: String,
    /// The fields of a [`Network`].
    pub network: toml::Table,
    /// Changed fields, one table a run; `label` names the run, `each` changes all flows.
    #[serde(default)]
    pub runs: Vec<toml::Table>,
    /// What is read off each run.
    pub read: Vec<Reading>,
}

/// What is read, under which name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The quantity.
    pub name: String,
    /// What it holds.
    pub of: What,
    /// Which flows, from one; all without it.
    #[serde(default)]
    pub flows: Vec<usize>,
}

/// One network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Length of the run.
    pub seconds: f64,
    /// Where chances come from.
    #[serde(default = "one")]
    pub seed: u64,
    /// Rate of the shared port.
    pub port_mbps: f64,
    /// What waits before the port at most, as time at its rate: room that is counted in bytes.
    pub queue_ms: Option<f64>,
    /// The same as places, one for each packet of any size. One of the two is given.
    pub queue_packets: Option<u64>,
    /// Chance of each packet to be lost behind the port.
    #[serde(default)]
    pub loss: f64,
    /// Packets, by their number at the port from zero, that are lost before it.
    #[serde(default)]
    pub lose: Vec<u64>,
    /// The host behind the port, if it cannot read all that comes.
    pub host: Option<host::Host>,
    /// Rate of each flow's own link; without it, no limit.
    pub access_mbps: Option<f64>,
    /// Jitter of each flow's own link.
    #[serde(default)]
    pub jitter_us: f64,
    /// What protocols are told to be the capacity: GTP's `C_r`, LambdaStream's `L`. Without it, the
    /// port's rate.
    pub capacity_mbps: Option<f64>,
    /// Whether GTP times its changes to arrive together.
    #[serde(default)]
    pub skew: Skew,
    /// The flows.
    pub flows: Vec<Flow>,
}

/// One flow, or several alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// What its ends speak.
    pub protocol: Protocol,
    /// Round trip without queues.
    pub rtt_ms: f64,
    /// When it begins.
    #[serde(default)]
    pub start: f64,
    /// When it ends; without it, with the run.
    pub stop: Option<f64>,
    /// How many such flows.
    #[serde(default = "one_flow")]
    pub copies: usize,
    /// The rate that its user gives: all of RBUDP's and of a constant stream, the first of SABUL
    /// and LambdaStream, the most of GTP. Without it, the capacity.
    pub mbps: Option<f64>,
    /// What the sender's application has, a second; without it, without limit.
    pub limit_mbps: Option<f64>,
    /// What there is to move; without it, without end.
    pub megabytes: Option<f64>,
    /// What RBUDP blasts at a time; without it, all.
    pub piece_mb: Option<f64>,
    /// TCP's receive buffer; without it, without limit. Of RBUDP, that of its control connection.
    pub window_kb: Option<f64>,
    /// TCP's first window in segments; without it, RFC 6928's. Of RBUDP, the same.
    pub initial_window: Option<f64>,
    /// TCP's least timeout; without it, RFC 6298's. Of RBUDP, the same.
    pub timeout_ms: Option<f64>,
    /// Bytes of a frame, if frames are noticed.
    pub frame_kb: Option<f64>,
    /// A receiving host that reads slowly for a while.
    pub reader: Option<Reader>,
    /// LambdaStream's delivery.
    #[serde(default)]
    pub delivery: Delivery,
}

/// What a flow's ends speak.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// GTP of 2004; all such flows end at one host.
    Gtp2004,
    /// TCP with selective acknowledgments.
    Tcp,
    /// RBUDP.
    Rbudp,
    /// UDT 1.0, which GTP 2004 calls SABUL.
    Udt1,
    /// SABUL by its paper's equations and default values; it begins at the user's rate.
    Sabul,
    /// LambdaStream.
    Lambdastream,
    /// A stream of datagrams at one rate, repeated for nobody.
    Constant,
}

/// Whether GTP times its changes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Skew {
    /// It does.
    #[default]
    Compensated,
    /// It does not.
    Ignored,
}

/// What LambdaStream repeats.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Everything.
    #[default]
    Reliable,
    /// Once at most.
    Unreliable,
}

/// A receiving host that reads slowly.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reader {
    /// How fast it reads then.
    pub mbps: f64,
    /// What may wait to be read.
    pub buffer_kb: f64,
    /// From when on.
    pub from: f64,
    /// Until when; without it, to the end.
    pub until: Option<f64>,
}

fn one() -> u64 {
    1
}

fn one_flow() -> usize {
    1
}

/// The longest run, in seconds: an hour of a paper's experiment would be a mistake.
const SECONDS_MAX: f64 = 600.0;
/// More flows than any paper has at one port.
const FLOWS_MAX: usize = 64;

impl Rivals {
    /// Its networks with their labels, one a run.
    ///
    /// # Errors
    /// A sentence that says which field is wrong.
    pub fn expand(&self) -> Result<Vec<(String, Network)>, String> {
        let plain = [toml::Table::new()];
        let runs = if self.runs.is_empty() { &plain[..] } else { &self.runs };
        runs.iter().map(|run| self.version(run)).collect()
    }

    fn version(&self, run: &toml::Table) -> Result<(String, Network), String> {
        let (mut network, mut label) = (self.network.clone(), self.name.clone());
        for (field, value) in run {
            match (field.as_str(), value) {
                ("label", toml::Value::String(text)) => label.clone_from(text),
                ("each", toml::Value::Table(changes)) => each(&mut network, changes)?,
                (_, _) => {
                    network.insert(field.clone(), value.clone());
                }
            }
        }
        let network: Network =
            toml::Value::Table(network).try_into().map_err(|e| format!("{label}: {e}"))?;
        sensible(&network).map_err(|why| format!("{label}: {why}"))?;
        Ok((label, network))
    }

    /// Runs it and puts what is read among the quantities.
    ///
    /// # Errors
    /// A sentence, if a network makes no sense or what is to be read is not there.
    pub fn run(&self, quantities: &mut Quantities) -> Result<Vec<Course>, String> {
        let networks = self.expand()?;
        let courses: Vec<Course> =
            networks.iter().map(|(label, network)| run::run(label, network)).collect();
        for reading in &self.read {
            let prefix = if self.name.is_empty() { "" } else { &format!("{}_", self.name) };
            let name = format!("{prefix}{}", reading.name);
            let of = |course: &Course| {
                let why = |why| format!("`{name}` in {:?}: {why}", course.label);
                reading.of.read(course, &reading.flows).map_err(why)
            };
            let numbers = courses.iter().map(of).collect::<Result<Vec<_>, _>>()?.concat();
            if quantities.insert(name.clone(), numbers).is_some() {
                return Err(format!("`{name}` is read twice"));
            }
        }
        Ok(courses)
    }
}

/// Changes fields of every flow.
fn each(network: &mut toml::Table, changes: &toml::Table) -> Result<(), String> {
    let Some(toml::Value::Array(flows)) = network.get_mut("flows") else {
        return Err("`each` changes flows, and there are none".to_owned());
    };
    for flow in flows {
        if let toml::Value::Table(flow) = flow {
            flow.extend(changes.clone());
        }
    }
    Ok(())
}

/// What no field alone can say.
fn sensible(network: &Network) -> Result<(), String> {
    let above = |x: f64| x > 0.0 && x.is_finite();
    let not_below = |x: f64| x >= 0.0 && x.is_finite();
    if !above(network.seconds) || network.seconds > SECONDS_MAX {
        return Err(format!("a run takes more than 0 and at most {SECONDS_MAX} seconds"));
    }
    let most = FLOWS_MAX + 1;
    let count: usize = network.flows.iter().map(|flow| flow.copies.min(most)).sum();
    if !(1..=FLOWS_MAX).contains(&count) {
        return Err(format!("there are 1 to {FLOWS_MAX} flows"));
    }
    let rates = [Some(network.port_mbps), network.access_mbps, network.capacity_mbps];
    let users = network.flows.iter().flat_map(|flow| {
        let reader = flow.reader.map(|reader| reader.mbps);
        let sizes = [flow.megabytes, flow.piece_mb, flow.window_kb, flow.frame_kb];
        let rates = [flow.mbps, flow.limit_mbps, reader];
        rates.into_iter().chain(sizes).chain([flow.initial_window, flow.timeout_ms])
    });
    if !rates.into_iter().chain(users).flatten().all(above) {
        return Err("rates and sizes are above zero".to_owned());
    }
    let times = network.flows.iter().flat_map(|flow| {
        let reader = flow.reader.map_or(0.0, |reader| reader.from + reader.until.unwrap_or(0.0));
        [flow.rtt_ms, flow.start, flow.stop.unwrap_or(0.0), reader]
    });
    if !times.chain([network.queue_ms.unwrap_or(0.0), network.jitter_us]).all(not_below) {
        return Err("times are not below zero".to_owned());
    }
    if network.queue_ms.is_some() == network.queue_packets.is_some() {
        return Err("a queue has room in bytes, `queue_ms`, or places, `queue_packets`".to_owned());
    }
    if !network.host.as_ref().is_none_or(host::Host::is_sensible) {
        return Err("a host has a rate and a buffer above zero".to_owned());
    }
    let windows = network.flows.iter().filter_map(|flow| flow.initial_window);
    if !windows.into_iter().all(|window| window >= 1.0) {
        return Err("a first window is of a segment at least".to_owned());
    }
    if !(0.0..=1.0).contains(&network.loss) {
        return Err("`loss` is a chance".to_owned());
    }
    Ok(())
}

/// Rates over time, one figure for each network.
pub fn figures(id: &str, title: &str, courses: &[Course]) -> Vec<Figure> {
    let several = courses.len() > 1;
    let figure = |(k, course): (usize, &Course)| {
        let name = if course.label.is_empty() { title } else { &course.label };
        let title = if several { format!("{title}: {name}") } else { title.to_owned() };
        let id = format!("{id}-rivals-{}", k + 1).to_lowercase();
        let axes = [Axis::linear("Time, s"), Axis::linear("Rate on the link, Mbit/s")];
        let [x, y] = axes;
        let mut figure = Figure::new(&id, title, x, y);
        figure.series =
            course.curves().map(|(name, points)| Series::line(name, "Mbit/s", points)).collect();
        figure
    };
    courses.iter().enumerate().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(network: &str, read: &[&str]) -> Result<Quantities, String> {
        let reading = |what: &&str| {
            let name = what.split('\'').nth(1).unwrap_or("").replace('-', "_");
            format!("{{ name = \"{name}\", of = {{ {what} }} }}")
        };
        let read = read.iter().map(reading).collect::<Vec<_>>().join(", ");
        let text = format!("read = [{read}]\n[network]\nseconds = 3\n{network}\n");
        let rivals: Rivals = toml::from_str(&text).map_err(|e| e.to_string())?;
        let mut quantities = Quantities::new();
        rivals.run(&mut quantities).map(|_| quantities)
    }

    /// A stream of a quarter too much fills the queue and loses a fifth.
    #[test]
    fn what_is_read_of_an_overload_is_its_arithmetic() {
        let network = "port_mbps = 10\nqueue_ms = 24\n\
                       flows = [{ protocol = 'constant', rtt_ms = 8, mbps = 12.5 }]";
        let span = "from = 1, until = 3";
        let read = ["rates", "sum", "jain", "loss", "flow-loss", "sent", "queue"]
            .map(|what| format!("what = '{what}', {span}"));
        let more = ["offered", "series"].map(|what| format!("what = '{what}', {span}, step = 0.5"));
        let read: Vec<&str> = read.iter().chain(&more).map(String::as_str).collect();
        let found = found(network, &read).expect("a run");
        let near = |name: &str, value: f64, off: f64| {
            let numbers = &found[name];
            assert!(!numbers.is_empty(), "{name}");
            assert!(numbers.iter().all(|x| (x - value).abs() <= off), "{name}: {numbers:?}");
        };
        near("rates", 10.0, 0.03);
        near("sum", 10.0, 0.03);
        near("series", 10.0, 0.05);
        near("jain", 1.0, 1e-12);
        near("loss", 0.2, 2e-3);
        near("flow_loss", 0.2, 3e-3);
        near("sent", 12.5, 0.01);
        near("offered", 1.25, 3e-3);
        near("queue", 24.0, 1.2);
        assert_eq!(found["series"].len(), 4);
    }

    /// Behind ten large packets there is room for a small one where bytes are counted and none
    /// where places are: there RBUDP's ends of rounds are lost, too, and wait for their timer.
    #[test]
    fn where_places_are_counted_small_packets_are_lost_as_large_ones_are() {
        let network = "port_mbps = 10\nqueue_ms = 12.4\njitter_us = 500\nflows = [\
                       { protocol = 'constant', rtt_ms = 8, mbps = 40 },\
                       { protocol = 'rbudp', rtt_ms = 8, mbps = 5, megabytes = 0.03 }]";
        let read = ["done'", "loss', from = 1, until = 3", "queue', from = 1, until = 3"];
        let read = read.map(|what| format!("what = '{what}"));
        let read = read.each_ref().map(String::as_str);
        let bytes = found(network, &read).expect("a run");
        let places = network.replace("queue_ms = 12.4", "queue_packets = 10");
        let places = found(&places, &read).expect("a run");
        assert!(bytes["done"][1] < 1.5, "{bytes:?}");
        assert!(places["done"][1] > 2.0, "{places:?}");
        for found in [bytes, places] {
            assert!((found["loss"][0] - 0.75).abs() < 0.01, "{found:?}");
            assert!((found["queue"][0] - 12.0).abs() < 1.3, "{found:?}");
        }
    }

    #[test]
    fn the_same_network_takes_the_same_course() {
        let network = "port_mbps = 50\nqueue_ms = 10\nloss = 0.002\naccess_mbps = 100\n\
                       jitter_us = 50\nflows = [\
                       { protocol = 'gtp2004', rtt_ms = 10 }, { protocol = 'tcp', rtt_ms = 20 },\
                       { protocol = 'lambdastream', rtt_ms = 30, mbps = 10 },\
                       { protocol = 'udt1', rtt_ms = 10, start = 0.5 },\
                       { protocol = 'rbudp', rtt_ms = 5, mbps = 5, megabytes = 0.5 }]";
        let read = ["what = 'series', from = 0, until = 3, step = 0.01", "what = 'done'"];
        let [one, two] = [(), ()].map(|()| found(network, &read).expect("a run"));
        assert_eq!(one, two);
        assert_eq!(one["done"].iter().filter(|seconds| seconds.is_finite()).count(), 1);
    }

    #[test]
    fn what_a_run_cannot_have_is_refused() {
        let flow = "port_mbps = 10\nqueue_ms = 1\nflows = [{ protocol = 'tcp', rtt_ms = 1 }]";
        let rates = "what = 'rates', from = 0, until = 3";
        assert!(found(flow, &[rates]).is_ok());
        assert!(found(flow, &["what = 'rates', from = 2, until = 4"]).is_err());
        assert!(found(flow, &["what = 'ratio'"]).is_err(), "of another protocol");
        assert!(found(flow, &["what = 'frame-at', frame = 0"]).is_err());
        assert!(found(&flow.replace("10", "0"), &[rates]).is_err());
        assert!(found(&flow.replace("queue_ms = 1", "queue_packets = 1"), &[rates]).is_ok());
        assert!(found(&flow.replace("queue_ms = 1", ""), &[rates]).is_err(), "no queue");
        let both = flow.replace("queue_ms", "queue_packets = 1\nqueue_ms");
        assert!(found(&both, &[rates]).is_err(), "two queues");
        let small = flow.replace("rtt_ms = 1", "rtt_ms = 1, initial_window = 0.5");
        assert!(found(&small, &[rates]).is_err());
        assert!(found(&flow.replace("rtt_ms = 1", "rtt_ms = -1"), &[rates]).is_err());
        assert!(found(&flow.replace("'tcp'", "'tcp', copies = 65"), &[rates]).is_err());
        assert!(found(&flow.replace("'tcp'", "'tcp', colour = 1"), &[rates]).is_err());
    }
}
