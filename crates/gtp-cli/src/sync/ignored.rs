//! `--ignore-files`: what `.gtpignore`, `.ignore` and `.gitignore` in the source leave out.
//!
//! Each file concerns its directory and all beneath it, by the rules of git. A file that is deeper
//! wins over one above it, and in one directory the first of the names above wins; a pattern with
//! `!` takes in again. The files are read before anything is decided, so both trees are judged by
//! the source's. They may be a stranger's, so their number, their length and the work that they
//! make are bounded.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gtp::replica::Node;
use gtp::{Failure, FailureKind};

use super::gitignore::{Patterns, Says};
use super::globs::Steps;
use super::plan::ancestors;

/// The rules of all such files, by the directory that holds them, the strongest first.
#[derive(Debug, Clone, Default)]
pub struct Ignored {
    dirs: HashMap<String, Vec<Patterns>>,
    /// Steps of comparing names with patterns: taken, and allowed.
    steps: Arc<AtomicU64>,
    steps_max: u64,
}

/// The names of such files, the strongest first.
const NAMES: [&str; 3] = [".gtpignore", ".ignore", ".gitignore"];

/// Longest of them in bytes; a longer one is none that somebody wrote.
const LENGTH_MAX: u64 = 1 << 20;

/// Most such files that are read of a source elsewhere, and their bytes together: a far end could
/// tell of any number.
const FAR_MAX: usize = 16_384;
const FAR_BYTES_MAX: u64 = 4 << 20;

/// Steps of comparing that are allowed at all, and for each name besides; a nanosecond or two each.
/// A hundred patterns with stars take some thousand for a name.
const STEPS_MAX: u64 = 500_000_000;
const STEPS_OF_NAME: u64 = 20_000;

/// Most mistakes of one file that are told.
const MISTAKES_MAX: usize = 5;

/// Such files among the nodes of a survey, in the order in which they are read.
pub fn found(nodes: &[Node]) -> Vec<&Node> {
    let mut found: Vec<(usize, &Node)> =
        nodes.iter().filter_map(|node| Some((rank(node)?, node))).collect();
    found.sort_by_key(|(rank, node)| (*rank, node.name()));
    found.into_iter().map(|(_, node)| node).collect()
}

/// How many of these files, from the first one, are read if they are elsewhere.
pub fn readable(found: &[&Node]) -> usize {
    let mut room = FAR_BYTES_MAX;
    let fits = |node: &&&Node| match room.checked_sub(node.size) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    found.iter().take(FAR_MAX).take_while(fits).count()
}

impl Ignored {
    /// The rules of files that [`found`] has found, each with its text as `read` has it. Returns as
    /// well what could not be read, with the reason.
    pub fn read(
        found: Vec<&Node>,
        mut read: impl FnMut(&Node) -> Result<String, String>,
    ) -> (Ignored, Vec<String>) {
        let (mut ignored, mut bad) = (Ignored::default(), Vec::new());
        for node in found {
            let (rules, mistakes) = match read(node) {
                Ok(text) => rules(&text),
                Err(why) => (Patterns::default(), vec![why]),
            };
            let dir = node.name().rsplit_once('/').map_or("", |(dir, _)| dir);
            ignored.dirs.entry(dir.to_owned()).or_default().push(rules);
            let shown = gtp_text::of_text(node.name());
            bad.extend(mistakes.into_iter().map(|why| format!("{shown}: {why}")));
        }
        (ignored, bad)
    }

    /// Allows the work of comparing so many names.
    pub fn allow(&mut self, names: usize) {
        self.steps_max = (names as u64).saturating_mul(STEPS_OF_NAME).saturating_add(STEPS_MAX);
    }

    /// Checks that all names were compared.
    ///
    /// # Errors
    /// [`FailureKind::Other`] if that took more work than is allowed. Then nothing that was said
    /// of names holds.
    pub fn check(&self) -> Result<(), Failure> {
        if self.steps.load(Ordering::Relaxed) <= self.steps_max {
            return Ok(());
        }
        let text = "--ignore-files: the patterns of SRC are too many or too long for its names: \
                    comparing them would take too long";
        Err(Failure::new(FailureKind::Other, text))
    }

    /// Whether a name is left out by itself, if [`Ignored::check`] finds nothing.
    pub fn has(&self, path: &str, is_dir: bool) -> bool {
        if self.dirs.is_empty() || self.check().is_err() {
            return false;
        }
        let most = self.steps_max.saturating_sub(self.steps.load(Ordering::Relaxed));
        let mut steps = Steps { taken: 0, most };
        let says = self.say(path, is_dir, &mut steps);
        self.steps.fetch_add(steps.taken, Ordering::Relaxed);
        says == Some(Says::LeaveOut)
    }

    /// What the strongest file says that says anything. Adds to `steps` what that took.
    fn say(&self, path: &str, is_dir: bool, steps: &mut Steps) -> Option<Says> {
        for above in ancestors(path).skip(1).chain([""]) {
            let beneath = match above {
                "" => path,
                above => path.strip_prefix(above).unwrap_or(path).trim_start_matches('/'),
            };
            steps.taken += 1;
            for rules in self.dirs.get(above).into_iter().flatten() {
                let says = rules.say(beneath, is_dir, steps);
                if says.is_some() {
                    return says;
                }
            }
        }
        None
    }
}

/// The strength of such a file, the strongest first; `None` for another node.
fn rank(node: &Node) -> Option<usize> {
    let name = node.name().rsplit('/').next()?;
    let rank = NAMES.iter().position(|known| *known == name)?;
    node.is_file().then_some(rank)
}

