//! Results of real runs that stand beside the papers' entries.
//!
//! An entry of `repro/` that is of a real program names the words with which this program runs its
//! network. What they print is stored beside the entry as `real.json`, with the machine, the
//! commit and the day; `gtp-lab repro` reads and judges it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use gtp_lab::stored::{FILE, Stored};
use serde::Deserialize;
use serde_json::Value;

/// An entry that can be run for real.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runnable {
    /// Where it is.
    pub folder: PathBuf,
    /// The words of the command.
    pub words: Vec<String>,
    /// About how many seconds it takes.
    pub seconds: u64,
}

impl Runnable {
    /// Its id.
    pub fn id(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Whether a result of this very command is stored beside it.
    pub fn has_result(&self) -> bool {
        let read = std::fs::read_to_string(self.folder.join(FILE)).ok();
        let stored = read.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        stored.is_some_and(|stored| stored.command == self.words.join(" "))
    }
}

/// An entry's file, of which nothing but the run is read here.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    real: Real,
}

#[derive(Default, Deserialize)]
struct Real {
    run: Option<String>,
    #[serde(default)]
    seconds: u64,
}

/// The entries of these ids; all that name a run if none is given. Each distinct run stands once,
/// with the folders that share it side by side.
///
/// # Errors
/// If a file cannot be read, or an id is of no entry that names a run.
pub fn runnable(entries: &Path, ids: &[String]) -> Result<Vec<Runnable>> {
    let mut all = Vec::new();
    for paper in folders(entries)? {
        for folder in folders(&paper)? {
            let file = folder.join("entry.toml");
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let entry: Entry = toml::from_str(&text).with_context(|| file.display().to_string())?;
            let Some(run) = entry.real.run else { continue };
            let words = run.split_whitespace().map(str::to_owned).collect();
            all.push(Runnable { folder, words, seconds: entry.real.seconds });
        }
    }
    let is = |one: &Runnable, id: &String| one.folder.file_name().is_some_and(|name| *name == **id);
    if let Some(id) = ids.iter().find(|id| !all.iter().any(|one| is(one, id))) {
        bail!("no entry {id} names a run");
    }
    all.retain(|one| ids.is_empty() || ids.iter().any(|id| is(one, id)));
    all.sort_by(|a, b| (&a.words, &a.folder).cmp(&(&b.words, &b.folder)));
    Ok(all)
}

/// The folders in one, in order.
fn folders(of: &Path) -> Result<Vec<PathBuf>> {
    let listing = std::fs::read_dir(of).with_context(|| format!("cannot read {}", of.display()))?;
    let mut found = Vec::new();
    for item in listing {
        let path = item?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Stores what a run printed.
///
/// # Errors
/// If the machine or the commit cannot be named, or the file cannot be written.
pub fn store(entry: &Runnable, rows: &[Value]) -> Result<PathBuf> {
    let stored = Stored {
        command: entry.words.join(" "),
        machine: machine()?,
        commit: commit(&entry.folder)?,
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        rows: rows.iter().map(rounded).collect(),
    };
    let path = entry.folder.join(FILE);
    let text = lines(&stored)?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The file's text: a line for each field, and one for each row, so that versions can be compared.
fn lines(stored: &Stored) -> Result<String> {
    let Value::Object(mut fields) = serde_json::to_value(stored)? else { bail!("no object") };
    fields.remove("rows");
    let heads = fields.iter().map(|(name, value)| format!("  \"{name}\": {value},\n"));
    let rows: Vec<String> = stored.rows.iter().map(|row| format!("    {row}")).collect();
    Ok(format!("{{\n{}  \"rows\": [\n{}\n  ]\n}}\n", heads.collect::<String>(), rows.join(",\n")))
}

/// The same with five digits of each number that is not whole.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let short = number.as_f64().and_then(|x| format!("{x:.4e}").parse::<f64>().ok());
            short.map_or(Value::Null, Value::from)
        }
        Value::Array(all) => all.iter().map(rounded).collect(),
        Value::Object(all) => all.iter().map(|(k, v)| (k.clone(), rounded(v))).collect(),
        other => other.clone(),
    }
}

/// Cores, processor and kernel.
fn machine() -> Result<String> {
    let cores = std::thread::available_parallelism()?;
    let info = std::fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unnamed processor", |(_, name)| name.trim());
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!("{cores} cores of {model}, Linux {}", release.trim()))
}

/// The commit of the working tree that holds the entries; it must hold all that was built.
fn commit(folder: &Path) -> Result<String> {
    let git = |words: &[&str]| -> Result<String> {
        let output = Command::new("git").arg("-C").arg(folder).args(words).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).context("cannot name the commit")?;
    let changed = git(&["status", "--porcelain", "--", ":/crates", ":/Cargo.lock"])?;
    Ok(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (id, text) in of {
            let folder = root.path().join("paper").join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("entry.toml"), text).unwrap();
        }
        root
    }

    #[test]
    fn what_is_stored_is_json_with_five_digits_and_a_line_for_each_row() {
        let row = serde_json::json!({"rates": [1.234_567_8, 3], "ok": true, "none": null});
        let stored = Stored {
            command: "run \"c\"".into(),
            machine: "m".into(),
            commit: "c".into(),
            date: "d".into(),
            rows: vec![rounded(&row), rounded(&row)],
        };
        let text = lines(&stored).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(&stored).unwrap());
        assert_eq!(read["rows"][1]["rates"], serde_json::json!([1.2346, 3]));
        assert_eq!(text.lines().count(), 10);
    }

    #[test]
    fn a_result_is_there_if_it_is_of_the_command_that_the_entry_names() {
        let root = entries(&[("a", "[real]\nrun = 'run frames'\n")]);
        let find = || runnable(root.path(), &[]).unwrap().remove(0);
        assert!(!find().has_result());
        let stored = |command: &str| {
            let rest = r#""machine": "m", "commit": "c", "date": "d", "rows": []"#;
            let text = format!(r#"{{"command": "{command}", {rest}}}"#);
            std::fs::write(root.path().join("paper/a").join(FILE), text).unwrap();
        };
        stored("run frames");
        assert!(find().has_result());
        stored("run frames --runs 1");
        assert!(!find().has_result());
    }

    #[test]
    fn entries_that_name_a_run_are_found_and_others_refused() {
        let root = entries(&[
            ("a", "title = 'a'\n[real]\nrun = 'run frames'\nseconds = 90\n"),
            ("b", "title = 'b'\n[real]\n"),
            ("c", "title = 'c'\n"),
        ]);
        let all = runnable(root.path(), &[]).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].id(), all[0].seconds), ("a".to_owned(), 90));
        assert_eq!(all[0].words, ["run", "frames"]);
        assert_eq!(runnable(root.path(), &["a".to_owned()]).unwrap(), all);
        for id in ["b", "c", "d"] {
            let refused = runnable(root.path(), &[id.to_owned()]).unwrap_err();
            assert!(refused.to_string().contains(id), "{refused}");
        }
    }
}
