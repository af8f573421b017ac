//! What it takes to bring a file's content into batches: by `pread`, a mapping, `io_uring`.
//!
//!     cargo run --release --bin reading FILE [ROUNDS]
//!
//! Each way brings every block of FILE, 256 KiB each, to where packets are made: it is hashed
//! (BLAKE3, whole, as a block's trailer is) and copied into a batch of at most 64 KB, 1,400 bytes
//! behind room for a head and a tag. All in one thread, ways in turns, in each of ROUNDS (5) rounds
//! the first another one. Before each round the file is read once, so that the page cache has it
//! if memory does; with `cold` as third word it is dropped from there before each turn, by advice.
//! Printed are medians: seconds of a processor and seconds for each 10^9 bytes.
//!
//! `vectored` has no block: it reads each batch with one `preadv` straight to where its packets
//! lie, and hashes them piece by piece.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gtp_bench_peers::{cpu_seconds, now};
use io_uring::{IoUring, opcode, types};
use memmap2::{Advice, Mmap, MmapOptions};
use rustix::fs::fadvise;

const BLOCK: usize = 256 << 10;
/// Blocks that wait for their turn at a source.
const AHEAD: usize = 16;
const PAYLOAD: usize = 1_400;
const HEAD: usize = 33;
const PACKET: usize = HEAD + PAYLOAD + 16;
const PACKETS: usize = 65_000 / PACKET;

/// A way to read.
struct Way {
    name: &'static str,
    /// Brings all blocks of a file of so many bytes, in order.
    run: fn(&File, usize, &mut Made) -> Result<()>,
}

const WAYS: [Way; 5] = [
    Way { name: "pread", run: by_pread },
    Way { name: "mapped", run: by_mapping },
    Way { name: "mapped, block by block", run: by_populated },
    Way { name: "io_uring", run: by_ring },
    Way { name: "vectored", run: by_vectors },
];

/// What becomes of content.
struct Made {
    batch: Vec<u8>,
    filled: usize,
    hashes: [u8; 32],
}

impl Made {
    fn new() -> Made {
        Made { batch: vec![0; PACKETS * PACKET], filled: 0, hashes: [0; 32] }
    }

    /// A block is hashed and goes into packets.
    fn block(&mut self, content: &[u8]) {
        self.mix(blake3::hash(content));
        for payload in content.chunks(PAYLOAD) {
            let at = self.filled * PACKET + HEAD;
            self.batch[at..at + payload.len()].copy_from_slice(payload);
            self.filled = (self.filled + 1) % PACKETS;
        }
    }

    fn mix(&mut self, hash: blake3::Hash) {
        for (mixed, byte) in self.hashes.iter_mut().zip(hash.as_bytes()) {
            *mixed = mixed.rotate_left(1) ^ byte;
        }
    }
}

fn blocks(size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..size).step_by(BLOCK).map(move |at| (at, BLOCK.min(size - at)))
}

fn buffers() -> Vec<Vec<u8>> {
    vec![vec![0; BLOCK]; AHEAD]
}

fn by_pread(file: &File, size: usize, made: &mut Made) -> Result<()> {
    let mut buffers = buffers();
    for (number, (at, len)) in blocks(size).enumerate() {
        let block = &mut buffers[number % AHEAD][..len];
        file.read_exact_at(block, at as u64)?;
        made.block(block);
    }
    Ok(())
}

fn by_mapping(file: &File, size: usize, made: &mut Made) -> Result<()> {
    // SAFETY: the file is nobody else's while it is measured.
    let mapped = unsafe { Mmap::map(file)? };
    mapped.advise(Advice::Sequential)?;
    blocks(size).for_each(|(at, len)| made.block(&mapped[at..at + len]));
    Ok(())
}

fn by_populated(file: &File, size: usize, made: &mut Made) -> Result<()> {
    for (at, len) in blocks(size) {
        // SAFETY: the file is nobody else's while it is measured.
        let window = unsafe { MmapOptions::new().offset(at as u64).len(len).populate().map(file)? };
        made.block(&window);
    }
    Ok(())
}

