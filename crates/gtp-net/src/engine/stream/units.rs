//! Units that come into being as they are asked for.
//!
//! What an application says is cut when a unit is wanted that was not before, and not sooner, so
//! that units are as long as they can be. Sinks ask in order, and again for a while. What is in a
//! unit only the ring knows that cuts it.

use gtp_proto::Supplied;

/// A source's ring: what was said, and the units that were made of it.
pub trait Units {
    /// The first unit that was not cut yet.
    fn next(&self) -> u64;

    /// Makes the next unit, at most `payload` bytes long, if there is something to say.
    fn cut(&mut self, payload: u16) -> bool;

    /// Bytes of a unit that was cut.
    fn length(&self, unit: u64) -> u16;

    /// Appends a unit that was supplied.
    fn write(&self, unit: u64, out: &mut Vec<u8>);

    /// No unit from `asked_end` on has been asked for: forgets what the sink must have by then.
    fn forget(&mut self, asked_end: u64);

    /// Units that are kept, in case they are asked for again.
    fn kept(&self) -> usize;

    /// Whether `unit` can be sent; the next one is cut now, at most `payload` bytes long.
    fn supply(&mut self, unit: u64, payload: u16) -> Supplied {
        let next = self.next();
        if unit > next {
            return Supplied::NoSuchUnit; // Units are asked for in their order.
        }
        if unit == next {
            if !self.cut(payload) {
                return Supplied::NotYet;
            }
            // It was asked for, so the sink has what lies a window back.
            self.forget(unit + 1);
        }
        Supplied::Ready(self.length(unit))
    }
}
