//! The way to a server, step by step: its name, TCP, its key and release, datagrams, the path.
//!
//! Each step is looked at only if those before it let it through. What this end sees of a step is
//! the library's to find out; here rows are made of it.

mod datagrams;
mod measure;
mod meeting;
mod names;
mod reordering;
mod tcp;

use std::net::SocketAddr;

use gtp::examine::{Datagrams, Examiner, Length, Met};
use gtp::{AcceptNew, Failure, Url};

use super::DoctorArgs;
use super::finding::Finding;
use crate::args::HostArgs;
use crate::daemon::Which;

/// Looks at the way to the server of `url`; `say` hears each finding.
///
/// # Errors
/// When this host's identity or its list of known hosts cannot be used, or `say` fails.
pub async fn check(
    args: &DoctorArgs,
    url: &Url,
    say: &mut dyn FnMut(Finding) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let host = match crate::verbs::start_client(crate::verbs::host(&joining(&args.host))) {
        Ok(host) => host,
        Err(failure) => {
            let mend = measure::at_length(url);
            return say(Finding::fault("host", failure.to_string(), mend));
        }
    };
    let accept_new = if args.trust.accept_new { AcceptNew::Yes } else { AcceptNew::No };
    let examiner = Examiner::new(&host, url, &args.trust.fingerprint, accept_new)?;
    let addresses = examiner.addresses().await;
    say(names::judge(url, addresses.as_deref()))?;
    let Ok(addresses) = addresses else { return Ok(()) };
    let mut tried = Vec::new();
    for address in one_of_each(&addresses) {
        tried.push((address, examiner.connect(address).await));
    }
    for finding in tcp::judge(&tried) {
        say(finding)?;
    }
    let open = tried.iter().filter(|(_, taken)| taken.is_ok()).map(|(address, _)| *address);
    // A key for this command alone is of no use on a list.
    let own = match host.unkept() {
        None => host.fingerprint().to_string(),
        Some(_) => "KEY, which cannot be kept here (gtp id says why),".to_owned(),
    };
    match meet_each((&own, url), &examiner, open, say).await? {
        Passes::Yes => {
            let path = measure::check(args, url, &host);
            let (path, order) = tokio::join!(path, reordering::check(args, url, &host));
            say(path)?;
            say(order)
        }
        Passes::No => Ok(()),
    }
}

/// The host's options without starting a daemon: nothing is to be changed here.
fn joining(args: &HostArgs) -> HostArgs {
    let daemon = match &args.daemon {
        Some(Which::Start) => Some(Which::Auto),
        daemon => daemon.clone(),
    };
    HostArgs { daemon, ..args.clone() }
}

/// Whether datagrams get through to the server over any address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    Yes,
    No,
}

/// Meets the server at each address, the preferred one first. Where that fails, the other one is
/// not looked at: transfers begin with the preferred one.
async fn meet_each(
    (own, url): (&str, &Url),
    examiner: &Examiner,
    addresses: impl Iterator<Item = SocketAddr>,
    say: &mut dyn FnMut(Finding) -> Result<(), Failure>,
) -> Result<Passes, Failure> {
    let mut passes = Passes::No;
    for (number, address) in addresses.enumerate() {
        let met = examiner.meet(address, Length::Full).await;
        if number == 0 {
            meeting::judge(own, url, &met).into_iter().try_for_each(&mut *say)?;
        }
        let met = match met {
            Ok(met) => met,
            Err(_) if number == 0 => return Ok(Passes::No),
            Err(failure) => {
                say(meeting::judge_other(own, url, version(address), &failure))?;
                continue;
            }
        };
        let short = short(examiner, address, met).await;
        datagrams::judge(url, address, (met.datagrams, short))
            .into_iter()
            .try_for_each(&mut *say)?;
        if [Some(met.datagrams), short].contains(&Some(Datagrams::Pass)) {
            passes = Passes::Yes;
        }
    }
    Ok(passes)
}

/// What short datagrams do where long ones do not get through.
async fn short(examiner: &Examiner, address: SocketAddr, met: Met) -> Option<Datagrams> {
    if met.datagrams == Datagrams::Pass {
        return None;
    }
    let met = examiner.meet(address, Length::Short).await.ok()?;
    Some(met.datagrams)
}

/// The preferred address of each IP version, the preferred version first.
fn one_of_each(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first = addresses.first().copied();
    let other = addresses.iter().find(|one| first.is_some_and(|f| f.is_ipv4() != one.is_ipv4()));
    first.into_iter().chain(other.copied()).collect()
}

/// What an IP version is called.
fn version(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_of_each_ip_version_is_tried_the_preferred_one_first() {
        let all =
            ["[::1]:1", "[::2]:1", "1.1.1.1:1", "1.1.1.2:1"].map(|text| text.parse().unwrap());
        assert_eq!(one_of_each(&all), [all[0], all[2]]);
        assert_eq!(one_of_each(&all[2..]), [all[2]]);
        assert_eq!(one_of_each(&[]), []);
    }
}
