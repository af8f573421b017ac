//! See [`gtp_fuzz::journal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::journal(bytes));
