//! How fast blocks are loaded, checked and written. `GTP_BENCH_DIR` names the directory to use,
//! so that a disk and a file system in memory can be compared.

use std::path::PathBuf;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use gtp_store::{
    BLOCK, BlockSink, BlockSource, Destination, DiscardSink, Durability, Existing, Export,
    FileSink, FileSource, Framed, Kind, Manifest, Pattern, RelPath, RootKind, SinkOptions,
    SyntheticSource, new_framed,
};

const BLOCKS: u64 = 1024;
const SMALL_FILES: usize = 10_000;

fn main() {
    divan::main();
}

fn bench_dir() -> tempfile::TempDir {
    let dir = std::env::var_os("GTP_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(dir).unwrap()
}

/// All blocks of an object, loaded: what a sink is given.
fn framed(source: &mut dyn BlockSource) -> Vec<(u32, u64, Framed)> {
    let manifest = source.manifest().clone();
    let mut out = Vec::new();
    for (file, entry) in manifest.entries.iter().enumerate() {
        for block in 0..entry.size.div_ceil(BLOCK) {
            let mut framed = new_framed();
            source.load_block(file as u32, block, &mut framed).unwrap();
            out.push((file as u32, block, framed));
        }
    }
    out
}

fn big() -> SyntheticSource {
    let name = RelPath::new("big").unwrap();
    SyntheticSource::file(name, BLOCKS * BLOCK, Pattern::Random { seed: 1 })
}

fn write_all(sink: &mut dyn BlockSink, manifest: &Manifest, blocks: &[(u32, u64, Framed)]) {
    for (file, block, framed) in blocks {
        sink.write_block(*file, *block, framed).unwrap();
    }
    for (file, entry) in manifest.entries.iter().enumerate() {
        if entry.kind == Kind::File {
            sink.finish_file(file as u32, None).unwrap();
        }
    }
    sink.finish().unwrap();
}

/// Returns the directory, so that removing it is not measured.
fn write_files(
    manifest: &Arc<Manifest>,
    blocks: &[(u32, u64, Framed)],
    durability: Durability,
) -> tempfile::TempDir {
    let dir = bench_dir();
    let name = RelPath::new("object").unwrap();
    let dest = Destination::beneath(dir.path(), name, manifest.root_kind).unwrap();
    let options = SinkOptions { existing: Existing::Replace, durability };
    let mut sink = FileSink::open(dest, manifest.clone(), options).unwrap();
    write_all(&mut sink, manifest, blocks);
    dir
}

#[divan::bench(sample_count = 5)]
fn synthetic_load(bencher: Bencher) {
    let mut source = big();
    let mut out = new_framed();
    bencher.counter(BytesCount::new(BLOCKS * BLOCK)).bench_local(|| {
        for block in 0..BLOCKS {
            source.load_block(0, block, &mut out).unwrap();
        }
    });
}

#[divan::bench(sample_count = 5)]
fn file_load(bencher: Bencher) {
    let dir = bench_dir();
    let path = dir.path().join("big");
    let mut content = Vec::new();
    for (_, _, framed) in framed(&mut big()) {
        content.extend_from_slice(&framed[..BLOCK as usize]);
    }
    std::fs::write(&path, content).unwrap();
    let mut out = new_framed();
    bencher.counter(BytesCount::new(BLOCKS * BLOCK)).bench_local(|| {
        let mut source = FileSource::new(Export::open(&path).unwrap().scan(None).unwrap());
        for block in 0..BLOCKS {
            source.load_block(0, block, &mut out).unwrap();
        }
        source.file_root(0).unwrap()
    });
}

#[divan::bench(sample_count = 5)]
fn check_only(bencher: Bencher) {
    let mut source = big();
    let manifest = source.manifest().clone();
    let blocks = framed(&mut source);
    bencher.counter(BytesCount::new(BLOCKS * BLOCK)).bench_local(|| {
        write_all(&mut DiscardSink::new(manifest.clone()), &manifest, &blocks);
    });
}

#[divan::bench(sample_count = 5, args = [Durability::Synced, Durability::System])]
fn file_write(bencher: Bencher, durability: Durability) {
    let mut source = big();
    let manifest = source.manifest().clone();
    let blocks = framed(&mut source);
    bencher
        .counter(BytesCount::new(BLOCKS * BLOCK))
        .bench_local(|| write_files(&manifest, &blocks, durability));
}

#[divan::bench(sample_count = 5, args = [Durability::Synced, Durability::System])]
fn ten_thousand_small_files(bencher: Bencher, durability: Durability) {
    let mut source = SyntheticSource::dir(&[4096; SMALL_FILES], Pattern::Random { seed: 1 });
    let manifest = source.manifest().clone();
    assert_eq!(manifest.root_kind, RootKind::Dir);
    let blocks = framed(&mut source);
    bencher
        .counter(ItemsCount::new(SMALL_FILES))
        .bench_local(|| write_files(&manifest, &blocks, durability));
}

#[divan::bench(sample_count = 5)]
fn scan_ten_thousand_small_files(bencher: Bencher) {
    let dir = bench_dir();
    for i in 0..SMALL_FILES {
        std::fs::write(dir.path().join(i.to_string()), [1; 4096]).unwrap();
    }
    let export = Export::open(dir.path()).unwrap();
    bencher.counter(ItemsCount::new(SMALL_FILES)).bench_local(|| export.scan(None).unwrap());
}
