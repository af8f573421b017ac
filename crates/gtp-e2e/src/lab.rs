//! A laboratory: one sink and several sources in namespaces, joined by emulated links.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gtp_emu::stats::Snapshot;
use gtp_emu::{Handle, NetSpec};
use serde_json::Value;

/// One source's place in the network.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Random loss towards the sink, e.g. `0.1%`.
    pub loss: String,
    /// Rate of a link of its own towards the sink, e.g. `300Mbit`, with its queue.
    pub own: Option<(String, String)>,
}

impl Branch {
    /// A clean path with this round-trip time.
    pub fn rtt(rtt_ms: f64) -> Branch {
        Branch { rtt_ms, loss: "0%".into(), own: None }
    }
}

/// The network: branches that meet in the sink's access link, perhaps after a shared one.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Rate of the sink's access link and its queue.
    pub access: (String, String),
    /// A link that all branches share before the access link.
    pub middle: Option<(String, String)>,
    /// One per source.
    pub branches: Vec<Branch>,
}

/// The network file of a shape.
pub fn network_file(shape: &Shape) -> String {
    let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
    let mut link = |name: &str, fields: &str| {
        text.push_str(&format!("[[link]]\nname = \"{name}\"\n{fields}\n"));
    };
    let limited =
        |(rate, queue): &(String, String)| format!("rate = \"{rate}\"\nqueue = \"{queue}\"");
    link("access", &limited(&shape.access));
    if let Some(middle) = &shape.middle {
        link("middle", &limited(middle));
    }
    for (i, branch) in shape.branches.iter().enumerate() {
        let half = branch.rtt_ms / 2.0;
        let loss = &branch.loss;
        link(&format!("there{i}"), &format!("delay = \"{half}ms\"\nloss = \"{loss}\""));
        link(&format!("back{i}"), &format!("delay = \"{half}ms\""));
        if let Some(own) = &branch.own {
            link(&format!("own{i}"), &limited(own));
        }
    }
    let mut host = |name: &str, address: String| {
        text.push_str(&format!(
            "[[host]]\nname = \"{name}\"\nnamespace = \"{}\"\n\
             address = [\"{address}/24\"]\n",
            namespace(name)
        ));
    };
    host("sink", sink_address());
    for i in 0..shape.branches.len() {
        host(&format!("src{i}"), source_address(i));
    }
    for (i, branch) in shape.branches.iter().enumerate() {
        let mut links = vec![format!("\"there{i}\"")];
        links.extend(branch.own.as_ref().map(|_| format!("\"own{i}\"")));
        links.extend(shape.middle.as_ref().map(|_| "\"middle\"".to_owned()));
        links.push("\"access\"".into());
        text.push_str(&format!(
            "[[route]]\nfrom = \"src{i}\"\nto = \"sink\"\nlinks = [{}]\n\
             [[route]]\nfrom = \"sink\"\nto = \"src{i}\"\nlinks = [\"back{i}\"]\n",
            links.join(", ")
        ));
    }
    text
}

/// The network file of `pairs` (source, sink) among as many sources as `rtts_ms` has entries, and
/// as many sinks, each behind an access link of this rate and queue.
pub fn mesh_file((rate, queue): (&str, &str), rtts_ms: &[f64], pairs: &[(usize, usize)]) -> String {
    let mut text = String::from("[emulator]\nmemory = \"1GiB\"\n");
    for (i, rtt) in rtts_ms.iter().enumerate() {
        let half = rtt / 2.0;
        text.push_str(&format!(
            "[[link]]\nname = \"access{i}\"\nrate = \"{rate}\"\nqueue = \"{queue}\"\n\
             [[link]]\nname = \"there{i}\"\ndelay = \"{half}ms\"\n\
             [[link]]\nname = \"back{i}\"\ndelay = \"{half}ms\"\n\
             [[host]]\nname = \"src{i}\"\nnamespace = \"{}\"\naddress = [\"{}/24\"]\n\
             [[host]]\nname = \"sink{i}\"\nnamespace = \"{}\"\n\
             address = [\"10.77.0.{}/24\"]\n",
            namespace(&format!("src{i}")),
            source_address(i),
            namespace(&format!("sink{i}")),
            100 + i
        ));
    }
    for (from, to) in pairs {
        text.push_str(&format!(
            "[[route]]\nfrom = \"src{from}\"\nto = \"sink{to}\"\n\
             links = [\"there{from}\", \"access{to}\"]\n\
             [[route]]\nfrom = \"sink{to}\"\nto = \"src{from}\"\nlinks = [\"back{from}\"]\n"
        ));
    }
    text
}

