//! What LEDBAT++ and Copa, which steer by delays, do on a path, alone and beside others.

use gtp_alloc::{Bytes, Rate, Span};
use gtp_path::{bdp, jain};
use gtp_peers::tcp::{Flavour, SenderConfig};

use crate::bench::Dumbbell;

const RATE: Rate = Rate::from_mbps(20);
const RTT: Span = Span::from_millis(50);
/// The payload's share of a link's bytes.
const PAYLOAD: f64 = 1_460.0 / 1_500.0;

/// Goodputs as shares of the path between two seconds, and the mean delay of its queue in seconds.
fn shared(flavours: &[Flavour], queue: Bytes, from: u64, to: u64) -> (Vec<f64>, f64) {
    let mut bed = Dumbbell::new(RATE, RTT, queue);
    let begin = |n: usize| Span::from_secs(2 * n as u64);
    let flow = |(n, &flavour)| bed.flow(flavour, SenderConfig::default(), begin(n));
    let flows: Vec<usize> = flavours.iter().enumerate().map(flow).collect();
    bed.world.run_for(Span::from_secs(from));
    let (mut sum, mut count, there) = (0.0, 0.0, bed.there);
    bed.world.watch(Span::from_secs(to - from), Span::from_millis(5), |world| {
        sum += (world.queued(there) / RATE).as_secs_f64();
        count += 1.0;
    });
    let (from, to) = (from as f64, to as f64);
    let share = |&flow| bed.world.goodput(flow, from, to) / RATE.as_f64() / PAYLOAD;
    (flows.iter().map(share).collect(), sum / count)
}

#[test]
fn ledbat_keeps_its_target_waiting_and_its_slowdowns_cost_a_tenth_at_most() {
    let (used, delay) = shared(&[Flavour::Ledbat], Bytes(u64::MAX), 20, 80);
    assert!(used[0] > 0.9, "{used:?}");
    // Less than 60 ms, because the queue is empty after each slowdown.
    assert!((0.03..0.065).contains(&delay), "{delay}");
}

#[test]
fn ledbat_gives_way_to_reno_and_cubic() {
    for rival in [Flavour::Sack, Flavour::Cubic] {
        // Four times the product: the rivals keep more than 60 ms waiting.
        let (used, _) = shared(&[Flavour::Ledbat, rival], Bytes(4 * bdp(RATE, RTT).0), 30, 90);
        assert!(used[0] < 0.2 && used[1] > 0.75, "{rival:?} {used:?}");
    }
}

#[test]
fn a_late_ledbat_comes_to_a_fair_share() {
    let (used, _) = shared(&[Flavour::Ledbat; 2], Bytes(u64::MAX), 40, 160);
    assert!(jain(&used) > 0.9, "{used:?}");
}

#[test]
fn copa_fills_a_path_with_a_few_segments_waiting() {
    let (used, delay) = shared(&[Flavour::Copa], Bytes(u64::MAX), 10, 40);
    assert!(used[0] > 0.95, "{used:?}");
    let segments = delay * RATE.as_f64() / 12_000.0;
    assert!((1.0..10.0).contains(&segments), "{segments}");
}

#[test]
fn copas_share_a_path_evenly() {
    let (used, delay) = shared(&[Flavour::Copa; 4], Bytes(u64::MAX), 20, 60);
    assert!(jain(&used) > 0.98, "{used:?}");
    assert!(used.iter().sum::<f64>() > 0.95 && delay < 0.02, "{used:?} {delay}");
}

#[test]
fn copa_holds_its_own_beside_cubic_that_fills_the_queue() {
    let (used, _) = shared(&[Flavour::Copa, Flavour::Cubic], bdp(RATE, RTT), 30, 120);
    assert!(used[0] > 0.25 && used[1] > 0.25, "{used:?}");
}
