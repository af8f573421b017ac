//! What a host that stands still costs a law that takes what came for what a flow can bring.
//!
//! In virtual time, by the host's own type, which is told of packets as an engine tells it. No
//! network and no session is involved.

use gtp_alloc::{Bytes, Rate, Span, Time};
use gtp_laws::gtp2004::Host;
use gtp_laws::{Arriving, Counts, SinkLaw};

const PACKET: Bytes = Bytes(1_500);
const LOOK: Span = Span::from_millis(10);

struct Course {
    host: Host,
    now: Time,
    session: Arriving,
    rate: Rate,
    /// Bytes that are granted and not yet a packet.
    rest: u64,
}

impl Course {
    /// Looks for so long; what is granted comes, or so many packets in each look.
    fn run(&mut self, span: Span, instead: Option<u64>) {
        let until = self.now + span;
        while self.now < until {
            self.rest += self.rate.bytes_in(LOOK).0;
            let came = instead.unwrap_or(self.rest / PACKET.0);
            self.rest %= PACKET.0;
            self.session.counts.received += came;
            self.now += LOOK;
            let mut rates = Vec::new();
            self.host.decide(self.now, std::slice::from_ref(&self.session), &mut rates);
            self.rate = rates[0];
        }
    }

    fn of_capacity(&self) -> f64 {
        self.rate.as_f64() / 190e6
    }
}

/// GTP 2004, 4.2: the estimate is what came in the last interval and a little more, and 4.1 climbs
/// to it by a fiftieth in each round trip.
#[test]
fn an_interval_in_which_a_sender_stood_still_costs_gtp_2004_as_printed_more_than_ten_seconds() {
    let (id, rtt) = (1, Span::from_millis(58));
    let session =
        Arriving { id, counts: Counts::default(), packet: PACKET, rtt, most: Rate::UNLIMITED };
    let host = Host::new(Rate::from_mbps(190));
    let mut course = Course { host, now: Time::ZERO, session, rate: Rate::ZERO, rest: 0 };
    course.run(Span::from_secs(2), None);
    assert_eq!(course.of_capacity(), 1.0);
    course.run(Span::from_millis(400), Some(1));
    assert!(course.of_capacity() < 0.02, "{}", course.of_capacity());
    course.run(Span::from_secs(10), None);
    assert!(course.of_capacity() < 0.5, "{}", course.of_capacity());
    course.run(Span::from_secs(40), None);
    assert!(course.of_capacity() > 0.95, "{}", course.of_capacity());
}