/// A host's network namespace. It carries this process's number, so that laboratories of two
/// processes at once have hosts of their own.
pub fn namespace(host: &str) -> String {
    format!("gtp-{}-{host}", std::process::id())
}

/// The sink's address.
pub fn sink_address() -> String {
    "10.77.0.1".into()
}

/// Source `i`'s address.
pub fn source_address(i: usize) -> String {
    format!("10.77.0.{}", 10 + i)
}

/// A running network, sampled every ten milliseconds, or as often as it was opened for.
pub struct Lab {
    handle: Arc<Handle>,
    stop: Arc<AtomicBool>,
    sampler: Option<JoinHandle<Vec<(f64, Snapshot)>>>,
    began: Instant,
    /// Files of this laboratory.
    pub dir: tempfile::TempDir,
    children: Vec<Child>,
    gtp: PathBuf,
}

impl Lab {
    /// Opens a laboratory of this shape with the `gtp` binary at `gtp`.
    ///
    /// # Errors
    /// If the caller is not root, or the network cannot be made.
    pub fn open(shape: &Shape, gtp: &Path) -> Result<Lab> {
        Lab::open_file(&network_file(shape), gtp)
    }

    /// The same, sampled so often: where milliseconds are measured.
    ///
    /// # Errors
    /// As [`Lab::open`].
    pub fn open_sampled(shape: &Shape, gtp: &Path, every: Duration) -> Result<Lab> {
        Lab::open_file_sampled(&network_file(shape), gtp, every)
    }

    /// The same from a network file's text.
    ///
    /// # Errors
    /// As [`Lab::open`].
    pub fn open_file(network: &str, gtp: &Path) -> Result<Lab> {
        Lab::open_file_sampled(network, gtp, EVERY)
    }

    fn open_file_sampled(network: &str, gtp: &Path, every: Duration) -> Result<Lab> {
        ensure!(gtp.exists(), "{} is missing: cargo build --release", gtp.display());
        let spec = NetSpec::parse(network)?;
        let handle = Arc::new(gtp_emu::Emulator::router(&spec).context("the router needs root")?);
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let sampler = std::thread::spawn({
            let (handle, stop) = (Arc::clone(&handle), Arc::clone(&stop));
            move || sample(&handle, &stop, (began, every))
        });
        Ok(Lab {
            handle,
            stop,
            sampler: Some(sampler),
            began,
            dir: tempfile::tempdir()?,
            children: Vec::new(),
            gtp: gtp.to_owned(),
        })
    }

    /// Seconds since the laboratory opened.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The emulator.
    pub fn emulator(&self) -> &Handle {
        &self.handle
    }

