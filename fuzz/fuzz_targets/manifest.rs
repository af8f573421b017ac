//! See [`gtp_fuzz::manifest`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::manifest(bytes));
