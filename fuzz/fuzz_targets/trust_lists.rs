//! See [`gtp_fuzz::trust_lists`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::trust_lists(bytes));
