//! How fast the machine's network card is, where the system can tell.
//!
//! It is the card that the default route uses. Virtual devices are not believed: they name speeds
//! that nothing behind them has.

use std::fs;
use std::path::Path;

use gtp_alloc::Rate;

/// The speed of the card of the default route; `None` if there is no such route, or its device is
/// virtual or does not say.
pub fn default_route_speed() -> Option<Rate> {
    let routes = fs::read_to_string("/proc/net/route").ok()?;
    speed_of(default_device(&routes)?, Path::new("/sys/class/net"))
}

/// Whether this machine has a network interface of this name.
pub fn is_there(name: &str) -> bool {
    let is_plain = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    is_plain && Path::new("/sys/class/net").join(name).exists()
}

/// The device of the default route with the lowest metric in the kernel's table.
fn default_device(routes: &str) -> Option<&str> {
    let fields = routes.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|f| f.len() > 7 && f[1] == "00000000" && f[7] == "00000000")
        .min_by_key(|f| f[6].parse::<u64>().unwrap_or(u64::MAX))
        .map(|f| f[0])
}

fn speed_of(device: &str, classes: &Path) -> Option<Rate> {
    let class = classes.join(device);
    // Only what hangs on a bus has a card behind it.
    class.join("device").exists().then_some(())?;
    let said = fs::read_to_string(class.join("speed")).ok()?;
    let mbps: i64 = said.trim().parse().ok()?;
    u64::try_from(mbps).ok().filter(|&mbps| mbps > 0).map(Rate::from_mbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
        eth1\t00000000\t010200C0\t0003\t0\t0\t200\t00000000\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\n\
        eth2\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";

    #[test]
    fn the_default_route_of_lowest_metric_counts() {
        assert_eq!(default_device(ROUTES), Some("eth0"));
        assert_eq!(default_device("Iface\tDestination\n"), None);
    }

    #[test]
    fn virtual_devices_and_unknown_speeds_say_nothing() {
        let dir = std::env::temp_dir().join(format!("gtp-nic-{}", std::process::id()));
        let card = |name: &str, speed: &str, parts: &[&str]| {
            let class = dir.join(name);
            fs::create_dir_all(&class).expect("a directory");
            fs::write(class.join("speed"), speed).expect("a file");
            for part in parts {
                fs::create_dir_all(class.join(part)).expect("a directory");
            }
        };
        card("real", "10000\n", &["device"]);
        card("veth", "10000\n", &[]);
        card("virtio", "-1\n", &["device"]);
        assert_eq!(speed_of("real", &dir), Some(Rate::from_mbps(10_000)));
        assert_eq!(speed_of("veth", &dir), None);
        assert_eq!(speed_of("virtio", &dir), None);
        assert_eq!(speed_of("absent", &dir), None);
        fs::remove_dir_all(&dir).expect("ours to remove");
    }
}