fn by_ring(file: &File, size: usize, made: &mut Made) -> Result<()> {
    const DEPTH: usize = 4;
    let mut ring = IoUring::new(AHEAD as u32)?;
    // After an error a read may still be under way, and its buffer must outlive it.
    let mut buffers = ManuallyDrop::new(buffers());
    let all: Vec<(usize, usize)> = blocks(size).collect();
    let mut done = vec![false; all.len()];
    let (mut asked, mut taken) = (0, 0);
    while taken < all.len() {
        while asked < all.len() && asked < taken + DEPTH {
            let (at, len) = all[asked];
            let to = buffers[asked % AHEAD].as_mut_ptr();
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to, len as u32);
            let read = read.offset(at as u64).build().user_data(asked as u64);
            // SAFETY: no buffer is touched or freed before its read is known to be complete.
            unsafe { ring.submission().push(&read)? };
            asked += 1;
        }
        ring.submit_and_wait(usize::from(!done[taken]))?;
        for answer in ring.completion() {
            let number = answer.user_data() as usize;
            ensure!(answer.result() == all[number].1 as i32, "a read gave {}", answer.result());
            done[number] = true;
        }
        if done[taken] {
            made.block(&buffers[taken % AHEAD][..all[taken].1]);
            taken += 1;
        }
    }
    drop(ManuallyDrop::into_inner(buffers));
    Ok(())
}

fn by_vectors(file: &File, size: usize, made: &mut Made) -> Result<()> {
    for (start, len) in blocks(size) {
        let mut hasher = blake3::Hasher::new();
        for begin in (start..start + len).step_by(PACKETS * PAYLOAD) {
            let end = (start + len).min(begin + PACKETS * PAYLOAD);
            let mut left = end - begin;
            let mut places = Vec::with_capacity(PACKETS);
            for packet in made.batch.chunks_exact_mut(PACKET).take(left.div_ceil(PAYLOAD)) {
                let len = left.min(PAYLOAD);
                places.push(IoSliceMut::new(&mut packet[HEAD..HEAD + len]));
                left -= len;
            }
            let read = rustix::io::preadv(file, &mut places, begin as u64)?;
            ensure!(read == end - begin, "a read gave {read}");
            for place in &places {
                hasher.update(place);
            }
        }
        made.mix(hasher.finalize());
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Turn {
    processor: f64,
    wall: Duration,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let path = words.first().context("which FILE?")?;
    let rounds = words.get(1).map_or(Ok(5), |rounds| rounds.parse()).context("ROUNDS")?;
    let cold = match words.get(2).map(String::as_str) {
        Some("cold") => true,
        Some(other) => bail!("{other}: only `cold` is known"),
        None => false,
    };
    let file = File::open(path).with_context(|| path.clone())?;
    let size = usize::try_from(file.metadata()?.len())?;
    ensure!(size > 0 && rounds > 0, "a byte and a round at least");
    let mut turns = vec![Vec::new(); WAYS.len()];
    let mut expected = None;
    for round in 0..rounds {
        if !cold {
            by_pread(&file, size, &mut Made::new())?;
        }
        for at in (0..WAYS.len()).map(|at| (at + round) % WAYS.len()) {
            if cold {
                fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            }
            let mut made = Made::new();
            let (processor, begun) = (cpu_seconds(), now());
            (WAYS[at].run)(&file, size, &mut made)?;
            turns[at].push(Turn { processor: cpu_seconds() - processor, wall: now() - begun });
            let expected = *expected.get_or_insert(made.hashes);
            ensure!(made.hashes == expected, "{}: other content", WAYS[at].name);
        }
    }
    println!("way: processor s/GB, elapsed s/GB");
    for (way, turns) in WAYS.iter().zip(&turns) {
        let gigabytes = size as f64 / 1e9;
        let processor = median(turns.iter().map(|turn| turn.processor / gigabytes));
        let wall = median(turns.iter().map(|turn| turn.wall.as_secs_f64() / gigabytes));
        println!("{}: {processor:.3}, {wall:.3}", way.name);
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
