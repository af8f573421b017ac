//! Courses of the window and of what is sent, as drawn cases.
//!
//! A case is a path on which nothing but the window limits, one segment a millisecond apart at
//! most, and a list of lost segments. What entered the path is drawn by round trips: `3-5` are new
//! segments, `2!` is one sent again, `x` marks what was lost.

use std::cell::RefCell;
use std::rc::Rc;

use gtp_alloc::{Bytes, Rate, Span};
use gtp_peers::tcp::{AckDelay, Flavour, ReceiverConfig, Segment, SenderConfig, Timing};
use gtp_peers::{Body, Endpoint};

use crate::bench::Dumbbell;
use gtp_path::START;

const RTT_MS: u64 = 500;

/// The course of `rounds` round trips from the first segment on. `lost` are numbers of segments
/// whose first sending is lost; a number named twice loses its repetition too.
fn course(flavour: Flavour, config: SenderConfig, lost: &[u64], rounds: usize) -> String {
    course_with(flavour, config, AckDelay::None, lost, rounds)
}

fn course_with(
    flavour: Flavour,
    config: SenderConfig,
    delay: AckDelay,
    lost: &[u64],
    rounds: usize,
) -> String {
    // A segment takes a millisecond, so that order shows; the round trip is half a second.
    let mut bed =
        Dumbbell::new(Rate::from_mbps(12), Span::from_millis(RTT_MS - 1), Bytes(u64::MAX));
    let lines: Rc<RefCell<Vec<Vec<String>>>> = Rc::new(RefCell::new(vec![Vec::new(); rounds]));
    let (log, mut left, mut seen) = (Rc::clone(&lines), lost.to_vec(), 0);
    let clock = Rc::new(RefCell::new(0u64));
    let time = Rc::clone(&clock);
    let thief = move |_: u64, packet: &gtp_peers::Packet| {
        let Body::Tcp(tcp) = &packet.body else { return false };
        let Segment::Data { number, .. } = tcp.segment else { return false };
        let again = number < seen;
        seen = seen.max(number + 1);
        let stolen = left.iter().position(|n| *n == number).map(|i| left.remove(i)).is_some();
        let mark = if again { "!" } else { "" };
        let loss = if stolen { "x" } else { "" };
        if let Some(line) = log.borrow_mut().get_mut((*time.borrow() / RTT_MS) as usize) {
            line.push(format!("{number}{mark}{loss}"));
        }
        stolen
    };
    bed.world.set_thief(bed.there, Box::new(thief));
    let receiver = ReceiverConfig { delay, ..ReceiverConfig::default() };
    let flow = bed.flow_to(flavour, config, receiver, Span::ZERO);
    let mut windows = Vec::new();
    let start = START;
    bed.world.watch(Span::from_millis(RTT_MS * rounds as u64), Span::from_micros(500), |world| {
        // The next step's events carry this time.
        *clock.borrow_mut() = (world.now().since(start).as_micros() + 500) / 1_000;
        let at = world.now().since(start).as_micros();
        if at % (RTT_MS * 1_000) == (RTT_MS - 10) * 1_000 {
            windows.push(world.sent(flow).window);
        }
    });
    let mut drawn = String::new();
    for (round, (line, window)) in lines.borrow().iter().zip(windows).enumerate() {
        let sent = ranges(line);
        drawn.push_str(format!("{round:2} {window:5.1} | {sent}").trim_end());
        drawn.push('\n');
    }
    let sender = bed.sender(flow);
    drawn.push_str(&format!(
        "recoveries {} timeouts {} repeated {}\n",
        sender.recoveries(),
        sender.timeouts(),
        sender.progress().repeated
    ));
    drawn
}

