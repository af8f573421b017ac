//! What a source remembers of the blocks it has loaded, so that a file's root is there when its
//! last block has been sent.
//!
//! Bounded: a peer chooses the order of blocks, and an order full of gaps keeps many values. Past
//! the bound new values are not kept, and the blocks concerned are read again for the root. A
//! cache that outlives the process, keyed by the identity of the file, would save that reading
//! for the second transfer of a file; there is none yet.

use std::collections::HashMap;

use crate::hash::Value;
use crate::tree::Tree;

/// The most values kept at once for one object: at about 100 bytes each, 26 MB.
const MAX_HELD: usize = 1 << 18;

/// Trees of the files of one object, as far as their blocks were loaded.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    trees: HashMap<u32, Tree>,
    held: usize,
}

impl Roots {
    /// Remembers the value of a block that was loaded, if there is room.
    pub(crate) fn note(&mut self, file: u32, file_size: u64, block: u64, value: Value) {
        if self.held >= MAX_HELD {
            return;
        }
        let tree = self.trees.entry(file).or_insert_with(|| Tree::new(file_size));
        let before = tree.held();
        tree.insert(block, value);
        self.held = self.held + tree.held() - before;
    }

    /// Whether all blocks of a file were loaded, and are a file of this hash.
    pub(crate) fn has(&self, file: u32, root: Value) -> bool {
        self.trees.get(&file).is_some_and(|tree| tree.root() == Some(root))
    }

    /// Takes out what is known of a file, to be completed and given back.
    pub(crate) fn take(&mut self, file: u32, file_size: u64) -> Tree {
        let tree = self.trees.remove(&file).unwrap_or_else(|| Tree::new(file_size));
        self.held -= tree.held().min(self.held);
        tree
    }

    /// Gives a tree back.
    pub(crate) fn give_back(&mut self, file: u32, tree: Tree) {
        if self.held + tree.held() <= MAX_HELD {
            self.held += tree.held();
            self.trees.insert(file, tree);
        }
    }
}
