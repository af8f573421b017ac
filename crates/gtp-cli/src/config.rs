//! The user's configuration file: `config.toml` in the configuration directory, or the one that
//! `GTP_CONFIG_FILE` names, which must be there.
//!
//! Its keys are the long options' names. A value there takes the place of the option's built-in
//! default, in every verb that has the option and takes the value: a control law of transfers is
//! none of streams, and `gtp stream` then says what it uses instead. A key that no verb knows, or a
//! value that none takes, is refused with its line: a misspelt limit must not be a limit ignored.
//! The tables are `host`, `export` and `group`, whose meanings are not known here.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command};
use gtp::Exports;

use crate::args::TransferArgs;
use crate::cp::WayArgs;
use crate::exports;
use crate::hosts::Hosts;
use crate::origins::Origins;
use crate::sync::SyncArgs;
use crate::toml_words::{Lines, Said, as_word, check, table};

/// What the file says, option by option.
#[derive(Debug, Default)]
pub struct File {
    /// Where it is, or would be.
    pub path: Option<PathBuf>,
    /// The hosts that it names.
    pub hosts: Hosts,
    /// What a server of this user exports, and its groups, if it names either.
    pub exports: Option<Exports>,
    values: BTreeMap<String, Said>,
}

/// Options that the file may not set, beside those of `sync` alone: what is named there is meant
/// once.
const NOT_IN_FILE: [&str; 7] = ["help", "version", "mirror", "blake3", "trace", "tun", "install"];

/// What `sync` does is said with each command, so that a forgotten line never deletes anything.
static OF_SYNC: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let shared = WayArgs::augment_args(TransferArgs::augment_args(Command::new("shared")));
    let shared: HashSet<&str> = shared.get_arguments().filter_map(Arg::get_long).collect();
    let all = SyncArgs::augment_args(Command::new("sync"));
    let own = all.get_arguments().filter_map(Arg::get_long).filter(|name| !shared.contains(name));
    own.map(str::to_owned).collect()
});

impl File {
    /// Reads the file; no file is an empty one.
    ///
    /// # Errors
    /// A sentence that names the file and the line.
    pub fn load() -> Result<File, String> {
        let named = std::env::var_os("GTP_CONFIG_FILE").filter(|name| !name.is_empty());
        let (path, is_named) = match (named, gtp::config_dir()) {
            (Some(name), _) => (PathBuf::from(name), true),
            (None, Ok(dir)) => (dir.join("config.toml"), false),
            (None, Err(_)) => return Ok(File::default()),
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if is_absent(&e) && !is_named => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let read = parse(&text).map_err(|why| format!("{}{why}", path.display()))?;
        Ok(File { path: Some(path), ..read })
    }

    /// The value for an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|said| said.value.as_str())
    }

    /// What is wrong with a value of it, behind its place and its key.
    pub fn blame(&self, name: &str, why: impl std::fmt::Display) -> String {
        let file = self.path.as_deref().unwrap_or(Path::new("")).display();
        match self.values.get(name) {
            Some(Said { key, line, .. }) => format!("{file}, line {line}: `{key}`: {why}"),
            None => why.to_string(),
        }
    }

    /// Where the values of a verb's options come from.
    pub fn origins(&self, verb: &Command, given: &ArgMatches) -> Origins {
        Origins::of(verb, given, self.path.as_deref(), &self.values)
    }

    /// The command with the file's values as defaults.
    pub fn as_defaults(&self, command: Command) -> Command {
        command.mut_subcommands(|verb| verb.mut_args(|arg| self.with_default(arg)))
    }

    fn with_default(&self, arg: Arg) -> Arg {
        let value = arg.get_long().and_then(|name| self.value(name)).map(str::to_owned);
        match value {
            Some(value) if arg.get_long().is_some_and(allowed) && check(&arg, &value).is_ok() => {
                arg.default_value(value).required(false)
            }
            Some(_) | None => arg,
        }
    }

