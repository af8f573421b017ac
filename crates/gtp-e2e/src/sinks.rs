//! One source and several sinks: what each sink gets beside its max-min share, and how often the
//! source reads each byte from its disk. The command itself may read a byte again that a slow sink
//! needs later, out of the system's page cache.
//!
//! A file goes to five sinks of different capacities by one `gtp put`, and a tree of small files to
//! one sink and to as many as a put may have. Nothing but the hosts' own capacities limits. Rates
//! are of IP bytes as the source counts them, between two moments at which all sinks are at work.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gtp_alloc::maxmin::{Network, Session, solve};
use serde_json::{Value, json};

use crate::cases::Tools;
use crate::lab::{Lab, namespace};

/// What the source can send, in Mbit/s.
pub(crate) const SOURCE: u32 = 600;
/// What each sink can receive; where sinks relay, they can send as much.
pub(crate) const SINKS: [u32; 5] = [100, 200, 300, 300, 300];
/// Bytes of the file: 1 GiB.
pub(crate) const SIZE: u64 = 1 << 30;
/// Seconds after the start between which rates are taken.
const STEADY: (f64, f64) = (5.0, 60.0);
/// After this time without a change a file counts as settled: one that has just changed is read
/// more often, to be sure of what it holds.
const SETTLED: Duration = Duration::from_secs(12);
/// How far a rate may be from the share, as a part of that.
const OFF: f64 = 0.01;

pub(crate) fn address(sink: usize) -> String {
    format!("10.77.0.{}", 30 + sink)
}

/// How many sinks get a tree.
const CROWDS: [usize; 3] = [1, 8, 32];
/// What each of them can receive, in Mbit/s: so little that two processors, which at 6 Mbit/s are
/// what limits, write for 32.
const SLOW: u32 = 3;
/// The tree's files, a hundred in each directory, and the bytes of each.
const FILES: usize = 10_000;
const FILE_BYTES: usize = 4_000;
/// How much longer than one sink all may take.
const LONGER: f64 = 1.3;

/// The network file: each of so many sinks is 20 ms from the source.
fn network(sinks: usize) -> String {
    let mut text = format!(
        "[emulator]\nmemory = \"1GiB\"\n[[link]]\nname = \"there\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"back\"\ndelay = \"10ms\"\n[[host]]\nname = \"src\"\n\
         namespace = \"{}\"\naddress = [\"10.77.0.10/24\"]\n",
        namespace("src")
    );
    for n in 0..sinks {
        text += &format!(
            "[[host]]\nname = \"s{n}\"\nnamespace = \"{}\"\naddress = [\"{}/24\"]\n\
             [[route]]\nfrom = \"src\"\nto = \"s{n}\"\nlinks = [\"there\"]\n\
             [[route]]\nfrom = \"s{n}\"\nto = \"src\"\nlinks = [\"back\"]\n",
            namespace(&format!("s{n}")),
            address(n)
        );
    }
    text
}

/// The max-min share of each sink in bit/s while all are at work.
fn fair() -> Result<Vec<f64>> {
    let mbit = |rate: &u32| f64::from(*rate) * 1e6;
    let mut network = Network::new([&SOURCE].into_iter().chain(&SINKS).map(mbit).collect())?;
    for sink in 1..=SINKS.len() as u32 {
        network.add(Session { uses: &[0, sink], weight: 1.0, demand: f64::INFINITY })?;
    }
    Ok(solve(&network))
}

/// One file to five sinks.
///
/// # Errors
/// If the network or a process cannot be started, or the command fails.
pub fn run(tools: &Tools) -> Result<Value> {
    let (lab, urls) = served(tools, &SINKS)?;
    let file = lab.dir.path().join("file");
    // A hole would not be read.
    crate::plans::write(&file, SIZE)?;
    leave_the_page_cache(&file)?;
    settle();
    let (told, from_disk) = put(&lab, tools, &file, &urls, SOURCE)?;
    figures(&told, &urls, from_disk as f64 / SIZE as f64)
}

/// Has the system forget a file's content: what its own writing left in memory would not be read
/// from the disk.
fn leave_the_page_cache(file: &Path) -> Result<()> {
    let mut dd = Command::new("dd");
    dd.arg(format!("of={}", file.display()));
    dd.args(["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"]);
    ensure!(dd.status()?.success(), "the file stays in the page cache");
    Ok(())
}

