//! The objects that the server serves in the case of neighbours: names and sizes.
//!
//! Large files are holes and take no space on the disk. This module must not know who fetches them.

use std::fs::File;
use std::path::Path;

use anyhow::Result;

/// The name of a file that is too long to be fetched whole.
pub(super) const BIG: &str = "big";
/// The name of a small file, for clients that only open a session.
pub(super) const SMALL: &str = "small";
/// The name of a directory with many files.
pub(super) const LISTED: &str = "listed";
const LISTED_FILES: usize = 20_000;
/// The name of a directory of files to hash.
pub(super) const HASHED: &str = "hashed";
pub(super) const HASHED_FILES: usize = 2_048;
const HASHED_BYTES: u64 = 16 << 20;
const BIG_BYTES: u64 = 100 << 30;

/// Makes all objects in the directory `served`.
///
/// # Errors
/// If the disk refuses one.
pub(super) fn make(served: &Path) -> Result<()> {
    for directory in [LISTED, HASHED] {
        std::fs::create_dir_all(served.join(directory))?;
    }
    File::create(served.join(BIG))?.set_len(BIG_BYTES)?;
    std::fs::write(served.join(SMALL), "small")?;
    for number in 0..LISTED_FILES {
        File::create(served.join(LISTED).join(format!("a file with the number {number}")))?;
    }
    for number in 0..HASHED_FILES {
        File::create(served.join(HASHED).join(number.to_string()))?.set_len(HASHED_BYTES)?;
    }
    Ok(())
}