    /// What the file says that a verb does not take and nobody said otherwise: a sentence for
    /// each, with what the verb uses.
    pub fn passed_over(&self, verb: &Command, given: &ArgMatches) -> Vec<String> {
        let path = self.path.as_deref().unwrap_or(Path::new("")).display();
        let sentence = |arg: &Arg| {
            let name = arg.get_long().filter(|name| allowed(name))?;
            let value = self.value(name).filter(|value| check(arg, value).is_err())?;
            let id = arg.get_id().as_str();
            let uses = match given.value_source(id) {
                None => "nothing in its place".into(),
                Some(ValueSource::DefaultValue) => {
                    given.get_raw(id)?.next()?.to_string_lossy().into_owned()
                }
                Some(_) => return None,
            };
            let verb = verb.get_name();
            Some(format!("`{name} = {value:?}` in {path} is not for `gtp {verb}`: it uses {uses}"))
        };
        verb.get_arguments().filter_map(sentence).collect()
    }
}

impl File {
    /// Looks whether a verb takes what the file says for its options, where nobody said otherwise.
    /// A service uses nothing else in its place, nor does who listens use another address.
    ///
    /// # Errors
    /// The place of the first value that it does not take, the key, and why.
    pub fn taken(&self, verb: &Command, given: &ArgMatches) -> Result<(), String> {
        let refused = |arg: &Arg| {
            let name = arg.get_long().filter(|name| allowed(name))?;
            let why = check(arg, self.value(name)?).err()?;
            let source = given.value_source(arg.get_id().as_str());
            let is_free = matches!(source, None | Some(ValueSource::DefaultValue));
            // Who names others to talk to does not listen.
            let listens = !given.try_contains_id("urls").unwrap_or(false);
            let counts = SERVICES.contains(&verb.get_name()) || name == "listen" && listens;
            (is_free && counts).then(|| self.blame(name, why))
        };
        verb.get_arguments().find_map(refused).map_or(Ok(()), Err)
    }

    /// Verbs that have an option and do not take what the file says for it: a sentence for each.
    pub fn of_some_verbs(&self) -> Vec<String> {
        let command = <crate::args::Cli as clap::CommandFactory>::command();
        let sentence = |verb: &Command, arg: &Arg| {
            let name = arg.get_long().filter(|name| allowed(name))?;
            let why = check(arg, self.value(name)?).err()?;
            Some(self.blame(name, format_args!("not for `gtp {}`: {why}", verb.get_name())))
        };
        let of_verb = |verb: &Command| -> Vec<String> {
            verb.get_arguments().filter_map(|arg| sentence(verb, arg)).collect()
        };
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).flat_map(of_verb).collect()
    }

    /// Settings of the file in whose place the environment says otherwise: a sentence for each.
    pub fn overridden(&self, verb: &Command, given: &ArgMatches) -> Vec<String> {
        let sentence = |arg: &Arg| {
            let name = arg.get_long().filter(|name| allowed(name))?;
            let (value, id) = (self.value(name)?, arg.get_id().as_str());
            let variable = arg.get_env()?.display();
            let is_other = given.get_raw(id)?.next()? != value;
            let is_of_environment = given.value_source(id) == Some(ValueSource::EnvVariable);
            let said = format!("`{name} = {value:?}` has no effect: {variable} is set otherwise");
            (is_of_environment && is_other).then_some(said)
        };
        verb.get_arguments().filter_map(sentence).collect()
    }
}

/// Whether there is no such file, also where a home is no directory (`/dev/null`).
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Every option that file and environment know: name, and whether it is a switch.
pub fn options() -> BTreeMap<String, Arg> {
    let command = <crate::args::Cli as clap::CommandFactory>::command();
    let mut found = BTreeMap::new();
    for verb in command.get_subcommands() {
        for arg in verb.get_arguments() {
            if let Some(name) = arg.get_long().filter(|name| allowed(name)) {
                found.entry(name.to_owned()).or_insert_with(|| arg.clone());
            }
        }
    }
    found
}

/// All verbs' options of this name.
pub fn namesakes(name: &str) -> Vec<Arg> {
    let command = <crate::args::Cli as clap::CommandFactory>::command();
    let all = command.get_subcommands().flat_map(|verb| verb.get_arguments());
    all.filter(|arg| arg.get_long() == Some(name)).cloned().collect()
}

fn allowed(name: &str) -> bool {
    !NOT_IN_FILE.contains(&name) && !OF_SYNC.contains(name)
}