/// Bytes that a process has had the system read from a disk so far; none once it is gone.
fn read_from_disk(process: u32) -> Option<u64> {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    counts.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

/// The laboratory with a server at each sink, which can receive as much as its rate in Mbit/s, and
/// the address of an object at each.
fn served(tools: &Tools, rates: &[u32]) -> Result<(Lab, Vec<String>)> {
    let mut lab = Lab::open_file(&network(rates.len()), &tools.gtp)?;
    let id = lab.command("src", &tools.gtp).arg("id").output()?.stdout;
    let mut urls = Vec::new();
    for (n, rate) in rates.iter().enumerate() {
        let (name, data) = (format!("s{n}"), lab.dir.path().join(format!("data{n}")));
        fs::create_dir(&data)?;
        let config = lab.config(&format!("{name}-4810"));
        fs::create_dir_all(&config)?;
        fs::write(config.join("authorized_keys"), &id)?;
        let capacity = format!("{rate}Mbit");
        let options = ["--writable", "--daemon", "off", "--capacity-in", &capacity];
        lab.serve(&name, &data, &options)?;
        urls.push(format!("gtp://{}:4810/file", address(n)));
    }
    Ok((lab, urls))
}

/// Waits until what has just been written counts as settled.
fn settle() {
    std::thread::sleep(SETTLED);
}

/// Puts what is at a path to all sinks; returns what the command told, and the bytes that it had
/// read from a disk when it told the last of that.
fn put(
    lab: &Lab,
    tools: &Tools,
    path: &Path,
    urls: &[String],
    rate: u32,
) -> Result<(Vec<Value>, u64)> {
    let mut put = lab.command("src", &tools.gtp);
    put.arg("put").arg(path).args(urls).args(["--json", "--accept-new", "--daemon", "off"]);
    put.args(["--capacity-out", &format!("{rate}Mbit")]);
    let mut running = put.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = running.stdout.take().context("no output")?;
    let (mut told, mut from_disk) = (Vec::new(), 0);
    for line in BufReader::new(output).lines() {
        told.push(serde_json::from_str(&line?)?);
        from_disk = read_from_disk(running.id()).unwrap_or(from_disk);
    }
    let status = running.wait()?;
    ensure!(status.success(), "the put failed: {status}");
    Ok((told, from_disk))
}

/// A tree of small files to more and more sinks: a row for each number of them.
///
/// # Errors
/// As of [`run`]; if a file is missing at a sink.
pub fn trees(tools: &Tools) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    let mut alone = None;
    for sinks in CROWDS {
        let (lab, urls) = served(tools, &vec![SLOW; sinks])?;
        let tree = lab.dir.path().join("tree");
        plant(&tree)?;
        settle();
        let began = lab.now();
        put(&lab, tools, &tree, &urls, 10_000)?;
        let seconds = lab.now() - began;
        for n in 0..sinks {
            let files = count(&lab.dir.path().join(format!("data{n}")))?;
            ensure!(files == FILES, "sink {n} has {files} of {FILES} files");
        }
        let alone = *alone.get_or_insert(seconds);
        let longer = seconds / alone;
        let missed: Vec<String> = (longer > LONGER)
            .then(|| format!("{sinks} sinks take {longer:.2} times as long as one"))
            .into_iter()
            .collect();
        rows.push(json!({
            "case": "tree-to-many",
            "sinks": sinks,
            "seconds": seconds,
            "times_one": longer,
            "missed": missed,
        }));
    }
    Ok(rows)
}

/// Makes the tree.
fn plant(tree: &Path) -> Result<()> {
    for directory in 0..FILES / 100 {
        let directory = tree.join(format!("d{directory}"));
        fs::create_dir_all(&directory)?;
        for file in 0..100_usize {
            fs::write(directory.join(format!("f{file}")), [file as u8; FILE_BYTES])?;
        }
    }
    Ok(())
}

/// Regular files beneath a directory, those of transfers under way apart.
fn count(directory: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_whole = !name.ends_with(".gtp-part") && !name.ends_with(".gtp-journal");
        files += match entry.file_type()? {
            kind if kind.is_dir() => count(&entry.path())?,
            kind => usize::from(kind.is_file() && is_whole),
        };
    }
    Ok(files)
}

fn figures(told: &[Value], urls: &[String], from_disk: f64) -> Result<Value> {
    let fair = fair()?;
    let (mut rates, mut seconds, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for (url, fair) in urls.iter().zip(&fair) {
        let own = || told.iter().filter(|line| line["sink"] == *url);
        let rate = steady(own().filter(|line| line["event"] == "progress"))?;
        let off = rate / fair - 1.0;
        if off.abs() > OFF {
            missed.push(format!("{url}: its rate is {:+.2} % from its share", 100.0 * off));
        }
        let done = own().find(|line| line["event"] == "done").context("one is not done")?;
        seconds.push(done["seconds"].as_f64().context("no time")?);
        rates.push(rate);
    }
    // Those that are faster end before the slow one does.
    if seconds.iter().skip(1).any(|&fast| fast > 0.95 * seconds[0]) {
        missed.push(format!("the slow sink delays others: {seconds:?}"));
    }
    let ended = told.last().context("nothing was said")?;
    let read = ended["read_bytes"].as_u64().context("no count")? as f64 / SIZE as f64;
    // Less would say that it was in memory, and nothing of how often it is read.
    if (from_disk - 1.0).abs() > OFF {
        missed.push(format!("each byte is read {from_disk:.3} times from the disk"));
    }
    let worst = rates.iter().zip(&fair).map(|(rate, fair)| (rate / fair - 1.0).abs());
    Ok(json!({
        "case": "one-to-five",
        "rates": rates,
        "fair": fair,
        "worst_share_off": worst.fold(0.0, f64::max),
        "seconds": seconds,
        "reads_of_each_byte": read,
        "reads_from_disk": from_disk,
        "missed": missed,
    }))
}

/// The mean rate on the wire between the two moments.
fn steady<'e>(progress: impl Iterator<Item = &'e Value>) -> Result<f64> {
    let mut within = progress.filter_map(|line| {
        let at = line["seconds"].as_f64()?;
        let bytes = line["sources"][0]["wire_bytes"].as_u64()?;
        (STEADY.0..=STEADY.1).contains(&at).then_some((at, bytes as f64))
    });
    let (first, last) = (within.next().context("no progress")?, within.last());
    let last = last.context("one line of progress")?;
    Ok((last.1 - first.1) * 8.0 / (last.0 - first.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_sink_has_all_that_it_can_take_and_the_others_share_the_rest() {
        assert_eq!(fair().unwrap(), [100e6, 125e6, 125e6, 125e6, 125e6]);
    }
}
