//! See [`gtp_fuzz::ticket`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::ticket(bytes));
