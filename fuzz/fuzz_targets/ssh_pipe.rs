//! See [`gtp_fuzz::ssh_pipe`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gtp_fuzz::ssh_pipe(bytes));
