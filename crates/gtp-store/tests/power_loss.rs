//! Kills and losses of power, against a file system in memory that forgets.
//!
//! The disk here records every operation. At a random one it stops, as a killed process or a dead
//! machine does. After a kill everything done so far stays. After a loss of power an operation
//! surely stays only if a later sync covers it; of the others any subset is lost, and a write
//! that was not synced may survive in some of its sectors only. Then the transfer is resumed, and
//! dies again, until it is let through.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};

use common::{Dice, copy, dir, file, finish, missing, name, tree};
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Disk, FileSink, Found, FoundKind, Identity, MadeDir, Manifest,
    Mode, Mtime, Opened, Pattern, SinkOptions, SyntheticSource,
};

const SECTOR: usize = 4096;

#[derive(Clone, Debug)]
enum Op {
    Write {
        inode: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    SetLen {
        inode: u64,
        len: u64,
    },
    Dress {
        inode: u64,
        mtime: Mtime,
    },
    /// Names that appear (with their inode) or disappear, all at once.
    Names(Vec<(String, Option<u64>)>),
    MakeDir(String),
    Sync(u64),
    SyncDir(String),
    SyncAll,
}

#[derive(Clone, Debug, Default)]
struct Node {
    bytes: Vec<u8>,
    mtime: Option<Mtime>,
}

/// The state of the file system, and how it came to be.
#[derive(Debug, Default)]
struct World {
    nodes: BTreeMap<u64, Node>,
    names: BTreeMap<String, u64>,
    dirs: BTreeSet<String>,
    log: Vec<Op>,
    inodes: u64,
    /// Operations left before everything fails.
    fuse: u64,
}

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<World>>);

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl World {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { inode, offset, bytes } => {
                let node = self.nodes.entry(*inode).or_default();
                let end = *offset as usize + bytes.len();
                if node.bytes.len() < end {
                    node.bytes.resize(end, 0);
                }
                node.bytes[*offset as usize..end].copy_from_slice(bytes);
            }
            Op::SetLen { inode, len } => {
                self.nodes.entry(*inode).or_default().bytes.resize(*len as usize, 0);
            }
            Op::Dress { inode, mtime } => {
                self.nodes.entry(*inode).or_default().mtime = Some(*mtime);
            }
            Op::Names(changes) => {
                for (path, inode) in changes {
                    match inode {
                        Some(inode) => self.names.insert(path.clone(), *inode),
                        None => self.names.remove(path),
                    };
                }
            }
            Op::MakeDir(path) => {
                self.dirs.insert(path.clone());
            }
            Op::Sync(_) | Op::SyncDir(_) | Op::SyncAll => {}
        }
    }

    fn run(&mut self, op: Op) -> io::Result<()> {
        if self.fuse == 0 {
            return Err(io::Error::other("the machine is dead"));
        }
        self.fuse -= 1;
        self.apply(&op);
        self.log.push(op);
        Ok(())
    }

    /// Whether a later sync makes the operation at this place of the log last.
    fn is_synced(&self, at: usize) -> bool {
        self.log[at + 1..].iter().any(|later| match (&self.log[at], later) {
            (_, Op::SyncAll) => true,
            (
                Op::Write { inode, .. } | Op::SetLen { inode, .. } | Op::Dress { inode, .. },
                Op::Sync(synced),
            ) => inode == synced,
            (Op::Names(changes), Op::SyncDir(dir)) => {
                changes.iter().any(|(path, _)| parent(path) == dir)
            }
            (Op::MakeDir(path), Op::SyncDir(dir)) => parent(path) == dir,
            (_, _) => false,
        })
    }

    /// Loses power: what no sync covers may be gone, all or in part.
    fn lose_power(&mut self, dice: &mut Dice, base: &World) {
        let mut after = World {
            nodes: base.nodes.clone(),
            names: base.names.clone(),
            dirs: base.dirs.clone(),
            inodes: self.inodes,
            ..World::default()
        };
        for (at, op) in self.log.iter().enumerate() {
            if self.is_synced(at) {
                after.apply(op);
                continue;
            }
            if dice.below(2) == 0 {
                continue;
            }
            match op {
                Op::Write { inode, offset, bytes } => {
                    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                        if dice.below(4) > 0 {
                            let offset = offset + (i * SECTOR) as u64;
                            let bytes = sector.to_vec();
                            after.apply(&Op::Write { inode: *inode, offset, bytes });
                        }
                    }
                }
                other => after.apply(other),
            }
        }
        let dirs = after.dirs.clone();
        let whole = |path: &str| -> bool {
            let mut up = parent(path);
            while !up.is_empty() {
                if !dirs.contains(up) {
                    return false;
                }
                up = parent(up);
            }
            true
        };
        after.names.retain(|path, _| whole(path));
        after.dirs.retain(|path| whole(path));
        *self = after;
    }

    fn reboot(&mut self) -> World {
        self.log.clear();
        World {
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            dirs: self.dirs.clone(),
            ..World::default()
        }
    }
}

