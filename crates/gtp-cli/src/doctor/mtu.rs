//! How long the packets of this machine's network interfaces may be.
//!
//! Short packets cost more of a processor, and very short ones cannot carry GTP. A tunnel's are
//! shorter by its own headers, as they should be. What the way beyond carries is not known here.

use std::fs;

use super::finding::Finding;
use crate::shell;

const CHECK: &str = "mtu";

/// An interface that is up, other than the loopback device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    mtu: u32,
    medium: Medium,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// It has Ethernet's frames, so that 1,500 bytes are usual.
    Ethernet,
    /// A tunnel, or what else there is.
    Other,
}

/// Reads what the kernel says of its interfaces.
pub fn check() -> Finding {
    judge(&interfaces())
}

fn interfaces() -> Vec<Interface> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let mut all: Vec<Interface> = entries
        .flatten()
        .filter_map(|entry| {
            let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
            let flags = read("flags")?;
            let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).ok()?;
            let is_meant = flags & UP != 0 && flags & LOOPBACK == 0;
            let name = gtp_text::of_message(&entry.file_name().to_string_lossy()).to_string();
            let mtu = read("mtu")?.trim().parse().ok()?;
            let medium = match read("type")?.trim() {
                ETHERNET => Medium::Ethernet,
                _ => Medium::Other,
            };
            is_meant.then_some(Interface { name, mtu, medium })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn judge(all: &[Interface]) -> Finding {
    let Some(worst) = all.iter().min_by_key(|one| (one.mtu, one.medium == Medium::Other)) else {
        let found = "no network interface is up but the loopback device";
        return Finding::warning(CHECK, found, "ip link    # and: ip link set dev NAME up");
    };
    let short = all.iter().find(|one| one.medium == Medium::Ethernet && one.mtu < USUAL);
    if worst.mtu < LEAST {
        let found =
            format!("{} carries packets of {} bytes: too short for GTP", worst.name, worst.mtu);
        return Finding::fault(CHECK, found, set(worst));
    }
    if let Some(short) = short {
        let found = format!(
            "{} sends packets of {} bytes at most: data go in more of them",
            short.name, short.mtu
        );
        return Finding::warning(CHECK, found, set(short));
    }
    let each: Vec<String> = all.iter().map(|one| format!("{} {}", one.name, one.mtu)).collect();
    Finding::ok(CHECK, each.join(", "))
}

fn set(one: &Interface) -> String {
    let name = shell::quoted(&one.name);
    format!("ip link set dev {name} mtu 1500    # if the network behind it carries that")
}

/// What GTP's shortest units need over IPv6: 1,180 bytes, 49 of GTP, 8 of UDP, 40 of IP; every path
/// of IPv6 must carry that (RFC 8200, 5).
const LEAST: u32 = 1_280;
/// What Ethernet carries.
const USUAL: u32 = 1_500;
/// Flags of an interface (`net/if.h`).
const UP: u32 = 1;
const LOOPBACK: u32 = 8;
/// The kind of an Ethernet device (`ARPHRD_ETHER`).
const ETHERNET: &str = "1";

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    fn one(name: &str, mtu: u32, medium: Medium) -> Interface {
        Interface { name: name.into(), mtu, medium }
    }

    #[test]
    fn short_packets_are_told_by_interface_and_a_tunnels_are_as_they_should_be() {
        let usual = one("eth0", 1_500, Medium::Ethernet);
        let tunnel = one("wg0", 1_420, Medium::Other);
        let found = judge(&[usual.clone(), tunnel]);
        assert_eq!(found, Finding::ok(CHECK, "eth0 1500, wg0 1420"));
        let found = judge(&[usual.clone(), one("eth1", 1_400, Medium::Ethernet)]);
        assert_eq!(found.verdict, Verdict::Warning);
        assert!(found.mend.unwrap().starts_with("ip link set dev eth1 mtu 1500 "));
        let found = judge(&[usual, one("tun0", 1_000, Medium::Other)]);
        assert_eq!(found.verdict, Verdict::Fault);
        assert_eq!(judge(&[]).verdict, Verdict::Warning);
    }
}
