//! See [`gtp_fuzz::session_sequence`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::session_sequence(bytes));