fn parse(text: &str) -> Result<File, String> {
    let (mut table, lines) = (table(text)?, Lines::of(text));
    let hosts = table.remove(HOSTS).map(|hosts| Hosts::of(&hosts)).transpose();
    let hosts = hosts.map_err(|bad| {
        let line = lines.at(&[HOSTS, &bad.name, &bad.key]);
        format!(", line {line}: {bad}")
    })?;
    let exports = exports::take(&mut table).map_err(|bad| {
        let line = lines.at(&bad.place);
        format!(", line {line}: {bad}")
    })?;
    let known = options();
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let line = lines.at(&[&key]);
        let name = key.replace('_', "-");
        let Some(option) = known.get(&name) else {
            return Err(format!(", line {line}: {}", unknown(&key, &name, &value)));
        };
        let value = as_word(&value)
            .ok_or_else(|| format!(", line {line}: `{key}` needs a string, a number or a truth"))?;
        let taken = namesakes(&name).iter().any(|option| check(option, &value).is_ok());
        if !taken {
            check(option, &value).map_err(|why| format!(", line {line}: `{key}`: {why}"))?;
        }
        values.insert(name, Said { key, value, line });
    }
    Ok(File { path: None, hosts: hosts.unwrap_or_default(), exports, values })
}

/// Verbs that serve others.
const SERVICES: [&str; 2] = ["serve", "router"];

/// The table of hosts.
const HOSTS: &str = "host";

/// Why a key is no setting, and what to write instead.
fn unknown(key: &str, name: &str, value: &toml::Value) -> String {
    if matches!(value, toml::Value::Table(_)) {
        return format!(
            "settings stand alone, not in a table [{key}]: remove that line (only hosts, exports \
             and groups have tables: [host.NAME], [export.NAME], [group.NAME])"
        );
    }
    if !allowed(name) {
        return format!("`{key}` is meant for one command: give it there as --{name}");
    }
    format!("unknown setting `{key}`; the settings are the long options of `gtp VERB --help`")
}

