//! What sealing and opening packets in place takes, by ring and by aws-lc in turns.
//!
//!     cargo run --release --bin aead [ROUNDS]
//!
//! Packets lie side by side in a batch of up to 64 KB, as a data path has them, and stay in the
//! processor's caches; each has its own nonce, a head of 13 bytes that is authenticated, and a tag.
//! Of each suite and length both libraries take their turns in each of ROUNDS (5) rounds, the first
//! another one each time. Printed are the medians in 10^9 bytes of content a second with the least
//! and the most, and the median of the rounds' ratios.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gtp_bench_peers::{content, now, verify};

const HEAD: [u8; 13] = [1; 13];
const TAG: usize = 16;
/// What one call sends at most.
const BATCH: usize = 65_000;
/// Content that each turn seals and opens.
const TURN: usize = 128 << 20;
const KEY: [u8; 32] = *b"a key that is nobody's, 32 bytes";

/// How long a turn took.
#[derive(Clone, Copy)]
struct Turn {
    bytes: usize,
    seal: Duration,
    open: Duration,
}

/// A suite and its two implementations.
struct Suite {
    name: &'static str,
    ring: &'static ring::aead::Algorithm,
    aws_lc: &'static aws_lc_rs::aead::Algorithm,
}

const SUITES: [Suite; 3] = [
    Suite {
        name: "AES-128-GCM",
        ring: &ring::aead::AES_128_GCM,
        aws_lc: &aws_lc_rs::aead::AES_128_GCM,
    },
    Suite {
        name: "AES-256-GCM",
        ring: &ring::aead::AES_256_GCM,
        aws_lc: &aws_lc_rs::aead::AES_256_GCM,
    },
    Suite {
        name: "ChaCha20-Poly1305",
        ring: &ring::aead::CHACHA20_POLY1305,
        aws_lc: &aws_lc_rs::aead::CHACHA20_POLY1305,
    },
];

/// One library's turn. The libraries have the same interface and no type in common.
macro_rules! turn {
    ($name:ident, $library:ident) => {
        fn $name(algorithm: &'static $library::aead::Algorithm, length: usize) -> Result<Turn> {
            use $library::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
            let key = UnboundKey::new(algorithm, &KEY[..algorithm.key_len()]).ok();
            let key = LessSafeKey::new(key.context("a key")?);
            run(
                length,
                |number, body| {
                    let nonce = Nonce::assume_unique_for_key(nonce(number));
                    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(HEAD), body);
                    tag.ok().and_then(|tag| tag.as_ref().first_chunk().copied())
                },
                |number, sealed| {
                    let nonce = Nonce::assume_unique_for_key(nonce(number));
                    key.open_in_place(nonce, Aad::from(HEAD), sealed).is_ok()
                },
            )
        }
    };
}

turn!(by_ring, ring);
turn!(by_aws_lc, aws_lc_rs);

/// Seals and opens batches until a turn is over; what was opened last is what was sealed first.
fn run(
    length: usize,
    seal: impl Fn(u64, &mut [u8]) -> Option<[u8; TAG]>,
    open: impl Fn(u64, &mut [u8]) -> bool,
) -> Result<Turn> {
    let packets = BATCH / (length + TAG);
    let clear = content((packets * length) as u64);
    let mut batch: Vec<u8> = Vec::new();
    for body in clear.chunks_exact(length) {
        batch.extend_from_slice(body);
        batch.extend_from_slice(&[0; TAG]);
    }
    let mut turn = Turn { bytes: 0, seal: Duration::ZERO, open: Duration::ZERO };
    let mut number = 0;
    while turn.bytes < TURN {
        let begun = now();
        for (at, packet) in (number..).zip(batch.chunks_exact_mut(length + TAG)) {
            let (body, tag) = packet.split_at_mut(length);
            tag.copy_from_slice(&seal(at, body).context("sealing")?);
        }
        let sealed = now();
        for (at, packet) in (number..).zip(batch.chunks_exact_mut(length + TAG)) {
            ensure!(open(at, packet), "a packet does not open");
        }
        turn.seal += sealed - begun;
        turn.open += now() - sealed;
        turn.bytes += packets * length;
        number += packets as u64;
    }
    let opened = batch.chunks_exact(length + TAG).flat_map(|packet| &packet[..length]);
    verify(&opened.copied().collect::<Vec<u8>>())?;
    Ok(turn)
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

fn main() -> Result<()> {
    let rounds = match std::env::args().nth(1) {
        Some(rounds) => rounds.parse().context("ROUNDS is a number")?,
        None => 5,
    };
    ensure!(rounds > 0, "a round at least");
    println!("suite, bytes, work: ring GB/s (least to most), aws-lc GB/s, aws-lc by ring");
    for suite in &SUITES {
        for length in [1_400, 8_900] {
            measure(suite, length, rounds)?;
        }
    }
    Ok(())
}

fn measure(suite: &Suite, length: usize, rounds: usize) -> Result<()> {
    let mut turns = Vec::new();
    for round in 0..rounds {
        turns.push(if round % 2 == 0 {
            let ring = by_ring(suite.ring, length)?;
            (ring, by_aws_lc(suite.aws_lc, length)?)
        } else {
            let aws_lc = by_aws_lc(suite.aws_lc, length)?;
            (by_ring(suite.ring, length)?, aws_lc)
        });
    }
    for work in ["seal", "open"] {
        let rate = |turn: &Turn| {
            let took = if work == "seal" { turn.seal } else { turn.open };
            turn.bytes as f64 / took.as_secs_f64() / 1e9
        };
        let ring = Spread::of(turns.iter().map(|(ring, _)| rate(ring)));
        let aws_lc = Spread::of(turns.iter().map(|(_, aws_lc)| rate(aws_lc)));
        let ratio = Spread::of(turns.iter().map(|(ring, aws_lc)| rate(aws_lc) / rate(ring)));
        println!("{} {length} {work}: {ring}, {aws_lc}, {ratio}", suite.name);
    }
    Ok(())
}

/// Median, least and most.
struct Spread(f64, f64, f64);

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Spread(values[values.len() / 2], values[0], values[values.len() - 1])
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.0, self.1, self.2)
    }
}
