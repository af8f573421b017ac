//! Numbers that look random, of a seed that a run can be repeated with.

use std::time::SystemTime;

/// Numbers from a seed (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % bound
    }
}

/// How often a test does something: `many` times with GTP_LONG=1, else a `few`.
pub fn times<N>(many: N, few: N) -> N {
    if std::env::var("GTP_LONG").as_deref() == Ok("1") { many } else { few }
}

/// The seed that GTP_SEED names, or another one each time.
pub fn seed() -> u64 {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    std::env::var("GTP_SEED").map_or_else(|_| now(), |text| text.parse().unwrap())
}
