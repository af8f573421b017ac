//! The tree above the blocks of one file.
//!
//! Values of blocks arrive in any order. As soon as both halves of a subtree are known they are
//! merged and forgotten, so memory follows the gaps and not the size of the file. When all are
//! there, what remains is the right edge of the tree, which folds into the root.

use std::collections::HashMap;

use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use gtp_ranges::RangeSet;

use crate::hash::{Value, empty_root};
use crate::row::blocks_in;

/// The known subtrees of one file.
#[derive(Debug, Clone)]
pub struct Tree {
    blocks: u64,
    there: RangeSet,
    /// By level (log2 of the blocks beneath) and index among the subtrees of that level.
    subtrees: HashMap<(u32, u64), Value>,
}

impl Tree {
    /// The tree of a file of `file_size` bytes, no block known.
    pub fn new(file_size: u64) -> Tree {
        Tree { blocks: blocks_in(file_size), there: RangeSet::new(), subtrees: HashMap::new() }
    }

    /// Takes the value of a block; whether it was new. A known block, or one that the file does
    /// not have, changes nothing.
    pub fn insert(&mut self, block: u64, value: Value) -> bool {
        if block >= self.blocks || !self.there.insert_one(block) {
            return false;
        }
        let (mut level, mut index, mut value) = (0, block, value);
        while self.is_inner(level + 1)
            && let Some(sibling) = self.subtrees.remove(&(level, index ^ 1))
        {
            let (left, right) = if index & 1 == 0 { (value, sibling) } else { (sibling, value) };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            (level, index) = (level + 1, index >> 1);
        }
        self.subtrees.insert((level, index), value);
        true
    }

    /// Which blocks are known.
    pub fn there(&self) -> &RangeSet {
        &self.there
    }

    /// How many blocks are not known yet.
    pub fn missing(&self) -> u64 {
        self.blocks - self.there.len()
    }

    /// How many values are held: what bounds its memory.
    pub fn held(&self) -> usize {
        self.subtrees.len()
    }

    /// The BLAKE3 hash of the whole file, once every block is known.
    pub fn root(&self) -> Option<Value> {
        if self.missing() > 0 {
            return None;
        }
        let mut edge: Vec<(u64, Value)> =
            self.subtrees.iter().map(|(&(level, index), &v)| (index << level, v)).collect();
        edge.sort_unstable_by_key(|&(first, _)| first);
        let Some((_, mut right)) = edge.pop() else { return Some(empty_root()) };
        while let Some((_, left)) = edge.pop() {
            right = if edge.is_empty() {
                *merge_subtrees_root(&left, &right, Mode::Hash).as_bytes()
            } else {
                merge_subtrees_non_root(&left, &right, Mode::Hash)
            };
        }
        Some(right)
    }

    /// Whether subtrees of this level lie below the root: the root merges by another rule.
    fn is_inner(&self, level: u32) -> bool {
        level < u64::BITS && 1 << level < self.blocks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::block_value;
    use crate::row::BLOCK;

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 31 + i / 977) as u8).collect()
    }

    fn root_in_order(size: usize, order: impl IntoIterator<Item = u64>) -> Option<Value> {
        let content = content(size);
        let mut tree = Tree::new(size as u64);
        for block in order {
            let start = (block * BLOCK) as usize;
            let part = &content[start..size.min(start + BLOCK as usize)];
            assert!(tree.insert(block, block_value(size as u64, block, part)));
        }
        tree.root()
    }

    #[test]
    fn every_small_number_of_blocks_merges_to_the_hash_of_the_file() {
        let b = BLOCK as usize;
        for size in [0, 1, 1024, b - 1, b, b + 1, 2 * b - 1, 2 * b, 3 * b, 4 * b, 4 * b + 1, 7 * b]
        {
            let blocks = size.div_ceil(b) as u64;
            let whole = *blake3::hash(&content(size)).as_bytes();
            assert_eq!(root_in_order(size, 0..blocks), Some(whole), "{size}");
            assert_eq!(root_in_order(size, (0..blocks).rev()), Some(whole), "{size} reversed");
        }
    }

    #[test]
    fn an_incomplete_tree_has_no_root_and_in_order_arrival_holds_few_values() {
        let mut tree = Tree::new(1000 * BLOCK);
        for block in 0..999 {
            assert!(tree.insert(block, [0; 32]));
            assert!(tree.held() <= 10);
        }
        assert!(!tree.insert(5, [1; 32]) && !tree.insert(1000, [1; 32]));
        assert_eq!((tree.root(), tree.missing()), (None, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_order_of_blocks_merges_to_the_hash_of_the_file(
            size in 1usize..(9 * BLOCK as usize), seed in any::<u64>(),
        ) {
            let blocks = (size as u64).div_ceil(BLOCK);
            let mut order: Vec<u64> = (0..blocks).collect();
            order.sort_by_key(|&b| (b + 1).wrapping_mul(seed | 1));
            let whole = *blake3::hash(&content(size)).as_bytes();
            prop_assert_eq!(root_in_order(size, order), Some(whole));
        }
    }
}
