//! See [`gtp_fuzz::opener`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::opener(bytes));
