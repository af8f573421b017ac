//! Proof of receipt: 16 bits in each datagram that only its receiver can have seen.
//!
//! A receiver names the rate at which it is sent to, which makes it the worst case of optimistic
//! acknowledgement. So each datagram from a source carries 16 bits of a keyed function of its
//! packet number, and feedback must return the sum over the packets that it claims.

use core::ops::Range;

use siphasher::sip128::SipHasher13;

/// The source's secret for one session.
#[derive(Clone)]
pub struct ProofKey(SipHasher13);

impl ProofKey {
    /// A key from 16 bytes of the host's entropy.
    pub fn new(key: [u8; 16]) -> ProofKey {
        ProofKey(SipHasher13::new_with_key(&key))
    }

    /// The 16 bits of packet number `pn`. One hash serves eight neighbours.
    pub fn tag(&self, pn: u64) -> u16 {
        Eight::of(self, pn).tag(pn)
    }

    /// The sum of the tags of `span`, modulo 2^32.
    pub fn sum(&self, span: Range<u64>) -> u32 {
        let mut sum = 0u32;
        let mut pn = span.start;
        while pn < span.end {
            let eight = Eight::of(self, pn);
            let stop = (pn / 8 * 8 + 8).min(span.end);
            while pn < stop {
                sum = sum.wrapping_add(u32::from(eight.tag(pn)));
                pn += 1;
            }
        }
        sum
    }
}

/// The tags of eight neighbours, for who needs them one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eight {
    index: u64,
    tags: u128,
}

impl Eight {
    /// The eight among which packet number `pn` is.
    pub fn of(key: &ProofKey, pn: u64) -> Eight {
        let index = pn / 8;
        Eight { index, tags: key.0.hash(&index.to_le_bytes()).as_u128() }
    }

    /// Whether packet number `pn` is among them.
    #[inline]
    pub fn has(&self, pn: u64) -> bool {
        self.index == pn / 8
    }

    /// The 16 bits of packet number `pn`, which is among them.
    #[inline]
    pub fn tag(&self, pn: u64) -> u16 {
        (self.tags >> (16 * (pn % 8))) as u16
    }
}

impl core::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ProofKey(..)")
    }
}
