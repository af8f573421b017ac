//! Several objects as one: what `put` sends when it is given more than one path.
//!
//! Each object has a name, beneath which its entries appear, or none: then its entries stand beside
//! the other objects. A file's entry is the name itself. The joined listing is sorted like any
//! other, and a table leads from its entries back to the parts. What cannot travel under its new
//! name is left out and said so. It knows nothing of where the parts come from.

use std::sync::Arc;

use gtp_store::{
    Attributes, BlockSource, Entry, Framed, Kind, Manifest, ManifestError, Mode, Mtime, NameError,
    RelPath, RootKind, SourceError, Value, escaped,
};

/// Sources joined into one directory object.
pub struct Bundle {
    parts: Vec<Box<dyn BlockSource>>,
    joined: Arc<Joined>,
}

/// The joined listing of several sources. Bundles of the same sources may share it.
pub struct Joined {
    manifest: Arc<Manifest>,
    /// For each entry its part and its place there; `None` for directories that stand for a part.
    places: Vec<Option<(usize, u32)>>,
    skipped: Vec<(String, NameError)>,
}

/// One of the objects that are joined.
pub struct Part {
    /// Under which name; `None` puts a directory's entries beside the other parts.
    pub name: Option<RelPath>,
    /// Where its blocks come from.
    pub source: Box<dyn BlockSource>,
}

/// An entry of the whole, with its part and its place there.
type Row = (Entry, Option<(usize, u32)>);

/// Why sources cannot be joined.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Two parts have the same name, or there are too many entries.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl Joined {
    /// Joins these listings, each under a name or beside the others. Directories of one path become
    /// one.
    ///
    /// # Errors
    /// When a file's name collides with another or the whole breaks a limit of manifests.
    pub fn of<'a>(
        parts: impl IntoIterator<Item = (Option<&'a RelPath>, &'a Manifest)>,
    ) -> Result<Joined, BundleError> {
        let (mut rows, mut skipped): (Vec<Row>, Vec<_>) = (Vec::new(), Vec::new());
        for (number, (name, manifest)) in parts.into_iter().enumerate() {
            rows.extend(entries_of(number, name, manifest, &mut skipped));
        }
        rows.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        let is_dir = |row: &Row| row.0.kind == Kind::Dir;
        rows.dedup_by(|b, a| a.0.path == b.0.path && is_dir(a) && is_dir(b));
        let (entries, places) = rows.into_iter().unzip();
        let manifest = Manifest { root_kind: RootKind::Dir, own: None, entries };
        manifest.validate()?;
        Ok(Joined { manifest: Arc::new(manifest), places, skipped })
    }

    /// What cannot travel under its new name, escaped for display, and why.
    pub fn skipped(&self) -> &[(String, NameError)] {
        &self.skipped
    }
}

impl Bundle {
    /// Joins these sources.
    ///
    /// # Errors
    /// As [`Joined::of`].
    pub fn new(parts: Vec<Part>) -> Result<Bundle, BundleError> {
        let listings = parts.iter().map(|part| (part.name.as_ref(), &**part.source.manifest()));
        let joined = Arc::new(Joined::of(listings)?);
        Ok(Bundle::of(joined, parts.into_iter().map(|part| part.source).collect()))
    }

    /// The bundle of the sources whose listings were joined, in the same order.
    pub fn of(joined: Arc<Joined>, parts: Vec<Box<dyn BlockSource>>) -> Bundle {
        Bundle { parts, joined }
    }

    /// What cannot travel under its new name, escaped for display, and why.
    pub fn skipped(&self) -> &[(String, NameError)] {
        self.joined.skipped()
    }

    fn place(&self, file: u32, block: u64) -> Result<(usize, u32), SourceError> {
        let place = self.joined.places.get(file as usize).copied().flatten();
        place.ok_or(SourceError::NoSuchBlock { file, block })
    }
}

fn entries_of(
    part: usize,
    name: Option<&RelPath>,
    manifest: &Manifest,
    skipped: &mut Vec<(String, NameError)>,
) -> Vec<Row> {
    let numbered = manifest.entries.iter().zip(0u32..);
    let Some(name) = name else {
        return numbered.map(|(entry, n)| (entry.clone(), Some((part, n)))).collect();
    };
    if manifest.root_kind == RootKind::File {
        let renamed = |entry: &Entry| Entry { path: name.clone(), ..entry.clone() };
        return numbered.map(|(entry, n)| (renamed(entry), Some((part, n)))).collect();
    }
    let mut rows = vec![(directory(name, manifest), None)];
    for (entry, n) in numbered {
        let full = format!("{}/{}", name.as_str(), entry.path.as_str());
        match RelPath::new(&full) {
            Ok(path) => rows.push((Entry { path, ..entry.clone() }, Some((part, n)))),
            Err(why) => skipped.push((escaped(&full), why)),
        }
    }
    rows
}

/// A directory that stands for a whole part. A part that does not say its own mode and time is
/// private and as new as the newest that is in it.
fn directory(name: &RelPath, manifest: &Manifest) -> Entry {
    let newest = || manifest.entries.iter().map(|entry| entry.mtime).max();
    let unsaid = || Attributes { mode: Mode::new(0o700), mtime: newest().unwrap_or(NOT_LISTED) };
    let Attributes { mode, mtime } = manifest.own.unwrap_or_else(unsaid);
    Entry { path: name.clone(), kind: Kind::Dir, size: 0, mode, mtime }
}

impl BlockSource for Bundle {
    fn manifest(&self) -> &Arc<Manifest> {
        &self.joined.manifest
    }

    fn load_block(&mut self, file: u32, block: u64, out: &mut Framed) -> Result<(), SourceError> {
        let (part, inner) = self.place(file, block)?;
        self.parts[part].load_block(inner, block, out)
    }

    fn device(&self) -> Option<u64> {
        self.parts.iter().find_map(|part| part.device())
    }

    fn take_remarks(&mut self) -> Vec<(u32, SourceError)> {
        let mut all = Vec::new();
        for (part, source) in self.parts.iter_mut().enumerate() {
            for (inner, remark) in source.take_remarks() {
                let place = Some((part, inner));
                let file = (0u32..).zip(&self.joined.places).find(|(_, at)| **at == place);
                all.extend(file.map(|(file, _)| (file, remark)));
            }
        }
        all
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
        let tree = Part { name: Some(name("tree")), source: Box::new(dir) };
        let file = Part { name: Some(name("file")), source: Box::new(file) };
        let mut bundle = Bundle::new(vec![tree, file]).unwrap();
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
            Part { name: Some(name("same")), source: Box::new(file) as Box<dyn BlockSource> }
        };
        assert!(Bundle::new(vec![part(), part()]).is_err());
    }
}
