//! TCP's loss-based window laws, iterated acknowledgement by acknowledgement (thesis, II.5.B).
//!
//! One loss after every `1 / q` packets, at the top of a sawtooth that repeats itself: what window
//! results, on average over time? That is what a response function claims, and needs no network. It
//! is not TCP: there are no queues, timeouts or chances here. Knows nothing of the formulas that it
//! is held against.

use super::formula::Quantities;
use gtp_peers::tcp::laws::highspeed;

/// A window law in its steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Reno,
    /// RFC 3649 with its default constants: the law that the simulator runs.
    HighSpeed,
    Scalable,
    /// Binary search up to the window of the last loss.
    Bic,
}

/// Mean windows by law, at these losses per packet: `reno_w`, `hstcp_w`, `scalable_w` at `loss`,
/// and `bic_w` at `bic_loss`, where BIC only searches and never grows by its largest step; and
/// `hstcp_as_printed`, what HSTCP's printed step on a loss takes from a window of 1,000 packets.
pub fn run(quantities: &mut Quantities) {
    let loss = [1e-3, 1e-4, 1e-5];
    let bic_loss = [4e-3, 2e-3, 1e-3];
    let mut put = |name: &str, values: Vec<f64>| quantities.insert(name.to_owned(), values);
    let windows = |law, losses: [f64; 3]| losses.map(|q| mean_window(law, q)).to_vec();
    put("loss", loss.to_vec());
    put("bic_loss", bic_loss.to_vec());
    put("reno_w", windows(Window::Reno, loss));
    put("hstcp_w", windows(Window::HighSpeed, loss));
    put("scalable_w", windows(Window::Scalable, loss));
    put("bic_w", windows(Window::Bic, bic_loss));
    put("hstcp_as_printed", vec![highspeed::decrease(1000.0) / 1000.0]);
}

/// The mean window over time with one loss in `1 / q` packets.
fn mean_window(law: Window, q: f64) -> f64 {
    // The more packets between two losses, the higher the top.
    let (mut low, mut high) = (2.0, 1e6);
    for _ in 0..60 {
        let top = libm::sqrt(low * high);
        match sawtooth(law, top, 1.0 / q) {
            None => high = top,
            Some(_) => low = top,
        }
    }
    sawtooth(law, low, 1.0 / q).unwrap_or(f64::NAN)
}

/// The mean window from just after a loss at `top` until `top` is reached again, or nothing if
/// that takes more than `most` packets.
fn sawtooth(law: Window, top: f64, most: f64) -> Option<f64> {
    let mut w = top * (1.0 - cut(law, top));
    let (mut packets, mut round_trips) = (0.0, 0.0);
    let (mut round, mut step) = (0.0, gain(law, w, top));
    while w < top {
        if packets >= most {
            return None;
        }
        packets += 1.0;
        round_trips += 1.0 / w;
        // BIC aims at the middle once a round trip, the others look at every acknowledgement.
        if law != Window::Bic || round_trips >= round + 1.0 {
            (round, step) = (round_trips, gain(law, w, top));
        }
        w += step / w;
    }
    Some(packets / round_trips)
}

/// What a loss takes of the window.
fn cut(law: Window, w: f64) -> f64 {
    match law {
        Window::Reno => 0.5,
        Window::HighSpeed => highspeed::decrease(w),
        Window::Scalable | Window::Bic => 0.125,
    }
}

/// What a round trip without loss adds.
fn gain(law: Window, w: f64, top: f64) -> f64 {
    match law {
        Window::Reno => 1.0,
        Window::HighSpeed => highspeed::increase(w),
        Window::Scalable => 0.01 * w,
        // Half of what is left, within the least and the largest step of BIC's authors.
        Window::Bic => (0.5 * (top - w)).clamp(0.01, 32.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sawtooth_of_reno_has_three_quarters_of_its_top_and_three_eighths_of_its_square() {
        let top = 400.0;
        let mean = sawtooth(Window::Reno, top, 1e9).expect("enough packets");
        assert!((mean / (0.75 * top) - 1.0).abs() < 0.01, "{mean}");
        let packets = 0.375 * top * top;
        assert!(sawtooth(Window::Reno, top, packets * 0.99).is_none());
        assert!(sawtooth(Window::Reno, top, packets * 1.01).is_some());
    }

    #[test]
    fn high_speed_tcp_is_reno_below_its_low_window() {
        let (reno, high) = (mean_window(Window::Reno, 0.01), mean_window(Window::HighSpeed, 0.01));
        assert!(reno < 38.0 && (high / reno - 1.0).abs() < 1e-9, "{reno} {high}");
        assert!((highspeed::decrease(83_000.0) - 0.1).abs() < 1e-12);
    }
}
