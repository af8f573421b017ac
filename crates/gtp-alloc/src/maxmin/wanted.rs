//! The sessions of finite demand, in the order in which the rising level meets their demands.
//!
//! Most of them never see that: a node fills first. So they are not sorted but dealt into bands,
//! from the lowest ratio of demand to weight upwards, and a band is only sorted when the level
//! comes to it, by when most of its sessions have been settled. Whoever is left is then looked up
//! at once, with all that settling it needs: sessions that are neighbours in this order lie all
//! over memory, and accesses that do not wait for each other are made side by side.

use alloc::vec::Vec;

use super::{Filling, MANY, Network};

/// How many bands there are. Few enough that the ends of all are in the nearest caches.
const BANDS: usize = 1 << 10;
/// A band holds ratios that agree in the upper 32 bits of their keys but for this many, counted
/// from the lowest ratio: each octave makes 64 bands, and what is beyond 16 octaves is in the last.
const BAND_BITS: u32 = 14;

/// A session of finite demand, with all that settling it needs.
pub(super) struct Wish {
    /// Its index.
    pub(super) session: u32,
    /// The two resources that it uses, or [`MANY`].
    pub(super) uses: (u32, u32),
    /// The level at which it has all it wants: its demand over its weight.
    pub(super) ratio: f64,
    /// Its demand, in bit/s.
    pub(super) demand: f64,
    /// Its weight.
    pub(super) weight: f64,
}

impl Wish {
    /// What session `k` of this network wants.
    pub(super) fn of(network: &Network, k: usize) -> Wish {
        let uses = match *network.uses_of(k) {
            [a, b] => (a, b),
            _ => (MANY, MANY),
        };
        let (demand, weight) = (network.demand_of(k), network.weight_of(k));
        Wish { session: k as u32, uses, ratio: demand / weight, demand, weight }
    }
}

/// A session and its ratio in one word, which sorts several times faster than pairs.
///
/// Non-negative floats sort as their bits do. The upper half of them is the upper half of the
/// word, the session the lower.
pub(super) fn packed(ratio: f64, session: u32) -> u64 {
    ratio.to_bits() >> 32 << 32 | u64::from(session)
}

/// Sessions of finite demand in ascending order of their ratios.
pub(super) struct Wanted {
    /// Sessions with their ratios, band by band.
    dealt: Vec<u64>,
    /// The end of each band in `dealt`.
    end: Vec<u32>,
    /// How many bands have been looked up.
    seen: usize,
    /// What is left of the band that was looked up last: in order, from place `next` on.
    band: Vec<Wish>,
    next: usize,
}

impl Wanted {
    /// Of these sessions, each [`packed`] with its ratio.
    pub(super) fn new(sessions: Vec<u64>) -> Wanted {
        let lowest = sessions.iter().fold(u64::MAX, |low, &packed| low.min(packed)) >> 32;
        let band =
            |packed: u64| (((packed >> 32) - lowest) >> BAND_BITS).min(BANDS as u64 - 1) as usize;
        let mut end = alloc::vec![0u32; BANDS + 1];
        sessions.iter().for_each(|&packed| end[band(packed) + 1] += 1);
        for i in 0..BANDS {
            end[i + 1] += end[i];
        }
        // Now the start of each band, and by the time that all are dealt, its end.
        let mut dealt = alloc::vec![0; sessions.len()];
        for packed in sessions {
            let place = &mut end[band(packed)];
            dealt[*place as usize] = packed;
            *place += 1;
        }
        end.truncate(BANDS);
        Wanted { dealt, end, seen: 0, band: Vec::new(), next: 0 }
    }

    /// The one of the lowest ratio that has not been settled.
    pub(super) fn lowest(&mut self, filling: &Filling<'_>) -> Option<&Wish> {
        loop {
            let settled = |wish: &Wish| filling.is_settled(wish.session as usize);
            while self.band.get(self.next).is_some_and(settled) {
                self.next += 1;
            }
            if self.next < self.band.len() {
                return self.band.get(self.next);
            }
            if self.seen == self.end.len() {
                return None;
            }
            self.look_up(filling);
        }
    }

    /// Looks up the next band.
    fn look_up(&mut self, filling: &Filling<'_>) {
        let start = if self.seen == 0 { 0 } else { self.end[self.seen - 1] };
        let dealt = &mut self.dealt[start as usize..self.end[self.seen] as usize];
        self.seen += 1;
        let mut n = 0;
        for i in 0..dealt.len() {
            let packed = dealt[i];
            dealt[n] = packed;
            n += usize::from(!filling.is_settled(packed as u32 as usize));
        }
        let rising = &mut dealt[..n];
        rising.sort_unstable();
        let network = filling.network;
        self.next = 0;
        self.band.clear();
        self.band.extend(rising.iter().map(|&packed| Wish::of(network, packed as u32 as usize)));
        // Runs that agree in the upper half of the key are put in order by the whole key, most
        // often without any work.
        let upper = |wish: &Wish| wish.ratio.to_bits() >> 32;
        for run in self.band.chunk_by_mut(|a, b| upper(a) == upper(b)).filter(|run| run.len() > 1) {
            run.sort_unstable_by_key(|wish| (wish.ratio.to_bits(), wish.session));
        }
    }
}
