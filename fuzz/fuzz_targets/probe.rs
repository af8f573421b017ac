//! See [`gtp_fuzz::probe`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::probe(bytes));
