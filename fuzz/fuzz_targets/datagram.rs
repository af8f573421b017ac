//! See [`gtp_fuzz::datagram`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::datagram(bytes));
