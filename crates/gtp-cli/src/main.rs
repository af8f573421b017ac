//! Placeholder head, replaced as the crate is built.
fn main() {}
