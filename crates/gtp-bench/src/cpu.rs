//! What this process has used of the processors.
//!
//! The kernel's own account of all threads, in hundredths of a second: for runs of seconds that is
//! exact enough, and it needs no call that other systems lack.

/// Seconds of processor time of all threads of this process, in the kernel too, as the system
/// counts it: in hundredths. `None` where it does not say.
pub fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    parse(&text)
}

/// Clock ticks per second of `/proc`: the kernel's ABI, whatever its own tick is.
const TICKS: f64 = 100.0;

/// User and system time: the 14th and 15th field, counted behind a name that may hold anything.
fn parse(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 9 0 0 0 250 50 0 0 20 0 3 0 1 1 1";
        assert_eq!(parse(stat), Some(3.0));
        assert_eq!(parse("7 (a) S 1"), None);
        assert!(cpu_seconds().is_some());
    }
}
