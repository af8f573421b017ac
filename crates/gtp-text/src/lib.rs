//! Text for people: safe to show, with short numbers and the right singular or plural; and the
//! quantities that people write.
//!
//! Names and messages come from peers, disks and users, and end up on terminals, in logs and in
//! JSON. One table, Unicode's own, says which characters cannot be seen or turn the writing round;
//! they are escaped wherever people read them. The crate is pure: texts in, texts and numbers out.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod number;
pub mod quantity;
mod shown;

pub use number::{Unit, count, scaled};
pub use shown::{escape_json, is_plain, of_bytes, of_lines, of_message, of_text, replaced};
