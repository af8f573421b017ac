//! See [`gtp_fuzz::control_message`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::control_message(bytes));
