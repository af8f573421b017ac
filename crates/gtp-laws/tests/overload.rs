//! How long SABUL's law of its own paper overloads a link that each of three is told.
//!
//! By the law's own type and a link without a queue: arithmetic, no network. What comes of it is
//! held against the loss of the run through real sockets (GTP 2004, Table 4).

use gtp_laws::Counts;
use gtp_laws::sabul::{Excess, PR0, Paper};

const LINK: f64 = 200e6;
/// Bits of a packet, and seconds of a round.
const PACKET: f64 = 1_477.0 * 8.0;
const ROUND: f64 = 0.2;

/// The loss of all that three send in twelve seconds who begin at the link's rate each.
///
/// In a round the gap grows by half a microsecond and a tenth of the loss (eq. 1, the paper's
/// default values), and a third of the link is a gap of 118 microseconds.
#[test]
fn three_that_are_told_the_link_lose_about_half_of_what_they_send_in_twelve_seconds() {
    let mut laws = [0; 3].map(|_| Paper::new(PR0, (LINK, Excess::Never), LINK, PACKET));
    let mut all = [Counts::default(); 3];
    for _ in 0..60 {
        let sum: f64 = laws.iter().map(|law| law.rate(PACKET)).sum();
        let passes = (LINK / sum).min(1.0);
        for (law, counts) in laws.iter_mut().zip(&mut all) {
            let sent = law.rate(PACKET) * ROUND / PACKET;
            counts.received += (sent * passes) as u64;
            counts.lost += (sent * (1.0 - passes)) as u64;
            law.end_round(counts);
        }
    }
    let (came, lost) = all.iter().fold((0, 0), |sum, c| (sum.0 + c.received, sum.1 + c.lost));
    let loss = lost as f64 / (came + lost) as f64;
    assert!((0.4..0.55).contains(&loss), "{loss}");
    // They are still above their shares then.
    assert!(laws.iter().all(|law| law.rate(PACKET) > LINK / 3.0));
}
