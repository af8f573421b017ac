//! Sealed memory that two processes see, as words: the one place with raw pointers.
//!
//! A region is a memory file of fixed size. Its seals keep anybody from shrinking it under a
//! reader's feet; whoever gets one from elsewhere checks them first. The words are only ever
//! touched as atomics, because the other side may write at any moment, and may mean harm.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What this process may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Look at it.
    Read,
    /// Write it too.
    Write,
}

/// What the process that gets the descriptor may do with the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theirs {
    /// Look at it.
    Read,
    /// Write it too.
    Write,
}

/// A region of shared words in this process's address space.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

/// Seals that every region must have: without them a page could vanish.
const STEADY: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl Mapping {
    /// Makes a zeroed region of `words` words, maps it for writing here, and returns with it the
    /// descriptor for the other process.
    ///
    /// # Errors
    /// When the system gives no memory or no descriptor.
    pub(crate) fn create(words: usize, theirs: Theirs) -> io::Result<(Mapping, OwnedFd)> {
        let fd = rustix::fs::memfd_create("gtp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, (words * WORD) as u64)?;
        let mapping = Mapping::map(&fd, words, Access::Write)?;
        // Mappings that exist stay as they are: only this one can write from now on.
        let last = match theirs {
            Theirs::Read => STEADY | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
            Theirs::Write => STEADY | SealFlags::SEAL,
        };
        fcntl_add_seals(&fd, last)?;
        Ok((mapping, fd))
    }

    /// Maps a region that another process made.
    ///
    /// # Errors
    /// When it is too small, could shrink, or cannot be mapped so.
    pub(crate) fn open(fd: impl AsFd, words: usize, access: Access) -> io::Result<Mapping> {
        if !fcntl_get_seals(&fd)?.contains(STEADY) {
            return Err(io::Error::other("a page that is not sealed against shrinking"));
        }
        if (fstat(&fd)?.st_size as u64) < (words * WORD) as u64 {
            return Err(io::Error::other("a page that is shorter than was said"));
        }
        Mapping::map(fd, words, access)
    }

    fn map(fd: impl AsFd, words: usize, access: Access) -> io::Result<Mapping> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let start = unsafe {
            mmap(std::ptr::null_mut(), words * WORD, protection, MapFlags::SHARED, fd, 0)?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Mapping { start, words })
    }

    /// The words. On a region mapped for reading only, they may only be loaded.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is that long, aligned to a page, and lives as long as `self`; the
        // file behind it cannot shrink; any bits are a valid word; both sides use atomics only.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrowed from `words` outlives `self`, and nobody else unmaps it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * WORD) };
    }
}

// SAFETY: what it points at is shared memory that is only touched as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

const WORD: usize = size_of::<AtomicU64>();

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_word_written_here_is_read_there() {
        let (ours, fd) = Mapping::create(512, Theirs::Read).unwrap();
        let theirs = Mapping::open(&fd, 512, Access::Read).unwrap();
        ours.words()[511].store(42, Ordering::Relaxed);
        assert_eq!(theirs.words()[511].load(Ordering::Relaxed), 42);
    }

    #[test]
    fn a_region_for_reading_can_neither_be_mapped_nor_written_nor_shrunk_nor_unsealed() {
        let (_ours, fd) = Mapping::create(512, Theirs::Read).unwrap();
        assert!(Mapping::open(&fd, 512, Access::Write).is_err());
        assert!(rustix::io::pwrite(&fd, &[1], 0).is_err());
        assert!(ftruncate(&fd, 0).is_err());
        assert!(fcntl_add_seals(&fd, SealFlags::WRITE).is_err());
    }

    #[test]
    fn a_region_that_may_shrink_or_is_short_is_refused() {
        let loose =
            rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)
                .unwrap();
        ftruncate(&loose, 4_096).unwrap();
        assert!(Mapping::open(&loose, 512, Access::Read).is_err());
        let (_ours, fd) = Mapping::create(512, Theirs::Write).unwrap();
        assert!(Mapping::open(&fd, 513, Access::Read).is_err());
    }
}