/// `1 2 3 5!` as `1-3 5!`.
fn ranges(sent: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut run: Option<(u64, u64)> = None;
    let close = |run: &mut Option<(u64, u64)>, parts: &mut Vec<String>| {
        if let Some((a, b)) = run.take() {
            parts.push(if a == b { a.to_string() } else { format!("{a}-{b}") });
        }
    };
    for word in sent {
        match (word.parse::<u64>(), run) {
            (Ok(n), Some((a, b))) if n == b + 1 => run = Some((a, n)),
            (Ok(n), _) => {
                close(&mut run, &mut parts);
                run = Some((n, n));
            }
            (Err(_), _) => {
                close(&mut run, &mut parts);
                parts.push(word.clone());
            }
        }
    }
    close(&mut run, &mut parts);
    parts.join(" ")
}

fn open(initial: f64) -> SenderConfig {
    SenderConfig {
        initial_window: initial,
        opening: gtp_peers::tcp::Opening::Open,
        ..SenderConfig::default()
    }
}

fn assert_drawn(drawn: &str, expected: &str) {
    let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
    let found: Vec<&str> = drawn.trim().lines().map(str::trim).collect();
    assert_eq!(found, expected, "\n{drawn}");
}

#[test]
fn slow_start_doubles() {
    let drawn = course(Flavour::NewReno, open(1.0), &[], 5);
    assert_drawn(
        &drawn,
        "
         0   1.0 | 0
         1   2.0 | 1-2
         2   4.0 | 3-6
         3   8.0 | 7-14
         4  16.0 | 15-30
        recoveries 0 timeouts 0 repeated 0
        ",
    );
}

#[test]
fn slow_start_with_delayed_acknowledgments_counts_segments() {
    let drawn = course_with(Flavour::NewReno, open(2.0), AckDelay::USUAL, &[], 5);
    assert_drawn(
        &drawn,
        "
         0   2.0 | 0-1
         1   4.0 | 2-5
         2   8.0 | 6-13
         3  16.0 | 14-29
         4  32.0 | 30-61
        recoveries 0 timeouts 0 repeated 0
        ",
    );
}

#[test]
fn limited_slow_start_adds_half_the_limit_at_most() {
    let config = SenderConfig { limited_above: 8.0, ..open(4.0) };
    let drawn = course(Flavour::HighSpeed, config, &[], 8);
    assert_drawn(
        &drawn,
        "
         0   4.0 | 0-3
         1   8.0 | 4-11
         2  12.3 | 12-23
         3  16.3 | 24-39
         4  20.2 | 40-59
         5  24.2 | 60-83
         6  28.2 | 84-111
         7  32.2 | 112-143
        recoveries 0 timeouts 0 repeated 0
        ",
    );
}

#[test]
fn avoidance_adds_one_in_a_round_trip() {
    let config = SenderConfig { initial_threshold: 4.0, ..open(4.0) };
    let drawn = course(Flavour::Sack, config, &[], 5);
    assert_drawn(
        &drawn,
        "
         0   4.0 | 0-3
         1   4.9 | 4-7
         2   5.7 | 8-12
         3   6.5 | 13-18
         4   7.4 | 19-25
        recoveries 0 timeouts 0 repeated 0
        ",
    );
}

#[test]
fn fast_retransmit_repeats_one_segment_and_halves_the_window() {
    let config = SenderConfig { initial_threshold: 8.0, ..open(8.0) };
    for flavour in [Flavour::Reno, Flavour::NewReno, Flavour::Sack] {
        let drawn = course(flavour, config, &[10], 6);
        assert_drawn(
            &drawn,
            "
         0   8.0 | 0-7
         1   9.0 | 8-9 10x 11-15
         2   4.6 | 16-20 10!
         3   4.6 | 21-24
         4   5.4 | 25-29
         5   6.3 | 30-35
        recoveries 1 timeouts 0 repeated 1
        ",
        );
    }
}

