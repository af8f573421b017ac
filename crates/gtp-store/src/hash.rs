//! The value of a block.
//!
//! BLAKE3 is a tree over chunks of 1 KiB. A block of 256 chunks that starts at a multiple of its
//! own length is a subtree, so the value of that subtree (its chaining value) can be computed
//! from the block and its offset alone, and the values of all blocks merge into the hash of the
//! whole file. Only a file of a single block has no subtree above it: its value is its root.
//!
//! The `hazmat` module of `blake3` gives exactly this. A crate for verified streaming would add
//! proofs within a block and an outboard tree; blocks here are checked whole, so neither is used.

use blake3::Hasher;
use blake3::hazmat::HasherExt;

use crate::row::{BLOCK, TRAILER, blocks_in, content_of};

/// A BLAKE3 value: of a block, or of a whole file.
pub type Value = [u8; TRAILER];

/// What checking a block against its trailer found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockCheck {
    /// The content has the value of its trailer.
    Good(Value),
    /// The content and its trailer disagree.
    Bad,
    /// The trailer is [`LOST`]: the source cannot give this block.
    Lost,
    /// The length is not that of this block with its trailer, or there is no such block.
    WrongLength,
}

/// The trailer of a block that its source cannot give, because the file has changed or cannot be
/// read any more. No content has this value: that would be a preimage of BLAKE3. In place of a
/// file's root it says the same of the whole file.
pub const LOST: Value = [0; TRAILER];

/// The value of the content of block `block` of a file of `file_size` bytes.
///
/// # Panics
/// When the content does not have the length of that block: the caller read it wrongly.
pub fn block_value(file_size: u64, block: u64, content: &[u8]) -> Value {
    assert!(block < blocks_in(file_size), "the block exists in its file");
    assert_eq!(content.len(), content_of(file_size, block) as usize, "the block is whole");
    if blocks_in(file_size) == 1 {
        return *blake3::hash(content).as_bytes();
    }
    let mut hasher = Hasher::new();
    hasher.set_input_offset(block * BLOCK).update(content);
    hasher.finalize_non_root()
}

/// Checks content followed by its trailer, as block `block` of a file of `file_size` bytes.
/// Never panics: both come from a peer.
pub fn check_block(file_size: u64, block: u64, content_and_trailer: &[u8]) -> BlockCheck {
    if block >= blocks_in(file_size) {
        return BlockCheck::WrongLength;
    }
    let content_len = content_of(file_size, block) as usize;
    if content_and_trailer.len() != content_len + TRAILER {
        return BlockCheck::WrongLength;
    }
    let (content, trailer) = content_and_trailer.split_at(content_len);
    if trailer == LOST {
        return BlockCheck::Lost;
    }
    let value = block_value(file_size, block, content);
    if value == trailer { BlockCheck::Good(value) } else { BlockCheck::Bad }
}

/// The root of an empty file, which has no block.
pub fn empty_root() -> Value {
    *blake3::hash(&[]).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_block_has_its_root_as_value() {
        let content = vec![7; 1000];
        assert_eq!(block_value(1000, 0, &content), *blake3::hash(&content).as_bytes());
    }

    #[test]
    fn a_changed_bit_a_moved_block_and_a_wrong_length_are_found() {
        let size = 2 * BLOCK;
        let mut framed = vec![1; BLOCK as usize];
        let value = block_value(size, 0, &framed);
        framed.extend_from_slice(&value);
        assert_eq!(check_block(size, 0, &framed), BlockCheck::Good(value));
        assert_eq!(check_block(size, 1, &framed), BlockCheck::Bad);
        assert_eq!(check_block(size, 2, &framed), BlockCheck::WrongLength);
        assert_eq!(check_block(size, 0, &framed[1..]), BlockCheck::WrongLength);
        framed[70_000] ^= 1;
        assert_eq!(check_block(size, 0, &framed), BlockCheck::Bad);
        framed[BLOCK as usize..].fill(0);
        assert_eq!(check_block(size, 0, &framed), BlockCheck::Lost);
    }
}
