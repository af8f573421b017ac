//! Whether the number of a file (its inode) tells which file it is.
//!
//! Some file systems make the number up when the kernel looks a file up, and make up another one
//! after the kernel has forgotten the file: most file systems in user space, the FAT family, and
//! mounts of Windows servers. There the number may change although the file does not, so it must
//! not be compared; [`UNTOLD`] stands for it. This module knows kinds of file systems. It must not
//! know who compares numbers, nor why.

use std::os::fd::AsFd;

use rustix::fs::{Stat, fstatfs};

/// Stands for the number of a file whose real one does not identify it. No file has this number.
pub(crate) const UNTOLD: u64 = 0;

/// Whether the number of a file identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// It does: a file keeps its number as long as it exists.
    Lasting,
    /// It does not: a file may have another number each time it is looked up.
    Passing,
}

/// File systems that make numbers up, as `statfs` names them: FUSE, msdos and vfat, exfat, and the
/// three generations of SMB. The values are those of the kernel's `magic.h` and of its drivers.
const MAKE_NUMBERS_UP: [u32; 6] =
    [0x6573_5546, 0x4d44, 0x2011_bab0, 0x517b, 0xff53_4d42, 0xfe53_4d42];

impl Numbering {
    /// Returns the numbering of the file system that `file` is on. It is [`Numbering::Lasting`] if
    /// the file system does not say what it is.
    pub(crate) fn of(file: impl AsFd) -> Numbering {
        match fstatfs(file) {
            Ok(said) if MAKE_NUMBERS_UP.contains(&(said.f_type as u32)) => Numbering::Passing,
            Ok(_) | Err(_) => Numbering::Lasting,
        }
    }

    /// Returns the number by which a file may be compared with others, or [`UNTOLD`] if it must not
    /// be.
    pub(crate) fn number(self, stat: &Stat) -> u64 {
        match self {
            Numbering::Lasting => stat.st_ino,
            Numbering::Passing => UNTOLD,
        }
    }
}

/// The numberings of the file systems on which a destination lies, by device. Each file system is
/// asked once.
#[derive(Debug, Default)]
pub(crate) struct Numberings(Vec<(u64, Numbering)>);

impl Numberings {
    /// Returns the numbering of a device, if it is known already.
    pub(crate) fn known(&self, device: u64) -> Option<Numbering> {
        self.0.iter().find(|(known, _)| *known == device).map(|(_, numbering)| *numbering)
    }

    /// Returns the numbering of a device. If it is not known yet, asks the file system of `near`,
    /// which must be on that device.
    pub(crate) fn learn(&mut self, device: u64, near: impl AsFd) -> Numbering {
        self.known(device).unwrap_or_else(|| {
            let numbering = Numbering::of(near);
            self.0.push((device, numbering));
            numbering
        })
    }
}
