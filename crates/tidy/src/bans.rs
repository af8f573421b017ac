//! Calls and marks that must not stand in the source, each with where it may.
//!
//! The clock and entropy are read in `gtp-sys` alone, so that everything else is a function of its
//! arguments; tests and benches may read the clock, because they wait for the real world. Tests
//! wait for conditions, never for time to pass. Nothing unfinished is committed.

use crate::breach::{Breach, Rule};
use crate::mask::places;
use crate::source::Source;

/// Reads of a clock.
const CLOCKS: [&str; 4] = ["Instant::now", "SystemTime::now", "clock_gettime", "gettimeofday"];
/// Reads of entropy. Ring's generator is among them: where a key is made, it is exempted by name.
const ENTROPY: [&str; 5] = ["getrandom", "rand::", "SystemRandom", "thread_rng", "OsRng"];
/// Waits by time instead of by condition.
const SLEEPS: [&str; 2] = ["thread::sleep", "time::sleep"];
/// Unfinished or switched-off code.
const STUBS: [&str; 4] = ["todo!", "unimplemented!", "dbg!", "#[ignore"];
/// Panics that hostile input could reach.
const PANICS: [&str; 2] = [".unwrap()", ".expect("];
/// The crates that input from strangers goes through.
const NETWORK_FACING: [&str; 7] =
    ["gtp-proto", "gtp-sys", "gtp-emu", "gtp-store", "gtp-share", "gtpd", "gtp-net"];
/// The crates that may hold `unsafe`: system calls below, memory shared between processes. Tests
/// may too. Everywhere it needs its argument.
const MAY_BE_UNSAFE: [&str; 3] = ["gtp-sys", "gtp-share", "gtp-net"];
/// The files of other crates that may: borders to C, which do nothing else, and a measurement of
/// ways to read that are unsafe.
const BORDERS: [&str; 3] = [
    "crates/libgtp/src/border.rs",
    "crates/gtp-preload/src/border.rs",
    "bench/peers/src/bin/reading.rs",
];
/// How many lines above `unsafe` its argument may begin.
const SAFETY_REACH: usize = 6;

/// Every banned call or mark in one source.
#[must_use]
pub fn check(source: &Source) -> Vec<Breach> {
    let mut found = Vec::new();
    let in_sys = source.crate_name() == "gtp-sys";
    if !in_sys {
        let clocks = calls(source, &CLOCKS).filter(|(at, _)| !source.is_test(*at));
        found.extend(named(source, Rule::Clock, clocks, "only gtp-sys reads a clock"));
        let entropy = calls(source, &ENTROPY).filter(|(at, _)| !source.is_test(*at));
        found.extend(named(source, Rule::Entropy, entropy, "only gtp-sys reads entropy"));
    }
    let sleeps = calls(source, &SLEEPS).filter(|(at, _)| source.is_test(*at));
    found.extend(named(source, Rule::Sleep, sleeps, "a test waits for a condition, not for time"));
    found.extend(named(source, Rule::Stub, calls(source, &STUBS), "unfinished work"));
    found.extend(notes(source));
    if NETWORK_FACING.contains(&source.crate_name()) {
        let panics = calls(source, &PANICS).filter(|(at, _)| !source.is_test(*at));
        found.extend(named(source, Rule::Panic, panics, "input must end in an error value"));
    }
    found.extend(unsafety(source));
    found
}

/// Every place of every needle in the masked code.
fn calls<'a>(
    source: &'a Source,
    needles: &'a [&'a str],
) -> impl Iterator<Item = (usize, &'a str)> + 'a {
    needles.iter().flat_map(|needle| places(&source.code, needle).map(move |at| (at, *needle)))
}

/// Breaches from places.
fn named<'a>(
    source: &'a Source,
    rule: Rule,
    calls: impl Iterator<Item = (usize, &'a str)> + 'a,
    why: &'a str,
) -> impl Iterator<Item = Breach> + 'a {
    calls.map(move |(at, needle)| {
        Breach::at(rule, &source.path, source.line_of(at), format!("`{needle}`: {why}"))
    })
}

/// Notes to self in comments: the work is either done or said in the documentation.
fn notes(source: &Source) -> Vec<Breach> {
    let marks = [["FIX", "ME"].concat(), ["TO", "DO"].concat(), ["XX", "X"].concat()];
    let mut found = Vec::new();
    for mark in &marks {
        for at in places(&source.text, mark) {
            let what = format!("`{mark}`: unfinished work");
            found.push(Breach::at(Rule::Stub, &source.path, source.line_of(at), what));
        }
    }
    found
}

