//! Sans-IO core of the Group Transport Protocol.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