/// The environment variable that a refused value came from.
pub fn blamed_variable(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    let (argument, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let name = argument.strip_prefix("--")?.split([' ', '=']).next()?;
    if is_named(name, std::env::args_os()) {
        return None;
    }
    let variable = namesakes(name).iter().find_map(Arg::get_env)?.to_string_lossy().into_owned();
    std::env::var(&variable).is_ok_and(|v| v.split(',').any(|v| v == value)).then_some(variable)
}

/// Whether the option is among the words of the command line, which need not be text.
fn is_named(option: &str, words: impl IntoIterator<Item = OsString>) -> bool {
    let (alone, joined) = (format!("--{option}"), format!("--{option}="));
    words.into_iter().any(|word| {
        let word = word.to_string_lossy();
        word == alone || word.starts_with(&joined)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked_by_their_options() {
        let values =
            parse("capacity_in = \"700Mbit\"\npublic = true\nweight = 2\n").unwrap().values;
        assert_eq!(values["capacity-in"].value, "700Mbit");
        assert_eq!(values["weight"].value, "2");
        let refused = parse("# c\nweight = 2\nmax-rate = 700\n").unwrap_err();
        assert!(refused.starts_with(", line 3: `max-rate`"), "{refused}");
    }

    #[test]
    fn a_value_that_one_verb_takes_is_a_setting_and_one_that_none_takes_is_not() {
        for law in ["grant", "rbudp", "lambdastream"] {
            let values = parse(&format!("control = \"{law}\"\n")).unwrap().values;
            assert_eq!(values["control"].value, law);
        }
        assert!(parse("control = \"vegas\"\n").unwrap_err().starts_with(", line 1: `control`"));
    }

    #[test]
    fn nothing_that_only_sync_has_is_a_setting() {
        for name in ["delete-excluded", "delete", "max-delete", "backup-dir", "watch", "bwlimit"] {
            let refused = parse(&format!("{name} = \"1\"\n")).unwrap_err();
            assert!(refused.contains(&format!("as --{name}")), "{refused}");
        }
        assert!(parse("max-rate = \"700Mbit\"\n").is_ok(), "other verbs have it too");
    }

    #[test]
    fn an_unknown_setting_is_refused_with_its_line() {
        let refused = parse("weight = 2\ncapasity-in = \"1Mbit\"\n").unwrap_err();
        assert!(refused.starts_with(", line 2: unknown setting `capasity-in`;"), "{refused}");
        let table = parse("[serve]\npublic = true\n").unwrap_err();
        assert!(table.contains("not in a table [serve]"), "{table}");
        assert!(parse("mirror = \"x\"\n").unwrap_err().contains("as --mirror"));
        assert!(parse("a = = 1\n").unwrap_err().starts_with(", line 1"));
    }

    #[test]
    fn a_host_is_refused_with_the_line_of_the_key_in_its_own_table() {
        let text =
            "weight = 2\n[host.a]\nweight = 3\n\n[host.\"b\"]\naddress = \"b\"\nweight = 0\n";
        let refused = parse(text).unwrap_err();
        assert!(refused.starts_with(", line 7: [host.b] `weight`: a weight is"), "{refused}");
        let refused = parse("weight = 2\n\n[host.A]\nweight = 3\n").unwrap_err();
        assert!(refused.starts_with(", line 3: [host.A]: a name has"), "{refused}");
        let refused = parse("weight = 2\nhost = 3\n").unwrap_err();
        assert!(refused.starts_with(", line 2: `host`: write hosts as"), "{refused}");
        let read = parse(&text.replace("weight = 0", "weight = 1")).unwrap();
        assert_eq!(read.hosts.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(read.values["weight"].value, "2");
    }

    #[test]
    fn what_a_service_could_not_start_with_is_refused_with_its_line() {
        for (text, why) in [
            ("# c\nlisten = \"14899\"\n", ", line 2: `listen`: "),
            ("metrics = \"0.0.0.0:9811\"\n", ", line 1: `metrics`: "),
            ("\nmetrics = \"9811\"\n", ", line 2: `metrics`: "),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
        let of_a_router = parse("listen = \"localhost:4811\"\n").unwrap();
        let command = <crate::args::Cli as clap::CommandFactory>::command();
        let verb = command.find_subcommand("serve").unwrap();
        let given = |words: &[&str]| verb.clone().get_matches_from(words);
        let refused = of_a_router.taken(verb, &given(&["serve"])).unwrap_err();
        assert!(refused.starts_with(", line 1: `listen`: "), "{refused}");
        let named = given(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!(of_a_router.taken(verb, &named), Ok(()));
        assert_eq!(of_a_router.of_some_verbs().len(), 2, "{:?}", of_a_router.of_some_verbs());
    }

    #[test]
    fn tables_that_do_not_fit_together_are_refused_with_the_line_of_what_does_not() {
        let exports = "[export.a]\npath = \"/a\"\n[export.b]\npath = \"/b\"\n";
        let text = |more: &str| parse(&[exports, more].concat()).unwrap_err();
        for (more, line) in [
            ("[export.c]\nread = true\npath = \"c\"\n", 7),
            ("[export.c]\npath = \"/c\"\nwrite = [\n  \"stuff\",\n]\n", 8),
            ("[group.g]\nweight = 2\nread = [\"a\", \"nosuch/x\"]\n", 7),
            ("[group.f]\n[group.g]\ntotal-rate = \"1Mbit\"\nguarantee = \"2Mbit\"\n", 8),
            (
                "[group.g]\ntotal-rate = \"3Mbit\"\nguarantee = \"2Mbit\"\n[[group.g.at]]\n\
              window = \"08:00-09:00\"\ntotal-rate = \"1Mbit\"\n",
                10,
            ),
            ("[group.\"g h\"]\nweight = 2\n", 5),
            ("[group.g]\nkeys = [\n  \"SHA256:x\",\n]\n", 7),
        ] {
            let refused = text(more);
            assert!(refused.starts_with(&format!(", line {line}: ")), "{more}: {refused}");
        }
        let alone = parse("weight = 2\n[group.f]\n[group.g]\nrate=\"1Mbit\"\nquota=\"1GB\"\n");
        assert!(alone.unwrap_err().starts_with(", line 5: "));
    }

    #[test]
    fn an_option_is_named_by_itself_and_not_by_words_that_look_like_its_value() {
        use std::os::unix::ffi::OsStringExt;
        let named = |words: &[&[u8]]| {
            is_named("weight", words.iter().map(|word| OsString::from_vec(word.to_vec())))
        };
        assert!(named(&[b"gtp", b"--weight", b"abc"]));
        assert!(named(&[b"gtp", b"/tmp/\xff", b"--weight=\xff"]));
        assert!(!named(&[b"gtp", b"put", b"/tmp/\xff", b"gtp://h/abc"]));
        assert!(!named(&[b"gtp", b"--weights", b"--no-weight=abc", b"weight"]));
    }
}
