//! The files of the repository, read once.
//!
//! The list is git's: tracked files and new ones that are not ignored, so that a file is held to
//! the rules before it is committed. Where there is no git (an unpacked archive) it is a walk
//! that leaves out build directories. Only this file touches the disk.

use std::path::Path;
use std::process::Command;

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its text; none when it is not UTF-8.
    pub text: Option<String>,
}

/// All files of the repository at `root`, sorted by path.
///
/// # Errors
/// A sentence, when the tree cannot be listed or a file cannot be read.
pub fn list(root: &Path) -> Result<Vec<File>, String> {
    let mut paths = match git_paths(root) {
        Some(paths) => paths,
        None => walk(root)?,
    };
    paths.sort();
    paths.dedup();
    let present = paths.into_iter().filter(|path| root.join(path).is_file());
    present.map(|path| read(root, path)).collect()
}

/// Reads one file.
fn read(root: &Path, path: String) -> Result<File, String> {
    let bytes = std::fs::read(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
    let size = bytes.len() as u64;
    Ok(File { path, size, text: String::from_utf8(bytes).ok() })
}

/// The paths that git knows or would add, or none when git cannot say.
fn git_paths(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Every file beneath `root` but build products and hidden directories other than `.ci`.
fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        let entries =
            std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let skipped = name == "target" || (name.starts_with('.') && name != ".ci");
            if path.is_dir() && !skipped {
                waiting.push(path);
            } else if path.is_file() {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                paths.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_holds_this_file_and_no_build_products() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = list(&root).expect("the repository can be listed");
        assert!(files.iter().any(|file| file.path == "crates/tidy/src/tree.rs"));
        assert!(files.iter().all(|file| !file.path.starts_with("target/")));
    }

    #[test]
    fn a_walk_finds_sources_too() {
        let paths = walk(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("a readable directory");
        assert!(paths.iter().any(|path| path == "src/tree.rs"));
    }
}
