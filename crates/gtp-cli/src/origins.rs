//! Where the values of settings come from: an option, a variable of the environment, or a file.
//!
//! What is wrong with a value is said with the place where it can be mended. Which settings there
//! are, and what may be wrong with them, is unknown here: `gtp` and `gtpd` each have their own.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::toml_words::Said;

/// Where the values of a command's options come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// The settings that somebody has set.
    all: BTreeMap<String, Origin>,
    /// The file, if there is one.
    file: Option<PathBuf>,
}

/// Where one value comes from.
#[derive(Clone, Debug)]
enum Origin {
    /// An option on the command line, or a variable of the environment: its name.
    Name(String),
    /// The file.
    Line { key: String, line: usize },
}

impl Origins {
    /// Those of a command line, where `said` of the file stands for what is built in.
    pub fn of(
        command: &Command,
        given: &ArgMatches,
        file: Option<&Path>,
        said: &BTreeMap<String, Said>,
    ) -> Origins {
        let option = |id: &clap::Id| command.get_arguments().find(|arg| arg.get_id() == id);
        let origin = |id: &clap::Id| {
            let arg = option(id)?;
            let name = arg.get_long()?;
            let origin = match given.value_source(id.as_str())? {
                ValueSource::CommandLine => Origin::Name(format!("--{name}")),
                ValueSource::EnvVariable => {
                    Origin::Name(arg.get_env()?.to_string_lossy().into_owned())
                }
                _ => {
                    let Said { key, line, .. } = said.get(name)?;
                    Origin::Line { key: key.clone(), line: *line }
                }
            };
            Some((name.to_owned(), origin))
        };
        Origins { all: given.ids().filter_map(origin).collect(), file: file.map(Path::to_owned) }
    }

    /// Whether somebody has set it.
    pub fn is_set(&self, setting: &str) -> bool {
        self.all.contains_key(setting)
    }

    /// The file of settings.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// A setting as whoever set it has named it.
    pub fn name(&self, setting: &str) -> String {
        match self.all.get(setting) {
            Some(Origin::Name(name)) => name.clone(),
            Some(Origin::Line { key, .. }) => format!("`{key}`"),
            None => format!("--{setting}"),
        }
    }

    /// The same, with its line if it is one of the file.
    pub fn name_and_line(&self, setting: &str) -> String {
        match self.all.get(setting) {
            Some(Origin::Line { line, .. }) => format!("{} (line {line})", self.name(setting)),
            Some(Origin::Name(_)) | None => self.name(setting),
        }
    }

    /// A sentence that begins with the setting, behind the place in the file.
    pub fn sentence(&self, setting: &str, rest: impl Display) -> String {
        let name = self.name(setting);
        match (self.all.get(setting), &self.file) {
            (Some(Origin::Line { line, .. }), Some(file)) => {
                format!("{}, line {line}: {name}{rest}", file.display())
            }
            (Some(Origin::Line { .. } | Origin::Name(_)) | None, _) => format!("{name}{rest}"),
        }
    }

    /// What is wrong with a setting, behind its place and its name. Of one that nobody has set
    /// only that.
    pub fn blame(&self, setting: &str, why: impl Display) -> String {
        match self.is_set(setting) {
            true => self.sentence(setting, format_args!(": {why}")),
            false => why.to_string(),
        }
    }

    /// Says so if others may write the file, or the directory that it is in.
    pub fn exposed(&self) -> Option<String> {
        exposed(self.file.as_deref()?)
    }
}

/// Bits by which group and others may write, and the one by which only its owner may replace a file
/// of a directory.
const WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Says so if others may write a file, or the directory that it is in.
pub fn exposed(file: &Path) -> Option<String> {
    let mode = |path: &Path| Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o7777);
    let whole = file.canonicalize().ok()?;
    let dir = whole.parent()?.to_owned();
    let open = |path: &PathBuf| {
        let mode = mode(path)?;
        let is_open = mode & WRITABLE != 0 && (*path == whole || mode & STICKY == 0);
        is_open.then_some((path.clone(), mode & 0o777))
    };
    let (path, mode) = [whole.clone(), dir].iter().find_map(open)?;
    let path = gtp_text::of_message(&path.display().to_string());
    Some(format!(
        "others may write {path} (mode {mode:03o}), and so decide what this program does; if \
         they have not, run: chmod go-w '{path}'"
    ))
}

#[cfg(test)]
mod tests;
