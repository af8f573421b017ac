//! The settings of `gtpd`: options, then the environment, then a file, which may be read again.
//!
//! The file's keys are the long options' names, and it takes the place of their built-in values. A
//! key that is none, or a value that its option does not take, is refused with its line: a misspelt
//! limit must not be a limit ignored. What the daemon does with the settings is unknown here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Error, FromArgMatches};

use crate::gtpd_options::{Options, check};
use crate::origins::Origins;
use crate::toml_words::{self, Lines, Said};

/// All settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What they come to.
    pub options: Options,
    /// What the file says and an option or the environment says otherwise: a sentence for each.
    pub overridden: Vec<String>,
    /// Where each comes from.
    pub origins: Origins,
}

/// What the file says, option by option.
struct File {
    path: PathBuf,
    values: BTreeMap<String, Said>,
}

/// Options that the file may not set: they say which file, and where the daemon is. A process that
/// starts the daemon, or a service's unit, says that.
const NOT_IN_FILE: [&str; 7] =
    ["help", "version", "man-page", "check", "config", "socket", "socket-on-stdin"];

/// Reads the settings: those of a command line, and those of the file that it or the environment
/// names.
///
/// # Errors
/// What the words or the file have that cannot be; of the file with its line.
pub fn read(words: impl IntoIterator<Item = OsString>) -> Result<Settings, Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let given = Options::command().try_get_matches_from(&words)?;
    let options = Options::from_arg_matches(&given)?;
    let bad = |why: String| Options::command().error(ErrorKind::ValueValidation, why);
    let settings = match options.file() {
        Some(path) if !options.man_page => File::load(path).map_err(bad)?.complete(&words)?,
        Some(_) | None => {
            let origins = Origins::of(&Options::command(), &given, None, &BTreeMap::new());
            Settings { options, overridden: Vec::new(), origins }
        }
    };
    check(&settings.options, &settings.origins).map_err(bad)?;
    Ok(settings)
}

/// Settings that count from the next start on, where they differ.
pub fn later(now: &Options, new: &Options) -> Vec<&'static str> {
    let both = fixed(now).into_iter().zip(fixed(new));
    both.filter(|((_, now), (_, new))| now != new).map(|((name, _), _)| name).collect()
}

