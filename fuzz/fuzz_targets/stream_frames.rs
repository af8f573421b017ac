//! See [`gtp_fuzz::stream_frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::stream_frames(bytes));
