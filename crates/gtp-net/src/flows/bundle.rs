//! Several objects as one: what `put` sends when it is given more than one path.
//!
//! Each object gets a name, beneath which its entries appear; a file's entry is the name itself.
//! The joined listing is sorted like any other, and a table leads from its entries back to the
//! parts. It knows nothing of where the parts come from.

use std::sync::Arc;

use gtp_store::{
    BlockSource, Entry, Framed, Kind, Manifest, ManifestError, Mode, Mtime, NameError, RelPath,
    RootKind, SourceError, Value,
};

/// Sources joined into one directory object.
pub struct Bundle {
    parts: Vec<Box<dyn BlockSource>>,
    manifest: Arc<Manifest>,
    /// For each entry its part and its place there; `None` for directories that stand for a part.
    places: Vec<Option<(usize, u32)>>,
}

/// An entry of the whole, with its part and its place there.
type Row = (Entry, Option<(usize, u32)>);

/// Why sources cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A name came out that cannot travel.
    #[error("{0}")]
    Name(#[from] NameError),
    /// Two parts have the same name, or there are too many entries.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl Bundle {
    /// Joins these sources, each under its name.
    ///
    /// # Errors
    /// When two names collide or the whole breaks a limit of manifests.
    pub fn new(named: Vec<(RelPath, Box<dyn BlockSource>)>) -> Result<Bundle, BundleError> {
        let mut rows: Vec<Row> = Vec::new();
        for (part, (name, source)) in named.iter().enumerate() {
            rows.extend(entries_of(part, name, source.manifest())?);
        }
        rows.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let (entries, places) = rows.into_iter().unzip();
        let manifest = Manifest { root_kind: RootKind::Dir, entries };
        manifest.validate()?;
        let parts = named.into_iter().map(|(_, source)| source).collect();
        Ok(Bundle { parts, manifest: Arc::new(manifest), places })
    }

    fn place(&self, file: u32, block: u64) -> Result<(usize, u32), SourceError> {
        let place = self.places.get(file as usize).copied().flatten();
        place.ok_or(SourceError::NoSuchBlock { file, block })
    }
}

fn entries_of(part: usize, name: &RelPath, manifest: &Manifest) -> Result<Vec<Row>, BundleError> {
    let numbered = manifest.entries.iter().zip(0u32..);
    match manifest.root_kind {
        RootKind::File => {
            let renamed = |entry: &Entry| Entry { path: name.clone(), ..entry.clone() };
            Ok(numbered.map(|(entry, n)| (renamed(entry), Some((part, n)))).collect())
        }
        RootKind::Dir => {
            let mut rows = vec![(directory(name), None)];
            for (entry, n) in numbered {
                let path = RelPath::new(&format!("{}/{}", name.as_str(), entry.path.as_str()))?;
                rows.push((Entry { path, ..entry.clone() }, Some((part, n))));
            }
            Ok(rows)
        }
    }
}

/// A directory that stands for a whole part. Its own time and mode were not listed.
fn directory(name: &RelPath) -> Entry {
    let (mode, mtime) = (Mode::new(0o755), NOT_LISTED);
    Entry { path: name.clone(), kind: Kind::Dir, size: 0, mode, mtime }
}

impl BlockSource for Bundle {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let (part, inner) = self.place(file, block)?;
        self.parts[part].load_block(inner, block, out)
    }

    fn file_root_while(
        &mut self,
        file: u32,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Value, SourceError> {
        let (part, inner) = self.place(file, 0)?;
        self.parts[part].file_root_while(inner, wanted)
    }
}

const NOT_LISTED: Mtime = match Mtime::new(0, 0) {
    Ok(time) => time,
    Err(_) => panic!("zero nanoseconds are below a second"),
};

#[cfg(test)]
mod tests {
    use super::*;
    use gtp_store::{Pattern, SyntheticSource, block_value};

    fn name(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn parts_appear_beneath_their_names_and_give_their_own_blocks() {
        let file = SyntheticSource::file(name("x"), 10, Pattern::Random { seed: 1 });
        let dir = SyntheticSource::dir(&[5, 6], Pattern::Zeros);
        let mut bundle = Bundle::new(vec![
            (name("tree"), Box::new(dir) as Box<dyn BlockSource>),
            (name("file"), Box::new(file)),
        ])
        .unwrap();
        let paths: Vec<_> =
            bundle.manifest().entries.iter().map(|e| e.path.as_str().to_owned()).collect();
        assert_eq!(paths, ["file", "tree", "tree/00000000", "tree/00000001"]);
        let mut block = gtp_store::new_framed();
        bundle.load_block(3, 0, &mut block).unwrap();
        assert_eq!(block[..6], [0; 6]);
        assert_eq!(block[6..], block_value(6, 0, &[0; 6]));
        assert!(bundle.load_block(1, 0, &mut block).is_err(), "a directory has no block");
    }

    #[test]
    fn two_parts_of_one_name_are_refused() {
        let part = || {
            let file = SyntheticSource::file(name("x"), 1, Pattern::Zeros);
            (name("same"), Box::new(file) as Box<dyn BlockSource>)
        };
        assert!(Bundle::new(vec![part(), part()]).is_err());
    }
}
