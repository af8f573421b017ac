//! Whether the number of a file (its inode) tells which file it is.
//!
//! Some file systems make the number up when the kernel looks a file up and make up another one
//! after the kernel has forgotten the file: most of those in user space, the FAT family and mounts
//! of Windows servers. There the number of a file may change while nobody touches the file, so it
//! must not be compared. [`UNTOLD`] stands for it instead.
//!
//! This file knows the kinds of file system, and not who compares numbers or why.

use std::os::fd::AsFd;

use rustix::fs::{Stat, fstatfs};

/// The number of a file whose real one tells nothing. No file has it.
pub(crate) const UNTOLD: u64 = 0;

/// What the number of a file is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// A file keeps its number as long as it exists.
    Lasting,
    /// A file may have another number each time it is looked up.
    Passing,
}

/// File systems that make numbers up, as `statfs` names them: FUSE, msdos and vfat, exfat, and the
/// three generations of SMB. The values are those of the kernel's `magic.h` and of its drivers.
const MAKE_NUMBERS_UP: [u32; 6] =
    [0x6573_5546, 0x4d44, 0x2011_bab0, 0x517b, 0xff53_4d42, 0xfe53_4d42];

impl Numbering {
    /// The numbering of the file system that `file` is on. One that does not say what it is counts
    /// as an ordinary one.
    pub(crate) fn of(file: impl AsFd) -> Numbering {
        match fstatfs(file) {
            Ok(said) if MAKE_NUMBERS_UP.contains(&(said.f_type as u32)) => Numbering::Passing,
            Ok(_) | Err(_) => Numbering::Lasting,
        }
    }

    /// The number of a file to compare with others: [`UNTOLD`] where it tells nothing.
    pub(crate) fn number(self, stat: &Stat) -> u64 {
        match self {
            Numbering::Lasting => stat.st_ino,
            Numbering::Passing => UNTOLD,
        }
    }
}

/// The numbering of each file system that a destination lies on: it is asked once.
#[derive(Debug, Default)]
pub(crate) struct Numberings(Vec<(u64, Numbering)>);

impl Numberings {
    /// What is known of a device.
    pub(crate) fn known(&self, device: u64) -> Option<Numbering> {
        self.0.iter().find(|(known, _)| *known == device).map(|(_, numbering)| *numbering)
    }

    /// The numbering of a device, on which `near` is.
    pub(crate) fn learn(&mut self, device: u64, near: impl AsFd) -> Numbering {
        self.known(device).unwrap_or_else(|| {
            let numbering = Numbering::of(near);
            self.0.push((device, numbering));
            numbering
        })
    }
}