impl Memory {
    fn with<T>(&self, f: impl FnOnce(&mut World) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    fn run(&self, op: Op) -> io::Result<()> {
        self.with(|world| world.run(op))
    }
}

impl Disk for Memory {
    type File = u64;

    fn look(&mut self, path: &str) -> io::Result<Option<Found>> {
        self.with(|world| {
            if world.dirs.contains(path) {
                let identity = Identity { device: 1, inode: 0 };
                let mtime = Mtime::new(0, 0).unwrap();
                return Ok(Some(Found { kind: FoundKind::Dir, identity, size: 0, mtime }));
            }
            Ok(world.names.get(path).map(|&inode| {
                let node = world.nodes.get(&inode).cloned().unwrap_or_default();
                Found {
                    kind: FoundKind::File,
                    identity: Identity { device: 1, inode },
                    size: node.bytes.len() as u64,
                    mtime: node.mtime.unwrap_or(Mtime::new(7, 7).unwrap()),
                }
            }))
        })
    }

    fn create(&mut self, path: &str) -> io::Result<u64> {
        self.with(|world| {
            if world.names.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            world.inodes += 1;
            let inode = world.inodes;
            world.run(Op::Names(vec![(path.to_owned(), Some(inode))]))?;
            Ok(inode)
        })
    }

    fn open(&mut self, path: &str) -> io::Result<Opened<u64>> {
        self.with(|world| Ok(world.names.get(path).map_or(Opened::Absent, |&i| Opened::Ours(i))))
    }

    fn identity(&mut self, file: &u64) -> io::Result<Identity> {
        Ok(Identity { device: 1, inode: *file })
    }

    fn len(&mut self, file: &u64) -> io::Result<u64> {
        self.with(|world| Ok(world.nodes.get(file).map_or(0, |node| node.bytes.len() as u64)))
    }

    fn read_at(&mut self, file: &u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|world| {
            let node = world.nodes.get(file).cloned().unwrap_or_default();
            let wanted = offset as usize..offset as usize + out.len();
            let there = node.bytes.get(wanted).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(there);
            Ok(())
        })
    }

    fn write_at(&mut self, file: &u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.run(Op::Write { inode: *file, offset, bytes: bytes.to_vec() })
    }

    fn clear(&mut self, file: &u64, offset: u64, len: u64) -> io::Result<()> {
        self.run(Op::Write { inode: *file, offset, bytes: vec![0; len as usize] })
    }

    fn set_len(&mut self, file: &u64, len: u64) -> io::Result<()> {
        self.run(Op::SetLen { inode: *file, len })
    }

    fn start_writing(&mut self, _file: &u64, _offset: u64, _len: u64) {}

    fn dress(&mut self, file: &u64, _mode: Mode, mtime: Mtime) -> io::Result<()> {
        self.run(Op::Dress { inode: *file, mtime })
    }

    fn sync(&mut self, file: &u64) -> io::Result<()> {
        self.run(Op::Sync(*file))
    }

    fn make_dir(&mut self, path: &str) -> io::Result<MadeDir> {
        if self.with(|world| world.dirs.contains(path)) {
            return Ok(MadeDir::There);
        }
        self.run(Op::MakeDir(path.to_owned()))?;
        Ok(MadeDir::New)
    }

    fn set_dir_attributes(
        &mut self,
        path: &str,
        _mode: Option<Mode>,
        _mtime: Mtime,
    ) -> io::Result<()> {
        assert!(self.with(|world| world.dirs.contains(path)), "{path} is a directory");
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let inode = self.with(|world| world.names.get(from).copied());
        let inode = inode.ok_or(io::ErrorKind::NotFound)?;
        self.run(Op::Names(vec![(from.to_owned(), None), (to.to_owned(), Some(inode))]))
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.run(Op::Names(vec![(path.to_owned(), None)]))
    }

    fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        self.run(Op::SyncDir(path.to_owned()))
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.run(Op::SyncAll)
    }
}

