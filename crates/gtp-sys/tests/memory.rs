//! What becomes of memory that is freed. The one test of this file: it is about its whole process.

use std::hint::black_box;

use gtp_sys::memory::give_back_large;

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 64;

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let said = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * said.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}

#[test]
fn what_is_freed_of_large_pieces_goes_back_to_the_system_whatever_lies_between_them() {
    give_back_large();
    // From here on glibc would take pieces of this length from an arena.
    drop(black_box(vec![1_u8; 2 * BLOCK]));
    let before = resident();
    let (blocks, between): (Vec<_>, Vec<_>) =
        (0..BLOCKS).map(|n| (vec![1_u8; BLOCK], Box::new(n))).unzip();
    assert!(resident() - before >= BLOCKS * BLOCK * 7 / 8);
    drop(black_box(blocks));
    let kept = resident().saturating_sub(before);
    assert!(kept < BLOCKS * BLOCK / 8, "{kept} bytes are kept");
    drop(black_box(between));
}
