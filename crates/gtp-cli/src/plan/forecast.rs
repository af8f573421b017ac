//! When each transfer of a plan will end, by the fluid model.
//!
//! Every host is two resources: what it sends and what it receives. A transfer has a way from each
//! host that has its object, so that its rate is the sum of what all of them give it. Rates and
//! capacities count IP packets, so content counts as what it takes on the wire. Pure: sizes and
//! capacities go in, times come out.

use gtp::wire_bytes;
use gtp_alloc::fluid::{Course, FluidError, Run, Transfers};
use gtp_alloc::maxmin::NetworkError;
use gtp_alloc::{Bytes, Rate};

use super::file::{Host, Object, Plan};

/// What is foreseen for a plan.
#[derive(Debug)]
pub struct Forecast {
    pub course: Course,
    /// For each transfer of the course, its object and which of those who want it.
    pub of: Vec<(usize, usize)>,
}

impl Forecast {
    /// When the transfer of an object to one of those who want it begins and ends.
    pub fn run(&self, of: (usize, usize)) -> Run {
        let at = self.of.iter().position(|&other| other == of);
        at.and_then(|at| self.course.transfers.get(at)).copied().unwrap_or_default()
    }
}

/// Foresees a plan whose objects have these sizes.
///
/// # Errors
/// Every fault that makes it impossible, each as a sentence.
pub fn forecast(plan: &Plan, sizes: &[u64]) -> Result<Forecast, Vec<String>> {
    let capacities = plan.hosts.iter().flat_map(|host| [bits(host.out), bits(host.into)]);
    let mut transfers =
        Transfers::new(capacities.collect()).map_err(|why| vec![why.to_string()])?;
    let (mut of, mut faults) = (Vec::new(), Vec::new());
    let mut numbers: Vec<Vec<u32>> = Vec::new();
    for (number, (object, &size)) in plan.objects.iter().zip(sizes).enumerate() {
        let before = |&other: &usize| numbers.get(other).cloned().unwrap_or_default();
        let after: Vec<u32> = object.after.iter().flat_map(before).collect();
        let mut own = Vec::new();
        for sink in 0..object.wants.len() {
            let ways = ways(object, sink);
            let ways: Vec<&[u32]> = ways.iter().map(|way| &way[..]).collect();
            match transfers.add(Bytes(wire_bytes(size)), &ways, &after) {
                Ok(added) => {
                    own.push(added);
                    of.push((number, sink));
                }
                Err(why) => faults.push(words(plan, object, sink, why)),
            }
        }
        numbers.push(own);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let course = transfers.run();
    for (run, &(object, sink)) in course.transfers.iter().zip(&of) {
        if run.end_s.is_none() {
            let (name, host) = names(plan, &plan.objects[object], sink);
            faults.push(format!("[object.{name}]: it never reaches {host}: nothing can be sent"));
        }
    }
    if faults.is_empty() { Ok(Forecast { course, of }) } else { Err(faults) }
}

/// The ways to one of those who want an object: what the source sends, what the sink receives.
fn ways(object: &Object, sink: usize) -> Vec<[u32; 2]> {
    let to = object.wants[sink].host as u32;
    object.has.iter().map(|has| [2 * has.at.host as u32, 2 * to + 1]).collect()
}

fn names<'p>(plan: &'p Plan, object: &'p Object, sink: usize) -> (&'p str, &'p str) {
    let host: &Host = &plan.hosts[object.wants[sink].host];
    (&object.name, &host.name)
}

fn words(plan: &Plan, object: &Object, sink: usize, why: FluidError) -> String {
    let (name, to) = names(plan, object, sink);
    match why {
        FluidError::Network { way, why: NetworkError::Unbounded { .. } } => {
            let from = object.has.get(way).map_or("", |has| &plan.hosts[has.at.host].name);
            format!(
                "[object.{name}]: nothing limits it from {from} to {to}: say what one of them can \
                 send (`out`) or receive (`in`)"
            )
        }
        FluidError::Network { .. } | FluidError::NoWay | FluidError::After(_) => {
            format!("[object.{name}]: to {to}: {why}")
        }
    }
}

fn bits(rate: Rate) -> f64 {
    if rate.is_unlimited() { f64::INFINITY } else { rate.as_f64() }
}

#[cfg(test)]
mod tests {
    use gtp::Fingerprint;

    use super::super::file::read;
    use super::*;

    fn plan(rest: &str) -> Plan {
        let host = |(name, out, into): (&str, &str, &str)| {
            let key = Fingerprint::of_public_key(name.as_bytes());
            format!(
                "[host.{name}]\nurl = \"gtp://{name}\"\nkey = \"{key}\"\nout = \"{out}\"\n\
                 in = \"{into}\"\n"
            )
        };
        let hosts = [
            ("a", "600Mbit", "unlimited"),
            ("b", "unlimited", "100Mbit"),
            ("c", "unlimited", "400Mbit"),
            ("d", "unlimited", "unlimited"),
        ];
        let text: String = hosts.map(host).into_iter().chain([rest.to_owned()]).collect();
        read(&text).unwrap()
    }

    #[test]
    fn each_transfer_ends_when_its_max_min_rates_have_moved_its_packets() {
        let plan = plan(
            "[object.x]\nhas = [\"a\"]\nwants = [\"b\", \"c\"]\n\
             [object.y]\nhas = [\"a\"]\nwants = [\"c\"]\nafter = [\"x\"]\n",
        );
        let foreseen = forecast(&plan, &[1_000_000_000, 1_000_000_000]).unwrap();
        let seconds = |rate: f64| wire_bytes(1_000_000_000) as f64 * 8.0 / rate;
        let end = |of| foreseen.run(of).end_s.unwrap();
        assert!((end((0, 0)) - seconds(100e6)).abs() < 1e-6);
        assert!((end((0, 1)) - seconds(400e6)).abs() < 1e-6);
        assert_eq!(foreseen.run((1, 0)).begin_s, Some(end((0, 0))), "after all of x");
        assert!((end((1, 0)) - end((0, 0)) - seconds(400e6)).abs() < 1e-6);
        assert_eq!(foreseen.course.end_s(), Some(end((1, 0))));
    }

    #[test]
    fn what_nothing_limits_has_no_time_and_is_a_fault() {
        let plan = plan("[object.x]\nhas = [\"b\"]\nwants = [\"d\", \"c\"]\n");
        let faults = forecast(&plan, &[1]).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].contains("from b to d: say what one of them can"), "{faults:?}");
    }
}
