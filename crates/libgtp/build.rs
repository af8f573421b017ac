//! Gives the shared library the name under which programs load it.
//!
//! The name has a number, which changes when a program that was linked against an older one could
//! not go on with it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libgtp.so.0");
}
