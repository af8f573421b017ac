//! See [`gtp_fuzz::frames_in_step`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::frames_in_step(bytes));
