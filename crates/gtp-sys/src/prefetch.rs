//! A word to the processor about memory that is used soon.
//!
//! Payload lies in memory that no cache has, at either end, and a copy of it there is mostly
//! waiting: a quarter of a sender's time before it was fetched ahead.

/// Has the processor fetch this memory into its caches while it works on something else. A hint:
/// nothing changes, and on processors other than x86-64 nothing is done. It costs an instruction
/// or two for each 64 bytes, so it is for memory that is cold, a packet's worth ahead.
#[inline]
pub fn soon(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let mut at = 0;
        while at < bytes.len() {
            // SAFETY: SSE is in every x86-64, and the address is one of a slice that is borrowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast()) };
            at += LINE;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// What a cache keeps together.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
