//! Whether there is memory for what is under way.
//!
//! A fast transfer over a long path holds what it has sent and not heard of, or received and not
//! written. The kernel says how much is available. This check does not look at who uses the rest.

use super::finding::Finding;

const CHECK: &str = "memory";

/// Reads how much the kernel says is available.
pub fn check() -> Finding {
    judge(std::fs::read_to_string("/proc/meminfo").ok().as_deref())
}

fn judge(meminfo: Option<&str>) -> Finding {
    let kib = meminfo.and_then(available_kib);
    match kib.map(|kib| kib >> 10) {
        None => Finding::unknown(CHECK, "the kernel does not say how much there is"),
        Some(mib) if mib < WANTED_MIB => {
            let found =
                format!("{mib} MiB are free: fast transfers over long paths hold up to 512");
            Finding::warning(
                CHECK,
                found,
                "ps aux --sort=-rss | head    # and end what is not needed",
            )
        }
        Some(mib) => Finding::ok(CHECK, format!("{mib} MiB are free")),
    }
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Memory that fast transfers over long paths hold: blocks under way in both directions.
const WANTED_MIB: u64 = 512;

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    #[test]
    fn little_memory_is_a_warning() {
        let said = |kib: u64| format!("MemTotal: 9 kB\nMemAvailable:   {kib} kB\nCached: 1 kB\n");
        assert_eq!(judge(Some(&said(511 << 10))).verdict, Verdict::Warning);
        assert_eq!(judge(Some(&said(512 << 10))), Finding::ok(CHECK, "512 MiB are free"));
        assert_eq!(judge(Some("MemFree: 3 kB")).verdict, Verdict::Unknown);
    }
}