/// `unsafe` where it may not be, or without `// SAFETY:` above it.
fn unsafety(source: &Source) -> Vec<Breach> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for at in places(&source.code, "unsafe") {
        let line = source.line_of(at);
        let above = &lines[line.saturating_sub(1 + SAFETY_REACH)..line];
        let border = BORDERS.contains(&source.path.as_str());
        let may = MAY_BE_UNSAFE.contains(&source.crate_name()) || border;
        // What a function of a border asks of its caller is said in its documentation; how its
        // symbol is named is what a border is for.
        let rest = &source.code[at + "unsafe".len()..];
        let declared = border && (rest.starts_with(" extern") || rest.starts_with(" fn"));
        let named = border && rest.starts_with("(no_mangle)");
        let argument = if declared { "# Safety" } else { "SAFETY:" };
        let what = if !may && !source.is_test(at) {
            "`unsafe`: this crate has none"
        } else if !named && above.iter().all(|text| !text.contains(argument)) {
            "`unsafe` without a SAFETY comment above it"
        } else {
            continue;
        };
        found.push(Breach::at(Rule::Unsafe, &source.path, line, what));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<Rule> {
        check(&Source::new(path, text)).into_iter().map(|breach| breach.rule).collect()
    }

    #[test]
    fn the_clock_is_read_in_one_crate_and_in_tests() {
        let read = "fn a() { let t = Instant::now(); }";
        assert_eq!(rules("crates/gtp-net/src/a.rs", read), [Rule::Clock]);
        assert!(rules("crates/gtp-sys/src/a.rs", read).is_empty());
        assert!(rules("crates/gtp-net/benches/a.rs", read).is_empty());
        assert!(rules("crates/gtp-net/src/a.rs", "// Instant::now\nfn a() {}").is_empty());
    }

    #[test]
    fn entropy_is_read_in_one_crate() {
        let read = "fn a() { let r = ring::rand::SystemRandom::new(); }";
        assert_eq!(rules("crates/gtp-net/src/a.rs", read), [Rule::Entropy, Rule::Entropy]);
        assert!(rules("crates/gtp-net/src/a.rs", "fn operand() { brand::x() }").is_empty());
    }

    #[test]
    fn tests_do_not_sleep() {
        let sleep = "#[cfg(test)] mod t { fn a() { std::thread::sleep(d); } }";
        assert_eq!(rules("crates/gtp-net/src/a.rs", sleep), [Rule::Sleep]);
    }

    #[test]
    fn stubs_are_found_in_code_and_notes_in_comments() {
        assert_eq!(rules("crates/gtp/src/a.rs", "fn a() { todo!() }"), [Rule::Stub]);
        let note = ["// FIX", "ME later\nfn a() {}"].concat();
        assert_eq!(rules("crates/gtp/src/a.rs", &note), [Rule::Stub]);
        assert_eq!(rules("crates/gtp/tests/a.rs", "#[test]\n#[ignore]\nfn a() {}"), [Rule::Stub]);
    }

    #[test]
    fn network_code_returns_errors_and_its_tests_may_unwrap() {
        let text = "fn a() { b.unwrap(); c.expect(\"d\"); e.unwrap_or(0); }";
        assert_eq!(rules("crates/gtp-proto/src/a.rs", text), [Rule::Panic, Rule::Panic]);
        assert!(rules("crates/gtp-proto/tests/a.rs", text).is_empty());
        assert!(rules("crates/gtp-alloc/src/a.rs", text).is_empty());
    }

    #[test]
    fn unsafe_needs_a_place_and_an_argument() {
        let bare = "fn a() { unsafe { b() } }";
        let argued = "fn a() {\n// SAFETY: b has no preconditions here.\nunsafe { b() } }";
        assert_eq!(rules("crates/gtp-proto/src/a.rs", argued), [Rule::Unsafe]);
        assert_eq!(rules("crates/gtp-sys/src/a.rs", bare), [Rule::Unsafe]);
        assert!(rules("crates/gtp-sys/src/a.rs", argued).is_empty());
        assert!(rules("crates/gtp-sys/src/a.rs", "#![deny(unsafe_op_in_unsafe_fn)]").is_empty());
        let border = "crates/libgtp/src/border.rs";
        assert!(rules(border, argued).is_empty());
        assert_eq!(rules("crates/libgtp/src/library.rs", argued), [Rule::Unsafe]);
        assert_eq!(rules(border, bare), [Rule::Unsafe]);
        let asks = "/// # Safety\n/// It.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn a() {}";
        assert!(rules(border, asks).is_empty());
        assert_eq!(rules(border, "pub unsafe extern \"C\" fn a() {}"), [Rule::Unsafe]);
    }
}
