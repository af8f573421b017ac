//! A run made by arithmetic, for the tests of what is made of a run: sessions that follow their
//! max-min shares with one time constant, looked at every 20 ms, without any chance.

use super::plan::{Each, RTT_MS, SESSIONS, wanted};
use super::record::{Arrival, Asked, Conditions, Record, Said, Sample};

/// A run with steps of three seconds whose sessions approach their shares with a time constant of
/// `lag` seconds.
pub fn record(lag: f64) -> Record {
    let (step, n) = (3.0, SESSIONS);
    let stay = |k: usize| Asked { from: 0.5 + step * k as f64, to: 0.5 + step * (k + n) as f64 };
    let gather = Asked { from: 30.0, to: 37.0 };
    let mut samples = vec![Sample::default()];
    let mut rates: Each<f64> = [0.0; SESSIONS];
    let mut exact: Each<f64> = [0.0; SESSIONS];
    for tick in 1..1_900 {
        let t = f64::from(tick) * TICK;
        let on = |asked: Asked| t > asked.from && t < asked.to;
        let active = std::array::from_fn(|k| on(stay(k)) || on(gather));
        let goal = wanted(&active);
        let mut sample = samples[tick as usize - 1].clone();
        sample.t = t;
        for k in 0..n {
            let part = if lag > 0.0 { 1.0 - (-TICK / lag).exp() } else { 1.0 };
            rates[k] = if active[k] { rates[k] + (goal[k] - rates[k]) * part } else { 0.0 };
            exact[k] += rates[k] * TICK / 8.0;
            sample.carried[k] = exact[k] as u64;
            let said = Said { granted: goal[k], limited_by: "sink" };
            sample.said[k] = active[k].then_some(said);
        }
        let load: f64 = rates.iter().sum();
        sample.offered_packets += (load * TICK / 8.0 / 1_470.0) as u64;
        sample.waited_byte_s += TICK * load / 630e6 * 20_000.0;
        samples.push(sample);
    }
    let arrival = |k: usize| Arrival {
        bytes: 300_000_000 + RTT_MS[k],
        seconds: 15.0,
        blake3: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262".into(),
        verified: true,
        ..Arrival::default()
    };
    Record {
        step,
        samples,
        asked: std::array::from_fn(stay),
        arrivals: std::array::from_fn(arrival),
        gather,
        gather_arrival: arrival(0),
        gather_bytes: [60_000_000; SESSIONS],
        conditions: Conditions {
            processors: 2,
            load_before: 0.4,
            idle: Some(0.3),
            late_p50: 90e-6,
            late_p99: 1.3e-3,
        },
    }
}

const TICK: f64 = 0.02;
