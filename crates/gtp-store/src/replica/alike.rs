//! Sums of what the directories of a tree hold, so that of two trees only the directories that
//! differ need be told.
//!
//! Both ends walk through their trees in one order and sum up each directory with the same key,
//! which is drawn anew each time: nobody who does not know the key can make two directories that
//! differ and have one sum.
//! Owners are not in a sum, because they often differ where nothing is amiss.

use std::collections::HashMap;

use super::node::{Node, NodeKind};

/// The most nodes of a directory that is summed up.
pub const SUMMED_MAX: usize = 4_096;

/// The sum of a directory. Two that differ have one sum by chance in 2^64 cases.
pub type DirSum = [u8; 8];

/// The hash of a name, under the key of the sums.
type FirstName = [u8; 16];

/// Sums up the directories of a tree in the order of a walk.
#[derive(Debug)]
pub struct Summing {
    key: [u8; 32],
    /// For each file with several names, a hash of the name that the walk met first.
    first_names: HashMap<u64, FirstName>,
}

impl Summing {
    /// With this key, which both ends must have.
    pub fn new(key: [u8; 32]) -> Summing {
        Summing { key, first_names: HashMap::new() }
    }

    /// Takes in nodes that are part of no sum.
    pub fn pass(&mut self, nodes: &[Node]) {
        for node in nodes {
            if let Some(same) = node.same {
                let name =
                    || hashed(blake3::Hasher::new_keyed(&self.key).update(node.name().as_bytes()));
                self.first_names.entry(same).or_insert_with(name);
            }
        }
    }

    /// Returns how many files with several names have been met, of each of which a hash is kept.
    pub fn shared_files(&self) -> usize {
        self.first_names.len()
    }

    /// Returns the sum of a directory that holds just these nodes, which are sorted by name.
    pub fn sum(&mut self, dir: &str, nodes: &[Node]) -> DirSum {
        self.pass(nodes);
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        put(&mut hasher, dir.as_bytes());
        for node in nodes {
            self.put_node(&mut hasher, node);
        }
        hashed(&hasher)
    }

    fn put_node(&self, hasher: &mut blake3::Hasher, node: &Node) {
        put(hasher, node.name().as_bytes());
        let (kind, target) = match &node.kind {
            NodeKind::File => (0, &[][..]),
            NodeKind::Dir => (1, &[][..]),
            NodeKind::Link(target) => (2, &target[..]),
            NodeKind::Special => (3, &[][..]),
        };
        hasher.update(&[kind]);
        put(hasher, target);
        hasher.update(&node.size.to_le_bytes()).update(&node.mode.to_le_bytes());
        let mtime = node.mtime;
        hasher.update(&mtime.secs().to_le_bytes()).update(&mtime.nanos().to_le_bytes());
        let first = node.same.and_then(|same| self.first_names.get(&same));
        put(hasher, first.map_or(&[][..], |first| &first[..]));
        put(hasher, node.hash.as_ref().map_or(&[], |hash| &hash[..]));
        hasher.update(&(node.xattrs.len() as u64).to_le_bytes());
        for (name, value) in &node.xattrs {
            put(hasher, name.as_bytes());
            put(hasher, value);
        }
    }
}

/// The first bytes of a hash.
fn hashed<const N: usize>(hasher: &blake3::Hasher) -> [u8; N] {
    let mut bytes = [0; N];
    hasher.finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes with their number before them, so that no two series of bytes are one.
fn put(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Mtime;
    use crate::name::RelPath;

    fn node(name: &str) -> Node {
        Node {
            path: Some(RelPath::new(name).unwrap()),
            kind: NodeKind::File,
            size: 3,
            mode: 0o644,
            mtime: Mtime::new(5, 7).unwrap(),
            uid: 1,
            gid: 2,
            same: None,
            hash: None,
            xattrs: vec![("user.a".into(), b"b".to_vec())],
        }
    }

    fn sum(nodes: &[Node]) -> DirSum {
        Summing::new([1; 32]).sum("d", nodes)
    }

    #[test]
    fn whatever_is_kept_of_a_node_but_its_owner_is_in_the_sum() {
        let all = || vec![node("d/a"), node("d/b")];
        let whole = sum(&all());
        let changes: [fn(&mut Node); 8] = [
            |node| node.path = RelPath::new("d/c").ok(),
            |node| node.kind = NodeKind::Link(b"x".to_vec()),
            |node| node.size = 4,
            |node| node.mode = 0o600,
            |node| node.mtime = Mtime::new(5, 8).unwrap(),
            |node| node.same = Some(1),
            |node| node.hash = Some([0; 32]),
            |node| node.xattrs = vec![("user.ab".into(), Vec::new())],
        ];
        for change in changes {
            let mut changed = all();
            change(&mut changed[1]);
            assert_ne!(sum(&changed), whole, "{:?}", changed[1]);
        }
        let mut given = all();
        (given[0].uid, given[0].gid) = (9, 9);
        assert_eq!(sum(&given), whole);
        assert_ne!(Summing::new([2; 32]).sum("d", &all()), whole, "another key");
        assert_ne!(Summing::new([1; 32]).sum("e", &all()), whole, "another directory");
    }

    #[test]
    fn names_of_one_file_are_alike_whatever_number_they_share_and_differ_if_they_part() {
        let with = |first: Option<u64>, second: Option<u64>| {
            let mut summing = Summing::new([1; 32]);
            summing.pass(&[Node { same: first, ..node("c/a") }]);
            summing.sum("d", &[Node { same: second, ..node("d/a") }])
        };
        assert_eq!(with(Some(1), Some(1)), with(Some(9), Some(9)));
        assert_ne!(with(Some(1), Some(1)), with(Some(1), Some(2)));
        assert_ne!(with(Some(1), Some(1)), with(None, None));
    }
}
