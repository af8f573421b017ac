//! See [`gtp_fuzz::names`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::names(bytes));