/// The content of a file here that is no link.
///
/// # Errors
/// Why it cannot be read, for people.
pub fn text(path: &Path) -> Result<String, String> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let read = || {
        let file = OpenOptions::new().read(true).custom_flags(no_link).open(path)?;
        let mut text = String::new();
        file.take(LENGTH_MAX + 1).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    let text = read().map_err(|error| error.to_string())?;
    match text.len() as u64 > LENGTH_MAX {
        true => Err("too long for a file of patterns".into()),
        false => Ok(text),
    }
}

/// The content of a file elsewhere, as it was told.
///
/// # Errors
/// Why it is not known, for people.
pub fn told(content: Option<Vec<u8>>) -> Result<String, String> {
    let content =
        content.ok_or("it has changed meanwhile, is unreadable, or longer than 64 KiB")?;
    String::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())
}

/// The rules of a text, and what is wrong in it.
fn rules(text: &str) -> (Patterns, Vec<String>) {
    let (mut patterns, mut bad, mut more) = (Patterns::default(), Vec::new(), 0);
    for line in text.trim_start_matches('\u{feff}').lines() {
        match patterns.add(line) {
            Ok(()) => {}
            Err(why) if bad.len() < MISTAKES_MAX => bad.push(why),
            Err(_) => more += 1,
        }
    }
    if more > 0 {
        bad.push(format!("{} cannot be used", gtp_text::count(more, "further line")));
    }
    (patterns, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(files: &[(&str, &str)]) -> Ignored {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let at = dir.path().join(path);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::fs::write(at, text).unwrap();
        }
        let replica = gtp::replica::Replica::beneath(dir.path(), None).unwrap();
        let survey = gtp::tree::survey_here(&replica, gtp::replica::Asked::default()).unwrap();
        let read = |file: &Node| text(&dir.path().join(file.name()));
        let (mut ignored, bad) = Ignored::read(found(&survey.nodes), read);
        assert_eq!(bad, [""; 0]);
        ignored.allow(survey.nodes.len());
        ignored
    }

    #[test]
    fn of_files_elsewhere_only_so_many_and_so_long_are_read() {
        let of = |name: &str, size: u64| Node {
            path: Some(gtp::RelPath::new(name).unwrap()),
            size,
            kind: gtp::replica::NodeKind::File,
            mode: 0o644,
            mtime: gtp::Mtime::new(0, 0).unwrap(),
            uid: 0,
            gid: 0,
            same: None,
            hash: None,
            xattrs: Vec::new(),
        };
        let empty = of(".ignore", 0);
        assert_eq!(readable(&vec![&empty; FAR_MAX]), FAR_MAX);
        assert_eq!(readable(&vec![&empty; FAR_MAX + 1]), FAR_MAX);
        let (half, large) = (of(".ignore", FAR_BYTES_MAX / 2), of("d/.ignore", u64::MAX));
        assert_eq!(readable(&[&half, &half, &empty]), 3);
        assert_eq!(readable(&[&half, &half, &half, &empty]), 2);
        assert_eq!(readable(&[&empty, &large]), 1);
    }

    #[test]
    fn patterns_that_make_more_work_than_is_allowed_are_given_up_and_that_is_a_failure() {
        let text = "*a*a*a*a*a*a*a*a*b?\n".repeat(10_000);
        let mut ignored = ignored(&[(".ignore", &text)]);
        (ignored.steps_max, ignored.steps) = (1_000_000, Arc::default());
        let name = "a".repeat(200);
        let before = ignored.steps.load(Ordering::Relaxed);
        while ignored.check().is_ok() {
            assert!(!ignored.has(&name, false));
        }
        let taken = ignored.steps.load(Ordering::Relaxed) - before;
        // One pattern is compared to its end.
        let most = ignored.steps_max + 20 * 201;
        assert!((ignored.steps_max..=most).contains(&taken), "{taken}");
        assert!(!ignored.has(&name, false));
        assert_eq!(ignored.steps.load(Ordering::Relaxed) - before, taken, "no more work");
        assert!(ignored.check().unwrap_err().text.contains("too many or too long"));
    }

    #[test]
    fn of_many_mistakes_in_a_file_the_first_are_told_and_the_others_counted() {
        let (_, bad) = rules(&"[\n".repeat(100));
        assert_eq!(bad.len(), MISTAKES_MAX + 1);
        assert_eq!(bad[MISTAKES_MAX], "95 further lines cannot be used");
    }

    #[test]
    fn rules_mean_what_they_mean_to_git_and_deeper_files_win() {
        let ignored = ignored(&[
            (".gitignore", "*.o\n/top\nbuild/\n# none\n\n!keep.o\n"),
            ("d/.gitignore", "!x.o\nown\n"),
            ("d/.ignore", "x.o\n"),
            ("d/.gtpignore", "!y.o\n"),
        ]);
        for (path, is_dir, expected) in [
            ("a.o", false, true),
            ("a.c", false, false),
            ("keep.o", false, false),
            ("top", false, true),
            ("e/top", false, false),
            ("e/build", true, true),
            ("e/build", false, false),
            ("d/x.o", false, true),
            ("d/y.o", false, false),
            ("d/e/z.o", false, true),
            ("d/e/own", false, true),
            ("own", false, false),
        ] {
            assert_eq!(ignored.has(path, is_dir), expected, "{path}");
        }
    }
}