fn object() -> SyntheticSource {
    let mut entries = vec![
        dir("d", 1),
        file("d/big", 5 * BLOCK + 17, 2),
        file("d/exact", 2 * BLOCK, 3),
        file("nothing", 0, 4),
        file("one", BLOCK, 5),
    ];
    entries.extend((0..6).map(|i| file(&format!("small-{i}"), 100 + i, 6)));
    SyntheticSource::new(tree(entries), Pattern::Random { seed: 9 })
}

/// The content of every file of the object, by its final path.
fn contents_of(source: &mut SyntheticSource) -> BTreeMap<String, Vec<u8>> {
    let manifest = source.manifest().clone();
    let mut framed = gtp_store::new_framed();
    let mut out = BTreeMap::new();
    for (number, entry) in manifest.entries.iter().enumerate() {
        let mut content = Vec::new();
        for block in 0..entry.size.div_ceil(BLOCK) {
            source.load_block(number as u32, block, &mut framed).unwrap();
            content.extend_from_slice(&framed[..framed.len() - 32]);
        }
        if entry.kind == gtp_store::Kind::File {
            out.insert(format!("obj/{}", entry.path.as_str()), content);
        }
    }
    out
}

/// One life of a transfer: blocks in random order, checkpoints and ends of files in between.
fn live(memory: &Memory, source: &mut SyntheticSource, dice: &mut Dice) -> Result<(), String> {
    let manifest: Arc<Manifest> = source.manifest().clone();
    let options = SinkOptions::default();
    let mut sink = FileSink::on_disk(memory.clone(), Some(name("obj")), manifest.clone(), options)
        .map_err(|e| e.to_string())?;
    let mut order = missing(&manifest, &sink);
    dice.shuffle(&mut order);
    for at in order {
        copy(source, &mut sink, &[at]).map_err(|e| e.to_string())?;
        if dice.below(3) == 0 {
            sink.checkpoint().map_err(|e| e.to_string())?;
        }
        if dice.below(4) == 0 {
            let file = at.0;
            let root = source.file_root(file).unwrap();
            match sink.finish_file(file, Some(root)) {
                Ok(_) | Err(gtp_store::SinkError::Incomplete { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    finish(source, &mut sink).map(|_| ()).map_err(|e| e.to_string())
}

fn check_final_names(world: &World, want: &BTreeMap<String, Vec<u8>>, seed: u64) {
    for (path, inode) in &world.names {
        if let Some(content) = want.get(path) {
            let held = world.nodes.get(inode).map_or(&[][..], |node| &node.bytes);
            assert!(held == content, "{path} is not whole, seed {seed}");
        }
    }
}

fn scenario(seed: u64) {
    let mut dice = Dice(seed);
    let mut source = object();
    let want = contents_of(&mut source);
    let memory = Memory::default();
    for _ in 0..dice.below(6) {
        let before = memory.with(World::reboot);
        let fuse = dice.below(120);
        memory.with(|world| world.fuse = fuse);
        if live(&memory, &mut source, &mut dice).is_ok() {
            break;
        }
        if dice.below(3) > 0 {
            memory.with(|world| world.lose_power(&mut dice, &before));
        }
        memory.with(|world| check_final_names(world, &want, seed));
    }
    memory.with(|world| {
        world.log.clear();
        world.fuse = u64::MAX;
    });
    let last = live(&memory, &mut source, &mut dice);
    assert_eq!(last, Ok(()), "seed {seed}");
    memory.with(|world| {
        check_final_names(world, &want, seed);
        let there: Vec<_> = world.names.keys().collect();
        assert_eq!(there, want.keys().collect::<Vec<_>>(), "only the object, seed {seed}");
    });
}

#[test]
fn no_kill_and_no_loss_of_power_ever_leaves_a_wrong_byte_under_a_final_name() {
    for seed in 1..=200 {
        scenario(seed * 0x9e37_79b9);
    }
}

#[test]
fn what_a_finished_transfer_reported_survives_a_loss_of_power_right_after() {
    for seed in 1..=40 {
        let mut dice = Dice(seed);
        let mut source = object();
        let want = contents_of(&mut source);
        let memory = Memory::default();
        let before = memory.with(World::reboot);
        memory.with(|world| world.fuse = u64::MAX);
        live(&memory, &mut source, &mut dice).unwrap();
        memory.with(|world| world.lose_power(&mut dice, &before));
        memory.with(|world| {
            check_final_names(world, &want, seed);
            for path in want.keys() {
                assert!(world.names.contains_key(path), "{path} is gone, seed {seed}");
            }
        });
    }
}
