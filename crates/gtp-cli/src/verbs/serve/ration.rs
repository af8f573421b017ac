//! How many lines about clients a server writes: no client may fill its log.
//!
//! Sessions and refusals of clients on the list have a ration each, and all that strangers do has
//! one, so that strangers do not hide what listed clients do, nor that one is refused. Lines beyond
//! it are counted and summed up in one line, at most once a second. Time is an argument; what the
//! lines say is unknown here.

use gtp::{Bucket, Time, Whose};

/// Lines about strangers: a second, and at once. Together with lines about listed clients and the
/// summary they are fewer than ten a second.
const OF_STRANGERS: Bucket = Bucket::new(2, 5);
/// Lines about clients on the list. Those that leave together are told one by one if they are few.
const OF_LISTED: Bucket = Bucket::new(4, 20);
/// Refusals of clients on the list: one that comes again and again does not hide others' sessions.
const OF_REFUSED_LISTED: Bucket = Bucket::new(2, 5);

/// Which lines may be written now.
pub struct Ration {
    strangers: Bucket,
    listed: Bucket,
    refused: Bucket,
    left_out: LeftOut,
}

/// Lines that were not written, by what they were about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Connections that became no session.
    pub refused: u64,
    /// Beginnings and ends of sessions.
    pub sessions: u64,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// A connection that became no session.
    Refused(Whose),
    /// The beginning or the end of a session.
    Session(Whose),
}

impl Ration {
    pub fn new() -> Ration {
        let left_out = LeftOut::default();
        Ration { strangers: OF_STRANGERS, listed: OF_LISTED, refused: OF_REFUSED_LISTED, left_out }
    }

    /// Whether a line may be written; if not it is counted.
    pub fn allows(&mut self, now: Time, topic: Topic) -> bool {
        let (bucket, left_out) = match topic {
            Topic::Refused(Whose::Stranger) => (&mut self.strangers, &mut self.left_out.refused),
            Topic::Refused(Whose::Listed) => (&mut self.refused, &mut self.left_out.refused),
            Topic::Session(Whose::Stranger) => (&mut self.strangers, &mut self.left_out.sessions),
            Topic::Session(Whose::Listed) => (&mut self.listed, &mut self.left_out.sessions),
        };
        let allowed = bucket.take(now);
        *left_out += u64::from(!allowed);
        allowed
    }

    /// What was left out since this was asked last.
    pub fn take_left_out(&mut self) -> Option<LeftOut> {
        let left_out = std::mem::take(&mut self.left_out);
        (left_out != LeftOut::default()).then_some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use gtp::Span;

    use super::*;

    #[test]
    fn a_flood_of_strangers_and_of_listed_clients_writes_under_ten_lines_a_second() {
        let topics = [
            Topic::Refused(Whose::Stranger),
            Topic::Session(Whose::Stranger),
            Topic::Refused(Whose::Listed),
            Topic::Session(Whose::Listed),
        ];
        let (mut ration, start, seconds) = (Ration::new(), Time::from_nanos(1), 60);
        let mut written = 0_u64;
        let mut summed = LeftOut::default();
        for ms in 0..seconds * 1_000 {
            let now = start + Span::from_millis(ms);
            for topic in topics.iter().cycle().take(8) {
                written += u64::from(ration.allows(now, *topic));
            }
            if ms % 1_000 == 999 {
                let left_out = ration.take_left_out().unwrap();
                summed.refused += left_out.refused;
                summed.sessions += left_out.sessions;
                written += 1;
            }
        }
        assert!((8 * seconds..10 * seconds).contains(&written), "{written}");
        let told = written - seconds;
        assert_eq!(told + summed.refused + summed.sessions, 8 * 1_000 * seconds);
    }

    #[test]
    fn strangers_hide_neither_what_a_listed_client_does_nor_that_one_is_refused() {
        let (mut ration, now) = (Ration::new(), Time::from_nanos(1));
        while ration.allows(now, Topic::Refused(Whose::Stranger)) {}
        assert!(!ration.allows(now, Topic::Session(Whose::Stranger)));
        assert!(ration.allows(now, Topic::Refused(Whose::Listed)));
        assert!(ration.allows(now, Topic::Session(Whose::Listed)));
        assert_eq!(ration.take_left_out(), Some(LeftOut { refused: 1, sessions: 1 }));
        assert_eq!(ration.take_left_out(), None);
    }
}
