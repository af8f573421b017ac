//! The worker that writes a transfer's blocks.
pub(super) struct Written;