#[test]
fn two_losses_in_a_window_cost_newreno_a_round_trip_each_and_sack_one() {
    let config = SenderConfig { initial_threshold: 10.0, ..open(10.0) };
    let newreno = course(Flavour::NewReno, config, &[11, 13], 7);
    assert_drawn(
        &newreno,
        "
         0  10.0 | 0-9
         1  11.0 | 10 11x 12 13x 14-19
         2   5.5 | 20-23 11!
         3   5.5 | 24-26 13! 27
         4   5.7 | 28-32
         5   6.5 | 33-38
         6   7.4 | 39-45
        recoveries 1 timeouts 0 repeated 2
        ",
    );
    let sack = course(Flavour::Sack, config, &[11, 13], 7);
    assert_drawn(
        &sack,
        "
         0  10.0 | 0-9
         1  11.0 | 10 11x 12 13x 14-19
         2   5.5 | 20-23 11!
         3   5.5 | 13! 24-27
         4   6.2 | 28-33
         5   7.1 | 34-40
         6   8.1 | 41-48
        recoveries 1 timeouts 0 repeated 2
        ",
    );
}

#[test]
fn two_losses_in_a_window_halve_reno_twice() {
    let config = SenderConfig { initial_threshold: 10.0, ..open(10.0) };
    let drawn = course(Flavour::Reno, config, &[11, 13], 8);
    assert_drawn(
        &drawn,
        "
         0  10.0 | 0-9
         1  11.0 | 10 11x 12 13x 14-19
         2   5.5 | 20-23 11!
         3   5.5 | 24-26
         4   2.8 | 13!
         5   2.8 | 27-28
         6   3.4 | 29-31
         7   4.3 | 32-35
        recoveries 2 timeouts 0 repeated 2
        ",
    );
}

#[test]
fn the_loss_of_a_tail_waits_for_the_timer() {
    let config = SenderConfig { length: Some(Bytes(4 * 1_460)), ..open(4.0) };
    let drawn = course(Flavour::Sack, config, &[3], 5);
    assert_drawn(
        &drawn,
        "
         0   4.0 | 0-2 3x
         1   7.0 |
         2   7.0 |
         3   1.0 | 3!
         4   2.0 |
        recoveries 0 timeouts 1 repeated 1
        ",
    );
}

#[test]
fn a_lost_repetition_waits_for_the_timer_or_is_found_by_what_followed_it() {
    let config = SenderConfig { initial_threshold: 8.0, ..open(8.0) };
    let rfc = course(Flavour::Sack, config, &[10, 10], 8);
    assert_drawn(
        &rfc,
        "
         0   8.0 | 0-7
         1   9.0 | 8-9 10x 11-15
         2   4.6 | 16-20 10!x
         3   4.6 | 21-23
         4   1.0 | 24-26 10!
         5   2.6 | 27-28
         6   3.3 | 29-31
         7   4.2 | 32-35
        recoveries 1 timeouts 1 repeated 2
        ",
    );
    let watched = course(Flavour::Scalable, config, &[10, 10], 8);
    assert_drawn(
        &watched,
        "
         0   8.0 | 0-7
         1   9.0 | 8-9 10x 11-15
         2   8.0 | 16-20 10!x 21-22
         3   8.0 | 23-29
         4   8.0 | 10! 30-36
         5   8.9 | 37-44
         6   9.7 | 45-53
         7  10.6 | 54-63
        recoveries 1 timeouts 0 repeated 2
        ",
    );
}

#[test]
fn with_stamps_a_repetition_is_measured_and_what_is_new_ends_the_backing_off() {
    let found = |timing, lost: &[u64], word: &str| {
        let config = SenderConfig { timing, ..open(1.0) };
        let drawn = course(Flavour::Reno, config, lost, 21);
        drawn.lines().position(|line| line.contains(word))
    };
    // Sent at 0, 1 and 3 s and answered at 3.5, when the next is lost: found by a timer of four
    // times 1 s, or of four times 0.5 + 4 * 0.25 s.
    assert_eq!(found(Timing::Once, &[0, 0, 1], "1!"), Some(15));
    assert_eq!(found(Timing::Stamps, &[0, 0, 1], "1!"), Some(19));
    // The next two arrive, and all that follows at 4 s is lost: found by 0.5 + 4 * 0.1875 s.
    assert_eq!(found(Timing::Stamps, &[0, 0, 3, 4, 5, 6], "3!"), Some(10));
}
