//! Whether a directory's mode can hide from this process what is in it.
//!
//! A count that cannot look into a directory misses what is there. Root looks into all of them by a
//! capability, which it may lack, and only where this machine's kernel decides: a file server may
//! give root the rights of nobody. So a file system counts as such a server's unless it is known.

use std::os::fd::BorrowedFd;

use rustix::fs::fstatfs;
use rustix::thread::{CapabilitySet, capabilities};

/// Whether a closed directory of this file system hides its content from this process.
pub(super) fn hides(dir: BorrowedFd<'_>) -> bool {
    !sees_all() || fstatfs(dir).map_or(true, |fs| !is_local(fs.f_type as u32))
}

/// Whether the kernel lets this thread list and search every directory.
fn sees_all() -> bool {
    let sees = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(sees))
}

/// Whether the kernel decides alone who may do what on a file system of this type (statfs(2)).
fn is_local(kind: u32) -> bool {
    const LOCAL: [u32; 12] = [
        0xef53,      // ext2, ext3, ext4
        0x5846_5342, // XFS
        0x9123_683e, // Btrfs
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0xf2f5_2010, // F2FS
        0x794c_7630, // overlayfs
        0x2fc1_2fc1, // ZFS
        0xca45_1a4e, // Bcachefs
        0x3153_464a, // JFS
        0x5265_4973, // ReiserFS
        0x3434,      // NILFS
    ];
    LOCAL.contains(&kind)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use rustix::thread::{CapabilitySets, set_capabilities};

    use super::*;

    /// Does this in a thread without the capabilities to look into everything.
    fn without_capabilities<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        let run = || {
            let sets = CapabilitySets {
                effective: CapabilitySet::empty(),
                permitted: CapabilitySet::empty(),
                inheritable: CapabilitySet::empty(),
            };
            set_capabilities(None, sets).unwrap();
            work()
        };
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn a_closed_directory_hides_what_is_in_it_from_root_without_its_capabilities() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o0)).unwrap();
        let top = fs::File::open(dir.path()).unwrap();
        without_capabilities(|| {
            assert!(hides(top.as_fd()));
            assert!(fs::read_dir(&closed).is_err());
        });
        // Here as well both say the same.
        assert_eq!(hides(top.as_fd()), fs::read_dir(&closed).is_err());
    }

    #[test]
    fn a_file_system_of_a_server_may_hide_anything() {
        // NFS, SMB, 9p, FUSE, Ceph, and one that nobody knows.
        for kind in [0x6969, 0xff53_4d42, 0x0102_1997, 0x6573_5546, 0x00c3_6400, 0x1234_5678] {
            assert!(!is_local(kind), "{kind:#x}");
        }
        assert!(is_local(0xef53) && is_local(0x0102_1994));
    }
}
