//! How much of a tree goes into one page for a client, and whether the page is packed.
//!
//! Packed pages hold more, since they become shorter. This module must not know what a page
//! holds, nor how it is packed.

/// How pages are sent.
#[derive(Clone, Copy)]
pub enum Packing {
    /// As they are.
    Plain,
    /// Deflated, to a client that understands it.
    Packed,
}

impl Packing {
    /// Bytes of a page, unless it has one node only. What is packed together becomes shorter.
    pub fn page_bytes(self) -> usize {
        match self {
            Packing::Plain => PAGE_BYTES,
            Packing::Packed => 2 * PAGE_BYTES,
        }
    }

    /// Nodes of a page.
    pub fn page_nodes(self) -> usize {
        match self {
            Packing::Plain => PAGE_NODES,
            Packing::Packed => 2 * PAGE_NODES,
        }
    }
}

/// Nodes of a page that is sent, so that a client that does not read costs little.
const PAGE_NODES: usize = 512;

/// Bytes of a page that is sent, unless it has one node only.
const PAGE_BYTES: usize = 64 << 10;