    /// A command that runs `program` in a host's namespace with its own configuration.
    pub fn command(&self, host: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace(host)]).arg(program);
        command.env("GTP_CONFIG_DIR", self.dir.path().join(host));
        command
    }

    /// Lets TCP connections of a host have this many bytes of buffer each way.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn room_for_tcp(&self, host: &str, bytes: u64) -> Result<()> {
        let room = [
            format!("net.ipv4.tcp_rmem=4096 131072 {bytes}"),
            format!("net.ipv4.tcp_wmem=4096 65536 {bytes}"),
        ];
        let mut sysctl = self.command(host, Path::new("sysctl"));
        ensure!(sysctl.args(["-q", "-w"]).args(room).status()?.success(), "no room for windows");
        Ok(())
    }

    /// `gtp` for a user on a host, with a configuration of this name.
    ///
    /// # Errors
    /// If the configuration's directory cannot be made.
    pub fn command_as(&self, user: u32, host: &str, name: &str) -> Result<Command> {
        let config = self.config(name);
        std::fs::create_dir_all(&config)?;
        std::os::unix::fs::chown(&config, Some(user), None)?;
        let mut command = self.command(host, Path::new("setpriv"));
        command
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .arg("--clear-groups")
            .arg(&self.gtp);
        command.env("GTP_CONFIG_DIR", config);
        Ok(command)
    }

    /// Where a configuration of this name is.
    pub fn config(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts `gtp serve` on a host; returns the key's fingerprint.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn serve(&mut self, host: &str, dir: &Path, options: &[&str]) -> Result<String> {
        self.serve_as(0, host, 4810, dir, options)
    }

    /// The same for a user, at a port of its own, so that a host can have several.
    ///
    /// # Errors
    /// As [`Lab::serve`].
    pub fn serve_as(
        &mut self,
        user: u32,
        host: &str,
        port: u16,
        dir: &Path,
        options: &[&str],
    ) -> Result<String> {
        let mut command = self.command_as(user, host, &format!("{host}-{port}"))?;
        command.arg("serve").arg(dir).args(["--json", "--listen", &format!("0.0.0.0:{port}")]);
        command.args(options);
        let log = std::fs::File::create(self.dir.path().join(format!("{host}-{port}.log")))?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        let out = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        self.children.push(child);
        let said: Value = serde_json::from_str(&line).context("serve said nothing")?;
        Ok(said["fingerprint"].as_str().context("no fingerprint")?.to_owned())
    }

    /// Starts any program on a host; it ends with the laboratory.
    ///
    /// # Errors
    /// If it cannot start.
    pub fn start(&mut self, host: &str, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(host, Path::new(program));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(command.spawn()?);
        Ok(())
    }

    /// Kills what was started `i`-th.
    pub fn kill(&mut self, i: usize) {
        if let Some(child) = self.children.get_mut(i) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Ends everything; returns the samples.
    ///
    /// # Errors
    /// If the sampler failed, or the emulator lost what its links did not drop.
    pub fn close(mut self) -> Result<Vec<(f64, Snapshot)>> {
        self.stop.store(true, Ordering::Relaxed);
        let sampler = self.sampler.take().context("closed once")?;
        let samples = sampler.join().map_err(|_| anyhow::anyhow!("the sampler failed"))?;
        samples.last().map_or(Ok(()), |(_, last)| carried_all(last))?;
        Ok(samples)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        // It holds the network, too; the next laboratory's hosts have the same names.
        let _ = self.sampler.take().map(JoinHandle::join);
    }
}

/// Often enough for all that is not counted in milliseconds.
const EVERY: Duration = Duration::from_millis(10);

/// A network that loses packets by itself is not the one that was to be measured over.
fn carried_all(counted: &Snapshot) -> Result<()> {
    let (refused, failed) = (counted.refused_packets, counted.failed_packets);
    ensure!(refused == 0, "{refused} packets found no room in the emulator");
    ensure!(failed == 0, "{failed} packets were not taken by a host");
    Ok(())
}

fn sample(
    handle: &Handle,
    stop: &AtomicBool,
    (began, every): (Instant, Duration),
) -> Vec<(f64, Snapshot)> {
    let mut samples = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok(snapshot) = handle.stats() {
            samples.push((began.elapsed().as_secs_f64(), snapshot));
        }
        std::thread::sleep(every);
    }
    // The emulator says when it looked; when its answer was heard is later by what comes between.
    let offset = samples.iter().map(|(heard, s)| heard - s.t).fold(f64::INFINITY, f64::min);
    samples.into_iter().map(|(_, snapshot)| (snapshot.t + offset, snapshot)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_the_emulator_loses_spoil_what_is_measured_and_those_without_a_route_do_not() {
        let whole = Snapshot { unrouted_packets: 3, ..Snapshot::default() };
        assert!(carried_all(&whole).is_ok());
        assert!(carried_all(&Snapshot { refused_packets: 1, ..whole.clone() }).is_err());
        assert!(carried_all(&Snapshot { failed_packets: 1, ..whole }).is_err());
    }

    #[test]
    fn two_laboratories_at_once_have_no_namespace_in_common() {
        let own = format!("-{}-", std::process::id());
        let access = ("100Mbit".to_owned(), "10ms".to_owned());
        let branches = vec![Branch::rtt(10.0), Branch::rtt(20.0)];
        let star = network_file(&Shape { access, middle: None, branches });
        let mesh = mesh_file(("100Mbit", "10ms"), &[10.0, 20.0], &[(0, 1)]);
        for (file, hosts) in [(star, 3), (mesh, 4)] {
            let spec = NetSpec::parse(&file).unwrap();
            let mut names: Vec<_> = spec.hosts.iter().map(|host| &host.namespace).collect();
            assert!(names.iter().all(|name| name.contains(&own)), "{names:?}");
            names.sort();
            names.dedup();
            assert_eq!(names.len(), hosts);
            let of = |host: &str| spec.hosts.iter().find(|h| h.name == host).unwrap();
            assert_eq!(of("src0").namespace, namespace("src0"), "where programs are started");
        }
    }
}
