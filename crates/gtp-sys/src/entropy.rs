//! The one entropy read.
//!
//! Keys, cookies and seeds come from the kernel's generator through these two functions and from
//! nowhere else, so that a run whose seeds are given is a function of them.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `out` with bytes from the kernel's random number generator, waiting until it has been
/// seeded (once, early in the boot of the machine).
///
/// # Panics
/// If the kernel has no generator to ask, which no supported kernel does: to go on without one
/// would mean keys that can be guessed.
pub fn fill(out: &mut [u8]) {
    let mut rest = out;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(filled) => rest = &mut rest[filled..],
            Err(Errno::INTR) => {}
            Err(e) => panic!("the kernel's random number generator answers: {e}"),
        }
    }
}

/// Eight random bytes as one number; a seed, for instance.
///
/// # Panics
/// As [`fill`].
pub fn u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fills_differ() {
        let (mut a, mut b) = ([0; 32], [0; 32]);
        fill(&mut a);
        fill(&mut b);
        assert_ne!(a, b);
        assert_ne!(u64(), u64());
    }

    #[test]
    fn a_fill_longer_than_the_kernel_gives_at_once_is_complete() {
        let mut long = vec![0; 1 << 20];
        fill(&mut long);
        assert!(long[(1 << 20) - 64..].iter().any(|&b| b != 0));
    }
}