/// The settings that a daemon which runs cannot change, with their values.
fn fixed(options: &Options) -> [(&'static str, String); 4] {
    let said = |value: &dyn std::fmt::Debug| format!("{value:?}");
    [
        ("interval", said(&options.interval)),
        ("law", said(&options.law)),
        ("metrics", said(&options.metrics)),
        ("web", said(&options.web)),
    ]
}

impl File {
    /// Reads a file, which must be there.
    fn load(path: &Path) -> Result<File, String> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        let values = parse(&text).map_err(|why| format!("{}{why}", path.display()))?;
        Ok(File { path: path.to_owned(), values })
    }

    /// The settings where nothing else says otherwise.
    fn complete(&self, words: &[OsString]) -> Result<Settings, Error> {
        let command = Options::command().mut_args(|arg| match self.value(&arg) {
            Some(value) => arg.clone().default_value(value.to_owned()),
            None => arg,
        });
        let matches = command.clone().try_get_matches_from(words)?;
        let overridden = self.overridden(&command, &matches);
        let origins = Origins::of(&command, &matches, Some(&self.path), &self.values);
        Ok(Settings { options: Options::from_arg_matches(&matches)?, overridden, origins })
    }

    fn value(&self, option: &Arg) -> Option<&str> {
        self.values.get(option.get_long()?).map(|said| said.value.as_str())
    }

    fn overridden(&self, command: &Command, given: &ArgMatches) -> Vec<String> {
        let sentence = |option: &Arg| {
            let (name, value) = (option.get_long()?, self.value(option)?);
            let id = option.get_id().as_str();
            let raw: Vec<_> = given.get_raw(id)?.map(|word| word.to_string_lossy()).collect();
            let by = match given.value_source(id)? {
                ValueSource::CommandLine => format!("--{name}"),
                ValueSource::EnvVariable => option.get_env()?.to_string_lossy().into_owned(),
                _ => return None,
            };
            let path = self.path.display();
            let said = format!("`{name} = {value:?}` in {path} has no effect: {by} says otherwise");
            (raw.join(",") != value).then_some(said)
        };
        command.get_arguments().filter_map(sentence).collect()
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Said>, String> {
    let (command, lines) = (Options::command(), Lines::of(text));
    let mut values = BTreeMap::new();
    for (key, value) in toml_words::table(text)? {
        let line = lines.at(&[&key]);
        let name = key.replace('_', "-");
        let option = command.get_arguments().find(|arg| arg.get_long() == Some(&name));
        let option = option.filter(|_| !NOT_IN_FILE.contains(&name.as_str()));
        let option = option.ok_or_else(|| format!(", line {line}: {}", unknown(&key, &name)))?;
        let value = toml_words::as_word(&value)
            .ok_or_else(|| format!(", line {line}: `{key}` needs a string, a number or a list"))?;
        toml_words::check(option, &value)
            .map_err(|why| format!(", line {line}: `{key}`: {why}"))?;
        values.insert(name, Said { key, value, line });
    }
    Ok(values)
}

/// Why a key is no setting, and what to write instead.
fn unknown(key: &str, name: &str) -> String {
    match NOT_IN_FILE.contains(&name) {
        true => format!("`{key}` is not for the file: give it as --{name}"),
        false => {
            format!("unknown setting `{key}`; the settings are the long options of `gtpd --help`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &str, words: &[&str]) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gtpd.toml");
        std::fs::write(&path, file).unwrap();
        let words = [&["gtpd", "--config", path.to_str().unwrap()], words].concat();
        let read = read(words.into_iter().map(OsString::from));
        read.map_err(|error| error.to_string().replace(path.to_str().unwrap(), "FILE"))
    }

    #[test]
    fn a_line_that_is_no_setting_is_refused_by_its_number() {
        for (text, why) in [
            ("reserve = \"1Mbit\"\nuser-weigth = [\"7=2\"]\n", "FILE, line 2: unknown setting"),
            ("# c\nuser_max = [\"7=2Mbit\", \"8\"]\n", "FILE, line 2: `user_max`: "),
            ("\n\nsocket = \"x\"\n", "FILE, line 3: `socket` is not for the file"),
            ("[metrics]\naddress = 1\n", "FILE, line 1: `metrics` needs a string"),
            ("law = \"grant\"\nlaw = \"grant\"\n", "FILE, line 2: duplicate"),
        ] {
            let refused = settings(text, &[]).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn the_file_takes_the_place_of_what_is_built_in_and_the_command_line_that_of_the_file() {
        let file = "law = \"endnode\"\nuser-weight = [\"7=2\", \"8=3\"]\nreserve = \"1Mbit\"\n";
        let Settings { options, overridden, .. } = settings(file, &[]).unwrap();
        assert_eq!(options.user_weight, [(7, 2.0), (8, 3.0)]);
        assert_eq!(options.reserve, Some(gtp::Rate::from_mbps(1)));
        assert_eq!((format!("{:?}", options.law), overridden), ("Endnode".into(), Vec::new()));
        let words = ["--user-weight", "9=1", "--law", "grant", "--reserve", "1Mbit"];
        let Settings { options, overridden, .. } = settings(file, &words).unwrap();
        assert_eq!(options.user_weight, [(9, 1.0)], "lists are not joined");
        assert_eq!(overridden.len(), 2, "{overridden:?}");
        assert!(overridden[0].contains("--user-weight says otherwise"), "{overridden:?}");
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused_wherever_each_comes_from() {
        let max = "# c\nuser_max = [\"7=1Mbit\"]\n";
        let both = "capacity-in = \"80Mbit\"\n\nreserve = \"90Mbit\"\n";
        let pages = "metrics = \"127.0.0.1:7\"\nweb = \"127.0.0.1:7\"\n";
        for (file, words, why) in [
            (
                max,
                &["--user-guarantee", "7=2Mbit"][..],
                "--user-guarantee of user 7 is more than `user_max` (line 2)",
            ),
            (
                "user-max = [\"7=1Mbit\", \"7=2Mbit\"]\n",
                &[],
                "FILE, line 1: `user-max` names user 7 twice",
            ),
            (both, &[], "FILE, line 3: `reserve` leaves nothing of `capacity-in` (line 1)"),
            (
                both,
                &["--capacity-in", "70Mbit"],
                "FILE, line 3: `reserve` leaves nothing of --capacity-in",
            ),
            (
                "",
                &["--capacity-in", "7Mbit", "--reserve", "9Mbit"],
                "--reserve leaves nothing of --capacity-in",
            ),
            (
                "\ninterface = \"nosuch0\"\n",
                &[],
                "FILE, line 2: `interface`: this machine has no network interface `nosuch0`",
            ),
            (pages, &[], "FILE, line 2: `web` is the address of `metrics` (line 1)"),
        ] {
            let refused = settings(file, words).unwrap_err();
            assert!(refused.contains(&format!("error: {why}")), "{refused}");
        }
    }

    #[test]
    fn a_page_that_others_could_reach_is_refused_with_its_line() {
        for name in ["metrics", "web"] {
            let refused = settings(&format!("# c\n{name} = \"0.0.0.0:9811\"\n"), &[]).unwrap_err();
            assert!(refused.contains(&format!("FILE, line 2: `{name}`: ")), "{refused}");
            assert!(refused.contains("name a loopback address"), "{refused}");
        }
    }

    #[test]
    fn only_what_needs_a_new_start_is_named() {
        let [old, new] = ["metrics = \"127.0.0.1:1\"", "reserve = \"2Mbit\"\nlaw = \"endnode\""]
            .map(|text| settings(text, &[]).unwrap().options);
        assert_eq!(later(&old, &new), ["law", "metrics"]);
        assert!(later(&old, &old).is_empty());
    }
}
